-- Memories: sentences that agents and people keep, each in a namespace, with every version that it had. Schema recall.
--
-- A version is valid from known_at until superseded_at; nothing of it changes but that end. It shows what one of those says who hold the
-- memory; what each of them says is in 30_memory_assertions.sql. Writers of a namespace queue at its row, so that no two of them miss
-- that they say the same. What is read is not counted here, or else every read would write.
--
-- Bounds: content 10,000 characters, metadata 64 KiB of JSON, the value of an item (25_memory_items.sql) 1 MiB, which as JSONB is up to
-- six times as large (lists of short numbers); a memory has a version for each change of its text, metadata or importance.

CREATE SCHEMA recall;

CREATE FUNCTION recall.scopes_v1(p_namespace text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
-- What a search may ask for to find this namespace: itself, and the subtree of each of its ancestors and of its own.
SELECT p_namespace || array_agg(array_to_string(s.segments[:n], '/') || '/*' ORDER BY n)
FROM (SELECT string_to_array(p_namespace, '/') AS segments) AS s CROSS JOIN LATERAL generate_subscripts(s.segments, 1) AS n
$$;

CREATE TABLE recall.memory_namespace (
    namespace text COLLATE "C" PRIMARY KEY CHECK (
        length(namespace) <= 1000
        AND namespace ~ ('^(global|agent/[A-Za-z0-9._-]+|user/[A-Za-z0-9._-]+)(/[A-Za-z0-9._-]+)*$|'
            '^symbol(/[^/\u0001-\u001f"%()*;<>?\[\\\]`{|}\u007f-\u00a0\u2000-\u206f\u3000-\u3003\ufe50-\ufe52\uff0e\uff0f]+)+$')
        AND namespace !~ '(/| ) | (/|$)'
        AND namespace !~ '/[.]+(/|$)'),
    scopes    text[] COLLATE "C" NOT NULL GENERATED ALWAYS AS (recall.scopes_v1(namespace)) STORED,
    memories  bigint NOT NULL DEFAULT 0,
    lexemes   bigint NOT NULL DEFAULT 0,
    consolidated_at timestamptz NOT NULL DEFAULT '-infinity',
    maintained_at   timestamptz NOT NULL DEFAULT '-infinity',
    maintained_to   uuid
) WITH (fillfactor = 50);
COMMENT ON TABLE recall.memory_namespace IS 'One row a namespace; its lock orders those who write there.';
COMMENT ON COLUMN recall.memory_namespace.consolidated_at IS 'What was recorded until then was compared with all of the namespace.';
COMMENT ON COLUMN recall.memory_namespace.maintained_at IS 'When importance decayed last: once a day, however often the pipeline runs.';
COMMENT ON COLUMN recall.memory_namespace.maintained_to IS 'Of a round that goes on, the last memory that had its turn, in the order of ids; NULL between rounds.';
COMMENT ON COLUMN recall.memory_namespace.memories IS 'Of current versions: how many, and how many different lexemes they have in all. What words weigh follows from both.';

CREATE FUNCTION recall.content_hash_v1(p_content text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
-- SHA-256 of a text. Immutable, as convert_to is not for encodings that somebody may define anew; UTF-8 is none of them.
SELECT sha256(convert_to(p_content, 'UTF8'))
$$;

CREATE FUNCTION recall.searched_text_v1(p_author text, p_content text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
-- What words and vectors of a text are made of: the name of who said it stands in front, unless the text begins with it already; the same
-- as imem.recall.memories.parts.searched_text.
SELECT CASE WHEN p_author IS NULL OR starts_with(p_content, p_author || ':') THEN p_content ELSE p_author || ': ' || p_content END
$$;

CREATE TABLE recall.memory (
    id              uuid NOT NULL,
    version         integer NOT NULL CHECK (version > 0),
    namespace       text COLLATE "C" NOT NULL REFERENCES recall.memory_namespace,
    memory_type     text NOT NULL CHECK (memory_type IN ('semantic', 'episodic', 'procedural')),
    content         text NOT NULL CHECK (length(content) <= 10000),
    content_hash    bytea NOT NULL GENERATED ALWAYS AS (recall.content_hash_v1(content)) STORED,
    metadata        jsonb NOT NULL CHECK (jsonb_typeof(metadata) = 'object'),
    importance      double precision NOT NULL CHECK (importance BETWEEN 0 AND 1),
    agent_id        text NOT NULL CHECK (length(agent_id) BETWEEN 1 AND 200),
    user_id         text CHECK (length(user_id) BETWEEN 1 AND 200),
    conversation_id text CHECK (length(conversation_id) BETWEEN 1 AND 200),
    ordinal         integer CHECK (ordinal > 0),
    author          text CHECK (length(author) BETWEEN 1 AND 200),
    occurred_at     timestamptz,
    created_at      timestamptz NOT NULL,
    recorded_at     timestamptz NOT NULL,
    imported_known_at timestamptz,
    known_at        timestamptz NOT NULL GENERATED ALWAYS AS (least(recorded_at, imported_known_at)) STORED,
    superseded_at   timestamptz CHECK (superseded_at > recorded_at),
    superseded_by   uuid,
    reason          text CHECK (length(reason) BETWEEN 1 AND 1000),
    words           tsvector NOT NULL GENERATED ALWAYS AS (imem_words_v1(recall.searched_text_v1(author, content))) STORED,
    lexemes         integer NOT NULL GENERATED ALWAYS AS (length(imem_words_v1(recall.searched_text_v1(author, content)))) STORED,
    model           smallint REFERENCES embedding_model,
    vector          halfvec,
    context_vector  halfvec,
    item_key        text CHECK (length(item_key) <= 1000),
    ttl             interval,
    expires_at      timestamptz,
    PRIMARY KEY (id, version),
    CHECK (item_key IS NOT NULL OR length(content) > 0),
    CHECK (pg_column_size(metadata) <= 8 * CASE WHEN item_key IS NULL THEN 65536 ELSE 1048576 END),
    CHECK ((ttl IS NULL) = (expires_at IS NULL) AND (ttl IS NULL OR item_key IS NOT NULL)),
    CHECK ((conversation_id IS NULL) = (ordinal IS NULL)),
    CHECK ((superseded_at IS NULL) = (reason IS NULL)),
    CHECK ((model IS NULL) = (vector IS NULL))
) WITH (toast_tuple_target = 8160);
-- In the row: what compares the vectors of a namespace must not fetch each from elsewhere.
ALTER TABLE recall.memory ALTER vector SET STORAGE MAIN, ALTER context_vector SET STORAGE MAIN;
CREATE UNIQUE INDEX memory_current ON recall.memory (id) WHERE superseded_at IS NULL;
CREATE UNIQUE INDEX memory_content ON recall.memory (namespace, content_hash, memory_type, coalesce(user_id, ''))
    WHERE superseded_at IS NULL AND item_key IS NULL AND conversation_id IS NULL;
CREATE INDEX memory_conversation ON recall.memory (namespace, conversation_id, ordinal) WHERE conversation_id IS NOT NULL;
CREATE INDEX memory_recorded ON recall.memory (namespace, recorded_at);
CREATE INDEX memory_words ON recall.memory USING gin (words) WITH (fastupdate = off);
CREATE INDEX memory_kinds ON recall.memory (namespace, memory_type, agent_id) WHERE superseded_at IS NULL;
CREATE INDEX memory_ids ON recall.memory (namespace, id) WHERE superseded_at IS NULL;
CREATE INDEX memory_model ON recall.memory (model) WHERE superseded_at IS NULL;
CREATE INDEX memory_superseded_by ON recall.memory (superseded_by) WHERE superseded_by IS NOT NULL;
COMMENT ON TABLE recall.memory IS 'Every version of every memory. A version ends; nothing else of it changes but its vectors. What is left of its importance is in memory_decay.';
COMMENT ON COLUMN recall.memory.agent_id IS 'The actor whose assertion the version shows.';
COMMENT ON COLUMN recall.memory.imported_known_at IS 'When it was known where it comes from, as an import states it; NULL for when it was recorded.';
COMMENT ON COLUMN recall.memory.known_at IS 'Since when a search as of a moment finds it.';
COMMENT ON COLUMN recall.memory.ordinal IS 'Place in its conversation, from 1: what stands before and after it says what it is about.';
COMMENT ON COLUMN recall.memory.author IS 'Who said it, if that is not the one who stored it; the name counts among the words, and in the vectors.';
COMMENT ON COLUMN recall.memory.occurred_at IS 'When it was said, where that was stated; NULL: when it was stored. No bound of what was known: readers see it from known_at on.';
COMMENT ON COLUMN recall.memory.superseded_by IS 'The memory that took its place; NULL where a later version of itself did.';
COMMENT ON COLUMN recall.memory.vector IS 'Of the content, or of a long one of its first part (imem.recall.memories.parts), with the author in front, by the model; NULL until it is made.';
COMMENT ON COLUMN recall.memory.context_vector IS 'Of the message before it in its conversation and the content, or its first part; NULL where it has none before it.';

CREATE TABLE recall.memory_use (
    id               uuid PRIMARY KEY,
    access_count     bigint NOT NULL CHECK (access_count > 0),
    last_accessed_at timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE recall.memory_use IS 'How often a memory was found; apart from it, so that counting rewrites no vectors. Readers add to it in batches, some seconds later.';

-- Rights

CREATE FUNCTION recall.check_writer_v1(p_actor text, p_role text, p_namespace text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
AS $$
-- Refuses to write in a namespace that is not the actor's; the same rules as imem.recall.memories.namespaces.
BEGIN
    IF NOT (p_role IN ('human_admin', 'knowledge_base_agent') OR p_role IN ('agent', 'debate_facilitator') AND (
        starts_with(p_namespace, 'symbol/') OR starts_with(p_namespace, 'user/')
        OR starts_with(p_namespace || '/', 'agent/' || p_actor || '/'))) THEN
        RAISE EXCEPTION '% (%) may not write memories in %', p_actor, p_role, p_namespace USING ERRCODE = 'insufficient_privilege';
    END IF;
END
$$;

-- Vectors

CREATE FUNCTION recall.text_model_v1(p_model_id text, p_dimension integer, p_unrelated double precision) RETURNS smallint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- The number of a model, which is registered, with indexes of the vectors that it makes of memories and of records' texts. Those hold
-- current versions alone; as of a day every vector is compared.
DECLARE
    v_model smallint;
    v_table text;
    v_column text;
BEGIN
    SELECT m.model INTO v_model FROM embedding_model AS m WHERE m.model_id = p_model_id AND m.dimension = p_dimension;
    IF FOUND AND to_regclass('recall.record_text_context_vector_hnsw_' || v_model) IS NOT NULL THEN
        RETURN v_model;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('imem.embedding_index', 0));
    INSERT INTO embedding_model (model_id, dimension, unrelated, in_use)
    VALUES (p_model_id, p_dimension, p_unrelated, NOT EXISTS (SELECT FROM embedding_model WHERE in_use))
    ON CONFLICT (model_id, dimension) DO NOTHING;
    SELECT m.model INTO v_model FROM embedding_model AS m WHERE m.model_id = p_model_id AND m.dimension = p_dimension;
    FOREACH v_table IN ARRAY ARRAY['memory', 'memory_part', 'record_text'] LOOP
        FOREACH v_column IN ARRAY CASE v_table WHEN 'memory_part' THEN ARRAY['vector'] ELSE ARRAY['vector', 'context_vector'] END LOOP
            EXECUTE format(
                'CREATE INDEX IF NOT EXISTS %I ON recall.%I USING hnsw ((%I::halfvec(%s)) halfvec_cosine_ops) '
                'WITH (m = 16, ef_construction = 64) WHERE model = %s AND superseded_at IS NULL AND %I IS NOT NULL',
                v_table || '_' || v_column || '_hnsw_' || v_model, v_table, v_column, p_dimension, v_model, v_column);
        END LOOP;
    END LOOP;
    RETURN v_model;
END
$$;

CREATE FUNCTION recall.drop_unused_indexes_v1(p_model smallint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
-- It gives up early, so that no queue of readers builds up behind it; the next run tries again.
SET lock_timeout = '2s'
AS $$
-- Drops the indexes of models other than p_model of which no text that is searched has a vector any more; returns how many it dropped.
DECLARE
    v_index regclass;
    v_dropped integer := 0;
BEGIN
    FOR v_index IN
        SELECT i.indexrelid::regclass FROM embedding_model AS m
        JOIN pg_class AS c ON c.relname ~ ('^(memory|memory_part|record_text)_(context_)?vector_hnsw_' || m.model || '$')
        JOIN pg_index AS i ON i.indexrelid = c.oid AND i.indrelid IN (
            'recall.memory'::regclass, 'recall.memory_part'::regclass, 'recall.record_text'::regclass)
        WHERE m.model <> p_model AND NOT EXISTS (SELECT FROM recall.memory AS o WHERE o.model = m.model AND o.superseded_at IS NULL)
          AND NOT EXISTS (SELECT FROM recall.record_text AS t WHERE t.model = m.model)
        ORDER BY 1
    LOOP
        EXECUTE format('DROP INDEX %s', v_index);
        v_dropped := v_dropped + 1;
    END LOOP;
    RETURN v_dropped;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END
$$;

-- Search, in memories and in the texts of records (21_search.sql): tables of the columns that are read here, by the same names but for
-- three. Which those are, and that all of a table's rows may be shown, is said here alone.

CREATE TYPE recall.text_candidate AS (
    id uuid, version integer, collection text, place text, ordinal integer, author text, at timestamptz, occurred_at timestamptz,
    words double precision, similarity double precision, context double precision, by_words boolean, by_meaning boolean, by_context boolean, part integer, unembedded bigint);
COMMENT ON TYPE recall.text_candidate IS 'A text that may answer a query, with its raw scores. similarity and context are cosines, of a memory those of its best part, which part is; NULL where there is no vector. unembedded: how many of the candidates have none.';

CREATE FUNCTION recall.text_condition_v1(p_table text, p_equal jsonb, p_until timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
-- What rows m of a table are searched, as SQL: of the collections $1, those with the values $2 of other columns (null: none), as of $3 (current ones
-- for NULL). Of memories, is_item says whether they are items of LangGraph's store, is_message (false) leaves out messages, and exact and
-- value say what the value of an item has to match (recall.filter_parts_v1). Of patterns those that are active then, and of lessons those
-- that agents see then; as of a moment, by the journal.
SELECT format('m.%I = ANY ($1)', CASE p_table WHEN 'record_text' THEN 'kind' ELSE 'namespace' END)
    || CASE WHEN p_until IS NULL THEN ' AND m.superseded_at IS NULL'
        ELSE ' AND m.known_at <= $3 AND (m.superseded_at IS NULL OR m.superseded_at > $3)' END
    || coalesce((SELECT string_agg(
                    format(CASE e.value WHEN 'null' THEN ' AND m.%1$I IS NULL' ELSE ' AND m.%1$I = $2 ->> %1$L' END, e.name), '' ORDER BY e.name)
                 FROM jsonb_each(p_equal) AS e (name, value) WHERE e.name NOT IN ('is_item', 'is_message', 'exact', 'value')), '')
    || CASE p_equal ->> 'is_item' WHEN 'true' THEN ' AND m.item_key IS NOT NULL' WHEN 'false' THEN ' AND m.item_key IS NULL' ELSE '' END
    || CASE p_equal ->> 'is_message' WHEN 'false' THEN ' AND m.conversation_id IS NULL' ELSE '' END
    || CASE WHEN p_equal ? 'exact' THEN ' AND m.metadata @> ($2 -> ''exact'')' ELSE '' END
    || CASE WHEN p_equal ? 'value' THEN ' AND recall.matches_v1(m.metadata, $2 -> ''value'')' ELSE '' END
    || CASE WHEN p_table <> 'record_text' THEN ' AND (m.expires_at IS NULL OR m.expires_at > coalesce($3, imem_now()))'
        ELSE ' AND (m.kind <> ''Pattern'' OR recall.active_pattern_v1(m.key, coalesce($3, ''infinity'')))'
            ' AND (m.kind <> ''Lesson'' OR imem_lesson_shown_v1(m.key, coalesce($3, ''infinity''), ''infinity'') IS NOT NULL)' END
$$;

CREATE FUNCTION recall.nearest_texts_v1(
    p_table text, p_column text, p_collections text[], p_model smallint, p_vector halfvec, p_equal jsonb, p_until timestamptz,
    p_limit integer, p_by_index boolean
) RETURNS TABLE (id uuid, version integer, similarity double precision)
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
SET hnsw.ef_search = 100
SET hnsw.iterative_scan = 'relaxed_order'
SET hnsw.max_scan_tuples = 20000
SET jit = off
AS $$
-- The texts of some collections whose vectors of one column are nearest to p_vector, by cosine: exactly, or by the index, which must
-- leave out few. p_until: versions as of a moment, NULL for the current ones.
DECLARE
    v_dimension integer := (SELECT m.dimension FROM embedding_model AS m WHERE m.model = p_model);
    v_distance text := CASE WHEN p_by_index THEN format('m.%I::halfvec(%s) <=> $4::halfvec(%s)', p_column, v_dimension, v_dimension)
        ELSE format('m.%I <=> $4', p_column) END;
BEGIN
    IF p_vector IS NULL OR p_model IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT m.id, m.version, 1 - (%1$s) FROM recall.%2$I AS m WHERE m.model = %3$s AND m.%4$I IS NOT NULL AND %5$s '
        'ORDER BY %1$s %6$s LIMIT $5',
        v_distance, p_table, p_model, p_column, recall.text_condition_v1(p_table, p_equal, p_until),
        CASE WHEN p_by_index THEN '' ELSE ', m.id' END)
    USING p_collections, p_equal, p_until, p_vector, p_limit;
END
$$;

CREATE FUNCTION recall.search_texts_v1(
    p_table text, p_collections text[], p_texts double precision, p_lexemes double precision, p_query text, p_model smallint,
    p_vector halfvec, p_equal jsonb, p_until timestamptz, p_most integer, p_exact integer
) RETURNS SETOF recall.text_candidate
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
SET jit = off
AS $$
-- Candidates for a query in a table: the p_most best by words, by their vectors and by those of their contexts, and the neighbours of
-- each in its place. Up to p_exact texts are compared one by one, more of them by the index. p_texts, p_lexemes: how many current texts
-- the collections have, and how many different lexemes those have in all. p_equal: values of other columns.
--
-- Words count as in BM25 (Robertson and Zaragoza 2009, k1 1.2, b 0.6) with each term once; nothing of the query is syntax. How rare a
-- word is, is judged among all texts of the collections, whatever else the search leaves out.
DECLARE
    v_texts double precision := p_texts;
    v_lexemes double precision := p_lexemes;
    v_terms tsquery[];
    v_any tsquery;
    v_held bigint[];
    v_by_index boolean;
    v_few boolean := false;
    v_place text := CASE p_table WHEN 'memory' THEN 'conversation_id' ELSE 'place' END;
    v_said text := CASE p_table WHEN 'memory' THEN 'coalesce(m.occurred_at, m.created_at)' ELSE 'coalesce(m.occurred_at, m.known_at)' END;
    v_same_place text := CASE p_table WHEN 'memory' THEN 'm.namespace = o.namespace AND m.conversation_id = o.conversation_id'
        ELSE 'm.place = o.place' END;
    v_collection text := CASE p_table WHEN 'memory' THEN 'namespace' ELSE 'kind' END;
    v_of_all text := recall.text_condition_v1(p_table, '{}', p_until);
    v_wanted text := recall.text_condition_v1(p_table, p_equal, p_until);
BEGIN
    IF p_until IS NOT NULL THEN
        EXECUTE format('SELECT count(*), sum(m.lexemes) FROM recall.%I AS m WHERE %s', p_table, v_of_all)
        INTO v_texts, v_lexemes USING p_collections, p_equal, p_until;
    END IF;
    v_by_index := p_until IS NULL AND v_texts > p_exact;
    IF p_equal <> '{}' AND v_texts > p_exact THEN
        EXECUTE format(
            'SELECT $4 >= (SELECT count(*) FROM (SELECT FROM recall.%I AS m WHERE %s LIMIT $4 + 1) AS counted)', p_table, v_wanted)
        INTO v_few USING p_collections, p_equal, p_until, p_exact;
        -- The index would look at very many to find those few.
        v_by_index := v_by_index AND NOT v_few;
    END IF;
    v_terms := imem_terms_v1(p_query);
    IF v_texts > p_exact THEN
        -- How many hold each term, as far as that matters: what more than a tenth of very many hold says little, and to score all of
        -- those would take most of the time. Where few texts are wanted, these alone are scored.
        EXECUTE format(
            'SELECT array_agg(h.term ORDER BY h.nth), array_agg(h.held ORDER BY h.nth) FROM ('
            'SELECT t.term, t.nth, (SELECT count(*) FROM (SELECT FROM recall.%I AS m WHERE %s AND m.words @@ t.term LIMIT $5) AS l) AS held '
            'FROM unnest($4) WITH ORDINALITY AS t (term, nth)) AS h WHERE $6 OR h.held < $5',
            p_table, v_of_all)
        INTO v_terms, v_held USING p_collections, p_equal, p_until, v_terms, greatest(p_exact, v_texts / 10)::bigint, v_few;
        v_terms := coalesce(v_terms, '{}');
    END IF;
    v_any := array_to_string(v_terms, ' | ')::tsquery;
    RETURN QUERY EXECUTE format($search$
        WITH matched AS MATERIALIZED (
            SELECT m.id, m.version, m.words, m.lexemes, %3$s AS wanted FROM recall.%1$I AS m
            WHERE %2$s AND m.words @@ $8
        ), hit AS MATERIALIZED (
            SELECT x.id, x.version, x.lexemes, x.wanted, t.nth FROM matched AS x
            CROSS JOIN unnest($7) WITH ORDINALITY AS t (term, nth) WHERE x.words @@ t.term
        ), rarity AS MATERIALIZED (
            SELECT g.nth, ln(1 + greatest($9 - g.held + 0.5, 0.5) / (g.held + 0.5)) AS idf
            FROM (SELECT h.nth, coalesce($14[h.nth], count(*)) AS held FROM hit AS h GROUP BY h.nth) AS g
        ), said AS MATERIALIZED (
            SELECT h.id, h.version,
                sum(r.idf * 2.2 / (1 + 1.2 * (0.4 + 0.6 * h.lexemes * $9 / greatest($10, 1))) ORDER BY h.nth) AS score
            FROM hit AS h JOIN rarity AS r ON r.nth = h.nth WHERE h.wanted GROUP BY h.id, h.version
        ), near AS MATERIALIZED (
            SELECT n.* FROM recall.nearest_texts_v1($13, 'vector', $1, $11, $4, $2, $3, $5, $12) AS n
            UNION ALL SELECT n.* FROM recall.nearest_texts_v1('part_of_memory', 'vector', $1, $11, $4, $2, $3, $5, $12) AS n WHERE $13 = 'memory'
        ), alike AS MATERIALIZED (
            SELECT n.* FROM recall.nearest_texts_v1($13, 'context_vector', $1, $11, $4, $2, $3, $5, $12) AS n
        ), listed AS MATERIALIZED (
            SELECT l.id, l.version, bool_or(l.list = 1) AS by_words, bool_or(l.list = 2) AS by_meaning, bool_or(l.list = 3) AS by_context
            FROM (
                (SELECT s.id, s.version, 1 AS list FROM said AS s ORDER BY s.score DESC, s.id LIMIT $5)
                UNION ALL SELECT n.id, n.version, 2 FROM near AS n
                UNION ALL SELECT a.id, a.version, 3 FROM alike AS a
            ) AS l GROUP BY l.id, l.version
        ), united AS MATERIALIZED (
            SELECT u.id, u.version, bool_or(u.by_words) AS by_words, bool_or(u.by_meaning) AS by_meaning, bool_or(u.by_context) AS by_context
            FROM (
                SELECT * FROM listed
                UNION ALL
                SELECT m.id, m.version, false, false, false FROM listed AS l
                JOIN recall.%1$I AS o ON o.id = l.id AND o.version = l.version
                JOIN recall.%1$I AS m ON %6$s AND m.ordinal IN (o.ordinal - 1, o.ordinal + 1)
                WHERE %3$s
            ) AS u GROUP BY u.id, u.version
        )
        SELECT m.id, m.version, m.%4$I::text, m.%5$I::text, m.ordinal, m.author, m.known_at, %7$s, coalesce(s.score, 0),
            CASE WHEN m.model = $11 THEN greatest(1 - (m.vector <=> $4), p.similarity) END,
            CASE WHEN m.model = $11 THEN greatest(1 - (coalesce(m.context_vector, m.vector) <=> $4), p.similarity) END,
            u.by_words, u.by_meaning, u.by_context, CASE WHEN m.model IS DISTINCT FROM $11 THEN 0 WHEN p.similarity > 1 - (m.vector <=> $4) THEN p.part ELSE 0 END,
            (SELECT count(*) FROM united AS w JOIN recall.%1$I AS o ON o.id = w.id AND o.version = w.version
             WHERE o.model IS NULL OR o.model IS DISTINCT FROM $11)
        FROM united AS u JOIN recall.%1$I AS m ON m.id = u.id AND m.version = u.version
        LEFT JOIN said AS s ON s.id = u.id AND s.version = u.version
        LEFT JOIN LATERAL (
            SELECT o.part, 1 - (o.vector <=> $4) AS similarity FROM recall.memory_part AS o
            WHERE $13 = 'memory' AND o.id = u.id AND o.version = u.version AND o.model = $11 ORDER BY 2 DESC, 1 LIMIT 1) AS p ON true
        $search$, p_table, CASE WHEN v_held IS NULL THEN v_of_all ELSE v_wanted END, v_wanted, v_collection, v_place, v_same_place,
        v_said)
    USING p_collections, p_equal, p_until, p_vector, p_most, p_exact, v_terms, v_any, v_texts, v_lexemes, p_model, v_by_index, p_table,
        v_held;
END
$$;

CREATE FUNCTION recall.filter_parts_v1(p_filter jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
-- A filter of items in two: exact, which a value has to contain and is compared fast, and value, for recall.matches_v1; neither if empty.
SELECT coalesce(jsonb_object_agg(p.name, p.part), '{}') FROM (
    SELECT CASE WHEN jsonb_typeof(f.value) IN ('string', 'number', 'boolean') THEN 'exact' ELSE 'value' END, jsonb_object_agg(f.key, f.value)
    FROM jsonb_each(p_filter) AS f GROUP BY 1) AS p (name, part)
$$;

CREATE FUNCTION recall.search_memories_v1(
    p_scopes text[], p_query text, p_model smallint, p_vector halfvec, p_type text, p_agent text, p_conversation text,
    p_until timestamptz, p_most integer, p_exact integer, p_items boolean, p_filter jsonb
) RETURNS SETOF recall.text_candidate
LANGUAGE sql STABLE SET search_path = public, pg_temp
AS $$
-- Candidates among the memories of some namespaces; see recall.search_texts_v1.
SELECT t.* FROM (
    SELECT array_agg(s.namespace) AS namespaces, sum(s.memories) AS memories, sum(s.lexemes) AS lexemes
    FROM recall.memory_namespace AS s WHERE s.scopes && p_scopes
) AS n CROSS JOIN LATERAL recall.search_texts_v1(
    'memory', n.namespaces, n.memories, n.lexemes, p_query, p_model, p_vector,
    jsonb_strip_nulls(jsonb_build_object(
        'memory_type', p_type, 'agent_id', p_agent, 'conversation_id', p_conversation, 'is_item', p_items))
    || recall.filter_parts_v1(p_filter),
    p_until, p_most, p_exact) AS t
$$;

-- Accesses

CREATE FUNCTION recall.count_accesses_v1(p_ids uuid[], p_counts bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Adds to how often memories were found; in the order of ids, so that two readers wait for, and never block, one another.
INSERT INTO memory_use AS u (id, access_count, last_accessed_at)
SELECT f.id, f.n, imem_now() FROM unnest(p_ids, p_counts) AS f (id, n)
WHERE EXISTS (SELECT FROM memory AS m WHERE m.id = f.id) ORDER BY f.id
ON CONFLICT (id) DO UPDATE
SET access_count = u.access_count + excluded.access_count, last_accessed_at = greatest(u.last_accessed_at, excluded.last_accessed_at)
$$;
