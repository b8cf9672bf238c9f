-- What is asked of all patterns at once: the status, the sector and the success of each, every time that they were stated.
-- Thousands of patterns are looked through for each briefing, and to fetch an event for each would take longer than all else.
-- A copy, made in the transaction of the statement itself.

CREATE TABLE pattern_value (
    key         text COLLATE "C" NOT NULL,
    grp         text COLLATE "C" NOT NULL CHECK (grp IN ('core', 'correction', 'status', 'performance')),
    order_key   text COLLATE "C" NOT NULL,
    known_at    timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL,
    value       text,
    PRIMARY KEY (key, grp, order_key)
);
COMMENT ON TABLE pattern_value IS 'What patterns are chosen by, as of any day: of each row of their history the one value that counts.';
COMMENT ON COLUMN pattern_value.value IS 'Of core and correction the sector, of status the status, of performance the success rate; NULL where none is stated.';
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

CREATE FUNCTION imem_pattern_value_stated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
BEGIN
    INSERT INTO pattern_value (key, grp, order_key, known_at, recorded_at, value)
    SELECT NEW.key, NEW.grp, NEW.order_key, NEW.known_at, NEW.recorded_at, imem_pattern_value(NEW.grp, e.payload)
    FROM event AS e WHERE e.position = NEW.position;
    RETURN NULL;
END
$$;

CREATE TRIGGER pattern_value_stated AFTER INSERT ON record_history
    FOR EACH ROW WHEN (NEW.kind = 'Pattern' AND NEW.grp IN ('core', 'correction', 'status', 'performance'))
    EXECUTE FUNCTION imem_pattern_value_stated();

INSERT INTO pattern_value (key, grp, order_key, known_at, recorded_at, value)
SELECT h.key, h.grp, h.order_key, h.known_at, h.recorded_at, imem_pattern_value(h.grp, e.payload)
FROM record_history AS h JOIN event AS e ON e.position = h.position
WHERE h.kind = 'Pattern' AND h.grp IN ('core', 'correction', 'status', 'performance');
