-- The journal: events, their delivery, record heads, histories, audit, leases.
--
-- Who may what: the owner (who runs migrations) owns everything here; the application's role may read, and may write
-- only through the functions below, which run with the owner's rights and write the audit row in the same statement.
-- Events, histories, turns and audit rows are append-only: a trigger refuses even the owner.

CREATE FUNCTION imem_may_shift_clock() RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- Whether whoever logged in has the rights of the schema's owner. The session's user counts, not the current one,
    -- which is the owner inside the functions that the application may call.
    SELECT pg_has_role(session_user, p.proowner, 'USAGE') FROM pg_proc AS p
    WHERE p.oid = to_regprocedure('public.imem_may_shift_clock()')
$$;

CREATE FUNCTION imem_now() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    -- The one source of time in SQL. Tests shift it for their sessions, as the owner: the application, which could set
    -- the variable as well, must not date its events and their audit itself.
    SELECT CASE
        WHEN coalesce(current_setting('imem.clock_shift', true), '') = '' THEN clock_timestamp()
        WHEN imem_may_shift_clock() THEN clock_timestamp() + current_setting('imem.clock_shift')::interval
        ELSE clock_timestamp()
    END
$$;

CREATE FUNCTION imem_order_key(known_at timestamptz, actor text, agent_seq bigint) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    -- (known_at, actor, agent_seq) as one text that sorts the same in Postgres (collation C), Python and Neo4j:
    -- microseconds since year 1 in 18 digits, the actor, the number in 19 digits.
    SELECT lpad(((extract(epoch FROM known_at) + 62135596800) * 1000000)::bigint::text, 18, '0')
        || '|' || actor || '|' || lpad(agent_seq::text, 19, '0')
$$;

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
CREATE INDEX event_of_debate ON event ((payload -> 'core' ->> 'debate_id')) WHERE kind = 'record.DebateResolution';
CREATE INDEX event_of_citation ON event ((payload ->> 'from_key')) WHERE kind = 'link.CITES';
CREATE INDEX event_of_analysis ON event (analysis_id) WHERE analysis_id IS NOT NULL;
COMMENT ON TABLE event IS 'Every accepted write, immutable, never pruned. Acknowledged means that its row is committed.';

CREATE TABLE delivery (
    position        bigint PRIMARY KEY REFERENCES event,
    actor           text NOT NULL,
    tier            smallint NOT NULL CHECK (tier BETWEEN 0 AND 3),
    state           text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'dispatched', 'applied', 'dead')),
    attempts        smallint NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    applied_at      timestamptz,
    bookmark        text,
    error           text
) WITH (fillfactor = 70);
CREATE INDEX delivery_due ON delivery (position) WHERE state IN ('pending', 'dispatched');
CREATE INDEX delivery_urgent ON delivery (actor, position) WHERE state IN ('pending', 'dispatched') AND tier < 3;
CREATE INDEX delivery_retry ON delivery (actor, position) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX delivery_due_of_actor ON delivery (actor, position) WHERE state IN ('pending', 'dispatched');
CREATE INDEX delivery_dead ON delivery (position) WHERE state = 'dead';
COMMENT ON TABLE delivery IS 'Where each event stands on its way into the graph. Store outages do not count as attempts.';

CREATE TABLE agent_cursor (
    actor      text PRIMARY KEY,
    pushed_seq bigint NOT NULL DEFAULT 0,
    lock_epoch bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE agent_cursor IS 'The last agent_seq of each ordering actor; its row lock orders the writes of one actor.';

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
COMMENT ON TABLE debate_turn IS 'What was said in a debate, as stated by one event; the group "turns" of the debate says which counts.';

CREATE TABLE memory_access_audit (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    timestamp       timestamptz NOT NULL DEFAULT imem_now(),
    actor_id        text NOT NULL,
    actor_role      text NOT NULL,
    resource_type   text NOT NULL,
    resource_id     text,
    action          text NOT NULL,
    authorized      boolean NOT NULL,
    old_value       jsonb,
    new_value       jsonb,
    action_reason   text,
    request_context jsonb,
    outcome         text NOT NULL,
    PRIMARY KEY (timestamp, id)
) PARTITION BY RANGE (timestamp);
CREATE TABLE memory_access_audit_default PARTITION OF memory_access_audit DEFAULT;
CREATE INDEX memory_access_audit_of_actor ON memory_access_audit (actor_id, timestamp);
COMMENT ON TABLE memory_access_audit IS 'Who did what: all writes, denials and pattern reads. Append-only, one partition a month.';

CREATE FUNCTION imem_audit_partitions() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
-- Rather another day than a queue of writers behind it.
SET lock_timeout = '2s'
AS $$
-- Creates the audit partitions of this month and the next three that are still missing, and of months that had to begin
-- in the default partition; returns how many it made. Repeating it is cheap and changes nothing.
DECLARE
    this_month date := date_trunc('month', imem_now() AT TIME ZONE 'UTC')::date;
    months date[];
    month date;
    name text;
    lower_end timestamptz;
    upper_end timestamptz;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('imem_audit_partitions'));
    -- All read before the first change: a table that is being read cannot be altered.
    months := ARRAY(
        SELECT (this_month + make_interval(months => step))::date FROM generate_series(0, 3) AS step
        UNION SELECT date_trunc('month', d.timestamp AT TIME ZONE 'UTC')::date FROM memory_access_audit_default AS d
        ORDER BY 1);
    FOREACH month IN ARRAY months LOOP
        name := 'memory_access_audit_' || to_char(month, 'YYYY_MM');
        CONTINUE WHEN to_regclass('public.' || name) IS NOT NULL;
        lower_end := month::timestamp AT TIME ZONE 'UTC';
        upper_end := (month + interval '1 month') AT TIME ZONE 'UTC';
        EXECUTE format('CREATE TABLE %I (LIKE memory_access_audit INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
        -- Nobody adds a row of that month meanwhile: whoever comes later waits, and finds the new partition.
        LOCK TABLE memory_access_audit_default IN ACCESS EXCLUSIVE MODE;
        IF EXISTS (SELECT FROM memory_access_audit_default AS d WHERE d.timestamp >= lower_end AND d.timestamp < upper_end) THEN
            -- Moved, not removed; the guard is away for nobody but this transaction, which alone may see the table.
            ALTER TABLE memory_access_audit_default DISABLE TRIGGER append_only;
            EXECUTE format(
                'WITH moved AS (DELETE FROM memory_access_audit_default WHERE timestamp >= $1 AND timestamp < $2 RETURNING *) '
                'INSERT INTO %I SELECT * FROM moved', name) USING lower_end, upper_end;
            ALTER TABLE memory_access_audit_default ENABLE TRIGGER append_only;
        END IF;
        EXECUTE format(
            'ALTER TABLE memory_access_audit ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, lower_end, upper_end);
        EXECUTE format(
            'CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I '
            'FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only()', name);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

CREATE FUNCTION imem_append_only() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: rows are never changed or removed', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON record_history
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON debate_turn
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON memory_access_audit
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON memory_access_audit_default
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

CREATE TABLE lease (
    name       text PRIMARY KEY,
    holder     text NOT NULL,
    epoch      bigint NOT NULL,
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE lease IS 'Who runs the work that only one may run. The epoch fences off a holder that was presumed dead.';

CREATE TABLE derive_work (
    kind       text NOT NULL,
    key        text NOT NULL,
    version    bigint GENERATED ALWAYS AS IDENTITY,
    created_at timestamptz NOT NULL DEFAULT imem_now(),
    PRIMARY KEY (kind, key)
);
COMMENT ON TABLE derive_work IS 'Derived values of the graph that the applier has to recompute: no events, outside history and hash.';

CREATE TABLE settlement_due (
    kind       text NOT NULL CHECK (kind IN ('Outcome', 'Finding', 'Decision', 'Agent')),
    key        text NOT NULL,
    version    bigint GENERATED ALWAYS AS IDENTITY,
    created_at timestamptz NOT NULL DEFAULT imem_now(),
    stuck      text,
    PRIMARY KEY (kind, key)
);
COMMENT ON TABLE settlement_due IS 'Outcomes, claims, citing decisions and described agents whose scores have to be computed. Rows decide what is due; created_at is the oldest statement that waits.';
COMMENT ON COLUMN settlement_due.stuck IS 'Why it could not be settled: set aside until something is said about it again, so that the rest goes on.';

SELECT imem_audit_partitions();
