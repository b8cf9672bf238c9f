// A generated graph of any size for tests of plans: made on the server, the same for the same numbers.
//
// Its shape around one subject does not depend on its size: ten analyses, three findings each, a decision and an outcome each.
// What a query asks for is there once, among the first hundred analyses, and stays the same while the rest grows around it.
// Statements up to quiet_agent run once, the others for the analyses from $from up to $to. $t: when all is known; $late, $applied:
// later days.

// agents //
// Forty agents.
UNWIND range(0, 39) AS n CREATE (:Agent {name: 'agent' + n, known_at: $t, recorded_at: $t, position: n})

// domains //
// Twelve domains.
UNWIND range(0, 11) AS n CREATE (:Domain {name: 'domain' + n, known_at: $t, recorded_at: $t, position: n})

// sources //
// Sources of data; the first twenty and their opposites take part in few contradictions.
UNWIND range(0, 199) AS n
CREATE (:SourceCredibility {source_name: 'source' + n, base_accuracy: 0.8, known_at: $t, recorded_at: $t})

// humans //
// A person.
CREATE (:Human {id: 'human', known_at: $t, recorded_at: $t})

// credibility //
// A record for each agent and domain.
MATCH (a:Agent) MATCH (d:Domain)
CREATE (a)-[:HAS_CREDIBILITY {known_at: $t, recorded_at: $t}]->
       (:AgentCredibility {id: a.name + '/' + d.name, agent_id: a.name, domain: d.name, known_at: $t, recorded_at: $t})
       -[:IN_DOMAIN {known_at: $t, recorded_at: $t}]->(d)

// quiet_agent //
// An agent who spoke and decided little, however large the graph is.
CREATE (a:Agent {name: 'quiet', known_at: $t, recorded_at: $t})
WITH a UNWIND range(0, 4) AS n
CREATE (a)-[:STATED {known_at: $t, recorded_at: $t}]->(:Finding {id: 'quiet' + n, domain: 'domain0', agent: 'quiet',
    metric: 'up', known_at: $t, recorded_at: $t})-[:SETTLED_BY {correct: 1.0}]->
    (:Outcome {id: 'quiet' + n, vintage: 0, known_at: $t, recorded_at: $t})
CREATE (a)-[:MADE {known_at: $t, recorded_at: $t}]->(:Decision {id: 'quiet' + n, decided_at: $late, known_at: $t,
    recorded_at: $t})-[:HAS_OUTCOME {known_at: $t, recorded_at: $t}]->(:Outcome {id: 'decided' + n, vintage: 0,
    metric: 'close', target_at: $late, accuracy: 0.5, known_at: $t, recorded_at: $t})

// subjects //
// Companies and markets, one of each for ten analyses; a series holds five markets.
UNWIND range($from / 10, $to / 10 - 1) AS n
CREATE (:Subject:Company {ticker: 'C' + n, subject_id: 'company:C' + n,
    name: CASE n WHEN 3 THEN 'Zwirbelwind' ELSE 'Company ' + n END + ' Holding',
    sector: 'sector' + n % 11, known_at: $t, recorded_at: $t, position: n})
CREATE (:Subject:Market {market_id: 'M' + n, subject_id: 'market:M' + n, question: 'Will number ' + n + ' rise?',
    series_id: 'series' + n / 5, known_at: $t, recorded_at: $t, position: n})

// peers //
// Companies are alike in tens.
UNWIND range($from / 10, $to / 10 - 1) AS n
MATCH (a:Company {ticker: 'C' + n}) MATCH (b:Company {ticker: 'C' + CASE WHEN n % 10 = 9 THEN n - 9 ELSE n + 1 END})
CREATE (a)-[:PEER_OF {similarity: 0.5, known_at: $t, recorded_at: $t}]->(b)

// analyses //
// Analyses, with who performed them, a decision with its outcome, and three settled findings.
UNWIND range($from, $to - 1) AS i
MATCH (s:Subject {subject_id: CASE WHEN i % 2 = 0 THEN 'company:C' ELSE 'market:M' END + i / 10})
MATCH (by:Agent {name: 'agent' + i % 40})
CREATE (s)-[:HAS_ANALYSIS {known_at: $t, recorded_at: $t}]->(a:Analysis {id: 'a' + i, subject_id: s.subject_id, kind: 'k',
    date: $t + duration({hours: i}), known_at: $t, recorded_at: $t, occurred_at: $t, position: i})
CREATE (by)-[:PERFORMED {role: 'lead', order: 'o', known_at: $t, recorded_at: $t}]->(a)
CREATE (a)-[:LED_TO {known_at: $t, recorded_at: $t}]->(d:Decision {id: 'd' + i, subject_id: s.subject_id, type: 'trade',
    decided_at: $t + duration({hours: i}), known_at: $t, recorded_at: $t, position: i})
CREATE (by)-[:MADE {known_at: $t, recorded_at: $t}]->(d)
CREATE (d)-[:HAS_OUTCOME {known_at: $t, recorded_at: $t}]->(o:Outcome {id: 'o' + i, subject_id: s.subject_id, metric: 'close',
    checkpoint: 30, vintage: 0, accuracy: 0.5, target_at: $t, known_at: $t, recorded_at: $t, position: i})
CREATE (o)-[:OUTCOME_OF {known_at: $t, recorded_at: $t}]->(s)
WITH i, a, o UNWIND range(0, 2) AS k
MATCH (speaker:Agent {name: 'agent' + (3 * i + k) % 40})
CREATE (speaker)-[:STATED {known_at: $t, recorded_at: $t}]->(f:Finding {id: 'f' + i + '/' + k, analysis_id: a.id,
    subject_id: a.subject_id, agent: speaker.name, domain: 'domain' + (i + k) % 12, statement: 's', metric: 'close',
    importance: 0.5, known_at: $t, recorded_at: $t, position: i})
CREATE (a)-[:HAS_FINDING {known_at: $t, recorded_at: $t}]->(f)
CREATE (f)-[:SETTLED_BY {correct: 1.0}]->(o)

// similar_analyses //
// Each of ten analyses is like three others.
UNWIND range($from, $to - 1) AS i
MATCH (a:Analysis {id: 'a' + i}) UNWIND range(1, 3) AS rank
MATCH (b:Analysis {id: 'a' + (i - i % 10 + (i + rank) % 10)})
CREATE (a)-[:SIMILAR_TO {rank: rank, score: 0.5}]->(b)

// disputes //
// Debates and contradictions, one for five analyses; what queries ask for stays as rare as it is.
UNWIND range($from, $to - 1, 5) AS i
MATCH (a:Analysis {id: 'a' + i}) MATCH (s:Subject {subject_id: a.subject_id})
MATCH (x:Agent {name: 'agent' + i % 40}) MATCH (y:Agent {name: 'agent' + (i + 1) % 40})
CREATE (d:Debate {id: 'b' + i, subject_id: s.subject_id, topic: 'Topic word' + i + ' and valuation', timestamp: $t,
    challenger_agent: x.name, challenged_agent: y.name, known_at: $t, recorded_at: $t, position: i,
    resolution_level: CASE WHEN i < 100 THEN '2_facilitator' ELSE '1_agent' END,
    defaulted_at: CASE WHEN i < 100 THEN $t END})
CREATE (d)-[:ABOUT {known_at: $t, recorded_at: $t}]->(s)
CREATE (d)-[:HAS_RESOLUTION {known_at: $t, recorded_at: $t}]->(r:DebateResolution {id: 'r' + i, debate_id: d.id,
    winning_position: 'w', accuracy_tracked: true, outcome_correctness: 0.5, known_at: $t, recorded_at: $t})
CREATE (c:DataContradiction {id: 'c' + i, subject_id: s.subject_id, data_point: 'eps', timestamp: $t, position: i,
    source_a: 'source' + CASE WHEN i < 100 THEN i / 5 ELSE 20 + (i / 5) % 80 END,
    source_b: 'source' + CASE WHEN i < 100 THEN 100 + i / 5 ELSE 120 + (i / 5) % 80 END, known_at: $t, recorded_at: $t,
    priority: CASE WHEN i < 100 THEN 'CRITICAL' ELSE 'LOW' END, status: 'resolved', provisional: true, reviewed_at_gate3: false,
    resolution_level: CASE WHEN i < 100 THEN '3_human' ELSE '1_evidence' END})
WITH i, r, c MATCH (by:SourceCredibility {source_name: c.source_a}) MATCH (h:Human {id: 'human'})
CREATE (c)-[:RESOLVED_BY_SOURCE {known_at: $t, recorded_at: $t}]->(by)
FOREACH (_ IN CASE WHEN i < 100 THEN [1] ELSE [] END | CREATE (h)-[:OVERRODE {at: $t, rationale: 'x'}]->(r))

// patterns //
// Patterns with their tests and files, one for five analyses; twenty are active and twenty wait for a gate, whatever the size.
UNWIND range($from, $to - 1, 5) AS i
MATCH (a:Analysis {id: 'a' + i})
CREATE (p:Pattern {pattern_id: 'p' + i, name: 'n', category: 'c', sector: 'sector' + i % 4, known_at: $t, recorded_at: $t,
    status: CASE WHEN i < 100 THEN 'active' WHEN i < 200 THEN 'statistically_validated' ELSE 'candidate' END,
    success_rate: 0.3, training_correlation: 0.9, archive_tier: CASE WHEN i < 100 THEN 0 WHEN i < 200 THEN 1 ELSE 2 END,
    used_in_investment_decision: i < 200, confidence_score: 0.9, impact_score: 0.9, position: i})
FOREACH (_ IN CASE WHEN i < 100 THEN [1] ELSE [] END | SET p:ActivePattern)
CREATE (a)-[:IDENTIFIED_PATTERN {known_at: $t, recorded_at: $t}]->(p)
CREATE (p)-[:HAS_VALIDATION {known_at: $t, recorded_at: $t}]->(:PatternValidation {id: 'v' + i, pattern_id: p.pattern_id,
    validation_type: CASE WHEN i < 100 THEN 'blind_test' ELSE 'holdout' END, passed: false, sample_size: 20,
    test_start_date: $t, test_end_date: CASE WHEN i < 100 THEN $late ELSE $t END, known_at: $t, recorded_at: $t})
CREATE (f:DataFile {file_path: 'x' + i, created_date: $t, size_mb: 1.0, in_archive: false, known_at: $t, recorded_at: $t,
    storage_tier: CASE WHEN i < 100 THEN 'cold' ELSE 'hot' END, retention_expiry: CASE WHEN i < 100 THEN $t ELSE $late END})
FOREACH (_ IN CASE WHEN i % 10 = 0 THEN [1] ELSE [] END |
    CREATE (p)-[:SUPPORTED_BY_FILE {known_at: $t, recorded_at: $t}]->(f))
CREATE (p)-[:HAS_ARCHIVE {tier: 1, known_at: $t, recorded_at: $t}]->(:ArchiveDirectory {id: p.pattern_id + '/tier1', tier: 1,
    size_mb: 1.0, known_at: $t, recorded_at: $t})

// learning //
// Post-mortems and lessons, one for five analyses; those that queries ask for are the first.
UNWIND range($from, $to - 1, 5) AS i
MATCH (d:Decision {id: 'd' + i}) MATCH (p:Pattern {pattern_id: 'p' + i}) MATCH (a:Agent {name: 'quiet'})
CREATE (d)-[:HAS_POSTMORTEM {known_at: $t, recorded_at: $t}]->(m:PostMortem {id: 'm' + i, decision_id: d.id, checkpoint: 30,
    status: CASE WHEN i < 100 THEN 'in_review' ELSE 'completed' END, priority: 0.5, state_known_at: $t,
    known_at: $t, recorded_at: $t, position: i})
CREATE (m)-[:HAS_ANALYSIS {known_at: $t, recorded_at: $t}]->(:FailureAnalysis {id: 'fa' + i, postmortem_id: m.id,
    root_cause_category: CASE WHEN i < 100 THEN 'timing' ELSE 'black_swan' END, known_at: $t, recorded_at: $t})
CREATE (m)-[:GENERATED_LESSON {known_at: $t, recorded_at: $t}]->(l:Lesson {id: 'l' + i, insight: 'x', postmortem_id: m.id,
    affected_domains: ['domain' + i], applied: i < 50, applied_date: CASE WHEN i < 50 THEN $applied END,
    state: CASE WHEN i < 50 THEN 'applied' ELSE 'approved' END, reviewed: true, state_known_at: $t, state_recorded_at: $t,
    effectiveness_tracked: true, known_at: $t, recorded_at: $t, position: i})
CREATE (l)-[:AFFECTS_PATTERN {known_at: $t, recorded_at: $t}]->(p)
FOREACH (_ IN CASE WHEN i < 50 THEN [1] ELSE [] END | CREATE (l)-[:AFFECTS_AGENT {known_at: $t, recorded_at: $t}]->(a))
CREATE (d)-[:HAS_SUCCESS_VALIDATION {known_at: $t, recorded_at: $t}]->(:SuccessValidation {id: 'sv' + i, skill_ratio: 0.5,
    market_contribution: 0.5, classification: CASE WHEN i < 100 THEN 'lucky_success' ELSE 'genuine_success' END,
    known_at: $t, recorded_at: $t})
