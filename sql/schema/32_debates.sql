-- Debates that run. The state of a debate is its row of lifecycle, of kind 'debate'; its sides write acts into the row, and the
-- pipeline decides what follows from them.

CREATE FUNCTION open_debate_v1(
    p_debate_id text, p_analysis_id text, p_until timestamptz, p_data jsonb, p_act jsonb, p_actor text, p_role text, p_context jsonb
) RETURNS SETOF lifecycle
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Opens the row of a debate with the challenge as its first act, and the audit row. No row where the debate is there.
DECLARE
    v_row lifecycle;
BEGIN
    INSERT INTO lifecycle (kind, key, about, state, due_at, data)
    VALUES ('debate', p_debate_id, p_analysis_id, 'initiated', p_until,
        p_data || jsonb_build_object('until', p_until, 'acts', jsonb_build_array(p_act || jsonb_build_object('at', imem_now()))))
    ON CONFLICT (kind, key) DO NOTHING
    RETURNING * INTO v_row;
    IF FOUND THEN
        PERFORM imem_audit_v1(p_actor, p_role, 'workflow', coalesce(p_analysis_id, p_debate_id), 'challenge', true, p_act ->> 'text',
            p_context || jsonb_build_object('kind', 'debate', 'key', p_debate_id, 'after', 'initiated'), 'done');
        RETURN NEXT v_row;
    END IF;
END
$$;

CREATE FUNCTION act_in_debate_v1(
    p_debate_id text, p_version integer, p_act jsonb, p_actor text, p_role text, p_context jsonb
) RETURNS SETOF lifecycle
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Adds an act to the row that it was decided on, with the audit row, and has the pipeline look at it at once. No row where the row was
-- changed, or where its time is over. What the act means only the pipeline decides.
DECLARE
    v_row lifecycle;
BEGIN
    UPDATE lifecycle
    SET data = jsonb_set(data, '{acts}', data -> 'acts' || jsonb_build_array(p_act || jsonb_build_object('at', imem_now()))),
        due_at = least(due_at, imem_now()), version = version + 1, failures = 0, retry_at = NULL
    WHERE kind = 'debate' AND key = p_debate_id AND version = p_version
      AND (data ->> 'until' IS NULL OR (data ->> 'until')::timestamptz > imem_now() OR p_act ->> 'act' = 'withdraw')
    RETURNING * INTO v_row;
    IF FOUND THEN
        PERFORM imem_audit_v1(p_actor, p_role, 'workflow', coalesce(v_row.about, p_debate_id), p_act ->> 'act', true, p_act ->> 'text',
            p_context || jsonb_build_object('kind', 'debate', 'key', p_debate_id, 'state', v_row.state), 'done');
        RETURN NEXT v_row;
    END IF;
END
$$;

CREATE FUNCTION set_debate_snapshot_v1(
    p_debate_id text, p_before jsonb, p_snapshot jsonb, p_actor text, p_role text, p_reason text, p_context jsonb
) RETURNS SETOF lifecycle
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Stores what became of the snapshot of a debate: its id, a wait for a side, or that a side cannot be reached, which the pipeline looks
-- at at once. With the audit row. No row where another process stored something meanwhile, or the debate has ended.
DECLARE
    v_row lifecycle;
BEGIN
    UPDATE lifecycle
    SET data = jsonb_set(data, '{snapshot}', p_snapshot),
        due_at = CASE WHEN p_snapshot ? 'unreachable' THEN least(due_at, imem_now()) ELSE due_at END
    WHERE kind = 'debate' AND key = p_debate_id AND data -> 'snapshot' IS NOT DISTINCT FROM p_before
      AND state NOT IN ('closed', 'withdrawn', 'superseded')
    RETURNING * INTO v_row;
    IF FOUND THEN
        PERFORM imem_audit_v1(p_actor, p_role, 'workflow', coalesce(v_row.about, p_debate_id), 'snapshot', true, p_reason,
            p_context || jsonb_build_object('kind', 'debate', 'key', p_debate_id, 'state', v_row.state, 'snapshot', p_snapshot), 'done');
        RETURN NEXT v_row;
    END IF;
END
$$;
