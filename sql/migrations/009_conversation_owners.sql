-- Whose a conversation is: the actor that began it. What was begun before, or on nobody's behalf, is nobody's own.

ALTER TABLE workflow.conversation_thread ADD COLUMN owner text CHECK (length(owner) BETWEEN 1 AND 200);
COMMENT ON COLUMN workflow.conversation_thread.owner IS 'The actor that began it; NULL where it was begun on nobody''s behalf.';

CREATE FUNCTION workflow.add_message_v2(
    p_owner text, p_workflow_id text, p_thread_id text, p_id text, p_role text, p_content text, p_agent_id text,
    p_tool_call_id text, p_metadata jsonb, p_pinned boolean, p_most_pinned integer, p_window integer
) RETURNS TABLE (status text, seq bigint, pinned boolean, created_at timestamptz, over boolean, owner text)
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Adds a message as add_message_v1 does, on behalf of p_owner: a thread that begins with it is that actor's. status
-- foreign: the thread is another's (owner: whose), nothing was written. p_owner NULL: in any thread.
#variable_conflict use_column
DECLARE
    v_owner text;
BEGIN
    IF p_owner IS NOT NULL THEN
        -- Again where the thread was deleted between the two.
        LOOP
            INSERT INTO workflow.conversation_thread (workflow_id, thread_id, owner)
            VALUES (p_workflow_id, p_thread_id, p_owner) ON CONFLICT (workflow_id, thread_id) DO NOTHING;
            SELECT t.owner INTO v_owner FROM workflow.conversation_thread AS t
            WHERE t.workflow_id = p_workflow_id AND t.thread_id = p_thread_id FOR UPDATE;
            EXIT WHEN FOUND;
        END LOOP;
        IF v_owner IS DISTINCT FROM p_owner THEN
            status := 'foreign';
            owner := v_owner;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    RETURN QUERY SELECT a.status, a.seq, a.pinned, a.created_at, a.over, p_owner
    FROM workflow.add_message_v1(
        p_workflow_id, p_thread_id, p_id, p_role, p_content, p_agent_id, p_tool_call_id, p_metadata, p_pinned,
        p_most_pinned, p_window) AS a;
END
$$;

CREATE FUNCTION workflow.delete_thread_v1(
    p_owner text, p_workflow_id text, p_thread_id text, OUT status text, OUT owner text, OUT messages bigint
) LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Deletes a thread of p_owner (NULL: of nobody's) with everything that was said in it. status: deleted (messages: how many
-- had been said); absent, there is none; foreign, it is another's (owner: whose) and nothing was deleted.
#variable_conflict use_column
BEGIN
    -- First, so that whoever adds a message is before this or begins the thread anew.
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
