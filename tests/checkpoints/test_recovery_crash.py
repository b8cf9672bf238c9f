"""Recovery when servers and processes are killed in earnest."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from imem.checkpoints.recovery import RecoveryTier
from imem.checkpoints.session import Session
from imem.journal.errors import BudgetExceeded, ImemError, NotOpen, OutcomeUnknown, ValkeyUnavailable
from imem.journal.postgres.migrations import migrate
from imem.local import supervisor
from imem.local.supervisor import LocalStack
from tests.checkpoints.conftest import World, opened, soon
from tests.checkpoints.recovering import READERS, desk_of, names, work
from tests.conftest import settings_for, temporary_home

TIMEOUT_S = 60.0
ROUNDS = [5, pytest.param(100, marks=pytest.mark.chaos)]
"""How often the server is killed."""


@pytest.fixture(scope="module")
def own() -> Iterator[LocalStack]:
    """Give servers of our own, to be killed at will: their supervisor does not wait longer each time."""
    with (
        pytest.MonkeyPatch.context() as patch,
        temporary_home() as home,
        LocalStack(settings_for(home), servers={"postgres", "valkey"}, workers=False) as stack,
    ):
        patch.setattr(supervisor, "LONGEST_DELAY_S", supervisor.FIRST_DELAY_S)
        assert stack.settings.postgres_url is not None
        assert stack.settings.postgres_admin_url is not None
        role = urlsplit(stack.settings.postgres_url.get_secret_value()).username
        migrate(stack.settings.postgres_admin_url.get_secret_value(), application_role=role)
        yield stack


@pytest_asyncio.fixture
async def reader(own: LocalStack) -> AsyncIterator[World]:
    given: Any = own.settings
    url, admin = (getattr(given, name).get_secret_value() for name in ("postgres_url", "postgres_admin_url"))
    async with opened(given, url, admin) as world:
        yield replace(world, definitions=READERS)


def kill(own: LocalStack, name: str) -> None:
    pid = own.state.children[name].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def begun_again(world: World, work_on: Any) -> Any:
    """Begin a session as soon as the servers let one, and return what *work_on* makes of it."""
    over = time.monotonic() + TIMEOUT_S
    while True:
        try:
            async with desk_of(world).begin(**names(world)) as session:
                return await work_on(session)
        except (ValkeyUnavailable, BudgetExceeded, OutcomeUnknown):
            assert time.monotonic() < over, "the server did not come back"
            await asyncio.sleep(0.05)


async def write_on(session: Session) -> None:
    """Write until something goes wrong."""
    for number in range(100_000):
        await session.memory.set("count", str(number))


@pytest.mark.spec("CK-30")
@pytest.mark.parametrize("rounds", ROUNDS)
async def test_the_server_of_working_memory_is_killed_in_the_middle_of_a_subtask(
    own: LocalStack, reader: World, rounds: int
) -> None:
    """However often: what was completed is there with all it knew, and at most the subtask under way is done again."""
    done: list[str] = []

    async def until_killed(session: Session) -> str | None:
        subtask = session.current
        if subtask is None:
            return None
        await session.memory.set(f"{subtask}:half", "done")
        if len(killed) < rounds:
            killed.append(subtask)
            kill(own, "valkey-working")
            with pytest.raises(ImemError) as failed:
                await write_on(session)
            assert isinstance(failed.value, NotOpen | ValkeyUnavailable | OutcomeUnknown | BudgetExceeded)
            return subtask
        await work(session, subtask)
        done.append(subtask)
        return subtask

    killed: list[str] = []
    while (await begun_again(reader, until_killed)) is not None:
        pass

    assert len(killed) == rounds
    assert done == ["fetch", "read", "rate"], "each was completed once, and in order"
    async with desk_of(reader).begin(**names(reader)) as session:
        assert session.recovered.tier in {RecoveryTier.LIVE, RecoveryTier.SECONDARY}
        known = await session.memory.items(raw=True)
    assert {name.partition(":")[0] for name in known} >= {"fetch", "read", "rate"}


async def test_both_valkeys_are_killed_and_the_row_is_enough(own: LocalStack, reader: World) -> None:
    """The snapshot and the memory are emptied as well: what was completed comes out of Postgres."""
    async with desk_of(reader).begin(**names(reader)) as session:
        await work(session, "fetch")
        before = await session.memory.items(raw=True)
        await reader.memories.clear(session.lease.agent_id, session.lease.epoch, deadline=soon())
        await reader.snapshots.drop(session.lease.agent_id, deadline=soon())
    for name in ("valkey-working", "valkey-durable"):
        kill(own, name)

    async def look(session: Session) -> tuple[RecoveryTier, dict[str, Any]]:
        return session.recovered.tier, await session.memory.items(raw=True)

    tier, after = await begun_again(reader, look)

    assert tier is RecoveryTier.POSTGRES
    assert after == before
