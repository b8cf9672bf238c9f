"""How long the server lets a statement run: told anew only where what it was told last no longer fits."""

from __future__ import annotations

import pytest

from journal.database import Database
from journal.deadline import Deadline
from journal.errors import BudgetExceeded

from .conftest import World

SHOWN = "SELECT extract(epoch FROM current_setting('statement_timeout')::interval) * 1000 AS ms"


async def test_the_servers_limit_is_nearly_the_callers_and_never_longer(world: World) -> None:
    """Whatever the budget of whoever had the connection before; one that is nearly the same costs no round trip."""
    database = Database(world.url, size=1)

    for budget_ms in (20_000.0, 20_000.0, 300.0, 20_000.0, 19_900.0, 60_000.0, float("inf"), 5_000.0, 4_000.0):
        deadline = Deadline.never() if budget_ms == float("inf") else Deadline.after_ms(budget_ms)
        (row,) = await database.rows(SHOWN, deadline=deadline)
        assert 0.9 * min(budget_ms, 60_000.0) <= row["ms"] <= min(budget_ms, 60_000.0)
    with pytest.raises(BudgetExceeded):
        await database.rows("SELECT pg_sleep(20)", deadline=Deadline.after_ms(200))
    await database.close()


async def test_the_same_budget_again_is_told_once(world: World) -> None:
    database = Database(world.url, size=1)
    seen = set()

    for _ in range(5):
        (row,) = await database.rows(SHOWN, deadline=Deadline.after_ms(20_000))
        seen.add(row["ms"])

    assert len(seen) == 1
    await database.close()
