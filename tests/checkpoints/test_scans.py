"""
What rounds ask every few seconds does not grow with what is over.

A database holds fifty thousand analyses, with all that hung on them, and a handful under way. Each statement is run
and its plan read: how many pages it touched, and whether it went through a whole table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import psycopg
import pytest
from psycopg.rows import dict_row

from imem.checkpoints.incidents.correlation import LEAST, WINDOW
from imem.checkpoints.orchestration.orchestrator import LOST_AFTER
from imem.checkpoints.pauses.manager import GRACE, ROWS
from imem.journal.statements import sql
from tests.servers import cloned

HISTORY: Final = 50_000
"""Analyses that are over."""

MOST_PAGES: Final = 200
"""Pages of 8 kB that a statement may touch: a third of the smallest of these tables."""

MORE: Final = {"plan_alerts": 1_000, "tasks_all_completed": 400}
"""
Those that touch more: the first writes a dozen rows here, a sixth of what it were if each looked at the whole history;
the second asks of each analysis under way about its agents, results and pauses, a dozen pages for each of twenty.
"""

FILLED: Final = """
INSERT INTO workflow.analysis (analysis_id, subject_id, began_at, outcome, ended_at, purged_at, cleared_at)
SELECT 'old-' || n, 'company:' || n, at, 'succeeded', at, at, at FROM past;
INSERT INTO workflow.analysis (analysis_id, subject_id, began_at) SELECT 'new-' || n, 'company:' || n, now()
FROM generate_series(1, 20) AS n;
INSERT INTO workflow.agent_task (analysis_id, agent_type, agent_id, state, dispatch, started_at, ended_at)
SELECT 'old-' || n, 'screening', 'old-' || n, 'COMPLETED', 1, at, at FROM past;
INSERT INTO workflow.agent_task (analysis_id, agent_type, agent_id, state, sent_at, started_at)
SELECT 'new-' || n, 'screening', 'new-' || n, (ARRAY['WAITING', 'SENT', 'RUNNING', 'COMPLETED'])[1 + n % 4],
now() - interval '1 hour', now() - interval '1 hour' FROM generate_series(1, 20) AS n;
INSERT INTO workflow.paused_analyses (id, stock_id, analysis_id, pause_reason, pause_trigger, pause_timestamp,
resume_timestamp, status, created_by, drain_until) SELECT gen_random_uuid(), 'company:' || n, 'old-' || n, 'A look.',
'AUTO_TIER2', at, at, 'RESUMED', 'ann', at FROM past;
INSERT INTO workflow.paused_analyses (id, stock_id, analysis_id, pause_reason, pause_trigger, pause_timestamp,
status, created_by, drain_until) SELECT gen_random_uuid(), 'company:' || n, 'new-' || n, 'A look.', 'AUTO_TIER2',
now(), (ARRAY['PAUSING', 'PAUSED', 'STALE'])[1 + n % 3], 'ann', now() FROM generate_series(1, 9) AS n;
INSERT INTO workflow.pause_agent_checkpoints (pause_id, agent_type, agent_id, epoch)
SELECT id, 'screening', analysis_id, 1 FROM workflow.paused_analyses;
INSERT INTO workflow.pause_timer (pause_id, kind, due_at, fired_at) SELECT id, kind, pause_timestamp,
CASE WHEN status = 'RESUMED' THEN now() END FROM workflow.paused_analyses, unnest(ARRAY['reminder', 'stale']) AS kind;
INSERT INTO workflow.batch_pause_operations (id, batch_name, operation, pause_reason, stock_ids, total_count, status,
created_by, completed_at) SELECT gen_random_uuid(), 'b', 'pause', 'r', ARRAY['company:1'], 1, 'COMPLETED', 'ann', at
FROM past;
INSERT INTO workflow.batch_member (batch_id, analysis_id, stock_id, pause_id, position, state)
SELECT id, 'old-' || row_number() OVER (), 'company:1', NULL, 1, 'DONE' FROM workflow.batch_pause_operations;
INSERT INTO workflow.agent_failures (id, analysis_id, stock_id, agent_type, kind, class, message, signature, pattern,
external, failed_at, settled_at, pause_id) SELECT gen_random_uuid(), p.analysis_id, p.stock_id, 'screening', 'crash',
'pause', 'm', md5(p.analysis_id), 'p', false, p.pause_timestamp, p.pause_timestamp, p.id
FROM workflow.paused_analyses AS p;
INSERT INTO workflow.resolved_cause SELECT md5('old-' || n), at, 'ann' FROM past;
INSERT INTO lifecycle (kind, key, about, state, opened_at, entered_at, data)
SELECT 'gate', 'old-' || n || '/1', 'old-' || n, 'VALIDATED', at, at, '{"gate": 1}' FROM past;
INSERT INTO workflow.alert (alert_id, kind, severity, subject, analysis_id, payload, requires_ack, raised_at,
counts_from, announced_at, closed_at, acknowledged_at, acknowledged_by)
SELECT gen_random_uuid(), 'AGENT_FAILURE', 'HIGH', 'company:' || n, 'old-' || n, '{}', true,
at, at, at, at, at, 'ann' FROM past;
INSERT INTO workflow.alert (alert_id, kind, severity, payload, requires_ack, raised_at, counts_from, next_due_at)
SELECT gen_random_uuid(), 'AGENT_FAILURE', 'HIGH', '{}', true, now(), now(), now() FROM generate_series(1, 12);
INSERT INTO workflow.alert_send (channel, reason, alert_ids, reasons, state, attempts, next_attempt_at, created_at,
settled_at, error) SELECT 'log', 'raised', ARRAY[gen_random_uuid()], ARRAY['raised'],
CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'sent' END, 1, at, at, at, CASE WHEN n % 10 = 0 THEN 'silent' END FROM past;
INSERT INTO langgraph.checkpoint (thread_id, checkpoint_ns, checkpoint_id, stamp, nth, kind, body, channels, versions,
metadata_kind, metadata, filter) SELECT 't-' || n % 100, '', 's-' || lpad(n::text, 9, '0'),
's-' || lpad(n::text, 9, '0'), 0, 'k', '', '{}', '{}', 'k', '', '{}' FROM past
"""

SINCE: Final = timedelta(minutes=5)

ASKED: Final[Mapping[str, Mapping[str, Any]]] = {
    # A manager's round, every three seconds.
    "tasks_dead": {"grace": GRACE, "limit": ROWS},
    "failures_open": {"limit": ROWS},
    "signatures_to_compare": {"since": 2 * WINDOW, "least": LEAST, "limit": ROWS},
    "lifecycle_due": {"kinds": ["gate"], "limit": ROWS},
    "gates_to_look_at": {"again": SINCE, "limit": ROWS},
    "timers_due": {"limit": ROWS},
    "pauses_resolved": {"limit": ROWS},
    "batches_under_way": {"limit": ROWS},
    "sagas_due": {"limit": ROWS},
    "dispatch_analyses": {"lost_after": LOST_AFTER},
    "dispatch_tasks": {"lost_after": LOST_AFTER, "analyses": [f"new-{n}" for n in range(1, 21)]},
    "dispatch_running": {},
    "pauses_not_kept": {"limit": ROWS},
    "tasks_all_completed": {"after": None, "limit": ROWS, "again_after": timedelta(minutes=5)},
    # A pass over the alerts, every ten seconds.
    "plan_alerts": {"channels": ["log"]},
    "claim_sends": {"channels": ["log"], "seconds": 60.0, "limit": 20},
    # What people and programs ask at any moment.
    "open_alerts": {"limit": 100},
    "undelivered_alerts": {},
    "analyses_matching": {"name": "company:7"},
    "pauses_matching": {"name": "company:7"},
    "failures_of_signature": {"signature": "0" * 32, "since": SINCE},
    "langgraph_keys": {
        "filter": None,
        "before": None,
        "after_stamp": f"s-{HISTORY // 2:09}",
        "after_nth": 0,
        "after_id": f"s-{HISTORY // 2:09}",
        "after_thread": "t",
        "after_ns": "",
        "limit": 50,
    },
}


@pytest.fixture(scope="module")
def conn(light_stack: Any, light_template: str) -> Iterator[psycopg.Connection[Any]]:
    """Lend a connection, as the owner, to a database with a long history."""
    past = (
        "WITH past AS (SELECT n, now() - interval '100 days' + n * interval '40 seconds' AS at "
        f"FROM generate_series(1, {HISTORY}) AS n) "
    )
    with (
        cloned(light_stack.settings, light_template) as (_, admin_url),
        psycopg.connect(admin_url, autocommit=True, row_factory=dict_row) as opened,
    ):
        for statement in FILLED.split(";\n"):
            opened.execute((past if "past" in statement.split() else "") + statement)
        opened.execute("VACUUM ANALYZE")
        yield opened


@pytest.mark.parametrize("name", ASKED)
def test_what_rounds_ask_does_not_grow_with_history(conn: psycopg.Connection[Any], name: str) -> None:
    with conn.transaction(force_rollback=True):
        [row] = conn.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql(name), ASKED[name]).fetchall()
    plan = row["QUERY PLAN"][0]["Plan"]

    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < MORE.get(name, MOST_PAGES), plan
    large = {
        "analysis",
        "agent_task",
        "paused_analyses",
        "alert",
        "alert_send",
        "agent_failures",
        "lifecycle",
        "checkpoint",
    }
    assert not {one.get("Relation Name") for one in _nodes(plan) if one["Node Type"] == "Seq Scan"} & large


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for one in plan.get("Plans", ()):
        yield from _nodes(one)
