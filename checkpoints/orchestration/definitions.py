"""
Agent definitions: their subtasks in order, the stores of each result, and the agents that each waits for.

Nine come with the program (``agents.json`` beside this module). A file of the same form (``IMEM_AGENTS``) adds agents,
or replaces one of the same name. An agent whose subtasks change needs a new ``version``: checkpoints of the old one are
migrated (:mod:`imem.checkpoints.versions`) or not resumed.

Example of such a file::

    {"agents": [{
        "agent_type": "macro_analyst", "version": "1", "after": ["screening"], "parallel": 2,
        "subtasks": [
            {"name": "rates", "minutes": 10, "stores": ["postgres"]},
            {"name": "outlook", "minutes": 20, "stores": ["graph", "message"], "reentrant": true}
        ]
    }]}
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from imem.journal.errors import BadInput, SettingsError

_SHIPPED: Final = Path(__file__).with_name("agents.json")

_AgentType = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,50}$")]
_SubtaskName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.#-]{1,100}$")]
_Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]{1,20}$")]


class Location(StrEnum):
    """Store of a subtask's result."""

    POSTGRES = "postgres"
    GRAPH = "graph"
    CACHE = "cache"
    MESSAGE = "message"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Subtask(_Strict):
    """
    A step of an agent's work, between two checkpoints.

    Attributes:
        name: unique in the agent.
        minutes: how long it usually takes.
        stores: where its result is stored; each is confirmed before checkpoints are cleaned up.
        reentrant: whether it may be restarted on a working memory that it has already written to.
    """

    name: _SubtaskName
    minutes: float | None = Field(None, gt=0)
    stores: tuple[Location, ...] = ()
    reentrant: bool = False


class AgentDefinition(_Strict):
    """
    One type of agent.

    Attributes:
        agent_type: its name.
        version: of its program; changed together with the subtasks.
        subtasks: in the order in which they are run, at least one.
        after: the agents that have to complete before it starts.
        parallel: how many of the type may run at once over all analyses; None for no limit.
    """

    agent_type: _AgentType
    version: _Version = "1"
    subtasks: tuple[Subtask, ...] = Field(min_length=1)
    after: tuple[_AgentType, ...] = ()
    parallel: int | None = Field(None, ge=1)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its subtasks, in order."""
        return tuple(subtask.name for subtask in self.subtasks)

    def subtask(self, name: str) -> Subtask:
        """
        Return the subtask of that name.

        Raises:
            BadInput: there is none.
        """
        for subtask in self.subtasks:
            if subtask.name == name:
                return subtask
        raise BadInput(
            "subtask", f"{self.agent_type} has none that is called {name!r}.", mend=f"It has {', '.join(self.names)}."
        )


class _File(_Strict):
    agents: tuple[AgentDefinition, ...]


@dataclass(frozen=True, slots=True)
class Definitions:
    """
    The known agents, and their dependencies.

    Attributes:
        agents: type → definition, in topological order.
    """

    agents: Mapping[str, AgentDefinition]

    @classmethod
    def of(cls, agents: Iterable[AgentDefinition]) -> Self:
        """
        Return the definitions of *agents*; of two with one name the later counts.

        Raises:
            BadInput: a subtask or parent is named twice, a parent is unknown, or there is a cycle.
        """
        known = {agent.agent_type: agent for agent in agents}
        for agent in known.values():
            _refuse_repeats(f"{agent.agent_type}.subtasks", agent.names)
            _refuse_repeats(f"{agent.agent_type}.after", agent.after)
            for subtask in agent.subtasks:
                _refuse_repeats(f"{agent.agent_type}.subtasks.{subtask.name}.stores", subtask.stores)
            for parent in agent.after:
                if parent not in known:
                    raise BadInput(f"{agent.agent_type}.after", f"no agent is called {parent!r}.")
        try:
            order = tuple(TopologicalSorter({name: agent.after for name, agent in known.items()}).static_order())
        except CycleError as error:
            raise BadInput(
                "agents", f"{' waits for '.join(reversed(error.args[1]))}: none of them could ever start."
            ) from error
        return cls(MappingProxyType({name: known[name] for name in order}))

    @classmethod
    def read(cls, path: Path | None = None) -> Self:
        """
        Return the agents that come with the program, extended or replaced by those of the file *path*.

        Raises:
            SettingsError: the file cannot be read or is wrong; names the field.
        """
        agents = list(_shipped())
        if path is not None:
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise SettingsError(
                    f"IMEM_AGENTS names {path}, which cannot be read.", mend="It is a JSON file with agents."
                ) from error
            try:
                agents += agents_in(text)
                return cls.of(agents)
            except BadInput as error:
                raise SettingsError(f"IMEM_AGENTS, {path.name}: {error}") from error
        return cls.of(agents)

    def of_type(self, agent_type: str) -> AgentDefinition:
        """
        Return the definition of *agent_type*.

        Raises:
            BadInput: there is none; names the nearest.
        """
        found = self.agents.get(agent_type)
        if found is None:
            near = difflib.get_close_matches(str(agent_type), self.agents, n=3)
            hint = f"Did you mean {', '.join(near)}?" if near else "IMEM_AGENTS names a file with agents of your own."
            raise BadInput("agent_type", f"no agent is defined as {str(agent_type)[:80]!r}.", mend=hint)
        return found

    def reentrant(self, agent_type: str, subtask: str | None) -> bool:
        """Return whether a subtask is reentrant; not without a definition of it."""
        agent = self.agents.get(agent_type)
        return agent is not None and any(one.name == subtask and one.reentrant for one in agent.subtasks)


def agents_in(text: str) -> tuple[AgentDefinition, ...]:
    """
    Return the agents that the JSON *text* defines.

    Raises:
        BadInput: it is no JSON, or not of that form; names the field.
    """
    try:
        # Parsed twice: pydantic's own parser would silently take the last of two equal keys.
        json.loads(text, object_pairs_hook=_without_repeats)
        return _File.model_validate_json(text).agents
    except json.JSONDecodeError as error:
        raise BadInput("agents", f"line {error.lineno} is no JSON: {error.msg}.") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "agents"
        raise BadInput(place, f"{first['msg']}.") from error


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_repeats("agents", [key for key, _ in pairs])
    return dict(pairs)


def _refuse_repeats(field: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadInput(field, f"{name} stands there twice.")
        seen.add(name)


@cache
def _shipped() -> tuple[AgentDefinition, ...]:
    return agents_in(_SHIPPED.read_text(encoding="utf-8"))
