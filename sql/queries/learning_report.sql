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

-- report_reinforced --
-- Decisions whose newest measured checkpoint, of those that ended since a moment, was a success: how many of each class (kind: class), and
-- whom genuine (fully) and partial ones (partly) speak for: the agents that decided, those of cited findings that came true, and the cited
-- patterns and lessons. Parameters: metric, since, limit.
WITH success AS (
    SELECT n.about AS decision_id, v.core ->> 'classification' AS classification FROM (
        SELECT DISTINCT ON (about) about, (data ->> 'days')::integer AS days FROM lifecycle
        WHERE kind = 'forecast' AND state = 'measured' AND data ->> 'metric' = %(metric)s AND (data ->> 'target_at')::timestamptz >= %(since)s
        ORDER BY about, (data ->> 'days')::integer DESC
    ) AS n
    JOIN (
        SELECT e.payload -> 'core' AS core FROM record_head AS h
        LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
        JOIN event AS e ON e.position = coalesce(k.position, h.position)
        WHERE h.kind = 'SuccessValidation' AND h.grp = 'core'
    ) AS v ON v.core ->> 'decision_id' = n.about AND (v.core ->> 'checkpoint')::integer = n.days
),
cited AS (
    SELECT s.decision_id, c.payload ->> 'to_label' AS label, c.payload ->> 'to_key' AS key, c.known_at
    FROM success AS s JOIN event AS c ON c.payload ->> 'from_key' = s.decision_id
    WHERE c.kind = 'link.CITES' AND c.payload ->> 'from_label' = 'Decision'
),
named AS (
    SELECT decision_id, 'class' AS kind, classification AS key FROM success
    UNION
    SELECT s.decision_id, 'agent', a.name FROM success AS s
    JOIN record_head AS h ON h.kind = 'Decision' AND h.key = s.decision_id AND h.grp = 'core'
    LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
    JOIN event AS e ON e.position = coalesce(k.position, h.position)
    CROSS JOIN LATERAL jsonb_array_elements_text(e.payload -> 'core' -> 'agents_involved') AS a (name)
    UNION
    SELECT c.decision_id, 'agent', o.agent FROM cited AS c
    JOIN record_head AS f ON f.kind = 'Finding' AND f.key = c.key AND f.grp = 'core' AND c.known_at < f.target_at
    CROSS JOIN LATERAL (
        SELECT t.agent, t.y FROM agent_outcome AS t
        WHERE t.finding_id = f.key AND t.recorded_at IS NOT NULL AND t.superseded_recorded_at IS NULL
        ORDER BY t.vintage DESC, t.revision DESC LIMIT 1) AS o
    WHERE c.label = 'Finding' AND o.y = 1
    UNION
    SELECT c.decision_id, lower(c.label), c.key FROM cited AS c WHERE c.label IN ('Pattern', 'Lesson')
)
SELECT * FROM (
    SELECT n.kind, n.key, count(*)::integer AS decisions,
        (count(*) FILTER (WHERE s.classification = 'genuine_success'))::integer AS fully,
        (count(*) FILTER (WHERE s.classification = 'partial_success'))::integer AS partly
    FROM named AS n JOIN success AS s ON s.decision_id = n.decision_id GROUP BY 1, 2
) AS t
WHERE kind = 'class' OR fully + partly > 0 ORDER BY kind = 'class' DESC, fully DESC, partly DESC, kind, key LIMIT %(limit)s
