"""Weights and pools: what must hold of them for any evidence, and what attacks gain."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.credibility.panels.pooling import (
    AgentWeight,
    Evidence,
    Observations,
    pooled,
    pooled_value,
)
from imem.credibility.scores.context import ClaimContext
from imem.recall.sections.panels import reason_of

NOW = datetime(2025, 3, 1, tzinfo=UTC)
ANY = ClaimContext(metric_type="binary")


class Row(NamedTuple):
    """One of :class:`Observations`."""

    agent: int
    at: float
    target_at: float
    context: ClaimContext
    rows: int
    loss: float
    peer_loss: float
    error: float
    ahead: float = 3600.0


def evidence(agents: Sequence[str], rows: Sequence[Row]) -> Evidence:
    """Return the evidence of *rows*."""
    contexts = list(dict.fromkeys(one.context for one in rows))
    observed = Observations(
        agent=np.array([one.agent for one in rows], dtype=np.intp),
        at=np.array([one.at for one in rows], dtype=float),
        target_at=np.array([one.target_at for one in rows], dtype=float),
        context=np.array([contexts.index(one.context) for one in rows], dtype=np.intp),
        contexts=contexts,
        values=np.array([one[4:] for one in rows], dtype=float).reshape(-1, 5),
    )
    return Evidence(agents, observed)


def row(agent: int, week: int, loss: float, peers: float = 0.2, **more: Any) -> Row:
    """Return an observation of *week* weeks ago, known at once."""
    target = (NOW - timedelta(weeks=week)).timestamp()
    given = {"at": target, "context": ANY, "rows": 20, "error": 0.1, **more}
    return Row(agent=agent, target_at=target, loss=loss, peer_loss=peers, **given)


def weights(agents: int, rows: list[Row], **more: Any) -> list[float]:
    found = evidence([f"agent{number}" for number in range(agents)], rows).weights(NOW, **more)
    return [one.weight for one in found]


LOSSES = st.floats(0.0, 1.0)
ROWS = st.lists(
    st.builds(
        row, st.integers(0, 3), st.integers(0, 60), LOSSES, LOSSES, rows=st.integers(0, 50), error=st.floats(-1.0, 1.0)
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(ROWS, st.randoms())
def test_shares_sum_to_one_whatever_the_order(rows: list[Row], chance: random.Random) -> None:
    """Weights are shares, above zero, and the order of agents and of evidence is nothing to them."""
    # Two versions of one observation that begin together would be told apart by their order alone.
    distinct = list({(one.agent, one.target_at): one for one in rows}.values())
    found = weights(4, distinct)
    assert sum(found) == pytest.approx(1.0)
    assert min(found) > 0.0

    places = chance.sample(range(4), 4)
    moved = [one._replace(agent=places[one.agent]) for one in chance.sample(distinct, len(distinct))]
    other = weights(4, moved)
    assert [other[place] for place in places] == pytest.approx(found)


def test_equal_without_evidence() -> None:
    """No observation, none by now, or none that tells the agents apart: the weights are equal."""
    assert weights(3, []) == pytest.approx([1 / 3] * 3)
    late = [row(0, -2, 0.01, at=(NOW + timedelta(days=1)).timestamp())]
    assert weights(3, late) == pytest.approx([1 / 3] * 3)
    signs = ((1, 1, -1, -1), (1, -1, 1, -1), (1, -1, -1, 1))
    same = [row(agent, week, 0.2, error=0.1 * signs[agent][week % 4]) for agent in range(3) for week in range(30)]
    assert max(weights(3, same)) < 0.36


@given(st.integers(1, 100))
def test_grows_smoothly_with_evidence(weeks: int) -> None:
    """One more week of the same advantage raises the weight, a little: there is no threshold."""
    before, after = (
        weights(2, [one for week in range(count) for one in (row(0, week, 0.15), row(1, week, 0.25, error=0.2))])[0]
        for count in (weeks - 1, weeks)
    )
    assert before < after < before + 0.05


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 6), st.integers(1, 14), st.data())
def test_thin_evidence_stays_near_the_equal_weights(agents: int, weeks: int, data: st.DataObject) -> None:
    """Whatever the losses: after one observation a quarter above or below, after three about a factor of two."""
    numbers = st.floats(0.0, 1.0)
    rows = [
        row(agent, week, data.draw(numbers), data.draw(numbers), rows=data.draw(st.integers(1, 30)), error=error)
        for agent in range(agents)
        for week in range(weeks)
        for error in [data.draw(st.floats(-1.0, 1.0))]
    ]
    times = [one * agents for one in weights(agents, rows)]
    most = {1: 1.3, 2: 1.7, 3: 2.1}.get(weeks, agents)
    assert max(times) <= most
    assert min(times) >= 1.0 / most if weeks <= 3 else min(times) > 0.0


@pytest.mark.parametrize("rows", [1, 10])
def test_a_wide_gap_moves_weights_no_faster_than_its_observations(rows: int) -> None:
    """Losses of 0.01 and 0.64: the ratio of the weights stays within 1 + n / 4, and comes near it."""
    for weeks in (1, 3, 5, 10, 14):
        apart = [
            one
            for week in range(weeks)
            for one in (row(0, week, 0.01, 0.64, rows=rows, error=0.0), row(1, week, 0.64, 0.01, rows=rows, error=0.0))
        ]
        first, second = weights(2, apart)
        assert 1.0 + weeks / 6 < first / second <= 1.0 + weeks / 4


def test_what_no_other_of_the_panel_has_says_nothing() -> None:
    """Where bad agents outside of the panel answer too, to be alone there is no advantage over the others in it."""
    both = [row(agent, week, 0.16, 0.5, error=0.4 * agent) for agent in (0, 1) for week in range(10)]
    alone = [row(0, week, 0.16, 0.98) for week in range(10, 20)]
    found = evidence(["ann", "bob"], [*both, *alone]).weights(NOW)
    without = evidence(["ann", "bob"], both).weights(NOW)
    assert [one.weight for one in found] == pytest.approx([one.weight for one in without])
    assert found[0].observations == 10
    # Alone in a panel, an agent shows all of its record.
    assert evidence(["ann"], alone).weights(NOW)[0].observations == 10


@given(LOSSES, st.floats(0.01, 0.5))
def test_a_smaller_loss_never_weighs_less(loss: float, better: float) -> None:
    """Monotone: with a smaller loss on the same questions an agent has the greater weight."""
    others = [row(agent, week, 0.2, error=0.3 * agent) for agent in (1, 2) for week in range(10)]
    first, second = (
        weights(3, [*others, *(row(0, week, one, error=-0.2) for week in range(10))])[0]
        for one in (loss, max(loss - better, 0.0))
    )
    assert second >= first - 1e-9


def test_the_newest_version_counts_and_old_ones_fade() -> None:
    """A revision replaces the observation; what is long ago counts less."""
    bad, good = row(0, 5, 0.6), row(0, 5, 0.05, at=(NOW - timedelta(days=1)).timestamp())
    other = row(1, 5, 0.2, error=0.3)
    assert weights(2, [other, bad, good])[0] > 0.5 > weights(2, [other, bad])[0]
    assert weights(2, [other, good._replace(at=(NOW + timedelta(days=1)).timestamp()), bad])[0] < 0.5
    old, new = (weights(2, [row(0, week, 0.1), row(1, week, 0.3, error=0.3)])[0] for week in (400, 1))
    assert 0.5 < old < new
    assert weights(2, [row(0, 30, 0.1), other], since=NOW - timedelta(weeks=10))[0] == pytest.approx(
        weights(2, [other])[0]
    )


def test_other_contexts_count_half() -> None:
    """Evidence of the context asked for moves the weight more than that of another."""
    other = ClaimContext("tech", "value", "year", "large", "mature", "NORMAL")
    for week in (1, 20):
        rows = [row(0, week, 0.05), row(1, week, 0.35, error=0.3)]
        inside, outside = weights(2, rows, context=ANY)[0], weights(2, rows, context=other)[0]
        assert inside == pytest.approx(weights(2, rows)[0])
        assert 0.5 < outside < inside


# Attacks


def season(agents: int, *, seed: int = 7) -> list[Row]:
    """Return a season of agents of different skill: the first is the best."""
    chance = random.Random(seed)
    return [
        row(
            agent,
            week,
            0.15 + 0.03 * agent + chance.uniform(-0.03, 0.03),
            0.15 + 0.03 * (agents - 1) / 2,
            error=chance.uniform(-0.2, 0.2),
        )
        for agent in range(agents)
        for week in range(28)
    ]


def test_a_copy_shares_the_weight_of_what_it_copies() -> None:
    """Copied answers weigh together about as much as the one that they copy, exact or with noise."""
    alone = weights(4, season(4))
    chance = random.Random(3)
    for noise in (0.0, 0.002):
        copy = [
            one._replace(agent=4, loss=one.loss + chance.uniform(-noise, noise), error=one.error + noise)
            for one in season(4)
            if one.agent == 0
        ]
        found = evidence([f"agent{number}" for number in range(5)], [*season(4), *copy]).weights(NOW)
        both = found[0].weight + found[4].weight
        assert both < 1.15 * alone[0]
        assert found[4].shared_with == ("agent0",)
    assert not any(one.shared_with for one in evidence(["a", "b", "c", "d"], season(4)).weights(NOW))


def test_the_later_of_two_copies_bears_the_sharing() -> None:
    """What is copied keeps its weight, the copy has little; where both are first as often, they share alike."""
    alone = weights(4, season(4))[0]

    def both(behind: Callable[[int], float]) -> tuple[float, float]:
        copy = [
            one._replace(agent=4, ahead=one.ahead - behind(place))
            for place, one in enumerate(one for one in season(4) if one.agent == 0)
        ]
        found = weights(5, [*season(4), *copy])
        return found[0], found[4]

    copied, copy = both(lambda _: 60.0)
    assert copied > 0.8 * alone
    assert copy < 0.25 * copied
    assert list(both(lambda _: -60.0)) == pytest.approx([copy, copied])
    first, second = both(lambda place: 60.0 if place % 2 else -60.0)
    assert first == pytest.approx(second, rel=0.1)


def test_what_resemblance_takes_is_said() -> None:
    """It is the share that the weight would have without it; who errs otherwise than the rest gains it."""
    alike = [
        one._replace(agent=4, loss=one.loss + 0.01 * (-1) ** place, error=one.error + 0.02 * (-1) ** (place // 2))
        for place, one in enumerate(one for one in season(4) if one.agent == 0)
    ]
    found = evidence([f"agent{number}" for number in range(5)], [*season(4), *alike]).weights(NOW)
    assert not any(one.shared_with for one in found)
    assert found[0].resemblance > 0.05
    assert found[4].resemblance > 0.05
    assert all(one.resemblance < 0.0 for one in found[1:4])
    unshared = [one.weight / (1.0 - one.resemblance) for one in found]
    assert sum(unshared) == pytest.approx(1.0)
    assert [one.resemblance for one in evidence(["a", "b"], []).weights(NOW)] == pytest.approx([0.0, 0.0])
    said = [reason_of(one._replace(resemblance=part)) for one, part in ((found[0], 0.25), (found[0], 0.05))]
    assert said[0] == f"{said[1]}; its errors are like those of other agents, which reduces its weight by 25%"


def test_to_answer_late_is_no_fault_of_who_is_no_copy() -> None:
    """Times count between copies alone."""
    late = [one._replace(ahead=60.0) if one.agent == 0 else one for one in season(4)]
    assert weights(4, late) == pytest.approx(weights(4, season(4)))


def test_a_flood_of_one_day_is_one_observation() -> None:
    """Ten thousand right answers true on one day move a weight hardly more than twenty."""
    few, many = (weights(4, [*season(4), row(3, 0, 0.01, rows=rows, error=0.0)])[3] for rows in (20, 10_000))
    without = weights(4, season(4))[3]
    assert abs(many - few) < 0.01
    assert many < without * 1.15


def test_easy_questions_are_no_skill() -> None:
    """Who answers only what everybody answers well keeps the equal weight, and does not pass the best."""
    easy = [row(4, week, 0.001, 0.004, error=0.02 * (week % 3)) for week in range(28)]
    found = weights(5, [*season(4), *easy])
    assert found[4] < found[0]
    assert found[4] == pytest.approx(0.2, abs=0.03)


def test_a_new_name_begins_at_the_equal_weight_or_below() -> None:
    """An agent that sheds its record gains nothing on average."""
    found = weights(5, season(4))
    assert found[4] <= 0.2 + 1e-9
    assert found[0] > 0.2


# Pools

ANSWERS = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.0, 1.0), min_size=1)


def of(agent: str, weight: float, spread: float = 0.0) -> AgentWeight:
    return AgentWeight(agent, weight, 20, 0.1, 0.1, 0.0, 0.0, spread)


@given(ANSWERS, st.floats(0.0, 2.0))
def test_a_pool_lies_among_the_answers(answers: dict[str, float], spread: float) -> None:
    """It lies between the least and the greatest answer, its interval holds it, and one answer has none."""
    some = {agent: of(agent, place + 1.0, spread) for place, agent in enumerate("abcdef")}
    for pool in (pooled(answers), pooled(answers, some), pooled_value(answers), pooled_value(answers, some)):
        assert min(answers.values()) - 1e-9 <= pool.value <= max(answers.values()) + 1e-9
        if len(answers) == 1:
            assert pool.lower is None
        else:
            assert pool.lower is not None
            assert pool.upper is not None
            assert pool.lower - 1e-9 <= pool.value <= pool.upper + 1e-9
    if len(answers) > 1:
        pool = pooled(answers, some)
        assert (pool.lower or 0.0) >= 0.0
        assert (pool.upper or 0.0) <= 1.0
    same = {agent: of(agent, 0.25) for agent in answers}
    assert pooled(answers, same).value == pytest.approx(pooled(answers).value)


def test_uncertain_weights_and_dissent_widen_the_interval() -> None:
    """The interval is wider where the agents disagree more, and where the weights are less sure."""

    def width(answers: dict[str, float], spread: float) -> float:
        pool = pooled(answers, {agent: of(agent, 0.25, spread) for agent in answers})
        assert pool.lower is not None
        assert pool.upper is not None
        return pool.upper - pool.lower

    near, far = (
        dict(zip("abcd", (0.4, 0.45, 0.5, 0.55), strict=True)),
        dict(zip("abcd", (0.2, 0.4, 0.6, 0.8), strict=True)),
    )
    assert width(near, 0.0) < width(near, 1.0)
    assert width(near, 0.0) < width(far, 0.0)


def test_point_forecasts_are_pooled_by_the_weighted_median() -> None:
    """One absurd price target does not move the pool of three; half of the weight does."""
    prices = {"a": 100.0, "b": 110.0, "c": 9000.0}
    assert pooled_value(prices).value == 110.0
    assert pooled_value(prices, {"a": of("a", 0.6), "b": of("b", 0.2), "c": of("c", 0.2)}).value == 100.0
    assert pooled_value({"a": 100.0, "b": 110.0}).value == 105.0


@pytest.mark.parametrize("largest", [1e160, 1e308, sys.float_info.max])
def test_a_number_beyond_all_measure_leaves_numbers(largest: float) -> None:
    """What one agent makes up is far from the pool of three, and the interval ends at the largest number."""
    values = {"a": 100.0, "b": 110.0, "c": largest}
    assert pooled_value(values).value == 110.0
    assert pooled_value({"a": largest, "b": largest}) == (largest, largest, largest)
    for answers in (values, {"a": -largest, "b": largest}, {"a": -largest, "b": 1.0, "c": largest}):
        pool = pooled_value(answers, {agent: of(agent, 0.3, 0.5) for agent in answers})
        assert pool.lower is not None
        assert pool.upper is not None
        assert -sys.float_info.max <= pool.lower < pool.value < pool.upper <= sys.float_info.max
