-- find_subject --
-- The subject that a name means as of a moment: the first of the given ids with a record, or with a record about it; if there is
-- none, each subject that had that name at the moment, or has that key, without regard to case, blanks and accents (imem_plain_v1), those
-- of exactly that name first.
-- Parameters: kinds, keys, subject_ids (what may be meant, in the order of preference), name (NULL: none is looked for), key and key_kinds
-- (of which kinds keys are compared), known_until, recorded_until, limit. Columns: subject_id, by_name, name.
WITH meant AS MATERIALIZED (
    SELECT c.subject_id
    FROM unnest(%(kinds)s::text[], %(keys)s::text[], %(subject_ids)s::text[]) WITH ORDINALITY AS c (kind, key, subject_id, nth)
    CROSS JOIN LATERAL (
        -- The limit keeps what is about it from being looked at where its own record says enough.
        SELECT y.position FROM record_history AS y
        WHERE y.kind = c.kind AND y.key = c.key AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
        UNION ALL
        SELECT y.position FROM record_head AS h JOIN record_history AS y ON y.kind = h.kind AND y.key = h.key AND y.grp = 'core'
        WHERE h.subject_id = c.subject_id AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
        LIMIT 1
    ) AS known
    ORDER BY c.nth LIMIT 1
)
SELECT m.subject_id, false AS by_name, NULL AS name FROM meant AS m
UNION ALL
SELECT * FROM (
    SELECT lower(n.kind) || ':' || n.key, true, stood.name FROM (
        SELECT split_part(e.kind, '.', 2) AS kind, e.record_key AS key FROM event AS e
        WHERE e.kind IN ('record.Company', 'record.Market', 'correct.Market')
          AND imem_plain_v1(coalesce(e.payload #>> '{groups,profile,name}', e.payload #>> '{core,question}')) = imem_plain_v1(%(name)s::text)
        UNION
        SELECT h.kind, h.key FROM record_head AS h
        WHERE h.kind = ANY (%(key_kinds)s::text[]) AND h.kind IN ('Company', 'Market') AND h.grp = 'core'
          AND imem_plain_v1(h.key) = imem_plain_v1(%(key)s::text)
    ) AS n
    LEFT JOIN LATERAL imem_name_of_subject_v1(n.kind, n.key, %(known_until)s, %(recorded_until)s) AS stood (name) ON true
    WHERE NOT EXISTS (SELECT FROM meant) AND (
        imem_plain_v1(stood.name) = imem_plain_v1(%(name)s::text)
        OR n.kind = ANY (%(key_kinds)s::text[]) AND imem_plain_v1(n.key) = imem_plain_v1(%(key)s::text) AND EXISTS (
            SELECT FROM record_history AS y
            WHERE y.kind = n.kind AND y.key = n.key AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s))
    ORDER BY stood.name = %(name)s::text DESC NULLS LAST, 1 LIMIT %(limit)s
) AS named

-- namespace_with_memories --
-- The first of the given namespaces in which a memory was current as of a moment, or below it: for subjects of which nothing is
-- recorded. Parameters: namespaces (in the order of preference), known_until, recorded_until. Column: namespace.
SELECT c.namespace FROM unnest(%(namespaces)s::text[]) WITH ORDINALITY AS c (namespace, nth)
WHERE EXISTS (
    SELECT FROM recall.memory_namespace AS n JOIN recall.memory AS m ON m.namespace = n.namespace
    -- What lies below it sorts between its slash and the character after the slash, which is the digit 0.
    WHERE (n.namespace = c.namespace OR n.namespace > c.namespace || '/' AND n.namespace < c.namespace || '0')
      AND m.known_at <= %(known_until)s AND m.recorded_at <= %(recorded_until)s
      AND (m.superseded_at IS NULL OR m.superseded_at > least(%(known_until)s, %(recorded_until)s)))
ORDER BY c.nth LIMIT 1

-- subject_names --
-- Keys of subjects whose record was known, with their names at that moment, those first that contain the name searched or begin
-- like it: for suggestions as of a day, and without the graph. Parameters: kinds, name (in small letters), known_until,
-- recorded_until, limit.
SELECT h.kind, h.key, stood.name FROM record_head AS h
LEFT JOIN LATERAL imem_name_of_subject_v1(h.kind, h.key, %(known_until)s, %(recorded_until)s) AS stood (name) ON true
WHERE h.kind = ANY (%(kinds)s::text[]) AND h.grp = 'core' AND EXISTS (
    SELECT 1 FROM record_history AS y WHERE y.kind = h.kind AND y.key = h.key AND y.grp = 'core'
      AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s)
ORDER BY position(%(name)s::text in lower(h.key)) = 0 AND coalesce(position(%(name)s::text in lower(stood.name)), 0) = 0,
    left(lower(h.key), 1) <> left(%(name)s::text, 1) AND coalesce(left(lower(stood.name), 1) <> left(%(name)s::text, 1), true),
    h.kind, h.key
LIMIT %(limit)s

-- records_of_subject --
-- The newest records of some kinds about a subject, by when they were true: a fallback without the graph.
-- Parameters: subject_id, kinds, known_until, recorded_until, limit.
SELECT h.kind, h.key FROM record_head AS h
WHERE h.subject_id = %(subject_id)s AND h.kind = ANY (%(kinds)s::text[]) AND h.grp = 'core' AND EXISTS (
    SELECT 1 FROM record_history AS y WHERE y.kind = h.kind AND y.key = h.key AND y.grp = 'core'
      AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s)
ORDER BY h.occurred_at DESC, h.kind, h.key LIMIT %(limit)s

-- contradictions_in_journal --
-- The contradictions about a subject as of a moment: open ones before resolved ones, by priority, the newest first, and how many
-- there are, without those withdrawn: a fallback without the graph. Parameters: subject_id, known_until, recorded_until, limit.
SELECT h.key AS contradiction, count(*) OVER () AS total FROM record_head AS h
CROSS JOIN LATERAL (
    SELECT e.payload -> 'core' AS core FROM record_history AS y JOIN event AS e ON e.position = y.position
    WHERE y.kind = h.kind AND y.key = h.key AND y.grp IN ('core', 'correction')
      AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
    ORDER BY y.grp = 'correction' DESC, CASE WHEN y.grp = 'correction' THEN y.order_key END DESC, y.order_key LIMIT 1
) AS stood
LEFT JOIN LATERAL (
    SELECT e.payload -> 'groups' -> 'resolution' AS value FROM record_history AS y JOIN event AS e ON e.position = y.position
    WHERE y.kind = h.kind AND y.key = h.key AND y.grp = 'resolution'
      AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
    ORDER BY y.order_key DESC LIMIT 1
) AS resolution ON true
WHERE h.subject_id = %(subject_id)s AND h.kind = 'DataContradiction' AND h.grp = 'core'
  AND coalesce(resolution.value ->> 'status', '') <> 'withdrawn' AND EXISTS (
    SELECT 1 FROM record_history AS y WHERE y.kind = h.kind AND y.key = h.key AND y.grp = 'core'
      AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s)
ORDER BY coalesce(resolution.value ->> 'status', '') IN ('resolved', 'provisional'),
    array_position(ARRAY['CRITICAL', 'HIGH', 'MEDIUM', 'LOW'], coalesce(resolution.value ->> 'priority', 'MEDIUM')),
    stood.core ->> 'timestamp' COLLATE "C" DESC, h.key COLLATE "C"
LIMIT %(limit)s

-- speakers_in_journal --
-- Which agents made statements about a subject, and in which domain: a fallback without the graph; half: from about half of the
-- statements, by a hash of the key, so that the sample does not depend on the order of loading. Parameters: subject_id,
-- known_until, recorded_until, limit, half.
SELECT stood.core ->> 'agent' AS agent, stood.core ->> 'domain' AS domain, count(*) AS findings, count(h.metric) AS claims
FROM record_head AS h
CROSS JOIN LATERAL (
    -- Not the head's own statement, which may be one that was recorded since.
    SELECT e.payload -> 'core' AS core FROM record_history AS y JOIN event AS e ON e.position = y.position
    WHERE y.kind = h.kind AND y.key = h.key AND y.grp = 'core' AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
    ORDER BY y.order_key LIMIT 1
) AS stood
WHERE h.subject_id = %(subject_id)s AND h.kind = 'Finding' AND h.grp = 'core'
  AND (NOT %(half)s::boolean OR get_byte(sha256(convert_to(h.key, 'UTF8')), 0) %% 2 = 0)
GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT %(limit)s

-- claims_of_subject --
-- The claims on the questions about a subject that are answered last, as they stood, by when they were made, corrected or not: a statement
-- that was known at target_at or later does not count. total: how many questions there are. Parameters: subject_id, metric, target_at (of the
-- questions; NULL for any), known_until, recorded_until, limit (of questions).
WITH claim AS MATERIALIZED (
    SELECT h.key, h.metric, h.target_at, dense_rank() OVER (ORDER BY h.target_at DESC, h.metric) AS nth,
        stood.core, stood.known_at, stood.order_key
    FROM record_head AS h
    CROSS JOIN LATERAL (
        SELECT e.payload -> 'core' AS core, first_value(y.known_at) OVER made AS known_at, first_value(y.order_key) OVER made AS order_key
        FROM record_history AS y JOIN event AS e ON e.position = y.position
        WHERE y.kind = h.kind AND y.key = h.key AND y.grp IN ('core', 'correction') AND y.known_at < h.target_at
          AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
        WINDOW made AS (ORDER BY y.grp = 'correction', y.order_key)
        ORDER BY y.grp = 'correction' DESC, CASE WHEN y.grp = 'correction' THEN y.order_key END DESC, y.order_key LIMIT 1
    ) AS stood
    WHERE h.subject_id = %(subject_id)s AND h.kind = 'Finding' AND h.grp = 'core'
      AND h.metric = coalesce(%(metric)s::text, h.metric) AND h.target_at = coalesce(%(target_at)s::timestamptz, h.target_at)
)
SELECT c.key, c.metric, c.target_at, c.known_at AS said_at, s.agent, s.domain, s.probability, s.direction, s.value, s.unit,
    s.period_start, (SELECT max(nth) FROM claim) AS total
FROM claim AS c
CROSS JOIN jsonb_to_record(c.core) AS s (
    agent text, domain text, probability float8, direction text, value float8, unit text, period_start timestamptz)
WHERE c.nth <= %(limit)s
ORDER BY c.known_at, c.order_key, c.key

-- turn_counts --
-- How many turns each debate has: those recorded with it by the given event, and those that their speakers recorded. Parameters:
-- debates, positions (one a debate; NULL: none was recorded with it), known_until, recorded_until.
SELECT w.debate_id, count(*) AS turns, count(DISTINCT t.speaker) AS speakers
FROM unnest(%(debates)s::text[], %(positions)s::bigint[]) AS w (debate_id, position)
CROSS JOIN LATERAL (
    SELECT u.speaker FROM debate_turn AS u WHERE u.debate_id = w.debate_id AND u.position = w.position
    UNION ALL
    SELECT s.speaker FROM (
        SELECT DISTINCT e.record_key, e.payload -> 'core' ->> 'speaker' AS speaker FROM event AS e
        WHERE e.kind = 'record.DebateTurn' AND e.payload -> 'core' ->> 'debate_id' = w.debate_id
          AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s) AS s
) AS t
GROUP BY w.debate_id

-- turns_of_debate --
-- The turns of a debate that one event recorded with it.
SELECT number, stage, speaker, stance, text, cites FROM debate_turn
WHERE debate_id = %(debate_id)s AND position = %(position)s ORDER BY number LIMIT %(limit)s

-- active_patterns_of_subject --
-- Patterns that analyses of a subject showed, as far as their status was active as of a moment.
SELECT l.key FROM (
    SELECT DISTINCT i.payload ->> 'to_key' AS key FROM record_head AS a
    JOIN event AS i ON i.kind = 'link.IDENTIFIED_PATTERN' AND i.payload ->> 'from_key' = a.key
    WHERE a.kind = 'Analysis' AND a.grp = 'core' AND a.subject_id = %(subject_id)s
) AS l CROSS JOIN LATERAL (
    SELECT v.value FROM pattern_value AS v
    WHERE v.key = l.key AND v.grp = 'status' AND v.known_at <= %(known_until)s AND v.recorded_at <= %(recorded_until)s
    ORDER BY v.order_key DESC LIMIT 1
) AS s WHERE s.value = 'active' ORDER BY l.key LIMIT %(limit)s

-- active_among --
-- Those of the given patterns whose status was active as of a moment.
SELECT w.key FROM unnest(%(keys)s::text[]) AS w (key) CROSS JOIN LATERAL (
    SELECT v.value FROM pattern_value AS v
    WHERE v.key = w.key AND v.grp = 'status' AND v.known_at <= %(known_until)s AND v.recorded_at <= %(recorded_until)s
    ORDER BY v.order_key DESC LIMIT 1
) AS s WHERE s.value = 'active'

-- patterns_at --
-- Patterns that were active as of a moment, of a sector or of none, the most successful first, and how many they are. Of
-- sectors the earliest statement counts that was not corrected. Parameters: sector (NULL: of none alone), known_until,
-- recorded_until, among (of how many active ones of these, by key), limit.
WITH likely AS (
    -- Whatever was ever recorded to be of that sector or of none; whether it was then is asked of these alone.
    SELECT s.key FROM pattern_value AS s WHERE s.grp IN ('core', 'correction') AND s.value IS NULL
    UNION
    SELECT s.key FROM pattern_value AS s WHERE s.grp IN ('core', 'correction') AND s.value = %(sector)s::text
),
stood AS (
    SELECT v.key, bool_or(v.grp = 'core') AS stated, bool_or(v.grp = 'correction') AS corrected,
        (array_agg(v.value ORDER BY v.order_key) FILTER (WHERE v.grp = 'core'))[1] AS core,
        (array_agg(v.value ORDER BY v.order_key DESC) FILTER (WHERE v.grp = 'correction'))[1] AS correction,
        (array_agg(v.value ORDER BY v.order_key DESC) FILTER (WHERE v.grp = 'status'))[1] AS status,
        (array_agg(v.value ORDER BY v.order_key DESC) FILTER (WHERE v.grp = 'performance'))[1]::float8 AS success
    FROM pattern_value AS v
    WHERE v.key IN (SELECT l.key FROM likely AS l) AND v.known_at <= %(known_until)s AND v.recorded_at <= %(recorded_until)s
    GROUP BY v.key
),
active AS (
    SELECT p.key, p.success FROM (
        SELECT s.key, s.success, CASE WHEN s.corrected THEN s.correction ELSE s.core END AS sector FROM stood AS s
        WHERE s.status = 'active' AND s.stated
    ) AS p
    WHERE p.sector IS NULL OR p.sector = %(sector)s::text
    ORDER BY p.key LIMIT %(among)s
)
SELECT a.key, count(*) OVER () AS total FROM active AS a
ORDER BY coalesce(a.success, 0) DESC, a.key LIMIT %(limit)s

-- body_of --
-- The long text of a record as of a moment.
SELECT e.body, e.known_at FROM record_history AS h JOIN event AS e ON e.position = h.position
WHERE h.kind = %(kind)s AND h.key = %(key)s AND h.grp = 'body' AND h.known_at <= %(known_until)s AND h.recorded_at <= %(recorded_until)s
ORDER BY h.order_key DESC LIMIT 1

-- parts_of_analyses --
-- Findings and decisions of the given analyses, from the journal alone: a fallback without the graph.
SELECT e.analysis_id, split_part(e.kind, '.', 2) AS kind, e.record_key AS key FROM event AS e
WHERE e.analysis_id = ANY (%(analyses)s::text[]) AND e.kind IN ('record.Finding', 'record.Decision')
  AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3

-- lone_decisions --
-- The newest decisions about a subject whose analysis was not among those of the subject, with the outcomes that review each.
-- Parameters: subject_id, known_until, recorded_until, limit. Columns: decision, outcomes (keys), total (before the limit).
WITH taken AS MATERIALIZED (
    SELECT h.key, h.occurred_at, count(*) OVER () AS total
    FROM record_head AS h JOIN event AS e ON e.position = h.position
    WHERE h.subject_id = %(subject_id)s AND h.kind = 'Decision' AND h.grp = 'core' AND EXISTS (
        SELECT 1 FROM record_history AS y WHERE y.kind = h.kind AND y.key = h.key AND y.grp = 'core'
          AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s)
      AND NOT EXISTS (
        SELECT 1 FROM record_head AS a
        JOIN record_history AS y ON y.kind = a.kind AND y.key = a.key AND y.grp = a.grp
        WHERE a.kind = 'Analysis' AND a.key = e.analysis_id AND a.grp = 'core' AND a.subject_id = h.subject_id
          AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s)
    ORDER BY h.occurred_at DESC, h.key LIMIT %(limit)s
)
SELECT t.key AS decision, t.total, o.keys AS outcomes FROM taken AS t
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(DISTINCT e.record_key), '{}') AS keys FROM event AS e
    WHERE e.kind = 'record.Outcome' AND e.payload -> 'core' ->> 'decision_id' = t.key
      AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s
) AS o
ORDER BY t.occurred_at DESC, t.key

-- speakers_of_analyses --
-- Agents with findings in each of the given analyses, and those that took its decisions, from the journal alone: a fallback
-- without the graph.
SELECT e.analysis_id,
    coalesce(array_agg(DISTINCT e.payload -> 'core' ->> 'agent') FILTER (WHERE e.kind = 'record.Finding'), '{}') AS speakers,
    coalesce(array_agg(DISTINCT m.name) FILTER (WHERE m.name IS NOT NULL), '{}') AS makers
FROM event AS e
LEFT JOIN LATERAL jsonb_array_elements_text(
    CASE WHEN e.kind = 'record.Decision' THEN e.payload -> 'core' -> 'agents_involved' END) AS m (name) ON true
WHERE e.analysis_id = ANY (%(analyses)s::text[]) AND e.kind IN ('record.Finding', 'record.Decision')
  AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s
GROUP BY e.analysis_id

-- concluders_of_analyses --
-- Who may have concluded each of the given analyses, as of a moment: the agents that performed it, the agents of its findings (two
-- of each at most) and the agent or person that recorded it (NULL: an import did). Parameters: analyses, known_until, recorded_until.
SELECT a.key AS analysis_id,
    ARRAY(
        SELECT DISTINCT e.payload ->> 'from_key' FROM event AS e
        WHERE e.kind = 'link.PERFORMED' AND e.payload ->> 'to_key' = a.key
          AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s
        ORDER BY 1 LIMIT 2
    ) AS performers,
    ARRAY(
        SELECT DISTINCT e.payload -> 'core' ->> 'agent' FROM event AS e
        WHERE e.analysis_id = a.key AND e.kind = 'record.Finding'
          AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s
        ORDER BY 1 LIMIT 2
    ) AS speakers,
    (
        SELECT CASE WHEN NOT starts_with(e.actor, 'import:') THEN e.actor END
        FROM record_history AS y JOIN event AS e ON e.position = y.position
        WHERE y.kind = 'Analysis' AND y.grp = 'core' AND y.key = a.key
          AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
        ORDER BY y.order_key LIMIT 1
    ) AS recorder
FROM unnest(%(analyses)s::text[]) AS a (key)

-- claims_of_analyses --
-- How the claims of the given analyses turned out, as of a moment on a clock: how many findings made one, how many are
-- settled, right and wrong (the others took no side) and whose, what was found where all speak of one metric at one time or over one
-- period, in which units they do (NULL: not stated), since when the first was there and the last is settled, and when the next falls
-- due. Parameters: analyses, clock, until (of scores), known_until, recorded_until.
WITH claim AS (
    SELECT e.analysis_id, e.record_key AS key, min(e.payload -> 'core' ->> 'agent') AS agent,
        min(e.payload -> 'core' ->> 'metric') AS metric,
        min(e.payload -> 'core' ->> 'unit') AS unit,
        min((e.payload -> 'core' ->> 'period_start')::timestamptz) AS period_start,
        min((e.payload -> 'core' ->> 'target_at')::timestamptz) AS target_at,
        min(CASE WHEN %(clock)s = 'known' THEN e.known_at ELSE e.recorded_at END) AS made_at
    FROM event AS e
    WHERE e.analysis_id = ANY (%(analyses)s::text[]) AND e.kind = 'record.Finding'
      AND e.payload -> 'core' ->> 'metric' IS NOT NULL
      AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s
    GROUP BY e.analysis_id, e.record_key
)
SELECT c.analysis_id, count(*) AS claims, count(o.finding_id) AS settled, count(*) FILTER (WHERE o.y = 1) AS "right",
    count(*) FILTER (WHERE o.y = 0) AS wrong,
    coalesce(array_agg(DISTINCT c.agent) FILTER (WHERE o.y = 1), '{}') AS right_agents,
    coalesce(array_agg(DISTINCT c.agent) FILTER (WHERE o.y = 0), '{}') AS wrong_agents,
    CASE WHEN count(DISTINCT (c.metric, c.period_start, c.target_at)) = 1 THEN min(c.metric) END AS metric,
    min(c.period_start) AS period_start, min(c.target_at) AS target_at, array_agg(DISTINCT c.unit) AS units,
    CASE WHEN min(o.actual) = max(o.actual) THEN min(o.actual) END AS actual,
    min(c.made_at) AS made_at, max(CASE WHEN %(clock)s = 'known' THEN o.known_at ELSE o.recorded_at END) AS settled_at,
    min(c.target_at) FILTER (WHERE o.finding_id IS NULL) AS due_at
FROM claim AS c
LEFT JOIN agent_outcome AS o ON o.finding_id = c.key
  AND CASE WHEN %(clock)s = 'known'
      THEN o.known_at <= %(until)s AND (o.superseded_known_at IS NULL OR o.superseded_known_at > %(until)s)
      ELSE o.recorded_at <= %(until)s AND (o.superseded_recorded_at IS NULL OR o.superseded_recorded_at > %(until)s) END
GROUP BY c.analysis_id

-- scored_horizon --
-- The last moment of which everything recorded is scored.
SELECT imem_settled_horizon() AS horizon

-- parts_of_debates --
-- Records of the ends of debates, and of their turns, as far as they were known. Parameters: debates, kinds (of the records, as events
-- name them), known_until, recorded_until, limit (of each debate).
SELECT p.* FROM unnest(%(debates)s::text[]) AS w (debate_id) CROSS JOIN LATERAL (
    SELECT DISTINCT split_part(e.kind, '.', 2) AS kind, e.record_key AS key FROM event AS e
    WHERE e.kind IN ('record.DebateResolution', 'record.DebateTurn') AND e.kind = ANY (%(kinds)s::text[])
      AND e.payload -> 'core' ->> 'debate_id' = w.debate_id
      AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s
    ORDER BY 1, 2 LIMIT %(limit)s
) AS p

-- other_actors --
-- One actor with events other than the given actors, if any.
SELECT actor FROM agent_cursor WHERE actor <> ALL (%(actors)s::text[]) AND pushed_seq > 0 LIMIT 1

-- events_of_actors --
-- How many events each of the given actors has stated. Parameters: actors (array). Columns: actor, events.
SELECT actor, pushed_seq AS events FROM agent_cursor WHERE actor = ANY (%(actors)s::text[])

-- pipelines_due --
-- How much the pipelines still have to do, how many scores there are, and how many statements about analyses are not compared.
SELECT (SELECT count(*) FROM due_row WHERE queue <> 'similar' AND set_aside IS NULL) + (SELECT count(*) FROM track_due) + (SELECT count(*) FROM delivery WHERE state = 'pending') AS due,
    (SELECT count(*) FROM agent_outcome) AS scores, (SELECT count(*) FROM due_row WHERE queue = 'similar' AND set_aside IS NULL) AS uncompared

-- read_horizon --
-- The read horizon of a request: the safe horizon, the database's time, and the epoch of pattern statuses.
SELECT imem_safe_horizon() AS horizon, imem_journal_now() AS now, (SELECT epoch FROM pattern_epoch) AS epoch

-- pattern_epoch --
-- The epoch of pattern statuses: all that a cached result which shows patterns needs from Postgres.
SELECT epoch FROM pattern_epoch

-- related_subjects --
-- The subjects, series and agents that the given records are about: their dependency tags are to be invalidated. For a market its
-- series as well. Columns: subject_id, series_id, kind, agent; any may be NULL. (OFFSET 0 has each record looked up by its key:
-- the planner would rather read all of them for those of one batch.)
WITH wanted AS (
    SELECT DISTINCT w.kind, h.subject_id, h.position
    FROM unnest(%(kinds)s::text[], %(keys)s::text[]) AS w (kind, key)
    CROSS JOIN LATERAL (
        SELECT r.subject_id, r.position FROM record_head AS r
        WHERE r.kind = w.kind AND r.key = w.key AND r.grp = 'core' OFFSET 0
    ) AS h
),
about AS (
    SELECT w.kind, w.subject_id, c.core FROM wanted AS w
    CROSS JOIN LATERAL (SELECT e.payload -> 'core' AS core FROM event AS e WHERE e.position = w.position OFFSET 0) AS c
),
subjects AS (
    SELECT DISTINCT unnest(%(subjects)s::text[] || array(SELECT a.subject_id FROM about AS a WHERE a.subject_id IS NOT NULL)) AS subject_id
)
SELECT s.subject_id, m.payload -> 'core' ->> 'series_id' AS series_id, NULL AS kind, NULL AS agent FROM subjects AS s
LEFT JOIN record_head AS h ON left(s.subject_id, 7) = 'market:' AND h.kind = 'Market' AND h.key = substr(s.subject_id, 8) AND h.grp = 'core'
LEFT JOIN event AS m ON m.position = h.position
UNION
SELECT NULL, NULL, a.kind, coalesce(a.core ->> 'agent_id', a.core ->> 'agent') FROM about AS a
WHERE coalesce(a.core ->> 'agent_id', a.core ->> 'agent') IS NOT NULL

-- lessons_in_journal --
-- The newest lessons that agents see for the domains in which something was stated about a subject, and how many there are: what is
-- asked when the graph is away. Of corrected ones the first statement decides. Parameters: subject_id, known_until,
-- recorded_until, limit, half (of all, about every other one, by a hash of its key).
WITH domains AS (
    SELECT DISTINCT stood.domain FROM record_head AS h
    CROSS JOIN LATERAL (
        SELECT e.payload -> 'core' ->> 'domain' AS domain FROM record_history AS y JOIN event AS e ON e.position = y.position
        WHERE y.kind = h.kind AND y.key = h.key AND y.grp = 'core'
          AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
        ORDER BY y.order_key LIMIT 1
    ) AS stood
    WHERE h.subject_id = %(subject_id)s AND h.kind = 'Finding' AND h.grp = 'core'
)
SELECT h.key, count(*) OVER () AS total FROM record_head AS h
CROSS JOIN LATERAL (
    -- Since when it was known; on the recorded clock its first place in the journal counts, which no later statement moves.
    SELECT y.known_at, y.position, e.payload -> 'core' -> 'affected_domains' AS domains,
        min(y.position) OVER () AS first_position
    FROM record_history AS y JOIN event AS e ON e.position = y.position
    WHERE y.kind = h.kind AND y.key = h.key AND y.grp = 'core' AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
    ORDER BY y.order_key LIMIT 1
) AS stood
WHERE h.kind = 'Lesson' AND h.grp = 'core'
  AND imem_lesson_shown_v1(h.key, %(known_until)s, %(recorded_until)s) IS NOT NULL
  AND (NOT %(half)s::boolean OR get_byte(sha256(convert_to(h.key, 'UTF8')), 0) %% 2 = 0)
  AND EXISTS (SELECT FROM domains AS d WHERE stood.domains ? d.domain)
ORDER BY CASE WHEN %(recorded_until)s::timestamptz < '9999-01-01' THEN stood.first_position END DESC, stood.known_at DESC, h.key
LIMIT %(limit)s
