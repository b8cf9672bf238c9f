-- debate_open --
-- Opens a debate; see open_debate_v1. No row where it is there.
SELECT *, imem_now() AS now FROM open_debate_v1(
    %(debate_id)s, %(analysis_id)s, %(until)s::timestamptz, %(data)s::jsonb, %(act)s::jsonb, %(actor)s, %(role)s, %(context)s::jsonb)

-- debate_act --
-- Adds an act; see act_in_debate_v1. No row where the debate was changed meanwhile, or the time of its level is over.
SELECT * FROM act_in_debate_v1(
    %(debate_id)s, %(version)s, %(act)s::jsonb, %(actor)s, %(role)s, %(context)s::jsonb)

-- debate_now --
-- The row of a debate that runs or has run, and the present moment.
SELECT *, imem_now() AS now FROM lifecycle WHERE kind = 'debate' AND key = %(debate_id)s

-- debate_lock --
-- The row of a debate, locked.
SELECT * FROM lifecycle WHERE kind = 'debate' AND key = %(debate_id)s FOR UPDATE

-- debate_wait --
-- Lets a debate wait until the time of its state is over, without end where it has none.
UPDATE lifecycle
SET due_at = %(until)s::timestamptz, data = jsonb_set(data, '{until}', coalesce(to_jsonb(%(until)s::timestamptz), 'null')),
    failures = 0, retry_at = NULL
WHERE kind = 'debate' AND key = %(debate_id)s RETURNING *

-- debates_running --
-- Debates that have not ended, of one agent or analysis where given; those due first.
SELECT *, imem_now() AS now FROM lifecycle
WHERE kind = 'debate' AND state = ANY (%(states)s::text[])
  AND (%(agent)s::text IS NULL OR %(agent)s IN (data ->> 'challenger', data ->> 'challenged', data ->> 'judge'))
  AND (%(analysis_id)s::text IS NULL OR about = %(analysis_id)s)
ORDER BY data ->> 'until' NULLS LAST, opened_at, key LIMIT %(limit)s

-- debate_next_round --
-- Opens the next round of a debate that a person asked for.
INSERT INTO lifecycle (kind, key, about, state, opened_at, due_at, data)
VALUES ('debate', %(debate_id)s, %(about)s, 'initiated', %(now)s::timestamptz, %(until)s::timestamptz, %(data)s::jsonb)
RETURNING *

-- dependants_of_finding --
-- Analyses that rest on a finding: by their own findings or decisions that cite it, or through others, each once; the finding's own
-- analysis is left out. Parameters: finding_id, analysis_id, limit.
WITH RECURSIVE resting (label, key) AS (
    SELECT 'Finding', %(finding_id)s::text
    UNION
    SELECT e.payload ->> 'from_label', e.payload ->> 'from_key'
    FROM resting AS r
    JOIN event AS e ON e.kind = 'link.CITES' AND e.payload ->> 'to_label' = r.label AND e.payload ->> 'to_key' = r.key
    JOIN record_head AS h ON h.position = e.position AND h.kind = e.kind
)
SELECT DISTINCT f.analysis_id FROM resting AS r CROSS JOIN LATERAL (
    SELECT CASE WHEN r.label = 'Analysis' THEN r.key ELSE e.payload -> 'core' ->> 'analysis_id' END AS analysis_id
    FROM record_head AS h JOIN event AS e ON e.position = h.position
    WHERE h.kind = r.label AND h.key = r.key AND h.grp = 'core'
) AS f
WHERE f.analysis_id IS NOT NULL AND f.analysis_id IS DISTINCT FROM %(analysis_id)s
ORDER BY 1 LIMIT %(limit)s
