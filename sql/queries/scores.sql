-- weeks_of_scores --
-- Observations of the 52 weeks before a moment, by week: the seven days that end at the moment are week 0. Claims with one target_at are one
-- observation, their mean. n: which agent and domain, from 1.
SELECT w.n, g.week, count(*)::float8 AS observations, sum(g.share) AS right, sum(g.rows)::integer AS rows
FROM unnest(%(agents)s::text[], %(domains)s::text[]) WITH ORDINALITY AS w (agent, domain, n)
CROSS JOIN LATERAL (
    SELECT floor(extract(epoch FROM %(until)s - o.target_at) / 604800)::integer AS week, avg(o.y)::float8 AS share, count(*) AS rows
    FROM agent_outcome AS o
    WHERE o.agent = w.agent AND o.domain = w.domain AND o.y IS NOT NULL
      AND o.target_at > %(until)s::timestamptz - interval '364 days' AND o.target_at <= %(until)s
      AND CASE WHEN %(clock)s = 'known'
          THEN o.known_at <= %(until)s AND (o.superseded_known_at IS NULL OR o.superseded_known_at > %(until)s)
          ELSE o.recorded_at <= %(until)s AND (o.superseded_recorded_at IS NULL OR o.superseded_recorded_at > %(until)s) END
    GROUP BY o.target_at
) AS g
GROUP BY w.n, g.week ORDER BY w.n, g.week

-- bins_of_scores --
-- Probabilities stated in the same weeks, by bin of equal width: how many, their sum, and how many came true; bin NULL: the number of
-- observations. n: which agent and domain, from 1.
SELECT w.n, b.bin, count(*)::integer AS claims, sum(b.stated) AS stated, sum(b.happened)::float8 AS happened,
    count(DISTINCT b.target_at)::integer AS observations
FROM unnest(%(agents)s::text[], %(domains)s::text[]) WITH ORDINALITY AS w (agent, domain, n)
CROSS JOIN LATERAL (
    SELECT least(floor(o.stated * %(bins)s)::integer, %(bins)s - 1) AS bin, o.stated, o.happened, o.target_at
    FROM agent_outcome AS o
    WHERE o.agent = w.agent AND o.domain = w.domain AND o.happened IS NOT NULL
      AND o.target_at > %(until)s::timestamptz - interval '364 days' AND o.target_at <= %(until)s
      AND CASE WHEN %(clock)s = 'known'
          THEN o.known_at <= %(until)s AND (o.superseded_known_at IS NULL OR o.superseded_known_at > %(until)s)
          ELSE o.recorded_at <= %(until)s AND (o.superseded_recorded_at IS NULL OR o.superseded_recorded_at > %(until)s) END
) AS b
GROUP BY GROUPING SETS ((w.n, b.bin), (w.n)) ORDER BY w.n, b.bin

-- recent_of_scores --
-- The mean of the last ten observations. n: which agent and domain, from 1.
SELECT w.n, avg(g.share)::float8 AS recent
FROM unnest(%(agents)s::text[], %(domains)s::text[]) WITH ORDINALITY AS w (agent, domain, n)
CROSS JOIN LATERAL (
    SELECT avg(o.y) AS share FROM agent_outcome AS o
    WHERE o.agent = w.agent AND o.domain = w.domain AND o.y IS NOT NULL
      AND CASE WHEN %(clock)s = 'known'
          THEN o.known_at <= %(until)s AND (o.superseded_known_at IS NULL OR o.superseded_known_at > %(until)s)
          ELSE o.recorded_at <= %(until)s AND (o.superseded_recorded_at IS NULL OR o.superseded_recorded_at > %(until)s) END
    GROUP BY o.target_at ORDER BY o.target_at DESC LIMIT 10
) AS g
GROUP BY w.n ORDER BY w.n

-- claims_behind_score --
-- The settled claims that a score rests on, newest first, how many rows the observation of each has, and how many claims there are.
SELECT o.finding_id, o.outcome_id, o.subject_id, o.metric, o.target_at, o.predicted_at, o.stated, o.actual, o.y, o.brier,
    o.sector, o.metric_type, o.time_horizon, o.company_size, o.growth_stage, o.regime,
    count(*) OVER (PARTITION BY o.target_at)::integer AS rows, count(*) OVER ()::integer AS total
FROM agent_outcome AS o
WHERE o.agent = %(agent)s AND o.domain = %(domain)s AND o.y IS NOT NULL
  AND CASE WHEN %(clock)s = 'known'
      THEN o.known_at <= %(until)s AND (o.superseded_known_at IS NULL OR o.superseded_known_at > %(until)s)
      ELSE o.recorded_at <= %(until)s AND (o.superseded_recorded_at IS NULL OR o.superseded_recorded_at > %(until)s) END
ORDER BY o.target_at DESC, o.finding_id COLLATE "C" LIMIT %(limit)s

-- records_about_agents --
-- Records of the given kinds, of which there are few, about the given agents.
SELECT DISTINCT y.kind, y.key
FROM record_history AS y JOIN event AS e ON e.position = y.position
WHERE y.kind = ANY (%(kinds)s::text[]) AND y.grp = 'core' AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
  AND e.payload -> 'core' ->> 'agent' = ANY (%(agents)s::text[])
ORDER BY y.kind, y.key

-- recommendations --
-- Questions that an agent answered in a domain since a moment and that settled, by the calendar month, in UTC, of its first answer; and of
-- the questions of which a finding is among those overridden, these findings. Only what settles counts: an agent states as many findings as
-- it likes. n: which agent and domain.
SELECT w.n, q.month, count(*)::integer AS recommendations, jsonb_agg(q.overridden) FILTER (WHERE q.overridden IS NOT NULL) AS overridden
FROM unnest(%(agents)s::text[], %(domains)s::text[]) WITH ORDINALITY AS w (agent, domain, n)
CROSS JOIN LATERAL (
    SELECT date_trunc('month', min(o.predicted_at), 'UTC') AS month,
        jsonb_agg(o.finding_id ORDER BY o.finding_id COLLATE "C") FILTER (WHERE o.finding_id = ANY (%(overridden)s::text[])) AS overridden
    FROM agent_outcome AS o
    WHERE o.agent = w.agent AND o.domain = w.domain AND o.y IS NOT NULL AND o.predicted_at > %(since)s AND o.target_at > %(since)s
      AND CASE WHEN %(clock)s = 'known'
          THEN o.known_at <= %(until)s AND (o.superseded_known_at IS NULL OR o.superseded_known_at > %(until)s)
          ELSE o.recorded_at <= %(until)s AND (o.superseded_recorded_at IS NULL OR o.superseded_recorded_at > %(until)s) END
    GROUP BY o.subject_id, o.metric, o.target_at
) AS q
GROUP BY w.n, q.month ORDER BY w.n, q.month

-- overridden_by_context --
-- The same questions by dimension and value of the context of an answer, and how many of them have an answer there that is among those
-- overridden. n: which agent and domain, from 1.
SELECT w.n, d.dimension, d.value, count(DISTINCT (o.subject_id, o.metric, o.target_at))::integer AS recommendations,
    (count(DISTINCT (o.subject_id, o.metric, o.target_at)) FILTER (WHERE o.finding_id = ANY (%(overridden)s::text[])))::integer AS overridden
FROM unnest(%(agents)s::text[], %(domains)s::text[]) WITH ORDINALITY AS w (agent, domain, n)
JOIN agent_outcome AS o ON o.agent = w.agent AND o.domain = w.domain AND o.y IS NOT NULL
    AND o.predicted_at > %(since)s AND o.target_at > %(since)s
    AND CASE WHEN %(clock)s = 'known'
        THEN o.known_at <= %(until)s AND (o.superseded_known_at IS NULL OR o.superseded_known_at > %(until)s)
        ELSE o.recorded_at <= %(until)s AND (o.superseded_recorded_at IS NULL OR o.superseded_recorded_at > %(until)s) END
CROSS JOIN LATERAL (VALUES
    ('sector', o.sector), ('metric_type', o.metric_type), ('time_horizon', o.time_horizon), ('company_size', o.company_size),
    ('growth_stage', o.growth_stage), ('regime', o.regime)
) AS d (dimension, value)
WHERE d.value IS NOT NULL
GROUP BY w.n, d.dimension, d.value ORDER BY w.n, d.dimension, d.value

-- value_claims --
-- The newest settled claims of values of each agent and domain, as they stand at a moment. n: which agent and domain, from 1.
SELECT w.n, o.metric, o.sector, o.regime, o.target_at, o.stated, o.actual
FROM unnest(%(agents)s::text[], %(domains)s::text[]) WITH ORDINALITY AS w (agent, domain, n)
CROSS JOIN LATERAL (
    SELECT * FROM agent_outcome AS o
    WHERE o.agent = w.agent AND o.domain = w.domain AND o.metric_type = 'value' AND o.y IS NOT NULL
      AND o.known_at <= %(until)s AND (o.superseded_known_at IS NULL OR o.superseded_known_at > %(until)s)
    ORDER BY o.target_at DESC, o.finding_id COLLATE "C" LIMIT %(limit)s
) AS o
ORDER BY w.n, o.metric, o.target_at, o.finding_id COLLATE "C"
