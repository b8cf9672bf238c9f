-- Agents that the product's own orchestrator runs.

CREATE TABLE workflow.agent_task (
    analysis_id text NOT NULL,
    agent_type  text NOT NULL,
    agent_id    text NOT NULL CHECK (agent_id ~ '^[A-Za-z0-9_-]{1,64}$'),
    state       text NOT NULL DEFAULT 'WAITING' CHECK (state IN
        ('WAITING', 'SENT', 'RUNNING', 'STOPPED', 'COMPLETED', 'FAILED')),
    begin_as    text NOT NULL DEFAULT 'clean' CHECK (begin_as IN ('checkpoint', 'clean')),
    dispatch    bigint NOT NULL DEFAULT 0,
    reruns      integer NOT NULL DEFAULT 0,
    checked_at  timestamptz,
    ready_at    timestamptz,
    sent_at     timestamptz,
    started_at  timestamptz,
    ended_at    timestamptz,
    PRIMARY KEY (analysis_id, agent_type)
);
CREATE UNIQUE INDEX agent_task_of_instance ON workflow.agent_task (agent_id);
CREATE INDEX agent_task_under_way ON workflow.agent_task (agent_type, analysis_id) WHERE state IN ('WAITING', 'SENT', 'RUNNING');
COMMENT ON TABLE workflow.agent_task IS 'The agents of an analysis that the product''s own orchestrator runs, and the state of each.';
COMMENT ON COLUMN workflow.agent_task.reruns IS 'How often it was started again, having completed, because a result was lost; a resume counts from 0 again.';
COMMENT ON COLUMN workflow.agent_task.checked_at IS 'When its analysis, all of whose agents had completed, was last found to lack a result.';
COMMENT ON COLUMN workflow.agent_task.dispatch IS 'Number of the sending that counts; a message with an earlier one starts nothing.';
