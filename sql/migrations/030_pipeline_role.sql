-- Pipelines write under a role of their own: what follows from the journal, and what says that it is due, the application's role
-- may read and no more. It writes facts through imem_append_v1, and that refuses it what the credibility pipeline alone states.

-- What the application did itself

CREATE FUNCTION imem_hasten_v1(p_actors text[]) RETURNS TABLE ("position" bigint, actor text)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    -- Makes what still waits of the given actors critical, so that nothing of theirs waits behind a bulk; returns what waits.
    UPDATE delivery AS d SET tier = least(d.tier, 1)
    FROM (
        SELECT w.position FROM delivery AS w WHERE w.actor = ANY (p_actors) AND w.state IN ('pending', 'dispatched')
        ORDER BY w.position FOR UPDATE
    ) AS waiting
    WHERE d.position = waiting.position
    RETURNING d.position, d.actor
$$;

CREATE FUNCTION workflow.open_gate_v1(
    p_analysis_id text, p_gate smallint, p_due_at timestamptz, p_actor text, p_role text, p_context jsonb
) RETURNS SETOF workflow.gate_state
LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- Opens a gate of an analysis that runs, with the audit row of who did. No row where it is there, or no such analysis runs.
DECLARE
    v_gate workflow.gate_state;
BEGIN
    INSERT INTO gate_state (analysis_id, gate, stock_id, due_at)
    SELECT a.analysis_id, p_gate, a.subject_id, coalesce(p_due_at, imem_now() + interval '24 hours')
    FROM analysis AS a WHERE a.analysis_id = p_analysis_id AND a.outcome IS NULL
    ON CONFLICT (analysis_id, gate) DO NOTHING
    RETURNING * INTO v_gate;
    IF FOUND THEN
        PERFORM imem_audit_v1(p_actor, p_role, 'workflow', p_analysis_id, 'open_gate', true, NULL,
            p_context || jsonb_build_object('due_at', v_gate.due_at), 'done');
        RETURN NEXT v_gate;
    END IF;
END
$$;

CREATE FUNCTION workflow.answer_gate_v1(
    p_analysis_id text, p_gate smallint, p_state text, p_reason text, p_actor text, p_role text, p_context jsonb
) RETURNS SETOF workflow.gate_state
LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- A person's answer to a gate that waits for one, with its audit row; no row where it does not, or its time is over.
DECLARE
    v_gate workflow.gate_state;
BEGIN
    IF p_state NOT IN ('VALIDATED', 'SOFT_REJECTED', 'HARD_REJECTED') THEN
        RAISE EXCEPTION '% is no answer to a gate', p_state USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE gate_state
    SET state = p_state, decided_at = imem_now(), reason = p_reason,
        -- A gate that is passed has no further effect; what a rejection does, the manager does.
        settled_at = CASE WHEN p_state = 'VALIDATED' THEN imem_now() END
    WHERE analysis_id = p_analysis_id AND gate = p_gate AND state = 'WAITING_FOR_HUMAN' AND due_at > imem_now()
    RETURNING * INTO v_gate;
    IF FOUND THEN
        PERFORM imem_audit_v1(
            p_actor, p_role, 'workflow', p_analysis_id, 'answer_gate', true, p_reason, p_context, 'done');
        RETURN NEXT v_gate;
    END IF;
END
$$;

-- What the credibility pipeline alone states

CREATE FUNCTION imem_credibility_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
BEGIN
    -- Who logged in counts: within the functions that the application may call the current user is the owner.
    IF NOT has_table_privilege(session_user, 'public.agent_outcome', 'INSERT') THEN
        RAISE EXCEPTION 'only the credibility pipeline states % of %', NEW.grp, NEW.kind
        USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER credibility_guard BEFORE INSERT ON record_history
    FOR EACH ROW WHEN (
        NEW.kind IN ('AgentCredibility', 'SourceCredibility')
        OR NEW.kind IN ('Analysis', 'Decision') AND NEW.grp = 'outcome'
        OR NEW.kind = 'DataContradiction' AND NEW.grp = 'resolution')
    EXECUTE FUNCTION imem_credibility_guard();

-- Who may what

CREATE OR REPLACE FUNCTION imem_grant_application(p_role text) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Gives the application's role what it needs and no more: it reads everything, writes the journal through functions alone, and
-- changes of the schemas workflow and langgraph what is neither append-only nor written by pipelines or functions alone.
DECLARE
    v_statement text;
    v_object text;
BEGIN
    FOREACH v_statement IN ARRAY ARRAY[
        -- What an earlier version gave.
        'REVOKE ALL ON ALL TABLES IN SCHEMA public, workflow, langgraph FROM %I',
        'GRANT USAGE ON SCHEMA public, workflow, langgraph TO %I',
        'GRANT SELECT ON ALL TABLES IN SCHEMA public TO %I',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA workflow, langgraph TO %I',
        'GRANT USAGE ON ALL SEQUENCES IN SCHEMA workflow, langgraph TO %I',
        'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public, workflow, langgraph TO %I',
        -- What fences processes off from one another is written by functions alone, and so are gates.
        'REVOKE INSERT, UPDATE, DELETE ON workflow.analysis, workflow.agent_instance, workflow.agent_leases, '
            'workflow.agent_checkpoints, workflow.agent_checkpoints_archive, workflow.agent_deliverable, '
            'workflow.gate_state FROM %I'
    ] LOOP
        EXECUTE format(v_statement, p_role);
    END LOOP;
    FOR v_object IN
        SELECT t.tgrelid::regclass::text FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE t.tgname = 'append_only' AND c.relnamespace IN ('workflow'::regnamespace, 'langgraph'::regnamespace)
    LOOP
        EXECUTE format('REVOKE UPDATE, DELETE ON %s FROM %I', v_object, p_role);
    END LOOP;
    -- What only the owner and pipelines call; and functions of triggers with the owner's rights, which would write what they are told
    -- where somebody made them the trigger of a temporary table.
    FOR v_object IN
        SELECT p.oid::regprocedure::text FROM pg_proc AS p
        WHERE p.pronamespace IN ('public'::regnamespace, 'workflow'::regnamespace, 'langgraph'::regnamespace)
          AND (p.prosecdef AND p.prorettype = 'trigger'::regtype
            OR p.proname IN (
                'imem_grant_application', 'imem_grant_pipelines',
                'imem_note_questions_v1', 'imem_embedding_index_v1', 'imem_embedding_drop_v1'))
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC, %I', v_object, p_role);
    END LOOP;
END
$$;

CREATE FUNCTION imem_grant_pipelines(p_role text) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Gives the pipelines' role what the application's has, and the right to write what follows from the journal.
DECLARE
    v_statement text;
BEGIN
    PERFORM imem_grant_application(p_role);
    FOREACH v_statement IN ARRAY ARRAY[
        'GRANT UPDATE ON delivery TO %I',
        'GRANT INSERT, UPDATE, DELETE ON lease, derive_work, settlement_due TO %I',
        'GRANT INSERT, UPDATE, DELETE ON agent_outcome, track_step, track_due TO %I',
        'GRANT INSERT ON reconciliation_report TO %I',
        'GRANT INSERT, UPDATE, DELETE ON embedding_model, embedding, similarity_due, similarity_build, similar_analysis TO %I',
        'GRANT INSERT, UPDATE, DELETE ON view_version, view_row, view_current TO %I',
        'GRANT UPDATE ON workflow.gate_state TO %I',
        'GRANT EXECUTE ON FUNCTION imem_note_questions_v1, imem_embedding_index_v1, imem_embedding_drop_v1 TO %I'
    ] LOOP
        EXECUTE format(v_statement, p_role);
    END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION imem_grant_pipelines(text) FROM PUBLIC;
