-- Neighbours are of other questions: a series of a hundred that differ in figures alone would be nothing but its own neighbours. What
-- makes two questions the same is a rule of the program (kg/similarity.py), so the program notes by what each is known again.
CREATE TABLE market_question (
    subject_id  text NOT NULL,
    position    bigint NOT NULL,
    known_at    timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL,
    words       bigint NOT NULL,
    series      bigint,
    PRIMARY KEY (subject_id, position)
);
CREATE INDEX market_question_words ON market_question (words);
CREATE INDEX market_question_series ON market_question (series) WHERE series IS NOT NULL;
COMMENT ON TABLE market_question IS 'By what the question of a market is known again: a row for each statement and correction of it.';
COMMENT ON COLUMN market_question.words IS 'Hash of its words without figures.';
COMMENT ON COLUMN market_question.series IS 'Hash of its series; NULL for none.';

CREATE FUNCTION imem_note_questions_v1(p_positions bigint[], p_words bigint[], p_series bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Notes by what the questions of the given statements are known again; those that are noted stay.
INSERT INTO market_question (subject_id, position, known_at, recorded_at, words, series)
SELECT DISTINCT 'market:' || y.key, y.position, y.known_at, y.recorded_at, n.words, n.series
FROM unnest(p_positions, p_words, p_series) AS n (position, words, series)
JOIN event AS e ON e.position = n.position
JOIN record_history AS y ON y.kind = 'Market' AND y.key = e.record_key AND y.grp IN ('core', 'correction') AND y.position = e.position
ON CONFLICT (subject_id, position) DO NOTHING
$$;

CREATE FUNCTION imem_same_question_v1(p_subject_id text, p_known_until timestamptz, p_recorded_until timestamptz) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = public, pg_temp
AS $$
-- Markets that ever asked, as far as was known, what this one did: the same words but for figures, or of the same series.
SELECT b.subject_id FROM market_question AS a JOIN market_question AS b ON b.words = a.words
WHERE a.subject_id = p_subject_id AND a.known_at <= p_known_until AND a.recorded_at <= p_recorded_until
  AND b.known_at <= p_known_until AND b.recorded_at <= p_recorded_until
UNION
SELECT b.subject_id FROM market_question AS a JOIN market_question AS b ON b.series = a.series
WHERE a.subject_id = p_subject_id AND a.known_at <= p_known_until AND a.recorded_at <= p_recorded_until
  AND b.known_at <= p_known_until AND b.recorded_at <= p_recorded_until
$$;

CREATE FUNCTION imem_nearest_v2(
    p_model smallint, p_keys text[], p_limit integer, p_most integer, p_known_until timestamptz, p_recorded_until timestamptz
) RETURNS TABLE (key text, candidate text, distance double precision)
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
SET hnsw.ef_search = 100
SET hnsw.iterative_scan = 'strict_order'
-- So many are looked at where those of the same question are many; it finds fewer then.
SET hnsw.max_scan_tuples = 20000
SET enable_seqscan = off
SET jit = off
AS $$
-- For each of the given analyses, others on other subjects and of other questions that are nearest to it by the index, in the order
-- of distance, then of keys. All that are as near as the last come with it, p_most at most: which of them are met first depends on the
-- order in which they were stored. The limits leave out what was not known yet; the index finds less of what was, the less that is.
#variable_conflict use_column
DECLARE
    v_dimension integer := (SELECT m.dimension FROM embedding_model AS m WHERE m.model = p_model);
    v_same text[];
    v_one record;
BEGIN
    FOR v_one IN
        SELECT e.key, e.subject_id, e.vector FROM unnest(p_keys) AS w (key)
        JOIN embedding AS e ON e.model = p_model AND e.kind = 'Analysis' AND e.key = w.key AND e.standing
    LOOP
        v_same := ARRAY(SELECT imem_same_question_v1(v_one.subject_id, p_known_until, p_recorded_until));
        RETURN QUERY EXECUTE format(
            'SELECT $1, n.key, n.distance FROM (SELECT t.key, t.distance FROM ('
            'SELECT e.key, e.vector::halfvec(%1$s) <=> $2::halfvec(%1$s) AS distance FROM embedding AS e '
            'WHERE e.model = %2$s AND e.kind = ''Analysis'' AND e.standing AND e.subject_id IS DISTINCT FROM $3 '
            'AND (e.subject_id = ANY ($4)) IS NOT TRUE AND e.known_at <= $5 AND e.recorded_at <= $6 '
            'ORDER BY e.vector::halfvec(%1$s) <=> $2::halfvec(%1$s) LIMIT $7) AS t '
            'ORDER BY t.distance FETCH FIRST ($8) ROWS WITH TIES) AS n ORDER BY n.distance, n.key',
            v_dimension, p_model)
        USING v_one.key, v_one.vector, v_one.subject_id, v_same, p_known_until, p_recorded_until, p_most, p_limit;
    END LOOP;
END
$$;
