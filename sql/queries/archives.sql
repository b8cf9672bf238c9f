-- archives_lock --
-- Takes the lock under which archives are built, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('imem.archives')) IS NULL AS locked, imem_now() AS now

-- archive_patterns --
-- What the given patterns are: core, groups by name, and every status with when it became known, the oldest first.
SELECT h.key, e.payload -> 'core' AS core, (
        SELECT coalesce(jsonb_object_agg(g.grp, f.payload -> 'groups' -> g.grp), '{}')
        FROM record_head AS g JOIN event AS f ON f.position = g.position
        WHERE g.kind = 'Pattern' AND g.key = h.key AND g.grp NOT IN ('core', 'correction')) AS groups, (
        SELECT coalesce(jsonb_agg(jsonb_build_object('status', f.payload #>> '{groups,status,status}', 'known_at', y.known_at)
            ORDER BY y.order_key), '[]')
        FROM record_history AS y JOIN event AS f ON f.position = y.position
        WHERE y.kind = 'Pattern' AND y.key = h.key AND y.grp = 'status') AS statuses
FROM record_head AS h
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
WHERE h.kind = 'Pattern' AND h.key = ANY (%(patterns)s::text[]) AND h.grp = 'core'

-- archive_tests --
-- The tests of the given patterns and their repeated analyses, as they are recorded now.
SELECT DISTINCT h.kind, h.key, e.payload -> 'core' ->> 'pattern_id' AS pattern_id, e.payload -> 'core' AS core, h.known_at, (
        SELECT f.payload #> '{groups,outcome}' FROM record_head AS o JOIN event AS f ON f.position = o.position
        WHERE o.kind = h.kind AND o.key = h.key AND o.grp = 'outcome') AS outcome
FROM event AS t
JOIN record_head AS h ON h.kind = split_part(t.kind, '.', 2) AND h.key = t.record_key AND h.grp = 'core'
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
WHERE t.kind IN ('record.PatternValidation', 'correct.PatternValidation', 'record.ShadowAnalysis')
  AND t.payload -> 'core' ->> 'pattern_id' = ANY (%(patterns)s::text[])
ORDER BY h.known_at, h.kind, h.key

-- archive_decisions --
-- The decisions that cite the given patterns.
SELECT DISTINCT c.payload ->> 'to_key' AS pattern_id, h.key, e.payload -> 'core' AS core
FROM event AS c
JOIN record_head AS h ON h.kind = 'Decision' AND h.key = c.payload ->> 'from_key' AND h.grp = 'core'
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
WHERE c.kind = 'link.CITES' AND c.payload ->> 'to_label' = 'Pattern' AND c.payload ->> 'from_label' = 'Decision'
  AND c.payload ->> 'to_key' = ANY (%(patterns)s::text[])
ORDER BY 1, 2

-- archive_analyses --
-- The analyses that found the given patterns.
SELECT DISTINCT c.payload ->> 'to_key' AS pattern_id, h.key, e.payload -> 'core' AS core
FROM event AS c
JOIN record_head AS h ON h.kind = 'Analysis' AND h.key = c.payload ->> 'from_key' AND h.grp = 'core'
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS e ON e.position = coalesce(k.position, h.position)
WHERE c.kind = 'link.IDENTIFIED_PATTERN' AND c.payload ->> 'to_key' = ANY (%(patterns)s::text[])
ORDER BY 1, 2

-- archive_agent_work --
-- What agents recorded in the given analyses: findings, debates and how these ended, in the order of their recording.
SELECT e.analysis_id, split_part(e.kind, '.', 2) AS kind, e.record_key AS key, e.payload -> 'core' AS core, e.body
FROM event AS e
WHERE e.analysis_id = ANY (%(analyses)s::text[]) AND e.payload ? 'core'
  AND e.kind IN ('record.Finding', 'correct.Finding', 'record.Debate', 'record.DebateResolution')
ORDER BY e.position

-- archive_files --
-- The files that support the given patterns by a link, and whether each has a record.
SELECT r.pattern_id, r.file_id, m.file_id IS NOT NULL AS recorded, m.created_at, m.size_mb
FROM file_reference AS r LEFT JOIN file_metadata AS m ON m.file_id = r.file_id
WHERE r.pattern_id = ANY (%(patterns)s::text[])
ORDER BY 1, 2

-- archive_known_keys --
-- Which of the given keys are keys of records.
SELECT DISTINCT h.key FROM record_head AS h
WHERE h.kind = ANY (%(kinds)s::text[]) AND h.key = ANY (%(keys)s::text[]) AND h.grp = 'core'

-- archive_regimes --
-- The regimes of the market while tests of the given patterns that were passed ran.
SELECT DISTINCT t.payload -> 'core' ->> 'pattern_id' AS pattern_id, r.payload -> 'core' ->> 'regime' AS regime
FROM event AS t
JOIN record_head AS h ON h.kind = 'RegimeReading' AND h.grp = 'core'
    AND h.occurred_at BETWEEN (t.payload -> 'core' ->> 'test_start_date')::timestamptz
        AND coalesce((t.payload -> 'core' ->> 'test_end_date')::timestamptz, t.known_at)
LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
JOIN event AS r ON r.position = coalesce(k.position, h.position)
    AND NOT coalesce((r.payload -> 'core' ->> 'withdrawn')::boolean, false)
WHERE t.kind IN ('record.PatternValidation', 'correct.PatternValidation')
  AND t.payload -> 'core' ->> 'pattern_id' = ANY (%(patterns)s::text[]) AND (t.payload -> 'core' ->> 'passed')::boolean
ORDER BY 1, 2

-- archive_rows --
-- The complete archives of the given patterns.
SELECT * FROM pattern_archive WHERE pattern_id = ANY (%(patterns)s::text[]) ORDER BY pattern_id, tier

-- archive_write --
-- Writes the row of a complete archive; a corrupt one stays corrupt.
INSERT INTO pattern_archive (
    pattern_id, tier, path, manifest_version, manifest_sha256, schema_version, created_at, size_bytes, retention_expiry, content_types,
    gaps, verified_at)
VALUES (%(pattern_id)s, %(tier)s, %(path)s, %(manifest_version)s, %(manifest_sha256)s, %(schema_version)s, %(created_at)s,
    %(size_bytes)s, %(retention_expiry)s, %(content_types)s::text[], %(gaps)s::text[], %(created_at)s)
ON CONFLICT (pattern_id, tier) DO UPDATE SET manifest_version = excluded.manifest_version, manifest_sha256 = excluded.manifest_sha256,
    size_bytes = excluded.size_bytes, content_types = excluded.content_types, gaps = excluded.gaps
WHERE (pattern_archive.manifest_version, pattern_archive.manifest_sha256)
    IS DISTINCT FROM (excluded.manifest_version, excluded.manifest_sha256)

-- archive_index_write --
-- Writes the row of a pattern in the index.
INSERT INTO archive_index
SELECT * FROM jsonb_populate_record(NULL::archive_index, %(entry)s::jsonb)
ON CONFLICT (pattern_id) DO UPDATE SET pattern_name = excluded.pattern_name, pattern_type = excluded.pattern_type,
    status = excluded.status, deprecation_date = excluded.deprecation_date, archive_tier = excluded.archive_tier,
    archive_location = excluded.archive_location, regime_tags = excluded.regime_tags, industry_tags = excluded.industry_tags,
    confidence = excluded.confidence, validation_count = excluded.validation_count, accuracy = excluded.accuracy
WHERE archive_index IS DISTINCT FROM excluded

-- archive_verified --
-- Notes the result of comparing an archive with its manifest.
UPDATE pattern_archive SET state = %(state)s, verified_at = imem_now() WHERE pattern_id = %(pattern_id)s AND tier = %(tier)s

-- archives_to_verify --
-- The archives that were compared longest ago, corrupt ones too: so many that each one's turn comes once in five months.
SELECT pattern_id, tier FROM pattern_archive ORDER BY verified_at, pattern_id, tier
LIMIT ceil((SELECT count(*) FROM pattern_archive) * 0.05 / 7)::bigint

-- archive_index_forget --
-- Removes rows of the index that are to be built anew from the archives; those of the given patterns stay.
DELETE FROM archive_index WHERE pattern_id <> ALL (%(kept)s::text[])

-- archive_rows_all --
-- Each pattern with complete archives, and the hash of its manifest.
SELECT DISTINCT pattern_id, manifest_sha256 FROM pattern_archive ORDER BY pattern_id

-- archives_corrupt --
-- Notes that the archives of the given patterns are not what was recorded.
UPDATE pattern_archive SET state = 'corrupt', verified_at = imem_now() WHERE pattern_id = ANY (%(patterns)s::text[])

-- index_by_regime --
-- Archived patterns with one of the given regimes, the best first.
SELECT * FROM archive_index WHERE regime_tags && %(tags)s::text[]
ORDER BY confidence DESC NULLS LAST, pattern_id LIMIT %(limit)s

-- index_by_industry --
-- Archived patterns of one of the given industries, the best first.
SELECT * FROM archive_index WHERE industry_tags && %(tags)s::text[]
ORDER BY confidence DESC NULLS LAST, pattern_id LIMIT %(limit)s

-- index_by_metrics --
-- Archived patterns of at least a confidence and an accuracy, the best first.
SELECT * FROM archive_index WHERE confidence >= %(confidence)s AND accuracy >= %(accuracy)s
ORDER BY confidence DESC, pattern_id LIMIT %(limit)s

-- index_candidates --
-- Deprecated patterns whose archives so many different actors retrieved within 30 days.
SELECT i.* FROM (
    SELECT d.pattern_id FROM (
        SELECT DISTINCT pattern_id, actor FROM archive_access WHERE accessed_at > imem_now() - interval '30 days') AS d
    GROUP BY d.pattern_id HAVING count(*) >= %(least)s) AS a
JOIN archive_index AS i ON i.pattern_id = a.pattern_id
WHERE i.status = 'deprecated'
ORDER BY i.pattern_id LIMIT %(limit)s

-- index_entry --
-- The row of a pattern, with when its archive was last retrieved, and by how many actors within 30 days.
SELECT i.*, a.last_accessed, coalesce(a.access_count_30d, 0) AS access_count_30d
FROM archive_index AS i
CROSS JOIN LATERAL (
    SELECT max(x.accessed_at) AS last_accessed,
        count(DISTINCT x.actor) FILTER (WHERE x.accessed_at > imem_now() - interval '30 days') AS access_count_30d
    FROM archive_access AS x WHERE x.pattern_id = i.pattern_id) AS a
WHERE i.pattern_id = %(pattern_id)s

-- archive_accessed --
-- Records that an archive was retrieved whole, with the audit row.
SELECT note_archive_access_v1(%(pattern_id)s, %(actor)s, %(role)s, %(context)s::jsonb)

-- prune_cited_in_debates --
-- Findings that a turn of a debate rests on, or that a debate disputes.
SELECT jsonb_array_elements_text(e.payload -> 'core' -> 'cites') AS key
FROM record_head AS h JOIN event AS e ON e.position = h.position WHERE h.kind = 'DebateTurn' AND h.grp = 'core'
UNION
SELECT unnest(cites) FROM debate_turn
UNION
SELECT e.payload -> 'core' ->> 'disputed_finding'
FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.kind = 'Debate' AND h.grp = 'core' AND e.payload -> 'core' ? 'disputed_finding'

-- prune_candidates --
-- The next records of one kind whose detail the graph holds, by their keys: how they are used, and what exempts them but for their age.
-- An analysis is open while it runs, while a claim or forecast of it waits for its answer, and while anything about it or its decisions
-- waits for a person; what belongs to it likewise.
WITH candidate AS (
    SELECT h.kind, h.key, h.known_at, h.subject_id, e.recorded_at, coalesce(f.payload, e.payload) -> 'core' AS core,
        CASE WHEN h.kind = 'Analysis' THEN h.key ELSE e.analysis_id END AS analysis_id
    FROM record_head AS h JOIN event AS e ON e.position = h.position
    LEFT JOIN record_head AS k ON k.kind = h.kind AND k.key = h.key AND k.grp = 'correction'
    LEFT JOIN event AS f ON f.position = k.position
    WHERE h.kind = %(kind)s AND h.grp = 'core' AND h.key > %(after)s
      AND NOT EXISTS (SELECT FROM record_head AS a WHERE a.kind = h.kind AND a.key = h.key AND a.grp = 'archive')
    ORDER BY h.key LIMIT %(limit)s
), superseded AS MATERIALIZED (
    SELECT e.payload ->> 'to_key' AS key FROM record_head AS h JOIN event AS e ON e.position = h.position
    WHERE h.kind = 'link.SUPERSEDES' AND e.payload ->> 'to_label' = %(kind)s
), pattern AS MATERIALIZED (
    SELECT DISTINCT c.analysis_id, e.payload ->> 'to_key' AS key
    FROM candidate AS c JOIN event AS e ON e.kind = 'link.IDENTIFIED_PATTERN' AND e.payload ->> 'from_key' = c.analysis_id
), decision AS MATERIALIZED (
    SELECT DISTINCT c.analysis_id, e.record_key AS key
    FROM candidate AS c JOIN event AS e ON e.kind = 'record.Decision' AND e.analysis_id = c.analysis_id
), waiting AS MATERIALIZED (
    SELECT a.analysis_id FROM workflow.analysis AS a WHERE a.outcome IS NULL
    UNION
    SELECT d.analysis_id FROM (
        SELECT analysis_id, key FROM decision UNION ALL SELECT DISTINCT analysis_id, analysis_id FROM candidate) AS d
    JOIN lifecycle AS l ON l.about = d.key
    WHERE l.wake_at IS NOT NULL OR l.kind = 'postmortem' AND l.state IN ('queued', 'in_review')
    UNION
    SELECT c.analysis_id FROM candidate AS c
    JOIN event AS e ON e.analysis_id = c.analysis_id AND e.kind = 'record.Finding'
    JOIN record_head AS h ON h.kind = 'Finding' AND h.key = e.record_key AND h.grp = 'core' AND h.target_at >= imem_now()
)
SELECT c.key, c.known_at, c.recorded_at, imem_now() AS now, (c.core ->> 'importance')::float8 AS relevance,
    coalesce(c.core ->> 'summary', c.core ->> 'statement', c.core ->> 'challenge_basis', c.core ->> 'topic', '') AS summary,
    c.key IN (SELECT key FROM superseded) AS superseded, (
        SELECT count(*) FROM memory_access_audit AS a
        WHERE a.action = 'read_detail' AND a.resource_id = c.kind || ' ' || c.key AND a.timestamp > imem_now() - interval '12 months'
    ) AS accesses,
    CASE
        WHEN c.kind = 'Finding' AND c.key = ANY (%(cited)s::text[]) OR EXISTS (
            SELECT FROM event AS e
            WHERE e.kind = 'link.CITES' AND e.payload ->> 'to_key' = c.key AND e.payload ->> 'to_label' = c.kind) THEN 'cited'
        WHEN EXISTS (
            SELECT FROM retention_hold AS o WHERE o.released_at IS NULL AND (
                o.subject_type = 'company' AND o.subject_id = c.subject_id
                OR o.subject_type = 'decision' AND o.subject_id IN (SELECT d.key FROM decision AS d WHERE d.analysis_id = c.analysis_id)
                OR o.subject_type = 'pattern' AND o.subject_id IN (SELECT p.key FROM pattern AS p WHERE p.analysis_id = c.analysis_id)
            )) THEN 'held'
        WHEN EXISTS (
            SELECT FROM pattern AS p
            JOIN record_head AS h ON h.kind = 'Pattern' AND h.key = p.key AND h.grp = 'investigation'
            JOIN event AS e ON e.position = h.position
            WHERE p.analysis_id = c.analysis_id AND (e.payload #>> '{groups,investigation,under_investigation}')::boolean)
            THEN 'investigated'
        WHEN c.analysis_id IN (SELECT w.analysis_id FROM waiting AS w) OR c.kind = 'Debate' AND NOT EXISTS (
            SELECT FROM record_head AS h JOIN event AS e ON e.position = h.position
            WHERE h.kind = 'Debate' AND h.key = c.key AND h.grp = 'state'
              AND e.payload #>> '{groups,state,state}' = ANY (%(ended)s::text[])) THEN 'open'
    END AS exempt
FROM candidate AS c
ORDER BY c.key

-- hold_covers --
-- How many files a hold covers now.
WITH hold AS (
    SELECT * FROM retention_hold WHERE id = %(id)s
), decision AS (
    SELECT h.key FROM hold AS o JOIN record_head AS h ON h.kind = 'Decision' AND h.grp = 'core' AND (
        o.subject_type = 'decision' AND h.key = o.subject_id OR o.subject_type = 'company' AND h.subject_id = o.subject_id)
), pattern AS (
    SELECT subject_id AS key FROM hold WHERE subject_type = 'pattern'
    UNION
    SELECT e.payload ->> 'to_key' FROM decision AS d JOIN event AS e ON e.kind = 'link.CITES' AND e.payload ->> 'from_key' = d.key
    WHERE e.payload ->> 'from_label' = 'Decision' AND e.payload ->> 'to_label' = 'Pattern'
    UNION
    SELECT e.payload ->> 'to_key' FROM hold AS o
    JOIN record_head AS h ON o.subject_type = 'company' AND h.kind = 'Analysis' AND h.grp = 'core' AND h.subject_id = o.subject_id
    JOIN event AS e ON e.kind = 'link.IDENTIFIED_PATTERN' AND e.payload ->> 'from_key' = h.key
)
SELECT count(DISTINCT f.file_id) AS files FROM (
    SELECT r.file_id FROM pattern AS p JOIN file_reference AS r ON r.pattern_id = p.key
    UNION ALL SELECT subject_id FROM hold WHERE subject_type = 'file') AS f

-- object_store --
-- The journal's identity, and whether the store of objects holds it.
SELECT (SELECT id::text FROM journal_identity) AS journal, EXISTS (SELECT FROM object_store) AS marked

-- object_store_marked --
-- Notes that the store of objects holds the marker of this journal.
INSERT INTO object_store DEFAULT VALUES ON CONFLICT DO NOTHING

-- restorable --
-- Deprecated patterns with an archive that a trigger may bring back: none that a person sent back within six months after that trigger.
-- Columns: those of the index; last_accessed; people: how many people retrieved the archive within 30 days and after the pattern was
-- deprecated last; ended_at: when it was deprecated, and not when a person sent it back after a restoration. Parameters: trigger; least:
-- least number of people; tags: the pattern has one of these regimes (NULL: any); before: it was deprecated before this moment (NULL: any);
-- confidence: least confidence (NULL: any).
SELECT i.*, a.last_accessed, a.people::integer AS people, e.ended_at
FROM lifecycle AS l JOIN archive_index AS i ON i.pattern_id = l.key
CROSS JOIN LATERAL (
    SELECT CASE WHEN (l.data #>> '{restored,sent_back}')::boolean THEN (l.data #>> '{restored,ended_at}')::timestamptz
        ELSE i.deprecation_date END AS ended_at) AS e
CROSS JOIN LATERAL (
    SELECT max(x.accessed_at) AS last_accessed,
        count(DISTINCT x.actor) FILTER (WHERE x.accessed_at > greatest(imem_now() - interval '30 days', l.entered_at)) AS people
    FROM archive_access AS x WHERE x.pattern_id = i.pattern_id) AS a
WHERE l.kind = 'pattern' AND l.state = 'deprecated' AND l.request IS NULL AND i.status = 'deprecated'
  AND coalesce((l.data -> 'cooldowns' ->> %(trigger)s::text)::timestamptz <= imem_now(), true)
  AND a.people >= %(least)s AND (%(tags)s::text[] IS NULL OR i.regime_tags && %(tags)s::text[])
  AND (%(before)s::timestamptz IS NULL OR e.ended_at < %(before)s::timestamptz)
  AND (%(confidence)s::float8 IS NULL OR i.confidence >= %(confidence)s::float8)
ORDER BY i.pattern_id
