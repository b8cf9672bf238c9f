-- limit_statement --
-- Statement timeout of this connection, in milliseconds: the server itself keeps the caller's deadline. Second parameter: what a
-- whole transaction may take, where the server can bound that (Postgres 17).
SELECT set_config('statement_timeout', %s, false),
    CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN set_config('transaction_timeout', %s, false) END

-- ping --
-- Whether the server answers anything.
SELECT 1 AS answers
