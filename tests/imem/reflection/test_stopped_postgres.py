"""Trades and their notes without Postgres: every call ends by its deadline, says so, and leaves nothing half done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from pydantic import SecretStr

from imem.journal.errors import BudgetExceeded, OutcomeUnknown, StoreUnavailable
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.local.supervisor import LocalStack
from imem.memory import Memory
from imem.postmortem.reflection.config import SkillMemoryConfig
from imem.postmortem.trades.model import TickDecision, Trade
from imem.services.connections import CONNECTING_MS
from tests.conftest import settings_for
from tests.imem.memory.conftest import MemoryHarness
from tests.imem.trades.paths import canonical
from tests.proxy import SlowProxy, slowly, through
from tests.servers import as_pipelines, cloned, frozen, in_database, migrated_template

from .conftest import BEGIN, Desk, memory_of, reflect

BUDGET_MS = 400

BUSY_S = 1.5
"""What a busy machine adds, in seconds."""

TABLES = ("trade_tick", "trade_history", "trade_version", "reflection_notes", "skill_memory")


@dataclass
class Callers:
    """
    Who calls: the owner of a deployment and a person.

    Attributes:
        desk: a deployment whose ten closed trades have a note.
        note: the note.
    """

    desk: Desk
    ann: Memory
    kate: Memory
    note: UUID

    def reads(self) -> dict[str, Any]:
        trades, notes, name = self.ann.trades, self.ann.reflections, self.desk.name
        return {
            "resume": lambda: trades.resume(name, deadline_ms=BUDGET_MS),
            "recent": lambda: trades.recent(deployment=name, deadline_ms=BUDGET_MS),
            "of a skill": lambda: trades.recent(skill=self.desk.skill, deadline_ms=BUDGET_MS),
            "reconcile": lambda: trades.reconcile(name, [], deadline_ms=BUDGET_MS),
            "current": lambda: notes.current(deployment=name, deadline_ms=BUDGET_MS),
            "history": lambda: notes.history(name, deadline_ms=BUDGET_MS),
            "prompt": lambda: notes.prompt_section(deployment=name, deadline_ms=BUDGET_MS),
        }

    def writes(self) -> dict[str, Any]:
        decision = TickDecision(self.desk.name, self.desk.skill, "1", "late fees")
        at = BEGIN.replace(hour=20)
        return {
            "tick": lambda ms=BUDGET_MS: self.ann.trades.record(
                decision, [], {}, fees={"BTC": Decimal("0.5")}, at=at, deadline_ms=ms
            ),
            "promote": lambda ms=BUDGET_MS: self.kate.reflections.promote(self.note, deadline_ms=ms),
            "configure": lambda ms=BUDGET_MS: self.ann.reflections.configure(
                SkillMemoryConfig(enabled=False), deployment=self.desk.name, deadline_ms=ms
            ),
        }


@asynccontextmanager
async def callers(harness: MemoryHarness, direct: MemoryHarness) -> AsyncIterator[Callers]:
    """Open memories of *harness*; what they ask about is made by way of *direct*."""
    assert direct.settings.postgres_url is not None
    database = Database(as_pipelines(direct.settings, direct.settings.postgres_url.get_secret_value()), size=2)
    try:
        async with memory_of(direct) as memory:
            desk = Desk(memory)
            await desk.trades(10)
            assert (await reflect(direct, database))["notes"] >= 1
            [note] = await memory.reflections.history(desk.name)
        async with memory_of(harness) as ann, memory_of(harness, "kate", Role.HUMAN_ADMIN) as kate:
            yield Callers(desk, ann, kate, note.id)
    finally:
        await database.close()


def held(harness: MemoryHarness) -> list[list[str]]:
    return [sorted(repr(row) for row in harness.rows(f"SELECT * FROM recall.{name}")) for name in TABLES]


async def refused(call: Callable[[], Any], *, writes: bool, before_ms: float = 0) -> None:
    """
    Call, and demand an error by the deadline which says whether the call can be repeated.

    *before_ms* is what the call may wait before its deadline begins.
    """
    begun_s = time.monotonic()
    with pytest.raises((StoreUnavailable, BudgetExceeded, OutcomeUnknown)) as error:
        await call()
    assert time.monotonic() - begun_s < (before_ms + BUDGET_MS) / 1000 + BUSY_S
    assert writes or not isinstance(error.value, OutcomeUnknown)
    assert str(error.value)


async def all_refused(who: Callers) -> None:
    for call in who.reads().values():
        await refused(call, writes=False)
    for call in who.writes().values():
        await refused(call, writes=True)


async def all_is_well(who: Callers, harness: MemoryHarness, before: list[list[str]]) -> None:
    """What was refused was not done, or, where that was unknown, done as a whole; repeating it ends the same."""
    trades = harness.rows("SELECT * FROM recall.trade_history WHERE deployment_id = %s", who.desk.name)
    ticks = harness.rows("SELECT FROM recall.trade_tick WHERE deployment_id = %s", who.desk.name)
    billed = sum(row["fees_usd"] == Decimal("0.5") for row in trades)
    assert (len(trades), len(ticks) - 20) == (10, billed), "the tick and what it changed, or neither"
    if len(ticks) == 20:
        assert held(harness)[:3] == before[:3]
    for call in who.writes().values():
        await call(20_000)
    again = harness.rows("SELECT * FROM recall.trade_history WHERE deployment_id = %s", who.desk.name)
    assert sum(row["fees_usd"] for row in again) == Decimal("0.5")
    if billed:
        assert canonical(map(Trade.from_row, again)) == canonical(map(Trade.from_row, trades))
    skills = harness.rows(
        "SELECT FROM recall.reflection_notes WHERE skill_id = %s AND deployment_id IS NULL", who.desk.skill
    )
    assert len(skills) == 1
    assert await who.ann.reflections.prompt_section(deployment=who.desk.name, deadline_ms=20_000) == "", "switched off"


@pytest_asyncio.fixture
async def proxy(harness: MemoryHarness) -> AsyncIterator[SlowProxy]:
    assert harness.settings.postgres_url is not None
    async with slowly(harness.settings.postgres_url.get_secret_value()) as proxy:
        yield proxy


@pytest.mark.parametrize("how", ["refused", "silent", "cut"])
async def test_a_postgres_that_is_refused_or_silent(harness: MemoryHarness, proxy: SlowProxy, how: str) -> None:
    """Refused, silent from the start, and silent in the midst of connections."""
    urls = {
        name: getattr(harness.settings, name).get_secret_value() for name in ("postgres_url", "postgres_curator_url")
    }
    behind = {name: SecretStr(through(url, proxy)) for name, url in urls.items()}
    far = MemoryHarness(harness.settings.model_copy(update=behind), harness.admin_url)
    async with callers(far, harness) as who:
        if how == "cut":
            for call in who.reads().values():
                await call()
            await who.kate.reflections.history(who.desk.name, deadline_ms=20_000)
        before = held(harness)
        if how == "refused":
            await proxy.refuse()
        else:
            proxy.stall()
        if how == "silent":
            # The first read of a process waits for its first connections, once.
            await refused(who.reads()["resume"], writes=False, before_ms=CONNECTING_MS)
        await all_refused(who)
        if how == "refused":
            assert held(harness) == before
            await proxy.listen()
        proxy.flow()
        await all_is_well(who, harness, before)


async def test_a_frozen_postgres(home: Path, harness: MemoryHarness) -> None:
    """Its processes are stopped in the midst of connections; what they were sent they do later, or never."""
    with (
        LocalStack(settings_for(home), servers={"postgres"}, workers=False) as stack,
        migrated_template(stack.settings) as name,
        cloned(stack.settings, name) as (url, admin_url),
    ):
        own = MemoryHarness(harness.settings.model_copy(update=in_database(stack.settings, url)), admin_url)
        pid = stack.state.children["postgres"].pid
        assert pid is not None
        async with callers(own, own) as who:
            await asyncio.gather(*(call() for call in who.reads().values()))
            before = await asyncio.to_thread(held, own)
            with frozen(pid):
                await all_refused(who)
            await all_is_well(who, own, before)
