-- Scores of claims, and the track records made of them: derived from the journal alone, recomputable at any time.
--
-- Both clocks are kept as validity: on the known clock a score stands from known_at until superseded_known_at, on the
-- recorded clock from recorded_at until superseded_recorded_at. An end that is NULL is open; a beginning that is NULL
-- says that the score never stood on that clock (a first report that was loaded after its revision). A read as of T
-- is a plain filter, and what became known or was recorded after T cannot change it.

CREATE TABLE agent_outcome (
    finding_id             text NOT NULL,
    vintage                bigint NOT NULL,
    revision               integer NOT NULL,
    outcome_id             text NOT NULL,
    agent                  text NOT NULL,
    domain                 text NOT NULL,
    subject_id             text NOT NULL,
    metric                 text NOT NULL,
    target_at              timestamptz NOT NULL,
    predicted_at           timestamptz NOT NULL,
    stated                 double precision NOT NULL,
    actual                 double precision NOT NULL,
    happened               smallint CHECK (happened IN (0, 1)),
    y                      smallint CHECK (y IN (0, 1)),
    abstained              boolean NOT NULL,
    brier                  double precision,
    log_score              double precision,
    reference              double precision,
    first_known_at         timestamptz NOT NULL,
    known_at               timestamptz,
    superseded_known_at    timestamptz,
    recorded_at            timestamptz,
    superseded_recorded_at timestamptz,
    scored_at              timestamptz NOT NULL DEFAULT imem_now(),
    PRIMARY KEY (finding_id, vintage, revision),
    CHECK (abstained = (y IS NULL)),
    CHECK (known_at IS NOT NULL OR recorded_at IS NOT NULL)
);
CREATE INDEX agent_outcome_of_agent ON agent_outcome (agent, domain);
CREATE INDEX agent_outcome_of_question ON agent_outcome (subject_id, metric, target_at);
COMMENT ON TABLE agent_outcome IS 'How each claim turned out, one row a vintage of the outcome and revision of either side.';
COMMENT ON COLUMN agent_outcome.stated IS 'Probability of a binary metric, sign of a direction, value of a value.';
COMMENT ON COLUMN agent_outcome.happened IS 'Of a binary metric, whether it happened; NULL for other metrics.';
COMMENT ON COLUMN agent_outcome.y IS 'Whether the claim was right; NULL when it abstained.';
COMMENT ON COLUMN agent_outcome.reference IS 'Of a binary metric, the mean probability that the baseline agents gave; NULL without any.';
COMMENT ON COLUMN agent_outcome.first_known_at IS 'When the claim could first be scored at all, by any vintage.';
COMMENT ON COLUMN agent_outcome.scored_at IS 'When the pipeline wrote the row; no part of its content.';

CREATE TABLE track_step (
    agent           text NOT NULL,
    domain          text NOT NULL,
    clock           text NOT NULL CHECK (clock IN ('known', 'recorded')),
    at              timestamptz NOT NULL,
    halflife_years  double precision NOT NULL,
    observations    integer NOT NULL,
    scored          integer NOT NULL,
    correct         integer NOT NULL,
    abstained       integer NOT NULL,
    weight          double precision NOT NULL,
    successes       double precision NOT NULL,
    probabilities   integer NOT NULL,
    brier_sum       double precision NOT NULL,
    log_sum         double precision NOT NULL,
    base_sum        double precision NOT NULL,
    common          integer NOT NULL,
    common_sum      double precision NOT NULL,
    reference_sum   double precision NOT NULL,
    PRIMARY KEY (agent, domain, clock, at)
);
COMMENT ON TABLE track_step IS 'The track record of an agent in a domain after each change, by clock: the newest step at or before T answers as of T.';
COMMENT ON COLUMN track_step.weight IS 'Sum over observations of 0.5^(age at "at" / halflife); successes likewise, times the mean of each.';
COMMENT ON COLUMN track_step.probabilities IS 'Scored claims that gave a probability; brier_sum, log_sum and base_sum (own earlier base rate) are over them.';
COMMENT ON COLUMN track_step.common IS 'Those of them that baselines answered too; common_sum is the agent''s own Brier sum there, reference_sum the baselines''.';

CREATE TABLE track_due (
    agent   text NOT NULL,
    domain  text NOT NULL,
    version bigint GENERATED ALWAYS AS IDENTITY,
    since   timestamptz NOT NULL,
    PRIMARY KEY (agent, domain)
);
COMMENT ON TABLE track_due IS 'Track records whose steps have to be recomputed; since is the oldest statement that waits.';

CREATE TABLE reconciliation_report (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at    timestamptz NOT NULL,
    finished_at   timestamptz NOT NULL DEFAULT imem_now(),
    questions     integer NOT NULL,
    scores        integer NOT NULL,
    track_records integer NOT NULL,
    decisions     integer NOT NULL,
    differing     integer NOT NULL,
    details       jsonb NOT NULL
);
COMMENT ON TABLE reconciliation_report IS 'What the nightly full recomputation found to differ from what stood; it was mended at once.';

-- What settling looks up: who is due first, and which decisions cite a finding.
CREATE INDEX settlement_due_oldest ON settlement_due (created_at, kind, key) WHERE stuck IS NULL;
CREATE INDEX event_cites_from ON event ((payload ->> 'from_key')) WHERE kind = 'link.CITES';
CREATE INDEX event_cites_to ON event ((payload ->> 'to_key')) WHERE kind = 'link.CITES';

CREATE FUNCTION imem_settled_horizon() RETURNS timestamptz
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    -- The last moment of which everything recorded is scored: before the oldest statement that still waits.
    SELECT least(
        imem_now(),
        (SELECT min(created_at) FROM settlement_due WHERE kind <> 'Decision' AND stuck IS NULL),
        (SELECT min(since) FROM track_due)
    ) - interval '1 microsecond'
$$;

CREATE FUNCTION imem_grant_application(p_role text) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Gives the application's role what it needs and no more: it reads everything, writes the journal through
-- imem_append_v1 alone, and changes only the tables of running work and of derived values.
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA public TO %I', p_role);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA public TO %I', p_role);
    EXECUTE format('GRANT UPDATE ON delivery TO %I', p_role);
    EXECUTE format('GRANT INSERT, UPDATE, DELETE ON lease, derive_work, settlement_due TO %I', p_role);
    EXECUTE format('GRANT INSERT, UPDATE, DELETE ON agent_outcome, track_step, track_due TO %I', p_role);
    EXECUTE format('GRANT INSERT ON reconciliation_report TO %I', p_role);
    EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO %I', p_role);
    EXECUTE format('REVOKE EXECUTE ON FUNCTION imem_grant_application(text) FROM %I', p_role);
END
$$;
REVOKE EXECUTE ON FUNCTION imem_grant_application(text) FROM PUBLIC;
