"""Writers with an epoch are fenced, writers without one are not: forks stay possible."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from imem.journal.errors import BadInput, StaleEpoch
from imem.langgraph import ImemSaver
from tests.checkpoints.langgraph.conftest import Base, chain, checkpoint, config, listed, metadata, thread

TIMEOUT_S = 30.0

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
"""Who waits for another transaction."""


def leased(base: Base, epoch: int) -> tuple[str, str]:
    """Make a lease as if an agent of an analysis had taken it that often."""
    analysis_id, agent_id = f"a-{uuid4()}", f"i-{uuid4()}"
    base.rows(
        "INSERT INTO workflow.analysis (analysis_id, subject_id, began_at) VALUES (%s, 'company:MU', now())",
        analysis_id,
    )
    base.rows(
        "INSERT INTO workflow.agent_instance (agent_id, analysis_id, agent_type, owner, opened_at) "
        "VALUES (%s, %s, 'screening', 'me', now())",
        agent_id,
        analysis_id,
    )
    base.rows(
        "INSERT INTO workflow.agent_leases (analysis_id, agent_type, agent_id, holder, epoch, expires_at) "
        "VALUES (%s, 'screening', %s, 'me', %s, now() + interval '30 seconds')",
        analysis_id,
        agent_id,
        epoch,
    )
    return analysis_id, "screening"


def take_over(base: Base, lease: tuple[str, str]) -> None:
    base.rows("UPDATE workflow.agent_leases SET epoch = epoch + 1 WHERE (analysis_id, agent_type) = (%s, %s)", *lease)


async def test_a_thread_takes_nothing_below_its_highest_epoch(either: Any, base: Base) -> None:
    """Neither checkpoints nor writes, and nothing of what was refused is left."""
    thread_id = thread()
    stored = await chain(either, thread_id, 1, imem_epoch=1)
    later = await chain(either, thread_id, 1, imem_epoch=2)
    before = base.count(thread_id)
    stale = config(thread_id, stored[0]["configurable"]["checkpoint_id"], imem_epoch=1)

    with pytest.raises(StaleEpoch, match="since epoch 1"):
        await either.aput(stale, checkpoint({"a": ["1"]}), metadata(), {"a": "1"})
    with pytest.raises(StaleEpoch):
        await either.aput_writes(stale, [("a", 1)], "task")

    assert base.count(thread_id) == before
    assert (await either.aget_tuple(config(thread_id))).config == later[0]


async def test_a_fork_needs_no_epoch(either: Any) -> None:
    """Whoever goes on from an old state by hand is nobody's straggler."""
    thread_id = thread()
    stored = await chain(either, thread_id, 2, imem_epoch=5)

    fork = await either.aput(stored[0], checkpoint({"fork": True}), metadata(), {"fork": "1"})

    assert (await either.aget_tuple(config(thread_id))).config == fork


async def test_the_lease_of_an_agent_fences(either: Any, base: Base) -> None:
    thread_id, lease = thread(), leased(base, 3)
    stored = await chain(either, thread_id, 1, imem_epoch=3, imem_lease=lease)
    await either.aput_writes(config(thread_id, stored[0]["configurable"]["checkpoint_id"]), [("a", 1)], "task")

    take_over(base, lease)

    where = config(thread_id, stored[0]["configurable"]["checkpoint_id"], imem_epoch=3, imem_lease=list(lease))
    with pytest.raises(StaleEpoch):
        await either.aput(where, checkpoint(), metadata(), {})
    with pytest.raises(StaleEpoch):
        await either.aput_writes(where, [("a", 1)], "task")
    assert len(await listed(either, config(thread_id))) == 1
    await chain(either, thread_id, 1, imem_epoch=4, imem_lease=lease)


@pytest.mark.parametrize(("epoch", "known"), [(9, True), (3, False)], ids=["never given", "no such lease"])
async def test_an_epoch_that_no_lease_gave_is_refused(either: Any, base: Base, epoch: int, *, known: bool) -> None:
    lease = leased(base, 3) if known else ("a-none", "screening")

    with pytest.raises(BadInput, match="no lease of that name has had the epoch"):
        await chain(either, thread(), 1, imem_epoch=epoch, imem_lease=lease)


@pytest.mark.parametrize("by", ["lease", "thread"])
async def test_who_takes_over_waits_for_a_write_under_way(base: Base, asaver: ImemSaver, by: str) -> None:
    """Either it is stored before the epoch rises, or it is refused: nothing in between."""
    thread_id, lease = thread(), leased(base, 1)
    fence: dict[str, Any] = {"imem_epoch": 1, **({"imem_lease": lease} if by == "lease" else {})}
    [first] = await chain(asaver, thread_id, 1, **fence)
    raising = {
        "lease": ("UPDATE workflow.agent_leases SET epoch = 2 WHERE analysis_id = %s", lease[0]),
        "thread": ("UPDATE langgraph.thread_epoch SET epoch = 2 WHERE thread_id = %s", thread_id),
    }[by]

    async with await psycopg.AsyncConnection.connect(base.admin_url) as rival:
        await rival.execute(raising[0], raising[1:])
        where = config(thread_id, first["configurable"]["checkpoint_id"], **fence)
        writing = asyncio.create_task(asaver.aput(where, checkpoint(), metadata(1), {}))
        async with asyncio.timeout(TIMEOUT_S):
            while not base.rows(WAITING):  # noqa: ASYNC110 - the server has no event of ours
                await asyncio.sleep(0)
        assert not writing.done()
        await rival.commit()

    with pytest.raises(StaleEpoch):
        await writing
    assert len(await listed(asaver, config(thread_id))) == 1


@pytest.mark.parametrize("by", ["lease", "thread"])
async def test_a_write_under_way_holds_up_who_takes_over(base: Base, asaver: ImemSaver, by: str) -> None:
    """The epoch that it has seen does not rise before it is stored."""
    thread_id, lease = thread(), leased(base, 1)
    await chain(asaver, thread_id, 1, imem_epoch=1)
    given = lease if by == "lease" else (None, None)

    async with (
        await psycopg.AsyncConnection.connect(base.url) as writing,
        await psycopg.AsyncConnection.connect(base.admin_url) as rival,
    ):
        cursor = await writing.execute("SELECT langgraph.fence_v1(%s, 1, %s, %s)", (thread_id, *given))
        assert await cursor.fetchone() == ("open",)
        taking = asyncio.create_task(
            rival.execute("UPDATE workflow.agent_leases SET epoch = 2 WHERE analysis_id = %s", (lease[0],))
            if by == "lease"
            else rival.execute("SELECT langgraph.fence_v1(%s, 2, NULL, NULL)", (thread_id,))
        )
        async with asyncio.timeout(TIMEOUT_S):
            while not base.rows(WAITING):  # noqa: ASYNC110 - the server has no event of ours
                await asyncio.sleep(0)
        assert not taking.done()
        await writing.commit()
        await taking
        await rival.rollback()
