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
from imem.journal.events.entry import Tier
from imem.journal.events.tiers import tier_named
from imem.journal.postgres.database import Database

LEAST_MS: Final = 10
MOST_MS: Final = 2_000
"""Bounds of the timeout of a synchronisation, in milliseconds."""

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
    wanted = sorted({checked_agent_id(one) for one in _listed(agent_ids, field)})
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


def _listed(agent_ids: Any, field: str) -> Collection[str]:
    if isinstance(agent_ids, str | bytes) or not isinstance(agent_ids, Collection):
        raise BadInput(field, "must be a list of agents' ids.")
    if not agent_ids:
        raise BadInput(field, "names no agent.")
    if len(agent_ids) > MOST_AGENTS:
        raise BadInput(field, f"names more than {MOST_AGENTS} agents.")
    return agent_ids


def checked_tier(tier: Any, field: str = "tier") -> Tier | None:
    """
    Return *tier*, given as itself, its number or its name; None for None.

    Raises:
        BadInput: there is no such tier.
    """
    return None if tier is None else tier_named(tier, field)


def is_whole(number: object) -> bool:
    """Return whether *number* is an int, and no bool."""
    return isinstance(number, int) and not isinstance(number, bool)


def checked_ms(given: Any, field: str = "deadline_ms") -> float:
    """
    Return a budget in milliseconds.

    Raises:
        BadInput: it is no number from 10 to 2,000.
    """
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else float("nan")
    if not LEAST_MS <= number <= MOST_MS:  # NaN is within no bounds.
        raise BadInput(field, f"must be a number of milliseconds from {LEAST_MS:,} to {MOST_MS:,}.")
    return float(number)


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
