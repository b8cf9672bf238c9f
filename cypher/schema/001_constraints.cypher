// One uniqueness constraint for each key; the key's index is what every MERGE and every point read uses.

// Companies and markets share one space of ids.
CREATE CONSTRAINT subject_subject_id IF NOT EXISTS FOR (n:Subject) REQUIRE n.subject_id IS UNIQUE;

// Subjects, agents, people, domains.
CREATE CONSTRAINT company_ticker IF NOT EXISTS FOR (n:Company) REQUIRE n.ticker IS UNIQUE;
CREATE CONSTRAINT market_market_id IF NOT EXISTS FOR (n:Market) REQUIRE n.market_id IS UNIQUE;
CREATE CONSTRAINT agent_name IF NOT EXISTS FOR (n:Agent) REQUIRE n.name IS UNIQUE;
CREATE CONSTRAINT human_id IF NOT EXISTS FOR (n:Human) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT domain_name IF NOT EXISTS FOR (n:Domain) REQUIRE n.name IS UNIQUE;

// Work: analyses, findings, decisions, outcomes.
CREATE CONSTRAINT analysis_id IF NOT EXISTS FOR (n:Analysis) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT finding_id IF NOT EXISTS FOR (n:Finding) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT decision_id IF NOT EXISTS FOR (n:Decision) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT outcome_id IF NOT EXISTS FOR (n:Outcome) REQUIRE n.id IS UNIQUE;

// Patterns and their evidence.
CREATE CONSTRAINT pattern_pattern_id IF NOT EXISTS FOR (n:Pattern) REQUIRE n.pattern_id IS UNIQUE;
CREATE CONSTRAINT pattern_validation_id IF NOT EXISTS FOR (n:PatternValidation) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT shadow_analysis_id IF NOT EXISTS FOR (n:ShadowAnalysis) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT archive_directory_id IF NOT EXISTS FOR (n:ArchiveDirectory) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT data_file_file_path IF NOT EXISTS FOR (n:DataFile) REQUIRE n.file_path IS UNIQUE;

// Trust and dispute.
CREATE CONSTRAINT agent_credibility_id IF NOT EXISTS FOR (n:AgentCredibility) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT source_credibility_source_name IF NOT EXISTS FOR (n:SourceCredibility) REQUIRE n.source_name IS UNIQUE;
CREATE CONSTRAINT human_override_id IF NOT EXISTS FOR (n:HumanOverride) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT credibility_pin_id IF NOT EXISTS FOR (n:CredibilityPin) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT bias_correction_id IF NOT EXISTS FOR (n:BiasCorrection) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT regime_reading_id IF NOT EXISTS FOR (n:RegimeReading) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT data_contradiction_id IF NOT EXISTS FOR (n:DataContradiction) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT data_point_id IF NOT EXISTS FOR (n:DataPoint) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT debate_id IF NOT EXISTS FOR (n:Debate) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT debate_turn_id IF NOT EXISTS FOR (n:DebateTurn) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT debate_resolution_id IF NOT EXISTS FOR (n:DebateResolution) REQUIRE n.id IS UNIQUE;

// Learning.
CREATE CONSTRAINT post_mortem_id IF NOT EXISTS FOR (n:PostMortem) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT failure_analysis_id IF NOT EXISTS FOR (n:FailureAnalysis) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT human_insight_id IF NOT EXISTS FOR (n:HumanInsight) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT success_validation_id IF NOT EXISTS FOR (n:SuccessValidation) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT lesson_id IF NOT EXISTS FOR (n:Lesson) REQUIRE n.id IS UNIQUE;

// Bookkeeping: which events' effects are here. SchemaVersion has its constraint before the first migration runs.
CREATE CONSTRAINT applied_event_event_id IF NOT EXISTS FOR (n:AppliedEvent) REQUIRE n.event_id IS UNIQUE;
