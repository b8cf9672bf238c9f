-- Lanes of delivery: what is urgent is found by itself, and what the graph refused for good leaves a gap that is on record.

CREATE INDEX delivery_critical ON delivery (actor, position) WHERE state IN ('pending', 'dispatched') AND tier < 2;

ALTER TABLE delivery ADD COLUMN died_at timestamptz;
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
-- Notes that an event was skipped, or that the gap which it left is closed. The application's role, which may change where an
-- event stands, writes here by this alone.
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

-- What is dead already is a gap from now on: when it came to be one was not noted.
UPDATE delivery SET died_at = imem_now() WHERE state = 'dead';
INSERT INTO delivery_gap (position, opened_at, actor, reason)
SELECT d.position, d.died_at, d.actor, d.error FROM delivery AS d WHERE d.state = 'dead';

CREATE FUNCTION imem_replay_v1(p_actor text, p_role text, p_positions bigint[], p_context jsonb) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Has dead events tried again from the first attempt on, and returns how many of the given ones were dead. The gaps that they
-- left say who asked, and one audit row does for each. Whether that is allowed is the caller's to decide.
DECLARE
    v_now timestamptz := imem_now();
    v_replayed bigint[];
BEGIN
    WITH revived AS (
        UPDATE delivery AS d SET state = 'pending', attempts = 0, next_attempt_at = NULL
        WHERE d.position = ANY (p_positions) AND d.state = 'dead'
        RETURNING d.position
    )
    SELECT coalesce(array_agg(r.position ORDER BY r.position), '{}') INTO v_replayed FROM revived AS r;

    UPDATE delivery_gap AS g SET replayed_at = v_now, replayed_by = p_actor
    WHERE g.position = ANY (v_replayed) AND g.closed_at IS NULL;

    INSERT INTO memory_access_audit (
        timestamp, actor_id, actor_role, resource_type, resource_id, action, authorized, request_context, outcome)
    SELECT v_now, p_actor, p_role, 'journal', e.kind || ' ' || e.record_key, 'replay', true,
        p_context || jsonb_build_object('event_id', e.event_id, 'position', e.position), 'recorded'
    FROM event AS e WHERE e.position = ANY (v_replayed) ORDER BY e.position;

    RETURN cardinality(v_replayed);
END
$$;
