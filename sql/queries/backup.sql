-- backup_lock --
-- Takes the lock under which one process at a time backs up or verifies this journal; false where another one has it. The session holds it.
SELECT pg_try_advisory_lock(hashtext('imem.backup')) AS taken

-- backup_counter --
-- Makes a function of this session that counts the rows of every table that is no extension's. As a function of the session it counts
-- those of any schema, an older one included.
CREATE OR REPLACE FUNCTION pg_temp.imem_row_counts() RETURNS TABLE (name text, number bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_table record;
BEGIN
    FOR v_table IN
        SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relkind = 'r' AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
          AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
        ORDER BY 1, 2
    LOOP
        name := v_table.nspname || '.' || v_table.relname;
        EXECUTE format('SELECT count(*) FROM %I.%I', v_table.nspname, v_table.relname) INTO number;
        RETURN NEXT;
    END LOOP;
END
$$

-- backup_row_counts --
-- The number of rows of each table, by schema and name; backup_counter comes before.
SELECT name, number FROM pg_temp.imem_row_counts()

-- backup_snapshot --
-- The snapshot of this transaction, for pg_dump; and what the journal holds in it.
SELECT pg_export_snapshot() AS snapshot, current_setting('server_version') AS server,
    (SELECT id::text FROM journal_identity) AS journal, (SELECT coalesce(max(position), 0) FROM event) AS position

-- backup_roles --
-- The roles that have rights in this database beside their owner, which a restore needs by name.
SELECT DISTINCT r.rolname AS name
FROM pg_shdepend AS d JOIN pg_roles AS r ON r.oid = d.refobjid
WHERE d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND d.refclassid = 'pg_authid'::regclass AND d.deptype = 'a'
ORDER BY 1

-- backup_progress --
-- How many events there are, and how many of them the graph does not hold yet.
SELECT (SELECT count(*) FROM event) AS events, (SELECT count(*) FROM delivery WHERE state = 'pending') AS pending

-- restore_target --
-- Of a database that is to be restored into: its server's version, other sessions in it, and whether this login may make roles.
SELECT current_setting('server_version_num')::integer AS version, r.rolcreaterole OR r.rolsuper AS makes_roles,
    (SELECT count(*) FROM pg_stat_activity AS a
     WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend') AS sessions
FROM pg_roles AS r WHERE r.rolname = current_user

-- restore_extension --
-- What the dump leaves out, since on many servers only an administrator may make it.
CREATE EXTENSION IF NOT EXISTS vector

-- restore_database_drop --
-- Removes a database.
DROP DATABASE IF EXISTS {database} WITH (FORCE)

-- restore_database_create --
-- Makes a database.
CREATE DATABASE {database}

-- restore_missing_roles --
-- Those of some roles that this server does not have. Parameter: their names.
SELECT w.name FROM unnest(%(names)s::text[]) AS w (name) WHERE NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = w.name) ORDER BY 1

-- restore_role_create --
-- Makes a role that cannot log in.
CREATE ROLE {role} NOLOGIN

-- restore_role_revoke --
-- Takes from a role what the dump gave it: here other roles have these rights. The name comes in a setting: DO takes no parameters.
DO $$
DECLARE
    v_role text := current_setting('imem.role');
    v_schema text;
    v_statement text;
BEGIN
    FOR v_schema IN
        SELECT n.nspname FROM pg_namespace AS n WHERE n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
    LOOP
        FOREACH v_statement IN ARRAY ARRAY[
            'REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I', 'REVOKE ALL ON ALL SEQUENCES IN SCHEMA %I FROM %I',
            'REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM %I', 'REVOKE ALL ON SCHEMA %I FROM %I'
        ] LOOP
            EXECUTE format(v_statement, v_schema, v_role);
        END LOOP;
    END LOOP;
END
$$

-- restore_role_drop --
-- Removes a role that has no rights any more.
DROP ROLE {role}

-- export_events --
-- The events of the journal that the load format can state, in its order: those of one value at one moment in the order in which they
-- count, which is by actor; as lines of one source they count in the order of the file. Notices are no lines.
SELECT e.kind, e.record_key, e.payload, e.body, e.occurred_at, e.known_at,
    (SELECT json_agg(json_strip_nulls(json_build_object(
        'number', t.number, 'stage', t.stage, 'speaker', t.speaker, 'stance', t.stance, 'text', t.text,
        'cites', CASE WHEN cardinality(t.cites) > 0 THEN t.cites END)) ORDER BY t.number)
     FROM debate_turn AS t WHERE t.debate_id = e.record_key AND t.position = e.position) AS turns
FROM event AS e
CROSS JOIN LATERAL (
    SELECT greatest(e.position, max(later.position)) AS place
    FROM record_history AS y JOIN record_history AS later
        ON later.kind = y.kind AND later.key = y.key AND later.grp = y.grp AND later.known_at = y.known_at
       AND later.order_key < y.order_key AND later.actor <> y.actor
    WHERE y.kind = CASE WHEN e.kind LIKE 'link.%' THEN e.kind ELSE split_part(e.kind, '.', 2) END
      AND y.key = e.record_key AND y.position = e.position
) AS p
WHERE e.kind NOT LIKE 'notice.%'
ORDER BY p.place, e.order_key

-- export_size --
-- How many events the export has, and the last of them.
SELECT count(*) AS events, coalesce(max(position), 0) AS position FROM event WHERE kind NOT LIKE 'notice.%'

-- export_memories --
-- What every memory says now, in the order of its conversation or of its making. Items of LangGraph's store are none.
SELECT id::text, namespace, content, memory_type, metadata, importance, user_id, conversation_id, author, occurred_at, created_at
FROM recall.memory WHERE superseded_at IS NULL AND item_key IS NULL
ORDER BY namespace, conversation_id NULLS FIRST, ordinal, created_at, id
