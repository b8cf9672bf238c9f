-- Workflow checkpoints: the state of each thread after each step, and what its parallel branches have finished since.
--
-- The row of the thread is the lock under which its saves come one after the other; seq orders them, never the clock.

CREATE TABLE workflow.workflow_thread (
    workflow_id text NOT NULL CHECK (length(workflow_id) BETWEEN 1 AND 200),
    thread_id   varchar(255) NOT NULL CHECK (thread_id <> ''),
    seq         bigint NOT NULL,
    failed_at   timestamptz,
    PRIMARY KEY (workflow_id, thread_id)
) WITH (fillfactor = 70);
CREATE INDEX workflow_thread_failed ON workflow.workflow_thread (failed_at) WHERE failed_at IS NOT NULL;
COMMENT ON TABLE workflow.workflow_thread IS 'The last seq of each thread; its row lock orders the saves of one thread.';

CREATE TABLE workflow.workflow_checkpoints (
    id            uuid PRIMARY KEY,
    workflow_id   text NOT NULL,
    thread_id     varchar(255) NOT NULL,
    step_name     varchar(100) NOT NULL CHECK (step_name <> ''),
    seq           bigint NOT NULL,
    parent_seq    bigint,
    state         jsonb NOT NULL,
    state_version integer NOT NULL CHECK (state_version > 0),
    created_at    timestamptz NOT NULL,
    UNIQUE (workflow_id, thread_id, step_name),
    UNIQUE (workflow_id, thread_id, seq)
);
-- Of a workflow alone: the unique keys begin with it and serve.
CREATE INDEX workflow_checkpoints_of_thread ON workflow.workflow_checkpoints (thread_id);
COMMENT ON TABLE workflow.workflow_checkpoints IS 'The state after each step of a workflow''s thread; the highest seq is the present one.';
COMMENT ON COLUMN workflow.workflow_checkpoints.parent_seq IS 'The step before it, as its seq was then; NULL of the first.';

CREATE TABLE workflow.workflow_pending_writes (
    workflow_id text NOT NULL,
    thread_id   varchar(255) NOT NULL,
    seq         bigint NOT NULL,
    task_id     varchar(255) NOT NULL CHECK (task_id <> ''),
    payload     jsonb NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (workflow_id, thread_id, seq, task_id)
);
COMMENT ON TABLE workflow.workflow_pending_writes IS 'What parallel branches have finished after the step seq: a resume runs only the others. Gone with the next step.';

CREATE FUNCTION workflow.save_step_v1(
    p_id uuid, p_workflow_id text, p_thread_id text, p_step_name text, p_state jsonb, p_state_version integer
) RETURNS TABLE (id uuid, seq bigint, parent_seq bigint, created_at timestamptz)
LANGUAGE plpgsql SET search_path = workflow, public, pg_temp
AS $$
-- Saves the state after a step under the thread's next seq, in place of what that step left before, and forgets what
-- branches of the step before have finished: it is in the state now.
#variable_conflict use_column
DECLARE
    v_seq bigint;
BEGIN
    -- The row lock makes saves of one thread come one after the other.
    INSERT INTO workflow_thread AS t (workflow_id, thread_id, seq) VALUES (p_workflow_id, p_thread_id, 1)
    ON CONFLICT (workflow_id, thread_id) DO UPDATE SET seq = t.seq + 1, failed_at = NULL
    RETURNING t.seq INTO v_seq;
    DELETE FROM workflow_pending_writes AS p WHERE p.workflow_id = p_workflow_id AND p.thread_id = p_thread_id;
    RETURN QUERY INSERT INTO workflow_checkpoints AS c (
        id, workflow_id, thread_id, step_name, seq, parent_seq, state, state_version, created_at)
    VALUES (
        p_id, p_workflow_id, p_thread_id, p_step_name, v_seq,
        (SELECT max(o.seq) FROM workflow_checkpoints AS o
         WHERE o.workflow_id = p_workflow_id AND o.thread_id = p_thread_id AND o.step_name <> p_step_name),
        p_state, p_state_version, imem_now())
    ON CONFLICT (workflow_id, thread_id, step_name) DO UPDATE SET
        seq = excluded.seq, parent_seq = excluded.parent_seq, state = excluded.state,
        state_version = excluded.state_version, created_at = excluded.created_at
    RETURNING c.id, c.seq, c.parent_seq, c.created_at;
END
$$;

CREATE FUNCTION workflow.finish_branch_v1(
    p_workflow_id text, p_thread_id text, p_seq bigint, p_task_id text, p_payload jsonb, OUT status text, OUT seq bigint
) LANGUAGE plpgsql SET search_path = workflow, public, pg_temp
AS $$
-- Stores the result of a parallel branch after the step p_seq. status: kept, repeated (the first result stays), and, with
-- nothing written: behind (the thread is at another step; seq: which).
#variable_conflict use_column
BEGIN
    SELECT t.seq INTO seq FROM workflow_thread AS t
    WHERE t.workflow_id = p_workflow_id AND t.thread_id = p_thread_id FOR SHARE;
    IF seq IS DISTINCT FROM p_seq THEN
        status := 'behind';
        RETURN;
    END IF;
    INSERT INTO workflow_pending_writes (workflow_id, thread_id, seq, task_id, payload, created_at)
    VALUES (p_workflow_id, p_thread_id, p_seq, p_task_id, p_payload, imem_now()) ON CONFLICT DO NOTHING;
    status := CASE WHEN FOUND THEN 'kept' ELSE 'repeated' END;
END
$$;

CREATE FUNCTION workflow.forget_thread_v1(p_workflow_id text, p_thread_id text, p_failed_by timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path = workflow, public, pg_temp
AS $$
-- Forgets a thread, where p_failed_by is given only if it has failed by then and was not taken up again; whether it did.
BEGIN
    -- First, so that a save under way ends before: what it wrote goes too.
    DELETE FROM workflow_thread AS t WHERE t.workflow_id = p_workflow_id AND t.thread_id = p_thread_id
      AND (p_failed_by IS NULL OR t.failed_at <= p_failed_by);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM workflow_pending_writes AS p WHERE p.workflow_id = p_workflow_id AND p.thread_id = p_thread_id;
    DELETE FROM workflow_checkpoints AS c WHERE c.workflow_id = p_workflow_id AND c.thread_id = p_thread_id;
    RETURN true;
END
$$;
