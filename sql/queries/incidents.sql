-- failure_lock --
-- Locks a signature: one process at a time correlates its failures.
SELECT pg_advisory_xact_lock(hashtextextended('imem.failure.' || %(signature)s, 0))

-- failure_insert --
-- Records a failure. Idempotent by its id.
INSERT INTO workflow.agent_failures (
    id, analysis_id, stock_id, agent_type, kind, class, message, endpoint, attempt, signature, pattern, external, checkpoint_id, details)
VALUES (
    %(id)s, %(analysis_id)s, %(stock_id)s, %(agent_type)s, %(kind)s, %(class)s, %(message)s, %(endpoint)s, %(attempt)s,
    %(signature)s, %(pattern)s, %(external)s, %(checkpoint_id)s, %(details)s)
ON CONFLICT (id) DO NOTHING
RETURNING *

-- failure_by_id --
-- One failure.
SELECT * FROM workflow.agent_failures WHERE id = %(id)s

-- failure_unsettled --
-- One failure, if it had no effect yet.
SELECT * FROM workflow.agent_failures WHERE id = %(id)s AND settled_at IS NULL

-- failures_open --
-- Failures without an effect: they waited for a gate, or their reporter crashed.
SELECT f.id, f.analysis_id FROM workflow.agent_failures AS f
WHERE f.settled_at IS NULL AND NOT EXISTS (
    SELECT FROM workflow.gate AS g WHERE g.analysis_id = f.analysis_id AND g.waits)
ORDER BY f.failed_at LIMIT %(limit)s

-- failures_retried --
-- Failed attempts of an agent to be retried, since its newest checkpoint; newest first.
SELECT f.kind, f.endpoint FROM workflow.agent_failures AS f
WHERE f.class = 'retry' AND f.checkpoint_id = (
    SELECT c.id FROM workflow.agent_checkpoints AS c
    WHERE c.analysis_id = %(analysis_id)s AND c.agent_type = %(agent_type)s ORDER BY c.seq DESC LIMIT 1)
ORDER BY f.failed_at DESC, f.id DESC LIMIT %(limit)s

-- failure_settled --
-- Marks a failure as having its effect.
UPDATE workflow.agent_failures SET settled_at = imem_now(), pause_id = %(pause_id)s WHERE id = %(id)s

-- failures_of_signature --
-- Failures of a signature within a time, of running analyses, with their open pause. Attempts that are only retried are
-- left out.
SELECT f.id, f.analysis_id, f.stock_id, f.signature, f.pattern, f.external, f.failed_at, f.correlation_id,
    p.id AS open_pause, p.status AS pause_status
FROM workflow.agent_failures AS f
JOIN workflow.analysis AS a ON a.analysis_id = f.analysis_id AND a.outcome IS NULL
LEFT JOIN workflow.paused_analyses AS p
    ON p.analysis_id = f.analysis_id AND p.status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
WHERE f.signature = %(signature)s AND f.class = 'pause' AND f.failed_at >= (SELECT imem_now()) - %(since)s
ORDER BY f.failed_at, f.id

-- failed_agents --
-- The agents whose failures are causes of a pause.
SELECT DISTINCT agent_type FROM workflow.agent_failures WHERE pause_id = %(pause_id)s AND class <> 'retry'

-- failures_of_pause --
-- The failures that are causes of a pause, oldest first.
SELECT agent_type, kind, message, pattern, signature, external, failed_at FROM workflow.agent_failures
WHERE pause_id = %(pause_id)s ORDER BY failed_at, id

-- signatures_to_compare --
-- Recent signatures of failures without a correlation, where one is open, or where there are enough failures for one.
-- Limited to the newest failures, so that rows are read by time, however many there are.
WITH late AS MATERIALIZED (
    SELECT f.signature, f.analysis_id, f.failed_at FROM workflow.agent_failures AS f
    WHERE f.class = 'pause' AND f.correlation_id IS NULL AND f.failed_at >= (SELECT imem_now()) - %(since)s
    ORDER BY f.failed_at DESC LIMIT 10000
)
SELECT f.signature FROM late AS f
LEFT JOIN workflow.failure_correlations AS c
    ON c.signature = f.signature AND c.resolved_at IS NULL AND c.archived_at IS NULL AND f.failed_at >= c.detected_at
GROUP BY f.signature HAVING count(DISTINCT f.analysis_id) >= %(least)s OR bool_or(c.id IS NOT NULL)
ORDER BY f.signature LIMIT %(limit)s

-- correlation_open --
-- The open correlation of a signature.
SELECT * FROM workflow.failure_correlations
WHERE signature = %(signature)s AND resolved_at IS NULL AND archived_at IS NULL FOR NO KEY UPDATE

-- correlation_insert --
-- Inserts a correlation.
INSERT INTO workflow.failure_correlations (id, signature, pattern, external, batch_id)
VALUES (%(id)s, %(signature)s, %(pattern)s, %(external)s, %(batch_id)s)

-- correlation_joined --
-- Adds failures to their correlation.
WITH joined AS (
    UPDATE workflow.agent_failures SET correlation_id = %(id)s WHERE id = ANY (%(failures)s::uuid[]) AND correlation_id IS NULL
)
UPDATE workflow.failure_correlations SET last_at = imem_now() WHERE id = %(id)s

-- cause_known --
-- The signatures with the given prefix.
SELECT DISTINCT signature, pattern, external FROM workflow.agent_failures
WHERE signature = %(signature)s OR (length(%(signature)s) >= 8 AND starts_with(signature, %(signature)s)) LIMIT 2

-- cause_resolve --
-- Marks a cause as resolved; earlier failures no longer keep their analyses paused.
INSERT INTO workflow.resolved_cause AS c (signature, resolved_at, resolved_by)
VALUES (%(signature)s, imem_now(), %(by)s)
ON CONFLICT (signature) DO UPDATE SET resolved_at = excluded.resolved_at, resolved_by = excluded.resolved_by

-- correlation_resolve --
-- Ends the open correlation of a resolved cause.
UPDATE workflow.failure_correlations SET resolved_at = imem_now()
WHERE signature = %(signature)s AND resolved_at IS NULL AND archived_at IS NULL RETURNING id

-- pauses_resolved --
-- Paused analyses whose failures are all external and resolved, and that no batch is about to resume.
SELECT p.* FROM workflow.paused_analyses AS p
WHERE p.status = 'PAUSED' AND p.pause_trigger IN ('AUTO_TIER2', 'AUTO_BATCH_CORRELATION')
  AND EXISTS (SELECT FROM workflow.agent_failures AS f WHERE f.pause_id = p.id)
  AND NOT EXISTS (
      SELECT FROM workflow.agent_failures AS f
      LEFT JOIN workflow.resolved_cause AS c ON c.signature = f.signature AND c.resolved_at >= f.failed_at
      WHERE f.pause_id = p.id AND (NOT f.external OR c.signature IS NULL))
  AND NOT EXISTS (
      SELECT FROM workflow.batch_member AS m WHERE m.pause_id = p.id AND m.state IN ('QUEUED', 'RUNNING'))
ORDER BY p.pause_timestamp LIMIT %(limit)s

-- resolve_lock --
-- Locks automatic resumes: one process at a time requests them.
SELECT pg_advisory_xact_lock(hashtextextended('imem.resolve', 0))

-- cause_over --
-- Whether every failure of a pause is external and resolved.
SELECT count(*) > 0 AND bool_and(f.external AND c.signature IS NOT NULL) AS over
FROM workflow.agent_failures AS f
LEFT JOIN workflow.resolved_cause AS c ON c.signature = f.signature AND c.resolved_at >= f.failed_at
WHERE f.pause_id = %(pause_id)s
