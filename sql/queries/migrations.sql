-- lock_migrations --
-- Lock of migrations, released with the session.
SELECT pg_advisory_lock(%s)

-- has_schema_version --
-- NULL where no migration was ever applied.
SELECT to_regclass('public.schema_version')

-- create_schema_version --
-- The table of applied migrations.
CREATE TABLE IF NOT EXISTS schema_version (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    sha256     char(64) NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)

-- schema_versions --
-- The applied migrations: number and SHA-256.
SELECT number, sha256 FROM schema_version ORDER BY number

-- add_schema_version --
-- Runs in the migration's own transaction.
INSERT INTO schema_version (number, name, sha256) VALUES (%s, %s, %s)

-- clear_curated_facts --
-- Forgets which facts curators alone state, before they are declared anew.
DELETE FROM curated_fact

-- declare_curated_facts --
-- Declares which facts curators alone state. Parameters: kinds, groups: of a kind, * for all.
INSERT INTO curated_fact (head_kind, grp) SELECT * FROM unnest(%(kinds)s::text[], %(groups)s::text[])

-- grant_application --
-- Grants the application's role its rights, after every migration.
SELECT imem_grant_application(%s)

-- grant_curators --
-- Gives the curators' role its rights, again after every migration.
SELECT imem_grant_curators(%s)

-- grant_pipelines --
-- Gives the pipelines' role its rights, again after every migration.
SELECT imem_grant_pipelines(%s)

-- audit_partitions --
-- Creates the audit's partitions of the months to come, and moves rows that were written before. Column: made.
SELECT imem_audit_partitions() AS made
