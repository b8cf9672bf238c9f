-- Analyses, agent instances and their leases: schema workflow.
--
-- Postgres is the commit point of a checkpoint; what Valkey holds beside is a copy. What fences processes off from one another (leases,
-- checkpoints, deliverables) the application's role writes through functions alone: each locks the lease's row first and compares its
-- epoch, so that two processes cannot both believe that they may write. Functions return a status rather than raise; Python turns it
-- into an error of the product.
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
COMMENT ON COLUMN workflow.analysis.purged_at IS 'When clean-up removed the last of its checkpoints that is not preserved.';
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
COMMENT ON COLUMN workflow.agent_leases.holder IS 'NULL: the epoch was raised to fence off every process, and has no holder.';

CREATE FUNCTION workflow.hold_analysis_v1(p_analysis_id text, p_skip boolean) RETURNS SETOF workflow.analysis
LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- Locks an analysis until the transaction ends: agents that would start, and transactions that pause, resume or end it, wait.
-- With p_skip, no row where another transaction has it locked.
BEGIN
    IF p_skip THEN
        RETURN QUERY SELECT a.* FROM analysis AS a WHERE a.analysis_id = p_analysis_id FOR UPDATE SKIP LOCKED;
    ELSE
        RETURN QUERY SELECT a.* FROM analysis AS a WHERE a.analysis_id = p_analysis_id FOR UPDATE;
    END IF;
END
$$;

CREATE FUNCTION workflow.begin_analysis_v1(p_analysis_id text, p_subject_id text) RETURNS SETOF workflow.analysis
LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- Takes an analysis in, unless it is there, and returns it as it is.
BEGIN
    INSERT INTO analysis (analysis_id, subject_id, began_at) VALUES (p_analysis_id, p_subject_id, imem_now())
    ON CONFLICT (analysis_id) DO NOTHING;
    RETURN QUERY SELECT a.* FROM analysis AS a WHERE a.analysis_id = p_analysis_id;
END
$$;

CREATE FUNCTION workflow.acquire_lease_v1(
    p_analysis_id text, p_agent_type text, p_agent_id text, p_subject_id text, p_holder text, p_owner text,
    p_lasts interval, p_checkpoint_id uuid, p_subtasks text[], p_agent_config jsonb, p_agent_version text,
    OUT status text, OUT epoch bigint, OUT expires_at timestamptz, OUT detail text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = workflow, public, pg_temp
AS $$
-- status: taken (the epoch is new), kept (it was the holder's and is renewed), and, with nothing changed: held (detail:
-- by whom), ended and blocked (detail: how), subject, instance and agent (detail: what it is instead).
#variable_conflict use_column
DECLARE
    v_analysis workflow.analysis;
    v_instance workflow.agent_instance;
    v_lease workflow.agent_leases;
    v_now timestamptz;
    v_live boolean;
BEGIN
    -- Checked first, so that a refusal leaves no analysis behind that has no agent.
    SELECT * INTO v_instance FROM agent_instance AS i WHERE i.agent_id = p_agent_id;
    IF FOUND AND (v_instance.analysis_id, v_instance.agent_type) IS DISTINCT FROM (p_analysis_id, p_agent_type::varchar) THEN
        status := 'instance';
        detail := v_instance.agent_type || ' in ' || v_instance.analysis_id;
        RETURN;
    END IF;
    INSERT INTO analysis (analysis_id, subject_id, began_at) VALUES (p_analysis_id, p_subject_id, imem_now())
    ON CONFLICT (analysis_id) DO NOTHING;
    -- A transaction that ends or pauses the analysis waits for those that start agents in it, and the other way round: no agent
    -- starts unseen in between.
    SELECT * INTO v_analysis FROM analysis AS a WHERE a.analysis_id = p_analysis_id FOR SHARE;
    detail := block_reason_v1(p_analysis_id);
    IF v_analysis.subject_id <> p_subject_id THEN
        status := 'subject';
        detail := v_analysis.subject_id;
    ELSIF v_analysis.outcome IS NOT NULL THEN
        status := 'ended';
        detail := v_analysis.outcome;
    ELSIF detail IS NOT NULL THEN
        status := 'blocked';
    END IF;
    IF status IS NOT NULL THEN
        RETURN;
    END IF;

    INSERT INTO agent_instance (agent_id, analysis_id, agent_type, owner, opened_at)
    VALUES (p_agent_id, p_analysis_id, p_agent_type, p_owner, imem_now()) ON CONFLICT DO NOTHING;
    SELECT * INTO v_instance FROM agent_instance AS i WHERE i.analysis_id = p_analysis_id AND i.agent_type = p_agent_type;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process opened % meanwhile', p_agent_id USING ERRCODE = 'serialization_failure';
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
    -- Read with the row locked: a process that waited for another holder compares with the time at which it got the lock.
    v_now := imem_now();
    -- A lease that runs out later than any that is given now was given before the clock was set back. It counts as run
    -- out: waiting for it could take days, and taking over from a live process costs it its work at most.
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
    -- When the lease now runs out; NULL where it is not the holder's any more. One that ran out and was not taken over still is.
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
-- Fences off every holder in the analysis at once, and returns its leases, by agent type. An epoch without a
-- holder is not raised again: repeating it changes nothing, so that a process that goes on after a crash gets the same epochs.
BEGIN
    PERFORM FROM analysis AS a WHERE a.analysis_id = p_analysis_id FOR UPDATE;
    PERFORM FROM agent_leases AS l WHERE l.analysis_id = p_analysis_id ORDER BY l.agent_type FOR UPDATE;
    UPDATE agent_leases AS l SET epoch = l.epoch + 1, holder = NULL, expires_at = least(l.expires_at, imem_now()), released = true
    WHERE l.analysis_id = p_analysis_id AND l.holder IS NOT NULL;
    RETURN QUERY SELECT l.* FROM agent_leases AS l WHERE l.analysis_id = p_analysis_id ORDER BY l.agent_type;
END
$$;
