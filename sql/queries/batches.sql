-- batch_insert --
-- Inserts a batch.
INSERT INTO workflow.batch_pause_operations (
    id, batch_name, operation, pause_reason, stock_ids, total_count, concurrency_limit, automatic, created_by)
VALUES (
    %(id)s, %(name)s, %(operation)s, %(reason)s, %(stock_ids)s::text[], cardinality(%(stock_ids)s::text[]), %(limit)s, %(automatic)s,
    %(created_by)s)

-- batch_members_insert --
-- Inserts the members of a batch, in the order in which they are launched.
INSERT INTO workflow.batch_member (batch_id, analysis_id, stock_id, pause_id, position, state)
SELECT %(batch_id)s, m.analysis_id, m.stock_id, m.pause_id, m.position, m.state
FROM unnest(%(analyses)s::text[], %(stocks)s::text[], %(pauses)s::uuid[], %(states)s::text[]) WITH ORDINALITY
    AS m (analysis_id, stock_id, pause_id, state, position)

-- analyses_named --
-- Analyses by their ids.
SELECT analysis_id, subject_id, outcome FROM workflow.analysis WHERE analysis_id = ANY (%(names)s::text[])

-- pauses_named --
-- The open pauses of analyses.
SELECT * FROM workflow.paused_analyses
WHERE analysis_id = ANY (%(names)s::text[]) AND status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
ORDER BY pause_timestamp, id

-- batch_join --
-- Adds a member to a batch.
WITH joined AS (
    INSERT INTO workflow.batch_member (batch_id, analysis_id, stock_id, pause_id, position, state)
    SELECT %(batch_id)s, %(analysis_id)s, %(stock_id)s, %(pause_id)s,
        (SELECT coalesce(max(position), 0) + 1 FROM workflow.batch_member WHERE batch_id = %(batch_id)s), %(state)s
    ON CONFLICT (batch_id, analysis_id) DO NOTHING
    RETURNING stock_id
)
UPDATE workflow.batch_pause_operations AS b SET
    stock_ids = b.stock_ids || j.stock_id, total_count = b.total_count + 1, status = 'IN_PROGRESS', completed_at = NULL
FROM joined AS j WHERE b.id = %(batch_id)s

-- batches_under_way --
-- Batches in progress, oldest first.
SELECT id FROM workflow.batch_pause_operations WHERE status = 'IN_PROGRESS' ORDER BY created_at LIMIT %(limit)s

-- batch_claim --
-- A batch in progress, its row locked, unless another manager has locked it.
SELECT * FROM workflow.batch_pause_operations WHERE id = %(id)s AND status = 'IN_PROGRESS' FOR NO KEY UPDATE SKIP LOCKED

-- batch_by_id --
-- A batch.
SELECT * FROM workflow.batch_pause_operations WHERE id = %(id)s

-- batches_listed --
-- The newest batches.
SELECT * FROM workflow.batch_pause_operations ORDER BY created_at DESC LIMIT %(limit)s

-- batch_members --
-- The members of a batch, in order, with the status of each pause.
SELECT m.*, p.status AS pause_status FROM workflow.batch_member AS m
LEFT JOIN workflow.paused_analyses AS p ON p.id = m.pause_id
WHERE m.batch_id = %(batch_id)s ORDER BY m.position

-- batch_member_set --
-- Sets the state of a member.
UPDATE workflow.batch_member SET
    state = %(state)s, trouble = left(%(trouble)s, 500), pause_id = coalesce(%(pause_id)s, pause_id), changed_at = imem_now()
WHERE batch_id = %(batch_id)s AND analysis_id = %(analysis_id)s

-- batch_pause_ended --
-- Copies the result of a pause to the members of the batches that launched it, in the same transaction.
UPDATE workflow.batch_member AS m SET state = %(state)s, trouble = left(%(trouble)s, 500), changed_at = imem_now()
FROM workflow.batch_pause_operations AS b
WHERE b.id = m.batch_id AND b.operation = %(operation)s AND m.pause_id = %(pause_id)s AND m.state = 'RUNNING'

-- batch_count --
-- Counts the members of a batch and sets its status.
UPDATE workflow.batch_pause_operations AS b SET
    paused_count = CASE WHEN b.operation = 'pause' THEN c.done ELSE 0 END,
    resumed_count = CASE WHEN b.operation = 'resume' THEN c.done ELSE 0 END,
    failed_count = c.failed, status = %(status)s, held_back = %(held_back)s,
    completed_at = CASE WHEN %(status)s = 'IN_PROGRESS' THEN NULL ELSE coalesce(b.completed_at, imem_now()) END
FROM (
    SELECT count(*) FILTER (WHERE state = 'DONE') AS done, count(*) FILTER (WHERE state = 'FAILED') AS failed
    FROM workflow.batch_member WHERE batch_id = %(id)s
) AS c
WHERE b.id = %(id)s

-- capacity --
-- Free capacity: connections of the server, and quotas that failures report as used up.
SELECT current_setting('max_connections')::integer - count(*)::integer AS connections,
    EXISTS (
        SELECT FROM workflow.failure_correlations AS c
        JOIN workflow.agent_failures AS f ON f.correlation_id = c.id AND f.kind = 'quota'
        WHERE c.resolved_at IS NULL AND c.archived_at IS NULL AND f.failed_at > imem_now() - interval '1 hour') AS quota_used_up
FROM pg_stat_activity WHERE backend_type = 'client backend'

-- retire_resumed --
-- Pauses that were resumed 30 days ago.
SELECT id, analysis_id FROM workflow.paused_analyses
WHERE status = 'RESUMED' AND resume_timestamp < imem_now() - interval '30 days' ORDER BY resume_timestamp LIMIT %(limit)s

-- retire_plans --
-- Removes plans: completed ones after 30 days, failed ones after 90.
DELETE FROM workflow.resume_plans WHERE id IN (
    SELECT id FROM workflow.resume_plans
    WHERE (execution_status = 'COMPLETED' AND executed_at < imem_now() - interval '30 days')
       OR (execution_status = 'FAILED' AND executed_at < imem_now() - interval '90 days')
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED)

-- retire_batches --
-- Archives batches that ended 90 days ago.
WITH old AS (
    SELECT b.*, (SELECT jsonb_agg(to_jsonb(m) ORDER BY m.position) FROM workflow.batch_member AS m WHERE m.batch_id = b.id) AS members
    FROM workflow.batch_pause_operations AS b WHERE b.completed_at < imem_now() - interval '90 days'
    LIMIT %(limit)s FOR UPDATE OF b SKIP LOCKED
),
kept AS (
    INSERT INTO workflow.batch_pause_operations_archive (id, body) SELECT id, to_jsonb(old) FROM old ON CONFLICT (id) DO NOTHING
)
DELETE FROM workflow.batch_pause_operations AS b USING old WHERE b.id = old.id

-- retire_correlations --
-- Archives correlations that were not resolved in 14 days, or resolved 90 days ago; removes them a year later.
WITH aside AS (
    UPDATE workflow.failure_correlations SET archived_at = imem_now()
    WHERE archived_at IS NULL AND (
        (resolved_at IS NULL AND last_at < imem_now() - interval '14 days') OR resolved_at < imem_now() - interval '90 days')
    RETURNING id
)
DELETE FROM workflow.failure_correlations WHERE archived_at < imem_now() - interval '1 year'

-- retire_failures --
-- Removes failures without a pause or correlation after a year; the others are removed with it.
DELETE FROM workflow.agent_failures WHERE id IN (
    SELECT id FROM workflow.agent_failures
    WHERE settled_at < imem_now() - interval '1 year' AND pause_id IS NULL AND correlation_id IS NULL
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
