"""
Admission of a task to the queue: who gets it, whom it displaces, or why the default applies at once.

Pure. Capacity is a number of each reviewer, over all kinds that are queued; only a task of the same kind is displaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from imem.journal.errors import TransitionRefused
from imem.review.states import Why


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer:
    """
    An entry of the roster.

    Attributes:
        person: the name.
        kinds: kinds of tasks that the person answers; empty: all.
        capacity: tasks at a time.
        away_until: until when the person is away, aware; None: not away.
        deputy: who gets tasks meanwhile.
    """

    person: str
    kinds: Sequence[str] = ()
    capacity: int = 3
    away_until: datetime | None = None
    deputy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTask:
    """An open task that a reviewer has; *rank* 0 is the most urgent."""

    task_id: str
    kind: str
    reviewer: str
    rank: int
    opened_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """
    The decision about a new task.

    Attributes:
        reviewer: who gets it; None where the default applies.
        displaced: the task that makes room.
        why: why the default applies.
    """

    reviewer: str | None = None
    displaced: HeldTask | None = None
    why: Why | None = None


def answers(reviewer: Reviewer, kind: str) -> bool:
    """Return whether *reviewer* answers tasks of *kind*."""
    return not reviewer.kinds or kind in reviewer.kinds


def is_away(reviewer: Reviewer, now: datetime) -> bool:
    """Return whether *reviewer* is away."""
    return reviewer.away_until is not None and now < reviewer.away_until


def reviewers_of(kind: str, roster: Iterable[Reviewer], now: datetime) -> list[Reviewer]:
    """Return who is there to answer tasks of *kind*, deputies of the absent included, by name."""
    people = {one.person: one for one in roster}
    found = {}
    for one in people.values():
        if not answers(one, kind):
            continue
        present = one if not is_away(one, now) else people.get(one.deputy or "")
        if present is not None and answers(present, kind) and not is_away(present, now):
            found[present.person] = present
    return [found[name] for name in sorted(found)]


def check_room(reviewer: Reviewer, held: Iterable[HeldTask], task_id: str, now: datetime) -> None:
    """
    Refuse to hand a task over to who has it, is away, or has no room for it.

    Raises:
        TransitionRefused: says why.
    """
    own = [one for one in held if one.reviewer == reviewer.person]
    subject, mend = f"The task {task_id} cannot go to {reviewer.person}", "`imem tasks roster` lists who else answers."
    if any(one.task_id == task_id for one in own):
        raise TransitionRefused(f"{subject}, who has it.", mend=mend)
    if is_away(reviewer, now):
        raise TransitionRefused(f"{subject}, who is away until {reviewer.away_until:%Y-%m-%d %H:%M} UTC.", mend=mend)
    if len(own) >= reviewer.capacity:
        raise TransitionRefused(f"{subject}, who has {len(own)} of {reviewer.capacity} tasks at a time.", mend=mend)


def admit(
    kind: str,
    rank: int,
    roster: Iterable[Reviewer],
    held: Sequence[HeldTask],
    *,
    may_displace: bool,
    now: datetime,
) -> Admission:
    """
    Decide on a new task of *kind* and *rank*.

    It goes to the reviewer with the smallest share of capacity in use. Where all are full, it may displace the least
    urgent task of its kind that is less urgent than itself, of several the newest; else the default applies at once.
    """
    there = reviewers_of(kind, roster, now)
    if not there:
        return Admission(why=Why.NOBODY)
    load = Counter(one.reviewer for one in held)
    free = [one for one in there if load[one.person] < one.capacity]
    if free:
        best = min(free, key=lambda one: (load[one.person] / one.capacity, one.person))
        return Admission(reviewer=best.person)
    names = {one.person for one in there}
    lower = [one for one in held if one.kind == kind and one.rank > rank and one.reviewer in names]
    if not may_displace or not lower:
        return Admission(why=Why.FULL)
    out = max(lower, key=lambda one: (one.rank, one.opened_at, one.task_id))
    return Admission(reviewer=out.reviewer, displaced=out)
