-- analyses_meant --
-- The analyses that a name means: one analysis, or those of a stock that run.
SELECT analysis_id, subject_id, outcome, true AS exact FROM workflow.analysis WHERE analysis_id = %(name)s
UNION ALL
SELECT analysis_id, subject_id, outcome, false FROM workflow.analysis
WHERE subject_id = %(name)s AND analysis_id <> %(name)s AND outcome IS NULL
ORDER BY exact DESC, analysis_id LIMIT 50

-- analysis_held --
-- An analysis, locked until the transaction ends; with skip, none where somebody else has it.
SELECT analysis_id, subject_id, outcome FROM workflow.hold_analysis_v1(%(analysis_id)s, %(skip)s)

-- analysis_end --
-- Ends an analysis that runs, as failed, and fences its agents off.
SELECT workflow.end_analysis_v1(%(analysis_id)s, 'failed', %(reason)s, NULL) AS status

-- pauses_meant --
-- The open pauses that a name means: of one analysis, or of a stock.
SELECT id, analysis_id, stock_id, analysis_id = %(name)s AS exact FROM workflow.paused_analyses
WHERE (analysis_id = %(name)s OR stock_id = %(name)s) AND status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
ORDER BY exact DESC, analysis_id LIMIT 50

-- pause_insert --
-- Begins a pause, unless one is open.
INSERT INTO workflow.paused_analyses (
    id, stock_id, analysis_id, pause_reason, pause_trigger, pause_timestamp, checkpoint_id, failed_agent, status,
    created_by, batch_id, drain_until)
SELECT %(id)s, %(stock_id)s, %(analysis_id)s, %(reason)s, %(trigger)s, now.at, %(checkpoint_id)s, %(failed_agent)s, 'PAUSING',
    %(created_by)s, %(batch_id)s, now.at + %(drain)s
FROM (SELECT imem_now() AS at) AS now
ON CONFLICT (analysis_id) WHERE status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE') DO NOTHING
RETURNING *

-- pause_open --
-- The open pause of an analysis, its row locked until the transaction ends; rests: its next attempt is not due yet.
SELECT *, coalesce(next_attempt_at > imem_now(), false) AS rests FROM workflow.paused_analyses
WHERE analysis_id = %(analysis_id)s AND status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
FOR NO KEY UPDATE

-- pause_locked --
-- One pause, its row locked until the transaction ends.
SELECT * FROM workflow.paused_analyses WHERE id = %(id)s FOR NO KEY UPDATE

-- pause_by_id --
-- One pause.
SELECT * FROM workflow.paused_analyses WHERE id = %(id)s

-- pause_newest --
-- The newest pause of an analysis, open or resumed.
SELECT * FROM workflow.paused_analyses WHERE analysis_id = %(analysis_id)s ORDER BY pause_timestamp DESC, id DESC LIMIT 1

-- pause_past --
-- How the newest pause of an analysis that is history ended.
SELECT id, stock_id, analysis_id, outcome, archived_at, body FROM workflow.paused_analyses_history
WHERE analysis_id = %(analysis_id)s ORDER BY archived_at DESC, id DESC LIMIT 1

-- pauses_listed --
-- Open pauses, or all that are on file, oldest first.
SELECT * FROM workflow.paused_analyses
WHERE %(all)s OR status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
ORDER BY pause_timestamp, id LIMIT %(limit)s

-- pause_set --
-- Moves a pause on, if it still is where it was.
UPDATE workflow.paused_analyses SET
    status = %(status)s, step = %(step)s, troubles = 0, last_trouble = NULL, next_attempt_at = NULL,
    resume_timestamp = CASE WHEN %(status)s = 'RESUMED' THEN imem_now() END
WHERE id = %(id)s AND status = %(was)s
RETURNING *

-- pause_again --
-- Takes a resume back: its agents are stopped and snapshotted once more, with a new patience.
UPDATE workflow.paused_analyses SET
    status = 'PAUSING', step = 1, troubles = 0, last_trouble = %(trouble)s, next_attempt_at = NULL,
    drain_until = imem_now() + %(drain)s, automatic = false, failed_agent = coalesce(%(failed_agent)s, failed_agent)
WHERE id = %(id)s AND status = 'RESUMING'
RETURNING *

-- pause_resume --
-- Orders a resume: one of several callers finds the pause as it was.
UPDATE workflow.paused_analyses SET
    status = 'RESUMING', step = 0, troubles = 0, last_trouble = NULL, next_attempt_at = NULL, resumed_by = %(by)s,
    automatic = %(automatic)s, notify = %(notify)s, resume_dependencies = %(plan)s,
    auto_resume_attempts = auto_resume_attempts + CASE WHEN %(automatic)s THEN 1 ELSE 0 END
WHERE id = %(id)s AND status = %(was)s
RETURNING *

-- pause_extend --
-- Extends a pause that was not extended before; what its memories live for has to follow.
WITH later AS (
    UPDATE workflow.pause_agent_checkpoints SET memory_kept = false WHERE pause_id = %(id)s
)
UPDATE workflow.paused_analyses SET extended_until = %(until)s, extension_reason = %(reason)s
WHERE id = %(id)s AND status = 'PAUSED' AND extended_until IS NULL
RETURNING *

-- timers_put_off --
-- Puts off what an extension puts off.
UPDATE workflow.pause_timer AS t SET due_at = d.due_at
FROM unnest(%(kinds)s::text[], %(due)s::timestamptz[]) AS d (kind, due_at)
WHERE t.pause_id = %(pause_id)s AND t.kind = d.kind AND t.fired_at IS NULL

-- pause_adopt --
-- Puts pauses that are in no batch yet into one.
UPDATE workflow.paused_analyses SET batch_id = %(batch_id)s
WHERE id = ANY (%(ids)s::uuid[]) AND batch_id IS NULL

-- pause_trouble --
-- Remembers why a step failed, and when it is tried again.
UPDATE workflow.paused_analyses SET
    troubles = troubles + 1, last_trouble = left(%(trouble)s, 500),
    next_attempt_at = imem_now() + least(interval '30 seconds', interval '1 second' * 2 ^ least(troubles, 5))
WHERE id = %(id)s AND status = %(was)s
RETURNING *

-- pause_archive --
-- Moves a pause into the history, with everything that hung on it.
WITH gone AS (
    SELECT p.*,
        (SELECT jsonb_agg(to_jsonb(c) ORDER BY c.agent_type) FROM workflow.pause_agent_checkpoints AS c WHERE c.pause_id = p.id) AS agents,
        (SELECT jsonb_agg(to_jsonb(r) ORDER BY r.plan_created_at) FROM workflow.resume_plans AS r WHERE r.paused_analysis_id = p.id) AS plans,
        (SELECT jsonb_agg(to_jsonb(f) ORDER BY f.failed_at) FROM workflow.agent_failures AS f WHERE f.pause_id = p.id) AS failures
    FROM workflow.paused_analyses AS p WHERE p.id = %(id)s
),
kept AS (
    INSERT INTO workflow.paused_analyses_history (id, stock_id, analysis_id, outcome, body)
    SELECT id, stock_id, analysis_id, %(outcome)s, to_jsonb(gone) FROM gone
    ON CONFLICT (id) DO NOTHING
)
DELETE FROM workflow.paused_analyses WHERE id = %(id)s

-- pause_audit --
-- The audit row of an order, in the transaction of its effect.
SELECT imem_audit_v1(%(actor)s, %(role)s, 'workflow', %(resource_id)s, %(action)s, true, %(reason)s, %(context)s, %(outcome)s)

-- pause_now --
-- The database's time.
SELECT imem_now() AS now

-- pause_patience --
-- A manager that stands still inside a step loses its claim after this while: its session ends.
SELECT set_config('idle_in_transaction_session_timeout', '30s', true)

-- pause_stop_wanted --
-- Why the agents of an analysis shall stop at their next safe point, and none may start; NULL where they may go on.
SELECT CASE WHEN a.outcome IS NOT NULL THEN a.outcome ELSE workflow.halted_v1(a.analysis_id) END AS stop
FROM workflow.analysis AS a WHERE a.analysis_id = %(analysis_id)s

-- Agents of a pause

-- pause_checkpoint_stated --
-- A checkpoint, if it is one of that analysis.
SELECT id, agent_type, seq, progress_pct, current_subtask, completed_subtasks, pending_subtasks
FROM workflow.agent_checkpoints WHERE id = %(id)s AND analysis_id = %(analysis_id)s

-- pause_newest_checkpoint --
-- The newest checkpoint of an agent, or of any agent of the analysis.
SELECT id, agent_type, seq, progress_pct, current_subtask, completed_subtasks, pending_subtasks
FROM workflow.agent_checkpoints
WHERE analysis_id = %(analysis_id)s AND (%(agent_type)s::text IS NULL OR agent_type = %(agent_type)s)
ORDER BY checkpoint_time DESC, seq DESC LIMIT 1

-- pause_begun --
-- Every agent of an analysis that has a checkpoint: the newest of each, and how far it has come.
SELECT DISTINCT ON (agent_type) agent_type, id, seq, cardinality(pending_subtasks) = 0 AS completed
FROM workflow.agent_checkpoints WHERE analysis_id = %(analysis_id)s ORDER BY agent_type, seq DESC

-- pause_running --
-- Agents whose lease is held: they have not come to a safe point yet.
SELECT agent_type FROM workflow.agent_leases
WHERE analysis_id = %(analysis_id)s AND holder IS NOT NULL AND NOT released AND expires_at > imem_now()

-- pause_agent_fenced --
-- Remembers the epoch that fences an agent off; its snapshot, if it has one already, stands.
INSERT INTO workflow.pause_agent_checkpoints AS c (pause_id, agent_type, agent_id, epoch)
VALUES (%(pause_id)s, %(agent_type)s, %(agent_id)s, %(epoch)s)
ON CONFLICT (pause_id, agent_type) DO UPDATE SET epoch = excluded.epoch

-- pause_agents --
-- The begun agents of a pause, with the newest checkpoint that each has.
SELECT c.*, n.id AS newest_id, n.seq AS newest_seq
FROM workflow.pause_agent_checkpoints AS c
LEFT JOIN LATERAL (
    SELECT k.id, k.seq FROM workflow.agent_checkpoints AS k
    WHERE k.analysis_id = %(analysis_id)s AND k.agent_type = c.agent_type ORDER BY k.seq DESC LIMIT 1
) AS n ON true
WHERE c.pause_id = %(pause_id)s ORDER BY c.agent_type

-- pause_agent_saved --
-- Remembers the pause's checkpoint of an agent; it is not proven yet.
UPDATE workflow.pause_agent_checkpoints SET
    checkpoint_id = %(checkpoint_id)s, seq = %(seq)s, digest = %(digest)s, source = %(source)s, rev = %(rev)s, verified_at = NULL, memory_kept = false
WHERE pause_id = %(pause_id)s AND agent_type = %(agent_type)s

-- pause_agent_verified --
-- Both snapshots of an agent were read back and are what its memory was.
UPDATE workflow.pause_agent_checkpoints SET verified_at = imem_now()
WHERE pause_id = %(pause_id)s AND agent_type = %(agent_type)s

-- pause_agent_kept --
-- Whether the expiry of an agent's working memory is the pause's.
UPDATE workflow.pause_agent_checkpoints SET memory_kept = %(kept)s
WHERE pause_id = %(pause_id)s AND agent_type = %(agent_type)s

-- pause_refers_to --
-- The checkpoint that a pause shows: the failed agent's, or the newest; a stated one stays.
UPDATE workflow.paused_analyses AS p SET checkpoint_id = coalesce(
    (SELECT c.checkpoint_id FROM workflow.pause_agent_checkpoints AS c WHERE c.pause_id = p.id AND c.agent_type = p.failed_agent),
    p.checkpoint_id,
    (SELECT c.checkpoint_id FROM workflow.pause_agent_checkpoints AS c
     JOIN workflow.agent_checkpoints AS k ON k.id = c.checkpoint_id WHERE c.pause_id = p.id ORDER BY k.checkpoint_time DESC LIMIT 1))
WHERE p.id = %(id)s

-- pause_unproven --
-- Begun agents of a pause without a proven snapshot.
SELECT agent_type FROM workflow.pause_agent_checkpoints
WHERE pause_id = %(id)s AND (checkpoint_id IS NULL OR verified_at IS NULL)

-- pauses_not_kept --
-- Paused analyses whose working memory could not be reached when they were paused.
SELECT DISTINCT p.analysis_id FROM workflow.paused_analyses AS p
JOIN workflow.pause_agent_checkpoints AS c ON c.pause_id = p.id
WHERE p.status = 'PAUSED' AND NOT c.memory_kept ORDER BY p.analysis_id LIMIT %(limit)s

-- sagas_due --
-- Pauses and resumes that have a step to do.
SELECT analysis_id FROM workflow.paused_analyses
WHERE status IN ('PAUSING', 'RESUMING') AND (next_attempt_at IS NULL OR next_attempt_at <= imem_now())
ORDER BY pause_timestamp LIMIT %(limit)s

-- Plans

-- plan_insert --
-- Writes the plan of a resume.
INSERT INTO workflow.resume_plans (id, paused_analysis_id, restart_agents, skip_agents, wait_agents, execution_status)
VALUES (%(id)s, %(pause_id)s, %(restart)s, %(skip)s, %(wait)s, 'IN_PROGRESS')

-- plan_end --
-- Ends the plan under way of a pause.
UPDATE workflow.resume_plans SET execution_status = %(status)s, executed_at = imem_now(), trouble = %(trouble)s
WHERE paused_analysis_id = %(pause_id)s AND execution_status IN ('PENDING', 'IN_PROGRESS')

-- plan_newest --
-- The newest plan of a pause.
SELECT * FROM workflow.resume_plans WHERE paused_analysis_id = %(pause_id)s ORDER BY plan_created_at DESC LIMIT 1

-- Timers

-- timers_set --
-- Sets the timers of a pause; one that fired stays so.
INSERT INTO workflow.pause_timer (pause_id, kind, due_at)
SELECT %(pause_id)s, d.kind, d.due_at FROM unnest(%(kinds)s::text[], %(due)s::timestamptz[]) AS d (kind, due_at)
ON CONFLICT (pause_id, kind) DO NOTHING

-- timers_forget --
-- Forgets what a pause that ended had before it.
DELETE FROM workflow.pause_timer WHERE pause_id = %(pause_id)s

-- timers_due --
-- Timers that are due and whose pause is where they matter, those due longest first.
SELECT t.pause_id, t.kind, p.analysis_id FROM workflow.pause_timer AS t
JOIN workflow.paused_analyses AS p ON p.id = t.pause_id
WHERE t.fired_at IS NULL AND t.due_at <= imem_now()
  AND CASE t.kind WHEN 'stale' THEN p.status = 'PAUSED' WHEN 'expire' THEN p.status = 'STALE'
      ELSE p.status IN ('PAUSED', 'STALE') END
ORDER BY t.due_at, t.pause_id LIMIT %(limit)s

-- timer_claim --
-- A timer that is still due, its row locked until the transaction ends.
SELECT kind, due_at FROM workflow.pause_timer
WHERE pause_id = %(pause_id)s AND kind = %(kind)s AND fired_at IS NULL AND due_at <= imem_now() FOR UPDATE SKIP LOCKED

-- timer_fired --
-- A timer had its effect, in this transaction.
UPDATE workflow.pause_timer SET fired_at = imem_now() WHERE pause_id = %(pause_id)s AND kind = %(kind)s

-- pause_noticed --
-- Which notices of a pause were sent.
UPDATE workflow.paused_analyses SET
    alert_day3_sent = alert_day3_sent OR %(kind)s = 'reminder', alert_day7_sent = alert_day7_sent OR %(kind)s = 'warning'
WHERE id = %(id)s

-- Failures

-- failure_lock --
-- Failures of one signature are compared by one process at a time.
SELECT pg_advisory_xact_lock(hashtextextended('imem.failure.' || %(signature)s, 0))

-- failure_insert --
-- Records a failure; the same one again changes nothing.
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
-- Failures that had no effect yet: they waited for a gate, or whoever reported them was killed.
SELECT f.id, f.analysis_id FROM workflow.agent_failures AS f
WHERE f.settled_at IS NULL AND NOT EXISTS (
    SELECT FROM workflow.gate_state AS g WHERE g.analysis_id = f.analysis_id AND g.state = 'WAITING_FOR_HUMAN')
ORDER BY f.failed_at LIMIT %(limit)s

-- failure_settled --
-- A failure had its effect, in this transaction.
UPDATE workflow.agent_failures SET settled_at = imem_now(), pause_id = %(pause_id)s WHERE id = %(id)s

-- failures_of_signature --
-- Failures of a signature since a while ago, of analyses that are not over, with the pause that is open. What is only
-- tried again is no failure yet.
SELECT f.id, f.analysis_id, f.stock_id, f.signature, f.pattern, f.external, f.failed_at, f.correlation_id,
    p.id AS open_pause, p.status AS pause_status
FROM workflow.agent_failures AS f
JOIN workflow.analysis AS a ON a.analysis_id = f.analysis_id AND a.outcome IS NULL
LEFT JOIN workflow.paused_analyses AS p
    ON p.analysis_id = f.analysis_id AND p.status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
WHERE f.signature = %(signature)s AND f.class = 'pause' AND f.failed_at >= imem_now() - %(since)s
ORDER BY f.failed_at, f.id

-- failed_agents --
-- The agents whose failures are reasons of a pause.
SELECT DISTINCT agent_type FROM workflow.agent_failures WHERE pause_id = %(pause_id)s AND class <> 'retry'

-- failures_of_pause --
-- The failures that are reasons of a pause, oldest first.
SELECT agent_type, kind, class, message, pattern, signature, external, failed_at FROM workflow.agent_failures
WHERE pause_id = %(pause_id)s ORDER BY failed_at, id

-- signatures_to_compare --
-- Signatures of late, of failures that belong to no correlation while there is one, or enough of them for one.
SELECT f.signature FROM workflow.agent_failures AS f
LEFT JOIN workflow.failure_correlations AS c
    ON c.signature = f.signature AND c.resolved_at IS NULL AND c.archived_at IS NULL AND f.failed_at >= c.detected_at
WHERE f.class = 'pause' AND f.correlation_id IS NULL AND f.failed_at >= imem_now() - %(since)s
GROUP BY f.signature HAVING count(DISTINCT f.analysis_id) >= %(least)s OR bool_or(c.id IS NOT NULL)
ORDER BY f.signature LIMIT %(limit)s

-- correlation_open --
-- The open correlation of a signature.
SELECT * FROM workflow.failure_correlations
WHERE signature = %(signature)s AND resolved_at IS NULL AND archived_at IS NULL FOR NO KEY UPDATE

-- correlation_insert --
-- Says that failures have one cause.
INSERT INTO workflow.failure_correlations (id, signature, pattern, external, batch_id)
VALUES (%(id)s, %(signature)s, %(pattern)s, %(external)s, %(batch_id)s)

-- correlation_joined --
-- Adds failures to their correlation.
WITH joined AS (
    UPDATE workflow.agent_failures SET correlation_id = %(id)s WHERE id = ANY (%(failures)s::uuid[]) AND correlation_id IS NULL
)
UPDATE workflow.failure_correlations SET last_at = imem_now() WHERE id = %(id)s

-- Causes

-- cause_known --
-- What a signature, given whole or by its beginning, stands for.
SELECT DISTINCT signature, pattern, external FROM workflow.agent_failures
WHERE signature = %(signature)s OR (length(%(signature)s) >= 8 AND starts_with(signature, %(signature)s)) LIMIT 2

-- cause_resolve --
-- A cause is over; failures before now no longer hold their analyses back.
INSERT INTO workflow.resolved_cause AS c (signature, resolved_at, resolved_by)
VALUES (%(signature)s, imem_now(), %(by)s)
ON CONFLICT (signature) DO UPDATE SET resolved_at = excluded.resolved_at, resolved_by = excluded.resolved_by

-- correlation_resolve --
-- The open correlation of a cause that is over ends.
UPDATE workflow.failure_correlations SET resolved_at = imem_now()
WHERE signature = %(signature)s AND resolved_at IS NULL AND archived_at IS NULL

-- pauses_resolved --
-- Paused analyses of which every failure came from outside and is over, and that no batch is about to resume.
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
-- Resumes without a person are ordered by one process at a time.
SELECT pg_advisory_xact_lock(hashtextextended('imem.resolve', 0))

-- cause_over --
-- Whether every failure of a pause came from outside and is over.
SELECT count(*) > 0 AND bool_and(f.external AND c.signature IS NOT NULL) AS over
FROM workflow.agent_failures AS f
LEFT JOIN workflow.resolved_cause AS c ON c.signature = f.signature AND c.resolved_at >= f.failed_at
WHERE f.pause_id = %(pause_id)s

-- Gates

-- gate_waiting --
-- Gates of an analysis that wait for a person.
SELECT gate FROM workflow.gate_state WHERE analysis_id = %(analysis_id)s AND state = 'WAITING_FOR_HUMAN' ORDER BY gate

-- gates_passed --
-- Gates of an analysis that were validated: a resume passes them.
SELECT gate FROM workflow.gate_state WHERE analysis_id = %(analysis_id)s AND state = 'VALIDATED' ORDER BY gate

-- gates_due --
-- Gates whose time is over, or whose decision had no effect yet.
SELECT analysis_id, gate FROM workflow.gate_state
WHERE settled_at IS NULL AND (
    state IN ('SOFT_REJECTED', 'HARD_REJECTED', 'TIMED_OUT') OR (state = 'WAITING_FOR_HUMAN' AND due_at <= imem_now()))
ORDER BY due_at, analysis_id, gate LIMIT %(limit)s

-- gate_claim --
-- Such a gate, its row locked until the transaction ends.
SELECT * FROM workflow.gate_state
WHERE analysis_id = %(analysis_id)s AND gate = %(gate)s AND settled_at IS NULL AND (
    state IN ('SOFT_REJECTED', 'HARD_REJECTED', 'TIMED_OUT') OR (state = 'WAITING_FOR_HUMAN' AND due_at <= imem_now()))
FOR UPDATE SKIP LOCKED

-- gate_timed_out --
-- Nobody answered in time.
UPDATE workflow.gate_state SET state = 'TIMED_OUT', decided_at = imem_now()
WHERE analysis_id = %(analysis_id)s AND gate = %(gate)s AND state = 'WAITING_FOR_HUMAN'

-- gate_settled --
-- A gate's decision had its effect, in this transaction.
UPDATE workflow.gate_state SET settled_at = imem_now() WHERE analysis_id = %(analysis_id)s AND gate = %(gate)s

-- Batches

-- batch_insert --
-- Begins a batch.
INSERT INTO workflow.batch_pause_operations (
    id, batch_name, operation, pause_reason, stock_ids, total_count, concurrency_limit, automatic, created_by)
VALUES (
    %(id)s, %(name)s, %(operation)s, %(reason)s, %(stock_ids)s::text[], cardinality(%(stock_ids)s::text[]), %(limit)s, %(automatic)s,
    %(created_by)s)

-- batch_members_insert --
-- Its analyses, in the order in which they are launched.
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
-- A late one joins.
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
-- Batches that are not over, oldest first.
SELECT id FROM workflow.batch_pause_operations WHERE status = 'IN_PROGRESS' ORDER BY created_at LIMIT %(limit)s

-- batch_claim --
-- A batch that is not over, unless another manager works on it.
SELECT * FROM workflow.batch_pause_operations WHERE id = %(id)s AND status = 'IN_PROGRESS' FOR NO KEY UPDATE SKIP LOCKED

-- batch_locked --
-- A batch, its row locked until the transaction ends.
SELECT * FROM workflow.batch_pause_operations WHERE id = %(id)s FOR NO KEY UPDATE

-- batch_by_id --
-- A batch.
SELECT * FROM workflow.batch_pause_operations WHERE id = %(id)s

-- batches_listed --
-- The newest batches.
SELECT * FROM workflow.batch_pause_operations ORDER BY created_at DESC LIMIT %(limit)s

-- batch_members --
-- The analyses of a batch, in order, and where the pause of each stands.
SELECT m.*, p.status AS pause_status FROM workflow.batch_member AS m
LEFT JOIN workflow.paused_analyses AS p ON p.id = m.pause_id
WHERE m.batch_id = %(batch_id)s ORDER BY m.position

-- batch_member_set --
-- Moves one analysis of a batch on.
UPDATE workflow.batch_member SET
    state = %(state)s, trouble = left(%(trouble)s, 500), pause_id = coalesce(%(pause_id)s, pause_id), changed_at = imem_now()
WHERE batch_id = %(batch_id)s AND analysis_id = %(analysis_id)s

-- batch_pause_ended --
-- What became of a pause is what became of it in the batches that launched it, in the same transaction.
UPDATE workflow.batch_member AS m SET state = %(state)s, trouble = left(%(trouble)s, 500), changed_at = imem_now()
FROM workflow.batch_pause_operations AS b
WHERE b.id = m.batch_id AND b.operation = %(operation)s AND m.pause_id = %(pause_id)s AND m.state = 'RUNNING'

-- batch_count --
-- Counts a batch anew and says where it stands.
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
-- What the machine room has left: connections of the server, and quotas that are known to be used up.
SELECT current_setting('max_connections')::integer - count(*)::integer AS connections,
    EXISTS (
        SELECT FROM workflow.failure_correlations AS c
        JOIN workflow.agent_failures AS f ON f.correlation_id = c.id AND f.kind = 'quota'
        WHERE c.resolved_at IS NULL AND c.archived_at IS NULL AND f.failed_at > imem_now() - interval '1 hour') AS quota_used_up
FROM pg_stat_activity WHERE backend_type = 'client backend'

-- Retention

-- retire_resumed --
-- Pauses that were resumed 30 days ago.
SELECT id, analysis_id FROM workflow.paused_analyses
WHERE status = 'RESUMED' AND resume_timestamp < imem_now() - interval '30 days' ORDER BY resume_timestamp LIMIT %(limit)s

-- retire_plans --
-- Forgets plans: completed ones after 30 days, failed ones after 90.
DELETE FROM workflow.resume_plans
WHERE (execution_status = 'COMPLETED' AND executed_at < imem_now() - interval '30 days')
   OR (execution_status = 'FAILED' AND executed_at < imem_now() - interval '90 days')

-- retire_batches --
-- Moves batches that ended 90 days ago into cold storage.
WITH old AS (
    SELECT b.*, (SELECT jsonb_agg(to_jsonb(m) ORDER BY m.position) FROM workflow.batch_member AS m WHERE m.batch_id = b.id) AS members
    FROM workflow.batch_pause_operations AS b WHERE b.completed_at < imem_now() - interval '90 days' FOR UPDATE OF b
),
kept AS (
    INSERT INTO workflow.batch_pause_operations_archive (id, body) SELECT id, to_jsonb(old) FROM old ON CONFLICT (id) DO NOTHING
)
DELETE FROM workflow.batch_pause_operations AS b USING old WHERE b.id = old.id

-- retire_correlations --
-- Correlations nobody resolved in 14 days, or resolved 90 days ago, are put aside; a year later they are forgotten.
WITH aside AS (
    UPDATE workflow.failure_correlations SET archived_at = imem_now()
    WHERE archived_at IS NULL AND (
        (resolved_at IS NULL AND last_at < imem_now() - interval '14 days') OR resolved_at < imem_now() - interval '90 days')
    RETURNING id
)
DELETE FROM workflow.failure_correlations WHERE archived_at < imem_now() - interval '1 year'

-- retire_failures --
-- Failures go with what they were part of; those that were part of nothing after a year.
DELETE FROM workflow.agent_failures
WHERE settled_at < imem_now() - interval '1 year' AND pause_id IS NULL AND correlation_id IS NULL

-- Orchestrator

-- task_analysis --
-- Takes an analysis in; the same one again changes nothing.
SELECT analysis_id, subject_id, outcome FROM workflow.begin_analysis_v1(%(analysis_id)s, %(stock_id)s)

-- tasks_insert --
-- The agents of an analysis; those that it has already stay as they are.
INSERT INTO workflow.agent_task (analysis_id, agent_type, agent_id)
SELECT %(analysis_id)s, t.agent_type, t.agent_id
FROM unnest(%(agent_types)s::text[], %(agent_ids)s::text[]) AS t (agent_type, agent_id)
ON CONFLICT (analysis_id, agent_type) DO NOTHING

-- tasks_of_instances --
-- Instances that work in another analysis.
SELECT t.agent_id, t.analysis_id FROM workflow.agent_task AS t
WHERE t.agent_id = ANY (%(agent_ids)s::text[]) AND t.analysis_id <> %(analysis_id)s
UNION ALL
SELECT i.agent_id, i.analysis_id FROM workflow.agent_instance AS i
WHERE i.agent_id = ANY (%(agent_ids)s::text[]) AND i.analysis_id <> %(analysis_id)s
LIMIT 1

-- tasks_of --
-- The agents of an analysis and where each stands.
SELECT * FROM workflow.agent_task WHERE analysis_id = %(analysis_id)s ORDER BY agent_type

-- task_state --
-- Whose analysis it is, whether it is over, and which pause is open.
SELECT a.analysis_id, a.subject_id, a.outcome, p.status AS pause
FROM workflow.analysis AS a
LEFT JOIN workflow.paused_analyses AS p
    ON p.analysis_id = a.analysis_id AND p.status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
WHERE a.analysis_id = %(analysis_id)s

-- tasks_hold --
-- No agent of the analysis starts: messages on their way count no longer; those that ran are stopped.
UPDATE workflow.agent_task SET
    state = CASE state WHEN 'RUNNING' THEN 'STOPPED' ELSE 'WAITING' END, dispatch = dispatch + 1,
    ended_at = CASE state WHEN 'RUNNING' THEN imem_now() ELSE ended_at END
WHERE analysis_id = %(analysis_id)s AND state IN ('SENT', 'RUNNING')

-- tasks_plan --
-- Puts the agents where a resume plan has them.
UPDATE workflow.agent_task AS t SET
    state = p.state, begin_as = p.begin_as, dispatch = t.dispatch + 1, ready_at = NULL, sent_at = NULL,
    started_at = NULL, ended_at = CASE WHEN p.state = 'COMPLETED' THEN t.ended_at END
FROM unnest(%(agent_types)s::text[], %(states)s::text[], %(begins)s::text[]) AS p (agent_type, state, begin_as)
WHERE t.analysis_id = %(analysis_id)s AND t.agent_type = p.agent_type
  AND (t.state, t.begin_as) IS DISTINCT FROM (p.state, p.begin_as)

-- tasks_end --
-- Nothing of an analysis that ended starts any more.
UPDATE workflow.agent_task SET state = 'FAILED', dispatch = dispatch + 1, ended_at = imem_now()
WHERE analysis_id = %(analysis_id)s AND state <> 'COMPLETED'

-- dispatch_lock --
-- Agents are chosen for starting by one process at a time, so that limits hold.
SELECT pg_advisory_xact_lock(hashtextextended('imem.dispatch', 0))

-- dispatch_analyses --
-- Analyses that run and have agents that did not start, or whose message may be lost.
SELECT DISTINCT t.analysis_id FROM workflow.agent_task AS t
JOIN workflow.analysis AS a ON a.analysis_id = t.analysis_id AND a.outcome IS NULL
WHERE (t.state = 'WAITING' OR (t.state = 'SENT' AND t.sent_at <= imem_now() - %(lost_after)s))
  AND workflow.halted_v1(t.analysis_id) IS NULL
ORDER BY t.analysis_id

-- dispatch_tasks --
-- The agents of analyses that run, those whose message may be lost among them.
SELECT t.*, t.state = 'SENT' AND t.sent_at <= imem_now() - %(lost_after)s AS lost,
    EXISTS (
        SELECT FROM workflow.batch_member AS m JOIN workflow.batch_pause_operations AS b ON b.id = m.batch_id
        WHERE m.analysis_id = t.analysis_id AND b.operation = 'resume' AND b.created_at > imem_now() - interval '30 days'
          AND m.state IN ('RUNNING', 'DONE')) AS batched
FROM workflow.agent_task AS t
JOIN workflow.analysis AS a ON a.analysis_id = t.analysis_id AND a.outcome IS NULL
WHERE t.analysis_id = ANY (%(analyses)s::text[]) AND workflow.halted_v1(t.analysis_id) IS NULL
ORDER BY t.analysis_id, t.agent_type FOR NO KEY UPDATE OF t

-- dispatch_running --
-- How many agents of each type run or were sent, of all analyses.
SELECT agent_type, count(*)::integer AS running FROM workflow.agent_task
WHERE state IN ('SENT', 'RUNNING') GROUP BY agent_type

-- dispatch_sent --
-- An agent's message is about to be sent; an earlier one counts no longer.
UPDATE workflow.agent_task SET
    state = 'SENT', dispatch = dispatch + 1, sent_at = imem_now(), ready_at = coalesce(ready_at, imem_now())
WHERE analysis_id = %(analysis_id)s AND agent_type = %(agent_type)s AND state IN ('WAITING', 'SENT')
RETURNING dispatch

-- task_begin --
-- An agent starts, if its message counts, no pause is open and its parents have completed: all looked at once.
UPDATE workflow.agent_task AS t SET state = 'RUNNING', started_at = imem_now()
FROM workflow.analysis AS a
WHERE t.analysis_id = %(analysis_id)s AND t.agent_type = %(agent_type)s AND t.dispatch = %(dispatch)s AND t.state = 'SENT'
  AND a.analysis_id = t.analysis_id AND a.outcome IS NULL AND workflow.halted_v1(t.analysis_id) IS NULL
  AND NOT EXISTS (
      SELECT FROM workflow.agent_task AS parent
      WHERE parent.analysis_id = t.analysis_id AND parent.agent_type = ANY (%(parents)s::text[]) AND parent.state <> 'COMPLETED')
RETURNING t.*, a.subject_id

-- task_end --
-- An agent that ran has ended.
UPDATE workflow.agent_task SET state = %(state)s, ended_at = imem_now()
WHERE analysis_id = %(analysis_id)s AND agent_type = %(agent_type)s AND dispatch = %(dispatch)s AND state = 'RUNNING'

-- tasks_all_completed --
-- Analyses all of whose agents have completed, and that are not ended yet.
SELECT a.analysis_id FROM workflow.analysis AS a
WHERE a.outcome IS NULL AND (%(analysis_id)s::text IS NULL OR a.analysis_id = %(analysis_id)s)
  AND EXISTS (SELECT FROM workflow.agent_task AS t WHERE t.analysis_id = a.analysis_id)
  AND NOT EXISTS (SELECT FROM workflow.agent_task AS t WHERE t.analysis_id = a.analysis_id AND t.state <> 'COMPLETED')
ORDER BY a.analysis_id LIMIT %(limit)s

-- tasks_dead --
-- Agents that run by their row, while nobody has held their lease for a while: their process is dead.
SELECT t.analysis_id, t.agent_type, t.agent_id, t.dispatch, t.started_at FROM workflow.agent_task AS t
LEFT JOIN workflow.agent_leases AS l ON l.analysis_id = t.analysis_id AND l.agent_type = t.agent_type
WHERE t.state = 'RUNNING' AND t.started_at <= imem_now() - %(grace)s
  AND (l.holder IS NULL OR l.released OR l.expires_at <= imem_now())
  AND workflow.halted_v1(t.analysis_id) IS NULL
ORDER BY t.started_at LIMIT %(limit)s
