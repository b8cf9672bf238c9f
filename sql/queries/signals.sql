-- signals --
-- The newest signals about a subject of each of some agents, newest first, and how many rows among them were skipped since they are no
-- signals; for an agent without any, one row without an id. Rows that others wrote have no kind of subject, which means a market, and no
-- exact numbers. waits: whether something about the subject may not be in the table yet. Parameters: kind, market, subject_id, agents,
-- retention, limit (of each agent).
WITH due AS MATERIALIZED (
    -- Those set aside, too: the journal has what they say. Of more than are looked at, some may be about the subject.
    SELECT d.key FROM due_row AS d WHERE d.queue = 'signals' LIMIT 100
), present AS MATERIALIZED (
    SELECT imem_journal_now() AS at, (SELECT count(*) FROM due) = 100 OR EXISTS (
        SELECT FROM due AS d
        -- By the analysis alone: right after a load, when statistics are old, the index of all claims looks smaller than it is.
        CROSS JOIN LATERAL (SELECT b.kind, b.record_key FROM event AS b WHERE b.analysis_id = d.key OFFSET 0) AS e
        JOIN record_head AS h ON h.kind = 'Finding' AND h.key = e.record_key AND h.grp = 'core'
        WHERE e.kind = 'record.Finding' AND h.subject_id = %(subject_id)s) AS waits
)
SELECT w.agent, p.at, p.waits, k.skipped, f.id, f.recommendation_id, f.agent_type, f.fair_probability, f.confidence, f.direction, f.key_drivers,
    f.metadata, f.created_at, f.analysis_id
FROM present AS p
CROSS JOIN unnest(%(agents)s::text[]) AS w (agent)
LEFT JOIN LATERAL (
    -- Of fewer than were asked for, every other row of the pair was looked at.
    SELECT n.*, CASE WHEN count(*) OVER () < %(limit)s THEN '-infinity' ELSE min(n.created_at) OVER () END AS since
    FROM (
        SELECT s.id, s.recommendation_id, s.agent_type, coalesce(s.exact_probability, s.fair_probability) AS fair_probability,
            coalesce(s.exact_confidence, s.confidence) AS confidence, s.direction, s.key_drivers, s.metadata, s.created_at, s.analysis_id
        FROM recall.agent_signals AS s
        WHERE s.market_id = %(market)s AND s.agent_name = w.agent AND coalesce(s.subject_kind, 'market') = %(kind)s
          AND s.created_at > p.at - %(retention)s::interval
          AND recall.is_signal_v1(
            %(kind)s, s.direction, coalesce(s.exact_probability, s.fair_probability), coalesce(s.exact_confidence, s.confidence))
        ORDER BY s.created_at DESC, s.id DESC LIMIT %(limit)s
    ) AS n
) AS f ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS skipped FROM recall.agent_signals AS s
    WHERE s.market_id = %(market)s AND s.agent_name = w.agent AND coalesce(s.subject_kind, 'market') = %(kind)s
      AND s.created_at > p.at - %(retention)s::interval AND s.created_at >= coalesce(f.since, '-infinity')
      AND NOT recall.is_signal_v1(
        %(kind)s, s.direction, coalesce(s.exact_probability, s.fair_probability), coalesce(s.exact_confidence, s.confidence))
) AS k
ORDER BY w.agent, f.created_at DESC, f.id DESC

-- signals_as_of --
-- The same as of a moment, from the journal, which keeps what the table no longer holds, and every value that a correction replaced; of
-- rows that others wrote, from the table. Parameters: kind, market, subject_id, agents, at, known_until, recorded_until, retention
-- (NULL: none), limit.
WITH said AS MATERIALIZED (
    SELECT s.id, NULL AS recommendation_id, s.agent_name, s.agent_type, s.fair_probability, s.confidence, s.direction, s.key_drivers,
        s.metadata, s.created_at, s.analysis_id
    FROM recall.signals_of_v1(
        ARRAY(
            -- Whose finding it is, no correction changes.
            SELECT h.key FROM record_head AS h JOIN event AS e ON e.position = h.position
            WHERE h.subject_id = %(subject_id)s AND h.kind = 'Finding' AND h.grp = 'core'
              AND e.payload -> 'core' ->> 'agent' = ANY (%(agents)s::text[])),
        %(known_until)s, %(recorded_until)s) AS s
    UNION ALL
    SELECT s.id, s.recommendation_id, s.agent_name, s.agent_type, coalesce(s.exact_probability, s.fair_probability),
        coalesce(s.exact_confidence, s.confidence), s.direction, s.key_drivers, s.metadata, s.created_at, s.analysis_id
    FROM recall.agent_signals AS s
    WHERE s.market_id = %(market)s AND s.agent_name = ANY (%(agents)s::text[]) AND coalesce(s.subject_kind, 'market') = %(kind)s
      AND s.finding_id IS NULL AND s.created_at <= least(%(known_until)s::timestamptz, %(recorded_until)s)
      AND recall.is_signal_v1(
        %(kind)s, s.direction, coalesce(s.exact_probability, s.fair_probability), coalesce(s.exact_confidence, s.confidence))
)
SELECT w.agent, %(at)s::timestamptz AS at, 0 AS skipped, f.id, f.recommendation_id, f.agent_type, f.fair_probability, f.confidence,
    f.direction, f.key_drivers, f.metadata, f.created_at, f.analysis_id
FROM unnest(%(agents)s::text[]) AS w (agent)
LEFT JOIN LATERAL (
    SELECT s.* FROM said AS s
    WHERE s.agent_name = w.agent AND (%(retention)s::interval IS NULL OR s.created_at > %(at)s::timestamptz - %(retention)s::interval)
    ORDER BY s.created_at DESC, s.id DESC LIMIT %(limit)s
) AS f ON true
ORDER BY w.agent, f.created_at DESC, f.id DESC

-- project_signals --
-- Brings the signals of some analyses to what the journal says; see recall.project_signals_v1. Parameters: analyses, retention.
SELECT recall.project_signals_v1(%(analyses)s::text[], %(retention)s::interval) AS changed

-- retain_signals --
-- Deletes signals older than the retention; see recall.retain_signals_v1. Parameters: retention, limit.
SELECT recall.retain_signals_v1(%(retention)s::interval, %(limit)s) AS deleted
