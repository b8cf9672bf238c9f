-- prices_lock --
-- Takes the lock under which outcomes from prices are recorded, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('imem.prices'))

-- returns_wanted --
-- Whether prices are to be read now: a checkpoint is over since they were read last, time did not suffice then, or they were not read for
-- so long. Parameters: pipeline, metric, every.
WITH f AS (
    SELECT state, (data ->> 'target_at')::timestamptz AS target_at FROM lifecycle
    WHERE kind = 'forecast' AND data ->> 'metric' = %(metric)s
), read AS (
    SELECT started_at AS at, report ->> 'more' = 'true' AS more FROM pipeline_report
    WHERE pipeline = %(pipeline)s AND report ? 'read' ORDER BY started_at DESC LIMIT 1
)
SELECT imem_now() AS now, (SELECT count(*) FROM f WHERE state <> 'measured' AND target_at <= imem_now()) AS waiting,
    EXISTS (
        SELECT FROM f LEFT JOIN read ON true
        WHERE read.at IS NULL OR read.more OR read.at <= imem_now() - %(every)s::interval
           OR state <> 'measured' AND target_at > read.at AND target_at <= imem_now()) AS read

-- returns_to_measure --
-- The next forecasts of returns by key: those that are measured, or those that are to be, because they are over or trading in their subject
-- has ended. Parameters: metric, after, measured, delisted, within, limit.
SELECT key, about AS decision_id, (data ->> 'days')::integer AS days, data ->> 'subject_id' AS subject_id,
    (data ->> 'predicted')::float8 AS predicted, (data ->> 'target_at')::timestamptz AS target_at, imem_now() AS now
FROM lifecycle
WHERE kind = 'forecast' AND data ->> 'metric' = %(metric)s AND key > %(after)s AND CASE
    WHEN %(measured)s THEN state = 'measured' AND (data ->> 'target_at')::timestamptz > imem_now() - %(within)s::interval
    ELSE state <> 'measured' AND ((data ->> 'target_at')::timestamptz <= imem_now()
         OR data ->> 'subject_id' = ANY (%(delisted)s::text[])) END
ORDER BY key LIMIT %(limit)s

-- returns_recorded --
-- The newest outcome of each checkpoint of the given decisions, also one that was withdrawn. ours: whether what it says now is said by an
-- actor, and by nobody who corrected it. Parameters: decisions, metric, actor.
SELECT DISTINCT ON (o.decision_id, o.checkpoint) o.decision_id, o.checkpoint, h.key AS outcome_id, o.vintage, o.actual, o.market_return,
    o.sector_return, h.known_at, e.actor = %(actor)s AS ours
FROM event AS r
JOIN record_head AS h ON h.kind = 'Outcome' AND h.key = r.record_key AND h.grp = 'core'
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
CROSS JOIN jsonb_to_record(e.payload -> 'core') AS o (
    decision_id text, checkpoint integer, metric text, vintage bigint, actual float8, market_return float8, sector_return float8)
WHERE r.kind = 'record.Outcome' AND r.payload -> 'core' ->> 'decision_id' = ANY (%(decisions)s::text[])
  AND o.checkpoint IS NOT NULL AND o.metric = %(metric)s AND (e.imported OR e.actor_role = 'human_admin')
ORDER BY o.decision_id, o.checkpoint, o.vintage DESC, h.key

-- benchmarks_of_companies --
-- What stands for the market and the sector of the given companies, as said last with the import right or by a person.
SELECT DISTINCT ON (y.key) y.key AS ticker, e.payload #>> '{groups,profile,market_benchmark}' AS market,
    e.payload #>> '{groups,profile,sector_benchmark}' AS sector
FROM record_history AS y JOIN event AS e ON e.position = y.position
WHERE y.kind = 'Company' AND y.key = ANY (%(tickers)s::text[]) AND y.grp = 'profile'
  AND (y.imported OR e.actor_role = 'human_admin')
ORDER BY y.key, y.order_key DESC
