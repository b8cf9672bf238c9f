-- Execution checkpoints, deliverables, the end of an analysis, and clean-up.

-- What a checkpoint's row must be, in one function. The server reads each CHECK of a table anew for every INSERT; fourteen of them took a
-- sixth of the time of a save. A function is read once a connection, and a rule only for the kinds that it applies to.
CREATE FUNCTION workflow.checkpoint_fits_v1(
    p_run integer, p_seq bigint, p_kind text, p_subtask text, p_current text, p_completed text[], p_pending text[],
    p_hash text, p_failed boolean, p_retry_count integer, p_snapshot boolean, p_snapshot_hash boolean
) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF NOT (
        p_run > 0 AND p_seq >= 0 AND p_retry_count >= 0 AND NOT p_completed && p_pending
        AND cardinality(p_completed) + cardinality(p_pending) > 0 AND p_current IS NOT DISTINCT FROM p_pending[1]
        AND p_failed = (p_kind = 'failure') AND p_snapshot = (p_kind = 'pause') AND p_snapshot_hash = (p_kind = 'pause')
        -- Sixty-four hexadecimal digits: a regular expression takes longer than all the rest of this.
        AND CASE WHEN p_hash IS NULL THEN p_kind = 'start' ELSE octet_length(p_hash) = 64 AND ltrim(p_hash, '0123456789abcdef') = '' END
    ) THEN
        RETURN false;
    ELSIF p_kind = 'subtask' THEN
        RETURN coalesce(p_subtask = p_completed[cardinality(p_completed)], false);
    ELSIF p_kind = 'rerun' THEN
        RETURN coalesce(p_subtask = ANY (p_completed), false);
    ELSIF p_kind = 'start' THEN
        RETURN cardinality(p_completed) = 0;
    END IF;
    -- What failed, or was paused at, is not what was completed last.
    RETURN p_kind IN ('failure', 'pause') AND NOT coalesce(p_subtask = p_completed[cardinality(p_completed)], false);
END
$$;

CREATE TABLE workflow.agent_checkpoints (
    id                  uuid PRIMARY KEY,
    subject_id          text NOT NULL,
    agent_type          varchar(50) NOT NULL,
    analysis_id         text NOT NULL,
    agent_id            text NOT NULL,
    run                 integer NOT NULL,
    seq                 bigint NOT NULL,
    epoch               bigint NOT NULL,
    kind                text NOT NULL,
    subtask             varchar(100),
    checkpoint_time     timestamptz NOT NULL,
    created_at          timestamptz NOT NULL,
    progress_pct        decimal(5,2) NOT NULL,
    current_subtask     varchar(100),
    completed_subtasks  text[] NOT NULL,
    pending_subtasks    text[] NOT NULL,
    working_memory      jsonb NOT NULL,
    working_memory_hash text,
    interim_results     jsonb NOT NULL,
    agent_config        jsonb NOT NULL,
    agent_version       varchar(20) NOT NULL,
    failure_reason      text,
    error_details       jsonb,
    retry_count         integer NOT NULL DEFAULT 0,
    l1_snapshot         jsonb,
    l1_snapshot_hash    text,
    preserve            boolean NOT NULL DEFAULT false,
    UNIQUE (analysis_id, agent_type, seq),
    UNIQUE (analysis_id, agent_type, checkpoint_time),
    CONSTRAINT agent_checkpoints_fit CHECK (workflow.checkpoint_fits_v1(
        run, seq, kind, subtask, current_subtask, completed_subtasks, pending_subtasks, working_memory_hash,
        failure_reason IS NOT NULL, retry_count, l1_snapshot IS NOT NULL, l1_snapshot_hash IS NOT NULL))
);
-- Uncompressed: at 100 kB the server's own compression takes twice as long as all the rest of a save, and the agent waits.
-- CREATE TABLE takes STORAGE only from Postgres 16 on.
ALTER TABLE workflow.agent_checkpoints ALTER working_memory SET STORAGE EXTERNAL, ALTER l1_snapshot SET STORAGE EXTERNAL;
-- Of an analysis alone: the key (analysis_id, agent_type, seq) begins with it and serves.
CREATE INDEX agent_checkpoints_of_subject ON workflow.agent_checkpoints (subject_id, agent_type);
CREATE INDEX agent_checkpoints_with_snapshot ON workflow.agent_checkpoints (analysis_id, agent_type) WHERE l1_snapshot IS NOT NULL;
CREATE UNIQUE INDEX agent_checkpoints_once ON workflow.agent_checkpoints (analysis_id, agent_type, run, subtask) WHERE kind = 'subtask';
COMMENT ON TABLE workflow.agent_checkpoints IS 'The progress of an agent: what it has completed and what it then knew. Append-only but for preserve; rows go by clean-up alone.';
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
COMMENT ON COLUMN workflow.agent_deliverable.nothing IS 'The subtask reported that it has no result for this store.';
COMMENT ON COLUMN workflow.agent_deliverable.epoch IS 'Of the lease under which it was delivered last; a subtask is completed on what was delivered under the same one.';
COMMENT ON COLUMN workflow.agent_deliverable.reference IS 'postgres: a name; graph: kind/key of a record; cache: the key in the cache Valkey; message: id of the journal''s event.';

CREATE FUNCTION workflow.checkpoint_guard() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    -- The setting is on only while purge_v1 runs. A session that sets it itself needs the right to delete as well, which the
    -- application's role does not have: this guards the owner against a mistake.
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

-- Saving

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
-- status: saved, repeated (the latest row has the same content already), and, with nothing written: stale (epoch: the newest),
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
    -- A lease that ran out and was not taken over is still its holder's: the epoch alone decides. No row at all: cleaned up.
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
      -- A payload that was changed in place is written again.
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
    -- A process that saves waits from here on, and is fenced off then: what the next statement sees stays the latest.
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
-- Records that Valkey holds nothing of the analysis any more, and removes its leases, which name the keys to look for.
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
-- Exempts a checkpoint from clean-up, or ends the exemption; returns whether there is such a checkpoint.
BEGIN
    -- Clean-up has to come back to an analysis that it had finished.
    UPDATE analysis AS a SET purged_at = NULL FROM agent_checkpoints AS c
    WHERE c.id = p_id AND a.analysis_id = c.analysis_id AND a.purged_at IS NOT NULL AND NOT p_preserve;
    UPDATE agent_checkpoints AS c SET preserve = p_preserve WHERE c.id = p_id;
    RETURN FOUND;
END
$$;
