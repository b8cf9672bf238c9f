// doctor_server //
// Version and edition of the server, and its time. Columns: version: string, edition: string, now: datetime.
CALL dbms.components() YIELD name, versions, edition
WITH versions, edition, name WHERE name = 'Neo4j Kernel'
RETURN versions[0] AS version, edition, datetime.realtime() AS now

// doctor_timeouts //
// How often the server checks transactions for timeouts. Columns: value: string, such as 100ms.
SHOW SETTINGS 'db.transaction.monitor.check.interval' YIELD value

// doctor_stubs //
// Stubs, by their labels, that were first referred to before a moment and never recorded. Reads every node. Parameters: before.
// Columns: labels: list of strings, stubs: int, example: string, the first key.
MATCH (n) WHERE n.stub
  AND (EXISTS { (n)-[r]-() WHERE r.recorded_at < $given.before }
       OR any(name IN keys(n) WHERE name ENDS WITH '_recorded_at' AND n[name] < $given.before))
RETURN labels(n) AS labels, count(*) AS stubs,
    min(coalesce(n.id, n.subject_id, n.name, n.pattern_id, n.source_name, n.file_path)) AS example
ORDER BY labels

// doctor_properties //
// Nodes that lack a property which their kind must have, or hold one of another type. Asks every node once: one statement for
// each kind would take longer to plan than to run. Parameters: kinds (map of label to {key: the key property, properties: list
// of {name, required: bool, group: name or null for the core, types: list of the server's names of types}}). Columns: kind:
// string, nodes: int, example: string, the first key.
MATCH (n) WHERE n.stub IS NULL AND n.archived IS NULL
WITH n, head([label IN labels(n) WHERE $given.kinds[label] IS NOT NULL]) AS kind
WHERE kind IS NOT NULL
  AND any(p IN $given.kinds[kind].properties WHERE CASE
      WHEN n[p.name] IS NULL THEN p.required AND (p.group IS NULL OR n[p.group + '_known_at'] IS NOT NULL)
      ELSE NOT valueType(n[p.name]) IN p.types END)
RETURN kind, count(n) AS nodes, min(n[$given.kinds[kind].key]) AS example
ORDER BY kind

// ping //
// Whether the server answers. Columns: one: int.
RETURN 1 AS one
