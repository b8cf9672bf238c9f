"""Panels on a subject's questions: the newest answer of each agent, pooled, as of any day."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from imem.credibility.panels.choice import PanelWeights, PoolName, PoolRecord
from imem.credibility.panels.pooling import AgentWeight
from imem.journal.errors import BadInput, PermissionDenied, UnknownSubject
from imem.journal.settings import Role
from imem.recall.answers import Quality
from imem.recall.sections.panels import PanelItem, Question, domain_of, panel_lines, panel_of, panel_text
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import TARGET_DAY, day
from tests.recall.test_who_may_ask import asking


def at(number: float) -> datetime:
    return datetime.fromisoformat(day(number))


async def test_a_panel_holds_each_agents_newest_answer(harness: RecallHarness) -> None:
    """Of what was known by then; a correction counts from its own day, one after the target not at all."""
    first = facts.finding("f0", 0, agent="agent0", probability=0.9)
    other = facts.finding("f4", 1, agent="agent1", probability=0.5)
    newer = facts.finding("f8", 1.5, agent="agent0", probability=0.7)
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 0), first, other, newer])
    corrections = [facts.corrected(other, 2, probability=0.3), facts.corrected(newer, 3.5, probability=0.01)]
    await harness.know(corrections, "later")
    answered = {}
    for number in (0, 1, 1.5, 2, 4):
        [panel] = (await harness.memory.panel("T0", as_of=at(number), deadline_ms=30_000)).items
        answered[number] = {one.agent: one.answer for one in panel.answers}
        assert (panel.kind, panel.evidence) == ("probability", "none")
        assert panel.weighted == panel.equal
        assert sum(one.weight for one in panel.answers) == pytest.approx(1.0)
    assert answered == {
        0: {"agent0": 0.9},
        1: {"agent0": 0.9, "agent1": 0.5},
        1.5: {"agent0": 0.7, "agent1": 0.5},
        2: {"agent0": 0.7, "agent1": 0.3},
        4: {"agent0": 0.7, "agent1": 0.3},
    }
    briefing = await harness.memory.brief("T0", as_of=at(4), deadline_ms=30_000)
    assert briefing.panels.quality is Quality.EXACT
    text = briefing.to_markdown()
    assert "## Pooled answers of the agents" in text
    assert "mean probability 0.50" in text
    assert "the weights are equal" in text


async def test_one_question_is_asked_about(harness: RecallHarness) -> None:
    """By its metric, its moment, or both; as of a day, and for whoever may read the claims."""
    later = facts.day(TARGET_DAY + 1)
    asked = [
        facts.finding("f0", 0, agent="agent0"), facts.finding("f4", 0, agent="agent1", target_at=later),
        facts.finding("f8", 1, agent="agent1", metric="strategic_merger", target_at=later),
    ]  # fmt: skip
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 0), *asked])

    async def found(number: float = 2, **question: Any) -> list[tuple[str, datetime]]:
        panels = await harness.memory.panel("T0", as_of=at(number), deadline_ms=30_000, **question)
        assert (panels.total, panels.quality, panels.mode) == (len(panels.items), Quality.EXACT, "normal")
        return [(one.metric, one.target_at) for one in panels.items]

    first, second, third = ("up", at(TARGET_DAY)), ("up", at(TARGET_DAY + 1)), ("strategic_merger", at(TARGET_DAY + 1))
    assert await found() == await found(limit=3) == [second, third, first]
    assert await found(metric="up") == [second, first]
    assert await found(target_at=at(TARGET_DAY + 1)) == [second, third]
    assert await found(metric="up", target_at=at(TARGET_DAY)) == [first]
    assert await found(0.5, target_at=at(TARGET_DAY + 1)) == [second]
    assert await found(metric="eps") == []
    with pytest.raises(BadInput, match="limit"):
        await harness.memory.panel("T0", metric="up", limit=201)
    with pytest.raises(BadInput, match="target_at"):
        await harness.memory.panel("T0", target_at=datetime(2026, 1, 1))  # noqa: DTZ001 - without a zone, on purpose
    with pytest.raises(UnknownSubject):
        await harness.memory.panel("nobody", metric="up", deadline_ms=30_000)


async def test_a_correction_of_an_older_claim_does_not_make_it_the_newest(harness: RecallHarness) -> None:
    """An answer is as old as its claim, also when a slip in it is corrected after a newer one was made."""
    older = facts.finding("f0", 0, agent="agent0", probability=0.1)
    newer = facts.finding("f4", 1, agent="agent0", probability=0.9)
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 0), older, newer])
    await harness.know([facts.corrected(older, 2, statement="It falls.")], "later")

    [panel] = (await harness.memory.panel("T0", as_of=at(3), deadline_ms=30_000)).items

    assert [(one.finding, one.answer, one.answered_at) for one in panel.answers] == [("f4", 0.9, at(1))]


async def test_who_takes_no_side_has_no_vote(harness: RecallHarness) -> None:
    """A direction that is neutral takes the agent's older one back, and a newer one stands again."""
    metric = {"metric": "return_5s", "probability": None}

    def vote(key: str, number: float, direction: str, agent: str = "agent0") -> facts.Line:
        line = facts.finding(key, number, agent=agent, direction=direction, **metric)
        return {**line, "core": {name: value for name, value in line["core"].items() if value is not None}}

    votes = [
        vote("f0", 0, "positive"), vote("f4", 0.5, "negative", "agent1"), vote("f8", 1, "neutral"),
        vote("f12", 1.5, "neutral", "agent1"), vote("f16", 2, "negative"),
    ]  # fmt: skip
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 0), *votes])

    said = {}
    for number in (0.5, 1, 1.5, 2):
        panels = (await harness.memory.panel("T0", as_of=at(number), deadline_ms=30_000)).items
        said[number] = [{one.agent: one.answer for one in panel.answers} for panel in panels]
    assert said == {0.5: [{"agent0": 1.0, "agent1": 0.0}], 1: [{"agent1": 0.0}], 1.5: [], 2: [{"agent0": 0.0}]}


@pytest.mark.parametrize("domain", ["up_or_down", "a_new_one"])
async def test_no_agent_chooses_the_record_that_counts(harness: RecallHarness, domain: str) -> None:
    """Who was wrong and answers in a domain of its own weighs by the domain of the others, as if it had not."""
    before = [
        facts.finding(f"f{number}", 0, agent=f"agent{place}", probability=probability)
        for place, (number, probability) in enumerate(((1, 0.1), (5, 0.3), (9, 0.9)))
    ]
    asked = [
        facts.finding("f0", 1, agent="agent0", probability=0.4),
        facts.finding("f4", 1, agent="agent1", probability=0.3),
        facts.finding("f8", 1, agent="agent2", probability=0.9, domain=domain),
    ]
    first = [facts.company("T0", 0), facts.company("T1", 0), facts.analysis("a0", 0), facts.analysis("a1", 0)]
    await harness.know([*first, *before, *asked, facts.outcome("o1", 3)])
    [panel] = (await harness.memory.panel("T0", as_of=at(4), deadline_ms=30_000)).items
    assert (panel.domain, panel.evidence) == ("up_or_down", "little")
    weights = {one.agent: (one.weight, one.observations) for one in panel.answers}
    assert [observations for _, observations in weights.values()] == [1, 1, 1]
    assert 0.8 / 3 < weights["agent2"][0] < 1 / 3 < weights["agent0"][0] < 1.25 / 3
    text = panel_text(panel)
    assert re.search(r"little evidence, so the weights are 0\.\d+ to 1\.\d+ times the equal weight", text)
    assert "in 1 observation, little evidence" in panel.answers[0].reason


async def test_a_baseline_is_shown_and_never_pooled(harness: RecallHarness) -> None:
    """From the day on which it is one; its domain is none of the panel, and with baselines alone there is no answer."""
    asked = [
        facts.finding("f0", 1, agent="agent0", probability=0.4),
        facts.finding("f4", 1, agent="naive", probability=0.9, domain="a_domain"),
    ]
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 0), *asked])
    await harness.know([facts.agent("naive", 2, "baseline")], "later")
    [before] = (await harness.memory.panel("T0", as_of=at(1.5), deadline_ms=30_000)).items
    assert before.equal is not None
    assert before.equal.value == pytest.approx(0.65)
    [panel] = (await harness.memory.panel("T0", as_of=at(3), deadline_ms=30_000)).items
    assert panel.equal is not None
    assert panel.weighted is not None
    assert (panel.equal.value, panel.weighted.value, panel.domain) == (0.4, 0.4, "up_or_down")
    assert [(one.agent, one.weight, one.baseline) for one in panel.answers] == [
        ("agent0", 1.0, False), ("naive", 0.0, True),
    ]  # fmt: skip
    assert "without 1 baseline" in panel_text(panel)
    assert '"naive": 0.90, weight 0.000; a baseline, which is never pooled.' in "\n".join(panel_lines(panel))
    table = await harness.memory.weights(["agent0", "agent1", "naive"], "up_or_down", as_of=[at(1.5), at(3)])
    assert table.at(at(1.5)) == pytest.approx(dict.fromkeys(("agent0", "agent1", "naive"), 1 / 3))
    assert table.at(at(3)) == {"agent0": 0.5, "agent1": 0.5, "naive": 0.0}

    alone = [facts.company("T1", 0), facts.analysis("a1", 0), facts.finding("f1", 1, agent="naive", probability=0.9)]
    await harness.know(alone, "alone")
    [panel] = (await harness.memory.panel("T1", as_of=at(3), deadline_ms=30_000)).items
    assert (panel.equal, panel.weighted) == (None, None)
    assert [(one.agent, one.answer) for one in panel.answers] == [("naive", 0.9)]
    assert "only 1 baseline answered, so there is no pooled answer" in panel_text(panel)


def test_all_pools_are_shown_with_their_record() -> None:
    """In the text and in Python: each with its answer, its squared error beside equal weights, and how often."""
    answers: dict[str, float | str] = {"agent0": 0.2, "agent1": 0.4, "agent2": 0.9}
    claims = {
        agent: {
            "agent": agent, "domain": "d", "key": agent, "metric": "up", "probability": said, "said_at": at(0),
            "value": None, "direction": None,
        }
        for agent, said in answers.items()
    }  # fmt: skip
    shares = zip(answers, (0.5, 0.3, 0.2), strict=True)
    weights = [AgentWeight(one, share, 20, 0.1, 0.1, 0.0, 0.0, 0.0) for one, share in shares]
    pools: dict[PoolName, list[float]] = {"equal": [1 / 3] * 3, "record": [0.4, 0.4, 0.2], "seasons": [0.5, 0.5, 0.0]}
    records: dict[PoolName, PoolRecord] = {
        "equal": PoolRecord(30, 0.1, 0.1, 0.0, 0.0, 0.0), "median": PoolRecord(30, 0.11, 0.1, -0.1, -0.2, 0.0),
        "seasons": PoolRecord(12, 0.09, 0.1, 0.1, 0.05, 0.15),
    }  # fmt: skip
    weighed = PanelWeights(weights, pools, records, "seasons", 0.8)
    panel = panel_of(Question("up", None, None, at(TARGET_DAY)), claims, weighed)
    assert {one.pool: one.answer and round(one.answer.value, 3) for one in panel.pools} == {
        "equal": 0.5, "median": 0.4, "record": 0.42, "seasons": 0.3,
    }  # fmt: skip
    assert panel.weighted is not None
    assert panel.weighted.value == pytest.approx(0.4)
    text = panel_text(panel)
    assert "Weighted by earlier seasons (better half, 80%; the rest equal): 0.40" in text
    assert "median (0.40) +10.0% [+0.0%, +20.0%] in 30 observations" in text
    assert "by earlier seasons (0.30) -10.0% [-15.0%, -5.0%] in 12 observations" in text
    median = panel_of(
        Question("up", None, None, at(TARGET_DAY)), claims, PanelWeights(weights, pools, records, "median", 0.8)
    )
    assert median.weighted is not None
    assert median.weighted.value == pytest.approx(0.8 * 0.4 + 0.2 * 0.5)
    assert PanelItem.model_validate_json(median.model_dump_json()) == median


def test_a_panel_on_a_value_is_chosen_by_no_record_of_probabilities() -> None:
    """The usual pool answers, and no record is shown."""
    usual = PanelWeights([], {"equal": [], "record": []}, {"record": PoolRecord(30, 0.1, 0.1)}, "record", 1.0)
    chosen = replace(usual, best="median", usual=usual)
    assert (chosen.of_values().best, chosen.of_values().records) == ("record", {})
    assert (usual.of_values().best, usual.of_values().records) == ("record", {})


def test_of_domains_as_frequent_the_first_by_name_counts() -> None:
    assert domain_of([{"domain": "b"}, {"domain": "a"}]) == "a"
    assert domain_of([{"domain": "b"}, {"domain": "a"}, {"domain": "b"}]) == "b"


async def test_a_context_is_given_by_dimension(harness: RecallHarness) -> None:
    """As for scores: values by dimension, and a name that is none is refused."""
    table = await harness.memory.weights(["agent0", "agent1"], "up_or_down", {"metric_type": "binary"})
    assert [one.weight for one in table.items] == [0.5, 0.5]
    with pytest.raises(BadInput, match="context"):
        await harness.memory.weights(["agent0"], "up_or_down", {"planet": "mars"})


async def test_agents_see_panels_and_no_weights_by_name(harness: RecallHarness) -> None:
    """The subject selects whose weights are shown; by name an agent has its own alone."""
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 0), facts.finding("f0", 1, agent="agent0")])
    async with asking(harness, Role.AGENT, "agent1") as memory:
        assert [one.agent for one in (await memory.panel("T0")).items[0].answers] == ["agent0"]
        assert (await memory.weights(["agent1"], "up_or_down")).items[0].weight == 1.0
        with pytest.raises(PermissionDenied):
            await memory.weights(["agent0", "agent1"], "up_or_down")
    with pytest.raises(BadInput, match="agents"):
        await harness.memory.weights([], "up_or_down")
    with pytest.raises(BadInput, match="agents"):
        await harness.memory.weights([f"agent{number}" for number in range(2_000)], "up_or_down", as_of=[at(1)] * 51)
    table = await harness.memory.weights(["agent0", "nobody"], "up_or_down", as_of=[at(1), at(2)])
    assert table.at(at(2)) == {"agent0": 0.5, "nobody": 0.5}
    assert {one.reason for one in table.items} == {
        "no outcome yet on a question that other agents of the panel answered at about the same time"
    }


def a_panel(metric: str, answers: dict[str, float | str], weights: list[AgentWeight]) -> PanelItem:
    """Return the panel of agents' answers to a question about a metric."""
    field = {"eps": "value", "up": "probability", "return_5s": "direction"}[metric]
    nothing = {"value": None, "probability": None, "direction": None}
    claims = {
        agent: {**nothing, "agent": agent, "domain": "d", "key": agent, "metric": metric, field: said, "said_at": at(0)}
        for agent, said in answers.items()
    }
    pools: dict[PoolName, list[float]] = {"record": [one.weight for one in weights]}
    weighed = PanelWeights(weights, pools | {"equal": [1.0 / len(weights)] * len(weights)}, {}, "record", 1.0)
    return panel_of(Question(metric, None, None, at(TARGET_DAY)), claims, weighed)


def test_a_value_beyond_all_measure_is_shown_and_kept() -> None:
    """All numbers of a panel are numbers: with one that is none an answer cannot be written as JSON and read again."""
    values: dict[str, float | str] = {"agent0": -1.7e308, "agent1": 1.7e308, "agent2": 1.7e308}
    shares = zip(values, (0.98, 0.01, 0.01), strict=True)
    panel = a_panel("eps", values, [AgentWeight(one, share, 20, 0.1, 0.1, 0.0, 0.0, 0.5) for one, share in shares])
    assert all(math.isfinite(one.moves) for one in panel.answers)
    assert PanelItem.model_validate_json(panel.model_dump_json()) == panel
    assert panel_text(panel).startswith("- ")


@pytest.mark.parametrize(
    ("metric", "said", "told"),
    [
        ("eps", (110.0, 90.0, 100.0), ["on average 12% too high", "on average 3% too low"]),
        ("up", (0.7, 0.4, 0.5), ["on average 0.12 too high", "on average 0.03 too low"]),
        ("return_5s", ("positive", "negative", "negative"), []),
    ],
)
def test_each_answer_says_how_its_agent_errs(metric: str, said: tuple[Any, ...], told: list[str]) -> None:
    """Of point forecasts and probabilities: who is always too high is told from who is too low; a vote is neither."""
    agents = dict(zip(("agent0", "agent1", "agent2"), said, strict=True))
    biases = zip(agents, (0.12, -0.03, 0.001), strict=True)
    panel = a_panel(metric, agents, [AgentWeight(one, 1 / 3, 20, 0.1, 0.1, bias, 0.0, 0.0) for one, bias in biases])
    assert re.findall(r"on average .* too (?:high|low)", "\n".join(panel_lines(panel))) == told
