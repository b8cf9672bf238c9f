-- Working memories of analyses that wait for a person at a gate: they live as long as those of a paused one.
--
-- Whoever runs a gate writes its row in workflow.gate_state and need not know of memories. The manager compares: what a
-- gate holds and has no row here has to be given the gate's expiry, and what has a row and no gate its own again.

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
COMMENT ON COLUMN workflow.gate_memory.looked_at IS 'NULL while the memory is being moved, one way or the other: whoever did so may have died of it.';

CREATE INDEX gate_waiting ON workflow.gate_state (analysis_id) WHERE state = 'WAITING_FOR_HUMAN';
