"""Pauses put together: one set of parts over a process's connections, for a worker, the command line, or a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from imem.cache.client import Client
from imem.checkpoints.cleanup import Cleanup
from imem.checkpoints.incidents.reports import Incidents
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.orchestration.orchestrator import CeleryOrchestrator, Orchestrator, Send
from imem.checkpoints.orchestration.runner import Runner
from imem.checkpoints.pauses.batch_runs import Batches, Capacity
from imem.checkpoints.pauses.gate_memory import Gates
from imem.checkpoints.pauses.manager import Manager
from imem.checkpoints.pauses.orders import Pauses
from imem.checkpoints.pauses.saga import Saga, Stores
from imem.checkpoints.recovery import Recovery
from imem.checkpoints.session import Desk
from imem.journal.clock import Clock, SystemClock
from imem.journal.postgres.database import Database


@dataclass(frozen=True, slots=True)
class Pausing:
    """
    Everything that pauses are made of.

    Attributes:
        pauses, batches: the orders.
        incidents: failures.
        saga, manager: what carries them out.
        orchestrator, runner: what starts agents, and runs them.
        stores: what all of it works on.
    """

    pauses: Pauses
    batches: Batches
    incidents: Incidents
    saga: Saga
    manager: Manager
    orchestrator: CeleryOrchestrator
    runner: Runner
    stores: Stores


def assemble(
    database: Database,
    working: Client,
    durable: Client,
    definitions: Definitions,
    send: Send,
    *,
    cache: Client | None = None,
    recovery: Recovery | None = None,
    orchestrator: Orchestrator | None = None,
    cleanup: Cleanup | None = None,
    capacity: Capacity | None = None,
    clock: Clock | None = None,
    tools: Any = None,
) -> Pausing:
    """
    Put the parts together.

    Args:
        working, durable: the two Valkeys.
        cache: the shared cache, if there is one.
        send: puts the message that starts an agent on its way.
        recovery: how memories are brought back.
        orchestrator: who starts agents instead of Celery.
        cleanup: ends analyses all of whose agents have completed; without, somebody else does.
        capacity: whether there is room for one more resume.
        tools: lent to the programs of agents.
    """
    clock = clock or SystemClock()
    desk = Desk.over(database, working, durable, definitions, clock, cache=cache, recovery=recovery)
    celery = CeleryOrchestrator(database, definitions, send)
    stores = Stores(
        database,
        desk.leases,
        desk.checkpoints,
        desk.working,
        desk.snapshots,
        definitions,
        orchestrator or celery,
        desk.recovery,
        clock,
    )
    saga = Saga(stores)
    graph = {name: definition.after for name, definition in definitions.agents.items()}
    pauses = Pauses(database, graph, saga)
    incidents = Incidents(database)
    batches = Batches(database, pauses, graph, saga, capacity)
    gates = Gates(database, desk.working, desk.snapshots, clock)
    return Pausing(
        pauses=pauses,
        batches=batches,
        incidents=incidents,
        saga=saga,
        manager=Manager(database, saga, incidents, batches, gates=gates, cleanup=cleanup),
        orchestrator=celery,
        runner=Runner(celery, desk, pauses, incidents, tools),
        stores=stores,
    )
