-- Gates: their states, the working memories that wait with them, and the consistency reports of memories.

CREATE TABLE workflow.gate_state (
    analysis_id text NOT NULL CHECK (length(analysis_id) BETWEEN 1 AND 200),
    gate        smallint NOT NULL CHECK (gate BETWEEN 1 AND 6),
    stock_id    text NOT NULL,
    state       text NOT NULL DEFAULT 'WAITING_FOR_HUMAN' CHECK (state IN
        ('WAITING_FOR_HUMAN', 'VALIDATED', 'SOFT_REJECTED', 'HARD_REJECTED', 'TIMED_OUT')),
    opened_at   timestamptz NOT NULL DEFAULT imem_now(),
    due_at      timestamptz NOT NULL DEFAULT imem_now() + interval '24 hours',
    decided_at  timestamptz,
    reason      text,
    settled_at  timestamptz,
    PRIMARY KEY (analysis_id, gate)
);
CREATE INDEX gate_open ON workflow.gate_state (due_at) WHERE settled_at IS NULL;
CREATE INDEX gate_waiting ON workflow.gate_state (analysis_id) WHERE state = 'WAITING_FOR_HUMAN';
COMMENT ON TABLE workflow.gate_state IS 'Gates as pauses read them: the process that runs a gate writes its row.';
COMMENT ON COLUMN workflow.gate_state.settled_at IS 'When its decision had its effect on the analysis.';

-- Working memories of analyses that wait for a person at a gate live as long as those of a paused one. The process that runs a gate writes
-- its row in workflow.gate_state and need not know of memories. The manager compares: an agent at a gate that has no row here must get
-- the gate's expiry; one with a row and no gate gets its own expiry again.
CREATE TABLE workflow.gate_memory (
    agent_id    text PRIMARY KEY REFERENCES workflow.agent_instance,
    analysis_id text NOT NULL,
    epoch       bigint NOT NULL,
    kept_until  timestamptz,
    looked_at   timestamptz
);
CREATE INDEX gate_memory_of_analysis ON workflow.gate_memory (analysis_id);
COMMENT ON TABLE workflow.gate_memory IS 'Agent instances whose working memory has, or may have, the expiry of a gate that waits for a person.';
COMMENT ON COLUMN workflow.gate_memory.epoch IS 'Of the agent''s lease when it was looked at: a later holder may have restored the memory, with an expiry of its own.';
COMMENT ON COLUMN workflow.gate_memory.kept_until IS 'The expiry that was set then.';
COMMENT ON COLUMN workflow.gate_memory.looked_at IS 'NULL while the expiry of the memory is being changed, either way: the process that does so may be killed.';

CREATE TABLE workflow.gate_opening (
    analysis_id text NOT NULL CHECK (length(analysis_id) BETWEEN 1 AND 200),
    gate        smallint NOT NULL CHECK (gate BETWEEN 1 AND 6),
    opens_at    timestamptz NOT NULL,
    PRIMARY KEY (analysis_id, gate)
);
CREATE INDEX gate_opening_due ON workflow.gate_opening (opens_at);
COMMENT ON TABLE workflow.gate_opening IS 'When gates will open: the process that plans a gate writes its row. The agents of its analysis are synchronised before.';

CREATE TABLE workflow.gate_report (
    report_id   uuid PRIMARY KEY,
    analysis_id text NOT NULL,
    gate        smallint NOT NULL CHECK (gate BETWEEN 1 AND 6),
    phase       text NOT NULL CHECK (phase IN ('before', 'opening', 'asked')),
    opens_at    timestamptz,
    made_at     timestamptz NOT NULL DEFAULT imem_now(),
    upto        bigint NOT NULL,
    body        jsonb NOT NULL
);
CREATE INDEX gate_report_of_gate ON workflow.gate_report (analysis_id, gate, made_at);
COMMENT ON TABLE workflow.gate_report IS 'How consistent the memories of an analysis were before a gate and when it opened. Append-only.';
COMMENT ON COLUMN workflow.gate_report.opens_at IS 'The opening that it was made for: one that is put off is synchronised again.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON workflow.gate_report
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

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
