-- search_lock --
-- Waits for the lock under which texts are projected: what is older never replaces what is newer.
SELECT pg_advisory_xact_lock(hashtextextended('imem.search_texts', 0))

-- texts_to_project --
-- The histories of all records whose texts stand in the given places, group by group, with the place of each. Values are JSON as
-- text. Parameters: kinds, keys (arrays, one entry a place), within (kinds of events that stand in their analysis), groups.
WITH wanted AS MATERIALIZED (
    SELECT w.kind || '/' || w.key AS place, w.kind, w.key FROM unnest(%(kinds)s::text[], %(keys)s::text[]) AS w (kind, key)
    UNION
    SELECT w.kind || '/' || w.key, split_part(e.kind, '.', 2), e.record_key
    FROM unnest(%(kinds)s::text[], %(keys)s::text[]) AS w (kind, key)
    JOIN event AS e ON e.analysis_id = w.key AND e.kind = ANY (%(within)s::text[])
    WHERE w.kind = 'Analysis'
    UNION
    SELECT w.kind || '/' || w.key, split_part(e.kind, '.', 2), e.record_key
    FROM unnest(%(kinds)s::text[], %(keys)s::text[]) AS w (kind, key)
    JOIN event AS e ON e.kind IN ('record.DebateResolution', 'record.DebateTurn') AND e.payload -> 'core' ->> 'debate_id' = w.key
    WHERE w.kind = 'Debate'
)
SELECT w.place, w.kind, w.key, y.grp, y.known_at, y.order_key, e.occurred_at, (
    CASE WHEN y.grp IN ('core', 'correction') THEN e.payload -> 'core'
        WHEN y.grp = 'body' THEN to_jsonb(e.body)
        WHEN y.grp = 'turns' THEN (
            SELECT jsonb_agg(jsonb_build_object('number', t.number, 'speaker', t.speaker, 'text', t.text) ORDER BY t.number)
            FROM debate_turn AS t WHERE t.debate_id = y.key AND t.position = y.position)
        ELSE e.payload -> 'groups' -> y.grp END)::text AS value
FROM wanted AS w
JOIN record_history AS y ON y.kind = w.kind AND y.key = w.key AND y.grp = ANY (%(groups)s::text[])
JOIN event AS e ON e.position = y.position
ORDER BY w.place, w.kind, w.key, y.order_key

-- names_of_subjects --
-- From which moment on each of the given subjects had which name: a company by its profile, a question by its core or a correction.
SELECT w.subject_id, y.known_at, coalesce(e.payload #>> '{groups,profile,name}', e.payload #>> '{core,question}') AS name
FROM unnest(%(subjects)s::text[]) AS w (subject_id)
CROSS JOIN LATERAL (VALUES ('company', 'Company'), ('market', 'Market')) AS k (root, kind)
JOIN record_history AS y ON y.kind = k.kind AND y.key = substr(w.subject_id, length(k.root) + 2)
    AND y.grp = ANY (CASE k.kind WHEN 'Company' THEN ARRAY['profile'] ELSE ARRAY['core', 'correction'] END)
JOIN event AS e ON e.position = y.position
WHERE split_part(w.subject_id, ':', 1) = k.root AND coalesce(e.payload #>> '{groups,profile,name}', e.payload #>> '{core,question}') IS NOT NULL
ORDER BY w.subject_id, y.grp = 'correction', y.order_key

-- project_texts --
-- Makes the given rows the texts of some places; see recall.project_texts_v1. Parameters: places, rows (JSON).
SELECT recall.project_texts_v1(%(places)s::text[], %(rows)s::jsonb) AS changed

-- due_of_subjects --
-- Makes all places due in which something is said about the given subjects, but for their own.
INSERT INTO due_row (queue, kind, key, later)
SELECT DISTINCT %(queue)s, split_part(t.place, '/', 1), substr(t.place, strpos(t.place, '/') + 1), true
FROM recall.record_text AS t
WHERE t.subject_id = ANY (%(subjects)s::text[]) AND t.kind NOT IN ('Company', 'Market')

-- texts_to_embed --
-- Texts that have no vector of the given model yet: what has none at all, the newest first, then what is of another.
(SELECT t.id, t.version, t.kind, t.author, t.title, t.content, t.before, recall.row_text_v1(t) AS whole FROM recall.record_text AS t
 WHERE t.model IS NULL ORDER BY t.known_at DESC, t.id, t.version LIMIT %(limit)s)
UNION ALL
(SELECT t.id, t.version, t.kind, t.author, t.title, t.content, t.before, recall.row_text_v1(t) AS whole FROM recall.record_text AS t
 WHERE t.model = ANY (ARRAY(SELECT o.model FROM embedding_model AS o WHERE o.model <> %(model)s::smallint)) LIMIT %(limit)s)
LIMIT %(limit)s

-- set_text_vectors --
-- Stores vectors of texts; see recall.set_text_vectors_v1.
SELECT recall.set_text_vectors_v1(
    %(model)s::smallint, %(ids)s::uuid[], %(versions)s::integer[], %(texts)s::text[], %(vectors)s::text[], %(contexts)s::text[])

-- search_records --
-- Candidates for a query among records, with their raw scores; see recall.search_records_v1. Parameters: kinds, query, model_id,
-- dimension, vector (NULL: by words alone), subject_id (NULL for any), until (NULL: now), candidates (of each list), exact (most texts
-- that are compared one by one).
SELECT id, version, collection, place, ordinal, author, at, occurred_at, words, similarity, context, by_words, by_meaning, by_context, part, unembedded
FROM recall.search_records_v1(
    %(kinds)s::text[], %(query)s,
    (SELECT m.model FROM embedding_model AS m WHERE m.model_id = %(model_id)s AND m.dimension = %(dimension)s),
    %(vector)s::halfvec, %(subject_id)s, %(until)s::timestamptz, %(candidates)s, %(exact)s)

-- record_texts_by_version --
-- The given versions of texts of records, in the given order; shown: of a lesson, how agents see it. Parameters: ids, versions, until
-- (NULL: now).
SELECT t.id, t.version, t.kind, t.key, t.part, t.place, t.subject_id, t.author, t.title, t.content, t.header, t.known_at,
    CASE WHEN t.kind = 'Lesson' THEN imem_lesson_shown_v1(t.key, coalesce(%(until)s::timestamptz, 'infinity'), 'infinity') END AS shown
FROM unnest(%(ids)s::uuid[], %(versions)s::integer[]) WITH ORDINALITY AS w (id, version, nth)
JOIN recall.record_text AS t ON t.id = w.id AND t.version = w.version
ORDER BY w.nth

-- search_waits_since --
-- What a search lacks. since: since when something recorded is not searched yet; NULL if everything is. texts, memories: whether vectors
-- of texts of records, and of memories of the given scopes, are still to be made. Parameters: queue, scopes, model_id, dimension, until
-- (NULL: now).
WITH used AS MATERIALIZED (
    SELECT (SELECT m.model FROM embedding_model AS m WHERE m.model_id = %(model_id)s AND m.dimension = %(dimension)s) AS model
)
SELECT imem_due_since(%(queue)s, '') AS since,
    EXISTS (
        SELECT FROM recall.record_text AS t
        WHERE t.model IS NULL AND t.known_at <= coalesce(%(until)s::timestamptz, 'infinity')
          AND (t.superseded_at IS NULL OR t.superseded_at > %(until)s::timestamptz)
    ) OR EXISTS (
        SELECT FROM recall.record_text AS t
        WHERE t.model = ANY (ARRAY(SELECT o.model FROM embedding_model AS o WHERE o.model IS DISTINCT FROM u.model))
          AND t.known_at <= coalesce(%(until)s::timestamptz, 'infinity')
          AND (t.superseded_at IS NULL OR t.superseded_at > %(until)s::timestamptz)
    ) AS texts,
    recall.memories_wait_v1(%(scopes)s::text[], u.model, %(until)s::timestamptz) AS memories
FROM used AS u
