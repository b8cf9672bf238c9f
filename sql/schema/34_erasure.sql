-- Erasure of a person's data: names and ids of a person are replaced wherever the database holds text.

CREATE FUNCTION imem_term_pattern_v1(p_terms text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
-- The regular expression that matches each term as whole words, the longest first. A word also begins after the escape of a line break or
-- tab, which JSON writes with a letter.
SELECT string_agg(
    CASE WHEN t.term ~ '^\w' THEN '(?:\m|(?<=\\[bfnrt]))' ELSE '' END || regexp_replace(t.term, '(\W)', '\\\1', 'g')
    || CASE WHEN t.term ~ '\w$' THEN '\M' ELSE '' END, '|' ORDER BY length(t.term) DESC, t.term)
FROM unnest(p_terms) AS t (term)
$$;

CREATE FUNCTION imem_hold_events_v1() RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp
SET lock_timeout = '60s'
AS $$
-- Lets no event be appended until the transaction ends. For the owner alone.
BEGIN
    LOCK TABLE event IN SHARE ROW EXCLUSIVE MODE;
END
$$;
REVOKE EXECUTE ON FUNCTION imem_hold_events_v1() FROM PUBLIC;

CREATE FUNCTION imem_erase_v1(p_terms text[], p_pseudonym text, p_change boolean)
RETURNS TABLE (relation text, hits bigint, opaque bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp
SET lock_timeout = '60s'
AS $$
-- Replaces terms by a pseudonym, in all columns of text, arrays of text and JSON of the owner's tables; without p_change it counts only.
-- Returns for each table in which one is: rows found, and rows with one in binary columns, which are not changed. Hashes of events stay
-- what they were: who has an event's original can prove it. Vectors of changed texts are dropped, and their pipelines make new ones.
-- Letters are compared by the collation of the database: that of some columns knows ASCII alone.
-- Only the owner has the right to do it: rows that are never changed have triggers that it disables, until the transaction ends.
DECLARE
    v_pattern text := imem_term_pattern_v1(p_terms);
    v_texts oid[] := ARRAY['text'::regtype, 'varchar'::regtype, 'text[]'::regtype, 'json'::regtype, 'jsonb'::regtype]::oid[];
    v_table record;
    v_key record;
    v_key_names text[] := '{}';
BEGIN
    IF p_change THEN
        -- Keys of text refer to one another: what refers is compared once all are changed.
        FOR v_key IN
            SELECT k.conrelid::regclass AS relation, k.conname FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
            WHERE k.contype = 'f' AND NOT k.condeferrable AND k.conparentid = 0 AND pg_has_role(c.relowner, 'USAGE') AND EXISTS (
                SELECT FROM unnest(k.conkey) AS n JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = n
                WHERE a.atttypid = ANY (v_texts))
            ORDER BY 1, 2
        LOOP
            EXECUTE format('ALTER TABLE %s ALTER CONSTRAINT %I DEFERRABLE INITIALLY DEFERRED', v_key.relation, v_key.conname);
            v_key_names := v_key_names
                || format('ALTER TABLE %s ALTER CONSTRAINT %I NOT DEFERRABLE', v_key.relation, v_key.conname);
        END LOOP;
        -- Vectors are of texts that an event states, and their rows hold no text.
        WITH dropped AS (
            DELETE FROM embedding AS v USING event AS e
            WHERE e.position = v.position AND (e.payload::text ~* v_pattern OR e.body ~* v_pattern)
            RETURNING v.kind, v.key
        )
        INSERT INTO due_row (queue, kind, key) SELECT DISTINCT 'similar', d.kind, d.key FROM dropped AS d;
        DELETE FROM recall.memory_part AS p USING recall.memory AS m
        WHERE m.id = p.id AND m.version = p.version AND (m.content ~* v_pattern OR m.author ~* v_pattern);
    END IF;
    FOR v_table IN
        SELECT c.oid::regclass AS relation,
            string_agg(format('%I::text COLLATE "default" ~* $1', a.attname), ' OR ') FILTER (WHERE a.text) AS matches,
            string_agg(format(
                '%1$I = regexp_replace(%1$I::text COLLATE "default", $1, $2, ''gi'')::%2$s', a.attname, a.type), ', ')
                FILTER (WHERE a.text) AS changes,
            string_agg(format('%I = NULL', a.attname), ', ') FILTER (WHERE a.derived) AS drops,
            string_agg(format('position(convert_to(t.term, ''UTF8'') IN %I) > 0', a.attname), ' OR ') FILTER (WHERE a.opaque) AS opaque
        FROM pg_class AS c JOIN pg_namespace AS s ON s.oid = c.relnamespace
        JOIN LATERAL (
            SELECT a.attname, format_type(a.atttypid, NULL) AS type, a.atttypid = ANY (v_texts) AS text,
                a.atttypid = 'bytea'::regtype AS opaque,
                NOT a.attnotnull AND (a.atttypid = 'halfvec'::regtype OR a.attname = 'model' AND a.atttypid = 'int2'::regtype) AS derived
            FROM pg_attribute AS a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
        ) AS a ON true
        WHERE c.relkind = 'r' AND s.nspname !~ '^pg_|^information_schema$' AND pg_has_role(c.relowner, 'USAGE')
          AND c.relname <> 'schema_version'
        GROUP BY c.oid ORDER BY c.oid::regclass::text
    LOOP
        relation := v_table.relation::text;
        hits := 0;
        opaque := 0;
        IF v_table.opaque IS NOT NULL THEN
            EXECUTE format(
                'SELECT count(*) FROM %s AS r WHERE EXISTS (SELECT FROM unnest($1) AS t (term) WHERE %s)', relation, v_table.opaque)
            INTO opaque USING p_terms;
        END IF;
        IF v_table.matches IS NOT NULL THEN
            EXECUTE format('SELECT count(*) FROM %s WHERE %s', relation, v_table.matches) INTO hits USING v_pattern;
            IF p_change AND hits > 0 THEN
                EXECUTE format('ALTER TABLE %s DISABLE TRIGGER USER', relation);
                EXECUTE format(
                    'UPDATE %s SET %s WHERE %s', relation, concat_ws(', ', v_table.changes, v_table.drops), v_table.matches)
                USING v_pattern, p_pseudonym;
            END IF;
        END IF;
        CONTINUE WHEN hits = 0 AND opaque = 0;
        RETURN NEXT;
    END LOOP;
    IF p_change THEN
        SET CONSTRAINTS ALL IMMEDIATE;
        FOR v_table IN
            SELECT DISTINCT t.tgrelid::regclass AS relation FROM pg_trigger AS t WHERE NOT t.tgisinternal AND t.tgenabled = 'D'
        LOOP
            EXECUTE format('ALTER TABLE %s ENABLE TRIGGER USER', v_table.relation);
        END LOOP;
        FOR relation IN SELECT unnest(v_key_names) LOOP
            EXECUTE relation;
        END LOOP;
    END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION imem_erase_v1(text[], text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION imem_erase_v1 IS 'Replaces names and ids of a person everywhere; for the owner alone.';
