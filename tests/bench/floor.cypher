// Bare statements: what the same rows cost without clocks, guards, histories or stubs.

// floor_nodes //
// Nodes by key, with their properties as they are. Rows: key, props.
UNWIND $rows AS row
MERGE (n:«label» {«key»: row.key})
SET n += row.props

// floor_links //
// Links between nodes by key. Rows: from, to, known_at (text).
UNWIND $rows AS row
MERGE (a:«from» {«from_key»: row.from})
MERGE (b:«to» {«to_key»: row.to})
MERGE (a)-[r:«type»]->(b)
SET r.known_at = row.known_at

// floor_applied //
// That an event is in. Rows: event_id, position.
UNWIND $rows AS row
MERGE (e:AppliedEvent {event_id: row.event_id})
SET e.position = row.position

// floor_one //
// One node in one transaction.
MERGE (n:BenchFloor {id: $id}) SET n.statement = $statement

// floor_clear //
// Nothing of the floor stays.
MATCH (n:BenchFloor) DETACH DELETE n
