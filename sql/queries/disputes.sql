-- disputes_lock --
-- Lets one process compare data points, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('imem.disputes'))

-- disputes_idle_timeout --
-- Idle timeout of a transaction that compares cells, of which a large one takes a second for every few thousand points.
SELECT set_config('idle_in_transaction_session_timeout', '60s', true)

-- cells_of_points --
-- What the given data points state, but for unit and basis. Parameters: keys.
SELECT DISTINCT h.subject_id, h.metric, e.payload -> 'core' ->> 'period_end' AS period_end
FROM unnest(%(keys)s::text[]) AS w (key)
JOIN record_head AS h ON h.kind = 'DataPoint' AND h.key = w.key AND h.grp = 'core'
JOIN event AS e ON e.position = h.position

-- due_of_cells --
-- Due rows of all data points of subjects, metrics and ends of periods (three lists of one length). Parameters: subject_ids, metrics,
-- period_ends, queue, kind.
SELECT d.id, d.kind, d.key, d.position, d.created_at, d.later
FROM unnest(%(subject_ids)s::text[], %(metrics)s::text[], %(period_ends)s::text[]) AS w (subject_id, metric, period_end)
JOIN event AS s ON s.kind = 'record.DataPoint' AND s.payload -> 'core' ->> 'subject_id' = w.subject_id
    AND s.payload -> 'core' ->> 'metric' = w.metric AND s.payload -> 'core' ->> 'period_end' = w.period_end
JOIN due_row AS d ON d.queue = %(queue)s AND d.kind = %(kind)s AND d.key = s.record_key AND d.set_aside IS NULL

-- data_points --
-- All data points of subjects, metrics and ends of periods (three lists of one length) as of a moment, with each of their
-- corrections, the point as recorded first, and the person who stated it, if one did. Parameters: subject_ids, metrics, period_ends,
-- known_until, recorded_until.
SELECT h.key, y.grp = 'correction' AS corrected, y.known_at, (e.payload -> 'core')::text AS core,
    e.payload #>> '{groups,answer,decided_by}' AS decided_by
FROM unnest(%(subject_ids)s::text[], %(metrics)s::text[], %(period_ends)s::text[]) AS w (subject_id, metric, period_end)
JOIN event AS s ON s.kind = 'record.DataPoint' AND s.payload -> 'core' ->> 'subject_id' = w.subject_id
    AND s.payload -> 'core' ->> 'metric' = w.metric AND s.payload -> 'core' ->> 'period_end' = w.period_end
JOIN record_head AS h ON h.kind = 'DataPoint' AND h.key = s.record_key AND h.grp = 'core' AND h.position = s.position
JOIN record_history AS y ON y.kind = h.kind AND y.key = h.key AND y.grp IN ('core', 'correction')
    AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
JOIN event AS e ON e.position = y.position
ORDER BY h.key COLLATE "C", y.grp = 'correction', y.order_key

-- data_points_of_subject --
-- All data points of a subject, of one metric unless that is NULL; the rest as in data_points. Parameters: subject_id, metric, known_until,
-- recorded_until.
SELECT h.key, y.grp = 'correction' AS corrected, y.known_at, (e.payload -> 'core')::text AS core,
    e.payload #>> '{groups,answer,decided_by}' AS decided_by
FROM record_head AS h
JOIN record_history AS y ON y.kind = h.kind AND y.key = h.key AND y.grp IN ('core', 'correction')
    AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
JOIN event AS e ON e.position = y.position
WHERE h.kind = 'DataPoint' AND h.grp = 'core' AND h.subject_id = %(subject_id)s
  AND (%(metric)s::text IS NULL OR h.metric = %(metric)s)
ORDER BY h.key COLLATE "C", y.grp = 'correction', y.order_key

-- points_recorded --
-- The given data points as recorded. Parameters: keys.
SELECT h.key, (e.payload -> 'core')::text AS core
FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.kind = 'DataPoint' AND h.grp = 'core' AND h.key = ANY (%(keys)s::text[])

-- standing_rules --
-- Standing rules that were made by a moment, those revoked since included. Parameters: metrics (NULL: all), made_until.
SELECT * FROM standing_rule
WHERE (%(metrics)s::text[] IS NULL OR metric = ANY (%(metrics)s::text[])) AND made_at <= %(made_until)s
ORDER BY revoked_at IS NOT NULL, made_at DESC, rule_id

-- make_rule --
-- Makes a standing rule, and revokes one in force that prefers the other source; see make_rule_v1.
SELECT rule_id FROM make_rule_v1(
    %(rule_id)s, %(metric)s, %(source_a)s, %(source_b)s, %(difference)s, %(preferred)s, %(task_id)s, %(reason)s, %(person)s, %(role)s,
    %(now)s::timestamptz, %(context)s::jsonb)

-- revoke_rule --
-- Revokes a standing rule, with the audit row; no row where there is none in force; see revoke_rule_v1.
SELECT * FROM revoke_rule_v1(%(rule_id)s, %(actor)s, %(role)s, %(reason)s, %(context)s::jsonb)

-- contradictions_of_points --
-- The contradictions that an actor found between given data points, each as recorded, with its newest groups and since when they
-- could be known. (OFFSET 0 has each looked up by its key: until the tables are analysed the planner would rather read all of them for
-- each point.) Parameters: keys, actor.
SELECT e.record_key AS key, (e.payload -> 'core')::text AS core, e.known_at,
    (r.payload -> 'groups' -> 'resolution')::text AS resolution, r.known_at AS resolution_known_at,
    (o.payload -> 'groups' -> 'outcome')::text AS outcome, o.known_at AS outcome_known_at
FROM unnest(%(keys)s::text[]) AS w (key)
CROSS JOIN LATERAL (
    SELECT c.record_key, c.payload, c.known_at FROM event AS c
    WHERE c.kind = 'record.DataContradiction' AND c.payload -> 'core' ->> 'point_b' = w.key AND c.actor = %(actor)s OFFSET 0
) AS e
CROSS JOIN LATERAL (
    SELECT h.position FROM record_head AS h
    WHERE h.kind = 'DataContradiction' AND h.key = e.record_key AND h.grp = 'resolution' OFFSET 0
) AS h
JOIN event AS r ON r.position = h.position
LEFT JOIN LATERAL (
    SELECT l.position FROM record_head AS l
    WHERE l.kind = 'DataContradiction' AND l.key = e.record_key AND l.grp = 'outcome' OFFSET 0
) AS l ON true
LEFT JOIN event AS o ON o.position = l.position
ORDER BY e.record_key COLLATE "C"

-- contradictions_reported --
-- Contradictions that were recorded by others, as corrected, and since when that could be known; none that a person was asked about or has
-- decided. Parameters: keys.
SELECT DISTINCT ON (h.key) h.key, (e.payload -> 'core')::text AS core, h.known_at
FROM record_head AS h JOIN event AS e ON e.position = h.position
LEFT JOIN record_head AS l ON l.kind = h.kind AND l.key = h.key AND l.grp = 'resolution'
LEFT JOIN event AS r ON r.position = l.position
WHERE h.kind = 'DataContradiction' AND h.key = ANY (%(keys)s::text[]) AND h.grp IN ('core', 'correction')
  AND coalesce(r.payload -> 'groups' -> 'resolution' ->> 'status', '') NOT IN ('queued', 'investigating')
  AND r.payload -> 'groups' -> 'resolution' ->> 'decided_by' IS NULL
ORDER BY h.key, h.grp = 'correction' DESC

-- reports_corrected --
-- Those of the given contradictions of which a correction is recorded, as corrected, with their newest resolution, and since when both
-- could be known. Parameters: keys.
SELECT h.key, (e.payload -> 'core')::text AS core, (r.payload -> 'groups' -> 'resolution')::text AS resolution,
    greatest(h.known_at, l.known_at) AS known_at
FROM record_head AS h JOIN event AS e ON e.position = h.position
JOIN record_head AS l ON l.kind = h.kind AND l.key = h.key AND l.grp = 'resolution'
JOIN event AS r ON r.position = l.position
WHERE h.kind = 'DataContradiction' AND h.grp = 'correction' AND h.key = ANY (%(keys)s::text[])

-- items_corrected --
-- Replaces what a reviewer sees of a task that has no answer yet, after a correction of what it is about. Parameters: task_id, package.
UPDATE review_task AS t SET package = %(package)s::jsonb
FROM lifecycle AS l
WHERE t.task_id = %(task_id)s AND l.kind = 'task' AND l.key = t.task_id AND l.request IS NULL
RETURNING t.task_id

-- source_outcomes --
-- Which value of each contradiction between two sources was right, who or what said so, since when that could be known, and until when
-- it held; those of withdrawn contradictions do not count. Parameters: sources, known_until, recorded_until.
SELECT c.source_a, c.source_b, y.known_at, lead(y.known_at) OVER (PARTITION BY y.key ORDER BY y.order_key) AS until,
    e.payload -> 'groups' -> 'outcome' ->> 'outcome_label' AS label,
    e.payload -> 'groups' -> 'outcome' ->> 'outcome_provenance' AS provenance
FROM record_history AS y
JOIN event AS e ON e.position = y.position
JOIN record_head AS h ON h.kind = y.kind AND h.key = y.key AND h.grp = 'core'
JOIN event AS s ON s.position = h.position
CROSS JOIN LATERAL (
    SELECT s.payload -> 'core' ->> 'source_a' AS source_a, s.payload -> 'core' ->> 'source_b' AS source_b
) AS c
LEFT JOIN LATERAL (
    SELECT z.position FROM record_history AS z WHERE z.kind = y.kind AND z.key = y.key AND z.grp = 'resolution'
      AND z.known_at <= %(known_until)s AND z.recorded_at <= %(recorded_until)s ORDER BY z.order_key DESC LIMIT 1
) AS r ON true
LEFT JOIN event AS x ON x.position = r.position
WHERE y.kind = 'DataContradiction' AND y.grp = 'outcome'
  AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
  AND c.source_a <> c.source_b AND (c.source_a = ANY (%(sources)s::text[]) OR c.source_b = ANY (%(sources)s::text[]))
  AND x.payload -> 'groups' -> 'resolution' ->> 'status' IS DISTINCT FROM 'withdrawn'

-- sources_at_odds --
-- The sources that took part in contradictions between two sources as of a moment, and in how many; withdrawn ones do not count.
-- Parameters: known_until, recorded_until.
SELECT n.source, count(*) AS contradictions
FROM record_history AS y
JOIN event AS e ON e.position = y.position
LEFT JOIN LATERAL (
    SELECT x.payload -> 'groups' -> 'resolution' ->> 'status' AS status
    FROM record_history AS z JOIN event AS x ON x.position = z.position
    WHERE z.kind = y.kind AND z.key = y.key AND z.grp = 'resolution'
      AND z.known_at <= %(known_until)s AND z.recorded_at <= %(recorded_until)s ORDER BY z.order_key DESC LIMIT 1
) AS r ON true
CROSS JOIN LATERAL (VALUES (e.payload -> 'core' ->> 'source_a'), (e.payload -> 'core' ->> 'source_b')) AS n (source)
WHERE y.kind = 'DataContradiction' AND y.grp = 'core' AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
  AND e.payload -> 'core' ->> 'source_a' <> e.payload -> 'core' ->> 'source_b' AND r.status IS DISTINCT FROM 'withdrawn'
GROUP BY n.source ORDER BY n.source COLLATE "C"

-- contradictions_standing --
-- Those of the given contradictions that were not withdrawn. Parameters: keys.
SELECT h.key FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.kind = 'DataContradiction' AND h.grp = 'resolution' AND h.key = ANY (%(keys)s::text[])
  AND e.payload -> 'groups' -> 'resolution' ->> 'status' <> 'withdrawn'

-- contradictions_decided --
-- What people had decided about contradictions of a subject as of a moment: the newest resolution of each, where a person gave it, with
-- the two values, who decided and since when; of contradictions between the given points, in the order of the decisions. Parameters:
-- subject_id, points, known_until, recorded_until.
SELECT c.source_a, c.source_b, c.value_a, c.value_b, r.final_value, r.resolution_level, r.resolution_method, r.confidence,
    r.credibility_differential, r.status, r.decided_by, n.known_at AS decided_at
FROM (
    SELECT DISTINCT ON (y.key) y.key, y.position, y.known_at, h.position AS core
    FROM record_head AS h
    JOIN record_history AS y ON y.kind = h.kind AND y.key = h.key AND y.grp = 'resolution'
        AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
    WHERE h.kind = 'DataContradiction' AND h.grp = 'core' AND h.subject_id = %(subject_id)s
    ORDER BY y.key, y.order_key DESC
) AS n
JOIN event AS e ON e.position = n.position
JOIN event AS s ON s.position = n.core
CROSS JOIN LATERAL jsonb_to_record(e.payload -> 'groups' -> 'resolution') AS r (
    final_value double precision, resolution_level text, resolution_method text, confidence double precision,
    credibility_differential double precision, status text, decided_by text)
CROSS JOIN LATERAL jsonb_to_record(s.payload -> 'core') AS c (
    source_a text, source_b text, value_a double precision, value_b double precision, point_b text)
WHERE c.point_b = ANY (%(points)s::text[]) AND r.decided_by IS NOT NULL AND r.status IN ('resolved', 'uncertain')
ORDER BY n.known_at, n.position

-- analyses_using_points --
-- Analyses that rest on what the given data points state, and on how many: another document of the source may state the same value of the
-- same cell. Parameters: points.
SELECT e.payload ->> 'from_key' AS analysis_id, count(DISTINCT e.payload ->> 'to_key') AS points
FROM event AS e
WHERE e.kind = 'link.USES_VALUE' AND e.payload ->> 'to_key' IN (
    SELECT s.key FROM record_head AS h
    JOIN event AS p ON p.position = h.position
    JOIN record_head AS s ON s.subject_id = h.subject_id AND s.metric = h.metric AND s.kind = h.kind AND s.grp = 'core'
    JOIN event AS q ON q.position = s.position
    WHERE h.kind = 'DataPoint' AND h.grp = 'core' AND h.key = ANY (%(points)s::text[])
      AND (q.payload -> 'core') - '{id,document,filed_at,decimals}'::text[] = (p.payload -> 'core') - '{id,document,filed_at,decimals}'::text[])
GROUP BY 1 ORDER BY 1

-- tasks_about --
-- Tasks in some states of which an item is among the given contradictions: who has it, until when, and the contradictions of its items.
-- Parameters: keys, states.
SELECT t.task_id, t.package, l.data ->> 'reviewer' AS reviewer, l.due_at,
    jsonb_path_query_array(t.package, '$.items[*].contradiction_id') AS keys
FROM lifecycle AS l JOIN review_task AS t ON t.task_id = l.key
WHERE l.kind = 'task' AND l.state = ANY (%(states)s::text[]) AND t.kind = 'contradiction' AND EXISTS (
    SELECT FROM jsonb_array_elements(t.package -> 'items') AS i (item) WHERE i.item ->> 'contradiction_id' = ANY (%(keys)s::text[]))
ORDER BY t.task_id
