-- limit_statement --
-- Sets this connection's statement timeout in milliseconds, and the transaction timeout where the server has one (Postgres 17).
SELECT set_config('statement_timeout', %s, false),
    CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN set_config('transaction_timeout', %s, false) END

-- ping --
-- Whether the server answers.
SELECT 1 AS answers
