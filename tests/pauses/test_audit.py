"""Orders and their audit rows: neither is there without the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from checkpoints.pauses import Pauses
from journal.errors import StatementRejected
from tests.contents import contents, no_audit

from .world import PERSON, World, soon

Order = Callable[[Pauses], Awaitable[Any]]

ORDERS: dict[str, tuple[str, Callable[[World], Awaitable[Order]]]] = {}
"""By what is ordered: the audit's name of it, and what prepares it."""


def ordering(name: str, action: str) -> Callable[[Callable[[World], Awaitable[Order]]], None]:
    def add(prepare: Callable[[World], Awaitable[Order]]) -> None:
        ORDERS[name] = (action, prepare)

    return add


@ordering("a pause", "pause")
async def _pause(world: World) -> Order:
    await world.release(await world.begin("a-1"))
    return lambda pauses: pauses.pause_analysis(None, "A look.", analysis_id="a-1", by=PERSON, deadline=soon())


@ordering("an extension", "extend")
async def _extend(world: World) -> Order:
    await world.paused("a-1")
    pause = (await world.pauses.get_pause_state(None, analysis_id="a-1", deadline=soon())).pause
    assert pause is not None
    until = pause.paused_at + timedelta(days=21)
    return lambda pauses: pauses.extend(None, until, "Leave.", analysis_id="a-1", by=PERSON, deadline=soon())


@ordering("a resume", "resume")
async def _resume(world: World) -> Order:
    await world.paused("a-1")
    return lambda pauses: pauses.resume_analysis(None, analysis_id="a-1", by=PERSON, deadline=soon())


@ordering("what is given up", "cancel")
async def _cancel(world: World) -> Order:
    await world.paused("a-1")
    return lambda pauses: pauses.cancel(None, "Enough.", analysis_id="a-1", by=PERSON, deadline=soon())


@pytest.mark.spec("AC-5")
@pytest.mark.parametrize("name", ORDERS)
async def test_without_its_audit_row_an_order_changes_nothing(world: World, name: str) -> None:
    """It is refused, no table has anything of it, and it is carried out once the row can be written."""
    action, prepare = ORDERS[name]
    order = await prepare(world)
    before = contents(world.admin_url)

    with no_audit(world.admin_url):
        with pytest.raises(StatementRejected):
            await order(world.pauses)
        after = contents(world.admin_url)

    assert {table for table in after if after[table] != before[table]} == set()
    await order(world.pauses)
    rows = await world.rows("SELECT count(*) AS n FROM memory_access_audit WHERE action = %s", action)
    assert rows[0]["n"] == 1
