-- forecasts_lock --
-- Takes the lock under which forecasts are compared, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('imem.forecasts')) IS NULL AS locked, imem_now() AS now

-- decisions_with_forecasts --
-- What the given decisions say now, those that state a forecast; with the moment at which they were known.
SELECT h.key AS decision_id, h.known_at, e.payload -> 'core' AS core
FROM record_head AS h
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
WHERE h.kind = 'Decision' AND h.key = ANY (%(decisions)s::text[]) AND h.grp = 'core'
  AND e.payload -> 'core' ->> 'forecast' IS NOT NULL
ORDER BY h.key

-- outcomes_of_decisions --
-- What the outcomes of checkpoints of the given decisions say now, those that count: with the import right or by a person, and not
-- withdrawn; the newest vintage first.
SELECT DISTINCT ON (o.decision_id, o.checkpoint, o.metric) h.key AS outcome_id, o.decision_id, o.checkpoint, o.metric, o.actual, o.vintage,
    o.volatility, greatest(h.known_at, k.known_at) AS known_at
FROM event AS r
JOIN record_head AS h ON h.kind = 'Outcome' AND h.key = r.record_key AND h.grp = 'core'
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
CROSS JOIN jsonb_to_record(e.payload -> 'core') AS o (
    decision_id text, checkpoint integer, metric text, actual float8, vintage bigint, volatility float8, withdrawn boolean)
WHERE r.kind = 'record.Outcome' AND r.payload -> 'core' ->> 'decision_id' = ANY (%(decisions)s::text[])
  AND o.checkpoint IS NOT NULL AND o.withdrawn IS NOT TRUE AND (e.imported OR e.actor_role = 'human_admin')
ORDER BY o.decision_id, o.checkpoint, o.metric, o.vintage DESC, h.key

-- forecast_rows --
-- The rows of the forecasts of the given decisions, locked.
SELECT * FROM lifecycle WHERE kind = 'forecast' AND about = ANY (%(decisions)s::text[]) ORDER BY key FOR UPDATE

-- forecast_schedule --
-- Opens the row of a forecast at a checkpoint.
INSERT INTO lifecycle (kind, key, about, state, due_at, data)
VALUES ('forecast', %(key)s, %(decision_id)s, 'scheduled', %(due_at)s::timestamptz, %(data)s::jsonb)
RETURNING *

-- forecast_wait --
-- Lets a forecast wait until a moment, without a change of its state.
UPDATE lifecycle SET due_at = %(due_at)s::timestamptz, data = %(data)s::jsonb, failures = 0, retry_at = NULL
WHERE kind = 'forecast' AND key = %(key)s RETURNING *

-- outcomes_naming --
-- The outcomes that name one of some decisions and count, as of a moment. Parameters: decisions, known_until, recorded_until.
SELECT DISTINCT e.record_key AS key FROM event AS e
WHERE e.kind = 'record.Outcome' AND e.payload -> 'core' ->> 'decision_id' = ANY (%(decisions)s::text[])
  AND (e.imported OR e.actor_role = 'human_admin')
  AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s

-- decisions_forecasting --
-- The next decisions that were known at a moment and state a forecast, by key. Parameters: after, limit, known_until, recorded_until.
SELECT DISTINCT e.record_key AS key FROM event AS e
WHERE e.kind = 'record.Decision' AND e.payload -> 'core' ->> 'forecast' IS NOT NULL AND e.record_key > %(after)s
  AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s
ORDER BY 1 LIMIT %(limit)s

-- forecasts_listed --
-- Forecasts in a state, with a verdict where one is given, by the moment of their checkpoint.
SELECT * FROM lifecycle
WHERE kind = 'forecast' AND state = %(state)s AND (%(verdict)s::text IS NULL OR data ->> 'verdict' = %(verdict)s)
ORDER BY CASE WHEN %(newest)s THEN NULL ELSE data ->> 'target_at' END, data ->> 'target_at' DESC, key LIMIT %(limit)s

-- forecast_counts --
-- How many forecasts are in each state, and how many decisions state none.
SELECT state, count(*) AS count FROM lifecycle WHERE kind = %(kind)s GROUP BY state
UNION ALL
SELECT 'unmeasurable', count(*) FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.kind = 'Decision' AND h.grp = 'core' AND e.payload -> 'core' ->> 'forecast' IS NULL

-- decisions_after --
-- Decisions of some agents about a subject after a decision, the first ones. Parameters: subject_id, decided_at, decision_id, agents,
-- known_until, recorded_until.
SELECT h.key FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE e.payload -> 'core' -> 'agents_involved' ?| %(agents)s::text[] AND h.subject_id = %(subject_id)s AND h.kind = 'Decision' AND h.grp = 'core' AND h.occurred_at > %(decided_at)s
  AND h.key <> %(decision_id)s
  AND EXISTS (SELECT FROM record_history AS y WHERE y.kind = h.kind AND y.key = h.key AND y.grp = 'core'
        AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s)
ORDER BY h.occurred_at, h.key LIMIT 200
