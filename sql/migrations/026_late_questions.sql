-- An analysis of a market is compared by the market's question too. A question that is stated after the analysis gives it a second
-- vector, from when both were known: which came first does not decide what an analysis is compared by.
ALTER TABLE embedding ADD COLUMN question bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN embedding.question IS 'Position of the statement of a question that was stated after the record and stands in the text; 0 for none.';
ALTER TABLE embedding DROP CONSTRAINT embedding_pkey, ADD PRIMARY KEY (model, kind, key, position, question);

INSERT INTO similarity_due (position, key, later)
SELECT m.position, a.key, true FROM record_head AS a
JOIN record_head AS m ON m.kind = 'Market' AND m.grp = 'core' AND a.subject_id = 'market:' || m.key AND m.position > a.position
WHERE a.kind = 'Analysis' AND a.grp = 'core'
ON CONFLICT (position, key) DO NOTHING;
