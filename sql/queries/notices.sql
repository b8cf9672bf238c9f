-- members --
-- Agent instances of the given ids.
SELECT agent_id, owner, analysis_id, agent_type FROM workflow.agent_instance
WHERE agent_id = ANY (%(agent_ids)s::text[]) ORDER BY agent_id

-- members_of --
-- The agent instances of an analysis.
SELECT agent_id, owner, analysis_id, agent_type FROM workflow.agent_instance
WHERE analysis_id = %(analysis_id)s ORDER BY agent_id

-- members_of_owners --
-- The agent instances of an analysis that the given actors own.
SELECT agent_id, owner, analysis_id, agent_type FROM workflow.agent_instance
WHERE analysis_id = %(analysis_id)s AND owner = ANY (%(owners)s::text[]) ORDER BY agent_id

-- members_at_work --
-- The agent instances of running analyses that have begun.
SELECT i.agent_id, i.owner, i.analysis_id, i.agent_type FROM workflow.agent_instance AS i
JOIN workflow.analysis AS a ON a.analysis_id = i.analysis_id AND a.outcome IS NULL
ORDER BY i.agent_id

-- notices_due --
-- Events to be routed, their rows locked; rows locked by another process are skipped. The most urgent first. An event
-- without delivery (the graph has no place for it) counts as normal. A lesson names the agents that it is delivered to. shown: whether
-- agents see the record; that an approved lesson is applied is no news.
SELECT n.position, e.kind, e.actor, e.analysis_id, e.importance, coalesce(d.tier, 3) AS tier, e.record_key,
    workflow.notice_shown_v1(e.kind, e.record_key)
        AND (e.kind <> 'record.Lesson' OR e.payload #>> '{groups,state,state}' IS DISTINCT FROM 'applied') AS shown,
    CASE WHEN split_part(e.kind, '.', 2) = 'Lesson' THEN (
        SELECT jsonb_build_object('agents', coalesce(jsonb_agg(t.agent ORDER BY t.agent), '[]')) FROM lifecycle AS l
        CROSS JOIN LATERAL jsonb_object_keys(l.data -> 'deliveries') AS t (agent)
        WHERE l.kind = 'lesson' AND l.key = e.record_key)
    ELSE e.payload -> 'core' END AS core
FROM workflow.notice_due AS n
JOIN event AS e ON e.position = n.position LEFT JOIN delivery AS d ON d.position = n.position
ORDER BY coalesce(d.tier, 3), n.position LIMIT %(limit)s
FOR UPDATE OF n SKIP LOCKED

-- notices_routed --
-- Removes routed events from the queue of routing.
DELETE FROM workflow.notice_due WHERE position = ANY (%(positions)s::bigint[])

-- notice_candidates --
-- Active agents, with their profile, under any of their names, and how many updates of the given senders they were
-- notified of and pulled.
SELECT i.agent_id, i.owner, i.agent_type, i.analysis_id, a.subject_id, p.domains, p.specialization, u.notified, u.pulled
FROM workflow.agent_instance AS i
JOIN workflow.analysis AS a ON a.analysis_id = i.analysis_id AND a.outcome IS NULL
LEFT JOIN LATERAL (
    SELECT jsonb_agg(e.payload -> 'groups' -> 'profile' -> 'domains') AS domains,
        string_agg(e.payload -> 'groups' -> 'profile' ->> 'specialization', ' ') AS specialization
    FROM record_head AS h JOIN event AS e ON e.position = h.position
    WHERE h.kind = 'Agent' AND h.grp = 'profile' AND h.key IN (i.agent_id, i.agent_type, i.owner)
) AS p ON true
LEFT JOIN LATERAL (
    SELECT jsonb_object_agg(s.sender, s.notified) AS notified, jsonb_object_agg(s.sender, s.pulled) AS pulled
    FROM workflow.notice_usage AS s WHERE s.agent_id = i.agent_id AND s.sender = ANY (%(senders)s::text[])
) AS u ON true
ORDER BY i.agent_id

-- inbox_numbers --
-- Reserves numbers for each agent, in the agents' order; returns the last of them.
INSERT INTO workflow.inbox AS b (agent_id, notified_seq)
SELECT n.agent_id, n.count FROM unnest(%(agent_ids)s::text[], %(counts)s::bigint[]) AS n (agent_id, count) ORDER BY n.agent_id
ON CONFLICT (agent_id) DO UPDATE SET notified_seq = b.notified_seq + excluded.notified_seq
RETURNING b.agent_id, b.notified_seq

-- recipients_add --
-- Inserts recipients, and the scores of agents below the threshold. Five numbers a row make its parts.
INSERT INTO workflow.recipient (position, agent_id, seq, tier, score, parts, why)
SELECT r.position, r.agent_id, r.seq, r.tier, r.score, r.parts::real[], r.why
FROM unnest(
    %(positions)s::bigint[], %(agent_ids)s::text[], %(seqs)s::bigint[], %(tiers)s::smallint[], %(scores)s::real[],
    %(parts)s::text[], %(whys)s::text[]) AS r (position, agent_id, seq, tier, score, parts, why)
ON CONFLICT (position, agent_id) DO NOTHING

-- usage_notified --
-- Counts the notifications of agents by sender.
INSERT INTO workflow.notice_usage AS u (agent_id, sender, notified)
SELECT n.agent_id, n.sender, n.count
FROM unnest(%(agent_ids)s::text[], %(senders)s::text[], %(counts)s::bigint[]) AS n (agent_id, sender, count)
ORDER BY n.agent_id, n.sender
ON CONFLICT (agent_id, sender) DO UPDATE SET notified = u.notified + excluded.notified

-- notices_unqueued --
-- Recipient rows without a notice in a queue, not pulled: of each active agent the most urgent, the oldest first.
SELECT b.agent_id, r.position, r.tier FROM workflow.inbox AS b
JOIN workflow.agent_instance AS i ON i.agent_id = b.agent_id
JOIN workflow.analysis AS a ON a.analysis_id = i.analysis_id AND a.outcome IS NULL
CROSS JOIN LATERAL (
    SELECT r.position, r.tier FROM workflow.recipient AS r
    WHERE r.agent_id = b.agent_id AND r.notified_at IS NULL AND r.pulled_at IS NULL AND r.seq IS NOT NULL
    ORDER BY r.tier, r.position LIMIT %(each)s
) AS r
ORDER BY b.agent_id, r.tier, r.position

-- notices_queued --
-- Marks which notices of an agent are in its queue now, and which were displaced.
UPDATE workflow.recipient SET notified_at = CASE WHEN position = ANY (%(queued)s::bigint[]) THEN imem_now() END
WHERE agent_id = %(agent_id)s AND position = ANY (%(queued)s::bigint[] || %(displaced)s::bigint[])

-- notices_lost --
-- Marks every queue as empty.
UPDATE workflow.recipient SET notified_at = NULL WHERE pulled_at IS NULL AND seq IS NOT NULL AND notified_at IS NOT NULL

-- notices_deepest --
-- The number of notices in the longest queue of an active agent.
SELECT coalesce(max(w.waiting), 0) AS deepest FROM workflow.agent_instance AS i
JOIN workflow.analysis AS a ON a.analysis_id = i.analysis_id AND a.outcome IS NULL
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting FROM workflow.recipient AS r
    WHERE r.agent_id = i.agent_id AND r.pulled_at IS NULL AND r.seq IS NOT NULL AND r.notified_at IS NOT NULL
) AS w

-- inbox_alerts_open --
-- Agents with an open alert about their queue, and whether their analysis is over.
SELECT i.agent_id, y.outcome IS NOT NULL AS over FROM workflow.alert AS a
JOIN workflow.agent_instance AS i ON i.agent_id = a.payload ->> 'agent'
JOIN workflow.analysis AS y ON y.analysis_id = i.analysis_id
WHERE a.kind = %(kind)s AND a.closed_at IS NULL

-- updates_to_pull --
-- Updates that an agent was notified of and has not pulled, or all from a number on. The content is that of the event,
-- also where the record was corrected later; with the state of a lesson comes what it says. What agents see no more is left out. With
-- apart, also updates below the threshold.
SELECT r.seq, r.position, r.tier, r.score, r.why, e.event_id, e.kind, e.record_key, e.actor, e.analysis_id, e.importance,
    CASE WHEN e.kind = 'record.Lesson' THEN jsonb_build_object('core', (
        SELECT c.payload -> 'core' FROM record_head AS h JOIN event AS c ON c.position = h.position
        WHERE h.kind = 'Lesson' AND h.key = e.record_key AND h.grp IN ('core', 'correction') ORDER BY h.grp = 'core' LIMIT 1)) || e.payload
    ELSE e.payload END AS payload, e.known_at, e.recorded_at, coalesce(d.state, 'applied') = 'applied' AS in_graph
FROM workflow.recipient AS r JOIN event AS e ON e.position = r.position LEFT JOIN delivery AS d ON d.position = r.position
WHERE r.agent_id = %(agent_id)s AND workflow.notice_shown_v1(e.kind, e.record_key)
  AND (r.seq IS NOT NULL OR (%(apart)s AND r.why = 'below' AND r.pulled_at IS NULL))
  AND (%(since)s::bigint IS NOT NULL OR r.pulled_at IS NULL) AND (r.seq IS NULL OR r.seq > coalesce(%(since)s::bigint, 0))
  AND r.tier = ANY (%(tiers)s::smallint[])
  AND (%(kinds)s::text[] IS NULL OR split_part(e.kind, '.', 2) = ANY (%(kinds)s::text[]))
  AND (%(analysis_id)s::text IS NULL OR e.analysis_id = %(analysis_id)s)
ORDER BY r.seq NULLS LAST, r.position LIMIT %(limit)s

-- updates_pulled --
-- Marks updates pulled; returns the senders of those that were not before.
UPDATE workflow.recipient AS r SET pulled_at = imem_now() FROM event AS e
WHERE r.agent_id = %(agent_id)s AND r.position = ANY (%(positions)s::bigint[]) AND r.pulled_at IS NULL AND e.position = r.position
RETURNING r.position, e.actor

-- usage_pulled --
-- Counts the pulled updates of an agent by sender.
INSERT INTO workflow.notice_usage AS u (agent_id, sender, pulled)
SELECT %(agent_id)s, n.sender, n.count FROM unnest(%(senders)s::text[], %(counts)s::bigint[]) AS n (sender, count) ORDER BY n.sender
ON CONFLICT (agent_id, sender) DO UPDATE SET pulled = u.pulled + excluded.pulled

-- pulled_upto --
-- The number up to which an agent has pulled everything, and how many updates are pending.
SELECT coalesce(min(r.seq) - 1, (SELECT notified_seq FROM workflow.inbox WHERE agent_id = %(agent_id)s), 0) AS upto, count(*) AS waiting
FROM workflow.recipient AS r WHERE r.agent_id = %(agent_id)s AND r.pulled_at IS NULL AND r.seq IS NOT NULL

-- recipients_of --
-- The agents that were notified of an event, and why; those below the threshold as well.
SELECT agent_id, tier, score, parts, why, notified_at, pulled_at FROM workflow.recipient
WHERE position = %(position)s ORDER BY score DESC, agent_id

-- notices_stale --
-- Which of the given notices of an agent are of updates that it has pulled, or was never notified of.
SELECT p.position FROM unnest(%(positions)s::bigint[]) AS p (position)
WHERE NOT EXISTS (
    SELECT FROM workflow.recipient AS r
    WHERE r.agent_id = %(agent_id)s AND r.position = p.position AND r.pulled_at IS NULL AND r.seq IS NOT NULL)

-- retire_recipients --
-- Removes recipient rows after 90 days.
DELETE FROM workflow.recipient WHERE (position, agent_id) IN (
    SELECT position, agent_id FROM workflow.recipient WHERE routed_at < (SELECT imem_now()) - interval '90 days'
    ORDER BY routed_at LIMIT %(limit)s)

-- notices_of_lesson_over --
-- Ends the updates about a lesson that agents see no more: nothing is left to pull.
UPDATE workflow.recipient AS r SET pulled_at = imem_now() FROM record_history AS y
WHERE y.kind = 'Lesson' AND y.key = %(key)s AND r.position = y.position AND r.pulled_at IS NULL
