-- successes_lock --
-- Takes the lock under which successes are validated, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('imem.successes')) IS NULL AS locked, imem_now() AS now

-- decisions_of_outcomes --
-- The decisions whose checkpoints the given outcomes are of.
SELECT DISTINCT e.payload -> 'core' ->> 'decision_id' AS decision_id
FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.kind = 'Outcome' AND h.grp = 'core' AND h.key = ANY (%(outcomes)s::text[]) AND e.payload -> 'core' ->> 'decision_id' IS NOT NULL

-- measured_returns --
-- The measured checkpoints of the given decisions that forecast a return, by what outcome. Parameters: decisions, metric.
SELECT about AS decision_id, (data ->> 'days')::integer AS days, (data ->> 'target_at')::timestamptz AS target_at,
    data ->> 'outcome_id' AS outcome_id
FROM lifecycle
WHERE kind = 'forecast' AND about = ANY (%(decisions)s::text[]) AND state = 'measured' AND data ->> 'metric' = %(metric)s
ORDER BY key

-- cores_of --
-- What the given records of a kind say now. Parameters: kind, keys.
SELECT h.key, e.payload -> 'core' AS core FROM record_head AS h
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
WHERE h.kind = %(kind)s AND h.key = ANY (%(keys)s::text[]) AND h.grp = 'core'

-- thesis_points --
-- The findings that the given decisions cited before their claims were due, how much each weighs, and whether it was right by the newest
-- outcome; NULL without one, and of claims that took no side.
SELECT DISTINCT c.payload ->> 'from_key' AS decision_id, f.key AS finding_id,
    coalesce((e.payload -> 'core' ->> 'importance')::float8, 1) AS weight, (
        SELECT o.y FROM agent_outcome AS o
        WHERE o.finding_id = f.key AND o.recorded_at IS NOT NULL AND o.superseded_recorded_at IS NULL
        ORDER BY o.vintage DESC, o.revision DESC LIMIT 1) AS y
FROM event AS c
JOIN record_head AS f ON f.kind = 'Finding' AND f.key = c.payload ->> 'to_key' AND f.grp = 'core'
JOIN event AS e ON e.position = f.position
WHERE c.kind = 'link.CITES' AND c.payload ->> 'from_label' = 'Decision' AND c.payload ->> 'from_key' = ANY (%(decisions)s::text[])
  AND c.payload ->> 'to_label' = 'Finding' AND f.target_at IS NOT NULL AND c.known_at < f.target_at
ORDER BY 1, 2
