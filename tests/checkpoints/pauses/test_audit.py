"""Orders and their audit rows: neither is there without the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from imem.alerts.store import Alerts, NewAlert, Severity, raise_alert
from imem.checkpoints.incidents.failures import AgentFailure, FailureKind
from imem.checkpoints.pauses.batch_runs import _written
from imem.checkpoints.pauses.human_gates import answer_gate, open_gate
from imem.journal.errors import StatementRejected
from tests.contents import contents, no_audit

from .world import PERSON, World, soon

Order = Callable[[], Awaitable[Any]]
Prepare = Callable[[World], Awaitable[Order]]

ORDERS: dict[str, tuple[str, Prepare]] = {}
"""By what is ordered: the audit's name of it, and what prepares it."""


def ordering(name: str, action: str) -> Callable[[Prepare], None]:
    def add(prepare: Prepare) -> None:
        ORDERS[name] = (action, prepare)

    return add


@ordering("a pause", "pause")
async def _pause(world: World) -> Order:
    await world.release(await world.begin("a-1"))
    return lambda: world.pauses.pause_analysis("a-1", "A look.", by=PERSON, deadline=soon())


@ordering("an extension", "extend")
async def _extend(world: World) -> Order:
    await world.paused("a-1")
    pause = (await world.pauses.get_pause_state("a-1", deadline=soon())).pause
    assert pause is not None
    until = pause.paused_at + timedelta(days=21)
    return lambda: world.pauses.extend("a-1", until, "Leave.", by=PERSON, deadline=soon())


@ordering("a resume", "resume")
async def _resume(world: World) -> Order:
    await world.paused("a-1")
    return lambda: world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())


@ordering("what is given up", "cancel")
async def _cancel(world: World) -> Order:
    await world.paused("a-1")
    return lambda: world.pauses.cancel("a-1", "Enough.", by=PERSON, deadline=soon())


@ordering("an analysis", "start")
async def _start(world: World) -> Order:
    agents = {"screening": "scr-1"}
    return lambda: world.orchestrator.start_analysis("a-1", "company:MU", agents, by=PERSON, deadline=soon())


@ordering("a gate", "open_gate")
async def _open(world: World) -> Order:
    await world.begin("a-1")
    return lambda: open_gate(world.database, "a-1", 3, due_at=None, by=PERSON, deadline=soon())


async def _answered(world: World, answer: str) -> Order:
    await world.begin("a-1")
    world.gate("a-1", 3)
    return lambda: answer_gate(world.database, "a-1", 3, answer, reason="So it is.", by=PERSON, deadline=soon())


@ordering("a gate that is passed", "answer_gate")
async def _validate(world: World) -> Order:
    return await _answered(world, "validate")


@ordering("a gate that is not passed", "answer_gate")
async def _reject(world: World) -> Order:
    return await _answered(world, "reject")


@ordering("a batch of pauses", "pause_batch")
async def _pause_batch(world: World) -> Order:
    await world.release(await world.begin("a-1"))
    return lambda: world.batches.pause_batch(["a-1"], "All.", by=PERSON, deadline=soon())


@ordering("a batch of resumes", "resume_batch")
async def _resume_batch(world: World) -> Order:
    await world.paused("a-1")
    return lambda: world.batches.resume_batch(["a-1"], by=PERSON, deadline=soon())


@ordering("a batch that another process goes on with", "pause")
async def _carry_out(world: World) -> Order:
    await world.release(await world.begin("a-1"))
    members = [("a-1", "company:MU", None)]
    async with world.database.transaction(soon()) as conn:
        batch_id = await _written(conn, "pause", name=None, reason="All.", limit=1, members=members, by=PERSON)
    return lambda: world.batches.carry_out(batch_id, soon())


@ordering("a cause that is over", "resolve")
async def _resolve(world: World) -> Order:
    lease = await world.begin("a-1")
    quota = AgentFailure(kind=FailureKind.QUOTA, message="429", endpoint="api.example", attempt=3)
    await world.incidents.report("a-1", lease.agent_type, quota, deadline=soon())
    signature = (await world.failure())["signature"]
    await world.release(lease)
    return lambda: world.incidents.cause_resolved(signature, by=PERSON, deadline=soon())


@ordering("an alert that was seen", "acknowledge")
async def _acknowledge(world: World) -> Order:
    new = NewAlert(
        alert_id=uuid4(), kind="AGENT_FAILURE", severity=Severity.HIGH, subject="company:MU", analysis_id="a-1",
        about=uuid4(), payload={},
    )  # fmt: skip
    async with world.database.transaction(soon()) as conn:
        await raise_alert(conn, new)
    return lambda: Alerts(world.database).acknowledge(new.alert_id, PERSON, deadline=soon())


@pytest.mark.spec("AC-5")
@pytest.mark.parametrize("name", ORDERS)
async def test_without_its_audit_row_an_order_changes_nothing(world: World, name: str) -> None:
    """It is refused, no table has anything of it; once the row can be written, it says whose order was carried out."""
    action, prepare = ORDERS[name]
    order = await prepare(world)
    before = contents(world.admin_url)

    with no_audit(world.admin_url):
        with pytest.raises(StatementRejected):
            await order()
        after = contents(world.admin_url)

    assert {table for table in after if after[table] != before[table]} == set()
    audited = (
        "SELECT actor_id, actor_role, authorized FROM memory_access_audit WHERE action = %s AND actor_id <> 'SYSTEM'"
    )
    assert await world.rows(audited, action) == []
    await order()
    assert await world.rows(audited, action) == [
        {"actor_id": PERSON.id, "actor_role": "human_admin", "authorized": True}
    ]


async def test_the_audit_says_who_answered_a_gate_and_why(world: World) -> None:
    """Of which analysis, which gate, how, and until when it was open; what changes nothing leaves no row."""
    due_at = datetime(2100, 1, 1, tzinfo=UTC)
    for _ in range(2):
        await world.orchestrator.start_analysis("a-1", "company:MU", {"screening": "scr-1"}, by=PERSON, deadline=soon())
        await open_gate(world.database, "a-1", 3, due_at=due_at, by=PERSON, deadline=soon())
    for reason in ("The peers agree.", "Again."):
        await answer_gate(world.database, "a-1", 3, "validate", reason=reason, by=PERSON, deadline=soon())

    rows = await world.rows(
        "SELECT actor_id, resource_type, resource_id, action, action_reason, request_context AS context "
        "FROM memory_access_audit ORDER BY timestamp, id"
    )
    assert {(row["actor_id"], row["resource_type"], row["resource_id"]) for row in rows} == {
        (PERSON.id, "workflow", "a-1")
    }
    until = rows[1]["context"].pop("due_at")
    assert datetime.fromisoformat(until) == due_at
    assert [(row["action"], row["action_reason"], row["context"]) for row in rows] == [
        ("start", "Ordered.", {"stock_id": "company:MU", "agents": {"screening": "scr-1"}}),
        ("open_gate", None, {"gate": 3}),
        ("answer_gate", "The peers agree.", {"key": "a-1/3", "state": "VALIDATED"}),
    ]
