-- journal_end --
-- The newest position, and the number of this transaction, a later one than any that was given a position up to there: once
-- all older ones have ended, nothing can appear any more at or below that position.
SELECT coalesce(max(position), 0) AS position, pg_current_xact_id()::text AS until FROM event

-- journal_settled --
-- Whether every transaction before the given one has ended.
SELECT pg_snapshot_xmin(pg_current_snapshot()) >= %(until)s::xid8 AS settled

-- journal_count --
-- How many events lie after a position, up to another, and how many of them the graph refused for good.
SELECT count(*) AS events, count(*) FILTER (WHERE state = 'dead') AS dead
FROM delivery WHERE position > %(after)s AND position <= %(upto)s

-- journal_event_at --
-- The identity of the event at a position.
SELECT event_id FROM event WHERE position = %(position)s

-- events_after --
-- The journal in order, for a rebuild: a page after a position.
SELECT e.position, e.event_id, e.actor, e.kind, e.record_key, e.payload, e.occurred_at, e.known_at, e.recorded_at, e.order_key,
    d.attempts
FROM event AS e JOIN delivery AS d ON d.position = e.position
WHERE e.position > %(after)s AND e.position <= %(upto)s
ORDER BY e.position LIMIT %(limit)s

-- events_waiting --
-- The oldest events up to a position that the graph does not hold yet, whatever they wait for.
SELECT e.position, e.event_id, e.actor, e.kind, e.record_key, e.payload, e.occurred_at, e.known_at, e.recorded_at, e.order_key,
    d.attempts
FROM delivery AS d JOIN event AS e ON e.position = d.position
WHERE d.state IN ('pending', 'dispatched') AND d.position <= %(upto)s
ORDER BY d.position LIMIT %(limit)s

-- revive_dead --
-- Has what the graph refused for good tried once more, up to a position; if the lease is ours.
UPDATE delivery SET state = 'pending', attempts = 0, next_attempt_at = NULL
WHERE state = 'dead' AND position <= %(upto)s
  AND EXISTS (SELECT 1 FROM lease WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s)

-- reopen_deliveries --
-- Says of applied events that the graph does not hold them: the range after a position, up to another; if the lease is ours.
UPDATE delivery SET state = 'pending', applied_at = NULL, bookmark = NULL, attempts = 0
WHERE position > %(after)s AND position <= %(upto)s AND state = 'applied'
  AND EXISTS (SELECT 1 FROM lease WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s)

-- rederive_counters --
-- Has the counters of every subject and agent recomputed, for a graph that was made anew.
INSERT INTO derive_work (kind, key)
SELECT d.kind, d.key FROM (
    SELECT 'subject_counters' AS kind, subject_id AS key FROM record_head
    WHERE kind = 'Analysis' AND grp = 'core' AND subject_id IS NOT NULL
    UNION
    SELECT 'agent_counters', jsonb_array_elements_text(e.payload -> 'core' -> 'agents_involved')
    FROM record_head AS h JOIN event AS e ON e.position = h.position
    WHERE h.kind = 'Decision' AND h.grp = 'core'
) AS d
ORDER BY d.kind, d.key
ON CONFLICT (kind, key) DO UPDATE SET version = DEFAULT

-- journal_applied --
-- What of the journal the graph is said to hold: the journal's identity, all its events, and those applied.
SELECT (SELECT id::text FROM journal_identity) AS journal,
    count(*) AS events, count(*) FILTER (WHERE state = 'applied') AS applied, coalesce(max(position), 0) AS position
FROM delivery
