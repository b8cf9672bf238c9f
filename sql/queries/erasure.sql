-- erase_begin --
-- Lets no event be appended until the transaction ends; waits a minute for those that are.
SELECT imem_hold_events_v1()

-- erase --
-- Replaces terms everywhere, or counts them; see imem_erase_v1. Parameters: terms, pseudonym, change.
SELECT * FROM imem_erase_v1(%(terms)s::text[], %(pseudonym)s, %(change)s)

-- erasable_events --
-- The positions of the events that hold one of the terms, as ranges, and how many these are.
SELECT coalesce(range_agg(int8range(e.position, e.position, '[]')), '{}')::text AS positions, count(*) AS events
FROM event AS e CROSS JOIN (SELECT imem_term_pattern_v1(%(terms)s::text[]) AS pattern) AS t
WHERE e.payload::text ~* t.pattern OR e.body ~* t.pattern OR e.actor ~* t.pattern OR e.record_key ~* t.pattern OR e.analysis_id ~* t.pattern
