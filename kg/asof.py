"""
As-of reads on either clock: the graph finds keys, and their values are read from the journal.

On the clock ``known`` a fact counts when it could be known by T; on the clock ``recorded`` it must also have been
recorded by T. The values of all records of a result are read from the journal's history in one statement. The graph's
own properties are the newest ones and are never shown as of an earlier moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import orjson

from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.kg.kinds.catalog import CORE, KINDS
from imem.kg.load_format.entries import BODY, CORRECTION, PROPS, TURNS

END_OF_TIME: Final = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


class AsOfClock(StrEnum):
    """The clock that "at T" refers to."""

    KNOWN = "known"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class AsOf:
    """
    A moment on a clock.

    Attributes:
        at: the T in use; a requested one is clamped to the safe horizon.
        clock: which clock.
        asked: the T that was requested; None means now.
        complete_until: everything recorded by then is committed and in the graph; None if unknown.
    """

    at: datetime
    clock: AsOfClock = AsOfClock.KNOWN
    asked: datetime | None = None
    complete_until: datetime | None = None

    @property
    def known_until(self) -> datetime:
        """The latest ``known_at`` that counts."""
        return self.at

    @property
    def recorded_until(self) -> datetime:
        """The latest ``recorded_at`` that counts."""
        return self.at if self.clock is AsOfClock.RECORDED else END_OF_TIME

    @property
    def limits(self) -> dict[str, datetime]:
        """Both limits, as parameters of statements."""
        return {"known_until": self.known_until, "recorded_until": self.recorded_until}


def parse_as_of(as_of: datetime | None, clock: str) -> tuple[datetime | None, AsOfClock]:
    """
    Parse the moment, in UTC, and the clock.

    Raises:
        BadInput: the moment names no zone or lies beyond the calendar, or the clock is unknown.
    """
    if as_of is not None and as_of.utcoffset() is None:
        raise BadInput("as_of", "must name its zone; a time without one is ambiguous.")
    try:
        at = as_of.astimezone(UTC) if as_of is not None else None
    except OverflowError:
        raise BadInput("as_of", "lies outside the years 1 to 9999 in UTC.") from None
    try:
        return at, AsOfClock(clock)
    except ValueError:
        raise BadInput("clock", f"must be known or recorded, not {clock!r}.") from None


def clamp_to_horizon(asked: datetime | None, on: AsOfClock, horizon: datetime, now: datetime) -> AsOf:
    """
    Return the T to use.

    A requested moment is clamped to the safe horizon, so that the same question has the same answer later, on the
    recorded clock. Without one, T is now: nothing visible is hidden, and ``complete_until`` says up to when the result
    is complete.
    """
    if asked is None:
        return AsOf(horizon if on is AsOfClock.RECORDED else now, on, None, horizon)
    return AsOf(min(asked, horizon), on, asked, horizon)


@dataclass(frozen=True, slots=True)
class RecordAsOf:
    """
    A record as of T.

    Attributes:
        kind, key: which.
        core: its canonical core, with a correction made by then.
        groups: its canonical groups that were known by then.
        known_at: the earliest moment it could be known.
        occurred_at: when it was true in the world.
        group_known_at: since when each group has had its value.
        corrected_at: ``known_at`` of the correction in ``core``, if any.
        has_body: whether there is a long text.
        turns_position: the event that holds a debate's turns, if any.
    """

    kind: str
    key: str
    core: Mapping[str, Any]
    groups: Mapping[str, Mapping[str, Any]]
    known_at: datetime
    occurred_at: datetime
    group_known_at: Mapping[str, datetime] = field(default_factory=dict)
    corrected_at: datetime | None = None
    has_body: bool = False
    turns_position: int | None = None

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field of the core."""
        return self.core.get(name, default)


Ref = tuple[str, str]
"""Kind and key; of a link ``link.<TYPE>`` and its identity."""


@dataclass(frozen=True, slots=True)
class ValuesAsOf:
    """
    Values of records and links as of T; what was not known then is missing.

    Attributes:
        records: by kind and key.
        links: properties of links, by kind and key.
    """

    records: Mapping[Ref, RecordAsOf]
    links: Mapping[Ref, Mapping[str, Any]]


async def dated(database: Database, refs: Iterable[Ref], at: AsOf, *, deadline: Deadline) -> ValuesAsOf:
    """
    Return the given records and links as of T, read in one statement.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be read in time; retryable.
    """
    wanted = sorted(set(refs))
    if not wanted:
        return ValuesAsOf({}, {})
    rows = await database.named(
        "record_values_at",
        {"kinds": [kind for kind, _ in wanted], "keys": [key for _, key in wanted], **at.limits},
        deadline=deadline,
    )
    grouped: dict[Ref, dict[str, Row]] = {}
    for row in rows:
        grouped.setdefault((row["kind"], row["key"]), {})[row["grp"]] = row
    return ValuesAsOf(
        {ref: _dated(ref, groups) for ref, groups in grouped.items() if CORE in groups},
        {ref: _value(groups[PROPS])["props"] for ref, groups in grouped.items() if PROPS in groups},
    )


async def active_among(
    keys: Iterable[str], database: Database, at: AsOf | None = None, *, deadline: Deadline
) -> frozenset[str]:
    """
    Return those of the given patterns that were active at *at*, or are now, by the journal.

    Views and the graph lag behind the journal.

    Raises:
        PostgresUnavailable, BudgetExceeded: it could not be read in time; retryable.
    """
    wanted = sorted(set(keys))
    if not wanted:
        return frozenset()
    limits = (at or AsOf(END_OF_TIME)).limits
    rows = await database.named("active_among", {"keys": wanted, **limits}, deadline=deadline)
    return frozenset(row["key"] for row in rows)


def _value(row: Row) -> Any:
    """Decode a value; with orjson, which wrote it, so that every number survives."""
    return None if row["value"] is None else orjson.loads(row["value"])


def _dated(ref: Ref, groups: Mapping[str, Row]) -> RecordAsOf:
    core = groups[CORE]
    correction = groups.get(CORRECTION)
    named = {name: row for name, row in groups.items() if name in KINDS[ref[0]].groups}
    turns = groups.get(TURNS)
    return RecordAsOf(
        kind=ref[0],
        key=ref[1],
        core=_value(correction or core),
        groups={name: _value(row) for name, row in named.items()},
        known_at=core["known_at"].astimezone(UTC),
        occurred_at=core["occurred_at"].astimezone(UTC),
        group_known_at={name: row["known_at"].astimezone(UTC) for name, row in named.items()},
        corrected_at=correction["known_at"].astimezone(UTC) if correction else None,
        has_body=BODY in groups,
        turns_position=turns["position"] if turns else None,
    )
