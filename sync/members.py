"""
Members of a synchronisation: agent instances, each with its owner, the actor of its events.

An instance's items are recorded in its owner's name and order; several instances may have one owner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from imem.cache.keys import checked_agent_id, checked_analysis_id
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.postgres.database import Database

MOST_AGENTS: Final = 200
"""Agents that one call may name."""


@dataclass(frozen=True, slots=True)
class SyncMember:
    """
    An agent instance.

    Attributes:
        agent_id: the instance; names its working memory.
        owner: the actor in whose name its items are recorded.
        analysis_id, agent_type: of the instance.
    """

    agent_id: str
    owner: str
    analysis_id: str
    agent_type: str


async def members(
    database: Database, agent_ids: Collection[str], *, field: str = "agents", deadline: Deadline
) -> list[SyncMember]:
    """
    Return the instances of *agent_ids*, in the order of the ids, each once.

    Raises:
        BadInput: an id is malformed or unknown, or there are too many; names *field*.
    """
    if not agent_ids:
        raise BadInput(field, "names no agent.")
    if len(agent_ids) > MOST_AGENTS:
        raise BadInput(field, f"names more than {MOST_AGENTS} agents.")
    wanted = sorted({checked_agent_id(one) for one in agent_ids})
    rows = await database.named("members", {"agent_ids": wanted}, deadline=deadline)
    found = {row["agent_id"]: SyncMember(**row) for row in rows}
    for agent_id in wanted:
        if agent_id not in found:
            raise BadInput(field, f"no agent was ever begun as {agent_id!r}.", mend="A session begins one.")
    return [found[agent_id] for agent_id in wanted]


async def members_of(database: Database, analysis_id: str, *, deadline: Deadline) -> list[SyncMember]:
    """Return the instances of an analysis, by id."""
    rows = await database.named("members_of", {"analysis_id": analysis_id}, deadline=deadline)
    return [SyncMember(**row) for row in rows]


async def members_of_owners(
    database: Database, analysis_id: str | None, owners: Collection[str], *, deadline: Deadline
) -> list[SyncMember]:
    """Return the instances of an analysis that *owners* own, by id."""
    given = {"analysis_id": analysis_id, "owners": sorted(owners)}
    return [SyncMember(**row) for row in await database.named("members_of_owners", given, deadline=deadline)]


def owners_of(found: Sequence[SyncMember]) -> list[str]:
    """Return the owners of *found*, each once, sorted."""
    return sorted({one.owner for one in found})


def gate_name(analysis_id: str, gate: int) -> str:
    """Return the name of a gate, such as ``analysis-7/3``."""
    return f"{analysis_id}/{gate}"


def gate_of(name: object) -> tuple[str, int]:
    """
    Return the analysis and the number of the gate called *name*, such as ``analysis-7/3``.

    Raises:
        BadInput: it is no such name.
    """
    analysis_id, _, number = name.rpartition("/") if isinstance(name, str) else ("", "", "")
    if not analysis_id or number not in {"1", "2", "3", "4", "5", "6"}:
        raise BadInput("gate", f"{name!r:.200} is no gate.", mend="Name it by its analysis and number: analysis-7/3.")
    return checked_analysis_id(analysis_id), int(number)


def lag_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lag of an actor, from a row of ``writers_lag``."""
    return {name: row[name] for name in ("pushed_seq", "applied_seq", "waiting", "dead", "oldest_s")}
