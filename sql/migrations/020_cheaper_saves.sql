-- What a checkpoint's row must be, said by one function. The server reads each CHECK of a table anew for every INSERT; fourteen
-- of them took a sixth of what it did in a save. A function is read once a connection, and a rule only of the kinds it is for.

CREATE FUNCTION workflow.checkpoint_fits_v1(
    p_run integer, p_seq bigint, p_kind text, p_subtask text, p_current text, p_completed text[], p_pending text[],
    p_hash text, p_failed boolean, p_retry_count integer, p_snapshot boolean, p_snapshot_hash boolean
) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF NOT (
        p_run > 0 AND p_seq >= 0 AND p_retry_count >= 0 AND NOT p_completed && p_pending
        AND cardinality(p_completed) + cardinality(p_pending) > 0 AND p_current IS NOT DISTINCT FROM p_pending[1]
        AND p_failed = (p_kind = 'failure') AND p_snapshot = (p_kind = 'pause') AND p_snapshot_hash = (p_kind = 'pause')
        -- Sixty-four hexadecimal digits: a regular expression takes longer than all the rest of this.
        AND CASE WHEN p_hash IS NULL THEN p_kind = 'start' ELSE octet_length(p_hash) = 64 AND ltrim(p_hash, '0123456789abcdef') = '' END
    ) THEN
        RETURN false;
    ELSIF p_kind = 'subtask' THEN
        RETURN coalesce(p_subtask = p_completed[cardinality(p_completed)], false);
    ELSIF p_kind = 'rerun' THEN
        RETURN coalesce(p_subtask = ANY (p_completed), false);
    ELSIF p_kind = 'start' THEN
        RETURN cardinality(p_completed) = 0;
    END IF;
    -- What failed, or was paused at, is not what was completed last.
    RETURN p_kind IN ('failure', 'pause') AND NOT coalesce(p_subtask = p_completed[cardinality(p_completed)], false);
END
$$;

DO $$
DECLARE
    v_rule name;
BEGIN
    FOR v_rule IN
        SELECT conname FROM pg_constraint WHERE conrelid = 'workflow.agent_checkpoints'::regclass AND contype = 'c'
    LOOP
        EXECUTE format('ALTER TABLE workflow.agent_checkpoints DROP CONSTRAINT %I', v_rule);
    END LOOP;
END
$$;

ALTER TABLE workflow.agent_checkpoints ADD CONSTRAINT agent_checkpoints_fit CHECK (workflow.checkpoint_fits_v1(
    run, seq, kind, subtask, current_subtask, completed_subtasks, pending_subtasks, working_memory_hash,
    failure_reason IS NOT NULL, retry_count, l1_snapshot IS NOT NULL, l1_snapshot_hash IS NOT NULL));
