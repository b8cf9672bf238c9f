-- limit_statement --
-- Statement timeout of this connection, in milliseconds: the server itself keeps the caller's deadline.
SELECT set_config('statement_timeout', %s, false)
