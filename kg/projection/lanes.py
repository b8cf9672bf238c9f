"""
The two lanes of the applier: which events each has claimed. Pure: no I/O, no clock.

The urgent lane serves tiers 0 and 1, the bulk lane the rest, each with its own graph transactions, so that an urgent
event never waits behind a bulk batch. Only one lane at a time holds events of an actor, which keeps the actor's order.
When an urgent event comes while the bulk lane holds earlier events of its actor, the bulk lane releases those that are
not in flight, and the urgent lane waits for those that are.

A lane holds claimed events until Postgres has recorded their outcome. A crash releases all of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from imem.kg.projection.rows import Event

FIRST_BATCH: Final = 50
"""
Events in the first transaction, and in the first after an error; each success doubles the next, up to the batch. A
server that has just started plans and compiles every statement anew, so that large batches would time out.
"""

STEADY_BATCH: Final = 500
"""Events up to which a batch grows regardless of its duration: smaller ones are dominated by the cost of statements."""

QUICK_S: Final = 0.5
"""Longest duration of a batch above :data:`STEADY_BATCH` after which it grows further, in seconds."""

SLOW_S: Final = 1.5
"""
A batch above :data:`STEADY_BATCH` that takes longer is halved, in seconds: a caller waits at most 2 s for visibility.
"""

BESIDE_URGENT: Final = 200
"""Events in a bulk batch while the urgent lane is active, since both share the server, and locks on its nodes."""


def next_size(size: int, took_s: float, most: int) -> int:
    """Return the size of the next batch after one of at most *size* that took *took_s* seconds."""
    if size < STEADY_BATCH or took_s <= QUICK_S:
        return min(size * 2, most)
    return max(STEADY_BATCH, size // 2) if took_s > SLOW_S else size


class LaneName(StrEnum):
    """Names of the lanes."""

    URGENT = "urgent"
    BULK = "bulk"


@dataclass(slots=True)
class Lane:
    """
    The claimed events of one lane.

    Attributes:
        name: which lane.
        most: events in one transaction at most.
        size: events in the next one.
        waiting: events claimed and not in flight.
        begun: position → actor of events in flight: being written, or written and not yet marked.
        actors: number of claimed events by actor.
        stopped: actors whose event was refused and will be retried; later events of theirs are not written before it.
        wake: set when there may be something to claim.
        wants: whether this lane waits for an actor that the other lane holds.
        since: actors of which the other lane took events since this lane's claim was sent.
    """

    name: LaneName
    most: int
    size: int = FIRST_BATCH
    waiting: list[Event] = field(default_factory=list)
    begun: dict[int, str] = field(default_factory=dict)
    actors: Counter[str] = field(default_factory=Counter)
    stopped: set[str] = field(default_factory=set)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    wants: bool = False
    since: set[str] = field(default_factory=set)

    @property
    def positions(self) -> list[int]:
        """Positions of claimed events."""
        return [*self.begun, *(event.position for event in self.waiting)]

    def limit(self, *, beside_urgent: bool) -> int:
        """Return how many events may be claimed."""
        return min(self.size, self.most, BESIDE_URGENT) if beside_urgent else min(self.size, self.most)

    def start_claim(self) -> None:
        """Reset the flags that a claim answers; later changes may be missing from its result."""
        self.wake.clear()
        self.since.clear()
        # Postgres has recorded the refusals by now, and its claims leave out what waits behind them.
        self.stopped.clear()
        self.wants = False

    def begin(self) -> list[Event]:
        """Move the waiting events in flight, and return them in order."""
        events, self.waiting = self.waiting, []
        self.begun.update((event.position, event.actor) for event in events)
        return events

    def drop_stopped(self, events: Sequence[Event]) -> list[Event]:
        """Release those of *events* whose actor is blocked, and return the others."""
        self.done(event.position for event in events if event.actor in self.stopped)
        return [event for event in events if event.actor not in self.stopped]

    def stop(self, actor: str) -> None:
        """Block *actor* and release its waiting events: a refused event of its own is retried first."""
        self.stopped.add(actor)
        self._let_go(actor)

    def done(self, positions: Iterable[int]) -> None:
        """Release events whose outcome Postgres has recorded, or that were not written."""
        for position in positions:
            actor = self.begun.pop(position, None)
            if actor is not None:
                self._less(actor)

    def busy_with(self, actor: str) -> bool:
        """Whether events of *actor* are in flight."""
        return self.actors[actor] > sum(event.actor == actor for event in self.waiting)

    def _add(self, events: Sequence[Event]) -> None:
        self.waiting += events
        self.actors.update(event.actor for event in events)

    def _let_go(self, actor: str) -> None:
        """Release the waiting events of *actor*."""
        self.waiting = [event for event in self.waiting if event.actor != actor]
        left = sum(found == actor for found in self.begun.values())
        if left:
            self.actors[actor] = left
        else:
            del self.actors[actor]

    def _less(self, actor: str) -> None:
        self.actors[actor] -= 1
        if not self.actors[actor]:
            del self.actors[actor]


class Lanes:
    """
    Both lanes, and the rule that one lane at a time holds an actor.

    Args:
        most: events in one transaction of the bulk lane at most.
    """

    def __init__(self, most: int) -> None:
        self.urgent = Lane(LaneName.URGENT, min(most, STEADY_BATCH))
        self.bulk = Lane(LaneName.BULK, most)

    def other(self, lane: Lane) -> Lane:
        """Return the other lane."""
        return self.bulk if lane is self.urgent else self.urgent

    def held(self, lane: Lane) -> list[int]:
        """Return the positions that a claim of *lane* excludes; for the urgent lane those of both."""
        return [*lane.positions, *self.bulk.positions] if lane is self.urgent else lane.positions

    def take(self, lane: Lane, claimed: Sequence[Event]) -> None:
        """
        Add *claimed* to *lane*, except for actors that the other lane holds, or took since the claim was sent.

        For the urgent lane the bulk lane releases events that are not in flight. The urgent lane then claims again,
        since its claim excluded them.
        """
        other = self.other(lane)
        kept = []
        for actor, events in _by_actor(claimed).items():
            if actor in lane.stopped:
                continue
            if lane is self.urgent and actor in other.actors and not other.busy_with(actor):
                other._let_go(actor)  # noqa: SLF001 - same module
                other.since.add(actor)
                lane.wake.set()
            elif actor in other.actors:
                lane.wants = True
            elif actor in lane.since:
                lane.wake.set()
            else:
                kept += events
        kept.sort(key=lambda event: event.position)
        lane._add(kept)  # noqa: SLF001 - same module
        other.since.update(event.actor for event in kept)

    def wake_other(self, lane: Lane) -> None:
        """Wake the other lane if it waits for an actor that *lane* may have released."""
        other = self.other(lane)
        if other.wants:
            other.wake.set()

    def wake(self, tiers: Collection[int] | None = None) -> None:
        """Wake the lanes of *tiers*; both if None."""
        if tiers is None or any(tier < 2 for tier in tiers):
            self.urgent.wake.set()
        if tiers is None or any(tier >= 2 for tier in tiers):
            self.bulk.wake.set()

    def clear(self) -> None:
        """Release everything and reset the sizes."""
        for lane in (self.urgent, self.bulk):
            lane.waiting.clear()
            lane.begun.clear()
            lane.actors.clear()
            lane.stopped.clear()
            lane.since.clear()
            lane.wants = False
            lane.size = FIRST_BATCH
            lane.wake.set()


def _by_actor(events: Sequence[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event.actor, []).append(event)
    return found
