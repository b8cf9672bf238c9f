"""Evidence for weights, kept score by score and read as of any day on both clocks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from imem.credibility.panels import choice
from imem.credibility.panels.choice import PanelWeights
from imem.credibility.panels.evidence import weights_as_of
from imem.credibility.panels.pooling import AgentWeight
from imem.credibility.reconcile import reconcile
from imem.credibility.scores.context import ClaimContext
from imem.credibility.store import TrackRecordKey
from imem.journal.deadline import Deadline
from imem.kg.asof import AsOf, AsOfClock
from tests.credibility.conftest import HALFLIFE, World, agent, corrected, finding, opened, outcome
from tests.credibility.load import day
from tests.servers import cloned

PANEL = [TrackRecordKey(name, "flu") for name in ("ann", "bob", "cid")]
STEPS = "SELECT * FROM observation_step ORDER BY agent, domain, clock, at, target_at, context"
STATED = {"ann": 0.9, "bob": 0.6, "cid": 0.3}


@pytest_asyncio.fixture
async def world(light_stack: Any, light_template: str) -> AsyncIterator[World]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        async with opened(light_stack.settings, url, admin_url) as made:
            yield made


def week(number: int, *, actual: float = 1.0, places: int = 3, **stated: float) -> list[dict[str, Any]]:
    """Return a week's claims on several places, and their answers two days after it."""
    target, lines = day(7 * number + 7), []
    for place in range(places):
        subject = {"subject_id": f"market:w{number}-{place}"}
        for name, probability in (STATED | stated).items():
            lines.append(
                finding(
                    f"f{number}-{place}/{name}", day(7 * number), target, agent=name, probability=probability, **subject
                )
            )
        lines.append(outcome(f"o{number}-{place}", target + timedelta(days=2), target, actual, **subject))
    return lines


async def weights(world: World, at: AsOf, *, context: ClaimContext | None = None) -> list[AgentWeight]:
    found, _ = await weights_as_of(
        world.database, [PANEL], [at], contexts=[context], deadline=Deadline.after_ms(30_000)
    )
    return found[0][0][0].answer


async def test_weights_follow_what_was_known(world: World) -> None:
    """Equal before the first answer; then by loss, more so with every week; a revision counts from its own day on."""
    for number in range(4):
        await world.say(*week(number))
    await world.settle()
    shares = [[one.weight for one in await weights(world, AsOf(day(at)))] for at in (8, 9, 16, 30)]
    assert shares[0] == pytest.approx([1 / 3] * 3)
    ann = [first for first, _, _ in shares]
    assert ann[0] < ann[1] < ann[2] < ann[3]
    assert all(first > second > third for first, second, third in shares[1:])
    one = (await weights(world, AsOf(day(30))))[0]
    assert one.observations == 4
    assert one.loss == pytest.approx(0.01)
    assert one.bias == pytest.approx(-0.1)
    assert one.peer_loss == pytest.approx((0.16 + 0.49) / 2)

    revised = [
        outcome(f"r3-{place}", day(60), day(28), 0.0, vintage=1, subject_id=f"market:w3-{place}") for place in range(3)
    ]
    await world.say(*revised)
    await world.settle()
    assert [one.weight for one in await weights(world, AsOf(day(30)))] == shares[3]
    assert (await weights(world, AsOf(day(61))))[0].weight < ann[3]


async def test_a_baseline_changes_no_answer(world: World) -> None:
    """Neither in the panel nor beside it: the others weigh and are scored as if it had said nothing."""
    for number in range(4):
        await world.say(*week(number))
    await world.settle()

    async def asked(panel: list[TrackRecordKey], at: float) -> PanelWeights:
        found, _ = await weights_as_of(world.database, [panel], [AsOf(day(at))], deadline=Deadline.after_ms(30_000))
        return found[0][0][0]

    before = await asked(PANEL, 60)
    assert before.records["equal"].observations == before.records["median"].observations == 4
    mean = sum(STATED.values()) / 3
    assert before.records["equal"].loss == pytest.approx((1.0 - mean) ** 2)
    assert before.records["median"].loss == pytest.approx((1.0 - STATED["bob"]) ** 2)

    with_base = [*PANEL, TrackRecordKey("base", "flu")]
    claims = [one for number in range(4) for one in week(number, base=0.99) if one["core"].get("agent") == "base"]
    await world.say(agent("base", day(0), "baseline"), *claims)
    await world.settle()
    after = await asked(with_base, 60)
    assert after.answer[:3] == before.answer
    assert after.records == before.records
    assert (after.answer[3].weight, after.answer[3].baseline) == (0.0, True)
    assert [shares[3] for shares in after.by_pool.values()] == [0.0] * len(after.by_pool)
    assert await asked(PANEL, 60) == before

    # From the day on which it is described as a model it is one of the panel.
    await world.say(agent("base", day(50), "model"))
    await world.settle()
    assert (await asked(with_base, 49)).answer[3].baseline
    assert (await asked(with_base, 60)).answer[3].weight > 0.0


async def test_pools_are_scored_on_a_part_of_many_questions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same questions for all agents, whatever the number of each; probabilities and directions alone."""
    await world.say(*week(0, places=60), *week(1, places=4))
    await world.settle()
    monkeypatch.setattr(choice, "MOST_CLAIMS", 16)
    read = []

    def noted(*given: Any, **more: Any) -> PanelWeights:
        read.append(given[2])
        return choice.weigh(*given, **more)

    monkeypatch.setattr("imem.credibility.panels.evidence.weigh", noted)
    await weights(world, AsOf(day(30)))
    claims = read[0]
    drawn = {int(agent): set(claims.question[claims.agent == agent].tolist()) for agent in range(3)}
    assert 4 <= len(drawn[0]) <= 32
    assert drawn[0] == drawn[1] == drawn[2]


async def test_nothing_known_later_changes_an_answer(world: World) -> None:
    """On the known clock a late load of earlier facts counts; on the recorded clock the old answer stands."""
    await world.say(*week(0), *week(1))
    await world.settle()
    [[recorded_at]] = [list(row.values()) for row in await world.rows("SELECT max(recorded_at) FROM event")]
    known, recorded = AsOf(day(20)), AsOf(recorded_at, AsOfClock.RECORDED)
    before = [await weights(world, known), await weights(world, recorded)]
    said = finding("f1-0/ann", day(7), day(14), probability=0.9, subject_id="market:w1-0")
    await world.say(*week(4), corrected(said, day(40), probability=0.1))
    await world.settle()
    assert [await weights(world, known), await weights(world, recorded)] == before
    # An agent whose claims of then are loaded now changes what could have been known, and not what was recorded.
    await world.say(*(one for one in week(0, dora=0.95) if one["core"].get("agent") == "dora"))
    await world.settle()
    assert await weights(world, recorded) == before[1]
    assert (await weights(world, known))[0].peer_loss != before[0][0].peer_loss


async def test_steps_are_those_of_a_whole_computation(world: World) -> None:
    """Score by score, in any order, late and twice, the steps are those of all at once; what differs is mended."""
    lines = [*week(0), *week(1, actual=0.0), *week(2, bob=0.5), agent("cid", day(0), "baseline")]
    lines.append(outcome("again", day(50), day(7), 0.0, vintage=1, subject_id="market:w0-0"))
    for line in [*lines[::-2], *lines[::-1]]:
        await world.say(line)
        await world.settle()
    steps = await world.rows(STEPS)
    assert {row["agent"] for row in steps} == {"ann", "bob", "cid"}
    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)
    assert not report.differing
    assert await world.rows(STEPS) == steps

    world.owner("UPDATE observation_step SET loss = loss + 0.1 WHERE agent = 'ann'")
    world.owner("DELETE FROM observation_step WHERE agent = 'bob'")
    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)
    assert {pair.agent for pair in report.tracks} == {"ann", "bob"}
    assert await world.rows(STEPS) == steps


async def test_an_answer_counts_from_when_it_was_first_given(world: World) -> None:
    """Whoever repeats an answer gave it first, and a copy made in between came later; to change it is to begin anew."""
    for number in range(8):
        lines = week(number, places=2, cid=0.5)
        for place in range(2):
            subject = {"subject_id": f"market:w{number}-{place}"}
            for name, probability, days in (
                ("dora", 0.9, 1), ("ann", 0.91, 3), ("bob", 0.6, 3), ("cid", 0.3, 3),
            ):  # fmt: skip
                said, due = day(7 * number + days), day(7 * number + 7)
                more = {"agent": name, "probability": probability, **subject}
                lines.insert(-1, finding(f"g{number}-{place}/{name}", said, due, **more))
        await world.say(*lines)
    await world.settle()
    ahead = "SELECT DISTINCT agent, ahead / 86400 AS days FROM observation_step ORDER BY 1"
    assert {row["agent"]: row["days"] for row in await world.rows(ahead)} == {"ann": 7, "bob": 7, "cid": 4, "dora": 6}
    panel = [TrackRecordKey(name, "flu") for name in ("ann", "bob", "cid", "dora")]
    found, _ = await weights_as_of(
        world.database, [panel], [AsOf(day(70))], contexts=[None], deadline=Deadline.after_ms(30_000)
    )
    ann, _, _, dora = found[0][0][0].answer
    assert ann.shared_with == ("dora",)
    assert ann.weight > 1.5 * dora.weight


async def test_many_days_and_panels_in_one_call(world: World) -> None:
    """Each panel as of each moment in each context is what it is by itself; an unknown agent has the equal weight."""
    for number in range(3):
        await world.say(*week(number))
    await world.settle()
    moments = [AsOf(day(at)) for at in (30, 5, 17)]
    panels = [PANEL, [PANEL[2], TrackRecordKey("nobody", "flu")]]
    contexts = [None, ClaimContext(metric_type="binary", time_horizon="week"), ClaimContext("tech", "value", "year")]
    found, waiting = await weights_as_of(
        world.database, panels, moments, contexts=contexts, deadline=Deadline.after_ms(30_000)
    )
    assert waiting is None
    for by_moment, at in zip(found[0], moments, strict=True):
        assert [one.answer for one in by_moment] == [await weights(world, at, context=context) for context in contexts]
    assert found[1][1][0].answer[1].weight == pytest.approx(0.5)
    assert found[1][0][0].answer[1].observations == 0
    assert await weights_as_of(world.database, [], moments, deadline=Deadline.after_ms(30_000)) == ([], None)


async def test_answers_are_compared_with_those_of_the_same_stage(world: World) -> None:
    """Who answers in the last minute is not beside who answered a month before, and who repeats itself counts once."""
    lines = []
    for number in range(3):
        target, subject = day(40 + number), {"subject_id": f"market:late{number}"}
        early = {"ann": 0.8, "cid": 0.6}
        lines += [
            finding(
                f"early{number}/{name}", target - timedelta(days=30), target, agent=name, probability=one, **subject
            )
            for name, one in early.items()
        ]
        # Of one stage the newest counts: what ann says first is replaced.
        first = target - timedelta(days=31)
        lines.append(finding(f"first{number}/ann", first, target, agent="ann", probability=0.1, **subject))
        for place in range(20):
            late = target - timedelta(seconds=60 - place)
            key = f"late{number}-{place}/bob"
            lines.append(finding(key, late, target, agent="bob", probability=0.99, **subject))
        lines.append(outcome(f"late{number}", target + timedelta(hours=1), target, 1.0, **subject))
    await world.say(*lines)
    await world.settle()
    found = {one.agent: one for one in await weights(world, AsOf(day(50)))}
    assert [found[name].observations for name in ("ann", "bob", "cid")] == [3, 0, 3]
    assert found["ann"].weight > found["bob"].weight > found["cid"].weight
    assert found["ann"].loss == pytest.approx(0.04)
    assert found["ann"].peer_loss == pytest.approx(0.16)
    rows = await world.rows("SELECT DISTINCT rows FROM observation_step WHERE agent IN ('ann', 'cid')")
    assert [row["rows"] for row in rows] == [1]
