-- What is stated today is compared before what was imported, and before what one statement asks of very many analyses: such work
-- may take an hour, and somebody waits for today's.
ALTER TABLE similarity_due ADD COLUMN later boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN similarity_due.later IS 'Whether it has time: history that was imported, or one statement about many analyses.';

UPDATE similarity_due AS d SET later = true FROM event AS e
WHERE e.position = d.position AND (e.imported OR e.kind IN ('record.Pattern', 'record.Company'));

CREATE INDEX similarity_due_in_turn ON similarity_due (later, position, key);

CREATE OR REPLACE FUNCTION imem_similarity_due() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- What an analysis says, what is claimed in it, and which active patterns were seen in it, is what it is compared by.
BEGIN
    INSERT INTO similarity_due (position, key, later)
    SELECT DISTINCT d.position, d.key, d.later FROM (
        SELECT a.position, a.imported AS later, CASE
            WHEN a.kind IN ('record.Analysis', 'correct.Analysis') THEN a.record_key
            WHEN a.kind = 'record.Finding' AND a.payload -> 'core' ->> 'metric' IS NOT NULL THEN a.analysis_id
            WHEN a.kind = 'link.IDENTIFIED_PATTERN' THEN a.payload ->> 'from_key'
        END AS key FROM added AS a
        UNION ALL
        SELECT a.position, true, l.payload ->> 'from_key' FROM added AS a
        JOIN event AS l ON l.kind = 'link.IDENTIFIED_PATTERN' AND l.payload ->> 'to_key' = a.record_key
        WHERE a.kind = 'record.Pattern' AND a.payload -> 'groups' -> 'status' IS NOT NULL
    ) AS d WHERE d.key IS NOT NULL;
    RETURN NULL;
END
$$;
