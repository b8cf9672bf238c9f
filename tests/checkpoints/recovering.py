"""An agent at work, for the tests of recovery: whose memory is told apart by a digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from imem.cache.working.document import digest
from imem.cache.working.state import MemoryIdentity
from imem.checkpoints.model import Checkpoint
from imem.checkpoints.orchestration.definitions import AgentDefinition, Definitions, Subtask
from imem.checkpoints.recovery import Recovery, RecoveryTier, Unrecoverable
from imem.checkpoints.result_delivery import ResultDelivery
from imem.checkpoints.session import Session, SessionFactory
from imem.checkpoints.versions import MIGRATIONS, CheckpointMigrations
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection
from tests.checkpoints.conftest import World, soon

READER = AgentDefinition(
    agent_type="reader",
    subtasks=(Subtask(name="fetch"), Subtask(name="read", reentrant=True), Subtask(name="rate")),
)
READERS = Definitions.of([READER])

WHO = {"agent_type": "reader", "subject_id": "company:MU", "owner": "ann"}


@dataclass
class Alarms:
    """The alerts that were raised: checkpoint → why."""

    told: dict[str, Mapping[RecoveryTier, str]] = field(default_factory=dict)


class Noted(Recovery):
    """A recovery that notes its alerts, once for each checkpoint, as the real one does."""

    alarms: Alarms

    async def raise_alert(self, nothing: Unrecoverable, *, deadline: Deadline, conn: Connection | None = None) -> None:
        assert conn is None
        assert not deadline.passed
        self.alarms.told.setdefault(str(nothing.checkpoint.id), dict(nothing.reasons))


def desk_of(
    world: World, alarms: Alarms | None = None, migrations: CheckpointMigrations = MIGRATIONS
) -> SessionFactory:
    """Return what sessions work with, upon the stores of *world*."""
    delivery = ResultDelivery(world.database, world.definitions, SystemClock(), world.cache)
    recovery = Noted(
        world.database, world.checkpoints, world.memories, world.snapshots, world.definitions, results=delivery,
        migrations=migrations,
    )  # fmt: skip
    recovery.alarms = alarms or Alarms()
    return SessionFactory(
        world.leases, world.checkpoints, world.memories, world.snapshots, recovery, delivery, SystemClock()
    )  # fmt: skip


def names(world: World) -> dict[str, Any]:
    """Return which agent of this test's analysis is meant."""
    return {"analysis_id": world.analysis, "agent_id": world.agent("reader"), **WHO}


def identity(world: World) -> MemoryIdentity:
    return MemoryIdentity(world.agent("reader"), world.analysis, "reader")


async def work(session: Session, subtask: str) -> Checkpoint:
    """Do a subtask: a memory of every type, and a checkpoint."""
    await session.memory.update(
        {
            f"{subtask}:note": "grüße\x01",
            f"{subtask}:raw": b"\x00\xff",
            f"{subtask}:list": ["a", "a", "b"],
            f"{subtask}:hash": {"k": "v"},
            f"{subtask}:set": {"x", "y"},
        }
    )
    return await session.complete(subtask)


async def known(world: World) -> str:
    """Return the digest of what stands in the working memory."""
    _, contents = await world.memories.read(world.agent("reader"), deadline=soon())
    return digest(contents)
