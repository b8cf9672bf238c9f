-- What a write was part of: the trace of its caller, and what the caller calls its work. No part of the event, which is the same
-- whoever looks on; only writes that somebody follows have a row.

CREATE TABLE event_context (
    position       bigint PRIMARY KEY REFERENCES event,
    traceparent    text CHECK (traceparent ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'),
    correlation_id text CHECK (length(correlation_id) BETWEEN 1 AND 200),
    CHECK (traceparent IS NOT NULL OR correlation_id IS NOT NULL)
);
COMMENT ON TABLE event_context IS 'The trace (W3C) and the correlation id in which an event was recorded, where there were any. Written with it.';
CREATE INDEX event_context_of ON event_context (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON event_context
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

CREATE FUNCTION imem_note_context_v1(p_positions bigint[], p_traceparents text[], p_correlation_ids text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    -- Notes the context of events that were just recorded; what is noted once stays.
    INSERT INTO event_context (position, traceparent, correlation_id)
    SELECT g.position, g.traceparent, g.correlation_id
    FROM unnest(p_positions, p_traceparents, p_correlation_ids) AS g (position, traceparent, correlation_id)
    WHERE g.traceparent IS NOT NULL OR g.correlation_id IS NOT NULL
    ON CONFLICT DO NOTHING
$$;
