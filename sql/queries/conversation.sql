-- add_message --
-- Adds a message to a thread; see workflow.add_message_v1. Columns: status, seq, pinned, created_at, over, owner.
SELECT status, seq, pinned, created_at, over, owner
FROM workflow.add_message_v1(
    %(owner)s, %(workflow_id)s, %(thread_id)s, %(id)s, %(role)s, %(content)s, %(agent_id)s, %(tool_call_id)s, %(metadata)s::jsonb,
    %(pinned)s, %(most_pinned)s, %(window)s)

-- thread_owner --
-- The owner of a thread; no row where there is no such thread.
SELECT owner FROM workflow.conversation_thread WHERE workflow_id = %(workflow_id)s AND thread_id = %(thread_id)s

-- delete_thread --
-- Deletes a thread and all its messages; see workflow.delete_thread_v1. Columns: status, owner, messages.
SELECT status, owner, messages FROM workflow.delete_thread_v1(%(owner)s, %(workflow_id)s, %(thread_id)s)

-- window_messages --
-- Of what a window is made: pinned messages, the current summary, the newest messages that no summary replaces, the last
-- user message, the calls that the newest messages answer, and all results of the calls, whether replaced or not.
-- Parameters: workflow_id, thread_id, owner (NULL for any), limit (newest messages).
WITH thread AS NOT MATERIALIZED (
    SELECT id, seq, depth, role, content, agent_id, tool_call_id, metadata, pinned, superseded_by, created_at
    FROM workflow.conversation_messages
    WHERE workflow_id = %(workflow_id)s AND thread_id = %(thread_id)s
      AND (%(owner)s::text IS NULL OR %(owner)s = (
          SELECT t.owner FROM workflow.conversation_thread AS t
          WHERE t.workflow_id = %(workflow_id)s AND t.thread_id = %(thread_id)s))
), newest AS MATERIALIZED (
    SELECT * FROM thread
    WHERE superseded_by IS NULL AND NOT pinned AND depth = 0 ORDER BY seq DESC LIMIT %(limit)s
), calls AS MATERIALIZED (
    SELECT * FROM newest WHERE role = 'assistant'
    UNION
    SELECT c.* FROM newest AS r CROSS JOIN LATERAL (
        SELECT * FROM thread AS m
        WHERE m.role = 'assistant' AND m.seq < r.seq AND (m.tool_call_id = r.tool_call_id
            OR m.metadata -> 'tool_calls' @> jsonb_build_array(jsonb_build_object('id', r.tool_call_id)))
        ORDER BY m.seq DESC LIMIT 1) AS c
    WHERE r.role = 'tool'
), results AS (
    -- Some models reuse ids of calls: a result belongs to the nearest call before it.
    SELECT r.* FROM thread AS r
    WHERE r.role = 'tool' AND r.seq > (SELECT min(c.seq) FROM calls AS c) AND EXISTS (
        SELECT FROM calls AS c
        WHERE c.seq = (
            SELECT m.seq FROM thread AS m
            WHERE m.role = 'assistant' AND m.seq < r.seq AND (m.tool_call_id = r.tool_call_id
                OR m.metadata -> 'tool_calls' @> jsonb_build_array(jsonb_build_object('id', r.tool_call_id)))
            ORDER BY m.seq DESC LIMIT 1))
)
SELECT * FROM thread WHERE pinned AND superseded_by IS NULL
UNION
(SELECT * FROM thread WHERE superseded_by IS NULL AND NOT pinned AND depth > 0 ORDER BY seq DESC LIMIT 1)
UNION
(SELECT * FROM thread WHERE role = 'user' ORDER BY seq DESC LIMIT 1)
UNION
SELECT * FROM newest
UNION
SELECT * FROM calls
UNION
SELECT * FROM results
ORDER BY seq, depth DESC

-- active_turns --
-- The messages of a thread that may be summarised, in order and without texts: input of the decision where to cut.
SELECT id, role, tool_call_id, metadata -> 'tool_calls' AS tool_calls
FROM workflow.conversation_messages
WHERE workflow_id = %(workflow_id)s AND thread_id = %(thread_id)s AND superseded_by IS NULL AND NOT pinned
ORDER BY seq

-- messages_by_id --
-- The given messages of a thread, in order.
SELECT id, seq, depth, role, content, agent_id, tool_call_id, metadata, pinned, superseded_by, created_at
FROM workflow.conversation_messages
WHERE workflow_id = %(workflow_id)s AND thread_id = %(thread_id)s AND id = ANY (%(ids)s::text[])
ORDER BY seq, depth

-- messages_after --
-- The messages of a thread, verbatim, superseded or not: a page after a seq. Parameters: workflow_id, thread_id, owner
-- (NULL for any), after, limit.
SELECT id, seq, depth, role, content, agent_id, tool_call_id, metadata, pinned, superseded_by, created_at
FROM workflow.conversation_messages
WHERE workflow_id = %(workflow_id)s AND thread_id = %(thread_id)s AND depth = 0 AND seq > %(after)s
  AND (%(owner)s::text IS NULL OR %(owner)s = (
      SELECT t.owner FROM workflow.conversation_thread AS t
      WHERE t.workflow_id = %(workflow_id)s AND t.thread_id = %(thread_id)s))
ORDER BY seq LIMIT %(limit)s

-- claim_summary --
-- Claims the summary of a thread; no row where another process has the claim, or where the last attempts failed
-- recently.
UPDATE workflow.conversation_thread SET summarise_after = imem_now() + make_interval(secs => %(seconds)s)
WHERE workflow_id = %(workflow_id)s AND thread_id = %(thread_id)s AND coalesce(summarise_after, '-infinity') <= imem_now()
RETURNING last_seq

-- supersede_messages --
-- Replaces the given messages by a summary; see workflow.supersede_messages_v1. seq is NULL when one of them is
-- replaced already.
SELECT workflow.supersede_messages_v1(
    %(workflow_id)s, %(thread_id)s, %(ids)s::text[], %(id)s, %(content)s, %(metadata)s::jsonb) AS seq

-- summary_ended --
-- Allows the next summary at once.
UPDATE workflow.conversation_thread SET summarise_after = NULL
WHERE workflow_id = %(workflow_id)s AND thread_id = %(thread_id)s

-- summary_failed --
-- Postpones the next summary by 10 s, twice as long after each further failure, up to ten minutes.
UPDATE workflow.conversation_thread SET
    summarise_after = imem_now() + least(600, 10 * power(2, least(summary_failures, 10))) * interval '1 second',
    summary_failures = summary_failures + 1
WHERE workflow_id = %(workflow_id)s AND thread_id = %(thread_id)s
