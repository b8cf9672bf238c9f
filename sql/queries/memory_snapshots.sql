-- snapshots_overtaken --
-- Marks the snapshots of open debates as stale, because of a system-critical event.
INSERT INTO workflow.snapshot_stale (snapshot_id, reason)
SELECT d.snapshot_id, %(reason)s FROM workflow.debate_state AS d WHERE d.state <> 'closed' AND d.snapshot_id IS NOT NULL
ON CONFLICT (snapshot_id) DO NOTHING

-- lock_writers --
-- Locks the writes of actors, all or none; see imem_lock_writers_v1. Columns: actor, epoch, locked_until, held_by.
SELECT actor, epoch, locked_until, held_by FROM imem_lock_writers_v1(%(actors)s::text[], %(holder)s, %(lasts)s)

-- unlock_writers --
-- Releases the locks of actors. Column: released, how many.
SELECT imem_unlock_writers_v1(%(actors)s::text[], %(holder)s) AS released

-- locks_held --
-- The locks of a holder that have not expired.
SELECT actor, lock_epoch FROM agent_cursor
WHERE actor = ANY (%(actors)s::text[]) AND lock_holder = %(holder)s AND locked_until > imem_now()

-- debate_row --
-- A debate, whether it is deferred now, its snapshot, why that is stale, and how many it has had.
SELECT d.debate_id, d.analysis_id, d.topic, d.challenger, d.challenged, d.state, d.snapshot_id, d.degraded, d.deferrals,
    d.deferred_until, coalesce(d.deferred_until > imem_now(), false) AS deferred, s.sha256, s.participants, s.excluded, t.reason AS stale,
    (SELECT count(*) FROM workflow.memory_snapshot AS m WHERE m.debate_id = d.debate_id) AS snapshots
FROM workflow.debate_state AS d
LEFT JOIN workflow.memory_snapshot AS s ON s.snapshot_id = d.snapshot_id
LEFT JOIN workflow.snapshot_stale AS t ON t.snapshot_id = d.snapshot_id
WHERE d.debate_id = %(debate_id)s

-- debate_deferred --
-- Defers the opening of a debate by five minutes, three times at most. No row after that.
UPDATE workflow.debate_state SET deferrals = deferrals + 1, deferred_until = imem_now() + %(by)s
WHERE debate_id = %(debate_id)s AND deferrals < %(most)s AND (deferred_until IS NULL OR deferred_until <= imem_now())
RETURNING deferrals, deferred_until

-- debate_escalated --
-- Escalates a debate to humans: one of its sides could not be synchronised.
UPDATE workflow.debate_state SET state = 'level3_queued', deferred_until = NULL
WHERE debate_id = %(debate_id)s AND state IN ('initiated', 'syncing', 'level1', 'level2') RETURNING state

-- repeatable_read --
-- Sets the isolation level: all reads of this transaction are of one moment.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- snapshot_moment --
-- The moment of a snapshot, and the last position that it can hold.
SELECT imem_now() AS at, (SELECT coalesce(max(position), 0) FROM event) AS upto

-- snapshot_records --
-- The current records of an analysis: the winning value of each group, its source, and whether the graph holds it.
-- Includes the debate and what it disputes. Parameters: analysis_id, debate_id, kinds, limit.
WITH named AS (
    SELECT DISTINCT split_part(e.kind, '.', 2) AS kind, e.record_key AS key FROM event AS e
    WHERE e.analysis_id = %(analysis_id)s AND split_part(e.kind, '.', 2) = ANY (%(kinds)s::text[])
    UNION
    SELECT 'Debate', %(debate_id)s
    UNION
    SELECT 'Finding', e.payload -> 'core' ->> 'disputed_finding' FROM event AS e
    WHERE e.kind = 'record.Debate' AND e.record_key = %(debate_id)s AND e.payload -> 'core' ->> 'disputed_finding' IS NOT NULL
)
SELECT h.kind, h.key, h.grp, h.position, h.known_at, e.actor, e.agent_seq,
    CASE h.grp
        WHEN 'core' THEN e.payload -> 'core' WHEN 'correction' THEN e.payload -> 'core' WHEN 'body' THEN to_jsonb(e.body)
        WHEN 'turns' THEN t.turns ELSE e.payload -> 'groups' -> h.grp
    END AS value,
    coalesce(d.state, 'applied') AS state
FROM named AS n
JOIN record_head AS h ON h.kind = n.kind AND h.key = n.key
JOIN event AS e ON e.position = h.position
LEFT JOIN delivery AS d ON d.position = h.position
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object('number', u.number, 'stage', u.stage, 'speaker', u.speaker, 'stance', u.stance,
        'text', u.text, 'cites', to_jsonb(u.cites)) ORDER BY u.number) AS turns
    FROM debate_turn AS u WHERE h.grp = 'turns' AND u.debate_id = h.key AND u.position = h.position
) AS t ON true
ORDER BY h.kind COLLATE "C", h.key COLLATE "C", h.grp COLLATE "C" LIMIT %(limit)s

-- snapshot_citations --
-- The current citations of the given findings, decisions and debates.
SELECT e.payload -> 'props' AS props, e.payload ->> 'from_label' AS from_label, e.payload ->> 'from_key' AS from_key,
    e.payload ->> 'to_label' AS to_label, e.payload ->> 'to_key' AS to_key, h.position
FROM event AS e JOIN record_head AS h ON h.position = e.position AND h.kind = e.kind
WHERE e.kind = 'link.CITES' AND (e.payload ->> 'from_key') = ANY (%(keys)s::text[])
ORDER BY h.position

-- snapshot_insert --
-- Inserts a snapshot; it is permanent.
INSERT INTO workflow.memory_snapshot (
    snapshot_id, debate_id, participants, excluded, seqs, manifest, body, sha256, degraded, created_at, expires_at)
VALUES (
    %(snapshot_id)s, %(debate_id)s, %(participants)s, %(excluded)s::jsonb, %(seqs)s::jsonb, %(manifest)s::jsonb, %(body)s,
    %(sha256)s, %(degraded)s, %(at)s, %(at)s + interval '10 years')

-- debate_snapshotted --
-- Sets the snapshot of a debate, unless it was changed concurrently.
UPDATE workflow.debate_state SET snapshot_id = %(snapshot_id)s, degraded = %(degraded)s, deferred_until = NULL
WHERE debate_id = %(debate_id)s AND snapshot_id IS NOT DISTINCT FROM %(before)s AND state <> 'closed'

-- snapshot_head --
-- The row of a snapshot without its body.
SELECT s.snapshot_id, s.debate_id, s.participants, s.excluded, s.seqs, s.sha256, s.degraded, s.created_at, s.expires_at,
    t.reason AS stale_reason, d.topic, d.analysis_id, d.state = 'closed' AS closed
FROM workflow.memory_snapshot AS s
JOIN workflow.debate_state AS d ON d.debate_id = s.debate_id
LEFT JOIN workflow.snapshot_stale AS t ON t.snapshot_id = s.snapshot_id
WHERE s.snapshot_id = %(snapshot_id)s

-- snapshot_body --
-- The body of a snapshot, as it was hashed.
SELECT body FROM workflow.memory_snapshot WHERE snapshot_id = %(snapshot_id)s
