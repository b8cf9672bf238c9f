-- learning_start --
-- Starts the clock of Gate 6, unless it runs.
INSERT INTO lifecycle (kind, key, state, data) VALUES (%(kind)s, %(key)s, %(state)s, '{"number": 0, "position": 0}')
ON CONFLICT (kind, key) DO NOTHING

-- learning_clock --
-- The clock of Gate 6, locked, and the present moment.
SELECT *, imem_now() AS now FROM lifecycle WHERE kind = %(kind)s AND key = %(key)s FOR UPDATE

-- learning_outcomes --
-- How many outcomes that settle were recorded after a position, and the position of the last.
SELECT count(*)::integer AS outcomes, max(position) AS position FROM event
WHERE kind = 'record.Outcome' AND position > %(after)s AND payload ? 'core' AND (imported OR actor_role = 'human_admin')

-- learning_tasks --
-- Packages that can still be answered, or whose answer has no effect yet. Columns: key, state, requested.
SELECT l.key, l.state, l.request IS NOT NULL AS requested FROM review_task AS t JOIN lifecycle AS l ON l.kind = 'task' AND l.key = t.task_id
WHERE t.kind = %(kind)s AND l.state = ANY (%(states)s::text[]) ORDER BY l.key

-- learning_noted --
-- Notes beside the answer of a package how it was given. No row where there is no answer.
UPDATE lifecycle SET data = jsonb_set(data, '{answer}', data -> 'answer' || %(notes)s::jsonb)
WHERE kind = 'task' AND key = %(task_id)s AND data -> 'answer' IS NOT NULL RETURNING key

-- published_changes --
-- Scores as they are published, and as they were when a person reviewed them last, or first published. Columns: key, score, published_at;
-- review and reviewed_at, NULL where nobody has; first, first_at, NULL where somebody has; disputed: whether the agent was a side of a
-- debate in the domain since; on_probation: whether a person stated that it is.
SELECT h.key, e.payload #> '{groups,score}' AS score, h.known_at AS published_at, w.payload #> '{groups,review}' AS review,
    v.known_at AS reviewed_at, f.score AS first, f.known_at AS first_at,
    EXISTS (
        SELECT FROM lifecycle AS d
        WHERE d.kind = 'debate' AND d.data ->> 'domain' = split_part(h.key, '/', 2) AND d.opened_at > coalesce(v.known_at, f.known_at)
          AND split_part(h.key, '/', 1) IN (d.data ->> 'challenger', d.data ->> 'challenged')) AS disputed,
    EXISTS (
        SELECT FROM record_head AS a JOIN event AS p ON p.position = a.position
        WHERE a.kind = 'Agent' AND a.key = split_part(h.key, '/', 1) AND a.grp = 'standing'
          AND p.payload #> '{groups,standing,on_probation}' = 'true') AS on_probation
FROM record_head AS h
JOIN event AS e ON e.position = h.position
LEFT JOIN record_head AS v ON v.kind = h.kind AND v.key = h.key AND v.grp = 'review'
LEFT JOIN event AS w ON w.position = v.position
LEFT JOIN LATERAL (
    SELECT s.payload #> '{groups,score}' AS score, y.known_at FROM record_history AS y JOIN event AS s ON s.position = y.position
    WHERE y.kind = h.kind AND y.key = h.key AND y.grp = h.grp ORDER BY y.order_key LIMIT 1
) AS f ON v.position IS NULL
WHERE h.kind = 'AgentCredibility' AND h.grp = 'score' ORDER BY h.key

-- biases_waiting --
-- Corrections of biases that are proposed and not decided. Columns: key, core, proposed_at.
SELECT h.key, e.payload -> 'core' AS core, h.known_at AS proposed_at
FROM record_head AS h
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
LEFT JOIN record_head AS s ON s.kind = h.kind AND s.key = h.key AND s.grp = 'state'
LEFT JOIN event AS d ON d.position = s.position
WHERE h.kind = 'BiasCorrection' AND h.grp = 'core'
  AND coalesce(d.payload #>> '{groups,state,status}', 'proposed') = 'proposed' ORDER BY h.key
