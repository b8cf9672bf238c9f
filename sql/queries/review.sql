-- review_lock --
-- Serialises admissions until the end of the transaction: each must see the tasks that the one before it admitted.
SELECT pg_advisory_xact_lock(hashtext('imem.review.admission')) IS NULL AS locked, imem_now() AS now

-- roster --
-- The reviewers, by name.
SELECT person, kinds, capacity, away_until, deputy FROM reviewer WHERE removed_at IS NULL ORDER BY person

-- set_reviewer --
-- Puts a person on the roster, changes or removes the entry; see set_reviewer_v1.
SELECT person, kinds, capacity, away_until, deputy FROM set_reviewer_v1(
    %(person)s, %(kinds)s::text[], %(capacity)s, %(away_until)s::timestamptz, %(deputy)s, %(removed)s, %(actor)s, %(role)s,
    %(context)s::jsonb)

-- tasks_held --
-- Open tasks that a reviewer has and nobody has answered. Columns: key, kind, reviewer, rank, opened_at.
SELECT l.key, l.data ->> 'kind' AS kind, l.data ->> 'reviewer' AS reviewer, (l.data ->> 'rank')::integer AS rank, l.opened_at
FROM lifecycle AS l
WHERE l.kind = 'task' AND l.state = 'open' AND coalesce(l.request ->> 'state', 'open') = 'open' AND l.data ->> 'reviewer' IS NOT NULL
ORDER BY l.key

-- task_insert --
-- Stores what a reviewer sees; no row where the task is there.
INSERT INTO review_task (task_id, kind, rank, analysis_id, subject_ids, likeness, package)
VALUES (%(task_id)s, %(kind)s, %(rank)s, %(analysis_id)s, %(subject_ids)s::text[], %(likeness)s, %(package)s::jsonb)
ON CONFLICT (task_id) DO NOTHING RETURNING *

-- task_amend --
-- Replaces what a reviewer sees of a task that is open and that nobody has looked at; no row where it is not.
UPDATE review_task AS t SET package = %(package)s::jsonb, likeness = %(likeness)s
FROM lifecycle AS l
WHERE t.task_id = %(task_id)s AND l.kind = 'task' AND l.key = t.task_id AND l.state = 'open' AND l.request IS NULL AND t.shown_at IS NULL
RETURNING t.task_id

-- task_said --
-- Replaces what a reviewer sees of an open task by what was said meanwhile, also where somebody has looked at it.
UPDATE review_task AS t SET package = %(package)s::jsonb FROM lifecycle AS l
WHERE t.task_id = %(task_id)s AND l.kind = 'task' AND l.key = t.task_id AND l.state = 'open' AND t.package <> %(package)s::jsonb
RETURNING t.task_id

-- task_try_lock --
-- A task's row, locked unless another process has it: steps of tasks lock what the task is about as well, in the other order.
SELECT * FROM lifecycle WHERE kind = 'task' AND key = %(task_id)s FOR UPDATE SKIP LOCKED

-- task_open --
-- Opens the row of a task, in its first state.
INSERT INTO lifecycle (kind, key, about, state, opened_at, due_at, data)
VALUES ('task', %(task_id)s, %(analysis_id)s, %(state)s, %(now)s::timestamptz, %(due_at)s::timestamptz, %(data)s::jsonb)
RETURNING *

-- task_displace --
-- An open task that is to be displaced, its row locked; no row where it was answered or moved meanwhile.
SELECT * FROM lifecycle
WHERE kind = 'task' AND key = %(task_id)s AND state = 'open' AND request IS NULL FOR UPDATE SKIP LOCKED

-- task_lock --
-- A task's row, locked.
SELECT * FROM lifecycle WHERE kind = 'task' AND key = %(task_id)s FOR UPDATE

-- tasks_still_open --
-- Those of the given tasks that are open, and until when; NULL: without a limit. Columns: key, due_at.
SELECT key, due_at FROM lifecycle WHERE kind = 'task' AND state = 'open' AND key = ANY (%(task_ids)s::text[])

-- task_package --
-- What the reviewer of a task sees.
SELECT * FROM review_task WHERE task_id = %(task_id)s

-- tasks_with_open_window --
-- Tasks of an analysis whose default nobody has reviewed, their rows locked.
SELECT * FROM lifecycle
WHERE kind = 'task' AND state = ANY (%(states)s::text[]) AND about = %(analysis_id)s AND request IS NULL ORDER BY key FOR UPDATE

-- tasks_listed --
-- Tasks in some states, of one kind, reviewer or analysis where given: open ones first, the most urgent of each first, then those due first.
SELECT l.*, t.kind AS task_kind, t.rank, t.analysis_id, t.subject_ids, t.likeness, t.package, t.shown_at, imem_now() AS now
FROM lifecycle AS l JOIN review_task AS t ON t.task_id = l.key
WHERE l.kind = 'task' AND l.state = ANY (%(states)s::text[])
  AND (%(of_kind)s::text IS NULL OR t.kind = %(of_kind)s)
  AND (%(reviewer)s::text IS NULL OR l.data ->> 'reviewer' = %(reviewer)s)
  AND (%(analysis_id)s::text IS NULL OR l.about = %(analysis_id)s)
ORDER BY l.state <> 'open', t.rank, l.due_at NULLS LAST, l.opened_at, l.key LIMIT %(limit)s

-- task_shown --
-- One task whole.
SELECT l.*, t.kind AS task_kind, t.rank, t.analysis_id, t.subject_ids, t.likeness, t.package, t.shown_at, imem_now() AS now
FROM lifecycle AS l JOIN review_task AS t ON t.task_id = l.key
WHERE l.kind = 'task' AND l.key = %(task_id)s

-- note_task_shown --
-- Notes when a person first saw a task.
SELECT show_task_v1(%(task_id)s)

-- tasks_alike --
-- Other tasks of a kind with the same likeness that can be answered.
SELECT t.task_id FROM review_task AS t JOIN lifecycle AS l ON l.kind = 'task' AND l.key = t.task_id
WHERE t.kind = %(kind)s AND t.likeness = %(likeness)s AND t.task_id <> %(task_id)s AND l.state = ANY (%(states)s::text[])
  AND l.request IS NULL
ORDER BY t.task_id

-- tasks_of_gate --
-- Tasks that keep a gate of an analysis from being passed: in some states, and at least as urgent as a rank. They are its own, and those
-- about contradictions of data points that it rests on, or that state the same in another document of the source. Parameters: analysis_id,
-- states, most_rank.
WITH used AS MATERIALIZED (
    SELECT DISTINCT s.key, h.subject_id FROM event AS e
    JOIN record_head AS h ON h.kind = 'DataPoint' AND h.key = e.payload ->> 'to_key' AND h.grp = 'core'
    JOIN event AS p ON p.position = h.position
    JOIN record_head AS s ON s.subject_id = h.subject_id AND s.metric = h.metric AND s.kind = h.kind AND s.grp = 'core'
    JOIN event AS q ON q.position = s.position
    WHERE e.kind = 'link.USES_VALUE' AND e.payload ->> 'from_key' = %(analysis_id)s
      AND (q.payload -> 'core') - '{id,document,filed_at,decimals}'::text[] = (p.payload -> 'core') - '{id,document,filed_at,decimals}'::text[]
)
SELECT l.key FROM lifecycle AS l
WHERE l.kind = 'task' AND l.state = ANY (%(states)s::text[]) AND (l.data ->> 'rank')::integer <= %(most_rank)s
  AND (l.about = %(analysis_id)s OR EXISTS (
    SELECT FROM review_task AS t, jsonb_array_elements(t.package -> 'items') AS i (item)
    WHERE t.task_id = l.key AND t.kind = 'contradiction' AND t.subject_ids && (SELECT array_agg(u.subject_id) FROM used AS u)
      AND (i.item ->> 'point_a' IN (SELECT u.key FROM used AS u) OR i.item ->> 'point_b' IN (SELECT u.key FROM used AS u))))
ORDER BY l.key
