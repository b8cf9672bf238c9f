-- pattern_cases --
-- The settled forecasts of a metric by an agent, the first of each subject and period, as of a moment on the known clock: with what was
-- known when each was made, and what became of it, by the vintage in force; known_at: since when any vintage was known. The subject of a market
-- is its series where it has one: each question of it is asked once, and errors last from one to the next. Columns: subject_id, period,
-- predicted_at, known_at, stated, actual, happened, drift, and the six dimensions of the context. Parameters: metric, reference, period
-- (week, month, quarter), since, until.
WITH stated AS (
    -- All statements about a question are settled by the same outcome, so that the one before is among them.
    SELECT t.*, t.stated - lag(t.stated) OVER (PARTITION BY t.subject_id, t.target_at ORDER BY t.predicted_at, t.finding_id) AS drift
    FROM agent_outcome AS t
    WHERE t.agent = %(reference)s AND t.metric = %(metric)s AND t.known_at <= %(until)s
      AND (t.superseded_known_at IS NULL OR t.superseded_known_at > %(until)s)
)
SELECT DISTINCT ON (1, 2) coalesce(m.payload -> 'core' ->> 'series_id', s.subject_id) AS subject_id, date_trunc(%(period)s, s.predicted_at, 'UTC') AS period, s.predicted_at,
    s.first_known_at AS known_at, s.stated, s.actual, s.happened, s.drift, s.sector, s.metric_type, s.time_horizon, s.company_size,
    s.growth_stage, s.regime
FROM stated AS s
LEFT JOIN record_head AS h ON left(s.subject_id, 7) = 'market:' AND h.kind = 'Market' AND h.key = substr(s.subject_id, 8) AND h.grp = 'core'
LEFT JOIN event AS m ON m.position = h.position
WHERE s.predicted_at >= %(since)s AND (s.happened IS NOT NULL OR s.error IS NOT NULL AND s.stated <> 0)
ORDER BY 1, 2, s.predicted_at, s.finding_id

-- patterns_lock --
-- Takes the lock under which patterns are opened and tested, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('imem.patterns')) IS NULL AS locked, imem_now() AS now

-- patterns_proposed --
-- Proposals, in the order in which they were made. Columns: actor, payload. Parameters: keys, kind of the event.
SELECT e.actor, e.payload FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.kind = %(kind)s AND h.key = ANY (%(keys)s::text[]) ORDER BY h.position

-- pattern_versions --
-- The rows of one condition and claim, the oldest first, locked.
SELECT * FROM lifecycle WHERE kind = 'pattern' AND about = %(about)s ORDER BY opened_at, key FOR UPDATE

-- pattern_insert --
-- Opens a candidate.
INSERT INTO lifecycle (kind, key, about, state, data)
VALUES ('pattern', %(key)s, %(about)s, 'candidate', %(data)s::jsonb) RETURNING *

-- patterns_in --
-- Patterns in some states, the oldest first. Column now: the present moment. Parameters: states, stage: of candidates those that are
-- due for it (NULL: all), limit.
SELECT *, imem_now() AS now FROM lifecycle
WHERE kind = 'pattern' AND state = ANY (%(states)s::text[])
  AND (%(stage)s::text IS NULL OR data ->> 'stage' = %(stage)s::text AND (data ->> 'look_at')::timestamptz <= imem_now())
ORDER BY opened_at, key LIMIT %(limit)s

-- pattern_rows --
-- The given patterns, locked, as they are now. Parameters: keys.
SELECT * FROM lifecycle WHERE kind = 'pattern' AND key = ANY (%(keys)s::text[]) ORDER BY key FOR UPDATE

-- pattern_family --
-- The p-values of hold-outs that ended, of the candidates of one mining run, or of all proposals by hand on the same forecasts: what
-- a new one is judged together with. Parameters: run (NULL: by hand), metric, reference, keys: candidates that are judged now.
SELECT (l.data -> 'holdout' ->> 'p')::float8 AS p FROM lifecycle AS l
WHERE l.kind = 'pattern' AND l.data -> 'holdout' ->> 'p' IS NOT NULL AND l.data ->> 'run' IS NOT DISTINCT FROM %(run)s::text
  AND l.data -> 'definition' ->> 'metric' = %(metric)s AND l.data -> 'definition' ->> 'reference' = %(reference)s
  AND NOT l.key = ANY (%(keys)s::text[])

-- control_family --
-- Control tests that ended since the last package of Gate 6, of a class of domains: what one is judged together with. Columns: p;
-- shares: whether it is on the same forecasts. Parameters: domain, key of the one that is judged now, metric, reference.
SELECT (l.data -> 'control' ->> 'p')::float8 AS p,
    l.data -> 'definition' ->> 'metric' = %(metric)s AND l.data -> 'definition' ->> 'reference' = %(reference)s AS shares
FROM lifecycle AS l
WHERE l.kind = 'pattern' AND l.key <> %(key)s AND l.data -> 'control' ->> 'domain' = %(domain)s
  AND (l.data -> 'control' ->> 'at')::timestamptz > coalesce(
    (SELECT entered_at FROM lifecycle WHERE kind = 'learning_clock' LIMIT 1), '-infinity'::timestamptz)
ORDER BY l.key

-- pattern_keep --
-- Replaces what is kept of a pattern, and when it is looked at, without a change of its status.
UPDATE lifecycle SET data = %(data)s::jsonb, due_at = %(due_at)s::timestamptz, version = version + 1, failures = 0, retry_at = NULL
WHERE kind = 'pattern' AND key = %(key)s AND version = %(version)s RETURNING *

-- open_forecasts --
-- Forecasts of a metric by an agent that were recorded since a moment and whose question is still open, with how far each is from the
-- agent's statement before; the oldest first. Parameters: reference, metric, since, known_since, limit.
SELECT h.key AS finding_id, e.analysis_id, h.subject_id, h.metric, h.target_at, e.known_at, e.recorded_at, c.stated,
    c.probability IS NOT NULL AS event, c.stated - before.stated AS drift
FROM event AS e
JOIN record_head AS h ON h.kind = 'Finding' AND h.key = e.record_key AND h.grp = 'core' AND h.position = e.position
CROSS JOIN LATERAL (
    SELECT s.probability, coalesce(s.probability, s.value) AS stated
    FROM jsonb_to_record(e.payload -> 'core') AS s (probability float8, value float8)
) AS c
LEFT JOIN LATERAL (
    SELECT coalesce(s.probability, s.value) AS stated
    FROM record_head AS o JOIN event AS f ON f.position = o.position
    CROSS JOIN jsonb_to_record(f.payload -> 'core') AS s (agent text, probability float8, value float8)
    WHERE o.kind = 'Finding' AND o.grp = 'core' AND o.subject_id = h.subject_id AND o.metric = h.metric AND o.target_at = h.target_at
      AND s.agent = %(reference)s AND (o.known_at, o.key) < (h.known_at, h.key)
    ORDER BY o.known_at DESC, o.key DESC LIMIT 1
) AS before ON true
WHERE e.kind = 'record.Finding' AND e.payload -> 'core' ->> 'agent' = %(reference)s AND e.known_at >= %(known_since)s
  AND e.recorded_at >= %(since)s AND h.metric = %(metric)s AND h.target_at > imem_now() AND c.stated IS NOT NULL
ORDER BY e.known_at, h.key LIMIT %(limit)s

-- shadows_recorded --
-- Which of the given shadow analyses are recorded.
SELECT key FROM record_head WHERE kind = 'ShadowAnalysis' AND grp = 'core' AND key = ANY (%(keys)s::text[])

-- shadow_runs --
-- How many shadow analyses were recorded since a moment, for all patterns.
SELECT count(*)::integer AS runs FROM event WHERE kind = 'record.ShadowAnalysis' AND payload ? 'core' AND recorded_at >= %(since)s

-- pattern_pairs --
-- The shadow analyses of one attempt whose question was settled after they were recorded, with what happened as of now; subjects as in
-- pattern_cases. Parameters: key, attempt: prefix of their ids.
SELECT e.record_key AS shadow_id, coalesce(m.payload -> 'core' ->> 'series_id', s.subject_id) AS subject_id, s.metric, s.target_at,
    s.predicted_at, s.known_at, s.stated, s.actual, s.happened,
    (e.payload -> 'core' ->> 'with_pattern_prediction')::float8 AS with_pattern
FROM event AS e
JOIN agent_outcome AS s ON s.finding_id = e.payload -> 'core' ->> 'finding_id'
    AND s.known_at <= imem_now() AND (s.superseded_known_at IS NULL OR s.superseded_known_at > imem_now())
LEFT JOIN record_head AS h ON left(s.subject_id, 7) = 'market:' AND h.kind = 'Market' AND h.key = substr(s.subject_id, 8) AND h.grp = 'core'
LEFT JOIN event AS m ON m.position = h.position
WHERE e.kind = 'record.ShadowAnalysis' AND e.payload -> 'core' ->> 'pattern_id' = %(key)s AND starts_with(e.record_key, %(attempt)s)
  AND e.recorded_at < s.first_known_at AND (s.happened IS NOT NULL OR s.error IS NOT NULL AND s.stated <> 0)
ORDER BY s.target_at, e.record_key

-- pattern_isolated --
-- Whether a pattern is out of the reach of agents, by what they can read. blocked: its status is recorded, and not active; cleared: no
-- view holds it; silent: no agent but who proposed it has recorded its key or name since, but in a proposal of its own, which no other
-- agent sees; unasked: none has asked for its key. Parameters: key, name, since, ours: actors that know of it, proposal: kind of the event.
SELECT
    EXISTS (
        SELECT FROM record_head AS h JOIN event AS e ON e.position = h.position
        WHERE h.kind = 'Pattern' AND h.key = %(key)s AND h.grp = 'status'
          AND e.payload -> 'groups' -> 'status' ->> 'status' <> 'active') AS blocked,
    NOT EXISTS (
        SELECT FROM view_current AS v JOIN view_row AS r ON r.name = v.name AND r.version = v.version
        WHERE strpos(r.value::text, %(key)s) > 0) AS cleared,
    NOT EXISTS (
        SELECT FROM event AS e CROSS JOIN LATERAL (SELECT lower(concat_ws(' ', e.payload::text, e.body)) AS said) AS t
        WHERE e.recorded_at >= %(since)s AND e.actor_role = 'agent' AND NOT e.actor = ANY (%(ours)s::text[]) AND e.kind <> %(proposal)s
          AND (strpos(t.said, lower(%(key)s)) > 0 OR strpos(t.said, lower(%(name)s)) > 0)) AS silent,
    NOT EXISTS (
        SELECT FROM memory_access_audit AS a
        WHERE a.timestamp >= %(since)s AND a.resource_type = 'patterns' AND a.resource_id = %(key)s AND a.actor_role = 'agent'
          AND NOT a.actor_id = ANY (%(ours)s::text[])) AS unasked

-- patterns_listed --
-- Patterns of a status, or of any, the newest first, with the cores of their tests. Parameters: status, key (NULL: any), limit.
SELECT l.key, l.state, l.entered_at, l.due_at, l.data, l.version, (
    SELECT jsonb_agg(e.payload -> 'core' ORDER BY e.position) FROM event AS e
    WHERE e.kind = 'record.PatternValidation' AND e.payload -> 'core' ->> 'pattern_id' = l.key) AS tests
FROM lifecycle AS l
WHERE l.kind = 'pattern' AND (%(status)s::text IS NULL OR l.state = %(status)s::text) AND (%(key)s::text IS NULL OR l.key = %(key)s::text)
ORDER BY l.opened_at DESC, l.key LIMIT %(limit)s

-- pattern_row --
-- A pattern as it is now. Parameter: key.
SELECT * FROM lifecycle WHERE kind = 'pattern' AND key = %(key)s
