-- Alerts: what people have to be notified of, and the messages to each channel. Rows decide what is due.

CREATE TABLE workflow.alert (
    alert_id        uuid PRIMARY KEY,
    kind            text NOT NULL CHECK (kind ~ '^[A-Z][A-Z0-9_]{0,62}$'),
    severity        text NOT NULL CHECK (severity IN ('NORMAL', 'MEDIUM', 'HIGH', 'CRITICAL')),
    subject         text CHECK (length(subject) BETWEEN 1 AND 200),
    analysis_id     text CHECK (length(analysis_id) BETWEEN 1 AND 200),
    about           uuid,
    payload         jsonb NOT NULL CHECK (jsonb_typeof(payload) = 'object'),
    requires_ack    boolean NOT NULL,
    raised_at       timestamptz NOT NULL,
    counts_from     timestamptz NOT NULL,
    announced_at    timestamptz,
    resends         smallint NOT NULL DEFAULT 0 CHECK (resends BETWEEN 0 AND 3),
    next_due_at     timestamptz,
    escalated_at    timestamptz,
    acknowledged_at timestamptz,
    acknowledged_by text,
    closed_at       timestamptz,
    CHECK ((acknowledged_at IS NULL) = (acknowledged_by IS NULL))
);
CREATE INDEX alert_due ON workflow.alert (next_due_at) WHERE next_due_at IS NOT NULL;
CREATE INDEX alert_open ON workflow.alert (raised_at) WHERE closed_at IS NULL;
CREATE INDEX alert_closed ON workflow.alert (closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX alert_about ON workflow.alert (about) WHERE closed_at IS NULL;
COMMENT ON TABLE workflow.alert IS 'What people have to be notified of. Alerts report pauses and never cause or end one.';
COMMENT ON COLUMN workflow.alert.requires_ack IS 'Whether it is sent again until it is acknowledged: agent failures, and all that is critical.';
COMMENT ON COLUMN workflow.alert.counts_from IS 'Start of the half hours between resends: when it was raised, or first announced where that was much later.';
COMMENT ON COLUMN workflow.alert.next_due_at IS 'When its next message is due; NULL once none is.';
COMMENT ON COLUMN workflow.alert.closed_at IS 'When what it is about was over, or it was acknowledged and nothing else would end it; then it has no card.';

CREATE TABLE workflow.alert_over (
    about   uuid PRIMARY KEY,
    over_at timestamptz NOT NULL DEFAULT imem_now()
);
COMMENT ON TABLE workflow.alert_over IS 'What alerts were about and is over: nothing but an acknowledgement ends an alert that is raised about it afterwards.';

CREATE TABLE workflow.alert_send (
    send_id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    channel         text NOT NULL,
    reason          text NOT NULL CHECK (reason IN ('raised', 'resent', 'escalated', 'summary')),
    number          smallint NOT NULL DEFAULT 0,
    alert_ids       uuid[] NOT NULL CHECK (cardinality(alert_ids) >= 1),
    reasons         text[] NOT NULL,
    state           text NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'sent', 'failed', 'dropped')),
    attempts        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    created_at      timestamptz NOT NULL,
    settled_at      timestamptz,
    error           text,
    CHECK (cardinality(alert_ids) = cardinality(reasons))
);
CREATE INDEX alert_send_due ON workflow.alert_send (next_attempt_at) WHERE state = 'due';
CREATE INDEX alert_send_failed ON workflow.alert_send (settled_at) WHERE state = 'failed';
CREATE INDEX alert_send_settled ON workflow.alert_send (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX alert_send_of_channel ON workflow.alert_send (channel, created_at);
CREATE INDEX alert_send_summary ON workflow.alert_send (channel, created_at) WHERE reason = 'summary';
CREATE UNIQUE INDEX alert_send_once ON workflow.alert_send (channel, (alert_ids[1]), reason, number) WHERE reason <> 'summary';
COMMENT ON TABLE workflow.alert_send IS 'One message to one channel. It is sent at least once, always under the same send_id.';
COMMENT ON COLUMN workflow.alert_send.reasons IS 'Why each of the alerts is in the message; one entry an alert.';

CREATE FUNCTION workflow.raise_alert_v1(
    p_alert_id uuid, p_kind text, p_severity text, p_subject text, p_analysis text, p_about uuid, p_payload jsonb
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Raises an alert within the caller's transaction: its row, the event notice.<KIND> of the journal, and that event's audit
-- row. Both become visible, or vanish, with what else the transaction did. Returns whether it is new: an id that is
-- there already changes nothing.
--
-- It holds the row of service:workflow among the journal's actors until the transaction ends, so that it should be the
-- last thing that a transaction does: two that wait for one another any other way would have to be repeated.
DECLARE
    v_now timestamptz := imem_now();
    v_payload jsonb := coalesce(p_payload, '{}');
    v_body text;
    v_status text;
BEGIN
    IF octet_length(v_payload::text) > 32768 THEN
        -- A payload that is too long must not fail the transaction that raises the alert.
        v_payload := jsonb_build_object(
            'truncated', true, 'checkpoint_id', v_payload -> 'checkpoint_id', 'progress_pct', v_payload -> 'progress_pct',
            'phase', left(v_payload ->> 'phase', 200), 'day', v_payload -> 'day');
    END IF;
    INSERT INTO workflow.alert (
        alert_id, kind, severity, subject, analysis_id, about, payload, requires_ack, raised_at, counts_from, next_due_at, closed_at)
    SELECT
        p_alert_id, p_kind, p_severity, p_subject, p_analysis, p_about, v_payload,
        p_kind = 'AGENT_FAILURE' OR p_severity = 'CRITICAL', v_now, v_now, v_now,
        -- That something ended well is announced, and needs no action.
        CASE WHEN p_kind <> 'AGENT_FAILURE' AND p_severity = 'NORMAL'
            AND EXISTS (SELECT FROM workflow.alert_over AS o WHERE o.about = p_about) THEN v_now END
    -- An alert that was closed and removed has been announced: the journal keeps its notice.
    WHERE NOT EXISTS (SELECT FROM event AS e WHERE e.event_id = p_alert_id AND e.kind = 'notice.' || p_kind)
    ON CONFLICT (alert_id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_body := jsonb_build_object('core', jsonb_build_object(
        'id', p_alert_id, 'kind', p_kind, 'severity', p_severity, 'subject', p_subject, 'analysis_id', p_analysis,
        'about', p_about, 'payload', v_payload))::text;
    -- The subject is not among the arguments: heads by subject are for what is known of it, which a notice does not add to.
    SELECT a.status INTO v_status FROM imem_append_v1(
        'service:workflow', 'service', false, jsonb_build_object('action', 'raise_alert'),
        ARRAY[p_alert_id], ARRAY['notice.' || p_kind], ARRAY['notice.' || p_kind], ARRAY[p_alert_id::text], ARRAY[v_body],
        ARRAY[NULL]::text[], ARRAY[sha256(convert_to(v_body, 'UTF8'))], ARRAY[NULL]::timestamptz[], ARRAY[NULL]::timestamptz[],
        ARRAY[p_analysis], ARRAY[NULL]::text[], ARRAY[NULL]::text[], ARRAY[NULL]::timestamptz[], ARRAY[NULL]::bytea[],
        ARRAY[NULL]::real[], ARRAY[3]::smallint[], ARRAY[NULL]::text[],
        ARRAY[1], ARRAY['core'], ARRAY[sha256(convert_to(v_body, 'UTF8'))]) AS a;
    IF v_status <> 'new' THEN
        RAISE EXCEPTION 'the journal holds a notice % already: %', p_alert_id, v_status USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN true;
END
$$;

CREATE FUNCTION workflow.close_alerts_v1(p_about uuid) RETURNS integer
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Takes the alerts about something off the cards because it is over; returns how many. An alert that was not announced
-- yet is still announced, once.
DECLARE
    v_closed integer;
BEGIN
    INSERT INTO workflow.alert_over (about) VALUES (p_about) ON CONFLICT DO NOTHING;
    UPDATE workflow.alert AS a SET closed_at = imem_now(), next_due_at = CASE WHEN a.announced_at IS NULL THEN a.next_due_at END
    WHERE a.about = p_about AND a.closed_at IS NULL;
    GET DIAGNOSTICS v_closed = ROW_COUNT;
    RETURN v_closed;
END
$$;

CREATE FUNCTION workflow.gather_alert(p_channel text, p_alert_id uuid, p_reason text, p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Puts an alert into the channel's summary that has not been sent yet, or begins one: at most one in ten seconds.
BEGIN
    UPDATE workflow.alert_send AS s SET alert_ids = s.alert_ids || p_alert_id, reasons = s.reasons || p_reason
    WHERE s.send_id = (
        SELECT w.send_id FROM workflow.alert_send AS w
        WHERE w.channel = p_channel AND w.reason = 'summary' AND w.state = 'due' AND w.attempts = 0
          AND cardinality(w.alert_ids) < 500
        ORDER BY w.created_at DESC LIMIT 1 FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        INSERT INTO workflow.alert_send (channel, reason, alert_ids, reasons, next_attempt_at, created_at)
        SELECT p_channel, 'summary', ARRAY[p_alert_id], ARRAY[p_reason],
            greatest(p_now, max(w.created_at) + interval '10 seconds'), p_now
        FROM workflow.alert_send AS w WHERE w.channel = p_channel AND w.reason = 'summary';
    END IF;
END
$$;

CREATE FUNCTION workflow.plan_alerts_v1(p_channels text[]) RETURNS integer
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
-- Turns due alerts into messages to each of the channels, and sets when the next is due; returns how many alerts it
-- handled. An alert is announced at once; one that requires an acknowledgement again every 30 minutes, three times, and as an
-- escalation after 90, unless it was acknowledged. A channel gets ten messages in five minutes, and summaries of the rest.
DECLARE
    v_now timestamptz;
    v_alert workflow.alert;
    v_number smallint;
    v_reasons text[];
    v_reason text;
    v_channel text;
    v_seen integer := 0;
BEGIN
    -- One at a time: what a channel got lately has to be known for sure.
    IF NOT pg_try_advisory_xact_lock(hashtext('workflow.plan_alerts')) THEN
        RETURN 0;
    END IF;
    v_now := imem_now();
    FOR v_alert IN
        SELECT * FROM workflow.alert WHERE next_due_at <= v_now ORDER BY next_due_at, alert_id LIMIT 500 FOR UPDATE SKIP LOCKED
    LOOP
        v_seen := v_seen + 1;
        v_number := v_alert.resends;
        IF v_alert.announced_at IS NULL THEN
            v_reasons := ARRAY['raised'];
            -- Half hours before the announcement do not count.
            IF v_now > v_alert.counts_from + interval '5 minutes' THEN
                v_alert.counts_from := v_now;
            END IF;
        ELSE
            -- Those that were missed are not made up for, one after the other.
            v_number := least(3, greatest(v_number + 1, floor(extract(epoch FROM v_now - v_alert.counts_from) / 1800)));
            v_reasons := ARRAY['resent'];
            IF v_number = 3 THEN
                v_reasons := v_reasons || 'escalated'::text;
            END IF;
        END IF;
        -- Counted before it is sent: a count that is read before and written after sends one too many.
        UPDATE workflow.alert AS a SET
            announced_at = coalesce(a.announced_at, v_now),
            counts_from = v_alert.counts_from,
            resends = v_number,
            escalated_at = CASE WHEN 'escalated' = ANY (v_reasons) THEN v_now ELSE a.escalated_at END,
            next_due_at = CASE
                WHEN a.requires_ack AND v_number < 3 AND a.acknowledged_at IS NULL AND a.closed_at IS NULL
                THEN v_alert.counts_from + (v_number + 1) * interval '30 minutes' END
        WHERE a.alert_id = v_alert.alert_id;
        FOREACH v_channel IN ARRAY p_channels LOOP
            FOREACH v_reason IN ARRAY v_reasons LOOP
                IF 10 > (
                    SELECT count(*) FROM workflow.alert_send AS s
                    WHERE s.channel = v_channel AND s.reason <> 'summary' AND s.created_at > v_now - interval '5 minutes')
                THEN
                    INSERT INTO workflow.alert_send (channel, reason, number, alert_ids, reasons, next_attempt_at, created_at)
                    VALUES (v_channel, v_reason, v_number, ARRAY[v_alert.alert_id], ARRAY[v_reason], v_now, v_now)
                    ON CONFLICT DO NOTHING;
                ELSE
                    PERFORM workflow.gather_alert(v_channel, v_alert.alert_id, v_reason, v_now);
                END IF;
            END LOOP;
        END LOOP;
    END LOOP;
    RETURN v_seen;
END
$$;
