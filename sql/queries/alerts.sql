-- raise_alert --
-- Raises an alert in the transaction; see workflow.raise_alert_v1. Column: raised, false if it existed already.
SELECT workflow.raise_alert_v1(
    %(alert_id)s, %(kind)s, %(severity)s, %(subject)s, %(analysis_id)s, %(about)s, %(payload)s::jsonb) AS raised

-- close_alerts --
-- Closes the alerts about a matter; see workflow.close_alerts_v1. Column: closed, how many.
SELECT workflow.close_alerts_v1(%(about)s) AS closed

-- count_errors --
-- Adds errors of a store to their total; concurrent additions to the same total wait for the end of the transaction.
INSERT INTO workflow.error_counter AS c (name, store, total, last_reason)
VALUES (%(name)s, %(store)s, %(count)s, %(reason)s)
ON CONFLICT (name, store) DO UPDATE SET
    total = c.total + excluded.total, last_at = imem_now(), last_reason = excluded.last_reason

-- open_alerts_among --
-- Which of the given matters an open alert of a kind is about. Alerts of another kind count for nothing: anybody may raise one.
SELECT DISTINCT about FROM workflow.alert WHERE about = ANY (%(abouts)s::uuid[]) AND kind = %(kind)s AND closed_at IS NULL

-- lock_alerts_about --
-- Serialises decisions about the alerts on one matter, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('imem.alert.' || %(about)s::text, 0))

-- set_alert_about --
-- Sets the matter whose end closes an alert.
UPDATE workflow.alert SET about = %(about)s WHERE alert_id = %(alert_id)s AND closed_at IS NULL

-- open_alerts --
-- Open alerts, and how many there are in all; unacknowledged ones first, then the most severe, then the oldest.
SELECT alert_id, kind, severity, subject, analysis_id, about, payload, requires_ack, raised_at, resends, next_due_at,
    escalated_at, acknowledged_at, acknowledged_by, count(*) OVER () AS total
FROM workflow.alert WHERE closed_at IS NULL
ORDER BY acknowledged_at IS NOT NULL, array_position(ARRAY['CRITICAL', 'HIGH', 'MEDIUM', 'NORMAL'], severity), raised_at, alert_id
LIMIT %(limit)s

-- alerts_by_id --
-- The given alerts, oldest first.
SELECT alert_id, kind, severity, subject, analysis_id, about, payload, requires_ack, raised_at, resends, next_due_at,
    escalated_at, acknowledged_at, acknowledged_by
FROM workflow.alert WHERE alert_id = ANY (%(alert_ids)s::uuid[]) ORDER BY raised_at, alert_id

-- undelivered_alerts --
-- Messages that their channel did not take: given up, or tried and due again. Columns: channel, failed (in the last day),
-- waiting, error (the latest).
SELECT channel, count(*) FILTER (WHERE state = 'failed') AS failed, count(*) FILTER (WHERE state = 'due') AS waiting,
    (array_agg(error ORDER BY coalesce(settled_at, created_at) DESC) FILTER (WHERE error IS NOT NULL))[1] AS error
FROM workflow.alert_send
WHERE (state = 'due' AND error IS NOT NULL) OR (state = 'failed' AND settled_at > (SELECT imem_now()) - interval '1 day')
GROUP BY channel ORDER BY channel

-- acknowledge_alert --
-- Acknowledges an alert, which stops its resends. It is closed as well if it needs no acknowledgement, is about no matter, or
-- its matter has ended. No row if it is acknowledged already or does not exist.
UPDATE workflow.alert SET acknowledged_at = imem_now(), acknowledged_by = %(actor)s,
    next_due_at = CASE WHEN announced_at IS NULL THEN next_due_at END,
    closed_at = coalesce(closed_at, CASE
        WHEN about IS NULL OR NOT requires_ack THEN imem_now()
        WHEN EXISTS (SELECT FROM workflow.alert_over AS o WHERE o.about = alert.about) THEN imem_now() END)
WHERE alert_id = %(alert_id)s AND acknowledged_at IS NULL
RETURNING alert_id

-- drop_resends --
-- Drops resends and escalations of an acknowledged alert that no sender has attempted yet.
UPDATE workflow.alert_send SET state = 'dropped', settled_at = imem_now()
WHERE state = 'due' AND attempts = 0 AND reason IN ('resent', 'escalated') AND alert_ids[1] = %(alert_id)s

-- plan_alerts --
-- Turns due alerts into messages to the channels; see workflow.plan_alerts_v1. Column: planned, how many alerts.
SELECT workflow.plan_alerts_v1(%(channels)s::text[]) AS planned

-- claim_sends --
-- Claims due messages for so many seconds, after which another sender may claim them. The attempt is counted before it is made.
-- Parameters: channels, seconds, limit.
UPDATE workflow.alert_send AS s
SET attempts = s.attempts + 1, next_attempt_at = imem_now() + make_interval(secs => %(seconds)s)
FROM (
    SELECT send_id FROM workflow.alert_send
    WHERE state = 'due' AND next_attempt_at <= imem_now() AND channel = ANY (%(channels)s::text[])
    ORDER BY next_attempt_at, send_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) AS due
WHERE s.send_id = due.send_id
RETURNING s.send_id, s.channel, s.reason, s.number, s.alert_ids, s.reasons, s.attempts, s.created_at

-- settle_sent --
-- Marks a message sent, even if another sender has claimed it meanwhile.
UPDATE workflow.alert_send SET state = 'sent', settled_at = imem_now(), error = NULL
WHERE send_id = %(send_id)s AND state = 'due'

-- settle_unsent --
-- Schedules the next attempt of a message that a channel did not take, or gives it up: at once where a retry is pointless
-- (never), else when it is a day old. Changes nothing if another sender has claimed it meanwhile. Column: state.
UPDATE workflow.alert_send SET error = %(error)s,
    state = CASE WHEN %(never)s OR created_at < imem_now() - interval '1 day' THEN 'failed' ELSE 'due' END,
    settled_at = CASE WHEN %(never)s OR created_at < imem_now() - interval '1 day' THEN imem_now() END,
    next_attempt_at = imem_now() + make_interval(secs => %(after_s)s)
WHERE send_id = %(send_id)s AND state = 'due' AND attempts = %(attempts)s
RETURNING state

-- retire_alerts --
-- Deletes alerts that were closed 90 days ago; the journal keeps their events.
DELETE FROM workflow.alert WHERE alert_id IN (
    SELECT alert_id FROM workflow.alert
    WHERE closed_at < (SELECT imem_now()) - interval '90 days' AND next_due_at IS NULL
    ORDER BY closed_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)

-- retire_messages --
-- Deletes messages that were sent, given up or dropped 90 days ago.
DELETE FROM workflow.alert_send WHERE send_id IN (
    SELECT send_id FROM workflow.alert_send WHERE settled_at < (SELECT imem_now()) - interval '90 days'
    ORDER BY settled_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)

-- retire_overs --
-- Deletes matters that ended 90 days ago, unless an alert about one is still open: acknowledging that closes it.
DELETE FROM workflow.alert_over WHERE about IN (
    SELECT o.about FROM workflow.alert_over AS o WHERE o.over_at < (SELECT imem_now()) - interval '90 days'
      AND NOT EXISTS (SELECT FROM workflow.alert AS a WHERE a.about = o.about AND a.closed_at IS NULL)
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED)

-- denials_of_hour --
-- How many calls were denied within the last hour, and to whom the most.
SELECT count(*)::integer AS denials, mode() WITHIN GROUP (ORDER BY actor_id) AS most FROM memory_access_audit
WHERE NOT authorized AND timestamp > (SELECT imem_now()) - interval '1 hour'

-- status_skips_of_day --
-- How many statuses were recorded of patterns within the last day that no step of their lifecycle leads to, and the last of them. The
-- first status of a pattern counts as none: patterns may be imported with any.
WITH lifecycle (before, after) AS (VALUES
    ('candidate', 'statistically_validated'), ('candidate', 'probationary'), ('candidate', 'rejected_holdout'),
    ('candidate', 'rejected_blind'), ('candidate', 'rejected_statistical'), ('candidate', 'rejected_insufficient'),
    ('statistically_validated', 'human_approved'), ('statistically_validated', 'rejected_gate6'),
    ('statistically_validated', 'probationary'), ('human_approved', 'active'), ('active', 'probationary'), ('active', 'deprecated'),
    ('probationary', 'statistically_validated'), ('probationary', 'human_approved'), ('probationary', 'active'),
    ('probationary', 'rejected_probation'), ('deprecated', 'active_from_archive'), ('active_from_archive', 'active'),
    ('active_from_archive', 'deprecated')),
recent AS (
    -- Of an import that records more, the newest.
    SELECT key, order_key, value, recorded_at FROM pattern_value
    WHERE grp = 'status' AND recorded_at > (SELECT imem_now()) - interval '1 day' ORDER BY recorded_at DESC LIMIT 10000),
steps AS (
    -- A status that belongs between two others makes two steps.
    SELECT r.key, r.order_key, p.value AS before, r.value AS after, r.recorded_at FROM recent AS r
    CROSS JOIN LATERAL (
        SELECT b.value FROM pattern_value AS b WHERE b.key = r.key AND b.grp = 'status' AND b.order_key < r.order_key
        ORDER BY b.order_key DESC LIMIT 1) AS p
    UNION
    SELECT r.key, n.order_key, r.value, n.value, r.recorded_at FROM recent AS r
    CROSS JOIN LATERAL (
        SELECT a.order_key, a.value FROM pattern_value AS a WHERE a.key = r.key AND a.grp = 'status' AND a.order_key > r.order_key
        ORDER BY a.order_key LIMIT 1) AS n),
skipped AS (
    SELECT key, order_key, before, after, max(recorded_at) AS recorded_at FROM steps AS s
    WHERE before <> after AND (after <> 'rejected_human_override' OR before LIKE 'rejected_%%')
      AND NOT EXISTS (SELECT FROM lifecycle AS l WHERE l.before = s.before AND l.after = s.after)
    GROUP BY key, order_key, before, after)
SELECT count(*) OVER ()::integer AS skips, key, order_key, before, after FROM skipped
ORDER BY recorded_at DESC, key DESC, order_key DESC LIMIT 1
