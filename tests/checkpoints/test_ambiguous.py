"""A connection cut just after a write was sent: nobody calls it failed or stored, and repeating it is harmless."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from imem.checkpoints.metrics import SAVE_ERRORS
from imem.checkpoints.model import CheckpointKind
from imem.checkpoints.orchestration.definitions import Location
from imem.journal.errors import OutcomeUnknown
from imem.journal.postgres.database import Database
from tests.counting import total
from tests.kg.projection.proxy import Proxy, proxied

from .conftest import World, soon


@asynccontextmanager
async def behind_a_proxy(world: World) -> AsyncIterator[tuple[World, Proxy]]:
    """Lend the same world, its Postgres reached by a proxy that a test may cut."""
    parts = urlsplit(world.url)
    assert parts.hostname is not None
    async with proxied(parts.hostname, parts.port or 5432) as proxy:
        credentials = parts.netloc.rpartition("@")[0]
        there = urlunsplit(parts._replace(netloc=f"{credentials}@127.0.0.1:{proxy.port}"))
        database = Database(there, size=2)
        try:
            yield replace(world, database=database), proxy
        finally:
            await database.close()


def cut_once(proxy: Proxy, mark: bytes) -> None:
    """Cut the next connection on which *mark* is sent; the server gets it, and nobody hears the answer."""
    cuts = proxy.cuts
    proxy.cut_on = lambda data: mark in data and proxy.cuts == cuts


async def test_a_save_whose_answer_is_lost_is_repeated_without_harm(world: World) -> None:
    """The one and only row, its id and its seq; the same for what comes after it."""
    lease = await world.acquire()
    async with behind_a_proxy(world) as (cut, proxy):
        cut_once(proxy, b"save_checkpoint_v1")
        with pytest.raises(OutcomeUnknown) as unknown:
            await cut.save(lease, "fetch", interim_results={"a": [1e17]})
        assert unknown.value.retryable
        (stands,) = [one for one in await world.checkpoints.history(world.analysis, deadline=soon()) if one.seq]

        again = await cut.save(lease, "fetch", interim_results={"a": [1e17]})

        assert (again.id, again.seq) == (stands.id, 1)
        assert await world.load() == again
        assert (await cut.save(lease, "parse")).seq == 2
        assert total(SAVE_ERRORS, store="postgres") == 1


@pytest.mark.parametrize("what", ["lease", "deliverable", "pause", "epochs", "step", "branch", "end"])
async def test_every_other_write_may_be_repeated_too(world: World, what: str) -> None:
    lease = await world.acquire()
    seq = (await world.workflows.save("w", "t", "s", 1, state_version=1, deadline=soon())).seq
    before = await counted(world)

    async def write(its: World) -> Any:
        match what:
            case "lease":
                return (await its.acquire("clerk")).epoch
            case "deliverable":
                return (await its.deliverables.store(lease, "fetch", [1], deadline=soon())).location
            case "pause":
                return (await its.save(lease, None, kind=CheckpointKind.PAUSE)).seq
            case "epochs":
                return [one.epoch for one in await its.leases.raise_epoch(its.analysis, deadline=soon())]
            case "step":
                await its.workflows.save("w", "t", "s2", 2, state_version=1, deadline=soon())
                return len(await its.steps())
            case "branch":
                await its.workflows.finish_branch("w", "t", seq, "a", 1, deadline=soon())
                return None
            case _:
                await its.fail("x")
                return None

    names = {
        "lease": b"acquire_lease_v1", "deliverable": b"deliver_v1", "pause": b"save_checkpoint_v1",
        "epochs": b"raise_epoch_v1", "step": b"save_step_v1", "branch": b"finish_branch_v1", "end": b"end_analysis_v1",
    }  # fmt: skip
    async with behind_a_proxy(world) as (cut, proxy):
        cut_once(proxy, names[what])
        with pytest.raises(OutcomeUnknown):
            await write(cut)
        once = await counted(world)

        answer = await write(cut)

        assert await counted(world) == once
        assert once != before
        expected = {
            "lease": 1, "deliverable": Location.POSTGRES, "pause": 1, "epochs": [2], "step": 2,
        }  # fmt: skip
        assert answer == expected.get(what)


async def counted(world: World) -> list[Any]:
    """Return what repeated writes would change: everything but the clock and the seq of a step saved anew."""
    rows = await world.rows(
        "SELECT (SELECT count(*) FROM workflow.agent_checkpoints) AS checkpoints, "
        "(SELECT array_agg(epoch ORDER BY agent_type) FROM workflow.agent_leases) AS epochs, "
        "(SELECT count(*) FROM workflow.agent_deliverable) AS deliverables, "
        "(SELECT count(*) FROM workflow.workflow_checkpoints) AS steps, "
        "(SELECT count(*) FROM workflow.workflow_pending_writes) AS branches, "
        "(SELECT array_agg((outcome, ended_at)::text) FROM workflow.analysis) AS ends"
    )
    return list(rows[0].values())


async def test_a_commit_whose_answer_is_lost_is_never_called_a_failure(world: World) -> None:
    """A transaction of several statements: its own COMMIT is what is on the way, and not one that comes later."""
    lease = await world.acquire()
    async with behind_a_proxy(world) as (cut, proxy):

        async def pause() -> None:
            async with cut.database.transaction(soon()) as conn:
                await cut.leases.raise_epoch(cut.analysis, deadline=soon(), conn=conn)
                cut_once(proxy, b"COMMIT")

        with pytest.raises(OutcomeUnknown):
            await pause()

    current = await world.lease_of("filer")
    assert current is not None
    assert current.epoch == lease.epoch + 1


async def test_a_server_that_says_that_it_gave_up_is_believed(world: World) -> None:
    """Its backend was ended before the statement was: nothing was written, and the call is tried again."""
    lease = await world.acquire()
    with psycopg.connect(world.admin_url) as holder:
        holder.execute("SELECT FROM workflow.agent_leases FOR UPDATE")
        saving = asyncio.create_task(world.save(lease, "fetch"))
        with psycopg.connect(world.admin_url, autocommit=True) as killer:
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' LIMIT 1"
            while not killer.execute(ended).fetchall():
                await asyncio.sleep(0)
                assert not saving.done()
    saved = await saving

    assert saved.seq == 1
    assert len(await world.checkpoints.history(world.analysis, deadline=soon())) == 2
