-- trade_state --
-- Who owns a deployment, its last tick, and its open trades, one a row, or one row without; no row where nothing was recorded.
SELECT d.owner, t.last_tick_at, h.*
FROM recall.trade_deployment AS d
CROSS JOIN LATERAL (SELECT max(n.tick_at) AS last_tick_at FROM recall.trade_tick AS n WHERE n.deployment_id = d.deployment_id) AS t
LEFT JOIN recall.trade_history AS h ON h.deployment_id = d.deployment_id AND h.status = 'open'
WHERE d.deployment_id = %(deployment_id)s
ORDER BY h.symbol, h.side

-- record_tick --
-- Puts what a tick changed into the ledger; see recall.record_tick_v1. Columns: status, last_tick_at, recorded_at, changes.
SELECT status, last_tick_at, recorded_at, changes
FROM recall.record_tick_v1(
    %(actor)s, %(role)s, %(deployment_id)s, %(tick_at)s::timestamptz, %(after)s::timestamptz, %(trades)s::jsonb,
    %(changes)s::jsonb, %(snapshot)s::jsonb)

-- trades_closed_last --
-- The trade of each of the given symbols that a deployment closed last.
SELECT DISTINCT ON (symbol) * FROM recall.trade_history
WHERE deployment_id = %(deployment_id)s AND symbol = ANY (%(symbols)s::text[]) AND status = 'closed'
ORDER BY symbol, exit_tick_at DESC, id DESC

-- trade_owner --
-- Who owns a deployment; no row where nothing of it was recorded.
SELECT owner FROM recall.trade_deployment WHERE deployment_id = %(deployment_id)s

-- trades_of_deployment --
-- Trades of a deployment as of a moment, by entry, newest first, with the last tick known then. Parameters: deployment_id, closed and
-- open (how many of each), until (infinity for now).
SELECT a.*, t.last_tick_at
FROM (
    (SELECT h.* FROM recall.trade_at AS h
     WHERE h.deployment_id = %(deployment_id)s AND h.status = 'closed'
       AND h.updated_at <= %(until)s::timestamptz AND (h.superseded_at IS NULL OR h.superseded_at > %(until)s::timestamptz)
     ORDER BY h.entry_tick_at DESC, h.id LIMIT %(closed)s)
    UNION ALL
    (SELECT h.* FROM recall.trade_at AS h
     WHERE h.deployment_id = %(deployment_id)s AND h.status = 'open'
       AND h.updated_at <= %(until)s::timestamptz AND (h.superseded_at IS NULL OR h.superseded_at > %(until)s::timestamptz)
     ORDER BY h.entry_tick_at DESC, h.id LIMIT %(open)s)
) AS a
CROSS JOIN LATERAL (
    SELECT max(n.tick_at) AS last_tick_at FROM recall.trade_tick AS n
    WHERE n.deployment_id = a.deployment_id AND n.recorded_at <= %(until)s::timestamptz
) AS t
ORDER BY a.entry_tick_at DESC, a.id

-- trades_of_skill --
-- The same of all deployments of a skill. Parameters: skill_id, skill_version (NULL for all), owner (NULL for all), closed, open, until.
SELECT a.*, t.last_tick_at
FROM (
    (SELECT h.* FROM recall.trade_at AS h
     JOIN recall.trade_deployment AS d ON d.deployment_id = h.deployment_id
     WHERE h.skill_id = %(skill_id)s AND (%(skill_version)s::text IS NULL OR h.skill_version = %(skill_version)s)
       AND (%(owner)s::text IS NULL OR d.owner = %(owner)s) AND h.status = 'closed'
       AND h.updated_at <= %(until)s::timestamptz AND (h.superseded_at IS NULL OR h.superseded_at > %(until)s::timestamptz)
     ORDER BY h.entry_tick_at DESC, h.id LIMIT %(closed)s)
    UNION ALL
    (SELECT h.* FROM recall.trade_at AS h
     JOIN recall.trade_deployment AS d ON d.deployment_id = h.deployment_id
     WHERE h.skill_id = %(skill_id)s AND (%(skill_version)s::text IS NULL OR h.skill_version = %(skill_version)s)
       AND (%(owner)s::text IS NULL OR d.owner = %(owner)s) AND h.status = 'open'
       AND h.updated_at <= %(until)s::timestamptz AND (h.superseded_at IS NULL OR h.superseded_at > %(until)s::timestamptz)
     ORDER BY h.entry_tick_at DESC, h.id LIMIT %(open)s)
) AS a
CROSS JOIN LATERAL (
    SELECT max(n.tick_at) AS last_tick_at FROM recall.trade_tick AS n
    WHERE n.deployment_id = a.deployment_id AND n.recorded_at <= %(until)s::timestamptz
) AS t
ORDER BY a.entry_tick_at DESC, a.id

-- trade_ticks --
-- The ticks of a deployment after a moment, with what they changed. Parameters: deployment_id, since (-infinity for all).
SELECT tick_at, changes FROM recall.trade_tick
WHERE deployment_id = %(deployment_id)s AND tick_at > %(since)s::timestamptz ORDER BY tick_at
