// agent_credibility_in //
// The present credibility record of one agent in one domain.
// parameters: agent (string), domain (string), limit (int)
// columns: credibility (map)
// order: one row; none when there is no record
// as_of: no (the journal has the record's history under its key, agent/domain)
MATCH (:Agent {name: $given.agent})-[:HAS_CREDIBILITY]->(c:AgentCredibility)-[:IN_DOMAIN]->(:Domain {name: $given.domain})
RETURN properties(c) AS credibility
ORDER BY c.id
LIMIT $given.limit

// accuracy_full_scan //
// Mean accuracy over every settled finding of an agent, from the edges: the reference for the incremental number. Of several
// vintages of an answer the newest counts, then the one known last, and none that was withdrawn; an abstention is counted and not
// scored.
// parameters: agent (string), domain (string, or null for all), limit (int)
// columns: agent (string), settled (int, findings), abstained (int, of them), accuracy (float, 0-1, or null when nothing was scored)
// order: agent
// as_of: no
MATCH (a:Agent {name: $given.agent})
OPTIONAL MATCH (a)-[:STATED]->(f:Finding)
WHERE f.domain = $given.domain OR $given.domain IS NULL
OPTIONAL MATCH (f)-[r:SETTLED_BY]->(o:Outcome) WHERE NOT coalesce(o.withdrawn, false)
WITH a, f, r, o ORDER BY o.vintage DESC, o.known_at DESC, o.id
WITH a, f, head(collect({correct: r.correct, settled: r IS NOT NULL})) AS newest
WITH a, collect(CASE WHEN newest.settled THEN newest END) AS verdicts
RETURN a.name AS agent, size(verdicts) AS settled,
    size([verdict IN verdicts WHERE verdict.correct IS NULL]) AS abstained,
    CASE WHEN any(verdict IN verdicts WHERE verdict.correct IS NOT NULL)
         THEN reduce(sum = 0.0, verdict IN verdicts | sum + coalesce(verdict.correct, 0.0))
              / size([verdict IN verdicts WHERE verdict.correct IS NOT NULL])
    END AS accuracy
ORDER BY agent
LIMIT $given.limit
