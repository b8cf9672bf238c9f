-- events_by_id --
-- Which events the journal has.
SELECT event_id, position FROM event WHERE event_id = ANY (%(event_ids)s::uuid[])

-- hasten --
-- Makes what still waits of the given actors critical, so that nothing of theirs waits behind a bulk; returns what waits.
SELECT position, actor FROM imem_hasten_v1(%(actors)s::text[])

-- writers_lag --
-- How far the graph is behind each of the given actors: the last number that it pushed, the last up to which everything is
-- applied, what waits and what was refused for good, and the age of the oldest that waits, in seconds.
SELECT a.actor, coalesce(c.pushed_seq, 0) AS pushed_seq, coalesce(w.applied_seq, c.pushed_seq, 0) AS applied_seq,
    w.waiting, w.dead, w.oldest_s
FROM unnest(%(actors)s::text[]) AS a (actor)
LEFT JOIN agent_cursor AS c ON c.actor = a.actor
CROSS JOIN LATERAL (
    SELECT min(e.agent_seq) - 1 AS applied_seq, count(*) FILTER (WHERE d.state <> 'dead') AS waiting,
        count(*) FILTER (WHERE d.state = 'dead') AS dead,
        extract(epoch FROM imem_now() - min(e.recorded_at) FILTER (WHERE d.state <> 'dead'))::float8 AS oldest_s
    FROM delivery AS d JOIN event AS e ON e.position = d.position
    WHERE d.actor = a.actor AND d.state IN ('pending', 'dead')
) AS w
ORDER BY a.actor
