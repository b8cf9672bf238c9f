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

-- recent_trades --
-- Trades of a deployment or of a skill as of a moment, by entry, newest first, with the last tick known then. Parameters: deployment_id or
-- else skill_id (the other is NULL), skill_version and owner (of a skill; NULL for all), closed and open (how many of each), until
-- (infinity for now).
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
    UNION ALL
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

-- nearest_situations --
-- Decisions that entered or left a position, by how near their contexts are to a vector, with the trades that they entered or left, among
-- the newest trades as of a moment. Parameters: model_id, dimension, vector, deployment_id or else skill_id (the other is NULL),
-- skill_version and owner (of a skill; NULL for all), until (infinity for now), compared (most trades), limit.
SELECT s.id, s.deployment_id, s.tick_at, s.context, s.proposed_action, s.verdict, i.trades,
    1 - (n.vector <=> %(vector)s::halfvec) AS similarity
FROM (
    SELECT u.snapshot_id, array_agg(DISTINCT t.id) AS trades
    FROM (
        (SELECT h.id, h.entry_snapshot_id, h.exit_snapshot_id FROM recall.trade_at AS h
         WHERE h.deployment_id = %(deployment_id)s
           AND h.updated_at <= %(until)s::timestamptz AND (h.superseded_at IS NULL OR h.superseded_at > %(until)s::timestamptz)
         ORDER BY h.entry_tick_at DESC, h.id LIMIT %(compared)s)
        UNION ALL
        (SELECT h.id, h.entry_snapshot_id, h.exit_snapshot_id FROM recall.trade_at AS h
         JOIN recall.trade_deployment AS d ON d.deployment_id = h.deployment_id
         WHERE h.skill_id = %(skill_id)s AND (%(skill_version)s::text IS NULL OR h.skill_version = %(skill_version)s)
           AND (%(owner)s::text IS NULL OR d.owner = %(owner)s)
           AND h.updated_at <= %(until)s::timestamptz AND (h.superseded_at IS NULL OR h.superseded_at > %(until)s::timestamptz)
         ORDER BY h.entry_tick_at DESC, h.id LIMIT %(compared)s)
    ) AS t CROSS JOIN LATERAL (VALUES (t.entry_snapshot_id), (t.exit_snapshot_id)) AS u (snapshot_id)
    WHERE u.snapshot_id IS NOT NULL
    GROUP BY u.snapshot_id
) AS i
JOIN recall.situation AS n ON n.snapshot_id = i.snapshot_id AND n.vector IS NOT NULL
JOIN embedding_model AS m ON m.model = n.model AND m.model_id = %(model_id)s AND m.dimension = %(dimension)s
JOIN recall.decision_snapshots AS s ON s.id = n.snapshot_id
ORDER BY n.vector <=> %(vector)s::halfvec, s.tick_at DESC, s.id
LIMIT %(limit)s

-- trades_by_id --
-- The given trades as of a moment, by entry. Parameters: ids, until (infinity for now).
SELECT h.*
FROM unnest(%(ids)s::uuid[]) AS i (id) CROSS JOIN LATERAL (
    SELECT v.* FROM recall.trade_at AS v WHERE v.id = i.id AND v.updated_at <= %(until)s::timestamptz
    ORDER BY v.updated_at DESC LIMIT 1
) AS h
ORDER BY h.entry_tick_at, h.id

-- situations_to_embed --
-- Contexts of decisions that entered or left a position, without a vector or with one of another model. Parameters: model, limit.
SELECT s.id, s.context
FROM (
    (SELECT n.snapshot_id FROM recall.situation AS n WHERE n.model IS NULL LIMIT %(limit)s)
    UNION ALL
    (SELECT n.snapshot_id FROM recall.situation AS n WHERE n.model < %(model)s LIMIT %(limit)s)
    UNION ALL
    (SELECT n.snapshot_id FROM recall.situation AS n WHERE n.model > %(model)s LIMIT %(limit)s)
    LIMIT %(limit)s
) AS n
JOIN recall.decision_snapshots AS s ON s.id = n.snapshot_id

-- set_situation_vectors --
-- Stores vectors of contexts. Parameters: model, ids, vectors (NULL: the model refuses the context).
UPDATE recall.situation AS n SET model = %(model)s, vector = v.vector::halfvec
FROM unnest(%(ids)s::uuid[], %(vectors)s::text[]) AS v (id, vector)
WHERE n.snapshot_id = v.id
