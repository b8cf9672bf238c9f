-- stack_role --
-- Makes a role that the application or the pipelines log in as, or gives it this password again; it owns nothing. Its rights
-- come with `imem migrate`. DO takes no parameters, so name and SCRAM verifier (never the password) come in settings of the session.
DO $$
DECLARE
    name text := current_setting('imem.role');
    verifier text := current_setting('imem.verifier');
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
        EXECUTE format('CREATE ROLE %I', name);
    END IF;
    EXECUTE format('ALTER ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD %L', name, verifier);
END
$$

-- stack_setting --
-- Sets a setting of this session. Parameters: name, value.
SELECT set_config(%s, %s, false)

-- stack_has_database --
-- Whether a database exists. Parameter: its name.
SELECT EXISTS (SELECT FROM pg_database WHERE datname = %s)

-- stack_create_database --
-- Makes the product's database; cannot run in a transaction or with a parameter.
CREATE DATABASE imem
