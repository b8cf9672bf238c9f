// Statements that find every row by its key keep the plan that was first made of them (replan=skip): it stays the best one
// however large the graph, and an import that multiplies the graph does not have the server make it anew each time.

// write_core //
// Facts recorded once. All statements of one core are equal; the earliest known one gives the node its clocks, and its content
// unless there is a correction. Rows: key, subject (subject_id or null), order, position, recorded_at, known_at, occurred_at
// (text), props, times (pairs of property and text). «label» the kind, «also» a second label or the same, «key» its key
// property. A node that was pruned keeps nothing of its detail, in whatever order the events come: dropped (map of the properties
// that go to null).
CYPHER replan=skip
UNWIND $given.rows AS row
MERGE (n:«label» {«key»: row.key})
SET n:«also», n.subject_id = coalesce(row.subject, n.subject_id), n.stub = null
WITH n, row, n.core_order IS NULL OR row.order < n.core_order AS earliest, n.correction_order IS NULL AS uncorrected,
     n.position IS NULL OR row.position < n.position AS first
FOREACH (_ IN CASE WHEN uncorrected THEN [1] ELSE [] END |
    SET n += row.props
    FOREACH (time IN row.times | SET n[time[0]] = datetime(time[1])))
FOREACH (_ IN CASE WHEN earliest THEN [1] ELSE [] END |
    SET n.known_at = datetime(row.known_at), n.occurred_at = datetime(row.occurred_at), n.core_order = row.order)
FOREACH (_ IN CASE WHEN first THEN [1] ELSE [] END |
    SET n.recorded_at = datetime(row.recorded_at), n.position = row.position)
FOREACH (_ IN CASE WHEN n.archived THEN [1] ELSE [] END | SET n += $given.dropped)

// write_group //
// A whole property group, written if the statement is later than the present one by (known_at, actor, agent_seq); a correction
// of the core likewise. Rows: key, subject, order, props (absent fields null), times (with the group's clocks). «order» names
// the group's order property. A node without a core is a stub. Parameter: dropped, as above.
CYPHER replan=skip
UNWIND $given.rows AS row
MERGE (n:«label» {«key»: row.key})
ON CREATE SET n:«also», n.subject_id = row.subject, n.stub = true
WITH n, row
WHERE n.«order» IS NULL OR row.order > n.«order»
SET n += row.props
FOREACH (time IN row.times | SET n[time[0]] = datetime(time[1]))
FOREACH (_ IN CASE WHEN n.archived THEN [1] ELSE [] END | SET n += $given.dropped)

// write_stubs //
// Stubs for targets of links that others replaced in the same batch. Rows: key, subject.
CYPHER replan=skip
UNWIND $given.rows AS row
MERGE (n:«label» {«key»: row.key})
ON CREATE SET n:«also», n.subject_id = row.subject, n.stub = true

// mark_active_patterns //
// The second label of patterns that agents may see, set exactly while their status is active. Rows: key.
CYPHER replan=skip
UNWIND $given.rows AS row
MATCH (p:Pattern {pattern_id: row.key})
FOREACH (_ IN CASE WHEN p.status = 'active' THEN [1] ELSE [] END | SET p:ActivePattern)
FOREACH (_ IN CASE WHEN coalesce(p.status, '') <> 'active' THEN [1] ELSE [] END | REMOVE p:ActivePattern)

// project_credibility //
// The headline numbers of an agent's credibility in a domain, copied from its record to the edge. Rows: key.
CYPHER replan=skip
UNWIND $given.rows AS row
MATCH (c:AgentCredibility {id: row.key}) WHERE c.agent_id IS NOT NULL
MERGE (a:Agent {name: c.agent_id}) ON CREATE SET a.stub = true
MERGE (d:Domain {name: c.domain}) ON CREATE SET d.stub = true
MERGE (a)-[r:HAS_CREDIBILITY_IN]->(d)
SET r.overall_score = c.overall_score, r.sample_size = c.sample_size, r.recent_accuracy = c.recent_accuracy,
    r.posterior_mean = c.posterior_mean, r.posterior_lower = c.posterior_lower, r.posterior_upper = c.posterior_upper,
    r.known_at = c.score_known_at, r.recorded_at = c.score_recorded_at, r.occurred_at = c.score_known_at, r.position = c.score_position

// write_links //
// Links, one for (type, from, to); an end that does not exist yet becomes a stub. The latest statement gives the properties,
// the earliest the clocks, the first recorded its position. Rows: from, to, from_stub, to_stub (maps), order, first_order,
// position, recorded_at, known_at, occurred_at (text), props, times (pairs of property and text).
CYPHER replan=skip
UNWIND $given.rows AS row
MERGE (a:«from» {«from_key»: row.from})
ON CREATE SET a:«from_also», a += row.from_stub
MERGE (b:«to» {«to_key»: row.to})
ON CREATE SET b:«to_also», b += row.to_stub
MERGE (a)-[r:«type»]->(b)
WITH r, row, r.order IS NULL OR row.order > r.order AS latest, r.first_order IS NULL OR row.first_order < r.first_order AS earliest,
     r.position IS NULL OR row.position < r.position AS first
FOREACH (_ IN CASE WHEN latest THEN [1] ELSE [] END |
    SET r += row.props, r.order = row.order
    FOREACH (time IN row.times | SET r[time[0]] = datetime(time[1])))
FOREACH (_ IN CASE WHEN earliest THEN [1] ELSE [] END |
    SET r.known_at = datetime(row.known_at), r.occurred_at = datetime(row.occurred_at), r.first_order = row.first_order)
FOREACH (_ IN CASE WHEN first THEN [1] ELSE [] END |
    SET r.recorded_at = datetime(row.recorded_at), r.position = row.position)

// write_dated_links //
// As write_links, for links that one pair may bear often, told apart by the time «identity». Rows: also identity (text).
CYPHER replan=skip
UNWIND $given.rows AS row
MERGE (a:«from» {«from_key»: row.from})
ON CREATE SET a:«from_also», a += row.from_stub
MERGE (b:«to» {«to_key»: row.to})
ON CREATE SET b:«to_also», b += row.to_stub
MERGE (a)-[r:«type» {«identity»: datetime(row.identity)}]->(b)
WITH r, row, r.order IS NULL OR row.order > r.order AS latest, r.first_order IS NULL OR row.first_order < r.first_order AS earliest,
     r.position IS NULL OR row.position < r.position AS first
FOREACH (_ IN CASE WHEN latest THEN [1] ELSE [] END |
    SET r += row.props, r.order = row.order
    FOREACH (time IN row.times | SET r[time[0]] = datetime(time[1])))
FOREACH (_ IN CASE WHEN earliest THEN [1] ELSE [] END |
    SET r.known_at = datetime(row.known_at), r.occurred_at = datetime(row.occurred_at), r.first_order = row.first_order)
FOREACH (_ IN CASE WHEN first THEN [1] ELSE [] END |
    SET r.recorded_at = datetime(row.recorded_at), r.position = row.position)

// replace_links //
// Links of which a node has one at a time: the latest statement by (known_at, actor, agent_seq) is in the graph, the others are
// in the journal alone. One row a node in a call. Rows: as write_links.
CYPHER replan=skip
UNWIND $given.rows AS row
MERGE (a:«from» {«from_key»: row.from})
ON CREATE SET a:«from_also», a += row.from_stub
MERGE (b:«to» {«to_key»: row.to})
ON CREATE SET b:«to_also», b += row.to_stub
WITH a, b, row
OPTIONAL MATCH (a)-[old:«type»]->()
WITH a, b, row, collect(old) AS olds
WHERE all(old IN olds WHERE old.order < row.order)
FOREACH (old IN olds | DELETE old)
CREATE (a)-[r:«type»]->(b)
SET r = row.props, r.order = row.order, r.first_order = row.first_order, r.position = row.position,
    r.known_at = datetime(row.known_at), r.occurred_at = datetime(row.occurred_at), r.recorded_at = datetime(row.recorded_at)
FOREACH (time IN row.times | SET r[time[0]] = datetime(time[1]))

// mark_applied //
// Marks events as applied in the graph, in the transaction that applies them. Rows: event_id, position.
CYPHER replan=skip
UNWIND $given.rows AS row
MERGE (e:AppliedEvent {event_id: row.event_id})
ON CREATE SET e.position = row.position, e.applied_at = datetime($given.now)

// derive_subject_counters //
// Counters of subjects, recomputed from their edges. Rows: key (subject_id).
CYPHER replan=skip
UNWIND $given.rows AS row
MATCH (s:Subject {subject_id: row.key})
OPTIONAL MATCH (s)-[:HAS_ANALYSIS]->(a:Analysis) WHERE a.known_at IS NOT NULL
WITH s, count(a) AS analyses, max(a.date) AS newest
SET s.analyzed_count = analyses, s.last_analysis = newest

// derive_agent_counters //
// Decisions an agent took part in, recomputed from its edges. Rows: key (agent).
CYPHER replan=skip
UNWIND $given.rows AS row
MATCH (a:Agent {name: row.key})
OPTIONAL MATCH (a)-[:MADE]->(d:Decision) WHERE d.known_at IS NOT NULL
WITH a, count(d) AS decisions
SET a.total_decisions = decisions

// derive_settled_by //
// Links from findings to the outcomes that settled them, replaced as a whole for each finding. A score may be computed before
// its events are applied; their nodes are then stubs. Rows: key (finding id), scores (list of outcome_id, props, and known_at,
// recorded_at as text or null).
CYPHER replan=skip
UNWIND $given.rows AS row
OPTIONAL MATCH (:Finding {id: row.key})-[old:SETTLED_BY]->(gone:Outcome)
WITH row, collect(CASE WHEN NOT gone.id IN [score IN row.scores | score.outcome_id] THEN old END) AS olds
FOREACH (old IN olds | DELETE old)
WITH row
UNWIND row.scores AS score
MERGE (f:Finding {id: row.key})
ON CREATE SET f.stub = true
MERGE (o:Outcome {id: score.outcome_id})
ON CREATE SET o.stub = true
MERGE (f)-[r:SETTLED_BY]->(o)
SET r = score.props, r.known_at = datetime(score.known_at), r.recorded_at = datetime(score.recorded_at)

// derive_similar_to //
// Links to the nearest neighbours of analyses, replaced as a whole for each analysis, so that no list mixes two versions. Rows:
// key (analysis id), neighbours (list of to, score, rank, model_version, and built_at as text).
CYPHER replan=skip
UNWIND $given.rows AS row
MATCH (a:Analysis {id: row.key})
OPTIONAL MATCH (a)-[old:SIMILAR_TO]->(gone:Analysis)
WITH a, row, collect(CASE WHEN NOT gone.id IN [near IN row.neighbours | near.to] THEN old END) AS olds
FOREACH (old IN olds | DELETE old)
WITH a, row
UNWIND row.neighbours AS near
MATCH (b:Analysis {id: near.to})
MERGE (a)-[r:SIMILAR_TO]->(b)
SET r = {score: near.score, rank: near.rank, model_version: near.model_version, built_at: datetime(near.built_at)}
