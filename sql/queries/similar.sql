-- similarity_lock --
-- Lock of the transactions that change neighbours; released at the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('imem.similarity', 0))

-- similarity_run --
-- Lock of a whole run of one kind of work, held for as long as this transaction is open. False: another process holds it. The
-- transaction writes nothing, so that it holds no horizon back.
SELECT pg_try_advisory_xact_lock(hashtextextended('imem.similarity.' || %(work)s, 0)) AS held,
    set_config('idle_in_transaction_session_timeout', '0', true),
    CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN set_config('transaction_timeout', '0', true) END

-- models --
-- Every embedding model.
SELECT model, model_id, dimension, in_use FROM embedding_model ORDER BY model

-- add_model --
-- Registers a model; the first one is in use from the beginning.
INSERT INTO embedding_model (model_id, dimension, unrelated, in_use)
VALUES (%(model_id)s, %(dimension)s, %(unrelated)s, NOT EXISTS (SELECT FROM embedding_model WHERE in_use))
ON CONFLICT (model_id, dimension) DO NOTHING

-- index_model --
-- Creates the index of a model's vectors, if it does not exist.
SELECT imem_embedding_index_v1(%(model)s::smallint, %(dimension)s)

-- import_model --
-- Drops the index of a model's vectors where an import brings most of them; index_model makes it again.
SELECT imem_embedding_import_v1(%(model)s::smallint)

-- statements_to_embed --
-- Cores and corrections of the given analyses of which a model lacks a vector, each with the question of its subject that was
-- recorded by then, and once more with each later one, dated when both count. Parameters: model, keys, chars (most of a long
-- text that are read).
WITH said AS (
    SELECT y.key, y.position, y.grp = 'correction' AS corrects, y.order_key, y.known_at, y.recorded_at,
        e.payload -> 'core' AS core, left(e.body, %(chars)s) AS body, m.key AS market, EXISTS (
            SELECT FROM record_history AS h WHERE h.kind = 'Market' AND h.grp = 'core' AND h.key = m.key
              AND h.known_at <= y.known_at AND h.recorded_at <= y.recorded_at) AS asked
    FROM unnest(%(keys)s::text[]) AS w (key)
    JOIN record_history AS y ON y.kind = 'Analysis' AND y.key = w.key AND y.grp IN ('core', 'correction')
    JOIN event AS e ON e.position = y.position
    LEFT JOIN LATERAL (
        SELECT substr(e.payload -> 'core' ->> 'subject_id', length('market:') + 1) AS key
        WHERE e.payload -> 'core' ->> 'subject_id' LIKE 'market:%%'
    ) AS m ON true
),
texts AS (
    SELECT s.key, s.position, 0::bigint AS question_position, s.corrects, s.order_key, s.known_at, s.recorded_at, s.core, s.body,
        q.question
    FROM said AS s
    LEFT JOIN LATERAL (
        SELECT f.payload -> 'core' ->> 'question' AS question
        FROM record_history AS h JOIN event AS f ON f.position = h.position
        WHERE s.asked AND h.kind = 'Market' AND h.grp = 'core' AND h.key = s.market ORDER BY h.order_key LIMIT 1
    ) AS q ON true
    UNION ALL
    SELECT s.key, s.position, h.position, s.corrects, s.order_key, greatest(s.known_at, h.known_at),
        greatest(s.recorded_at, h.recorded_at), s.core, s.body, f.payload -> 'core' ->> 'question'
    FROM said AS s
    JOIN record_history AS h ON h.kind = 'Market' AND h.grp = 'core' AND h.key = s.market
    JOIN event AS f ON f.position = h.position
    WHERE NOT s.asked AND f.payload -> 'core' ->> 'question' IS NOT NULL
)
SELECT t.* FROM texts AS t
WHERE NOT EXISTS (
    SELECT FROM embedding AS v WHERE v.model = %(model)s::smallint AND v.kind = 'Analysis' AND v.key = t.key
      AND v.position = t.position AND v.question = t.question_position)
ORDER BY t.key, t.position, t.question_position

-- analyses_to_embed --
-- Analyses of which a model lacks a vector, a page after the given one.
SELECT DISTINCT y.key FROM record_history AS y
WHERE y.kind = 'Analysis' AND y.grp IN ('core', 'correction') AND y.key > %(after)s AND NOT EXISTS (
    SELECT FROM embedding AS v
    WHERE v.model = %(model)s::smallint AND v.kind = 'Analysis' AND v.key = y.key AND v.position = y.position)
ORDER BY y.key LIMIT %(limit)s

-- add_embeddings --
-- Stores vectors, given as text; existing ones stay. The first of a record is the current one.
INSERT INTO embedding (
    model, kind, key, position, question, corrects, order_key, known_at, recorded_at, subject_id, content_hash, vector, standing, sole)
SELECT %(model)s::smallint, 'Analysis', n.key, n.position, n.question, n.corrects, n.order_key, n.known_at, n.recorded_at, n.subject_id,
    n.content_hash, n.vector::halfvec, f.first, f.first
FROM unnest(
    %(keys)s::text[], %(positions)s::bigint[], %(questions)s::bigint[], %(corrects)s::boolean[], %(order_keys)s::text[], %(known_at)s::timestamptz[],
    %(recorded_at)s::timestamptz[], %(subjects)s::text[], %(hashes)s::bytea[], %(vectors)s::text[]
) AS n (key, position, question, corrects, order_key, known_at, recorded_at, subject_id, content_hash, vector)
CROSS JOIN LATERAL (
    SELECT NOT EXISTS (
        SELECT FROM embedding AS o WHERE o.model = %(model)s::smallint AND o.kind = 'Analysis' AND o.key = n.key) AS first
) AS f
ORDER BY n.key, n.position, n.question
ON CONFLICT (model, kind, key, position, question) DO NOTHING

-- mark_current_embeddings --
-- Marks, of the vectors of each given analysis, which is the current one, and whether it is the only one.
UPDATE embedding AS e SET standing = s.stands, sole = s.sole
FROM unnest(%(keys)s::text[]) AS w (key)
-- For each analysis by itself: before the table has statistics, a plan for all at once reads every vector.
CROSS JOIN LATERAL (
    SELECT x.ctid, count(*) OVER () = 1 AS sole, row_number() OVER (
        ORDER BY x.corrects DESC, CASE WHEN x.corrects THEN x.order_key END DESC, x.order_key, x.question DESC
    ) = 1 AS stands
    FROM embedding AS x
    WHERE x.model = %(model)s::smallint AND x.kind = 'Analysis' AND x.key = w.key
) AS s
WHERE e.ctid = s.ctid AND (e.standing <> s.stands OR e.sole <> s.sole)

-- due_of_profiles --
-- Queues all analyses of a company whose profile, in one of the given events, changes its sector or size.
INSERT INTO due_row (queue, kind, key, position, later)
SELECT DISTINCT 'similar', 'Analysis', a.key, e.position, true FROM event AS e
LEFT JOIN LATERAL (
    SELECT b.payload -> 'groups' -> 'profile' AS profile FROM record_history AS y JOIN event AS b ON b.position = y.position
    WHERE y.kind = 'Company' AND y.key = e.record_key AND y.grp = 'profile' AND y.position < e.position
    ORDER BY y.order_key DESC LIMIT 1
) AS before ON true
JOIN record_head AS a ON a.subject_id = 'company:' || e.record_key AND a.kind = 'Analysis' AND a.grp = 'core'
WHERE e.position = ANY (%(positions)s::bigint[])
  AND (before.profile -> 'sector', before.profile -> 'size_class')
      IS DISTINCT FROM (e.payload -> 'groups' -> 'profile' -> 'sector', e.payload -> 'groups' -> 'profile' -> 'size_class')

-- due_of_patterns --
-- Queues all analyses in which the given patterns were identified.
INSERT INTO due_row (queue, kind, key, later)
SELECT DISTINCT 'similar', 'Analysis', l.payload ->> 'from_key', true
FROM unnest(%(keys)s::text[]) AS p (key)
JOIN event AS l ON l.kind = 'link.IDENTIFIED_PATTERN' AND l.payload ->> 'to_key' = p.key

-- due_of_markets --
-- Queues all analyses of a market that were recorded before one of the given events of its question.
INSERT INTO due_row (queue, kind, key, position, later)
SELECT DISTINCT 'similar', 'Analysis', a.key, e.position, true FROM event AS e
JOIN record_head AS a ON a.subject_id = 'market:' || e.record_key AND a.kind = 'Analysis' AND a.grp = 'core'
WHERE e.position = ANY (%(positions)s::bigint[]) AND a.position < e.position

-- similarity_waiting --
-- Counts due rows up to a limit, with the oldest and its age in seconds, and whether the given analyses are among them.
-- Limited, since it runs for each answer, and very many rows are due after an import.
SELECT (SELECT count(*) FROM (SELECT FROM due_row WHERE queue = 'similar' AND set_aside IS NULL LIMIT %(limit)s) AS counted) AS waiting,
    f.since, extract(epoch FROM imem_now() - f.since)::float8 AS age_s,
    EXISTS (SELECT FROM due_row WHERE queue = 'similar' AND kind = 'Analysis' AND key = ANY (%(keys)s::text[])) AS own
FROM (SELECT imem_due_since('similar', '') AS since) AS f

-- similarity_state --
-- The number of due rows, the age of the oldest in seconds, and the model and rules of the current version of the index, null
-- before the first.
SELECT w.waiting, w.age_s, m.model_id, m.dimension, b.rules
FROM (
    SELECT count(*) AS waiting, coalesce(extract(epoch FROM imem_now() - min(created_at)), 0)::float8 AS age_s
    FROM due_row WHERE queue = 'similar' AND set_aside IS NULL
) AS w
LEFT JOIN similarity_build AS b ON b.state = 'current'
LEFT JOIN embedding_model AS m ON m.model = b.model

-- nearest --
-- For each given analysis the nearest by the index, on other subjects and of other questions, as far as they were known, with
-- those as near as the last. Parameters: model, keys, limit, ties (most with these), known_until, recorded_until. Distances are 1
-- minus cosine, as a share of that of unrelated texts.
SELECT key, candidate, distance / (SELECT 1 - unrelated FROM embedding_model WHERE model = %(model)s::smallint) AS distance
FROM imem_nearest_v2(%(model)s::smallint, %(keys)s::text[], %(limit)s, %(ties)s, %(known_until)s, %(recorded_until)s)

-- questions_to_note --
-- Questions of markets, and their corrections, whose words are not stored yet, of the given analyses or of all. Parameters:
-- keys (NULL: all), limit.
SELECT y.position, e.payload -> 'core' ->> 'question' AS question, e.payload -> 'core' ->> 'series_id' AS series_id
FROM record_history AS y JOIN event AS e ON e.position = y.position
WHERE y.kind = 'Market' AND y.grp IN ('core', 'correction') AND e.payload -> 'core' ->> 'question' IS NOT NULL
  AND (%(keys)s::text[] IS NULL OR y.key IN (
      SELECT substr(h.subject_id, length('market:') + 1) FROM record_head AS h
      WHERE h.kind = 'Analysis' AND h.key = ANY (%(keys)s::text[]) AND h.grp = 'core' AND h.subject_id LIKE 'market:%%'))
  AND NOT EXISTS (SELECT FROM market_question AS q WHERE q.subject_id = 'market:' || y.key AND q.position = y.position)
ORDER BY y.position LIMIT %(limit)s

-- note_questions --
-- Stores the words and series by which questions are recognised; see imem.kg.similarity.scoring.asks. Parameters: positions (of
-- statements), words, series (hashes).
SELECT imem_note_questions_v1(%(positions)s::bigint[], %(words)s::bigint[], %(series)s::bigint[])

-- similar_as_of --
-- The analyses nearest to the newest analyses of a subject, or to at most three given ones of one subject, as of a moment, with
-- those as near as the last. Analyses on the same subject or question are left out. One row for each pair; an analysis without
-- neighbours has one row without. The search is exact, so that no vector known later changes it. It reads the vectors once for
-- all three analyses. Where more than `most` were known there are no pairs. Parameters: keys (NULL: the newest of subject_id),
-- subject_id, newest (how many), recorded (whether only what was recorded by then counts), most (vectors to read), limit, ties
-- (most with these), known_until, recorded_until.
WITH space AS MATERIALIZED (
    SELECT m.model, m.model_id, m.dimension, 1 - m.unrelated AS span, CASE
    -- Far below the limit by the estimate: no count is needed. An outdated estimate costs time, and leaves nothing out.
    WHEN (SELECT c.reltuples BETWEEN 0 AND %(most)s::real / 2 FROM pg_class AS c WHERE c.oid = 'public.embedding'::regclass) THEN 0
    WHEN %(recorded)s::boolean THEN (
        SELECT count(*) FROM (
            SELECT FROM embedding WHERE model = m.model AND kind = 'Analysis' AND known_at <= %(known_until)s
              AND recorded_at <= %(recorded_until)s LIMIT %(most)s + 1
        ) AS counted
    ) ELSE (
        -- An index-only scan, whatever the size of the rows.
        SELECT count(*) FROM (
            SELECT FROM embedding WHERE model = m.model AND kind = 'Analysis' AND known_at <= %(known_until)s LIMIT %(most)s + 1
        ) AS counted
    ) END AS known
    FROM embedding_model AS m WHERE m.in_use
),
own AS MATERIALIZED (
    SELECT g.key FROM unnest(%(keys)s::text[]) AS g (key)
    UNION ALL
    (SELECT h.key FROM record_head AS h
     WHERE %(keys)s::text[] IS NULL AND h.subject_id = %(subject_id)s AND h.kind = 'Analysis' AND h.grp = 'core' AND EXISTS (
         SELECT 1 FROM record_history AS y WHERE y.kind = 'Analysis' AND y.key = h.key AND y.grp = 'core'
           AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s)
     ORDER BY h.occurred_at DESC, h.key LIMIT %(newest)s)
),
several AS MATERIALIZED (
    -- Of records with more than one statement, the one that counts at the moment.
    SELECT DISTINCT ON (x.key) x.key, x.position, x.question FROM embedding AS x
    WHERE x.model = (SELECT s.model FROM space AS s) AND x.kind = 'Analysis' AND NOT x.sole
      AND x.known_at <= %(known_until)s AND x.recorded_at <= %(recorded_until)s
    ORDER BY x.key, x.corrects DESC, CASE WHEN x.corrects THEN x.order_key END DESC, x.order_key, x.question DESC
),
asked AS MATERIALIZED (
    SELECT e.key, e.subject_id, e.vector, row_number() OVER (ORDER BY e.key) AS n FROM embedding AS e
    WHERE e.model = (SELECT s.model FROM space AS s) AND e.kind = 'Analysis' AND e.key IN (SELECT o.key FROM own AS o)
      AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s
      AND (e.sole OR (e.key, e.position, e.question) IN (SELECT v.key, v.position, v.question FROM several AS v))
),
same AS MATERIALIZED (
    SELECT s.subject_id FROM (SELECT DISTINCT a.subject_id FROM asked AS a) AS o
    CROSS JOIN LATERAL imem_same_question_v1(o.subject_id, %(known_until)s, %(recorded_until)s) AS s (subject_id)
),
compared AS MATERIALIZED (
    SELECT e.key, e.subject_id, e.vector <=> (SELECT a.vector FROM asked AS a WHERE a.n = 1) AS first,
        e.vector <=> (SELECT a.vector FROM asked AS a WHERE a.n = 2) AS second,
        e.vector <=> (SELECT a.vector FROM asked AS a WHERE a.n = 3) AS third
    FROM embedding AS e
    WHERE (SELECT s.known <= %(most)s FROM space AS s) AND e.model = (SELECT s.model FROM space AS s) AND e.kind = 'Analysis'
      AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s
      AND (e.sole OR (e.key, e.position, e.question) IN (SELECT v.key, v.position, v.question FROM several AS v))
      AND (e.subject_id IN (SELECT s.subject_id FROM same AS s)) IS NOT TRUE
),
near AS MATERIALIZED (
    SELECT a.key, n.candidate, n.distance FROM asked AS a
    CROSS JOIN LATERAL (
        SELECT t.candidate, t.distance FROM (
            SELECT c.key AS candidate, CASE a.n WHEN 1 THEN c.first WHEN 2 THEN c.second WHEN 3 THEN c.third END AS distance
            FROM compared AS c WHERE c.subject_id IS DISTINCT FROM a.subject_id
            ORDER BY distance FETCH FIRST (%(limit)s) ROWS WITH TIES
        ) AS t
        ORDER BY t.distance, t.candidate LIMIT %(ties)s
    ) AS n
)
SELECT s.model, s.model_id, s.dimension, s.known, o.key, n.candidate, n.distance / s.span AS distance
FROM own AS o LEFT JOIN space AS s ON true LEFT JOIN near AS n ON n.key = o.key
ORDER BY o.key, distance, n.candidate

-- distances --
-- The distance by text of each given pair, as a share of that of unrelated texts.
SELECT p.one, p.other,
    (a.vector <=> b.vector) / (SELECT 1 - unrelated FROM embedding_model WHERE model = %(model)s::smallint) AS distance
FROM unnest(%(ones)s::text[], %(others)s::text[]) AS p (one, other)
JOIN embedding AS a ON a.model = %(model)s::smallint AND a.kind = 'Analysis' AND a.key = p.one AND a.standing
JOIN embedding AS b ON b.model = %(model)s::smallint AND b.kind = 'Analysis' AND b.key = p.other AND b.standing

-- similar_features --
-- The features of analyses beside their text, as of a moment.
SELECT w.key, c.subject_id, coalesce(p.sector, m.sector) AS sector, p.size_class AS size, m.question, m.series_id,
    ARRAY(
        -- By the analysis alone: right after a load, when statistics are old, the index of all claims looks smaller than it is.
        SELECT DISTINCT f.metric FROM (
            SELECT b.kind, b.payload -> 'core' ->> 'metric' AS metric, b.known_at, b.recorded_at FROM event AS b
            WHERE b.analysis_id = w.key OFFSET 0
        ) AS f
        WHERE f.kind = 'record.Finding' AND f.metric IS NOT NULL AND f.known_at <= %(known_until)s AND f.recorded_at <= %(recorded_until)s
    ) AS metrics,
    ARRAY(
        SELECT DISTINCT l.payload ->> 'to_key' FROM event AS l
        WHERE l.kind = 'link.IDENTIFIED_PATTERN' AND l.payload ->> 'from_key' = w.key
          AND l.known_at <= %(known_until)s AND l.recorded_at <= %(recorded_until)s
    ) AS patterns
FROM unnest(%(keys)s::text[]) AS w (key)
JOIN record_head AS c ON c.kind = 'Analysis' AND c.key = w.key AND c.grp = 'core'
LEFT JOIN LATERAL (
    SELECT e.payload -> 'groups' -> 'profile' ->> 'sector' AS sector, e.payload -> 'groups' -> 'profile' ->> 'size_class' AS size_class
    FROM record_history AS y JOIN event AS e ON e.position = y.position
    WHERE c.subject_id LIKE 'company:%%' AND y.kind = 'Company' AND y.key = substr(c.subject_id, length('company:') + 1)
      AND y.grp = 'profile' AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
    ORDER BY y.order_key DESC LIMIT 1
) AS p ON true
LEFT JOIN LATERAL (
    SELECT e.payload -> 'core' ->> 'sector' AS sector, e.payload -> 'core' ->> 'question' AS question,
        e.payload -> 'core' ->> 'series_id' AS series_id
    FROM record_history AS y JOIN event AS e ON e.position = y.position
    WHERE c.subject_id LIKE 'market:%%' AND y.kind = 'Market' AND y.key = substr(c.subject_id, length('market:') + 1)
      AND y.grp IN ('core', 'correction') AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
    ORDER BY y.grp = 'correction' DESC, CASE WHEN y.grp = 'correction' THEN y.order_key END DESC, y.order_key LIMIT 1
) AS m ON true

-- live_builds --
-- The current version of the index, and the one being built.
SELECT b.version, b.model, b.rules, b.state, b.upto, b.source_seq, b.built_at, b.started_at, m.model_id, m.dimension
FROM similarity_build AS b JOIN embedding_model AS m ON m.model = b.model
WHERE b.state IN ('current', 'building') ORDER BY b.version

-- begin_build --
-- Begins a version of the index.
INSERT INTO similarity_build (model, rules, state, source_seq, built_at)
SELECT %(model)s::smallint, %(rules)s, %(state)s, coalesce(max(e.position), 0), CASE WHEN %(state)s = 'current' THEN imem_now() END
FROM event AS e
RETURNING version

-- analyses_to_place --
-- Analyses that have a vector, a page after the given one.
SELECT key FROM embedding
WHERE model = %(model)s::smallint AND kind = 'Analysis' AND standing AND key > %(after)s ORDER BY key LIMIT %(limit)s

-- advance_build --
-- Stores how far a build has come.
UPDATE similarity_build SET upto = %(upto)s, analyses = analyses + %(count)s WHERE version = %(version)s AND state = 'building'

-- abandon_build --
-- Abandons a build whose model or rules are outdated.
UPDATE similarity_build SET state = 'replaced' WHERE version = %(version)s AND state = 'building'

-- swap_build --
-- Retires the current version, in one transaction with swap_build_in and the models' marks, so that readers see one or the
-- other.
UPDATE similarity_build SET state = 'replaced' WHERE state = 'current'

-- swap_build_in --
-- Makes a version the current one.
UPDATE similarity_build SET state = 'current', built_at = imem_now() WHERE version = %(version)s AND state = 'building'

-- swap_model --
-- Takes the model in use out of use.
UPDATE embedding_model SET in_use = false WHERE in_use AND model <> %(model)s::smallint

-- swap_model_in --
-- Puts a model into use.
UPDATE embedding_model SET in_use = true WHERE model = %(model)s::smallint AND NOT in_use

-- derive_swapped --
-- Queues the links of each analysis whose neighbours differ between two versions. Parameters: version, before (or null).
INSERT INTO due_row (queue, kind, key, later)
SELECT DISTINCT 'graph', 'similar_to', coalesce(n.analysis_id, o.analysis_id), true
FROM (SELECT * FROM similar_analysis WHERE version = %(version)s) AS n
FULL JOIN (SELECT * FROM similar_analysis WHERE version = %(before)s) AS o
    ON o.analysis_id = n.analysis_id AND o.neighbour_id = n.neighbour_id
WHERE n.score IS DISTINCT FROM o.score OR n.rank IS DISTINCT FROM o.rank OR n.model_version IS DISTINCT FROM o.model_version

-- prune_lists --
-- Deletes neighbours of replaced versions, a page at a time.
DELETE FROM similar_analysis WHERE ctid = ANY (ARRAY(
    SELECT s.ctid FROM similar_analysis AS s JOIN similarity_build AS b ON b.version = s.version
    WHERE b.state = 'replaced' LIMIT %(limit)s))

-- prune_builds --
-- Deletes replaced versions that hold no neighbours any more.
DELETE FROM similarity_build AS b
WHERE b.state = 'replaced' AND NOT EXISTS (SELECT FROM similar_analysis AS s WHERE s.version = b.version)

-- prune_vectors --
-- Deletes vectors of a model that is not in use and of which no version is built, a page at a time.
DELETE FROM embedding WHERE ctid = ANY (ARRAY(
    SELECT e.ctid FROM embedding AS e
    WHERE e.model = %(model)s::smallint AND EXISTS (SELECT FROM embedding_model AS m WHERE m.model = e.model AND NOT m.in_use)
      AND NOT EXISTS (SELECT FROM similarity_build AS b WHERE b.model = e.model AND b.state IN ('current', 'building'))
    LIMIT %(limit)s))

-- drop_model_index --
-- Drops the index of a model that is not in use any more.
SELECT imem_embedding_drop_v1(%(model)s::smallint)

-- lists_of --
-- The stored neighbours of the given analyses in a version.
SELECT analysis_id, neighbour_id, score FROM similar_analysis
WHERE version = %(version)s AND analysis_id = ANY (%(keys)s::text[]) ORDER BY analysis_id, rank

-- last_of_lists --
-- Of each of the given analyses the neighbour of a rank in a version. Parameters: version, keys, rank.
SELECT analysis_id, neighbour_id, score FROM similar_analysis
WHERE version = %(version)s AND analysis_id = ANY (%(keys)s::text[]) AND rank = %(rank)s

-- lists_containing --
-- Analyses that have one of the given ones as a neighbour in a version.
SELECT analysis_id, neighbour_id FROM similar_analysis
WHERE version = %(version)s AND neighbour_id = ANY (%(keys)s::text[]) ORDER BY analysis_id, neighbour_id

-- delete_lists --
-- Removes the neighbours of the given analyses in a version.
DELETE FROM similar_analysis WHERE version = %(version)s AND analysis_id = ANY (%(keys)s::text[])

-- write_lists --
-- Stores neighbours of analyses in a version.
INSERT INTO similar_analysis (version, analysis_id, neighbour_id, score, rank, model_version)
SELECT %(version)s, n.analysis_id, n.neighbour_id, n.score, n.rank, %(model_version)s
FROM unnest(%(analyses)b::text[], %(neighbours)b::text[], %(scores)b::float8[], %(ranks)b::smallint[])
    AS n (analysis_id, neighbour_id, score, rank)

-- rederive_similar --
-- Queues the links of every analysis, for a rebuilt graph.
INSERT INTO due_row (queue, kind, key, later)
SELECT DISTINCT 'graph', 'similar_to', s.analysis_id, true
FROM similar_analysis AS s JOIN similarity_build AS b ON b.version = s.version
WHERE b.state = 'current'

-- similar_stored --
-- The neighbours of the given analyses in the current version, from a score on, nearest first.
SELECT s.analysis_id, s.neighbour_id, s.score, s.rank, s.model_version, s.built_at
FROM similarity_build AS b JOIN similar_analysis AS s ON s.version = b.version
WHERE b.state = 'current' AND s.analysis_id = ANY (%(keys)s::text[]) AND s.score >= %(min_score)s
ORDER BY s.score DESC, s.neighbour_id, s.analysis_id
