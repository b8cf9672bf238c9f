-- acquire_lease --
-- Acquires the lease of an agent; the first time, inserts its start checkpoint too. See acquire_lease_v1.
SELECT status, epoch, expires_at, detail FROM workflow.acquire_lease_v1(
    %(analysis_id)s, %(agent_type)s, %(agent_id)s, %(subject_id)s, %(holder)s, %(owner)s, %(lasts)s,
    %(checkpoint_id)s, %(subtasks)s::text[], %(agent_config)s::jsonb, %(agent_version)s)

-- renew_lease --
-- Renews a lease; returns its new expiry, NULL where it is lost.
SELECT workflow.renew_lease_v1(%(analysis_id)s, %(agent_type)s, %(holder)s, %(epoch)s, %(lasts)s) AS expires_at

-- release_lease --
-- Releases a lease; returns whether it was still the holder's.
SELECT coalesce(workflow.release_lease_v1(%(analysis_id)s, %(agent_type)s, %(holder)s, %(epoch)s), false) AS released

-- raise_epoch --
-- Fences off every agent of an analysis; returns the leases after that.
SELECT l.analysis_id, l.agent_type, l.agent_id, a.subject_id, l.holder, l.epoch, l.expires_at
FROM workflow.raise_epoch_v1(%(analysis_id)s) AS l JOIN workflow.analysis AS a ON a.analysis_id = l.analysis_id
ORDER BY l.agent_type

-- owners_of --
-- The owners of agent instances.
SELECT agent_id, owner FROM workflow.agent_instance WHERE agent_id = ANY (%(agent_ids)s::text[])

-- save_checkpoint --
-- Saves a checkpoint, if the epoch is the newest; see save_checkpoint_v1.
SELECT status, id, subject_id, agent_id, run, seq, epoch, checkpoint_time, created_at, progress_pct, completed_subtasks,
    pending_subtasks, preserve
FROM workflow.save_checkpoint_v1(
    %(id)s, %(analysis_id)s, %(agent_type)s, %(epoch)s, %(kind)s, %(subtask)s, %(working_memory)s::jsonb,
    %(working_memory_hash)s, %(interim_results)s::jsonb, %(agent_config)s::jsonb, %(agent_version)s, %(failure_reason)s,
    %(error_details)s::jsonb, %(retry_count)s, %(base)s, %(completed)s::text[], %(pending)s::text[])

-- latest_checkpoint --
-- The latest checkpoint of an agent, without documents.
SELECT id, seq, preserve FROM workflow.agent_checkpoints
WHERE analysis_id = %(analysis_id)s AND agent_type = %(agent_type)s ORDER BY seq DESC LIMIT 1

-- checkpoint --
-- One checkpoint, whole.
SELECT id, analysis_id, agent_type, agent_id, subject_id, run, seq, epoch, kind, subtask, checkpoint_time, created_at,
    progress_pct, completed_subtasks, pending_subtasks, working_memory, working_memory_hash, interim_results, agent_config,
    agent_version, failure_reason, error_details, retry_count, l1_snapshot, l1_snapshot_hash, preserve
FROM workflow.agent_checkpoints WHERE id = %(id)s

-- boundary_before --
-- The newest checkpoint of an agent before a seq that ends a subtask or starts a run.
SELECT id, analysis_id, agent_type, agent_id, subject_id, run, seq, epoch, kind, subtask, checkpoint_time, created_at,
    progress_pct, completed_subtasks, pending_subtasks, working_memory, working_memory_hash, interim_results, agent_config,
    agent_version, failure_reason, error_details, retry_count, l1_snapshot, l1_snapshot_hash, preserve
FROM workflow.agent_checkpoints
WHERE analysis_id = %(analysis_id)s AND agent_type = %(agent_type)s AND seq < %(seq)s AND kind IN ('start', 'subtask', 'rerun')
ORDER BY seq DESC LIMIT 1

-- checkpoints_of --
-- The newest checkpoints of an analysis, or of one agent in it, oldest first, without documents.
SELECT newest.* FROM (
    SELECT id, analysis_id, agent_type, agent_id, subject_id, run, seq, epoch, kind, subtask, checkpoint_time, created_at,
        progress_pct, completed_subtasks, pending_subtasks, agent_version, failure_reason, retry_count, working_memory_hash,
        preserve, pg_column_size(working_memory) + pg_column_size(interim_results) AS stored_bytes
    FROM workflow.agent_checkpoints
    WHERE analysis_id = %(analysis_id)s AND (%(agent_type)s::text IS NULL OR agent_type = %(agent_type)s)
    ORDER BY checkpoint_time DESC, agent_type DESC, seq DESC LIMIT %(limit)s
) AS newest
ORDER BY checkpoint_time, agent_type, seq

-- latest_of_analysis --
-- The latest checkpoint of every agent of an analysis, without documents.
SELECT DISTINCT ON (agent_type)
    id, analysis_id, agent_type, agent_id, subject_id, run, seq, epoch, kind, subtask, checkpoint_time, created_at,
    progress_pct, completed_subtasks, pending_subtasks, agent_version, failure_reason, retry_count, working_memory_hash,
    preserve, pg_column_size(working_memory) + pg_column_size(interim_results) AS stored_bytes
FROM workflow.agent_checkpoints WHERE analysis_id = %(analysis_id)s ORDER BY agent_type, seq DESC

-- preserve_checkpoint --
-- Exempts a checkpoint from clean-up, or ends that; returns whether it exists.
SELECT coalesce(workflow.preserve_v1(%(id)s, %(preserve)s), false) AS found

-- deliver --
-- Records a deliverable, if the epoch is the newest; see deliver_v1.
SELECT status, epoch, delivered_at FROM workflow.deliver_v1(
    %(analysis_id)s, %(agent_type)s, %(epoch)s, %(subtask)s, %(location)s, %(reference)s, %(digest)s, %(payload)s::jsonb,
    %(nothing)s)

-- delivered_under --
-- The stores for which a subtask has delivered under an epoch.
SELECT location FROM workflow.agent_deliverable
WHERE analysis_id = %(analysis_id)s AND agent_type = %(agent_type)s AND subtask = %(subtask)s AND epoch = %(epoch)s

-- deliverables_of --
-- The deliverables of an analysis.
SELECT analysis_id, agent_type, subtask, location, reference, digest, delivered_at, nothing FROM workflow.agent_deliverable
WHERE analysis_id = %(analysis_id)s ORDER BY agent_type, subtask, location

-- payloads_of --
-- The deliverables of an analysis that are stored in Postgres.
SELECT agent_type, subtask, reference, digest, payload FROM workflow.agent_deliverable
WHERE analysis_id = %(analysis_id)s AND location = 'postgres' AND NOT nothing ORDER BY agent_type, subtask

-- records_there --
-- Which of the given records are in the journal.
SELECT w.kind, w.key FROM unnest(%(kinds)s::text[], %(keys)s::text[]) AS w (kind, key)
WHERE EXISTS (SELECT FROM record_head AS h WHERE h.kind = w.kind AND h.key = w.key)

-- record_digest --
-- The digest of a record in the journal; no row where it is not there.
SELECT encode(sha256(string_agg(hash, ''::bytea ORDER BY grp)), 'hex') AS digest FROM record_head
WHERE kind = %(kind)s AND key = %(key)s

-- event_digest --
-- The digest of an event in the journal.
SELECT encode(sha256(payload_hash), 'hex') AS digest FROM event WHERE event_id = %(id)s

-- events_there --
-- Which of the given events the journal holds.
SELECT event_id FROM event WHERE event_id = ANY (%(ids)s::uuid[])

-- results_in_interim --
-- Subtasks of an agent with a result among the interim results of a checkpoint of its current run.
SELECT DISTINCT k.subtask FROM unnest(%(subtasks)s::text[]) AS k (subtask)
JOIN workflow.agent_checkpoints AS c
    ON c.analysis_id = %(analysis_id)s AND c.agent_type = %(agent_type)s AND jsonb_exists(c.interim_results, k.subtask)
WHERE c.run = (SELECT max(o.run) FROM workflow.agent_checkpoints AS o
    WHERE o.analysis_id = %(analysis_id)s AND o.agent_type = %(agent_type)s)

-- end_analysis --
-- Ends an analysis and fences off its agents; see end_analysis_v1.
SELECT workflow.end_analysis_v1(%(analysis_id)s, %(outcome)s, %(reason)s, %(latest)s::uuid[]) AS status

-- analysis --
-- The status of an analysis.
SELECT analysis_id, subject_id, began_at, outcome, ended_at, reason, purged_at, cleared_at FROM workflow.analysis
WHERE analysis_id = %(analysis_id)s

-- purge_checkpoints --
-- Removes the checkpoints of ended analyses; see purge_v1.
SELECT analysis_id, deleted, kept
FROM workflow.purge_v1(%(analysis_id)s, %(after)s, %(limit)s, %(keep_failed)s, %(archive)s)

-- agents_to_clear --
-- Agents of purged analyses, or of one of them, whose keys in Valkey were not removed yet.
SELECT l.analysis_id, l.agent_type, l.agent_id, l.epoch
FROM (
    -- Analyses are counted, not agents: each comes whole.
    SELECT a.analysis_id FROM workflow.analysis AS a
    WHERE a.purged_at IS NOT NULL AND a.cleared_at IS NULL
      AND (%(analysis_id)s::text IS NULL OR a.analysis_id = %(analysis_id)s)
      AND (%(after)s::text IS NULL OR a.analysis_id > %(after)s)
    ORDER BY a.analysis_id LIMIT %(limit)s
) AS purged
JOIN workflow.agent_leases AS l ON l.analysis_id = purged.analysis_id
ORDER BY l.analysis_id, l.agent_type

-- cleared --
-- Marks the keys of a purged analysis in Valkey as removed.
SELECT workflow.cleared_v1(%(analysis_id)s)

-- save_step --
-- Saves the state of a workflow's thread after a step; see save_step_v1.
SELECT id, seq, parent_seq, created_at FROM workflow.save_step_v1(
    %(id)s, %(workflow_id)s, %(thread_id)s, %(step_name)s, %(state)s::jsonb, %(state_version)s)

-- latest_step --
-- The latest step of a workflow's thread, with the results of branches since: one snapshot of both.
SELECT c.id, c.workflow_id, c.thread_id, c.step_name, c.seq, c.parent_seq, c.state, c.state_version, c.created_at,
    coalesce(p.pending, '{}') AS pending
FROM workflow.workflow_checkpoints AS c
LEFT JOIN LATERAL (
    SELECT jsonb_object_agg(w.task_id, w.payload) AS pending FROM workflow.workflow_pending_writes AS w
    WHERE w.workflow_id = c.workflow_id AND w.thread_id = c.thread_id AND w.seq = c.seq
) AS p ON true
WHERE c.workflow_id = %(workflow_id)s AND c.thread_id = %(thread_id)s ORDER BY c.seq DESC LIMIT 1

-- finish_branch --
-- Stores the result of a parallel branch; see finish_branch_v1.
SELECT status, seq FROM workflow.finish_branch_v1(
    %(workflow_id)s, %(thread_id)s, %(seq)s, %(task_id)s, %(payload)s::jsonb)

-- complete_workflow --
-- Removes a completed workflow, or one thread of it; returns how many threads.
SELECT count(*) FILTER (WHERE workflow.forget_thread_v1(workflow_id, thread_id, NULL)) AS threads
FROM workflow.workflow_thread
WHERE workflow_id = %(workflow_id)s AND (%(thread_id)s::text IS NULL OR thread_id = %(thread_id)s)

-- fail_workflow --
-- Marks a workflow, or one thread of it, as failed; the first time of failure is kept.
UPDATE workflow.workflow_thread SET failed_at = coalesce(failed_at, imem_now())
WHERE workflow_id = %(workflow_id)s AND (%(thread_id)s::text IS NULL OR thread_id = %(thread_id)s)
RETURNING thread_id

-- forget_failed_workflows --
-- Removes threads that failed before the given age; returns how many were due and removed.
SELECT count(*) AS due, count(*) FILTER (WHERE workflow.forget_thread_v1(workflow_id, thread_id, failed_at)) AS threads
FROM (
    SELECT workflow_id, thread_id, failed_at FROM workflow.workflow_thread
    WHERE failed_at <= imem_now() - %(keep_failed)s::interval ORDER BY failed_at LIMIT %(limit)s
) AS long_ago
