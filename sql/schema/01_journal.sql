-- The journal: the clock, events with their context, their delivery to the graph, heads and histories of records.
--
-- Rights: the owner (who migrates) owns everything. The application's role may read, and writes the journal only through functions
-- with the owner's rights, which write the audit row in the same statement. Events, histories and turns are append-only: a trigger
-- refuses changes, the owner's included.

CREATE FUNCTION imem_may_shift_clock() RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- Whether the session's user has the rights of the schema's owner. The current user does not count: inside the functions
    -- that the application may call it is the owner.
    SELECT pg_has_role(session_user, p.proowner, 'USAGE') FROM pg_proc AS p
    WHERE p.oid = to_regprocedure('public.imem_may_shift_clock()')
$$;

CREATE FUNCTION imem_clock_ahead() RETURNS interval
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    -- By how much the journal's time is ahead of the server's: nothing, but in a local trial stack, whose imem_advance_clock puts
    -- another number here. It is planned as a constant.
    SELECT interval '0'
$$;

CREATE FUNCTION imem_now() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    -- The one source of time in SQL. Tests shift it for their sessions, as the owner. The application could set the variable
    -- as well, but must not date its events and their audit itself.
    SELECT CASE
        WHEN coalesce(current_setting('imem.clock_shift', true), '') = '' THEN clock_timestamp() + imem_clock_ahead()
        WHEN imem_may_shift_clock() THEN clock_timestamp() + imem_clock_ahead() + current_setting('imem.clock_shift')::interval
        ELSE clock_timestamp() + imem_clock_ahead()
    END
$$;

CREATE TABLE trial (
    one boolean PRIMARY KEY DEFAULT true CHECK (one)
);
COMMENT ON TABLE trial IS 'One row where the time was moved before the journal held anything: it is a trial''s, and may be moved further.';

CREATE FUNCTION imem_advance_clock(p_ahead interval) RETURNS interval
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Lets the journal's time be ahead of the server's by p_ahead, for all sessions and from their next statement on; returns by how much it
-- is. It never goes back, but in a journal without events, where a trial may begin on a day of the past; and it moves only there, or where
-- it was moved before the first event. Only the owner can replace a function. Writes that are under way end first.
BEGIN
    LOCK TABLE event IN SHARE MODE;
    PERFORM pg_advisory_xact_lock(hashtext('imem.clock'));
    INSERT INTO trial SELECT WHERE NOT EXISTS (SELECT FROM event) ON CONFLICT DO NOTHING;
    IF NOT EXISTS (SELECT FROM trial) THEN
        RAISE EXCEPTION 'this journal holds a memory that is no trial: its time stays the machine''s';
    END IF;
    IF p_ahead > imem_clock_ahead() OR NOT EXISTS (SELECT FROM event) THEN
        EXECUTE format(
            'CREATE OR REPLACE FUNCTION imem_clock_ahead() RETURNS interval LANGUAGE sql STABLE PARALLEL SAFE AS %L',
            format('SELECT interval %L', p_ahead));
    END IF;
    RETURN imem_clock_ahead();
END
$$;
REVOKE EXECUTE ON FUNCTION imem_advance_clock(interval) FROM PUBLIC;

CREATE FUNCTION imem_order_key(known_at timestamptz, actor text, agent_seq bigint) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    -- (known_at, actor, agent_seq) as one text that sorts the same in Postgres (collation C), Python and Neo4j:
    -- microseconds since year 1 in 18 digits, the actor, the number in 19 digits.
    SELECT lpad(((extract(epoch FROM known_at) + 62135596800) * 1000000)::bigint::text, 18, '0')
        || '|' || actor || '|' || lpad(agent_seq::text, 19, '0')
$$;

CREATE FUNCTION imem_append_only() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: rows are never changed or removed', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END
$$;

-- Events

CREATE TABLE event (
    position     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id     uuid NOT NULL UNIQUE,
    version      smallint NOT NULL DEFAULT 1,
    actor        text NOT NULL CHECK (length(actor) BETWEEN 1 AND 200),
    actor_role   text NOT NULL,
    imported     boolean NOT NULL,
    agent_seq    bigint NOT NULL,
    kind         text NOT NULL,
    record_key   text NOT NULL,
    analysis_id  text,
    payload      jsonb NOT NULL,
    body         text,
    payload_hash bytea NOT NULL,
    importance   real,
    occurred_at  timestamptz NOT NULL,
    known_at     timestamptz NOT NULL,
    recorded_at  timestamptz NOT NULL,
    order_key    text COLLATE "C" NOT NULL,
    UNIQUE (actor, agent_seq),
    CHECK (known_at <= recorded_at)
);
CREATE INDEX event_of_debate ON event ((payload -> 'core' ->> 'debate_id'))
    WHERE kind IN ('record.DebateResolution', 'record.DebateTurn');
CREATE INDEX event_of_analysis ON event (analysis_id) WHERE analysis_id IS NOT NULL;
CREATE INDEX event_cites_from ON event ((payload ->> 'from_key')) WHERE kind = 'link.CITES';
CREATE INDEX event_cites_to ON event ((payload ->> 'to_key')) WHERE kind = 'link.CITES';
CREATE INDEX event_performed ON event ((payload ->> 'to_key')) WHERE kind = 'link.PERFORMED';
CREATE INDEX event_uses_value ON event ((payload ->> 'from_key')) WHERE kind = 'link.USES_VALUE';
CREATE INDEX event_value_used_by ON event ((payload ->> 'to_key')) WHERE kind = 'link.USES_VALUE';
CREATE INDEX event_identified ON event ((payload ->> 'from_key')) WHERE kind = 'link.IDENTIFIED_PATTERN';
CREATE INDEX event_identified_by ON event ((payload ->> 'to_key')) WHERE kind = 'link.IDENTIFIED_PATTERN';
CREATE INDEX event_of_claimant ON event ((payload -> 'core' ->> 'agent'), (payload -> 'core' ->> 'domain'), known_at)
    WHERE kind = 'record.Finding';
CREATE INDEX event_of_decision ON event ((payload -> 'core' ->> 'decision_id'))
    WHERE kind = 'record.Outcome' AND payload -> 'core' ->> 'decision_id' IS NOT NULL;
CREATE INDEX event_of_later_point ON event ((payload -> 'core' ->> 'point_b'))
    WHERE kind = 'record.DataContradiction' AND payload -> 'core' ->> 'point_b' IS NOT NULL;
CREATE INDEX event_of_cell
    ON event ((payload -> 'core' ->> 'subject_id'), (payload -> 'core' ->> 'metric'), (payload -> 'core' ->> 'period_end'))
    WHERE kind = 'record.DataPoint';
CREATE INDEX event_recorded ON event (recorded_at);
-- Subjects are found by their names at a moment: a company by that of its profile, a question by its text.
CREATE INDEX event_of_name
    ON event USING hash (imem_plain_v1(coalesce(payload #>> '{groups,profile,name}', payload #>> '{core,question}')))
    WHERE kind IN ('record.Company', 'record.Market', 'correct.Market');
COMMENT ON TABLE event IS 'Every accepted write, immutable, never pruned. Acknowledged means that its row is committed.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

-- What a write was part of: the trace of its caller, and the caller's name of the work. It is no part of the event, which is the same
-- for every caller; a write without either has no row.

CREATE TABLE event_context (
    position       bigint PRIMARY KEY REFERENCES event,
    traceparent    text CHECK (traceparent ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'),
    correlation_id text CHECK (length(correlation_id) BETWEEN 1 AND 200),
    CHECK (traceparent IS NOT NULL OR correlation_id IS NOT NULL)
);
COMMENT ON TABLE event_context IS 'The trace (W3C) and the correlation id in which an event was recorded, where there were any. Written with it.';
CREATE INDEX event_context_of ON event_context (correlation_id) WHERE correlation_id IS NOT NULL;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON event_context
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

CREATE FUNCTION imem_note_context_v1(p_positions bigint[], p_traceparents text[], p_correlation_ids text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    -- Records the context of events that were just recorded; an existing context stays.
    INSERT INTO event_context (position, traceparent, correlation_id)
    SELECT g.position, g.traceparent, g.correlation_id
    FROM unnest(p_positions, p_traceparents, p_correlation_ids) AS g (position, traceparent, correlation_id)
    WHERE g.traceparent IS NOT NULL OR g.correlation_id IS NOT NULL
    ON CONFLICT DO NOTHING
$$;

-- Tells one journal from another: a graph that was filled from another journal is no projection of this one. A copy of the database,
-- such as a restored dump, keeps the identity.
CREATE TABLE journal_identity (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO journal_identity DEFAULT VALUES;

-- Order of writers

CREATE TABLE agent_cursor (
    actor        text PRIMARY KEY,
    pushed_seq   bigint NOT NULL DEFAULT 0,
    lock_epoch   bigint NOT NULL DEFAULT 0,
    lock_holder  text,
    locked_until timestamptz
);
COMMENT ON TABLE agent_cursor IS 'The last agent_seq of each ordering actor; its row lock orders the writes of one actor.';
COMMENT ON COLUMN agent_cursor.lock_epoch IS 'Grows whenever the actor''s writes are locked; an append under another epoch is refused.';
COMMENT ON COLUMN agent_cursor.locked_until IS 'Until then an append for the actor needs lock_epoch; NULL where the actor is not locked.';

-- Delivery to the graph

CREATE TABLE delivery (
    position        bigint PRIMARY KEY REFERENCES event,
    actor           text NOT NULL,
    tier            smallint NOT NULL CHECK (tier BETWEEN 0 AND 3),
    state           text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'applied', 'dead')),
    attempts        smallint NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    applied_at      timestamptz,
    bookmark        text,
    error           text,
    died_at         timestamptz
) WITH (fillfactor = 70);
CREATE INDEX delivery_due ON delivery (position) WHERE state = 'pending';
CREATE INDEX delivery_urgent ON delivery (actor, position) WHERE state = 'pending' AND tier < 3;
CREATE INDEX delivery_retry ON delivery (actor, position) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX delivery_due_of_actor ON delivery (actor, position) WHERE state = 'pending';
CREATE INDEX delivery_dead ON delivery (position) WHERE state = 'dead';
CREATE INDEX delivery_critical ON delivery (actor, position) WHERE state = 'pending' AND tier < 2;
COMMENT ON TABLE delivery IS 'The delivery of each event to the graph. Store outages do not count as attempts.';
COMMENT ON COLUMN delivery.died_at IS 'When the graph last refused it for good; NULL where it never did.';

CREATE TABLE delivery_gap (
    position    bigint NOT NULL REFERENCES event,
    opened_at   timestamptz NOT NULL,
    actor       text NOT NULL,
    reason      text,
    replayed_at timestamptz,
    replayed_by text,
    closed_at   timestamptz,
    PRIMARY KEY (position, opened_at)
);
CREATE INDEX delivery_gap_open ON delivery_gap (position) WHERE closed_at IS NULL;
COMMENT ON TABLE delivery_gap IS 'Events that were skipped: one row each time the graph refused one for good, kept for ever.';
COMMENT ON COLUMN delivery_gap.closed_at IS 'When the graph held it after all, later than its actor''s order has it.';

CREATE FUNCTION imem_note_gap() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Records that an event was skipped, or that its gap is closed. Roles that may update deliveries write gaps through this trigger
-- alone.
BEGIN
    IF NEW.state = 'dead' THEN
        INSERT INTO delivery_gap (position, opened_at, actor, reason)
        VALUES (NEW.position, coalesce(NEW.died_at, imem_now()), NEW.actor, NEW.error)
        ON CONFLICT (position, opened_at) DO NOTHING;
    ELSE
        UPDATE delivery_gap SET closed_at = coalesce(NEW.applied_at, imem_now())
        WHERE position = NEW.position AND closed_at IS NULL;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER gap_opened AFTER UPDATE OF state ON delivery
    FOR EACH ROW WHEN (NEW.state = 'dead' AND OLD.state <> 'dead') EXECUTE FUNCTION imem_note_gap();
CREATE TRIGGER gap_closed AFTER UPDATE OF state ON delivery
    FOR EACH ROW WHEN (NEW.state = 'applied' AND OLD.state <> 'applied' AND NEW.died_at IS NOT NULL) EXECUTE FUNCTION imem_note_gap();

-- Records

CREATE TABLE record_head (
    kind        text NOT NULL,
    key         text NOT NULL,
    grp         text NOT NULL,
    hash        bytea NOT NULL,
    position    bigint NOT NULL,
    order_key   text COLLATE "C" NOT NULL,
    known_at    timestamptz NOT NULL,
    occurred_at timestamptz NOT NULL,
    ref_hash    bytea,
    subject_id  text,
    metric      text,
    target_at   timestamptz,
    PRIMARY KEY (kind, key, grp)
);
CREATE INDEX record_head_of_subject ON record_head (subject_id, kind, occurred_at DESC) WHERE subject_id IS NOT NULL;
CREATE INDEX record_head_of_key ON record_head USING hash (imem_plain_v1(key)) WHERE kind IN ('Company', 'Market') AND grp = 'core';
CREATE INDEX record_head_claim ON record_head (subject_id, metric, target_at) WHERE metric IS NOT NULL;
COMMENT ON TABLE record_head IS 'The winning value of each group of each record, and of each link: what makes writes idempotent.';

CREATE TABLE record_history (
    kind        text NOT NULL,
    key         text NOT NULL,
    grp         text NOT NULL,
    order_key   text COLLATE "C" NOT NULL,
    hash        bytea NOT NULL,
    position    bigint NOT NULL REFERENCES event,
    known_at    timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL,
    actor       text NOT NULL,
    imported    boolean NOT NULL,
    PRIMARY KEY (kind, key, grp, order_key)
);
COMMENT ON TABLE record_history IS 'Every accepted value of every group, by (known_at, actor, agent_seq): what answers as of a day read.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON record_history
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

CREATE TABLE debate_turn (
    debate_id   text NOT NULL,
    position    bigint NOT NULL REFERENCES event,
    number      integer NOT NULL CHECK (number >= 0),
    stage       text,
    speaker     text NOT NULL,
    stance      text,
    text        text NOT NULL,
    cites       text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (debate_id, position, number)
);
COMMENT ON TABLE debate_turn IS 'The turns of a debate, as one event recorded them; the group "turns" of the debate says which event counts.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON debate_turn
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

CREATE FUNCTION imem_name_of_subject_v1(p_kind text, p_key text, p_known_until timestamptz, p_recorded_until timestamptz)
RETURNS TABLE (name text)
LANGUAGE sql STABLE
AS $$
-- The name of a subject at a moment: from the last profile of a company; from the core of a question, or its correction. No row where
-- nothing was recorded of it. It returns a table so that the planner inlines it.
SELECT coalesce(e.payload #>> '{groups,profile,name}', e.payload #>> '{core,question}')
FROM record_history AS y JOIN event AS e ON e.position = y.position
WHERE y.kind = p_kind AND y.key = p_key AND y.known_at <= p_known_until AND y.recorded_at <= p_recorded_until
  AND (CASE p_kind WHEN 'Company' THEN y.grp = 'profile' ELSE y.grp IN ('core', 'correction') END)
ORDER BY y.grp = 'correction' DESC, CASE WHEN y.grp = 'core' THEN NULL ELSE y.order_key END DESC NULLS LAST, y.order_key LIMIT 1
$$;

-- Work that follows from events

CREATE TABLE lease (
    name       text PRIMARY KEY,
    holder     text NOT NULL,
    epoch      bigint NOT NULL,
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE lease IS 'The holder of each kind of work that only one process may run. The epoch fences off a holder that was presumed dead.';

CREATE TABLE due_rule (
    queue text NOT NULL,
    kind  text NOT NULL,
    event text NOT NULL,
    keys  jsonpath NOT NULL
);
CREATE INDEX due_rule_event ON due_rule (event);
COMMENT ON TABLE due_rule IS 'Which events make which rows due, as pipelines declare it; written by migrations.';
COMMENT ON COLUMN due_rule.keys IS 'The keys of the rows: a path into the payload, with the variables $key, $analysis, $subject and $metric of the event; what it does not find, or finds to be null, makes nothing due.';

CREATE TABLE curated_fact (
    head_kind text COLLATE "C" NOT NULL,
    grp       text COLLATE "C" NOT NULL,
    PRIMARY KEY (head_kind, grp)
);
COMMENT ON TABLE curated_fact IS 'Facts that only curators and pipelines state, as the kinds of the graph declare it; written by migrations.';
COMMENT ON COLUMN curated_fact.grp IS 'A group of the kind, or * for all of them.';

-- Rows are inserted and deleted, never updated but to set them aside: writers never wait for one another, and what becomes due
-- while a key is being worked on has a row of its own.
CREATE TABLE due_row (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue      text NOT NULL,
    kind       text NOT NULL,
    key        text NOT NULL,
    position   bigint,
    created_at timestamptz NOT NULL DEFAULT imem_now(),
    later      boolean NOT NULL DEFAULT false,
    set_aside  text
);
CREATE INDEX due_row_next ON due_row (queue, later, created_at, id) WHERE set_aside IS NULL;
CREATE INDEX due_row_of ON due_row (queue, kind, key);
CREATE INDEX due_row_aside ON due_row (queue) WHERE set_aside IS NOT NULL;
COMMENT ON TABLE due_row IS 'What pipelines and the applier have to recompute: no events, outside history and hash. Several rows of one key are one piece of work.';
COMMENT ON COLUMN due_row.position IS 'The event that made it due; NULL where a pipeline did.';
COMMENT ON COLUMN due_row.created_at IS 'When the oldest event that waits was recorded.';
-- What is recorded today comes before what was imported, and before what one event asks of very many keys: that may take an hour, while
-- a user waits for today's.
COMMENT ON COLUMN due_row.later IS 'Whether it can wait: imported history, or one event about many keys.';
COMMENT ON COLUMN due_row.set_aside IS 'Why it could not be done: set aside until its key becomes due again, so that the rest goes on.';

-- In which state a thing is, and when its time is over. Pipelines write rows, and open_gate_v1 opens gates; a person's request is
-- stored in the row, and a pipeline gives it its effect: request_transition_v1.
CREATE TABLE lifecycle (
    kind         text NOT NULL CHECK (length(kind) BETWEEN 1 AND 60),
    key          text NOT NULL CHECK (length(key) BETWEEN 1 AND 260),
    about        text CHECK (length(about) BETWEEN 1 AND 260),
    state        text NOT NULL CHECK (length(state) BETWEEN 1 AND 60),
    version      integer NOT NULL DEFAULT 1,
    opened_at    timestamptz NOT NULL DEFAULT imem_now(),
    entered_at   timestamptz NOT NULL DEFAULT imem_now(),
    due_at       timestamptz,
    data         jsonb NOT NULL DEFAULT '{}',
    request      jsonb,
    requested_at timestamptz,
    failures     integer NOT NULL DEFAULT 0,
    retry_at     timestamptz,
    wake_at      timestamptz GENERATED ALWAYS AS (
        CASE
            -- At once, also where the clock was set back since.
            WHEN requested_at IS NOT NULL THEN coalesce(retry_at, to_timestamp(0))
            WHEN due_at IS NOT NULL THEN greatest(due_at, retry_at)
        END) STORED,
    PRIMARY KEY (kind, key),
    CHECK ((request IS NULL) = (requested_at IS NULL))
);
CREATE INDEX lifecycle_wake ON lifecycle (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX lifecycle_in_state ON lifecycle (kind, state, about);
CREATE INDEX lifecycle_about ON lifecycle (about, kind) WHERE about IS NOT NULL;
COMMENT ON TABLE lifecycle IS 'In which state a gate, a review task or a debate is, and when its time is over. Derived from no event; never deleted.';
COMMENT ON COLUMN lifecycle.about IS 'What it belongs to, such as an analysis.';
COMMENT ON COLUMN lifecycle.version IS 'Counts the changes of the row: a change names the version that it was decided on.';
COMMENT ON COLUMN lifecycle.due_at IS 'When the time of the present state is over; NULL for a state without a limit.';
COMMENT ON COLUMN lifecycle.request IS 'A request that waits for its effect: the state that is to be entered, who asked, why, and the details.';
COMMENT ON COLUMN lifecycle.retry_at IS 'Not tried before: the last attempts failed, as many as failures says, or what it needs was locked.';
COMMENT ON COLUMN lifecycle.wake_at IS 'When a pipeline has to look at the row.';

CREATE TABLE pipeline_report (
    pipeline    text NOT NULL CHECK (length(pipeline) BETWEEN 1 AND 90),
    started_at  timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    report      jsonb NOT NULL CHECK (jsonb_typeof(report) = 'object'),
    error       text CHECK (length(error) <= 1000),
    PRIMARY KEY (pipeline, started_at)
);
COMMENT ON TABLE pipeline_report IS 'What runs of pipelines did: of each the newest, of some several. Older ones are deleted.';

CREATE FUNCTION imem_due_since(p_queue text, p_except text) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = public, pg_temp
AS $$
    -- When the oldest event was recorded that a queue waits for, but for rows of one kind and those set aside; NULL for none. Two
    -- looks at the index.
    SELECT min(f.created_at) FROM (VALUES (false), (true)) AS l (later)
    CROSS JOIN LATERAL (
        SELECT d.created_at FROM due_row AS d
        WHERE d.queue = p_queue AND d.later = l.later AND d.kind <> p_except AND d.set_aside IS NULL
        ORDER BY d.created_at LIMIT 1
    ) AS f
$$;
