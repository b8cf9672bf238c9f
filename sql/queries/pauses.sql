-- analyses_matching --
-- The analyses of a name: one analysis, or the running ones of a stock.
SELECT analysis_id, subject_id, outcome, true AS exact FROM workflow.analysis WHERE analysis_id = %(name)s
UNION ALL
SELECT analysis_id, subject_id, outcome, false FROM workflow.analysis
WHERE subject_id = %(name)s AND analysis_id <> %(name)s AND outcome IS NULL
ORDER BY exact DESC, analysis_id LIMIT 50

-- analysis_held --
-- An analysis, locked until the transaction ends; with skip, no row where another session has locked it.
SELECT analysis_id, subject_id, outcome FROM workflow.hold_analysis_v1(%(analysis_id)s, %(skip)s)

-- analysis_end --
-- Ends a running analysis as failed, and fences its agents off.
SELECT workflow.end_analysis_v1(%(analysis_id)s, 'failed', %(reason)s, NULL) AS status

-- pauses_matching --
-- The open pauses of a name: of one analysis, or of a stock.
SELECT id, analysis_id, stock_id, analysis_id = %(name)s AS exact FROM workflow.paused_analyses
WHERE (analysis_id = %(name)s OR stock_id = %(name)s) AND status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
ORDER BY exact DESC, analysis_id LIMIT 50

-- pause_insert --
-- Inserts a pause, unless one is open.
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
-- The newest pause of an analysis in the history.
SELECT id, stock_id, analysis_id, outcome, archived_at, body FROM workflow.paused_analyses_history
WHERE analysis_id = %(analysis_id)s ORDER BY archived_at DESC, id DESC LIMIT 1

-- pauses_listed --
-- Open pauses, or all stored ones, oldest first.
SELECT * FROM workflow.paused_analyses
WHERE %(all)s OR status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
ORDER BY pause_timestamp, id LIMIT %(limit)s

-- pause_set --
-- Sets the status and step of a pause, if it still has the expected status.
UPDATE workflow.paused_analyses SET
    status = %(status)s, step = %(step)s, troubles = 0, last_trouble = NULL, next_attempt_at = NULL,
    resume_timestamp = CASE WHEN %(status)s = 'RESUMED' THEN imem_now() END
WHERE id = %(id)s AND status = %(was)s
RETURNING *

-- pause_again --
-- Reverts a resume: its agents are stopped and snapshotted again, with a new drain timeout; their memories, which may
-- be active by now, get the pause's expiry again.
WITH again AS (
    UPDATE workflow.pause_agent_checkpoints SET memory_kept = false WHERE pause_id = %(id)s
)
UPDATE workflow.paused_analyses SET
    status = 'PAUSING', step = 1, troubles = 0, last_trouble = %(trouble)s, next_attempt_at = NULL,
    drain_until = imem_now() + %(drain)s, automatic = false
WHERE id = %(id)s AND status = 'RESUMING'
RETURNING *

-- pause_resume --
-- Begins a resume; of concurrent callers, one finds the expected status.
UPDATE workflow.paused_analyses SET
    status = 'RESUMING', step = 0, troubles = 0, last_trouble = NULL, next_attempt_at = NULL, resumed_by = %(by)s,
    automatic = %(automatic)s, notify = %(notify)s, resume_dependencies = %(plan)s,
    auto_resume_attempts = auto_resume_attempts + CASE WHEN %(automatic)s THEN 1 ELSE 0 END
WHERE id = %(id)s AND status = %(was)s
RETURNING *

-- pause_extend --
-- Extends a pause that was not extended before; the expiry of its memories has to be extended as well.
WITH later AS (
    UPDATE workflow.pause_agent_checkpoints SET memory_kept = false WHERE pause_id = %(id)s
)
UPDATE workflow.paused_analyses SET extended_until = %(until)s, extension_reason = %(reason)s
WHERE id = %(id)s AND status = 'PAUSED' AND extended_until IS NULL
RETURNING *

-- timers_put_off --
-- Postpones the timers that an extension affects.
UPDATE workflow.pause_timer AS t SET due_at = d.due_at
FROM unnest(%(kinds)s::text[], %(due)s::timestamptz[]) AS d (kind, due_at)
WHERE t.pause_id = %(pause_id)s AND t.kind = d.kind AND t.fired_at IS NULL

-- pause_adopt --
-- Adds pauses without a batch to one.
UPDATE workflow.paused_analyses SET batch_id = %(batch_id)s
WHERE id = ANY (%(ids)s::uuid[]) AND batch_id IS NULL

-- pause_trouble --
-- Records the error of a step, and when the next attempt is due.
UPDATE workflow.paused_analyses SET
    troubles = troubles + 1, last_trouble = left(%(trouble)s, 500),
    next_attempt_at = imem_now() + least(interval '30 seconds', interval '1 second' * 2 ^ least(troubles, 5))
WHERE id = %(id)s AND status = %(was)s
RETURNING *

-- pause_archive --
-- Moves a pause to the history, with its dependent rows.
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
-- The audit row of a request, in the transaction of its effect.
SELECT imem_audit_v1(%(actor)s, %(role)s, 'workflow', %(resource_id)s, %(action)s, true, %(reason)s, %(context)s, %(outcome)s)

-- pause_now --
-- The database's time.
SELECT imem_now() AS now

-- pause_patience --
-- Idle timeout of a manager's transaction: one that hangs inside a step loses its session and its locks.
SELECT set_config('idle_in_transaction_session_timeout', '30s', true)

-- pause_stop_reason --
-- Why the agents of an analysis must stop at their next safe point, and none may start; NULL where they may continue.
SELECT CASE WHEN a.outcome IS NOT NULL THEN a.outcome ELSE workflow.block_reason_v1(a.analysis_id) END AS stop
FROM workflow.analysis AS a WHERE a.analysis_id = %(analysis_id)s

-- pause_checkpoint_of --
-- A checkpoint, if it is of that analysis.
SELECT id, agent_type, seq, progress_pct, current_subtask, completed_subtasks, pending_subtasks
FROM workflow.agent_checkpoints WHERE id = %(id)s AND analysis_id = %(analysis_id)s

-- pause_newest_checkpoint --
-- The newest checkpoint of an agent, or of any agent of the analysis.
SELECT id, agent_type, seq, progress_pct, current_subtask, completed_subtasks, pending_subtasks
FROM workflow.agent_checkpoints
WHERE analysis_id = %(analysis_id)s AND (%(agent_type)s::text IS NULL OR agent_type = %(agent_type)s)
ORDER BY checkpoint_time DESC, seq DESC LIMIT 1

-- pause_begun --
-- Every agent of an analysis that has a checkpoint: the newest of each, and its progress.
SELECT DISTINCT ON (agent_type) agent_type, id, seq, cardinality(pending_subtasks) = 0 AS completed
FROM workflow.agent_checkpoints WHERE analysis_id = %(analysis_id)s ORDER BY agent_type, seq DESC

-- pause_running --
-- Agents whose lease is held: they have not reached a safe point yet.
SELECT agent_type FROM workflow.agent_leases
WHERE analysis_id = %(analysis_id)s AND holder IS NOT NULL AND NOT released AND expires_at > imem_now()

-- pause_agent_fenced --
-- Stores the epoch that fences an agent off; a snapshot that it has already is kept.
INSERT INTO workflow.pause_agent_checkpoints AS c (pause_id, agent_type, agent_id, epoch)
VALUES (%(pause_id)s, %(agent_type)s, %(agent_id)s, %(epoch)s)
ON CONFLICT (pause_id, agent_type) DO UPDATE SET epoch = excluded.epoch

-- pause_agents --
-- The begun agents of a pause, with the newest checkpoint of each.
SELECT c.*, n.id AS newest_id, n.seq AS newest_seq
FROM workflow.pause_agent_checkpoints AS c
LEFT JOIN LATERAL (
    SELECT k.id, k.seq FROM workflow.agent_checkpoints AS k
    WHERE k.analysis_id = %(analysis_id)s AND k.agent_type = c.agent_type ORDER BY k.seq DESC LIMIT 1
) AS n ON true
WHERE c.pause_id = %(pause_id)s ORDER BY c.agent_type

-- pause_agent_saved --
-- Stores the pause checkpoint of an agent; it is not verified yet.
UPDATE workflow.pause_agent_checkpoints SET
    checkpoint_id = %(checkpoint_id)s, seq = %(seq)s, digest = %(digest)s, source = %(source)s, rev = %(rev)s, verified_at = NULL, memory_kept = false
WHERE pause_id = %(pause_id)s AND agent_type = %(agent_type)s

-- pause_agent_verified --
-- Marks both snapshots of an agent as read back and verified.
UPDATE workflow.pause_agent_checkpoints SET verified_at = imem_now()
WHERE pause_id = %(pause_id)s AND agent_type = %(agent_type)s

-- pause_agent_kept --
-- Stores whether an agent's working memory has the pause's expiry.
UPDATE workflow.pause_agent_checkpoints SET memory_kept = %(kept)s
WHERE pause_id = %(pause_id)s AND agent_type = %(agent_type)s

-- pause_refers_to --
-- Sets the checkpoint that a pause shows: the failed agent's, or the newest; a given one is kept.
UPDATE workflow.paused_analyses AS p SET checkpoint_id = coalesce(
    (SELECT c.checkpoint_id FROM workflow.pause_agent_checkpoints AS c WHERE c.pause_id = p.id AND c.agent_type = p.failed_agent),
    p.checkpoint_id,
    (SELECT c.checkpoint_id FROM workflow.pause_agent_checkpoints AS c
     JOIN workflow.agent_checkpoints AS k ON k.id = c.checkpoint_id WHERE c.pause_id = p.id ORDER BY k.checkpoint_time DESC LIMIT 1))
WHERE p.id = %(id)s

-- pause_unproven --
-- Begun agents of a pause without a verified snapshot.
SELECT agent_type FROM workflow.pause_agent_checkpoints
WHERE pause_id = %(id)s AND (checkpoint_id IS NULL OR verified_at IS NULL)

-- pauses_not_kept --
-- Paused analyses whose working memory could not be reached when they were paused.
SELECT DISTINCT p.analysis_id FROM workflow.paused_analyses AS p
JOIN workflow.pause_agent_checkpoints AS c ON c.pause_id = p.id
WHERE p.status = 'PAUSED' AND NOT c.memory_kept ORDER BY p.analysis_id LIMIT %(limit)s

-- sagas_due --
-- Pauses and resumes with a step to run, the longest due first: rows that a round did not reach come before rows whose
-- attempt failed.
SELECT analysis_id FROM workflow.paused_analyses
WHERE status IN ('PAUSING', 'RESUMING') AND (next_attempt_at IS NULL OR next_attempt_at <= imem_now())
ORDER BY coalesce(next_attempt_at, pause_timestamp), id LIMIT %(limit)s

-- plan_insert --
-- Inserts the plan of a resume.
INSERT INTO workflow.resume_plans (id, paused_analysis_id, restart_agents, skip_agents, wait_agents, execution_status)
VALUES (%(id)s, %(pause_id)s, %(restart)s, %(skip)s, %(wait)s, 'IN_PROGRESS')

-- plan_end --
-- Ends the current plan of a pause.
UPDATE workflow.resume_plans SET execution_status = %(status)s, executed_at = imem_now(), trouble = %(trouble)s
WHERE paused_analysis_id = %(pause_id)s AND execution_status IN ('PENDING', 'IN_PROGRESS')

-- plan_newest --
-- The newest plan of a pause.
SELECT * FROM workflow.resume_plans WHERE paused_analysis_id = %(pause_id)s ORDER BY plan_created_at DESC LIMIT 1

-- timers_set --
-- Sets the timers of a pause; one that has fired is kept.
INSERT INTO workflow.pause_timer (pause_id, kind, due_at)
SELECT %(pause_id)s, d.kind, d.due_at FROM unnest(%(kinds)s::text[], %(due)s::timestamptz[]) AS d (kind, due_at)
ON CONFLICT (pause_id, kind) DO NOTHING

-- timers_forget --
-- Removes the timers of a pause that has ended.
DELETE FROM workflow.pause_timer WHERE pause_id = %(pause_id)s

-- timers_due --
-- Due timers of pauses in a status that they apply to, the longest due first.
SELECT t.pause_id, t.kind, p.analysis_id FROM workflow.pause_timer AS t
JOIN workflow.paused_analyses AS p ON p.id = t.pause_id
WHERE t.fired_at IS NULL AND t.due_at <= (SELECT imem_now())
  AND CASE t.kind WHEN 'stale' THEN p.status = 'PAUSED' WHEN 'expire' THEN p.status = 'STALE'
      ELSE p.status IN ('PAUSED', 'STALE') END
ORDER BY t.due_at, t.pause_id LIMIT %(limit)s

-- timer_claim --
-- A timer that is still due, its row locked until the transaction ends.
SELECT kind, due_at FROM workflow.pause_timer
WHERE pause_id = %(pause_id)s AND kind = %(kind)s AND fired_at IS NULL AND due_at <= imem_now() FOR UPDATE SKIP LOCKED

-- timer_fired --
-- Marks a timer as fired.
UPDATE workflow.pause_timer SET fired_at = imem_now() WHERE pause_id = %(pause_id)s AND kind = %(kind)s

-- pause_noticed --
-- Marks a notice of a pause as sent.
UPDATE workflow.paused_analyses SET
    alert_day3_sent = alert_day3_sent OR %(kind)s = 'reminder', alert_day7_sent = alert_day7_sent OR %(kind)s = 'warning'
WHERE id = %(id)s
