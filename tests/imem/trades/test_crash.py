"""Killed between any two statements, of the runner or of the database, and replayed: the rows of one that was not."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from imem.journal.errors import BudgetExceeded, OutcomeUnknown, StoreUnavailable
from imem.postmortem.trades.ledger import TickStatus
from imem.postmortem.trades.model import ChangeKind, Trade
from tests.imem.memory.conftest import MemoryHarness
from tests.killed_programs import printed

from .conftest import memory_of, record
from .killed import LATEST, ticks_of
from .paths import canonical, in_memory

TABLES = ("trade_deployment", "trade_tick", "decision_snapshots", "trade_version", "trade_history")


def check(harness: MemoryHarness, desk: str) -> None:
    """Rows, ticks and snapshots are those of a runner that nothing happened to, each once."""
    ticks = ticks_of(desk)
    rows = harness.rows("SELECT * FROM recall.trade_history WHERE deployment_id = %s", desk)
    assert canonical(map(Trade.from_row, rows)) == canonical(in_memory(ticks).values())
    done = harness.rows("SELECT tick_at, changes FROM recall.trade_tick WHERE deployment_id = %s ORDER BY 1", desk)
    assert [row["tick_at"] for row in done] == [tick.at for tick in ticks]
    kinds = Counter(change["kind"] for row in done for change in row["changes"])
    assert set(kinds) == set(ChangeKind), "the ticks go through every change"
    taken = harness.rows("SELECT FROM recall.decision_snapshots WHERE deployment_id = %s", desk)
    assert len(taken) == sum(tick.decision.snapshot is not None for tick in ticks)
    [versions] = harness.rows(
        "SELECT count(*) AS n FROM recall.trade_version WHERE deployment_id = %s GROUP BY deployment_id", desk
    )
    opened = kinds[ChangeKind.OPEN]
    assert versions["n"] == kinds.total() - opened, "each change but the first of a trade left a version"


def held(harness: MemoryHarness, desk: str) -> list[list[str]]:
    """Return the rows of every table, in an order that does not depend on how Postgres happens to read them."""
    return [
        sorted(repr(row) for row in harness.rows(f"SELECT * FROM recall.{name} WHERE deployment_id = %s", desk))
        for name in TABLES
    ]


@pytest.mark.spec("RC-11")
async def test_a_runner_killed_at_any_statement(harness: MemoryHarness, desk: str) -> None:
    assert harness.settings.postgres_url is not None
    given = {"url": harness.settings.postgres_url.get_secret_value(), "deployment": desk}
    out = await printed("tests.imem.trades.killed", given=f"{json.dumps(given)}\n")

    assert int(out.split()[-1]) >= 2 * LATEST
    check(harness, desk)


@pytest.mark.spec("RC-11")
async def test_a_server_killed_within_the_transaction(harness: MemoryHarness, desk: str) -> None:
    """The backend ends after each of the function's statements in turn; nothing of the tick is there."""
    harness.rows(
        "CREATE OR REPLACE FUNCTION recall.die() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1); RETURN NULL; END'"
    )
    async with memory_of(harness) as memory:
        for nth, tick in enumerate(ticks_of(desk)):
            written = [name for name in TABLES if name != "decision_snapshots" or tick.decision.snapshot is not None]
            table = written[nth // 2 % len(written)]
            harness.rows(f"CREATE TRIGGER die AFTER INSERT ON recall.{table} EXECUTE FUNCTION recall.die()")
            before = held(harness, desk)
            try:
                with pytest.raises((OutcomeUnknown, StoreUnavailable, BudgetExceeded)):
                    await record(memory, tick, deadline_ms=100)
                assert held(harness, desk) == before
            finally:
                harness.rows(f"DROP TRIGGER die ON recall.{table}")
            assert (await record(memory, tick)).status is TickStatus.RECORDED
    check(harness, desk)
