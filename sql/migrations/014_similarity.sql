-- What is derived from the journal to answer quickly: vectors of analyses, their nearest neighbours, views, and the places
-- from which track records are swept on. All of it can be made again from the journal.
--
-- The extension is the server's: an owner that may not create it needs somebody to have done so before.

CREATE EXTENSION IF NOT EXISTS vector;

-- Vectors

CREATE TABLE embedding_model (
    model     smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model_id  text NOT NULL CHECK (length(model_id) BETWEEN 1 AND 200),
    dimension integer NOT NULL CHECK (dimension BETWEEN 1 AND 2000),
    in_use    boolean NOT NULL DEFAULT false,
    known_at  timestamptz NOT NULL DEFAULT imem_now(),
    UNIQUE (model_id, dimension)
);
CREATE UNIQUE INDEX embedding_model_in_use ON embedding_model (in_use) WHERE in_use;
COMMENT ON TABLE embedding_model IS 'What made vectors. Those of two models are never compared; one is in use, another may be on its way.';

CREATE TABLE embedding (
    model        smallint NOT NULL REFERENCES embedding_model,
    kind         text NOT NULL,
    key          text NOT NULL,
    position     bigint NOT NULL REFERENCES event,
    corrects     boolean NOT NULL,
    order_key    text COLLATE "C" NOT NULL,
    known_at     timestamptz NOT NULL,
    recorded_at  timestamptz NOT NULL,
    subject_id   text,
    content_hash bytea NOT NULL,
    standing     boolean NOT NULL DEFAULT false,
    sole         boolean NOT NULL DEFAULT false,
    made_at      timestamptz NOT NULL DEFAULT imem_now(),
    vector       vector NOT NULL,
    PRIMARY KEY (model, kind, key, position)
) WITH (toast_tuple_target = 8160);
-- In the row, as far as it fits: what compares every vector must not fetch each from elsewhere.
ALTER TABLE embedding ALTER COLUMN vector SET STORAGE MAIN;
CREATE INDEX embedding_known ON embedding (model, kind, known_at);
CREATE INDEX embedding_several ON embedding (model, kind, key) WHERE NOT sole;
COMMENT ON TABLE embedding IS 'The vector of each statement of a record: of its core and of each correction, from when that statement counts.';
COMMENT ON COLUMN embedding.content_hash IS 'SHA-256 of the text that the vector was made of.';
COMMENT ON COLUMN embedding.standing IS 'Whether it is the statement that counts now: the last correction, else the earliest core. The others answer as of a day.';
COMMENT ON COLUMN embedding.sole IS 'Whether it is the only statement of its record, so that it stands from when it counts: nearly all are.';

CREATE FUNCTION imem_embedding_index_v1(p_model smallint, p_dimension integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Makes the index of a model's vectors, if it is not there: HNSW needs one dimension, and must not mix models.
DECLARE
    v_name text := 'embedding_hnsw_' || p_model;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('imem.embedding_index', 0));
    IF to_regclass('public.' || v_name) IS NULL THEN
        EXECUTE format(
            'CREATE INDEX %I ON embedding USING hnsw ((vector::vector(%s)) vector_cosine_ops) WITH (m = 16, ef_construction = 64) '
            'WHERE model = %s AND kind = ''Analysis'' AND standing', v_name, p_dimension, p_model);
    END IF;
END
$$;

CREATE FUNCTION imem_embedding_drop_v1(p_model smallint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
-- Rather another week than a queue of readers behind it.
SET lock_timeout = '2s'
AS $$
-- Drops the index of a model that is not in use any more.
BEGIN
    IF NOT EXISTS (SELECT FROM embedding_model AS m WHERE m.model = p_model AND m.in_use) THEN
        EXECUTE format('DROP INDEX IF EXISTS %I', 'embedding_hnsw_' || p_model);
    END IF;
END
$$;

CREATE FUNCTION imem_nearest_v1(
    p_model smallint, p_keys text[], p_limit integer, p_known_until timestamptz, p_recorded_until timestamptz
) RETURNS TABLE (key text, candidate text, distance double precision)
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
SET hnsw.ef_search = 100
SET hnsw.iterative_scan = 'strict_order'
SET enable_seqscan = off
SET jit = off
AS $$
-- For each of the given analyses, others on other subjects that are nearest to it by the index, in the order of distance.
-- The limits leave out what was not known yet; the index finds less of what was, the less that is.
#variable_conflict use_column
DECLARE
    v_dimension integer := (SELECT m.dimension FROM embedding_model AS m WHERE m.model = p_model);
    v_one record;
BEGIN
    FOR v_one IN
        SELECT e.key, e.subject_id, e.vector FROM unnest(p_keys) AS w (key)
        JOIN embedding AS e ON e.model = p_model AND e.kind = 'Analysis' AND e.key = w.key AND e.standing
    LOOP
        RETURN QUERY EXECUTE format(
            'SELECT $1, n.key, n.distance FROM ('
            'SELECT e.key, e.vector::vector(%1$s) <=> $2::vector(%1$s) AS distance FROM embedding AS e '
            'WHERE e.model = %2$s AND e.kind = ''Analysis'' AND e.standing AND e.subject_id IS DISTINCT FROM $3 '
            'AND e.known_at <= $5 AND e.recorded_at <= $6 '
            'ORDER BY e.vector::vector(%1$s) <=> $2::vector(%1$s) LIMIT $4) AS n ORDER BY n.distance, n.key',
            v_dimension, p_model)
        USING v_one.key, v_one.vector, v_one.subject_id, p_limit, p_known_until, p_recorded_until;
    END LOOP;
END
$$;

-- Neighbours

CREATE TABLE similarity_due (
    position   bigint NOT NULL,
    key        text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT imem_now(),
    PRIMARY KEY (position, key)
);
CREATE INDEX similarity_due_of ON similarity_due (key);
COMMENT ON TABLE similarity_due IS 'Analyses whose neighbours have to be looked for, one row an event that says so: writers never wait for one another.';

CREATE FUNCTION imem_similarity_due() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- What an analysis says, what is claimed in it, and which active patterns were seen in it, is what it is compared by.
BEGIN
    INSERT INTO similarity_due (position, key)
    SELECT DISTINCT d.position, d.key FROM (
        SELECT a.position, CASE
            WHEN a.kind IN ('record.Analysis', 'correct.Analysis') THEN a.record_key
            WHEN a.kind = 'record.Finding' AND a.payload -> 'core' ->> 'metric' IS NOT NULL THEN a.analysis_id
            WHEN a.kind = 'link.IDENTIFIED_PATTERN' THEN a.payload ->> 'from_key'
        END AS key FROM added AS a
        UNION ALL
        SELECT a.position, l.payload ->> 'from_key' FROM added AS a
        JOIN event AS l ON l.kind = 'link.IDENTIFIED_PATTERN' AND l.payload ->> 'to_key' = a.record_key
        WHERE a.kind = 'record.Pattern' AND a.payload -> 'groups' -> 'status' IS NOT NULL
    ) AS d WHERE d.key IS NOT NULL;
    RETURN NULL;
END
$$;

CREATE TRIGGER similarity_due AFTER INSERT ON event REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION imem_similarity_due();

INSERT INTO similarity_due (position, key) SELECT position, record_key FROM event WHERE kind = 'record.Analysis';

CREATE INDEX event_identified ON event ((payload ->> 'from_key')) WHERE kind = 'link.IDENTIFIED_PATTERN';
CREATE INDEX event_identified_by ON event ((payload ->> 'to_key')) WHERE kind = 'link.IDENTIFIED_PATTERN';

CREATE TABLE similarity_build (
    version    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model      smallint NOT NULL REFERENCES embedding_model,
    rules      text NOT NULL,
    state      text NOT NULL CHECK (state IN ('building', 'current', 'replaced')),
    started_at timestamptz NOT NULL DEFAULT imem_now(),
    built_at   timestamptz,
    source_seq bigint NOT NULL DEFAULT 0,
    upto       text NOT NULL DEFAULT '',
    analyses   bigint NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX similarity_build_one ON similarity_build (state) WHERE state IN ('building', 'current');
COMMENT ON TABLE similarity_build IS 'Versions of the index of similar analyses: one is current, one may be on its way; readers take the current one whole.';
COMMENT ON COLUMN similarity_build.rules IS 'Version of the rules by which candidates are scored.';
COMMENT ON COLUMN similarity_build.upto IS 'Of a build: the last analysis, by key, that was looked at; a killed build goes on behind it.';

CREATE TABLE similar_analysis (
    version       bigint NOT NULL REFERENCES similarity_build,
    analysis_id   text NOT NULL,
    neighbour_id  text NOT NULL,
    score         double precision NOT NULL CHECK (score BETWEEN 0 AND 1),
    rank          smallint NOT NULL CHECK (rank BETWEEN 1 AND 10),
    model_version text NOT NULL,
    built_at      timestamptz NOT NULL DEFAULT imem_now(),
    PRIMARY KEY (version, analysis_id, neighbour_id)
);
CREATE INDEX similar_analysis_reverse ON similar_analysis (version, neighbour_id);
COMMENT ON TABLE similar_analysis IS 'The ten nearest neighbours of each analysis, on other subjects: what the applier draws as SIMILAR_TO.';

-- Views

CREATE TABLE view_version (
    name       text NOT NULL,
    version    bigint GENERATED ALWAYS AS IDENTITY,
    built_at   timestamptz NOT NULL DEFAULT imem_now(),
    source_seq bigint NOT NULL,
    PRIMARY KEY (name, version)
);
CREATE TABLE view_row (
    name    text NOT NULL,
    version bigint NOT NULL,
    key     text NOT NULL,
    value   jsonb NOT NULL,
    PRIMARY KEY (name, version, key),
    FOREIGN KEY (name, version) REFERENCES view_version ON DELETE CASCADE
);
CREATE TABLE view_current (
    name      text PRIMARY KEY,
    version   bigint NOT NULL,
    FOREIGN KEY (name, version) REFERENCES view_version
);
COMMENT ON TABLE view_version IS 'Each making of a materialised view, and the last position of the journal that it looked at.';
COMMENT ON TABLE view_current IS 'Which making of a view is read. A build that fails leaves it where it was.';

-- Track records

ALTER TABLE track_due ADD COLUMN known_from timestamptz NOT NULL DEFAULT '0001-01-01 00:00:00+00',
    ADD COLUMN recorded_from timestamptz NOT NULL DEFAULT '0001-01-01 00:00:00+00';
COMMENT ON COLUMN track_due.known_from IS 'The first moment on that clock at which anything changed: steps before it stand, and the sweep goes on from there.';

ALTER TABLE track_step ADD COLUMN squares double precision NOT NULL DEFAULT 0;
COMMENT ON COLUMN track_step.squares IS 'Sum over observations of their squared weights: weight^2 / squares is how many equally weighted ones they are worth.';
-- Steps of before lack it: they are made anew.
INSERT INTO track_due (agent, domain, since) SELECT DISTINCT agent, domain, imem_now() FROM track_step
ON CONFLICT (agent, domain) DO UPDATE SET version = DEFAULT;

DROP INDEX agent_outcome_of_agent;
CREATE INDEX agent_outcome_of_agent ON agent_outcome (agent, domain, target_at);
CREATE INDEX agent_outcome_known ON agent_outcome (agent, domain, known_at);
CREATE INDEX agent_outcome_recorded ON agent_outcome (agent, domain, recorded_at);
CREATE INDEX agent_outcome_unknown ON agent_outcome (agent, domain, superseded_known_at) WHERE superseded_known_at IS NOT NULL;
CREATE INDEX agent_outcome_unrecorded ON agent_outcome (agent, domain, superseded_recorded_at) WHERE superseded_recorded_at IS NOT NULL;

-- Who may what

CREATE OR REPLACE FUNCTION imem_grant_application(p_role text) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Gives the application's role what it needs and no more: it reads everything, writes the journal through
-- imem_append_v1 alone, and changes only the tables of running work and of derived values. Of the schemas workflow and
-- langgraph it changes what is neither append-only nor written by functions alone.
DECLARE
    v_statement text;
    v_table regclass;
BEGIN
    FOREACH v_statement IN ARRAY ARRAY[
        'GRANT USAGE ON SCHEMA public, workflow, langgraph TO %I',
        'GRANT SELECT ON ALL TABLES IN SCHEMA public TO %I',
        'GRANT UPDATE ON delivery TO %I',
        'GRANT INSERT, UPDATE, DELETE ON lease, derive_work, settlement_due TO %I',
        'GRANT INSERT, UPDATE, DELETE ON agent_outcome, track_step, track_due TO %I',
        'GRANT INSERT ON reconciliation_report TO %I',
        'GRANT INSERT, UPDATE, DELETE ON embedding_model, embedding, similarity_due, similarity_build, similar_analysis TO %I',
        'GRANT INSERT, UPDATE, DELETE ON view_version, view_row, view_current TO %I',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA workflow, langgraph TO %I',
        'GRANT USAGE ON ALL SEQUENCES IN SCHEMA workflow, langgraph TO %I',
        'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public, workflow, langgraph TO %I',
        'REVOKE EXECUTE ON FUNCTION imem_grant_application(text) FROM %I',
        -- What fences processes off from one another is written by functions alone.
        'REVOKE INSERT, UPDATE, DELETE ON workflow.analysis, workflow.agent_instance, workflow.agent_leases, '
            'workflow.agent_checkpoints, workflow.agent_checkpoints_archive, workflow.agent_deliverable FROM %I'
    ] LOOP
        EXECUTE format(v_statement, p_role);
    END LOOP;
    FOR v_table IN
        SELECT t.tgrelid FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE t.tgname = 'append_only' AND c.relnamespace IN ('workflow'::regnamespace, 'langgraph'::regnamespace)
    LOOP
        EXECUTE format('REVOKE UPDATE, DELETE ON %s FROM %I', v_table, p_role);
    END LOOP;
END
$$;
