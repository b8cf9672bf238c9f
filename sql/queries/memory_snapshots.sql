-- snapshots_overtaken --
-- Marks the snapshots of open debates as stale, because of a system-critical event.
INSERT INTO workflow.snapshot_stale (snapshot_id, reason)
SELECT (d.data -> 'snapshot' ->> 'id')::uuid, %(reason)s FROM lifecycle AS d
WHERE d.kind = 'debate' AND d.state NOT IN ('closed', 'withdrawn', 'superseded') AND d.data -> 'snapshot' ->> 'id' IS NOT NULL
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

-- debate_snapshot_row --
-- A debate, what is stored of its snapshot, whether it waits for a side, why the snapshot is stale, and how many it has had.
SELECT d.key AS debate_id, d.about AS analysis_id, d.data ->> 'topic' AS topic, d.data ->> 'challenger' AS challenger,
    d.data ->> 'challenged' AS challenged, d.state, d.data -> 'snapshot' AS stored,
    coalesce((d.data -> 'snapshot' ->> 'deferred_until')::timestamptz > imem_now(), false) AS deferred,
    imem_now() AS now, s.snapshot_id, s.sha256, s.degraded, s.excluded, t.reason AS stale,
    (SELECT count(*) FROM workflow.memory_snapshot AS m WHERE m.debate_id = d.key) AS snapshots
FROM lifecycle AS d
LEFT JOIN workflow.memory_snapshot AS s ON s.snapshot_id = (d.data -> 'snapshot' ->> 'id')::uuid
LEFT JOIN workflow.snapshot_stale AS t ON t.snapshot_id = s.snapshot_id
WHERE d.kind = 'debate' AND d.key = %(debate_id)s

-- debates_without_snapshot --
-- Open debates that have no snapshot or, while agents argue, a stale one, and do not wait for a side; the oldest first. One of whose
-- sides cannot be reached gets none. Parameters: argued, the states in which agents argue; restarts, how often one may be taken anew; limit.
SELECT d.key AS debate_id FROM lifecycle AS d
WHERE d.kind = 'debate' AND d.state IN ('initiated', 'level1', 'level2', 'level3', 'provisional')
  AND NOT coalesce(d.data -> 'snapshot' ? 'unreachable', false)
  AND NOT coalesce((d.data -> 'snapshot' ->> 'deferred_until')::timestamptz > imem_now(), false)
  AND (d.data -> 'snapshot' ->> 'id' IS NULL
       OR d.state = ANY (%(argued)s::text[])
          AND EXISTS (SELECT FROM workflow.snapshot_stale AS t WHERE t.snapshot_id = (d.data -> 'snapshot' ->> 'id')::uuid)
          AND (SELECT count(*) FROM workflow.memory_snapshot AS m WHERE m.debate_id = d.key) <= %(restarts)s)
ORDER BY d.opened_at, d.key LIMIT %(limit)s

-- debate_snapshot_set --
-- Stores what became of the snapshot of a debate; see set_debate_snapshot_v1. No row where that was changed meanwhile.
SELECT key FROM set_debate_snapshot_v1(
    %(debate_id)s, %(before)s::jsonb, %(snapshot)s::jsonb, %(actor)s, %(role)s, %(reason)s, %(context)s::jsonb)

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

-- snapshot_head --
-- The row of a snapshot without its body.
SELECT s.snapshot_id, s.debate_id, s.participants, s.excluded, s.seqs, s.sha256, s.degraded, s.created_at, s.expires_at,
    t.reason AS stale_reason, d.data ->> 'topic' AS topic, d.about AS analysis_id,
    d.state IN ('closed', 'withdrawn', 'superseded') AS closed
FROM workflow.memory_snapshot AS s
JOIN lifecycle AS d ON d.kind = 'debate' AND d.key = s.debate_id
LEFT JOIN workflow.snapshot_stale AS t ON t.snapshot_id = s.snapshot_id
WHERE s.snapshot_id = %(snapshot_id)s

-- snapshot_body --
-- The body of a snapshot, as it was hashed.
SELECT body FROM workflow.memory_snapshot WHERE snapshot_id = %(snapshot_id)s
