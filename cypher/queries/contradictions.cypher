// source_credibility //
// The credibility record of one source of data.
// parameters: source (string), limit (int)
// columns: source (map)
// order: one row; none when the source is unknown
// as_of: no
MATCH (s:SourceCredibility {source_name: $given.source})
WHERE s.known_at IS NOT NULL
RETURN properties(s) AS source
LIMIT $given.limit

// contradictions_for_gate3 //
// Critical contradictions whose value is provisional and that no gate has reviewed.
// parameters: limit (int)
// columns: contradiction (map)
// order: timestamp, oldest first, then id
// as_of: no
MATCH (c:DataContradiction {priority: 'CRITICAL'})
WHERE c.provisional AND NOT c.reviewed_at_gate3
RETURN properties(c) AS contradiction
ORDER BY c.timestamp, c.id
LIMIT $given.limit

// source_win_rate //
// In how many of the contradictions that a source took part in, and that some source decided, it was the one believed; beside its
// base accuracy.
// parameters: source (string), limit (int)
// columns: source (string), won (int), decided (int), win_rate (float, 0-1, or null when none was decided), base_accuracy (float, 0-1, or null)
// order: one row; none when the source is unknown
// as_of: no
MATCH (s:SourceCredibility {source_name: $given.source})
CALL (s) {
    MATCH (c:DataContradiction)
    WHERE c.source_a = s.source_name OR c.source_b = s.source_name
    MATCH (c)-[:RESOLVED_BY_SOURCE]->(by:SourceCredibility)
    RETURN count(CASE WHEN by = s THEN 1 END) AS won, count(c) AS decided
}
RETURN s.source_name AS source, won, decided, CASE WHEN decided > 0 THEN toFloat(won) / decided END AS win_rate,
    s.base_accuracy AS base_accuracy
LIMIT $given.limit

// contradictions_arbitrated //
// Contradictions that a person decided; those that still wait for one are of the same level.
// parameters: since (datetime, of the contradiction), limit (int)
// columns: contradiction (map)
// order: timestamp descending, then id
// as_of: no
MATCH (c:DataContradiction {resolution_level: '3_human'})
WHERE c.timestamp >= $given.since AND c.status <> 'queued'
RETURN properties(c) AS contradiction
ORDER BY c.timestamp DESC, c.id
LIMIT $given.limit
