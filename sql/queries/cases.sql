-- cases_lock --
-- Takes the lock under which cases are opened, admitted and closed, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('imem.cases')) IS NULL AS locked, imem_now() AS now

-- forecasts_measured --
-- The forecasts that the given outcomes measure, or those of a decision that are measured, with the moment at which each outcome was known.
-- Columns: decision_id, data, known_at. Parameters: outcomes, decision_id (NULL: of none).
SELECT l.about AS decision_id, l.data, greatest(h.known_at, k.known_at) AS known_at
FROM lifecycle AS l
JOIN record_head AS h ON h.kind = 'Outcome' AND h.key = l.data ->> 'outcome_id' AND h.grp = 'core'
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
WHERE l.kind = 'forecast' AND l.state = 'measured'
  AND (l.data ->> 'outcome_id' = ANY (%(outcomes)s::text[]) OR l.about = %(decision_id)s::text)
ORDER BY l.about, l.key

-- case_open_of --
-- The case of a decision that waits or is in review, locked.
SELECT * FROM lifecycle WHERE kind = 'postmortem' AND about = %(decision_id)s AND state IN ('queued', 'in_review') FOR UPDATE

-- cases_of_decision --
-- The cases that a decision has had.
SELECT key, state, data FROM lifecycle WHERE kind = 'postmortem' AND about = %(decision_id)s

-- case_insert --
-- Opens the row of a case.
INSERT INTO lifecycle (kind, key, about, state, data)
VALUES ('postmortem', %(key)s, %(decision_id)s, 'queued', %(data)s::jsonb) RETURNING *

-- case_data --
-- Replaces what is kept of a case.
UPDATE lifecycle SET data = %(data)s::jsonb WHERE kind = 'postmortem' AND key = %(key)s RETURNING *

-- case_reminded --
-- Notes that the reminder of a case was sent.
UPDATE lifecycle SET due_at = NULL, failures = 0, retry_at = NULL WHERE kind = 'postmortem' AND key = %(key)s

-- case_impact --
-- What the impact of a case follows from: the position, its sector, and the cases of other decisions of that sector in 90 days.
WITH decision AS (
    SELECT h.subject_id, e.payload -> 'core' AS core FROM record_head AS h
    LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
    JOIN event AS e ON e.position = coalesce(k.position, h.position)
    WHERE h.kind = 'Decision' AND h.key = %(decision_id)s AND h.grp = 'core'
), sector AS (
    SELECT e.payload -> 'groups' -> 'profile' ->> 'sector' AS name FROM decision AS d
    JOIN record_head AS c ON c.kind = 'Company' AND c.key = split_part(d.subject_id, ':', 2) AND c.grp = 'profile'
    JOIN event AS e ON e.position = c.position
    WHERE starts_with(d.subject_id, 'company:')
)
SELECT (d.core ->> 'size_usd')::float8 AS size_usd, (d.core ->> 'portfolio_share')::float8 AS portfolio_share, d.core ->> 'stance' AS stance, s.name AS sector, (
    SELECT count(DISTINCT l.about) FROM lifecycle AS l
    WHERE l.kind = 'postmortem' AND l.data ->> 'sector' = s.name AND l.about <> %(decision_id)s
      AND l.opened_at > imem_now() - interval '90 days') AS failures
FROM decision AS d LEFT JOIN sector AS s ON true

-- case_to_admit --
-- The waiting case of the highest priority that is not put off, while a place is free. Parameters: places, by (deviation or impact).
SELECT *, imem_now() AS now FROM lifecycle
WHERE kind = 'postmortem' AND state = 'queued' AND (retry_at IS NULL OR retry_at <= (SELECT imem_now()))
  AND %(places)s > (SELECT count(*) FROM lifecycle AS l WHERE l.kind = 'postmortem' AND l.state = 'in_review')
ORDER BY (data ->> %(by)s)::float8 DESC, opened_at, key LIMIT 1

-- case_lock --
-- The row of a case, locked.
SELECT * FROM lifecycle WHERE kind = 'postmortem' AND key = %(key)s FOR UPDATE

-- patterns_of_decision --
-- The patterns that a decision cites, and whether another open case concerns a decision that cites them. Columns: key, elsewhere.
SELECT DISTINCT c.payload ->> 'to_key' AS key, EXISTS (
    SELECT FROM event AS o JOIN lifecycle AS l ON l.kind = 'postmortem' AND l.about = o.payload ->> 'from_key'
    WHERE o.kind = 'link.CITES' AND o.payload ->> 'to_label' = 'Pattern' AND o.payload ->> 'to_key' = c.payload ->> 'to_key'
      AND o.payload ->> 'from_label' = 'Decision' AND l.state IN ('queued', 'in_review') AND l.key <> %(case_id)s) AS elsewhere
FROM event AS c
WHERE c.kind = 'link.CITES' AND c.payload ->> 'from_key' = %(decision_id)s AND c.payload ->> 'from_label' = 'Decision'
  AND c.payload ->> 'to_label' = 'Pattern'
ORDER BY 1

-- cases_listed --
-- Cases: those in review first, then those that wait, by priority, then the others, the newest first. Parameters: states, by, limit.
SELECT l.*, (SELECT t.due_at FROM lifecycle AS t WHERE t.kind = 'task' AND t.key = l.data ->> 'task_id') AS review_due_at
FROM lifecycle AS l WHERE l.kind = 'postmortem' AND l.state = ANY (%(states)s::text[])
ORDER BY l.state <> 'in_review', l.state <> 'queued', CASE WHEN l.state IN ('in_review', 'queued') THEN (l.data ->> %(by)s)::float8 END DESC,
    l.entered_at DESC, l.key LIMIT %(limit)s

-- case_cited --
-- The findings and patterns that a decision cites as of a moment, the most important first, and whether the claim of a finding was right by
-- the newest outcome that was known then. Columns: kind, key, y. Parameters: decision_id, known_until, recorded_until.
SELECT c.payload ->> 'to_label' AS kind, c.payload ->> 'to_key' AS key, (
    SELECT o.y FROM agent_outcome AS o
    WHERE c.payload ->> 'to_label' = 'Finding' AND o.finding_id = c.payload ->> 'to_key' AND o.known_at <= %(known_until)s
      AND (o.superseded_known_at IS NULL OR o.superseded_known_at > %(known_until)s)
    ORDER BY o.vintage DESC, o.revision DESC LIMIT 1) AS y
FROM event AS c
WHERE c.kind = 'link.CITES' AND c.payload ->> 'from_key' = %(decision_id)s AND c.payload ->> 'from_label' = 'Decision'
  AND c.payload ->> 'to_label' IN ('Finding', 'Pattern') AND c.known_at <= %(known_until)s AND c.recorded_at <= %(recorded_until)s
ORDER BY (c.payload -> 'props' ->> 'rank')::integer NULLS LAST, c.position LIMIT 40

-- case_contradictions --
-- Contradictions about a subject that became known after a decision, as of a moment.
SELECT h.key FROM record_head AS h
WHERE h.subject_id = %(subject_id)s AND h.kind = 'DataContradiction' AND h.grp = 'core'
  AND h.known_at > %(decided_at)s AND h.known_at <= %(known_until)s ORDER BY h.known_at, h.key LIMIT 10

-- case_earlier --
-- Decisions about a subject before a decision.
SELECT h.key FROM record_head AS h
WHERE h.subject_id = %(subject_id)s AND h.kind = 'Decision' AND h.grp = 'core' AND h.occurred_at < %(decided_at)s
  AND h.key <> %(decision_id)s ORDER BY h.occurred_at DESC, h.key LIMIT 5

-- case_unheard --
-- Important findings about a subject by others, known when it was decided, that the decision does not cite.
SELECT h.key FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.subject_id = %(subject_id)s AND h.kind = 'Finding' AND h.grp = 'core' AND h.known_at <= %(decided_at)s
  AND (e.payload -> 'core' ->> 'importance')::float8 >= %(least)s
  AND NOT (e.payload -> 'core' ->> 'agent' = ANY (%(agents)s::text[])) AND NOT (h.key = ANY (%(cited)s::text[]))
ORDER BY h.known_at DESC, h.key LIMIT 10
