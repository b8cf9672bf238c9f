-- take_lease --
-- Acquires the lease if it is free, expired or held by this holder; a change of holder raises the epoch. No row: another holder
-- has it.
INSERT INTO lease AS l (name, holder, epoch, expires_at)
VALUES (%(name)s, %(holder)s, 1, imem_now() + make_interval(secs => %(seconds)s))
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder,
    epoch = l.epoch + CASE WHEN l.holder = excluded.holder THEN 0 ELSE 1 END,
    expires_at = excluded.expires_at
WHERE l.holder = excluded.holder OR l.expires_at < imem_now()
RETURNING epoch

-- seize_lease --
-- Takes the lease from its present holder.
INSERT INTO lease AS l (name, holder, epoch, expires_at)
VALUES (%(name)s, %(holder)s, 1, imem_now() + make_interval(secs => %(seconds)s))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = l.epoch + 1, expires_at = excluded.expires_at
RETURNING epoch

-- drop_lease --
-- Releases the lease, so that a standby need not wait for its expiry.
UPDATE lease SET expires_at = imem_now() - interval '1 second' WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s

-- claim_urgent --
-- Claims due events of tiers 0 and 1 with the earlier events of the same actors, which keeps each actor's order. Events of an
-- actor behind one that waits for its next attempt are left out. Actors take turns, those with tier 0 first in each turn, so
-- that one with many earlier events does not hold up the others. Parameters: held (positions claimed already, in either lane),
-- share (events of an actor in one turn), limit.
WITH held AS MATERIALIZED (SELECT h.position FROM unnest(%(held)s::bigint[]) AS h (position)),
wanted AS MATERIALIZED (
    SELECT d.actor, min(d.tier) AS tier, max(d.position) AS upto FROM delivery AS d
    WHERE d.state = 'pending' AND d.tier < 2 AND NOT EXISTS (SELECT FROM held AS h WHERE h.position = d.position)
    GROUP BY d.actor
),
waiting AS MATERIALIZED (
    SELECT actor, min(position) AS since FROM delivery
    WHERE next_attempt_at IS NOT NULL AND next_attempt_at > imem_now() GROUP BY actor
),
due AS MATERIALIZED (
    SELECT o.position, o.attempts FROM wanted AS u
    LEFT JOIN waiting AS w ON w.actor = u.actor
    -- By actor, oldest first, so that an import's hundred thousand events are not read for one event of another actor.
    CROSS JOIN LATERAL (
        SELECT p.position, p.attempts, row_number() OVER (ORDER BY p.position) AS number FROM (
            SELECT d.position, d.attempts FROM delivery AS d
            WHERE d.actor = u.actor AND d.position <= u.upto AND (w.since IS NULL OR d.position < w.since)
              AND d.state = 'pending'
            -- Events claimed already are the oldest: so many more have to be read.
            ORDER BY d.position LIMIT %(limit)s + cardinality(%(held)s::bigint[])
        ) AS p
        WHERE NOT EXISTS (SELECT FROM held AS h WHERE h.position = p.position)
    ) AS o
    ORDER BY (o.number - 1) / %(share)s, u.tier, o.number, o.position LIMIT %(limit)s
)
SELECT e.position, e.event_id, e.actor, e.kind, e.record_key, e.payload, e.occurred_at, e.known_at, e.recorded_at, e.order_key,
    due.attempts
FROM due JOIN event AS e ON e.position = due.position ORDER BY e.position

-- claim_high --
-- Claims due events of tier 2, and normal ones that have waited for 15 minutes, with the earlier events of the same actors;
-- otherwise as claim_urgent. Actors with an event of tiers 0 or 1 belong to the other lane. Parameters: also upto (the greatest
-- position claimed already); held is of this lane alone.
WITH held AS MATERIALIZED (SELECT h.position FROM unnest(%(held)s::bigint[]) AS h (position)),
reserved AS MATERIALIZED (
    SELECT DISTINCT d.actor FROM delivery AS d WHERE d.state = 'pending' AND d.tier < 2
),
wanted AS MATERIALIZED (
    SELECT x.actor, max(x.position) AS upto FROM (
        SELECT d.actor, d.position FROM delivery AS d WHERE d.state = 'pending' AND d.tier = 2
        UNION ALL
        SELECT o.actor, o.position FROM (
            SELECT d.actor, d.position FROM delivery AS d
            WHERE d.state = 'pending' AND (d.position > %(upto)s OR d.position <> ALL (%(held)s::bigint[]))
            ORDER BY d.position LIMIT %(limit)s
        ) AS o JOIN event AS e ON e.position = o.position
        WHERE e.recorded_at < (SELECT imem_now()) - interval '15 minutes'
          -- Evaluated once: where the oldest event has not waited that long, no other has.
          AND (
              SELECT f.recorded_at FROM event AS f WHERE f.position = (
                  SELECT min(d.position) FROM delivery AS d WHERE d.state = 'pending')
          ) < (SELECT imem_now()) - interval '15 minutes'
    ) AS x
    WHERE NOT EXISTS (SELECT FROM held AS h WHERE h.position = x.position)
      AND NOT EXISTS (SELECT FROM reserved AS r WHERE r.actor = x.actor)
    GROUP BY x.actor
),
waiting AS MATERIALIZED (
    SELECT actor, min(position) AS since FROM delivery
    WHERE next_attempt_at IS NOT NULL AND next_attempt_at > imem_now() GROUP BY actor
),
due AS MATERIALIZED (
    SELECT o.position, o.attempts FROM wanted AS u
    LEFT JOIN waiting AS w ON w.actor = u.actor
    CROSS JOIN LATERAL (
        SELECT p.position, p.attempts, row_number() OVER (ORDER BY p.position) AS number FROM (
            SELECT d.position, d.attempts FROM delivery AS d
            WHERE d.actor = u.actor AND d.position <= u.upto AND (w.since IS NULL OR d.position < w.since)
              AND d.state = 'pending'
            ORDER BY d.position LIMIT %(limit)s + cardinality(%(held)s::bigint[])
        ) AS p
        WHERE NOT EXISTS (SELECT FROM held AS h WHERE h.position = p.position)
    ) AS o
    ORDER BY (o.number - 1) / %(share)s, o.position LIMIT %(limit)s
)
SELECT e.position, e.event_id, e.actor, e.kind, e.record_key, e.payload, e.occurred_at, e.known_at, e.recorded_at, e.order_key,
    due.attempts
FROM due JOIN event AS e ON e.position = due.position ORDER BY e.position

-- claim_due --
-- Claims the oldest due events; events of an actor behind one that waits for its next attempt are left out. Parameters: held
-- (positions claimed already in this lane), upto (the greatest of them: only positions up to it are compared with each), limit,
-- lanes (whether actors with an event of tiers 0 or 1 belong to the other lane).
WITH waiting AS MATERIALIZED (
    SELECT actor, min(position) AS since FROM delivery
    WHERE next_attempt_at IS NOT NULL AND next_attempt_at > imem_now() GROUP BY actor
),
reserved AS MATERIALIZED (
    SELECT DISTINCT d.actor FROM delivery AS d WHERE %(lanes)s AND d.state = 'pending' AND d.tier < 2
),
due AS MATERIALIZED (
    SELECT d.position, d.attempts FROM delivery AS d
    LEFT JOIN waiting AS w ON w.actor = d.actor
    WHERE d.state = 'pending' AND (d.position > %(upto)s OR d.position <> ALL (%(held)s::bigint[]))
      AND (w.since IS NULL OR d.position < w.since) AND NOT EXISTS (SELECT FROM reserved AS r WHERE r.actor = d.actor)
    ORDER BY d.position LIMIT %(limit)s
)
SELECT e.position, e.event_id, e.actor, e.kind, e.record_key, e.payload, e.occurred_at, e.known_at, e.recorded_at, e.order_key,
    due.attempts
FROM due JOIN event AS e ON e.position = due.position ORDER BY e.position

-- settle_applied --
-- Marks events applied, if this holder still has the lease.
UPDATE delivery SET state = 'applied', applied_at = imem_now(), bookmark = %(bookmark)s, error = NULL, next_attempt_at = NULL
WHERE position = ANY (%(positions)s::bigint[])
  AND EXISTS (SELECT 1 FROM lease WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s)

-- settle_refused --
-- Counts a rejection of one event and schedules its next attempt, or marks it dead after the last, if this holder still has the
-- lease. Columns: state, tier, attempts, retry_s (seconds until the next attempt; null where it is dead).
UPDATE delivery SET attempts = attempts + 1, error = %(error)s,
    state = CASE WHEN attempts + 1 >= %(most)s THEN 'dead' ELSE 'pending' END,
    died_at = CASE WHEN attempts + 1 >= %(most)s THEN imem_now() ELSE died_at END,
    next_attempt_at = CASE WHEN attempts + 1 >= %(most)s THEN NULL
        ELSE imem_now() + make_interval(secs => 0.1 * power(2, attempts)) END
WHERE position = %(position)s
  AND EXISTS (SELECT 1 FROM lease WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s)
RETURNING state, tier, attempts, extract(epoch FROM next_attempt_at - imem_now())::float8 AS retry_s

-- claim_derive --
-- Derived values to recompute, and the newest event that this statement saw waiting: a value recorded together with an event
-- that is not applied yet would be settled too early. Columns: those of a due row, upto (position; null where none waits).
SELECT id, kind, key, position, created_at, (SELECT max(position) FROM delivery WHERE state = 'pending') AS upto FROM due_row
WHERE queue = %(queue)s AND set_aside IS NULL ORDER BY later, created_at, id LIMIT %(limit)s

-- pending_upto --
-- Whether an event up to a position is still to be applied.
SELECT EXISTS (SELECT FROM delivery WHERE state = 'pending' AND position <= %(upto)s) AS waits

-- delivery_counts --
-- Counts of events by state of delivery, and the age of the oldest that waits, in seconds.
SELECT count(*) FILTER (WHERE d.state = 'pending') AS pending,
    count(*) FILTER (WHERE d.state = 'dead') AS dead,
    extract(epoch FROM imem_now() - min(e.recorded_at) FILTER (WHERE d.state <> 'dead'))::float8 AS oldest_s
FROM delivery AS d JOIN event AS e ON e.position = d.position
WHERE d.state <> 'applied'

-- dead_events --
-- Events that the graph refused for good, with the reason.
SELECT d.position, e.kind, e.record_key, d.attempts, d.error FROM delivery AS d JOIN event AS e ON e.position = d.position
WHERE d.state = 'dead' ORDER BY d.position LIMIT %(limit)s

-- delivery_behind --
-- Age of the oldest event that waits for the graph, in seconds; 0 where none waits. One index lookup.
-- (The position is found first: a join would be planned to read all events before it.)
SELECT greatest(0, coalesce((
    SELECT extract(epoch FROM imem_now() - e.recorded_at)::float8 FROM event AS e
    WHERE e.position = (SELECT min(d.position) FROM delivery AS d WHERE d.state = 'pending')), 0)) AS behind_s
