-- Assertions: which actors say what a memory says (20_memories.sql). And all writes of memories but items: stored, superseded, retired,
-- deleted.
--
-- Each actor that stores a text holds it by an assertion of its own: its words, metadata and importance, for as long as it says so. A
-- memory lives until its last assertion ends. Its versions show one assertion: the first of a person, or else the first. An actor ends its
-- own assertions, in shared namespaces these alone; people alone end those of people.
--
-- Bounds: an actor has one current assertion of a memory, and an earlier one for each of its changes.

CREATE TABLE recall.memory_assertion (
    assertion     bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    id            uuid NOT NULL,
    actor         text NOT NULL CHECK (length(actor) BETWEEN 1 AND 200),
    by_person     boolean NOT NULL,
    content       text NOT NULL CHECK (length(content) BETWEEN 1 AND 10000),
    content_hash  bytea NOT NULL GENERATED ALWAYS AS (recall.content_hash_v1(content)) STORED,
    author        text CHECK (length(author) BETWEEN 1 AND 200),
    metadata      jsonb NOT NULL CHECK (jsonb_typeof(metadata) = 'object' AND pg_column_size(metadata) <= 8 * 65536),
    importance    double precision NOT NULL CHECK (importance BETWEEN 0 AND 1),
    said_at       timestamptz NOT NULL,
    recorded_at   timestamptz NOT NULL,
    ended_at      timestamptz CHECK (ended_at > recorded_at),
    superseded_by uuid,
    reason        text CHECK (length(reason) BETWEEN 1 AND 1000),
    CHECK ((ended_at IS NULL) = (reason IS NULL))
);
CREATE UNIQUE INDEX memory_assertion_current ON recall.memory_assertion (id, actor, by_person) WHERE ended_at IS NULL;
CREATE INDEX memory_assertion_id ON recall.memory_assertion (id);
CREATE INDEX memory_assertion_content ON recall.memory_assertion (content_hash) WHERE ended_at IS NULL;
CREATE INDEX memory_assertion_superseded_by ON recall.memory_assertion (superseded_by) WHERE superseded_by IS NOT NULL;
COMMENT ON TABLE recall.memory_assertion IS 'Who holds a memory, from recorded_at until ended_at, and what the actor says in it.';
COMMENT ON COLUMN recall.memory_assertion.id IS 'The memory.';
COMMENT ON COLUMN recall.memory_assertion.by_person IS 'Whether the actor is a person: a name alone does not say it.';
COMMENT ON COLUMN recall.memory_assertion.content IS 'The actor''s own words: those of the memory, or nearly those.';
COMMENT ON COLUMN recall.memory_assertion.said_at IS 'Since when the actor has held the memory without a break; who said it first follows from it.';
COMMENT ON COLUMN recall.memory_assertion.superseded_by IS 'The memory in which the actor says something else instead.';

-- Rights

CREATE FUNCTION recall.may_end_v1(p_actor text, p_role text, p_namespace text, p_holder text, p_by_person boolean) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
-- Whether an actor that may write in a namespace may end the assertion of p_holder there.
SELECT p_role = 'human_admin' OR NOT p_by_person AND (
    p_role = 'knowledge_base_agent' OR p_holder = p_actor OR starts_with(p_namespace, 'agent/'))
$$;

CREATE FUNCTION recall.may_delete_v1(p_actor text, p_role text, p_namespace text, p_id uuid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = recall, pg_catalog, pg_temp
AS $$
-- Whether an actor that may write in a namespace may delete a memory there: whoever may end all that was ever said in it. Items have no
-- assertions: elsewhere than in its own namespace an agent deletes those that nobody else put.
SELECT NOT EXISTS (
        SELECT FROM memory_assertion AS a WHERE a.id = p_id AND NOT may_end_v1(p_actor, p_role, p_namespace, a.actor, a.by_person))
    AND NOT EXISTS (SELECT FROM memory AS m WHERE m.id = p_id AND NOT may_end_v1(p_actor, p_role, p_namespace, m.agent_id, false))
$$;

-- Assertions

CREATE FUNCTION recall.next_moment_v1(p_id uuid) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = recall, public, pg_temp
AS $$
-- Now, or, where the clock was set back, just after whatever of a memory was recorded last.
SELECT greatest(
    imem_now(), (SELECT max(m.recorded_at) + interval '1 microsecond' FROM memory AS m WHERE m.id = p_id),
    (SELECT max(a.recorded_at) + interval '1 microsecond' FROM memory_assertion AS a WHERE a.id = p_id))
$$;

CREATE FUNCTION recall.assert_memory_v1(
    p_id uuid, p_actor text, p_by_person boolean, p_content text, p_author text, p_metadata jsonb, p_importance double precision,
    p_now timestamptz, p_reason text
) RETURNS void
LANGUAGE plpgsql SET search_path = recall, public, pg_temp
AS $$
-- Makes this what an actor says in a memory from p_now on; p_reason: why it ends what the actor said in it before.
DECLARE
    v_said_at timestamptz;
BEGIN
    UPDATE memory_assertion AS a SET ended_at = p_now, reason = p_reason
    WHERE a.id = p_id AND a.actor = p_actor AND a.by_person = p_by_person AND a.ended_at IS NULL RETURNING a.said_at INTO v_said_at;
    INSERT INTO memory_assertion (id, actor, by_person, content, author, metadata, importance, said_at, recorded_at)
    VALUES (p_id, p_actor, p_by_person, p_content, p_author, p_metadata, p_importance, coalesce(v_said_at, p_now), p_now);
END
$$;

CREATE FUNCTION recall.holder_v1(
    p_namespace text, p_type text, p_user_id text, p_conversation_id text, p_content text, p_author text
) RETURNS SETOF recall.memory
LANGUAGE sql STABLE SET search_path = recall, public, pg_temp
AS $$
-- The current memory of a namespace, type, user and conversation in which somebody says exactly this; of a conversation, the last message of
-- that author, NULL in p_author for none.
SELECT m.* FROM memory_assertion AS a JOIN memory AS m ON m.id = a.id AND m.superseded_at IS NULL
WHERE a.content_hash = content_hash_v1(p_content) AND a.ended_at IS NULL AND m.namespace = p_namespace AND m.item_key IS NULL
  AND m.memory_type = p_type AND coalesce(m.user_id, '') = coalesce(p_user_id, '')
  AND m.conversation_id IS NOT DISTINCT FROM p_conversation_id AND (p_conversation_id IS NULL OR m.author IS NOT DISTINCT FROM p_author)
ORDER BY m.ordinal DESC, m.id LIMIT 1
$$;

-- Versions

CREATE FUNCTION recall.replace_memory_v1(
    p_known recall.memory, p_id uuid, p_shown recall.memory_assertion, p_now timestamptz, p_model smallint, p_vector halfvec, p_parts json,
    p_reason text, p_stays boolean DEFAULT false
) RETURNS TABLE (id uuid, version integer, recorded_at timestamptz, waits boolean)
LANGUAGE plpgsql SET search_path = recall, public, pg_temp
AS $$
-- Ends the current version of a memory at p_now and puts another in its place that shows an assertion: its next version, or, under
-- another id, another memory, beside which it stays if p_stays. A text that the memory had before keeps its vectors. The caller holds
-- the lock of the namespace and has checked the rights.
#variable_conflict use_column
DECLARE
    v_version integer := CASE WHEN p_id = p_known.id THEN p_known.version + 1 ELSE 1 END;
    v_before memory;
BEGIN
    IF NOT p_stays THEN
        UPDATE memory AS m SET superseded_at = p_now, superseded_by = CASE WHEN p_id <> p_known.id THEN p_id END, reason = p_reason
        WHERE m.id = p_known.id AND m.version = p_known.version;
    END IF;
    -- Read as it is now: its vectors, and those of its parts, may have been made anew since the caller read it.
    SELECT m.* INTO v_before FROM memory AS m
    WHERE m.id = p_known.id AND m.content = p_shown.content AND m.author IS NOT DISTINCT FROM p_shown.author AND m.vector IS NOT NULL
    ORDER BY m.version DESC LIMIT 1;
    INSERT INTO memory (
        id, version, namespace, memory_type, content, metadata, importance, agent_id, user_id, conversation_id, ordinal, author,
        occurred_at, created_at, recorded_at, model, vector, context_vector)
    VALUES (
        p_id, v_version, p_known.namespace, p_known.memory_type, p_shown.content, p_shown.metadata, p_shown.importance, p_shown.actor,
        p_known.user_id, p_known.conversation_id, p_known.ordinal, p_shown.author,
        p_known.occurred_at, CASE WHEN p_id = p_known.id THEN p_known.created_at ELSE p_now END, p_now,
        CASE WHEN v_before.id IS NOT NULL THEN v_before.model WHEN p_vector IS NOT NULL THEN p_model END,
        CASE WHEN v_before.id IS NOT NULL THEN v_before.vector ELSE p_vector END, v_before.context_vector);
    PERFORM add_parts_v1(p_id, v_version, v_before.id, v_before.version, p_parts);
    UPDATE memory_namespace AS s
    SET lexemes = s.lexemes - CASE WHEN p_stays THEN 0 ELSE p_known.lexemes END + length(imem_words_v1(searched_text_v1(p_shown.author, p_shown.content))),
        memories = s.memories + p_stays::integer
    WHERE s.namespace = p_known.namespace;
    waits := v_before.id IS NULL AND (p_vector IS NULL OR p_known.conversation_id IS NOT NULL);
    IF waits THEN
        INSERT INTO due_row (queue, kind, key) VALUES ('memories', 'Memory', p_id::text);
    END IF;
    id := p_id;
    version := v_version;
    recorded_at := p_now;
    RETURN NEXT;
END
$$;

CREATE FUNCTION recall.show_memory_v1(
    p_id uuid, p_now timestamptz, p_model smallint, p_vector halfvec, p_parts json, p_reason text
) RETURNS TABLE (id uuid, version integer, recorded_at timestamptz, waits boolean)
LANGUAGE plpgsql SET search_path = recall, public, pg_temp
AS $$
-- Makes the current version of a memory show the assertion that comes first, or ends it where there is none. The vectors are of the text
-- that the caller stores, which need not be the one that is shown.
#variable_conflict use_column
DECLARE
    v_known memory;
    v_shown memory_assertion;
    v_given boolean;
BEGIN
    SELECT m.* INTO v_known FROM memory AS m WHERE m.id = p_id AND m.superseded_at IS NULL;
    SELECT a.* INTO v_shown FROM memory_assertion AS a WHERE a.id = p_id AND a.ended_at IS NULL
    ORDER BY a.by_person DESC, a.said_at, a.assertion LIMIT 1;
    IF v_shown.id IS NULL THEN
        UPDATE memory AS m SET superseded_at = p_now, reason = p_reason WHERE m.id = p_id AND m.version = v_known.version;
        UPDATE memory_namespace AS s SET memories = s.memories - 1, lexemes = s.lexemes - v_known.lexemes WHERE s.namespace = v_known.namespace;
    ELSIF (v_shown.actor, v_shown.content, v_shown.author, v_shown.metadata, v_shown.importance)
          IS DISTINCT FROM (v_known.agent_id, v_known.content, v_known.author, v_known.metadata, v_known.importance) THEN
        v_given := v_shown.recorded_at = p_now;
        RETURN QUERY SELECT * FROM replace_memory_v1(
            v_known, p_id, v_shown, p_now, p_model, CASE WHEN v_given THEN p_vector END, CASE WHEN v_given THEN p_parts END, p_reason);
        RETURN;
    END IF;
    RETURN QUERY SELECT v_known.id, v_known.version, v_known.recorded_at, v_known.vector IS NULL;
END
$$;

-- Storing

CREATE FUNCTION recall.store_memory_v1(
    p_actor text, p_role text, p_id uuid, p_namespace text, p_type text, p_content text, p_metadata jsonb, p_importance double precision,
    p_user_id text, p_conversation_id text, p_author text, p_occurred_at timestamptz, p_model smallint, p_vector halfvec, p_parts json, p_context_vector halfvec,
    p_before uuid, p_similar double precision, p_exact integer, p_imported boolean, p_created_at timestamptz, p_known_at timestamptz,
    p_most bigint
) RETURNS TABLE (status text, id uuid, version integer, recorded_at timestamptz, waits boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Stores a memory. status: new; updated (the actor said the same, or what is more than p_similar similar (difference_similarity_v1), in a
-- memory of the namespace, of the same type and user, and now says this; or a person did so first, and the memory shows that); identical (the actor says that already, or somebody else
-- does, whose memory the actor now holds as well); full (the actor's metadata together are too large); crowded (it would be
-- a new one, and the namespace has p_most). The last two write nothing. A message of a conversation is the same as one of that text and author there, and never similar to another;
-- an imported one is a message of its own. p_before: the message that the context vector was made with. waits: a vector is missing, and is due. p_imported: p_id says where it comes from; what the actor
-- imported once is identical, whatever became of it, and what the actor said before comes first. p_created_at: when it was stored there;
-- p_known_at: since when it was known to say this. p_occurred_at: when it was said; of what was said before, the date of the first time stays.
#variable_conflict use_column
DECLARE
    v_known memory;
    v_own memory_assertion;
    v_other uuid;
    v_before uuid;
    v_metadata jsonb;
    v_importance double precision;
    v_shown boolean;
    v_now timestamptz;
    v_by_person boolean := p_role = 'human_admin';
BEGIN
    PERFORM check_writer_v1(p_actor, p_role, p_namespace);
    INSERT INTO memory_namespace (namespace) VALUES (p_namespace) ON CONFLICT (namespace) DO NOTHING;
    PERFORM FROM memory_namespace AS s WHERE s.namespace = p_namespace FOR UPDATE;
    IF p_imported THEN
        -- What another actor imported from there says nothing of what this one does, unless it is the same.
        IF EXISTS (SELECT FROM memory AS m WHERE m.id = p_id) AND NOT EXISTS (
            SELECT FROM memory_assertion AS a WHERE a.id = p_id AND a.actor = p_actor AND a.by_person = v_by_person) THEN
            v_other := p_id;
            p_id := encode(substring(content_hash_v1(concat_ws(E'\n', p_id, p_actor, v_by_person)) FOR 16), 'hex')::uuid;
        END IF;
        SELECT * INTO v_known FROM memory AS m WHERE m.id = p_id ORDER BY m.version DESC LIMIT 1;
        IF FOUND THEN
            RETURN QUERY SELECT 'identical', v_known.id, v_known.version, v_known.recorded_at, v_known.vector IS NULL;
            RETURN;
        END IF;
        SELECT m.* INTO v_known FROM memory AS m WHERE m.id = v_other AND m.superseded_at IS NULL AND EXISTS (
            SELECT FROM memory_assertion AS a WHERE a.id = m.id AND a.ended_at IS NULL AND a.content = p_content);
    END IF;
    IF v_known.id IS NULL AND (p_conversation_id IS NULL OR NOT p_imported) THEN
        SELECT * INTO v_known FROM holder_v1(p_namespace, p_type, p_user_id, p_conversation_id, p_content, p_author);
    END IF;
    IF v_known.id IS NULL AND p_conversation_id IS NULL AND p_vector IS NOT NULL THEN
        SELECT m.* INTO v_known
        FROM nearest_texts_v1(
            'memory', 'vector', ARRAY[p_namespace], p_model, p_vector,
            jsonb_build_object('memory_type', p_type, 'user_id', p_user_id, 'is_item', false, 'is_message', false), NULL,
            -- Which say the same is known of those found alone: of some that differ in their figures, one may.
            50,
            p_exact < (SELECT s.memories FROM memory_namespace AS s WHERE s.namespace = p_namespace)) AS n
        JOIN memory AS m ON m.id = n.id AND m.version = n.version
        JOIN embedding_model AS e ON e.model = p_model
        WHERE (n.similarity - e.unrelated) / (1 - e.unrelated) > p_similar
          -- With one name in both: whose name it is makes no difference, and that it is in both makes their vectors more similar.
          AND difference_similarity_v1(
              searched_text_v1(p_author, m.content), searched_text_v1(p_author, p_content), (n.similarity - e.unrelated) / (1 - e.unrelated)
          ) > p_similar
        ORDER BY n.similarity DESC, m.id LIMIT 1;
    END IF;
    IF v_known.id IS NOT NULL THEN
        SELECT * INTO v_own FROM memory_assertion AS a
        WHERE a.id = v_known.id AND a.actor = p_actor AND a.by_person = v_by_person AND a.ended_at IS NULL;
        v_shown := v_own.id IS NOT NULL AND NOT EXISTS (
            SELECT FROM memory_assertion AS a WHERE a.id = v_known.id AND a.ended_at IS NULL
            AND (NOT a.by_person, a.said_at, a.assertion) < (NOT v_own.by_person, v_own.said_at, v_own.assertion));
        v_importance := CASE WHEN v_shown THEN importance_v1(v_known.id, v_known.version, v_known.importance, NULL) ELSE v_own.importance END;
        v_metadata := CASE WHEN v_own.id IS NULL THEN p_metadata WHEN p_imported THEN p_metadata || v_own.metadata ELSE v_own.metadata || p_metadata END;
        IF octet_length(v_metadata::text) > 65536 THEN
            RETURN QUERY SELECT 'full', v_known.id, v_known.version, v_known.recorded_at, v_known.vector IS NULL;
            RETURN;
        END IF;
        IF v_own.content = p_content AND v_metadata = v_own.metadata AND p_importance <= v_importance THEN
            RETURN QUERY SELECT 'identical', v_known.id, v_known.version, v_known.recorded_at, v_known.vector IS NULL;
            RETURN;
        END IF;
        v_now := next_moment_v1(v_known.id);
        PERFORM assert_memory_v1(
            v_known.id, p_actor, v_by_person, p_content, CASE WHEN v_own.id IS NULL THEN p_author ELSE v_own.author END, v_metadata,
            greatest(v_importance, p_importance), v_now, 'Stored again.');
        -- Vectors are of the text with its author's name. The context of the text as it stands now is made later.
        IF v_own.id IS NOT NULL AND v_own.author IS DISTINCT FROM p_author THEN
            p_vector := NULL;
            p_parts := NULL;
        END IF;
        RETURN QUERY SELECT CASE WHEN v_own.id IS NULL AND r.version = v_known.version THEN 'identical' ELSE 'updated' END, r.*
        FROM show_memory_v1(
            v_known.id, v_now, p_model, p_vector, p_parts,
            CASE WHEN v_own.id IS NULL THEN format('Stored again by %s.', p_actor) ELSE 'Stored again.' END) AS r;
        RETURN;
    END IF;
    IF (SELECT s.memories >= p_most FROM memory_namespace AS s WHERE s.namespace = p_namespace) THEN
        status := 'crowded';
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_conversation_id IS NOT NULL THEN
        SELECT m.* INTO v_known FROM memory AS m
        WHERE m.namespace = p_namespace AND m.conversation_id = p_conversation_id ORDER BY m.ordinal DESC LIMIT 1;
        v_before := v_known.id;
    END IF;
    v_now := imem_now();
    RETURN QUERY
    INSERT INTO memory AS m (
        id, version, namespace, memory_type, content, metadata, importance, agent_id, user_id, conversation_id, ordinal, author,
        occurred_at, created_at, recorded_at, imported_known_at, model, vector, context_vector)
    VALUES (
        p_id, 1, p_namespace, p_type, p_content, p_metadata, p_importance, p_actor, p_user_id, p_conversation_id,
        CASE WHEN p_conversation_id IS NOT NULL THEN coalesce(v_known.ordinal, 0) + 1 END, p_author, p_occurred_at,
        least(p_created_at, v_now), v_now, p_known_at,
        CASE WHEN p_vector IS NOT NULL THEN p_model END, p_vector, CASE WHEN p_before = v_before THEN p_context_vector END)
    RETURNING 'new', m.id, m.version, m.recorded_at,
        p_vector IS NULL OR v_before IS NOT NULL AND (p_context_vector IS NULL OR p_before IS DISTINCT FROM v_before);
    PERFORM assert_memory_v1(p_id, p_actor, v_by_person, p_content, p_author, p_metadata, p_importance, v_now, NULL);
    PERFORM add_parts_v1(p_id, 1, NULL, NULL, p_parts);
    UPDATE memory_namespace AS s SET memories = s.memories + 1, lexemes = s.lexemes + length(imem_words_v1(searched_text_v1(p_author, p_content)))
    WHERE s.namespace = p_namespace;
    IF p_vector IS NULL OR v_before IS NOT NULL AND (p_context_vector IS NULL OR p_before IS DISTINCT FROM v_before) THEN
        INSERT INTO due_row (queue, kind, key) VALUES ('memories', 'Memory', p_id::text);
    END IF;
END
$$;

CREATE FUNCTION recall.supersede_memory_v1(
    p_actor text, p_role text, p_known uuid, p_id uuid, p_content text, p_metadata jsonb, p_importance double precision, p_model smallint,
    p_vector halfvec, p_parts json, p_reason text
) RETURNS TABLE (status text, id uuid, version integer, recorded_at timestamptz, waits boolean, remains boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Ends what an actor says in a memory, of a person also what others say there, of the knowledge base what other agents say, and, unless
-- p_content is NULL, makes the actor say that instead. remains: others still hold the memory. status: superseded; retired
-- (nothing is in its place); identical (this was done already); absent (there is none of that id); ended (another took its place already:
-- id, version and recorded_at are the last of that one; without them, it is retired); taken (the actor says that text already, in another
-- memory: id); item (it is one of LangGraph's store). Only the first two write.
#variable_conflict use_column
DECLARE
    v_known memory;
    v_other memory;
    v_own memory_assertion;
    v_shown memory_assertion;
    v_ending bigint[];
    v_now timestamptz;
    v_by_person boolean := p_role = 'human_admin';
BEGIN
    SELECT m.* INTO v_known FROM memory AS m WHERE m.id = p_known ORDER BY m.version DESC LIMIT 1;
    IF NOT FOUND THEN
        status := 'absent';
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM check_writer_v1(p_actor, p_role, v_known.namespace);
    IF v_known.item_key IS NOT NULL THEN
        status := 'item';
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM FROM memory_namespace AS s WHERE s.namespace = v_known.namespace FOR UPDATE;
    SELECT m.* INTO v_known FROM memory AS m WHERE m.id = p_known ORDER BY m.version DESC LIMIT 1;
    SELECT a.* INTO v_own FROM memory_assertion AS a
    WHERE a.id = p_known AND a.actor = p_actor AND a.by_person = v_by_person ORDER BY a.ended_at DESC, a.assertion DESC LIMIT 1;
    v_ending := ARRAY(
        SELECT a.assertion FROM memory_assertion AS a WHERE a.id = p_known AND a.ended_at IS NULL
        AND may_end_v1(p_actor, p_role, v_known.namespace, a.actor, a.by_person));
    IF v_ending = '{}' AND v_own.id IS NULL AND NOT EXISTS (
        SELECT FROM memory_assertion AS a WHERE a.id = p_known AND v_known.superseded_at IS NOT NULL
        AND may_end_v1(p_actor, p_role, v_known.namespace, a.actor, a.by_person)) THEN
        RAISE EXCEPTION '% (%) may not end what others say', p_actor, p_role USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF v_ending = '{}' THEN
        SELECT m.* INTO v_other FROM memory AS m
        WHERE m.id = CASE WHEN v_known.superseded_at IS NULL THEN v_own.superseded_by ELSE coalesce(v_own.superseded_by, v_known.superseded_by) END
        ORDER BY m.version DESC LIMIT 1;
        remains := v_known.superseded_at IS NULL;
        IF p_content IS NULL AND v_other.id IS NULL THEN
            RETURN QUERY SELECT 'identical', v_known.id, v_known.version, v_known.recorded_at, false, remains;
        ELSE
            RETURN QUERY SELECT CASE WHEN v_other.content = p_content THEN 'identical' ELSE 'ended' END, v_other.id, v_other.version,
                v_other.recorded_at, v_other.vector IS NULL, remains;
        END IF;
        RETURN;
    END IF;
    IF p_content IS NOT NULL THEN
        SELECT * INTO v_other FROM holder_v1(
            v_known.namespace, v_known.memory_type, v_known.user_id, v_known.conversation_id, p_content, v_known.author);
        IF EXISTS (SELECT FROM memory_assertion AS a
                   WHERE a.id = v_other.id AND a.actor = p_actor AND a.by_person = v_by_person AND a.ended_at IS NULL AND a.content = p_content) THEN
            RETURN QUERY SELECT 'taken', v_other.id, v_other.version, v_other.recorded_at, v_other.vector IS NULL, true;
            RETURN;
        END IF;
    END IF;
    p_importance := coalesce(
        p_importance, CASE WHEN v_own.ended_at IS NULL AND v_own.actor <> v_known.agent_id THEN v_own.importance END,
        importance_v1(v_known.id, v_known.version, v_known.importance, NULL));
    v_now := greatest(next_moment_v1(p_known), next_moment_v1(v_other.id));
    UPDATE memory_assertion AS a SET ended_at = v_now, reason = p_reason, superseded_by = CASE WHEN p_content IS NOT NULL THEN coalesce(v_other.id, p_id) END
    WHERE a.assertion = ANY (v_ending);
    remains := EXISTS (SELECT FROM memory_assertion AS a WHERE a.id = p_known AND a.ended_at IS NULL);
    IF p_content IS NULL THEN
        PERFORM show_memory_v1(p_known, v_now, NULL, NULL, NULL, p_reason);
        RETURN QUERY SELECT 'retired', v_known.id, v_known.version, v_known.recorded_at, false, remains;
        RETURN;
    END IF;
    PERFORM assert_memory_v1(
        coalesce(v_other.id, p_id), p_actor, v_by_person, p_content, v_known.author, p_metadata, p_importance, v_now, p_reason);
    IF v_other.id IS NOT NULL THEN
        -- Somebody says that already: the actor holds that memory, too.
        IF v_other.id <> p_known THEN
            PERFORM show_memory_v1(p_known, v_now, NULL, NULL, NULL, p_reason);
            UPDATE memory AS m SET superseded_by = v_other.id WHERE m.id = p_known AND m.superseded_at = v_now AND NOT remains;
        END IF;
        RETURN QUERY SELECT 'superseded', r.*, remains
        FROM show_memory_v1(v_other.id, v_now, p_model, p_vector, p_parts, format('Stored again by %s.', p_actor)) AS r;
        RETURN;
    END IF;
    SELECT a.* INTO v_shown FROM memory_assertion AS a WHERE a.id = p_id AND a.ended_at IS NULL;
    RETURN QUERY SELECT 'superseded', r.*, remains
    FROM replace_memory_v1(v_known, p_id, v_shown, v_now, p_model, p_vector, p_parts, p_reason, remains) AS r;
    IF remains THEN
        PERFORM show_memory_v1(p_known, v_now, NULL, NULL, NULL, p_reason);
    END IF;
END
$$;

-- Deletion

CREATE FUNCTION recall.delete_memories_v1(p_actor text, p_role text, p_ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Deletes memories with all of their versions, vectors, counts and assertions, and those whose place they took, as far as the actor may
-- (may_delete_v1); returns the ids of all that are gone.
DECLARE
    v_ids uuid[];
BEGIN
    WITH RECURSIVE chain (id) AS (
        SELECT DISTINCT m.id FROM memory AS m WHERE m.id = ANY (p_ids)
        UNION SELECT m.id FROM chain AS c JOIN memory AS m ON m.superseded_by = c.id
    )
    SELECT coalesce(array_agg(c.id), '{}') INTO v_ids FROM chain AS c;
    PERFORM check_writer_v1(p_actor, p_role, s.namespace) FROM (SELECT DISTINCT m.namespace FROM memory AS m WHERE m.id = ANY (v_ids)) AS s;
    PERFORM FROM memory_namespace AS s
    WHERE s.namespace IN (SELECT m.namespace FROM memory AS m WHERE m.id = ANY (v_ids)) ORDER BY s.namespace FOR UPDATE;
    v_ids := ARRAY(
        SELECT DISTINCT m.id FROM memory AS m WHERE m.id = ANY (v_ids) AND may_delete_v1(p_actor, p_role, m.namespace, m.id));
    UPDATE memory_namespace AS s SET memories = s.memories - o.memories, lexemes = s.lexemes - o.lexemes
    FROM (SELECT m.namespace, count(*) AS memories, sum(m.lexemes) AS lexemes FROM memory AS m
          WHERE m.id = ANY (v_ids) AND m.superseded_at IS NULL GROUP BY m.namespace) AS o
    WHERE s.namespace = o.namespace;
    DELETE FROM memory_assertion AS a WHERE a.superseded_by = ANY (v_ids) AND a.ended_at IS NOT NULL;
    PERFORM drop_memories_v1(v_ids);
    RETURN v_ids;
END
$$;

CREATE FUNCTION recall.drop_memories_v1(p_ids uuid[]) RETURNS void
LANGUAGE sql SET search_path = recall, public, pg_temp
AS $$
-- Deletes whatever is kept of memories; their parts and steps of decay go with their versions. An assertion in another memory that one of
-- them superseded stays: while it is there, the other memory is what its actor said.
DELETE FROM memory AS m WHERE m.id = ANY (p_ids);
DELETE FROM memory_use AS u WHERE u.id = ANY (p_ids);
DELETE FROM memory_assertion AS a WHERE a.id = ANY (p_ids);
DELETE FROM due_row AS d WHERE d.queue = 'memories' AND d.kind = 'Memory' AND d.key = ANY (p_ids::text[]);
$$;
