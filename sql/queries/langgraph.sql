-- langgraph_put --
-- Stores a checkpoint with its new values; commits itself. Columns: outcome, missing. Blobs are sent in binary (b): as
-- text, psycopg's default for lists, a large value would take longer to encode than to store.
SELECT p.outcome, p.missing FROM langgraph.put_v1(
    %(thread_id)s::text, %(checkpoint_ns)s::text, %(checkpoint_id)s::text, %(parent_id)s::text,
    %(kind)s::text, %(body)s::bytea, %(metadata_kind)s::text, %(metadata)s::bytea, %(filter)s::jsonb, %(run_id)s::text,
    %(ancestors)s::integer, %(held)s::text[], %(held_versions)s::text[],
    %(channels)s::text[], %(versions)s::text[], %(kinds)s::text[], %(blobs)b::bytea[],
    %(epoch)s::bigint, %(analysis_id)s::text, %(agent_type)s::text) AS p

-- langgraph_put_writes --
-- Stores the writes of a task; commits itself. Column: outcome.
SELECT p.outcome FROM langgraph.put_writes_v1(
    %(thread_id)s::text, %(checkpoint_ns)s::text, %(checkpoint_id)s::text, %(task_id)s::text, %(task_path)s::text,
    %(idxs)s::integer[], %(channels)s::text[], %(kinds)s::text[], %(blobs)b::bytea[],
    %(epoch)s::bigint, %(analysis_id)s::text, %(agent_type)s::text) AS p (outcome)

-- langgraph_get --
-- One checkpoint, whole.
SELECT w.* FROM langgraph.whole AS w
WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = %(checkpoint_ns)s AND w.checkpoint_id = %(checkpoint_id)s

-- langgraph_newest --
-- The newest checkpoint of a namespace, whole.
SELECT w.* FROM langgraph.whole AS w
WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = %(checkpoint_ns)s
ORDER BY w.stamp DESC, w.nth DESC, w.checkpoint_id DESC LIMIT 1

-- langgraph_keys_of_thread --
-- Keys of the matching checkpoints of a thread, newest first, after the given one (no stamp: from the first); NULL
-- disables a condition. before: an id, stored or not.
SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.stamp, c.nth FROM langgraph.checkpoint AS c
LEFT JOIN langgraph.checkpoint AS b
    ON b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns AND b.checkpoint_id = %(before)s::text
WHERE c.thread_id = %(thread_id)s
  AND (%(checkpoint_ns)s::text IS NULL OR c.checkpoint_ns = %(checkpoint_ns)s::text)
  AND (%(checkpoint_id)s::text IS NULL OR c.checkpoint_id = %(checkpoint_id)s::text)
  AND (%(filter)s::jsonb IS NULL OR c.filter @> %(filter)s::jsonb)
  AND (
    %(before)s::text IS NULL
    OR CASE WHEN b.checkpoint_id IS NULL THEN c.checkpoint_id < %(before)s::text
        ELSE (c.stamp, c.nth, c.checkpoint_id) < (b.stamp, b.nth, b.checkpoint_id) END
  )
  AND (
    %(after_stamp)s::text IS NULL
    OR (c.stamp, c.nth, c.checkpoint_id, c.checkpoint_ns)
        < (%(after_stamp)s::text, %(after_nth)s::bigint, %(after_id)s::text, %(after_ns)s::text)
  )
ORDER BY c.stamp DESC, c.nth DESC, c.checkpoint_id DESC, c.checkpoint_ns DESC
LIMIT %(limit)s::bigint

-- langgraph_keys --
-- Keys of the matching checkpoints of any thread, newest first, after the given one (no stamp: from the first); NULL
-- disables a condition. before: an id.
SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.stamp, c.nth FROM langgraph.checkpoint AS c
WHERE (%(filter)s::jsonb IS NULL OR c.filter @> %(filter)s::jsonb)
  AND (%(before)s::text IS NULL OR c.checkpoint_id < %(before)s::text)
  AND (
    %(after_stamp)s::text IS NULL
    OR (c.stamp, c.nth, c.checkpoint_id, c.thread_id, c.checkpoint_ns)
        < (%(after_stamp)s::text, %(after_nth)s::bigint, %(after_id)s::text, %(after_thread)s::text, %(after_ns)s::text)
  )
ORDER BY c.stamp DESC, c.nth DESC, c.checkpoint_id DESC, c.thread_id DESC, c.checkpoint_ns DESC
LIMIT %(limit)s::bigint

-- langgraph_interrupts --
-- A page of the interrupts that threads wait in, after the given one (NULL: the first page): those of the newest checkpoint whose task
-- has no result. A subgraph's are those of the task that runs it.
SELECT w.thread_id, w.checkpoint_id, w.task_id, w.kind, w.blob FROM langgraph.write AS w
WHERE w.channel = '__interrupt__' AND w.checkpoint_ns = ''
  AND (
    %(after_thread)s::text IS NULL
    OR (w.thread_id, w.checkpoint_id, w.task_id) > (%(after_thread)s::text, %(after_id)s::text, %(after_task)s::text)
  )
  AND w.checkpoint_id = (
    SELECT c.checkpoint_id FROM langgraph.checkpoint AS c
    WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = ''
    ORDER BY c.stamp DESC, c.nth DESC, c.checkpoint_id DESC LIMIT 1
  )
  AND NOT EXISTS (
    SELECT FROM langgraph.write AS r
    WHERE r.thread_id = w.thread_id AND r.checkpoint_ns = '' AND r.checkpoint_id = w.checkpoint_id
      AND r.task_id = w.task_id AND r.idx >= 0
  )
ORDER BY w.thread_id, w.checkpoint_id, w.task_id LIMIT %(limit)s::bigint

-- langgraph_page --
-- The checkpoints of these keys, whole, in their order; those removed meanwhile are left out.
SELECT w.* FROM unnest(%(thread_ids)s::text[], %(namespaces)s::text[], %(ids)s::text[])
    WITH ORDINALITY AS k (thread_id, checkpoint_ns, checkpoint_id, n)
JOIN langgraph.whole AS w
    ON w.thread_id = k.thread_id AND w.checkpoint_ns = k.checkpoint_ns AND w.checkpoint_id = k.checkpoint_id
ORDER BY k.n

-- langgraph_delete_threads --
-- Removes threads; with before, those without a later put. Column: removed (checkpoints).
SELECT langgraph.delete_threads_v1(%(thread_ids)s::text[], %(before)s::timestamptz) AS removed

-- langgraph_prune --
-- Keeps each namespace's newest checkpoint, and with before all later ones. Column: removed (checkpoints).
SELECT langgraph.prune_v1(%(thread_ids)s::text[], %(before)s::timestamptz) AS removed

-- langgraph_delete_runs --
-- Removes the checkpoints of runs. Column: torn (threads that still need them; then nothing was removed).
SELECT langgraph.delete_runs_v1(%(run_ids)s::text[]) AS torn

-- langgraph_copy_thread --
-- Copies a thread. Column: copied (checkpoints).
SELECT langgraph.copy_thread_v1(%(source)s::text, %(target)s::text) AS copied

-- langgraph_cut_off --
-- The moment the given seconds ago, by the server's clock; as text, so that it is returned unchanged.
SELECT (imem_now() - make_interval(secs => %(age_s)s::double precision))::text AS before

-- langgraph_old_threads --
-- A page of threads, after the given one (NULL: the first page), that have a checkpoint older than the moment.
SELECT DISTINCT c.thread_id FROM langgraph.checkpoint AS c
WHERE (%(after)s::text IS NULL OR c.thread_id > %(after)s::text) AND c.created_at < %(before)s::timestamptz
ORDER BY c.thread_id LIMIT %(limit)s::bigint

-- langgraph_ancestors --
-- The ancestors of a checkpoint (id NULL: of the newest), nearest first, as far back as one of these channels has no
-- value yet; with those channels' values and writes alone.
WITH RECURSIVE target AS (
    SELECT c.parent_id FROM langgraph.checkpoint AS c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s
      AND (%(checkpoint_id)s::text IS NULL OR c.checkpoint_id = %(checkpoint_id)s::text)
    ORDER BY c.stamp DESC, c.nth DESC, c.checkpoint_id DESC LIMIT 1
), chain AS (
    SELECT 0 AS n, NULL::text COLLATE "C" AS checkpoint_id, t.parent_id, NULL::text AS kind, NULL::bytea AS body,
        NULL::text[] AS channels, NULL::text[] AS versions, %(channels)s::text[] AS wanted
    FROM target AS t
    UNION ALL
    SELECT k.n + 1, p.checkpoint_id, p.parent_id, p.kind, p.body, p.channels, p.versions,
        ARRAY(SELECT unnest(k.wanted) EXCEPT SELECT unnest(p.channels))
    FROM chain AS k
    JOIN langgraph.checkpoint AS p
        ON p.thread_id = %(thread_id)s AND p.checkpoint_ns = %(checkpoint_ns)s AND p.checkpoint_id = k.parent_id
    WHERE cardinality(k.wanted) > 0
)
SELECT k.kind, k.body, b.channels AS blob_channels, b.kinds AS blob_kinds, b.blobs,
    w.tasks AS write_tasks, w.channels AS write_channels, w.kinds AS write_kinds, w.blobs AS write_blobs
FROM chain AS k
LEFT JOIN LATERAL (
    SELECT array_agg(o.channel) AS channels, array_agg(o.kind) AS kinds, array_agg(o.blob) AS blobs
    FROM unnest(k.channels, k.versions) AS r (channel, version)
    JOIN langgraph.blob AS o
        ON o.thread_id = %(thread_id)s AND o.checkpoint_ns = %(checkpoint_ns)s
        AND o.channel = r.channel AND o.version = r.version
    WHERE r.channel = ANY (%(channels)s::text[])
) AS b ON true
LEFT JOIN LATERAL (
    SELECT array_agg(o.task_id) AS tasks, array_agg(o.channel) AS channels, array_agg(o.kind) AS kinds,
        array_agg(o.blob) AS blobs
    FROM (
        SELECT p.task_id, p.channel, p.kind, p.blob FROM langgraph.write AS p
        WHERE p.thread_id = %(thread_id)s AND p.checkpoint_ns = %(checkpoint_ns)s
          AND p.checkpoint_id = k.checkpoint_id AND p.channel = ANY (%(channels)s::text[])
        ORDER BY p.task_path, p.task_id, p.idx
    ) AS o
) AS w ON true
WHERE k.n > 0
ORDER BY k.n
