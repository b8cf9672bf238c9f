-- Vectors in half precision: as of a day all of them are read, and to read them takes longer than to compare them. Numbers of 16 bits
-- keep three decimal places of each, which moves a distance by less than a thousandth; a page holds seven vectors instead of three.

DO $$
DECLARE
    v_model record;
BEGIN
    FOR v_model IN SELECT model FROM embedding_model LOOP
        EXECUTE format('DROP INDEX IF EXISTS %I', 'embedding_hnsw_' || v_model.model);
    END LOOP;
END
$$;

ALTER TABLE embedding ALTER COLUMN vector TYPE halfvec USING vector::halfvec;
-- As before, in the row.
ALTER TABLE embedding ALTER COLUMN vector SET STORAGE MAIN;

CREATE OR REPLACE FUNCTION imem_embedding_index_v1(p_model smallint, p_dimension integer) RETURNS void
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
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION imem_nearest_v1(
    p_model smallint, p_keys text[], p_limit integer, p_known_until timestamptz, p_recorded_until timestamptz
) RETURNS TABLE (key text, candidate text, distance double precision)
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
SET hnsw.ef_search = 100
SET hnsw.iterative_scan = 'strict_order'
SET enable_seqscan = off
SET jit = off
AS $$
-- For each of the given analyses, others on other subjects that are nearest to it by the index, in the order of distance.
-- The limits leave out what was not known yet; the index finds less of what was, the less that is.
#variable_conflict use_column
DECLARE
    v_dimension integer := (SELECT m.dimension FROM embedding_model AS m WHERE m.model = p_model);
    v_one record;
BEGIN
    FOR v_one IN
        SELECT e.key, e.subject_id, e.vector FROM unnest(p_keys) AS w (key)
        JOIN embedding AS e ON e.model = p_model AND e.kind = 'Analysis' AND e.key = w.key AND e.standing
    LOOP
        RETURN QUERY EXECUTE format(
            'SELECT $1, n.key, n.distance FROM ('
            'SELECT e.key, e.vector::halfvec(%1$s) <=> $2::halfvec(%1$s) AS distance FROM embedding AS e '
            'WHERE e.model = %2$s AND e.kind = ''Analysis'' AND e.standing AND e.subject_id IS DISTINCT FROM $3 '
            'AND e.known_at <= $5 AND e.recorded_at <= $6 '
            'ORDER BY e.vector::halfvec(%1$s) <=> $2::halfvec(%1$s) LIMIT $4) AS n ORDER BY n.distance, n.key',
            v_dimension, p_model)
        USING v_one.key, v_one.vector, v_one.subject_id, p_limit, p_known_until, p_recorded_until;
    END LOOP;
END
$$;

SELECT imem_embedding_index_v1(model, dimension) FROM embedding_model;
