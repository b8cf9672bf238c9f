-- search_memories --
-- Candidates for a query, with their raw scores; see recall.search_memories_v1. Parameters: scopes, query, model_id, dimension,
-- vector (NULL: by words alone), memory_type, agent_id, conversation_id (each NULL for any), until (NULL: now), candidates (of each
-- list), exact (most memories that are compared one by one).
SELECT id, version, namespace, conversation_id, ordinal, author, words, similarity, context, by_words, by_meaning, by_context, unembedded
FROM recall.search_memories_v1(
    %(scopes)s::text[], %(query)s,
    (SELECT m.model FROM embedding_model AS m WHERE m.model_id = %(model_id)s AND m.dimension = %(dimension)s),
    %(vector)s::halfvec, %(memory_type)s, %(agent_id)s, %(conversation_id)s, %(until)s::timestamptz, %(candidates)s, %(exact)s)

-- memories_by_version --
-- The given versions of memories, in the given order. Parameters: ids, versions.
SELECT m.id, m.version, m.namespace, m.memory_type, m.content, m.metadata, m.importance, m.agent_id, m.user_id, m.conversation_id,
    m.ordinal, m.author, m.created_at, m.recorded_at, m.superseded_at, m.superseded_by, m.reason,
    coalesce(u.access_count, 0) AS access_count, u.last_accessed_at
FROM unnest(%(ids)s::uuid[], %(versions)s::integer[]) WITH ORDINALITY AS w (id, version, nth)
JOIN recall.memory AS m ON m.id = w.id AND m.version = w.version
LEFT JOIN recall.memory_use AS u ON u.id = m.id
ORDER BY w.nth

-- memory_versions --
-- Every version of a memory, of those that took its place, and of those whose place it took, oldest first, as far as they are of the
-- given scopes. Parameters: id, scopes.
WITH RECURSIVE chain (id) AS (
    SELECT %(id)s::uuid
    UNION
    SELECT CASE WHEN m.id = c.id THEN m.superseded_by ELSE m.id END FROM chain AS c
    JOIN recall.memory AS m ON m.id = c.id OR m.superseded_by = c.id
    WHERE m.superseded_by IS NOT NULL
)
SELECT m.id, m.version FROM chain AS c JOIN recall.memory AS m ON m.id = c.id
JOIN recall.memory_namespace AS s ON s.namespace = m.namespace AND s.scopes && %(scopes)s::text[]
ORDER BY m.recorded_at, m.id, m.version

-- memory_namespace_of --
-- The namespace of a memory; no row where there is no such memory.
SELECT namespace FROM recall.memory WHERE id = %(id)s ORDER BY version DESC LIMIT 1

-- last_of_conversation --
-- The last message of a conversation in a namespace; no row for a new one.
SELECT id, content FROM recall.memory
WHERE namespace = %(namespace)s AND conversation_id = %(conversation_id)s AND superseded_at IS NULL
ORDER BY ordinal DESC LIMIT 1

-- memory_model --
-- The number of a model, which is registered for memories; see recall.memory_model_v1.
SELECT recall.memory_model_v1(%(model_id)s, %(dimension)s, %(unrelated)s) AS model

-- store_memory --
-- Stores a memory; see recall.store_memory_v1. Columns: status, id, version, recorded_at, waits.
SELECT status, id, version, recorded_at, waits
FROM recall.store_memory_v1(
    %(actor)s, %(role)s, %(id)s::uuid, %(namespace)s, %(memory_type)s, %(content)s, %(metadata)s::jsonb, %(importance)s::float8,
    %(user_id)s, %(conversation_id)s, %(author)s, %(model)s::smallint, %(vector)s::halfvec, %(context_vector)s::halfvec,
    %(before)s::uuid, %(similar)s::float8, %(exact)s)

-- supersede_memory --
-- Puts a memory in the place of another; see recall.supersede_memory_v1. Columns: status, id, version, recorded_at, waits.
SELECT status, id, version, recorded_at, waits
FROM recall.supersede_memory_v1(
    %(actor)s, %(role)s, %(known)s::uuid, %(id)s::uuid, %(content)s, %(metadata)s::jsonb, %(importance)s::float8, %(model)s::smallint,
    %(vector)s::halfvec, %(reason)s)

-- count_accesses --
-- Adds to how often memories were found. Parameters: ids, counts.
SELECT recall.count_accesses_v1(%(ids)s::uuid[], %(counts)s::bigint[])

-- memories_to_embed --
-- The current versions of the given memories, each with the text of the message before it in its conversation. Parameters: ids.
SELECT m.id, m.version, m.content, b.content AS before
FROM recall.memory AS m
LEFT JOIN LATERAL (
    SELECT o.content FROM recall.memory AS o
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
-- Stores vectors that were made later. Parameters: model, ids, versions, vectors, contexts (NULL for none).
SELECT recall.set_vectors_v1(
    %(model)s::smallint, %(ids)s::uuid[], %(versions)s::integer[], %(vectors)s::text[], %(contexts)s::text[])
