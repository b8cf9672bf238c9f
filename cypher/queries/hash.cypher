// labels_in_use //
// The labels that nodes of this graph may have: label.
CALL db.labels() YIELD label RETURN label

// hash_page //
// Nodes of one label in the order of their key, each with its properties and the links that are counted with it, for the
// hash of the graph. «label» the kind, «key» its key property. A time is told apart from a text that looks like it.
// Parameters: after (the last key of the page before, empty at first), limit (nodes), hidden (names of properties that are
// no facts), outward and inward (types of the links that start and end here and are counted here), link_hidden, labels
// (every kind), keys (kind → key property).
MATCH (n:«label») WHERE n.«key» > $given.after
WITH n ORDER BY n.«key» LIMIT $given.limit
RETURN n.«key» AS key,
    [name IN keys(n) WHERE NOT name IN $given.hidden
        | CASE WHEN n[name] IS :: ZONED DATETIME THEN [name, toString(n[name]), 'time'] ELSE [name, n[name]] END] AS properties,
    [(n)-[r]->(m) WHERE type(r) IN $given.outward
        | [type(r), head([label IN labels(m) WHERE label IN $given.labels]), m[$given.keys[head([label IN labels(m) WHERE label IN $given.labels])]],
           [name IN keys(r) WHERE NOT name IN $given.link_hidden
               | CASE WHEN r[name] IS :: ZONED DATETIME THEN [name, toString(r[name]), 'time'] ELSE [name, r[name]] END]]]
        AS outward,
    [(n)<-[r]-(m) WHERE type(r) IN $given.inward
        | [type(r), head([label IN labels(m) WHERE label IN $given.labels]), m[$given.keys[head([label IN labels(m) WHERE label IN $given.labels])]],
           [name IN keys(r) WHERE NOT name IN $given.link_hidden
               | CASE WHEN r[name] IS :: ZONED DATETIME THEN [name, toString(r[name]), 'time'] ELSE [name, r[name]] END]]]
        AS inward
ORDER BY key
