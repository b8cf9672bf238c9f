-- The audit: one row for each write, each denial and each read of patterns. Append-only, one partition a month.

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
CREATE INDEX memory_access_audit_denied ON memory_access_audit (timestamp) WHERE NOT authorized;
COMMENT ON TABLE memory_access_audit IS 'Who did what: all writes, denials and pattern reads. Append-only, one partition a month.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON memory_access_audit
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON memory_access_audit_default
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

CREATE FUNCTION imem_audit_partitions() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
-- It gives up early, so that no queue of writers builds up behind it; the next run tries again.
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
        -- No row of that month is added meanwhile: a later writer waits, and finds the new partition.
        LOCK TABLE memory_access_audit_default IN ACCESS EXCLUSIVE MODE;
        IF EXISTS (SELECT FROM memory_access_audit_default AS d WHERE d.timestamp >= lower_end AND d.timestamp < upper_end) THEN
            -- Moved, not removed; the trigger is disabled for this transaction alone, which holds the table exclusively.
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

CREATE FUNCTION imem_audit_v1(
    p_actor text, p_role text, p_resource_type text, p_resource_id text, p_action text, p_authorized boolean,
    p_reason text, p_context jsonb, p_outcome text
) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    INSERT INTO memory_access_audit (
        actor_id, actor_role, resource_type, resource_id, action, authorized, action_reason, request_context, outcome)
    VALUES (p_actor, p_role, p_resource_type, p_resource_id, p_action, p_authorized, p_reason, p_context, p_outcome)
$$;

CREATE FUNCTION request_transition_v1(
    p_kind text, p_key text, p_version integer, p_request jsonb, p_after_due boolean, p_actor text, p_role text, p_reason text,
    p_context jsonb
) RETURNS SETOF lifecycle
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Stores a request in the row that it was decided on, with its audit row: the first of several, and in time unless p_after_due. No row
-- where another came first. Which transitions there are only the pipeline decides that gives the request its effect.
DECLARE
    v_row lifecycle;
BEGIN
    IF jsonb_typeof(p_request -> 'state') IS DISTINCT FROM 'string' OR jsonb_typeof(p_request -> 'details') IS DISTINCT FROM 'object'
        OR p_actor IS NULL OR p_role IS NULL THEN
        RAISE EXCEPTION 'a request names a state, details, an actor and a role' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE lifecycle
    SET request = p_request || jsonb_build_object('actor', p_actor, 'role', p_role, 'reason', p_reason), requested_at = imem_now(),
        version = version + 1, failures = 0, retry_at = NULL
    WHERE kind = p_kind AND key = p_key AND version = p_version AND request IS NULL AND (p_after_due OR due_at IS NULL OR due_at > imem_now())
    RETURNING * INTO v_row;
    IF FOUND THEN
        PERFORM imem_audit_v1(p_actor, p_role, 'workflow', coalesce(v_row.about, p_key), 'answer_' || p_kind, true, p_reason,
            p_context || jsonb_build_object('key', p_key, 'state', p_request ->> 'state'), 'done');
        RETURN NEXT v_row;
    END IF;
END
$$;
