-- append --
-- Appends a batch of one actor; see imem_append_v1 in the migrations. Columns: line, status, position, event_id, recorded_at.
SELECT line, status, position, event_id, recorded_at
FROM imem_append_v1(
    %(actor)s, %(role)s, %(may_import)s, %(context)s::jsonb,
    %(event_id)s::uuid[], %(kind)s::text[], %(head_kind)s::text[], %(key)s::text[], %(payload)s::text[], %(body)s::text[],
    %(payload_hash)s::bytea[], %(occurred_at)s::timestamptz[], %(known_at)s::timestamptz[], %(analysis_id)s::text[],
    %(subject_id)s::text[], %(metric)s::text[], %(target_at)s::timestamptz[], %(ref_hash)s::bytea[], %(importance)s::real[],
    %(tier)s::smallint[], %(turns)s::text[], %(group_line)s::integer[], %(group)s::text[], %(group_hash)s::bytea[])

-- audit --
-- One audit row for what is no journal write: a denial, a read of patterns.
SELECT imem_audit_v1(
    %(actor)s, %(role)s, %(resource_type)s, %(resource_id)s, %(action)s, %(authorized)s, %(reason)s,
    %(context)s::jsonb, %(outcome)s)

-- undelivered --
-- How many of the given positions the graph does not hold yet, and how many it never will.
SELECT count(*) FILTER (WHERE state IN ('pending', 'dispatched')) AS waiting, count(*) FILTER (WHERE state = 'dead') AS dead
FROM delivery WHERE position = ANY(%(positions)s::bigint[])

-- safe_horizon --
-- The last moment of which everything recorded is committed and applied, and the present moment.
SELECT imem_safe_horizon() AS horizon, imem_now() AS now
