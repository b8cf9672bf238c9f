-- Conversations: the messages of a thread, and the summaries that replace its older part.
--
-- seq numbers the messages, from 1 without gaps: it is assigned under the lock of the thread's row. A summary takes the seq of the first
-- message that it replaces, one level deeper, so that it sorts in their place. Superseded messages are marked, never deleted.

CREATE TABLE workflow.conversation_thread (
    workflow_id      text NOT NULL CHECK (length(workflow_id) BETWEEN 1 AND 200),
    thread_id        text NOT NULL CHECK (length(thread_id) BETWEEN 1 AND 255),
    last_seq         bigint NOT NULL DEFAULT 0,
    summary_failures integer NOT NULL DEFAULT 0,
    summarise_after  timestamptz,
    created_at       timestamptz NOT NULL DEFAULT imem_now(),
    owner            text CHECK (length(owner) BETWEEN 1 AND 200),
    PRIMARY KEY (workflow_id, thread_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE workflow.conversation_thread IS 'One row a thread; its lock orders the thread''s messages. Threads of two workflows have nothing in common, whatever they are called.';
COMMENT ON COLUMN workflow.conversation_thread.summarise_after IS 'Until then no summary begins unasked: one is being made, or the last attempts failed.';
COMMENT ON COLUMN workflow.conversation_thread.owner IS 'The actor that began it; NULL where it was begun on behalf of none.';

CREATE TABLE workflow.conversation_messages (
    id            text NOT NULL CHECK (length(id) BETWEEN 1 AND 200),
    workflow_id   text NOT NULL,
    thread_id     text NOT NULL,
    seq           bigint NOT NULL CHECK (seq > 0),
    depth         integer NOT NULL DEFAULT 0 CHECK (depth >= 0),
    role          text NOT NULL CHECK (role IN ('user', 'assistant', 'system', 'tool')),
    content       text NOT NULL CHECK (octet_length(content) <= 262144),
    agent_id      text CHECK (length(agent_id) BETWEEN 1 AND 64),
    tool_call_id  varchar(255),
    metadata      jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    pinned        boolean NOT NULL DEFAULT false,
    superseded_by text,
    created_at    timestamptz NOT NULL DEFAULT imem_now(),
    PRIMARY KEY (workflow_id, thread_id, id),
    UNIQUE (workflow_id, thread_id, seq, depth),
    FOREIGN KEY (workflow_id, thread_id) REFERENCES workflow.conversation_thread,
    FOREIGN KEY (workflow_id, thread_id, superseded_by) REFERENCES workflow.conversation_messages (workflow_id, thread_id, id),
    CHECK (role <> 'tool' OR tool_call_id IS NOT NULL),
    CHECK (NOT pinned OR (role = 'system' AND superseded_by IS NULL))
);
CREATE INDEX conversation_messages_of_workflow ON workflow.conversation_messages (workflow_id, created_at);
CREATE INDEX conversation_messages_of_thread ON workflow.conversation_messages (thread_id, created_at);
CREATE INDEX conversation_messages_live ON workflow.conversation_messages (workflow_id, thread_id, pinned, depth, seq) WHERE superseded_by IS NULL;
COMMENT ON COLUMN workflow.conversation_messages.depth IS '0 for a message; a summary is one deeper than the deepest message or summary that it replaces.';
COMMENT ON COLUMN workflow.conversation_messages.superseded_by IS 'The summary that replaces it in the window; NULL while it is in the window itself.';

CREATE FUNCTION workflow.add_message_v1(
    p_owner text, p_workflow_id text, p_thread_id text, p_id text, p_role text, p_content text, p_agent_id text,
    p_tool_call_id text, p_metadata jsonb, p_pinned boolean, p_most_pinned integer, p_window integer
) RETURNS TABLE (status text, seq bigint, pinned boolean, created_at timestamptz, over boolean, owner text)
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Adds a message to a thread, which begins with its first and is then its owner's; p_owner NULL: in any thread. status: new;
-- identical (that id has that content already, nothing was written); conflict (with another content, nothing was written);
-- full (no further one may be pinned, nothing was written); foreign (the thread has another owner, nothing was written).
-- over: more than a window of messages waits for a summary, and none is being
-- made. p_pinned NULL: a system message before all others is pinned, while there is room.
#variable_conflict use_column
DECLARE
    v_last bigint;
    v_after timestamptz;
    v_known workflow.conversation_messages;
    v_pinned boolean;
    v_room boolean;
BEGIN
    -- Locks the row, also where the thread is deleted meanwhile and begins anew.
    INSERT INTO workflow.conversation_thread AS t (workflow_id, thread_id, owner) VALUES (p_workflow_id, p_thread_id, p_owner)
    ON CONFLICT (workflow_id, thread_id) DO UPDATE SET last_seq = t.last_seq
    RETURNING t.last_seq, t.summarise_after, t.owner INTO v_last, v_after, owner;
    IF p_owner IS NOT NULL AND owner IS DISTINCT FROM p_owner THEN
        status := 'foreign';
        RETURN NEXT;
        RETURN;
    END IF;
    over := coalesce(v_after, '-infinity') <= imem_now();

    SELECT * INTO v_known FROM workflow.conversation_messages AS m
    WHERE m.workflow_id = p_workflow_id AND m.thread_id = p_thread_id AND m.id = p_id;
    IF FOUND THEN
        status := CASE
            WHEN (v_known.role, v_known.content, v_known.metadata) = (p_role, p_content, p_metadata)
                AND v_known.agent_id IS NOT DISTINCT FROM p_agent_id
                AND v_known.tool_call_id IS NOT DISTINCT FROM p_tool_call_id
                AND v_known.depth = 0
            THEN 'identical' ELSE 'conflict' END;
        seq := v_known.seq;
        pinned := v_known.pinned;
        created_at := v_known.created_at;
    ELSE
        v_room := (
            SELECT count(*) < p_most_pinned FROM workflow.conversation_messages AS m
            WHERE m.workflow_id = p_workflow_id AND m.thread_id = p_thread_id AND m.superseded_by IS NULL AND m.pinned);
        v_pinned := coalesce(p_pinned, p_role = 'system' AND v_room AND NOT EXISTS (
            SELECT FROM workflow.conversation_messages AS m
            WHERE m.workflow_id = p_workflow_id AND m.thread_id = p_thread_id AND m.depth = 0 AND m.role <> 'system'));
        IF v_pinned AND NOT v_room THEN
            status := 'full';
            over := false;
            RETURN NEXT;
            RETURN;
        END IF;
        INSERT INTO workflow.conversation_messages AS m (
            id, workflow_id, thread_id, seq, role, content, agent_id, tool_call_id, metadata, pinned)
        VALUES (
            p_id, p_workflow_id, p_thread_id, v_last + 1, p_role, p_content, p_agent_id, p_tool_call_id, p_metadata, v_pinned)
        RETURNING m.seq, m.pinned, m.created_at INTO seq, pinned, created_at;
        UPDATE workflow.conversation_thread AS t SET last_seq = v_last + 1
        WHERE t.workflow_id = p_workflow_id AND t.thread_id = p_thread_id;
        status := 'new';
    END IF;
    over := over AND p_window < (
        SELECT count(*) FROM (
            SELECT FROM workflow.conversation_messages AS m
            WHERE m.workflow_id = p_workflow_id AND m.thread_id = p_thread_id AND m.superseded_by IS NULL AND NOT m.pinned
            LIMIT p_window + 1
        ) AS waiting);
    RETURN NEXT;
END
$$;

CREATE FUNCTION workflow.supersede_messages_v1(
    p_workflow_id text, p_thread_id text, p_ids text[], p_id text, p_content text, p_metadata jsonb
) RETURNS bigint
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Replaces the given messages by a summary and marks them, if every one of them is still in the window; returns its seq, or
-- NULL with nothing written when another summary replaced one of them first.
DECLARE
    v_seq bigint;
    v_depth integer;
    v_standing bigint;
BEGIN
    PERFORM FROM workflow.conversation_thread AS t
    WHERE t.workflow_id = p_workflow_id AND t.thread_id = p_thread_id FOR UPDATE;
    SELECT min(m.seq), max(m.depth) + 1, count(*) INTO v_seq, v_depth, v_standing FROM workflow.conversation_messages AS m
    WHERE m.workflow_id = p_workflow_id AND m.thread_id = p_thread_id AND m.id = ANY (p_ids)
      AND m.superseded_by IS NULL AND NOT m.pinned;
    IF v_standing = 0 OR v_standing <> cardinality(p_ids) THEN
        RETURN NULL;
    END IF;
    INSERT INTO workflow.conversation_messages (id, workflow_id, thread_id, seq, depth, role, content, metadata)
    VALUES (p_id, p_workflow_id, p_thread_id, v_seq, v_depth, 'system', p_content, p_metadata);
    UPDATE workflow.conversation_messages AS m SET superseded_by = p_id
    WHERE m.workflow_id = p_workflow_id AND m.thread_id = p_thread_id AND m.id = ANY (p_ids);
    UPDATE workflow.conversation_thread AS t SET summary_failures = 0
    WHERE t.workflow_id = p_workflow_id AND t.thread_id = p_thread_id;
    RETURN v_seq;
END
$$;

CREATE FUNCTION workflow.delete_thread_v1(
    p_owner text, p_workflow_id text, p_thread_id text, OUT status text, OUT owner text, OUT messages bigint
) LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Deletes a thread of p_owner (NULL: one without an owner) with its messages. status: deleted (messages: how many it had);
-- absent, there is none; foreign, it has another owner (owner: which) and nothing was deleted.
#variable_conflict use_column
BEGIN
    -- Locked first: a message is added before this, or begins a new thread.
    SELECT t.owner, t.last_seq INTO owner, messages FROM workflow.conversation_thread AS t
    WHERE t.workflow_id = p_workflow_id AND t.thread_id = p_thread_id FOR UPDATE;
    IF NOT FOUND THEN
        status := 'absent';
        messages := 0;
        RETURN;
    END IF;
    IF owner IS DISTINCT FROM p_owner THEN
        status := 'foreign';
        RETURN;
    END IF;
    DELETE FROM workflow.conversation_messages AS m WHERE m.workflow_id = p_workflow_id AND m.thread_id = p_thread_id;
    DELETE FROM workflow.conversation_thread AS t WHERE t.workflow_id = p_workflow_id AND t.thread_id = p_thread_id;
    status := 'deleted';
END
$$;
