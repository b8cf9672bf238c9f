-- The one way to write the journal: a batch of lines of one actor becomes events, heads, histories, deliveries and audit rows, in one
-- statement of one transaction. Then what reads and changes the order of deliveries.
--
-- The journal's time never runs backwards: what is acknowledged later is recorded later, also after the server's clock was set back.
-- A writer then records at the journal's time, not at the time at which its transaction began by that clock: taken by the latter, any
-- open writer would set the safe horizon back by as much as the clock was.

CREATE FUNCTION imem_journal_now() RETURNS timestamptz
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    -- The present moment, but later than everything recorded: values are ordered by time, and of two acknowledged ones the
    -- later must win. A session whose clock a test shifts goes by the shifted clock alone.
    SELECT CASE
        WHEN coalesce(current_setting('imem.clock_shift', true), '') <> '' AND imem_may_shift_clock() THEN imem_now()
        ELSE greatest(imem_now(), (SELECT max(recorded_at) FROM event) + interval '1 microsecond')
    END
$$;

CREATE FUNCTION imem_claim_recorded_at() RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Returns the time at which this transaction records. Until it ends, an advisory lock shows the second before which it does not record.
-- The lock is taken before the time is read: a reader that finds no lock knows that the time is still to be read.
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext('imem.recording'), floor(extract(epoch FROM imem_journal_now()))::integer);
    RETURN imem_journal_now();
END
$$;

CREATE FUNCTION imem_core_race(record_key text) RETURNS bytea
LANGUAGE plpgsql
AS $$
BEGIN
    -- Two actors recorded different cores of one new record at once. The loser gets a serialization failure and tries again: its
    -- second attempt sees the winner's core and refuses the line as a conflict.
    RAISE EXCEPTION 'two writers created % with different cores at once', record_key USING ERRCODE = 'serialization_failure';
END
$$;

CREATE FUNCTION imem_curates_v1() RETURNS boolean
LANGUAGE sql IMMUTABLE
-- Whoever may call it is a curator: may state what settles claims, and facts of others.
RETURN true;
REVOKE EXECUTE ON FUNCTION imem_curates_v1() FROM PUBLIC;

CREATE FUNCTION imem_readable_v1(p_kind text, p_payload jsonb) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
AS $$
-- Whether settlement can read a claim, an outcome or a citation: one that it cannot read would keep the whole question, or the
-- verdict, from being settled, and with it what its author would rather not have scored. Moments are read the same in every session.
DECLARE
    c_moment CONSTANT text := '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})$';
BEGIN
    IF p_kind = 'link.CITES' THEN
        RETURN (SELECT coalesce(p.at ~ c_moment AND p.at::timestamptz BETWEEN '0002-01-01 UTC' AND '9998-12-31 UTC', p.at IS NULL)
            FROM jsonb_to_record(p_payload -> 'props') AS p (at text, rank bigint));
    END IF;
    RETURN (
        SELECT coalesce(c.probability BETWEEN 0 AND 1, true)
            AND coalesce(c.value BETWEEN -1e300 AND 1e300, true) AND coalesce(c.actual BETWEEN -1e300 AND 1e300, true)
            AND coalesce(c.period_start ~ c_moment
                AND c.period_start::timestamptz BETWEEN '0002-01-01 UTC' AND '9998-12-31 UTC', true)
            AND CASE WHEN p_kind = 'record.Finding' THEN coalesce(length(c.domain) BETWEEN 1 AND 90, false) ELSE true END
        FROM jsonb_to_record(p_payload -> 'core') AS c (
            domain text, probability float8, direction text, value float8, actual float8, vintage bigint, period_start text, unit text));
EXCEPTION WHEN data_exception OR datatype_mismatch THEN
    RETURN false;
END
$$;

CREATE FUNCTION imem_past_dates_v1(p_head_kind text) RETURNS text[]
LANGUAGE sql IMMUTABLE
-- Where a payload holds times that may not lie in the future, by the kind of its heads; the kinds' models say the same.
RETURN CASE
        WHEN p_head_kind IN ('Market') THEN ARRAY['{groups,resolution,resolved_at}']
        WHEN p_head_kind IN ('Analysis') THEN ARRAY['{core,date}']
        WHEN p_head_kind IN ('Decision') THEN ARRAY['{core,decided_at}']
        WHEN p_head_kind IN ('Outcome', 'RegimeReading') THEN ARRAY['{core,observed_at}']
        WHEN p_head_kind IN ('ShadowAnalysis', 'DataContradiction', 'Debate') THEN ARRAY['{core,timestamp}']
        WHEN p_head_kind IN ('ArchiveDirectory', 'DataFile') THEN ARRAY['{core,created_date}']
        WHEN p_head_kind IN ('DataPoint') THEN ARRAY['{core,filed_at}']
        WHEN p_head_kind IN ('HumanOverride') THEN ARRAY['{core,overridden_at}']
        WHEN p_head_kind IN ('CredibilityPin') THEN ARRAY['{core,pinned_at}', '{groups,end,ended_at}']
        WHEN p_head_kind IN ('BiasCorrection') THEN ARRAY['{core,proposed_at}', '{groups,state,decided_at}']
        WHEN p_head_kind IN ('PostMortem') THEN ARRAY['{core,trigger_date}']
        WHEN p_head_kind IN ('HumanInsight') THEN ARRAY['{core,review_date}']
        WHEN p_head_kind IN ('link.CITES', 'link.APPROVED_AT_GATE6', 'link.REJECTED_AT_GATE6', 'link.OVERRODE', 'link.ADDED_TO_CHECKLIST', 'link.RECEIVED_LESSON') THEN ARRAY['{props,at}']
        WHEN p_head_kind IN ('link.MIGRATED_TO_TIER') THEN ARRAY['{props,date}']
    END;

CREATE FUNCTION imem_governed_kind_v1(p_agent text) RETURNS text
LANGUAGE sql STABLE SET search_path = public, pg_temp
AS $$
    -- The kind of an agent by the newest statement with the import right or by a person; NULL if there is none.
    SELECT e.payload -> 'groups' -> 'profile' ->> 'kind'
    FROM record_history AS y JOIN event AS e ON e.position = y.position
    WHERE y.kind = 'Agent' AND y.key = p_agent AND y.grp = 'profile' AND (y.imported OR e.actor_role = 'human_admin')
    ORDER BY y.order_key DESC LIMIT 1
$$;

CREATE FUNCTION imem_citable_v1(p_kind text, p_payload jsonb) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp
AS $$
    -- Whether a link cites what may be cited now: of patterns the active ones alone.
    SELECT p_kind = 'link.CITES' AND p_payload ->> 'to_label' IN ('Finding', 'Debate', 'Lesson', 'Analysis') OR EXISTS (
        SELECT FROM record_head AS h JOIN event AS e ON e.position = h.position
        WHERE h.kind = 'Pattern' AND h.key = p_payload ->> 'to_key' AND h.grp = 'status'
          AND e.payload -> 'groups' -> 'status' ->> 'status' = 'active')
$$;

CREATE FUNCTION imem_own_facts_v1(
    p_actor text, p_role text, p_may_import boolean,
    p_kind text[], p_head_kind text[], p_key text[], p_payload text[], p_known_at timestamptz[], p_target_at timestamptz[],
    p_group_line integer[], p_group text[]
) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
AS $$
-- Refuses a login that is no curator's what could move a track record other than an agent's own claims, made before their answer is
-- known: imports, a person's word, corrections, outcomes that settle, and claims under the name of somebody else or of what others are
-- measured against; what the table curated_fact names, as the state of a pattern; events that say more than the heads beside them, which
-- are what is checked; and what settlement cannot read. Who logged in counts, not what the call says of its actor. Raises IM003.
DECLARE
    v_refused text;
BEGIN
    -- Readers record nothing, whoever logged in.
    IF p_role IN ('reader', 'reviewer') THEN
        RAISE EXCEPTION '% (%) may not append to the journal', p_actor, p_role USING ERRCODE = 'IM003';
    END IF;
    IF has_function_privilege(session_user, 'public.imem_curates_v1()', 'EXECUTE') THEN
        RETURN;
    END IF;
    IF p_may_import OR p_role = 'human_admin' OR num_nonnulls(VARIADIC p_known_at) > 0 THEN
        v_refused := format('an import or a person''s word, by %s', p_actor);
    ELSIF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        -- In an old snapshot nobody is a baseline yet.
        v_refused := format('anything in a transaction that is %s', current_setting('transaction_isolation'));
    ELSE
        SELECT format('%s of %s %s by %s', g.grp, l.head_kind, l.key, p_actor) INTO v_refused
        FROM unnest(p_group_line, p_group) AS g (line, grp)
        JOIN unnest(p_kind, p_head_kind, p_key, p_payload) WITH ORDINALITY AS l (kind, head_kind, key, payload, line)
            ON l.line = g.line
        WHERE g.grp = 'correction'
           OR g.grp = 'core' AND l.head_kind = 'Outcome' AND NOT starts_with(l.key, 'own:' || p_actor || '/')
           OR g.grp = 'core' AND l.head_kind = 'Finding' AND (
                l.kind <> 'record.Finding'
                OR l.payload::jsonb -> 'core' ->> 'agent' IS DISTINCT FROM p_actor
                OR imem_governed_kind_v1(p_actor) IN ('baseline', 'ensemble', 'human'))
           OR EXISTS (SELECT FROM curated_fact AS c WHERE c.head_kind = l.head_kind AND c.grp IN ('*', g.grp))
        LIMIT 1;
    END IF;
    IF v_refused IS NULL THEN
        SELECT format('%s %s by %s', l.kind, l.key, p_actor) INTO v_refused
        FROM unnest(p_kind, p_head_kind, p_key, p_payload, p_target_at)
            WITH ORDINALITY AS l (kind, head_kind, key, payload, target_at, line)
        CROSS JOIN LATERAL (SELECT l.payload::jsonb AS payload) AS s
        WHERE l.kind IS DISTINCT FROM CASE
                WHEN l.head_kind LIKE 'link.%' OR l.head_kind LIKE 'notice.%' THEN l.head_kind ELSE 'record.' || l.head_kind END
           -- What the payload says is what is checked: each part of it is a group of the line.
           OR EXISTS (
                SELECT FROM (
                    SELECT 'core' AS grp WHERE s.payload ? 'core'
                    UNION ALL
                    SELECT jsonb_object_keys(s.payload -> 'groups')
                ) AS said
                WHERE l.kind NOT LIKE 'link.%' AND NOT EXISTS (
                    SELECT FROM unnest(p_group_line, p_group) AS g (line, grp) WHERE g.line = l.line AND g.grp = said.grp))
           OR l.kind IN ('record.Finding', 'record.Outcome') AND (
                NOT isfinite(l.target_at) OR NOT l.target_at BETWEEN '0002-01-01 UTC' AND '9998-12-31 UTC'
                OR s.payload ? 'core' AND NOT imem_readable_v1(l.kind, s.payload))
           OR l.kind = 'link.CITES' AND NOT imem_readable_v1(l.kind, s.payload)
        LIMIT 1;
    END IF;
    IF v_refused IS NOT NULL THEN
        RAISE EXCEPTION 'Postgres lets the application''s role state an agent''s own facts alone, not %', v_refused
        USING ERRCODE = 'IM003';
    END IF;
END
$$;

CREATE FUNCTION imem_append_v1(
    p_actor text, p_role text, p_may_import boolean, p_context jsonb,
    -- one entry a line
    p_event_id uuid[], p_kind text[], p_head_kind text[], p_key text[], p_payload text[], p_body text[], p_payload_hash bytea[],
    p_occurred_at timestamptz[], p_known_at timestamptz[], p_analysis_id text[], p_subject_id text[], p_metric text[],
    p_target_at timestamptz[], p_ref_hash bytea[], p_importance real[], p_tier smallint[], p_turns text[],
    -- one entry a group of a line (1-based index into the above); no group of a record occurs twice in one call
    p_group_line integer[], p_group text[], p_group_hash bytea[]
) RETURNS TABLE (line integer, status text, "position" bigint, event_id uuid, recorded_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
-- The plan is made once a session, often while the tables are still small: it must look heads up by key all the same.
SET enable_seqscan = off
AS $$
-- status: new (no group of the line was known), changed (accepted; some were), identical (nothing written, position and
-- event_id of the earlier event), and, with nothing written for the line: core_conflict, nothing_to_correct,
-- reference_changed, future, premature, late_claim, not_begun, not_citable.
--
-- A line without known_at is known when it is recorded, and is identical when it repeats the heads; one with known_at
-- (import right) is identical when this actor recorded that content with that known_at before.
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_seq bigint;
BEGIN
    -- The row lock keeps the order of one actor; time is read after it, so that it never runs backwards in a lane.
    INSERT INTO agent_cursor AS c (actor) VALUES (p_actor)
    ON CONFLICT (actor) DO UPDATE SET lock_epoch = c.lock_epoch
    RETURNING c.pushed_seq INTO v_seq;
    -- Shows whose transaction is open until it ends; taken before the time is read.
    PERFORM pg_advisory_xact_lock_shared(hashtext('imem.writer'), hashtext(p_actor));
    v_now := imem_claim_recorded_at();
    -- After all waiting: who becomes a baseline while this waits for another writer is one.
    PERFORM imem_own_facts_v1(
        p_actor, p_role, p_may_import, p_kind, p_head_kind, p_key, p_payload, p_known_at, p_target_at, p_group_line, p_group);

    RETURN QUERY
    WITH lines AS (
        SELECT l.*, l.known_at IS NOT NULL AS stated
        FROM unnest(
            p_event_id, p_kind, p_head_kind, p_key, p_payload, p_body, p_payload_hash, p_occurred_at, p_known_at,
            p_analysis_id, p_subject_id, p_metric, p_target_at, p_ref_hash, p_importance, p_tier, p_turns
        ) WITH ORDINALITY AS l (
            event_id, kind, head_kind, key, payload, body, payload_hash, occurred_at, known_at,
            analysis_id, subject_id, metric, target_at, ref_hash, importance, tier, turns, line)
    ),
    groups AS (
        SELECT g.line, l.head_kind, l.key, g.grp, g.hash, l.known_at, l.stated
        FROM unnest(p_group_line, p_group, p_group_hash) AS g (line, grp, hash)
        JOIN lines AS l ON l.line = g.line
    ),
    judged AS (
        SELECT g.line, g.grp, g.hash,
            h.hash IS NOT NULL AS existed,
            g.grp = 'core' AND h.hash <> g.hash AS conflict,
            CASE WHEN g.stated THEN s.position
                -- An outcome that an unauthorized source recorded settles nothing: the first one that settles is no repeat of it.
                WHEN g.head_kind = 'Outcome' AND g.grp = 'core' AND (p_may_import OR p_role = 'human_admin') THEN o.position
                WHEN h.hash = g.hash THEN h.position
            END AS same_as
        FROM groups AS g
        LEFT JOIN LATERAL (
            SELECT r.hash, r.position FROM record_head AS r
            WHERE r.kind = g.head_kind AND r.key = g.key AND r.grp = g.grp LIMIT 1
        ) AS h ON true
        LEFT JOIN LATERAL (
            SELECT y.position FROM record_history AS y
            WHERE g.stated AND y.kind = g.head_kind AND y.key = g.key AND y.grp = g.grp
              AND y.known_at = g.known_at AND y.hash = g.hash AND y.actor = p_actor
            ORDER BY y.order_key LIMIT 1
        ) AS s ON true
        LEFT JOIN LATERAL (
            SELECT y.position FROM record_history AS y JOIN event AS e ON e.position = y.position
            WHERE NOT g.stated AND g.head_kind = 'Outcome' AND g.grp = 'core' AND y.kind = 'Outcome' AND y.key = g.key
              AND y.grp = 'core' AND y.hash = g.hash AND (y.imported OR e.actor_role = 'human_admin')
            ORDER BY y.order_key LIMIT 1
        ) AS o ON true
    ),
    verdict AS (
        SELECT l.*, j.same_as,
            CASE
                WHEN l.known_at > v_now THEN 'future'
                -- What a metric turned out to be cannot be known before the moment that it speaks of.
                WHEN l.head_kind = 'Outcome' AND coalesce(l.known_at, v_now) < l.target_at THEN 'premature'
                -- A claim that is made when its answer could be known is never settled. Where its core is recorded, the claim was
                -- made before: a repeat is harmless, and another core is a conflict.
                WHEN l.kind = 'record.Finding' AND l.metric IS NOT NULL AND coalesce(l.known_at, v_now) >= l.target_at
                    AND NOT j.core_recorded THEN 'late_claim'
                WHEN l.kind LIKE 'correct.%' AND c.hash IS NULL THEN 'nothing_to_correct'
                WHEN l.kind LIKE 'correct.%' AND c.ref_hash IS DISTINCT FROM l.ref_hash THEN 'reference_changed'
                -- What is dated later than now would be the newest until then. A caller's clock may be ahead by a minute.
                WHEN greatest(l.occurred_at, d.latest) > v_now + interval '1 minute' THEN 'not_begun'
                -- A pattern that is not active is unknown to whoever cites it: the refusal is the same.
                WHEN l.kind IN ('link.CITES', 'link.IDENTIFIED_PATTERN') AND NOT l.stated AND NOT j.all_same AND NOT imem_citable_v1(l.kind, l.payload::jsonb) THEN 'not_citable'
                WHEN j.conflict THEN 'core_conflict'
                WHEN j.all_same THEN 'identical'
                WHEN j.existed THEN 'changed'
                ELSE 'new'
            END AS status
        FROM lines AS l
        JOIN (
            SELECT line, bool_or(existed) AS existed, bool_or(existed AND grp = 'core') AS core_recorded,
                bool_or(conflict) AS conflict,
                bool_and(same_as IS NOT NULL) AS all_same, min(same_as) AS same_as
            FROM judged GROUP BY line
        ) AS j ON j.line = l.line
        LEFT JOIN LATERAL (
            SELECT r.hash, r.ref_hash FROM record_head AS r
            WHERE l.kind LIKE 'correct.%' AND r.kind = l.head_kind AND r.key = l.key AND r.grp = 'core' LIMIT 1
        ) AS c ON true
        CROSS JOIN LATERAL (
            SELECT max((l.payload::jsonb #>> p.path::text[])::timestamptz) AS latest
            FROM unnest(imem_past_dates_v1(l.head_kind)) AS p (path)
        ) AS d
    ),
    accepted AS (
        SELECT v.line, v.event_id, v.kind, v.head_kind, v.key, v.payload, v.body, v.payload_hash, v.analysis_id,
            v.subject_id, v.metric, v.target_at, v.ref_hash, v.importance, v.tier, v.turns, v.stated,
            coalesce(v.known_at, v_now) AS known_at,
            coalesce(v.occurred_at, v.known_at, v_now) AS occurred_at,
            v_seq + row_number() OVER (ORDER BY v.line) AS agent_seq
        FROM verdict AS v WHERE v.status IN ('new', 'changed')
    ),
    keyed AS (
        -- Read as JSON once: due rules look into it again and again.
        SELECT a.*, a.payload::jsonb AS content, imem_order_key(a.known_at, p_actor, a.agent_seq) AS order_key FROM accepted AS a
    ),
    added AS (
        INSERT INTO event (
            event_id, actor, actor_role, imported, agent_seq, kind, record_key, analysis_id, payload, body,
            payload_hash, importance, occurred_at, known_at, recorded_at, order_key)
        SELECT event_id, p_actor, p_role, p_may_import, agent_seq, kind, key, analysis_id, content, body,
            payload_hash, importance, occurred_at, known_at, v_now, order_key
        FROM keyed ORDER BY line
        RETURNING event.position, event.event_id
    ),
    placed AS (
        SELECT k.*, e.position FROM keyed AS k JOIN added AS e ON e.event_id = k.event_id
    ),
    cursor_moved AS (
        UPDATE agent_cursor SET pushed_seq = v_seq + (SELECT count(*) FROM accepted)
        WHERE actor = p_actor AND EXISTS (SELECT 1 FROM accepted)
    ),
    delivered AS (
        -- A notice is for people; the graph does not hold it, so that it is never delivered.
        INSERT INTO delivery (position, actor, tier) SELECT position, p_actor, tier FROM placed WHERE kind NOT LIKE 'notice.%'
    ),
    histories AS (
        INSERT INTO record_history (kind, key, grp, order_key, hash, position, known_at, recorded_at, actor, imported)
        SELECT p.head_kind, p.key, j.grp, p.order_key, j.hash, p.position, p.known_at, v_now, p_actor, p_may_import
        FROM placed AS p JOIN judged AS j ON j.line = p.line
    ),
    heads AS (
        INSERT INTO record_head AS h (
            kind, key, grp, hash, position, order_key, known_at, occurred_at, ref_hash, subject_id, metric, target_at)
        SELECT p.head_kind, p.key, j.grp, j.hash, p.position, p.order_key, p.known_at, p.occurred_at,
            CASE WHEN j.grp = 'core' THEN p.ref_hash END, CASE WHEN j.grp = 'core' THEN p.subject_id END,
            CASE WHEN j.grp = 'core' THEN p.metric END, CASE WHEN j.grp = 'core' THEN p.target_at END
        FROM placed AS p JOIN judged AS j ON j.line = p.line
        ORDER BY p.head_kind, p.key, j.grp
        ON CONFLICT (kind, key, grp) DO UPDATE SET
            hash = CASE WHEN h.grp = 'core' AND h.hash <> excluded.hash THEN imem_core_race(h.key) ELSE excluded.hash END,
            position = excluded.position, order_key = excluded.order_key, known_at = excluded.known_at,
            occurred_at = excluded.occurred_at
        WHERE CASE WHEN h.grp = 'core' THEN excluded.order_key < h.order_key OR h.hash <> excluded.hash
                   ELSE excluded.order_key > h.order_key END
    ),
    turned AS (
        INSERT INTO debate_turn (debate_id, position, number, stage, speaker, stance, text, cites)
        SELECT p.key, p.position, t.number, t.stage, t.speaker, t.stance, t.text, coalesce(t.cites, '{}')
        FROM placed AS p, jsonb_to_recordset(p.turns::jsonb)
            AS t (number integer, stage text, speaker text, stance text, text text, cites text[])
        WHERE p.turns IS NOT NULL
    ),
    audited AS (
        INSERT INTO memory_access_audit (
            timestamp, actor_id, actor_role, resource_type, resource_id, action, authorized, request_context, outcome)
        SELECT v_now, p_actor, p_role, 'journal', kind || ' ' || key,
            CASE WHEN stated THEN 'import' ELSE 'append' END, true,
            p_context || jsonb_build_object('event_id', event_id, 'position', position), 'recorded'
        FROM placed
    ),
    due AS (
        INSERT INTO due_row (queue, kind, key, position, created_at, later)
        SELECT r.queue, r.kind, d.key #>> '{}', min(p.position), v_now, p_may_import
        FROM placed AS p
        JOIN due_rule AS r ON r.event = p.kind
        CROSS JOIN LATERAL jsonb_path_query(p.content, r.keys, jsonb_build_object(
            'key', p.key, 'analysis', p.analysis_id, 'subject', p.subject_id, 'metric', p.metric)) AS d (key)
        WHERE d.key <> 'null'
        GROUP BY 1, 2, 3
    )
    SELECT v.line::integer, v.status, coalesce(p.position, CASE WHEN v.status = 'identical' THEN v.same_as END),
        coalesce(p.event_id, s.event_id), coalesce(CASE WHEN p.position IS NOT NULL THEN v_now END, s.recorded_at)
    FROM verdict AS v
    LEFT JOIN placed AS p ON p.line = v.line
    LEFT JOIN event AS s ON v.status = 'identical' AND s.position = v.same_as
    ORDER BY v.line;
END
$$;

CREATE FUNCTION imem_safe_horizon() RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- The last moment of which everything recorded is committed and applied: before the oldest open transaction that
-- has written, and before the oldest event that is not yet applied. Dead events do not hold it back.
--
-- Statements in this order, each with a snapshot of its own (the function is volatile, and READ COMMITTED): a
-- writer that is no longer among the open transactions has committed before the deliveries are read, so that its rows
-- are seen there. In one statement it could end between the snapshot and the look at the transactions, and be in neither.
-- A writer that has no xid yet reads its recorded_at later than v_now was read. Where the clock is behind the journal, a
-- writer's xact_start does not bound its recorded_at: its lock does, and one without a lock has not read the time yet.
DECLARE
    v_now timestamptz := imem_journal_now();
    v_shift interval := imem_now() - clock_timestamp();
    v_writer timestamptz;
    v_waiting timestamptz;
BEGIN
    -- Within a transaction, statistics of activity are cached until the cache is cleared.
    PERFORM pg_stat_clear_snapshot();
    IF v_now > imem_now() THEN
        SELECT min(to_timestamp(l.objid::bigint)) INTO v_writer FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND l.classid::bigint = hashtext('imem.recording')::bigint & 4294967295 AND l.pid <> pg_backend_pid();
    ELSE
        SELECT min(a.xact_start) + v_shift INTO v_writer FROM pg_stat_activity AS a
        WHERE a.datname = current_database() AND a.backend_xid IS NOT NULL AND a.pid <> pg_backend_pid();
    END IF;
    -- Planned each time: a plan that a session cached while nothing waited would be slow when 100,000 events wait.
    EXECUTE $waiting$
        SELECT min(e.recorded_at) FROM delivery AS d JOIN event AS e ON e.position = d.position
        WHERE d.state = 'pending'
    $waiting$ INTO v_waiting;
    RETURN least(v_now, v_writer, v_waiting) - interval '1 microsecond';
END
$$;

CREATE FUNCTION imem_hasten_v1(p_actors text[]) RETURNS TABLE ("position" bigint, actor text)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    -- Makes pending events of the given actors critical, so that they do not wait behind a bulk load; returns them.
    UPDATE delivery AS d SET tier = least(d.tier, 1)
    FROM (
        SELECT w.position FROM delivery AS w WHERE w.actor = ANY (p_actors) AND w.state = 'pending'
        ORDER BY w.position FOR UPDATE
    ) AS waiting
    WHERE d.position = waiting.position
    RETURNING d.position, d.actor
$$;

CREATE FUNCTION imem_replay_v1(p_actor text, p_role text, p_positions bigint[], p_context jsonb) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Sets dead events to pending, from the first attempt on, and returns how many of the given ones were dead. Their gaps and one audit
-- row for each name the actor. The caller checks whether it is allowed.
DECLARE
    v_now timestamptz := imem_now();
    v_replayed bigint[];
BEGIN
    WITH revived AS (
        UPDATE delivery AS d SET state = 'pending', attempts = 0, next_attempt_at = NULL
        WHERE d.position = ANY (p_positions) AND d.state = 'dead'
        RETURNING d.position
    )
    SELECT coalesce(array_agg(r.position ORDER BY r.position), '{}') INTO v_replayed FROM revived AS r;

    UPDATE delivery_gap AS g SET replayed_at = v_now, replayed_by = p_actor
    WHERE g.position = ANY (v_replayed) AND g.closed_at IS NULL;

    INSERT INTO memory_access_audit (
        timestamp, actor_id, actor_role, resource_type, resource_id, action, authorized, request_context, outcome)
    SELECT v_now, p_actor, p_role, 'journal', e.kind || ' ' || e.record_key, 'replay', true,
        p_context || jsonb_build_object('event_id', e.event_id, 'position', e.position), 'recorded'
    FROM event AS e WHERE e.position = ANY (v_replayed) ORDER BY e.position;

    RETURN cardinality(v_replayed);
END
$$;
