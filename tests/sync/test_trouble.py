"""Servers that stop while agents publish and push: what was said to be durable is, once, and nobody waits for long."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from pydantic import SecretStr

from imem.cache.working.memory import WorkingMemory
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, NotOpen, OutcomeUnknown, StoreUnavailable
from imem.journal.postgres.database import Database
from imem.sync.delivery.pusher import PushState
from tests.cache.working.servers import OwnServer, own_server
from tests.conftest import temporary_home
from tests.proxy import SlowProxy, slowly, through
from tests.punctual import STALL_S, Punctual

from .conftest import TYPES, SyncHarness, harness_at, soon
from .parts import held, member, synchronizer

AGENTS = ("ann", "bob", "cat", "dan", "eve")
BUDGET_MS = 500.0
LATE_S = 0.25
"""How much later than its deadline a call may end, in seconds: what ends a call to a silent server takes a moment."""

LONGEST_S = 60.0
"""How long to wait for a push, in seconds: on a busy machine the first ones take longer than their deadline."""

TROUBLE = (StoreUnavailable, BudgetExceeded, OutcomeUnknown, NotOpen)


@dataclass
class Torn:
    """
    Agents whose three stores are the test's own to stop.

    Attributes:
        harness: the agents.
        valkeys: the working and the durable server, by role.
        postgres: the way to the journal.
    """

    harness: SyncHarness
    valkeys: dict[str, OwnServer]
    postgres: SlowProxy

    @contextmanager
    def away(self, store: str) -> Iterator[None]:
        """Have *store* be silent, or dead where that is said, for as long as the block lasts."""
        if store == "postgres":
            self.postgres.stall()
            try:
                yield
            finally:
                self.postgres.flow()
            return
        role, _, how = store.partition(" ")
        server = self.valkeys[role]
        with server.killed() if how == "killed" else server.stopped():
            yield


@pytest_asyncio.fixture
async def torn(light_stack: Any, light_template: str) -> AsyncIterator[Torn]:
    async with AsyncExitStack() as stack:
        valkeys = {}
        for role in ("working", "durable"):
            folder = stack.enter_context(temporary_home())
            valkeys[role] = stack.enter_context(own_server(Path(folder)))
        given = light_stack.settings
        proxy = await stack.enter_async_context(slowly(given.postgres_url.get_secret_value()))
        named = {f"valkey_{role}_url": SecretStr(server.url) for role, server in valkeys.items()}
        harness = await stack.enter_async_context(harness_at(given.model_copy(update=named), light_template))
        # Before the database is dropped: that waits for a connection the proxy holds before it is authenticated.
        stack.push_async_callback(proxy.refuse)
        harness.database = Database(through(harness.url, proxy), size=8)
        stack.push_async_callback(harness.database.close)
        yield Torn(harness, valkeys, proxy)


@dataclass
class Load:
    """
    What agents did.

    Attributes:
        published, durable: items whose publishing, and whose push, was acknowledged, by agent.
        refused: the errors of calls that ended with one.
        over: ends the work.
        more: set whenever another item is durable.
        in_time: every call against its deadline.
    """

    published: dict[str, list[UUID]] = field(default_factory=lambda: {name: [] for name in AGENTS})
    durable: set[UUID] = field(default_factory=set)
    refused: list[Exception] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    in_time: Punctual = field(default_factory=Punctual)

    async def work(self, harness: SyncHarness, name: str, memory: WorkingMemory) -> None:
        who, sync = await member(harness, name), synchronizer(harness)
        for nth in itertools.count():
            if self.over.is_set():
                return
            await self._timed(self._publish(harness, name, memory, nth))
            await self._timed(self._push(sync, who, memory))
            await asyncio.sleep(0.25)  # The rate of the load.

    async def pushed(self) -> None:
        """Wait until more is durable than now."""
        self.more.clear()
        await self.more.wait()

    def all_pushed_since(self, before: set[UUID]) -> bool:
        """Whether each agent has pushed something that was not durable *before*."""
        return all((self.durable - before) & set(items) for items in self.published.values())

    async def _publish(self, harness: SyncHarness, name: str, memory: WorkingMemory, nth: int) -> None:
        finding = harness.finding(name, id=f"{name}-{nth}", importance=0.9)
        self.published[name].append(await memory.publish(finding, deadline=Deadline.after_ms(BUDGET_MS)))

    async def _push(self, sync: Any, who: Any, memory: WorkingMemory) -> None:
        for one in await sync.push(who, holder=memory, deadline=Deadline.after_ms(BUDGET_MS)):
            assert one.state is PushState.DURABLE
            self.durable.add(one.item)
            self.more.set()

    async def _timed(self, call: Any) -> None:
        with self.in_time.within(BUDGET_MS / 1000):
            try:
                await call
            except TROUBLE as error:
                self.refused.append(error)


@pytest.mark.spec("RS-1")
@pytest.mark.parametrize("store", ["working", "postgres", "durable", "durable killed"])
async def test_a_store_that_stops_while_agents_push_loses_nothing_and_holds_nobody_up(torn: Torn, store: str) -> None:
    """
    Five agents publish and push; for five seconds the store is silent.

    Whatever was acknowledged is in the journal, in the order of its publishing; what could not be pushed meanwhile is
    pushed afterwards. The broker's server, which carries notices as well, is no part of a push: none is refused.
    """
    harness, load = torn.harness, Load()
    memories = {
        name: await held(harness, await harness.begin(name, kind)) for name, kind in zip(AGENTS, TYPES, strict=False)
    }
    async with asyncio.TaskGroup() as work:
        for name, memory in memories.items():
            work.create_task(load.work(harness, name, memory))
        async with asyncio.timeout(LONGEST_S):
            await load.pushed()
            before = set(load.durable)
            with torn.away(store):
                await asyncio.sleep(STALL_S)
                while store.startswith("durable") and not load.all_pushed_since(before):
                    await load.pushed()
            await load.pushed()
        load.over.set()
    assert load.in_time.late_s < LATE_S
    if store.startswith("durable"):
        # No store is missed. Of what is late each agent would have some twenty; a busy machine may delay a single call.
        assert [error for error in load.refused if not isinstance(error, BudgetExceeded)] == []
        assert len(load.refused) < len(AGENTS)
    else:
        assert load.refused

    for name, memory in memories.items():
        await synchronizer(harness).push(await member(harness, name), holder=memory, deadline=soon())
        assert await memory.published() == []
        rows = await harness.rows("SELECT event_id FROM event WHERE actor = %s ORDER BY agent_seq", name)
        found = [row["event_id"] for row in rows]
        assert [item for item in found if item in set(load.published[name])] == load.published[name]
        load.durable -= set(found)
    assert not load.durable, "acknowledged as durable, and not in the journal"


async def test_agents_reach_the_journal_by_the_proxy_alone(torn: Torn) -> None:
    """Otherwise nothing above would show anything of Postgres."""
    with torn.away("postgres"), pytest.raises((StoreUnavailable, BudgetExceeded)):
        await torn.harness.database.rows("SELECT 1", deadline=Deadline.after_ms(100))
