"""An agent at work, for the tests of recovery: whose memory is told apart by a digest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from imem.cache.working.document import digest
from imem.cache.working.state import MemoryIdentity
from imem.checkpoints.incidents.recovery_alerts import RecoveryAlerts
from imem.checkpoints.model import Checkpoint
from imem.checkpoints.orchestration.definitions import AgentDefinition, Definitions, Subtask
from imem.checkpoints.recovery import Recovery, RecoveryTier
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


class Alarms(RecoveryAlerts):
    """Notes what it is told, once for each checkpoint, as the real one does."""

    def __init__(self) -> None:
        self.told: dict[str, Mapping[RecoveryTier, str]] = {}

    async def unrecoverable(
        self,
        checkpoint: Checkpoint,
        reasons: Mapping[RecoveryTier, str],
        *,
        deadline: Deadline,
        conn: Connection | None = None,
    ) -> None:
        assert conn is None
        assert not deadline.passed
        self.told.setdefault(str(checkpoint.id), dict(reasons))


def desk_of(
    world: World, alarms: Alarms | None = None, migrations: CheckpointMigrations = MIGRATIONS
) -> SessionFactory:
    """Return what sessions work with, upon the stores of *world*."""
    delivery = ResultDelivery(world.database, world.definitions, SystemClock(), world.cache)
    recovery = Recovery(
        world.checkpoints, world.memories, world.snapshots, world.definitions, alarms or Alarms(), results=delivery,
        migrations=migrations, metrics=world.metrics,
    )  # fmt: skip
    return SessionFactory(
        world.leases, world.checkpoints, world.memories, world.snapshots, recovery, delivery, SystemClock(),
        world.metrics,
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
