-- Items of LangGraph's store: memories with a key (20_memories.sql). Their id follows from namespace and key, their value is the metadata,
-- and their content what is indexed of it. They are never merged and do not decay; reads by key show the current version alone.

CREATE INDEX memory_items ON recall.memory (namespace, recorded_at) WHERE superseded_at IS NULL AND item_key IS NOT NULL;
COMMENT ON COLUMN recall.memory.item_key IS 'Of an item of LangGraph''s store: its key in the namespace; NULL for other memories.';
COMMENT ON COLUMN recall.memory.expires_at IS 'When an item with a ttl expires: readers do not see it from then on. A read may put it off.';

CREATE FUNCTION recall.matches_v1(p_value jsonb, p_filter jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = recall, pg_catalog, pg_temp
AS $$
-- Whether a value of an item is what a filter of LangGraph's asks for. A missing value is null. Numbers are compared as numbers and texts
-- by code points, as ISO 8601 times need it; of two types only $ne holds.
DECLARE
    v_value jsonb := coalesce(p_value, 'null');
BEGIN
    IF jsonb_typeof(p_filter) = 'array' THEN
        RETURN jsonb_typeof(v_value) = 'array' AND jsonb_array_length(v_value) = jsonb_array_length(p_filter) AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(p_filter) WITH ORDINALITY AS f (wanted, nth)
            WHERE NOT matches_v1(v_value -> (f.nth - 1)::integer, f.wanted));
    ELSIF jsonb_typeof(p_filter) <> 'object' THEN
        RETURN v_value = p_filter;
    ELSIF NOT EXISTS (SELECT FROM jsonb_object_keys(p_filter) AS k (key) WHERE starts_with(k.key, '$')) THEN
        RETURN jsonb_typeof(v_value) = 'object' AND NOT EXISTS (
            SELECT FROM jsonb_each(p_filter) AS f WHERE NOT matches_v1(v_value -> f.key, f.value));
    END IF;
    RETURN NOT EXISTS (
        SELECT FROM jsonb_each(p_filter) AS f
        CROSS JOIN LATERAL (SELECT CASE
            WHEN jsonb_typeof(v_value) <> jsonb_typeof(f.value) THEN NULL
            WHEN jsonb_typeof(v_value) = 'number' THEN numeric_cmp(v_value::numeric, f.value::numeric)
            WHEN jsonb_typeof(v_value) = 'string' THEN bttextcmp((v_value #>> '{}') COLLATE "C", (f.value #>> '{}') COLLATE "C")
        END AS sign) AS o
        WHERE NOT coalesce(CASE f.key
            WHEN '$eq' THEN v_value = f.value WHEN '$ne' THEN v_value <> f.value
            WHEN '$gt' THEN o.sign > 0 WHEN '$gte' THEN o.sign >= 0 WHEN '$lt' THEN o.sign < 0 WHEN '$lte' THEN o.sign <= 0 END, false));
END
$$;

CREATE FUNCTION recall.item_id_v1(p_namespace text, p_key text) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
-- The id of an item: half of the SHA-256 of its namespace, which holds no newline, and its key.
SELECT encode(substring(sha256(convert_to(p_namespace || E'\n' || p_key, 'UTF8')) FOR 16), 'hex')::uuid
$$;

CREATE FUNCTION recall.put_items_v1(
    p_actor text, p_role text, p_namespaces text[], p_keys text[], p_values text[], p_contents text[], p_vectors text[],
    p_parts text[], p_ttls double precision[], p_created timestamptz[], p_known timestamptz[], p_model smallint
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Puts items, or, where the value is NULL, deletes them: the current version ends, and a value begins the next one. The value that is
-- there already writes nothing but its new expiry. p_ttls: minutes, NULL for none. p_created: when an imported item was put first, NULL for now; p_known: since when it was known to have this value. A key must not be given twice.
DECLARE
    v_item record;
    v_known memory;
    v_same boolean;
    v_now timestamptz;
BEGIN
    PERFORM check_writer_v1(p_actor, p_role, i.namespace) FROM unnest(p_namespaces) AS i (namespace);
    -- In one order, so that two writers of several namespaces do not wait for one another.
    INSERT INTO memory_namespace (namespace)
    SELECT DISTINCT i.namespace FROM unnest(p_namespaces, p_values) AS i (namespace, value) WHERE i.value IS NOT NULL ORDER BY 1
    ON CONFLICT (namespace) DO NOTHING;
    PERFORM FROM memory_namespace AS s WHERE s.namespace = ANY (p_namespaces) ORDER BY s.namespace FOR UPDATE;
    FOR v_item IN
        SELECT item_id_v1(i.namespace, i.key) AS id, i.* , i.value::jsonb AS object, i.ttl * interval '1 minute' AS lasts
        FROM unnest(p_namespaces, p_keys, p_values, p_contents, p_vectors, p_parts, p_ttls, p_created, p_known)
            AS i (namespace, key, value, content, vector, parts, ttl, created, known)
    LOOP
        -- Locked, as its vectors and those of its parts could be made anew until it ends.
        SELECT * INTO v_known FROM memory AS m WHERE m.id = v_item.id ORDER BY m.version DESC LIMIT 1 FOR UPDATE;
        IF v_known.superseded_at IS NULL AND v_known.expires_at <= imem_now() THEN
            PERFORM end_memories_v1(v_item.namespace, ARRAY[v_item.id], 'Expired.');
            SELECT * INTO v_known FROM memory AS m WHERE m.id = v_item.id ORDER BY m.version DESC LIMIT 1;
        END IF;
        IF v_known.superseded_at IS NULL AND v_known.metadata::text = v_item.object::text AND v_known.content = v_item.content THEN
            UPDATE memory AS m SET ttl = v_item.lasts, expires_at = imem_now() + v_item.lasts
            WHERE m.id = v_item.id AND m.version = v_known.version
              AND (m.ttl IS DISTINCT FROM v_item.lasts OR m.expires_at <> imem_now() + v_item.lasts);
            CONTINUE;
        END IF;
        v_same := coalesce(v_known.content = v_item.content AND v_known.vector IS NOT NULL, false);
        IF v_known.superseded_at IS NULL AND v_known.id IS NOT NULL THEN
            PERFORM end_memories_v1(v_item.namespace, ARRAY[v_item.id], CASE WHEN v_item.object IS NULL THEN 'Deleted.' ELSE 'Put again.' END);
        END IF;
        CONTINUE WHEN v_item.object IS NULL;
        v_now := (SELECT greatest(imem_now(), m.superseded_at) FROM (SELECT max(o.superseded_at) AS superseded_at FROM memory AS o
                  WHERE o.id = v_item.id) AS m);
        INSERT INTO memory (
            id, version, namespace, memory_type, content, metadata, importance, agent_id, created_at, recorded_at, imported_known_at, model, vector,
            item_key, ttl, expires_at)
        VALUES (
            v_item.id, coalesce(v_known.version, 0) + 1, v_item.namespace, 'semantic', v_item.content, v_item.object, 0.5, p_actor,
            CASE WHEN v_known.superseded_at IS NULL AND v_known.id IS NOT NULL THEN v_known.created_at
                ELSE least(v_item.created, v_now) END, v_now,
            -- What was there before ended later than that.
            CASE WHEN v_known.id IS NULL THEN v_item.known END,
            CASE WHEN v_same THEN v_known.model WHEN v_item.vector IS NOT NULL THEN p_model END,
            CASE WHEN v_same THEN v_known.vector ELSE v_item.vector::halfvec END, v_item.key, v_item.lasts, v_now + v_item.lasts);
        PERFORM add_parts_v1(
            v_item.id, coalesce(v_known.version, 0) + 1, CASE WHEN v_same THEN v_item.id END, v_known.version, v_item.parts::json);
        UPDATE memory_namespace AS s SET memories = s.memories + 1, lexemes = s.lexemes + length(imem_words_v1(v_item.content))
        WHERE s.namespace = v_item.namespace;
        IF v_item.content <> '' AND NOT v_same AND v_item.vector IS NULL THEN
            INSERT INTO due_row (queue, kind, key) VALUES ('memories', 'Memory', v_item.id::text);
        END IF;
    END LOOP;
END
$$;

CREATE FUNCTION recall.end_memories_v1(p_namespace text, p_ids uuid[], p_reason text) RETURNS void
LANGUAGE sql SET search_path = recall, public, pg_temp
AS $$
-- Ends the current versions of memories of a namespace, whose lock the caller holds: nothing takes their place.
WITH ended AS (
    UPDATE memory AS m SET superseded_at = greatest(imem_now(), m.recorded_at + interval '1 microsecond'), reason = p_reason
    WHERE m.id = ANY (p_ids) AND m.superseded_at IS NULL RETURNING m.lexemes
)
UPDATE memory_namespace AS s SET memories = s.memories - e.memories, lexemes = s.lexemes - e.lexemes
FROM (SELECT count(*) AS memories, coalesce(sum(e.lexemes), 0) AS lexemes FROM ended AS e) AS e WHERE s.namespace = p_namespace
$$;

CREATE FUNCTION recall.refresh_items_v1(p_ids uuid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Puts off the expiry of items that were read.
UPDATE memory AS m SET expires_at = imem_now() + m.ttl
WHERE m.id = ANY (p_ids) AND m.superseded_at IS NULL AND m.expires_at > imem_now()
$$;
