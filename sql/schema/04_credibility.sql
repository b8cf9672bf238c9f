-- Scores of claims, and the track records made of them: derived from the journal alone, recomputable at any time.
--
-- Both clocks are kept as validity: on the known clock a score stands from known_at until superseded_known_at, on the recorded clock
-- from recorded_at until superseded_recorded_at. An end that is NULL is open; a beginning that is NULL says that the score never stood
-- on that clock (a first report that was loaded after its revision). A read as of T is a plain filter, and what became known or was
-- recorded after T cannot change it.

-- Scores

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
    sector                 text,
    metric_type            text,
    time_horizon           text,
    company_size           text,
    growth_stage           text,
    regime                 text,
    error                  double precision,
    peer_loss              double precision,
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
CREATE INDEX agent_outcome_of_agent ON agent_outcome (agent, domain, target_at);
CREATE INDEX agent_outcome_of_question ON agent_outcome (subject_id, metric, target_at);
CREATE INDEX agent_outcome_known ON agent_outcome (agent, domain, known_at);
CREATE INDEX agent_outcome_recorded ON agent_outcome (agent, domain, recorded_at);
CREATE INDEX agent_outcome_predicted ON agent_outcome (predicted_at);
-- By a part of the questions, drawn by their hash: panels score their pools on it (answers_until).
CREATE INDEX agent_outcome_drawn ON agent_outcome (agent, domain, (
    hashtextextended(subject_id || metric, extract(epoch FROM target_at - timestamptz '2000-01-01 00:00:00+00')::bigint) & 1023
)) WHERE peer_loss IS NOT NULL AND error IS NOT NULL;
CREATE INDEX agent_outcome_unknown ON agent_outcome (agent, domain, superseded_known_at) WHERE superseded_known_at IS NOT NULL;
CREATE INDEX agent_outcome_unrecorded ON agent_outcome (agent, domain, superseded_recorded_at) WHERE superseded_recorded_at IS NOT NULL;
COMMENT ON TABLE agent_outcome IS 'How each claim turned out, one row a vintage of the outcome and revision of either side.';
COMMENT ON COLUMN agent_outcome.stated IS 'Probability of a binary metric, sign of a direction, value of a value.';
COMMENT ON COLUMN agent_outcome.happened IS 'Of a binary metric, whether it happened; NULL for other metrics.';
COMMENT ON COLUMN agent_outcome.y IS 'Whether the claim was right; NULL when it abstained.';
COMMENT ON COLUMN agent_outcome.reference IS 'Of a binary metric, the mean probability that the baseline agents gave; NULL without any.';
COMMENT ON COLUMN agent_outcome.error IS 'Signed error, -1 to 1, whose square is the loss; NULL when it abstained.';
COMMENT ON COLUMN agent_outcome.peer_loss IS 'Mean loss of the other agents in the same stage of the question; NULL without any, or if its agent has a newer claim there.';
COMMENT ON COLUMN agent_outcome.sector IS 'With the next five the context of the claim: what was known of its subject, its metric and the market when it was made.';
COMMENT ON COLUMN agent_outcome.first_known_at IS 'When the claim could first be scored at all, by any vintage.';
COMMENT ON COLUMN agent_outcome.scored_at IS 'When the pipeline wrote the row; no part of its content.';

-- Track records: steps of each record, with the sums that the skill of stated probabilities and its interval follow from. Sums decay with
-- age, by observation, where their comment says so.

CREATE TABLE track_step (
    agent             text NOT NULL,
    domain            text NOT NULL,
    clock             text NOT NULL CHECK (clock IN ('known', 'recorded')),
    at                timestamptz NOT NULL,
    halflife_years    double precision NOT NULL,
    observations      integer NOT NULL,
    scored            integer NOT NULL,
    correct           integer NOT NULL,
    abstained         integer NOT NULL,
    weight            double precision NOT NULL,
    successes         double precision NOT NULL,
    probabilities     integer NOT NULL,
    brier_sum         double precision NOT NULL,
    log_sum           double precision NOT NULL,
    base_sum          double precision NOT NULL,
    common            integer NOT NULL,
    common_sum        double precision NOT NULL,
    reference_sum     double precision NOT NULL,
    squares           double precision NOT NULL DEFAULT 0,
    common_squares    double precision NOT NULL DEFAULT 0,
    common_cross      double precision NOT NULL DEFAULT 0,
    reference_squares double precision NOT NULL DEFAULT 0,
    own_sum           double precision NOT NULL DEFAULT 0,
    own_squares       double precision NOT NULL DEFAULT 0,
    own_cross         double precision NOT NULL DEFAULT 0,
    base_squares      double precision NOT NULL DEFAULT 0,
    answers           bigint NOT NULL DEFAULT 0,
    happened          bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (agent, domain, clock, at)
);
COMMENT ON TABLE track_step IS 'The track record of an agent in a domain after each change, by clock: the newest step at or before T answers as of T.';
COMMENT ON COLUMN track_step.weight IS 'Sum over observations of 0.5^(age at "at" / halflife); successes likewise, times the mean of each.';
COMMENT ON COLUMN track_step.squares IS 'Sum over observations of their squared weights: weight^2 / squares is how many equally weighted ones they are worth.';
COMMENT ON COLUMN track_step.probabilities IS 'Scored claims that gave a probability; brier_sum and log_sum are over them, whatever their age.';
COMMENT ON COLUMN track_step.common IS 'Those of them that baselines answered too; common_sum is the agent''s own decayed Brier sum there, reference_sum the baselines''.';
COMMENT ON COLUMN track_step.common_cross IS 'Over observations, weight squared times the product of the two sums of each; common_squares and reference_squares likewise.';
COMMENT ON COLUMN track_step.base_sum IS 'The decayed Brier sum of the agent''s own earlier base rate, own_sum its own on the same claims; squares and cross as for the baselines.';

COMMENT ON COLUMN track_step.answers IS 'Claims on binary metrics that have an answer, abstentions too; happened: those of them whose event happened.';

CREATE TABLE track_cell (
    agent              text NOT NULL,
    domain             text NOT NULL,
    clock              text NOT NULL CHECK (clock IN ('known', 'recorded')),
    context            text COLLATE "C" NOT NULL,
    at                 timestamptz NOT NULL,
    halflife_years     double precision NOT NULL,
    weight             double precision NOT NULL,
    successes          double precision NOT NULL,
    squares            double precision NOT NULL,
    observations       double precision NOT NULL,
    "right"            double precision NOT NULL,
    rows               bigint NOT NULL,
    newest_resolved_at timestamptz,
    PRIMARY KEY (agent, domain, clock, context, at)
);
COMMENT ON TABLE track_cell IS 'The part of a track record that is of one context, after each change: the newest step at or before T answers as of T.';
COMMENT ON COLUMN track_cell.context IS 'The six dimensions as a JSON list, in the order of the columns of agent_outcome.';
COMMENT ON COLUMN track_cell.weight IS 'As in track_step, but a row counts 1/rows of its observation, whose rows may be of several contexts.';

CREATE TABLE observation_step (
    agent     text NOT NULL,
    domain    text NOT NULL,
    clock     text NOT NULL CHECK (clock IN ('known', 'recorded')),
    at        timestamptz NOT NULL,
    target_at timestamptz NOT NULL,
    context   text COLLATE "C" NOT NULL,
    rows      integer NOT NULL,
    loss      double precision NOT NULL,
    peer_loss double precision NOT NULL,
    error     double precision NOT NULL,
    ahead     double precision NOT NULL,
    PRIMARY KEY (agent, domain, clock, at, target_at, context)
);
COMMENT ON TABLE observation_step IS 'One observation of an agent beside the other agents on the same questions, after each change, by clock and context.';
COMMENT ON COLUMN observation_step.rows IS 'Its scored claims on questions that others answered too: loss, peer_loss, error and ahead are means over them.';
COMMENT ON COLUMN observation_step.ahead IS 'Seconds to target_at from when the agent first gave the answer that it has only repeated since.';

CREATE TABLE track_due (
    agent         text NOT NULL,
    domain        text NOT NULL,
    version       bigint GENERATED ALWAYS AS IDENTITY,
    since         timestamptz NOT NULL,
    known_from    timestamptz NOT NULL DEFAULT '0001-01-01 00:00:00+00',
    recorded_from timestamptz NOT NULL DEFAULT '0001-01-01 00:00:00+00',
    PRIMARY KEY (agent, domain)
);
COMMENT ON TABLE track_due IS 'Track records whose steps have to be recomputed; since is the oldest event that waits.';
COMMENT ON COLUMN track_due.known_from IS 'The first moment on that clock at which anything changed: steps before it stay valid, and the sweep goes on from there.';

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

CREATE FUNCTION imem_settled_horizon() RETURNS timestamptz
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    -- The last moment of which everything recorded is scored: before the oldest event that still waits.
    SELECT least(
        imem_now(),
        imem_due_since('credibility', 'Decision'),
        (SELECT min(since) FROM track_due)
    ) - interval '1 microsecond'
$$;

-- Readings of a market's regime, by the moment that each speaks of: the latest that was known is in force.
CREATE INDEX event_of_regime ON event ((payload -> 'core' ->> 'observed_at') COLLATE "C")
    WHERE kind IN ('record.RegimeReading', 'correct.RegimeReading');

-- Half-lives that a record sets: a published score states the one it was computed with, and each publication adds a row.
CREATE INDEX halflife_set ON record_history (key, order_key)
    WHERE kind = 'AgentCredibility' AND grp = 'score' AND actor <> 'credibility-scores';

-- What the credibility pipeline alone records

CREATE FUNCTION imem_credibility_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
BEGIN
    -- The session's user counts: within the functions that the application may call the current user is the owner.
    IF NOT has_table_privilege(session_user, 'public.agent_outcome', 'INSERT') THEN
        RAISE EXCEPTION 'only the credibility pipeline states % of %', NEW.grp, NEW.kind
        USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER credibility_guard BEFORE INSERT ON record_history
    FOR EACH ROW WHEN (
        NEW.kind IN ('AgentCredibility', 'SourceCredibility')
        OR NEW.kind IN ('Analysis', 'Decision') AND NEW.grp = 'outcome'
        OR NEW.kind = 'DataContradiction' AND NEW.grp = 'resolution'
        OR NEW.kind = 'DataPoint' AND NEW.grp = 'answer')
    EXECUTE FUNCTION imem_credibility_guard();

-- The graph is written from the events themselves, whatever the heads beside them say.
CREATE FUNCTION imem_credibility_event_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'public.agent_outcome', 'INSERT') THEN
        RAISE EXCEPTION 'only the credibility pipeline states % %', NEW.kind, NEW.record_key USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER credibility_guard BEFORE INSERT ON event
    FOR EACH ROW WHEN (
        split_part(NEW.kind, '.', 2) IN (
            'AgentCredibility', 'SourceCredibility', 'SETTLED_BY', 'HAS_CREDIBILITY', 'HAS_CREDIBILITY_IN', 'IN_DOMAIN',
            'RESOLVED_BY_SOURCE')
        OR split_part(NEW.kind, '.', 2) IN ('Analysis', 'Decision') AND NEW.payload #> '{groups,outcome}' IS NOT NULL
        OR split_part(NEW.kind, '.', 2) = 'DataContradiction' AND NEW.payload #> '{groups,resolution}' IS NOT NULL
        OR split_part(NEW.kind, '.', 2) = 'DataPoint' AND NEW.payload #> '{groups,answer}' IS NOT NULL
        -- What the graph derives.
        OR split_part(NEW.kind, '.', 2) = 'Agent' AND NEW.payload #> '{groups,counters}' IS NOT NULL)
    EXECUTE FUNCTION imem_credibility_event_guard();

-- What is recorded becomes known when its transaction commits. A writer that keeps one open until the answer shows could commit the claim
-- that turned out right and take the other back: pipelines note whose transactions are open, and what was not committed at target_at
-- is no claim.

CREATE TABLE open_writer (
    writer bigint NOT NULL,
    actor  text,
    seq    bigint NOT NULL,
    at     timestamptz NOT NULL
);
CREATE INDEX open_writer_at ON open_writer (writer, at);
COMMENT ON TABLE open_writer IS 'Actors of whom a transaction that had recorded for a second or longer was open at a moment.';
COMMENT ON COLUMN open_writer.writer IS 'Hash of the actor, as its lock shows it; actor is NULL where nothing of it was committed.';
COMMENT ON COLUMN open_writer.seq IS 'The last agent_seq that was committed then: what has a later one and was recorded before was not.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON open_writer
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

CREATE FUNCTION imem_note_open_writers_v1() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Notes whose transactions are open, and returns how many. The moment is read first: what is recorded after it is none of them.
DECLARE
    v_at timestamptz := imem_journal_now();
    v_noted integer;
BEGIN
    INSERT INTO open_writer (writer, actor, seq, at)
    SELECT k.writer, c.actor, coalesce(c.pushed_seq, 0), v_at
    FROM (
        SELECT DISTINCT w.objid::bigint AS writer FROM pg_locks AS w
        JOIN pg_locks AS r ON r.pid = w.pid AND r.database = w.database AND r.locktype = 'advisory' AND r.objsubid = 2
        WHERE w.locktype = 'advisory' AND w.objsubid = 2
          AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND w.classid::bigint = hashtext('imem.writer')::bigint & 4294967295
          AND r.classid::bigint = hashtext('imem.recording')::bigint & 4294967295
          AND r.objid::bigint < floor(extract(epoch FROM v_at))
    ) AS k
    LEFT JOIN agent_cursor AS c ON hashtext(c.actor)::bigint & 4294967295 = k.writer;
    GET DIAGNOSTICS v_noted = ROW_COUNT;
    RETURN v_noted;
END
$$;
