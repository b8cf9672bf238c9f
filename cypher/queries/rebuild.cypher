// begin_rebuild //
// Marks an empty graph as the target of a rebuild: every event up to the last one marked applied is in it. Returns whether the
// mark is there. Parameter: now (RFC 3339 text).
OPTIONAL MATCH (other) WHERE NOT other:SchemaVersion
WITH other LIMIT 1
FOREACH (_ IN CASE WHEN other IS NULL THEN [1] ELSE [] END |
    MERGE (mark:AppliedEvent {event_id: 'rebuild'}) ON CREATE SET mark.position = 0, mark.applied_at = datetime($given.now))
WITH other
OPTIONAL MATCH (mark:AppliedEvent {event_id: 'rebuild'})
RETURN mark IS NOT NULL AS begun

// end_rebuild //
// Removes the mark of a rebuild: from now on the applier writes this graph.
MATCH (mark:AppliedEvent {event_id: 'rebuild'}) DELETE mark

// applied_end //
// The last event that is in the graph: position, event_id.
MATCH (e:AppliedEvent) RETURN e.position AS position, e.event_id AS event_id ORDER BY e.position DESC LIMIT 1

// graph_identity //
// The identity of the database.
CALL db.info() YIELD id RETURN id

// wipe_graph //
// Deletes some nodes with their links, except those of the schema and the journal's mark, which says that the graph is
// incomplete; returns how many. Parameter: limit (nodes).
MATCH (n) WHERE NOT n:SchemaVersion AND NOT (n:AppliedEvent AND n.event_id = 'journal')
WITH n LIMIT $given.limit
DETACH DELETE n
RETURN count(*) AS deleted

// projection //
// The journal that the graph projects, and how far. Columns: journal (its identity, null before an applier has written it),
// incomplete (whether a wipe has begun and not ended), events, position (of the last one, 0 where there is none).
OPTIONAL MATCH (mark:AppliedEvent {event_id: 'journal'})
OPTIONAL MATCH (e:AppliedEvent) WHERE e.position > 0
WITH mark, count(e) AS events, max(e.position) AS position
RETURN mark.journal AS journal, coalesce(mark.incomplete, false) AS incomplete, events, coalesce(position, 0) AS position

// holds_event //
// Whether the graph holds an event at a position. Parameters: event_id, position.
OPTIONAL MATCH (e:AppliedEvent {event_id: $given.event_id})
RETURN e.position = $given.position AS holds

// mark_journal //
// Sets the journal that the graph projects, or that it is being wiped. Parameters: journal, incomplete, now.
MERGE (mark:AppliedEvent {event_id: 'journal'})
ON CREATE SET mark.position = 0, mark.applied_at = datetime($given.now)
SET mark.journal = $given.journal, mark.incomplete = $given.incomplete
