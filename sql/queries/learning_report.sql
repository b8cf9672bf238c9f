-- report_packages --
-- Packages of Gate 6 opened since a moment: items of all, those that were answered, and those left to a later package.
SELECT count(*)::integer AS packages, (count(*) FILTER (WHERE l.data ? 'answer'))::integer AS answered,
    coalesce(sum(jsonb_array_length(t.package -> 'items')), 0)::integer AS due,
    coalesce(sum((l.data -> 'answer' ->> 'answered')::integer), 0)::integer AS decided,
    coalesce(sum((t.package ->> 'left')::integer), 0)::integer AS left_over
FROM review_task AS t JOIN lifecycle AS l ON l.kind = 'task' AND l.key = t.task_id
WHERE t.kind = 'learning' AND l.opened_at >= %(since)s

-- report_cases --
-- Post-mortems opened since a moment, by their state.
SELECT state, count(*)::integer AS count FROM lifecycle WHERE kind = 'postmortem' AND opened_at >= %(since)s GROUP BY state

-- report_citing --
-- Decisions since a moment, and those that cite what the memory holds: lessons, patterns, debates, or records of another analysis.
SELECT count(*)::integer AS decisions, (count(*) FILTER (WHERE EXISTS (
    SELECT FROM event AS c
    LEFT JOIN record_head AS f ON f.kind = 'Finding' AND c.payload ->> 'to_label' = 'Finding' AND f.key = c.payload ->> 'to_key' AND f.grp = 'core'
    LEFT JOIN event AS w ON w.position = f.position
    WHERE c.kind = 'link.CITES' AND c.payload ->> 'from_key' = h.key AND c.payload ->> 'from_label' = 'Decision'
      AND (c.payload ->> 'to_label' IN ('Lesson', 'Pattern', 'Debate')
        OR e.payload -> 'core' ->> 'analysis_id' <> CASE c.payload ->> 'to_label'
            WHEN 'Analysis' THEN c.payload ->> 'to_key' ELSE w.payload -> 'core' ->> 'analysis_id' END))))::integer AS citing
FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.kind = 'Decision' AND h.grp = 'core' AND h.occurred_at >= %(since)s

-- report_calibration --
-- Checkpoints that were measured, by the quarter in which they ended: how many, inside the tolerance of their metric, with an interval, and
-- inside that.
SELECT date_trunc('quarter', (data ->> 'target_at')::timestamptz, 'UTC') AS quarter, count(*)::integer AS measured,
    sum((data ->> 'accuracy')::float8) AS accurate, (count(*) FILTER (WHERE data ? 'low'))::integer AS stated,
    (count(*) FILTER (WHERE data ? 'low' AND (data ->> 'actual')::float8
        BETWEEN (data ->> 'low')::float8 AND (data ->> 'high')::float8))::integer AS inside
FROM lifecycle
WHERE kind = 'forecast' AND state = 'measured' AND (data ->> 'target_at')::timestamptz >= %(since)s GROUP BY 1 ORDER BY 1

-- report_lessons --
-- Lessons that are applied, the newest first.
SELECT key FROM lifecycle WHERE kind = 'lesson' AND state = 'applied' ORDER BY entered_at DESC, key LIMIT %(limit)s
