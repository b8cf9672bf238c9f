-- Reflection: what closed trades say, in notes; what skills and their deployments are reminded of. Schema recall.
--
-- A note ends when the next takes its place; nothing of it changes but that end, and none is deleted. Writers of the notes of one
-- deployment, or of one skill, queue at an advisory lock.

CREATE TABLE recall.skill_memory (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    skill_id      text COLLATE "C" CHECK (length(skill_id) BETWEEN 1 AND 200),
    deployment_id text COLLATE "C" CHECK (length(deployment_id) BETWEEN 1 AND 200),
    config        jsonb NOT NULL CHECK (jsonb_typeof(config) = 'object'),
    avoid         text[] NOT NULL CHECK (cardinality(avoid) <= 50),
    set_by        text NOT NULL,
    recorded_at   timestamptz NOT NULL,
    CHECK (num_nonnulls(skill_id, deployment_id) = 1)
);
CREATE INDEX skill_memory_skill ON recall.skill_memory (skill_id, id DESC) WHERE skill_id IS NOT NULL;
CREATE INDEX skill_memory_deployment ON recall.skill_memory (deployment_id, id DESC) WHERE deployment_id IS NOT NULL;
COMMENT ON TABLE recall.skill_memory IS 'Every configuration that a skill or a deployment had; the newest counts, and a deployment''s before its skill''s.';
COMMENT ON COLUMN recall.skill_memory.avoid IS 'What the strategy forbids; what the skill and what the deployment forbids counts.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON recall.skill_memory
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

CREATE TABLE recall.reflection_notes (
    id                uuid PRIMARY KEY,
    skill_id          text COLLATE "C" NOT NULL,
    skill_version     text COLLATE "C" NOT NULL,
    deployment_id     text COLLATE "C",
    status            text NOT NULL GENERATED ALWAYS AS (CASE WHEN superseded_at IS NULL THEN 'active' ELSE 'superseded' END) STORED,
    generated_at      timestamptz NOT NULL,
    window_start      timestamptz NOT NULL,
    window_end        timestamptz NOT NULL CHECK (window_end >= window_start),
    trades_considered integer NOT NULL CHECK (trades_considered > 0),
    lessons_text      text NOT NULL CHECK (length(lessons_text) BETWEEN 1 AND 2000),
    model_used        text NOT NULL,
    input_tokens      integer CHECK (input_tokens >= 0),
    output_tokens     integer CHECK (output_tokens >= 0),
    cost_usd          numeric CHECK (cost_usd >= 0),
    superseded_at     timestamptz CHECK (superseded_at > generated_at),
    promoted_from     uuid REFERENCES recall.reflection_notes,
    promoted_by       text,
    CHECK (num_nonnulls(promoted_from, promoted_by) IN (0, 2)),
    CHECK ((deployment_id IS NULL) = (promoted_from IS NOT NULL))
);
CREATE UNIQUE INDEX reflection_active ON recall.reflection_notes (deployment_id) WHERE superseded_at IS NULL AND deployment_id IS NOT NULL;
CREATE UNIQUE INDEX reflection_active_skill ON recall.reflection_notes (skill_id) WHERE superseded_at IS NULL AND deployment_id IS NULL;
CREATE INDEX reflection_of_deployment ON recall.reflection_notes (deployment_id, generated_at DESC);
CREATE INDEX reflection_of_skill ON recall.reflection_notes (skill_id, generated_at DESC) WHERE deployment_id IS NULL;
COMMENT ON TABLE recall.reflection_notes IS 'What the closed trades of a deployment say. Every note stays; at most one of a deployment, and one of a skill, is active.';
COMMENT ON COLUMN recall.reflection_notes.deployment_id IS 'NULL: of the whole skill, since a person promoted it.';
COMMENT ON COLUMN recall.reflection_notes.cost_usd IS 'NULL: not known, as the endpoint of a language model states no prices. Tokens likewise.';

CREATE TRIGGER append_only BEFORE DELETE OR TRUNCATE ON recall.reflection_notes
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();

CREATE FUNCTION recall.skill_memory_v1(p_skill text, p_deployment text, p_until timestamptz) RETURNS TABLE (config jsonb, avoid text[])
LANGUAGE sql STABLE SET search_path = recall, public, pg_temp
AS $$
-- The configuration of a deployment, else of its skill, else '{}', and what both forbid. p_until NULL: now. One row.
SELECT coalesce(d.config, s.config, '{}'), coalesce(s.avoid, '{}') || coalesce(d.avoid, '{}')
FROM (SELECT) AS one
LEFT JOIN LATERAL (
    SELECT m.config, m.avoid FROM skill_memory AS m
    WHERE m.deployment_id = p_deployment AND (p_until IS NULL OR m.recorded_at <= p_until) ORDER BY m.id DESC LIMIT 1
) AS d ON true
LEFT JOIN LATERAL (
    SELECT m.config, m.avoid FROM skill_memory AS m
    WHERE m.skill_id = p_skill AND (p_until IS NULL OR m.recorded_at <= p_until) ORDER BY m.id DESC LIMIT 1
) AS s ON true
$$;

CREATE FUNCTION recall.configure_skill_memory_v1(
    p_actor text, p_skill text, p_deployment text, p_config jsonb, p_avoid text[]
) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Sets the configuration of a skill or of a deployment.
INSERT INTO skill_memory (skill_id, deployment_id, config, avoid, set_by, recorded_at)
VALUES (p_skill, p_deployment, p_config, p_avoid, p_actor, imem_now())
$$;

-- What is due

-- What a note considers, and what is counted when a trade closes.
CREATE INDEX trade_closed ON recall.trade_history (deployment_id, exit_tick_at DESC, id DESC) WHERE status = 'closed';

CREATE FUNCTION recall.trades_closed() RETURNS trigger
LANGUAGE plpgsql SET search_path = recall, public, pg_temp
AS $$
-- Makes a reflection due, in the transaction that closes a trade, each time so many trades of a deployment have closed: nothing is
-- counted beside the ledger, so that what is replayed counts once.
BEGIN
    INSERT INTO due_row (queue, kind, key)
    SELECT 'reflection', 'Deployment', n.deployment_id
    -- Not what was closed before: fees that are billed late change it.
    FROM (SELECT c.deployment_id, max(c.skill_id) AS skill_id, count(*) AS closed FROM changed AS c JOIN known AS k ON k.id = c.id
          WHERE c.status = 'closed' AND k.status = 'open' GROUP BY c.deployment_id) AS n
    CROSS JOIN LATERAL skill_memory_v1(n.skill_id, n.deployment_id, NULL) AS m
    CROSS JOIN LATERAL (
        SELECT count(*) AS trades FROM trade_history AS t WHERE t.deployment_id = n.deployment_id AND t.status = 'closed') AS h
    CROSS JOIN LATERAL (SELECT coalesce((m.config #>> '{reflection,every_n_trades}')::integer, 10) AS trades) AS every
    WHERE coalesce((m.config ->> 'enabled')::boolean, true)
      AND coalesce(m.config #>> '{reflection,cadence}', 'per_n_trades') = 'per_n_trades'
      AND h.trades / every.trades > (h.trades - n.closed) / every.trades
    ORDER BY n.deployment_id;
    RETURN NULL;
END
$$;

CREATE TRIGGER trades_closed AFTER UPDATE ON recall.trade_history REFERENCING OLD TABLE AS known NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION recall.trades_closed();

-- Notes

CREATE FUNCTION recall.supersede_reflection_v1(p_skill text, p_deployment text) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = recall, public, pg_temp
AS $$
-- Ends the active note of a deployment, or of a skill, and returns when: from then on the next one is active. Writers of its notes wait
-- for this transaction.
DECLARE
    v_now timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('imem.reflection'), hashtext(coalesce('deployment ' || p_deployment, 'skill ' || p_skill)));
    -- Taken under the lock, and never before the note that it ends, even where the clock was set back.
    SELECT greatest(imem_journal_now(), max(n.generated_at) + interval '1 microsecond') INTO v_now FROM reflection_notes AS n
    WHERE n.superseded_at IS NULL AND CASE
        WHEN p_deployment IS NOT NULL THEN n.deployment_id = p_deployment ELSE n.deployment_id IS NULL AND n.skill_id = p_skill END;
    UPDATE reflection_notes AS n SET superseded_at = v_now
    WHERE n.superseded_at IS NULL AND CASE
        WHEN p_deployment IS NOT NULL THEN n.deployment_id = p_deployment ELSE n.deployment_id IS NULL AND n.skill_id = p_skill END;
    RETURN v_now;
END
$$;

CREATE FUNCTION recall.add_reflection_v1(
    p_id uuid, p_skill text, p_version text, p_deployment text, p_start timestamptz, p_end timestamptz, p_trades integer, p_lessons text,
    p_model text, p_input integer, p_output integer, p_cost numeric
) RETURNS timestamptz
LANGUAGE sql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Makes a note the active one of its deployment; returns since when.
INSERT INTO reflection_notes (
    id, skill_id, skill_version, deployment_id, generated_at, window_start, window_end, trades_considered, lessons_text, model_used,
    input_tokens, output_tokens, cost_usd)
VALUES (
    p_id, p_skill, p_version, p_deployment, supersede_reflection_v1(p_skill, p_deployment), p_start, p_end, p_trades, p_lessons, p_model,
    p_input, p_output, p_cost)
RETURNING generated_at
$$;

CREATE FUNCTION recall.promote_reflection_v1(p_actor text, p_role text, p_note uuid, p_id uuid) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Makes a copy of a deployment's note the active one of its skill; returns its id. Again it returns the same one. NULL: no deployment
-- has such a note.
DECLARE
    v_note reflection_notes;
    v_id uuid;
BEGIN
    IF p_role NOT LIKE 'human\_%' THEN
        RAISE EXCEPTION '% (%) is no person, and promotes no note', p_actor, p_role USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT * INTO v_note FROM reflection_notes AS n WHERE n.id = p_note AND n.deployment_id IS NOT NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('imem.reflection'), hashtext('skill ' || v_note.skill_id));
    SELECT n.id INTO v_id FROM reflection_notes AS n WHERE n.promoted_from = p_note AND n.superseded_at IS NULL;
    IF FOUND THEN
        RETURN v_id;
    END IF;
    INSERT INTO reflection_notes (
        id, skill_id, skill_version, generated_at, window_start, window_end, trades_considered, lessons_text, model_used, input_tokens,
        output_tokens, cost_usd, promoted_from, promoted_by)
    VALUES (
        p_id, v_note.skill_id, v_note.skill_version, supersede_reflection_v1(v_note.skill_id, NULL), v_note.window_start,
        v_note.window_end, v_note.trades_considered, v_note.lessons_text, v_note.model_used, v_note.input_tokens, v_note.output_tokens,
        v_note.cost_usd, p_note, p_actor);
    RETURN p_id;
END
$$;
