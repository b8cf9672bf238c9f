-- copy_events --
-- The events of one copy. Parameters of all: copy (its number, from 1), most (the last position of what is copied).
INSERT INTO event (
    position, event_id, version, actor, actor_role, imported, agent_seq, kind, record_key, analysis_id, payload, body,
    payload_hash, importance, occurred_at, known_at, recorded_at, order_key)
OVERRIDING SYSTEM VALUE
SELECT e.position + %(copy)s * %(most)s::bigint, overlay(e.event_id::text PLACING lpad(to_hex(1 + %(copy)s), 2, '0') FROM 1 FOR 2)::uuid,
    e.version, e.actor, e.actor_role, e.imported, e.agent_seq + %(copy)s * %(most)s::bigint, e.kind,
    replace(e.record_key, 'analysis-', 'analysis-' || %(copy)s), replace(e.analysis_id, 'analysis-', 'analysis-' || %(copy)s),
    replace(e.payload::text, 'analysis-', 'analysis-' || %(copy)s)::jsonb, e.body, e.payload_hash, e.importance, e.occurred_at,
    e.known_at, e.recorded_at, e.order_key
FROM event AS e WHERE e.position <= %(most)s AND strpos(e.record_key, 'analysis-') > 0

-- copy_deliveries --
-- That the graph holds them.
INSERT INTO delivery (position, actor, tier, state, applied_at)
SELECT d.position + %(copy)s * %(most)s::bigint, d.actor, d.tier, 'applied', imem_now()
FROM delivery AS d JOIN event AS e ON e.position = d.position
WHERE d.position <= %(most)s AND strpos(e.record_key, 'analysis-') > 0

-- copy_histories --
-- What they said.
INSERT INTO record_history (kind, key, grp, order_key, hash, position, known_at, recorded_at, actor, imported)
SELECT kind, replace(key, 'analysis-', 'analysis-' || %(copy)s), grp, order_key, hash, position + %(copy)s * %(most)s::bigint, known_at,
    recorded_at, actor, imported
FROM record_history WHERE position <= %(most)s AND strpos(key, 'analysis-') > 0

-- copy_heads --
-- What of it stands.
INSERT INTO record_head (kind, key, grp, hash, position, order_key, known_at, occurred_at, ref_hash, subject_id, metric, target_at)
SELECT kind, replace(key, 'analysis-', 'analysis-' || %(copy)s), grp, hash, position + %(copy)s * %(most)s::bigint, order_key, known_at,
    occurred_at, ref_hash, subject_id, metric, target_at
FROM record_head WHERE position <= %(most)s AND strpos(key, 'analysis-') > 0

-- copy_turns --
-- What was said in debates.
INSERT INTO debate_turn (debate_id, position, number, stage, speaker, stance, text, cites)
SELECT replace(debate_id, 'analysis-', 'analysis-' || %(copy)s), position + %(copy)s * %(most)s::bigint, number, stage, speaker, stance,
    text, cites
FROM debate_turn WHERE position <= %(most)s

-- copy_scores --
-- How claims turned out; the first copies have six digits, the others more.
INSERT INTO agent_outcome (
    finding_id, vintage, revision, outcome_id, agent, domain, subject_id, metric, target_at, predicted_at, stated, actual, happened, y,
    abstained, brier, log_score, reference, first_known_at, known_at, superseded_known_at, recorded_at, superseded_recorded_at)
SELECT replace(finding_id, 'analysis-', 'analysis-' || %(copy)s), vintage, revision,
    replace(outcome_id, 'analysis-', 'analysis-' || %(copy)s), agent, domain, subject_id, metric, target_at, predicted_at, stated, actual,
    happened, y, abstained, brier, log_score, reference, first_known_at, known_at, superseded_known_at, recorded_at,
    superseded_recorded_at
FROM agent_outcome WHERE substr(finding_id, 16, 1) = '/'

-- copy_vectors --
-- Vectors of their own: a copy lies half-way from its original to another analysis.
WITH numbered AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY key) AS n, count(*) OVER () AS total, key, vector FROM embedding WHERE length(key) = 15
)
INSERT INTO embedding (
    model, kind, key, position, corrects, order_key, known_at, recorded_at, subject_id, content_hash, standing, sole, made_at, vector)
SELECT e.model, e.kind, replace(e.key, 'analysis-', 'analysis-' || %(copy)s), e.position + %(copy)s * %(most)s::bigint, e.corrects,
    e.order_key, e.known_at, e.recorded_at, e.subject_id, e.content_hash, e.standing, e.sole, e.made_at,
    l2_normalize(a.vector + b.vector)
FROM embedding AS e
JOIN numbered AS a ON a.key = e.key
JOIN numbered AS b ON b.n = 1 + (a.n * 31 + %(copy)s * 1237) %% a.total
WHERE length(e.key) = 15

-- copies_ended --
-- Everything goes on behind them.
SELECT setval(pg_get_serial_sequence('event', 'position'), (SELECT max(position) FROM event))
