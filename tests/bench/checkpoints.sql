-- bare_checkpoints --
-- Tables of forecasts, of outcomes and of how they compare, without histories, audit or states.
CREATE TABLE bare_forecast (key text PRIMARY KEY, days integer, predicted double precision, low double precision, high double precision);
CREATE TABLE bare_outcome (key text PRIMARY KEY, decision text, core jsonb, known_at timestamptz);
CREATE INDEX ON bare_outcome (decision);
CREATE TABLE bare_measured (key text PRIMARY KEY, deviation numeric, verdict text)

-- bare_schedule --
-- Forecasts of decisions. Parameters: keys, days, predicted, low, high.
INSERT INTO bare_forecast
SELECT n.key, %(days)s, %(predicted)s, %(low)s, %(high)s FROM unnest(%(keys)s::text[]) AS n (key)

-- bare_record --
-- Outcomes of checkpoints. Parameters: keys, decisions, cores, known_at.
INSERT INTO bare_outcome SELECT n.key, n.decision, n.core, %(known_at)s
FROM unnest(%(keys)s::text[], %(decisions)s::text[], %(cores)s::jsonb[]) AS n (key, decision, core)

-- bare_measure --
-- How outcomes compare. Parameters: decisions.
INSERT INTO bare_measured
SELECT f.key, m.deviation,
    CASE WHEN m.deviation <= 0.30 THEN 'none' WHEN m.actual BETWEEN f.low AND f.high THEN 'noise' ELSE 'off' END
FROM bare_forecast AS f
JOIN bare_outcome AS o ON o.decision = f.key
CROSS JOIN LATERAL (SELECT (o.core ->> 'actual')::float8 AS actual) AS a
CROSS JOIN LATERAL (
    SELECT a.actual, abs(a.actual::numeric - f.predicted::numeric) / greatest(abs(f.predicted), 0.05)::numeric AS deviation
) AS m
WHERE f.key = ANY (%(decisions)s)
