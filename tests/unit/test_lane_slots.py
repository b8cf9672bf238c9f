"""Two lanes and one journal, played through: no actor is in two lanes at once, nothing overtakes, nothing is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.kg.projection.lanes import BESIDE_URGENT, Lane, Lanes
from imem.kg.projection.rows import Event


def event(position: int, actor: str) -> Event:
    moment = "2026-01-01T00:00:00Z"
    return Event(position, UUID(int=position), "record.X", "k", {}, moment, moment, moment, f"{position}", actor=actor)


@dataclass
class Table:
    """What Postgres would say: actor and tier of each event, and what was applied."""

    events: list[tuple[str, int]] = field(default_factory=list)
    applied: list[int] = field(default_factory=list)

    def pending(self) -> list[int]:
        return [number for number in range(len(self.events)) if number not in self.applied]

    def claim(self, held: set[int], limit: int, *, urgent: bool) -> list[Event]:
        """Answer a claim as the statements do."""
        pending = self.pending()
        reserved = {self.events[number][0] for number in pending if self.events[number][1] < 2}
        if urgent:
            upto = {
                actor: max(n for n in pending if self.events[n][0] == actor and self.events[n][1] < 2)
                for actor in reserved
            }
            due = [n for n in pending if n <= upto.get(self.events[n][0], -1)]
        else:
            due = [n for n in pending if self.events[n][0] not in reserved]
        return [event(number, self.events[number][0]) for number in due if number not in held][:limit]


@dataclass
class Play:
    """One course of events: each lane may have a claim under way, and a batch."""

    table: Table = field(default_factory=Table)
    lanes: Lanes = field(default_factory=lambda: Lanes(3))
    sent: dict[str, list[Event]] = field(default_factory=dict)
    batch: dict[str, list[Event]] = field(default_factory=dict)

    def lane(self, urgent: bool) -> Lane:  # noqa: FBT001
        return self.lanes.urgent if urgent else self.lanes.bulk

    def step(self, what: str, urgent: bool) -> None:  # noqa: FBT001
        lane = self.lane(urgent)
        if what == "send" and lane.name not in self.sent and not lane.waiting:
            lane.start_claim()
            held = set(self.lanes.held(lane))
            self.sent[lane.name] = self.table.claim(held, 3, urgent=urgent)
        elif what == "answer" and lane.name in self.sent:
            self.lanes.take(lane, self.sent.pop(lane.name))
        elif what == "begin" and lane.name not in self.batch and lane.name not in self.sent:
            self.batch[lane.name] = lane.begin()
        elif what == "mark" and lane.name in self.batch:
            done = [one.position for one in self.batch.pop(lane.name)]
            self.table.applied += done
            lane.done(done)
            self.lanes.wake_other(lane)
        self.check()

    def check(self) -> None:
        assert not set(self.lanes.urgent.actors) & set(self.lanes.bulk.actors)
        for lane in (self.lanes.urgent, self.lanes.bulk):
            held = [*(lane.begun.values()), *(one.actor for one in lane.waiting)]
            assert {actor: held.count(actor) for actor in held} == dict(lane.actors)

    def finish(self) -> None:
        """Play on fairly until nothing is pending."""
        for _ in range(20 * len(self.table.events) + 20):
            for what in ("answer", "begin", "mark", "send"):
                for urgent in (True, False):
                    self.step(what, urgent)
        assert self.table.pending() == []


MOVES = st.one_of(
    st.tuples(st.just("say"), st.sampled_from("abc"), st.sampled_from([0, 1, 2, 3, 3, 3])),
    st.tuples(st.sampled_from(["send", "answer", "begin", "mark"]), st.booleans()),
)


@pytest.mark.spec("SY-9")
@given(st.lists(MOVES, max_size=60))
def test_whatever_comes_when_each_actor_keeps_its_order(moves: list[tuple[str, str, int] | tuple[str, bool]]) -> None:
    """Events arrive while claims are under way and batches are written, in any order; each is written once."""
    play = Play()
    for move in moves:
        if len(move) == 3:
            play.table.events.append((move[1], move[2]))
        else:
            play.step(*move)
    play.finish()

    for actor in "abc":
        order = [number for number in play.table.applied if play.table.events[number][0] == actor]
        assert order == sorted(set(order))


@pytest.mark.spec("SY-9")
def test_an_urgent_event_takes_over_what_waits_in_the_other_lane() -> None:
    """Its predecessors were claimed and not begun: they are handed over, and go first."""
    play = Play()
    play.table.events += [("a", 3), ("b", 3)]
    for what in ("send", "answer"):
        play.step(what, urgent=False)
    play.table.events.append(("a", 1))
    for what in ("send", "answer"):
        play.step(what, urgent=True)

    assert play.lanes.urgent.wake.is_set()
    assert [one.actor for one in play.lanes.bulk.waiting] == ["b"]
    for what in ("send", "answer"):
        play.step(what, urgent=True)
    assert [one.position for one in play.lanes.urgent.waiting] == [0, 2]


@pytest.mark.spec("SY-9")
def test_an_urgent_event_waits_for_what_is_being_written() -> None:
    """And is told when that is over."""
    play = Play()
    play.table.events += [("a", 3)]
    for what in ("send", "answer", "begin"):
        play.step(what, urgent=False)
    play.table.events.append(("a", 1))
    for what in ("send", "answer"):
        play.step(what, urgent=True)

    assert play.lanes.urgent.waiting == []
    assert not play.lanes.urgent.wake.is_set()
    play.step("mark", urgent=False)
    assert play.lanes.urgent.wake.is_set()


@pytest.mark.spec("SY-9")
def test_an_answer_that_the_other_lane_has_overtaken_brings_nothing() -> None:
    """What it speaks of was written meanwhile, by the other lane, with something urgent; the lane asks again."""
    play = Play()
    play.table.events.append(("a", 3))
    play.step("send", urgent=False)
    play.table.events.append(("a", 1))
    for what in ("send", "answer", "begin", "mark"):
        play.step(what, urgent=True)
    play.lanes.bulk.wake.clear()
    play.step("answer", urgent=False)

    assert play.table.applied == [0, 1]
    assert play.lanes.bulk.waiting == []
    assert play.lanes.bulk.wake.is_set()


def test_what_comes_after_a_refused_event_is_let_go() -> None:
    """What waits, what is in the same batch, and what an answer brings that was sent before."""
    lanes = Lanes(10)
    lane = lanes.bulk
    lane.start_claim()
    lanes.take(lane, [event(1, "a"), event(2, "b"), event(3, "a")])
    events = lane.begin()
    lane.start_claim()
    lane.done([1])
    lane.stop("a")
    assert [one.position for one in lane.drop_stopped(events[1:])] == [2]
    lanes.take(lane, [event(4, "a"), event(5, "b")])
    assert [one.position for one in lane.waiting] == [5]
    lane.start_claim()
    lanes.take(lane, [event(1, "a")])
    assert [one.position for one in lane.waiting] == [5, 1]


def test_batches_are_small_beside_urgent_ones() -> None:
    lanes = Lanes(2000)
    lanes.bulk.size = 2000
    assert lanes.bulk.limit(beside_urgent=False) == 2000
    assert lanes.bulk.limit(beside_urgent=True) == BESIDE_URGENT
    lanes.clear()
    assert lanes.bulk.limit(beside_urgent=True) == 50
