// begin_rebuild //
// Marks an empty graph as one that is being made anew: every event up to the last one marked applied is in it.
// Returns whether the mark is there. Parameter: now (RFC 3339 text).
OPTIONAL MATCH (other) WHERE NOT other:SchemaVersion
WITH other LIMIT 1
FOREACH (_ IN CASE WHEN other IS NULL THEN [1] ELSE [] END |
    MERGE (mark:AppliedEvent {event_id: 'rebuild'}) ON CREATE SET mark.position = 0, mark.applied_at = datetime($given.now))
WITH other
OPTIONAL MATCH (mark:AppliedEvent {event_id: 'rebuild'})
RETURN mark IS NOT NULL AS begun

// end_rebuild //
// Takes the mark away: from now on the applier writes this graph.
MATCH (mark:AppliedEvent {event_id: 'rebuild'}) DELETE mark

// applied_end //
// The last event that is in the graph: position, event_id.
MATCH (e:AppliedEvent) RETURN e.position AS position, e.event_id AS event_id ORDER BY e.position DESC LIMIT 1

// graph_identity //
// What tells one database from another.
CALL db.info() YIELD id RETURN id

// wipe_graph //
// Deletes some nodes with their links, but nothing of the schema's; returns how many. Parameter: limit (nodes).
MATCH (n) WHERE NOT n:SchemaVersion
WITH n LIMIT $given.limit
DETACH DELETE n
RETURN count(*) AS deleted
