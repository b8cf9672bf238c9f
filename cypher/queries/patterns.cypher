// patterns_ready_for_gate6 //
// Patterns that passed every statistical test and that no person has approved.
// parameters: limit (int)
// columns: pattern (map)
// order: validated_date, oldest first, unknown ones last, then pattern_id
// as_of: no
MATCH (p:Pattern {status: 'statistically_validated'})
WHERE NOT EXISTS { (p)-[:APPROVED_AT_GATE6]->(:Human) }
RETURN properties(p) AS pattern
ORDER BY p.validated_date, p.pattern_id
LIMIT $given.limit

// pattern_validation_history //
// Every test that a pattern went through, with the tests it had to wait for.
// parameters: pattern_id (string), limit (int)
// columns: validation (map), blocked_by (list of strings: ids of validations)
// order: test_start_date, then id
// as_of: no
MATCH (:Pattern {pattern_id: $given.pattern_id})-[:HAS_VALIDATION]->(v:PatternValidation)
WITH v ORDER BY v.test_start_date, v.id LIMIT $given.limit
RETURN properties(v) AS validation,
    COLLECT { MATCH (v)-[:BLOCKED_BY]->(b:PatternValidation) RETURN b.id ORDER BY b.id } AS blocked_by
ORDER BY v.test_start_date, v.id

// patterns_failed_blind //
// Blind tests that were failed, one row a test: a pattern that was tried again may have passed since, which its status shows.
// parameters: limit (int)
// columns: pattern (map), validation_id (string), tested (datetime: end of the test, or its start), improvement_ratio (float), failure_reason (string)
// order: tested descending, then validation_id
// as_of: no
MATCH (v:PatternValidation {validation_type: 'blind_test'})
WHERE v.passed = false
MATCH (p:Pattern)-[:HAS_VALIDATION]->(v)
RETURN properties(p) AS pattern, v.id AS validation_id, coalesce(v.test_end_date, v.test_start_date) AS tested,
    v.improvement_ratio AS improvement_ratio, v.failure_reason AS failure_reason
ORDER BY tested DESC, validation_id
LIMIT $given.limit

// validation_pass_rates //
// How many tests of each type that ended since a date were passed.
// parameters: since (datetime), limit (int)
// columns: validation_type (string), passed (int), total (int), rate (float, 0-1)
// order: validation_type
// as_of: no
MATCH (v:PatternValidation)
WHERE v.test_end_date >= $given.since
WITH v.validation_type AS validation_type, count(CASE WHEN v.passed THEN 1 END) AS passed, count(v) AS total
RETURN validation_type, passed, total, toFloat(passed) / total AS rate
ORDER BY validation_type
LIMIT $given.limit

// patterns_degrading //
// Active patterns whose success rate is below four fifths of their correlation in training.
// parameters: limit (int)
// columns: pattern (map), ratio (float: success_rate over training_correlation)
// order: ratio, worst first, then pattern_id
// as_of: no
MATCH (p:ActivePattern)
WHERE p.success_rate < 0.8 * p.training_correlation
WITH p, p.success_rate / p.training_correlation AS ratio
RETURN properties(p) AS pattern, ratio
ORDER BY ratio, p.pattern_id
LIMIT $given.limit

// active_patterns //
// The patterns that agents may use: those of a sector, then those bound to none. A node has the label exactly while its status is
// active, so nothing unproven can match.
// parameters: sector (string, or null for every active pattern), limit (int)
// columns: pattern (map)
// order: of the sector first, then confidence_score descending, success_rate descending (unknown ones last), pattern_id
// as_of: no (the journal has the patterns that were active on a day)
CALL () {
    MATCH (p:ActivePattern) WHERE p.sector = $given.sector
    RETURN p, 0 AS place
  UNION ALL
    MATCH (p:ActivePattern) WHERE p.sector IS NULL OR $given.sector IS NULL
    RETURN p, CASE WHEN $given.sector IS NULL THEN 0 ELSE 1 END AS place
}
RETURN properties(p) AS pattern
ORDER BY place, coalesce(p.confidence_score, -1.0) DESC, coalesce(p.success_rate, -1.0) DESC, p.pattern_id
LIMIT $given.limit
