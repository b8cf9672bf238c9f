-- Texts of records, to be searched by words and by meaning: a projection of the journal, which a pipeline makes and can make again.
--
-- A row is a version of a part of a record's text, as known from known_at until superseded_at: a later correction, or a later name of
-- its subject, is another version. A record of several paragraphs has several parts. Those of an analysis, and those of a debate, stand
-- in one place, each with its ordinal there.
--
-- Bounds: a part has at most 900 characters and a record at most 56 parts (imem.recall.search.texts).

CREATE TABLE recall.record_text (
    id             uuid NOT NULL,
    version        integer NOT NULL CHECK (version > 0),
    kind           text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    part           integer NOT NULL CHECK (part >= 0),
    place          text COLLATE "C" NOT NULL,
    ordinal        integer NOT NULL CHECK (ordinal > 0),
    subject_id     text COLLATE "C",
    author         text,
    title          text NOT NULL,
    content        text NOT NULL,
    before         text NOT NULL,
    header         boolean NOT NULL DEFAULT false,
    occurred_at    timestamptz,
    known_at       timestamptz NOT NULL,
    superseded_at  timestamptz CHECK (superseded_at > known_at),
    words          tsvector NOT NULL GENERATED ALWAYS AS (imem_words_v1(title || ' ' || recall.searched_text_v1(CASE kind WHEN 'Turn' THEN author END, content))) STORED,
    lexemes        integer NOT NULL GENERATED ALWAYS AS (length(imem_words_v1(title || ' ' || recall.searched_text_v1(CASE kind WHEN 'Turn' THEN author END, content)))) STORED,
    model          smallint REFERENCES embedding_model,
    vector         halfvec,
    context_vector halfvec,
    PRIMARY KEY (id, version),
    CHECK (vector IS NULL OR model IS NOT NULL)
) WITH (toast_tuple_target = 8160);
ALTER TABLE recall.record_text ALTER vector SET STORAGE MAIN, ALTER context_vector SET STORAGE MAIN;
CREATE INDEX record_text_place ON recall.record_text (place, ordinal);
CREATE INDEX record_text_subject ON recall.record_text (subject_id, kind);
-- Inserted words wait in the pending list of the index and are merged 256 kB at a time, at half the cost of a row at a time. Every search
-- reads that list: project_texts_v1 and set_text_vectors_v1 clear it before they return.
CREATE INDEX record_text_words ON recall.record_text USING gin (words) WITH (gin_pending_list_limit = 256);
CREATE INDEX record_text_model ON recall.record_text (model);
CREATE INDEX record_text_waiting ON recall.record_text (known_at DESC, id) WHERE model IS NULL;
COMMENT ON TABLE recall.record_text IS 'What records say, part by part, in every version that it had on the known clock.';
COMMENT ON COLUMN recall.record_text.id IS 'Of kind, key and part: it is the same in every version.';
COMMENT ON COLUMN recall.record_text.kind IS 'Of the record; Turn for one of a debate, whose key is the debate and the number.';
COMMENT ON COLUMN recall.record_text.place IS 'The analysis or debate that it is part of, or the record itself, as Kind/key.';
COMMENT ON COLUMN recall.record_text.author IS 'Who said it. Of a turn the name counts among the words, and in the vectors.';
COMMENT ON COLUMN recall.record_text.title IS 'Of the subject, as it was named then: it counts among the words, and in the vector.';
COMMENT ON COLUMN recall.record_text.before IS 'What was said before it in the same record or debate; the context vector is of both. Empty for nothing, and for long texts.';
COMMENT ON COLUMN recall.record_text.header IS 'Whether it names what the texts after it are about and says nothing itself: what is found by it are those, and it is no hit.';
COMMENT ON COLUMN recall.record_text.occurred_at IS 'When it was true in the world, as the record says first.';
COMMENT ON COLUMN recall.record_text.model IS 'Of the vectors; set without a vector where the model refuses the text. NULL until then.';

CREATE TABLE recall.record_text_count (
    kind    text COLLATE "C" PRIMARY KEY,
    texts   bigint NOT NULL,
    lexemes bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE recall.record_text_count IS 'Current versions by kind: how many, and how many different lexemes they have in all. What words weigh follows from both.';

CREATE FUNCTION recall.active_pattern_v1(p_key text, p_until timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp
AS $$
-- Whether a pattern was active as of a moment: what is not stays in quarantine, and no search shows it.
SELECT coalesce((
    SELECT v.value = 'active' FROM pattern_value AS v WHERE v.key = p_key AND v.grp = 'status' AND v.known_at <= p_until
    ORDER BY v.order_key DESC LIMIT 1), false)
$$;

CREATE FUNCTION recall.row_text_v1(p_row recall.record_text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
-- All that the vectors of a row are made of, by which is known whether they are still those of it.
SELECT p_row.title || E'\x1f' || coalesce(p_row.author, '') || E'\x1f' || p_row.content || E'\x1f' || p_row.before
$$;

CREATE FUNCTION recall.project_texts_v1(p_places text[], p_rows jsonb) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Makes p_rows the texts of some places; returns how many rows changed. A row of the same text keeps its vectors. The caller holds the
-- lock of the projection (search_lock), so that what is older never replaces what is newer.
DECLARE
    v_changed integer;
    v_deleted integer;
BEGIN
    UPDATE record_text_count AS c SET texts = c.texts - o.texts, lexemes = c.lexemes - o.lexemes
    FROM (SELECT t.kind, count(*) AS texts, sum(t.lexemes) AS lexemes FROM record_text AS t
          WHERE t.place = ANY (p_places) AND t.superseded_at IS NULL GROUP BY t.kind) AS o
    WHERE c.kind = o.kind;
    DELETE FROM record_text AS t
    WHERE t.place = ANY (p_places) AND NOT EXISTS (
        SELECT FROM jsonb_to_recordset(p_rows) AS g (id uuid, version integer) WHERE g.id = t.id AND g.version = t.version);
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    INSERT INTO record_text AS t (
        id, version, kind, key, part, place, ordinal, subject_id, author, title, content, before, header,
        occurred_at, known_at, superseded_at)
    SELECT g.* FROM jsonb_to_recordset(p_rows) AS g (
        id uuid, version integer, kind text, key text, part integer, place text, ordinal integer, subject_id text, author text,
        title text, content text, before text, header boolean, occurred_at timestamptz, known_at timestamptz, superseded_at timestamptz)
    ORDER BY g.id, g.version
    ON CONFLICT (id, version) DO UPDATE SET
        place = excluded.place, ordinal = excluded.ordinal, subject_id = excluded.subject_id, author = excluded.author,
        title = excluded.title, content = excluded.content, before = excluded.before, header = excluded.header,
        occurred_at = excluded.occurred_at, known_at = excluded.known_at,
        superseded_at = excluded.superseded_at,
        model = CASE WHEN row_text_v1(t) = row_text_v1(excluded) THEN t.model END,
        vector = CASE WHEN row_text_v1(t) = row_text_v1(excluded) THEN t.vector END,
        context_vector = CASE WHEN row_text_v1(t) = row_text_v1(excluded) THEN t.context_vector END
    WHERE (t.place, t.ordinal, t.subject_id, t.author, t.title, t.content, t.before, t.header, t.occurred_at, t.known_at, t.superseded_at) IS DISTINCT FROM
        (excluded.place, excluded.ordinal, excluded.subject_id, excluded.author, excluded.title, excluded.content, excluded.before,
         excluded.header, excluded.occurred_at, excluded.known_at, excluded.superseded_at);
    GET DIAGNOSTICS v_changed = ROW_COUNT;
    INSERT INTO record_text_count AS c (kind, texts, lexemes)
    SELECT t.kind, count(*), sum(t.lexemes) FROM record_text AS t
    WHERE t.place = ANY (p_places) AND t.superseded_at IS NULL GROUP BY t.kind
    ON CONFLICT (kind) DO UPDATE SET texts = c.texts + excluded.texts, lexemes = c.lexemes + excluded.lexemes;
    PERFORM gin_clean_pending_list('record_text_words');
    RETURN v_changed + v_deleted;
END
$$;

CREATE FUNCTION recall.set_text_vectors_v1(
    p_model smallint, p_ids uuid[], p_versions integer[], p_texts text[], p_vectors text[], p_contexts text[]
) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Stores vectors of texts that are still the same. A vector that is NULL: the model refuses the text.
UPDATE record_text AS t SET model = p_model, vector = v.vector::halfvec, context_vector = v.context::halfvec
FROM unnest(p_ids, p_versions, p_texts, p_vectors, p_contexts) AS v (id, version, text, vector, context)
WHERE t.id = v.id AND t.version = v.version AND row_text_v1(t) = v.text;
SELECT gin_clean_pending_list('record_text_words');
$$;

CREATE FUNCTION recall.search_records_v1(
    p_kinds text[], p_query text, p_model smallint, p_vector halfvec, p_subject text, p_until timestamptz, p_most integer, p_exact integer
) RETURNS SETOF recall.text_candidate
LANGUAGE sql STABLE SET search_path = public, pg_temp
AS $$
-- Candidates among the texts of records of some kinds, of one subject where it is given; see recall.search_texts_v1.
SELECT t.* FROM (
    SELECT sum(c.texts) AS texts, sum(c.lexemes) AS lexemes FROM recall.record_text_count AS c WHERE c.kind = ANY (p_kinds)
) AS n CROSS JOIN LATERAL recall.search_texts_v1(
    'record_text', p_kinds, n.texts, n.lexemes, p_query, p_model, p_vector, jsonb_strip_nulls(jsonb_build_object('subject_id', p_subject)),
    p_until, p_most, p_exact) AS t
$$;
