"""
Resume plans: the action of each agent of a paused analysis, and the order of starts.

Pure. The graph holds the dependencies. The output of an agent that failed may be wrong, so that its *descendants*
restart clean; its siblings, which never read it, keep their work. An agent starts only when all its parents have
completed; one that is being resumed has not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imem.journal.errors import BadInput

Graph = Mapping[str, Collection[str]]
"""Agent type → the types that it waits for, directly."""


class Progress(StrEnum):
    """Progress of an agent."""

    NOT_BEGUN = "not_begun"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class Begin(StrEnum):
    """How a restarting agent begins."""

    CHECKPOINT = "checkpoint"
    """At its next pending subtask, with the recovered memory."""
    CLEAN = "clean"
    """At its first subtask, with an empty memory."""


@dataclass(frozen=True, slots=True)
class AgentState:
    """
    One agent of an analysis.

    Attributes:
        agent_type: its type, which is its name in the graph.
        progress: how far it has come.
        checkpointed: whether it has a checkpoint to continue from.
        failed: whether its failure is a cause of the pause.
    """

    agent_type: str
    progress: Progress
    checkpointed: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Restart:
    """An agent that restarts, and how it begins."""

    agent_type: str
    begin: Begin


@dataclass(frozen=True, slots=True)
class Plan:
    """
    The action of each agent when its analysis is resumed; every agent is in one of the three lists, sorted by name.

    Attributes:
        restart: run again, once their parents have completed.
        skip: have completed; their results are kept.
        wait: have not begun; they start once their parents have completed.
    """

    restart: tuple[Restart, ...] = ()
    skip: tuple[str, ...] = ()
    wait: tuple[str, ...] = ()

    @property
    def agents(self) -> tuple[str, ...]:
        """Every agent of the plan, in the order of the three lists."""
        return (*(one.agent_type for one in self.restart), *self.skip, *self.wait)

    def to_dict(self) -> dict[str, list[str] | dict[str, str]]:
        """Return ``{restart: {agent: how}, skip: […], wait: […]}``, the form of rows."""
        return {
            "restart": {one.agent_type: one.begin.value for one in self.restart},
            "skip": list(self.skip),
            "wait": list(self.wait),
        }


LISTS: Final = ("restart", "skip", "wait")


def plan_of(document: object) -> Plan:
    """
    Parse a plan from a human or a row: ``restart`` (a list, or agent → how), ``skip``, ``wait``.

    Raises:
        BadInput: it has another form; names the field.
    """
    if not isinstance(document, Mapping):
        raise BadInput("resume_plan", "is an object with the lists restart, skip and wait.")
    for name in document:
        if name not in LISTS:
            raise BadInput(f"resume_plan.{name}", "is not one of restart, skip and wait.")
    restart = document.get("restart", {})
    if isinstance(restart, Mapping):
        begins = {_name(key, f"resume_plan.restart.{key}"): _begin(value, str(key)) for key, value in restart.items()}
    else:
        begins = dict.fromkeys(_names(restart, "restart"), Begin.CHECKPOINT)
    return Plan(
        tuple(Restart(name, begins[name]) for name in sorted(begins)),
        tuple(sorted(_names(document.get("skip", ()), "skip"))),
        tuple(sorted(_names(document.get("wait", ()), "wait"))),
    )


def _begin(value: object, name: str) -> Begin:
    try:
        return Begin(str(value))
    except ValueError:
        raise BadInput(f"resume_plan.restart.{name}", f"is {Begin.CHECKPOINT} or {Begin.CLEAN}.") from None


def _names(found: object, field: str) -> list[str]:
    if isinstance(found, str) or not isinstance(found, Collection):
        raise BadInput(f"resume_plan.{field}", "is a list of agent types.")
    names = [_name(name, f"resume_plan.{field}.{number}") for number, name in enumerate(found)]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise BadInput(f"resume_plan.{field}.{number}", f"{name!r} stands there twice.")
    return names


def _name(found: object, field: str) -> str:
    if not isinstance(found, str) or not found:
        raise BadInput(field, "is the name of an agent type.")
    return found


# The graph


def restricted(graph: Graph, present: Collection[str]) -> dict[str, frozenset[str]]:
    """
    Return the graph restricted to the agents of an analysis.

    The parents of an absent agent become parents of its children: dependencies pass through it.

    Raises:
        BadInput: there is a cycle.
    """
    names = set(present)
    return {name: frozenset(_nearest(graph, name, names)) for name in sorted(names)}


def _nearest(graph: Graph, name: str, present: set[str]) -> set[str]:
    """Return the nearest ancestors of *name* that are present."""
    found: set[str] = set()
    seen: set[str] = set()
    look = list(graph.get(name, ()))
    while look:
        parent = look.pop()
        if parent == name:
            raise BadInput("depends_on", f"{name} waits for itself, by way of others.")
        if parent in seen:
            continue
        seen.add(parent)
        if parent in present:
            found.add(parent)
        else:
            look.extend(graph.get(parent, ()))
    return found


def descendants(graph: Graph, of: Iterable[str]) -> frozenset[str]:
    """Return the agents that wait for any of *of*, directly or not; one of *of* only where it waits for another."""
    reached: set[str] = set()
    look = set(of)
    while look:
        look = {name for name, parents in graph.items() if not look.isdisjoint(parents)} - reached
        reached |= look
    return frozenset(reached)


# Plans


def plan(states: Collection[AgentState], graph: Graph) -> Plan:
    """
    Return the default plan of a resume.

    An agent that failed restarts from its checkpoint; its descendants restart clean if they have begun. Other
    completed agents are skipped, and agents in progress restart from their checkpoint, or clean without one.
    """
    around = restricted(graph, {state.agent_type for state in states})
    failed = {state.agent_type for state in states if state.failed}
    behind = descendants(around, failed)
    restart, skip, wait = [], [], []
    for state in sorted(states, key=lambda one: one.agent_type):
        name = state.agent_type
        # An agent that failed behind another failed one has read its output, as any descendant.
        if name in behind and state.progress is not Progress.NOT_BEGUN:
            restart.append(Restart(name, Begin.CLEAN))
        elif name in failed or state.progress is Progress.IN_PROGRESS:
            restart.append(Restart(name, Begin.CHECKPOINT if state.checkpointed else Begin.CLEAN))
        elif state.progress is Progress.COMPLETED:
            skip.append(name)
        else:
            wait.append(name)
    return Plan(tuple(restart), tuple(skip), tuple(wait))


def checked(given: Plan, states: Collection[AgentState], graph: Graph) -> Plan:
    """
    Return a human's plan, completed by the default one for agents that it does not name.

    Raises:
        BadInput: it names an unknown agent, names one twice, skips one that has not completed, restarts from a missing
            checkpoint, or keeps results that depend on an agent that runs again.
    """
    by_name = {state.agent_type: state for state in states}
    _known(given, by_name)
    named = set(given.agents)
    usual = plan(states, graph)
    whole = Plan(
        _ordered_restarts((*given.restart, *(one for one in usual.restart if one.agent_type not in named))),
        tuple(sorted((*given.skip, *(name for name in usual.skip if name not in named)))),
        tuple(sorted((*given.wait, *(name for name in usual.wait if name not in named)))),
    )
    for name in given.skip:
        if by_name[name].progress is not Progress.COMPLETED:
            raise BadInput("resume_plan.skip", f"{name} has not completed; what waits for it would never start.")
    for one in given.restart:
        if one.begin is Begin.CHECKPOINT and not by_name[one.agent_type].checkpointed:
            raise BadInput("resume_plan.restart", f"{one.agent_type} has no checkpoint; restart it clean.")
    for name in given.wait:
        if by_name[name].progress is not Progress.NOT_BEGUN:
            raise BadInput("resume_plan.wait", f"{name} has begun; restart it, or skip it if it completed.")
    around = restricted(graph, by_name)
    for name in whole.skip:
        behind = sorted(around[name] & _again(whole))
        # Conflicts of the default plan are not the human's.
        if behind and not (name in usual.skip and _again(usual).issuperset(behind)):
            raise BadInput("resume_plan.skip", f"{name} rests on {behind[0]}, which runs again; restart it clean.")
    return whole


def _again(of: Plan) -> set[str]:
    """Return the agents that run, again or for the first time."""
    return {one.agent_type for one in of.restart} | set(of.wait)


def _known(given: Plan, by_name: Mapping[str, AgentState]) -> None:
    seen: set[str] = set()
    lists = {"restart": [one.agent_type for one in given.restart], "skip": given.skip, "wait": given.wait}
    for field, names in lists.items():
        for name in names:
            if name not in by_name:
                raise BadInput(
                    f"resume_plan.{field}", f"{name!r} takes no part in this analysis.",
                    mend=f"Its agents are {', '.join(sorted(by_name))}.",
                )  # fmt: skip
            if name in seen:
                raise BadInput(f"resume_plan.{field}", f"{name!r} stands in the plan twice.")
            seen.add(name)


def _ordered_restarts(found: Iterable[Restart]) -> tuple[Restart, ...]:
    return tuple(sorted(found, key=lambda one: one.agent_type))


def ready(graph: Graph, completed: Collection[str], waiting: Collection[str]) -> tuple[str, ...]:
    """
    Return the agents of *waiting* whose parents have all completed.

    Args:
        graph: of the agents of the analysis (:func:`restricted`).
        completed: agents that have completed; being resumed is not enough.
        waiting: agents that have not started.
    """
    done = set(completed)
    return tuple(sorted(name for name in waiting if done.issuperset(graph[name])))
