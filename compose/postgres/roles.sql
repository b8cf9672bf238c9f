-- Makes the roles that the application, curators and pipelines log in as, or gives them the passwords of their files again; they own
-- nothing. Rights come with `imem migrate`. Run by psql as the owner, before each of its runs; a statement that fails is not
-- logged with its text.
\set ON_ERROR_STOP on
SET log_min_error_statement = 'panic';
\set password `cat /run/secrets/postgres_app_password`
SELECT 'CREATE ROLE imem_app' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'imem_app') \gexec
ALTER ROLE imem_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'password';
\set password `cat /run/secrets/postgres_curators_password`
SELECT 'CREATE ROLE imem_curators' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'imem_curators') \gexec
ALTER ROLE imem_curators LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'password';
\set password `cat /run/secrets/postgres_pipelines_password`
SELECT 'CREATE ROLE imem_pipelines' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'imem_pipelines') \gexec
ALTER ROLE imem_pipelines LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'password';
