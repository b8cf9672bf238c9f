-- Threads of LangGraph: schema langgraph.
--
-- A checkpoint is one row of what is small (its body) and the names of the values that it holds; the values are blobs, shared by all
-- checkpoints of a thread that hold the same version. A put is one call of one function, so that a checkpoint is there with all of its
-- blobs or not at all. Bodies, values and writes are bytes of LangGraph's own serializer: what jsonb refuses (NUL, NaN) does not matter
-- here.
--
-- Texts that name something are written as checkpoints/langgraph/names.py does, which keeps NUL and lone surrogates.
--
-- Bounds: a thread has a row of each table for what it put, until it is pruned or deleted. Rows that a thread keeps after keep_latest:
-- one checkpoint a namespace (with the ancestors that its delta channels are made of), its writes and blobs.

CREATE SCHEMA langgraph;

CREATE TABLE langgraph.checkpoint (
    thread_id     text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    parent_id     text COLLATE "C",
    stamp         text COLLATE "C" NOT NULL,
    nth           bigint NOT NULL,
    kind          text NOT NULL,
    body          bytea NOT NULL,
    channels      text[] NOT NULL,
    versions      text[] NOT NULL,
    metadata_kind text NOT NULL,
    metadata      bytea NOT NULL,
    filter        jsonb NOT NULL,
    run_id        text COLLATE "C",
    ancestors     integer NOT NULL DEFAULT 0,
    epoch         bigint,
    created_at    timestamptz NOT NULL DEFAULT imem_now(),
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);
CREATE INDEX checkpoint_newest ON langgraph.checkpoint (thread_id, checkpoint_ns, stamp, nth, checkpoint_id);
-- Of a listing over all threads. What rises with time is added at the end, which costs a put next to nothing.
CREATE INDEX checkpoint_by_stamp ON langgraph.checkpoint (stamp, nth);
CREATE INDEX checkpoint_of_run ON langgraph.checkpoint (run_id) WHERE run_id IS NOT NULL;
COMMENT ON TABLE langgraph.checkpoint IS 'One state of one namespace of one thread.';
COMMENT ON COLUMN langgraph.checkpoint.stamp IS 'With nth: the place in its namespace. The id, as long as ids rise; see put_v1.';
COMMENT ON COLUMN langgraph.checkpoint.body IS 'The checkpoint with its small values, by the serializer named in kind.';
COMMENT ON COLUMN langgraph.checkpoint.channels IS 'Channels whose values are blobs; versions: theirs, in the same order.';
COMMENT ON COLUMN langgraph.checkpoint.metadata IS 'The metadata, exactly; filter holds them as far as one can ask for them.';
COMMENT ON COLUMN langgraph.checkpoint.ancestors IS 'How many ancestors, with their writes, its delta channels are made of.';
COMMENT ON COLUMN langgraph.checkpoint.epoch IS 'Of the lease under which it was put; NULL for writers without one.';

CREATE TABLE langgraph.blob (
    thread_id     text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    channel       text COLLATE "C" NOT NULL,
    version       text COLLATE "C" NOT NULL,
    kind          text NOT NULL,
    blob          bytea NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, channel, version)
);
COMMENT ON TABLE langgraph.blob IS 'One version of the value of one channel; never changed, gone with the last checkpoint that holds it.';

CREATE TABLE langgraph.write (
    thread_id     text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    task_id       text COLLATE "C" NOT NULL,
    idx           integer NOT NULL,
    task_path     text COLLATE "C" NOT NULL,
    channel       text NOT NULL,
    kind          text NOT NULL,
    blob          bytea NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);
-- Of a listing of what threads wait for.
CREATE INDEX write_interrupts ON langgraph.write (thread_id, checkpoint_id, task_id)
WHERE channel = '__interrupt__' AND checkpoint_ns = '';
COMMENT ON TABLE langgraph.write IS 'What a finished task wrote after a checkpoint; it may be stored a moment before its checkpoint is.';
COMMENT ON COLUMN langgraph.write.idx IS 'Place among the task''s writes; negative for errors, interrupts and the like, of which the last counts.';

CREATE TABLE langgraph.thread_epoch (
    thread_id text COLLATE "C" PRIMARY KEY,
    epoch     bigint NOT NULL
);
COMMENT ON TABLE langgraph.thread_epoch IS 'The highest epoch that wrote to a thread under no lease of an agent; it outlives the thread, see deletion.';

CREATE TABLE langgraph.deletion (
    thread_id  text COLLATE "C" NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT imem_now(),
    ids        bigint[] NOT NULL,
    PRIMARY KEY (thread_id, deleted_at)
);
CREATE INDEX deletion_by_time ON langgraph.deletion (deleted_at);
COMMENT ON TABLE langgraph.deletion IS 'Threads of which all was removed in the last 30 days: what refers to a removed checkpoint comes too late.';
COMMENT ON COLUMN langgraph.deletion.ids IS 'Numbers (number_of_v1) of the removed checkpoints, and of those that were refused since.';

CREATE VIEW langgraph.whole AS
    -- A checkpoint with its values and its pending writes, ready to be decoded. Fewer blobs than "held" is a torn one.
    SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.stamp, c.nth, c.kind, c.body,
        c.metadata_kind, c.metadata, cardinality(c.channels) AS held,
        b.channels AS blob_channels, b.kinds AS blob_kinds, b.blobs,
        w.tasks AS write_tasks, w.channels AS write_channels, w.kinds AS write_kinds, w.blobs AS write_blobs
    FROM langgraph.checkpoint AS c
    LEFT JOIN LATERAL (
        SELECT array_agg(o.channel) AS channels, array_agg(o.kind) AS kinds, array_agg(o.blob) AS blobs
        FROM unnest(c.channels, c.versions) AS r (channel, version)
        JOIN langgraph.blob AS o
            ON o.thread_id = c.thread_id AND o.checkpoint_ns = c.checkpoint_ns
            AND o.channel = r.channel AND o.version = r.version
    ) AS b ON true
    LEFT JOIN LATERAL (
        SELECT array_agg(o.task_id) AS tasks, array_agg(o.channel) AS channels, array_agg(o.kind) AS kinds,
            array_agg(o.blob) AS blobs
        FROM (
            SELECT p.task_id, p.channel, p.kind, p.blob FROM langgraph.write AS p
            WHERE p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.checkpoint_id
            ORDER BY p.task_path, p.task_id, p.idx
        ) AS o
    ) AS w ON true;

CREATE FUNCTION langgraph.lock_shared_v1(p_thread text) RETURNS void
LANGUAGE sql
AS $$
    -- Held by a transaction that puts into a thread, until it commits: what refers to a blob is never put while blobs are swept.
    -- The first number is the schema's own ("lg"), so that no other lock of this database is meant.
    SELECT pg_advisory_xact_lock_shared(27751, hashtext(p_thread))
$$;

CREATE FUNCTION langgraph.lock_v1(p_threads text[]) RETURNS void
LANGUAGE plpgsql
AS $$
-- Held by a transaction that sweeps threads; taken in one order, so that two of them never deadlock.
DECLARE
    v_key integer;
BEGIN
    FOR v_key IN SELECT DISTINCT hashtext(t.thread_id) FROM unnest(p_threads) AS t (thread_id) ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(27751, v_key);
    END LOOP;
END
$$;

CREATE FUNCTION langgraph.lease_epoch_v1(p_analysis text, p_agent_type text) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    -- The epoch of an agent's lease, which cannot be raised before the caller's transaction ends; NULL without a lease.
    -- With the owner's rights: locking a row takes the right to change it, which the application has not.
    SELECT l.epoch FROM workflow.agent_leases AS l
    WHERE l.analysis_id = p_analysis AND l.agent_type = p_agent_type FOR SHARE
$$;

CREATE FUNCTION langgraph.fence_v1(p_thread text, p_epoch bigint, p_analysis text, p_agent_type text) RETURNS text
LANGUAGE plpgsql
AS $$
-- Says of a writer with an epoch: 'open', 'stale' (another process has taken over) or 'unknown' (no such lease, or an epoch that
-- it never had). The row stays locked until the caller commits, so that a process that takes over does so before this write or
-- after it.
DECLARE
    v_epoch bigint;
BEGIN
    IF p_analysis IS NULL THEN
        -- Looked at before it is raised: raising locks out every other writer of the thread, sharing does not.
        SELECT t.epoch INTO v_epoch FROM langgraph.thread_epoch AS t WHERE t.thread_id = p_thread;
        IF v_epoch IS NULL OR v_epoch < p_epoch THEN
            INSERT INTO langgraph.thread_epoch AS t (thread_id, epoch) VALUES (p_thread, p_epoch)
            ON CONFLICT (thread_id) DO UPDATE SET epoch = excluded.epoch WHERE t.epoch < excluded.epoch;
        END IF;
        SELECT t.epoch INTO v_epoch FROM langgraph.thread_epoch AS t WHERE t.thread_id = p_thread FOR SHARE;
        RETURN CASE WHEN v_epoch = p_epoch THEN 'open' ELSE 'stale' END;
    END IF;
    v_epoch := langgraph.lease_epoch_v1(p_analysis, p_agent_type);
    RETURN CASE WHEN v_epoch = p_epoch THEN 'open' WHEN p_epoch < v_epoch THEN 'stale' ELSE 'unknown' END;
END
$$;

CREATE FUNCTION langgraph.number_of_v1(p_ns text, p_id text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    -- A number of a checkpoint of a thread: no two of them share one in practice.
    SELECT hashtextextended(p_id, hashtextextended(p_ns, 0))
$$;

CREATE FUNCTION langgraph.is_late_v1(p_thread text, p_namespaces text[], p_ids text[]) RETURNS boolean
LANGUAGE plpgsql
AS $$
-- Whether one of the checkpoints was removed with all of its thread, and is not stored anew. The thread's deletions stay locked until the
-- caller commits: of a put that is refused and a write of the same checkpoint, the later one sees the earlier one.
BEGIN
    PERFORM FROM langgraph.deletion AS d WHERE d.thread_id = p_thread ORDER BY d.deleted_at FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    RETURN EXISTS (
        SELECT FROM unnest(p_namespaces, p_ids) AS r (checkpoint_ns, checkpoint_id)
        JOIN langgraph.deletion AS d
            ON d.thread_id = p_thread AND langgraph.number_of_v1(r.checkpoint_ns, r.checkpoint_id) = ANY (d.ids)
        LEFT JOIN langgraph.checkpoint AS c
            ON c.thread_id = p_thread AND c.checkpoint_ns = r.checkpoint_ns AND c.checkpoint_id = r.checkpoint_id
        WHERE c.checkpoint_id IS NULL
    );
END
$$;

CREATE FUNCTION langgraph.refuse_late_v1(p_thread text, p_ns text, p_id text) RETURNS void
LANGUAGE sql
AS $$
    -- Of a checkpoint that comes too late: its writes may have been stored before it, and others may follow.
    DELETE FROM langgraph.write AS w
    WHERE w.thread_id = p_thread AND w.checkpoint_ns = p_ns AND w.checkpoint_id = p_id
      AND NOT EXISTS (
        SELECT FROM langgraph.checkpoint AS c
        WHERE c.thread_id = p_thread AND c.checkpoint_ns = p_ns AND c.checkpoint_id = p_id
      );
    UPDATE langgraph.deletion AS d SET ids = d.ids || langgraph.number_of_v1(p_ns, p_id)
    WHERE d.thread_id = p_thread AND langgraph.number_of_v1(p_ns, p_id) <> ALL (d.ids)
      AND d.deleted_at = (SELECT max(l.deleted_at) FROM langgraph.deletion AS l WHERE l.thread_id = p_thread)
$$;

CREATE FUNCTION langgraph.note_deletion_v1(p_threads text[]) RETURNS void
LANGUAGE sql
AS $$
    -- Notes what of the threads is about to be removed, and forgets deletions of more than 30 days ago with the epochs of threads that are
    -- gone, and with what a writer stored that died in between. The caller holds the threads' locks.
    INSERT INTO langgraph.deletion AS d (thread_id, ids)
    SELECT f.thread_id, coalesce(array_agg(DISTINCT f.number) FILTER (WHERE f.number IS NOT NULL), '{}') FROM (
        SELECT c.thread_id, langgraph.number_of_v1(c.checkpoint_ns, c.checkpoint_id) AS number FROM langgraph.checkpoint AS c
        WHERE c.thread_id = ANY (p_threads)
        UNION ALL
        SELECT w.thread_id, langgraph.number_of_v1(w.checkpoint_ns, w.checkpoint_id) FROM langgraph.write AS w
        WHERE w.thread_id = ANY (p_threads)
        UNION ALL
        SELECT e.thread_id, NULL FROM langgraph.thread_epoch AS e WHERE e.thread_id = ANY (p_threads)
    ) AS f
    GROUP BY f.thread_id
    ON CONFLICT (thread_id, deleted_at) DO UPDATE SET ids = d.ids || excluded.ids;
    WITH past AS (
        DELETE FROM langgraph.deletion AS d WHERE d.deleted_at < imem_now() - interval '30 days' RETURNING d.thread_id
    ), gone AS (
        SELECT p.thread_id FROM past AS p
        WHERE NOT EXISTS (SELECT FROM langgraph.checkpoint AS c WHERE c.thread_id = p.thread_id)
          AND NOT EXISTS (
            SELECT FROM langgraph.deletion AS d
            WHERE d.thread_id = p.thread_id AND d.deleted_at >= imem_now() - interval '30 days'
          )
    ), lost AS (
        DELETE FROM langgraph.write AS w USING gone AS g WHERE w.thread_id = g.thread_id
    )
    DELETE FROM langgraph.thread_epoch AS e USING gone AS g WHERE e.thread_id = g.thread_id
$$;

CREATE FUNCTION langgraph.put_v1(
    p_thread text, p_ns text, p_id text, p_parent text, p_kind text, p_body bytea,
    p_metadata_kind text, p_metadata bytea, p_filter jsonb, p_run text, p_ancestors integer,
    p_held text[], p_held_versions text[],
    p_channels text[], p_versions text[], p_kinds text[], p_blobs bytea[],
    p_epoch bigint, p_analysis text, p_agent_type text,
    OUT outcome text, OUT missing text[])
LANGUAGE plpgsql
AS $$
-- Stores one checkpoint with the values that are new in it. held: channels whose values are blobs already, with their
-- versions. Outcome: 'stored'; 'missing' with the channels whose values are no blobs after all; 'stale' or 'unknown' as
-- of fence_v1; 'deleted' where it, its parent or the checkpoint of the graph that called its own was removed with the thread. Nothing is
-- written unless it is 'stored'.
--
-- Order: ids of LangGraph rise with the clock of the process that made them, and a clock may be set back. A child of a stored
-- checkpoint comes after everything in its namespace all the same: where its id does not, it takes the newest one's
-- stamp with the next nth. A checkpoint without a stored parent (threads may be copied in newest first) keeps to its id.
DECLARE
    v_newest record;
    v_stamp text := p_id;
    v_nth bigint := 0;
    v_namespaces text[];
    v_ids text[];
BEGIN
    PERFORM langgraph.lock_shared_v1(p_thread);
    missing := '{}';
    IF p_epoch IS NOT NULL THEN  -- Most writers have none, and a call costs as much as a statement.
        outcome := langgraph.fence_v1(p_thread, p_epoch, p_analysis, p_agent_type);
        IF outcome <> 'open' THEN
            RETURN;
        END IF;
    END IF;
    -- Looked at first, as next to no thread was deleted.
    IF EXISTS (SELECT FROM langgraph.deletion AS d WHERE d.thread_id = p_thread) THEN
        SELECT ARRAY[p_ns, p_ns] || coalesce(array_agg(r.key), '{}'), ARRAY[p_id, p_parent] || coalesce(array_agg(r.value), '{}')
        INTO v_namespaces, v_ids
        FROM jsonb_each_text(CASE jsonb_typeof(p_filter -> 'parents') WHEN 'object' THEN p_filter -> 'parents' ELSE '{}' END) AS r;
        IF langgraph.is_late_v1(p_thread, v_namespaces, v_ids) THEN
            PERFORM langgraph.refuse_late_v1(p_thread, p_ns, p_id);
            outcome := 'deleted';
            RETURN;
        END IF;
    END IF;
    IF cardinality(p_held) > 0 THEN
        SELECT coalesce(array_agg(r.channel), '{}') INTO missing
        FROM unnest(p_held, p_held_versions) AS r (channel, version)
        WHERE NOT EXISTS (
            SELECT FROM langgraph.blob AS b
            WHERE b.thread_id = p_thread AND b.checkpoint_ns = p_ns AND b.channel = r.channel AND b.version = r.version
        );
        IF cardinality(missing) > 0 THEN
            outcome := 'missing';
            RETURN;
        END IF;
    END IF;
    IF cardinality(p_channels) > 0 THEN
        INSERT INTO langgraph.blob (thread_id, checkpoint_ns, channel, version, kind, blob)
        SELECT p_thread, p_ns, n.channel, n.version, n.kind, n.blob
        FROM unnest(p_channels, p_versions, p_kinds, p_blobs) AS n (channel, version, kind, blob)
        ON CONFLICT DO NOTHING;
    END IF;
    IF p_parent IS NOT NULL THEN
        SELECT c.stamp, c.nth INTO v_newest FROM langgraph.checkpoint AS c
        WHERE c.thread_id = p_thread AND c.checkpoint_ns = p_ns
        ORDER BY c.stamp DESC, c.nth DESC, c.checkpoint_id DESC LIMIT 1;
        IF v_newest.stamp >= p_id AND EXISTS (
            SELECT FROM langgraph.checkpoint AS c
            WHERE c.thread_id = p_thread AND c.checkpoint_ns = p_ns AND c.checkpoint_id = p_parent
        ) THEN
            v_stamp := v_newest.stamp;
            v_nth := v_newest.nth + 1;
        END IF;
    END IF;
    INSERT INTO langgraph.checkpoint (
        thread_id, checkpoint_ns, checkpoint_id, parent_id, stamp, nth, kind, body, channels, versions,
        metadata_kind, metadata, filter, run_id, ancestors, epoch)
    VALUES (
        p_thread, p_ns, p_id, p_parent, v_stamp, v_nth, p_kind, p_body, p_channels || p_held, p_versions || p_held_versions,
        p_metadata_kind, p_metadata, p_filter, p_run, p_ancestors, p_epoch)
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE SET
        kind = excluded.kind, body = excluded.body, channels = excluded.channels, versions = excluded.versions,
        metadata_kind = excluded.metadata_kind, metadata = excluded.metadata, filter = excluded.filter,
        run_id = excluded.run_id, ancestors = excluded.ancestors, epoch = excluded.epoch;
    outcome := 'stored';
END
$$;

CREATE FUNCTION langgraph.put_writes_v1(
    p_thread text, p_ns text, p_id text, p_task text, p_path text,
    p_idxs integer[], p_channels text[], p_kinds text[], p_blobs bytea[],
    p_epoch bigint, p_analysis text, p_agent_type text,
    OUT outcome text)
LANGUAGE plpgsql
AS $$
-- Stores what a task wrote, all of it or nothing. A repeat keeps the first value, except at negative places, where the
-- last counts. Outcome: 'stored', or 'stale' or 'unknown' as of fence_v1, or 'deleted' where the checkpoint was removed with its thread.
BEGIN
    PERFORM langgraph.lock_shared_v1(p_thread);
    IF p_epoch IS NOT NULL THEN  -- Most writers have none, and a call costs as much as a statement.
        outcome := langgraph.fence_v1(p_thread, p_epoch, p_analysis, p_agent_type);
        IF outcome <> 'open' THEN
            RETURN;
        END IF;
    END IF;
    IF EXISTS (SELECT FROM langgraph.deletion AS d WHERE d.thread_id = p_thread)
        AND langgraph.is_late_v1(p_thread, ARRAY[p_ns], ARRAY[p_id])
    THEN
        outcome := 'deleted';
        RETURN;
    END IF;
    INSERT INTO langgraph.write (
        thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, channel, kind, blob)
    SELECT p_thread, p_ns, p_id, p_task, n.idx, p_path, n.channel, n.kind, n.blob
    FROM unnest(p_idxs, p_channels, p_kinds, p_blobs) AS n (idx, channel, kind, blob)
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE SET
        task_path = excluded.task_path, channel = excluded.channel, kind = excluded.kind, blob = excluded.blob
    WHERE excluded.idx < 0;
    outcome := 'stored';
END
$$;

CREATE FUNCTION langgraph.sweep_v1(p_thread text, p_namespaces text[], p_ids text[]) RETURNS void
LANGUAGE plpgsql
AS $$
-- Removes what no checkpoint of the thread needs any more, once these were removed: links to them, their writes, and
-- blobs that none holds. Other writes without a checkpoint go when their namespace's newest is younger; the checkpoint
-- of any other may be about to be put. The caller holds the thread's lock.
BEGIN
    UPDATE langgraph.checkpoint AS c SET parent_id = NULL
    FROM unnest(p_namespaces, p_ids) AS g (checkpoint_ns, checkpoint_id)
    WHERE c.thread_id = p_thread AND c.checkpoint_ns = g.checkpoint_ns AND c.parent_id = g.checkpoint_id;
    DELETE FROM langgraph.write AS w
    WHERE w.thread_id = p_thread
      AND NOT EXISTS (
        SELECT FROM langgraph.checkpoint AS c
        WHERE c.thread_id = p_thread AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
      )
      AND (
        EXISTS (
            SELECT FROM unnest(p_namespaces, p_ids) AS g (checkpoint_ns, checkpoint_id)
            WHERE g.checkpoint_ns = w.checkpoint_ns AND g.checkpoint_id = w.checkpoint_id
        )
        OR EXISTS (
            SELECT FROM langgraph.checkpoint AS c
            WHERE c.thread_id = p_thread AND c.checkpoint_ns = w.checkpoint_ns AND c.stamp > w.checkpoint_id
        )
      );
    DELETE FROM langgraph.blob AS b
    WHERE b.thread_id = p_thread AND NOT EXISTS (
        SELECT FROM (
            SELECT c.checkpoint_ns, r.channel, r.version
            FROM langgraph.checkpoint AS c, unnest(c.channels, c.versions) AS r (channel, version)
            WHERE c.thread_id = p_thread
        ) AS h
        WHERE h.checkpoint_ns = b.checkpoint_ns AND h.channel = b.channel AND h.version = b.version
    );
END
$$;

CREATE FUNCTION langgraph.prune_v1(p_threads text[], p_before timestamptz) RETURNS bigint
LANGUAGE plpgsql
AS $$
-- Removes the checkpoints of the threads that are older than the moment (NULL: of any age), except each namespace's
-- newest, and except the ancestors that the delta channels of what stays are made of. Says how many it removed.
--
-- A namespace with a colon is of one call of a subgraph: its newest checkpoint goes with the root's checkpoint that the
-- call was made from, or every call that was ever made would leave one.
DECLARE
    v_thread text;
    v_namespaces text[];
    v_ids text[];
    v_removed bigint := 0;
BEGIN
    PERFORM langgraph.lock_v1(p_threads);
    FOR v_thread IN SELECT DISTINCT t.thread_id FROM unnest(p_threads) AS t (thread_id) LOOP
        WITH RECURSIVE found AS MATERIALIZED (
            SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.ancestors,
                c.filter -> 'parents' ->> '' AS root,
                (c.created_at >= p_before) IS TRUE AS recent,
                row_number() OVER (
                    PARTITION BY c.checkpoint_ns ORDER BY c.stamp DESC, c.nth DESC, c.checkpoint_id DESC
                ) = 1 AS newest
            FROM langgraph.checkpoint AS c WHERE c.thread_id = v_thread
        ), own AS MATERIALIZED (
            SELECT f.*, f.recent OR (f.newest AND r.checkpoint_id IS NULL) AS stays FROM found AS f
            LEFT JOIN found AS r
                ON position(':' IN f.checkpoint_ns) > 0 AND r.checkpoint_ns = '' AND r.checkpoint_id = f.root
                AND NOT r.recent AND NOT r.newest
        ), needed AS (
            -- From what stays and whose parent does not: a child never needs more than its parent and the parent itself.
            SELECT o.checkpoint_ns, o.parent_id, o.ancestors AS hops FROM own AS o
            LEFT JOIN own AS p
                ON p.checkpoint_ns = o.checkpoint_ns AND p.checkpoint_id = o.parent_id AND p.stays
            WHERE o.stays AND o.ancestors > 0 AND p.checkpoint_id IS NULL
            UNION
            SELECT p.checkpoint_ns, p.parent_id, n.hops - 1 FROM needed AS n
            JOIN own AS p ON p.checkpoint_ns = n.checkpoint_ns AND p.checkpoint_id = n.parent_id
            WHERE n.hops > 1
        ), gone AS (
            DELETE FROM langgraph.checkpoint AS c USING own AS o
            WHERE c.thread_id = v_thread AND c.checkpoint_ns = o.checkpoint_ns AND c.checkpoint_id = o.checkpoint_id
              AND NOT o.stays
              AND NOT EXISTS (
                SELECT FROM needed AS n WHERE n.checkpoint_ns = o.checkpoint_ns AND n.parent_id = o.checkpoint_id
              )
            RETURNING c.checkpoint_ns, c.checkpoint_id
        )
        SELECT coalesce(array_agg(g.checkpoint_ns), '{}'), coalesce(array_agg(g.checkpoint_id), '{}')
        INTO v_namespaces, v_ids FROM gone AS g;
        v_removed := v_removed + cardinality(v_ids);
        PERFORM langgraph.sweep_v1(v_thread, v_namespaces, v_ids);
    END LOOP;
    RETURN v_removed;
END
$$;

CREATE FUNCTION langgraph.delete_threads_v1(p_threads text[], p_before timestamptz) RETURNS bigint
LANGUAGE plpgsql
AS $$
-- Removes all that is stored of the threads but their epochs; with a moment, only of those that put no checkpoint since. Says how many
-- checkpoints it removed. What comes too late is refused for 30 days (deletion).
DECLARE
    v_threads text[] := p_threads;
    v_count bigint;
BEGIN
    PERFORM langgraph.lock_v1(p_threads);
    IF p_before IS NOT NULL THEN
        SELECT coalesce(array_agg(t.thread_id), '{}') INTO v_threads FROM unnest(p_threads) AS t (thread_id)
        WHERE NOT EXISTS (
            SELECT FROM langgraph.checkpoint AS c WHERE c.thread_id = t.thread_id AND c.created_at >= p_before
        );
    END IF;
    PERFORM langgraph.note_deletion_v1(v_threads);
    DELETE FROM langgraph.checkpoint AS c WHERE c.thread_id = ANY (v_threads);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    DELETE FROM langgraph.write AS w WHERE w.thread_id = ANY (v_threads);
    DELETE FROM langgraph.blob AS b WHERE b.thread_id = ANY (v_threads);
    RETURN v_count;
END
$$;

CREATE FUNCTION langgraph.delete_runs_v1(p_runs text[]) RETURNS text[]
LANGUAGE plpgsql
AS $$
-- Removes the checkpoints that the runs put, with their writes and what only they held. Where a checkpoint that would
-- stay is made of one of them (delta channels), nothing is removed and the threads are returned.
DECLARE
    v_threads text[];
    v_torn text[];
    v_thread text;
    v_namespaces text[];
    v_ids text[];
BEGIN
    SELECT array_agg(DISTINCT c.thread_id) INTO v_threads FROM langgraph.checkpoint AS c WHERE c.run_id = ANY (p_runs);
    IF v_threads IS NULL THEN
        RETURN '{}';
    END IF;
    PERFORM langgraph.lock_v1(v_threads);
    WITH RECURSIVE needed AS (
        SELECT c.thread_id, c.checkpoint_ns, c.parent_id, c.ancestors AS hops FROM langgraph.checkpoint AS c
        JOIN langgraph.checkpoint AS p
            ON p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_id
        WHERE c.thread_id = ANY (v_threads) AND c.ancestors > 0 AND (c.run_id = ANY (p_runs)) IS NOT TRUE
        UNION
        SELECT p.thread_id, p.checkpoint_ns, p.parent_id, n.hops - 1 FROM needed AS n
        JOIN langgraph.checkpoint AS p
            ON p.thread_id = n.thread_id AND p.checkpoint_ns = n.checkpoint_ns AND p.checkpoint_id = n.parent_id
        WHERE n.hops > 1
    )
    SELECT coalesce(array_agg(DISTINCT c.thread_id), '{}') INTO v_torn FROM needed AS n
    JOIN langgraph.checkpoint AS c
        ON c.thread_id = n.thread_id AND c.checkpoint_ns = n.checkpoint_ns AND c.checkpoint_id = n.parent_id
    WHERE c.run_id = ANY (p_runs);
    IF cardinality(v_torn) > 0 THEN
        RETURN v_torn;
    END IF;
    FOREACH v_thread IN ARRAY v_threads LOOP
        IF NOT EXISTS (
            SELECT FROM langgraph.checkpoint AS c WHERE c.thread_id = v_thread AND (c.run_id = ANY (p_runs)) IS NOT TRUE
        ) THEN
            PERFORM langgraph.delete_threads_v1(ARRAY[v_thread], NULL);
            CONTINUE;
        END IF;
        WITH gone AS (
            DELETE FROM langgraph.checkpoint AS c WHERE c.thread_id = v_thread AND c.run_id = ANY (p_runs)
            RETURNING c.checkpoint_ns, c.checkpoint_id
        )
        SELECT array_agg(g.checkpoint_ns), array_agg(g.checkpoint_id) INTO v_namespaces, v_ids FROM gone AS g;
        PERFORM langgraph.sweep_v1(v_thread, v_namespaces, v_ids);
    END LOOP;
    RETURN '{}';
END
$$;

CREATE FUNCTION langgraph.copy_thread_v1(p_source text, p_target text) RETURNS bigint
LANGUAGE plpgsql
AS $$
-- Copies everything of one thread into another, in one statement and so of one moment; what is there already stays.
DECLARE
    v_count bigint;
BEGIN
    PERFORM langgraph.lock_shared_v1(p_target);
    WITH blobs AS (
        INSERT INTO langgraph.blob (thread_id, checkpoint_ns, channel, version, kind, blob)
        SELECT p_target, b.checkpoint_ns, b.channel, b.version, b.kind, b.blob
        FROM langgraph.blob AS b WHERE b.thread_id = p_source
        ON CONFLICT DO NOTHING
    ), writes AS (
        INSERT INTO langgraph.write (
            thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, channel, kind, blob)
        SELECT p_target, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.task_path, w.channel, w.kind, w.blob
        FROM langgraph.write AS w WHERE w.thread_id = p_source
        ON CONFLICT DO NOTHING
    )
    INSERT INTO langgraph.checkpoint (
        thread_id, checkpoint_ns, checkpoint_id, parent_id, stamp, nth, kind, body, channels, versions,
        metadata_kind, metadata, filter, run_id, ancestors, created_at)
    SELECT p_target, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.stamp, c.nth, c.kind, c.body, c.channels,
        c.versions, c.metadata_kind, c.metadata, c.filter, c.run_id, c.ancestors, c.created_at
    FROM langgraph.checkpoint AS c WHERE c.thread_id = p_source
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
