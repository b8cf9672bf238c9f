"""
Disks that are really full, of servers of the test's own, while agents save and analyses are paused.

What was acknowledged is there when there is room again, and of what was refused there is nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis.exceptions
from pydantic import SecretStr

from imem.cache.working.document import contents_of, digest
from imem.checkpoints.metrics import SAVE_ERRORS
from imem.checkpoints.model import AgentLease, Checkpoint
from imem.journal.errors import BudgetExceeded, ImemError, PostgresUnavailable, StatementRejected, StoreUnavailable
from imem.journal.postgres.migrations import migrate
from imem.local.supervisor import LocalStack
from tests.cache.working.servers import OwnServer, own_server
from tests.conftest import settings_for
from tests.counting import total
from tests.disks import files_limited, fill, may_mount, own_disk, small_disk
from tests.servers import cloned

from .test_outage import at_once
from .world import PERSON, World, close_world, make_world, soon

MEGABYTES = 200
"""How large the disk of Postgres is: an empty one of ours takes a third."""

ROOM = 4_000_000
"""How many bytes are left on it before agents save."""

LONGEST_FILE = 18 * 1024 * 1024 + 4096
"""How long a file of Postgres may get where there is no such disk, in bytes: a little more than one of its log has."""

LARGE = "x" * 700_000
"""What each agent knows: it is stored as it is."""


class Postgres:
    """
    A server whose disk fills up.

    Attributes:
        stack: it runs in.
        disk: its own, where this user may mount one; elsewhere its files have a limit, until it is started again.
    """

    def __init__(self, stack: LocalStack, disk: Path | None) -> None:
        self.stack = stack
        self.disk = disk

    def fill(self, world: World) -> None:
        """Leave little room, and that for rows: the log has a file of its own size already."""
        world.owner("CHECKPOINT")
        world.owner("SELECT pg_switch_wal()")
        if self.disk is not None:
            fill(self.disk, leave=ROOM)

    def kill(self) -> None:
        """Kill it; the supervisor starts it again, as often as it takes."""
        pid = self.stack.state.children["postgres"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def make_room(self) -> None:
        if self.disk is not None:
            (self.disk / "ballast").unlink()


@contextmanager
def own_postgres(home: Path) -> Iterator[Postgres]:
    """Lend a Postgres of the test's own."""
    stack = LocalStack(settings_for(home), servers={"postgres"}, workers=False)
    if may_mount():
        with small_disk(home / "postgres", MEGABYTES) as disk, stack:
            yield Postgres(stack, disk)
        return
    with files_limited(LONGEST_FILE):
        stack.start()
    try:
        yield Postgres(stack, None)
    finally:
        stack.stop()


@contextmanager
def own_memories() -> Iterator[Any]:
    """Lend settings with a working and a durable server of the test's own."""
    with (
        TemporaryDirectory(prefix="imem-own-") as one,
        TemporaryDirectory(prefix="imem-own-") as two,
        own_server(Path(one)) as working,
        own_server(Path(two)) as durable,
    ):
        yield SimpleNamespace(valkey_working_url=SecretStr(working.url), valkey_durable_url=SecretStr(durable.url))


async def begun(world: World, count: int) -> dict[str, AgentLease]:
    """Have so many analyses of one agent each, which knows much and has completed nothing."""
    leases = {}
    for number in range(count):
        name = f"a-{number}"
        leases[name] = await world.begin(name, stock_id=f"company:{name}", done=0)
        await world.write(leases[name], {"large": LARGE})
    return leases


async def save_until_full(world: World, leases: dict[str, AgentLease]) -> tuple[list[Checkpoint], list[ImemError]]:
    """Complete subtask after subtask until five saves were refused; return what was saved, and why those were not."""
    saved: list[Checkpoint] = []
    refused: list[ImemError] = []
    for subtask in world.definitions.of_type("business_research").names:
        for lease in leases.values():
            try:
                saved.append(await world.complete(lease, subtask))
            except ImemError as error:
                refused.append(error)
                if len(refused) == 5:
                    return saved, refused
    raise AssertionError(f"{len(saved)} saves, and the disk is not full")


async def settled(world: World, *, since: str = "") -> None:
    """Let managers do their rounds until nothing is under way on a server started after *since*; it may yet start."""
    async with asyncio.timeout(120):
        while True:
            try:
                await world.manager.round(deadline=soon(2_000))
                at_once(world)
                under_way = await world.rows("SELECT FROM workflow.paused_analyses WHERE status = 'PAUSING'")
                if not under_way and await started(world) != since:
                    return
            except (ImemError, OSError, psycopg.OperationalError):
                await asyncio.sleep(0.05)


async def started(world: World) -> str:
    """Return when the server was started."""
    return str((await world.rows("SELECT pg_postmaster_start_time() AS at"))[0]["at"])


async def nothing_half_written(world: World) -> dict[str, list[int]]:
    """Return the seqs of every analysis: without gaps, every memory what its digest says, alerts with their pauses."""
    found = await world.rows("SELECT analysis_id, id, seq FROM workflow.agent_checkpoints ORDER BY analysis_id, seq")
    seqs: dict[str, list[int]] = {}
    for row in found:
        seqs.setdefault(row["analysis_id"], []).append(row["seq"])
        whole = await world.checkpoints.get(row["id"], deadline=soon())
        assert whole is not None
        if whole.working_memory_hash is not None:
            assert digest(contents_of(whole.working_memory)) == whole.working_memory_hash
    assert all(numbers == list(range(len(numbers))) for numbers in seqs.values()), seqs
    alerts = await world.rows("SELECT about FROM workflow.alert WHERE kind = 'ANALYSIS_PAUSED'")
    pauses = await world.rows("SELECT id FROM workflow.paused_analyses")
    assert sorted(row["about"] for row in alerts) == sorted(row["id"] for row in pauses)
    return seqs


@pytest.mark.spec("CK-1", "CK-33", "CK-41")
async def test_postgres_on_a_full_disk(home: Path) -> None:
    """
    Saves are refused with a reason and pauses wait, while reads go on; killed, it does not even start.

    With room it comes back with everything that was acknowledged, and both go on.
    """
    with own_postgres(home) as postgres, own_memories() as settings:
        found = postgres.stack.settings
        assert found.postgres_url is not None
        assert found.postgres_admin_url is not None
        url, admin = found.postgres_url.get_secret_value(), found.postgres_admin_url.get_secret_value()
        migrate(admin, application_role=urlsplit(url).username)
        world = make_world(settings, url, admin)
        leases = await begun(world, 8)
        await world.release(leases.pop("a-0"))
        postgres.fill(world)

        saved, refused = await save_until_full(world, leases)
        if postgres.disk is not None:
            assert {(type(error), error.retryable) for error in refused} == {(PostgresUnavailable, True)}
            assert {error.message for error in refused} == {"Postgres has no disk space left."}
        else:
            # The kernel's other number, which Postgres has no code of its own for.
            assert {type(error) for error in refused} <= {PostgresUnavailable, StatementRejected}
        await all_there(world, saved)
        paused = await order(world, "a-0")
        # Where a file has its limit, what the refused saves left in it may be used again meanwhile.
        assert await statuses(world) in ([], ["PAUSING"], *([["PAUSED"]] if postgres.disk is None else ()))
        before = await started(world)
        postgres.kill()
        if postgres.disk is not None:
            await until_refused(world)
        postgres.make_room()
        await settled(world, since=before)

        await all_there(world, saved)
        seqs = await nothing_half_written(world)
        assert await statuses(world) in ([["PAUSED"]] if paused else [[], ["PAUSED"]])
        following = world.definitions.of_type("business_research").names[len(seqs["a-7"]) - 1]
        assert (await world.complete(leases["a-7"], following)).seq == len(seqs["a-7"])
        await close_world(world)


async def statuses(world: World) -> list[str]:
    return [row["status"] for row in await world.rows("SELECT status FROM workflow.paused_analyses")]


async def until_refused(world: World) -> None:
    """Wait until the last of a killed server's processes has gone: every call is refused with a reason."""
    async with asyncio.timeout(60):
        while True:
            try:
                await world.checkpoints.load("a-0", "business_research", deadline=soon(300))
            except (StoreUnavailable, BudgetExceeded):
                return


async def all_there(world: World, saved: list[Checkpoint]) -> None:
    """Every save that was acknowledged can be read, and is what was saved."""
    assert saved
    for one in saved:
        found = await world.checkpoints.get(one.id, deadline=soon())
        assert found is not None
        assert (found.seq, found.working_memory_hash) == (one.seq, one.working_memory_hash)
        assert digest(contents_of(found.working_memory)) == one.working_memory_hash


async def order(world: World, analysis_id: str) -> bool:
    """Order a pause; return whether that was acknowledged. Nobody has to have carried it out."""
    try:
        result = await world.pauses.pause_analysis(analysis_id, "Now.", by=PERSON, deadline=soon(3_000))
    except ImemError:
        return False
    return result.status in {"PAUSING", "PAUSED"}


@pytest.mark.spec("CK-1", "CK-34")
async def test_the_durable_server_on_a_full_disk(light_stack: Any, light_template: str, tmp_path: Path) -> None:
    """Saves stand in Postgres and are counted; a pause waits for its second proof, says why, and ends with room."""
    with (
        TemporaryDirectory(prefix="imem-own-") as one,
        own_server(Path(one)) as working,
        own_disk(tmp_path / "disk", 16) as disk,
        own_server(disk.folder) as durable,
        cloned(light_stack.settings, light_template) as (url, admin),
    ):
        world = make_world(
            SimpleNamespace(valkey_working_url=SecretStr(working.url), valkey_durable_url=SecretStr(durable.url)),
            url,
            admin,
        )
        lease = await world.begin("a-1", done=1)
        disk.fill(durable.pid)
        make_full(durable)
        before = total(SAVE_ERRORS, store="durable")

        saved = await world.complete(lease, world.definitions.of_type("business_research").names[1])

        assert total(SAVE_ERRORS, store="durable") == before + 1
        latest = await world.checkpoints.load("a-1", "business_research", deadline=soon())
        assert latest is not None
        assert (latest.id, latest.working_memory_hash) == (saved.id, saved.working_memory_hash)
        await world.release(lease)
        assert await order(world, "a-1")
        row = await world.pause_row("a-1")
        assert (row["status"], row["step"]) == ("PAUSING", 3)
        assert row["last_trouble"].startswith("The durable Valkey cannot write to its disk.")

        disk.make_room(durable.pid)
        await settled(world)

        assert (await world.pause_row("a-1"))["status"] == "PAUSED"
        assert len(await world.rows("SELECT FROM workflow.agent_checkpoints WHERE kind = 'pause'")) == 1
        assert await world.snapshots.get(lease.agent_id, deadline=soon()) is not None
        await close_world(world)


def make_full(server: OwnServer) -> None:
    """Write until the server says that it cannot: it learns so from a write of its own."""
    with server.bare() as bare, suppress(redis.exceptions.ResponseError):
        for number in range(10_000):
            bare.set(f"ballast:{number}", "x" * 1_000)
        pytest.fail("it can write all the same")
