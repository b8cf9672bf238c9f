-- Signals: what agents concluded about markets and companies. A signal is a recorded finding; the table is its projection, in a shape
-- that other programs may have filled before. Schema recall, which 20_memories.sql creates.
--
-- Bounds: one row for each agent, subject and analysis; projected rows older than the retention are deleted once a day, the journal keeps
-- all of them. Rows that others wrote are nowhere else, and stay.

-- No constraints on values: a table that others filled is read as it is, and a row that is no signal is skipped.
CREATE TABLE recall.agent_signals (
    id                uuid PRIMARY KEY,
    market_id         text COLLATE "C" NOT NULL,
    recommendation_id text,
    agent_name        text COLLATE "C" NOT NULL,
    agent_type        text,
    fair_probability  numeric(5, 4),
    confidence        numeric(3, 2),
    direction         text,
    key_drivers       jsonb,
    metadata          jsonb,
    created_at        timestamptz NOT NULL,
    analysis_id       text COLLATE "C",
    subject_kind      text,
    finding_id        text COLLATE "C",
    exact_probability double precision,
    exact_confidence  double precision
);
CREATE UNIQUE INDEX agent_signals_key ON recall.agent_signals (analysis_id, agent_name, market_id, subject_kind) WHERE analysis_id IS NOT NULL;
CREATE INDEX agent_signals_newest ON recall.agent_signals (market_id, agent_name, created_at DESC);
CREATE INDEX agent_signals_oldest ON recall.agent_signals (created_at) WHERE finding_id IS NOT NULL;
COMMENT ON TABLE recall.agent_signals IS 'The newest conclusion of each agent in each analysis of a subject: a projection of findings, written by functions alone.';
COMMENT ON COLUMN recall.agent_signals.market_id IS 'The key of the subject: of a market or of a company, as subject_kind says; NULL there: a market.';
COMMENT ON COLUMN recall.agent_signals.agent_type IS 'The domain of the finding.';
COMMENT ON COLUMN recall.agent_signals.fair_probability IS 'Of YES; NULL where a finding about a company states none. Rounded, as is confidence: the exact values stand in columns of their own.';
COMMENT ON COLUMN recall.agent_signals.metadata IS 'What else the finding says: its statement, and its claim.';
COMMENT ON COLUMN recall.agent_signals.created_at IS 'Since when the finding could be known; a correction does not change it.';
COMMENT ON COLUMN recall.agent_signals.finding_id IS 'The finding whose projection the row is; NULL in rows that others wrote.';

CREATE FUNCTION recall.is_signal_v1(
    p_kind text, p_direction text, p_probability double precision, p_confidence double precision
) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
-- Whether a row can be shown. A finding about a company may state no probability.
SELECT coalesce(
    p_direction IN ('YES', 'NO', 'NEUTRAL') AND p_confidence BETWEEN 0 AND 1
    AND CASE WHEN p_probability IS NULL THEN p_kind = 'company' ELSE p_probability BETWEEN 0 AND 1 END, false)
$$;

CREATE FUNCTION recall.fraction_v1(p_value jsonb) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
-- A number from 0 to 1; NULL for anything else, as a payload may hold what no program of ours would write.
SELECT CASE WHEN jsonb_typeof(p_value) = 'number' THEN
    CASE WHEN p_value::numeric NOT BETWEEN 0 AND 1 THEN NULL WHEN p_value::numeric < 1e-300 THEN 0 ELSE p_value::numeric::double precision END
END
$$;

CREATE FUNCTION recall.signals_of_v1(p_findings text[], p_known_until timestamptz, p_recorded_until timestamptz) RETURNS TABLE (
    id uuid, market_id text, subject_kind text, agent_name text, agent_type text, analysis_id text, finding_id text, direction text,
    fair_probability double precision, confidence double precision, key_drivers jsonb, metadata jsonb, created_at timestamptz)
LANGUAGE sql STABLE SET search_path = public, pg_temp
AS $$
-- The signals that the given findings are, by their values as of a moment: of an agent's findings in one analysis of a subject the last
-- that is a signal. Positive is YES, negative is NO; a finding that states a probability and no direction takes the likelier side.
SELECT DISTINCT ON (s.analysis_id, s.agent_name, s.market_id, s.subject_kind)
    s.event_id, s.market_id, s.subject_kind, s.agent_name, s.agent_type, s.analysis_id, s.key, s.direction,
    s.probability, s.confidence, s.key_drivers, s.metadata, s.known_at
FROM (
    SELECT f.key, c.event_id, c.known_at, c.order_key,
        split_part(v.core ->> 'subject_id', ':', 1) AS subject_kind,
        substr(v.core ->> 'subject_id', strpos(v.core ->> 'subject_id', ':') + 1) AS market_id,
        v.core ->> 'agent' AS agent_name, v.core ->> 'domain' AS agent_type, v.core ->> 'analysis_id' AS analysis_id,
        CASE v.core ->> 'direction' WHEN 'positive' THEN 'YES' WHEN 'negative' THEN 'NO' WHEN 'neutral' THEN 'NEUTRAL' ELSE
            CASE WHEN n.probability > 0.5 THEN 'YES' WHEN n.probability < 0.5 THEN 'NO' WHEN n.probability = 0.5 THEN 'NEUTRAL' END
        END AS direction,
        n.probability, n.confidence,
        CASE WHEN jsonb_typeof(v.core -> 'key_drivers') = 'array' THEN v.core -> 'key_drivers' ELSE '[]' END AS key_drivers,
        v.core - '{id,subject_id,agent,domain,analysis_id,direction,probability,confidence,key_drivers}'::text[] AS metadata
    FROM (SELECT DISTINCT w.key FROM unnest(p_findings) AS w (key)) AS f
    CROSS JOIN LATERAL (
        SELECT e.event_id, y.known_at, y.order_key, e.payload -> 'core' AS core
        FROM record_history AS y JOIN event AS e ON e.position = y.position
        WHERE y.kind = 'Finding' AND y.key = f.key AND y.grp = 'core' AND y.known_at <= p_known_until AND y.recorded_at <= p_recorded_until
        ORDER BY y.order_key LIMIT 1
    ) AS c
    LEFT JOIN LATERAL (
        SELECT e.payload -> 'core' AS core
        FROM record_history AS y JOIN event AS e ON e.position = y.position
        WHERE y.kind = 'Finding' AND y.key = f.key AND y.grp = 'correction' AND y.known_at <= p_known_until AND y.recorded_at <= p_recorded_until
        ORDER BY y.order_key DESC LIMIT 1
    ) AS k ON true
    CROSS JOIN LATERAL (SELECT coalesce(k.core, c.core) AS core) AS v
    CROSS JOIN LATERAL (
        SELECT recall.fraction_v1(v.core -> 'probability') AS probability, recall.fraction_v1(v.core -> 'confidence') AS confidence
    ) AS n
) AS s
WHERE s.analysis_id IS NOT NULL AND recall.is_signal_v1(s.subject_kind, s.direction, s.probability, s.confidence)
ORDER BY s.analysis_id, s.agent_name, s.market_id, s.subject_kind, s.order_key DESC
$$;

CREATE FUNCTION recall.project_signals_v1(p_analyses text[], p_retention interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Brings the rows of some analyses to what the journal says, whoever calls and however often, after which they are not due; returns how
-- many changed. Findings older than p_retention get no row. It writes what is in the journal alone, so that the application may call it.
DECLARE
    v_changed bigint;
    v_removed bigint;
BEGIN
    -- Else a projection that had read less could overwrite a later one. In one order, before anything is read.
    PERFORM pg_advisory_xact_lock(hashtext('imem.signals'), l.lock)
    FROM (SELECT DISTINCT hashtext(a.id) AS lock FROM unnest(p_analyses) AS a (id) ORDER BY 1) AS l;
    -- Before anything is read, so that what is recorded after that stays due. Rows that a worker is at are its own to end: it may wait
    -- for the lock above.
    DELETE FROM due_row AS d WHERE d.id IN (
        SELECT w.id FROM due_row AS w
        WHERE w.queue = 'signals' AND w.kind = 'Analysis' AND w.key = ANY (p_analyses) FOR UPDATE SKIP LOCKED);
    WITH said AS MATERIALIZED (
        SELECT s.* FROM signals_of_v1(
            ARRAY(SELECT DISTINCT e.record_key FROM event AS e WHERE e.analysis_id = ANY (p_analyses) AND e.kind = 'record.Finding'),
            'infinity', 'infinity') AS s
        WHERE s.analysis_id = ANY (p_analyses)
    ), removed AS (
        DELETE FROM agent_signals AS s WHERE s.analysis_id = ANY (p_analyses) AND s.finding_id IS NOT NULL AND NOT EXISTS (
            SELECT FROM said AS n WHERE n.analysis_id = s.analysis_id AND n.agent_name = s.agent_name
              AND n.market_id = s.market_id AND n.subject_kind = s.subject_kind)
        RETURNING 1
    ), changed AS (
        INSERT INTO agent_signals AS s (
            id, market_id, agent_name, agent_type, fair_probability, confidence, direction, key_drivers, metadata, created_at,
            analysis_id, subject_kind, finding_id, exact_probability, exact_confidence)
        SELECT n.id, n.market_id, n.agent_name, n.agent_type, n.fair_probability::numeric(5, 4), n.confidence::numeric(3, 2), n.direction,
            n.key_drivers, n.metadata, n.created_at, n.analysis_id, n.subject_kind, n.finding_id, n.fair_probability, n.confidence
        FROM said AS n WHERE n.created_at > imem_now() - p_retention
        ON CONFLICT (analysis_id, agent_name, market_id, subject_kind) WHERE analysis_id IS NOT NULL DO UPDATE SET
            id = excluded.id, agent_type = excluded.agent_type, fair_probability = excluded.fair_probability,
            confidence = excluded.confidence, direction = excluded.direction, key_drivers = excluded.key_drivers,
            metadata = excluded.metadata, created_at = excluded.created_at, finding_id = excluded.finding_id,
            exact_probability = excluded.exact_probability, exact_confidence = excluded.exact_confidence
        WHERE (s.id, s.direction, s.exact_probability, s.exact_confidence, s.key_drivers, s.metadata, s.created_at) IS DISTINCT FROM
            (excluded.id, excluded.direction, excluded.exact_probability, excluded.exact_confidence, excluded.key_drivers,
             excluded.metadata, excluded.created_at)
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM changed), (SELECT count(*) FROM removed) INTO v_changed, v_removed;
    RETURN v_changed + v_removed;
END
$$;

CREATE FUNCTION recall.retain_signals_v1(p_retention interval, p_limit integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Deletes projected rows older than p_retention, p_limit at most; returns how many. What the journal does not have stays.
WITH old AS (
    SELECT s.id FROM agent_signals AS s
    WHERE s.finding_id IS NOT NULL AND s.created_at <= imem_now() - p_retention ORDER BY s.created_at LIMIT p_limit
), gone AS (
    DELETE FROM agent_signals AS s USING old AS o WHERE s.id = o.id RETURNING 1
)
SELECT count(*) FROM gone
$$;
