-- The verdict on a decision follows from its stance: whatever is stated of the decision itself makes it due, as its citations do.

CREATE FUNCTION imem_decision_stated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
BEGIN
    INSERT INTO settlement_due (kind, key, created_at)
    SELECT 'Decision', NEW.key, imem_now()
    -- One that cites nothing has no verdict; a citation that comes later makes it due itself.
    WHERE EXISTS (SELECT 1 FROM event AS e WHERE e.kind = 'link.CITES' AND e.payload ->> 'from_key' = NEW.key)
    ON CONFLICT (kind, key) DO UPDATE SET version = DEFAULT, stuck = NULL;
    RETURN NULL;
END
$$;

CREATE TRIGGER decision_stated AFTER INSERT ON record_history
    FOR EACH ROW WHEN (NEW.kind = 'Decision' AND NEW.grp IN ('core', 'correction'))
    EXECUTE FUNCTION imem_decision_stated();

-- Verdicts of before rested on the finding alone: those of decisions without a stance are withdrawn.
INSERT INTO settlement_due (kind, key, created_at)
SELECT 'Decision', h.key, imem_now() FROM record_head AS h WHERE h.kind = 'Decision' AND h.grp = 'outcome'
ON CONFLICT (kind, key) DO UPDATE SET version = DEFAULT, stuck = NULL;
