"""
Starting the agents of an analysis: one protocol, and its implementation over Celery.

Rows of ``workflow.agent_task`` say where each agent stands; a message only says that one may be started. The process
that gets it looks at the row, the pause and the parents in one statement, and starts the agent or drops the message.
So a message that is lost, late, or delivered twice does no harm: the row is looked at again every few seconds, and
another one is sent.

Nothing is ever terminated: an agent that shall stop is told so at its next safe point, and one that does not hear is
fenced off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

import structlog

from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.pauses.batches import startable
from imem.checkpoints.pauses.plan import Begin, Graph, Plan, ready, restricted
from imem.checkpoints.pauses.rows import audit, checked_id, lock_analysis
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, StoreUnavailable, TransitionRefused
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows

log = structlog.get_logger()

LOST_AFTER: Final = timedelta(seconds=20)
"""When an agent that was sent and did not start is sent again; the broker drops the earlier message by then."""


@dataclass(frozen=True, slots=True)
class WorkflowState:
    """
    Where an analysis stands, as its orchestrator sees it.

    Attributes:
        analysis_id, stock_id: which.
        status: RUNNING, the state of its open pause, SUCCEEDED or FAILED.
        agents: agent type → WAITING, SENT, RUNNING, STOPPED, COMPLETED or FAILED.
    """

    analysis_id: str
    stock_id: str
    status: str
    agents: Mapping[str, str]


class Orchestrator(Protocol):
    """
    What pauses need of whoever starts agents. Each call may be repeated.

    A *conn* is that of the step that calls: one whose own rows are in the same database writes them on it, and with the
    step; it must not ask for a connection of the same pool, which may be used up. Others pass it over.
    """

    async def pause_workflow(self, analysis_id: str, *, deadline: Deadline, conn: Connection | None = None) -> None:
        """Start nothing more of the analysis; what runs is stopped already, or fenced off."""

    async def resume_workflow(
        self, analysis_id: str, plan: Plan, *, deadline: Deadline, conn: Connection | None = None
    ) -> None:
        """Take the plan over; nothing of it starts before the pause is over."""

    async def get_workflow_state(self, analysis_id: str, *, deadline: Deadline) -> WorkflowState:
        """Return where the analysis stands."""

    async def start_agent(self, analysis_id: str, agent_type: str, *, deadline: Deadline) -> None:
        """Start one agent, whose parents have completed."""

    async def start_ready(self, *, deadline: Deadline) -> int:
        """Start every agent whose parents have completed, of every analysis that runs; return how many."""


@dataclass(frozen=True, slots=True)
class DispatchMessage:
    """
    What is sent to start an agent: names only, for the row says the rest.

    Attributes:
        dispatch: the number of the sending; an earlier one starts nothing.
    """

    analysis_id: str
    agent_type: str
    dispatch: int


Send = Callable[[DispatchMessage], Awaitable[None]]
"""Puts a message on its way; it may raise :class:`~imem.journal.errors.ValkeyUnavailable`."""


@dataclass(frozen=True, slots=True)
class StartedAgent:
    """
    An agent that may run now.

    Attributes:
        analysis_id, stock_id, agent_type, agent_id: which.
        dispatch: the number of its sending.
        begin: whether it goes on from its checkpoint, or begins.
        gates_passed: gates that people have validated; it does not stop at them again.
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
    The orchestrator whose messages Celery carries.

    Args:
        database: where the rows are.
        definitions: agents, who waits for whom, and how many of a type run at a time.
        send: puts a message on its way.
    """

    def __init__(self, database: Database, definitions: Definitions, send: Send) -> None:
        self._database = database
        self._definitions = definitions
        self._send = send

    @property
    def _graph(self) -> Graph:
        return {name: definition.after for name, definition in self._definitions.agents.items()}

    # Taking in

    async def start_analysis(
        self, analysis_id: str, stock_id: str, agents: Mapping[str, str], *, by: Actor | None = None, deadline: Deadline
    ) -> WorkflowState:
        """
        Take an analysis in and start the agents that wait for nobody; the same one again changes nothing.

        Args:
            agents: agent type → instance, whose working memory it will be.
            by: who orders it, for the audit row; by default the system does.

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

    # What pauses need

    async def pause_workflow(self, analysis_id: str, *, deadline: Deadline, conn: Connection | None = None) -> None:
        """Start nothing more: what is on its way counts no longer, what ran is stopped."""
        await self._change("tasks_hold", {"analysis_id": analysis_id}, deadline, conn)

    async def resume_workflow(
        self, analysis_id: str, plan: Plan, *, deadline: Deadline, conn: Connection | None = None
    ) -> None:
        """Put every agent where the plan has it; they start once the pause is over."""
        placed = [(one.agent_type, "WAITING", one.begin.value) for one in plan.restart]
        placed += [(name, "COMPLETED", Begin.CLEAN.value) for name in plan.skip]
        placed += [(name, "WAITING", Begin.CLEAN.value) for name in plan.wait]
        types, states, begins = (list(column) for column in zip(*placed, strict=True)) if placed else ([], [], [])
        values = {"analysis_id": analysis_id, "agent_types": types, "states": states, "begins": begins}
        await self._change("tasks_plan", values, deadline, conn)

    async def _change(self, name: str, values: Mapping[str, Any], deadline: Deadline, conn: Connection | None) -> None:
        if conn is not None:
            await execute(conn, name, values)
        else:
            await self._database.execute(name, values, deadline=deadline)

    async def get_workflow_state(self, analysis_id: str, *, deadline: Deadline) -> WorkflowState:
        """
        Return where the analysis stands.

        Raises:
            BadInput: there is none of that id.
        """
        found = await self._database.named("task_state", {"analysis_id": analysis_id}, deadline=deadline)
        if not found:
            raise BadInput("analysis_id", f"there is no analysis {analysis_id!r}.")
        tasks = await self._database.named("tasks_of", {"analysis_id": analysis_id}, deadline=deadline)
        status = found[0]["pause"] or (found[0]["outcome"] or "running").upper()
        agents = {task["agent_type"]: task["state"] for task in tasks}
        return WorkflowState(analysis_id, found[0]["subject_id"], status, agents)

    async def start_agent(self, analysis_id: str, agent_type: str, *, deadline: Deadline) -> None:
        """
        Send one agent.

        Raises:
            BadInput: the analysis has no such agent.
            TransitionRefused: its analysis is paused or over, a parent has not completed, or it has started.
        """
        async with self._database.transaction(deadline) as conn:
            await lock_analysis(conn, analysis_id)
            tasks = await rows(conn, "dispatch_tasks", {"analyses": [analysis_id], "lost_after": LOST_AFTER})
            if not any(task["agent_type"] == agent_type for task in tasks):
                raise BadInput("agent_type", f"{agent_type!r} takes no part in {analysis_id!r}, or it is not running.")
            if agent_type not in self._ready(tasks):
                raise TransitionRefused(f"{agent_type} of {analysis_id!r} has started, or waits for its parents.")
            its = next(task for task in tasks if task["agent_type"] == agent_type)
            message = await _sent(conn, its)
            if message is None:
                raise TransitionRefused(f"{agent_type} of {analysis_id!r} was stopped, or started, just now.")
        await self._put(message)

    async def start_ready(self, *, deadline: Deadline) -> int:
        """
        Send every agent that may start, within the limits; return how many.

        Agents of analyses that a batch resumed start only while fewer of their type run than its definition says.
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
            # A broker that is away is asked once a round, not once for every agent: that would take minutes.
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
                # One whose message may be lost has its place already.
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
        """Put a message on its way; whether the broker has it."""
        try:
            await self._send(message)
        except StoreUnavailable as error:
            # The row says that it was sent; it is sent again when nobody has started it for a while.
            log.warning(
                "agent_not_sent", analysis_id=message.analysis_id, agent=message.agent_type, error=error.message
            )
            return False
        return True

    # What the process that gets a message does

    async def begin(self, message: DispatchMessage, *, deadline: Deadline) -> StartedAgent | None:
        """
        Take the agent that a message names, if the message counts, no pause is open and its parents have completed.

        None: nothing is to be done, and the message can be dropped.
        """
        async with self._database.transaction(deadline) as conn:
            # Held, so that a pause is either seen here or sees that the agent runs.
            await lock_analysis(conn, message.analysis_id)
            tasks = await rows(conn, "tasks_of", {"analysis_id": message.analysis_id})
            names = [task["agent_type"] for task in tasks]
            if message.agent_type not in names:
                return None
            parents = restricted(self._graph, names)[message.agent_type]
            found = await rows(conn, "task_begin", {**_of(message), "parents": sorted(parents)})
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
        """Say how a run ended: COMPLETED, STOPPED or FAILED; and start who waited for it. Twice is once."""
        message = DispatchMessage(started.analysis_id, started.agent_type, started.dispatch)
        await self._database.execute("task_end", {**_of(message), "state": state}, deadline=deadline)
        if state == "COMPLETED":
            await self.start_ready(deadline=deadline)


def _of(message: DispatchMessage) -> dict[str, Any]:
    return {
        "analysis_id": message.analysis_id,
        "agent_type": message.agent_type,
        "dispatch": message.dispatch,
    }


async def _sent(conn: Connection, task: Row) -> DispatchMessage | None:
    """Say that an agent is being sent, and return its message; None where it is not as it was when it was chosen."""
    values = {name: task[name] for name in ("analysis_id", "agent_type", "dispatch")}
    found = await rows(conn, "dispatch_sent", values)
    return DispatchMessage(task["analysis_id"], task["agent_type"], found[0]["dispatch"]) if found else None
