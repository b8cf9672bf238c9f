"""
The two lanes of the applier: which events are in whose hand. Pure: no I/O, no clock.

The urgent lane serves tiers 0 and 1, the bulk lane the rest, each with a graph transaction of its own, so that an
urgent event never waits behind a batch of others. An actor's events are in one hand at a time: that keeps its order
across both. Where an urgent event comes while its predecessors lie in the bulk lane, what is not yet being written is
handed over; what is, is waited for.

What a lane has claimed it holds until Postgres knows what became of it; a process that dies lets go of everything.
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
"""Events in the first transaction, and in the first after trouble; each that succeeds doubles the next, up to the
batch. A server that has only just started plans and compiles every statement anew, and must not be asked for too much
at once."""

STEADY_BATCH: Final = 500
"""Events up to which a batch grows whatever it takes: a small one spends its time on statements, not on rows."""

QUICK_S: Final = 0.5
"""Above :data:`STEADY_BATCH` a batch grows only while it takes no longer, in seconds: its actors wait behind it."""

SLOW_S: Final = 1.5
"""A larger one that takes longer is halved, in seconds: a caller waits at most two for visibility."""

BESIDE_URGENT: Final = 200
"""Events in a batch of the bulk lane while the urgent one is at work: they share the server, and locks on its nodes."""


def next_size(size: int, took_s: float, most: int) -> int:
    """Return how many events the next transaction may hold after one of at most *size* that took *took_s* seconds."""
    if size < STEADY_BATCH or took_s <= QUICK_S:
        return min(size * 2, most)
    return max(STEADY_BATCH, size // 2) if took_s > SLOW_S else size


class LaneName(StrEnum):
    """The lanes."""

    URGENT = "urgent"
    BULK = "bulk"


@dataclass(slots=True)
class Lane:
    """
    What one lane has in hand.

    Attributes:
        name: which.
        most: events in one transaction at most.
        size: events in the next one.
        waiting: claimed, and not begun.
        begun: position → actor of what is being written, or written and not yet marked.
        actors: how many events of each actor are in hand.
        stopped: actors whose event was refused and is tried again: nothing of theirs overtakes it.
        wake: set when there may be something to claim.
        wants: whether the other lane holds an actor that this one wants.
        since: actors of which the other lane took something since our claim was sent.
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
        """Positions in hand."""
        return [*self.begun, *(event.position for event in self.waiting)]

    @property
    def idle(self) -> bool:
        """Whether nothing is in hand."""
        return not self.begun and not self.waiting

    def limit(self, *, beside_urgent: bool) -> int:
        """Return how many events may be claimed now."""
        return min(self.size, self.most, BESIDE_URGENT) if beside_urgent else min(self.size, self.most)

    def start_claim(self) -> None:
        """Note that a claim is sent: what happens from now on may not be in its answer."""
        self.wake.clear()
        self.since.clear()
        # Postgres knows by now what has to be tried again, and leaves out what waits behind it.
        self.stopped.clear()
        self.wants = False

    def begin(self) -> list[Event]:
        """Take what waits in hand to be written, and return it in order."""
        events, self.waiting = self.waiting, []
        self.begun.update((event.position, event.actor) for event in events)
        return events

    def drop_stopped(self, events: Sequence[Event]) -> list[Event]:
        """Let go of those of *events* whose actor has stopped, and return the others."""
        self.done(event.position for event in events if event.actor in self.stopped)
        return [event for event in events if event.actor not in self.stopped]

    def stop(self, actor: str) -> None:
        """Let nothing more of *actor* be written: an event of its own has to be tried again first."""
        self.stopped.add(actor)
        self._let_go(actor)

    def done(self, positions: Iterable[int]) -> None:
        """Let go of events whose fate Postgres knows, or that were not touched."""
        for position in positions:
            actor = self.begun.pop(position, None)
            if actor is not None:
                self._less(actor)

    def busy_with(self, actor: str) -> bool:
        """Whether events of *actor* are being written, or are not yet marked."""
        return self.actors[actor] > sum(event.actor == actor for event in self.waiting)

    def _add(self, events: Sequence[Event]) -> None:
        self.waiting += events
        self.actors.update(event.actor for event in events)

    def _let_go(self, actor: str) -> None:
        """Forget what waits of *actor*."""
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
    Both lanes, and the rule that an actor is in one hand at a time.

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
        """Return the positions that a claim of *lane* must not bring: the urgent one asks past what both hold."""
        return [*lane.positions, *self.bulk.positions] if lane is self.urgent else lane.positions

    def take(self, lane: Lane, claimed: Sequence[Event]) -> None:
        """
        Take into *lane* what its claim brought, but for actors that the other lane holds, or held meanwhile.

        The urgent lane takes from the bulk lane what is not being written yet; it has then to claim once more, since
        its answer left out what the other held.
        """
        other = self.other(lane)
        kept = []
        for actor, events in _by_actor(claimed).items():
            if actor in lane.stopped:
                continue
            if lane is self.urgent and actor in other.actors and not other.busy_with(actor):
                other._let_go(actor)  # noqa: SLF001 - the two are one thing
                other.since.add(actor)
                lane.wake.set()
            elif actor in other.actors:
                lane.wants = True
            elif actor in lane.since:
                lane.wake.set()
            else:
                kept += events
        kept.sort(key=lambda event: event.position)
        lane._add(kept)  # noqa: SLF001 - as above
        other.since.update(event.actor for event in kept)

    def told(self, lane: Lane) -> None:
        """Wake the other lane if it waits for an actor that *lane* may have let go."""
        other = self.other(lane)
        if other.wants:
            other.wake.set()

    def wake(self, tiers: Collection[int] | None = None) -> None:
        """Wake the lanes of *tiers*, or both where nobody knows."""
        if tiers is None or any(tier < 2 for tier in tiers):
            self.urgent.wake.set()
        if tiers is None or any(tier >= 2 for tier in tiers):
            self.bulk.wake.set()

    def clear(self) -> None:
        """Let go of everything; sizes begin anew."""
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
