"""Raising alerts: with what they are about, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from imem.alerts.store import Severity, close_alerts, raise_alert
from imem.journal.errors import StatementRejected
from tests.killed_programs import printed

from .conftest import NEVER, AlertHarness, failure

REPLACED = "\N{REPLACEMENT CHARACTER}"


class _UndoneError(Exception):
    pass


@pytest.mark.spec("CK-41")
async def test_an_alert_is_a_row_an_event_and_an_audit_row(harness: AlertHarness) -> None:
    """All in the caller's transaction, under the actor of the workflows."""
    alert = failure()

    assert await harness.say(alert) == [True]

    (row,) = await harness.rows("SELECT * FROM workflow.alert")
    assert (row["alert_id"], row["kind"], row["severity"], row["about"]) == (
        alert.alert_id, "AGENT_FAILURE", "HIGH", alert.about,
    )  # fmt: skip
    assert row["payload"] == dict(alert.payload)
    assert row["requires_ack"]
    assert row["next_due_at"] == row["raised_at"]
    (event,) = await harness.rows("SELECT * FROM event")
    assert (event["kind"], event["record_key"], event["event_id"]) == (
        "notice.AGENT_FAILURE", str(alert.alert_id), alert.alert_id,
    )  # fmt: skip
    assert (event["actor"], event["analysis_id"], event["agent_seq"]) == ("service:workflow", alert.analysis_id, 1)
    assert event["payload"]["core"]["payload"] == dict(alert.payload)
    assert event["payload"]["core"]["subject"] == alert.subject
    (audit,) = await harness.rows("SELECT * FROM memory_access_audit")
    assert (audit["actor_id"], audit["action"], audit["request_context"]["event_id"]) == (
        "service:workflow", "append", str(alert.alert_id),
    )  # fmt: skip


@pytest.mark.spec("CK-41")
async def test_what_is_rolled_back_has_no_alert(harness: AlertHarness) -> None:
    """Neither row nor event nor audit row is left, and no number is used up."""

    async def undone() -> None:
        async with harness.database.transaction(NEVER) as conn:
            assert await raise_alert(conn, failure())
            raise _UndoneError

    async def failing() -> None:
        async with harness.database.transaction(NEVER) as conn:
            await raise_alert(conn, failure())
            await conn.execute("SELECT 1 / 0")

    with pytest.raises(_UndoneError):
        await undone()
    with pytest.raises(StatementRejected):
        await failing()

    for query in (
        "SELECT count(*) FROM workflow.alert", "SELECT count(*) FROM event", "SELECT count(*) FROM memory_access_audit",
    ):  # fmt: skip
        assert await harness.one(query) == 0
    await harness.say(failure())
    assert await harness.one("SELECT agent_seq FROM event") == 1


async def test_raised_again_it_is_the_same(harness: AlertHarness) -> None:
    """By its id, whatever else is said, and by many at once."""
    alert_id = uuid4()
    ended = await asyncio.gather(*(harness.say(failure(alert_id=alert_id)) for _ in range(8)))
    assert sorted(new for said in ended for new in said) == [False] * 7 + [True]
    assert await harness.say(failure("company:OTHER", alert_id=alert_id)) == [False]
    assert await harness.one("SELECT count(*) FROM event") == 1
    assert await harness.one("SELECT subject FROM workflow.alert") == "company:NW"


async def test_many_at_once_keep_one_order(harness: AlertHarness) -> None:
    """Forty alerts from forty transactions: one number each, without a gap."""
    await asyncio.gather(*(harness.say(failure(f"company:{number}")) for number in range(40)))
    rows = await harness.rows("SELECT agent_seq FROM event ORDER BY position")
    assert [row["agent_seq"] for row in rows] == list(range(1, 41))


async def test_the_graph_hears_nothing_of_it(harness: AlertHarness) -> None:
    """No delivery: what applies, replays, counts, derives and waits finds no work, and the horizon passes."""
    await harness.say(failure(), failure("company:B"))
    named = harness.database.named

    assert await harness.one("SELECT count(*) FROM delivery") == 0
    held = {"held": [], "upto": 0, "limit": 10, "share": 10, "lanes": True}
    assert await named("claim_due", held, deadline=NEVER) == []
    assert await named("claim_high", held, deadline=NEVER) == []
    assert await named("claim_urgent", held, deadline=NEVER) == []
    (counts,) = await named("delivery_counts", deadline=NEVER)
    assert (counts["pending"], counts["dead"]) == (0, 0)
    (mark,) = await named("journal_end", deadline=NEVER)
    span = {"after": 0, "upto": mark["position"]}
    assert mark["position"] == 2
    assert await named("journal_count", span, deadline=NEVER) == [{"events": 0, "dead": 0}]
    assert await named("events_after", {**span, "limit": 10}, deadline=NEVER) == []
    assert await named("count_undelivered", {"positions": [1, 2]}, deadline=NEVER) == [{"waiting": 0, "dead": 0}]
    harness.owner("INSERT INTO due_row (queue, kind, key) VALUES ('graph', 'subject_counters', 'x')")
    (derivable,) = await named("claim_derive", {"queue": "graph", "limit": 10}, deadline=NEVER)
    assert derivable["upto"] is None
    (horizon,) = await named("safe_horizon", deadline=NEVER)
    assert horizon["horizon"] > await harness.one("SELECT max(recorded_at) FROM event")


async def test_a_record_beside_it_is_delivered_as_ever(harness: AlertHarness) -> None:
    """The same way in still hands everything else to the graph."""
    with psycopg.connect(harness.url, autocommit=True) as conn:
        conn.execute(
            "SELECT imem_append_v1('me', 'agent', false, '{}', ARRAY[%s::uuid], ARRAY['record.Agent'], "
            "ARRAY['Agent'], ARRAY['a'], ARRAY['{\"core\": {}}'], ARRAY[NULL]::text[], ARRAY[sha256('')], "
            "ARRAY[NULL]::timestamptz[], ARRAY[NULL]::timestamptz[], ARRAY[NULL]::text[], ARRAY[NULL]::text[], "
            "ARRAY[NULL]::text[], ARRAY[NULL]::timestamptz[], ARRAY[NULL]::bytea[], ARRAY[NULL]::real[], "
            "ARRAY[3]::smallint[], ARRAY[NULL]::text[], ARRAY[1], ARRAY['core'], ARRAY[sha256('')])",
            (uuid4(),),
        )
    assert await harness.one("SELECT count(*) FROM delivery") == 1


async def test_a_long_story_is_cut_and_the_alert_stands(harness: AlertHarness) -> None:
    """More than 32 kB are not kept; what says where to go on is."""
    alert = failure(payload={**failure().payload, "reason": "x" * 40_000})
    await harness.say(alert)
    payload = await harness.one("SELECT payload FROM workflow.alert")
    assert payload == {
        "truncated": True, "checkpoint_id": str(UUID(int=7)), "progress_pct": 40.0, "phase": "valuation", "day": 0,
    }  # fmt: skip


async def test_what_json_cannot_hold_is_replaced(harness: AlertHarness) -> None:
    """A pause must not fail because an error message holds a NUL."""
    await harness.say(failure(payload={"reason": "a\0b\ud800", "nested": [{"\0": "\0"}]}))
    assert await harness.one("SELECT payload FROM workflow.alert") == {
        "reason": f"a{REPLACED}b?", "nested": [{REPLACED: REPLACED}],
    }  # fmt: skip


@pytest.mark.parametrize("values", [{"kind": "agent failure"}, {"kind": ""}, {"subject": "x" * 201}])
async def test_an_alert_without_a_proper_kind_or_subject_is_refused(
    harness: AlertHarness, values: dict[str, Any]
) -> None:
    with pytest.raises(StatementRejected):
        await harness.say(failure(**values))
    assert await harness.one("SELECT count(*) FROM event") == 0


async def test_what_demands_an_answer(harness: AlertHarness) -> None:
    """Agent failures do whatever their severity, and whatever is critical; a reminder does not."""
    await harness.say(
        failure("a", severity=Severity.NORMAL),
        failure("b", kind="AUTO_RESUME", severity=Severity.CRITICAL),
        failure("c", kind="DAY_7", severity=Severity.HIGH),
    )
    rows = await harness.rows("SELECT subject, requires_ack FROM workflow.alert ORDER BY subject")
    assert [(row["subject"], row["requires_ack"]) for row in rows] == [("a", True), ("b", True), ("c", False)]


async def test_closing_says_how_many(harness: AlertHarness) -> None:
    about = uuid4()
    await harness.say(failure(about=about), failure("company:B", about=about), failure("company:C"))
    async with harness.database.transaction(NEVER) as conn:
        assert await close_alerts(conn, about) == 2
        assert await close_alerts(conn, about) == 0


@pytest.mark.spec("CK-41")
@pytest.mark.parametrize("kills", [25, pytest.param(1000, marks=pytest.mark.chaos)])
async def test_killed_at_every_point_of_a_pause(harness: AlertHarness, kills: int) -> None:
    """Programs die before, between and after their statements, some roll back: pauses and alerts stay one to one."""
    harness.owner("CREATE TABLE workflow.told_pause (id uuid PRIMARY KEY)")
    harness.owner("GRANT ALL ON workflow.told_pause TO PUBLIC")
    out = await printed("tests.alerts.killed", "raise", given=f"{harness.url}\n", ALERT_KILLS=str(kills))
    assert int(out) == kills
    (row,) = await harness.rows(
        "SELECT count(*) FILTER (WHERE a.alert_id IS NULL) AS silent, "
        "count(*) FILTER (WHERE p.id IS NULL) AS false_alarms, count(*) AS found "
        "FROM workflow.told_pause AS p FULL JOIN workflow.alert AS a ON a.about = p.id"
    )
    assert (row["silent"], row["false_alarms"]) == (0, 0)
    assert row["found"] > kills / 4
    assert await harness.one("SELECT count(*) FROM event") == row["found"]
    assert await harness.one("SELECT count(*) FROM memory_access_audit") == row["found"]
    rows = await harness.rows("SELECT agent_seq FROM event ORDER BY agent_seq")
    assert [one["agent_seq"] for one in rows] == list(range(1, row["found"] + 1))
