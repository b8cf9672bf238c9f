-- The epoch of pattern statuses: a kept answer that shows patterns holds only while this number is the one that it was
-- made under, so that a pattern that was withdrawn is never shown again, whoever keeps what.
--
-- It grows in the transaction of the statement itself: who is told that a transition stands can count on it. The row is
-- locked last in that transaction, at its commit, so that writers who hold other locks cannot wait for each other; and
-- once, however many patterns it states. A number that is taken from positions would not do: of two transactions the one
-- with the lower position may commit last.

CREATE TABLE pattern_epoch (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch      bigint NOT NULL DEFAULT 1,
    changed_by xid8
) WITH (fillfactor = 50);
INSERT INTO pattern_epoch DEFAULT VALUES;
COMMENT ON TABLE pattern_epoch IS 'How often the status of any pattern was stated: one row.';
COMMENT ON COLUMN pattern_epoch.changed_by IS 'The transaction that made it grow last; it does so once in each.';

CREATE FUNCTION imem_pattern_status_stated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
BEGIN
    UPDATE pattern_epoch SET epoch = epoch + 1, changed_by = pg_current_xact_id()
    WHERE changed_by IS DISTINCT FROM pg_current_xact_id();
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER pattern_status_stated AFTER INSERT ON record_history
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.kind = 'Pattern' AND NEW.grp = 'status')
    EXECUTE FUNCTION imem_pattern_status_stated();
