"""How long it takes until what agents push at once is in the graph, beside what the bare drivers take for as much."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import orjson
import pytest

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from imem.kg.kinds.work import Finding
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.memory import Memory
from imem.services.stores import Stores
from tests.bench import floor
from tests.bench.table import Figure, Table, percentile
from tests.bench.worlds import World

pytestmark = pytest.mark.bench

AGENTS: Final = 5
FINDINGS: Final = 10

ROUNDS: Final = {"full": 40, "tiny": 5}
"""How often all of them push at once; the first tenth is not counted."""

GOAL_MS: Final = 150
BAR_MS: Final = 300
HIGH_BAR_MS: Final = 10_000

IMPORTED: Final = {"full": 8_000, "tiny": 1_000}
"""Events of the import beside which agents push."""


@asynccontextmanager
async def agents(world: World) -> AsyncIterator[dict[int, Memory]]:
    """Lend the memory of each agent, in its own name, by its number."""
    async with AsyncExitStack() as opened:
        memories = {}
        for number in range(AGENTS):
            settings = world.settings.model_copy(update={"actor": f"bench_{number}", "role": Role.AGENT})
            memories[number] = Memory(await opened.enter_async_context(Stores.open(settings)))
        yield memories


def finding(agent: int, number: int, run: str, *, importance: float = 0.9) -> Finding:
    return Finding(
        id=f"push/{run}/{agent}/{number}", analysis_id=f"push/{run}", subject_id="company:PUSH", agent=f"bench_{agent}",
        domain="domain_00", statement=f"What agent {agent} found {number}.", importance=importance,
    )  # fmt: skip


async def pushed(memories: Mapping[int, Memory], run: str, *, warm: bool = True) -> list[float]:
    """
    Have agents push fifty findings at once, each as many; return how long each took to be visible, in milliseconds.

    Args:
        memories: of each agent, by its number.
        warm: whether the server has planned and compiled what it takes; before that some may come late.
    """

    async def push(agent: int, number: int) -> float:
        begun = time.perf_counter()
        receipt = await memories[agent].record_finding(finding(agent, number, run), wait_visible=True)
        assert receipt.visible or not warm
        return (time.perf_counter() - begun) * 1000

    each = -(-AGENTS * FINDINGS // len(memories))
    return await asyncio.gather(*(push(agent, number) for agent in memories for number in range(each)))


@pytest.mark.spec("SY-2")
async def test_fifty_critical_events_at_once(world: World, table: Table) -> None:
    """Ten findings of each of five agents, pushed at once and waited for, and findings of importance beside them."""
    rounds = ROUNDS[table.scale]
    taken: list[float] = []
    async with agents(world) as memories:
        for number in range(rounds + rounds // 10 + 1):
            counts = number > rounds // 10
            found = await pushed(memories, f"{number}", warm=counts)
            taken += found if counts else []
        high_ms = await _high(memories)
    bare = [one for _ in range(10) for one in await floor.pushes(world.settings, AGENTS, FINDINGS)]
    note = (
        f"{AGENTS} agents push {FINDINGS} findings each, all at once, through Memory and the gateway, {rounds} times, "
        f"until each receipt says visible; goal {GOAL_MS} ms; floor: a bare INSERT, then a bare MERGE, as many at once"
    )
    table.add(
        *(
            Figure(
                name=f"push to visible p{share:.0%}, 50 at once".replace("%", ""), data=world.data,
                value=percentile(taken, share), unit="ms", floor=percentile(bare, share),
                bar=BAR_MS if share == 0.99 else None, note=note,
            )
            for share in (0.50, 0.95, 0.99)
        ),
        Figure(
            name="high to visible, worst, beside 50 critical", data=world.data, value=high_ms, unit="ms",
            bar=HIGH_BAR_MS, note="findings of importance 0.8 that nobody waits for, amid the critical ones",
        ),
    )  # fmt: skip


async def _high(memories: Mapping[int, Memory]) -> float:
    """Push findings of importance among critical ones; return how long the slowest took to be applied."""

    async def push(agent: int) -> int:
        receipts = [
            await memories[agent].record_finding(finding(agent, number, "high", importance=0.8)) for number in range(10)
        ]
        return max(receipt.position or 0 for receipt in receipts)

    # Not of the agents whose critical events would drag them along.
    others = {number: memory for number, memory in memories.items() if number > 1}
    last, _, _ = await asyncio.gather(push(0), push(1), pushed(others, "beside"))
    database = memories[0]._stores.database
    assert await memories[0]._stores.gateway.wait_visible([last], Deadline.after_ms(HIGH_BAR_MS))
    rows = await database.rows(
        "SELECT max(extract(epoch FROM d.applied_at - e.recorded_at) * 1000)::float8 AS ms FROM delivery AS d "
        "JOIN event AS e ON e.position = d.position WHERE e.record_key LIKE 'push/high/%%' AND d.state = 'applied'",
        (), deadline=Deadline.after_ms(10_000),
    )  # fmt: skip
    return float(rows[0]["ms"])


async def test_pushes_beside_an_import(world: World, table: Table) -> None:
    """An import that keeps the applier busy for seconds does not hold up what agents wait for."""
    lines: list[dict[str, Any]] = [
        {
            "record": "Finding", "known_at": "2026-01-02T00:00:00Z",
            "core": {
                "id": f"import/{number}", "analysis_id": f"import/{number // 10}", "domain": "domain_01",
                "subject_id": f"company:I{number % 50}", "agent": f"importer_{number % 7}", "statement": "It was so.",
            },
        }
        for number in range(IMPORTED[table.scale])
    ]  # fmt: skip
    entries = [entry_of(parse_line(orjson.dumps(line))) for line in lines]
    taken: list[float] = []
    async with agents(world) as memories, Stores.open(world.settings) as stores:
        gateway = Gateway(stores.database, Actor.from_settings(world.settings), stores.wakeup_publisher.publish_wakeup)
        actor = gateway.actor.importing("bench")
        loading = asyncio.create_task(gateway.append(entries, actor=actor, deadline=Deadline.after_ms(120_000)))
        number = 0
        while True:
            taken += await pushed(memories, f"import-{number}", warm=False)
            number += 1
            if loading.done():
                positions = [receipt.position for receipt in await loading if receipt.position is not None]
                if await gateway.wait_visible(positions, Deadline.after_ms(50)):
                    break
    note = f"the same while {len(entries):,} events of an import are applied, {number} times in all"
    table.add(
        Figure(
            name="push to visible p99, beside an import", data=world.data, value=percentile(taken, 0.99), unit="ms",
            bar=2_000, note=note,
        )
    )  # fmt: skip
