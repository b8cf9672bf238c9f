-- record_values_at --
-- The values of all groups of the given records as of a moment, on both clocks. Of a core the earliest-known statement
-- counts (all are equal), of every other group the latest by (known_at, actor, agent_seq).
-- Values are JSON as text. Parameters: kinds, keys (arrays, one entry a record), known_until, recorded_until.
SELECT kind, key, grp, known_at, recorded_at, occurred_at, position, value::text AS value FROM (
    SELECT DISTINCT ON (h.kind, h.key, h.grp) h.kind, h.key, h.grp, h.known_at, h.recorded_at, h.position, e.occurred_at,
        CASE WHEN h.grp IN ('core', 'correction') THEN e.payload -> 'core'
             WHEN h.grp = 'props' THEN e.payload
             ELSE e.payload -> 'groups' -> h.grp END AS value
    FROM unnest(%(kinds)s::text[], %(keys)s::text[]) AS wanted (kind, key)
    JOIN record_history AS h ON h.kind = wanted.kind AND h.key = wanted.key
    JOIN event AS e ON e.position = h.position
    WHERE h.known_at <= %(known_until)s AND h.recorded_at <= %(recorded_until)s
    ORDER BY h.kind, h.key, h.grp,
        CASE WHEN h.grp = 'core' THEN h.order_key END ASC,
        CASE WHEN h.grp <> 'core' THEN h.order_key END DESC
) AS dated
