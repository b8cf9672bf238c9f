-- snapshots_overtaken --
-- Says that the snapshots of open debates are stale: something happened that is critical for the system.
INSERT INTO workflow.snapshot_stale (snapshot_id, reason)
SELECT d.snapshot_id, %(reason)s FROM workflow.debate_state AS d WHERE d.state <> 'closed' AND d.snapshot_id IS NOT NULL
ON CONFLICT (snapshot_id) DO NOTHING
