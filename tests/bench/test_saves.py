"""The commit of a checkpoint beside LangGraph's own saver for Postgres: same server, same content, in turns."""

from __future__ import annotations

import time
from typing import Any, Final
from uuid import uuid4

import pytest

from imem.cache.working.document import Contents, MemoryEntry, Type, digest, document_of
from imem.checkpoints.leases import Leases
from imem.checkpoints.model import CheckpointKind
from imem.checkpoints.orchestration.definitions import AgentDefinition, Definitions, Subtask
from imem.checkpoints.store import Checkpoints
from imem.journal.postgres.database import Database
from tests.bench.peers import Runner, peer_on, words
from tests.bench.table import Figure, Table, percentile
from tests.checkpoints.conftest import soon
from tests.servers import cloned

pytestmark = pytest.mark.bench

SIZES: Final = {"1 kB": 1_000, "100 kB": 100_000}
ROUNDS: Final = {"full": 100, "tiny": 10}
"""Analyses, and threads of the peer's."""

WARM: Final = 5
"""Rounds before that."""

BAR: Final = 1.2
"""How much slower than the peer the commit may be at p95."""

NAMES: Final = ("one", "two", "three", "four")
"""Subtasks of an analysis, and steps of a thread."""

STEPS: Final = Definitions.of([AgentDefinition(agent_type="stepper", subtasks=tuple(Subtask(name=n) for n in NAMES))])


def remembered(size: int, salt: int) -> Contents:
    """Return a memory of as many bytes as the peer's messages, one text for each message."""
    messages = words(size, salt)
    return {
        f"message {n}".encode(): MemoryEntry(Type.STRING, (one["content"].encode(),), 0)
        for n, one in enumerate(messages)
    }


@pytest.mark.parametrize("data", SIZES)
async def test_a_commit_beside_langgraphs_own_saver(
    light_stack: Any, light_template: str, table: Table, data: str
) -> None:
    """With lease, epoch, order and digest checked in it; both have one connection and every commit on disk."""
    taken_ms: dict[str, list[float]] = {"ours": [], "peer": []}
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        database = Database(url, size=1)
        leases, checkpoints = Leases(database, STEPS), Checkpoints(database, STEPS)
        async with peer_on(admin_url) as peer:
            for turn in range(WARM + ROUNDS[table.scale]):
                runner = Runner(peer, SIZES[data])
                lease = await leases.acquire(
                    analysis_id=f"analysis:{uuid4()}", agent_type="stepper", agent_id=uuid4().hex,
                    subject_id="company:MU", holder="bench", owner="bench", deadline=soon(),
                )  # fmt: skip
                for n, name in enumerate(NAMES):
                    for who in ("ours", "peer") if (turn + n) % 2 else ("peer", "ours"):
                        if who == "peer":
                            await runner.step(n)
                            continue
                        contents = remembered(SIZES[data], turn * len(NAMES) + n)
                        document, its = document_of(contents), digest(contents)
                        begun = time.perf_counter()
                        await checkpoints.save(
                            lease,
                            kind=CheckpointKind.SUBTASK,
                            subtask=name,
                            document=document,
                            digest=its,
                            deadline=soon(),
                        )
                        if turn >= WARM:
                            taken_ms["ours"].append((time.perf_counter() - begun) * 1000)
                if turn >= WARM:
                    taken_ms["peer"] += runner.taken_ms["aput"]
        await database.close()
    note = "from the call until Postgres has committed, without the copy in Valkey; floor: AsyncPostgresSaver.aput"
    figures = []
    for share, label in ((0.5, "p50"), (0.95, "p95")):
        mine, floor = (percentile(taken, share) for taken in taken_ms.values())
        bar = BAR * floor if label == "p95" else None
        figures.append(
            Figure(
                name=f"commit of a checkpoint {label}",
                data=data,
                value=mine,
                unit="ms",
                floor=floor,
                bar=bar,
                note=note,
            )
        )
    table.add(*figures)
