"""Pools of a panel: weights by earlier seasons, the record of each pool, and which of them is the answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.credibility.panels.choice import (
    DRAWN,
    LEAST_SCORED,
    MOST_CLAIMS,
    Claims,
    PanelWeights,
    drawn_of,
    no_claims,
    weigh,
)
from imem.credibility.panels.pooling import Evidence, Seasons
from tests.credibility.panels.test_pooling import NOW, Row, evidence, row

LAST_YEAR = range(40, 60)
"""Weeks ago of an earlier season: the gap to this one is longer than 60 days."""


class Said(NamedTuple):
    """A scored claim: agent, week ago that it is about, error, and number of the question."""

    agent: int
    week: float
    error: float
    question: int = 0
    known: timedelta = timedelta(0)


def claims(said: Sequence[Said]) -> Claims:
    """Return claims made two days ahead, each known at its target or *known* after it."""
    target = np.array([(NOW - timedelta(weeks=one.week)).timestamp() for one in said])
    question = np.array([(int(one.week * 100) * 1_000 + one.question) * DRAWN for one in said], dtype=np.int64)
    since = target + np.array([one.known.total_seconds() for one in said])
    agent, error = np.array([one.agent for one in said], dtype=np.intp), np.array([one.error for one in said])
    return Claims(agent, question, target, target - 2 * 86_400.0, since, np.full(len(said), np.inf), error)


def weighed(found: Evidence, said: Claims, at: datetime = NOW, *, seasons: Seasons = "gap") -> PanelWeights:
    def shares(moment: float) -> tuple[np.ndarray, np.ndarray | None]:
        then = found.both(datetime.fromtimestamp(moment, UTC), seasons=seasons)
        chosen = None if then.by_seasons is None else then.by_seasons.shares
        return np.array([one.weight for one in then.by_record]), chosen

    return weigh(found.both(at, seasons=seasons), shares, said, at)


def names(count: int) -> list[str]:
    return [f"agent{number}" for number in range(count)]


def two_seasons(losses: Sequence[float], *, now: Sequence[int] = range(5)) -> list[Row]:
    """Return agents with a loss each in the earlier season, and all the same one in this."""
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (len(losses), 100))
    earlier = [
        row(agent, week, loss, error=float(signs[agent, week]) * loss**0.5)
        for agent, loss in enumerate(losses)
        for week in LAST_YEAR
    ]
    this = [
        row(agent, week, 0.2, error=float(signs[agent, week]) * 0.3) for agent in range(len(losses)) for week in now
    ]
    return [*earlier, *this]


# Weights by earlier seasons


def test_the_better_half_of_earlier_seasons_has_equal_weights() -> None:
    """Six agents: the three that did best before share it, whatever they did in this season; so says each."""
    rows = two_seasons((0.05, 0.1, 0.15, 0.25, 0.3, 0.35))
    found = evidence(names(6), rows).both(NOW)
    assert found.by_seasons is not None
    assert found.by_seasons.shares[:3] == pytest.approx([1 / 3] * 3, abs=0.05)
    assert found.by_seasons.shares[3:].tolist() == [0.0] * 3
    assert [one.better_half for one in found.by_record] == [True] * 3 + [False] * 3
    assert [one.earlier for one in found.by_record] == [len(LAST_YEAR)] * 6
    bad = [one._replace(loss=0.9) if one.agent == 0 and one.target_at > rows[-1].target_at else one for one in rows]
    again = evidence(names(6), bad).both(NOW).by_seasons
    assert again is not None
    assert again.shares[0] > 0.2


def test_a_first_season_has_no_earlier_one() -> None:
    """Whoever has no season behind it has no part, and without three agents that have one there is no such pool."""
    first = [row(agent, week, 0.1 + 0.05 * agent) for agent in range(4) for week in range(30)]
    found = evidence(names(4), first)
    assert found.both(NOW).by_seasons is None
    assert [one.better_half for one in found.both(NOW).by_record] == [None] * 4
    assert weighed(found, no_claims()).best == "record"
    # After more than 60 days without an answer the same season is an earlier one.
    later = found.both(NOW + timedelta(days=61)).by_seasons
    assert later is not None
    two = [one for one in two_seasons((0.1, 0.2, 0.3, 0.4)) if one.agent < 2 or one.target_at > NOW.timestamp() - 1e7]
    assert evidence(names(4), two).both(NOW).by_seasons is None
    new = [one for one in two_seasons((0.1, 0.2, 0.3, 0.05)) if one.agent < 3 or one.target_at > NOW.timestamp() - 1e7]
    shares = evidence(names(4), new).both(NOW).by_seasons
    assert shares is not None
    assert shares.shares[3] == 0.0


def test_a_season_may_be_a_calendar_year() -> None:
    """A record without gaps has no season by them; by years what was before the first of January is one."""
    rows = [row(agent, week, 0.1 + 0.05 * agent) for agent in range(4) for week in range(30)]
    found = evidence(names(4), rows)
    assert found.both(NOW, seasons="gap").by_seasons is None
    by_year = found.both(NOW, seasons="year")
    assert by_year.by_seasons is not None
    before = sum(NOW - timedelta(weeks=week) < datetime(2025, 1, 1, tzinfo=UTC) for week in range(30))
    assert {one.earlier for one in by_year.by_record} == {before}


def test_copies_of_the_better_half_share_one_part() -> None:
    """A copy of the best gains nothing but a part of the weight that both share."""
    rows = two_seasons((0.05, 0.1, 0.15, 0.25, 0.3, 0.35))
    copies = [one._replace(agent=6, ahead=one.ahead - 60.0) for one in rows if one.agent == 0]
    found = evidence(names(7), [*rows, *copies]).both(NOW).by_seasons
    assert found is not None
    assert found.shares[0] + found.shares[6] < 1.3 * found.shares[1]
    assert found.shares[6] < 0.5 * found.shares[0]


def test_a_lucky_week_is_no_season() -> None:
    """Fourteen observations that were right do not make an agent one of the better half; fifteen can."""
    rows = two_seasons((0.1, 0.15, 0.2, 0.25))
    for weeks, part in ((14, False), (15, True)):
        lucky = [row(4, week, 0.001, error=0.01, rows=10_000) for week in list(LAST_YEAR)[:weeks]]
        found = evidence(names(5), [*rows, *lucky]).both(NOW).by_seasons
        assert found is not None
        assert bool(found.shares[4] > 0.0) is part


def test_who_turns_after_a_good_season_falls_out() -> None:
    """What an agent does in this season counts three tenths: after some weeks the best of the last is no more."""
    losses = (0.05, 0.1, 0.15, 0.25, 0.3, 0.35)
    part = {}
    for weeks in (1, 5, 20, 30):
        rows = [
            one._replace(loss=0.9, error=0.9) if one.agent == 0 and one.target_at > NOW.timestamp() - 2e7 else one
            for one in two_seasons(losses, now=range(weeks))
        ]
        found = evidence(names(6), rows).both(NOW).by_seasons
        assert found is not None
        part[weeks] = bool(found.shares[0] > 0.0)
    assert part == {1: True, 5: True, 20: False, 30: False}


@pytest.mark.parametrize(("new", "there"), [(0, True), (9, True), (10, False)])
def test_no_agent_has_more_than_four_times_the_equal_weight(new: int, *, there: bool) -> None:
    """Beside many new names those with a season behind them are more than a half, or there is no such pool."""
    rows = two_seasons((0.05, 0.15, 0.25))
    found = evidence(names(3 + new), rows).both(NOW).by_seasons
    assert (found is not None) is there
    if found is not None:
        assert found.shares.max() * (3 + new) <= 4.0 + 1e-9


# Records of pools


def test_each_pool_is_scored_on_common_questions() -> None:
    """Squared errors of mean and median; questions of one week are one observation; one answer is no panel."""
    said = [Said(0, 1, 0.0), Said(1, 1, 0.0), Said(2, 1, 0.9), Said(0, 2, 0.3), Said(1, 2, 0.1), Said(0, 3, 0.5)]
    found = weighed(evidence(names(3), []), claims(said))
    equal, median = found.records["equal"], found.records["median"]
    assert (equal.observations, median.observations) == (2, 2)
    assert equal.loss == pytest.approx((0.3**2 + 0.2**2) / 2, rel=0.02)
    assert median.loss == pytest.approx((0.0 + 0.2**2) / 2, rel=0.02)
    assert median.equal_loss == equal.loss
    assert median.gain is not None
    assert median.gain > 0.5
    assert found.records["record"].observations == found.records["seasons"].observations == 0
    more = [Said(agent, 1, 0.9, question) for agent in range(2) for question in range(1, 4)]
    assert weighed(evidence(names(3), []), claims([*said, *more])).records["equal"].observations == 2


def test_a_pool_says_what_it_would_have_said_then() -> None:
    """The weights by record of a question are those from before its first answer: of the first week there are none."""
    rows = [row(agent, week, loss) for week in range(30) for agent, loss in ((0, 0.01), (1, 0.64))]
    said = claims([Said(agent, week, error) for week in range(30) for agent, error in ((0, 0.1), (1, 0.8))])
    found = weighed(evidence(names(2), rows), said)
    record = found.records["record"]
    assert 20 <= record.observations < 30
    assert record.gain is not None
    assert record.gain > 0.0
    assert record.lower is not None
    assert record.lower < record.gain
    # With the weights of now it would have done better than it did.
    shares = np.array([one.weight for one in found.answer])
    assert (record.loss or 0.0) > float(shares @ [0.1, 0.8]) ** 2


@pytest.mark.parametrize("weeks", [LEAST_SCORED - 1, LEAST_SCORED])
def test_another_pool_takes_its_place_where_it_was_better(weeks: int) -> None:
    """The median, with fifteen observations and by more than chance; the answer is shrunk towards equal weights."""
    chance = random.Random(3)
    outliers = [
        Said(agent, week, error + chance.uniform(-0.02, 0.02))
        for week in range(weeks)
        for agent, error in enumerate((0.1, 0.1, 0.1, 0.9))
    ]
    found = weighed(evidence(names(4), []), claims(outliers))
    assert found.best == ("median" if weeks >= LEAST_SCORED else "record")
    if found.best == "median":
        assert 0.5 < found.trust < 1.0
        assert [one.weight for one in found.answer] == pytest.approx([0.25] * 4)
    mixed = [one._replace(error=-one.error) if one.agent == 3 and one.week % 2 else one for one in outliers]
    noisy = [one._replace(error=chance.uniform(-1, 1)) for one in mixed]
    assert weighed(evidence(names(4), []), claims(noisy)).best == "record"


def test_the_answer_is_by_earlier_seasons_shrunk_to_equal_weights() -> None:
    """Without a record of its own yet; the more observations it rests on, the nearer it is to that pool."""
    rows = two_seasons((0.05, 0.1, 0.15, 0.25, 0.3, 0.35))
    found = weighed(evidence(names(6), rows), no_claims())
    assert found.best == "seasons"
    assert 0.6 < found.trust < 0.9
    part = found.by_pool["seasons"]
    assert [one.weight for one in found.answer] == pytest.approx(
        [found.trust * one + (1.0 - found.trust) / 6 for one in part]
    )
    longer = [one for week in (100, 140) for one in rows for week in [week] if one.target_at < NOW.timestamp() - 2e7]
    older = [one._replace(target_at=one.target_at - 3e7, at=one.at - 3e7) for one in longer]
    assert weighed(evidence(names(6), [*rows, *older]), no_claims()).trust > found.trust


def test_a_panel_of_nobody_has_no_weights() -> None:
    """Where baselines alone answered, nobody is left."""
    assert weighed(evidence([], []), no_claims()).answer == []


# What must hold of any evidence

ERRORS = st.floats(-1.0, 1.0)
AT_ONCE = st.just(timedelta(0))
SAID = st.lists(
    st.builds(Said, st.integers(0, 4), st.integers(0, 70), ERRORS, st.integers(0, 3), AT_ONCE), max_size=60
).map(lambda said: list({(one.agent, one.week, one.question): one for one in said}.values()))
ROWS = st.lists(
    st.builds(row, st.integers(0, 4), st.integers(0, 70), st.floats(0.0, 1.0), st.floats(0.0, 1.0), error=ERRORS),
    max_size=60,
).map(lambda rows: list({(one.agent, one.target_at): one for one in rows}.values()))


@settings(max_examples=100, deadline=None)
@given(ROWS, SAID, st.integers(1, 60))
def test_nothing_known_later_changes_an_answer(rows: list[Row], said: list[Said], weeks: int) -> None:
    """What is settled later, or replaced then, is nothing to an earlier moment."""
    at = NOW - timedelta(weeks=weeks) + timedelta(hours=1)
    by_then = [one for one in rows if one.at <= at.timestamp()]
    known = [one for one in said if one.week >= weeks]
    late = [one._replace(known=timedelta(weeks=one.week), question=one.question + 10) for one in known]
    seen = weighed(evidence(names(5), rows), claims([*said, *late]), at)
    assert seen == weighed(evidence(names(5), by_then), claims(known), at)


@settings(max_examples=100, deadline=None)
@given(ROWS, SAID, st.randoms())
def test_the_order_of_agents_is_nothing_to_it(rows: list[Row], said: list[Said], chance: random.Random) -> None:
    """Weights are shares, in whatever order agents and claims come."""
    found = weighed(evidence(names(5), rows), claims(said))
    assert sum(one.weight for one in found.answer) == pytest.approx(1.0)
    for shares in found.by_pool.values():
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares) >= 0.0
    places = chance.sample(range(5), 5)
    moved = [one._replace(agent=places[one.agent]) for one in chance.sample(rows, len(rows))]
    other = [one._replace(agent=places[one.agent]) for one in chance.sample(said, len(said))]
    again = weighed(evidence(names(5), moved), claims(other))
    assert [again.answer[place].weight for place in places] == pytest.approx([one.weight for one in found.answer])
    assert again.best == found.best
    assert again.trust == pytest.approx(found.trust)


def test_of_many_claims_a_part_of_the_questions_is_drawn() -> None:
    """As few that an agent has about 500, the same ones for all; of few claims all."""
    assert drawn_of(np.array([])) == drawn_of(np.array([3.0, MOST_CLAIMS])) == DRAWN
    assert drawn_of(np.array([10.0, 8.0 * MOST_CLAIMS])) == DRAWN // 8
    assert drawn_of(np.array([1e12])) == 1
    said = claims([Said(agent, 1 + number, 0.1) for agent in range(2) for number in range(8)])
    drawn = Claims(
        said.agent, said.question + np.tile(np.arange(8) * 100, 2), said.target_at, said.said_at, said.since,
        said.until, said.error,
    )  # fmt: skip
    now = evidence(names(2), []).both(NOW)

    def shares(_: float) -> tuple[np.ndarray, None]:
        return np.array([0.5, 0.5]), None

    for part, observations in ((DRAWN, 8), (350, 4), (1, 1)):
        assert weigh(now, shares, drawn, NOW, drawn=part).records["equal"].observations == observations
