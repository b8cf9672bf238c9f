// Queries about one subject. Conventions of every query with `as_of: yes`:
//
// Such a query returns keys and their relations, and the caller reads their values as
// of the moment from the journal. (It is also the fast way: the driver takes long over times.)
//
// A node or link counts when its known_at is at most $given.known_until and its recorded_at at most $given.recorded_until; on a stub both
// are null, so it does not count. The subject itself is a reference and is not checked.
//
// Where rows are chosen or sorted by a fact that a correction may change, those corrected after the moment come first and *in
// addition* to the limit: the caller sorts and cuts again once all are dated (imem.recall.dated_rows), as Memory.query does too. So nothing
// known later can push out a row that belongs to the result.
//
// A series is what its questions say of themselves: both cores must count, the one asked for included. A correction cannot move a
// question to another series.

// company_history //
// The newest analyses of a subject with their findings, decisions and outcomes. For a market, analyses of the other questions
// of its series follow its own: each question usually has one analysis. Agents and findings are returned for the first
// `detailed` alone.
// parameters: subject_id (string), detailed (int, analyses whose findings are named), findings_limit (int, findings an analysis),
//   known_until (datetime), recorded_until (datetime), limit (int, analyses)
// columns: subject (string: subject_id), own (bool: of this subject, not of its series), analysis (string: id),
//   performed_by (list of agents; by name, 50 at most), makers (list of agents: who ran it or took its decisions),
//   baselines (list of agents of the named findings that are baselines, or may have been: the journal says what they were),
//   findings (list of ids; baselines last, those of makers first, then by importance, claims before remarks, id),
//   findings_total (int), decisions (list of {decision: id, outcomes: list of ids}; by id, 20 at most),
//   total (int, analyses that count)
// order: own first, then date descending, then id; those corrected since before all
// as_of: yes
MATCH (s:Subject {subject_id: $given.subject_id})
CALL (s) {
    MATCH (s)-[h:HAS_ANALYSIS]->(a:Analysis)
    WHERE h.known_at <= $given.known_until AND h.recorded_at <= $given.recorded_until
      AND a.known_at <= $given.known_until AND a.recorded_at <= $given.recorded_until
    RETURN s AS subject, a, true AS own
  UNION ALL
    MATCH (m:Market)
    WHERE m.series_id = s.series_id AND m <> s
      AND s.known_at <= $given.known_until AND s.recorded_at <= $given.recorded_until
      AND m.known_at <= $given.known_until AND m.recorded_at <= $given.recorded_until
    MATCH (m)-[h:HAS_ANALYSIS]->(a:Analysis)
    WHERE h.known_at <= $given.known_until AND h.recorded_at <= $given.recorded_until
      AND a.known_at <= $given.known_until AND a.recorded_at <= $given.recorded_until
    RETURN m AS subject, a, false AS own
}
WITH subject, a, own,
     coalesce(a.correction_known_at > $given.known_until OR a.correction_recorded_at > $given.recorded_until, false) AS unsettled
ORDER BY own DESC, a.date DESC, a.id
WITH collect({subject: subject, a: a, own: own, unsettled: unsettled}) AS rows
WITH size(rows) AS total, [row IN rows WHERE row.unsettled] AS corrected, [row IN rows WHERE NOT row.unsettled] AS rows
WITH total, size(corrected) + $given.detailed AS detailed, corrected + rows[..$given.limit] AS rows
UNWIND range(0, size(rows) - 1) AS place
WITH total, place, place < detailed AS detailed, rows[place] AS row
WITH total, place, detailed, row.subject AS subject, row.a AS a, row.own AS own
CALL (a, detailed) {
    RETURN COLLECT {
        MATCH (agent:Agent)-[p:PERFORMED]->(a)
        WHERE detailed AND p.known_at <= $given.known_until AND p.recorded_at <= $given.recorded_until
        RETURN agent.name
      UNION
        MATCH (a)-[l:LED_TO]->(d:Decision)<-[m:MADE]-(agent:Agent)
        WHERE detailed AND l.known_at <= $given.known_until AND l.recorded_at <= $given.recorded_until
          AND d.known_at <= $given.known_until AND d.recorded_at <= $given.recorded_until
          AND m.known_at <= $given.known_until AND m.recorded_at <= $given.recorded_until
        RETURN agent.name
    } AS makers
}
CALL (a, detailed, makers) {
    MATCH (a)-[h:HAS_FINDING]->(f:Finding)
    WHERE h.known_at <= $given.known_until AND h.recorded_at <= $given.recorded_until
      AND f.known_at <= $given.known_until AND f.recorded_at <= $given.recorded_until
    OPTIONAL MATCH (f)<-[:STATED]-(agent:Agent) WHERE detailed
    WITH f, makers, coalesce(agent.kind = 'baseline', false) AS baseline,
         coalesce(agent.profile_known_at > $given.known_until OR agent.profile_recorded_at > $given.recorded_until, false) AS described,
         coalesce(f.correction_known_at > $given.known_until OR f.correction_recorded_at > $given.recorded_until, false) AS corrected
    ORDER BY baseline, NOT f.agent IN makers, coalesce(f.importance, -1.0) DESC, f.metric IS NULL, f.id
    WITH collect({f: f, referee: baseline OR described, later: corrected OR described}) AS rows
    WITH size(rows) AS findings_total,
         CASE WHEN detailed THEN [row IN rows WHERE row.later] + [row IN rows WHERE NOT row.later][..$given.findings_limit]
              ELSE [] END AS chosen
    RETURN findings_total, chosen
}
RETURN subject.subject_id AS subject, own, a.id AS analysis,
    COLLECT {
        MATCH (agent:Agent)-[p:PERFORMED]->(a)
        WHERE detailed AND p.known_at <= $given.known_until AND p.recorded_at <= $given.recorded_until
        RETURN agent.name
        ORDER BY agent.name LIMIT 50
    } AS performed_by,
    makers,
    [one IN chosen WHERE one.referee | one.f.agent] AS baselines,
    [one IN chosen | one.f.id] AS findings,
    findings_total,
    COLLECT {
        MATCH (a)-[l:LED_TO]->(d:Decision)
        WHERE l.known_at <= $given.known_until AND l.recorded_at <= $given.recorded_until
          AND d.known_at <= $given.known_until AND d.recorded_at <= $given.recorded_until
        RETURN {
            decision: d.id,
            outcomes: COLLECT {
                MATCH (d)-[h:HAS_OUTCOME]->(o:Outcome)
                WHERE h.known_at <= $given.known_until AND h.recorded_at <= $given.recorded_until
                  AND o.known_at <= $given.known_until AND o.recorded_at <= $given.recorded_until
                RETURN o.id
                ORDER BY o.id LIMIT 50
            }
        }
        ORDER BY d.id LIMIT 20
    } AS decisions,
    total
ORDER BY place

// speakers_of_subject //
// The agents with findings about a subject, or about the questions of its series, and their domains: the track records that a
// briefing shows.
// parameters: subject_id (string), known_until (datetime), recorded_until (datetime), limit (int)
// columns: speakers (list of {agent: string, domain: string, findings: int, claims: int, those that an outcome can settle})
// order: one row, in which findings descend; then agent, domain
// as_of: yes
//
// One row: of sixty, each would travel and be taken apart by itself, which takes longer than finding them.
MATCH (s:Subject {subject_id: $given.subject_id})
CALL (s) {
    RETURN s AS subject
  UNION
    MATCH (m:Market)
    WHERE m.series_id = s.series_id
      AND s.known_at <= $given.known_until AND s.recorded_at <= $given.recorded_until
      AND m.known_at <= $given.known_until AND m.recorded_at <= $given.recorded_until
    RETURN m AS subject
}
MATCH (subject)-[h:HAS_ANALYSIS]->(:Analysis)-[i:HAS_FINDING]->(f:Finding)
WHERE h.known_at <= $given.known_until AND h.recorded_at <= $given.recorded_until
  AND i.known_at <= $given.known_until AND i.recorded_at <= $given.recorded_until
  AND f.known_at <= $given.known_until AND f.recorded_at <= $given.recorded_until
WITH f.agent AS agent, f.domain AS domain, count(f) AS findings, count(f.metric) AS claims
ORDER BY findings DESC, agent, domain
LIMIT $given.limit
RETURN collect({agent: agent, domain: domain, findings: findings, claims: claims}) AS speakers

// peers //
// Similar companies.
// parameters: subject_id (string), limit (int)
// columns: peer (map), similarity (float, 0-1 or null)
// order: similarity descending, unknown ones last, then ticker
// as_of: no (a link's properties are dated by the journal alone)
MATCH (:Subject {subject_id: $given.subject_id})-[r:PEER_OF]-(peer:Company)
RETURN properties(peer) AS peer, r.similarity AS similarity
ORDER BY coalesce(similarity, -1.0) DESC, peer.ticker
LIMIT $given.limit

// debates_of_subject //
// Debates about a subject: who challenged whom, over which finding, and how it ended. Who won stands in the resolution.
// parameters: subject_id (string), known_until (datetime), recorded_until (datetime), limit (int)
// columns: debate (string: id), challenger (string), challenged (string), disputed (string: id of the finding, or null),
//   resolutions (list of ids; by id, 20 at most), total (int, debates that count)
// order: timestamp descending, then id; those corrected since before all
// as_of: yes
MATCH (s:Subject {subject_id: $given.subject_id})<-[b:ABOUT]-(d:Debate)
WHERE b.known_at <= $given.known_until AND b.recorded_at <= $given.recorded_until
  AND d.known_at <= $given.known_until AND d.recorded_at <= $given.recorded_until
WITH d, coalesce(d.correction_known_at > $given.known_until OR d.correction_recorded_at > $given.recorded_until, false) AS unsettled
ORDER BY d.timestamp DESC, d.id
WITH collect({d: d, unsettled: unsettled}) AS rows
WITH size(rows) AS total, [row IN rows WHERE row.unsettled] + [row IN rows WHERE NOT row.unsettled][..$given.limit] AS rows
UNWIND range(0, size(rows) - 1) AS place
WITH total, place, rows[place] AS row
WITH total, place, row.d AS d
RETURN d.id AS debate, d.challenger_agent AS challenger, d.challenged_agent AS challenged,
    head(COLLECT {
        MATCH (d)-[l:DISPUTES]->(f:Finding)
        WHERE l.known_at <= $given.known_until AND l.recorded_at <= $given.recorded_until
          AND f.known_at <= $given.known_until AND f.recorded_at <= $given.recorded_until
        RETURN f.id
        ORDER BY f.id
    }) AS disputed,
    COLLECT {
        MATCH (d)-[l:HAS_RESOLUTION]->(r:DebateResolution)
        WHERE l.known_at <= $given.known_until AND l.recorded_at <= $given.recorded_until
          AND r.known_at <= $given.known_until AND r.recorded_at <= $given.recorded_until
        RETURN r.id
        ORDER BY r.id LIMIT 20
    } AS resolutions,
    total
ORDER BY place

// contradictions_of_subject //
// Contradictions between sources about a subject's data: open ones first, by priority; those withdrawn are left out.
// parameters: subject_id (string), known_until (datetime), recorded_until (datetime), limit (int)
// columns: contradiction (string: id), total (int, contradictions that count)
// order: open before resolved, then by priority (CRITICAL first), timestamp descending, id; those corrected or resolved since before all
// as_of: yes
MATCH (c:DataContradiction {subject_id: $given.subject_id})
WHERE c.known_at <= $given.known_until AND c.recorded_at <= $given.recorded_until
WITH c, coalesce(c.correction_known_at > $given.known_until OR c.correction_recorded_at > $given.recorded_until
    OR c.resolution_known_at > $given.known_until OR c.resolution_recorded_at > $given.recorded_until, false) AS unsettled
WHERE unsettled OR coalesce(c.status, '') <> 'withdrawn'
WITH c, unsettled ORDER BY coalesce(c.status, '') IN ['resolved', 'provisional'],
    CASE coalesce(c.priority, 'MEDIUM') WHEN 'CRITICAL' THEN 0 WHEN 'HIGH' THEN 1 WHEN 'MEDIUM' THEN 2 ELSE 3 END,
    c.timestamp DESC, c.id
WITH collect({c: c, unsettled: unsettled}) AS rows
WITH size(rows) AS total, [row IN rows WHERE row.unsettled] + [row IN rows WHERE NOT row.unsettled][..$given.limit] AS rows
UNWIND range(0, size(rows) - 1) AS place
WITH total, place, rows[place].c AS c
RETURN c.id AS contradiction, total
ORDER BY place

// lessons_of_subject //
// Lessons about a subject that agents see: by a domain of its findings, by an active pattern of its analyses, or by a post-mortem of its
// decisions. `via` holds domain, pattern, decision. For a lesson that was corrected since, domain in `via` is not reliable: the caller
// compares the domains that the lesson had at the moment with `domains`. A lesson whose state changed since counts as corrected.
// parameters: subject_id (string), active (list of strings: those of its patterns that were active at the moment, which the journal
//   knows; Memory.query fills them in), known_until (datetime), recorded_until (datetime), limit (int)
// columns: lesson (string: id), via (list of strings), patterns (list of strings: pattern ids), domains (list of strings: of the subject),
//   newness (int: greater is newer; since when it was known, in microseconds, and on the recorded clock its place in the journal,
//   which no later statement moves), total (int, lessons that count, without those corrected since)
// order: newest first, then id; those corrected since before all
// as_of: yes
MATCH (any:Lesson)
// The server keeps this number; while it is zero, nothing has to be asked of the subject's findings.
WITH count(any) AS lessons WHERE lessons > 0
MATCH (s:Subject {subject_id: $given.subject_id})
CALL (s) {
    MATCH (s)-[h:HAS_ANALYSIS]->(:Analysis)-[i:HAS_FINDING]->(f:Finding)
    WHERE h.known_at <= $given.known_until AND h.recorded_at <= $given.recorded_until
      AND i.known_at <= $given.known_until AND i.recorded_at <= $given.recorded_until
      AND f.known_at <= $given.known_until AND f.recorded_at <= $given.recorded_until
    WITH f.domain AS domain ORDER BY domain
    RETURN collect(DISTINCT domain) AS domains
}
CALL (s, domains) {
    // A quoted phrase of the keyword analyzer is one whole domain; quotes and backslashes are the only ones that could end it.
    WITH domains, reduce(text = '', domain IN domains |
        text + CASE text WHEN '' THEN '' ELSE ' OR ' END
        + '"' + replace(replace(domain, '\\', '\\\\'), '"', '\\"') + '"') AS search
    WHERE search <> ''
    CALL db.index.fulltext.queryNodes('lesson_affected_domains', search) YIELD node
    WITH domains, node AS l
    WHERE any(domain IN l.affected_domains WHERE domain IN domains)
    RETURN l, 'domain' AS via, null AS pattern
  UNION ALL
    MATCH (s)-[h:HAS_ANALYSIS]->(:Analysis)-[i:IDENTIFIED_PATTERN]->(p:Pattern)<-[j:AFFECTS_PATTERN]-(l:Lesson)
    WHERE p.pattern_id IN $given.active
      AND h.known_at <= $given.known_until AND h.recorded_at <= $given.recorded_until
      AND i.known_at <= $given.known_until AND i.recorded_at <= $given.recorded_until
      AND j.known_at <= $given.known_until AND j.recorded_at <= $given.recorded_until
    RETURN DISTINCT l, 'pattern' AS via, p.pattern_id AS pattern
  UNION ALL
    MATCH (s)-[h:HAS_ANALYSIS]->(:Analysis)-[i:LED_TO]->(:Decision)-[j:HAS_POSTMORTEM]->(:PostMortem)-[k:GENERATED_LESSON]->(l:Lesson)
    WHERE h.known_at <= $given.known_until AND h.recorded_at <= $given.recorded_until
      AND i.known_at <= $given.known_until AND i.recorded_at <= $given.recorded_until
      AND j.known_at <= $given.known_until AND j.recorded_at <= $given.recorded_until
      AND k.known_at <= $given.known_until AND k.recorded_at <= $given.recorded_until
    RETURN DISTINCT l, 'decision' AS via, null AS pattern
  UNION ALL
    MATCH (l:Lesson)
    WHERE size(domains) > 0 AND (l.correction_known_at > $given.known_until OR l.correction_recorded_at > $given.recorded_until)
    RETURN l, null AS via, null AS pattern
}
WITH l, domains, via, pattern
ORDER BY via, pattern
WITH l, domains, collect(DISTINCT via) AS via, collect(DISTINCT pattern) AS patterns
WHERE l.known_at <= $given.known_until AND l.recorded_at <= $given.recorded_until
WITH l, domains, via, patterns,
     coalesce(l.correction_known_at > $given.known_until OR l.correction_recorded_at > $given.recorded_until, false)
     OR coalesce(l.state_known_at > $given.known_until OR l.state_recorded_at > $given.recorded_until, false) AS unsettled,
     l.state IN ['approved', 'applied'] OR l.state = 'pending_gate6' AND l.reviewed AS shown,
     CASE WHEN $given.recorded_until.year < 9999 THEN l.position
          ELSE l.known_at.epochSeconds * 1000000 + l.known_at.microsecond END AS newness
WHERE unsettled OR shown
WITH l, domains, via, patterns, unsettled, newness
ORDER BY newness DESC, l.id
WITH collect({l: l, domains: domains, via: via, patterns: patterns, unsettled: unsettled, newness: newness}) AS rows
WITH [row IN rows WHERE row.unsettled] AS corrected, [row IN rows WHERE NOT row.unsettled] AS rows
WITH size(rows) AS total, corrected + rows[..$given.limit] AS rows
UNWIND range(0, size(rows) - 1) AS place
WITH total, place, rows[place] AS row
WITH total, place, row, row.l AS l
RETURN l.id AS lesson, row.via AS via, row.patterns AS patterns, row.domains AS domains, row.newness AS newness, total
ORDER BY place

// similar_analyses //
// The analyses most like this one, by the edges that the similarity pipeline keeps, with what was decided after them.
// parameters: analysis_id (string), limit (int)
// columns: analysis (map), subject (map or null), score (float, 0-1), rank (int, 1 is nearest), model_version (string), decisions (list of maps; by id, 20 at most)
// order: rank, then id
// as_of: no (similarity as of a day searches the vectors with a time filter)
MATCH (:Analysis {id: $given.analysis_id})-[r:SIMILAR_TO]->(a:Analysis)
WHERE a.known_at IS NOT NULL
WITH r, a ORDER BY r.rank, a.id LIMIT $given.limit
RETURN properties(a) AS analysis,
    head(COLLECT { MATCH (s:Subject)-[:HAS_ANALYSIS]->(a) RETURN properties(s) }) AS subject,
    r.score AS score, r.rank AS rank, r.model_version AS model_version,
    COLLECT {
        MATCH (a)-[:LED_TO]->(d:Decision) WHERE d.known_at IS NOT NULL
        RETURN properties(d) ORDER BY d.id LIMIT 20
    } AS decisions
ORDER BY rank, a.id

// nearest_names //
// Subjects whose ticker, name, id or question is similar to a search text; `search` is made by imem.kg.queries.names_search, which
// allows for misspellings and beginnings of words.
// parameters: search (string, full-text expression, empty finds nothing), limit (int)
// columns: subject_id (string), name (string or null: the company's name, or the question), score (float, higher is nearer)
// order: score descending, then subject_id
// as_of: no (a name gives nothing away but itself)
WITH $given.search AS search WHERE search <> ''
// The index returns equal scores in the order of storage, so that all of them are sorted before the limit.
CALL db.index.fulltext.queryNodes('subject_names', search, {limit: 5000}) YIELD node, score
RETURN node.subject_id AS subject_id, coalesce(node.name, node.question) AS name, score
ORDER BY score DESC, subject_id
LIMIT $given.limit
