"""
What each agent of a paused analysis does when it is resumed, and who may start when.

Pure. The graph says who waits for whom. What an agent that failed passed on may be wrong, so its *descendants* begin
anew; its siblings, which never read from it, keep what they did. An agent starts only when all its parents have
completed: one that is being resumed has not.
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
    """How far an agent has come."""

    NOT_BEGUN = "not_begun"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class Begin(StrEnum):
    """How an agent that restarts begins."""

    CHECKPOINT = "checkpoint"
    """At its next pending subtask, with the memory that recovery has proven."""
    CLEAN = "clean"
    """At its first subtask, with nothing."""


@dataclass(frozen=True, slots=True)
class AgentState:
    """
    One agent of an analysis.

    Attributes:
        agent_type: its type, which is its name in the graph.
        progress: how far it has come.
        checkpointed: whether it has a checkpoint to go on from.
        failed: whether its failure is a reason of the pause.
    """

    agent_type: str
    progress: Progress
    checkpointed: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Restart:
    """An agent that runs again, and how it begins."""

    agent_type: str
    begin: Begin


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What each agent does when its analysis is resumed; every agent stands in one of the three, in order of its name.

    Attributes:
        restart: run again, as soon as their parents have completed.
        skip: have completed; what they made stands.
        wait: have not begun; they start when their parents have completed.
    """

    restart: tuple[Restart, ...] = ()
    skip: tuple[str, ...] = ()
    wait: tuple[str, ...] = ()

    @property
    def agents(self) -> tuple[str, ...]:
        """Every agent that the plan names, in order of the three lists."""
        return (*(one.agent_type for one in self.restart), *self.skip, *self.wait)

    def to_dict(self) -> dict[str, list[str] | dict[str, str]]:
        """Return ``{restart: {agent: how}, skip: […], wait: […]}``, as rows keep it."""
        return {
            "restart": {one.agent_type: one.begin.value for one in self.restart},
            "skip": list(self.skip),
            "wait": list(self.wait),
        }


LISTS: Final = ("restart", "skip", "wait")


def plan_of(document: object) -> Plan:
    """
    Return a plan that a person or a row states: ``restart`` (a list, or agent → how), ``skip``, ``wait``.

    Raises:
        BadInput: it is of another shape; the field says where.
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
    Return the graph of those agents alone that take part in an analysis.

    One that does not take part is nobody to wait for, but those that it would have waited for are: order passes
    through it.

    Raises:
        BadInput: an agent waits for itself, by way of others.
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
    """Return who waits for any of *of*, directly or by way of others; never those themselves unless in a row."""
    reached: set[str] = set()
    look = set(of)
    while look:
        look = {name for name, parents in graph.items() if not look.isdisjoint(parents)} - reached
        reached |= look
    return frozenset(reached)


# Plans


def plan(states: Collection[AgentState], graph: Graph) -> Plan:
    """
    Return what each agent does when the analysis is resumed.

    An agent that failed restarts from its checkpoint; who waits for it restarts clean if begun. Of the others, those
    that completed are skipped, those in progress go on from their checkpoint, or from the beginning without one.
    """
    around = restricted(graph, {state.agent_type for state in states})
    failed = {state.agent_type for state in states if state.failed}
    behind = descendants(around, failed)
    restart, skip, wait = [], [], []
    for state in sorted(states, key=lambda one: one.agent_type):
        name = state.agent_type
        # One that failed behind another that failed has worked with what may be wrong, as any descendant.
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
    Return a plan that a person stated, completed by the usual one for agents that it does not name.

    Raises:
        BadInput: it names an agent that takes no part, names one twice, skips one that has not completed, goes on
            from a checkpoint that there is not, or keeps what an agent made of what is made anew.
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
        # What would be so without the person's plan is not theirs to answer for.
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
    Return which of *waiting* may start: those whose parents have all completed.

    Args:
        graph: of the agents that take part (:func:`restricted`).
        completed: those that have completed; being resumed is not enough.
        waiting: those that have not started.
    """
    done = set(completed)
    return tuple(sorted(name for name in waiting if done.issuperset(graph[name])))
