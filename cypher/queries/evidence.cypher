// tier2_candidates //
// Patterns with a small archive that deserve the full one: used in a decision, or two of confident, weighty, often validated.
// parameters: limit (int)
// columns: pattern (map)
// order: tier1_created_date, oldest first, unknown ones last, then pattern_id
// as_of: no
MATCH (p:Pattern {archive_tier: 1})
WHERE p.used_in_investment_decision
   OR size([met IN [p.confidence_score > 0.7, p.impact_score > 0.5, p.validation_count >= 3] WHERE met]) >= 2
RETURN properties(p) AS pattern
ORDER BY p.tier1_created_date, p.pattern_id
LIMIT $given.limit

// files_deletable //
// Cold files that are not used: by no pattern's edge (the counter drifts and is not read), and in no archive, neither by
// flag nor by edge. `created_before` is seven years ago.
// parameters: created_before (datetime), limit (int)
// columns: file (map), size_mb (float, 10^6 bytes)
// order: size_mb descending, then file_path
// as_of: no
MATCH (f:DataFile {storage_tier: 'cold'})
WHERE f.created_date < $given.created_before AND f.in_archive = false
  AND NOT EXISTS { (:Pattern)-[:SUPPORTED_BY_FILE]->(f) }
  AND NOT EXISTS { (:ArchiveDirectory)-[:CONTAINS_FILE]->(f) }
RETURN properties(f) AS file, f.size_mb AS size_mb
ORDER BY size_mb DESC, f.file_path
LIMIT $given.limit

// active_patterns_of_file //
// The number of active patterns that use a file.
// parameters: file_path (string), limit (int)
// columns: file_path (string), patterns (int)
// order: one row; none when the file is unknown
// as_of: no
MATCH (f:DataFile {file_path: $given.file_path})
RETURN f.file_path AS file_path, COUNT { (f)<-[:SUPPORTED_BY_FILE]-(:ActivePattern) } AS patterns
LIMIT $given.limit

// evidence_at_risk //
// Active patterns without an archive that use files which expire before a date; one row a file.
// parameters: expires_before (datetime), limit (int)
// columns: pattern (map), file (map), retention_expiry (datetime)
// order: retention_expiry, soonest first, then pattern_id, file_path
// as_of: no
MATCH (f:DataFile)
WHERE f.retention_expiry < $given.expires_before
CALL (f) {
    MATCH (f)<-[:SUPPORTED_BY_FILE]-(p:ActivePattern)
    WHERE coalesce(p.archive_tier, 0) = 0
    RETURN p
}
RETURN properties(p) AS pattern, properties(f) AS file, f.retention_expiry AS retention_expiry
ORDER BY retention_expiry, p.pattern_id, f.file_path
LIMIT $given.limit

// archive_costs //
// The sizes of the archives of each tier.
// parameters: limit (int)
// columns: tier (int), archives (int), total_mb (float, 10^6 bytes), mean_mb (float)
// order: tier
// as_of: no
MATCH (d:ArchiveDirectory)
WHERE d.tier IS NOT NULL
RETURN d.tier AS tier, count(d) AS archives, sum(d.size_mb) AS total_mb, avg(d.size_mb) AS mean_mb
ORDER BY tier
LIMIT $given.limit

// patterns_missing_archive //
// Patterns that were used in an investment decision and have no archive.
// parameters: limit (int)
// columns: pattern (map)
// order: pattern_id
// as_of: no
MATCH (p:Pattern {used_in_investment_decision: true})
WHERE coalesce(p.archive_tier, 0) = 0
RETURN properties(p) AS pattern
ORDER BY p.pattern_id
LIMIT $given.limit
