-- Memories: sentences that agents and people keep, each in a namespace, with every version that it had. Schema recall.
--
-- A version is valid from recorded_at until superseded_at; nothing of it changes but that end. Writers of a namespace queue at its row,
-- so that no two of them miss that they say the same. What is read is not counted here, or else every read would write.
--
-- Bounds: content 10,000 characters; a memory has a version for each change of its text, metadata or importance.

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
        length(namespace) <= 300 AND namespace ~ '^(global|agent/[A-Za-z0-9._-]+|symbol/[A-Za-z0-9._-]+|user/[A-Za-z0-9._-]+)(/[A-Za-z0-9._-]+)*$'),
    scopes    text[] COLLATE "C" NOT NULL GENERATED ALWAYS AS (recall.scopes_v1(namespace)) STORED,
    memories  bigint NOT NULL DEFAULT 0,
    lexemes   bigint NOT NULL DEFAULT 0,
    consolidated_at timestamptz NOT NULL DEFAULT '-infinity',
    maintained_at   timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
COMMENT ON TABLE recall.memory_namespace IS 'One row a namespace; its lock orders those who write there.';
COMMENT ON COLUMN recall.memory_namespace.consolidated_at IS 'What was recorded until then was compared with all of the namespace.';
COMMENT ON COLUMN recall.memory_namespace.maintained_at IS 'When importance decayed last: once a day, however often the pipeline runs.';
COMMENT ON COLUMN recall.memory_namespace.memories IS 'Of current versions: how many, and how many different lexemes they have in all. What words weigh follows from both.';

CREATE FUNCTION recall.content_hash_v1(p_content text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
-- SHA-256 of a text. Immutable, as convert_to is not for encodings that somebody may define anew; UTF-8 is none of them.
SELECT sha256(convert_to(p_content, 'UTF8'))
$$;

CREATE TABLE recall.memory (
    id              uuid NOT NULL,
    version         integer NOT NULL CHECK (version > 0),
    namespace       text COLLATE "C" NOT NULL REFERENCES recall.memory_namespace,
    memory_type     text NOT NULL CHECK (memory_type IN ('semantic', 'episodic', 'procedural')),
    content         text NOT NULL CHECK (length(content) BETWEEN 1 AND 10000),
    content_hash    bytea NOT NULL GENERATED ALWAYS AS (recall.content_hash_v1(content)) STORED,
    metadata        jsonb NOT NULL CHECK (jsonb_typeof(metadata) = 'object' AND pg_column_size(metadata) <= 65536),
    importance      double precision NOT NULL CHECK (importance BETWEEN 0 AND 1),
    agent_id        text NOT NULL CHECK (length(agent_id) BETWEEN 1 AND 200),
    user_id         text CHECK (length(user_id) BETWEEN 1 AND 200),
    conversation_id text CHECK (length(conversation_id) BETWEEN 1 AND 200),
    ordinal         integer CHECK (ordinal > 0),
    author          text CHECK (length(author) BETWEEN 1 AND 200),
    created_at      timestamptz NOT NULL,
    recorded_at     timestamptz NOT NULL,
    superseded_at   timestamptz CHECK (superseded_at > recorded_at),
    superseded_by   uuid,
    reason          text CHECK (length(reason) BETWEEN 1 AND 1000),
    words           tsvector NOT NULL GENERATED ALWAYS AS (to_tsvector('english', content)) STORED,
    lexemes         integer NOT NULL GENERATED ALWAYS AS (length(to_tsvector('english', content))) STORED,
    model           smallint REFERENCES embedding_model,
    vector          halfvec,
    context_vector  halfvec,
    PRIMARY KEY (id, version),
    CHECK ((conversation_id IS NULL) = (ordinal IS NULL)),
    CHECK ((superseded_at IS NULL) = (reason IS NULL)),
    CHECK ((model IS NULL) = (vector IS NULL))
) WITH (toast_tuple_target = 8160);
-- In the row: what compares the vectors of a namespace must not fetch each from elsewhere.
ALTER TABLE recall.memory ALTER vector SET STORAGE MAIN, ALTER context_vector SET STORAGE MAIN;
CREATE UNIQUE INDEX memory_current ON recall.memory (id) WHERE superseded_at IS NULL;
CREATE UNIQUE INDEX memory_content ON recall.memory (namespace, content_hash) WHERE superseded_at IS NULL;
CREATE INDEX memory_conversation ON recall.memory (namespace, conversation_id, ordinal) WHERE conversation_id IS NOT NULL;
CREATE INDEX memory_recorded ON recall.memory (namespace, recorded_at);
CREATE INDEX memory_words ON recall.memory USING gin (words) WITH (fastupdate = off);
CREATE INDEX memory_kinds ON recall.memory (namespace, memory_type, agent_id) WHERE superseded_at IS NULL;
CREATE INDEX memory_model ON recall.memory (model) WHERE superseded_at IS NULL;
CREATE INDEX memory_superseded_by ON recall.memory (superseded_by) WHERE superseded_by IS NOT NULL;
COMMENT ON TABLE recall.memory IS 'Every version of every memory. A version ends; nothing else of it changes but its vectors, and its importance, which decays in place.';
COMMENT ON COLUMN recall.memory.agent_id IS 'The actor that stored the version.';
COMMENT ON COLUMN recall.memory.ordinal IS 'Place in its conversation, from 1: what stands before and after it says what it is about.';
COMMENT ON COLUMN recall.memory.author IS 'Who said it, if that is not the one who stored it.';
COMMENT ON COLUMN recall.memory.superseded_by IS 'The memory that took its place; NULL where a later version of itself did.';
COMMENT ON COLUMN recall.memory.vector IS 'Of the content, by the model; NULL until it is made.';
COMMENT ON COLUMN recall.memory.context_vector IS 'Of the message before it in its conversation and the content; NULL where it has none before it.';

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

CREATE FUNCTION recall.memory_model_v1(p_model_id text, p_dimension integer, p_unrelated double precision) RETURNS smallint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- The number of a model, which is registered, with indexes of the vectors that it makes of memories. Those hold current versions alone;
-- as of a day every vector is compared.
DECLARE
    v_model smallint;
    v_column text;
BEGIN
    SELECT m.model INTO v_model FROM embedding_model AS m WHERE m.model_id = p_model_id AND m.dimension = p_dimension;
    IF FOUND AND to_regclass('recall.memory_context_vector_hnsw_' || v_model) IS NOT NULL THEN
        RETURN v_model;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('imem.embedding_index', 0));
    INSERT INTO embedding_model (model_id, dimension, unrelated, in_use)
    VALUES (p_model_id, p_dimension, p_unrelated, NOT EXISTS (SELECT FROM embedding_model WHERE in_use))
    ON CONFLICT (model_id, dimension) DO NOTHING;
    SELECT m.model INTO v_model FROM embedding_model AS m WHERE m.model_id = p_model_id AND m.dimension = p_dimension;
    FOREACH v_column IN ARRAY ARRAY['vector', 'context_vector'] LOOP
        EXECUTE format(
            'CREATE INDEX IF NOT EXISTS %I ON recall.memory USING hnsw ((%I::halfvec(%s)) halfvec_cosine_ops) '
            'WITH (m = 16, ef_construction = 64) WHERE model = %s AND superseded_at IS NULL AND %I IS NOT NULL',
            'memory_' || v_column || '_hnsw_' || v_model, v_column, p_dimension, v_model, v_column);
    END LOOP;
    RETURN v_model;
END
$$;

CREATE FUNCTION recall.nearest_memories_v1(
    p_column text, p_namespaces text[], p_model smallint, p_vector halfvec, p_type text, p_agent text, p_conversation text,
    p_until timestamptz, p_limit integer, p_by_index boolean
) RETURNS TABLE (id uuid, version integer, similarity double precision)
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
SET hnsw.ef_search = 100
SET hnsw.iterative_scan = 'relaxed_order'
SET hnsw.max_scan_tuples = 20000
SET jit = off
AS $$
-- The memories of some namespaces whose vectors of one column are nearest to p_vector, by cosine: exactly, or by the index, which must
-- leave out few. p_until: versions as of a moment, NULL for the current ones.
DECLARE
    v_dimension integer := (SELECT m.dimension FROM embedding_model AS m WHERE m.model = p_model);
    v_distance text := CASE WHEN p_by_index THEN format('m.%I::halfvec(%s) <=> $1::halfvec(%s)', p_column, v_dimension, v_dimension)
        ELSE format('m.%I <=> $1', p_column) END;
BEGIN
    IF p_vector IS NULL OR p_model IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT m.id, m.version, 1 - (%1$s) FROM recall.memory AS m WHERE m.model = %2$s AND m.%3$I IS NOT NULL '
        'AND m.namespace = ANY ($2) AND %4$s AND ($4::text IS NULL OR m.memory_type = $4) AND ($5::text IS NULL OR m.agent_id = $5) '
        'AND ($6::text IS NULL OR m.conversation_id = $6) ORDER BY %1$s %5$s LIMIT $7',
        v_distance, p_model, p_column,
        CASE WHEN p_until IS NULL THEN 'm.superseded_at IS NULL'
            ELSE 'm.recorded_at <= $3 AND (m.superseded_at IS NULL OR m.superseded_at > $3)' END,
        CASE WHEN p_by_index THEN '' ELSE ', m.id' END)
    USING p_vector, p_namespaces, p_until, p_type, p_agent, p_conversation, p_limit;
END
$$;

-- Search

CREATE FUNCTION recall.search_memories_v1(
    p_scopes text[], p_query text, p_model smallint, p_vector halfvec, p_type text, p_agent text, p_conversation text,
    p_until timestamptz, p_most integer, p_exact integer
) RETURNS TABLE (
    id uuid, version integer, namespace text, conversation_id text, ordinal integer, author text, words double precision,
    similarity double precision, context double precision, by_words boolean, by_meaning boolean, by_context boolean, unembedded bigint)
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
SET jit = off
AS $$
-- Candidates for a query, with their raw scores: the p_most best by words, by their vectors and by those of their contexts, and the
-- neighbours of each in its conversation. similarity and context are cosines, NULL where there is no vector. unembedded: how many of
-- those searched have none. Up to p_exact memories are compared one by one, more of them by the index.
--
-- Words count as in BM25 (Robertson and Zaragoza 2009, k1 1.2, b 0.6) with each term once; nothing of the query is syntax. How rare a
-- word is, is judged among all memories of the namespaces, whatever else the search leaves out.
#variable_conflict use_column
DECLARE
    v_namespaces text[];
    v_memories double precision;
    v_lexemes double precision;
    v_terms tsquery[];
    v_any tsquery;
    v_by_index boolean;
    v_when text := CASE WHEN p_until IS NULL THEN 'm.superseded_at IS NULL'
        ELSE 'm.recorded_at <= $3 AND (m.superseded_at IS NULL OR m.superseded_at > $3)' END;
BEGIN
    SELECT array_agg(s.namespace), sum(s.memories), sum(s.lexemes) INTO v_namespaces, v_memories, v_lexemes
    FROM recall.memory_namespace AS s WHERE s.scopes && p_scopes;
    IF p_until IS NOT NULL THEN
        SELECT count(*), sum(m.lexemes) INTO v_memories, v_lexemes FROM recall.memory AS m
        WHERE m.namespace = ANY (v_namespaces) AND m.recorded_at <= p_until AND (m.superseded_at IS NULL OR m.superseded_at > p_until);
    END IF;
    v_by_index := p_until IS NULL AND v_memories > p_exact;
    IF v_by_index AND num_nonnulls(p_type, p_agent, p_conversation) > 0 THEN
        -- The index would look at very many to find those few.
        v_by_index := p_exact < (
            SELECT count(*) FROM (
                SELECT FROM recall.memory AS m
                WHERE m.namespace = ANY (v_namespaces) AND m.superseded_at IS NULL AND (p_type IS NULL OR m.memory_type = p_type)
                  AND (p_agent IS NULL OR m.agent_id = p_agent) AND (p_conversation IS NULL OR m.conversation_id = p_conversation)
                LIMIT p_exact + 1
            ) AS counted);
    END IF;
    -- A backslash would be one of tsquery's own.
    v_terms := ARRAY(
        SELECT quote_literal(replace(l.lexeme, '\', ''))::tsquery FROM unnest(to_tsvector('english', p_query)) AS l
        WHERE replace(l.lexeme, '\', '') <> '' ORDER BY l.positions[1], l.lexeme LIMIT 64);
    IF v_memories > p_exact THEN
        -- What more than a tenth of very many hold says little, and to score all of those would take most of the time.
        EXECUTE format($common$
            SELECT array_agg(t.term ORDER BY t.nth) FROM unnest($1) WITH ORDINALITY AS t (term, nth)
            WHERE $4 > (SELECT count(*) FROM (
                SELECT FROM recall.memory AS m WHERE m.namespace = ANY ($2) AND %s AND m.words @@ t.term LIMIT $4) AS held)
            $common$, v_when)
        INTO v_terms USING v_terms, v_namespaces, p_until, greatest(p_exact, v_memories / 10)::bigint;
        v_terms := coalesce(v_terms, '{}');
    END IF;
    v_any := array_to_string(v_terms, ' | ')::tsquery;
    RETURN QUERY EXECUTE format($search$
        WITH matched AS MATERIALIZED (
            SELECT m.id, m.version, m.words, m.lexemes,
                ($4::text IS NULL OR m.memory_type = $4) AND ($5::text IS NULL OR m.agent_id = $5)
                AND ($6::text IS NULL OR m.conversation_id = $6) AS wanted
            FROM recall.memory AS m WHERE m.namespace = ANY ($2) AND %1$s AND m.words @@ $9
        ), hit AS MATERIALIZED (
            SELECT x.id, x.version, x.lexemes, x.wanted, t.nth FROM matched AS x
            CROSS JOIN unnest($8) WITH ORDINALITY AS t (term, nth) WHERE x.words @@ t.term
        ), rarity AS MATERIALIZED (
            SELECT h.nth, ln(1 + greatest($10 - count(*) + 0.5, 0.5) / (count(*) + 0.5)) AS idf FROM hit AS h GROUP BY h.nth
        ), said AS MATERIALIZED (
            SELECT h.id, h.version,
                sum(r.idf * 2.2 / (1 + 1.2 * (0.4 + 0.6 * h.lexemes * $10 / greatest($11, 1))) ORDER BY h.nth) AS score
            FROM hit AS h JOIN rarity AS r ON r.nth = h.nth WHERE h.wanted GROUP BY h.id, h.version
        ), near AS MATERIALIZED (
            SELECT n.* FROM recall.nearest_memories_v1('vector', $2, $12, $1, $4, $5, $6, $3, $7, $13) AS n
        ), alike AS MATERIALIZED (
            SELECT n.* FROM recall.nearest_memories_v1('context_vector', $2, $12, $1, $4, $5, $6, $3, $7, $13) AS n
        ), listed AS MATERIALIZED (
            SELECT l.id, l.version, bool_or(l.list = 1) AS by_words, bool_or(l.list = 2) AS by_meaning, bool_or(l.list = 3) AS by_context
            FROM (
                (SELECT s.id, s.version, 1 AS list FROM said AS s ORDER BY s.score DESC, s.id LIMIT $7)
                UNION ALL SELECT n.id, n.version, 2 FROM near AS n
                UNION ALL SELECT a.id, a.version, 3 FROM alike AS a
            ) AS l GROUP BY l.id, l.version
        ), united AS MATERIALIZED (
            SELECT u.id, u.version, bool_or(u.by_words) AS by_words, bool_or(u.by_meaning) AS by_meaning, bool_or(u.by_context) AS by_context
            FROM (
                SELECT * FROM listed
                UNION ALL
                SELECT m.id, m.version, false, false, false FROM listed AS l
                JOIN recall.memory AS o ON o.id = l.id AND o.version = l.version
                JOIN recall.memory AS m ON m.namespace = o.namespace AND m.conversation_id = o.conversation_id
                    AND m.ordinal IN (o.ordinal - 1, o.ordinal + 1)
                WHERE %1$s AND ($4::text IS NULL OR m.memory_type = $4) AND ($5::text IS NULL OR m.agent_id = $5)
            ) AS u GROUP BY u.id, u.version
        )
        SELECT m.id, m.version, m.namespace, m.conversation_id, m.ordinal, m.author, coalesce(s.score, 0),
            CASE WHEN m.model = $12 THEN 1 - (m.vector <=> $1) END,
            CASE WHEN m.model = $12 THEN 1 - (coalesce(m.context_vector, m.vector) <=> $1) END,
            u.by_words, u.by_meaning, u.by_context,
            (SELECT count(*) FROM united AS w JOIN recall.memory AS o ON o.id = w.id AND o.version = w.version WHERE o.model IS NULL OR o.model IS DISTINCT FROM $12)
        FROM united AS u JOIN recall.memory AS m ON m.id = u.id AND m.version = u.version
        LEFT JOIN said AS s ON s.id = u.id AND s.version = u.version
        $search$, v_when)
    USING p_vector, v_namespaces, p_until, p_type, p_agent, p_conversation, p_most, v_terms, v_any, v_memories, v_lexemes, p_model,
        v_by_index;
END
$$;

-- Storing

CREATE FUNCTION recall.figures_v1(p_content text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
-- The figures of a text: two that differ in them alone are two memories.
SELECT ARRAY(SELECT f.found[1] FROM regexp_matches(p_content, '[0-9]+(?:[.,][0-9]+)*', 'g') AS f (found) ORDER BY 1)
$$;

CREATE FUNCTION recall.store_memory_v1(
    p_actor text, p_role text, p_id uuid, p_namespace text, p_type text, p_content text, p_metadata jsonb, p_importance double precision,
    p_user_id text, p_conversation_id text, p_author text, p_model smallint, p_vector halfvec, p_context_vector halfvec, p_before uuid,
    p_similar double precision, p_exact integer
) RETURNS TABLE (status text, id uuid, version integer, recorded_at timestamptz, waits boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Stores a memory. status: new; updated (the namespace has one of the same text, or more than p_similar similar with the same figures,
-- which has a new version now); identical (that would change nothing, nothing was written). p_before: the message that the context
-- vector was made with. waits: a vector is missing, and is due.
#variable_conflict use_column
DECLARE
    v_known memory;
    v_before uuid;
    v_metadata jsonb;
BEGIN
    PERFORM check_writer_v1(p_actor, p_role, p_namespace);
    INSERT INTO memory_namespace (namespace) VALUES (p_namespace) ON CONFLICT (namespace) DO NOTHING;
    PERFORM FROM memory_namespace AS s WHERE s.namespace = p_namespace FOR UPDATE;
    SELECT * INTO v_known FROM memory AS m
    WHERE m.namespace = p_namespace AND m.content_hash = content_hash_v1(p_content) AND m.superseded_at IS NULL;
    IF NOT FOUND AND p_vector IS NOT NULL THEN
        SELECT m.* INTO v_known
        FROM nearest_memories_v1(
            'vector', ARRAY[p_namespace], p_model, p_vector, NULL, NULL, NULL, NULL, 10,
            p_exact < (SELECT s.memories FROM memory_namespace AS s WHERE s.namespace = p_namespace)) AS n
        JOIN memory AS m ON m.id = n.id AND m.version = n.version
        JOIN embedding_model AS e ON e.model = p_model
        WHERE (n.similarity - e.unrelated) / (1 - e.unrelated) > p_similar AND figures_v1(m.content) = figures_v1(p_content)
          AND m.memory_type = p_type
        ORDER BY n.similarity DESC, m.id LIMIT 1;
    END IF;
    IF v_known.id IS NOT NULL THEN
        v_metadata := v_known.metadata || p_metadata;
        IF v_known.content = p_content AND v_metadata = v_known.metadata AND p_importance <= v_known.importance THEN
            RETURN QUERY SELECT 'identical', v_known.id, v_known.version, v_known.recorded_at, v_known.vector IS NULL;
            RETURN;
        END IF;
        RETURN QUERY SELECT 'updated', r.* FROM replace_memory_v1(
            v_known, v_known.id, p_actor, p_content, v_metadata, greatest(v_known.importance, p_importance), p_model, p_vector,
            -- The context of the text as it stands now is made later.
            NULL, 'Stored again.') AS r;
        RETURN;
    END IF;
    IF p_conversation_id IS NOT NULL THEN
        SELECT m.* INTO v_known FROM memory AS m
        WHERE m.namespace = p_namespace AND m.conversation_id = p_conversation_id ORDER BY m.ordinal DESC LIMIT 1;
        v_before := v_known.id;
    END IF;
    RETURN QUERY
    INSERT INTO memory AS m (
        id, version, namespace, memory_type, content, metadata, importance, agent_id, user_id, conversation_id, ordinal, author,
        created_at, recorded_at, model, vector, context_vector)
    VALUES (
        p_id, 1, p_namespace, p_type, p_content, p_metadata, p_importance, p_actor, p_user_id, p_conversation_id,
        CASE WHEN p_conversation_id IS NOT NULL THEN coalesce(v_known.ordinal, 0) + 1 END, p_author, imem_now(), imem_now(),
        CASE WHEN p_vector IS NOT NULL THEN p_model END, p_vector, CASE WHEN p_before = v_before THEN p_context_vector END)
    RETURNING 'new', m.id, m.version, m.recorded_at,
        p_vector IS NULL OR v_before IS NOT NULL AND (p_context_vector IS NULL OR p_before IS DISTINCT FROM v_before);
    UPDATE memory_namespace AS s SET memories = s.memories + 1, lexemes = s.lexemes + length(to_tsvector('english', p_content))
    WHERE s.namespace = p_namespace;
    IF p_vector IS NULL OR v_before IS NOT NULL AND (p_context_vector IS NULL OR p_before IS DISTINCT FROM v_before) THEN
        INSERT INTO due_row (queue, kind, key) VALUES ('memories', 'Memory', p_id::text);
    END IF;
END
$$;

CREATE FUNCTION recall.replace_memory_v1(
    p_known recall.memory, p_id uuid, p_actor text, p_content text, p_metadata jsonb, p_importance double precision, p_model smallint,
    p_vector halfvec, p_context_vector halfvec, p_reason text
) RETURNS TABLE (id uuid, version integer, recorded_at timestamptz, waits boolean)
LANGUAGE plpgsql SET search_path = recall, public, pg_temp
AS $$
-- Ends the current version of a memory and puts another in its place: its next version, or, under another id, another memory. The
-- caller holds the lock of the namespace and has checked the rights.
#variable_conflict use_column
DECLARE
    -- Never before the version that it ends, even where the clock was set back.
    v_now timestamptz := greatest(imem_now(), p_known.recorded_at + interval '1 microsecond');
    v_same boolean := p_content = p_known.content AND p_known.vector IS NOT NULL;
    v_version integer := CASE WHEN p_id = p_known.id THEN p_known.version + 1 ELSE 1 END;
BEGIN
    UPDATE memory AS m SET superseded_at = v_now, superseded_by = CASE WHEN p_id <> p_known.id THEN p_id END, reason = p_reason
    WHERE m.id = p_known.id AND m.version = p_known.version;
    INSERT INTO memory (
        id, version, namespace, memory_type, content, metadata, importance, agent_id, user_id, conversation_id, ordinal, author,
        created_at, recorded_at, model, vector, context_vector)
    VALUES (
        p_id, v_version, p_known.namespace, p_known.memory_type, p_content, p_metadata, p_importance, p_actor, p_known.user_id,
        p_known.conversation_id, p_known.ordinal, p_known.author, CASE WHEN p_id = p_known.id THEN p_known.created_at ELSE v_now END, v_now,
        CASE WHEN v_same THEN p_known.model WHEN p_vector IS NOT NULL THEN p_model END, CASE WHEN v_same THEN p_known.vector ELSE p_vector END,
        CASE WHEN v_same THEN p_known.context_vector ELSE p_context_vector END);
    UPDATE memory_namespace AS s
    SET lexemes = s.lexemes - p_known.lexemes + length(to_tsvector('english', p_content)) WHERE s.namespace = p_known.namespace;
    waits := NOT v_same AND (p_vector IS NULL OR p_known.conversation_id IS NOT NULL AND p_context_vector IS NULL);
    IF waits THEN
        INSERT INTO due_row (queue, kind, key) VALUES ('memories', 'Memory', p_id::text);
    END IF;
    id := p_id;
    version := v_version;
    recorded_at := v_now;
    RETURN NEXT;
END
$$;

CREATE FUNCTION recall.supersede_memory_v1(
    p_actor text, p_role text, p_known uuid, p_id uuid, p_content text, p_metadata jsonb, p_importance double precision, p_model smallint,
    p_vector halfvec, p_reason text
) RETURNS TABLE (status text, id uuid, version integer, recorded_at timestamptz, waits boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Puts a memory of another text in the place of one that it contradicts. status: superseded; identical (this was done already); absent
-- (there is none of that id); ended (another took its place already: id, version and recorded_at are the last of that one); taken
-- (another memory of the namespace has that text: id). Only the first writes.
#variable_conflict use_column
DECLARE
    v_known memory;
    v_other memory;
BEGIN
    SELECT m.* INTO v_known FROM memory AS m WHERE m.id = p_known ORDER BY m.version DESC LIMIT 1;
    IF NOT FOUND THEN
        status := 'absent';
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM check_writer_v1(p_actor, p_role, v_known.namespace);
    PERFORM FROM memory_namespace AS s WHERE s.namespace = v_known.namespace FOR UPDATE;
    SELECT m.* INTO v_known FROM memory AS m WHERE m.id = p_known ORDER BY m.version DESC LIMIT 1;
    IF v_known.superseded_at IS NOT NULL THEN
        SELECT m.* INTO v_other FROM memory AS m WHERE m.id = v_known.superseded_by ORDER BY m.version DESC LIMIT 1;
        RETURN QUERY SELECT CASE WHEN v_other.content = p_content THEN 'identical' ELSE 'ended' END, v_other.id, v_other.version,
            v_other.recorded_at, v_other.vector IS NULL;
        RETURN;
    END IF;
    SELECT m.* INTO v_other FROM memory AS m
    WHERE m.namespace = v_known.namespace AND m.content_hash = content_hash_v1(p_content) AND m.superseded_at IS NULL;
    IF FOUND THEN
        RETURN QUERY SELECT 'taken', v_other.id, v_other.version, v_other.recorded_at, v_other.vector IS NULL;
        RETURN;
    END IF;
    RETURN QUERY SELECT 'superseded', r.* FROM replace_memory_v1(
        v_known, p_id, p_actor, p_content, p_metadata, coalesce(p_importance, v_known.importance), p_model, p_vector, NULL, p_reason) AS r;
END
$$;

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

CREATE FUNCTION recall.set_vectors_v1(p_model smallint, p_ids uuid[], p_versions integer[], p_vectors text[], p_contexts text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Stores vectors that were made later, of versions that are still there.
UPDATE memory AS m SET model = p_model, vector = n.vector::halfvec, context_vector = n.context::halfvec
FROM unnest(p_ids, p_versions, p_vectors, p_contexts) AS n (id, version, vector, context)
WHERE m.id = n.id AND m.version = n.version
$$;

-- Consolidation and decay, of the pipelines alone

CREATE FUNCTION recall.merge_memories_v1(p_keep uuid, p_others uuid[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Makes one memory of several that say the same: p_keep gets a version with the highest importance and the metadata of all, and the
-- others are superseded by it. False, with nothing written, where one of them has ended meanwhile.
#variable_conflict use_column
DECLARE
    v_keep memory;
    v_now timestamptz;
BEGIN
    PERFORM FROM memory_namespace AS s JOIN memory AS m ON m.namespace = s.namespace
    WHERE m.id = p_keep AND m.superseded_at IS NULL FOR UPDATE OF s;
    SELECT * INTO v_keep FROM memory AS m WHERE m.id = p_keep AND m.superseded_at IS NULL;
    IF v_keep.id IS NULL OR cardinality(p_others) <> (
        SELECT count(*) FROM memory AS m
        WHERE m.id = ANY (p_others) AND m.superseded_at IS NULL AND m.namespace = v_keep.namespace
    ) THEN
        RETURN false;
    END IF;
    -- All of them end when the next version begins.
    SELECT r.recorded_at INTO v_now FROM replace_memory_v1(
        v_keep, p_keep, v_keep.agent_id, v_keep.content,
        (SELECT jsonb_object_agg(t.key, t.value ORDER BY m.id = p_keep, m.importance, m.id) FROM memory AS m CROSS JOIN jsonb_each(m.metadata) AS t
         WHERE m.id = ANY (p_others || p_keep) AND m.superseded_at IS NULL),
        (SELECT max(m.importance) FROM memory AS m WHERE m.id = ANY (p_others || p_keep) AND m.superseded_at IS NULL),
        v_keep.model, v_keep.vector, v_keep.context_vector, 'Merged with others that say nearly the same.') AS r;
    UPDATE memory_namespace AS s SET memories = s.memories - o.memories, lexemes = s.lexemes - o.lexemes
    FROM (SELECT count(*) AS memories, sum(m.lexemes) AS lexemes FROM memory AS m
          WHERE m.id = ANY (p_others) AND m.superseded_at IS NULL) AS o
    WHERE s.namespace = v_keep.namespace;
    UPDATE memory AS m
    SET superseded_at = greatest(v_now, m.recorded_at + interval '1 microsecond'), superseded_by = p_keep, reason = 'Merged: another says nearly the same.'
    WHERE m.id = ANY (p_others) AND m.superseded_at IS NULL;
    INSERT INTO memory_use AS u (id, access_count, last_accessed_at)
    SELECT p_keep, sum(o.access_count), max(o.last_accessed_at) FROM memory_use AS o WHERE o.id = ANY (p_others) HAVING count(*) > 0
    ON CONFLICT (id) DO UPDATE
    SET access_count = u.access_count + excluded.access_count, last_accessed_at = greatest(u.last_accessed_at, excluded.last_accessed_at);
    RETURN true;
END
$$;

CREATE FUNCTION recall.maintain_memories_v1(
    p_namespace text, p_unused interval, p_decay double precision, p_least double precision, p_age interval, p_accesses bigint
) RETURNS TABLE (decayed bigint, deleted bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Lets the importance of memories decay that no search found for p_unused, never found ones included, and deletes, with their versions,
-- those below p_least that are older than p_age and were found less than p_accesses times. Once a day: again on the same day it does
-- nothing. A deletion takes what was superseded within the memory itself; what it superseded of others stays.
#variable_conflict use_column
DECLARE
    v_now timestamptz := imem_now();
BEGIN
    UPDATE memory_namespace AS s SET maintained_at = v_now WHERE s.namespace = p_namespace AND s.maintained_at < v_now - interval '20 hours';
    IF NOT FOUND THEN
        RETURN QUERY SELECT 0::bigint, 0::bigint;
        RETURN;
    END IF;
    UPDATE memory AS m SET importance = m.importance * p_decay
    WHERE m.namespace = p_namespace AND m.superseded_at IS NULL AND m.importance > p_least
      AND coalesce((SELECT u.last_accessed_at FROM memory_use AS u WHERE u.id = m.id), m.created_at) < v_now - p_unused;
    GET DIAGNOSTICS decayed = ROW_COUNT;
    WITH gone AS MATERIALIZED (
        SELECT m.id, m.lexemes FROM memory AS m LEFT JOIN memory_use AS u ON u.id = m.id
        WHERE m.namespace = p_namespace AND m.superseded_at IS NULL AND m.importance < p_least AND m.created_at < v_now - p_age
          AND coalesce(u.access_count, 0) < p_accesses
    ), versions AS (
        DELETE FROM memory AS m USING gone AS g WHERE m.id = g.id
    ), uses AS (
        DELETE FROM memory_use AS u USING gone AS g WHERE u.id = g.id
    ), counted AS (
        UPDATE memory_namespace AS s SET memories = s.memories - (SELECT count(*) FROM gone),
            lexemes = s.lexemes - (SELECT coalesce(sum(g.lexemes), 0) FROM gone AS g)
        WHERE s.namespace = p_namespace
    )
    SELECT count(*) INTO deleted FROM gone;
    RETURN NEXT;
END
$$;
