// postmortems_pending //
// Post-mortems under review for too long, counted from when the review's state was recorded, not from the trigger: time in
// the queue does not count.
// parameters: opened_before (datetime), limit (int)
// columns: postmortem (map), decision (map or null)
// order: priority, highest first, then the longest under review, then id
// as_of: no
MATCH (m:PostMortem {status: 'in_review'})
WHERE m.state_known_at < $given.opened_before
WITH m ORDER BY m.priority DESC, m.state_known_at, m.id LIMIT $given.limit
RETURN properties(m) AS postmortem,
    head(COLLECT { MATCH (d:Decision)-[:HAS_POSTMORTEM]->(m) RETURN properties(d) }) AS decision
ORDER BY m.priority DESC, m.state_known_at, m.id

// postmortem_of_decision //
// The post-mortems of a decision, each with its analyses, insights and lessons.
// parameters: decision_id (string), limit (int)
// columns: decision (map), postmortem (map), failure_analyses, insights, lessons (lists of maps; by id), outcomes (list of maps: of the
//   decision at that checkpoint; by id)
// order: checkpoint, then id
// as_of: no
MATCH (d:Decision {id: $given.decision_id})-[:HAS_POSTMORTEM]->(m:PostMortem)
WITH d, m ORDER BY m.checkpoint, m.id LIMIT $given.limit
RETURN properties(d) AS decision, properties(m) AS postmortem,
    COLLECT { MATCH (m)-[:HAS_ANALYSIS]->(f:FailureAnalysis) RETURN properties(f) ORDER BY f.id } AS failure_analyses,
    COLLECT { MATCH (m)-[:HAS_INSIGHT]->(i:HumanInsight) RETURN properties(i) ORDER BY i.id } AS insights,
    COLLECT { MATCH (m)-[:GENERATED_LESSON]->(l:Lesson) RETURN properties(l) ORDER BY l.id } AS lessons,
    COLLECT {
        MATCH (d)-[:HAS_OUTCOME]->(o:Outcome) WHERE o.checkpoint = m.checkpoint
        RETURN properties(o) ORDER BY o.id
    } AS outcomes
ORDER BY m.checkpoint, m.id

// lessons_by_cause //
// Applied lessons of failures with one root cause.
// parameters: root_cause (string), limit (int)
// columns: lesson (map), postmortem_id (string)
// order: applied_date, newest first, unknown ones last, then id
// as_of: no
MATCH (f:FailureAnalysis {root_cause_category: $given.root_cause})<-[:HAS_ANALYSIS]-(m:PostMortem)-[:GENERATED_LESSON]->(l:Lesson)
WHERE l.applied
WITH DISTINCT l, m.id AS postmortem_id
RETURN properties(l) AS lesson, postmortem_id
ORDER BY l.applied_date IS NULL, l.applied_date DESC, l.id, postmortem_id
LIMIT $given.limit

// success_validation_stats //
// The shares of skill and of the market in the successes of one class.
// parameters: classification (string), limit (int)
// columns: classification (string), validations (int), mean_skill_ratio (float or null), mean_market_contribution (float or null, fraction)
// order: one row
// as_of: no
MATCH (v:SuccessValidation {classification: $given.classification})
WITH count(v) AS validations, avg(v.skill_ratio) AS mean_skill_ratio, avg(v.market_contribution) AS mean_market_contribution
RETURN $given.classification AS classification, validations, mean_skill_ratio, mean_market_contribution
LIMIT $given.limit

// patterns_pending_revision //
// Active patterns named by lessons that were neither applied nor have revised them, and that are not over.
// parameters: limit (int)
// columns: pattern (map), lessons (int), lesson_ids (list of strings; by id)
// order: lessons descending, then pattern_id
// as_of: no
MATCH (p:ActivePattern)<-[:AFFECTS_PATTERN]-(l:Lesson)
USING SCAN p:ActivePattern
WHERE l.known_at IS NOT NULL AND NOT coalesce(l.applied, false)
  AND NOT coalesce(l.state, '') IN ['rejected', 'retired', 'superseded'] AND NOT EXISTS { (p)-[:REVISED_BY]->(l) }
WITH p, l ORDER BY l.id
WITH p, collect(DISTINCT l.id) AS lesson_ids
RETURN properties(p) AS pattern, size(lesson_ids) AS lessons, lesson_ids
ORDER BY lessons DESC, p.pattern_id
LIMIT $given.limit

// lesson_effect //
// The accuracy of decisions after a lesson: for each tracked lesson applied since a date and each agent it
// affects, the decisions made later whose accuracy is known. A decision counts once, with the mean of its outcomes; of several
// vintages of one number the newest counts.
// parameters: since (datetime), limit (int)
// columns: lesson_id (string), applied_date (datetime), agent (string), decisions (int), mean_accuracy (float, 0-1, or null when there is none)
// order: applied_date descending, lesson_id, agent
// as_of: no
MATCH (l:Lesson)-[:AFFECTS_AGENT]->(a:Agent)
WHERE l.applied_date >= $given.since AND l.applied AND l.effectiveness_tracked
WITH l, a ORDER BY l.applied_date DESC, l.id, a.name LIMIT $given.limit
CALL (l, a) {
    MATCH (a)-[:MADE]->(d:Decision)-[:HAS_OUTCOME]->(o:Outcome)
    WHERE d.decided_at > l.applied_date AND o.accuracy IS NOT NULL AND NOT coalesce(o.withdrawn, false)
    WITH d, o ORDER BY o.vintage DESC, o.known_at DESC, o.id
    WITH d, o.metric AS metric, o.target_at AS target_at, head(collect(o.accuracy)) AS accuracy
    WITH d, avg(accuracy) AS accuracy
    RETURN count(d) AS decisions, avg(accuracy) AS mean_accuracy
}
RETURN l.id AS lesson_id, l.applied_date AS applied_date, a.name AS agent, decisions, mean_accuracy
ORDER BY applied_date DESC, lesson_id, agent
