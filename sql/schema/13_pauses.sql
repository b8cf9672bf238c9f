-- Pauses, resume plans and batches.
--
-- Rows decide everything: a manager that is killed leaves rows that say what the next one has to do. A step on the pause of an analysis
-- holds the lock of the analysis' row for that step and no longer, and other workers skip it.
--
-- Locks are taken in one order: a batch, the analysis, its pause, leases, checkpoints, and the journal's cursor (alerts) last.

CREATE TABLE workflow.batch_pause_operations (
    id                uuid PRIMARY KEY,
    batch_name        text NOT NULL CHECK (length(batch_name) BETWEEN 1 AND 200),
    operation         text NOT NULL CHECK (operation IN ('pause', 'resume')),
    pause_reason      text NOT NULL,
    stock_ids         text[] NOT NULL,
    total_count       integer NOT NULL CHECK (total_count >= 1),
    paused_count      integer NOT NULL DEFAULT 0,
    resumed_count     integer NOT NULL DEFAULT 0,
    failed_count      integer NOT NULL DEFAULT 0,
    status            text NOT NULL DEFAULT 'IN_PROGRESS'
        CHECK (status IN ('IN_PROGRESS', 'COMPLETED', 'PARTIALLY_FAILED', 'FAILED')),
    concurrency_limit integer NOT NULL DEFAULT 5 CHECK (concurrency_limit BETWEEN 1 AND 100),
    automatic         boolean NOT NULL DEFAULT false,
    held_back         text,
    created_by        text NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT imem_now(),
    completed_at      timestamptz,
    CHECK (total_count = cardinality(stock_ids)),
    CHECK ((completed_at IS NULL) = (status = 'IN_PROGRESS'))
);
CREATE INDEX batch_under_way ON workflow.batch_pause_operations (created_at) WHERE status = 'IN_PROGRESS';
COMMENT ON TABLE workflow.batch_pause_operations IS 'Many analyses paused or resumed together; counts follow batch_member.';
COMMENT ON COLUMN workflow.batch_pause_operations.automatic IS 'Ordered because a cause outside was resolved, not by a person.';
COMMENT ON COLUMN workflow.batch_pause_operations.held_back IS 'What was short (quota, compute, connections) when the next member was to be launched.';

CREATE TABLE workflow.batch_pause_operations_archive (
    id          uuid PRIMARY KEY,
    archived_at timestamptz NOT NULL DEFAULT imem_now(),
    body        jsonb NOT NULL
);
COMMENT ON TABLE workflow.batch_pause_operations_archive IS 'Cold storage of batches that ended 90 days ago, with their members.';

CREATE TABLE workflow.paused_analyses (
    id                   uuid PRIMARY KEY,
    stock_id             text NOT NULL CHECK (length(stock_id) BETWEEN 1 AND 200),
    analysis_id          text NOT NULL CHECK (length(analysis_id) BETWEEN 1 AND 200),
    pause_reason         text NOT NULL CHECK (length(pause_reason) BETWEEN 1 AND 2000),
    pause_trigger        text NOT NULL CHECK (pause_trigger IN
        ('AUTO_TIER2', 'MANUAL', 'GATE_TIMEOUT', 'GATE_REJECTION', 'AUTO_BATCH_CORRELATION')),
    pause_timestamp      timestamptz NOT NULL,
    resume_timestamp     timestamptz,
    -- What a pause refers to is kept while it is open (below); later it goes with the analysis.
    checkpoint_id        uuid REFERENCES workflow.agent_checkpoints ON DELETE SET NULL,
    failed_agent         text,
    resume_dependencies  jsonb NOT NULL DEFAULT '{"restart": {}, "skip": [], "wait": []}',
    status               text NOT NULL CHECK (status IN
        ('PAUSING', 'PAUSED', 'RESUMING', 'RESUMED', 'STALE', 'EXPIRED')),
    created_by           text NOT NULL,
    batch_id             uuid REFERENCES workflow.batch_pause_operations ON DELETE SET NULL,
    alert_day3_sent      boolean NOT NULL DEFAULT false,
    alert_day7_sent      boolean NOT NULL DEFAULT false,
    extended_until       timestamptz,
    extension_reason     text,
    auto_resume_attempts integer NOT NULL DEFAULT 0 CHECK (auto_resume_attempts BETWEEN 0 AND 3),
    step                 smallint NOT NULL DEFAULT 1 CHECK (step BETWEEN 0 AND 6),
    drain_until          timestamptz NOT NULL,
    resumed_by           text,
    automatic            boolean NOT NULL DEFAULT false,
    notify               boolean NOT NULL DEFAULT true,
    troubles             integer NOT NULL DEFAULT 0,
    last_trouble         text,
    next_attempt_at      timestamptz,
    CHECK (extended_until IS NULL OR extended_until <= pause_timestamp + interval '30 days'),
    CHECK ((extended_until IS NULL) = (extension_reason IS NULL)),
    CHECK ((resume_timestamp IS NULL) = (status <> 'RESUMED'))
);
CREATE UNIQUE INDEX one_open_pause ON workflow.paused_analyses (analysis_id)
    WHERE status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE');
CREATE INDEX pause_under_way ON workflow.paused_analyses (pause_timestamp) WHERE status IN ('PAUSING', 'RESUMING');
CREATE INDEX pause_of_stock ON workflow.paused_analyses (stock_id, pause_timestamp);
CREATE INDEX pause_of_batch ON workflow.paused_analyses (batch_id) WHERE batch_id IS NOT NULL;
CREATE INDEX pause_of_checkpoint ON workflow.paused_analyses (checkpoint_id) WHERE checkpoint_id IS NOT NULL;
COMMENT ON TABLE workflow.paused_analyses IS 'Pauses that are open, and those that were resumed within 30 days.';
COMMENT ON COLUMN workflow.paused_analyses.step IS 'The last step done of the saga that the status names: of PAUSING 1 recorded, 2 drained, 3 fenced, 4 snapshotted, 5 kept, 6 held; of RESUMING 0 ordered, 1 begun anew, 2 recovered, 3 handed over.';
COMMENT ON COLUMN workflow.paused_analyses.last_trouble IS 'Why the step after that failed the last time; it is tried again at next_attempt_at.';

CREATE TABLE workflow.paused_analyses_history (
    id          uuid PRIMARY KEY,
    stock_id    text NOT NULL,
    analysis_id text NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('RESUMED', 'EXPIRED', 'FAILED')),
    archived_at timestamptz NOT NULL DEFAULT imem_now(),
    body        jsonb NOT NULL
);
CREATE INDEX pause_history_of_analysis ON workflow.paused_analyses_history (analysis_id, archived_at);
CREATE INDEX pause_history_of_stock ON workflow.paused_analyses_history (stock_id, archived_at);
COMMENT ON TABLE workflow.paused_analyses_history IS 'Pauses that ended: resumed 30 days ago, expired, or ended with their analysis. The row as it was, in body.';

CREATE TABLE workflow.pause_agent_checkpoints (
    pause_id      uuid NOT NULL REFERENCES workflow.paused_analyses ON DELETE CASCADE,
    agent_type    text NOT NULL,
    agent_id      text NOT NULL,
    epoch         bigint NOT NULL,
    checkpoint_id uuid REFERENCES workflow.agent_checkpoints ON DELETE SET NULL,
    seq           bigint,
    digest        text,
    source        text CHECK (source IN ('working', 'checkpoint')),
    rev           bigint,
    verified_at   timestamptz,
    memory_kept   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (pause_id, agent_type)
);
CREATE INDEX pause_checkpoint ON workflow.pause_agent_checkpoints (checkpoint_id) WHERE checkpoint_id IS NOT NULL;
COMMENT ON TABLE workflow.pause_agent_checkpoints IS 'Every begun agent of a paused analysis: the epoch that fences it off, and its proven checkpoint.';
COMMENT ON COLUMN workflow.pause_agent_checkpoints.source IS 'Whether the snapshot is of the working memory as it was, or of the last checkpoint, where that memory was lost or half-way through a subtask.';
COMMENT ON COLUMN workflow.pause_agent_checkpoints.memory_kept IS 'Whether the working memory''s expiry is the pause''s; false while its server is away.';

CREATE TABLE workflow.resume_plans (
    id                 uuid PRIMARY KEY,
    paused_analysis_id uuid NOT NULL REFERENCES workflow.paused_analyses ON DELETE CASCADE,
    restart_agents     jsonb NOT NULL,
    skip_agents        text[] NOT NULL,
    wait_agents        text[] NOT NULL,
    plan_created_at    timestamptz NOT NULL DEFAULT imem_now(),
    executed_at        timestamptz,
    execution_status   text NOT NULL DEFAULT 'PENDING'
        CHECK (execution_status IN ('PENDING', 'IN_PROGRESS', 'COMPLETED', 'FAILED')),
    trouble            text
);
CREATE UNIQUE INDEX one_open_plan ON workflow.resume_plans (paused_analysis_id)
    WHERE execution_status IN ('PENDING', 'IN_PROGRESS');
COMMENT ON TABLE workflow.resume_plans IS 'What each agent does on a resume; restart_agents is agent type → checkpoint or clean.';

CREATE TABLE workflow.pause_timer (
    pause_id uuid NOT NULL REFERENCES workflow.paused_analyses ON DELETE CASCADE,
    kind     text NOT NULL CHECK (kind IN ('reminder', 'warning', 'stale', 'expire')),
    due_at   timestamptz NOT NULL,
    fired_at timestamptz,
    PRIMARY KEY (pause_id, kind)
);
CREATE INDEX pause_timer_due ON workflow.pause_timer (due_at) WHERE fired_at IS NULL;
COMMENT ON TABLE workflow.pause_timer IS 'What becomes due in the life of a pause; fired in the transaction of its effect.';

CREATE TABLE workflow.batch_member (
    batch_id    uuid NOT NULL REFERENCES workflow.batch_pause_operations ON DELETE CASCADE,
    analysis_id text NOT NULL,
    stock_id    text NOT NULL,
    pause_id    uuid REFERENCES workflow.paused_analyses ON DELETE SET NULL,
    position    integer NOT NULL,
    state       text NOT NULL DEFAULT 'QUEUED' CHECK (state IN ('QUEUED', 'RUNNING', 'DONE', 'FAILED')),
    trouble     text,
    changed_at  timestamptz NOT NULL DEFAULT imem_now(),
    PRIMARY KEY (batch_id, analysis_id)
);
CREATE INDEX batch_member_of_analysis ON workflow.batch_member (analysis_id);
CREATE INDEX batch_member_of_pause ON workflow.batch_member (pause_id) WHERE pause_id IS NOT NULL;
COMMENT ON TABLE workflow.batch_member IS 'The analyses of a batch, in the order in which they are launched.';

-- How pauses hold back leases and clean-up
CREATE FUNCTION workflow.block_reason_v1(p_analysis_id text) RETURNS text
LANGUAGE sql STABLE
AS $$
    -- Why no agent of the analysis may start, in a few words; NULL where it may. Asked with the analysis locked. While it
    -- is being resumed none starts either: first the memory of all of them is proven.
    SELECT lower(p.status) || ' since ' || to_char(p.pause_timestamp AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')
    FROM workflow.paused_analyses AS p
    WHERE p.analysis_id = p_analysis_id AND p.status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
$$;

CREATE VIEW workflow.open_pause_reference (checkpoint_id) AS
    SELECT c.checkpoint_id FROM workflow.pause_agent_checkpoints AS c
    JOIN workflow.paused_analyses AS p ON p.id = c.pause_id
    WHERE c.checkpoint_id IS NOT NULL AND p.status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
    UNION ALL
    SELECT p.checkpoint_id FROM workflow.paused_analyses AS p
    WHERE p.checkpoint_id IS NOT NULL AND p.status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE');
COMMENT ON VIEW workflow.open_pause_reference IS 'Checkpoints that a pause refers to which is not over: no clean-up removes them.';
