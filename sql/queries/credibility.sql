-- settle_lock --
-- Takes the settlement lock until the end of the transaction. False: another process holds it.
SELECT pg_try_advisory_xact_lock(hashtextextended('imem.settle', 0)) AS held

-- settle_lock_wait --
-- Takes the settlement lock, waiting for another process's batch to end.
SELECT pg_advisory_xact_lock(hashtextextended('imem.settle', 0))

-- note_open_writers --
-- Notes whose transactions are open: what they commit later was not known now.
SELECT imem_note_open_writers_v1() AS noted

-- settle_plans --
-- Plans of this transaction look rows up by key: right after a load the statistics still say that tables are small.
SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)

-- sweep_idle_timeout --
-- Idle timeout of a transaction that sweeps a whole track record, which takes a second for every 10,000 scores.
SELECT set_config('idle_in_transaction_session_timeout', '60s', true)

-- due_questions --
-- The questions that the next due outcomes and claims belong to.
SELECT DISTINCT h.subject_id, h.metric, h.target_at
FROM (
    SELECT kind, key FROM due_row WHERE queue = 'credibility' AND kind IN ('Outcome', 'Finding') AND set_aside IS NULL
    ORDER BY later, created_at, id LIMIT %(rows)s
) AS d
JOIN record_head AS h ON h.kind = d.kind AND h.key = d.key AND h.grp = 'core'
WHERE h.metric IS NOT NULL AND h.target_at IS NOT NULL
ORDER BY h.target_at, h.subject_id, h.metric LIMIT %(questions)s

-- due_of_questions --
-- Every due row of the given questions. Begins with the questions (OFFSET 0 keeps the planner from another order): right after a load the
-- statistics say that hardly anything is due, and a plan that begins with all that is due takes a second for every thousand questions.
SELECT d.id, d.kind, d.key, d.position, d.created_at, q.subject_id, q.metric, q.target_at
FROM unnest(%(subjects)s::text[], %(metrics)s::text[], %(targets)s::timestamptz[]) AS q (subject_id, metric, target_at)
CROSS JOIN LATERAL (
    SELECT r.kind, r.key FROM record_head AS r
    WHERE r.subject_id = q.subject_id AND r.metric = q.metric AND r.target_at = q.target_at AND r.grp = 'core' OFFSET 0
) AS h
CROSS JOIN LATERAL (
    SELECT n.* FROM due_row AS n WHERE n.queue = 'credibility' AND n.kind = h.kind AND n.key = h.key OFFSET 0
) AS d

-- due_orphans --
-- Due rows without a question: they cannot be settled and would never be deleted.
SELECT d.id, d.kind, d.key, d.position, d.created_at
FROM (
    SELECT * FROM due_row WHERE queue = 'credibility' AND kind IN ('Outcome', 'Finding') AND set_aside IS NULL
    ORDER BY later, created_at, id LIMIT %(rows)s
) AS d
WHERE NOT EXISTS (
    SELECT 1 FROM record_head AS h
    WHERE h.kind = d.kind AND h.key = d.key AND h.grp = 'core' AND h.metric IS NOT NULL AND h.target_at IS NOT NULL)

-- question_facts --
-- Every statement of the outcomes and findings of the given questions that have an outcome, but for what was recorded before target_at
-- and committed later. n: which question, from 1.
SELECT q.n, h.kind, h.key, y.grp = 'correction' AS corrects, y.order_key, y.known_at, y.recorded_at,
    y.imported OR e.actor_role = 'human_admin' AS settles, c.agent, c.domain, c.probability, c.direction, c.value,
    c.actual, c.vintage, c.period_start, c.unit, c.withdrawn
FROM unnest(%(subjects)s::text[], %(metrics)s::text[], %(targets)s::timestamptz[])
    WITH ORDINALITY AS q (subject_id, metric, target_at, n)
JOIN record_head AS h ON h.subject_id = q.subject_id AND h.metric = q.metric AND h.target_at = q.target_at
    AND h.grp = 'core' AND h.kind IN ('Outcome', 'Finding')
JOIN record_history AS y ON y.kind = h.kind AND y.key = h.key AND y.grp IN ('core', 'correction')
JOIN event AS e ON e.position = y.position
CROSS JOIN jsonb_to_record(e.payload -> 'core') AS c (
    agent text, domain text, probability float8, direction text, value float8, actual float8, vintage bigint,
    period_start timestamptz, unit text, withdrawn boolean)
-- The outcome of a decision's checkpoint settles no claim.
WHERE (h.kind = 'Finding' OR e.payload -> 'core' ->> 'checkpoint' IS NULL) AND EXISTS (
    SELECT 1 FROM record_head AS o
    WHERE o.kind = 'Outcome' AND o.grp = 'core' AND o.subject_id = q.subject_id AND o.metric = q.metric
      AND o.target_at = q.target_at)
  AND (h.kind = 'Outcome' OR y.imported OR e.actor_role = 'human_admin' OR NOT EXISTS (
    SELECT FROM open_writer AS w
    WHERE w.writer = hashtext(e.actor)::bigint & 4294967295 AND w.at >= greatest(q.target_at, e.recorded_at)
      AND w.seq < e.agent_seq AND (w.actor = e.actor OR w.actor IS NULL)))

-- subject_facts --
-- Every statement that counts of what the given subjects are. Only statements with the import right or by a person count.
SELECT q.subject_id, y.grp <> 'core' AS replaces, y.order_key, y.known_at, y.recorded_at,
    coalesce(e.payload #>> '{groups,profile,sector}', e.payload #>> '{core,sector}') AS sector,
    e.payload #>> '{groups,profile,size_class}' AS company_size,
    e.payload #>> '{groups,profile,growth_stage}' AS growth_stage
FROM unnest(%(subjects)s::text[]) AS q (subject_id)
JOIN record_history AS y ON y.key = substr(q.subject_id, strpos(q.subject_id, ':') + 1)
    AND (q.subject_id LIKE 'company:%%' AND y.kind = 'Company' AND y.grp = 'profile'
         OR q.subject_id LIKE 'market:%%' AND y.kind = 'Market' AND y.grp IN ('core', 'correction'))
JOIN event AS e ON e.position = y.position
WHERE y.imported OR e.actor_role = 'human_admin'

-- regime_facts --
-- Every statement known by the last of the given moments of the readings that can be in force at one of them, as of anything from
-- recorded_from on: those from the last one that was known and recorded by then and never corrected.
WITH readings AS (
    SELECT DISTINCT e.record_key AS key FROM event AS e
    WHERE e.kind IN ('record.RegimeReading', 'correct.RegimeReading')
      AND (e.payload -> 'core' ->> 'observed_at') COLLATE "C" <= %(last)s::text
      AND (e.payload -> 'core' ->> 'observed_at') COLLATE "C" >= coalesce((
        SELECT r.payload -> 'core' ->> 'observed_at' FROM event AS r
        WHERE r.kind = 'record.RegimeReading' AND (r.payload -> 'core' ->> 'observed_at') COLLATE "C" <= %(first)s::text
          AND r.payload -> 'core' ->> 'market' = %(market)s
          AND r.known_at <= %(first_at)s AND r.recorded_at <= %(recorded_from)s
          AND NOT EXISTS (
            SELECT FROM record_history AS c WHERE c.kind = 'RegimeReading' AND c.key = r.record_key AND c.grp = 'correction')
        ORDER BY (r.payload -> 'core' ->> 'observed_at') COLLATE "C" DESC LIMIT 1), '')
)
SELECT y.key, y.grp = 'correction' AS replaces, y.order_key, y.known_at, y.recorded_at, c.observed_at,
    CASE WHEN c.market = %(market)s AND c.withdrawn IS NOT TRUE THEN c.regime END AS regime
FROM readings AS d
JOIN record_history AS y ON y.kind = 'RegimeReading' AND y.key = d.key AND y.grp IN ('core', 'correction')
JOIN event AS e ON e.position = y.position
CROSS JOIN jsonb_to_record(e.payload -> 'core') AS c (market text, observed_at timestamptz, regime text, withdrawn boolean)
WHERE y.known_at <= %(last_at)s

-- baseline_profiles --
-- Every statement that counts of the profiles of those of the given agents that ever were a baseline. Only statements with the
-- import right or by a person count.
SELECT y.key AS agent, y.known_at, y.recorded_at, y.order_key,
    coalesce(e.payload -> 'groups' -> 'profile' ->> 'kind' = 'baseline', false) AS baseline
FROM unnest(%(agents)s::text[]) AS a (name)
JOIN record_history AS y ON y.kind = 'Agent' AND y.key = a.name AND y.grp = 'profile'
JOIN event AS e ON e.position = y.position
WHERE (y.imported OR e.actor_role = 'human_admin') AND EXISTS (
    SELECT 1 FROM record_history AS b JOIN event AS f ON f.position = b.position
    WHERE b.kind = 'Agent' AND b.key = a.name AND b.grp = 'profile' AND (b.imported OR f.actor_role = 'human_admin')
      AND f.payload -> 'groups' -> 'profile' ->> 'kind' = 'baseline')

-- governed_kind --
-- The kind of an agent by the newest statement with the import right or by a person; NULL if there is none.
SELECT imem_governed_kind_v1(%(agent)s) AS kind

-- scores_of_findings --
-- Every score of the given findings that was ever valid, as stored.
SELECT finding_id, vintage, revision, outcome_id, agent, domain, subject_id, metric, target_at, predicted_at, stated,
    actual, happened, y, abstained, brier, log_score, reference, error, peer_loss, sector, metric_type, time_horizon, company_size,
    growth_stage, regime, first_known_at, known_at, superseded_known_at, recorded_at, superseded_recorded_at
FROM agent_outcome WHERE finding_id = ANY (%(findings)s::text[])
ORDER BY finding_id, vintage, revision

-- scores_of_questions --
-- Every score of the given questions that was ever valid, as stored.
SELECT o.finding_id, o.vintage, o.revision, o.outcome_id, o.agent, o.domain, o.subject_id, o.metric, o.target_at,
    o.predicted_at, o.stated, o.actual, o.happened, o.y, o.abstained, o.brier, o.log_score, o.reference, o.error, o.peer_loss, o.sector,
    o.metric_type, o.time_horizon, o.company_size, o.growth_stage, o.regime, o.first_known_at, o.known_at, o.superseded_known_at, o.recorded_at, o.superseded_recorded_at
FROM unnest(%(subjects)s::text[], %(metrics)s::text[], %(targets)s::timestamptz[]) AS q (subject_id, metric, target_at)
JOIN agent_outcome AS o ON o.subject_id = q.subject_id AND o.metric = q.metric AND o.target_at = q.target_at

-- write_scores --
-- Writes scores, new and changed ones. rows: JSON list of objects, since arrays of text cost more to make than to store.
INSERT INTO agent_outcome AS o (
    finding_id, vintage, revision, outcome_id, agent, domain, subject_id, metric, target_at, predicted_at, stated,
    actual, happened, y, abstained, brier, log_score, reference, error, peer_loss, sector, metric_type, time_horizon, company_size,
    growth_stage, regime, first_known_at, known_at, superseded_known_at, recorded_at, superseded_recorded_at)
SELECT r.* FROM json_to_recordset(%(rows)s::json) AS r (
    finding_id text, vintage bigint, revision integer, outcome_id text, agent text, domain text, subject_id text,
    metric text, target_at timestamptz, predicted_at timestamptz, stated float8, actual float8, happened smallint,
    y smallint, abstained boolean, brier float8, log_score float8, reference float8, error float8, peer_loss float8,
    sector text, metric_type text,
    time_horizon text, company_size text, growth_stage text, regime text, first_known_at timestamptz,
    known_at timestamptz, superseded_known_at timestamptz, recorded_at timestamptz, superseded_recorded_at timestamptz)
ON CONFLICT (finding_id, vintage, revision) DO UPDATE SET
    outcome_id = excluded.outcome_id, agent = excluded.agent, domain = excluded.domain,
    subject_id = excluded.subject_id, metric = excluded.metric, target_at = excluded.target_at,
    predicted_at = excluded.predicted_at, stated = excluded.stated, actual = excluded.actual,
    happened = excluded.happened, y = excluded.y, abstained = excluded.abstained, brier = excluded.brier,
    log_score = excluded.log_score, reference = excluded.reference, error = excluded.error,
    peer_loss = excluded.peer_loss, sector = excluded.sector,
    metric_type = excluded.metric_type, time_horizon = excluded.time_horizon, company_size = excluded.company_size,
    growth_stage = excluded.growth_stage, regime = excluded.regime, first_known_at = excluded.first_known_at,
    known_at = excluded.known_at, superseded_known_at = excluded.superseded_known_at,
    recorded_at = excluded.recorded_at, superseded_recorded_at = excluded.superseded_recorded_at, scored_at = imem_now()

-- delete_scores --
-- Removes scores that a recomputation no longer finds.
DELETE FROM agent_outcome AS o
USING unnest(%(finding_id)s::text[], %(vintage)s::bigint[], %(revision)s::integer[]) AS g (finding_id, vintage, revision)
WHERE o.finding_id = g.finding_id AND o.vintage = g.vintage AND o.revision = g.revision

-- due_citing --
-- Makes the decisions due that cite one of these findings, and the successes of those whose forecasts have met an outcome.
INSERT INTO due_row (queue, kind, key)
SELECT DISTINCT q.queue, 'Decision', e.payload ->> 'from_key'
FROM unnest(%(findings)s::text[]) AS f (key)
JOIN event AS e ON e.kind = 'link.CITES' AND e.payload ->> 'to_key' = f.key
CROSS JOIN (VALUES ('credibility'), ('successes')) AS q (queue)
WHERE e.payload ->> 'from_label' = 'Decision' AND e.payload ->> 'to_label' = 'Finding' AND (q.queue = 'credibility' OR EXISTS (
    SELECT FROM lifecycle AS l WHERE l.kind = 'forecast' AND l.about = e.payload ->> 'from_key' AND l.state = 'measured'))

-- due_tracks --
-- Makes the track records due that these changes touch, since the given moment; with the first moments at which they changed.
INSERT INTO track_due AS t (agent, domain, since, known_from, recorded_from)
SELECT p.agent, p.domain, %(since)s::timestamptz, min(p.known_from), min(p.recorded_from)
FROM unnest(%(agents)s::text[], %(domains)s::text[], %(known_from)s::timestamptz[], %(recorded_from)s::timestamptz[])
    AS p (agent, domain, known_from, recorded_from)
GROUP BY 1, 2 ORDER BY 1, 2
ON CONFLICT (agent, domain) DO UPDATE SET version = DEFAULT, since = least(t.since, excluded.since),
    known_from = least(t.known_from, excluded.known_from), recorded_from = least(t.recorded_from, excluded.recorded_from)

-- due_questions_of_agents --
-- Makes the scored claims due whose question one of these agents answered too.
INSERT INTO due_row (queue, kind, key, created_at)
SELECT DISTINCT 'credibility', 'Finding', o.finding_id, %(since)s::timestamptz
FROM (
    SELECT DISTINCT a.subject_id, a.metric, a.target_at FROM agent_outcome AS a WHERE a.agent = ANY (%(agents)s::text[])
) AS q
JOIN agent_outcome AS o ON o.subject_id = q.subject_id AND o.metric = q.metric AND o.target_at = q.target_at

-- due_claims_on_subjects --
-- Makes the scored claims due on these subjects that were made since what was stated of them could be known.
INSERT INTO due_row (queue, kind, key, created_at)
SELECT DISTINCT 'credibility', 'Finding', o.finding_id, %(since)s::timestamptz
FROM (
    SELECT lower(d.kind) || ':' || d.key AS subject_id, min(y.known_at) AS known_at
    FROM unnest(%(kinds)s::text[], %(keys)s::text[], %(positions)s::bigint[]) AS d (kind, key, position)
    JOIN record_history AS y ON y.kind = d.kind AND y.key = d.key AND y.position >= d.position
    GROUP BY 1
) AS s
JOIN agent_outcome AS o ON o.subject_id = s.subject_id AND o.predicted_at >= s.known_at

-- due_claims_in_regimes --
-- Makes the scored claims due for which one of these readings can be or have been in force: those made since it could be known, and
-- before one that speaks of a later moment could, and was never corrected.
INSERT INTO due_row (queue, kind, key, created_at)
SELECT DISTINCT 'credibility', 'Finding', o.finding_id, %(since)s::timestamptz
FROM (
    SELECT d.key, min(y.known_at) FILTER (WHERE y.position >= d.position) AS known_at,
        max((e.payload -> 'core' ->> 'observed_at') COLLATE "C") AS observed_at
    FROM unnest(%(keys)s::text[], %(positions)s::bigint[]) AS d (key, position)
    JOIN record_history AS y ON y.kind = 'RegimeReading' AND y.key = d.key
    JOIN event AS e ON e.position = y.position
    GROUP BY d.key
) AS r
LEFT JOIN LATERAL (
    SELECT n.known_at FROM event AS n
    WHERE n.kind = 'record.RegimeReading' AND (n.payload -> 'core' ->> 'observed_at') COLLATE "C" > r.observed_at
      AND n.payload -> 'core' ->> 'market' = %(market)s
      AND NOT EXISTS (
        SELECT FROM record_history AS c WHERE c.kind = 'RegimeReading' AND c.key = n.record_key AND c.grp = 'correction')
    ORDER BY (n.payload -> 'core' ->> 'observed_at') COLLATE "C" LIMIT 1
) AS later ON true
JOIN agent_outcome AS o ON o.predicted_at >= r.known_at AND (later.known_at IS NULL OR o.predicted_at < later.known_at)

-- claim_tracks --
-- The track records that are due, oldest first.
SELECT agent, domain, version, known_from, recorded_from FROM track_due ORDER BY since, agent, domain LIMIT %(limit)s

-- due_among_tracks --
-- Those of the given track records that are due.
SELECT d.agent, d.domain FROM unnest(%(agents)s::text[], %(domains)s::text[]) AS p (agent, domain)
JOIN track_due AS d ON d.agent = p.agent AND d.domain = p.domain

-- delete_track_due --
-- Deletes the due rows of recomputed track records, if their version is unchanged.
DELETE FROM track_due AS d
USING unnest(%(agents)s::text[], %(domains)s::text[], %(versions)s::bigint[]) AS done (agent, domain, version)
WHERE d.agent = done.agent AND d.domain = done.domain AND d.version = done.version

-- scores_of_track --
-- Every score of one agent in one domain that was ever valid.
SELECT finding_id, target_at, predicted_at, first_known_at, stated, happened, y, brier, log_score, reference,
    error, peer_loss, subject_id, metric, sector, metric_type, time_horizon, company_size, growth_stage, regime,
    known_at, superseded_known_at, recorded_at, superseded_recorded_at
FROM agent_outcome WHERE agent = %(agent)s AND domain = %(domain)s

-- halflife_of --
-- The half-life in the agent's credibility record for the domain, in years, as of the given moments.
SELECT (e.payload -> 'groups' -> 'score' ->> 'decay_halflife_years')::float8 AS halflife_years
FROM record_history AS y JOIN event AS e ON e.position = y.position
WHERE y.kind = 'AgentCredibility' AND y.key = %(agent)s::text || '/' || %(domain)s::text AND y.grp = 'score'
  -- A published score says which half-life was used, and sets none.
  AND y.actor <> 'credibility-scores'
ORDER BY y.order_key DESC LIMIT 1

-- scores_since --
-- Scores of one agent in one domain that begin or end at a moment or later on one clock.
SELECT finding_id, target_at, predicted_at, first_known_at, stated, happened, y, brier, log_score, reference,
    error, peer_loss, subject_id, metric, sector, metric_type, time_horizon, company_size, growth_stage, regime,
    known_at, superseded_known_at, recorded_at, superseded_recorded_at
FROM (
    SELECT * FROM agent_outcome
    WHERE agent = %(agent)s AND domain = %(domain)s AND %(clock)s = 'known' AND known_at >= %(since)s
    UNION
    SELECT * FROM agent_outcome
    WHERE agent = %(agent)s AND domain = %(domain)s AND %(clock)s = 'known' AND superseded_known_at >= %(since)s
    UNION
    SELECT * FROM agent_outcome
    WHERE agent = %(agent)s AND domain = %(domain)s AND %(clock)s = 'recorded' AND recorded_at >= %(since)s
    UNION
    SELECT * FROM agent_outcome
    WHERE agent = %(agent)s AND domain = %(domain)s AND %(clock)s = 'recorded' AND superseded_recorded_at >= %(since)s
) AS o LIMIT %(limit)s

-- step_before --
-- The last stored step of one agent in one domain on one clock before a moment.
SELECT * FROM track_step WHERE agent = %(agent)s AND domain = %(domain)s AND clock = %(clock)s AND at < %(since)s
ORDER BY at DESC LIMIT 1

-- observations_before --
-- Claims with the given target_at whose score was valid right before another moment on one clock; early: one was scored before
-- its target_at.
SELECT o.target_at, o.finding_id, o.predicted_at, o.y, o.happened, o.brier, o.reference,
    o.error, o.peer_loss, o.subject_id, o.metric, o.sector, o.metric_type, o.time_horizon, o.company_size, o.growth_stage, o.regime,
    CASE WHEN %(clock)s = 'known' THEN o.known_at ELSE o.recorded_at END < o.target_at AS early
FROM agent_outcome AS o
WHERE o.agent = %(agent)s AND o.domain = %(domain)s AND o.target_at = ANY (%(targets)s::timestamptz[]) AND o.y IS NOT NULL
  AND CASE WHEN %(clock)s = 'known'
      THEN o.known_at < %(since)s AND (o.superseded_known_at IS NULL OR o.superseded_known_at >= %(since)s)
      ELSE o.recorded_at < %(since)s AND (o.superseded_recorded_at IS NULL OR o.superseded_recorded_at >= %(since)s) END

-- base_rates_of --
-- How often it had happened, (0.5 + times) / (1 + answers), over the answers that were known before each of the given claims was
-- made, as they stood on one clock when the claim was first scored: those of the last stored step before either and before
-- since, with what changed from there on. Counted once for all claims made and scored at the same moments.
WITH first AS (
    SELECT DISTINCT ON (o.finding_id) o.finding_id, o.predicted_at,
        CASE WHEN %(clock)s = 'known' THEN o.known_at ELSE o.recorded_at END AS at
    FROM agent_outcome AS o
    WHERE o.finding_id = ANY (%(findings)s::text[]) AND o.agent = %(agent)s AND o.domain = %(domain)s
      AND o.y IS NOT NULL AND o.brier IS NOT NULL AND o.log_score IS NOT NULL AND o.happened IS NOT NULL
      AND CASE WHEN %(clock)s = 'known' THEN o.known_at ELSE o.recorded_at END IS NOT NULL
    ORDER BY o.finding_id, 3, o.vintage, o.revision
), counted AS (
    SELECT f.predicted_at, f.at,
        (0.5::float8 + coalesce(s.happened, 0)::float8 + coalesce(c.happened, 0)::float8)
            / (1.0::float8 + coalesce(s.answers, 0)::float8 + coalesce(c.answers, 0)::float8) AS rate
    FROM (SELECT DISTINCT predicted_at, at, least(predicted_at, at, %(since)s::timestamptz) AS start FROM first) AS f
    LEFT JOIN LATERAL (
        SELECT t.answers, t.happened FROM track_step AS t
        WHERE t.agent = %(agent)s AND t.domain = %(domain)s AND t.clock = %(clock)s AND t.at < f.start
        ORDER BY t.at DESC LIMIT 1
    ) AS s ON true
    CROSS JOIN LATERAL (
        SELECT sum(a.sign) AS answers, sum(a.sign * a.happened) AS happened FROM (
            SELECT 1 AS sign, o.happened, o.first_known_at FROM agent_outcome AS o
            WHERE o.agent = %(agent)s AND o.domain = %(domain)s AND %(clock)s = 'known'
              AND o.known_at BETWEEN f.start AND f.at
            UNION ALL
            SELECT -1, o.happened, o.first_known_at FROM agent_outcome AS o
            WHERE o.agent = %(agent)s AND o.domain = %(domain)s AND %(clock)s = 'known'
              AND o.superseded_known_at BETWEEN f.start AND f.at
            UNION ALL
            SELECT 1, o.happened, o.first_known_at FROM agent_outcome AS o
            WHERE o.agent = %(agent)s AND o.domain = %(domain)s AND %(clock)s = 'recorded'
              AND o.recorded_at BETWEEN f.start AND f.at
            UNION ALL
            SELECT -1, o.happened, o.first_known_at FROM agent_outcome AS o
            WHERE o.agent = %(agent)s AND o.domain = %(domain)s AND %(clock)s = 'recorded'
              AND o.superseded_recorded_at BETWEEN f.start AND f.at
        ) AS a WHERE a.happened IS NOT NULL AND a.first_known_at < f.predicted_at
    ) AS c
)
SELECT first.finding_id, counted.rate FROM first JOIN counted USING (predicted_at, at)

-- steps_of_track --
-- The stored steps of one agent in one domain on one clock; from a moment on, or all.
SELECT * FROM track_step
WHERE agent = %(agent)s AND domain = %(domain)s AND clock = %(clock)s
  AND at >= coalesce(%(since)s::timestamptz, '-infinity'::timestamptz)
ORDER BY at

-- delete_steps --
-- Removes steps at and after a moment.
DELETE FROM track_step WHERE agent = %(agent)s AND domain = %(domain)s AND clock = %(clock)s AND at >= %(since)s

-- write_steps --
-- Writes steps. steps: JSON list of objects, whose names are those of the columns.
INSERT INTO track_step SELECT * FROM json_populate_recordset(NULL::track_step, %(steps)s::json)

-- track_records --
-- The newest step at or before a moment for each agent, domain and moment, with the agent's kind then. n: which of them.
SELECT s.*, w.n, w.agent, w.domain, p.kind, h.halflife_years AS wanted_halflife_years
FROM unnest(%(agents)s::text[], %(domains)s::text[], %(known_until)s::timestamptz[], %(recorded_until)s::timestamptz[])
    WITH ORDINALITY AS w (agent, domain, known_until, recorded_until, n)
LEFT JOIN LATERAL (
    SELECT t.* FROM track_step AS t
    WHERE t.agent = w.agent AND t.domain = w.domain AND t.clock = %(clock)s
      AND t.at <= least(w.known_until, w.recorded_until)
    ORDER BY t.at DESC LIMIT 1
) AS s ON true
LEFT JOIN LATERAL (
    SELECT e.payload -> 'groups' -> 'profile' ->> 'kind' AS kind
    FROM record_history AS y JOIN event AS e ON e.position = y.position
    WHERE y.kind = 'Agent' AND y.key = w.agent AND y.grp = 'profile'
      AND y.known_at <= w.known_until AND y.recorded_at <= w.recorded_until
      -- By its own word an agent is a model, and nothing else.
      AND (y.imported OR e.actor_role = 'human_admin' OR e.payload -> 'groups' -> 'profile' ->> 'kind' = 'model')
    ORDER BY y.imported OR e.actor_role = 'human_admin' DESC, y.order_key DESC LIMIT 1
) AS p ON true
LEFT JOIN LATERAL (
    SELECT (e.payload -> 'groups' -> 'score' ->> 'decay_halflife_years')::float8 AS halflife_years
    FROM record_history AS y JOIN event AS e ON e.position = y.position
    WHERE y.kind = 'AgentCredibility' AND y.key = w.agent || '/' || w.domain AND y.grp = 'score'
      AND y.actor <> 'credibility-scores'
      AND y.known_at <= w.known_until AND y.recorded_at <= w.recorded_until
    ORDER BY y.order_key DESC LIMIT 1
) AS h ON true
ORDER BY w.n

-- track_pairs --
-- The domains in which the given agents have a score; NULL for all agents.
SELECT DISTINCT t.agent, t.domain FROM track_step AS t
WHERE %(agents)s::text[] IS NULL OR t.agent = ANY (%(agents)s::text[])
ORDER BY t.agent, t.domain

-- dated_pairs --
-- Which agents had a score in which domain as of each moment, by agent and domain; agents, domains: NULL for all. n: which
-- moment, from 1.
SELECT w.n, f.agent, f.domain
FROM (
    SELECT t.agent, t.domain, min(t.at) AS at FROM track_step AS t
    WHERE t.clock = %(clock)s
      AND (%(agents)s::text[] IS NULL OR t.agent = ANY (%(agents)s::text[]))
      AND (%(domains)s::text[] IS NULL OR t.domain = ANY (%(domains)s::text[]))
    GROUP BY t.agent, t.domain
) AS f
JOIN unnest(%(known_until)s::timestamptz[], %(recorded_until)s::timestamptz[])
    WITH ORDINALITY AS w (known_until, recorded_until, n) ON f.at <= least(w.known_until, w.recorded_until)
ORDER BY w.n, f.agent, f.domain

-- claimed_pairs --
-- Which agents had made a claim in which domain as of each moment, scored or not; parameters and columns as dated_pairs.
SELECT w.n, f.agent, f.domain
FROM unnest(%(known_until)s::timestamptz[], %(recorded_until)s::timestamptz[])
    WITH ORDINALITY AS w (known_until, recorded_until, n)
CROSS JOIN LATERAL (
    SELECT DISTINCT c.agent, c.domain
    FROM record_history AS y
    JOIN event AS e ON e.position = y.position
    CROSS JOIN LATERAL (SELECT e.payload -> 'core' ->> 'agent', e.payload -> 'core' ->> 'domain') AS c (agent, domain)
    WHERE y.kind = 'Finding' AND y.grp = 'core' AND y.known_at <= w.known_until AND y.recorded_at <= w.recorded_until
      AND e.payload -> 'core' ->> 'metric' IS NOT NULL
      AND (%(agents)s::text[] IS NULL OR c.agent = ANY (%(agents)s::text[]))
      AND (%(domains)s::text[] IS NULL OR c.domain = ANY (%(domains)s::text[]))
) AS f
ORDER BY w.n, f.agent, f.domain

-- scores_as_of --
-- The scores of findings that are valid at a moment on a clock.
SELECT finding_id, vintage, outcome_id, stated, actual, y, abstained, brier, log_score, reference, known_at, recorded_at
FROM agent_outcome
WHERE finding_id = ANY (%(findings)s::text[])
  AND CASE WHEN %(clock)s = 'known'
      THEN known_at <= %(until)s AND (superseded_known_at IS NULL OR superseded_known_at > %(until)s)
      ELSE recorded_at <= %(until)s AND (superseded_recorded_at IS NULL OR superseded_recorded_at > %(until)s) END
ORDER BY finding_id

-- settled_links --
-- Of each finding and each outcome that settled it, the last score: the properties of the link in the graph.
SELECT DISTINCT ON (finding_id, outcome_id) finding_id, outcome_id, y, brier, log_score,
    min(known_at) OVER pair AS known_at, min(recorded_at) OVER pair AS recorded_at
FROM agent_outcome WHERE finding_id = ANY (%(findings)s::text[])
WINDOW pair AS (PARTITION BY finding_id, outcome_id)
ORDER BY finding_id, outcome_id, agent_outcome.known_at DESC NULLS LAST, agent_outcome.recorded_at DESC NULLS LAST,
    vintage DESC, revision DESC

-- settled_horizon --
-- The last moment of which everything recorded is scored, and the oldest statement that waits for it.
SELECT imem_settled_horizon() AS horizon,
    least(imem_due_since('credibility', 'Decision'), (SELECT min(since) FROM track_due)) AS waiting_since

-- citations_of --
-- Every statement of the links by which the given decisions cite findings. What is cited identifies a link: under the key of an earlier
-- citation nothing else is cited as early. (OFFSET 0 has them looked up by decision: the planner would compare all links with each.)
SELECT d.key AS decision, c.payload ->> 'to_key' AS link, c.payload ->> 'to_key' AS finding_id,
    (c.payload -> 'props' ->> 'at')::timestamptz AS at, (c.payload -> 'props' ->> 'rank')::bigint AS rank,
    c.known_at, c.recorded_at, c.order_key
FROM unnest(%(decisions)s::text[]) AS d (key)
CROSS JOIN LATERAL (
    SELECT e.payload, e.known_at, e.recorded_at, e.order_key FROM event AS e
    WHERE e.kind = 'link.CITES' AND e.payload ->> 'from_key' = d.key
      AND e.payload ->> 'from_label' = 'Decision' AND e.payload ->> 'to_label' = 'Finding' OFFSET 0
) AS c

-- cited_claims --
-- The claims of the given findings that were made in time, settled or not: since when each is known, when it is due, its metric.
SELECT h.key AS finding_id, h.known_at, h.target_at, h.metric
FROM record_head AS h
WHERE h.kind = 'Finding' AND h.grp = 'core' AND h.key = ANY (%(findings)s::text[])
  AND h.metric IS NOT NULL AND h.known_at < h.target_at

-- unsettled_citations --
-- The citations of the given decisions as of a moment, as citations_of, each with the claim of its finding (NULL: none was made in
-- time) and whether that abstained from a settled question. Parameters: decisions, clock, until (of scores), known_until,
-- recorded_until.
SELECT d.key AS decision, c.payload ->> 'to_key' AS link, c.payload ->> 'to_key' AS finding_id,
    (c.payload -> 'props' ->> 'at')::timestamptz AS at, (c.payload -> 'props' ->> 'rank')::bigint AS rank,
    c.known_at, c.recorded_at, c.order_key, f.known_at AS claim_known_at, f.target_at, f.metric, coalesce(s.abstained, false) AS abstained
FROM unnest(%(decisions)s::text[]) AS d (key)
CROSS JOIN LATERAL (
    SELECT e.payload, e.known_at, e.recorded_at, e.order_key FROM event AS e
    WHERE e.kind = 'link.CITES' AND e.payload ->> 'from_key' = d.key
      AND e.payload ->> 'from_label' = 'Decision' AND e.payload ->> 'to_label' = 'Finding'
      AND e.known_at <= %(known_until)s AND e.recorded_at <= %(recorded_until)s OFFSET 0
) AS c
LEFT JOIN LATERAL (
    SELECT y.known_at, (e.payload -> 'core' ->> 'target_at')::timestamptz AS target_at, e.payload -> 'core' ->> 'metric' AS metric
    FROM record_history AS y JOIN event AS e ON e.position = y.position
    WHERE y.kind = 'Finding' AND y.grp = 'core' AND y.key = c.payload ->> 'to_key'
      AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
    ORDER BY y.order_key LIMIT 1
) AS f ON f.metric IS NOT NULL AND f.known_at < f.target_at
LEFT JOIN LATERAL (
    SELECT o.abstained FROM agent_outcome AS o
    WHERE o.finding_id = c.payload ->> 'to_key'
      AND CASE WHEN %(clock)s = 'known'
          THEN o.known_at <= %(until)s AND (o.superseded_known_at IS NULL OR o.superseded_known_at > %(until)s)
          ELSE o.recorded_at <= %(until)s AND (o.superseded_recorded_at IS NULL OR o.superseded_recorded_at > %(until)s) END
    LIMIT 1
) AS s ON true

-- stances_of --
-- Every statement of the stance of the given decisions.
SELECT y.key AS decision, y.grp = 'correction' AS corrects, y.known_at, y.recorded_at, y.order_key,
    e.payload -> 'core' ->> 'stance' AS stance
FROM unnest(%(decisions)s::text[]) AS d (key)
JOIN record_history AS y ON y.kind = 'Decision' AND y.key = d.key AND y.grp IN ('core', 'correction')
JOIN event AS e ON e.position = y.position

-- stances_until --
-- The statements of the stance of the given decisions as of a moment, as stances_of. Parameters: decisions, known_until, recorded_until.
SELECT y.key AS decision, y.grp = 'correction' AS corrects, y.known_at, y.recorded_at, y.order_key,
    e.payload -> 'core' ->> 'stance' AS stance
FROM unnest(%(decisions)s::text[]) AS d (key)
JOIN record_history AS y ON y.kind = 'Decision' AND y.key = d.key AND y.grp IN ('core', 'correction')
    AND y.known_at <= %(known_until)s AND y.recorded_at <= %(recorded_until)s
JOIN event AS e ON e.position = y.position

-- verdicts_of --
-- Every statement of the outcome of the given decisions.
SELECT y.key AS decision, y.known_at, y.recorded_at, y.order_key, e.payload -> 'groups' -> 'outcome' ->> 'outcome' AS outcome
FROM unnest(%(decisions)s::text[]) AS d (key)
JOIN record_history AS y ON y.kind = 'Decision' AND y.key = d.key AND y.grp = 'outcome'
JOIN event AS e ON e.position = y.position

-- questions_after --
-- Questions with an outcome or a score, a page after the given one, for the full recomputation.
SELECT q.subject_id, q.metric, q.target_at FROM (
    (SELECT DISTINCT subject_id, metric, target_at FROM record_head
     WHERE metric IS NOT NULL AND target_at IS NOT NULL AND subject_id IS NOT NULL AND kind = 'Outcome'
       AND (subject_id, metric, target_at) > (%(subject_id)s::text, %(metric)s::text, %(target_at)s::timestamptz)
     ORDER BY subject_id, metric, target_at LIMIT %(limit)s)
    UNION
    (SELECT DISTINCT subject_id, metric, target_at FROM agent_outcome
     WHERE (subject_id, metric, target_at) > (%(subject_id)s::text, %(metric)s::text, %(target_at)s::timestamptz)
     ORDER BY subject_id, metric, target_at LIMIT %(limit)s)
) AS q ORDER BY q.subject_id, q.metric, q.target_at LIMIT %(limit)s

-- tracks_after --
-- Track records by agent and domain, a page after the given one, from scores and from steps.
SELECT t.agent, t.domain FROM (
    SELECT agent, domain FROM agent_outcome UNION SELECT agent, domain FROM track_step
) AS t WHERE (t.agent, t.domain) > (%(agent)s::text, %(domain)s::text) ORDER BY t.agent, t.domain LIMIT %(limit)s

-- citing_decisions_after --
-- Decisions that cite a finding or have a verdict, a page after the given one.
SELECT d.key FROM (
    SELECT payload ->> 'from_key' AS key FROM event
    WHERE kind = 'link.CITES' AND payload ->> 'from_label' = 'Decision' AND payload ->> 'to_label' = 'Finding'
    UNION
    SELECT key FROM record_head WHERE kind = 'Decision' AND grp = 'outcome'
) AS d WHERE d.key > %(key)s ORDER BY d.key LIMIT %(limit)s

-- add_report --
-- Writes the report of a reconciliation.
INSERT INTO reconciliation_report (started_at, questions, scores, track_records, decisions, differing, details)
VALUES (%(started_at)s, %(questions)s, %(scores)s, %(track_records)s, %(decisions)s, %(differing)s, %(details)s::jsonb)
RETURNING id

-- reports --
-- The newest reconciliation reports.
SELECT id, started_at, finished_at, questions, scores, track_records, decisions, differing, details
FROM reconciliation_report ORDER BY id DESC LIMIT %(limit)s

-- database_now --
-- The database's time.
SELECT imem_now() AS now

-- rederive_settled --
-- Makes the links from every scored claim to its outcomes due, for a graph that was rebuilt.
INSERT INTO due_row (queue, kind, key, later)
SELECT DISTINCT 'graph', 'settled_by', o.finding_id, true FROM agent_outcome AS o

-- settled_lag --
-- For how many seconds the oldest statement that is not scored has waited.
SELECT greatest(extract(epoch FROM imem_now() - imem_settled_horizon()), 0)::float8 AS lag_s
