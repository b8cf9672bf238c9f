-- lessons_lock --
-- Takes the lock under which lessons are opened and merged, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('imem.lessons')) IS NULL AS locked, imem_now() AS now

-- lessons_now --
-- The present moment.
SELECT imem_now() AS now

-- lessons_recorded --
-- What the given lessons say now, those without a row, in the order in which they were recorded. state: a state that was recorded with
-- it. by_person: whether a person wrote it, not an import. insights: how often a person reviewed its post-mortem; patterns: recorded ones
-- that a person would revise. decision_id: of the post-mortem.
SELECT h.key AS lesson_id, e.payload -> 'core' AS core, s.payload -> 'groups' -> 'state' AS state,
    r.actor_role = 'human_admin' AND NOT r.imported AND NOT starts_with(r.actor, 'import:') AS by_person,
    i.insights, i.patterns, p.payload -> 'core' ->> 'decision_id' AS decision_id
FROM record_head AS h
JOIN event AS r ON r.position = h.position
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
LEFT JOIN record_head AS g ON g.kind = h.kind AND g.key = h.key AND g.grp = 'state'
LEFT JOIN event AS s ON s.position = g.position
LEFT JOIN record_head AS m ON m.kind = 'PostMortem' AND m.key = e.payload -> 'core' ->> 'postmortem_id' AND m.grp = 'core'
LEFT JOIN event AS p ON p.position = m.position
CROSS JOIN LATERAL (
    SELECT count(*) AS insights, array(
        SELECT DISTINCT t.pattern FROM event AS n
        CROSS JOIN LATERAL jsonb_array_elements_text(n.payload -> 'core' -> 'patterns_to_revise') AS t (pattern)
        JOIN record_head AS w ON w.kind = 'Pattern' AND w.key = t.pattern AND w.grp = 'core'
        WHERE n.kind = 'record.HumanInsight' AND n.payload -> 'core' ->> 'postmortem_id' = m.key ORDER BY 1) AS patterns
    FROM event AS n WHERE n.kind = 'record.HumanInsight' AND n.payload -> 'core' ->> 'postmortem_id' = m.key
) AS i
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

-- lessons_applied --
-- Lessons that are applied.
SELECT key FROM lifecycle WHERE kind = 'lesson' AND state = 'applied' ORDER BY key

-- lesson_locked --
-- The row of a lesson, locked.
SELECT * FROM lifecycle WHERE kind = 'lesson' AND key = %(key)s FOR UPDATE

-- lesson_insert --
-- Opens the row of a lesson.
INSERT INTO lifecycle (kind, key, about, state, due_at, data)
VALUES ('lesson', %(key)s, %(postmortem_id)s, %(state)s, %(due_at)s::timestamptz, %(data)s::jsonb) RETURNING *

-- lesson_keep --
-- Replaces what is kept of a lesson, and when it is looked at, without a change of its state.
UPDATE lifecycle SET data = %(data)s::jsonb, due_at = %(due_at)s::timestamptz, version = version + 1, failures = 0, retry_at = NULL
WHERE kind = 'lesson' AND key = %(key)s RETURNING *

-- lesson_domains --
-- The domains of the findings that some decisions cite: of a lesson that names none.
SELECT DISTINCT e.payload -> 'core' ->> 'domain' AS domain FROM event AS c
JOIN record_head AS f ON f.kind = 'Finding' AND f.key = c.payload ->> 'to_key' AND f.grp = 'core'
JOIN event AS e ON e.position = f.position
WHERE c.kind = 'link.CITES' AND c.payload ->> 'from_label' = 'Decision' AND c.payload ->> 'from_key' = ANY (%(decisions)s::text[])
  AND c.payload ->> 'to_label' = 'Finding'
ORDER BY 1

-- lesson_patterns --
-- The patterns that some lessons propose to revise, with what each is called and says, where it is recorded.
SELECT DISTINCT e.payload ->> 'from_key' AS lesson, e.payload ->> 'to_key' AS pattern, n.payload #>> '{core,name}' AS name,
    d.payload #>> '{groups,definition,says}' AS says
FROM record_head AS h
JOIN event AS e ON e.position = h.position
LEFT JOIN record_head AS c ON c.kind = 'Pattern' AND c.key = e.payload ->> 'to_key' AND c.grp = 'core'
LEFT JOIN record_head AS k ON k.kind = c.kind AND k.key = c.key AND k.grp = 'correction'
LEFT JOIN event AS n ON n.position = coalesce(k.position, c.position)
LEFT JOIN record_head AS g ON g.kind = c.kind AND g.key = c.key AND g.grp = 'definition'
LEFT JOIN event AS d ON d.position = g.position
WHERE h.kind = 'link.AFFECTS_PATTERN' AND e.payload ->> 'from_key' = ANY (%(lessons)s::text[]) ORDER BY 1, 2

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

-- lessons_listed --
-- Lessons in a state, or in any, the newest first, with what each says now. Parameters: state (NULL: any), limit.
SELECT l.key, l.state, l.opened_at, l.entered_at, l.data, e.payload -> 'core' AS core FROM lifecycle AS l
JOIN record_head AS h ON h.kind = 'Lesson' AND h.key = l.key AND h.grp = 'core'
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
WHERE l.kind = 'lesson' AND (%(state)s::text IS NULL OR l.state = %(state)s::text)
ORDER BY l.opened_at DESC, l.key LIMIT %(limit)s

-- lesson_measured --
-- A lesson and how it is applied: what it says now, since when it is applied (NULL: it is not), the agents that have it, and the
-- decisions behind it.
SELECT e.payload -> 'core' AS core, (s.payload #>> '{groups,state,applied_date}')::timestamptz AS applied_at,
    array(
        SELECT DISTINCT a.payload ->> 'to_key' FROM record_head AS r JOIN event AS a ON a.position = r.position
        WHERE r.kind = 'link.AFFECTS_AGENT' AND a.payload ->> 'from_key' = l.key ORDER BY 1) AS agents,
    array(SELECT jsonb_array_elements_text(l.data -> 'decision_ids')) AS decision_ids
FROM lifecycle AS l
JOIN record_head AS h ON h.kind = 'Lesson' AND h.key = l.key AND h.grp = 'core'
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
LEFT JOIN record_head AS g ON g.kind = 'Lesson' AND g.key = l.key AND g.grp = 'state'
LEFT JOIN event AS s ON s.position = g.position
WHERE l.kind = 'lesson' AND l.key = %(lesson_id)s

-- lesson_decisions --
-- The decisions of some agents whose accuracy at a checkpoint is known: of each metric the newest vintage, and the mean of these. in_scope:
-- whether sector, regime and metric are those given (NULL: any); where none is given, whether the decision cites a finding of one of the
-- domains. Parameters: agents, checkpoint, domains, sector, regime, metric, limit.
WITH measured AS (
    SELECT DISTINCT ON (o.decision_id, o.metric) o.decision_id, o.metric, (a.payload #>> '{groups,assessment,accuracy}')::float8 AS accuracy
    FROM record_head AS h
    LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
    JOIN event AS e ON e.position = coalesce(k.position, h.position)
    CROSS JOIN jsonb_to_record(e.payload -> 'core') AS o (decision_id text, checkpoint integer, metric text, vintage bigint, withdrawn boolean)
    JOIN record_head AS g ON g.kind = h.kind AND g.key = h.key AND g.grp = 'assessment'
    JOIN event AS a ON a.position = g.position
    WHERE h.kind = 'Outcome' AND h.grp = 'core' AND o.checkpoint = %(checkpoint)s AND o.withdrawn IS NOT TRUE
      AND a.payload #>> '{groups,assessment,accuracy}' IS NOT NULL
    ORDER BY o.decision_id, o.metric, o.vintage DESC, h.key
),
made AS (
    SELECT h.key AS decision_id, h.subject_id, (e.payload #>> '{core,decided_at}')::timestamptz AS decided_at
    FROM record_head AS h
    LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
    JOIN event AS e ON e.position = coalesce(k.position, h.position)
    WHERE h.kind = 'Decision' AND h.grp = 'core' AND e.payload -> 'core' -> 'agents_involved' ?| %(agents)s::text[]
),
placed AS (
    SELECT d.decision_id, d.decided_at, m.accuracy, CASE
        WHEN coalesce(%(sector)s::text, %(regime)s::text, %(metric)s::text) IS NOT NULL THEN
            m.metric = coalesce(%(metric)s::text, m.metric)
            AND (%(sector)s::text IS NULL OR EXISTS (
                SELECT FROM record_head AS s JOIN event AS e ON e.position = s.position
                WHERE s.kind IN ('Company', 'Market') AND s.key = split_part(d.subject_id, ':', 2) AND lower(s.kind) = split_part(d.subject_id, ':', 1)
                  AND s.grp IN ('profile', 'core', 'correction')
                  AND coalesce(e.payload #>> '{groups,profile,sector}', e.payload #>> '{core,sector}') = %(sector)s::text))
            AND (%(regime)s::text IS NULL OR (
                SELECT e.payload #>> '{core,regime}' FROM record_head AS r JOIN event AS e ON e.position = r.position
                WHERE r.kind = 'RegimeReading' AND r.grp = 'core' AND r.occurred_at <= d.decided_at
                ORDER BY r.occurred_at DESC, r.key DESC LIMIT 1) IS NOT DISTINCT FROM %(regime)s::text)
        ELSE EXISTS (
            SELECT FROM event AS c JOIN record_head AS f ON f.kind = 'Finding' AND f.key = c.payload ->> 'to_key' AND f.grp = 'core'
            JOIN event AS e ON e.position = f.position
            WHERE c.kind = 'link.CITES' AND c.payload ->> 'from_key' = d.decision_id AND c.payload ->> 'from_label' = 'Decision'
              AND c.payload ->> 'to_label' = 'Finding' AND e.payload #>> '{core,domain}' = ANY (%(domains)s::text[])) END AS in_scope
    FROM made AS d JOIN measured AS m ON m.decision_id = d.decision_id
)
-- A decision is in scope by those of its metrics that are; one of which none is counts outside.
SELECT p.decision_id, p.decided_at, bool_or(p.in_scope) AS in_scope,
    coalesce(avg(p.accuracy) FILTER (WHERE p.in_scope), avg(p.accuracy)) AS accuracy
FROM placed AS p GROUP BY p.decision_id, p.decided_at ORDER BY p.decided_at DESC, p.decision_id LIMIT %(limit)s
