"""Writers and servers that are killed: nothing acknowledged is lost, nothing stored is torn."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from imem.journal.errors import OutcomeUnknown, PostgresUnavailable
from imem.journal.postgres.migrations import migrate
from imem.langgraph import ImemSaver
from imem.local.supervisor import LocalStack
from tests.checkpoints.langgraph.conftest import Base, chain, checkpoint, config, metadata
from tests.checkpoints.langgraph.killed import LENGTH, OPERATIONS, values, writes
from tests.conftest import settings_for, temporary_home
from tests.killed_programs import printed

KILLS = 1000 if os.environ.get("IMEM_CHAOS") else 30
"""How often each operation is killed."""

TIMEOUT_S = 60.0


async def killed(base: Base, operation: str, count: int) -> dict[str, dict[str, list[int]]]:
    """Run the writers, and return what was acknowledged: thread → put or written → which."""
    out = await printed("tests.checkpoints.langgraph.killed", operation, str(count), given=f"{base.url}\n")
    acknowledged: dict[str, dict[str, list[int]]] = defaultdict(lambda: {"put": [], "written": []})
    *said, last = out.splitlines()
    assert last == f"killed {count}"
    for line in said:
        what, thread_id, n = line.split()
        acknowledged[thread_id][what].append(int(n))
    assert len(acknowledged) == count
    return acknowledged


def kept(saver: ImemSaver, thread_id: str) -> list[int]:
    """Return the steps that a thread holds, newest first, each of them whole."""
    steps = []
    for one in saver.list(config(thread_id)):
        step = one.metadata["step"]
        assert one.checkpoint["channel_values"] == values(thread_id.removesuffix("-copy"), step)
        steps.append(step)
    return steps


async def check(saver: ImemSaver, base: Base, operation: str, count: int) -> None:
    lost = 0
    for thread_id, said in (await killed(base, operation, count)).items():
        steps = kept(saver, thread_id)
        match operation:
            case "put":
                lost += len(set(said["put"]) - set(steps))
                assert steps == [*range(len(steps))][::-1]
                assert len(steps) - len(said["put"]) in {0, 1}
            case "put_writes":
                [stored] = saver.list(config(thread_id))
                found = stored.pending_writes or []
                tasks = len(found) // 4
                assert found == [(f"{task}", *write) for task in range(tasks) for write in writes(thread_id, task)]
                lost += len(set(said["written"]) - set(range(tasks)))
                assert tasks - len(said["written"]) in {0, 1}
            case "prune":
                [newest] = said["put"]
                assert steps in ([newest], [*range(newest + 1)][::-1])
            case _:
                assert len(steps) == len(said["put"])
                assert kept(saver, f"{thread_id}-copy") in ([], steps)
        saver.delete_thread(thread_id)
        saver.delete_thread(f"{thread_id}-copy")
    assert lost == 0


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_writers_killed_at_every_point(saver: ImemSaver, base: Base, operation: str) -> None:
    """Thirty times each: before the statement is sent, before it is answered, before that is acknowledged."""
    await check(saver, base, operation, 30)


@pytest.mark.chaos
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_writers_killed_a_thousand_times(saver: ImemSaver, base: Base, operation: str) -> None:
    await check(saver, base, operation, KILLS)


@pytest.fixture(scope="module")
def own() -> Iterator[LocalStack]:
    """A Postgres of our own, which may be killed."""
    with temporary_home() as home, LocalStack(settings_for(home), servers={"postgres"}, workers=False) as running:
        given = running.settings
        assert given.postgres_url is not None
        assert given.postgres_admin_url is not None
        role = urlsplit(given.postgres_url.get_secret_value()).username
        migrate(given.postgres_admin_url.get_secret_value(), application_role=role)
        yield running


async def persistent(work: Any) -> Any:
    """Repeat a call until it succeeds, as one does who is told that it may."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await work()
            except (PostgresUnavailable, OutcomeUnknown):
                await asyncio.sleep(0.02)


async def test_the_server_is_killed_while_many_put(own: LocalStack) -> None:
    """Whoever repeats what failed ends with every checkpoint once; what was acknowledged before is there after."""
    async with ImemSaver.open(own.settings) as saver:
        acknowledged: list[tuple[str, str]] = []

        async def run(thread_id: str) -> None:
            where = config(thread_id)
            for step in range(4 * LENGTH):
                one = checkpoint({"value": [thread_id, step]}, {"value": f"{step}"})
                where = await persistent(
                    lambda where=where, one=one, step=step: saver.aput(where, one, metadata(step), {"value": f"{step}"})
                )
                acknowledged.append((thread_id, one["id"]))

        threads = [f"server-{n}" for n in range(6)]
        for _ in range(3):
            await persistent(lambda: saver.aget_tuple(config(threads[0])))
            running = [asyncio.create_task(run(one)) for one in threads]
            heard = len(acknowledged)
            while len(acknowledged) < heard + 20:  # noqa: ASYNC110 - any moment will do
                await asyncio.sleep(0)
            pid = own.state.children["postgres"].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await asyncio.gather(*running)
            for thread_id in threads:
                found = [one async for one in saver.alist(config(thread_id))]
                assert [one.checkpoint["id"] for one in found[::-1]] == [
                    one for at, one in acknowledged if at == thread_id
                ]
                await saver.adelete_thread(thread_id)
            acknowledged.clear()


async def test_another_process_goes_on(own: LocalStack) -> None:
    """What one saver stored, the next one finds."""
    async with ImemSaver.open(own.settings) as first:
        stored = await persistent(lambda: chain(first, "restart", 3))
    with ImemSaver.open(own.settings) as second:
        assert [one.config for one in second.list(config("restart"))] == stored[::-1]
