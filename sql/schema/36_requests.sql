-- Answers to requests that named themselves, so that a repeat has no second effect: schema workflow, which the application writes.

CREATE TABLE workflow.answered_request (
    actor_id   text COLLATE "C" NOT NULL CHECK (length(actor_id) BETWEEN 1 AND 260),
    name       text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    digest     bytea NOT NULL,
    attempt    uuid NOT NULL,
    begun_at   timestamptz NOT NULL DEFAULT imem_now(),
    answer     bytea,
    PRIMARY KEY (actor_id, name)
);
CREATE INDEX answered_request_by_time ON workflow.answered_request (begun_at);
COMMENT ON TABLE workflow.answered_request IS 'Requests with an idempotency key of the last 24 hours; the answer is NULL while one is being answered.';
COMMENT ON COLUMN workflow.answered_request.digest IS 'SHA-256 of what was asked: another request under the same key is refused.';
COMMENT ON COLUMN workflow.answered_request.attempt IS 'Which of several attempts has the key; one that died gives it up after a minute.';
