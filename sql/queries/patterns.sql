-- pattern_cases --
-- The settled forecasts of a metric by an agent, the first of each subject and period, as of a moment on the known clock: with what was
-- known when each was made, and what became of it, by the vintage in force; known_at: since when that is known. The subject of a market
-- is its series where it has one: each question of it is asked once, and errors last from one to the next. Columns: subject_id, period,
-- predicted_at, known_at, stated, happened, error, drift, and the six dimensions of the context. Parameters: metric, reference, period
-- (week, month, quarter), since, until.
WITH stated AS (
    -- All statements about a question are settled by the same outcome, so that the one before is among them.
    SELECT t.*, t.stated - lag(t.stated) OVER (PARTITION BY t.subject_id, t.target_at ORDER BY t.predicted_at, t.finding_id) AS drift
    FROM agent_outcome AS t
    WHERE t.agent = %(reference)s AND t.metric = %(metric)s AND t.known_at <= %(until)s
      AND (t.superseded_known_at IS NULL OR t.superseded_known_at > %(until)s)
)
SELECT DISTINCT ON (1, 2) coalesce(m.payload -> 'core' ->> 'series_id', s.subject_id) AS subject_id, date_trunc(%(period)s, s.predicted_at, 'UTC') AS period, s.predicted_at,
    s.known_at, s.stated, s.happened, s.error, s.drift, s.sector, s.metric_type, s.time_horizon, s.company_size,
    s.growth_stage, s.regime
FROM stated AS s
LEFT JOIN record_head AS h ON left(s.subject_id, 7) = 'market:' AND h.kind = 'Market' AND h.key = substr(s.subject_id, 8) AND h.grp = 'core'
LEFT JOIN event AS m ON m.position = h.position
WHERE s.predicted_at >= %(since)s AND (s.happened IS NOT NULL OR s.error IS NOT NULL)
ORDER BY 1, 2, s.predicted_at, s.finding_id
