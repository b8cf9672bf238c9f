"""
Nodes of LangGraph's graphs: earlier signals in the state, and an agent node that is shown its own.

::

    builder = StateGraph(SignalState)
    builder.add_node("memory", memory_node(memory, ["macro", "polls"]))
    builder.add_node("macro", remembering(macro, "macro", memory))

A state is a mapping, a dataclass or a model of pydantic. With :class:`imem.Memory` nodes are coroutines, with
``Memory.sync()`` plain functions. Nothing here imports LangGraph.
Nothing of it stops an agent: what fails is logged, and says so in the audit.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Annotated, Any, Final, Protocol, TypedDict

import structlog
from pydantic import BaseModel

from imem.checkpoints.langgraph.node_steps import Node, State, Steps, node_of, value_of
from imem.journal.errors import BadInput, ImemError, StoreUnavailable
from imem.recall.metrics import SIGNAL_CONTEXT
from imem.recall.signals.evolution import RecordedSignal
from imem.recall.signals.formatting import memory_prompt
from imem.recall.signals.model import AgentMemory, AgentSignal
from imem.recall.signals.reader import empty_memories, error_kind, retrieval_record
from imem.recall.subjects import PREFIXES

log = structlog.get_logger()

MARKET: Final = "market_id"
ANALYSIS: Final = "analysis_id"
PROMPT: Final = "system_prompt"
MEMORY: Final = "memory_context"
SIGNALS: Final = "signals"
AUDIT: Final = "audit_log"
"""Keys of the state; see :class:`SignalState`."""


class SignalMemory(Protocol):
    """The methods of :class:`imem.Memory`, or of its blocking twin, that the nodes call."""

    def signal_histories(
        self, subject: str, agents: Sequence[str], *, as_of: datetime | None = None, deadline_ms: float | None = None
    ) -> Any:
        """Return the signals of each agent, as of a moment."""

    def record_signal(self, signal: AgentSignal, *, history: AgentMemory | None = None) -> Any:
        """Record a signal, and what it changes against *history*."""


def merge_by_agent(left: Mapping[str, Any] | None, right: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return both by agent; of one agent the later counts. It is the reducer of concurrent branches."""
    return {**(left or {}), **(right or {})}


class SignalState(TypedDict, total=False):
    """
    The keys of a state that the nodes read and write; a graph's own state adds others, or is a class with these fields.

    Attributes:
        market_id: the subject: its whole id, such as ``market:fed-june``, or a name.
        analysis_id: the analysis to which new signals belong; without one each run has its own.
        system_prompt: of the agent's model; its node is shown it with the section added.
        memory_context: the earlier signals of each agent.
        signals: new signals by agent: what a node returns here is recorded.
        audit_log: reads, what was shown, recordings and changes of view, in order.
    """

    market_id: str
    analysis_id: str
    system_prompt: str
    memory_context: Annotated[dict[str, AgentMemory], merge_by_agent]
    signals: Annotated[dict[str, Any], merge_by_agent]
    audit_log: Annotated[list[dict[str, Any]], operator.add]


Moment = datetime | Callable[[Any], datetime | None] | None
"""A moment, aware, or what returns it for a state, as a replay of several days needs; None for now."""


def memory_node(
    memory: SignalMemory, agent_names: Sequence[str], *, as_of: Moment = None, deadline_ms: float | None = None
) -> Node:
    """
    Return a node that reads the signals of each agent about the subject of the state, in one statement.

    Args:
        memory: what is asked; see above.
        agent_names: whose signals.
        as_of: the moment for which the signals hold: later ones are not shown. Now by default.
        deadline_ms: as of :meth:`imem.Memory.signals`.
    """

    def node(state: State) -> Steps:
        found, audited = yield from _read(memory, state, agent_names, _at(as_of, state), deadline_ms)
        return {MEMORY: found, AUDIT: audited}

    return node_of(memory.signal_histories, node)


def remembering(
    node: Node, agent_name: str, memory: SignalMemory, *, as_of: Moment = None, deadline_ms: float | None = None
) -> Node:
    """
    Return *node* with its agent's earlier signals in ``system_prompt``; a new one that it returns is recorded.

    It returns it as ``{"signals": {agent_name: …}}``: an :class:`AgentSignal`, or an object of its values, which may
    leave out the agent, the subject and the analysis. The audit log gets what it changes against the newest earlier
    one. An error of *node* itself is raised as it is.

    Beside the time of *node*, it takes *deadline_ms* at most for reading, and then 2 s at most for recording, whatever
    Postgres does: a new signal is not given up because the read was slow. Where the state names a subject that the read
    did not find out, that is tried once more within *deadline_ms*.

    Args:
        node: takes the state, and whatever else LangGraph gives it.
        agent_name: whose signals; the actor of *memory* records them.
        memory: where they are recorded, and read unless the state has them already.
        as_of: as of :func:`memory_node`. A memory in the state of a later moment, or of none, is read again. A new
            signal is recorded with the present time.
        deadline_ms: of reading; as of :func:`memory_node`.
    """

    def run(state: State, *more: Any, **named: Any) -> Steps:
        known, audited = (value_of(state, MEMORY) or {}).get(agent_name), list[dict[str, Any]]()
        at = _at(as_of, state)
        if not isinstance(known, AgentMemory) or _is_ahead(known, at):
            found, audited = yield from _read(memory, state, [agent_name], at, deadline_ms)
            known = found[agent_name]
        section = memory_prompt(known)
        SIGNAL_CONTEXT.observe(len(section))
        audited.append({"event": "signals_shown", "agent": agent_name, "subject": known.subject_id, "context": section})
        prompt = "\n\n".join(part for part in (value_of(state, PROMPT), section) if part)
        update = yield lambda: node(_with(state, PROMPT, prompt), *more, **named)
        inner = _written(update)
        if not _has_keys(inner):
            return update
        signals = value_of(inner, SIGNALS)
        if (given := signals.get(agent_name) if isinstance(signals, Mapping) else signals) is not None:
            audited += yield from _record(memory, state, given, known, deadline_ms, at=at)
        inner = _with(inner, AUDIT, [*(value_of(inner, AUDIT) or ()), *audited])
        return dataclasses.replace(update, update=inner) if _is_command(update) else inner

    return wraps(node)(node_of(memory.signal_histories, run))


def _at(as_of: Moment, state: State) -> datetime | None:
    return as_of(state) if callable(as_of) else as_of


def _is_ahead(known: AgentMemory, at: datetime | None) -> bool:
    """Return whether what a state has may hold signals that were not known at a moment."""
    return at is not None and bool(known.signals) and (known.as_of is None or known.as_of > at)


def _read(
    memory: SignalMemory, state: State, agents: Sequence[str], at: datetime | None, deadline_ms: float | None
) -> Steps:
    """Return the memories of *agents* and their audit record; a wrong argument or right is an empty memory too."""
    subject, begun_s = value_of(state, MARKET), time.monotonic()
    try:
        found = yield lambda: memory.signal_histories(subject, list(agents), as_of=at, deadline_ms=deadline_ms)
    except ImemError as error:
        log.warning("signals.not_read", subject=str(subject), agents=list(agents), reason=str(error))
        found = empty_memories(agents, str(subject or "unknown"), reason=str(error), error=error_kind(error))
    took_ms = (time.monotonic() - begun_s) * 1000.0
    return found, [{**retrieval_record(found, took_ms), "subject": str(subject)}]


def _record(
    memory: SignalMemory,
    state: State,
    given: Any,
    known: AgentMemory,
    deadline_ms: float | None,
    *,
    at: datetime | None,
) -> Steps:
    """Record a new signal of the agent of *known*, and return what the audit log gets of it."""
    agent = known.agent_name
    try:
        if not isinstance(given, AgentSignal):
            if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
                raise BadInput("signals", f"of {agent} is no signal and no object of its values.")
            about = {} if "market_id" in given else (yield from _subject(memory, state, known, at, deadline_ms))
            own = {ANALYSIS: value_of(state, ANALYSIS), **about}
            given = AgentSignal(**{**own, **given, "agent_name": agent})
        done: RecordedSignal = yield lambda: memory.record_signal(given, history=known)
    except ImemError as error:
        log.warning("signals.not_recorded", subject=known.subject_id, agent=agent, reason=str(error))
        return [
            {
                "event": "signal_not_recorded",
                "agent": agent,
                "error_kind": error_kind(error).value,
                "reason": str(error),
            }
        ]
    recorded = {"event": "signal_recorded", "agent": agent, "id": str(done.signal.id), "success": True}
    return [recorded, *({"event": "signal_evolution", **one.model_dump(mode="json")} for one in done.events)]


def _subject(
    memory: SignalMemory, state: State, known: AgentMemory, at: datetime | None, deadline_ms: float | None
) -> Steps:
    """Return the fields that name the subject of the state; a name is looked up again if *known* could not be read."""
    subject = value_of(state, MARKET)
    if known.error is not None and not str(subject).startswith(PREFIXES):
        # A name is no id: it may be a company's, or that of several subjects.
        agent = known.agent_name
        found = yield lambda: memory.signal_histories(subject, [agent], as_of=at, deadline_ms=deadline_ms)
        known = found[agent]
        if known.error is not None:
            raise StoreUnavailable(f"The subject {subject!r} could not be looked up.")
    return {"market_id": known.market_id, "subject_kind": known.subject_kind}


def _is_command(update: Any) -> bool:
    """Return whether a node's update is a command of the graph, which holds what is written."""
    return dataclasses.is_dataclass(update) and hasattr(update, "goto") and hasattr(update, "update")


def _written(update: Any) -> Any:
    """Return what a node writes to the state, also inside a command."""
    inner = update.update if _is_command(update) else update
    return {} if inner is None else inner


def _has_keys(given: Any) -> bool:
    """Return whether *given* has the keys of a state, and not another shape of an update, which is passed on."""
    return isinstance(given, Mapping | BaseModel) or dataclasses.is_dataclass(given)


def _with(state: State, key: str, value: Any) -> State:
    """
    Return a copy of a state with another value.

    Raises:
        BadInput: it has slots, and none of that name.
    """
    if isinstance(state, Mapping):
        return {**state, key: value}
    if isinstance(state, BaseModel):
        return state.model_copy(update={key: value})
    changed = copy.copy(state)
    try:
        # As the class may be frozen; and made anew, it would check and compute its other fields again.
        object.__setattr__(changed, key, value)
    except AttributeError:
        raise BadInput(key, f"is no field of {type(state).__name__}, which has slots.") from None
    return changed
