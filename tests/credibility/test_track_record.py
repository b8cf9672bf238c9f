"""Track records as of a moment, from real rows, on both clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from scipy import stats

from imem.credibility.posterior import decay
from imem.credibility.track_record import TrackRecord, TrackRecords, scores_as_of, track_pairs, track_records
from imem.journal.deadline import Deadline
from imem.kg.asof import AsOf, AsOfClock
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of
from imem.kg.model import AgentCredibility

from .conftest import HALFLIFE, World, agent, finding, outcome

START = datetime(2024, 1, 1, tzinfo=UTC)


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def recorded_by(moment: datetime) -> AsOf:
    return AsOf(moment, AsOfClock.RECORDED)


async def ask(world: World, at: AsOf, *agents: str, halflife: float = HALFLIFE) -> TrackRecords:
    pairs = [(name, "flu") for name in agents]
    return await track_records(world.database, pairs, at, halflife_years=halflife, deadline=Deadline.after_ms(5000))


async def record(world: World, at: AsOf, name: str = "ann", halflife: float = HALFLIFE) -> TrackRecord:
    return (await ask(world, at, name, halflife=halflife)).records[0]


def week(number: int, places: int, actual: float, **claims: float) -> list[dict[str, Any]]:
    """Return a week: every agent's probability for each place, and what happened, known three days later."""
    lines = []
    for place in range(places):
        subject = {"subject_id": f"market:{place}-{number}"}
        target = day(7 * number)
        for name, probability in claims.items():
            key = f"{name}/{place}-{number}"
            lines.append(
                finding(key, target - timedelta(days=6), target, agent=name, probability=probability, **subject)
            )
        lines.append(outcome(f"o/{place}-{number}", target + timedelta(days=3), target, actual, **subject))
    return lines


async def test_weeks_are_counted_and_rows_shown(world: World) -> None:
    """Three weeks of four places: three observations, twelve rows; the interval is that of the decayed weeks."""
    for number, actual in ((1, 1.0), (2, 1.0), (3, 0.0)):
        await world.say(*week(number, 4, actual, ann=0.8))
    await world.settle()

    found = await record(world, AsOf(day(400)))

    assert (found.n, found.rows, found.right, found.abstained) == (3, 12, 8, 0)
    weights = [decay((400 - 7 * number) / 365.25, 2.0) for number in (1, 2, 3)]
    alpha, beta = 0.5 + sum(weights[:2]), 0.5 + weights[2]
    assert found.weight == pytest.approx(sum(weights))
    assert found.mean == pytest.approx(alpha / (alpha + beta))
    assert [found.lower, found.upper] == pytest.approx([stats.beta.ppf(bound, alpha, beta) for bound in (0.025, 0.975)])
    assert found.brier == pytest.approx((8 * 0.04 + 4 * 0.64) / 12)
    assert found.evidence == "little"


async def test_as_of_hides_what_was_not_known(world: World) -> None:
    for number in range(1, 21):
        await world.say(*week(number, 1, 1.0, ann=0.8))
    await world.settle()

    counts = [(await record(world, AsOf(day(moment)))).n for moment in (9.9, 10, 17, 143, 1000)]

    assert counts == [0, 1, 2, 20, 20]
    assert (await record(world, AsOf(day(1000)))).evidence == "enough"
    before = await record(world, AsOf(day(9.9)))
    assert (before.mean, before.brier, before.skill, before.reference) == (0.5, None, None, None)
    assert before.evidence == "none"
    assert before.lower == pytest.approx(0.0015, abs=5e-5)


async def test_a_revision_replaces_the_first_report_from_its_own_day(world: World) -> None:
    await world.say(*week(1, 1, 1.0, ann=0.8))
    await world.say(outcome("o1", day(200), day(7), 0.0, vintage=1, subject_id="market:0-1"))
    await world.settle()

    assert [(await record(world, AsOf(day(moment)))).right for moment in (199, 200)] == [1, 0]
    scores = await scores_as_of(world.database, ["ann/0-1", "no"], AsOf(day(199)), deadline=Deadline.never())
    assert [(key, score["vintage"], score["y"]) for key, score in scores.items()] == [("ann/0-1", 0, 1)]


async def test_skill_is_measured_against_the_mean_of_the_baselines(world: World) -> None:
    """On common questions only; a baseline has no skill and stands last; an unknown agent has an empty record."""
    await world.say(agent("base", day(0), "baseline"), agent("calm", day(0), "baseline"), agent("ann", day(0), "model"))
    await world.say(*week(1, 1, 1.0, ann=0.8, base=0.4, calm=0.6), *week(2, 1, 0.0, ann=0.3))
    await world.settle()

    answer = await ask(world, AsOf(day(100)), "base", "ann", "nobody", "calm")

    assert [found.agent for found in answer.records] == ["ann", "nobody", "base", "calm"]
    ann, nobody, base, _ = answer.records
    assert (ann.reference, ann.reference_rows) == ("baselines", 1)
    assert ann.skill == pytest.approx(1 - 0.2**2 / 0.5**2)
    assert ann.brier == pytest.approx((0.04 + 0.09) / 2)
    assert (base.baseline, base.skill, base.reference) == (True, None, None)
    assert (nobody.n, nobody.kind) == (0, None)
    assert nobody.lower == pytest.approx(0.0015, abs=5e-5)


async def test_old_skill_fades_and_has_an_interval(world: World) -> None:
    """Right long ago and wrong of late: the skill is that of late, by the half-life of the share right."""
    await world.say(agent("base", day(0), "baseline"))
    for number in range(1, 11):
        await world.say(*week(number, 3, 1.0, ann=0.9, base=0.5))
    for number in range(90, 100):
        await world.say(*week(number, 3, 0.0, ann=0.9, base=0.5))
    await world.settle()

    early, late = await record(world, AsOf(day(80))), await record(world, AsOf(day(720)), halflife=0.5)

    assert early.skill is not None
    assert late.skill is not None
    assert early.skill == pytest.approx(1 - 0.1**2 / 0.5**2)
    assert early.skill_lower is not None
    assert early.skill_upper is not None
    assert 0 < early.skill_lower < early.skill < early.skill_upper < 1
    weights = {number: decay((720 - 7 * number) / 365.25, 0.5) for number in (*range(1, 11), *range(90, 100))}
    own = sum(weight * (0.01 if number < 50 else 0.81) for number, weight in weights.items())
    assert late.skill == pytest.approx(1 - own / (0.25 * sum(weights.values())))
    assert late.skill < -1.8
    assert (early.evidence, late.evidence) == ("little", "enough")


async def test_what_an_agent_is_is_dated_too(world: World) -> None:
    """Described as a baseline a year later: the answer as of before does not know it."""
    await world.say(*week(1, 1, 1.0, ann=0.8, base=0.4))
    await world.say(agent("base", day(365), "baseline"))
    await world.settle()

    before, after = await ask(world, AsOf(day(364)), "ann", "base"), await ask(world, AsOf(day(365)), "ann", "base")

    assert [found.kind for found in before.records] == [None, None]
    assert [found.reference for found in before.records] == ["own base rate", "own base rate"]
    assert [found.kind for found in after.records] == [None, "baseline"]
    assert [found.reference for found in after.records] == ["baselines", None]


async def test_without_baselines_the_own_earlier_base_rate_is_the_reference(world: World) -> None:
    """Answers come three days after the week; each claim six days before its own: it knows all but the last week."""
    for number, actual in ((1, 1.0), (2, 1.0), (4, 0.0)):
        await world.say(*week(number, 1, actual, ann=0.8))
    await world.settle()

    found = await record(world, AsOf(day(100)))

    rates = [(0.5, 1), (0.5, 1), (2.5 / 3, 0)]
    weights = [decay((100 - 7 * number) / 365.25, 2.0) for number in (1, 2, 4)]
    reference = sum(weight * (rate - happened) ** 2 for weight, (rate, happened) in zip(weights, rates, strict=True))
    own = sum(weight * error for weight, error in zip(weights, (0.04, 0.04, 0.64), strict=True))
    assert found.skill == pytest.approx(1 - own / reference)
    assert (found.reference, found.reference_rows) == ("own base rate", 3)


async def test_abstentions_are_counted_and_not_scored(world: World) -> None:
    await world.say(*week(1, 3, 1.0, ann=0.5), *week(2, 1, 1.0, ann=0.9))
    await world.settle()

    found = await record(world, AsOf(day(100)))

    assert (found.n, found.rows, found.right, found.abstained) == (1, 1, 1, 3)


async def test_the_half_life_comes_from_the_agents_own_record(world: World) -> None:
    """As of the day it was stated; steps made with another one are computed again until the pipeline has."""
    await world.say(*week(1, 1, 1.0, ann=0.8))
    await world.settle()
    score = AgentCredibility.Score(sample_size=1, last_updated=day(300), decay_halflife_years=0.5)
    model = AgentCredibility(id="ann/flu", agent_id="ann", domain="flu", score=score)
    entry = entry_of(record_of(model, known_at=day(300), writer="credibility"))
    await world.engine.append([entry], deadline=Deadline.never())

    async def weights() -> list[float]:
        return [(await record(world, AsOf(day(moment)))).weight for moment in (299, 400)]

    expected = [decay((299 - 7) / 365.25, 2.0), decay((400 - 7) / 365.25, 0.5)]
    assert await weights() == pytest.approx(expected)
    world.owner("INSERT INTO track_due (agent, domain, since) VALUES ('ann', 'flu', imem_now())")
    await world.settle()
    assert await weights() == pytest.approx(expected)
    assert (await record(world, AsOf(day(400)), halflife=9.0)).halflife_years == 0.5


async def test_the_recorded_clock_gives_the_same_answer_later(world: World) -> None:
    """What is loaded later changes no answer about what was recorded by then, although it was known long before."""
    await world.say(*week(1, 1, 1.0, ann=0.8))
    await world.settle()
    (moment,) = await world.rows("SELECT imem_now() AS now")
    first = await ask(world, recorded_by(moment["now"]), "ann")
    await world.say(*week(2, 2, 0.0, ann=0.8), outcome("late", day(9), day(7), 0.0, vintage=1, subject_id="market:0-1"))

    unsettled = await ask(world, recorded_by(datetime.now(UTC)), "ann")
    await world.settle()

    assert (first.records[0].n, first.records[0].right) == (1, 1)
    assert await ask(world, recorded_by(moment["now"]), "ann") == first
    # While statements wait to be scored, the answer says so, and holds only for the moment before them.
    assert unsettled.waiting_since is not None
    assert unsettled.as_of < unsettled.waiting_since
    assert unsettled.records[0].n == 1
    assert (await record(world, recorded_by(datetime.now(UTC)))).n == 2
    assert (await record(world, AsOf(day(100)))).right == 0


async def test_pairs_are_those_with_a_record(world: World) -> None:
    await world.say(*week(1, 1, 1.0, ann=0.8, bob=0.4))
    await world.settle()

    assert await track_pairs(world.database, None, deadline=Deadline.never()) == [("ann", "flu"), ("bob", "flu")]
    assert await track_pairs(world.database, ["bob"], deadline=Deadline.never()) == [("bob", "flu")]
    assert (await ask(world, AsOf(day(1)))).records == ()
