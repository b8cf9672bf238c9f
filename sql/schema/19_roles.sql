-- Rights of the three roles beside the owner's. The application's reads what follows from the journal and what says that it is due, and
-- records facts through imem_append_v1, which refuses it all but an agent's own. Curators state what settles claims too, and pipelines
-- write what follows, each under a role of their own.

CREATE FUNCTION imem_grant_application(p_role text) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Gives the application's role what it needs and no more: it reads everything, writes the journal through functions alone, and
-- changes of the schemas workflow and langgraph what is neither append-only nor written by pipelines or functions alone.
DECLARE
    v_statement text;
    v_object text;
BEGIN
    FOREACH v_statement IN ARRAY ARRAY[
        -- What was granted before.
        'REVOKE ALL ON ALL TABLES IN SCHEMA public, workflow, langgraph, recall FROM %I',
        'GRANT USAGE ON SCHEMA public, workflow, langgraph, recall TO %I',
        'GRANT SELECT ON ALL TABLES IN SCHEMA public, recall TO %I',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA workflow, langgraph TO %I',
        'GRANT USAGE ON ALL SEQUENCES IN SCHEMA workflow, langgraph TO %I',
        'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public, workflow, langgraph, recall TO %I',
        -- What fences processes off from one another is written by functions alone, and so are gates (a view).
        'REVOKE INSERT, UPDATE, DELETE ON workflow.analysis, workflow.agent_instance, workflow.agent_leases, '
            'workflow.agent_checkpoints, workflow.agent_checkpoints_archive, workflow.agent_deliverable, '
            'workflow.gate FROM %I'
    ] LOOP
        EXECUTE format(v_statement, p_role);
    END LOOP;
    FOR v_object IN
        SELECT t.tgrelid::regclass::text FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE t.tgname = 'append_only' AND c.relnamespace IN ('workflow'::regnamespace, 'langgraph'::regnamespace)
    LOOP
        EXECUTE format('REVOKE UPDATE, DELETE ON %s FROM %I', v_object, p_role);
    END LOOP;
    -- What only the owner and pipelines call; and functions of triggers with the owner's rights: as the trigger of a temporary table
    -- they would write what its rows contain.
    FOR v_object IN
        SELECT p.oid::regprocedure::text FROM pg_proc AS p
        WHERE p.pronamespace IN ('public'::regnamespace, 'workflow'::regnamespace, 'langgraph'::regnamespace, 'recall'::regnamespace)
          AND (p.prosecdef AND p.prorettype = 'trigger'::regtype
            OR p.proname IN (
                'imem_advance_clock', 'imem_grant_application', 'imem_grant_curators', 'imem_grant_pipelines', 'imem_curates_v1',
                'imem_note_questions_v1', 'imem_note_open_writers_v1', 'imem_embedding_index_v1', 'imem_embedding_drop_v1', 'imem_embedding_import_v1',
                'set_vectors_v1', 'drop_unused_indexes_v1', 'merge_memories_v1', 'maintain_memories_v1', 'project_texts_v1', 'set_text_vectors_v1',
                'add_reflection_v1', 'end_memories_v1', 'retain_signals_v1',
                -- What lets files go, or counts people: curators call it.
                'release_hold_v1', 'approve_retention_v1', 'note_archive_access_v1'))
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC, %I', v_object, p_role);
    END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION imem_grant_application(text) FROM PUBLIC;

CREATE FUNCTION imem_grant_curators(p_role text) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Gives the curators' role what the application's has, and the rights to state what settles claims and to let evidence go.
BEGIN
    PERFORM imem_grant_application(p_role);
    EXECUTE format(
        'GRANT EXECUTE ON FUNCTION imem_curates_v1, release_hold_v1, approve_retention_v1, note_archive_access_v1 TO %I', p_role);
END
$$;
REVOKE EXECUTE ON FUNCTION imem_grant_curators(text) FROM PUBLIC;

CREATE FUNCTION imem_grant_pipelines(p_role text) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Gives the pipelines' role what the curators' has, and the right to write what follows from the journal.
DECLARE
    v_statement text;
BEGIN
    PERFORM imem_grant_curators(p_role);
    FOREACH v_statement IN ARRAY ARRAY[
        'GRANT UPDATE ON delivery TO %I',
        'GRANT INSERT, UPDATE, DELETE ON lease, due_row TO %I',
        'GRANT INSERT, UPDATE, DELETE ON agent_outcome, track_step, track_cell, observation_step, track_due TO %I',
        'GRANT INSERT ON reconciliation_report TO %I',
        'GRANT INSERT, UPDATE ON regime_run, regime_cache TO %I',
        'GRANT INSERT, DELETE ON pipeline_report TO %I',
        'GRANT INSERT, UPDATE, DELETE ON embedding_model, embedding, similarity_build, similar_analysis TO %I',
        'GRANT INSERT, UPDATE, DELETE ON view_version, view_row, view_current TO %I',
        'GRANT INSERT, UPDATE ON lifecycle TO %I',
        'GRANT INSERT, UPDATE (package, likeness) ON review_task TO %I',
        'GRANT INSERT, UPDATE ON standing_rule TO %I',
        'GRANT INSERT, UPDATE, DELETE ON pattern_archive, archive_index TO %I',
        'GRANT UPDATE ON file_metadata TO %I',
        'GRANT INSERT ON object_store TO %I',
        'GRANT INSERT, UPDATE ON deletion_record, retention_run TO %I',
        'GRANT EXECUTE ON FUNCTION imem_note_questions_v1, imem_note_open_writers_v1, imem_embedding_index_v1, '
            'imem_embedding_drop_v1, imem_embedding_import_v1, recall.set_vectors_v1, recall.drop_unused_indexes_v1, recall.merge_memories_v1, '
            'recall.maintain_memories_v1, recall.project_texts_v1, recall.set_text_vectors_v1, recall.add_reflection_v1, recall.retain_signals_v1 TO %I',
        'GRANT UPDATE (model, vector) ON recall.situation TO %I',
        'GRANT UPDATE (consolidated_at) ON recall.memory_namespace TO %I'
    ] LOOP
        EXECUTE format(v_statement, p_role);
    END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION imem_grant_pipelines(text) FROM PUBLIC;
