-- Failures of agents, their correlation, and errors of checkpoints.

CREATE TABLE workflow.failure_correlations (
    id          uuid PRIMARY KEY,
    signature   text NOT NULL,
    pattern     text NOT NULL,
    external    boolean NOT NULL,
    batch_id    uuid REFERENCES workflow.batch_pause_operations ON DELETE SET NULL,
    detected_at timestamptz NOT NULL DEFAULT imem_now(),
    last_at     timestamptz NOT NULL DEFAULT imem_now(),
    resolved_at timestamptz,
    archived_at timestamptz
);
CREATE UNIQUE INDEX one_open_correlation ON workflow.failure_correlations (signature)
    WHERE resolved_at IS NULL AND archived_at IS NULL;
COMMENT ON TABLE workflow.failure_correlations IS 'Failures of several analyses that have one cause; the pattern is the text that its hash is of.';

CREATE TABLE workflow.agent_failures (
    id             uuid PRIMARY KEY,
    analysis_id    text NOT NULL,
    stock_id       text NOT NULL,
    agent_type     text NOT NULL,
    kind           text NOT NULL,
    class          text NOT NULL CHECK (class IN ('retry', 'pause', 'fail')),
    message        text NOT NULL,
    endpoint       text,
    attempt        integer NOT NULL DEFAULT 1,
    signature      text NOT NULL,
    pattern        text NOT NULL,
    external       boolean NOT NULL,
    checkpoint_id  uuid,
    details        jsonb NOT NULL DEFAULT '{}',
    failed_at      timestamptz NOT NULL DEFAULT imem_now(),
    pause_id       uuid REFERENCES workflow.paused_analyses ON DELETE SET NULL,
    correlation_id uuid REFERENCES workflow.failure_correlations ON DELETE SET NULL,
    settled_at     timestamptz
);
CREATE INDEX agent_failure_of_signature ON workflow.agent_failures (signature, failed_at);
CREATE INDEX agent_failure_of_pause ON workflow.agent_failures (pause_id) WHERE pause_id IS NOT NULL;
CREATE INDEX agent_failure_retried ON workflow.agent_failures (checkpoint_id) WHERE class = 'retry';
CREATE INDEX agent_failure_open ON workflow.agent_failures (failed_at) WHERE settled_at IS NULL;
CREATE INDEX agent_failure_alone ON workflow.agent_failures (failed_at) WHERE class = 'pause' AND correlation_id IS NULL;
CREATE INDEX agent_failure_of_correlation ON workflow.agent_failures (correlation_id) WHERE correlation_id IS NOT NULL;
COMMENT ON TABLE workflow.agent_failures IS 'Every failure that an agent reported, or whose process was found dead.';
COMMENT ON COLUMN workflow.agent_failures.settled_at IS 'When it had its effect; one that waits for a gate has none yet.';

CREATE TABLE workflow.error_counter (
    name        text NOT NULL,
    store       text NOT NULL,
    total       bigint NOT NULL CHECK (total > 0),
    last_at     timestamptz NOT NULL DEFAULT imem_now(),
    last_reason text NOT NULL,
    PRIMARY KEY (name, store)
);
COMMENT ON TABLE workflow.error_counter IS 'Errors of checkpoints that processes counted, all of them together; each cause has at most one open alert.';

CREATE TABLE workflow.resolved_cause (
    signature   text PRIMARY KEY,
    resolved_at timestamptz NOT NULL,
    resolved_by text NOT NULL
);
COMMENT ON TABLE workflow.resolved_cause IS 'Causes outside that were reported as over: failures before that moment no longer hold an analysis back.';
