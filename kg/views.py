"""
Materialised views: results that many read and that change rarely, rebuilt at intervals and read by key.

====================  ==============  ================================================================
view                  key             content of a row
====================  ==============  ================================================================
top_patterns          sector, or *    active patterns of the sector, or of none, the most successful first
agent_credibility     agent           the newest sums of its track records, by domain
company_summaries     subject id      numbers of analyses, the newest conclusion, outcomes of decisions
peer_comparisons      sector          its companies side by side
====================  ==============  ================================================================

A view is built in one transaction: a new version, its rows, and the pointer that readers follow. Readers see the old
version or the new one; a failed build leaves the old one, whose age is in every result. Views hold present values alone
and are derived from the journal, so that losing them loses nothing.

One fact is checked when a view is read: a pattern that is no longer active is left out as soon as that is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import structlog

from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError
from imem.journal.modes import Mode
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows
from imem.kg.asof import active_among

log = structlog.get_logger()

BUILDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "top_patterns": "build_top_patterns",
        "agent_credibility": "build_agent_credibility",
        "company_summaries": "build_company_summaries",
        # After the summaries, which it reads.
        "peer_comparisons": "build_peer_comparisons",
    }
)
"""View → the statement that builds its rows, in the order of building."""

TOP_PATTERNS: Final = "top_patterns"

OF_NO_SECTOR: Final = "*"
"""Key of the patterns that are bound to no sector."""


@dataclass(frozen=True, slots=True)
class View:
    """
    A row of a view.

    Attributes:
        name, key: which.
        value: JSON types; None where the view has no such row.
        version: of the view.
        built_at: when it was built.
        source_seq: the last position of the journal that the build read.
        age_s: how long ago it was built, in seconds.
        mode: the operating mode of the read.
        late_ms: milliseconds after the deadline; None if it was in time.
    """

    name: str
    key: str
    value: Any
    version: int
    built_at: datetime
    source_seq: int
    age_s: float
    mode: Mode = Mode.NORMAL
    late_ms: float | None = None


async def rebuild(database: Database, *, deadline: Deadline) -> dict[str, int]:
    """
    Build every view and return how many rows each has; one that another process builds is skipped.

    A view that fails keeps its old version; the others are built all the same.

    Raises:
        ImemError: the last failure, after everything else was tried.
    """
    made: dict[str, int] = {}
    failure: ImemError | None = None
    for name in BUILDS:
        try:
            count = await build(database, name, deadline=deadline)
        except ImemError as error:
            log.warning("views.not_made", view=name, reason=str(error))
            failure = error
            continue
        if count is not None:
            made[name] = count
    if failure is not None:
        raise failure
    return made


async def build(database: Database, name: str, *, deadline: Deadline) -> int | None:
    """
    Build one view and publish it; return how many rows it has, or None where another process builds views.

    Raises:
        PostgresUnavailable, BudgetExceeded, StatementRejected: the old version stays.
    """
    async with database.transaction(deadline) as conn:
        if not (await rows(conn, "view_lock"))[0]["held"]:
            return None
        version = (await rows(conn, "view_begin", {"name": name}))[0]["version"]
        given = {"name": name, "version": version}
        count = await execute(conn, BUILDS[name], given)
        await execute(conn, "view_swap", given)
        await execute(conn, "view_prune", {"name": name})
    return count


async def view(database: Database, name: str, key: str, *, deadline: Deadline) -> View | None:
    """
    Return a row of a view; None where the view was never built.

    Raises:
        BadInput: there is no such view.
        PostgresUnavailable, BudgetExceeded: it could not be read in time; retryable.
    """
    if name not in BUILDS:
        raise BadInput("view", f"{name!r} is none of {', '.join(BUILDS)}.")
    found = await database.named("view_of", {"name": name, "key": key}, deadline=deadline)
    if not found:
        return None
    row = found[0]
    value = row["value"]
    if name == TOP_PATTERNS and value:
        active = await active_among((pattern["pattern_id"] for pattern in value), database, deadline=deadline)
        value = [pattern for pattern in value if pattern["pattern_id"] in active]
    return View(name, key, value, row["version"], row["built_at"], row["source_seq"], row["age_s"])
