-- gate_known --
-- When a gate opens or opened; no row for a gate that is neither planned nor running.
SELECT coalesce(o.opens_at, g.opened_at) AS opens_at, g.opened_at
FROM (SELECT %(analysis_id)s::text AS analysis_id, %(gate)s::smallint AS gate) AS k
LEFT JOIN workflow.gate_opening AS o ON o.analysis_id = k.analysis_id AND o.gate = k.gate
LEFT JOIN workflow.gate AS g ON g.analysis_id = k.analysis_id AND g.gate = k.gate
WHERE o.gate IS NOT NULL OR g.gate IS NOT NULL

-- gates_to_sync --
-- Gates that open within the given time, or have opened recently, and have no report of that phase for this opening.
-- The opening time of a gate's own row overrides the planned one.
WITH opened AS (
    SELECT g.analysis_id, g.gate, g.opened_at FROM workflow.gate AS g
    WHERE g.waits AND g.opened_at > imem_now() - %(late)s
)
SELECT k.analysis_id, k.gate, k.opens_at, k.phase FROM (
    SELECT o.analysis_id, o.gate, o.opens_at, CASE WHEN o.opens_at <= imem_now() THEN 'opening' ELSE 'before' END AS phase,
        false AS is_open
    FROM workflow.gate_opening AS o
    WHERE o.opens_at <= imem_now() + %(before)s AND o.opens_at > imem_now() - %(late)s AND NOT EXISTS (
        SELECT FROM opened AS x WHERE x.analysis_id = o.analysis_id AND x.gate = o.gate)
    UNION ALL
    SELECT x.analysis_id, x.gate, x.opened_at, 'opening', true FROM opened AS x
) AS k
WHERE NOT EXISTS (
    SELECT FROM workflow.gate_report AS r
    WHERE r.analysis_id = k.analysis_id AND r.gate = k.gate AND r.phase = k.phase
      AND CASE WHEN k.is_open THEN r.made_at >= k.opens_at ELSE r.opens_at = k.opens_at END)
ORDER BY k.opens_at, k.analysis_id, k.gate LIMIT %(limit)s

-- gate_report_before --
-- The newest report of a gate.
SELECT report_id, phase, made_at, upto FROM workflow.gate_report
WHERE analysis_id = %(analysis_id)s AND gate = %(gate)s ORDER BY made_at DESC, report_id DESC LIMIT 1

-- gate_delta --
-- What an analysis has published since a position, and whether a transaction that was open then can no longer commit
-- before it.
SELECT e.position, e.kind, e.record_key, e.actor, e.recorded_at, e.recorded_at < imem_now() - interval '10 seconds' AS settled
FROM event AS e
WHERE e.analysis_id = %(analysis_id)s AND e.position > %(after)s AND split_part(e.kind, '.', 1) IN ('record', 'correct')
ORDER BY e.position LIMIT %(limit)s

-- gate_unpulled --
-- Updates that each agent of an analysis was notified of and has not pulled.
SELECT i.agent_id, count(r.position) AS unpulled FROM workflow.agent_instance AS i
LEFT JOIN workflow.recipient AS r ON r.agent_id = i.agent_id AND r.pulled_at IS NULL AND r.seq IS NOT NULL
WHERE i.analysis_id = %(analysis_id)s GROUP BY i.agent_id ORDER BY i.agent_id

-- gate_report_insert --
-- Inserts a report; column: made_at.
INSERT INTO workflow.gate_report (report_id, analysis_id, gate, phase, opens_at, upto, body)
VALUES (%(report_id)s, %(analysis_id)s, %(gate)s, %(phase)s, %(opens_at)s, %(upto)s, %(body)s::jsonb)
RETURNING made_at

-- gate_report_latest --
-- The newest report of a gate, whole.
SELECT report_id, analysis_id, gate, phase, opens_at, made_at, upto, body FROM workflow.gate_report
WHERE analysis_id = %(analysis_id)s AND gate = %(gate)s ORDER BY made_at DESC, report_id DESC LIMIT 1
