"""
A node of LangGraph's graphs that debates a finding, and the threads that can go on after such a node.

::

    builder.add_node("debate", debate_node(memory))
    ...
    for thread in ready_threads(memory, saver):
        graph.invoke(thread.resume, thread.config)

The interrupt that the saver stores says which debate a thread waits for; nothing else is kept. Between interrupt and
resume no process runs.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypedDict

import structlog
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, interrupt

from imem.checkpoints.langgraph.node_steps import Node, State, Steps, node_of, value_of
from imem.debates.rendering import progress_document
from imem.journal.errors import BadInput, UnknownDebate
from imem.kg.kinds.enums import DebateState

if TYPE_CHECKING:
    from imem.checkpoints.langgraph.operations import PendingInterrupt
    from imem.debates.service import DebateProgress

log = structlog.get_logger()

CHALLENGE: Final = "challenge"
POSITIONS: Final = "positions"
"""Keys of the state; see :class:`DebateGraphState`."""

DEBATE: Final = "imem_debate"
"""Key of what the node gives to ``interrupt``: the debate, as JSON types."""


class DebateMemory(Protocol):
    """The methods of :class:`imem.Memory`, or of its blocking twin, that are called."""

    def challenge(self, finding_id: str, basis: str, *, deadline_ms: float | None = None) -> Any:
        """Open a debate."""

    def debate_progress(self, debate_id: str, *, deadline_ms: float | None = None) -> Any:
        """Return where a debate stands."""


class InterruptSaver(Protocol):
    """The methods of :class:`imem.langgraph.ImemSaver` that are called."""

    def interrupts(self) -> Iterator[PendingInterrupt]:
        """Yield the interrupts that threads wait in."""

    def ainterrupts(self) -> AsyncIterator[PendingInterrupt]:
        """Yield them, for tasks."""


def merge_positions(left: Mapping[str, Any] | None, right: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return both by finding; of one finding the later counts. It is the reducer of concurrent branches."""
    return {**(left or {}), **(right or {})}


class DebateGraphState(TypedDict, total=False):
    """
    The keys of a state that the node reads and writes.

    A graph's own state adds others, or is a class with these fields.

    Attributes:
        challenge: the arguments of :meth:`imem.Memory.challenge`: ``finding_id``, ``basis``, and others; None: nothing
            is challenged.
        positions: what counts after a debate, by finding: the fields of
            :class:`~imem.debates.service.DebateProgress` as JSON types, and ``counts_now``, the value; None: it is
            uncertain.
    """

    challenge: dict[str, Any] | None
    positions: Annotated[dict[str, dict[str, Any]], merge_positions]


@dataclass(frozen=True, slots=True)
class ReadyThread:
    """
    A thread that can go on.

    Attributes:
        thread_id: of the thread.
        interrupt_id: of the interrupt that it waits in.
        debate: where its debate stands.
    """

    thread_id: str
    interrupt_id: str
    debate: DebateProgress

    @property
    def config(self) -> RunnableConfig:
        """The config of the thread."""
        return {"configurable": {"thread_id": self.thread_id}}

    @property
    def resume(self) -> Command[Any]:
        """The input with which the graph goes on: the node reads the debate anew."""
        return Command(resume={self.interrupt_id: True})


def debate_node(memory: DebateMemory, *, deadline_ms: float | None = None) -> Node:
    """
    Return a node that challenges the finding that the state names, waits for the end of the debate, and returns it.

    The node interrupts the graph with where the debate stands. LangGraph runs a node again from its beginning when it
    resumes: the challenge is then a repeat, which returns the same debate. The value of the resume is not used; while
    the debate is neither provisional nor at its end, the graph is interrupted again. Errors of the memory are raised.

    Args:
        memory: challenges, under the name of its actor; with ``Memory.sync()`` the node is a plain function.
        deadline_ms: of each call; by default as the methods have it.
    """

    def node(state: State) -> Steps:
        asked = value_of(state, CHALLENGE)
        if asked is None:
            return {}
        if not isinstance(asked, Mapping) or not {"finding_id", "basis"} <= asked.keys():
            raise BadInput(CHALLENGE, "is an object with finding_id, basis and other arguments of Memory.challenge.")
        debate = yield partial(memory.challenge, **{"deadline_ms": deadline_ms, **asked})
        while not _can_go_on(debate):
            interrupt({DEBATE: progress_document(debate)})
            debate = yield partial(memory.debate_progress, debate.debate_id, deadline_ms=deadline_ms)
        return {POSITIONS: {debate.finding_id: progress_document(debate)}}

    return node_of(memory.challenge, node)


def ready_threads(memory: DebateMemory, saver: InterruptSaver, *, thread_ids: Collection[str] | None = None) -> Any:
    """
    Return the threads that wait in :func:`debate_node` for a debate that is provisional or has ended, by thread.

    A list of :class:`ReadyThread`; with :class:`imem.Memory` a coroutine of it. A thread is in it until its node has
    ended: resuming it twice is as harmless as running the node twice.

    Args:
        saver: the checkpointer of the graph, on the stack's Postgres.
        thread_ids: of these alone, where several graphs share one Postgres.
    """

    def waiting(one: PendingInterrupt) -> list[tuple[PendingInterrupt, str]]:
        key = _debate_of(one) if thread_ids is None or one.thread_id in thread_ids else None
        return [] if key is None else [(one, key)]

    async def found() -> list[tuple[PendingInterrupt, str]]:
        return [pair async for one in saver.ainterrupts() for pair in waiting(one)]

    asynchronous = inspect.iscoroutinefunction(memory.challenge)

    def steps() -> Steps:
        pairs = yield lambda: found() if asynchronous else [pair for one in saver.interrupts() for pair in waiting(one)]
        debates: dict[str, DebateProgress] = {}
        for key in dict.fromkeys(key for _, key in pairs):
            try:
                debates[key] = yield partial(memory.debate_progress, key)
            except UnknownDebate:
                log.warning("debates.thread_waits_for_unknown", debate=key)
        return [
            ReadyThread(one.thread_id, one.interrupt_id, debates[key])
            for one, key in pairs
            if key in debates and _can_go_on(debates[key])
        ]

    return node_of(memory.challenge, steps)()


def _can_go_on(debate: DebateProgress) -> bool:
    return debate.ended or debate.state is DebateState.PROVISIONAL


def _debate_of(waiting: PendingInterrupt) -> str | None:
    """Return the debate that an interrupt waits for; None where it is one of another node."""
    given = waiting.value.get(DEBATE) if isinstance(waiting.value, Mapping) else None
    key = given.get("debate_id") if isinstance(given, Mapping) else None
    return key if isinstance(key, str) else None
