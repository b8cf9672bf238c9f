-- Patterns: the epoch of their statuses, and the values that they are chosen by. Lessons: how agents see them.

-- The epoch of pattern statuses and of states of lessons: a cached result that shows either is valid only while this number is the one
-- that it was made under, so that what was withdrawn is never shown again, whichever cache holds it.
--
-- It grows in the transaction of the status itself: when a transition is acknowledged, the number has changed. The row is locked last in
-- that transaction, at its commit, so that writers who hold other locks cannot wait for each other; and once, however many patterns are
-- written. A number taken from positions would not do: of two transactions the one with the lower position may commit last.

CREATE TABLE pattern_epoch (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch      bigint NOT NULL DEFAULT 1,
    changed_by xid8
) WITH (fillfactor = 50);
INSERT INTO pattern_epoch DEFAULT VALUES;
COMMENT ON TABLE pattern_epoch IS 'How often the status of any pattern, or the state of any lesson, was recorded: one row.';
COMMENT ON COLUMN pattern_epoch.changed_by IS 'The transaction that made it grow last; it does so once in each.';

CREATE FUNCTION imem_pattern_epoch_grow() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
BEGIN
    UPDATE pattern_epoch SET epoch = epoch + 1, changed_by = pg_current_xact_id()
    WHERE changed_by IS DISTINCT FROM pg_current_xact_id();
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER pattern_epoch_grow AFTER INSERT ON record_history
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.kind = 'Pattern' AND NEW.grp = 'status' OR NEW.kind = 'Lesson' AND NEW.grp = 'state')
    EXECUTE FUNCTION imem_pattern_epoch_grow();

CREATE FUNCTION imem_lesson_shown_v1(p_key text, p_known_until timestamptz, p_recorded_until timestamptz) RETURNS text
LANGUAGE sql STABLE
AS $$
-- How agents see a lesson as of a moment: approved, or advisory while only a person's review stands behind it; NULL: they do not.
SELECT CASE WHEN s.value ->> 'state' IN ('approved', 'applied') THEN 'approved'
    WHEN s.value ->> 'state' = 'pending_gate6' AND (s.value ->> 'reviewed')::boolean THEN 'advisory' END
FROM (
    SELECT e.payload -> 'groups' -> 'state' AS value FROM record_history AS y JOIN event AS e ON e.position = y.position
    WHERE y.kind = 'Lesson' AND y.key = p_key AND y.grp = 'state' AND y.known_at <= p_known_until AND y.recorded_at <= p_recorded_until
    ORDER BY y.order_key DESC LIMIT 1
) AS s
$$;

-- What is asked of all patterns at once: the status, the sector and the success of each, at each time that they were recorded. Each
-- briefing looks through thousands of patterns, and to fetch an event for each would take longer than all else. A copy, made in the
-- transaction of the write itself.

CREATE TABLE pattern_value (
    key         text COLLATE "C" NOT NULL,
    grp         text COLLATE "C" NOT NULL CHECK (grp IN ('core', 'correction', 'status', 'performance')),
    order_key   text COLLATE "C" NOT NULL,
    known_at    timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL,
    value       text,
    PRIMARY KEY (key, grp, order_key)
);
-- Patterns are chosen by sector first: of those that no sector and no correction names, nothing else is looked at.
CREATE INDEX pattern_value_of_sector ON pattern_value (value, key) WHERE grp IN ('core', 'correction');
-- What was recorded lately is looked at each minute.
CREATE INDEX pattern_status_recorded ON pattern_value (recorded_at) WHERE grp = 'status';
COMMENT ON TABLE pattern_value IS 'What patterns are chosen by, as of any day: the one value of each row of their history that counts.';
COMMENT ON COLUMN pattern_value.value IS 'Of core and correction the sector, of status the status, of performance the success rate; NULL where none is recorded.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON pattern_value
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

CREATE FUNCTION imem_pattern_value(p_grp text, p_payload jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    -- Returns what a group of a pattern is chosen by.
    SELECT CASE p_grp
        WHEN 'status' THEN p_payload -> 'groups' -> 'status' ->> 'status'
        WHEN 'performance' THEN p_payload -> 'groups' -> 'performance' ->> 'success_rate'
        ELSE p_payload -> 'core' ->> 'sector' END
$$;

CREATE FUNCTION imem_pattern_value_copy() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
BEGIN
    INSERT INTO pattern_value (key, grp, order_key, known_at, recorded_at, value)
    SELECT NEW.key, NEW.grp, NEW.order_key, NEW.known_at, NEW.recorded_at, imem_pattern_value(NEW.grp, e.payload)
    FROM event AS e WHERE e.position = NEW.position;
    RETURN NULL;
END
$$;

CREATE TRIGGER pattern_value_copy AFTER INSERT ON record_history
    FOR EACH ROW WHEN (NEW.kind = 'Pattern' AND NEW.grp IN ('core', 'correction', 'status', 'performance'))
    EXECUTE FUNCTION imem_pattern_value_copy();
