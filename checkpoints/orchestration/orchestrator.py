"""
Orchestration over Celery: starts the agents of an analysis.

Rows of ``workflow.agent_task`` hold the state of each agent; a message only says that an agent may be started. The
process that gets it checks the row, the pause and the parents in one statement, and starts the agent or drops the
message. So a message that is lost, late, or delivered twice does no harm: due rows are polled every few seconds, and
another message is sent.

No process is ever killed: an agent is asked to stop at its next safe point, and one that does not is fenced off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final

import structlog

from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.pauses.batches import startable
from imem.checkpoints.pauses.plan import Begin, Graph, Plan, ready, restricted
from imem.checkpoints.pauses.rows import audit, checked_id, lock_analysis
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, StoreUnavailable
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows

log = structlog.get_logger()

LOST_AFTER: Final = timedelta(seconds=20)
"""When an agent that was sent and did not start is sent again; the broker has dropped the earlier message by then."""


@dataclass(frozen=True, slots=True)
class WorkflowState:
    """
    The orchestrator's state of an analysis.

    Attributes:
        analysis_id, stock_id: of the analysis.
        status: RUNNING, the state of its open pause, SUCCEEDED or FAILED.
        agents: agent type → WAITING, SENT, RUNNING, STOPPED, COMPLETED or FAILED.
    """

    analysis_id: str
    stock_id: str
    status: str
    agents: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DispatchMessage:
    """
    A message that starts an agent: names only; the state is in the row.

    Attributes:
        dispatch: number of this dispatch; an earlier one starts nothing.
    """

    analysis_id: str
    agent_type: str
    dispatch: int


Send = Callable[[DispatchMessage], Awaitable[None]]
"""Sends a message; may raise :class:`~imem.journal.errors.ValkeyUnavailable`."""


@dataclass(frozen=True, slots=True)
class StartedAgent:
    """
    An agent that has been started.

    Attributes:
        analysis_id, stock_id, agent_type, agent_id: of the agent.
        dispatch: number of its dispatch.
        begin: whether it continues from its checkpoint, or begins.
        gates_passed: validated gates; it does not stop at them again.
    """

    analysis_id: str
    stock_id: str
    agent_type: str
    agent_id: str
    dispatch: int
    begin: Begin
    gates_passed: tuple[int, ...]


class CeleryOrchestrator:
    """
    The orchestrator over Celery.

    Args:
        database: the rows.
        definitions: agents, their dependencies and limits.
        send: sends a message.
    """

    def __init__(self, database: Database, definitions: Definitions, send: Send) -> None:
        self._database = database
        self._definitions = definitions
        self._send = send

    @property
    def _graph(self) -> Graph:
        return {name: definition.after for name, definition in self._definitions.agents.items()}

    # Starting analyses

    async def start_analysis(
        self, analysis_id: str, stock_id: str, agents: Mapping[str, str], *, by: Actor | None = None, deadline: Deadline
    ) -> WorkflowState:
        """
        Register an analysis and start the agents without parents. Idempotent.

        Args:
            agents: agent type → instance, which names its working memory.
            by: the actor, for the audit row; by default the system.

        Raises:
            BadInput: no agent is given, one is not defined, an instance belongs elsewhere, or the analysis is of
                another stock.
        """
        checked_id("analysis_id", analysis_id)
        checked_id("stock_id", stock_id)
        if not agents:
            raise BadInput("agents", "names no agent.")
        for agent_type in agents:
            self._definitions.of_type(agent_type)
        async with self._database.transaction(deadline) as conn:
            found = await rows(conn, "task_analysis", {"analysis_id": analysis_id, "stock_id": stock_id})
            if found[0]["subject_id"] != stock_id:
                raise BadInput("stock_id", f"{analysis_id!r} is of {found[0]['subject_id']!r}.")
            names = sorted(agents)
            ids = [agents[name] for name in names]
            taken = await rows(conn, "tasks_of_instances", {"agent_ids": ids, "analysis_id": analysis_id})
            if taken:
                raise BadInput("agents", f"{taken[0]['agent_id']!r} works in {taken[0]['analysis_id']!r}.")
            values = {"analysis_id": analysis_id, "agent_types": names, "agent_ids": ids}
            if await execute(conn, "tasks_insert", values):
                await audit(conn, by, "start", analysis_id, "Ordered.", stock_id=stock_id, agents=dict(agents))
        await self.start_ready(deadline=deadline)
        return await self.get_workflow_state(analysis_id, deadline=deadline)

    # For pauses

    # A step holds *conn*. Another connection of its pool, which may be exhausted, would wait for that one.

    async def pause_workflow(self, analysis_id: str, *, conn: Connection) -> None:
        """Start no more agents: sent messages are void, running agents count as stopped. Idempotent."""
        await execute(conn, "tasks_hold", {"analysis_id": analysis_id})

    async def resume_workflow(self, analysis_id: str, plan: Plan, *, conn: Connection) -> None:
        """Set the state of every agent by the plan; they start once the pause has ended. Idempotent."""
        placed = [(one.agent_type, "WAITING", one.begin.value) for one in plan.restart]
        placed += [(name, "COMPLETED", Begin.CLEAN.value) for name in plan.skip]
        placed += [(name, "WAITING", Begin.CLEAN.value) for name in plan.wait]
        types, states, begins = (list(column) for column in zip(*placed, strict=True)) if placed else ([], [], [])
        values = {"analysis_id": analysis_id, "agent_types": types, "states": states, "begins": begins}
        await execute(conn, "tasks_plan", values)

    async def get_workflow_state(self, analysis_id: str, *, deadline: Deadline) -> WorkflowState:
        """
        Return the state of the analysis.

        Raises:
            BadInput: there is no such analysis.
        """
        found = await self._database.named("task_state", {"analysis_id": analysis_id}, deadline=deadline)
        if not found:
            raise BadInput("analysis_id", f"there is no analysis {analysis_id!r}.")
        tasks = await self._database.named("tasks_of", {"analysis_id": analysis_id}, deadline=deadline)
        status = found[0]["pause"] or (found[0]["outcome"] or "running").upper()
        agents = {task["agent_type"]: task["state"] for task in tasks}
        return WorkflowState(analysis_id, found[0]["subject_id"], status, agents)

    async def start_ready(self, *, deadline: Deadline) -> int:
        """
        Send every agent that may start, within the limits; return how many.

        Agents of analyses that a batch resumed start only while fewer of their type run than its definition allows.
        """
        async with self._database.transaction(deadline) as conn:
            names = [row["analysis_id"] for row in await rows(conn, "dispatch_analyses", {"lost_after": LOST_AFTER})]
            if not names:
                return 0
            await rows(conn, "dispatch_lock")
            tasks = await rows(conn, "dispatch_tasks", {"analyses": names, "lost_after": LOST_AFTER})
            chosen = await self._chosen(conn, tasks)
            sent = [await _sent(conn, task) for task in chosen]
        messages = [message for message in sent if message is not None]
        for message in messages:
            # Stop at the first error of the broker: its timeout for every agent would take minutes.
            if not await self._put(message):
                break
        return len(messages)

    async def _chosen(self, conn: Connection, tasks: Sequence[Row]) -> list[Row]:
        """Return the agents that may start within the limits."""
        by_name = {(task["analysis_id"], task["agent_type"]): task for task in tasks}
        by_analysis: dict[str, list[Row]] = {}
        for task in tasks:
            by_analysis.setdefault(task["analysis_id"], []).append(task)
        free, limited = [], []
        for analysis_id, of_one in by_analysis.items():
            names = {(analysis_id, name) for name in self._ready(of_one)}
            for task in of_one:
                name = (analysis_id, task["agent_type"])
                # A lost one is counted in the limit already.
                if task["lost"] or (name in names and not task["batched"]):
                    free.append(name)
                elif name in names:
                    limited.append(name)
        if not limited:
            return [by_name[name] for name in free]
        running = {row["agent_type"]: row["running"] for row in await rows(conn, "dispatch_running")}
        for _, agent_type in free:
            running[agent_type] = running.get(agent_type, 0) + 1
        limits = {
            name: definition.parallel
            for name, definition in self._definitions.agents.items()
            if definition.parallel is not None
        }
        return [by_name[name] for name in free + startable(limited, running, limits)]

    def _ready(self, tasks: Sequence[Row]) -> tuple[str, ...]:
        around = restricted(self._graph, [task["agent_type"] for task in tasks])
        completed = [task["agent_type"] for task in tasks if task["state"] == "COMPLETED"]
        return ready(around, completed, [task["agent_type"] for task in tasks if task["state"] == "WAITING"])

    async def _put(self, message: DispatchMessage) -> bool:
        """Send a message; return whether the broker has it."""
        try:
            await self._send(message)
        except StoreUnavailable as error:
            # The row says that it was sent; it is sent again when it has not started for a while.
            log.warning(
                "agent_not_sent", analysis_id=message.analysis_id, agent=message.agent_type, error=error.message
            )
            return False
        return True

    # For the process that gets a message

    async def begin(self, message: DispatchMessage, *, deadline: Deadline) -> StartedAgent | None:
        """
        Start the agent of a message, if the message is current, no pause is open and its parents have completed.

        None: the message is to be dropped.
        """
        async with self._database.transaction(deadline) as conn:
            # Locked, so that a pause is either seen here or sees that the agent runs.
            await lock_analysis(conn, message.analysis_id)
            tasks = await rows(conn, "tasks_of", {"analysis_id": message.analysis_id})
            names = [task["agent_type"] for task in tasks]
            if message.agent_type not in names:
                return None
            parents = restricted(self._graph, names)[message.agent_type]
            found = await rows(conn, "task_begin", {**asdict(message), "parents": sorted(parents)})
            if not found:
                return None
            gates = await rows(conn, "gates_passed", {"analysis_id": message.analysis_id})
        task = found[0]
        return StartedAgent(
            message.analysis_id,
            task["subject_id"],
            message.agent_type,
            task["agent_id"],
            message.dispatch,
            Begin(task["begin_as"]),
            tuple(row["gate"] for row in gates),
        )

    async def end(self, started: StartedAgent, state: str, *, deadline: Deadline) -> None:
        """Record how a run ended, COMPLETED, STOPPED or FAILED, and start the agents that waited for it. Idempotent."""
        message = DispatchMessage(started.analysis_id, started.agent_type, started.dispatch)
        await self._database.execute("task_end", {**asdict(message), "state": state}, deadline=deadline)
        if state == "COMPLETED":
            await self.start_ready(deadline=deadline)


async def _sent(conn: Connection, task: Row) -> DispatchMessage | None:
    """Mark an agent as sent; return its message, or None where its row has changed since it was chosen."""
    values = {name: task[name] for name in ("analysis_id", "agent_type", "dispatch")}
    found = await rows(conn, "dispatch_sent", values)
    return DispatchMessage(task["analysis_id"], task["agent_type"], found[0]["dispatch"]) if found else None
