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
    started_at = NULL, ended_at = CASE WHEN p.state = 'COMPLETED' THEN t.ended_at END, reruns = 0
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
-- The agents of analyses that run, those whose message may be lost among them. Nothing is locked: most of them only wait,
-- and what is sent is looked at once more.
SELECT t.*, t.state = 'SENT' AND t.sent_at <= imem_now() - %(lost_after)s AS lost,
    EXISTS (
        SELECT FROM workflow.batch_member AS m JOIN workflow.batch_pause_operations AS b ON b.id = m.batch_id
        WHERE m.analysis_id = t.analysis_id AND b.operation = 'resume' AND b.created_at > imem_now() - interval '30 days'
          AND m.state IN ('RUNNING', 'DONE')) AS batched
FROM workflow.agent_task AS t
JOIN workflow.analysis AS a ON a.analysis_id = t.analysis_id AND a.outcome IS NULL
WHERE t.analysis_id = ANY (%(analyses)s::text[]) AND workflow.halted_v1(t.analysis_id) IS NULL
ORDER BY t.analysis_id, t.agent_type

-- dispatch_running --
-- How many agents of each type run or were sent, of all analyses.
SELECT agent_type, count(*)::integer AS running FROM workflow.agent_task
WHERE state IN ('SENT', 'RUNNING') GROUP BY agent_type

-- dispatch_sent --
-- An agent's message is about to be sent; an earlier one counts no longer. No row where the agent is not any more as it
-- was when it was chosen, or somebody is changing it just now: the next round looks again.
UPDATE workflow.agent_task SET
    state = 'SENT', dispatch = dispatch + 1, sent_at = imem_now(), ready_at = coalesce(ready_at, imem_now())
WHERE (analysis_id, agent_type) IN (
    SELECT t.analysis_id, t.agent_type FROM workflow.agent_task AS t
    WHERE t.analysis_id = %(analysis_id)s AND t.agent_type = %(agent_type)s AND t.dispatch = %(dispatch)s
      AND t.state IN ('WAITING', 'SENT') AND workflow.halted_v1(t.analysis_id) IS NULL
    FOR NO KEY UPDATE SKIP LOCKED)
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
-- Analyses that run, all of whose agents have completed, and that are not ended yet: a page of them, after the given one
-- (NULL: the first page). One that lacked a result is looked at again when an agent of it has ended since, or after a while.
SELECT a.analysis_id FROM workflow.analysis AS a
WHERE a.outcome IS NULL AND (%(after)s::text IS NULL OR a.analysis_id > %(after)s)
  AND EXISTS (SELECT FROM workflow.agent_task AS t WHERE t.analysis_id = a.analysis_id)
  AND NOT EXISTS (SELECT FROM workflow.agent_task AS t WHERE t.analysis_id = a.analysis_id AND t.state <> 'COMPLETED')
  AND NOT EXISTS (SELECT FROM workflow.agent_task AS t WHERE t.analysis_id = a.analysis_id
      AND t.checked_at > imem_now() - %(again_after)s
      AND t.checked_at >= (SELECT max(o.ended_at) FROM workflow.agent_task AS o WHERE o.analysis_id = a.analysis_id))
  AND workflow.halted_v1(a.analysis_id) IS NULL
ORDER BY a.analysis_id LIMIT %(limit)s

-- tasks_exhausted --
-- Which of the agents, having completed, were started again so often for lost results that it does not help.
SELECT agent_type, dispatch FROM workflow.agent_task
WHERE analysis_id = %(analysis_id)s AND agent_type = ANY (%(agent_types)s::text[]) AND reruns >= %(most)s
ORDER BY agent_type

-- tasks_rerun --
-- Agents that have completed wait to be started again, from their checkpoint: results of theirs were lost.
UPDATE workflow.agent_task SET
    state = 'WAITING', begin_as = 'checkpoint', dispatch = dispatch + 1, reruns = reruns + 1, ready_at = NULL,
    sent_at = NULL, started_at = NULL
WHERE analysis_id = %(analysis_id)s AND agent_type = ANY (%(agent_types)s::text[]) AND state = 'COMPLETED'

-- tasks_checked --
-- All agents of an analysis have completed, and a result is missing.
UPDATE workflow.agent_task SET checked_at = imem_now() WHERE analysis_id = %(analysis_id)s

-- tasks_dead --
-- Agents that run by their row, while nobody has held their lease for a while: their process is dead.
SELECT t.analysis_id, t.agent_type, t.agent_id, t.dispatch, t.started_at FROM workflow.agent_task AS t
LEFT JOIN workflow.agent_leases AS l ON l.analysis_id = t.analysis_id AND l.agent_type = t.agent_type
WHERE t.state = 'RUNNING' AND t.started_at <= imem_now() - %(grace)s
  AND (l.holder IS NULL OR l.released OR l.expires_at <= imem_now())
  AND workflow.halted_v1(t.analysis_id) IS NULL
ORDER BY t.started_at LIMIT %(limit)s

-- retire_tasks --
-- Forgets where the agents of analyses stood that ended 90 days ago and were cleaned up.
DELETE FROM workflow.agent_task WHERE (analysis_id, agent_type) IN (
    SELECT t.analysis_id, t.agent_type FROM workflow.agent_task AS t
    JOIN workflow.analysis AS a ON a.analysis_id = t.analysis_id
    WHERE a.purged_at IS NOT NULL AND a.ended_at < (SELECT imem_now()) - interval '90 days'
    LIMIT %(limit)s FOR UPDATE OF t SKIP LOCKED)
