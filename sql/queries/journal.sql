-- append --
-- Arrays travel in binary: as text, quoting them would cost the client more than all its other work.
-- Appends a batch of one actor; see imem_append_v1 in the migrations. Columns: line, status, position, event_id, recorded_at.
SELECT line, status, position, event_id, recorded_at
FROM imem_append_v1(
    %(actor)s, %(role)s, %(may_import)s, %(context)s::jsonb,
    %(event_id)b::uuid[], %(kind)b::text[], %(head_kind)b::text[], %(key)b::text[], %(payload)b::text[], %(body)b::text[],
    %(payload_hash)b::bytea[], %(occurred_at)b::timestamptz[], %(known_at)b::timestamptz[], %(analysis_id)b::text[],
    %(subject_id)b::text[], %(metric)b::text[], %(target_at)b::timestamptz[], %(ref_hash)b::bytea[], %(importance)b::real[],
    %(tier)b::smallint[], %(turns)b::text[], %(group_line)b::integer[], %(group)b::text[], %(group_hash)b::bytea[])

-- set_lock_epoch --
-- Says, for this transaction, under which epoch the actor's writes were locked by whoever writes now.
SELECT set_config('imem.lock_epoch', %s, true)

-- audit --
-- One audit row for what is no journal write: a denial, a read of patterns.
SELECT imem_audit_v1(
    %(actor)s, %(role)s, %(resource_type)s, %(resource_id)s, %(action)s, %(authorized)s, %(reason)s,
    %(context)s::jsonb, %(outcome)s)

-- audit_patterns --
-- The row of a read of patterns that was granted, and the epoch of their status, which whoever may read needs next. The row
-- is there for everybody at once, and the disk is not waited for: whatever is committed durably after it takes it along, so
-- that a crash of the server can lose the rows of the last half second at most, and none of a read from which something that
-- is still there has followed.
SELECT set_config('synchronous_commit', 'off', true), imem_audit_v1(
    %(actor)s, %(role)s, %(resource_type)s, %(resource_id)s, %(action)s, %(authorized)s, %(reason)s,
    %(context)s::jsonb, %(outcome)s), (SELECT epoch FROM pattern_epoch) AS epoch

-- count_undelivered --
-- How many of the given positions the graph does not hold yet, and how many it never will.
SELECT count(*) FILTER (WHERE state IN ('pending', 'dispatched')) AS waiting, count(*) FILTER (WHERE state = 'dead') AS dead
FROM delivery WHERE position = ANY(%(positions)s::bigint[])

-- safe_horizon --
-- The last moment of which everything recorded is committed and applied, and the present moment.
SELECT imem_safe_horizon() AS horizon, imem_journal_now() AS now

-- note_context --
-- Notes in which trace and under which correlation id events were recorded, in the transaction that records them.
SELECT imem_note_context_v1(%(positions)s::bigint[], %(traceparents)s::text[], %(correlation_ids)s::text[])

-- event_traces --
-- The traces in which events were recorded; those without one are left out. Columns: position, traceparent.
SELECT position, traceparent FROM event_context WHERE position = ANY (%(positions)s::bigint[]) AND traceparent IS NOT NULL
