-- retention_last_run --
-- The last run, and the present moment; a row without a run where there was none.
SELECT n.now, r.* FROM (SELECT imem_now() AS now) AS n
LEFT JOIN LATERAL (SELECT * FROM retention_run ORDER BY id DESC LIMIT 1) AS r ON true

-- retention_approved --
-- The most files that a person let the next run mark within the last seven days; 0 where nobody did.
SELECT coalesce(max(r.proposed), 0) AS proposed FROM retention_run AS r
WHERE r.approved_at > imem_now() - interval '7 days' AND NOT EXISTS (
    SELECT FROM retention_run AS later WHERE later.id > r.id AND later.halted IS NULL AND later.run_at > r.approved_at)

-- retention_note_run --
-- Records a run.
INSERT INTO retention_run (cold, proposed, halted) VALUES (%(cold)s, %(proposed)s, %(halted)s)

-- retention_labels --
-- Files whose label by age has changed, and what is recorded of their storage.
SELECT m.file_id, m.label, imem_label_v1(m.created_at, imem_now()) AS becomes, m.created_at, imem_now() AS now, (
        SELECT count(*) FROM file_reference AS r
        JOIN record_head AS h ON h.kind = 'Pattern' AND h.key = r.pattern_id AND h.grp = 'status'
        JOIN event AS e ON e.position = h.position
        WHERE r.file_id = m.file_id AND e.payload #>> '{groups,status,status}' = 'active') AS supports, EXISTS (
        SELECT FROM file_reference AS r JOIN pattern_archive AS a ON a.pattern_id = r.pattern_id AND a.tier = 2
        WHERE r.file_id = m.file_id AND m.file_id <> ALL (a.gaps)) AS archived
FROM file_metadata AS m
WHERE m.delete_state <> 'purged' AND m.label <> imem_label_v1(m.created_at, imem_now())
ORDER BY m.file_id LIMIT %(limit)s

-- retention_set_label --
-- Sets the label of a file.
UPDATE file_metadata SET label = %(label)s WHERE file_id = %(file_id)s

-- retention_patterns --
-- The patterns that files support: all of them, or those of the given files. Columns: status, since when, whether it was late in its life
-- once, whether it is investigated, and the tiers of its archives on which deletion may rely: not those that were built before the pattern
-- got its newest file.
SELECT p.pattern_id, s.status, s.since, coalesce(s.late, false) AS late, coalesce((
        SELECT (e.payload #>> '{groups,investigation,under_investigation}')::boolean
        FROM record_head AS h JOIN event AS e ON e.position = h.position
        WHERE h.kind = 'Pattern' AND h.key = p.pattern_id AND h.grp = 'investigation'), false) AS investigated, ARRAY (
        SELECT a.tier FROM pattern_archive AS a
        WHERE a.pattern_id = p.pattern_id AND a.state = 'complete' AND a.gaps = '{}' AND a.created_at >= (
            SELECT max(n.referenced_at) FROM file_reference AS n WHERE n.pattern_id = p.pattern_id)
        ORDER BY a.tier) AS tiers
FROM (
    SELECT DISTINCT r.pattern_id FROM file_reference AS r
    WHERE %(files)s::text[] IS NULL OR r.file_id = ANY (%(files)s::text[])) AS p
LEFT JOIN LATERAL (
    -- The status of the newest row, and when the first row of the run of equal ones became known.
    SELECT (array_agg(v.value ORDER BY v.order_key DESC))[1] AS status, bool_or(v.value = ANY (%(late)s::text[])) AS late,
        min(v.known_at) FILTER (WHERE v.changes = 0) AS since
    FROM (
        SELECT w.value, w.order_key, w.known_at, sum((w.value IS DISTINCT FROM w.next AND w.next IS NOT NULL)::int)
            OVER (ORDER BY w.order_key DESC) AS changes
        FROM (
            SELECT x.value, x.order_key, x.known_at, lead(x.value) OVER (ORDER BY x.order_key) AS next
            FROM pattern_value AS x WHERE x.key = p.pattern_id AND x.grp = 'status') AS w) AS v) AS s ON true

-- retention_candidates --
-- The next files that are old enough to be deleted and not pinned, with the patterns that each supports; parts of archives are none.
SELECT m.file_id, m.created_at, ARRAY (
    SELECT r.pattern_id FROM file_reference AS r WHERE r.file_id = m.file_id ORDER BY 1) AS patterns
FROM file_metadata AS m
WHERE m.delete_state = 'none' AND m.tier_override IS NULL AND m.created_at <= %(before)s
  AND m.file_id NOT LIKE 'pattern_archives/%%'
  AND (m.created_at, m.file_id) > (%(after_at)s, %(after_id)s)
ORDER BY m.created_at, m.file_id LIMIT %(limit)s

-- retention_marked --
-- The files that are marked.
SELECT m.file_id FROM file_metadata AS m WHERE m.delete_state = 'marked' ORDER BY 1

-- retention_lock_files --
-- Locks the given files until the transaction ends.
SELECT m.file_id FROM file_metadata AS m WHERE m.file_id = ANY (%(files)s::text[]) ORDER BY m.file_id FOR UPDATE

-- retention_files --
-- The given files with the patterns that each supports and whether it is held.
SELECT m.file_id, m.created_at, m.size_mb, m.label, m.delete_state, m.marked_at, m.checks, m.tier_override IS NOT NULL AS pinned,
    imem_now() AS now, ARRAY (SELECT r.pattern_id FROM file_reference AS r WHERE r.file_id = m.file_id ORDER BY 1) AS patterns,
    EXISTS (SELECT FROM imem_held_v1(m.file_id)) AS held
FROM file_metadata AS m WHERE m.file_id = ANY (%(files)s::text[]) ORDER BY m.file_id

-- retention_lock_holds --
-- Takes the lock under which holds are placed, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('imem.holds')) IS NULL AS locked

-- retention_cold --
-- How many files are cold.
SELECT count(*) AS cold FROM file_metadata
WHERE delete_state <> 'purged' AND created_at <= %(before)s

-- retention_mark --
-- Marks files: from now on agents cannot read them, and the grace runs.
UPDATE file_metadata SET delete_state = 'marked', marked_at = imem_now(), checked_at = NULL, checks = 0
WHERE file_id = ANY (%(files)s::text[]) AND delete_state = 'none'

-- retention_restore --
-- Restores marked files.
UPDATE file_metadata SET delete_state = 'none', marked_at = NULL, checked_at = NULL, checks = 0
WHERE file_id = ANY (%(files)s::text[]) AND delete_state = 'marked'

-- retention_check --
-- Notes that the rules still let marked files go; once a day.
UPDATE file_metadata SET checks = checks + 1, checked_at = imem_now()
WHERE file_id = ANY (%(files)s::text[]) AND delete_state = 'marked'
  AND (checked_at IS NULL OR abs(extract(epoch FROM imem_now() - checked_at)) > 20 * 3600)

-- retention_purge --
-- Records that a file is deleted; its object is removed afterwards.
WITH gone AS (
    UPDATE file_metadata SET delete_state = 'purged' WHERE file_id = %(file_id)s AND delete_state = 'marked'
    RETURNING file_id, size_mb, marked_at)
INSERT INTO deletion_record (file_id, size_mb, reason, patterns, marked_at, actor, sha256)
SELECT file_id, size_mb, %(reason)s, %(patterns)s::text[], marked_at, %(actor)s, %(sha256)s FROM gone

-- retention_left --
-- Deleted files whose objects are still to be removed; one that was held meanwhile stays.
SELECT d.file_id FROM deletion_record AS d
WHERE d.removed_at IS NULL AND NOT EXISTS (SELECT FROM imem_held_v1(d.file_id)) ORDER BY 1

-- retention_removed --
-- Notes that the object of a deleted file was removed.
UPDATE deletion_record SET removed_at = imem_now() WHERE file_id = %(file_id)s

-- retention_holds --
-- Holds, the newest first; with open only those that are not released.
SELECT * FROM retention_hold WHERE NOT %(open)s OR released_at IS NULL ORDER BY id DESC LIMIT %(limit)s

-- retention_runs --
-- The last runs.
SELECT * FROM retention_run ORDER BY id DESC LIMIT %(limit)s

-- hold_place --
-- Places a hold, with the audit row.
SELECT * FROM place_hold_v1(%(kind)s, %(subject_type)s, %(subject_id)s, %(reason)s, %(actor)s, %(role)s, %(context)s::jsonb)

-- hold_release --
-- Releases a hold, with the audit row; no row where it was released, or never placed.
SELECT * FROM release_hold_v1(%(id)s, %(reason)s, %(actor)s, %(role)s, %(context)s::jsonb)

-- file_restore --
-- Restores a marked file, with the audit row.
SELECT restore_file_v1(%(file_id)s, %(reason)s, %(actor)s, %(role)s, %(context)s::jsonb) AS done

-- retention_approve --
-- Lets the next run mark as many files as a halted one proposed, with the audit row.
SELECT approve_retention_v1(%(id)s, %(reason)s, %(actor)s, %(role)s, %(context)s::jsonb) AS done
