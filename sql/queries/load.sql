-- recorded_cores --
-- The core of each of the given records as first recorded, and its actor. Parameters: kinds, keys (arrays of one length).
-- Columns: kind, key, core, actor. Records without a core are left out.
SELECT h.kind, h.key, e.payload -> 'core' AS core, e.actor
FROM unnest(%(kinds)s::text[], %(keys)s::text[]) AS wanted (kind, key)
JOIN record_head AS h ON h.kind = wanted.kind AND h.key = wanted.key AND h.grp = 'core'
JOIN event AS e ON e.position = h.position

-- create_missing --
-- Temporary table of unresolved references of a load; private to this session.
CREATE TEMPORARY TABLE IF NOT EXISTS load_missing (kind text, key text, PRIMARY KEY (kind, key))

-- clear_missing --
-- Empties the table, which an interrupted check of this session may have filled.
TRUNCATE load_missing

-- note_missing --
-- Stores the unresolved references of the events of the given actors between two positions: subjects, records named in fields,
-- findings cited by turns of debates, ends of links, and records of which only late groups were recorded. Parameters: actors
-- (array), first, upto (positions), kinds, fields, labels (arrays of one length: event kind, field of its core, label of the
-- record that the field names).
INSERT INTO load_missing (kind, key)
WITH stated AS (
    SELECT e.position, e.kind, e.record_key, e.payload FROM event AS e
    WHERE e.position BETWEEN %(first)s AND %(upto)s AND e.actor = ANY(%(actors)s)
),
named AS (
    SELECT r.label, n.key
    FROM stated AS s
    JOIN unnest(%(kinds)s::text[], %(fields)s::text[], %(labels)s::text[]) AS r (kind, field, label) ON r.kind = s.kind
    CROSS JOIN LATERAL jsonb_array_elements_text(
        CASE jsonb_typeof(s.payload -> 'core' -> r.field)
            WHEN 'array' THEN s.payload -> 'core' -> r.field
            WHEN 'string' THEN jsonb_build_array(s.payload -> 'core' -> r.field)
            ELSE '[]'::jsonb
        END) AS n (key)
    UNION ALL
    SELECT 'Finding', c.key
    FROM stated AS s
    JOIN debate_turn AS t ON t.debate_id = s.record_key AND t.position = s.position
    CROSS JOIN LATERAL unnest(t.cites) AS c (key)
    WHERE s.kind = 'record.Debate'
    UNION ALL
    SELECT payload ->> 'from_label', payload ->> 'from_key' FROM stated WHERE kind LIKE 'link.%%'
    UNION ALL
    SELECT payload ->> 'to_label', payload ->> 'to_key' FROM stated WHERE kind LIKE 'link.%%'
    UNION ALL
    SELECT substr(kind, length('record.') + 1), record_key FROM stated
    WHERE kind LIKE 'record.%%' AND payload -> 'core' IS NULL
),
wanted AS (
    SELECT DISTINCT
        CASE WHEN label <> 'Subject' THEN label WHEN key LIKE 'company:%%' THEN 'Company' ELSE 'Market' END AS kind,
        CASE WHEN label <> 'Subject' THEN key ELSE substr(key, strpos(key, ':') + 1) END AS key
    FROM named
)
SELECT w.kind, w.key
FROM wanted AS w
WHERE NOT EXISTS (SELECT 1 FROM record_head AS h WHERE h.kind = w.kind AND h.key = w.key AND h.grp = 'core')
ON CONFLICT (kind, key) DO NOTHING

-- missing_references --
-- The unresolved references. Columns: kind, missing (distinct keys), examples (the first three).
SELECT m.kind, count(*) AS missing, (array_agg(m.key ORDER BY m.key))[1:3] AS examples
FROM load_missing AS m
GROUP BY m.kind
ORDER BY m.kind

-- undelivered_of_actors --
-- Counts the events of the given actors, up to a position, that the graph does not hold yet, and those that are dead.
-- Parameters: actors (array), upto (position). Columns: waiting, dead.
SELECT
    (SELECT count(*) FROM delivery
     WHERE actor = ANY (%(actors)s::text[]) AND position <= %(upto)s AND state = 'pending') AS waiting,
    (SELECT count(*) FROM delivery
     WHERE state = 'dead' AND actor = ANY (%(actors)s::text[]) AND position <= %(upto)s) AS dead

-- create_seen --
-- Temporary table of the cores of the file that a strict load checks; private to this session.
CREATE TEMPORARY TABLE IF NOT EXISTS load_seen (
    kind text, key text, hash bytea NOT NULL, ref_hash bytea, line bigint NOT NULL, PRIMARY KEY (kind, key))

-- clear_seen --
-- Empties the table, which an interrupted check of this session may have filled.
TRUNCATE load_seen

-- note_seen --
-- Stores the cores of a batch; the first one of a record counts. Parameters as validate_lines.
INSERT INTO load_seen (kind, key, hash, ref_hash, line)
SELECT DISTINCT ON (l.kind, l.key) l.kind, l.key, l.hash, l.ref_hash, l.line
FROM unnest(
    %(kind)b::text[], %(key)b::text[], %(hash)b::bytea[], %(ref_hash)b::bytea[], %(corrects)b::boolean[],
    %(known_at)b::timestamptz[], %(line)b::bigint[]) AS l (kind, key, hash, ref_hash, corrects, known_at, line)
WHERE l.hash IS NOT NULL AND NOT l.corrects
ORDER BY l.kind, l.key, l.line
ON CONFLICT (kind, key) DO NOTHING

-- validate_lines --
-- What the journal would refuse of a batch, by its content and by the lines checked before. Parameters, arrays of one length:
-- kind, key, hash (of the core; null without one), ref_hash, corrects, known_at, dated (its latest date of the past; null without
-- one), line (its number over all files). Columns:
-- line, status (a status of imem_append_v1; premature and late_claim were found when the line was parsed, since it carries its
-- known_at).
SELECT j.line, j.status FROM (
    SELECT l.line,
        CASE
            WHEN l.known_at > (SELECT imem_journal_now()) THEN 'future'
            WHEN l.corrects AND coalesce(h.hash, s.hash) IS NULL THEN 'nothing_to_correct'
            WHEN l.corrects AND CASE WHEN h.hash IS NULL THEN s.ref_hash ELSE h.ref_hash END IS DISTINCT FROM l.ref_hash
                THEN 'reference_changed'
            WHEN l.dated > (SELECT imem_journal_now()) + interval '1 minute' THEN 'not_begun'
            WHEN NOT l.corrects AND l.hash IS NOT NULL AND coalesce(h.hash, s.hash, l.hash) <> l.hash THEN 'core_conflict'
        END AS status
    FROM unnest(
        %(kind)b::text[], %(key)b::text[], %(hash)b::bytea[], %(ref_hash)b::bytea[], %(corrects)b::boolean[],
        %(known_at)b::timestamptz[], %(dated)b::timestamptz[], %(line)b::bigint[]
    ) AS l (kind, key, hash, ref_hash, corrects, known_at, dated, line)
    LEFT JOIN record_head AS h ON h.kind = l.kind AND h.key = l.key AND h.grp = 'core'
    LEFT JOIN load_seen AS s ON s.kind = l.kind AND s.key = l.key AND s.line < l.line
) AS j
WHERE j.status IS NOT NULL
ORDER BY j.line
