-- journal_end --
-- The newest position, and this transaction's number, which is later than that of any transaction that holds a position up to
-- there: once all earlier ones have ended, no event can appear at or below the position.
SELECT coalesce(max(position), 0) AS position, pg_current_xact_id()::text AS until FROM event

-- journal_settled --
-- Whether every transaction before the given one has ended.
SELECT pg_snapshot_xmin(pg_current_snapshot()) >= %(until)s::xid8 AS settled

-- journal_count --
-- Counts the events after a position, up to another, and how many of them are dead.
SELECT count(*) AS events, count(*) FILTER (WHERE state = 'dead') AS dead
FROM delivery WHERE position > %(after)s AND position <= %(upto)s

-- journal_event_at --
-- The identity of the event at a position.
SELECT event_id FROM event WHERE position = %(position)s

-- events_after --
-- A page of the journal in order, after a position.
SELECT e.position, e.event_id, e.actor, e.kind, e.record_key, e.payload, e.occurred_at, e.known_at, e.recorded_at, e.order_key,
    d.attempts
FROM event AS e JOIN delivery AS d ON d.position = e.position
WHERE e.position > %(after)s AND e.position <= %(upto)s
ORDER BY e.position LIMIT %(limit)s

-- events_waiting --
-- The oldest unapplied events up to a position, including those that wait for their next attempt.
SELECT e.position, e.event_id, e.actor, e.kind, e.record_key, e.payload, e.occurred_at, e.known_at, e.recorded_at, e.order_key,
    d.attempts
FROM delivery AS d JOIN event AS e ON e.position = d.position
WHERE d.state = 'pending' AND d.position <= %(upto)s
ORDER BY d.position LIMIT %(limit)s

-- revive_dead --
-- Retries dead events up to a position, if this holder has the lease.
UPDATE delivery SET state = 'pending', attempts = 0, next_attempt_at = NULL
WHERE state = 'dead' AND position <= %(upto)s
  AND EXISTS (SELECT 1 FROM lease WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s)

-- reopen_deliveries --
-- Marks applied events after a position, up to another, as not applied, if this holder has the lease.
UPDATE delivery SET state = 'pending', applied_at = NULL, bookmark = NULL, attempts = 0
WHERE position > %(after)s AND position <= %(upto)s AND state = 'applied'
  AND EXISTS (SELECT 1 FROM lease WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s)

-- rederive_counters --
-- Queues the counters of every subject and agent, for a rebuilt graph.
INSERT INTO due_row (queue, kind, key, later)
SELECT 'graph', d.kind, d.key, true FROM (
    SELECT 'subject_counters' AS kind, subject_id AS key FROM record_head
    WHERE kind = 'Analysis' AND grp = 'core' AND subject_id IS NOT NULL
    UNION
    SELECT 'agent_counters', jsonb_array_elements_text(e.payload -> 'core' -> 'agents_involved')
    FROM record_head AS h JOIN event AS e ON e.position = h.position
    WHERE h.kind = 'Decision' AND h.grp = 'core'
) AS d

-- journal_applied --
-- The journal's identity, the number of its events, and of those marked applied.
SELECT (SELECT id::text FROM journal_identity) AS journal,
    count(*) AS events, count(*) FILTER (WHERE state = 'applied') AS applied, coalesce(max(position), 0) AS position
FROM delivery
