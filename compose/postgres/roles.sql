-- Makes the role that the application logs in as, or gives it the password of its file again; it owns nothing. Rights come
-- with the migrations. Run by psql as the owner, before each migration; a statement that fails is not logged with its text.
\set ON_ERROR_STOP on
SET log_min_error_statement = 'panic';
\set password `cat /run/secrets/postgres_app_password`
SELECT 'CREATE ROLE imem_app' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'imem_app') \gexec
ALTER ROLE imem_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'password';
