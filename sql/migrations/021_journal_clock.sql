-- The journal's time never runs backwards: what is acknowledged later is recorded later, also after the server's clock was
-- set back.

CREATE INDEX event_recorded ON event (recorded_at);

CREATE FUNCTION imem_journal_now() RETURNS timestamptz
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    -- The present moment, but later than everything recorded: values are ordered by time, and of two acknowledged ones the
    -- later must win. A session whose clock a test shifts goes by the shifted clock alone.
    SELECT CASE
        WHEN coalesce(current_setting('imem.clock_shift', true), '') <> '' AND imem_may_shift_clock() THEN imem_now()
        ELSE greatest(imem_now(), (SELECT max(recorded_at) FROM event) + interval '1 microsecond')
    END
$$;

DO $$
-- One line of each changes; everything else stays as it was defined.
DECLARE
    v_name text;
    v_before text;
    v_after text;
BEGIN
    FOREACH v_name IN ARRAY ARRAY['imem_append_v1', 'imem_safe_horizon'] LOOP
        v_before := pg_get_functiondef(v_name::regproc);
        v_after := replace(replace(v_before, 'v_now := imem_now();', 'v_now := imem_journal_now();'),
            'v_now timestamptz := imem_now();', 'v_now timestamptz := imem_journal_now();');
        IF v_after = v_before THEN
            RAISE EXCEPTION '% does not read the clock where it is expected to', v_name;
        END IF;
        EXECUTE v_after;
    END LOOP;
END
$$;
