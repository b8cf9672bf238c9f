-- Synchronisation of memories: locks on writers, recipients of notices, debates and their snapshots.
--
-- Postgres decides all of it. What waits for an agent is in workflow.recipient; the queue in Valkey only wakes it up. The tables
-- are in the schema workflow, whose rights the application's role has.

-- Locks on writers

CREATE FUNCTION imem_lock_writers_v1(p_actors text[], p_holder text, p_lasts interval)
RETURNS TABLE (actor text, epoch bigint, locked_until timestamptz, held_by text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Locks the writes of all the actors, or of none: then it returns those that another holder has locked, and until when.
--
-- The rows are always locked in one order, so that two debates that share participants never deadlock. An append holds the
-- same row: what began before is committed when this returns.
#variable_conflict use_column
DECLARE
    v_now timestamptz;
BEGIN
    INSERT INTO agent_cursor (actor)
    SELECT DISTINCT a.name COLLATE "C" FROM unnest(p_actors) AS a (name) ORDER BY 1
    ON CONFLICT DO NOTHING;
    PERFORM FROM agent_cursor AS c WHERE c.actor = ANY (p_actors) ORDER BY c.actor COLLATE "C" FOR UPDATE;
    -- Read with the rows locked: a process that waited for another holder compares with the time at which it got the locks.
    v_now := imem_now();
    RETURN QUERY
    SELECT c.actor, c.lock_epoch, c.locked_until, c.lock_holder FROM agent_cursor AS c
    WHERE c.actor = ANY (p_actors) AND c.lock_holder <> p_holder
      -- One that runs out later than any that is given now was given before the clock was set back.
      AND c.locked_until > v_now AND c.locked_until <= v_now + 2 * p_lasts
    ORDER BY c.actor;
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    UPDATE agent_cursor AS c SET lock_epoch = c.lock_epoch + 1, lock_holder = p_holder, locked_until = v_now + p_lasts
    WHERE c.actor = ANY (p_actors)
    RETURNING c.actor, c.lock_epoch, c.locked_until, NULL::text;
END
$$;

CREATE FUNCTION imem_unlock_writers_v1(p_actors text[], p_holder text) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    -- Releases what the holder still holds; returns how many. The epochs stay: an append under one of them is late from the
    -- next lock on.
    WITH let_go AS (
        UPDATE agent_cursor AS c SET lock_holder = NULL, locked_until = NULL
        FROM (
            SELECT k.actor FROM agent_cursor AS k WHERE k.actor = ANY (p_actors) AND k.lock_holder = p_holder
            ORDER BY k.actor COLLATE "C" FOR UPDATE
        ) AS held
        WHERE c.actor = held.actor
        RETURNING 1
    )
    SELECT count(*) FROM let_go
$$;

-- Recipients of notices
CREATE TABLE workflow.notice_due (
    position bigint PRIMARY KEY
);
COMMENT ON TABLE workflow.notice_due IS 'Events whose recipients are still to be found; a row lives for a moment. Imports of history notify no agent.';

CREATE FUNCTION workflow.notice_shown_v1(p_kind text, p_key text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp
AS $$
-- Whether agents see the record of an event of a kind: not what people review, and of lessons those that are shown now.
SELECT CASE
    WHEN split_part(p_kind, '.', 2) = 'Lesson' THEN imem_lesson_shown_v1(p_key, 'infinity', 'infinity') IS NOT NULL
    ELSE split_part(p_kind, '.', 2) NOT IN ('PostMortem', 'FailureAnalysis', 'HumanInsight', 'SuccessValidation') END
$$;

CREATE TABLE workflow.inbox (
    agent_id     text PRIMARY KEY REFERENCES workflow.agent_instance,
    notified_seq bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE workflow.inbox IS 'The number of the last update of each agent; its row lock assigns the numbers in the order of commits.';

CREATE TABLE workflow.recipient (
    position    bigint NOT NULL,
    agent_id    text NOT NULL REFERENCES workflow.agent_instance,
    seq         bigint,
    tier        smallint NOT NULL CHECK (tier BETWEEN 0 AND 3),
    score       real NOT NULL,
    parts       real[] NOT NULL CHECK (cardinality(parts) = 5),
    why         text NOT NULL CHECK (why IN ('everybody', 'named', 'important', 'relevant', 'below')),
    routed_at   timestamptz NOT NULL DEFAULT imem_now(),
    notified_at timestamptz,
    pulled_at   timestamptz,
    PRIMARY KEY (position, agent_id),
    UNIQUE (agent_id, seq),
    CHECK ((seq IS NULL) = (why = 'below'))
);
CREATE INDEX recipient_unpulled ON workflow.recipient (agent_id, seq) WHERE pulled_at IS NULL AND seq IS NOT NULL;
CREATE INDEX recipient_untold ON workflow.recipient (agent_id, tier, position)
    WHERE notified_at IS NULL AND pulled_at IS NULL AND seq IS NOT NULL;
CREATE INDEX recipient_old ON workflow.recipient (routed_at);
COMMENT ON TABLE workflow.recipient IS 'Which agent is notified of which event, and why; an agent for which an event was too irrelevant is recorded as well, with the score.';
COMMENT ON COLUMN workflow.recipient.seq IS 'Numbers the notices of one agent, from 1 without gaps; NULL where it gets none.';
COMMENT ON COLUMN workflow.recipient.parts IS 'The five inputs of the score, unweighted: specialisation, active analyses, usage, importance, type.';
COMMENT ON COLUMN workflow.recipient.notified_at IS 'When its notice was queued; NULL while there is none: never queued, refused, displaced, or lost.';

CREATE TABLE workflow.notice_usage (
    agent_id text NOT NULL REFERENCES workflow.agent_instance,
    sender   text NOT NULL,
    notified bigint NOT NULL DEFAULT 0,
    pulled   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, sender)
);
COMMENT ON TABLE workflow.notice_usage IS 'How many notices about a sender''s records each agent got, and how many it pulled: an input of the next score.';

CREATE FUNCTION imem_event_added() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Checks the lock on the actor of every append, whichever function it came by. A flush for a participant gives the epoch of its
-- lock in imem.lock_epoch; IM001 is a lock of another holder, IM002 an epoch that is over.
--
-- The append holds the row of agent_cursor, so that a lock is either seen here or waits until this is committed.
DECLARE
    v_bears text := coalesce(current_setting('imem.lock_epoch', true), '');
    v_actor text;
    v_epoch bigint;
    v_until timestamptz;
BEGIN
    FOR v_actor IN SELECT DISTINCT a.actor FROM added AS a LOOP
        SELECT c.lock_epoch, c.locked_until INTO v_epoch, v_until FROM agent_cursor AS c WHERE c.actor = v_actor;
        IF v_bears <> '' THEN
            IF v_bears::bigint <> v_epoch THEN
                RAISE EXCEPTION 'the writes of % were locked again since epoch %', v_actor, v_bears USING ERRCODE = 'IM002';
            END IF;
        -- One that runs out later than any that is given now was given before the clock was set back.
        ELSIF v_until > imem_now() AND v_until < imem_now() + interval '10 seconds' THEN
            RAISE EXCEPTION 'the writes of % are locked', v_actor USING ERRCODE = 'IM001';
        END IF;
    END LOOP;
    -- Links, definitions and scores are no notices by themselves; what is dated back is no news.
    INSERT INTO workflow.notice_due (position)
    SELECT a.position FROM added AS a
    WHERE a.known_at = a.recorded_at AND split_part(a.kind, '.', 1) IN ('record', 'correct')
      AND split_part(a.kind, '.', 2) NOT IN ('AgentCredibility', 'SourceCredibility', 'Domain', 'Human', 'Agent');
    RETURN NULL;
END
$$;

CREATE TRIGGER event_added AFTER INSERT ON event REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION imem_event_added();

-- Snapshots of debates
CREATE TABLE workflow.memory_snapshot (
    snapshot_id  uuid PRIMARY KEY,
    debate_id    text NOT NULL CHECK (length(debate_id) BETWEEN 1 AND 200),
    participants text[] NOT NULL,
    excluded     jsonb NOT NULL,
    seqs         jsonb NOT NULL,
    manifest     jsonb NOT NULL,
    body         text NOT NULL,
    sha256       text NOT NULL CHECK (sha256 = encode(sha256(convert_to(body, 'UTF8')), 'hex')),
    degraded     boolean NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL
);
CREATE INDEX memory_snapshot_of_debate ON workflow.memory_snapshot (debate_id, created_at);
COMMENT ON TABLE workflow.memory_snapshot IS 'The evidence of a debate: the published records of its analysis at one moment. Immutable; kept for ten years.';
COMMENT ON COLUMN workflow.memory_snapshot.body IS 'Canonical JSON, as text: a stored form that is read differently than it was written could not be verified.';
COMMENT ON COLUMN workflow.memory_snapshot.expires_at IS 'When evidence of decisions need no longer be kept. The copy in Valkey lives an hour.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON workflow.memory_snapshot
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

CREATE TABLE workflow.snapshot_stale (
    snapshot_id uuid PRIMARY KEY REFERENCES workflow.memory_snapshot,
    reason      text NOT NULL,
    at          timestamptz NOT NULL DEFAULT imem_now()
);
COMMENT ON TABLE workflow.snapshot_stale IS 'Snapshots that are out of date, and why; the snapshot itself never changes.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON workflow.snapshot_stale
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();
