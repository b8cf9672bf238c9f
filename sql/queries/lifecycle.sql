-- lifecycle_due --
-- Rows whose time is over, or that have a request without its effect, the longest waiting first.
SELECT kind, key FROM lifecycle
WHERE wake_at <= (SELECT imem_now()) AND kind = ANY (%(kinds)s::text[]) ORDER BY wake_at, kind, key LIMIT %(limit)s

-- lifecycle_claim --
-- Such a row, locked until the transaction ends; no row where another process has it, or was faster. Column now: the present moment.
SELECT *, imem_now() AS now FROM lifecycle
WHERE kind = %(kind)s AND key = %(key)s AND wake_at <= imem_now() FOR UPDATE SKIP LOCKED

-- lifecycle_move --
-- Enters a state, unless the row was changed since it was read; a request has its effect with it.
UPDATE lifecycle
SET state = %(state)s, version = version + 1, entered_at = imem_now(), due_at = %(due_at)s::timestamptz, data = %(data)s::jsonb,
    request = NULL, requested_at = NULL, failures = 0, retry_at = NULL
WHERE kind = %(kind)s AND key = %(key)s AND version = %(version)s
RETURNING *

-- lifecycle_drop_request --
-- Removes a request that no transition allows.
UPDATE lifecycle SET request = NULL, requested_at = NULL, version = version + 1, failures = 0, retry_at = NULL
WHERE kind = %(kind)s AND key = %(key)s

-- lifecycle_retry --
-- Puts a row off, by so many seconds; counts a failure if there was one.
UPDATE lifecycle
SET failures = failures + CASE WHEN %(failed)s THEN 1 ELSE 0 END, retry_at = imem_now() + make_interval(secs => %(seconds)s)
WHERE kind = %(kind)s AND key = %(key)s
RETURNING failures

-- lifecycle_request --
-- Stores a request, with its audit row; no row where the row was changed meanwhile, has a request, or its time is over.
SELECT * FROM request_transition_v1(
    %(kind)s, %(key)s, %(version)s, %(request)s::jsonb, %(after_due)s, %(actor)s, %(role)s, %(reason)s, %(context)s::jsonb)
