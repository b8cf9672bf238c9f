"""Assembly of pausing over one process's connections, for a worker, the command line, or a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from imem.cache.client import Client
from imem.checkpoints.cleanup import Cleanup
from imem.checkpoints.incidents.reports import Incidents
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.orchestration.orchestrator import CeleryOrchestrator, Send
from imem.checkpoints.orchestration.runner import AgentRunner
from imem.checkpoints.pauses.batch_runs import BatchRuns, Capacity
from imem.checkpoints.pauses.gate_memory import GateMemories
from imem.checkpoints.pauses.manager import PauseManager
from imem.checkpoints.pauses.pause_service import PauseService
from imem.checkpoints.pauses.saga import Saga, SagaStores
from imem.checkpoints.recovery import Recovery
from imem.checkpoints.session import SessionFactory
from imem.journal.clock import Clock, MachineClock
from imem.journal.postgres.database import Database


@dataclass(frozen=True, slots=True)
class PauseServices:
    """
    The components of pausing.

    Attributes:
        pauses, batches: requests.
        incidents: failures.
        saga, manager: carry requests out.
        orchestrator, runner: start agents, and run them.
        stores: shared by all of them.
    """

    pauses: PauseService
    batches: BatchRuns
    incidents: Incidents
    saga: Saga
    manager: PauseManager
    orchestrator: CeleryOrchestrator
    runner: AgentRunner
    stores: SagaStores


def assemble(
    database: Database,
    working: Client,
    durable: Client,
    definitions: Definitions,
    send: Send,
    *,
    cache: Client | None = None,
    recovery: Recovery | None = None,
    cleanup: Cleanup | None = None,
    capacity: Capacity | None = None,
    clock: Clock | None = None,
    tools: Any = None,
) -> PauseServices:
    """
    Assemble the components.

    Args:
        working, durable: the two Valkeys.
        cache: the shared cache, if there is one.
        send: sends the message that starts an agent.
        recovery: recovers memories.
        cleanup: ends analyses whose agents have all completed; without it, the manager does not end them.
        capacity: decides whether one more resume may start.
        tools: passed to the programs of agents.
    """
    clock = clock or MachineClock()
    session_factory = SessionFactory.over(
        database, working, durable, definitions, clock, cache=cache, recovery=recovery
    )
    celery = CeleryOrchestrator(database, definitions, send)
    stores = SagaStores(
        database,
        session_factory.leases,
        session_factory.checkpoints,
        session_factory.working,
        session_factory.snapshots,
        definitions,
        celery,
        session_factory.recovery,
        clock,
    )
    saga = Saga(stores)
    graph = {name: definition.after for name, definition in definitions.agents.items()}
    pauses = PauseService(database, graph, saga)
    incidents = Incidents(database)
    batches = BatchRuns(database, pauses, graph, saga, capacity)
    gates = GateMemories(database, session_factory.working, session_factory.snapshots, clock)
    return PauseServices(
        pauses=pauses,
        batches=batches,
        incidents=incidents,
        saga=saga,
        manager=PauseManager(database, saga, incidents, batches, gates=gates, cleanup=cleanup),
        orchestrator=celery,
        runner=AgentRunner(celery, session_factory, incidents, tools),
        stores=stores,
    )
