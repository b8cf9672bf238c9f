"""Restores that are killed, and servers killed under them: what is left is what was, or is known for what it is."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from imem.cache.working.document import MemoryEntry, Type, digest, document_of
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.state import MemoryIdentity, MemoryState
from imem.journal.errors import NotOpen, OutcomeUnknown, ValkeyUnavailable
from tests.killed_programs import KilledProgram, killed_program

from .conftest import NEVER, World, somebody, url_of
from .servers import OwnServer

LEAVES = 1_500
"""So many in each of four collections that a server takes a while over them."""

STEPS = 4
"""Before and after each of restore and settle."""


def content(number: int, leaves: int = 40) -> dict[bytes, MemoryEntry]:
    """Return a memory of several keys, no two the same."""
    mark = b"%d/" % number
    return {
        b"text": MemoryEntry(Type.STRING, (mark * leaves,)),
        b"list": MemoryEntry(Type.LIST, tuple(mark + b"%d" % one for one in range(leaves))),
        b"hash": MemoryEntry(Type.HASH, tuple((mark + b"%d" % one, b"v\xff") for one in range(leaves))),
        b"set": MemoryEntry(Type.SET, tuple(mark + b"%d" % one for one in range(leaves))),
        b"sorted": MemoryEntry(Type.ZSET, tuple((mark + b"%d" % one, one / 7) for one in range(leaves))),
        **{b"k%d" % one: MemoryEntry(Type.STRING, (mark,)) for one in range(number % 7)},
    }


class Restorer:
    """Restores in a program that is killed at a given step."""

    def __init__(self, program: KilledProgram) -> None:
        self._program = program

    async def run_once(
        self, identity: MemoryIdentity, contents: dict[bytes, MemoryEntry], epoch: int, steps: int
    ) -> int:
        """Restore *contents* for so many steps; return how it ended."""
        told = {
            "identity": [identity.agent_id, identity.analysis_id, identity.agent_type],
            "document": document_of(contents),
            "epoch": epoch,
            "seq": epoch,
            "steps": steps,
        }
        return await self._program.ended(json.dumps(told))


@pytest_asyncio.fixture
async def restorer(light_stack: Any) -> AsyncIterator[Restorer]:
    async with killed_program("tests.cache.working.crashing", url_of(light_stack, "working")) as program:
        yield Restorer(program)


async def found_after(world: World, identity: MemoryIdentity, old: str, new: str, epoch: int) -> str:
    """Return what a crash left, having proven that nothing half-restored can be used."""
    meta = await world.store.meta(identity.agent_id, deadline=NEVER)
    assert meta is not None
    if meta.state is MemoryState.OPEN:
        # Whoever finds it open finds one of the two, whole.
        meta, contents = await world.store.read(identity.agent_id, epoch=meta.epoch, deadline=NEVER)
        left = {old: "old", new: "new"}[digest(contents)]
        assert (meta.epoch == epoch) == (left == "new")
        return left
    holder = WorkingMemory(world.store, meta)
    for call in (holder.get("text"), holder.set("text", "x"), holder.items(), holder.list("list").append("x")):
        with pytest.raises(NotOpen, match="is being restored"):
            await call
    with pytest.raises(NotOpen):
        await world.store.open(identity, meta.epoch, deadline=NEVER)
    return "restoring"


@pytest.mark.spec("CK-23")
@pytest.mark.parametrize("kills", [25, pytest.param(1_000, marks=pytest.mark.chaos)])
async def test_a_restorer_killed_at_any_step(world: World, restorer: Restorer, kills: int) -> None:
    """Before and after each of its scripts, again and again: the next recovery never takes remains for a memory."""
    identity, left = somebody(), Counter[str]()
    standing = content(0)
    await world.store.restore(identity, standing, digest(standing), 1, 1, deadline=NEVER)
    epoch = 1
    for number in range(1, kills + 1):
        wanted, epoch = content(number), epoch + 1
        ended = await restorer.run_once(identity, wanted, epoch, number % STEPS + 1)
        assert ended == -signal.SIGKILL
        what = await found_after(world, identity, digest(standing), digest(wanted), epoch)
        left[what] += 1
        # The next recovery, which holds a later epoch, goes on from any of them.
        if what != "old":
            epoch += 1
            await world.store.restore(identity, wanted, digest(wanted), epoch, epoch, deadline=NEVER)
            standing = wanted
        await world.store.verify(identity.agent_id, digest(standing), key_count=len(standing), deadline=NEVER)
    assert left.total() == kills
    # One step is before anything was sent, one after everything was done; the rest leaves remains.
    assert left["old"] >= kills // STEPS
    assert left["new"] >= kills // STEPS
    assert left["restoring"] >= kills // 2
    assert await restorer.run_once(identity, standing, epoch + 1, 0) == 0


@pytest.mark.spec("CK-23")
@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.chaos)])
async def test_a_server_killed_under_a_restorer(harsh: World, server: OwnServer, kills: int) -> None:
    """At any moment, its file cut off wherever it was: after its restart there is the old, the new, or remains."""
    # So that what it acknowledged is what is expected of it.
    server.settings = ("appendfsync always",)
    harsh.bare.config_set("appendfsync", "always")
    identity, left, chance = somebody(), Counter[str](), random.Random(11)
    standing, epoch, took_s = content(0, LEAVES), 1, 0.0
    await harsh.store.restore(identity, standing, digest(standing), 1, 1, deadline=NEVER)

    def kill(after_s: float) -> None:
        time.sleep(after_s)  # In a thread: the loop is busy with what is killed.
        server.kill()

    for number in range(1, kills + 1):
        wanted, epoch = content(number, LEAVES), epoch + 1
        killing = asyncio.create_task(asyncio.to_thread(kill, took_s * chance.random() * 1.2))
        restoring = asyncio.create_task(
            harsh.store.restore(identity, wanted, digest(wanted), epoch, epoch, deadline=NEVER)
        )
        await killing
        ended = (await asyncio.gather(restoring, return_exceptions=True))[0]
        assert not isinstance(ended, BaseException) or isinstance(ended, ValkeyUnavailable | OutcomeUnknown), ended
        server.start()
        what = await found_after(harsh, identity, digest(standing), digest(wanted), epoch)
        if not isinstance(ended, BaseException):
            assert what == "new"
        left[what] += 1
        epoch, begun = epoch + 1, time.monotonic()
        await harsh.store.restore(identity, wanted, digest(wanted), epoch, epoch, deadline=NEVER)
        standing, took_s = wanted, time.monotonic() - begun
    assert left.total() == kills
    assert len(left) >= 2, left
