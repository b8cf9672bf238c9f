-- Archives of patterns' evidence, their index, and how long files of data are kept. The objects themselves are elsewhere: Postgres
-- decides which archives are complete, what is held, and what is deleted.

-- Evidence of a pattern: what was tested, and what its analyses found.
CREATE INDEX event_of_pattern_test ON event ((payload -> 'core' ->> 'pattern_id'))
    WHERE kind IN ('record.PatternValidation', 'correct.PatternValidation', 'record.ShadowAnalysis');

CREATE TABLE pattern_archive (
    pattern_id       text NOT NULL,
    tier             smallint NOT NULL CHECK (tier IN (1, 2)),
    path             text NOT NULL,
    manifest_version integer NOT NULL,
    manifest_sha256  text NOT NULL,
    schema_version   smallint NOT NULL,
    created_at       timestamptz NOT NULL,
    size_bytes       bigint NOT NULL,
    retention_expiry timestamptz NOT NULL,
    content_types    text[] NOT NULL,
    gaps             text[] NOT NULL,
    state            text NOT NULL DEFAULT 'complete' CHECK (state IN ('complete', 'corrupt')),
    verified_at      timestamptz NOT NULL,
    PRIMARY KEY (pattern_id, tier)
);
CREATE INDEX pattern_archive_verified ON pattern_archive (verified_at);
COMMENT ON TABLE pattern_archive IS 'Complete archives: written with the event that names them, after the manifest was stored.';
COMMENT ON COLUMN pattern_archive.manifest_sha256 IS 'Of archive_metadata.json, which lists the hashes of all objects.';
COMMENT ON COLUMN pattern_archive.gaps IS 'Evidence that was missing: such an archive does not suffice to delete files.';
COMMENT ON COLUMN pattern_archive.verified_at IS 'When its objects were last compared with the manifest.';

CREATE TABLE object_store (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    marked_at timestamptz NOT NULL DEFAULT imem_now()
);
COMMENT ON TABLE object_store IS 'One row from when the store of objects holds the marker of this journal: a store without it is another one.';

CREATE TABLE archive_index (
    pattern_id       text PRIMARY KEY,
    pattern_name     text NOT NULL,
    pattern_type     text NOT NULL,
    status           text NOT NULL CHECK (status IN ('deprecated', 'archived')),
    deprecation_date timestamptz,
    archive_tier     smallint NOT NULL,
    archive_location text NOT NULL,
    regime_tags      text[] NOT NULL,
    industry_tags    text[] NOT NULL,
    confidence       double precision,
    validation_count integer NOT NULL,
    accuracy         double precision
);
CREATE INDEX archive_index_regime ON archive_index USING gin (regime_tags);
CREATE INDEX archive_index_industry ON archive_index USING gin (industry_tags);
CREATE INDEX archive_index_metrics ON archive_index (confidence, accuracy);
COMMENT ON TABLE archive_index IS 'One row for each pattern with an archive. It follows from the archive_metadata.json of all archives.';
COMMENT ON COLUMN archive_index.status IS 'deprecated, or archived: the pattern has an archive and is not deprecated.';
COMMENT ON COLUMN archive_index.accuracy IS 'The success rate of the pattern when the row was written.';

CREATE TABLE archive_access (
    pattern_id  text NOT NULL,
    actor       text NOT NULL,
    accessed_at timestamptz NOT NULL DEFAULT imem_now()
);
CREATE INDEX archive_access_of ON archive_access (pattern_id, accessed_at);
CREATE INDEX archive_access_recent ON archive_access (accessed_at);
COMMENT ON TABLE archive_access IS 'Full retrievals of archives; searches of the index are none.';

CREATE FUNCTION note_archive_access_v1(p_pattern_id text, p_actor text, p_role text, p_context jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Records that an archive was retrieved whole, with the audit row.
BEGIN
    INSERT INTO archive_access (pattern_id, actor) VALUES (p_pattern_id, p_actor);
    PERFORM imem_audit_v1(p_actor, p_role, 'patterns', p_pattern_id, 'retrieve_archive', true, NULL, p_context, 'done');
END
$$;

-- Reads of what may be pruned from the graph, each with its audit row.
CREATE INDEX memory_access_audit_detail ON memory_access_audit (resource_id, timestamp) WHERE action = 'read_detail';

-- Files of data

CREATE TABLE file_metadata (
    file_id       text PRIMARY KEY,
    created_at    timestamptz NOT NULL,
    size_mb       double precision NOT NULL,
    label         text NOT NULL DEFAULT 'hot' CHECK (label IN ('hot', 'warm', 'cold')),
    tier_override text CHECK (tier_override IN ('hot', 'warm', 'cold')),
    delete_state  text NOT NULL DEFAULT 'none' CHECK (delete_state IN ('none', 'marked', 'purged')),
    marked_at     timestamptz,
    checked_at    timestamptz,
    checks        integer NOT NULL DEFAULT 0,
    CHECK ((delete_state = 'none') = (marked_at IS NULL))
);
CREATE INDEX file_metadata_age ON file_metadata (created_at, file_id) WHERE delete_state = 'none';
CREATE INDEX file_metadata_marked ON file_metadata (file_id) WHERE delete_state = 'marked';
COMMENT ON TABLE file_metadata IS 'Files of data, one for each record of a DataFile: their label by age, and whether they are to be deleted.';
COMMENT ON COLUMN file_metadata.tier_override IS 'A person pinned the file: it is never deleted.';
COMMENT ON COLUMN file_metadata.marked_at IS 'When the grace began after which the file is deleted.';
COMMENT ON COLUMN file_metadata.checks IS 'On how many days of the grace the rules were run again: a clock that jumps ends no grace.';

CREATE TABLE file_reference (
    file_id    text NOT NULL,
    pattern_id text NOT NULL,
    referenced_at timestamptz NOT NULL DEFAULT imem_now(),
    PRIMARY KEY (file_id, pattern_id)
);
COMMENT ON COLUMN file_reference.referenced_at IS 'When the reference was recorded: an archive that was built before does not hold the file.';
COMMENT ON TABLE file_reference IS 'Patterns that a file supports, by SUPPORTED_BY_FILE and by evidence_refs; copied in the transaction of the event, never removed.';

CREATE TABLE retention_hold (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('legal', 'post_mortem', 'validation', 'manual')),
    subject_type text NOT NULL CHECK (subject_type IN ('file', 'pattern', 'company', 'decision')),
    subject_id   text NOT NULL CHECK (length(subject_id) BETWEEN 1 AND 200),
    reason       text NOT NULL CHECK (reason ~ '\S'),
    placed_by    text NOT NULL,
    placed_at    timestamptz NOT NULL DEFAULT imem_now(),
    released_by  text,
    released_at  timestamptz
);
CREATE INDEX retention_hold_open ON retention_hold (subject_type, subject_id) WHERE released_at IS NULL;
COMMENT ON TABLE retention_hold IS 'Holds: nothing that one covers is deleted until it is released.';

CREATE TABLE deletion_record (
    file_id    text PRIMARY KEY,
    size_mb    double precision NOT NULL,
    reason     text NOT NULL,
    patterns   text[] NOT NULL,
    marked_at  timestamptz NOT NULL,
    purged_at  timestamptz NOT NULL DEFAULT imem_now(),
    actor      text NOT NULL,
    sha256     text,
    removed_at timestamptz
);
CREATE INDEX deletion_record_left ON deletion_record (file_id) WHERE removed_at IS NULL;
COMMENT ON TABLE deletion_record IS 'What was deleted, and why. The row is committed before the object is removed.';
COMMENT ON COLUMN deletion_record.sha256 IS 'Of the object when it was removed; NULL where none was stored.';
COMMENT ON COLUMN deletion_record.removed_at IS 'When the object was removed; NULL while the next run has to do it.';

CREATE TABLE retention_run (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_at      timestamptz NOT NULL DEFAULT imem_now(),
    cold        bigint NOT NULL,
    proposed    bigint NOT NULL,
    halted      text,
    approved_by text,
    approved_at timestamptz
);
COMMENT ON TABLE retention_run IS 'Runs of retention: how many files were cold, how many would have been marked, and why none was.';

CREATE FUNCTION imem_label_v1(p_created_at timestamptz, p_now timestamptz) RETURNS text
LANGUAGE sql STABLE
AS $$
-- The label of a file by its age in calendar years, in UTC.
SELECT CASE WHEN (p_created_at AT TIME ZONE 'UTC') + interval '5 years' <= p_now AT TIME ZONE 'UTC' THEN 'cold'
    WHEN (p_created_at AT TIME ZONE 'UTC') + interval '2 years' <= p_now AT TIME ZONE 'UTC' THEN 'warm' ELSE 'hot' END
$$;

CREATE FUNCTION imem_file_copy() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Copies what decides about files. A new reference restores a file that is marked, in the transaction of the reference.
DECLARE
    v_files text[];
    v_pattern text;
BEGIN
    IF NEW.kind = 'DataFile' THEN
        INSERT INTO file_metadata (file_id, created_at, size_mb, label)
        SELECT NEW.key, (e.payload -> 'core' ->> 'created_date')::timestamptz, (e.payload -> 'core' ->> 'size_mb')::float8,
            imem_label_v1((e.payload -> 'core' ->> 'created_date')::timestamptz, imem_now())
        FROM event AS e WHERE e.position = NEW.position
        ON CONFLICT (file_id) DO UPDATE SET created_at = excluded.created_at, size_mb = excluded.size_mb;
        RETURN NULL;
    END IF;
    IF NEW.kind = 'Pattern' THEN
        SELECT NEW.key, ARRAY (SELECT jsonb_array_elements_text(e.payload #> '{groups,evidence,evidence_refs}'))
        INTO v_pattern, v_files
        FROM event AS e WHERE e.position = NEW.position AND jsonb_typeof(e.payload #> '{groups,evidence,evidence_refs}') = 'array';
    ELSE
        SELECT e.payload ->> 'from_key', ARRAY[e.payload ->> 'to_key'] INTO v_pattern, v_files
        FROM event AS e WHERE e.position = NEW.position;
    END IF;
    WITH new_reference AS (
        INSERT INTO file_reference (file_id, pattern_id) SELECT DISTINCT f, v_pattern FROM unnest(v_files) AS f
        ON CONFLICT DO NOTHING RETURNING file_id)
    UPDATE file_metadata AS m SET delete_state = 'none', marked_at = NULL, checked_at = NULL, checks = 0
    FROM new_reference AS r WHERE m.file_id = r.file_id AND m.delete_state = 'marked';
    RETURN NULL;
END
$$;

CREATE TRIGGER file_copy AFTER INSERT ON record_history
    FOR EACH ROW WHEN (NEW.kind = 'DataFile' AND NEW.grp IN ('core', 'correction')
        OR NEW.kind = 'Pattern' AND NEW.grp = 'evidence' OR NEW.kind = 'link.SUPPORTED_BY_FILE')
    EXECUTE FUNCTION imem_file_copy();

CREATE FUNCTION imem_held_v1(p_file_id text) RETURNS SETOF retention_hold
LANGUAGE sql STABLE
AS $$
-- Holds that cover a file: its own, and those of patterns that it supports, of decisions that cite these, and of companies that the
-- decisions, or the analyses that found the patterns, are about.
WITH pattern AS (
    SELECT r.pattern_id FROM file_reference AS r WHERE r.file_id = p_file_id
), decision AS (
    SELECT e.payload ->> 'from_key' AS key FROM pattern AS p JOIN event AS e ON e.payload ->> 'to_key' = p.pattern_id
    WHERE e.kind = 'link.CITES' AND e.payload ->> 'to_label' = 'Pattern' AND e.payload ->> 'from_label' = 'Decision'
), company AS (
    SELECT h.subject_id AS key FROM decision AS d JOIN record_head AS h ON h.kind = 'Decision' AND h.key = d.key AND h.grp = 'core'
    UNION ALL
    SELECT h.subject_id FROM pattern AS p JOIN event AS e ON e.payload ->> 'to_key' = p.pattern_id AND e.kind = 'link.IDENTIFIED_PATTERN'
    JOIN record_head AS h ON h.kind = 'Analysis' AND h.key = e.payload ->> 'from_key' AND h.grp = 'core'
)
SELECT o.* FROM retention_hold AS o
WHERE o.released_at IS NULL AND (o.subject_type, o.subject_id) IN (
    SELECT 'file', p_file_id
    UNION ALL SELECT 'pattern', pattern_id FROM pattern
    UNION ALL SELECT 'decision', key FROM decision
    UNION ALL SELECT 'company', key FROM company)
$$;

CREATE FUNCTION place_hold_v1(
    p_kind text, p_subject_type text, p_subject_id text, p_reason text, p_actor text, p_role text, p_context jsonb
) RETURNS SETOF retention_hold
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Places a hold, with the audit row. The next run of retention restores what is marked, and no run purges what is held. No row where
-- nothing is known of the subject: such a hold, as of a mistyped name, would keep nothing.
DECLARE
    v_row retention_hold;
BEGIN
    IF NOT (CASE p_subject_type
        WHEN 'file' THEN EXISTS (SELECT FROM file_metadata WHERE file_id = p_subject_id)
            OR EXISTS (SELECT FROM file_reference WHERE file_id = p_subject_id)
        WHEN 'company' THEN EXISTS (SELECT FROM record_head WHERE subject_id = p_subject_id)
            OR EXISTS (SELECT FROM record_head WHERE kind = 'Company' AND 'company:' || key = p_subject_id)
        WHEN 'pattern' THEN EXISTS (SELECT FROM record_head WHERE kind = 'Pattern' AND key = p_subject_id)
        ELSE EXISTS (SELECT FROM record_head WHERE kind = 'Decision' AND key = p_subject_id)
    END) THEN
        RETURN;
    END IF;
    -- Whoever purges a file holds this lock: the hold comes before or after, and is seen.
    PERFORM pg_advisory_xact_lock(hashtext('imem.holds'));
    INSERT INTO retention_hold (kind, subject_type, subject_id, reason, placed_by)
    VALUES (p_kind, p_subject_type, p_subject_id, p_reason, p_actor) RETURNING * INTO v_row;
    PERFORM imem_audit_v1(p_actor, p_role, 'patterns', p_subject_type || ' ' || p_subject_id, 'place_hold', true, p_reason,
        p_context || jsonb_build_object('hold', v_row.id, 'kind', p_kind), 'done');
    RETURN NEXT v_row;
END
$$;

CREATE FUNCTION release_hold_v1(p_id bigint, p_reason text, p_actor text, p_role text, p_context jsonb) RETURNS SETOF retention_hold
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Releases a hold, with the audit row. No row where it was released, or never placed.
DECLARE
    v_row retention_hold;
BEGIN
    IF p_reason !~ '\S' THEN
        RAISE EXCEPTION 'a hold is released for a reason' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE retention_hold SET released_at = imem_now(), released_by = p_actor WHERE id = p_id AND released_at IS NULL
    RETURNING * INTO v_row;
    IF FOUND THEN
        PERFORM imem_audit_v1(p_actor, p_role, 'patterns', v_row.subject_type || ' ' || v_row.subject_id, 'release_hold', true,
            p_reason, p_context || jsonb_build_object('hold', p_id, 'kind', v_row.kind), 'done');
        RETURN NEXT v_row;
    END IF;
END
$$;

CREATE FUNCTION restore_file_v1(p_file_id text, p_reason text, p_actor text, p_role text, p_context jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Restores a file that is marked, with the audit row; false where it is not marked.
BEGIN
    UPDATE file_metadata SET delete_state = 'none', marked_at = NULL, checked_at = NULL, checks = 0
    WHERE file_id = p_file_id AND delete_state = 'marked';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM imem_audit_v1(p_actor, p_role, 'patterns', 'file ' || p_file_id, 'restore_file', true, p_reason, p_context, 'done');
    RETURN true;
END
$$;

CREATE FUNCTION approve_retention_v1(p_id bigint, p_reason text, p_actor text, p_role text, p_context jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Lets the next run mark as many files as a halted one proposed, with the audit row; false where no such run is halted.
BEGIN
    IF p_reason !~ '\S' THEN
        RAISE EXCEPTION 'a run is approved for a reason' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE retention_run SET approved_by = p_actor, approved_at = imem_now()
    WHERE id = p_id AND halted = 'cap' AND approved_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM imem_audit_v1(p_actor, p_role, 'patterns', 'retention run ' || p_id, 'approve_retention', true, p_reason, p_context, 'done');
    RETURN true;
END
$$;
