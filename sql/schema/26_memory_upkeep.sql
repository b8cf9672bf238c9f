-- Consolidation and decay of memories (20_memories.sql), by the pipelines alone.

CREATE TABLE recall.memory_decay (
    id         uuid NOT NULL,
    version    integer NOT NULL,
    at         timestamptz[] NOT NULL,
    importance double precision[] NOT NULL,
    PRIMARY KEY (id, version),
    FOREIGN KEY (id, version) REFERENCES recall.memory ON DELETE CASCADE,
    CHECK (cardinality(at) = cardinality(importance))
) WITH (fillfactor = 50);
COMMENT ON TABLE recall.memory_decay IS 'What was left of the importance of a version, and from when on, oldest first: one step a day at most. Apart from the version, so that a step rewrites no vectors and none of their indexes, and that an answer as of a day has the importance of that day.';

CREATE FUNCTION recall.importance_v1(p_id uuid, p_version integer, p_stored double precision, p_until timestamptz) RETURNS double precision
LANGUAGE sql STABLE SET search_path = recall, public, pg_temp
AS $$
-- What was left at a moment (NULL: now) of the importance that a version was stored with.
SELECT coalesce((
    SELECT d.importance[(SELECT count(*) FROM unnest(d.at) AS s (at) WHERE p_until IS NULL OR s.at <= p_until)]
    FROM memory_decay AS d WHERE d.id = p_id AND d.version = p_version), p_stored)
$$;

CREATE FUNCTION recall.merge_memories_v1(p_keep uuid, p_others uuid[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Makes one memory of several that say the same: p_keep gets a version with the highest importance and the metadata of all, and the
-- others are superseded by it. False, with nothing written, where one of them has ended meanwhile, or their metadata are too large for one.
#variable_conflict use_column
DECLARE
    v_keep memory;
    v_metadata jsonb;
    v_now timestamptz;
BEGIN
    PERFORM FROM memory_namespace AS s JOIN memory AS m ON m.namespace = s.namespace
    WHERE m.id = p_keep AND m.superseded_at IS NULL FOR UPDATE OF s;
    SELECT * INTO v_keep FROM memory AS m WHERE m.id = p_keep AND m.superseded_at IS NULL;
    IF v_keep.id IS NULL OR cardinality(p_others) <> (
        SELECT count(*) FROM memory AS m
        WHERE m.id = ANY (p_others) AND m.superseded_at IS NULL AND m.namespace = v_keep.namespace
    ) THEN
        RETURN false;
    END IF;
    SELECT coalesce(jsonb_object_agg(t.key, t.value ORDER BY m.id = p_keep, importance_v1(m.id, m.version, m.importance, NULL), m.id), '{}') INTO v_metadata
    FROM memory AS m CROSS JOIN jsonb_each(m.metadata) AS t WHERE m.id = ANY (p_others || p_keep) AND m.superseded_at IS NULL;
    IF octet_length(v_metadata::text) > 65536 THEN
        RETURN false;
    END IF;
    -- All of them end when the next version begins.
    SELECT r.recorded_at INTO v_now FROM replace_memory_v1(
        v_keep, p_keep, v_keep.agent_id, v_keep.content, v_metadata,
        (SELECT max(importance_v1(m.id, m.version, m.importance, NULL)) FROM memory AS m
         WHERE m.id = ANY (p_others || p_keep) AND m.superseded_at IS NULL),
        v_keep.model, v_keep.vector, NULL, v_keep.context_vector, 'Merged with others that say nearly the same.') AS r;
    UPDATE memory_namespace AS s SET memories = s.memories - o.memories, lexemes = s.lexemes - o.lexemes
    FROM (SELECT count(*) AS memories, sum(m.lexemes) AS lexemes FROM memory AS m
          WHERE m.id = ANY (p_others) AND m.superseded_at IS NULL) AS o
    WHERE s.namespace = v_keep.namespace;
    UPDATE memory AS m
    SET superseded_at = greatest(v_now, m.recorded_at + interval '1 microsecond'), superseded_by = p_keep, reason = 'Merged: another says nearly the same.'
    WHERE m.id = ANY (p_others) AND m.superseded_at IS NULL;
    INSERT INTO memory_use AS u (id, access_count, last_accessed_at)
    SELECT p_keep, sum(o.access_count), max(o.last_accessed_at) FROM memory_use AS o WHERE o.id = ANY (p_others) HAVING count(*) > 0
    ON CONFLICT (id) DO UPDATE
    SET access_count = u.access_count + excluded.access_count, last_accessed_at = greatest(u.last_accessed_at, excluded.last_accessed_at);
    RETURN true;
END
$$;

CREATE FUNCTION recall.maintain_memories_v1(
    p_namespace text, p_page integer, p_unused interval, p_decay double precision, p_least double precision, p_age interval, p_accesses bigint
) RETURNS TABLE (decayed bigint, deleted bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Lets the importance of memories decay that no search found for p_unused, never found ones included, and deletes, with their versions,
-- those below p_least that are older than p_age and were found less than p_accesses times. An imported one is as old as its import. Items
-- stay until they are deleted or expire. A deletion takes what was superseded within the memory itself; what it superseded of others stays.
--
-- Each call is one page, the next memories in the order of their ids, and notes how far it came: whatever ends between two, each memory
-- has its turn once in a round. A round begins 20 hours after the last one at the earliest, so that there is one a day; before, nothing
-- is done.
#variable_conflict use_column
DECLARE
    v_now timestamptz := imem_now();
    v_to uuid;
    v_page uuid[];
BEGIN
    SELECT coalesce(s.maintained_to, '00000000-0000-0000-0000-000000000000') INTO v_to FROM memory_namespace AS s
    WHERE s.namespace = p_namespace AND s.maintained_at < v_now - interval '20 hours' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 0::bigint, 0::bigint;
        RETURN;
    END IF;
    v_page := ARRAY(
        SELECT m.id FROM memory AS m WHERE m.namespace = p_namespace AND m.superseded_at IS NULL AND m.id > v_to
        ORDER BY m.id LIMIT p_page);
    UPDATE memory_namespace AS s
    SET maintained_to = v_page[p_page], maintained_at = CASE WHEN v_page[p_page] IS NULL THEN v_now ELSE s.maintained_at END
    WHERE s.namespace = p_namespace;
    PERFORM end_memories_v1(p_namespace, ARRAY(
        SELECT m.id FROM memory AS m
        WHERE m.id = ANY (v_page) AND m.superseded_at IS NULL AND m.item_key IS NOT NULL AND m.expires_at <= v_now), 'Expired.');
    INSERT INTO memory_decay AS d (id, version, at, importance)
    SELECT m.id, m.version, ARRAY[v_now], ARRAY[i.importance * p_decay]
    FROM memory AS m CROSS JOIN LATERAL (SELECT importance_v1(m.id, m.version, m.importance, NULL) AS importance) AS i
    WHERE m.id = ANY (v_page) AND m.superseded_at IS NULL AND m.item_key IS NULL AND p_decay < 1 AND i.importance > p_least
      AND coalesce(
          (SELECT u.last_accessed_at FROM memory_use AS u WHERE u.id = m.id),
          (SELECT min(o.recorded_at) FROM memory AS o WHERE o.id = m.id)) < v_now - p_unused
    ON CONFLICT (id, version) DO UPDATE SET at = d.at || excluded.at, importance = d.importance || excluded.importance;
    GET DIAGNOSTICS decayed = ROW_COUNT;
    WITH gone AS MATERIALIZED (
        SELECT m.id, m.lexemes FROM memory AS m LEFT JOIN memory_use AS u ON u.id = m.id
        WHERE m.id = ANY (v_page) AND m.superseded_at IS NULL AND m.item_key IS NULL
          AND importance_v1(m.id, m.version, m.importance, NULL) < p_least
          AND (SELECT min(o.recorded_at) FROM memory AS o WHERE o.id = m.id) < v_now - p_age
          AND coalesce(u.access_count, 0) < p_accesses
    ), versions AS (
        DELETE FROM memory AS m USING gone AS g WHERE m.id = g.id
    ), uses AS (
        DELETE FROM memory_use AS u USING gone AS g WHERE u.id = g.id
    ), counted AS (
        UPDATE memory_namespace AS s SET memories = s.memories - (SELECT count(*) FROM gone),
            lexemes = s.lexemes - (SELECT coalesce(sum(g.lexemes), 0) FROM gone AS g)
        WHERE s.namespace = p_namespace
    )
    SELECT count(*) INTO deleted FROM gone;
    RETURN NEXT;
END
$$;
