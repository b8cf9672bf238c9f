"""Gates: synchronised before they open and when they do, and what is behind is in the report."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from imem.journal.errors import BadInput
from imem.sync.gates import GateSync
from imem.sync.synchronizer import SyncState

from .conftest import SyncHarness, soon
from .parts import graph_that_follows, held, nowhere, synchronizer


def gates(harness: SyncHarness, **named: Any) -> GateSync:
    return GateSync(named.pop("database", harness.database), synchronizer(harness, **named))


def opens(harness: SyncHarness, within: timedelta, gate: int = 3) -> str:
    """Plan a gate, as whoever runs one does; return its name."""
    harness.owner(
        "INSERT INTO workflow.gate_opening (analysis_id, gate, opens_at) VALUES (%s, %s, imem_now() + %s) "
        "ON CONFLICT (analysis_id, gate) DO UPDATE SET opens_at = excluded.opens_at",
        harness.analysis, gate, within,
    )  # fmt: skip
    return f"{harness.analysis}/{gate}"


def waits(harness: SyncHarness, gate: int) -> None:
    """Open a gate, as whoever runs one does."""
    harness.owner(
        "INSERT INTO lifecycle (kind, key, about, state, due_at, data) SELECT 'gate', a.id || '/' || a.gate, a.id, "
        "'WAITING_FOR_HUMAN', a.due_at, jsonb_build_object('gate', a.gate, 'stock_id', 'company:MU', 'due_at', "
        "a.due_at) FROM (SELECT %s::text AS id, %s::int AS gate, imem_now() + interval '1 day' AS due_at) AS a",
        harness.analysis, gate,
    )  # fmt: skip


@pytest.mark.spec("SY-14")
async def test_a_gate_reports_the_lag_of_each_agent(harness: SyncHarness) -> None:
    """Nothing is behind where everything could be synchronised; the report is recorded."""
    ann = await held(harness, await harness.begin())
    await harness.begin("bob", "business")
    await ann.publish(harness.finding("ann", id="f-a"))
    gate = opens(harness, timedelta(minutes=20))

    async with graph_that_follows(harness):
        report = await gates(harness).sync_gate(gate)

    assert report.consistent
    assert [(lag.agent_id, lag.total, lag.pushed_seq, lag.applied_seq) for lag in report.lags] == [
        (harness.agent("ann"), 0, 1, 1),
        (harness.agent("bob"), 0, 0, 0),
    ]
    assert await gates(harness).report(gate, deadline=soon()) == report
    assert (report.delta["count"], report.delta["records"][0]["node"]) == (1, "Finding/f-a")


@pytest.mark.spec("SY-14")
async def test_a_lag_that_is_not_zero_is_said(harness: SyncHarness) -> None:
    """Events that the graph lacks, items that nobody could push, and an agent whose memory is away."""
    ann = await held(harness, await harness.begin())
    await harness.record("ann", id="f-0")
    await ann.publish(harness.finding("ann", id="f-a"))
    await ann.publish(harness.finding("somebody", id="f-b"))
    gate = opens(harness, timedelta(minutes=20))

    report = await gates(harness).sync_gate(gate, deadline_ms=1_500)

    [lag] = report.lags
    assert not report.consistent
    assert (lag.state, lag.unpushed, lag.waiting, lag.total) == (SyncState.FAILED, 1, 2, 3)
    assert (lag.pushed_seq, lag.applied_seq) == (2, 0)
    assert (lag.oldest_s or 0) > 0
    [away] = (await gates(harness, memories=nowhere()).sync_gate(gate, deadline_ms=1_500)).lags
    assert (away.total, away.behind, away.state) == (None, True, SyncState.FAILED)


@pytest.mark.spec("SY-14")
async def test_agents_are_synchronised_half_an_hour_before_and_when_it_opens(harness: SyncHarness) -> None:
    """Once each for one opening, again where that is put off; the second report says what came since the first."""
    ann = await held(harness, await harness.begin())
    gate = opens(harness, timedelta(minutes=45))
    async with graph_that_follows(harness):
        assert await gates(harness).run_due(deadline=soon()) == 0
        async with harness.later(timedelta(minutes=16)) as database:
            await ann.publish(harness.finding("ann", id="f-a"))
            assert await gates(harness, database=database).run_due(deadline=soon()) == 1
            assert await gates(harness, database=database).run_due(deadline=soon()) == 0
        async with harness.later(timedelta(minutes=46)) as database:
            await ann.publish(harness.finding("ann", id="f-b"))
            assert await gates(harness, database=database).run_due(deadline=soon()) == 1
            assert await gates(harness, database=database).run_due(deadline=soon()) == 0

    reports = await harness.rows("SELECT phase, body FROM workflow.gate_report ORDER BY made_at")
    assert [row["phase"] for row in reports] == ["before", "opening"]
    assert [[one["node"] for one in row["body"]["delta"]["records"]] for row in reports] == [
        ["Finding/f-a"],
        ["Finding/f-b"],
    ]
    assert (await gates(harness).report(gate, deadline=soon())).phase == "opening"  # type: ignore[union-attr]

    opens(harness, timedelta(minutes=10))
    assert await gates(harness).run_due(deadline=soon()) == 1


async def test_a_gate_that_nobody_planned_is_synchronised_when_it_opens(harness: SyncHarness) -> None:
    await harness.begin()
    waits(harness, 2)

    async with graph_that_follows(harness):
        assert await gates(harness).run_due(deadline=soon()) == 1
        assert await gates(harness).run_due(deadline=soon()) == 0


@pytest.mark.spec("SY-14")
async def test_a_gate_that_opens_otherwise_than_planned_is_synchronised_when_it_does(harness: SyncHarness) -> None:
    """Long after it was to, or before: once, and not again when the hour comes for which it was planned."""
    await harness.begin()
    opens(harness, timedelta(hours=-2), gate=3)
    opens(harness, timedelta(minutes=20), gate=2)
    async with graph_that_follows(harness):
        assert await gates(harness).run_due(deadline=soon()) == 1, "half an hour before the second"
        for gate in (2, 3):
            waits(harness, gate)
        assert await gates(harness).run_due(deadline=soon()) == 2
        assert await gates(harness).run_due(deadline=soon()) == 0
        async with harness.later(timedelta(minutes=21)) as database:
            assert await gates(harness, database=database).run_due(deadline=soon()) == 0

    reports = await harness.rows("SELECT gate, phase FROM workflow.gate_report ORDER BY made_at, gate")
    assert [(row["gate"], row["phase"]) for row in reports] == [(2, "before"), (2, "opening"), (3, "opening")]


async def test_what_is_no_gate_is_refused(harness: SyncHarness) -> None:
    for name in ("no-gate", f"{harness.analysis}/7", f"{harness.analysis}/3", "/3", 3):
        with pytest.raises(BadInput, match="gate"):
            await gates(harness).sync_gate(name)  # type: ignore[arg-type]
    gate = opens(harness, timedelta(minutes=20))
    assert (await gates(harness).sync_gate(gate)).lags == ()
