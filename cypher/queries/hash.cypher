// labels_in_use //
// The labels that nodes of this graph may have: label.
CALL db.labels() YIELD label RETURN label

// hash_page //
// The next nodes of one label in the order of their key, as their keys and ids. «label» the kind, «key» its key property. What is
// hashed of them is another statement, which says nothing of a label: to plan that one for each takes half a second a label.
// Parameters: after (the last key of the page before, empty at first), limit (nodes).
MATCH (n:«label») WHERE n.«key» > $given.after
RETURN n.«key» AS key, elementId(n) AS id ORDER BY key LIMIT $given.limit

// hash_nodes //
// Nodes, each with its properties and the links that are counted with it, for the hash of the graph: id, properties, outward,
// inward. A time is told apart from a text that looks like it.
// Parameters: ids, hidden (names of properties that are no facts), outward and inward (types of the links that start and end here
// and are counted here), link_hidden, labels (every kind), keys (kind → key property).
UNWIND $given.ids AS id
MATCH (n) WHERE elementId(n) = id
RETURN id,
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
