-- Leases, execution checkpoints, deliverables: schema workflow.
--
-- Postgres is the commit point of a checkpoint; what Valkey holds beside is a copy. What fences one process off from
-- another (leases, checkpoints, deliverables) the application's role writes through the functions below alone: each
-- locks the lease's row first and looks at its epoch, so that two processes cannot both believe that they may write.
-- Functions return a status rather than raise: what the statuses mean in words of the product is said in Python.
--
-- Locks are taken in one order: the analysis, then leases by agent type, then checkpoints.
CREATE SCHEMA workflow;

CREATE TABLE workflow.analysis (
    analysis_id text PRIMARY KEY CHECK (length(analysis_id) BETWEEN 1 AND 200),
    subject_id  text NOT NULL CHECK (length(subject_id) BETWEEN 1 AND 200),
    began_at    timestamptz NOT NULL,
    outcome     text CHECK (outcome IN ('succeeded', 'failed')),
    ended_at    timestamptz,
    reason      text,
    purged_at   timestamptz,
    cleared_at  timestamptz,
    CHECK ((outcome IS NULL) = (ended_at IS NULL))
);
CREATE INDEX analysis_under_way ON workflow.analysis (analysis_id) WHERE outcome IS NULL;
CREATE INDEX analysis_of_subject ON workflow.analysis (subject_id) WHERE outcome IS NULL;
CREATE INDEX analysis_to_purge ON workflow.analysis (analysis_id) WHERE outcome IS NOT NULL AND purged_at IS NULL;
CREATE INDEX analysis_to_clear ON workflow.analysis (analysis_id) WHERE purged_at IS NOT NULL AND cleared_at IS NULL;
COMMENT ON TABLE workflow.analysis IS 'Analyses that agents have begun, one row each, kept for good: one that has ended is not begun again under its id.';
COMMENT ON COLUMN workflow.analysis.outcome IS 'NULL while it is under way, paused included.';
COMMENT ON COLUMN workflow.analysis.purged_at IS 'When the last of its checkpoints went that nobody wanted kept.';
COMMENT ON COLUMN workflow.analysis.cleared_at IS 'When its keys in Valkey were removed, and its leases with them.';

CREATE TABLE workflow.agent_instance (
    agent_id    text PRIMARY KEY CHECK (agent_id ~ '^[A-Za-z0-9_-]{1,64}$'),
    analysis_id text NOT NULL REFERENCES workflow.analysis,
    agent_type  varchar(50) NOT NULL,
    owner       text NOT NULL CHECK (length(owner) BETWEEN 1 AND 200),
    opened_at   timestamptz NOT NULL,
    UNIQUE (analysis_id, agent_type)
);
COMMENT ON TABLE workflow.agent_instance IS 'One agent of one type in one analysis, kept for good: an id never means two things.';
COMMENT ON COLUMN workflow.agent_instance.owner IS 'The actor that first opened it: whose working memory it is.';

CREATE TABLE workflow.agent_leases (
    analysis_id text NOT NULL REFERENCES workflow.analysis,
    agent_type  varchar(50) NOT NULL,
    agent_id    text NOT NULL REFERENCES workflow.agent_instance,
    holder      text CHECK (length(holder) BETWEEN 1 AND 200),
    epoch       bigint NOT NULL CHECK (epoch > 0),
    expires_at  timestamptz NOT NULL,
    released    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (analysis_id, agent_type)
-- Renewed every ten seconds: there is room for the next version on the same page.
) WITH (fillfactor = 50);
COMMENT ON TABLE workflow.agent_leases IS 'Which process runs an agent. Every epoch is given to one holder at most; the newest alone may write.';
COMMENT ON COLUMN workflow.agent_leases.holder IS 'NULL: the epoch was raised to fence everybody off, and given to nobody.';

CREATE TABLE workflow.agent_checkpoints (
    id                  uuid PRIMARY KEY,
    subject_id          text NOT NULL,
    agent_type          varchar(50) NOT NULL,
    analysis_id         text NOT NULL,
    agent_id            text NOT NULL,
    run                 integer NOT NULL CHECK (run > 0),
    seq                 bigint NOT NULL CHECK (seq >= 0),
    epoch               bigint NOT NULL,
    kind                text NOT NULL CHECK (kind IN ('start', 'subtask', 'rerun', 'failure', 'pause')),
    subtask             varchar(100),
    checkpoint_time     timestamptz NOT NULL,
    created_at          timestamptz NOT NULL,
    progress_pct        decimal(5,2) NOT NULL,
    current_subtask     varchar(100),
    completed_subtasks  text[] NOT NULL,
    pending_subtasks    text[] NOT NULL,
    working_memory      jsonb NOT NULL,
    working_memory_hash text CHECK (working_memory_hash ~ '^[0-9a-f]{64}$'),
    interim_results     jsonb NOT NULL,
    agent_config        jsonb NOT NULL,
    agent_version       varchar(20) NOT NULL,
    failure_reason      text,
    error_details       jsonb,
    retry_count         integer NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    l1_snapshot         jsonb,
    l1_snapshot_hash    text,
    preserve            boolean NOT NULL DEFAULT false,
    UNIQUE (analysis_id, agent_type, seq),
    UNIQUE (analysis_id, agent_type, checkpoint_time),
    CHECK (NOT completed_subtasks && pending_subtasks),
    CHECK (cardinality(completed_subtasks) + cardinality(pending_subtasks) > 0),
    CHECK (current_subtask IS NOT DISTINCT FROM pending_subtasks[1]),
    CHECK (kind <> 'start' OR cardinality(completed_subtasks) = 0),
    CHECK (kind = 'start' OR working_memory_hash IS NOT NULL),
    CHECK (kind = 'rerun' OR (kind = 'subtask') = coalesce(subtask = completed_subtasks[cardinality(completed_subtasks)], false)),
    CHECK (kind <> 'rerun' OR coalesce(subtask = ANY (completed_subtasks), false)),
    CHECK ((kind = 'failure') = (failure_reason IS NOT NULL)),
    CHECK ((kind = 'pause') = (l1_snapshot IS NOT NULL) AND (kind = 'pause') = (l1_snapshot_hash IS NOT NULL))
);
-- Uncompressed: at 100 kB the server's own compression takes twice as long as all the rest of a save, and the agent waits.
ALTER TABLE workflow.agent_checkpoints ALTER working_memory SET STORAGE EXTERNAL, ALTER l1_snapshot SET STORAGE EXTERNAL;
-- Of an analysis alone: the key (analysis_id, agent_type, seq) begins with it and serves.
CREATE INDEX agent_checkpoints_of_subject ON workflow.agent_checkpoints (subject_id, agent_type);
CREATE INDEX agent_checkpoints_with_snapshot ON workflow.agent_checkpoints (analysis_id, agent_type) WHERE l1_snapshot IS NOT NULL;
CREATE UNIQUE INDEX agent_checkpoints_once ON workflow.agent_checkpoints (analysis_id, agent_type, run, subtask) WHERE kind = 'subtask';
COMMENT ON TABLE workflow.agent_checkpoints IS 'Where an agent stands: what it has completed and what it then knew. Append-only but for preserve; rows go by clean-up alone.';
COMMENT ON COLUMN workflow.agent_checkpoints.run IS 'Counts clean restarts: each start row begins one. A subtask is completed once in a run.';
COMMENT ON COLUMN workflow.agent_checkpoints.seq IS 'Without gaps from 0, over all runs: it orders, never the clock.';
COMMENT ON COLUMN workflow.agent_checkpoints.subtask IS 'Of a subtask row the one completed, of a failure row the one that failed, of a rerun row the one run again because its result was lost.';
COMMENT ON COLUMN workflow.agent_checkpoints.checkpoint_time IS 'Strictly increasing with seq, also where the clock was set back; created_at is the clock''s own.';
COMMENT ON COLUMN workflow.agent_checkpoints.working_memory IS 'The typed document of the working memory; working_memory_hash is its digest, NULL of a start row (nothing known yet).';

CREATE TABLE workflow.agent_checkpoints_archive (
    LIKE workflow.agent_checkpoints,
    archived_at timestamptz NOT NULL,
    PRIMARY KEY (id)
);
COMMENT ON TABLE workflow.agent_checkpoints_archive IS 'Checkpoints that a clean-up was asked to keep a copy of. Append-only.';

CREATE TABLE workflow.agent_deliverable (
    analysis_id  text NOT NULL,
    agent_type   varchar(50) NOT NULL,
    subtask      varchar(100) NOT NULL,
    location     text NOT NULL CHECK (location IN ('postgres', 'graph', 'cache', 'message')),
    reference    text NOT NULL CHECK (length(reference) BETWEEN 1 AND 1000),
    digest       text NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'),
    payload      jsonb,
    nothing      boolean NOT NULL DEFAULT false,
    epoch        bigint NOT NULL,
    delivered_at timestamptz NOT NULL,
    PRIMARY KEY (analysis_id, agent_type, subtask, location),
    CHECK ((location = 'postgres' AND NOT nothing) = (payload IS NOT NULL))
);
COMMENT ON TABLE workflow.agent_deliverable IS 'What a subtask was run for, one row for each store that its definition names. A rerun replaces it.';
COMMENT ON COLUMN workflow.agent_deliverable.nothing IS 'The subtask said that it has nothing for this store: there is nothing to look for.';
COMMENT ON COLUMN workflow.agent_deliverable.epoch IS 'Of the lease under which it was delivered last; a subtask is completed on what was delivered under the same one.';
COMMENT ON COLUMN workflow.agent_deliverable.reference IS 'postgres: a name; graph: kind/key of a record; cache: the key in the cache Valkey; message: id of the journal''s event.';

-- What pauses say to checkpoints. Both are replaced by the migration that brings pauses.
CREATE VIEW workflow.open_pause_reference (checkpoint_id) AS SELECT NULL::uuid WHERE false;
COMMENT ON VIEW workflow.open_pause_reference IS 'Checkpoints that a pause refers to which is not over: no clean-up removes them.';

CREATE FUNCTION workflow.halted_v1(p_analysis_id text) RETURNS text
LANGUAGE sql STABLE
AS $$
    -- Why no agent of the analysis may start, in a few words; NULL where it may. Asked with the analysis locked.
    SELECT NULL::text WHERE p_analysis_id IS NOT NULL
$$;

-- Rows stay as they are.

CREATE FUNCTION workflow.checkpoint_guard() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    -- The setting stands only while purge_v1 runs. Whoever sets it by hand needs the right to delete as well, which the
    -- application's role does not have: this guards the owner against a slip.
    IF TG_OP = 'DELETE' AND current_setting('imem.purging', true) = 'on' THEN
        RETURN OLD;
    ELSIF TG_OP = 'UPDATE' AND to_jsonb(NEW) - 'preserve' = to_jsonb(OLD) - 'preserve' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% is append-only: clean-up alone removes rows', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON workflow.agent_checkpoints
    FOR EACH ROW EXECUTE FUNCTION workflow.checkpoint_guard();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON workflow.agent_checkpoints
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON workflow.agent_checkpoints_archive
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

-- Leases

CREATE FUNCTION workflow.acquire_lease_v1(
    p_analysis_id text, p_agent_type text, p_agent_id text, p_subject_id text, p_holder text, p_owner text,
    p_lasts interval, p_checkpoint_id uuid, p_subtasks text[], p_agent_config jsonb, p_agent_version text,
    OUT status text, OUT epoch bigint, OUT expires_at timestamptz, OUT detail text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- status: taken (the epoch is new), kept (it was the holder's and is renewed), and, with nothing changed: held (detail:
-- by whom), ended and halted (detail: how), subject, instance and agent (detail: what it is instead).
#variable_conflict use_column
DECLARE
    v_analysis workflow.analysis;
    v_instance workflow.agent_instance;
    v_lease workflow.agent_leases;
    v_now timestamptz;
    v_live boolean;
BEGIN
    -- Asked first, so that a refusal leaves no analysis behind that nobody has begun.
    SELECT * INTO v_instance FROM agent_instance AS i WHERE i.agent_id = p_agent_id;
    IF FOUND AND (v_instance.analysis_id, v_instance.agent_type) IS DISTINCT FROM (p_analysis_id, p_agent_type::varchar) THEN
        status := 'instance';
        detail := v_instance.agent_type || ' in ' || v_instance.analysis_id;
        RETURN;
    END IF;
    INSERT INTO analysis (analysis_id, subject_id, began_at) VALUES (p_analysis_id, p_subject_id, imem_now())
    ON CONFLICT (analysis_id) DO NOTHING;
    -- Whoever ends or halts the analysis waits for those who start in it, and the other way round: no agent starts in
    -- between, unseen by both.
    SELECT * INTO v_analysis FROM analysis AS a WHERE a.analysis_id = p_analysis_id FOR SHARE;
    detail := halted_v1(p_analysis_id);
    IF v_analysis.subject_id <> p_subject_id THEN
        status := 'subject';
        detail := v_analysis.subject_id;
    ELSIF v_analysis.outcome IS NOT NULL THEN
        status := 'ended';
        detail := v_analysis.outcome;
    ELSIF detail IS NOT NULL THEN
        status := 'halted';
    END IF;
    IF status IS NOT NULL THEN
        RETURN;
    END IF;

    INSERT INTO agent_instance (agent_id, analysis_id, agent_type, owner, opened_at)
    VALUES (p_agent_id, p_analysis_id, p_agent_type, p_owner, imem_now()) ON CONFLICT DO NOTHING;
    SELECT * INTO v_instance FROM agent_instance AS i WHERE i.analysis_id = p_analysis_id AND i.agent_type = p_agent_type;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'somebody opened % meanwhile', p_agent_id USING ERRCODE = 'serialization_failure';
    ELSIF v_instance.agent_id <> p_agent_id THEN
        status := 'agent';
        detail := v_instance.agent_id;
        RETURN;
    END IF;

    INSERT INTO agent_leases AS l (analysis_id, agent_type, agent_id, holder, epoch, expires_at)
    VALUES (p_analysis_id, p_agent_type, p_agent_id, p_holder, 1, imem_now() + p_lasts)
    ON CONFLICT (analysis_id, agent_type) DO NOTHING RETURNING 'taken', l.epoch, l.expires_at INTO status, epoch, expires_at;
    IF FOUND THEN
        INSERT INTO agent_checkpoints (
            id, subject_id, agent_type, analysis_id, agent_id, run, seq, epoch, kind, checkpoint_time, created_at,
            progress_pct, current_subtask, completed_subtasks, pending_subtasks, working_memory, interim_results,
            agent_config, agent_version)
        SELECT p_checkpoint_id, p_subject_id, p_agent_type, p_analysis_id, p_agent_id, 1, 0, 1, 'start', now, now,
            0, p_subtasks[1], '{}', p_subtasks, '{}', '{}', p_agent_config, p_agent_version
        FROM imem_now() AS now;
        RETURN;
    END IF;

    SELECT * INTO v_lease FROM agent_leases AS l
    WHERE l.analysis_id = p_analysis_id AND l.agent_type = p_agent_type FOR UPDATE;
    -- Read with the row locked: whoever waited for another holder judges by the time at which it came to its turn.
    v_now := imem_now();
    -- A lease that runs out later than any that is given now was given before the clock was set back. It counts as run
    -- out: waiting for it could take days, and taking over from somebody who lives costs that process its work at most.
    v_live := v_lease.holder IS NOT NULL AND NOT v_lease.released
        AND v_lease.expires_at > v_now AND v_lease.expires_at <= v_now + 2 * p_lasts;
    IF v_live AND v_lease.holder <> p_holder THEN
        status := 'held';
        detail := v_lease.holder;
        RETURN;
    END IF;
    UPDATE agent_leases AS l
    SET epoch = l.epoch + CASE WHEN v_live THEN 0 ELSE 1 END, holder = p_holder, expires_at = v_now + p_lasts, released = false
    WHERE l.analysis_id = p_analysis_id AND l.agent_type = p_agent_type
    RETURNING CASE WHEN v_live THEN 'kept' ELSE 'taken' END, l.epoch, l.expires_at INTO status, epoch, expires_at;
END
$$;

CREATE FUNCTION workflow.renew_lease_v1(
    p_analysis_id text, p_agent_type text, p_holder text, p_epoch bigint, p_lasts interval
) RETURNS timestamptz
LANGUAGE sql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
    -- When the lease now runs out; NULL where it is not the holder's any more. One that ran out and that nobody took is.
    UPDATE agent_leases SET expires_at = imem_now() + p_lasts
    WHERE analysis_id = p_analysis_id AND agent_type = p_agent_type AND epoch = p_epoch AND holder = p_holder AND NOT released
    RETURNING expires_at
$$;

CREATE FUNCTION workflow.release_lease_v1(p_analysis_id text, p_agent_type text, p_holder text, p_epoch bigint) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
    -- Gives the lease up; NULL where it is not the holder's any more. Repeating it changes nothing.
    UPDATE agent_leases SET released = true, expires_at = least(expires_at, imem_now())
    WHERE analysis_id = p_analysis_id AND agent_type = p_agent_type AND epoch = p_epoch AND holder = p_holder
    RETURNING true
$$;

CREATE FUNCTION workflow.raise_epoch_v1(p_analysis_id text) RETURNS SETOF workflow.agent_leases
LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- Fences off every holder in the analysis at once, and returns its leases, by agent type. An epoch that nobody was ever
-- given is not raised again: repeating it changes nothing, so that whoever goes on after a crash has the same epochs.
BEGIN
    PERFORM FROM analysis AS a WHERE a.analysis_id = p_analysis_id FOR UPDATE;
    PERFORM FROM agent_leases AS l WHERE l.analysis_id = p_analysis_id ORDER BY l.agent_type FOR UPDATE;
    UPDATE agent_leases AS l SET epoch = l.epoch + 1, holder = NULL, expires_at = least(l.expires_at, imem_now()), released = true
    WHERE l.analysis_id = p_analysis_id AND l.holder IS NOT NULL;
    RETURN QUERY SELECT l.* FROM agent_leases AS l WHERE l.analysis_id = p_analysis_id ORDER BY l.agent_type;
END
$$;

-- Checkpoints and deliverables

CREATE FUNCTION workflow.save_checkpoint_v1(
    p_id uuid, p_analysis_id text, p_agent_type text, p_epoch bigint, p_kind text, p_subtask text,
    p_working_memory jsonb, p_working_memory_hash text, p_interim_results jsonb, p_agent_config jsonb, p_agent_version text,
    p_failure_reason text, p_error_details jsonb, p_retry_count integer,
    -- a start row: the definition in p_pending; after a migration: the checkpoint that was migrated, and its lists now
    p_base uuid, p_completed text[], p_pending text[]
) RETURNS TABLE (
    status text, id uuid, subject_id text, agent_id text, run integer, seq bigint, epoch bigint, checkpoint_time timestamptz,
    created_at timestamptz, progress_pct decimal, completed_subtasks text[], pending_subtasks text[], preserve boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- status: saved, repeated (the latest row says the same already), and, with nothing written: stale (epoch: the newest),
-- completed (the subtask is already, with other content), not_pending (another one comes first: pending_subtasks; of a
-- rerun: it is not completed yet), base
-- (the checkpoint that was migrated is not the latest), version (the latest is of another version, and none was migrated).
#variable_conflict use_column
DECLARE
    v_lease workflow.agent_leases;
    v_last workflow.agent_checkpoints;
    v_completed text[];
    v_pending text[];
    v_status text;
    v_now timestamptz;
BEGIN
    SELECT * INTO v_lease FROM agent_leases AS l
    WHERE l.analysis_id = p_analysis_id AND l.agent_type = p_agent_type FOR UPDATE;
    SELECT * INTO v_last FROM agent_checkpoints AS c
    WHERE c.analysis_id = p_analysis_id AND c.agent_type = p_agent_type ORDER BY c.seq DESC LIMIT 1;
    -- A lease that ran out and that nobody took is still its holder's: the epoch alone decides. No row at all: cleaned up.
    IF v_lease.epoch IS DISTINCT FROM p_epoch OR v_last.id IS NULL THEN
        v_status := 'stale';
    ELSIF v_last.kind = p_kind AND v_last.subtask IS NOT DISTINCT FROM p_subtask
        -- A pause, a failure or a rerun in a later epoch is another one, even if nothing was learnt in between.
        AND (p_kind IN ('start', 'subtask') OR v_last.epoch = p_epoch)
        AND v_last.agent_version = p_agent_version AND v_last.working_memory_hash IS NOT DISTINCT FROM p_working_memory_hash
        AND v_last.interim_results = p_interim_results AND v_last.agent_config = p_agent_config
        AND v_last.failure_reason IS NOT DISTINCT FROM p_failure_reason
        AND v_last.error_details IS NOT DISTINCT FROM p_error_details AND v_last.retry_count = p_retry_count
        AND (p_kind <> 'start' OR v_last.pending_subtasks = p_pending) THEN
        v_status := 'repeated';
    ELSIF p_kind = 'start' THEN
        v_completed := '{}';
        v_pending := p_pending;
    ELSIF p_base IS NOT NULL AND p_base <> v_last.id THEN
        v_status := 'base';
    ELSIF p_base IS NULL AND v_last.agent_version <> p_agent_version THEN
        v_status := 'version';
    ELSE
        v_completed := CASE WHEN p_base IS NULL THEN v_last.completed_subtasks ELSE p_completed END;
        v_pending := CASE WHEN p_base IS NULL THEN v_last.pending_subtasks ELSE p_pending END;
        IF p_kind = 'rerun' THEN
            v_status := CASE WHEN p_subtask = ANY (v_completed) THEN NULL ELSE 'not_pending' END;
        ELSIF p_kind <> 'pause' AND p_subtask = ANY (v_completed) THEN
            v_status := 'completed';
        ELSIF p_kind <> 'pause' AND v_pending[1] IS DISTINCT FROM p_subtask THEN
            v_status := 'not_pending';
        ELSIF p_kind = 'subtask' THEN
            v_completed := v_completed || p_subtask;
            v_pending := v_pending[2:];
        END IF;
    END IF;
    IF v_status IS NOT NULL THEN
        RETURN QUERY SELECT v_status, v_last.id, v_last.subject_id, v_last.agent_id, v_last.run, v_last.seq,
            CASE WHEN v_status = 'stale' THEN v_lease.epoch ELSE v_last.epoch END, v_last.checkpoint_time,
            v_last.created_at, v_last.progress_pct, v_last.completed_subtasks,
            coalesce(v_pending, v_last.pending_subtasks), v_last.preserve;
        RETURN;
    END IF;
    v_now := imem_now();
    RETURN QUERY INSERT INTO agent_checkpoints AS c (
        id, subject_id, agent_type, analysis_id, agent_id, run, seq, epoch, kind, subtask, checkpoint_time, created_at,
        progress_pct, current_subtask, completed_subtasks, pending_subtasks, working_memory, working_memory_hash,
        interim_results, agent_config, agent_version, failure_reason, error_details, retry_count, l1_snapshot, l1_snapshot_hash)
    VALUES (
        p_id, v_last.subject_id, p_agent_type, p_analysis_id, v_lease.agent_id,
        v_last.run + CASE WHEN p_kind = 'start' THEN 1 ELSE 0 END, v_last.seq + 1, p_epoch, p_kind, p_subtask,
        greatest(v_now, v_last.checkpoint_time + interval '1 microsecond'), v_now,
        100.0 * cardinality(v_completed) / (cardinality(v_completed) + cardinality(v_pending)), v_pending[1],
        v_completed, v_pending, p_working_memory, p_working_memory_hash, p_interim_results, p_agent_config,
        p_agent_version, p_failure_reason, p_error_details, p_retry_count,
        CASE WHEN p_kind = 'pause' THEN p_working_memory END, CASE WHEN p_kind = 'pause' THEN p_working_memory_hash END)
    RETURNING 'saved', c.id, c.subject_id, c.agent_id, c.run, c.seq, c.epoch, c.checkpoint_time, c.created_at,
        c.progress_pct::decimal, c.completed_subtasks, c.pending_subtasks, c.preserve;
END
$$;

CREATE FUNCTION workflow.deliver_v1(
    p_analysis_id text, p_agent_type text, p_epoch bigint, p_subtask text, p_location text, p_reference text, p_digest text,
    p_payload jsonb, p_nothing boolean, OUT status text, OUT epoch bigint, OUT delivered_at timestamptz
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- status: delivered, repeated, and, with nothing written: stale (epoch: the newest), not_begun (the subtask is neither
-- completed nor the next one). A completed subtask may deliver again: that is how one that was lost is made good.
#variable_conflict use_column
BEGIN
    SELECT l.epoch INTO epoch FROM agent_leases AS l
    WHERE l.analysis_id = p_analysis_id AND l.agent_type = p_agent_type FOR UPDATE;
    IF epoch IS DISTINCT FROM p_epoch THEN
        status := 'stale';
        RETURN;
    END IF;
    PERFORM FROM (
        SELECT c.completed_subtasks, c.pending_subtasks FROM agent_checkpoints AS c
        WHERE c.analysis_id = p_analysis_id AND c.agent_type = p_agent_type ORDER BY c.seq DESC LIMIT 1
    ) AS latest
    WHERE p_subtask = ANY (latest.completed_subtasks) OR p_subtask = latest.pending_subtasks[1];
    IF NOT FOUND THEN
        status := 'not_begun';
        RETURN;
    END IF;
    -- The same again is the same, also in a later epoch, which it then counts for.
    UPDATE agent_deliverable AS d SET epoch = p_epoch
    WHERE d.analysis_id = p_analysis_id AND d.agent_type = p_agent_type AND d.subtask = p_subtask
      AND d.location = p_location AND d.reference = p_reference AND d.digest = p_digest AND d.nothing = p_nothing
      -- A payload that somebody changed in place is put right.
      AND d.payload IS NOT DISTINCT FROM p_payload
    RETURNING 'repeated', d.delivered_at INTO status, delivered_at;
    IF FOUND THEN
        RETURN;
    END IF;
    INSERT INTO agent_deliverable AS d (
        analysis_id, agent_type, subtask, location, reference, digest, payload, nothing, epoch, delivered_at)
    VALUES (
        p_analysis_id, p_agent_type, p_subtask, p_location, p_reference, p_digest, p_payload, p_nothing, p_epoch, imem_now())
    ON CONFLICT (analysis_id, agent_type, subtask, location) DO UPDATE SET
        reference = excluded.reference, digest = excluded.digest, payload = excluded.payload, nothing = excluded.nothing,
        epoch = excluded.epoch, delivered_at = excluded.delivered_at
    RETURNING 'delivered', d.delivered_at INTO status, delivered_at;
END
$$;

-- The end of an analysis, and clean-up

CREATE FUNCTION workflow.end_analysis_v1(p_analysis_id text, p_outcome text, p_reason text, p_latest uuid[]) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- Ends the analysis and fences off its agents. Returns ended, already (in that way; when it ended stays), and, with
-- nothing changed: otherwise (it ended the other way), unknown, changed (the latest checkpoints are not p_latest).
DECLARE
    v_analysis workflow.analysis;
BEGIN
    SELECT * INTO v_analysis FROM analysis AS a WHERE a.analysis_id = p_analysis_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'unknown';
    ELSIF v_analysis.outcome IS NOT NULL THEN
        RETURN CASE WHEN v_analysis.outcome = p_outcome THEN 'already' ELSE 'otherwise' END;
    END IF;
    -- Whoever saves waits from here on, and is fenced off then: what the next statement sees stays the latest.
    PERFORM FROM agent_leases AS l WHERE l.analysis_id = p_analysis_id ORDER BY l.agent_type FOR UPDATE;
    IF p_latest IS NOT NULL AND EXISTS (
        SELECT FROM (
            SELECT DISTINCT ON (c.agent_type) c.id FROM agent_checkpoints AS c WHERE c.analysis_id = p_analysis_id
            ORDER BY c.agent_type, c.seq DESC
        ) AS latest
        WHERE latest.id <> ALL (p_latest)
    ) THEN
        RETURN 'changed';
    END IF;
    PERFORM raise_epoch_v1(p_analysis_id);
    UPDATE analysis AS a SET outcome = p_outcome, ended_at = imem_now(), reason = left(p_reason, 2000)
    WHERE a.analysis_id = p_analysis_id;
    RETURN 'ended';
END
$$;

CREATE FUNCTION workflow.purge_v1(p_analysis_id text, p_after text, p_limit integer, p_keep_failed interval, p_archive boolean)
RETURNS TABLE (analysis_id text, deleted bigint, kept bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
-- For as long as the function runs: the guard lets it remove rows.
SET imem.purging = 'on'
AS $$
-- Removes the checkpoints of analyses that succeeded, or failed p_keep_failed ago, but for preserved ones and those that
-- an open pause refers to: of one analysis, or of the next p_limit after p_after in the order of their ids. kept: how many
-- are left only because of a pause; while there are such, the analysis comes again.
#variable_conflict use_column
DECLARE
    v_analysis text;
BEGIN
    FOR v_analysis IN
        SELECT a.analysis_id FROM analysis AS a
        WHERE a.outcome IS NOT NULL AND a.purged_at IS NULL
          AND (a.outcome = 'succeeded' OR a.ended_at <= imem_now() - p_keep_failed)
          AND (p_analysis_id IS NULL OR a.analysis_id = p_analysis_id) AND (p_after IS NULL OR a.analysis_id > p_after)
        ORDER BY a.analysis_id LIMIT p_limit FOR UPDATE
    LOOP
        -- Waits for pauses that are about to refer to a row; the next statement sees what they decided.
        PERFORM FROM agent_checkpoints AS c WHERE c.analysis_id = v_analysis AND NOT c.preserve FOR UPDATE;
        WITH gone AS (
            DELETE FROM agent_checkpoints AS c WHERE c.analysis_id = v_analysis AND NOT c.preserve
              AND NOT EXISTS (SELECT FROM open_pause_reference AS r WHERE r.checkpoint_id = c.id)
            RETURNING c.*
        ),
        archived AS (
            INSERT INTO agent_checkpoints_archive SELECT gone.*, imem_now() FROM gone WHERE p_archive
            ON CONFLICT (id) DO NOTHING
        )
        SELECT v_analysis, count(*) INTO analysis_id, deleted FROM gone;
        SELECT count(*) INTO kept FROM agent_checkpoints AS c WHERE c.analysis_id = v_analysis AND NOT c.preserve;
        IF kept = 0 THEN
            UPDATE analysis AS a SET purged_at = imem_now() WHERE a.analysis_id = v_analysis;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION workflow.cleared_v1(p_analysis_id text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- Says that Valkey holds nothing of the analysis any more: its leases, which say what to look for, go.
BEGIN
    UPDATE analysis AS a SET cleared_at = imem_now()
    WHERE a.analysis_id = p_analysis_id AND a.purged_at IS NOT NULL AND a.cleared_at IS NULL;
    IF FOUND THEN
        DELETE FROM agent_leases AS l WHERE l.analysis_id = p_analysis_id;
    END IF;
END
$$;

CREATE FUNCTION workflow.preserve_v1(p_id uuid, p_preserve boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- Exempts a checkpoint from clean-up, or no longer; whether there is such a one.
BEGIN
    -- Clean-up looks again at an analysis that it was done with.
    UPDATE analysis AS a SET purged_at = NULL FROM agent_checkpoints AS c
    WHERE c.id = p_id AND a.analysis_id = c.analysis_id AND a.purged_at IS NOT NULL AND NOT p_preserve;
    UPDATE agent_checkpoints AS c SET preserve = p_preserve WHERE c.id = p_id;
    RETURN FOUND;
END
$$;

-- Who may what

CREATE OR REPLACE FUNCTION imem_grant_application(p_role text) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Gives the application's role what it needs and no more: it reads everything, writes the journal through
-- imem_append_v1 alone, and changes only the tables of running work and of derived values. Of the schemas workflow and
-- langgraph it changes what is neither append-only nor written by functions alone.
DECLARE
    v_statement text;
    v_table regclass;
BEGIN
    FOREACH v_statement IN ARRAY ARRAY[
        'GRANT USAGE ON SCHEMA public, workflow, langgraph TO %I',
        'GRANT SELECT ON ALL TABLES IN SCHEMA public TO %I',
        'GRANT UPDATE ON delivery TO %I',
        'GRANT INSERT, UPDATE, DELETE ON lease, derive_work, settlement_due TO %I',
        'GRANT INSERT, UPDATE, DELETE ON agent_outcome, track_step, track_due TO %I',
        'GRANT INSERT ON reconciliation_report TO %I',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA workflow, langgraph TO %I',
        'GRANT USAGE ON ALL SEQUENCES IN SCHEMA workflow, langgraph TO %I',
        'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public, workflow, langgraph TO %I',
        'REVOKE EXECUTE ON FUNCTION imem_grant_application(text) FROM %I',
        -- What fences processes off from one another is written by functions alone.
        'REVOKE INSERT, UPDATE, DELETE ON workflow.analysis, workflow.agent_instance, workflow.agent_leases, '
            'workflow.agent_checkpoints, workflow.agent_checkpoints_archive, workflow.agent_deliverable FROM %I'
    ] LOOP
        EXECUTE format(v_statement, p_role);
    END LOOP;
    FOR v_table IN
        SELECT t.tgrelid FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE t.tgname = 'append_only' AND c.relnamespace IN ('workflow'::regnamespace, 'langgraph'::regnamespace)
    LOOP
        EXECUTE format('REVOKE UPDATE, DELETE ON %s FROM %I', v_table, p_role);
    END LOOP;
END
$$;
