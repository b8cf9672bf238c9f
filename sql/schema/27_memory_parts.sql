-- Vectors of the parts of long memories (20_memories.sql): an encoder reads the beginning of a text alone.
--
-- Bounds: a part has at most 900 characters, so that a memory has at most some 40 of them (imem.recall.memories.parts). That of the first
-- is in the memory's own row: most memories have no other.

CREATE TABLE recall.memory_part (
    id            uuid NOT NULL,
    version       integer NOT NULL,
    part          smallint NOT NULL CHECK (part > 0),
    namespace     text COLLATE "C" NOT NULL,
    superseded_at timestamptz,
    model         smallint NOT NULL REFERENCES embedding_model,
    vector        halfvec NOT NULL,
    PRIMARY KEY (id, version, part),
    FOREIGN KEY (id, version) REFERENCES recall.memory ON DELETE CASCADE
) WITH (toast_tuple_target = 8160);
ALTER TABLE recall.memory_part ALTER vector SET STORAGE MAIN;
CREATE INDEX memory_part_namespace ON recall.memory_part (namespace);
COMMENT ON TABLE recall.memory_part IS 'A row for each part of a version after the first.';
COMMENT ON COLUMN recall.memory_part.superseded_at IS 'As of the version, as the namespace is: indexes of vectors hold current ones alone.';

CREATE FUNCTION recall.end_parts_v1() RETURNS trigger
LANGUAGE plpgsql SET search_path = recall, public, pg_temp
AS $$
-- The parts of a version end when it ends.
BEGIN
    UPDATE memory_part AS p SET superseded_at = NEW.superseded_at WHERE p.id = NEW.id AND p.version = NEW.version;
    RETURN NULL;
END
$$;
CREATE TRIGGER parts_end AFTER UPDATE OF superseded_at ON recall.memory FOR EACH ROW EXECUTE FUNCTION recall.end_parts_v1();

CREATE VIEW recall.part_of_memory WITH (security_invoker = true) AS
SELECT p.id, p.version, p.part, p.namespace, p.superseded_at, p.model, p.vector, m.known_at, m.memory_type, m.agent_id,
    m.conversation_id, m.item_key, m.metadata, m.expires_at
FROM recall.memory_part AS p JOIN recall.memory AS m ON m.id = p.id AND m.version = p.version;
COMMENT ON VIEW recall.part_of_memory IS 'Parts after the first, with whatever of their memories a search asks for.';

CREATE FUNCTION recall.add_parts_v1(p_id uuid, p_version integer, p_from uuid, p_from_version integer, p_parts json) RETURNS void
LANGUAGE sql SET search_path = recall, public, pg_temp
AS $$
-- Stores the vectors of the parts of a new version after the first: p_parts, or those of a version of the same text where one is given.
INSERT INTO memory_part (id, version, part, namespace, superseded_at, model, vector)
SELECT m.id, m.version, n.part, m.namespace, m.superseded_at, m.model, n.vector
FROM memory AS m CROSS JOIN LATERAL (
    SELECT e.part::smallint, e.vector::halfvec FROM json_array_elements_text(p_parts) WITH ORDINALITY AS e (vector, part) WHERE p_from IS NULL
    UNION ALL SELECT b.part, b.vector FROM memory_part AS b WHERE b.id = p_from AND b.version = p_from_version) AS n (part, vector)
WHERE m.id = p_id AND m.version = p_version
$$;

CREATE FUNCTION recall.set_vectors_v1(
    p_model smallint, p_ids uuid[], p_versions integer[], p_vectors text[], p_parts text[], p_contexts text[]
) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Stores vectors that were made later, of versions that are still there. A vector that is NULL: the model refuses the text, which keeps
-- none of another model either. What had no vector when its namespace was consolidated is compared in the next round.
UPDATE memory_namespace AS s SET consolidated_at = n.since
FROM (SELECT m.namespace, min(m.recorded_at) - interval '1 microsecond' AS since
      FROM unnest(p_ids, p_versions) AS g (id, version) JOIN memory AS m ON m.id = g.id AND m.version = g.version
      WHERE m.vector IS NULL AND m.conversation_id IS NULL AND m.item_key IS NULL AND m.superseded_at IS NULL GROUP BY m.namespace) AS n
WHERE s.namespace = n.namespace AND s.consolidated_at > n.since;
UPDATE memory AS m SET model = CASE WHEN n.vector IS NOT NULL THEN p_model END, vector = n.vector::halfvec, context_vector = n.context::halfvec
FROM unnest(p_ids, p_versions, p_vectors, p_contexts) AS n (id, version, vector, context)
WHERE m.id = n.id AND m.version = n.version;
DELETE FROM memory_part AS p USING unnest(p_ids, p_versions) AS n (id, version) WHERE p.id = n.id AND p.version = n.version;
SELECT add_parts_v1(n.id, n.version, NULL, NULL, n.parts::json) FROM unnest(p_ids, p_versions, p_parts) AS n (id, version, parts);
$$;

-- Vectors that are still to be made

CREATE INDEX memory_waiting ON recall.memory (namespace) WHERE model IS NULL AND superseded_at IS NULL AND content <> '';

CREATE FUNCTION recall.memories_wait_v1(p_scopes text[], p_model smallint, p_until timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp
AS $$
-- Whether vectors of memories of some namespaces, by the model, are still to be made. What the model refused waits for none: it is due
-- no more. p_until: of those that were known until then; NULL for all.
SELECT EXISTS (
    SELECT FROM recall.memory_namespace AS s
    JOIN recall.memory AS m ON m.namespace = s.namespace
    JOIN due_row AS d ON d.queue = 'memories' AND d.kind = 'Memory' AND d.key = m.id::text
    WHERE s.scopes && p_scopes AND m.model IS NULL AND m.superseded_at IS NULL AND m.content <> ''
      AND m.known_at <= coalesce(p_until, 'infinity')
) OR EXISTS (
    SELECT FROM recall.memory AS m
    JOIN recall.memory_namespace AS s ON s.namespace = m.namespace
    WHERE s.scopes && p_scopes AND m.superseded_at IS NULL AND m.known_at <= coalesce(p_until, 'infinity')
      AND m.model = ANY (ARRAY(SELECT o.model FROM embedding_model AS o WHERE o.model IS DISTINCT FROM p_model))
)
$$;
