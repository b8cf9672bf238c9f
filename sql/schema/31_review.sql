-- Review tasks: questions to people, and who answers them. The state of a task is its row of lifecycle, of kind 'task'.

CREATE TABLE reviewer (
    person     text PRIMARY KEY CHECK (length(person) BETWEEN 1 AND 200),
    kinds      text[] NOT NULL DEFAULT '{}',
    capacity   integer NOT NULL DEFAULT 3 CHECK (capacity BETWEEN 1 AND 100),
    away_until timestamptz,
    deputy     text REFERENCES reviewer CHECK (deputy <> person),
    removed_at timestamptz,
    changed_at timestamptz NOT NULL DEFAULT imem_now(),
    changed_by text NOT NULL
);
COMMENT ON TABLE reviewer IS 'The roster: who answers tasks.';
COMMENT ON COLUMN reviewer.kinds IS 'Kinds of tasks that the person answers; empty: all.';
COMMENT ON COLUMN reviewer.capacity IS 'Tasks at a time, of all kinds that are queued.';
COMMENT ON COLUMN reviewer.deputy IS 'Who gets tasks while the person is away.';

CREATE TABLE review_task (
    task_id     text PRIMARY KEY CHECK (length(task_id) BETWEEN 1 AND 200),
    kind        text NOT NULL,
    rank        integer NOT NULL,
    analysis_id text,
    subject_ids text[] NOT NULL DEFAULT '{}',
    likeness    text,
    package     jsonb NOT NULL,
    opened_at   timestamptz NOT NULL DEFAULT imem_now(),
    shown_at    timestamptz
);
CREATE INDEX review_task_alike ON review_task (kind, likeness) WHERE likeness IS NOT NULL;
COMMENT ON TABLE review_task IS 'What a reviewer of a task sees. It is stored when the task is opened, and grows until somebody looks at it.';
COMMENT ON COLUMN review_task.rank IS 'Urgency: 0 is the most urgent.';
COMMENT ON COLUMN review_task.likeness IS 'Tasks of a kind with the same text may be answered together.';
COMMENT ON COLUMN review_task.shown_at IS 'When a person first saw it whole.';

CREATE FUNCTION set_reviewer_v1(
    p_person text, p_kinds text[], p_capacity integer, p_away_until timestamptz, p_deputy text, p_removed boolean,
    p_actor text, p_role text, p_context jsonb
) RETURNS SETOF reviewer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Puts a person on the roster, changes or removes the entry, with the audit row.
DECLARE
    v_row reviewer;
BEGIN
    INSERT INTO reviewer (person, kinds, capacity, away_until, deputy, removed_at, changed_by)
    VALUES (p_person, p_kinds, p_capacity, p_away_until, p_deputy, CASE WHEN p_removed THEN imem_now() END, p_actor)
    ON CONFLICT (person) DO UPDATE
    SET kinds = excluded.kinds, capacity = excluded.capacity, away_until = excluded.away_until, deputy = excluded.deputy,
        removed_at = excluded.removed_at, changed_at = imem_now(), changed_by = excluded.changed_by
    RETURNING * INTO v_row;
    PERFORM imem_audit_v1(p_actor, p_role, 'reviews', p_person, 'set_reviewer', true, NULL,
        p_context || jsonb_build_object('kinds', p_kinds, 'capacity', p_capacity, 'away_until', p_away_until, 'deputy', p_deputy,
            'removed', p_removed), 'done');
    RETURN NEXT v_row;
END
$$;

CREATE FUNCTION show_task_v1(p_task_id text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    -- Notes when a person first saw a task: the minutes until the answer are measured from then.
    UPDATE review_task SET shown_at = imem_now() WHERE task_id = p_task_id AND shown_at IS NULL
$$;

-- Standing rules

CREATE TABLE standing_rule (
    rule_id       text PRIMARY KEY CHECK (length(rule_id) BETWEEN 1 AND 200),
    metric        text NOT NULL,
    source_a      text NOT NULL,
    source_b      text NOT NULL CHECK (source_a <> source_b),
    difference    text NOT NULL,
    preferred     text NOT NULL CHECK (preferred IN (source_a, source_b)),
    task_id       text NOT NULL REFERENCES review_task,
    reason        text,
    made_by       text NOT NULL,
    made_at       timestamptz NOT NULL,
    revoked_by    text,
    revoked_at    timestamptz CHECK (revoked_at >= made_at),
    revoke_reason text
);
CREATE UNIQUE INDEX standing_rule_in_force ON standing_rule (metric, source_a, source_b, difference) WHERE revoked_at IS NULL;
COMMENT ON TABLE standing_rule IS 'What a person answered for all later contradictions of a metric, two sources and a difference. Never deleted.';
COMMENT ON COLUMN standing_rule.preferred IS 'The source whose value counts.';

CREATE FUNCTION make_rule_v1(
    p_rule_id text, p_metric text, p_source_a text, p_source_b text, p_difference text, p_preferred text, p_task_id text, p_reason text,
    p_person text, p_role text, p_now timestamptz, p_context jsonb
) RETURNS SETOF standing_rule
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Makes a standing rule, with the audit row; one in force that prefers the other source is revoked, one that says the same stays. Only
-- pipelines may: it writes with the rights of who calls it.
DECLARE
    v_row standing_rule;
BEGIN
    SELECT * INTO v_row FROM standing_rule AS r
    WHERE r.metric = p_metric AND r.source_a = p_source_a AND r.source_b = p_source_b AND r.difference = p_difference
      AND r.revoked_at IS NULL FOR UPDATE;
    IF v_row.preferred = p_preferred THEN
        RETURN;
    ELSIF FOUND THEN
        UPDATE standing_rule AS r SET revoked_at = greatest(p_now, r.made_at), revoked_by = p_person, revoke_reason = 'Another rule was made.'
        WHERE r.rule_id = v_row.rule_id;
        PERFORM imem_audit_v1(p_person, p_role, 'reviews', v_row.rule_id, 'revoke_rule', true, 'Another rule was made.', p_context, 'done');
    END IF;
    INSERT INTO standing_rule (rule_id, metric, source_a, source_b, difference, preferred, task_id, reason, made_by, made_at)
    VALUES (p_rule_id, p_metric, p_source_a, p_source_b, p_difference, p_preferred, p_task_id, p_reason, p_person, p_now)
    RETURNING * INTO v_row;
    PERFORM imem_audit_v1(p_person, p_role, 'reviews', p_rule_id, 'make_rule', true, p_reason, p_context, 'done');
    RETURN NEXT v_row;
END
$$;

CREATE FUNCTION revoke_rule_v1(p_rule_id text, p_actor text, p_role text, p_reason text, p_context jsonb) RETURNS SETOF standing_rule
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Revokes a standing rule from now on, with the audit row; no row where none of that id is in force.
DECLARE
    v_row standing_rule;
BEGIN
    UPDATE standing_rule SET revoked_at = greatest(imem_now(), made_at), revoked_by = p_actor, revoke_reason = p_reason
    WHERE rule_id = p_rule_id AND revoked_at IS NULL RETURNING * INTO v_row;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM imem_audit_v1(p_actor, p_role, 'reviews', p_rule_id, 'revoke_rule', true, p_reason, p_context, 'done');
    RETURN NEXT v_row;
END
$$;
