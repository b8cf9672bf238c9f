"""Reads patterns of every status, and the results of their tests, for people; from rows and journal alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.postgres.database import Database
from imem.kg.kinds.enums import PatternStatus
from imem.patterns.definition import definition_of

LISTED: Final = 200
"""Patterns of one list at most."""


class PatternTest(BaseModel):
    """
    A test of a pattern that ended.

    Attributes:
        id, kind, passed: of the record.
        failure: why it failed; None if it passed.
        ended_at: when it ended.
        sample_size, p: its cases, and its p-value where it has one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kind: str
    passed: bool
    failure: str | None = None
    ended_at: datetime | None = None
    sample_size: int
    p: float | None = None


class ListedPattern(BaseModel):
    """
    A pattern as people see it.

    Attributes:
        pattern_id, name, category: of the pattern.
        says: condition and claim in words.
        status, since: its status, and when it entered it.
        reason: why it entered it; None where none was said.
        proposed_by: who proposed it.
        search_space_size: candidates that its mining run looked at; None for a proposal by hand.
        waits_for: what a candidate waits for, and *until* when; None of others.
        attempt: of its blind test, from 1.
        tests: what ended, the oldest first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pattern_id: str
    name: str
    category: str
    says: str
    status: PatternStatus
    since: datetime
    reason: str | None
    proposed_by: str
    search_space_size: int | None
    waits_for: str | None
    until: datetime | None
    attempt: int
    tests: tuple[PatternTest, ...]


async def patterns_listed(
    database: Database, status: PatternStatus | None, pattern_id: str | None, *, deadline: Deadline
) -> list[ListedPattern]:
    """
    Return the patterns of a status, or of any, the newest first; at most :data:`LISTED`.

    Args:
        pattern_id: this one alone.
    """
    given = {"status": None if status is None else status.value, "key": pattern_id, "limit": LISTED}
    return [_listed(row) for row in await database.named("patterns_listed", given, deadline=deadline)]


async def pattern_listed(database: Database, pattern_id: str, *, deadline: Deadline) -> ListedPattern:
    """
    Return one pattern.

    Raises:
        BadInput: there is no such pattern.
    """
    found = await patterns_listed(database, None, pattern_id, deadline=deadline)
    if not found:
        raise BadInput("pattern_id", f"there is no pattern {pattern_id!r:.300}.")
    return found[0]


def _listed(row: Mapping[str, Any]) -> ListedPattern:
    data, status = row["data"], PatternStatus(row["state"])
    definition = definition_of(data["definition"])
    testing = status is PatternStatus.CANDIDATE
    return ListedPattern(
        pattern_id=row["key"], name=definition.name, category=definition.category, says=definition.words,
        status=status, since=row["entered_at"], reason=data.get("reason"), proposed_by=data["proposed_by"],
        search_space_size=data["search_space_size"], waits_for=data["stage"] if testing else None,
        until=datetime.fromisoformat(data["look_at"]) if testing else row["due_at"], attempt=data["attempt"],
        tests=tuple(_tests(row["tests"] or ())),
    )  # fmt: skip


def _tests(found: Sequence[Mapping[str, Any]]) -> list[PatternTest]:
    return [
        PatternTest(
            id=one["id"], kind=one["validation_type"], passed=one["passed"], failure=one.get("failure_reason"),
            ended_at=one.get("test_end_date"), sample_size=one["sample_size"], p=one.get("p_value"),
        )
        for one in found
    ]  # fmt: skip
