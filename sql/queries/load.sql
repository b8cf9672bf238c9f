-- cores_on_file --
-- The core of each of the given records as first stated, and who stated it. Parameters: kinds, keys (arrays of one
-- length). Columns: kind, key, core, actor. Records without a core are left out.
SELECT h.kind, h.key, e.payload -> 'core' AS core, e.actor
FROM unnest(%(kinds)s::text[], %(keys)s::text[]) AS wanted (kind, key)
JOIN record_head AS h ON h.kind = wanted.kind AND h.key = wanted.key AND h.grp = 'core'
JOIN event AS e ON e.position = h.position

-- undelivered_of_actors --
-- How many events of the given actors, up to a position, the graph does not hold yet, and how many it never will.
-- Parameters: actors (array), upto (position). Columns: waiting, dead.
SELECT
    (SELECT count(*) FROM delivery
     WHERE actor = ANY (%(actors)s::text[]) AND position <= %(upto)s AND state IN ('pending', 'dispatched')) AS waiting,
    (SELECT count(*) FROM delivery
     WHERE state = 'dead' AND actor = ANY (%(actors)s::text[]) AND position <= %(upto)s) AS dead

-- create_seen --
-- Where a strict load notes the cores of the file it checks; of this session alone, gone with it.
CREATE TEMPORARY TABLE IF NOT EXISTS load_seen (
    kind text, key text, hash bytea NOT NULL, ref_hash bytea, line bigint NOT NULL, PRIMARY KEY (kind, key))

-- note_seen --
-- Notes the cores of a batch; the first statement of a core counts. Parameters as judge_lines.
INSERT INTO load_seen (kind, key, hash, ref_hash, line)
SELECT DISTINCT ON (l.kind, l.key) l.kind, l.key, l.hash, l.ref_hash, l.line
FROM unnest(
    %(kind)b::text[], %(key)b::text[], %(hash)b::bytea[], %(ref_hash)b::bytea[], %(corrects)b::boolean[],
    %(known_at)b::timestamptz[], %(line)b::bigint[]) AS l (kind, key, hash, ref_hash, corrects, known_at, line)
WHERE l.hash IS NOT NULL AND NOT l.corrects
ORDER BY l.kind, l.key, l.line
ON CONFLICT (kind, key) DO NOTHING

-- judge_lines --
-- What the journal would refuse of a batch, by what it holds and what the checked lines said before. Parameters, arrays
-- of one length: kind, key, hash (of the core; none without one), ref_hash, corrects, known_at, line (its number over
-- all files). Columns: line, status (as imem_append_v1 says it).
SELECT j.line, j.status FROM (
    SELECT l.line,
        CASE
            WHEN l.known_at > imem_now() THEN 'future'
            WHEN l.corrects AND coalesce(h.hash, s.hash) IS NULL THEN 'nothing_to_correct'
            WHEN l.corrects AND CASE WHEN h.hash IS NULL THEN s.ref_hash ELSE h.ref_hash END IS DISTINCT FROM l.ref_hash
                THEN 'reference_changed'
            WHEN NOT l.corrects AND l.hash IS NOT NULL AND coalesce(h.hash, s.hash, l.hash) <> l.hash THEN 'core_conflict'
        END AS status
    FROM unnest(
        %(kind)b::text[], %(key)b::text[], %(hash)b::bytea[], %(ref_hash)b::bytea[], %(corrects)b::boolean[],
        %(known_at)b::timestamptz[], %(line)b::bigint[]) AS l (kind, key, hash, ref_hash, corrects, known_at, line)
    LEFT JOIN record_head AS h ON h.kind = l.kind AND h.key = l.key AND h.grp = 'core'
    LEFT JOIN load_seen AS s ON s.kind = l.kind AND s.key = l.key AND s.line < l.line
) AS j
WHERE j.status IS NOT NULL
ORDER BY j.line
