-- task_analysis --
-- Registers an analysis. Idempotent.
SELECT analysis_id, subject_id, outcome FROM workflow.begin_analysis_v1(%(analysis_id)s, %(stock_id)s)

-- tasks_insert --
-- Inserts the agents of an analysis; existing ones are not changed.
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
-- The agents of an analysis and their states.
SELECT * FROM workflow.agent_task WHERE analysis_id = %(analysis_id)s ORDER BY agent_type

-- task_state --
-- The subject and outcome of an analysis, and the status of its open pause.
SELECT a.analysis_id, a.subject_id, a.outcome, p.status AS pause
FROM workflow.analysis AS a
LEFT JOIN workflow.paused_analyses AS p
    ON p.analysis_id = a.analysis_id AND p.status IN ('PAUSING', 'PAUSED', 'RESUMING', 'STALE')
WHERE a.analysis_id = %(analysis_id)s

-- tasks_hold --
-- Holds the agents of an analysis: sent messages are void; those that ran are stopped.
UPDATE workflow.agent_task SET
    state = CASE state WHEN 'RUNNING' THEN 'STOPPED' ELSE 'WAITING' END, dispatch = dispatch + 1,
    ended_at = CASE state WHEN 'RUNNING' THEN imem_now() ELSE ended_at END
WHERE analysis_id = %(analysis_id)s AND state IN ('SENT', 'RUNNING')

-- tasks_plan --
-- Sets the states of agents by a resume plan.
UPDATE workflow.agent_task AS t SET
    state = p.state, begin_as = p.begin_as, dispatch = t.dispatch + 1, ready_at = NULL, sent_at = NULL,
    started_at = NULL, ended_at = CASE WHEN p.state = 'COMPLETED' THEN t.ended_at END, reruns = 0
FROM unnest(%(agent_types)s::text[], %(states)s::text[], %(begins)s::text[]) AS p (agent_type, state, begin_as)
WHERE t.analysis_id = %(analysis_id)s AND t.agent_type = p.agent_type
  AND (t.state, t.begin_as) IS DISTINCT FROM (p.state, p.begin_as)

-- tasks_end --
-- Ends the agents of an analysis that has ended.
UPDATE workflow.agent_task SET state = 'FAILED', dispatch = dispatch + 1, ended_at = imem_now()
WHERE analysis_id = %(analysis_id)s AND state <> 'COMPLETED'

-- dispatch_lock --
-- Locks the dispatch: one process at a time chooses agents, so that limits hold.
SELECT pg_advisory_xact_lock(hashtextextended('imem.dispatch', 0))

-- dispatch_analyses --
-- Running analyses with agents that did not start, or whose message may be lost.
SELECT DISTINCT t.analysis_id FROM workflow.agent_task AS t
JOIN workflow.analysis AS a ON a.analysis_id = t.analysis_id AND a.outcome IS NULL
WHERE (t.state = 'WAITING' OR (t.state = 'SENT' AND t.sent_at <= imem_now() - %(lost_after)s))
  AND workflow.block_reason_v1(t.analysis_id) IS NULL
ORDER BY t.analysis_id

-- dispatch_tasks --
-- The agents of running analyses, those whose message may be lost among them. Without locks: dispatch_sent checks each
-- again.
SELECT t.*, t.state = 'SENT' AND t.sent_at <= imem_now() - %(lost_after)s AS lost,
    EXISTS (
        SELECT FROM workflow.batch_member AS m JOIN workflow.batch_pause_operations AS b ON b.id = m.batch_id
        WHERE m.analysis_id = t.analysis_id AND b.operation = 'resume' AND b.created_at > imem_now() - interval '30 days'
          AND m.state IN ('RUNNING', 'DONE')) AS batched
FROM workflow.agent_task AS t
JOIN workflow.analysis AS a ON a.analysis_id = t.analysis_id AND a.outcome IS NULL
WHERE t.analysis_id = ANY (%(analyses)s::text[]) AND workflow.block_reason_v1(t.analysis_id) IS NULL
ORDER BY t.analysis_id, t.agent_type

-- dispatch_running --
-- Running and sent agents of each type, over all analyses.
SELECT agent_type, count(*)::integer AS running FROM workflow.agent_task
WHERE state IN ('SENT', 'RUNNING') GROUP BY agent_type

-- dispatch_sent --
-- Marks an agent as sent, which voids an earlier message. No row where its row has changed since it was chosen, or is
-- locked: the next round repeats it.
UPDATE workflow.agent_task SET
    state = 'SENT', dispatch = dispatch + 1, sent_at = imem_now(), ready_at = coalesce(ready_at, imem_now())
WHERE (analysis_id, agent_type) IN (
    SELECT t.analysis_id, t.agent_type FROM workflow.agent_task AS t
    WHERE t.analysis_id = %(analysis_id)s AND t.agent_type = %(agent_type)s AND t.dispatch = %(dispatch)s
      AND t.state IN ('WAITING', 'SENT') AND workflow.block_reason_v1(t.analysis_id) IS NULL
    FOR NO KEY UPDATE SKIP LOCKED)
RETURNING dispatch

-- task_begin --
-- Starts an agent, if its message is current, no pause is open and its parents have completed, in one statement.
UPDATE workflow.agent_task AS t SET state = 'RUNNING', started_at = imem_now()
FROM workflow.analysis AS a
WHERE t.analysis_id = %(analysis_id)s AND t.agent_type = %(agent_type)s AND t.dispatch = %(dispatch)s AND t.state = 'SENT'
  AND a.analysis_id = t.analysis_id AND a.outcome IS NULL AND workflow.block_reason_v1(t.analysis_id) IS NULL
  AND NOT EXISTS (
      SELECT FROM workflow.agent_task AS parent
      WHERE parent.analysis_id = t.analysis_id AND parent.agent_type = ANY (%(parents)s::text[]) AND parent.state <> 'COMPLETED')
RETURNING t.*, a.subject_id

-- task_end --
-- Ends the run of an agent.
UPDATE workflow.agent_task SET state = %(state)s, ended_at = imem_now()
WHERE analysis_id = %(analysis_id)s AND agent_type = %(agent_type)s AND dispatch = %(dispatch)s AND state = 'RUNNING'

-- tasks_all_completed --
-- Running analyses whose agents have all completed, not ended yet: a page, after the given one (NULL: the first page).
-- One with missing results is checked again when an agent of it has ended since, or after a while.
SELECT a.analysis_id FROM workflow.analysis AS a
WHERE a.outcome IS NULL AND (%(after)s::text IS NULL OR a.analysis_id > %(after)s)
  AND EXISTS (SELECT FROM workflow.agent_task AS t WHERE t.analysis_id = a.analysis_id)
  AND NOT EXISTS (SELECT FROM workflow.agent_task AS t WHERE t.analysis_id = a.analysis_id AND t.state <> 'COMPLETED')
  AND NOT EXISTS (SELECT FROM workflow.agent_task AS t WHERE t.analysis_id = a.analysis_id
      AND t.checked_at > imem_now() - %(again_after)s
      AND t.checked_at >= (SELECT max(o.ended_at) FROM workflow.agent_task AS o WHERE o.analysis_id = a.analysis_id))
  AND workflow.block_reason_v1(a.analysis_id) IS NULL
ORDER BY a.analysis_id LIMIT %(limit)s

-- tasks_exhausted --
-- Which of the completed agents were restarted for missing results as often as allowed.
SELECT agent_type, dispatch FROM workflow.agent_task
WHERE analysis_id = %(analysis_id)s AND agent_type = ANY (%(agent_types)s::text[]) AND reruns >= %(most)s
ORDER BY agent_type

-- tasks_rerun --
-- Queues completed agents for a restart from their checkpoint: results of theirs are missing.
UPDATE workflow.agent_task SET
    state = 'WAITING', begin_as = 'checkpoint', dispatch = dispatch + 1, reruns = reruns + 1, ready_at = NULL,
    sent_at = NULL, started_at = NULL
WHERE analysis_id = %(analysis_id)s AND agent_type = ANY (%(agent_types)s::text[]) AND state = 'COMPLETED'

-- tasks_checked --
-- Marks an analysis with missing results as checked.
UPDATE workflow.agent_task SET checked_at = imem_now() WHERE analysis_id = %(analysis_id)s

-- tasks_dead --
-- Agents that run by their row, while their lease has not been held for a while: their process has crashed.
SELECT t.analysis_id, t.agent_type, t.agent_id, t.dispatch, t.started_at FROM workflow.agent_task AS t
LEFT JOIN workflow.agent_leases AS l ON l.analysis_id = t.analysis_id AND l.agent_type = t.agent_type
WHERE t.state = 'RUNNING' AND t.started_at <= imem_now() - %(grace)s
  AND (l.holder IS NULL OR l.released OR l.expires_at <= imem_now())
  AND workflow.block_reason_v1(t.analysis_id) IS NULL
ORDER BY t.started_at LIMIT %(limit)s

-- retire_tasks --
-- Removes the agents of analyses that ended 90 days ago and were cleaned up.
DELETE FROM workflow.agent_task WHERE (analysis_id, agent_type) IN (
    SELECT t.analysis_id, t.agent_type FROM workflow.agent_task AS t
    JOIN workflow.analysis AS a ON a.analysis_id = t.analysis_id
    WHERE a.purged_at IS NOT NULL AND a.ended_at < (SELECT imem_now()) - interval '90 days'
    LIMIT %(limit)s FOR UPDATE OF t SKIP LOCKED)
