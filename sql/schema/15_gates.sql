-- Gates: their states, the working memories that wait with them, and the consistency reports of memories.

CREATE VIEW workflow.gate AS
SELECT l.key, l.about AS analysis_id, (l.data ->> 'gate')::smallint AS gate, l.data ->> 'stock_id' AS stock_id,
    coalesce(l.request ->> 'state', l.state) AS state, l.state = 'WAITING_FOR_HUMAN' AND l.requested_at IS NULL AS waits,
    l.version, l.opened_at, (l.data ->> 'due_at')::timestamptz AS due_at,
    CASE WHEN l.requested_at IS NOT NULL THEN l.requested_at WHEN l.state <> 'WAITING_FOR_HUMAN' THEN l.entered_at END AS decided_at,
    coalesce(l.request ->> 'reason', l.data ->> 'reason') AS reason
FROM lifecycle AS l WHERE l.kind = 'gate';
COMMENT ON VIEW workflow.gate IS 'Gates, one row of lifecycle each. An answer counts from the moment at which it is stored, before it has its effect.';

-- Working memories of analyses that wait for a person at a gate live as long as those of a paused one. The process that runs a gate writes
-- its row and need not know of memories. The manager compares: an agent at a gate that has no row here must get
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
) RETURNS SETOF workflow.gate
LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- Opens a gate of an analysis that runs, with the audit row of who did. No row where it is there, or no such analysis runs.
DECLARE
    v_key text;
    -- The last gate has no due time: nothing is finalised because nobody looked.
    v_due_at timestamptz := CASE WHEN p_gate = 5 THEN p_due_at ELSE coalesce(p_due_at, imem_now() + interval '24 hours') END;
BEGIN
    INSERT INTO lifecycle (kind, key, about, state, due_at, data)
    SELECT 'gate', a.analysis_id || '/' || p_gate, a.analysis_id, 'WAITING_FOR_HUMAN', v_due_at,
        jsonb_build_object('gate', p_gate, 'stock_id', a.subject_id, 'due_at', v_due_at)
    FROM analysis AS a WHERE a.analysis_id = p_analysis_id AND a.outcome IS NULL
    ON CONFLICT (kind, key) DO NOTHING
    RETURNING key INTO v_key;
    IF FOUND THEN
        PERFORM imem_audit_v1(p_actor, p_role, 'workflow', p_analysis_id, 'open_gate', true, NULL,
            p_context || jsonb_build_object('due_at', v_due_at), 'done');
        RETURN QUERY SELECT * FROM gate WHERE key = v_key;
    END IF;
END
$$;
