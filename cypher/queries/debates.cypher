// similar_debates //
// Debates on a topic, optionally of some resolution levels; `search` is made by imem.kg.queries.topic_search. A debate is similar when
// it matches at least half as well as the best.
// parameters: search (string, full-text expression, empty finds nothing), levels (list of strings, or null for any), limit (int)
// columns: debate (map), resolutions (list of maps; earliest known first, then by id, 20 at most), score (float, higher is nearer)
// order: timestamp descending, then id
// as_of: no (precedents as of a day search the vectors with a time filter)
WITH $given.search AS search WHERE search <> ''
CALL db.index.fulltext.queryNodes('debate_topic', search, {limit: 1000}) YIELD node, score
WITH node, score
WHERE node.known_at IS NOT NULL AND ($given.levels IS NULL OR node.resolution_level IN $given.levels)
WITH max(score) AS best, collect({d: node, score: score}) AS rows
UNWIND rows AS row
WITH row.d AS d, row.score AS score WHERE score >= best / 2
WITH d, score ORDER BY d.timestamp DESC, d.id LIMIT $given.limit
RETURN properties(d) AS debate,
    COLLECT {
        MATCH (d)-[:HAS_RESOLUTION]->(r:DebateResolution) WHERE r.known_at IS NOT NULL
        RETURN properties(r) ORDER BY r.known_at, r.id LIMIT 20
    } AS resolutions, score
ORDER BY d.timestamp DESC, d.id

// conservative_defaults_overridden //
// Debates that ended in the conservative default and were overridden by a person afterwards, one row an override.
// parameters: limit (int)
// columns: debate (map), resolution (map), human (string), overridden_at (datetime), rationale (string), correctness (float, 0-1, or null)
// order: overridden_at descending, then the debate's id, human
// as_of: no
MATCH (d:Debate)
WHERE d.defaulted_at IS NOT NULL
MATCH (d)-[:HAS_RESOLUTION]->(r:DebateResolution)<-[o:OVERRODE]-(h:Human)
WHERE o.at >= d.defaulted_at
RETURN properties(d) AS debate, properties(r) AS resolution, h.id AS human, o.at AS overridden_at,
    coalesce(o.rationale, r.override_rationale) AS rationale, r.outcome_correctness AS correctness
ORDER BY overridden_at DESC, d.id, human
LIMIT $given.limit

// facilitator_success_rate //
// How often a facilitator's decision proved right, over those whose accuracy is tracked and known.
// parameters: limit (int)
// columns: debates (int), mean_correctness (float, 0-1, or null when there is none)
// order: one row
// as_of: no
MATCH (d:Debate {resolution_level: '2_facilitator'})-[:HAS_RESOLUTION]->(r:DebateResolution)
WHERE r.accuracy_tracked AND r.outcome_correctness IS NOT NULL
RETURN count(r) AS debates, avg(r.outcome_correctness) AS mean_correctness
LIMIT $given.limit
