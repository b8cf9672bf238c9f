"""Alerts about slow and failing reads, and audit rows that wait."""

from __future__ import annotations

import asyncio
from typing import Any

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import PostgresUnavailable
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.recall.signals.audit import MOST_WAITING, SignalAudit
from imem.recall.signals.watch import ENOUGH, WINDOW_S, SignalWatch
from tests.imem.memory.conftest import MemoryHarness

ANN = Actor("ann", Role.AGENT)


async def test_slow_and_failing_reads_raise_one_alert_each(shared: MemoryHarness) -> None:
    assert shared.settings.postgres_url is not None
    database, now = Database(shared.settings.postgres_url.get_secret_value(), size=1), 0.0
    watch = SignalWatch(database, now=lambda: now)

    async def alerts() -> list[str]:
        await asyncio.gather(*watch.alerts._under_way)
        return [row["kind"] for row in shared.rows("SELECT kind FROM workflow.alert ORDER BY raised_at, kind")]

    def reads(count: int, *, slow: int = 0, failed: int = 0) -> None:
        nonlocal now
        for nth in range(count):
            watch.observe(201.0 if nth >= count - slow else 199.0, failed=nth >= count - failed)
            now += 1.2

    try:
        reads(ENOUGH - 1, slow=ENOUGH, failed=ENOUGH)
        assert await alerts() == [], "too few"
        now += WINDOW_S
        reads(2 * ENOUGH, slow=2, failed=2)
        assert await alerts() == [], "5 % is not more than 5 %, nor are the slowest 5 % the 95th percentile"
        now += WINDOW_S
        reads(2 * ENOUGH, slow=6)
        assert await alerts() == ["SIGNALS_SLOW"]
        now += WINDOW_S
        reads(2 * ENOUGH, slow=6, failed=6)
        assert await alerts() == ["SIGNALS_SLOW", "SIGNALS_FAILING"], "the first is open still"
    finally:
        await watch.alerts.close()
        await database.close()


class Away(Database):
    """A Postgres that is away until it is told otherwise."""

    away = True

    async def named(self, name: str, parameters: Any = None, *, deadline: Deadline) -> list[dict[str, Any]]:
        if self.away:
            raise PostgresUnavailable("away")
        return await super().named(name, parameters, deadline=deadline)


async def test_what_could_not_be_audited_is_written_later_in_order_and_bounded(shared: MemoryHarness) -> None:
    assert shared.settings.postgres_url is not None
    database = Away(shared.settings.postgres_url.get_secret_value(), size=1)
    audit = SignalAudit(database)
    try:
        for nth in range(MOST_WAITING + 5):
            audit.write(ANN, "market:waits", {"event": "signals_read", "nth": nth})
        await audit.close()
        assert not shared.rows("SELECT FROM memory_access_audit WHERE resource_id = 'market:waits'")
        database.away = False
        audit.write(ANN, "market:waits", {"event": "signals_read", "nth": MOST_WAITING + 5})
        await audit.close()
    finally:
        await database.close()
    rows = shared.rows("SELECT request_context FROM memory_access_audit WHERE resource_id = 'market:waits' ORDER BY id")
    assert [row["request_context"]["nth"] for row in rows] == list(range(6, MOST_WAITING + 6))
