// create_schema_version //
// One node for each number of a migration, so that two concurrent migrations record it once.
CREATE CONSTRAINT schema_version_number IF NOT EXISTS FOR (n:SchemaVersion) REQUIRE n.number IS UNIQUE

// schema_versions //
// The applied migrations: number, sha256.
MATCH (v:SchemaVersion) RETURN v.number AS number, v.sha256 AS sha256 ORDER BY number

// add_schema_version //
// Records that the file `number` with this content was applied, unless one is recorded. Returns the sha256 recorded.
MERGE (v:SchemaVersion {number: $given.number})
ON CREATE SET v.name = $given.name, v.sha256 = $given.sha256, v.applied_at = $given.now
RETURN v.sha256 AS sha256

// await_indexes //
// Waits until every index answers, at most `timeout_s` seconds.
CALL db.awaitIndexes($given.timeout_s)
