-- cases_lock --
-- Takes the lock under which cases are opened and admitted, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('imem.cases'))

-- forecasts_off --
-- The forecasts that the given outcomes measure, and that are off. Parameters: outcomes, off.
SELECT about AS decision_id, data FROM lifecycle
WHERE kind = 'forecast' AND state = 'measured' AND data ->> 'outcome_id' = ANY (%(outcomes)s::text[]) AND data ->> 'verdict' = %(off)s
ORDER BY about, key

-- case_open_of --
-- The case of a decision that waits or is in review, locked.
SELECT * FROM lifecycle WHERE kind = 'postmortem' AND about = %(decision_id)s AND state IN ('queued', 'in_review') FOR UPDATE

-- cases_of_decision --
-- How many cases a decision has had.
SELECT count(*) AS count FROM lifecycle WHERE kind = 'postmortem' AND about = %(decision_id)s

-- case_insert --
-- Opens the row of a case.
INSERT INTO lifecycle (kind, key, about, state, data)
VALUES ('postmortem', %(key)s, %(decision_id)s, 'queued', %(data)s::jsonb) RETURNING *

-- case_data --
-- Replaces what is kept of a case.
UPDATE lifecycle SET data = %(data)s::jsonb WHERE kind = 'postmortem' AND key = %(key)s RETURNING *

-- cases_to_admit --
-- The waiting cases of the highest priority, as many as places are free, locked. Parameter: places.
SELECT * FROM lifecycle WHERE kind = 'postmortem' AND state = 'queued'
ORDER BY (data ->> 'priority')::float8 DESC, opened_at, key
LIMIT greatest(0, %(places)s - (SELECT count(*) FROM lifecycle AS l WHERE l.kind = 'postmortem' AND l.state = 'in_review'))
FOR UPDATE

-- case_lock --
-- The row of a case, locked.
SELECT * FROM lifecycle WHERE kind = 'postmortem' AND key = %(key)s FOR UPDATE

-- case_decision --
-- What a decision says now.
SELECT e.payload -> 'core' AS core FROM record_head AS h
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
WHERE h.kind = 'Decision' AND h.key = %(decision_id)s AND h.grp = 'core'

-- case_reasoning --
-- The findings that a decision cites, the most important first, and whether their claims were right by the newest outcome.
SELECT f.key, e.payload -> 'core' ->> 'agent' AS agent, e.payload -> 'core' ->> 'statement' AS statement, (
    SELECT o.y FROM agent_outcome AS o WHERE o.finding_id = f.key ORDER BY o.vintage DESC, o.revision DESC LIMIT 1) AS y
FROM event AS c
JOIN record_head AS f ON f.kind = 'Finding' AND f.key = c.payload ->> 'to_key' AND f.grp = 'core'
JOIN event AS e ON e.position = f.position
WHERE c.kind = 'link.CITES' AND c.payload ->> 'from_label' = 'Decision' AND c.payload ->> 'from_key' = %(decision_id)s
  AND c.payload ->> 'to_label' = 'Finding'
ORDER BY (c.payload -> 'props' ->> 'rank')::integer NULLS LAST, c.position LIMIT 20

-- case_contradictions --
-- Contradictions about a subject that became known between two moments.
SELECT h.key, e.payload -> 'core' AS core FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.subject_id = %(subject_id)s AND h.kind = 'DataContradiction' AND h.grp = 'core'
  AND h.known_at > %(since)s AND h.known_at <= %(until)s ORDER BY h.known_at, h.key LIMIT 10

-- case_regime --
-- The reading of the market's regime that was in force at a moment; no row without one.
SELECT h.key, e.payload -> 'core' ->> 'regime' AS regime FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.kind = 'RegimeReading' AND h.grp = 'core' AND h.occurred_at <= %(at)s ORDER BY h.occurred_at DESC, h.key DESC LIMIT 1

-- case_met --
-- The checkpoints of a decision that were measured and not off.
SELECT data FROM lifecycle WHERE kind = 'forecast' AND about = %(decision_id)s AND state = 'measured' AND data ->> 'verdict' <> 'off'
ORDER BY data ->> 'target_at'

-- case_unheard --
-- Important findings about a subject by others, known between two moments, that a decision does not cite.
SELECT h.key, e.payload -> 'core' ->> 'statement' AS statement FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.subject_id = %(subject_id)s AND h.kind = 'Finding' AND h.grp = 'core' AND h.known_at <= %(until)s
  AND (e.payload -> 'core' ->> 'importance')::float8 >= %(least)s
  AND NOT (e.payload -> 'core' ->> 'agent' = ANY (%(agents)s::text[])) AND NOT (h.key = ANY (%(cited)s::text[]))
ORDER BY h.known_at DESC, h.key LIMIT 10
