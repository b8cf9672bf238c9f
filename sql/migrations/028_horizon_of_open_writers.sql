-- After the server's clock was set back, a writer records at the journal's time, not at the time its transaction began by that clock.
-- Taken by the latter, any open writer would put the safe horizon back by as much as the clock was.

CREATE FUNCTION imem_claim_recorded_at() RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Returns the time at which this transaction records. Until it ends, a lock shows everybody the second before which it does not:
-- taken before the time is read, so that who finds no lock knows that the time is still to be read.
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext('imem.recording'), floor(extract(epoch FROM imem_journal_now()))::integer);
    RETURN imem_journal_now();
END
$$;

DO $$
DECLARE
    v_before text := pg_get_functiondef('imem_append_v1'::regproc);
    v_after text := replace(v_before, 'v_now := imem_journal_now();', 'v_now := imem_claim_recorded_at();');
BEGIN
    IF v_after = v_before THEN
        RAISE EXCEPTION 'imem_append_v1 does not read the clock where it is expected to';
    END IF;
    EXECUTE v_after;
END
$$;

CREATE OR REPLACE FUNCTION imem_safe_horizon() RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- The last moment of which everything recorded is committed and applied: before the oldest open transaction that
-- has written, and before the oldest event that is not yet applied. Dead events do not hold it back.
--
-- Statements in this order, each with a snapshot of its own (the function is volatile, and READ COMMITTED): a
-- writer that is no longer among the open transactions has committed before the deliveries are read, so that its rows
-- are seen there. In one statement it could end between the snapshot and the look at the transactions, and be in neither.
-- A writer that has no xid yet reads its recorded_at later than v_now was read. Where the clock is behind the journal, a
-- writer's beginning says nothing of its recorded_at: its lock does, and one without a lock has not read the time yet.
DECLARE
    v_now timestamptz := imem_journal_now();
    v_shift interval := imem_now() - clock_timestamp();
    v_writer timestamptz;
    v_waiting timestamptz;
BEGIN
    -- What a transaction has seen of the others stays with it until it is told otherwise.
    PERFORM pg_stat_clear_snapshot();
    IF v_now > imem_now() THEN
        SELECT min(to_timestamp(l.objid::bigint)) INTO v_writer FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND l.classid::bigint = hashtext('imem.recording')::bigint & 4294967295 AND l.pid <> pg_backend_pid();
    ELSE
        SELECT min(a.xact_start) + v_shift INTO v_writer FROM pg_stat_activity AS a
        WHERE a.datname = current_database() AND a.backend_xid IS NOT NULL AND a.pid <> pg_backend_pid();
    END IF;
    -- Planned anew each time: a plan that a session made while nothing waited would not do when 100,000 events wait.
    EXECUTE $waiting$
        SELECT min(e.recorded_at) FROM delivery AS d JOIN event AS e ON e.position = d.position
        WHERE d.state IN ('pending', 'dispatched')
    $waiting$ INTO v_waiting;
    RETURN least(v_now, v_writer, v_waiting) - interval '1 microsecond';
END
$$;
