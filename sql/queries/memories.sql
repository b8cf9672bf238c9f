-- search_memories --
-- Candidates for a query, with their raw scores; see recall.search_memories_v1. Parameters: scopes, query, model_id, dimension,
-- vector (NULL: by words alone), memory_type, agent_id, conversation_id (each NULL for any), until (NULL: now), candidates (of each
-- list), exact (most memories that are compared one by one), items (true: items of LangGraph's store alone; NULL: whatever there is),
-- filter (of their values; NULL: any).
SELECT id, version, collection, place, ordinal, author, at, occurred_at, words, similarity, context, by_words, by_meaning, by_context, part, unembedded
FROM recall.search_memories_v1(
    %(scopes)s::text[], %(query)s,
    (SELECT m.model FROM embedding_model AS m WHERE m.model_id = %(model_id)s AND m.dimension = %(dimension)s),
    %(vector)s::halfvec, %(memory_type)s, %(agent_id)s, %(conversation_id)s, %(until)s::timestamptz, %(candidates)s, %(exact)s,
    %(items)s::boolean, %(filter)s::jsonb)

-- memories_wait --
-- Whether vectors of memories are still to be made; see recall.memories_wait_v1. Parameters: scopes, model_id, dimension, until.
SELECT recall.memories_wait_v1(
    %(scopes)s::text[], (SELECT m.model FROM embedding_model AS m WHERE m.model_id = %(model_id)s AND m.dimension = %(dimension)s),
    %(until)s::timestamptz) AS waits

-- memories_by_version --
-- The given versions of memories, in the given order, with the importance of a moment, and who else says the same: then, or, of a version
-- that ended, at its end; if past, during all of it. Parameters: ids, versions, until (NULL: now), past.
SELECT m.id, m.version, m.namespace, m.memory_type, m.content, m.metadata,
    recall.importance_v1(m.id, m.version, m.importance, %(until)s::timestamptz) AS importance, m.agent_id, m.user_id, m.conversation_id,
    m.ordinal, m.author, m.occurred_at, m.created_at, m.recorded_at, m.superseded_at, m.superseded_by, m.reason, m.item_key, m.expires_at,
    coalesce(u.access_count, 0) AS access_count, u.last_accessed_at,
    coalesce((s.assertions -> 0 ->> 'by_person')::boolean, false) AS by_person, coalesce(s.assertions - 0, '[]') AS also_said_by
FROM unnest(%(ids)s::uuid[], %(versions)s::integer[]) WITH ORDINALITY AS w (id, version, nth)
JOIN recall.memory AS m ON m.id = w.id AND m.version = w.version
LEFT JOIN recall.memory_use AS u ON u.id = m.id
CROSS JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object(
        'agent_id', a.actor, 'by_person', a.by_person, 'content', a.content, 'author', a.author, 'metadata', a.metadata,
        'importance', a.importance, 'recorded_at', a.recorded_at,
        'ended_at', CASE WHEN %(past)s THEN a.ended_at END, 'superseded_by', CASE WHEN %(past)s THEN a.superseded_by END,
        'reason', CASE WHEN %(past)s THEN a.reason END) ORDER BY a.by_person DESC, a.said_at, a.assertion) AS assertions
    FROM recall.memory_assertion AS a
    WHERE a.id = m.id AND CASE
        WHEN %(past)s THEN a.recorded_at < coalesce(m.superseded_at, 'infinity') AND coalesce(a.ended_at, 'infinity') > m.recorded_at
        WHEN %(until)s::timestamptz IS NOT NULL THEN
            CASE WHEN a.recorded_at = m.recorded_at THEN m.known_at ELSE a.recorded_at END <= %(until)s::timestamptz AND coalesce(a.ended_at, 'infinity') > %(until)s::timestamptz
        ELSE a.recorded_at < coalesce(m.superseded_at, 'infinity') AND coalesce(a.ended_at, 'infinity') >= coalesce(m.superseded_at, 'infinity') END
) AS s
ORDER BY w.nth

-- memory_at --
-- The version of a memory that was the last one at a moment, as far as it is of the given scopes. Parameters: id, scopes, until (NULL: now).
SELECT m.id, m.version FROM recall.memory AS m
JOIN recall.memory_namespace AS s ON s.namespace = m.namespace AND s.scopes && %(scopes)s::text[]
WHERE m.id = %(id)s::uuid AND m.known_at <= coalesce(%(until)s::timestamptz, 'infinity') ORDER BY m.version DESC LIMIT 1

-- listed_memories --
-- The current memories of the given scopes, or those of a moment, the last recorded first. Parameters: scopes, until (NULL: now), user_id
-- and user_scopes (those of this user, or within these scopes; NULL: any), memory_type, agent_id (those that this actor holds; each NULL
-- for any), limit, offset.
SELECT l.id, l.version FROM recall.memory_namespace AS s
CROSS JOIN LATERAL (
    SELECT m.id, m.version, m.recorded_at FROM recall.memory AS m
    WHERE m.namespace = s.namespace AND m.known_at <= coalesce(%(until)s::timestamptz, 'infinity')
      AND (m.superseded_at IS NULL OR m.superseded_at > %(until)s::timestamptz)
      AND (m.expires_at IS NULL OR m.expires_at > coalesce(%(until)s::timestamptz, imem_now()))
      AND (%(user_id)s::text IS NULL OR m.user_id = %(user_id)s OR s.scopes && %(user_scopes)s::text[])
      AND m.memory_type = coalesce(%(memory_type)s, m.memory_type)
      AND (%(agent_id)s::text IS NULL OR m.item_key IS NOT NULL AND m.agent_id = %(agent_id)s OR EXISTS (
          SELECT FROM recall.memory_assertion AS a
          WHERE a.id = m.id AND a.actor = %(agent_id)s
            AND CASE WHEN a.recorded_at = m.recorded_at THEN m.known_at ELSE a.recorded_at END <= coalesce(%(until)s::timestamptz, 'infinity')
            AND (a.ended_at IS NULL OR a.ended_at > %(until)s::timestamptz)))
    ORDER BY m.recorded_at DESC, m.id LIMIT %(limit)s::bigint + %(offset)s::bigint
) AS l
WHERE s.scopes && %(scopes)s::text[]
ORDER BY l.recorded_at DESC, l.id LIMIT %(limit)s OFFSET %(offset)s

-- memory_versions --
-- Every version of a memory, of those that took its place, and of those whose place it took, oldest first, as far as they are of the
-- given scopes. Parameters: id, scopes.
WITH RECURSIVE chain (id) AS (
    SELECT %(id)s::uuid
    UNION
    SELECT CASE WHEN l.id = c.id THEN l.superseded_by ELSE l.id END FROM chain AS c
    CROSS JOIN LATERAL (
        SELECT m.id, m.superseded_by FROM recall.memory AS m WHERE m.id = c.id OR m.superseded_by = c.id
        UNION ALL SELECT a.id, a.superseded_by FROM recall.memory_assertion AS a WHERE a.id = c.id OR a.superseded_by = c.id
    ) AS l
    WHERE l.superseded_by IS NOT NULL
)
SELECT m.id, m.version FROM chain AS c JOIN recall.memory AS m ON m.id = c.id
JOIN recall.memory_namespace AS s ON s.namespace = m.namespace AND s.scopes && %(scopes)s::text[]
ORDER BY m.recorded_at, m.id, m.version

-- memory_rights --
-- The namespace of a memory, who said it first, its author now, whether an actor says or said it, whether of what is said in it the actor may end nothing, as all of
-- it is people's, and whether it may delete all of it; no row where there is no such memory. Parameters: id, actor, role.
SELECT m.namespace, m.agent_id AS owner,
    (SELECT o.author FROM recall.memory AS o WHERE o.id = m.id ORDER BY o.version DESC LIMIT 1) AS author, EXISTS (
        SELECT FROM recall.memory_assertion AS a
        WHERE a.id = m.id AND a.actor = %(actor)s AND a.by_person = (%(role)s = 'human_admin')) AS is_own,
    coalesce((SELECT bool_and(a.by_person AND NOT recall.may_end_v1(%(actor)s, %(role)s, m.namespace, a.actor, a.by_person))
              FROM recall.memory_assertion AS a WHERE a.id = m.id AND a.ended_at IS NULL), false) AS of_people,
    recall.may_delete_v1(%(actor)s, %(role)s, m.namespace, m.id) AS may_delete
FROM recall.memory AS m WHERE m.id = %(id)s ORDER BY m.version LIMIT 1

-- last_of_conversation --
-- The last message of a conversation in a namespace; no row for a new one.
SELECT id, recall.searched_text_v1(author, content) AS said FROM recall.memory
WHERE namespace = %(namespace)s AND conversation_id = %(conversation_id)s AND superseded_at IS NULL
ORDER BY ordinal DESC LIMIT 1

-- text_model --
-- The number of a model, which is registered for texts; see recall.text_model_v1.
SELECT recall.text_model_v1(%(model_id)s, %(dimension)s, %(unrelated)s) AS model

-- drop_unused_indexes --
-- Drops the indexes of models that no vectors are of any more; see recall.drop_unused_indexes_v1.
SELECT recall.drop_unused_indexes_v1(%(model)s::smallint) AS dropped

-- store_memory --
-- Stores a memory; see recall.store_memory_v1. Columns: status, id, version, recorded_at, waits.
SELECT status, id, version, recorded_at, waits
FROM recall.store_memory_v1(
    %(actor)s, %(role)s, %(id)s::uuid, %(namespace)s, %(memory_type)s, %(content)s, %(metadata)s::jsonb, %(importance)s::float8,
    %(user_id)s, %(conversation_id)s, %(author)s, %(occurred_at)s::timestamptz, %(model)s::smallint, %(vector)s::halfvec, %(parts)s::json, %(context_vector)s::halfvec,
    %(before)s::uuid, %(similar)s::float8, %(exact)s, %(imported)s, %(created_at)s::timestamptz,
    %(known_at)s::timestamptz, %(most)s::bigint)

-- supersede_memory --
-- Puts a memory in the place of another, or, with content NULL, none; see recall.supersede_memory_v1. Columns: status, id, version,
-- recorded_at, waits, remains.
SELECT status, id, version, recorded_at, waits, remains
FROM recall.supersede_memory_v1(
    %(actor)s, %(role)s, %(known)s::uuid, %(id)s::uuid, %(content)s, %(metadata)s::jsonb, %(importance)s::float8, %(model)s::smallint,
    %(vector)s::halfvec, %(parts)s::json, %(reason)s)

-- delete_memories --
-- Deletes memories; see recall.delete_memories_v1. Column: deleted, their ids and those of what they had taken the place of. Parameters:
-- actor, role, ids.
SELECT recall.delete_memories_v1(%(actor)s, %(role)s, %(ids)s::uuid[]) AS deleted

-- memories_to_delete --
-- Memories of the given scopes that an actor may delete, ended ones included, in the order of their ids. Parameters: actor, role, scopes, user_id
-- and user_scopes (as listed_memories), after (the id before), limit.
SELECT DISTINCT m.id FROM recall.memory_namespace AS s JOIN recall.memory AS m ON m.namespace = s.namespace
WHERE s.scopes && %(scopes)s::text[] AND m.id > %(after)s::uuid
  AND (%(user_id)s::text IS NULL OR m.user_id = %(user_id)s OR s.scopes && %(user_scopes)s::text[])
  AND recall.may_delete_v1(%(actor)s, %(role)s, m.namespace, m.id)
ORDER BY m.id LIMIT %(limit)s

-- put_items --
-- Puts items, or deletes those without a value; see recall.put_items_v1.
SELECT recall.put_items_v1(
    %(actor)s, %(role)s, %(namespaces)s::text[], %(keys)s::text[], %(values)s::text[], %(contents)s::text[], %(vectors)s::text[], %(parts)s::text[],
    %(ttls)s::float8[], %(created)s::timestamptz[], %(known)s::timestamptz[], %(model)s::smallint)

-- items_by_key --
-- The current items of the given namespaces and keys. Parameters: namespaces, keys.
SELECT m.id, m.namespace, m.item_key, m.metadata, m.created_at, m.recorded_at, m.expires_at
FROM unnest(%(namespaces)s::text[], %(keys)s::text[]) AS w (namespace, key)
JOIN recall.memory AS m ON m.id = recall.item_id_v1(w.namespace, w.key) AND m.namespace = w.namespace AND m.item_key = w.key
WHERE m.superseded_at IS NULL AND (m.expires_at IS NULL OR m.expires_at > imem_now())

-- item_versions --
-- A version of the item of a namespace and key, deleted or not; no row where none was put ever. Parameters: namespace, key.
SELECT version FROM recall.memory WHERE id = recall.item_id_v1(%(namespace)s, %(key)s) LIMIT 1

-- newest_items --
-- The current items of some namespaces that a filter leaves, the last put first. Parameters: scopes, filter (NULL for none), limit, offset.
SELECT m.id, m.namespace, m.item_key, m.metadata, m.created_at, m.recorded_at, m.expires_at
FROM recall.memory_namespace AS s JOIN recall.memory AS m ON m.namespace = s.namespace
CROSS JOIN (SELECT recall.filter_parts_v1(%(filter)s::jsonb) AS parts) AS f
WHERE s.scopes && %(scopes)s::text[] AND m.superseded_at IS NULL AND m.item_key IS NOT NULL
  AND (m.expires_at IS NULL OR m.expires_at > imem_now())
  AND (%(filter)s::jsonb IS NULL OR m.metadata @> coalesce(f.parts -> 'exact', '{}')
       AND (f.parts -> 'value' IS NULL OR recall.matches_v1(m.metadata, f.parts -> 'value')))
ORDER BY m.recorded_at DESC, m.namespace, m.item_key LIMIT %(limit)s OFFSET %(offset)s

-- item_namespaces --
-- The namespaces of current items below a root of so many segments, in the order of their segments. Parameters: scopes, root, depth (most
-- segments below the root that are shown, NULL for all), prefixes and suffixes (lists of lists of segments; an asterisk is any), limit,
-- offset.
SELECT DISTINCT p.segments[:%(root)s + coalesce(%(depth)s, 1000)] AS segments
FROM recall.memory_namespace AS s
CROSS JOIN LATERAL (SELECT string_to_array(s.namespace, '/') COLLATE "C" AS segments) AS p
CROSS JOIN LATERAL (SELECT p.segments[%(root)s + 1:] AS below) AS b
WHERE s.scopes && %(scopes)s::text[] AND EXISTS (
    SELECT FROM recall.memory AS m
    WHERE m.namespace = s.namespace AND m.superseded_at IS NULL AND m.item_key IS NOT NULL
      AND (m.expires_at IS NULL OR m.expires_at > imem_now()))
  AND NOT EXISTS (
    SELECT FROM jsonb_array_elements(%(prefixes)s::jsonb) AS c (path), jsonb_array_elements_text(c.path) WITH ORDINALITY AS w (label, nth)
    WHERE w.label <> '*' AND b.below[w.nth] IS DISTINCT FROM w.label OR cardinality(b.below) < jsonb_array_length(c.path))
  AND NOT EXISTS (
    SELECT FROM jsonb_array_elements(%(suffixes)s::jsonb) AS c (path), jsonb_array_elements_text(c.path) WITH ORDINALITY AS w (label, nth)
    WHERE cardinality(b.below) < jsonb_array_length(c.path)
      OR w.label <> '*' AND b.below[cardinality(b.below) - jsonb_array_length(c.path) + w.nth] IS DISTINCT FROM w.label)
ORDER BY 1 LIMIT %(limit)s OFFSET %(offset)s

-- refresh_items --
-- Puts off the expiry of items that were read. Parameters: ids.
SELECT recall.refresh_items_v1(%(ids)s::uuid[])

-- count_accesses --
-- Adds to how often memories were found. Parameters: ids, counts.
SELECT recall.count_accesses_v1(%(ids)s::uuid[], %(counts)s::bigint[])

-- memories_to_embed --
-- The current versions of the given memories, each with the text of the message before it in its conversation. Parameters: ids.
SELECT m.id, m.version, m.author, m.content, b.said AS before
FROM recall.memory AS m
LEFT JOIN LATERAL (
    SELECT recall.searched_text_v1(o.author, o.content) AS said FROM recall.memory AS o
    WHERE o.namespace = m.namespace AND o.conversation_id = m.conversation_id AND o.ordinal < m.ordinal AND o.superseded_at IS NULL
    ORDER BY o.ordinal DESC LIMIT 1
) AS b ON true
WHERE m.id = ANY (%(ids)s::uuid[]) AND m.superseded_at IS NULL
ORDER BY m.id

-- memories_of_other_models --
-- Current memories whose vectors are of another model. Parameters: model, limit.
SELECT id FROM recall.memory
WHERE superseded_at IS NULL AND model = ANY (ARRAY(SELECT o.model FROM embedding_model AS o WHERE o.model <> %(model)s::smallint))
LIMIT %(limit)s

-- set_memory_vectors --
-- Stores vectors that were made later. Parameters: model, ids, versions, vectors, parts, contexts (NULL for none).
SELECT recall.set_vectors_v1(
    %(model)s::smallint, %(ids)s::uuid[], %(versions)s::integer[], %(vectors)s::text[], %(parts)s::text[],
    %(contexts)s::text[])

-- namespaces_to_consolidate --
-- A namespace in which something was recorded since it was consolidated, and up to when to look at it: at most so many memories.
-- Messages of conversations are not counted: they stay as they were said. Parameters: model, page, and to go on within a namespace, it and
-- after, up to when it was looked at (NULL to begin).
SELECT s.namespace, coalesce((
    SELECT m.recorded_at FROM recall.memory AS m
    WHERE m.namespace = s.namespace AND m.recorded_at > greatest(s.consolidated_at, %(after)s::timestamptz)
      AND m.superseded_at IS NULL AND m.conversation_id IS NULL AND m.item_key IS NULL AND m.model = %(model)s::smallint
    ORDER BY m.recorded_at OFFSET %(page)s - 1 LIMIT 1), imem_now()) AS at
FROM recall.memory_namespace AS s
WHERE EXISTS (
    SELECT FROM recall.memory AS m
    WHERE m.namespace = s.namespace AND m.recorded_at > greatest(s.consolidated_at, %(after)s::timestamptz) AND m.superseded_at IS NULL
      AND m.conversation_id IS NULL AND m.item_key IS NULL AND m.model = %(model)s::smallint)
  AND s.namespace = coalesce(%(namespace)s, s.namespace)
ORDER BY s.namespace LIMIT 1

-- similar_memories --
-- Pairs of a namespace of which one was recorded since it was consolidated, after one moment (NULL: any) and until another, that are of
-- one type and user, may say the same, and where the similarity of what differs is above the given one. Parameters: namespace, after, at, model, least, exact, limit (neighbours of each).
SELECT m.id, n.id AS other
FROM recall.memory_namespace AS s
JOIN recall.memory AS m ON m.namespace = s.namespace AND m.recorded_at > greatest(s.consolidated_at, %(after)s::timestamptz)
    AND m.recorded_at <= %(at)s::timestamptz
JOIN embedding_model AS e ON e.model = m.model
CROSS JOIN LATERAL recall.nearest_texts_v1(
    'memory', 'vector', ARRAY[m.namespace], m.model, m.vector,
    jsonb_build_object('memory_type', m.memory_type, 'user_id', m.user_id, 'is_item', false, 'is_message', false), NULL,
    %(limit)s, s.memories > %(exact)s) AS n
JOIN recall.memory AS o ON o.id = n.id AND o.version = n.version
WHERE s.namespace = %(namespace)s AND m.model = %(model)s::smallint AND m.superseded_at IS NULL AND m.conversation_id IS NULL
  AND m.item_key IS NULL AND n.id <> m.id AND (n.similarity - e.unrelated) / (1 - e.unrelated) > %(least)s::float8
  AND recall.difference_similarity_v1(
      recall.searched_text_v1(m.author, m.content), recall.searched_text_v1(m.author, o.content), (n.similarity - e.unrelated) / (1 - e.unrelated)) > %(least)s::float8

-- memories_in_order --
-- Which of the given memories are current, in the order that decides which is kept: the most important, then the longest.
SELECT m.id FROM recall.memory AS m WHERE m.id = ANY (%(ids)s::uuid[]) AND m.superseded_at IS NULL
ORDER BY recall.importance_v1(m.id, m.version, m.importance, NULL) DESC, length(m.content) DESC, m.content COLLATE "C", m.id

-- memories_alike --
-- The similarity of what differs in every two of the given memories of one type and user that may say the same. A memory stands
-- for those that it took the place of, too: the least similar two count, so that a chain does not become one in several rounds.
-- Parameters: ids, model.
WITH RECURSIVE member (root, id, version) AS (
    SELECT m.id, m.id, m.version FROM recall.memory AS m
    WHERE m.id = ANY (%(ids)s::uuid[]) AND m.superseded_at IS NULL AND m.model = %(model)s::smallint
    UNION
    SELECT g.root, x.id, x.version FROM member AS g JOIN recall.memory AS x ON x.superseded_by = g.id
),
vectors AS MATERIALIZED (
    SELECT g.root, m.vector FROM member AS g JOIN recall.memory AS m ON m.id = g.id AND m.version = g.version
    WHERE m.model = %(model)s::smallint
)
SELECT m.id, o.id AS other, recall.difference_similarity_v1(recall.searched_text_v1(m.author, m.content), recall.searched_text_v1(m.author, o.content), (
    SELECT (1 - max(a.vector <=> b.vector) - e.unrelated) / (1 - e.unrelated)
    FROM vectors AS a CROSS JOIN vectors AS b WHERE a.root = m.id AND b.root = o.id)) AS similarity
FROM recall.memory AS m JOIN embedding_model AS e ON e.model = m.model
LEFT JOIN recall.memory AS o ON o.id = ANY (%(ids)s::uuid[]) AND o.id > m.id AND o.superseded_at IS NULL AND o.model = m.model
    AND o.memory_type = m.memory_type AND o.user_id IS NOT DISTINCT FROM m.user_id AND recall.may_say_the_same_v1(m.content, o.content)
WHERE m.id = ANY (%(ids)s::uuid[]) AND m.superseded_at IS NULL AND m.model = %(model)s::smallint

-- merge_memories --
-- Makes one memory of several; see recall.merge_memories_v1. Parameters: keep, others.
SELECT recall.merge_memories_v1(%(keep)s::uuid, %(others)s::uuid[]) AS merged

-- note_consolidated --
-- Notes up to when a namespace is consolidated.
UPDATE recall.memory_namespace SET consolidated_at = %(at)s::timestamptz WHERE namespace = %(namespace)s

-- namespace_to_maintain --
-- A namespace that was not maintained within the last 20 hours.
SELECT namespace FROM recall.memory_namespace WHERE maintained_at < imem_now() - interval '20 hours' ORDER BY namespace LIMIT 1

-- maintain_memories --
-- Lets importance decay, and deletes old, unimportant, rarely accessed memories, a page at a time; see recall.maintain_memories_v1.
SELECT decayed, deleted
FROM recall.maintain_memories_v1(
    %(namespace)s, %(page)s, %(unused)s::interval, %(decay)s::float8, %(least)s::float8, %(age)s::interval, %(accesses)s::bigint)
