-- lessons_lock --
-- Takes the lock under which lessons are opened and merged, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('imem.lessons'))

-- lessons_now --
-- The present moment.
SELECT imem_now() AS now

-- lessons_recorded --
-- What the given lessons say now, those without a row, in the order in which they were recorded. state: a state that was recorded with
-- it. by_person: whether a person wrote it, not an import. insight: whether a person reviewed its post-mortem; decision_id: of that.
SELECT h.key AS lesson_id, e.payload -> 'core' AS core, s.payload -> 'groups' -> 'state' AS state,
    r.actor_role = 'human_admin' AND NOT r.imported AND NOT starts_with(r.actor, 'import:') AS by_person,
    EXISTS (
        SELECT FROM event AS i WHERE i.kind = 'record.HumanInsight' AND i.payload -> 'core' ->> 'postmortem_id' = e.payload -> 'core' ->> 'postmortem_id'
    ) AS insight,
    p.payload -> 'core' ->> 'decision_id' AS decision_id
FROM record_head AS h
JOIN event AS r ON r.position = h.position
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
LEFT JOIN record_head AS g ON g.kind = h.kind AND g.key = h.key AND g.grp = 'state'
LEFT JOIN event AS s ON s.position = g.position
LEFT JOIN record_head AS m ON m.kind = 'PostMortem' AND m.key = e.payload -> 'core' ->> 'postmortem_id' AND m.grp = 'core'
LEFT JOIN event AS p ON p.position = m.position
WHERE h.kind = 'Lesson' AND h.grp = 'core' AND h.key = ANY (%(lessons)s::text[])
  AND NOT EXISTS (SELECT FROM lifecycle AS l WHERE l.kind = 'lesson' AND l.key = h.key)
ORDER BY h.position

-- lesson_rows_of --
-- The rows of lessons in some states, the oldest first, locked, with what each says now. Parameters: states, category (NULL: any).
SELECT l.*, e.payload -> 'core' AS core FROM lifecycle AS l
JOIN record_head AS h ON h.kind = 'Lesson' AND h.key = l.key AND h.grp = 'core'
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
WHERE l.kind = 'lesson' AND l.state = ANY (%(states)s::text[])
  AND (%(category)s::text IS NULL OR e.payload -> 'core' ->> 'category' = %(category)s::text)
ORDER BY l.opened_at, l.key FOR UPDATE OF l

-- lesson_row --
-- The row of a lesson, locked, with what it says now.
SELECT l.*, e.payload -> 'core' AS core FROM lifecycle AS l
JOIN record_head AS h ON h.kind = 'Lesson' AND h.key = l.key AND h.grp = 'core'
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
WHERE l.kind = 'lesson' AND l.key = %(key)s FOR UPDATE OF l

-- lesson_insert --
-- Opens the row of a lesson.
INSERT INTO lifecycle (kind, key, about, state, due_at, data)
VALUES ('lesson', %(key)s, %(postmortem_id)s, %(state)s, %(due_at)s::timestamptz, %(data)s::jsonb) RETURNING *

-- lesson_keep --
-- Replaces what is kept of a lesson, and when it is looked at, without a change of its state.
UPDATE lifecycle SET data = %(data)s::jsonb, due_at = %(due_at)s::timestamptz, version = version + 1, failures = 0, retry_at = NULL
WHERE kind = 'lesson' AND key = %(key)s RETURNING *

-- lesson_domains --
-- The domains of the findings that a decision cites: of a lesson that names none.
SELECT DISTINCT e.payload -> 'core' ->> 'domain' AS domain FROM event AS c
JOIN record_head AS f ON f.kind = 'Finding' AND f.key = c.payload ->> 'to_key' AND f.grp = 'core'
JOIN event AS e ON e.position = f.position
WHERE c.kind = 'link.CITES' AND c.payload ->> 'from_label' = 'Decision' AND c.payload ->> 'from_key' = %(decision_id)s
  AND c.payload ->> 'to_label' = 'Finding'
ORDER BY 1

-- lesson_agents --
-- The agents of some domains, by their profiles and by what they are scored in; no baselines, ensembles or people. Parameters: domains,
-- limit.
SELECT a.agent FROM (
    SELECT DISTINCT t.agent FROM track_cell AS t WHERE t.domain = ANY (%(domains)s::text[])
    UNION
    SELECT h.key FROM record_head AS h JOIN event AS e ON e.position = h.position
    WHERE h.kind = 'Agent' AND h.grp = 'profile' AND e.payload -> 'groups' -> 'profile' -> 'domains' ?| %(domains)s::text[]
) AS a
WHERE NOT EXISTS (
    SELECT FROM record_head AS h JOIN event AS e ON e.position = h.position
    WHERE h.kind = 'Agent' AND h.key = a.agent AND h.grp = 'profile'
      AND e.payload -> 'groups' -> 'profile' ->> 'kind' IN ('baseline', 'ensemble', 'human'))
ORDER BY a.agent LIMIT %(limit)s
