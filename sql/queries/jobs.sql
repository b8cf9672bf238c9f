-- clear_due_rules --
-- Forgets which events make which rows due, before they are declared anew.
DELETE FROM due_rule

-- declare_due_rules --
-- Declares which events make which rows due.
INSERT INTO due_rule (queue, kind, event, keys)
SELECT r.queue, r.kind, r.event, r.keys::jsonpath
FROM unnest(%(queues)s::text[], %(kinds)s::text[], %(events)s::text[], %(keys)s::text[]) AS r (queue, kind, event, keys)

-- due_rules_differ --
-- How many rules are declared and not stored, or stored and not declared.
WITH declared AS (
    SELECT r.queue, r.kind, r.event, r.keys::jsonpath::text AS keys
    FROM unnest(%(queues)s::text[], %(kinds)s::text[], %(events)s::text[], %(keys)s::text[]) AS r (queue, kind, event, keys)
),
stored AS (
    SELECT queue, kind, event, keys::text AS keys FROM due_rule
)
SELECT (SELECT count(*) FROM (TABLE declared EXCEPT TABLE stored) AS missing)
    + (SELECT count(*) FROM (TABLE stored EXCEPT TABLE declared) AS superfluous) AS differing

-- due_next --
-- The next rows of some kinds of a queue: those that can wait last, the oldest first.
SELECT id, kind, key, position, created_at, later FROM due_row
WHERE queue = %(queue)s AND kind = ANY (%(kinds)s::text[]) AND set_aside IS NULL
ORDER BY later, created_at, id LIMIT %(limit)s

-- due_of --
-- All rows of the given keys of one kind.
SELECT id, kind, key, position, created_at, later FROM due_row
WHERE queue = %(queue)s AND kind = %(kind)s AND key = ANY (%(keys)s::text[]) AND set_aside IS NULL

-- due_add --
-- Makes keys of one kind due, since the given moment or now.
INSERT INTO due_row (queue, kind, key, created_at, later)
SELECT %(queue)s, %(kind)s, k.key, coalesce(%(since)s::timestamptz, imem_now()), %(later)s
FROM unnest(%(keys)s::text[]) AS k (key)

-- due_among --
-- Those of the given keys of one kind that are due.
SELECT DISTINCT key FROM due_row WHERE queue = %(queue)s AND kind = %(kind)s AND key = ANY (%(keys)s::text[])

-- due_done --
-- Deletes rows that were done, with what had been set aside of the same keys; how many were done. Rows that were added meanwhile stay.
WITH done AS (
    DELETE FROM due_row WHERE id = ANY (%(ids)s::bigint[]) RETURNING queue, kind, key
),
aside AS (
    -- Of distinct keys: an import has hundreds of rows of one agent.
    DELETE FROM due_row AS d USING (SELECT DISTINCT queue, kind, key FROM done) AS n
    WHERE d.set_aside IS NOT NULL AND d.queue = n.queue AND d.kind = n.kind AND d.key = n.key AND d.id <> ALL (%(ids)s::bigint[])
)
SELECT count(*)::integer AS done FROM done

-- due_alert_over --
-- The open alert about what a queue has set aside, once nothing is.
SELECT alert_id FROM workflow.alert
WHERE about = %(about)s AND closed_at IS NULL
  AND NOT EXISTS (SELECT FROM due_row WHERE queue = %(queue)s AND set_aside IS NOT NULL)

-- due_set_aside --
-- Sets rows aside that cannot be done, with the reason.
UPDATE due_row SET set_aside = left(%(reason)s, 500) WHERE id = ANY (%(ids)s::bigint[])

-- due_retry --
-- Makes the rows of a queue that were set aside due again.
UPDATE due_row SET set_aside = NULL WHERE queue = %(queue)s AND set_aside IS NOT NULL

-- due_aside --
-- The rows that were set aside, oldest first.
SELECT queue, kind, key, created_at, set_aside FROM due_row WHERE set_aside IS NOT NULL
ORDER BY created_at, queue, kind, key LIMIT %(limit)s

-- add_pipeline_report --
-- Keeps the report of a run, and the newest ones of the pipeline before it. One that says nothing, an empty object, is kept once a minute,
-- or after one that left work, and until the next.
WITH older AS (
    SELECT started_at, report, row_number() OVER (ORDER BY started_at DESC) AS nth FROM pipeline_report WHERE pipeline = %(pipeline)s
),
wanted AS (
    SELECT NOT %(idle)s OR NOT EXISTS (
        SELECT FROM older WHERE nth = 1 AND report ->> 'more' IS DISTINCT FROM 'true'
            AND abs(extract(epoch FROM imem_now() - started_at)) < 60) AS holds
),
deleted AS (
    DELETE FROM pipeline_report AS p USING older AS o, wanted AS w
    WHERE w.holds AND p.pipeline = %(pipeline)s AND p.started_at = o.started_at
      AND (o.nth >= %(keep)s OR p.error IS NULL AND p.report = '{}')
)
INSERT INTO pipeline_report (pipeline, started_at, finished_at, report, error)
SELECT %(pipeline)s, imem_now() - make_interval(secs => %(took_s)s), imem_now(), %(report)s::jsonb, left(%(error)s, 1000)
FROM wanted WHERE holds
ON CONFLICT (pipeline, started_at) DO NOTHING
RETURNING pipeline

-- pipeline_reports --
-- The newest reports: of each pipeline one, or of a given one all.
SELECT pipeline, started_at, finished_at, report::text AS report, error FROM (
    SELECT r.*, row_number() OVER (PARTITION BY pipeline ORDER BY started_at DESC) AS nth FROM pipeline_report AS r
    WHERE %(pipeline)s::text IS NULL OR r.pipeline = %(pipeline)s
) AS r
WHERE nth = 1 OR %(pipeline)s::text IS NOT NULL
ORDER BY pipeline, started_at DESC

-- pipelines_behind --
-- What pipelines and the applier still have to do: rows of every queue that are not set aside, track records, events that the graph does
-- not hold, and vectors that are not made yet or are of another model. Columns: work (a queue, or events, tracks, vectors, situations),
-- waiting, oldest_s (how long the oldest has waited, NULL where that is not known), error (how the last run of the pipeline failed, NULL if
-- it did not). Work of which nothing waits has no row. Parameters: works, pipelines (arrays, one entry a kind of work), model_id,
-- dimension, situations (whether vectors of situations are made).
WITH others AS MATERIALIZED (
    SELECT array_agg(o.model) AS models FROM embedding_model AS o WHERE o.model_id <> %(model_id)s OR o.dimension <> %(dimension)s
),
counted (work, waiting, since) AS (
    SELECT d.queue, count(*), min(d.created_at) FROM due_row AS d WHERE d.set_aside IS NULL GROUP BY d.queue
    UNION ALL
    SELECT 'tracks', count(*), min(t.since) FROM track_due AS t
    UNION ALL
    SELECT 'events', p.waiting, (SELECT e.recorded_at FROM event AS e WHERE e.position = p.first)
    FROM (SELECT count(*) AS waiting, min(d.position) AS first FROM delivery AS d WHERE d.state = 'pending') AS p
    UNION ALL
    SELECT 'vectors', count(*), NULL FROM recall.record_text AS t WHERE t.model IS NULL
    UNION ALL
    SELECT 'vectors', count(*), NULL FROM recall.record_text AS t WHERE t.model = ANY ((SELECT o.models FROM others AS o)::smallint[])
    UNION ALL
    SELECT 'memories', count(*), NULL FROM recall.memory AS m
    WHERE m.superseded_at IS NULL AND m.model = ANY ((SELECT o.models FROM others AS o)::smallint[])
    UNION ALL
    SELECT 'situations', count(*), NULL FROM recall.situation AS n
    WHERE %(situations)s AND (n.model IS NULL OR n.model = ANY ((SELECT o.models FROM others AS o)::smallint[]))
)
SELECT c.work, sum(c.waiting)::bigint AS waiting, min(r.error) AS error,
    CASE WHEN min(c.since) IS NOT NULL THEN greatest(0, extract(epoch FROM imem_now() - min(c.since)))::float8 END AS oldest_s
FROM counted AS c
JOIN unnest(%(works)s::text[], %(pipelines)s::text[]) AS w (work, pipeline) ON w.work = c.work
LEFT JOIN LATERAL (
    SELECT p.error FROM pipeline_report AS p WHERE p.pipeline = w.pipeline ORDER BY p.started_at DESC LIMIT 1
) AS r ON true
GROUP BY c.work HAVING sum(c.waiting) > 0
