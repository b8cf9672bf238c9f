-- Similar analyses: vectors, their nearest neighbours, and what has to be computed anew. All of it can be made again from the journal.
--
-- The extension is the server's: where the owner may not create it, a superuser has to do so before.

CREATE EXTENSION IF NOT EXISTS vector;

-- Vectors

CREATE TABLE embedding_model (
    model     smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model_id  text NOT NULL CHECK (length(model_id) BETWEEN 1 AND 200),
    dimension integer NOT NULL CHECK (dimension BETWEEN 1 AND 2000),
    unrelated double precision NOT NULL DEFAULT 0 CHECK (unrelated >= 0 AND unrelated < 1),
    in_use    boolean NOT NULL DEFAULT false,
    known_at  timestamptz NOT NULL DEFAULT imem_now(),
    UNIQUE (model_id, dimension)
);
CREATE UNIQUE INDEX embedding_model_in_use ON embedding_model (in_use) WHERE in_use;
COMMENT ON COLUMN embedding_model.unrelated IS 'Cosine of texts that have nothing to do with one another: similarity counts from there on.';
COMMENT ON TABLE embedding_model IS 'What made vectors. Those of two models are never compared; one is in use, another may be on its way.';

-- In half precision: as of a day all vectors are read, and to read them takes longer than to compare them. Numbers of 16 bits keep three
-- decimal places of each, which moves a distance by less than a thousandth; a page holds seven vectors instead of three.
--
-- An analysis of a market is compared by the market's question too. A question that is recorded after the analysis gives it a second
-- vector, from when both were known: which of the two came first does not decide what an analysis is compared by.
CREATE TABLE embedding (
    model        smallint NOT NULL REFERENCES embedding_model,
    kind         text NOT NULL,
    key          text NOT NULL,
    position     bigint NOT NULL REFERENCES event,
    corrects     boolean NOT NULL,
    order_key    text COLLATE "C" NOT NULL,
    known_at     timestamptz NOT NULL,
    recorded_at  timestamptz NOT NULL,
    subject_id   text,
    content_hash bytea NOT NULL,
    standing     boolean NOT NULL DEFAULT false,
    sole         boolean NOT NULL DEFAULT false,
    made_at      timestamptz NOT NULL DEFAULT imem_now(),
    vector       halfvec NOT NULL,
    question     bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (model, kind, key, position, question)
) WITH (toast_tuple_target = 8160);
-- In the row, as far as it fits: what compares every vector must not fetch each from elsewhere. CREATE TABLE takes STORAGE only from
-- Postgres 16 on.
ALTER TABLE embedding ALTER COLUMN vector SET STORAGE MAIN;
-- With the time first: before the table has statistics, a search by key would otherwise be planned by this index, and read all of it.
CREATE INDEX embedding_known ON embedding (known_at, model, kind);
CREATE INDEX embedding_several ON embedding (model, kind, key) WHERE NOT sole;
COMMENT ON TABLE embedding IS 'The vectors of a record: of its core and of each correction, from when that event counts.';
COMMENT ON COLUMN embedding.content_hash IS 'SHA-256 of the text that the vector was made of.';
COMMENT ON COLUMN embedding.standing IS 'Whether it is of the event that counts now: the last correction, else the earliest core. The others answer as of a day.';
COMMENT ON COLUMN embedding.sole IS 'Whether it is the only vector of its record, so that it is valid from when it counts: nearly all are.';
COMMENT ON COLUMN embedding.question IS 'Position of the event of a question that was recorded after the record and is part of the text; 0 for none.';

CREATE FUNCTION imem_embedding_index_v1(p_model smallint, p_dimension integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Makes the index of a model's vectors, if it is not there: HNSW needs one dimension, and must not mix models.
DECLARE
    v_name text := 'embedding_hnsw_' || p_model;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('imem.embedding_index', 0));
    IF to_regclass('public.' || v_name) IS NULL THEN
        EXECUTE format(
            'CREATE INDEX %I ON embedding USING hnsw ((vector::halfvec(%s)) halfvec_cosine_ops) WITH (m = 16, ef_construction = 64) '
            'WHERE model = %s AND kind = ''Analysis'' AND standing', v_name, p_dimension, p_model);
        -- After an import nearly all vectors are new: without statistics of them, plans read all for each pair.
        IF EXISTS (SELECT FROM embedding AS e WHERE e.model = p_model) THEN
            ANALYZE embedding;
        END IF;
    END IF;
END
$$;

CREATE FUNCTION imem_embedding_drop_v1(p_model smallint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
-- It gives up early, so that no queue of readers builds up behind it; the next run tries again.
SET lock_timeout = '2s'
AS $$
-- Drops the index of a model that is not in use any more.
BEGIN
    IF NOT EXISTS (SELECT FROM embedding_model AS m WHERE m.model = p_model AND m.in_use) THEN
        EXECUTE format('DROP INDEX IF EXISTS %I', 'embedding_hnsw_' || p_model);
    END IF;
END
$$;

CREATE FUNCTION imem_embedding_import_v1(p_model smallint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET lock_timeout = '2s'
AS $$
-- Drops the index of a model where an import brings most of its vectors: to make it once for all takes a tenth of the time that the
-- inserts into it take. It is made again after the vectors, or by the next run after a crash; until then searches are exact. Not where
-- there are so many that either would take long, or a reader holds it.
DECLARE
    v_stored bigint := (SELECT count(*) FROM (SELECT FROM embedding AS e WHERE e.model = p_model LIMIT 10001) AS counted);
    v_all bigint := (
        SELECT count(*) FROM (SELECT FROM record_head AS h WHERE h.kind = 'Analysis' AND h.grp = 'core' LIMIT 40001) AS counted);
BEGIN
    IF v_stored <= 10000 AND v_all <= 40000 AND v_all > 2 * v_stored THEN
        EXECUTE format('DROP INDEX IF EXISTS %I', 'embedding_hnsw_' || p_model);
    END IF;
EXCEPTION WHEN lock_not_available THEN
    NULL;
END
$$;

-- Questions of markets

-- Neighbours are of other questions: a series of a hundred that differ in figures alone would have nothing but its own members as
-- neighbours. The rule by which two questions are the same is the program's (kg/similarity.py), so the program stores the hashes by
-- which each is recognised.
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
COMMENT ON TABLE market_question IS 'Hashes by which the question of a market is recognised: a row for its core and for each correction.';
COMMENT ON COLUMN market_question.words IS 'Hash of its words without figures.';
COMMENT ON COLUMN market_question.series IS 'Hash of its series; NULL for none.';

CREATE FUNCTION imem_note_questions_v1(p_positions bigint[], p_words bigint[], p_series bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Stores the hashes of the questions that the given events recorded; existing rows stay.
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

-- Search

CREATE FUNCTION imem_nearest_v2(
    p_model smallint, p_keys text[], p_limit integer, p_most integer, p_known_until timestamptz, p_recorded_until timestamptz
) RETURNS TABLE (key text, candidate text, distance double precision)
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
SET hnsw.ef_search = 100
SET hnsw.iterative_scan = 'strict_order'
-- The bound where many analyses are of the same question: then it finds fewer than the limit.
SET hnsw.max_scan_tuples = 20000
SET enable_seqscan = off
SET jit = off
AS $$
-- For each of the given analyses, others on other subjects and of other questions that are nearest to it by the index, in the order
-- of distance, then of keys. All that are as near as the last are returned with it, p_most at most: which of them the index finds first
-- depends on the order in which they were stored. The limits leave out what was not known yet; the index finds less of what was, the less
-- that is.
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

-- Neighbours

CREATE TABLE similarity_build (
    version    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model      smallint NOT NULL REFERENCES embedding_model,
    rules      text NOT NULL,
    state      text NOT NULL CHECK (state IN ('building', 'current', 'replaced')),
    started_at timestamptz NOT NULL DEFAULT imem_now(),
    built_at   timestamptz,
    source_seq bigint NOT NULL DEFAULT 0,
    upto       text NOT NULL DEFAULT '',
    analyses   bigint NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX similarity_build_one ON similarity_build (state) WHERE state IN ('building', 'current');
COMMENT ON TABLE similarity_build IS 'Versions of the index of similar analyses: one is current, one may be on its way; readers take the current one whole.';
COMMENT ON COLUMN similarity_build.rules IS 'Version of the rules by which candidates are scored.';
COMMENT ON COLUMN similarity_build.upto IS 'Of a build: the last analysis, by key, that was looked at; a killed build goes on behind it.';

CREATE TABLE similar_analysis (
    version       bigint NOT NULL REFERENCES similarity_build,
    analysis_id   text NOT NULL,
    neighbour_id  text NOT NULL,
    score         double precision NOT NULL CHECK (score BETWEEN 0 AND 1),
    rank          smallint NOT NULL CHECK (rank BETWEEN 1 AND 10),
    model_version text NOT NULL,
    built_at      timestamptz NOT NULL DEFAULT imem_now(),
    PRIMARY KEY (version, analysis_id, neighbour_id)
);
CREATE INDEX similar_analysis_reverse ON similar_analysis (version, neighbour_id);
COMMENT ON TABLE similar_analysis IS 'The ten nearest neighbours of each analysis, on other subjects: what the applier draws as SIMILAR_TO.';
