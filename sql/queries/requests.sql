-- request_begun --
-- Takes the key for an attempt, or says what is known of it. Forgets keys of more than a day ago, some at a time.
-- One row: mine (the attempt has the key), same (it is the same request), answer (NULL while there is none).
WITH past AS (
    DELETE FROM workflow.answered_request AS r USING (
        SELECT o.actor_id, o.name FROM workflow.answered_request AS o
        WHERE o.begun_at < imem_now() - interval '24 hours' ORDER BY o.begun_at LIMIT 100 FOR UPDATE SKIP LOCKED
    ) AS g
    WHERE r.actor_id = g.actor_id AND r.name = g.name AND (r.actor_id, r.name) <> (%(actor)s, %(name)s)
), taken AS (
    INSERT INTO workflow.answered_request AS r (actor_id, name, digest, attempt)
    VALUES (%(actor)s, %(name)s, %(digest)s, %(attempt)s)
    ON CONFLICT (actor_id, name) DO UPDATE
    SET attempt = excluded.attempt, begun_at = imem_now(), digest = excluded.digest, answer = NULL
    WHERE r.begun_at < imem_now() - interval '24 hours'
       OR (r.answer IS NULL AND r.digest = excluded.digest AND r.begun_at < imem_now() - interval '1 minute')
    RETURNING true AS mine
)
SELECT true AS mine, true AS same, NULL::bytea AS answer FROM taken
UNION ALL
SELECT false, r.digest = %(digest)s, r.answer FROM workflow.answered_request AS r
WHERE r.actor_id = %(actor)s AND r.name = %(name)s AND NOT EXISTS (SELECT FROM taken)

-- request_answered --
-- Stores the answer of the attempt that has the key.
UPDATE workflow.answered_request SET answer = %(answer)s
WHERE actor_id = %(actor)s AND name = %(name)s AND attempt = %(attempt)s

-- request_refused --
-- Gives the key up: nothing was done under it.
DELETE FROM workflow.answered_request
WHERE actor_id = %(actor)s AND name = %(name)s AND attempt = %(attempt)s AND answer IS NULL
