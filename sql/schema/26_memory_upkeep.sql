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
-- Makes one memory of several that say the same: whoever holds one of them holds p_keep, with its own metadata of all of them and the
-- highest of its own importances, and the others are superseded by it. False, with nothing written, where one of them has ended
-- meanwhile, or somebody's metadata are too large for one.
DECLARE
    v_keep memory;
    v_all uuid[] := p_others || p_keep;
    v_from memory;
    v_now timestamptz;
    v_held record;
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
    -- All of them end when the next version begins.
    v_now := (SELECT max(next_moment_v1(n.id)) FROM unnest(v_all) AS n (id));
    FOR v_held IN
        WITH held AS MATERIALIZED (
            SELECT a.*, CASE WHEN a.actor = m.agent_id THEN importance_v1(m.id, m.version, m.importance, NULL) ELSE a.importance END AS left_of_it
            FROM memory_assertion AS a JOIN memory AS m ON m.id = a.id AND m.superseded_at IS NULL WHERE a.id = ANY (v_all) AND a.ended_at IS NULL
        )
        SELECT h.actor, h.by_person, min(h.said_at) AS said_at, max(h.left_of_it) AS importance,
            -- The words are those in the memory that is kept, or in the one that was held first.
            (array_agg(h.content ORDER BY h.id <> p_keep, h.said_at, h.assertion))[1] AS content,
            (array_agg(h.author ORDER BY h.id <> p_keep, h.said_at, h.assertion))[1] AS author,
            (SELECT coalesce(jsonb_object_agg(t.key, t.value ORDER BY o.id = p_keep, o.left_of_it, o.id), '{}')
             FROM held AS o CROSS JOIN jsonb_each(o.metadata) AS t WHERE o.actor = h.actor AND o.by_person = h.by_person) AS metadata
        FROM held AS h GROUP BY h.actor, h.by_person
        ORDER BY h.by_person DESC, min(h.said_at), min(h.assertion)
    LOOP
        IF octet_length(v_held.metadata::text) > 65536 THEN
            -- Ends what was written of it, too.
            RAISE EXCEPTION USING ERRCODE = 'program_limit_exceeded';
        END IF;
        UPDATE memory_assertion AS a
        SET ended_at = v_now, superseded_by = nullif(p_keep, a.id), reason = 'Merged with others that say nearly the same.'
        WHERE a.id = ANY (v_all) AND a.actor = v_held.actor AND a.by_person = v_held.by_person AND a.ended_at IS NULL;
        INSERT INTO memory_assertion (id, actor, by_person, content, author, metadata, importance, said_at, recorded_at)
        VALUES (
            p_keep, v_held.actor, v_held.by_person, v_held.content, v_held.author, v_held.metadata, v_held.importance, v_held.said_at, v_now);
        IF v_from.id IS NULL THEN
            -- The first holder's words are shown from now on, with the vectors that they had.
            SELECT m.* INTO v_from FROM memory AS m
            WHERE m.id = ANY (v_all) AND m.superseded_at IS NULL AND m.content = v_held.content AND m.author IS NOT DISTINCT FROM v_held.author
              AND m.vector IS NOT NULL LIMIT 1;
        END IF;
    END LOOP;
    UPDATE memory_namespace AS s SET memories = s.memories - o.memories, lexemes = s.lexemes - o.lexemes
    FROM (SELECT count(*) AS memories, sum(m.lexemes) AS lexemes FROM memory AS m
          WHERE m.id = ANY (p_others) AND m.superseded_at IS NULL) AS o
    WHERE s.namespace = v_keep.namespace;
    UPDATE memory AS m
    SET superseded_at = v_now, superseded_by = p_keep, reason = 'Merged: another says nearly the same.'
    WHERE m.id = ANY (p_others) AND m.superseded_at IS NULL;
    PERFORM show_memory_v1(
        p_keep, v_now, v_from.model, v_from.vector,
        (SELECT json_agg(p.vector::text ORDER BY p.part) FROM memory_part AS p WHERE p.id = v_from.id AND p.version = v_from.version),
        'Merged with others that say nearly the same.');
    INSERT INTO memory_use AS u (id, access_count, last_accessed_at)
    SELECT p_keep, sum(o.access_count), max(o.last_accessed_at) FROM memory_use AS o WHERE o.id = ANY (p_others) HAVING count(*) > 0
    ON CONFLICT (id) DO UPDATE
    SET access_count = u.access_count + excluded.access_count, last_accessed_at = greatest(u.last_accessed_at, excluded.last_accessed_at);
    RETURN true;
EXCEPTION WHEN program_limit_exceeded THEN
    RETURN false;
END
$$;

CREATE FUNCTION recall.maintain_memories_v1(
    p_namespace text, p_page integer, p_unused interval, p_decay double precision, p_least double precision, p_age interval, p_accesses bigint
) RETURNS TABLE (decayed bigint, deleted bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Lets the importance of memories decay that no search found for p_unused, never found ones included, and deletes, with their versions,
-- those below p_least that are older than p_age, were found less than p_accesses times, and are no more important to others who hold them. An imported one is as old as its import. Items
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
    v_gone uuid[];
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
    v_gone := ARRAY(
        SELECT m.id FROM memory AS m LEFT JOIN memory_use AS u ON u.id = m.id
        WHERE m.id = ANY (v_page) AND m.superseded_at IS NULL AND m.item_key IS NULL
          AND importance_v1(m.id, m.version, m.importance, NULL) < p_least
          AND (SELECT min(o.recorded_at) FROM memory AS o WHERE o.id = m.id) < v_now - p_age
          AND coalesce(u.access_count, 0) < p_accesses
          AND NOT EXISTS (SELECT FROM memory_assertion AS a
                          WHERE a.id = m.id AND a.ended_at IS NULL AND a.actor <> m.agent_id AND a.importance >= p_least));
    UPDATE memory_namespace AS s SET memories = s.memories - cardinality(v_gone),
        lexemes = s.lexemes - (SELECT coalesce(sum(m.lexemes), 0) FROM memory AS m WHERE m.id = ANY (v_gone) AND m.superseded_at IS NULL)
    WHERE s.namespace = p_namespace;
    PERFORM drop_memories_v1(v_gone);
    deleted := cardinality(v_gone);
    RETURN NEXT;
END
$$;
