-- Subjects are found by their names, as they were called at a moment: a company by that of its profile, a question by what it asks.
CREATE INDEX event_of_name ON event USING hash ((coalesce(payload #>> '{groups,profile,name}', payload #>> '{core,question}')))
    WHERE kind IN ('record.Company', 'record.Market', 'correct.Market');

CREATE FUNCTION imem_name_of_subject_v1(p_kind text, p_key text, p_known_until timestamptz, p_recorded_until timestamptz)
RETURNS TABLE (name text)
LANGUAGE sql STABLE
AS $$
-- What a subject was called at a moment: by the last profile of a company; by the core of a question, or what corrected it. No row
-- where nothing was said of it. It returns a table so that the planner takes it apart.
SELECT coalesce(e.payload #>> '{groups,profile,name}', e.payload #>> '{core,question}')
FROM record_history AS y JOIN event AS e ON e.position = y.position
WHERE y.kind = p_kind AND y.key = p_key AND y.known_at <= p_known_until AND y.recorded_at <= p_recorded_until
  AND (CASE p_kind WHEN 'Company' THEN y.grp = 'profile' ELSE y.grp IN ('core', 'correction') END)
ORDER BY y.grp = 'correction' DESC, CASE WHEN y.grp = 'core' THEN NULL ELSE y.order_key END DESC NULLS LAST, y.order_key LIMIT 1
$$;
