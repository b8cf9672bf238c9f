-- skill_memory --
-- What a deployment, or without one a skill, is reminded of: one row with the configuration (config, avoid) and the active note, the
-- deployment's before its skill's, whose columns are NULL where there is none. Parameters: deployment_id, skill_id (NULL: the one of
-- the deployment's newest trade), until (NULL: now).
SELECT m.config, m.avoid, n.id, n.skill_id, n.skill_version, n.deployment_id, 'active' AS status, n.generated_at,
    NULL::timestamptz AS superseded_at, n.window_start, n.window_end, n.trades_considered, n.lessons_text, n.model_used, n.input_tokens,
    n.output_tokens, n.cost_usd, n.promoted_from, n.promoted_by
FROM (
    SELECT %(deployment_id)s::text AS deployment_id, coalesce(%(skill_id)s::text, (
        SELECT t.skill_id FROM recall.trade_history AS t
        WHERE t.deployment_id = %(deployment_id)s AND (%(until)s::timestamptz IS NULL OR t.created_at <= %(until)s)
        ORDER BY t.entry_tick_at DESC LIMIT 1)) AS skill_id
) AS a
CROSS JOIN LATERAL recall.skill_memory_v1(a.skill_id, a.deployment_id, %(until)s::timestamptz) AS m
LEFT JOIN LATERAL (
    SELECT * FROM recall.reflection_notes AS r
    WHERE (r.deployment_id = a.deployment_id OR r.deployment_id IS NULL AND r.skill_id = a.skill_id)
      AND CASE WHEN %(until)s::timestamptz IS NULL THEN r.superseded_at IS NULL
          ELSE r.generated_at <= %(until)s AND coalesce(r.superseded_at > %(until)s, true) END
    ORDER BY r.deployment_id IS NULL LIMIT 1
) AS n ON true

-- reflections_of_deployment --
-- The notes of a deployment as of a moment, newest first, and what the strategy forbade then. Parameters: deployment_id, until (NULL:
-- now), limit.
SELECT m.avoid, n.id, n.skill_id, n.skill_version, n.deployment_id, CASE WHEN s.superseded_at IS NULL THEN 'active' ELSE 'superseded' END AS status,
    n.generated_at, s.superseded_at, n.window_start, n.window_end, n.trades_considered, n.lessons_text, n.model_used, n.input_tokens,
    n.output_tokens, n.cost_usd, n.promoted_from, n.promoted_by
FROM recall.reflection_notes AS n
CROSS JOIN LATERAL (
    SELECT CASE WHEN n.superseded_at > %(until)s::timestamptz THEN NULL ELSE n.superseded_at END AS superseded_at) AS s
CROSS JOIN LATERAL recall.skill_memory_v1(n.skill_id, n.deployment_id, %(until)s::timestamptz) AS m
WHERE n.deployment_id = %(deployment_id)s AND (%(until)s::timestamptz IS NULL OR n.generated_at <= %(until)s)
ORDER BY n.generated_at DESC LIMIT %(limit)s

-- promote_reflection --
-- Makes a deployment's note the active one of its skill; see recall.promote_reflection_v1. Parameters: actor, role, note, id.
SELECT recall.promote_reflection_v1(%(actor)s, %(role)s, %(note)s::uuid, %(id)s::uuid) AS id

-- configure_skill_memory --
-- Sets the configuration of a skill or a deployment. Parameters: actor, skill_id, deployment_id (one of both NULL), config, avoid.
SELECT recall.configure_skill_memory_v1(%(actor)s, %(skill_id)s, %(deployment_id)s, %(config)s::jsonb, %(avoid)s::text[])

-- trades_to_reflect_on --
-- The newest closed trades of a deployment that are of the version of the skill of the last of them, oldest first. Parameters:
-- deployment_id, limit.
SELECT c.* FROM (
    SELECT t.* FROM recall.trade_history AS t
    JOIN (
        SELECT l.skill_id, l.skill_version FROM recall.trade_history AS l
        WHERE l.deployment_id = %(deployment_id)s AND l.status = 'closed' ORDER BY l.exit_tick_at DESC, l.id DESC LIMIT 1
    ) AS newest ON newest.skill_id = t.skill_id AND newest.skill_version = t.skill_version
    WHERE t.deployment_id = %(deployment_id)s AND t.status = 'closed'
    ORDER BY t.exit_tick_at DESC, t.id DESC LIMIT %(limit)s
) AS c
ORDER BY c.exit_tick_at, c.id

-- reflections_due_daily --
-- Makes deployments due whose cadence is daily, where its hour has passed since their last note, and a trade has closed since the newest
-- one of that note; once. One that was set aside is tried again each day.
INSERT INTO due_row (queue, kind, key)
SELECT 'reflection', 'Deployment', d.deployment_id
FROM recall.trade_deployment AS d
CROSS JOIN LATERAL (
    SELECT t.skill_id FROM recall.trade_history AS t WHERE t.deployment_id = d.deployment_id ORDER BY t.entry_tick_at DESC LIMIT 1
) AS s
CROSS JOIN LATERAL recall.skill_memory_v1(s.skill_id, d.deployment_id, NULL) AS m
CROSS JOIN LATERAL (SELECT make_interval(hours => (m.config #>> '{reflection,daily_hour}')::integer) AS after_midnight) AS h
LEFT JOIN LATERAL (
    SELECT n.generated_at, n.window_end FROM recall.reflection_notes AS n
    WHERE n.deployment_id = d.deployment_id ORDER BY n.generated_at DESC LIMIT 1
) AS last ON true
WHERE (m.config ->> 'enabled')::boolean AND m.config #>> '{reflection,cadence}' = 'daily'
  AND coalesce(last.generated_at, '-infinity') < date_trunc('day', imem_now() - h.after_midnight, 'UTC') + h.after_midnight
  AND EXISTS (
      SELECT FROM recall.trade_history AS t
      WHERE t.deployment_id = d.deployment_id AND t.status = 'closed' AND t.exit_tick_at > coalesce(last.window_end, '-infinity'))
  AND NOT EXISTS (
      SELECT FROM due_row AS w WHERE w.queue = 'reflection' AND w.kind = 'Deployment' AND w.key = d.deployment_id
        AND (w.set_aside IS NULL OR w.created_at >= date_trunc('day', imem_now() - h.after_midnight, 'UTC') + h.after_midnight))

-- add_reflection --
-- Makes a note the active one of its deployment; see recall.add_reflection_v1.
SELECT recall.add_reflection_v1(
    %(id)s::uuid, %(skill_id)s, %(skill_version)s, %(deployment_id)s, %(window_start)s::timestamptz, %(window_end)s::timestamptz,
    %(trades)s::integer, %(lessons)s, %(model)s, %(input_tokens)s::integer, %(output_tokens)s::integer, %(cost_usd)s::numeric)
