-- seeded_points --
-- Holds what is to be copied into the journal.
CREATE TEMPORARY TABLE seeded_point (
    number bigint, key text, subject_id text, metric text, period_end timestamptz, value double precision, known_at timestamptz, core jsonb)

-- seeded_events --
-- The events of the points.
INSERT INTO event (
    event_id, actor, actor_role, imported, agent_seq, kind, record_key, payload, payload_hash, occurred_at, known_at, recorded_at, order_key)
SELECT gen_random_uuid(), 'import:seed', 'human_admin', true, number, 'record.DataPoint', key, jsonb_build_object('core', core),
    decode(md5(key), 'hex'), known_at, known_at, imem_now(), imem_order_key(known_at, 'import:seed', number)
FROM seeded_point ORDER BY number

-- seeded_heads --
-- What stands of them.
INSERT INTO record_head (kind, key, grp, hash, position, order_key, known_at, occurred_at, subject_id, metric)
SELECT 'DataPoint', e.record_key, 'core', e.payload_hash, e.position, e.order_key, e.known_at, e.occurred_at,
    e.payload -> 'core' ->> 'subject_id', e.payload -> 'core' ->> 'metric'
FROM event AS e WHERE e.actor = 'import:seed'

-- seeded_histories --
-- What they said.
INSERT INTO record_history (kind, key, grp, order_key, hash, position, known_at, recorded_at, actor, imported)
SELECT 'DataPoint', e.record_key, 'core', e.order_key, e.payload_hash, e.position, e.known_at, e.recorded_at, e.actor, true
FROM event AS e WHERE e.actor = 'import:seed'

-- bare_points --
-- The same in a table with one index: the floor.
CREATE TABLE bare_point AS SELECT key, subject_id, metric, period_end, value, known_at FROM seeded_point

-- bare_points_end --
-- Its index, and who may read it.
CREATE INDEX ON bare_point (subject_id, metric, period_end);
GRANT SELECT ON bare_point TO PUBLIC

-- seeded_due --
-- Has the cells of the given points compared. Parameters: keys.
INSERT INTO due_row (queue, kind, key) SELECT 'disputes', 'DataPoint', key FROM unnest(%(keys)s::text[]) AS key

-- bare_value --
-- What the points of a cell state that were known by a moment. Parameters: subject_id, metric, period_end, known_until.
SELECT key, value, known_at FROM bare_point
WHERE subject_id = %(subject_id)s AND metric = %(metric)s AND period_end = %(period_end)s AND known_at <= %(known_until)s
ORDER BY known_at

-- copied_tasks --
-- Copies of the one task that is there. Parameters: tasks.
INSERT INTO review_task (task_id, kind, rank, analysis_id, subject_ids, likeness, package)
SELECT 'copy-' || n, t.kind, n %% 4, t.analysis_id, t.subject_ids, t.likeness, t.package
FROM review_task AS t, generate_series(1, %(tasks)s) AS n

-- copied_rows --
-- Their rows, due at different times.
INSERT INTO lifecycle (kind, key, about, state, due_at, data)
SELECT l.kind, t.task_id, l.about, l.state, l.due_at + make_interval(secs => hashtext(t.task_id) %% 3600), l.data || jsonb_build_object('rank', t.rank)
FROM lifecycle AS l, review_task AS t WHERE l.kind = 'task' AND t.task_id LIKE 'copy-%%'

-- timed_tasks --
-- What the reviewers of tasks would see whose time is over one after the other. Parameters: tasks, package.
INSERT INTO review_task (task_id, kind, rank, subject_ids, package)
SELECT 'timer-' || n, 'contradiction', 1, '{company:MU}', %(package)s::jsonb FROM generate_series(1, %(tasks)s) AS n

-- timed_rows --
-- Their rows. Parameters: tasks, begun (a time), over_s (seconds from it until the last is due).
INSERT INTO lifecycle (kind, key, state, due_at, data)
SELECT 'task', 'timer-' || n, 'open', %(begun)s::timestamptz + make_interval(secs => %(over_s)s::float8 * n / %(tasks)s),
    '{"kind": "contradiction", "rank": 1}'
FROM generate_series(1, %(tasks)s) AS n

-- timers_moved --
-- How long after its time each was moved, in seconds. Parameters: as of timed_rows.
SELECT extract(epoch FROM l.entered_at - %(begun)s::timestamptz)::float8
    - %(over_s)s::float8 * substr(l.key, 7)::bigint / %(tasks)s AS late_s
FROM lifecycle AS l WHERE l.kind = 'task' AND l.key LIKE 'timer-%%' AND l.state <> 'open'
