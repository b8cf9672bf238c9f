"""Neo4j stopped, killed or gone while events arrive: all are acknowledged, none is lost, the graph catches up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import orjson
import pytest
import pytest_asyncio

from imem.journal.deadline import Deadline
from imem.journal.events.entry import Receipt
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.projection.applier import Applier
from imem.kg.projection.hash import graph_hash
from imem.local.migrate import migrate
from imem.local.supervisor import LocalStack
from imem.services.stores import Stores
from tests.conftest import settings_for, temporary_home
from tests.kg.projection.proxy import Proxy, proxied
from tests.kg.projection.world import NEVER, NoWakeups, analysis, importer


@pytest.fixture(scope="module")
def local() -> Iterator[LocalStack]:
    """Servers of our own, of which one may be ill-treated."""
    with temporary_home() as home, LocalStack(settings_for(home), workers=False, migrate=migrate) as running:
        yield running


@pytest_asyncio.fixture
async def wire(local: LocalStack) -> AsyncIterator[Proxy]:
    """What the applier reaches Neo4j by."""
    address = urlsplit(local.settings.neo4j_url or "")
    async with proxied(address.hostname or "", address.port or 0) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def stores(local: LocalStack, wire: Proxy) -> AsyncIterator[Stores]:
    settings = local.settings.model_copy(update={"neo4j_url": f"bolt://127.0.0.1:{wire.port}"})
    async with Stores.open(settings, pipelines=True) as opened:
        applier = Applier(opened.database, opened.graph, NoWakeups(), batch=7)
        running = asyncio.create_task(applier.run())
        yield opened
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await applier.stop()


async def say(stores: Stores, prefix: str, count: int) -> list[Receipt]:
    receipts = []
    for number in range(count):
        entry = entry_of(parse_line(orjson.dumps(analysis(f"{prefix}{number}"))))
        receipts += await stores.gateway.append([entry], actor=importer(prefix), deadline=Deadline.after_ms(20_000))
    return receipts


def neo4j_pid(local: LocalStack) -> int:
    pid = local.state.children["neo4j"].pid
    assert pid is not None
    return pid


@pytest.mark.spec("GR-14")
@pytest.mark.parametrize("trouble", ["stopped", "killed", "refused"])
async def test_events_are_acknowledged_and_the_graph_catches_up(
    local: LocalStack, stores: Stores, wire: Proxy, trouble: str
) -> None:
    """SIGSTOP; SIGKILL, after which the supervisor starts it again; connections broken and the port refused."""
    await say(stores, f"{trouble}-before-", 3)
    pid = neo4j_pid(local)
    if trouble == "refused":
        await wire.refuse()
    else:
        os.kill(pid, signal.SIGSTOP if trouble == "stopped" else signal.SIGKILL)

    receipts = await say(stores, f"{trouble}-during-", 40)

    assert all(receipt.durable and receipt.position for receipt in receipts)
    if trouble == "refused":
        assert not await stores.gateway.wait_visible([receipts[0].position or 0], Deadline.after_ms(300))
        await wire.listen()
    if trouble == "stopped":
        seen = await stores.gateway.append(
            [entry_of(parse_line(orjson.dumps(analysis("unseen"))))],
            actor=importer("unseen"),
            deadline=NEVER,
            wait_visible=Deadline.after_ms(300),
        )
        assert seen[0].state == "durable_not_visible"
        os.kill(pid, signal.SIGCONT)
    positions = [receipt.position for receipt in receipts if receipt.position is not None]
    assert await stores.gateway.wait_visible(positions, Deadline.after_ms(120_000))
    rows = await stores.database.rows(
        "SELECT state, attempts, error, applied_at FROM delivery WHERE position = ANY(%s) ORDER BY position",
        [positions],
        deadline=NEVER,
    )
    assert {(row["state"], row["attempts"], row["error"]) for row in rows} == {("applied", 0, None)}
    applied = [row["applied_at"] for row in rows]
    assert applied == sorted(applied)
    found = await graph_hash(stores.graph)
    events = await stores.database.rows(
        "SELECT count(*) AS n FROM event WHERE kind = 'record.Analysis'", deadline=NEVER
    )
    assert found.parts["Analysis"].count == events[0]["n"]
