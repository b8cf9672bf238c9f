-- view_lock --
-- Lock of the build of a view, released with its transaction. False: another process holds it.
SELECT pg_try_advisory_xact_lock(hashtextextended('imem.views', 0)) AS held

-- view_begin --
-- Begins a version of a view, with the last position of the journal that it can include.
INSERT INTO view_version (name, source_seq) SELECT %(name)s, coalesce(max(position), 0) FROM event RETURNING version

-- view_swap --
-- Makes the new version the one that readers see.
INSERT INTO view_current (name, version) VALUES (%(name)s, %(version)s)
ON CONFLICT (name) DO UPDATE SET version = excluded.version

-- view_prune --
-- Deletes versions that are not read any more, with their rows.
DELETE FROM view_version AS v WHERE v.name = %(name)s
  AND NOT EXISTS (SELECT FROM view_current AS c WHERE c.name = v.name AND c.version = v.version)

-- view_of --
-- One row of the current version of a view, with its time and position; no row for a view that was never built.
SELECT v.version, v.built_at, v.source_seq, r.value, extract(epoch FROM imem_now() - v.built_at)::float8 AS age_s
FROM view_current AS c
JOIN view_version AS v ON v.name = c.name AND v.version = c.version
LEFT JOIN view_row AS r ON r.name = v.name AND r.version = v.version AND r.key = %(key)s
WHERE c.name = %(name)s

-- build_top_patterns --
-- Active patterns by sector, those of none under *, the most successful first, 100 at most.
INSERT INTO view_row (name, version, key, value)
SELECT %(name)s, %(version)s, p.sector, jsonb_agg(p.value ORDER BY p.place)
FROM (
    SELECT coalesce(c.core ->> 'sector', '*') AS sector,
        row_number() OVER (
            PARTITION BY coalesce(c.core ->> 'sector', '*') ORDER BY (f.performance ->> 'success_rate')::float8 DESC NULLS LAST, s.key
        ) AS place,
        jsonb_build_object(
            'pattern_id', s.key, 'name', c.core -> 'name', 'category', c.core -> 'category',
            'success_rate', f.performance -> 'success_rate', 'occurrence_count', f.performance -> 'occurrence_count') AS value
    FROM record_head AS s
    JOIN event AS e ON e.position = s.position
    CROSS JOIN LATERAL (
        SELECT y.payload -> 'core' AS core FROM record_head AS h JOIN event AS y ON y.position = h.position
        WHERE h.kind = 'Pattern' AND h.key = s.key AND h.grp IN ('core', 'correction') ORDER BY h.grp = 'correction' DESC LIMIT 1
    ) AS c
    LEFT JOIN LATERAL (
        SELECT y.payload -> 'groups' -> 'performance' AS performance
        FROM record_head AS h JOIN event AS y ON y.position = h.position
        WHERE h.kind = 'Pattern' AND h.key = s.key AND h.grp = 'performance'
    ) AS f ON true
    WHERE s.kind = 'Pattern' AND s.grp = 'status' AND e.payload -> 'groups' -> 'status' ->> 'status' = 'active'
) AS p
WHERE p.place <= 100
GROUP BY p.sector

-- build_agent_credibility --
-- The newest sums of each agent's track records, by what could be known; a reader ages them from their moment on.
INSERT INTO view_row (name, version, key, value)
SELECT %(name)s, %(version)s, t.agent, jsonb_agg(
    jsonb_build_object(
        'domain', t.domain, 'at', t.at, 'halflife_years', t.halflife_years, 'observations', t.observations,
        'scored', t.scored, 'correct', t.correct, 'abstained', t.abstained, 'weight', t.weight,
        'successes', t.successes, 'squares', t.squares) ORDER BY t.domain)
FROM (
    SELECT DISTINCT ON (agent, domain) * FROM track_step WHERE clock = 'known' ORDER BY agent, domain, at DESC
) AS t
GROUP BY t.agent

-- build_company_summaries --
-- A summary of each subject: the number of analyses, the newest conclusion, and the outcomes of decisions.
INSERT INTO view_row (name, version, key, value)
SELECT %(name)s, %(version)s, s.subject_id, jsonb_build_object(
    'subject_id', s.subject_id, 'name', p.profile -> 'name', 'sector', p.profile -> 'sector',
    'industry', p.profile -> 'industry', 'size_class', p.profile -> 'size_class', 'growth_stage', p.profile -> 'growth_stage',
    'analyses', s.analyses, 'newest', n.core -> 'date', 'newest_analysis', n.core -> 'id',
    'recommendation', n.core -> 'recommendation', 'confidence', n.core -> 'confidence', 'probability', n.core -> 'probability',
    'findings', s.findings, 'debates', s.debates, 'contradictions', s.contradictions,
    'decisions', s.decisions, 'successes', coalesce(d.successes, 0), 'failures', coalesce(d.failures, 0))
FROM (
    SELECT subject_id, count(*) FILTER (WHERE kind = 'Analysis') AS analyses, count(*) FILTER (WHERE kind = 'Finding') AS findings,
        count(*) FILTER (WHERE kind = 'Debate') AS debates, count(*) FILTER (WHERE kind = 'Decision') AS decisions,
        count(*) FILTER (WHERE kind = 'DataContradiction') AS contradictions
    FROM record_head WHERE grp = 'core' AND subject_id IS NOT NULL AND kind NOT IN ('Company', 'Market') GROUP BY subject_id
) AS s
LEFT JOIN LATERAL (
    SELECT e.payload -> 'groups' -> 'profile' AS profile FROM record_head AS h JOIN event AS e ON e.position = h.position
    WHERE s.subject_id LIKE 'company:%%' AND h.kind = 'Company' AND h.key = substr(s.subject_id, length('company:') + 1)
      AND h.grp = 'profile'
) AS p ON true
LEFT JOIN LATERAL (
    SELECT coalesce(x.payload, e.payload) -> 'core' AS core
    FROM record_head AS h JOIN event AS e ON e.position = h.position
    LEFT JOIN record_head AS r ON r.kind = h.kind AND r.key = h.key AND r.grp = 'correction'
    LEFT JOIN event AS x ON x.position = r.position
    WHERE h.subject_id = s.subject_id AND h.kind = 'Analysis' AND h.grp = 'core'
    ORDER BY h.occurred_at DESC, h.key LIMIT 1
) AS n ON true
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE e.payload -> 'groups' -> 'outcome' ->> 'outcome' = 'success') AS successes,
        count(*) FILTER (WHERE e.payload -> 'groups' -> 'outcome' ->> 'outcome' = 'failure') AS failures
    FROM record_head AS h JOIN record_head AS o ON o.kind = 'Decision' AND o.key = h.key AND o.grp = 'outcome'
    JOIN event AS e ON e.position = o.position
    WHERE h.subject_id = s.subject_id AND h.kind = 'Decision' AND h.grp = 'core'
) AS d ON true

-- build_peer_comparisons --
-- The companies of each sector side by side, a row a company, made of their summaries.
INSERT INTO view_row (name, version, key, value)
SELECT %(name)s, %(version)s, r.value ->> 'sector', jsonb_agg(r.value - 'sector' ORDER BY r.key)
FROM view_current AS c JOIN view_row AS r ON r.name = c.name AND r.version = c.version
WHERE c.name = 'company_summaries' AND r.value ->> 'sector' IS NOT NULL
GROUP BY r.value ->> 'sector'
