-- Consolidation and decay of memories (20_memories.sql), by the pipelines alone.

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
    SELECT coalesce(jsonb_object_agg(t.key, t.value ORDER BY m.id = p_keep, m.importance, m.id), '{}') INTO v_metadata
    FROM memory AS m CROSS JOIN jsonb_each(m.metadata) AS t WHERE m.id = ANY (p_others || p_keep) AND m.superseded_at IS NULL;
    IF octet_length(v_metadata::text) > 65536 THEN
        RETURN false;
    END IF;
    -- All of them end when the next version begins.
    SELECT r.recorded_at INTO v_now FROM replace_memory_v1(
        v_keep, p_keep, v_keep.agent_id, v_keep.content, v_metadata,
        (SELECT max(m.importance) FROM memory AS m WHERE m.id = ANY (p_others || p_keep) AND m.superseded_at IS NULL),
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
    p_namespace text, p_unused interval, p_decay double precision, p_least double precision, p_age interval, p_accesses bigint
) RETURNS TABLE (decayed bigint, deleted bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Lets the importance of memories decay that no search found for p_unused, never found ones included, and deletes, with their versions,
-- those below p_least that are older than p_age and were found less than p_accesses times. An imported one is as old as its import. Once
-- a day: again on the same day it does nothing. Items stay until they are deleted or expire. A deletion takes what was superseded within the memory itself; what it superseded of others stays.
#variable_conflict use_column
DECLARE
    v_now timestamptz := imem_now();
BEGIN
    UPDATE memory_namespace AS s SET maintained_at = v_now WHERE s.namespace = p_namespace AND s.maintained_at < v_now - interval '20 hours';
    IF NOT FOUND THEN
        RETURN QUERY SELECT 0::bigint, 0::bigint;
        RETURN;
    END IF;
    PERFORM end_items_v1(p_namespace, ARRAY(
        SELECT m.id FROM memory AS m
        WHERE m.namespace = p_namespace AND m.superseded_at IS NULL AND m.item_key IS NOT NULL AND m.expires_at <= v_now), 'Expired.');
    UPDATE memory AS m SET importance = m.importance * p_decay
    WHERE m.namespace = p_namespace AND m.superseded_at IS NULL AND m.item_key IS NULL AND m.importance > p_least
      AND coalesce(
          (SELECT u.last_accessed_at FROM memory_use AS u WHERE u.id = m.id),
          (SELECT min(o.recorded_at) FROM memory AS o WHERE o.id = m.id)) < v_now - p_unused;
    GET DIAGNOSTICS decayed = ROW_COUNT;
    WITH gone AS MATERIALIZED (
        SELECT m.id, m.lexemes FROM memory AS m LEFT JOIN memory_use AS u ON u.id = m.id
        WHERE m.namespace = p_namespace AND m.superseded_at IS NULL AND m.item_key IS NULL AND m.importance < p_least
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
