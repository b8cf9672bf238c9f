-- append --
-- Appends a batch of one actor; see imem_append_v1 in sql/schema. Arrays travel in binary: quoting them as text would cost
-- the client more than all its other work. Columns: line, status, position, event_id, recorded_at.
SELECT line, status, position, event_id, recorded_at
FROM imem_append_v1(
    %(actor)s, %(role)s, %(may_import)s, %(context)s::jsonb,
    %(event_id)b::uuid[], %(kind)b::text[], %(head_kind)b::text[], %(key)b::text[], %(payload)b::text[], %(body)b::text[],
    %(payload_hash)b::bytea[], %(occurred_at)b::timestamptz[], %(known_at)b::timestamptz[], %(analysis_id)b::text[],
    %(subject_id)b::text[], %(metric)b::text[], %(target_at)b::timestamptz[], %(ref_hash)b::bytea[], %(importance)b::real[],
    %(tier)b::smallint[], %(turns)b::text[], %(group_line)b::integer[], %(group)b::text[], %(group_hash)b::bytea[])

-- set_lock_epoch --
-- Sets, for this transaction, the epoch of the lock on the actor's writes that the writer holds.
SELECT set_config('imem.lock_epoch', %s, true)

-- audit --
-- One audit row for what is no journal write, such as a denial or a read of patterns.
SELECT imem_audit_v1(
    %(actor)s, %(role)s, %(resource_type)s, %(resource_id)s, %(action)s, %(authorized)s, %(reason)s,
    %(context)s::jsonb, %(outcome)s)

-- audit_patterns --
-- Writes the audit row of a granted read of patterns, and returns the epoch of their status. The row is visible to other
-- sessions at once. Its commit does not wait for the disk (synchronous_commit off): a crash of the server can lose the rows of
-- the last half second, but none that a later durable commit follows.
SELECT set_config('synchronous_commit', 'off', true), imem_audit_v1(
    %(actor)s, %(role)s, %(resource_type)s, %(resource_id)s, %(action)s, %(authorized)s, %(reason)s,
    %(context)s::jsonb, %(outcome)s), (SELECT epoch FROM pattern_epoch) AS epoch

-- count_undelivered --
-- Counts the given positions that the graph does not hold yet, and those that are dead.
SELECT count(*) FILTER (WHERE state = 'pending') AS waiting, count(*) FILTER (WHERE state = 'dead') AS dead
FROM delivery WHERE position = ANY(%(positions)s::bigint[])

-- safe_horizon --
-- The safe horizon (everything recorded up to it is committed and applied), and the present time.
SELECT imem_safe_horizon() AS horizon, imem_journal_now() AS now

-- note_context --
-- Stores the traces and correlation ids of events, in the transaction that records them.
SELECT imem_note_context_v1(%(positions)s::bigint[], %(traceparents)s::text[], %(correlation_ids)s::text[])

-- event_traces --
-- The traces of events; those without one are left out. Columns: position, traceparent.
SELECT position, traceparent FROM event_context WHERE position = ANY (%(positions)s::bigint[]) AND traceparent IS NOT NULL
