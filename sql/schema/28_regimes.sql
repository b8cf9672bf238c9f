-- Runs in which the regime of a market is detected, cached and followed by the publication of scores.

CREATE TABLE regime_run (
    seq              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id           uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    market           text NOT NULL CHECK (length(market) BETWEEN 1 AND 200),
    day              date NOT NULL,
    cause            text NOT NULL CHECK (cause IN ('daily', 'stale', 'reading')),
    opened_at        timestamptz NOT NULL,
    claims           integer NOT NULL DEFAULT 0,
    claimed_at       timestamptz,
    detected_at      timestamptz,
    reading_id       text,
    regime           text,
    stale            boolean,
    reason           text,
    cached_at        timestamptz,
    records          integer,
    published        integer NOT NULL DEFAULT 0,
    p99_at           timestamptz,
    published_at     timestamptz,
    CHECK ((detected_at IS NULL) = (regime IS NULL) AND (regime IS NULL) = (stale IS NULL)),
    CHECK (cached_at IS NULL OR detected_at IS NOT NULL AND records IS NOT NULL),
    CHECK (published = 0 OR cached_at IS NOT NULL)
);
CREATE UNIQUE INDEX regime_run_daily ON regime_run (market, day) WHERE cause = 'daily';
COMMENT ON TABLE regime_run IS 'One row a detection: of each day, of a reading that somebody recorded, or anew while indicators were missing. The newest by seq counts, whatever a clock said.';
COMMENT ON COLUMN regime_run.claims IS 'Fences detection: a claim that another process made later writes nothing.';
COMMENT ON COLUMN regime_run.reading_id IS 'The reading that is in force by the run; NULL where none is.';
COMMENT ON COLUMN regime_run.reason IS 'Why indicators could not be read.';
COMMENT ON COLUMN regime_run.records IS 'How many scores the run publishes; published, how many it has.';
COMMENT ON COLUMN regime_run.p99_at IS 'When 99 of 100 of them were published: the staleness of a run is counted up to it.';

CREATE TABLE regime_cache (
    market     text PRIMARY KEY,
    run_id     uuid NOT NULL REFERENCES regime_run (run_id),
    regime     text NOT NULL,
    stale      boolean NOT NULL,
    cached_at  timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE regime_cache IS 'The regime that scores are published under: that of one run, for a day.';

-- An open alert keeps another about the same from being raised: who could forge one would silence it, and so would who closes it.
CREATE FUNCTION workflow.alert_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
BEGIN
    -- The session's user counts: within functions with the owner's rights the current user is the owner.
    IF NOT has_table_privilege(session_user, 'public.agent_outcome', 'INSERT') AND (
        TG_OP = 'INSERT' OR (NEW.alert_id, NEW.kind, NEW.about) IS DISTINCT FROM (OLD.alert_id, OLD.kind, OLD.about)
        OR OLD.closed_at IS NOT NULL AND NEW.closed_at IS NULL)
    THEN
        RAISE EXCEPTION 'only a pipeline raises %', NEW.kind USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- A person who acknowledges one closes it, as a curator.
    IF TG_OP = 'UPDATE' AND NEW.closed_at IS DISTINCT FROM OLD.closed_at
        AND NOT has_function_privilege(session_user, 'public.imem_curates_v1()', 'EXECUTE')
    THEN
        RAISE EXCEPTION 'only a curator or a pipeline closes %', NEW.kind USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER alert_guard BEFORE INSERT OR UPDATE ON workflow.alert
    FOR EACH ROW WHEN (NEW.kind IN (
        'CREDIBILITY_FALL', 'REGIME_LATE', 'REGIME_STALENESS', 'ACCESS_DENIALS', 'WORK_SET_ASIDE', 'SCORES_LATE',
        'PATTERN_STATUS_SKIPS'))
    EXECUTE FUNCTION workflow.alert_guard();
