-- gate_waiting --
-- Gates of an analysis that wait for a person, since when, and until when somebody may answer.
SELECT gate, opened_at, due_at FROM workflow.gate WHERE analysis_id = %(analysis_id)s AND waits ORDER BY gate

-- gates_passed --
-- Gates of an analysis that were validated: a resume passes them.
SELECT gate FROM workflow.gate WHERE analysis_id = %(analysis_id)s AND state = 'VALIDATED' ORDER BY gate

-- gates_to_look_at --
-- Analyses that wait at a gate and have a memory whose expiry is not the gate's, is of an earlier holder's time, or was not
-- looked at for a while; and those that wait no longer and have a memory whose expiry still is a gate's. Not what is paused.
SELECT found.analysis_id FROM (
    SELECT g.analysis_id FROM workflow.gate AS g
    JOIN workflow.analysis AS a ON a.analysis_id = g.analysis_id AND a.outcome IS NULL
    JOIN workflow.agent_leases AS l ON l.analysis_id = g.analysis_id
    LEFT JOIN workflow.gate_memory AS k ON k.agent_id = l.agent_id
    WHERE g.waits
      AND (k.agent_id IS NULL OR k.looked_at IS NULL OR k.epoch <> l.epoch OR k.looked_at <= imem_now() - %(again)s)
    UNION
    SELECT k.analysis_id FROM workflow.gate_memory AS k
    LEFT JOIN workflow.analysis AS a ON a.analysis_id = k.analysis_id
    WHERE a.outcome IS NOT NULL OR NOT EXISTS (
        SELECT FROM workflow.gate AS g WHERE g.analysis_id = k.analysis_id AND g.waits)
) AS found
WHERE workflow.block_reason_v1(found.analysis_id) IS NULL
ORDER BY found.analysis_id LIMIT %(limit)s

-- gate_agents --
-- The begun agents of an analysis, with the epoch of each.
SELECT agent_id, epoch FROM workflow.agent_leases WHERE analysis_id = %(analysis_id)s ORDER BY agent_type

-- gate_memories --
-- The memories of an analysis whose expiry is a gate's.
SELECT agent_id FROM workflow.gate_memory WHERE analysis_id = %(analysis_id)s ORDER BY agent_id

-- gate_memories_about_to_wait --
-- Says, before anything is moved, that memories of an analysis may have a gate's expiry; changes what said nothing yet.
INSERT INTO workflow.gate_memory (agent_id, analysis_id, epoch)
SELECT agent_id, analysis_id, epoch FROM workflow.agent_leases WHERE analysis_id = %(analysis_id)s
ON CONFLICT (agent_id) DO NOTHING

-- gate_memories_about_to_leave --
-- Says, before anything is moved, that memories of an analysis may have a gate's expiry no longer.
UPDATE workflow.gate_memory SET looked_at = NULL WHERE analysis_id = %(analysis_id)s AND looked_at IS NOT NULL

-- gate_memory_kept --
-- Says that a memory has a gate's expiry, or was looked at once more.
UPDATE workflow.gate_memory SET epoch = %(epoch)s, kept_until = %(until)s, looked_at = imem_now()
WHERE agent_id = %(agent_id)s

-- gate_memories_left --
-- Forgets that memories of an analysis have a gate's expiry: each has its own again, or its pause's.
DELETE FROM workflow.gate_memory WHERE analysis_id = %(analysis_id)s

-- gate_open --
-- Opens a gate of an analysis that runs, with the audit row of who did. No row where it is there, or no such analysis runs.
SELECT * FROM workflow.open_gate_v1(
    %(analysis_id)s, %(gate)s::smallint, %(due_at)s::timestamptz, %(actor)s, %(role)s, %(context)s::jsonb)

-- debates_of_gate --
-- Debates about findings of an analysis that argue, or wait for a person.
SELECT key FROM lifecycle
WHERE kind = 'debate' AND about = %(analysis_id)s AND state IN ('initiated', 'level1', 'level2', 'level3', 'provisional')
ORDER BY key

-- gate_by_number --
-- One gate.
SELECT * FROM workflow.gate WHERE analysis_id = %(analysis_id)s AND gate = %(gate)s

-- gates_open --
-- Gates that wait for a person, those due first.
SELECT * FROM workflow.gate WHERE waits ORDER BY due_at, analysis_id, gate LIMIT %(limit)s
