// Range indexes on the single properties that named queries filter on, and full-text where one looks inside strings.
//
// Single properties only: an index on (a, b) does not serve a filter on b, nor one on a alone once it competes with
// others. Where a query's text filters on two, the server picks the rarer and tests the other on the node.

// Questions of one series, for the history of a market.
CREATE INDEX market_series_id IF NOT EXISTS FOR (n:Market) ON (n.series_id);

// Patterns: what waits for a gate, what agents may see, what needs an archive.
CREATE INDEX pattern_status IF NOT EXISTS FOR (n:Pattern) ON (n.status);
CREATE INDEX pattern_archive_tier IF NOT EXISTS FOR (n:Pattern) ON (n.archive_tier);
CREATE INDEX pattern_used_in_investment_decision IF NOT EXISTS FOR (n:Pattern) ON (n.used_in_investment_decision);
CREATE INDEX active_pattern_sector IF NOT EXISTS FOR (n:ActivePattern) ON (n.sector);
CREATE INDEX active_pattern_success_rate IF NOT EXISTS FOR (n:ActivePattern) ON (n.success_rate);
CREATE INDEX pattern_validation_validation_type IF NOT EXISTS FOR (n:PatternValidation) ON (n.validation_type);
CREATE INDEX pattern_validation_test_end_date IF NOT EXISTS FOR (n:PatternValidation) ON (n.test_end_date);

// Files: what may be deleted, what is about to expire.
CREATE INDEX data_file_storage_tier IF NOT EXISTS FOR (n:DataFile) ON (n.storage_tier);
CREATE INDEX data_file_retention_expiry IF NOT EXISTS FOR (n:DataFile) ON (n.retention_expiry);

// Debates: by how they were decided.
CREATE INDEX debate_resolution_level IF NOT EXISTS FOR (n:Debate) ON (n.resolution_level);
CREATE INDEX debate_defaulted_at IF NOT EXISTS FOR (n:Debate) ON (n.defaulted_at);

// Contradictions: of a subject, of a source, waiting for a gate.
CREATE INDEX data_contradiction_subject_id IF NOT EXISTS FOR (n:DataContradiction) ON (n.subject_id);
CREATE INDEX data_contradiction_source_a IF NOT EXISTS FOR (n:DataContradiction) ON (n.source_a);
CREATE INDEX data_contradiction_source_b IF NOT EXISTS FOR (n:DataContradiction) ON (n.source_b);
CREATE INDEX data_contradiction_priority IF NOT EXISTS FOR (n:DataContradiction) ON (n.priority);
CREATE INDEX data_contradiction_resolution_level IF NOT EXISTS FOR (n:DataContradiction) ON (n.resolution_level);

// Learning: what is under review, what was learned from which cause, what was applied when.
CREATE INDEX post_mortem_status IF NOT EXISTS FOR (n:PostMortem) ON (n.status);
CREATE INDEX failure_analysis_root_cause_category IF NOT EXISTS FOR (n:FailureAnalysis) ON (n.root_cause_category);
CREATE INDEX success_validation_classification IF NOT EXISTS FOR (n:SuccessValidation) ON (n.classification);
CREATE INDEX lesson_applied_date IF NOT EXISTS FOR (n:Lesson) ON (n.applied_date);
// Lessons whose core was corrected: an answer as of a day before the correction has to look at them itself.
CREATE INDEX lesson_correction_known_at IF NOT EXISTS FOR (n:Lesson) ON (n.correction_known_at);
CREATE INDEX lesson_correction_recorded_at IF NOT EXISTS FOR (n:Lesson) ON (n.correction_recorded_at);

// Names people misspell: whole words in small letters, nothing left out as too common.
CREATE FULLTEXT INDEX subject_names IF NOT EXISTS
FOR (n:Subject) ON EACH [n.ticker, n.name, n.market_id, n.question]
OPTIONS {indexConfig: {`fulltext.analyzer`: 'standard-no-stop-words'}};

// Topics of debates: words of English reduced to their stems.
CREATE FULLTEXT INDEX debate_topic IF NOT EXISTS
FOR (n:Debate) ON EACH [n.topic]
OPTIONS {indexConfig: {`fulltext.analyzer`: 'english'}};

// The list of domains a lesson affects, each a whole word: a range index does not look inside lists.
CREATE FULLTEXT INDEX lesson_affected_domains IF NOT EXISTS
FOR (n:Lesson) ON EACH [n.affected_domains]
OPTIONS {indexConfig: {`fulltext.analyzer`: 'keyword'}};
