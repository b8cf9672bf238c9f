"""What each lane takes from Postgres, and in which order."""

from __future__ import annotations

import pytest

from imem.journal.errors import StatementRejected
from imem.journal.events.entry import Tier
from imem.kg.projection.applier import TURN_EVENTS, Applier
from imem.kg.projection.lanes import Lane
from tests.kg.lanes.conftest import agent, finding, lame, later
from tests.kg.projection.world import Journal, importer

pytestmark = pytest.mark.asyncio


async def claimed(applier: Applier, lane: Lane, limit: int | None = None) -> list[str]:
    """Claim once and return the keys that are then in hand."""
    if limit is not None:
        lane.size = limit
    await applier._claim(lane)
    return [event.key for event in lane.waiting]


@pytest.mark.spec("SY-9")
async def test_a_critical_event_drags_its_predecessors(paper: Journal) -> None:
    """What its actor said before it goes with it, whatever its tier; what was said after it stays."""
    await paper.say(*[finding(f"import-{number}", by="old") for number in range(20)], actor=importer())
    await paper.say(finding("first"), finding("second", importance=0.9), actor=agent("bull"))
    await paper.say(finding("third"), actor=agent("bull"), tier=Tier.CRITICAL)
    await paper.say(finding("fourth"), actor=agent("bull"))
    applier = lame(paper.database)

    assert await claimed(applier, applier._lane_slots.urgent) == ["first", "second", "third"]
    assert await claimed(applier, applier._lane_slots.bulk, 100) == [f"import-{number}" for number in range(20)]


async def test_system_critical_goes_ahead_of_critical(paper: Journal) -> None:
    await paper.say(finding("bull", by="bull"), actor=agent("bull"), tier=Tier.CRITICAL)
    await paper.say(finding("bear", by="bear"), actor=agent("bear"), tier=Tier.SYSTEM_CRITICAL)
    applier = lame(paper.database)

    assert await claimed(applier, applier._lane_slots.urgent, 1) == ["bear"]


async def test_one_actor_with_much_before_its_urgent_event_does_not_hold_up_others(paper: Journal) -> None:
    """Actors take turns; each one's order is kept."""
    many = 3 * TURN_EVENTS
    await paper.say(*[finding(f"import-{number}", by="old") for number in range(many)], actor=importer())
    await paper.say(finding("last", by="old"), actor=importer(), tier=Tier.CRITICAL)
    await paper.say(finding("quick", by="bull"), actor=agent("bull"), tier=Tier.CRITICAL)
    applier = lame(paper.database)

    keys = await claimed(applier, applier._lane_slots.urgent, TURN_EVENTS + 1)

    assert sorted(keys) == sorted([*(f"import-{number}" for number in range(TURN_EVENTS)), "quick"])


async def test_high_goes_ahead_of_normal_and_behind_its_own(paper: Journal) -> None:
    await paper.say(*[finding(f"n-{number}", by="old") for number in range(5)], actor=importer())
    await paper.say(finding("own"), finding("high", importance=0.9), finding("after"), actor=agent("bull"))
    applier = lame(paper.database)

    assert await claimed(applier, applier._lane_slots.urgent) == []
    assert await claimed(applier, applier._lane_slots.bulk, 100) == ["own", "high"]
    assert await claimed(applier, applier._lane_slots.bulk, 100) == [
        "own",
        "high",
        *(f"n-{n}" for n in range(5)),
        "after",
    ]


@pytest.mark.spec("SY-15")
@pytest.mark.parametrize(("minutes", "first"), [(14.0, "high"), (16.0, "normal")])
async def test_a_normal_event_is_high_after_a_quarter_of_an_hour(paper: Journal, minutes: float, first: str) -> None:
    """However many high ones come: then the oldest goes first."""
    await paper.say(finding("normal", by="bear"), actor=agent("bear"))
    async with later(paper, minutes) as database:
        await paper.say(*[finding(f"high-{number}", importance=0.9) for number in range(60)], actor=agent("bull"))
        keys = await claimed(applier := lame(database), applier._lane_slots.bulk, 10)

    assert keys[0].startswith(first)
    assert len(keys) == 10


@pytest.mark.spec("SY-15")
async def test_many_old_events_leave_room_for_high_ones(paper: Journal) -> None:
    """After a long outage everything is old: what is of importance still does not wait for all of it."""
    await paper.say(*[finding(f"n-{number}", by="old") for number in range(5 * TURN_EVENTS)], actor=importer())
    await paper.say(finding("high", importance=0.9), actor=agent("bull"))
    async with later(paper, 60) as database:
        applier = lame(database)
        keys = await claimed(applier, applier._lane_slots.bulk, 2 * TURN_EVENTS)
        assert "high" in keys
        assert len(keys) == 2 * TURN_EVENTS


async def test_what_waits_for_another_attempt_is_not_overtaken_in_either_lane(paper: Journal) -> None:
    await paper.say(finding("refused"), actor=agent("bull"))
    paper.owner("UPDATE delivery SET next_attempt_at = now() + interval '1 hour', attempts = 1")
    await paper.say(finding("urgent"), actor=agent("bull"), tier=Tier.CRITICAL)
    await paper.say(finding("other", by="bear"), actor=agent("bear"))
    applier = lame(paper.database)

    assert await claimed(applier, applier._lane_slots.urgent) == []
    assert await claimed(applier, applier._lane_slots.bulk) == ["other"]


@pytest.mark.spec("SY-16")
async def test_without_tiers_everything_goes_in_the_order_in_which_it_was_recorded(paper: Journal) -> None:
    await paper.say(finding("normal", by="bear"), actor=agent("bear"))
    await paper.say(finding("critical"), actor=agent("bull"), tier=Tier.CRITICAL)
    await paper.say(finding("high", by="owl", importance=0.9), actor=agent("owl"))
    applier = lame(paper.database, lanes=False)

    assert [lane.name for lane in applier._in_use] == ["bulk"]
    assert await claimed(applier, applier._lane_slots.bulk, 2) == ["normal", "critical"]
    assert await claimed(applier, applier._lane_slots.bulk, 2) == ["normal", "critical", "high"]


async def test_derived_values_that_the_graph_refuses_end_nothing(
    paper: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no events: what is applied meanwhile must not begin anew with each of them."""

    async def refused(_: Applier) -> bool:
        raise StatementRejected("Neo4j refused a statement (Neo.ClientError.X).")

    monkeypatch.setattr(Applier, "derive", refused)

    assert not await lame(paper.database)._derived()
