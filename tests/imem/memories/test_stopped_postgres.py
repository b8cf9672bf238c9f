"""Postgres refuses or is silent, before a call or in its midst: it ends, its error says so, and nothing is half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import pytest
from langgraph.store.base import GetOp, PutOp
from pydantic import SecretStr

from imem.journal.errors import BudgetExceeded, ImemError, OutcomeUnknown, PostgresUnavailable
from imem.kg.similarity.embedders import Vectors
from imem.langgraph import MemoryStore
from imem.memory import Memory
from imem.recall.memories.model import RememberedMemory, StoreStatus
from tests.imem.memories.conftest import Places
from tests.imem.memory.conftest import MemoryHarness
from tests.proxy import SlowProxy, slowly, through
from tests.punctual import Punctual

pytestmark = pytest.mark.spec("RS-1")

T = TypeVar("T")

BUDGET_MS: Final = 500
"""Of a call while Postgres is away, in milliseconds."""

BUSY_S: Final = 1.5
"""What a busy machine adds, in seconds."""

ENOUGH_MS: Final = 30_000

AUSTIN: Final = "The plant is in Austin."
Errors = type[ImemError] | tuple[type[ImemError], ...]

UNKNOWN: Final = (PostgresUnavailable, BudgetExceeded, OutcomeUnknown)

AWAY: Final[Mapping[str, Errors]] = {
    "refused": PostgresUnavailable,
    "refused midway": PostgresUnavailable,
    # After the first call, no connection is left to wait at.
    "silent": (BudgetExceeded, PostgresUnavailable),
    "silent midway": (BudgetExceeded, PostgresUnavailable),
}
"""How Postgres stops, and what a read then raises."""

FIRST, SECOND, THIRD = "Margins rise.", "The plant is in Boise.", "Ann prefers short answers."


@dataclass
class Stopping:
    """
    A memory whose Postgres stops when it is told to.

    Attributes:
        memory, store: what is asked.
        proxy: stands before Postgres.
        places: the encoder, which is asked after the rights are checked and before anything is written.
        monkeypatch: of the test.
    """

    memory: Memory
    store: MemoryStore
    proxy: SlowProxy
    places: Places
    monkeypatch: pytest.MonkeyPatch
    _refused: bool = False

    async def stop(self, how: str) -> None:
        """Stop it now, or in the midst of the next call."""
        self._refused = how.startswith("refused")
        stop = self.proxy.refuse if self._refused else self._stall
        if not how.endswith("midway"):
            await stop()
            return

        async def embed(texts: Sequence[str], **given: Any) -> Vectors:
            await stop()
            return await type(self.places).embed(self.places, texts, **given)

        self.monkeypatch.setattr(self.places, "embed", embed)

    async def _stall(self) -> None:
        self.proxy.stall()

    async def go_on(self) -> None:
        """Let it run again; what was sent to it while it was silent arrives."""
        self.monkeypatch.setattr(self.places, "embed", partial(type(self.places).embed, self.places))
        if self._refused:
            await self.proxy.listen()
        self.proxy.flow()

    async def ends_in_time(
        self, how: str, errors: Errors, call: Callable[[], Awaitable[object]]
    ) -> pytest.ExceptionInfo[ImemError]:
        """Stop it for *call*, which ends by its deadline with one of *errors*, and let it run again."""
        in_time = Punctual()
        await self.stop(how)
        with in_time.within(BUDGET_MS / 1000 + BUSY_S), pytest.raises(errors) as raised:
            await call()
        assert in_time.late_s < 0
        await self.go_on()
        return raised


@asynccontextmanager
async def stopping(harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stopping]:
    """Open an agent's memory with three memories and an item, whose Postgres is behind a proxy; connections stand."""
    assert harness.settings.postgres_url is not None
    url = harness.settings.postgres_url.get_secret_value()
    async with slowly(url) as proxy:
        settings = harness.of().model_copy(update={"postgres_url": SecretStr(through(url, proxy))})
        async with Memory.open(settings) as memory:
            for text in (FIRST, SECOND, THIRD):
                await memory.remember(text, deadline_ms=ENOUGH_MS)
            store = MemoryStore(memory, root="user/ann", deadline_ms=BUDGET_MS)
            await MemoryStore(memory, root="user/ann").aput(("docs",), "old", {"text": "oil"})
            yield Stopping(memory, store, proxy, places, monkeypatch)


def one(harness: MemoryHarness, text: str) -> UUID:
    [row] = harness.rows("SELECT id FROM recall.memory WHERE content = %s AND superseded_at IS NULL", text)
    found = row["id"]
    assert isinstance(found, UUID)
    return found


async def answered(call: Callable[[], Awaitable[T]]) -> T:
    """Return what *call* returns once Postgres is back: the first may still get a connection that was broken."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except (PostgresUnavailable, BudgetExceeded):
                await asyncio.sleep(0.01)  # So that it is no busy loop.


def whole(harness: MemoryHarness) -> None:
    """Assert that counts are those of the rows, that versions end and begin together, and that vectors are there."""
    assert not harness.rows(
        "SELECT FROM recall.memory_namespace AS s CROSS JOIN LATERAL ("
        "  SELECT count(*) AS memories, coalesce(sum(m.lexemes), 0) AS lexemes FROM recall.memory AS m"
        "  WHERE m.namespace = s.namespace AND m.superseded_at IS NULL) AS c"
        " WHERE (s.memories, s.lexemes) <> (c.memories, c.lexemes)"
    )
    assert not harness.rows(
        "SELECT FROM recall.memory AS m WHERE m.superseded_by IS NOT NULL AND NOT EXISTS ("
        "  SELECT FROM recall.memory AS o WHERE o.id = m.superseded_by AND o.recorded_at = m.superseded_at)"
    )
    assert not harness.rows(
        "SELECT FROM recall.memory AS m WHERE m.vector IS NULL AND m.superseded_at IS NULL AND NOT EXISTS ("
        "  SELECT FROM due_row AS d WHERE d.queue = 'memories' AND d.key = m.id::text)"
    )


Write = Callable[[Memory, UUID, float], Awaitable[RememberedMemory]]

WRITES: Final[dict[str, tuple[str, Write, StoreStatus]]] = {
    "remember": (FIRST, lambda memory, _, ms: memory.remember("Prices fall.", deadline_ms=ms), StoreStatus.NEW),
    "supersede": (
        SECOND,
        lambda memory, known, ms: memory.memories.supersede(known, AUSTIN, reason="It moved.", deadline_ms=ms),
        StoreStatus.SUPERSEDED,
    ),
    "retire": (
        THIRD,
        lambda memory, known, ms: memory.memories.retire(known, reason="No more.", deadline_ms=ms),
        StoreStatus.RETIRED,
    ),
}
"""By name: of which memory, the call, and what it does the first time."""


@pytest.mark.parametrize("how", AWAY)
async def test_a_write_ends_and_leaves_nothing_half(
    harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """What says that nothing was written is right; of what is unknown, the same call again leaves one."""
    async with stopping(harness, places, monkeypatch) as given:
        for name, (text, write, done) in WRITES.items():
            if name == "retire" and how.endswith("midway"):
                continue  # It needs no vector, so that there is no midst.
            known = one(harness, text)
            raised = await given.ends_in_time(how, UNKNOWN, lambda: write(given.memory, known, BUDGET_MS))  # noqa: B023 - awaited at once
            if how == "refused":
                assert raised.type is PostgresUnavailable, name
            status = (await answered(lambda: write(given.memory, known, ENOUGH_MS))).status  # noqa: B023 - awaited at once
            if raised.type is not OutcomeUnknown:
                assert status is done, f"{name}: {raised.value!r} says that nothing was written"
            assert status in {done, StoreStatus.IDENTICAL}
            assert (await write(given.memory, known, ENOUGH_MS)).status is StoreStatus.IDENTICAL
            whole(harness)
    current = harness.rows("SELECT content FROM recall.memory WHERE superseded_at IS NULL AND item_key IS NULL")
    left = {FIRST, "Prices fall.", AUSTIN} | ({THIRD} if how.endswith("midway") else set())
    assert sorted(row["content"] for row in current) == sorted(left)


@pytest.mark.parametrize("how", AWAY)
async def test_a_store_ends_and_leaves_nothing_half(
    harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """LangGraph's, whose batch of two puts is written as a whole or not at all."""
    docs = ("docs",)
    async with stopping(harness, places, monkeypatch) as given:
        reads: dict[str, Callable[[], Awaitable[object]]] = {
            "get": lambda: given.store.aget(docs, "old"),
            "list": given.store.alist_namespaces,
            "search": lambda: given.store.asearch(docs, query="oil"),
            "newest": lambda: given.store.asearch(docs),
        }
        for name, read in reads.items():
            if how.endswith("midway") and name != "search":
                continue
            await given.ends_in_time(how, AWAY[how], read)

        puts = [PutOp(docs, str(number), {"text": f"gas {number}"}) for number in range(2)]
        await given.ends_in_time(how, UNKNOWN, lambda: given.store.abatch(puts))
        patient = MemoryStore(given.memory, root="user/ann")
        there = await answered(lambda: patient.abatch([GetOp(docs, str(number)) for number in range(2)]))
        assert (there[0] is None) == (there[1] is None)
        await patient.abatch(puts)
        whole(harness)
    assert harness.rows("SELECT item_key, version FROM recall.memory WHERE item_key <> 'old' ORDER BY 1") == [
        {"item_key": "0", "version": 1},
        {"item_key": "1", "version": 1},
    ]


@pytest.mark.parametrize("how", AWAY)
async def test_a_search_says_that_it_could_not_be_asked(
    harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """An empty answer would mean that nothing is remembered: it is an error, in time."""
    async with stopping(harness, places, monkeypatch) as given:
        memories = given.memory.memories
        reads: dict[str, Callable[[], Awaitable[object]]] = {
            "search": lambda: memories.search("margins", deadline_ms=BUDGET_MS),
            "relevant": lambda: memories.relevant("margins", deadline_ms=BUDGET_MS),
            "prompt_section": lambda: memories.prompt_section("margins", deadline_ms=BUDGET_MS),
        }
        if not how.endswith("midway"):
            known = one(harness, FIRST)
            reads["history"] = lambda: memories.history(known, deadline_ms=BUDGET_MS)
        for read in reads.values():
            await given.ends_in_time(how, AWAY[how], read)
        found = await answered(lambda: memories.search("margins", namespace="agent/ann", deadline_ms=ENOUGH_MS))
        assert len(found.items) == 3
