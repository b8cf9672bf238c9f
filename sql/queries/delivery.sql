-- dead_letters --
-- Events that the graph refused for good, oldest first, with the gap of each in its actor's order. Columns: position,
-- event_id, actor, agent_seq, kind, key, tier, attempts, reason, since (when it was marked dead), replayed_at and
-- replayed_by (of the last failed replay), total (of all).
SELECT d.position, e.event_id, e.actor, e.agent_seq, e.kind, e.record_key AS key, d.tier, d.attempts, d.error AS reason,
    d.died_at AS since, g.replayed_at, g.replayed_by, count(*) OVER () AS total
FROM delivery AS d
JOIN event AS e ON e.position = d.position
LEFT JOIN LATERAL (
    SELECT x.replayed_at, x.replayed_by FROM delivery_gap AS x
    WHERE x.position = d.position AND x.replayed_at IS NOT NULL ORDER BY x.replayed_at DESC LIMIT 1
) AS g ON true
WHERE d.state = 'dead' ORDER BY d.position LIMIT %(limit)s

-- letters_named --
-- The state of the given events: by position, or by identity. Columns: position, event_id, actor, state, tier.
SELECT d.position, e.event_id, d.actor, d.state, d.tier FROM event AS e JOIN delivery AS d ON d.position = e.position
WHERE e.position = ANY (%(positions)s::bigint[]) OR e.event_id = ANY (%(event_ids)s::uuid[])
ORDER BY d.position

-- replay_letters --
-- Retries dead events; see imem_replay_v1. Column: replayed, how many.
SELECT imem_replay_v1(%(actor)s, %(role)s, %(positions)s::bigint[], %(context)s::jsonb) AS replayed

-- delivery_depth --
-- Events before their first attempt, before another attempt, or dead, in each tier. Columns: tier, state (waiting,
-- retrying, dead), events, oldest_s (age of the oldest, in seconds).
WITH now AS MATERIALIZED (SELECT imem_now() AS moment),
counted AS (
    SELECT d.tier, CASE WHEN d.next_attempt_at > now.moment THEN 'retrying' ELSE 'waiting' END AS state, count(*) AS events,
        min(d.position) AS oldest
    FROM delivery AS d, now WHERE d.state = 'pending' GROUP BY 1, 2
    UNION ALL
    SELECT d.tier, 'dead', count(*), min(d.position) FROM delivery AS d WHERE d.state = 'dead' GROUP BY 1
)
SELECT c.tier, c.state, c.events, extract(epoch FROM now.moment - e.recorded_at)::float8 AS oldest_s
FROM now, counted AS c JOIN event AS e ON e.position = c.oldest ORDER BY c.tier, c.state

-- delivery_progress --
-- Progress of the graph behind the journal. Columns: newest (position), applied_s (seconds since an event was last
-- marked applied, NULL where none ever was), leads (whether a process holds the applier's lease).
SELECT (SELECT max(position) FROM delivery) AS newest,
    extract(epoch FROM imem_now() - (SELECT max(d.applied_at) FROM (
        SELECT applied_at FROM delivery WHERE state = 'applied' ORDER BY position DESC LIMIT 1000) AS d))::float8 AS applied_s,
    EXISTS (SELECT FROM lease WHERE name = 'applier' AND expires_at > imem_now()) AS leads
