-- cells_before --
-- The last stored step of each of the given contexts of one agent in one domain on one clock before a moment.
SELECT s.* FROM unnest(%(contexts)s::text[]) AS c (context)
CROSS JOIN LATERAL (
    SELECT t.* FROM track_cell AS t
    WHERE t.agent = %(agent)s AND t.domain = %(domain)s AND t.clock = %(clock)s AND t.context = c.context
      AND t.at < %(since)s
    ORDER BY t.at DESC LIMIT 1
) AS s

-- cells_of_track --
-- The stored steps of all contexts of one agent in one domain on one clock; from a moment on, or all.
WITH RECURSIVE kept (context) AS (
    SELECT (
        SELECT min(t.context) FROM track_cell AS t
        WHERE t.agent = %(agent)s AND t.domain = %(domain)s AND t.clock = %(clock)s)
    UNION ALL
    SELECT (
        SELECT min(t.context) FROM track_cell AS t
        WHERE t.agent = %(agent)s AND t.domain = %(domain)s AND t.clock = %(clock)s AND t.context > k.context)
    FROM kept AS k WHERE k.context IS NOT NULL
)
SELECT t.* FROM kept AS k
JOIN track_cell AS t ON t.agent = %(agent)s AND t.domain = %(domain)s AND t.clock = %(clock)s AND t.context = k.context
    AND t.at >= coalesce(%(since)s::timestamptz, '-infinity'::timestamptz)

-- delete_cells --
-- Removes steps of contexts.
DELETE FROM track_cell AS t USING unnest(%(contexts)s::text[], %(moments)s::timestamptz[]) AS g (context, at)
WHERE t.agent = %(agent)s AND t.domain = %(domain)s AND t.clock = %(clock)s AND t.context = g.context AND t.at = g.at

-- write_cells --
-- Writes steps of contexts. steps: JSON list of objects, whose names are those of the columns.
INSERT INTO track_cell SELECT * FROM json_populate_recordset(NULL::track_cell, %(steps)s::json)

-- cells_as_of --
-- The newest step at or before a moment of each context for each agent, domain and moment. n: which of them.
WITH RECURSIVE asked AS MATERIALIZED (
    SELECT w.n, w.agent, w.domain, least(w.known_until, w.recorded_until) AS until, h.halflife_years
    FROM unnest(%(agents)s::text[], %(domains)s::text[], %(known_until)s::timestamptz[], %(recorded_until)s::timestamptz[])
        WITH ORDINALITY AS w (agent, domain, known_until, recorded_until, n)
    LEFT JOIN LATERAL (
        SELECT (e.payload -> 'groups' -> 'score' ->> 'decay_halflife_years')::float8 AS halflife_years
        FROM record_history AS y JOIN event AS e ON e.position = y.position
        WHERE y.kind = 'AgentCredibility' AND y.key = w.agent || '/' || w.domain AND y.grp = 'score'
          -- A published score says which half-life was used, and sets none.
          AND y.actor <> 'credibility-scores'
          AND y.known_at <= w.known_until AND y.recorded_at <= w.recorded_until
        ORDER BY y.order_key DESC LIMIT 1
    ) AS h ON true
), kept (agent, domain, context) AS (
    SELECT p.agent, p.domain, (
        SELECT min(t.context) FROM track_cell AS t
        WHERE t.agent = p.agent AND t.domain = p.domain AND t.clock = %(clock)s)
    FROM (SELECT DISTINCT agent, domain FROM asked) AS p
    UNION ALL
    SELECT k.agent, k.domain, (
        SELECT min(t.context) FROM track_cell AS t
        WHERE t.agent = k.agent AND t.domain = k.domain AND t.clock = %(clock)s AND t.context > k.context)
    FROM kept AS k WHERE k.context IS NOT NULL
)
SELECT w.n, w.halflife_years AS wanted_halflife_years, s.*
FROM asked AS w
JOIN kept AS k ON k.agent = w.agent AND k.domain = w.domain AND k.context IS NOT NULL
CROSS JOIN LATERAL (
    SELECT t.* FROM track_cell AS t
    WHERE t.agent = k.agent AND t.domain = k.domain AND t.clock = %(clock)s AND t.context = k.context AND t.at <= w.until
    ORDER BY t.at DESC LIMIT 1
) AS s
ORDER BY w.n, s.context

-- replace_observations --
-- Replaces the observation steps of one agent in one domain on one clock from a moment on (NULL: all) by the given ones, and returns
-- how many differed, and by how much the greatest. steps: JSON list of objects, whose names are those of the columns.
WITH new AS MATERIALIZED (
    SELECT * FROM json_populate_recordset(NULL::observation_step, %(steps)s::json)
), old AS MATERIALIZED (
    SELECT * FROM observation_step
    WHERE agent = %(agent)s AND domain = %(domain)s AND clock = %(clock)s
      AND at >= coalesce(%(since)s::timestamptz, '-infinity'::timestamptz)
), gone AS (
    DELETE FROM observation_step AS s USING old AS o
    WHERE s.agent = o.agent AND s.domain = o.domain AND s.clock = o.clock AND s.at = o.at AND s.target_at = o.target_at
      AND s.context = o.context
      AND NOT EXISTS (SELECT FROM new AS n WHERE n.at = o.at AND n.target_at = o.target_at AND n.context = o.context)
), put AS (
    INSERT INTO observation_step AS s
    SELECT n.* FROM new AS n
    LEFT JOIN old AS o ON o.at = n.at AND o.target_at = n.target_at AND o.context = n.context
    WHERE o IS DISTINCT FROM n
    ON CONFLICT (agent, domain, clock, at, target_at, context) DO UPDATE SET
        rows = excluded.rows, loss = excluded.loss, peer_loss = excluded.peer_loss, error = excluded.error,
        ahead = excluded.ahead
)
SELECT count(*) AS steps, coalesce(bool_or(n.at IS NULL OR o.at IS NULL OR n.rows <> o.rows), false) AS missing,
    coalesce(max(greatest(abs(n.loss - o.loss), abs(n.peer_loss - o.peer_loss), abs(n.error - o.error),
        abs(n.ahead - o.ahead))), 0) AS deviation
FROM old AS o FULL JOIN new AS n ON n.at = o.at AND n.target_at = o.target_at AND n.context = o.context
WHERE o IS DISTINCT FROM n

-- observations_until --
-- Every step of the observations of the given agents and domains that stood on one clock by a moment, with a target_at after another,
-- as one row of arrays, which is read faster than rows. n: which agent and domain; at and target_at in seconds since 1970.
SELECT array_agg(s.n) AS n, array_agg(extract(epoch FROM s.at)::float8) AS at,
    array_agg(extract(epoch FROM s.target_at)::float8) AS target_at, array_agg(s.context) AS context, array_agg(s.rows) AS rows,
    array_agg(s.loss) AS loss, array_agg(s.peer_loss) AS peer_loss, array_agg(s.error) AS error,
    array_agg(s.ahead) AS ahead
FROM (
    SELECT w.n, o.* FROM unnest(%(agents)s::text[], %(domains)s::text[]) WITH ORDINALITY AS w (agent, domain, n)
    JOIN observation_step AS o ON o.agent = w.agent AND o.domain = w.domain AND o.clock = %(clock)s
        AND o.at <= %(until)s AND o.target_at > %(since)s
    ORDER BY w.n, o.at
) AS s

-- scored_answers --
-- The scored probabilities and directions of the given agents and domains that others answered too, on a part of the questions, drawn by
-- a hash: those that were valid at any time from one moment to another on one clock, with a target_at after a third. One row of arrays. n:
-- which agent and domain; question: the hash of its subject, metric and target_at; times in seconds since 1970. Parameters: agents,
-- domains, drawn (of each, how many of 1,024 parts), clock, earliest, until, since.
SELECT array_agg(s.n) AS n, array_agg(s.question) AS question, array_agg(extract(epoch FROM s.target_at)::float8) AS target_at,
    array_agg(extract(epoch FROM s.predicted_at)::float8) AS said_at, array_agg(s.error) AS error,
    array_agg(extract(epoch FROM s.begins)::float8) AS begins,
    array_agg(coalesce(extract(epoch FROM s.ends)::float8, 'Infinity')) AS ends
FROM (
    SELECT w.n, o.target_at, o.predicted_at, o.error,
        hashtextextended(o.subject_id || o.metric, extract(epoch FROM o.target_at - timestamptz '2000-01-01 00:00:00+00')::bigint)
            AS question,
        CASE %(clock)s WHEN 'known' THEN o.known_at ELSE o.recorded_at END AS begins,
        CASE %(clock)s WHEN 'known' THEN o.superseded_known_at ELSE o.superseded_recorded_at END AS ends
    FROM unnest(%(agents)s::text[], %(domains)s::text[], %(drawn)s::integer[]) WITH ORDINALITY AS w (agent, domain, drawn, n)
    JOIN agent_outcome AS o ON o.agent = w.agent AND o.domain = w.domain AND (
        hashtextextended(o.subject_id || o.metric, extract(epoch FROM o.target_at - timestamptz '2000-01-01 00:00:00+00')::bigint)
            & 1023) < w.drawn
    WHERE o.peer_loss IS NOT NULL AND o.error IS NOT NULL AND (o.happened IS NOT NULL OR o.stated IN (-1, 1))
      AND o.target_at > %(since)s
) AS s
WHERE s.begins <= %(until)s AND (s.ends IS NULL OR s.ends > %(earliest)s)
