-- Who states what settles claims, and facts of others, logs in as a curator: the application's login states an agent's own.

CREATE FUNCTION imem_curates_v1() RETURNS boolean
LANGUAGE sql IMMUTABLE
-- Whoever may call it is a curator.
RETURN true;

CREATE FUNCTION imem_own_facts_v1(
    p_actor text, p_role text, p_may_import boolean,
    p_kind text[], p_head_kind text[], p_key text[], p_payload text[], p_known_at timestamptz[],
    p_group_line integer[], p_group text[]
) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
AS $$
-- Refuses a login that is no curator's what could move a track record other than an agent's own claims, made before their answer is
-- known: imports, a person's word, corrections, outcomes that settle, and claims under the name of somebody else or of what others
-- are measured against. Who logged in counts, not what the call says of its actor. Raises IM003.
DECLARE
    v_refused text;
BEGIN
    IF has_function_privilege(session_user, 'public.imem_curates_v1()', 'EXECUTE') THEN
        RETURN;
    END IF;
    IF p_may_import OR p_role = 'human_admin' OR num_nonnulls(VARIADIC p_known_at) > 0 THEN
        v_refused := format('an import or a person''s word, by %s', p_actor);
    ELSE
        SELECT format('%s of %s %s by %s', g.grp, l.head_kind, l.key, p_actor) INTO v_refused
        FROM unnest(p_group_line, p_group) AS g (line, grp)
        JOIN unnest(p_kind, p_head_kind, p_key, p_payload) WITH ORDINALITY AS l (kind, head_kind, key, payload, line)
            ON l.line = g.line
        WHERE g.grp = 'correction'
           OR g.grp = 'core' AND l.head_kind = 'Outcome' AND NOT starts_with(l.key, 'own:' || p_actor || '/')
           OR g.grp = 'core' AND l.head_kind = 'Finding' AND (
                l.kind <> 'record.Finding'
                OR l.payload::jsonb -> 'core' ->> 'agent' IS DISTINCT FROM p_actor
                OR EXISTS (
                    SELECT FROM (
                        SELECT e.payload -> 'groups' -> 'profile' ->> 'kind' AS kind
                        FROM record_history AS y JOIN event AS e ON e.position = y.position
                        WHERE y.kind = 'Agent' AND y.key = p_actor AND y.grp = 'profile'
                          AND (y.imported OR e.actor_role = 'human_admin')
                        ORDER BY y.order_key DESC LIMIT 1
                    ) AS governed WHERE governed.kind IN ('baseline', 'ensemble', 'human')))
        LIMIT 1;
    END IF;
    IF v_refused IS NOT NULL THEN
        RAISE EXCEPTION 'Postgres lets the application''s role state an agent''s own facts alone, not %', v_refused
        USING ERRCODE = 'IM003';
    END IF;
END
$$;

DO $$
DECLARE
    v_before text := pg_get_functiondef('imem_append_v1'::regproc);
    v_after text;
BEGIN
    v_after := replace(v_before, E'BEGIN\n    -- The row lock', E'BEGIN\n    PERFORM imem_own_facts_v1(\n        p_actor, p_role, p_may_import, p_kind, p_head_kind, p_key, p_payload, p_known_at, p_group_line, p_group);\n    -- The row lock');
    IF v_after = v_before THEN RAISE EXCEPTION 'no'; END IF;
    EXECUTE v_after;
END
$$;

CREATE FUNCTION imem_grant_curators(p_role text) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Gives the curators' role what the application's has, and the right to state what settles claims.
BEGIN
    PERFORM imem_grant_application(p_role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION imem_curates_v1 TO %I', p_role);
END
$$;
REVOKE EXECUTE ON FUNCTION imem_grant_curators(text) FROM PUBLIC;

DO $$
DECLARE v text;
BEGIN
    v := pg_get_functiondef('imem_grant_application'::regproc);
    v := replace(v, '''imem_grant_application'', ''imem_grant_pipelines'',', '''imem_grant_application'', ''imem_grant_curators'', ''imem_grant_pipelines'', ''imem_curates_v1'',');
    EXECUTE v;
    v := pg_get_functiondef('imem_grant_pipelines'::regproc);
    v := replace(v, 'PERFORM imem_grant_application(p_role);', 'PERFORM imem_grant_curators(p_role);');
    EXECUTE v;
END
$$;
