-- regime_readings --
-- The readings of a market as of a moment that are not withdrawn, the one in force first: the latest by observed_at, of two at one
-- moment the one that was known later. The whole kind is read, one row a day. Parameters: market, known_until, recorded_until, limit.
SELECT r.key, r.core::text AS core, r.known_at, r.corrected_at
FROM (
    SELECT DISTINCT ON (h.key) h.key, e.payload -> 'core' AS core, first.known_at, first.order_key,
        CASE WHEN h.grp = 'correction' THEN h.known_at END AS corrected_at
    FROM record_history AS h
    JOIN event AS e ON e.position = h.position
    JOIN LATERAL (
        SELECT c.known_at, c.order_key FROM record_history AS c
        WHERE c.kind = h.kind AND c.key = h.key AND c.grp = 'core'
          AND c.known_at <= %(known_until)s AND c.recorded_at <= %(recorded_until)s
        ORDER BY c.order_key LIMIT 1
    ) AS first ON true
    WHERE h.kind = 'RegimeReading' AND h.grp IN ('core', 'correction')
      AND h.known_at <= %(known_until)s AND h.recorded_at <= %(recorded_until)s
    ORDER BY h.key, h.grp = 'correction' DESC, h.order_key DESC
) AS r
WHERE r.core ->> 'market' = %(market)s AND (r.core ->> 'withdrawn') IS DISTINCT FROM 'true'
  AND (r.core ->> 'observed_at')::timestamptz <= %(known_until)s
ORDER BY (r.core ->> 'observed_at')::timestamptz DESC, r.order_key COLLATE "C" DESC
LIMIT %(limit)s

-- regime_lock --
-- Serialises the steps of regimes and of publication, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('imem.regime.' || %(market)s::text, 0))

-- open_daily_run --
-- Opens the run of the day in UTC, unless it was.
INSERT INTO regime_run (market, day, cause, opened_at)
SELECT %(market)s, (t.now AT TIME ZONE 'UTC')::date, 'daily', t.now FROM (SELECT imem_now()) AS t (now)
WHERE NOT EXISTS (
    SELECT FROM regime_run AS r
    WHERE r.market = %(market)s AND r.day = (t.now AT TIME ZONE 'UTC')::date AND r.cause = 'daily')
ON CONFLICT (market, day) WHERE cause = 'daily' DO NOTHING

-- open_run --
-- Opens another run of the day.
INSERT INTO regime_run (market, day, cause, opened_at)
SELECT %(market)s, (t.now AT TIME ZONE 'UTC')::date, %(cause)s, t.now FROM (SELECT imem_now()) AS t (now)

-- newest_run --
-- The newest run, its age, whether it is the cached one, and the journal's time. retry_due: whether its indicators were missing an hour ago.
SELECT r.run_id, r.seq, r.cause, r.opened_at, r.claims, r.detected_at, r.regime, r.stale, r.reading_id, r.cached_at, r.records,
    r.published, r.p99_at, r.published_at, imem_journal_now() AS now,
    extract(epoch FROM coalesce(r.p99_at, t.now) - r.opened_at)::float8 AS staleness_s,
    extract(epoch FROM t.now - r.opened_at)::float8 AS age_s,
    c.run_id = r.run_id AND t.now < c.expires_at AS cached,
    r.stale AND r.cause <> 'reading' AND abs(extract(epoch FROM t.now - r.detected_at)) >= 3600 AS retry_due
FROM regime_run AS r
CROSS JOIN (SELECT imem_now()) AS t (now)
LEFT JOIN regime_cache AS c ON c.market = r.market
WHERE r.market = %(market)s ORDER BY r.seq DESC LIMIT 1

-- claim_detection --
-- Claims the detection of a run for a minute; no row while another process has it. A claim in the future is one from before the clock
-- was set back. Column: claims, the fence.
UPDATE regime_run SET claims = claims + 1, claimed_at = imem_now()
WHERE run_id = %(run_id)s AND detected_at IS NULL
  AND (claimed_at IS NULL OR claimed_at NOT BETWEEN imem_now() - interval '60 seconds' AND imem_now())
RETURNING claims

-- finish_detection --
-- Writes what a run detected, if it is the newest, not detected, and still the claimer's. No row otherwise.
UPDATE regime_run AS r SET detected_at = imem_now(), reading_id = %(reading_id)s, regime = %(regime)s, stale = %(stale)s,
    reason = left(%(reason)s, 500)
WHERE r.run_id = %(run_id)s AND r.claims = %(claims)s AND r.detected_at IS NULL
  AND r.seq = (SELECT max(n.seq) FROM regime_run AS n WHERE n.market = r.market)
RETURNING r.seq

-- cache_regime --
-- Caches the regime of a detected run for 24 hours.
INSERT INTO regime_cache AS c (market, run_id, regime, stale, cached_at, expires_at)
SELECT r.market, r.run_id, r.regime, r.stale, imem_now(), imem_now() + interval '24 hours' FROM regime_run AS r
WHERE r.run_id = %(run_id)s AND r.detected_at IS NOT NULL
ON CONFLICT (market) DO UPDATE SET run_id = excluded.run_id, regime = excluded.regime, stale = excluded.stale,
    cached_at = excluded.cached_at, expires_at = excluded.expires_at

-- run_cached --
-- Notes that a run is cached, and how many scores it publishes.
UPDATE regime_run SET cached_at = imem_now(), records = %(records)s,
    p99_at = CASE WHEN %(records)s = 0 THEN imem_now() END, published_at = CASE WHEN %(records)s = 0 THEN imem_now() END
WHERE run_id = %(run_id)s

-- clear_due_scores --
-- Forgets which scores are due, before all of them are.
DELETE FROM due_row WHERE queue = %(queue)s AND set_aside IS NULL

-- scored_pairs --
-- Every agent and domain with a score.
SELECT DISTINCT agent, domain FROM track_step ORDER BY agent, domain

-- scores_spoken_of --
-- The agents and domains with a score that the given records are about.
SELECT s.agent, s.domain
FROM (
    SELECT DISTINCT e.payload -> 'core' ->> 'agent' AS agent, e.payload -> 'core' ->> 'domain' AS domain
    FROM unnest(%(kinds)s::text[], %(keys)s::text[]) AS w (kind, key)
    JOIN record_history AS y ON y.kind = w.kind AND y.key = w.key AND y.grp = 'core'
    JOIN event AS e ON e.position = y.position
) AS s
WHERE EXISTS (SELECT FROM track_step AS t WHERE t.agent = s.agent AND t.domain = s.domain)
ORDER BY s.agent, s.domain

-- run_published --
-- Counts scores that a run has published.
UPDATE regime_run SET published = least(records, published + %(count)s),
    p99_at = CASE WHEN p99_at IS NULL AND published + %(count)s >= ceil(records * 0.99) THEN imem_now() ELSE p99_at END,
    published_at = CASE WHEN published_at IS NULL AND published + %(count)s >= records THEN imem_now() ELSE published_at END
WHERE run_id = %(run_id)s
RETURNING published_at, extract(epoch FROM published_at - opened_at)::float8 AS took_s
