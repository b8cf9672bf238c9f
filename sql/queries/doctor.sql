-- doctor_server --
-- Version as a number (150004 is 15.4), the server's time, and who we are there. Columns: version, now, owner.
SELECT current_setting('server_version_num')::integer AS version,
       clock_timestamp() AS now,
       rolsuper OR EXISTS (SELECT FROM pg_class WHERE relowner = pg_roles.oid) AS owner
FROM pg_roles
WHERE rolname = current_user

-- doctor_extension --
-- The version of pgvector that is installed in this database, or else could be; no row where it is missing.
SELECT coalesce(installed_version, default_version) AS version
FROM pg_available_extensions
WHERE name = 'vector'

-- doctor_rights --
-- Whether the journal is there, the role may append, whether it may do what nobody should, write its table itself, and whether it
-- may do what pipelines alone should, write scores, and what curators do, state what settles claims.
SELECT to_regclass('public.delivery') IS NOT NULL AS has_journal,
       coalesce(bool_and(has_function_privilege(pg_proc.oid, 'EXECUTE')), false) AS may_append,
       coalesce(has_table_privilege(to_regclass('public.event'), 'INSERT, UPDATE, DELETE, TRUNCATE'), false) AS may_alter,
       coalesce(has_table_privilege(to_regclass('public.agent_outcome'), 'INSERT, UPDATE, DELETE, TRUNCATE'), false) AS may_score,
       coalesce(has_function_privilege(to_regprocedure('public.imem_curates_v1()'), 'EXECUTE'), false) AS may_settle
FROM pg_proc
WHERE proname = 'imem_append_v1'

-- doctor_oldest_writer --
-- The transaction that has written and has been open longest: it holds the safe horizon back. No row without one.
-- Columns: pid, role, application, age_s.
SELECT pid, usename AS role, application_name AS application,
       extract(epoch FROM clock_timestamp() - xact_start)::double precision AS age_s
FROM pg_stat_activity
WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
ORDER BY xact_start
LIMIT 1

-- doctor_horizon --
-- Whether the horizon's function, which runs as its owner, is shown when our transactions began. Columns: owner, sees.
SELECT pg_get_userbyid(proowner) AS owner,
       pg_has_role(proowner, 'pg_read_all_stats', 'USAGE') OR pg_has_role(proowner, session_user, 'USAGE') AS sees
FROM pg_proc
WHERE proname = 'imem_safe_horizon'

-- doctor_clock --
-- By how much the newest event is dated later than the journal's clock, in seconds; no row in an empty journal. Columns: ahead_s.
SELECT extract(epoch FROM recorded_at - imem_now())::double precision AS ahead_s
FROM event
ORDER BY recorded_at DESC
LIMIT 1

-- doctor_errors --
-- Errors of checkpoints of which the last came within a day. Columns: name, store, total, last_at, last_reason.
SELECT name, store, total, last_at, last_reason FROM workflow.error_counter
WHERE last_at > imem_now() - interval '1 day' ORDER BY name, store

-- doctor_oldest_score --
-- When the oldest score was made, and the present moment: a nightly recomputation must have looked at it since.
SELECT min(scored_at) AS since, imem_now() AS now FROM agent_outcome

-- clock_ahead --
-- By how much the journal's time is ahead of the server's, in seconds: other than 0 in a trial stack alone. Columns: ahead_s.
SELECT extract(epoch FROM imem_clock_ahead())::bigint AS ahead_s

-- advance_clock --
-- Lets the journal's time be ahead by so many seconds, as the owner; returns by how much it is. Columns: ahead_s.
SELECT extract(epoch FROM imem_advance_clock(make_interval(secs => %(ahead_s)s)))::bigint AS ahead_s

-- doctor_texts --
-- A sample of the texts that are searched: memories with the newest ids, and texts of records, whose ids are random. Parameters: limit (of
-- each). Columns: text, its beginning.
(SELECT left(m.content, 1000) AS text FROM recall.memory AS m
 WHERE m.superseded_at IS NULL AND m.content <> '' ORDER BY m.id DESC LIMIT %(limit)s)
UNION ALL
(SELECT left(t.content, 1000) FROM recall.record_text AS t WHERE t.superseded_at IS NULL ORDER BY t.id DESC LIMIT %(limit)s)
