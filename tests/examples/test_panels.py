"""Panels on the season of the example: every week is scored both ways, and no attack gains much."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from examples.flusight import panels
from examples.flusight.convert import HERE


@pytest.fixture(scope="module")
def season() -> panels.Season:
    return panels.read_season(HERE / "source", "2024-25")


def test_each_week_is_pooled_both_ways(season: panels.Season) -> None:
    """The first week has equal weights; what was published later is not used; the difference has an interval."""
    found = panels.weeks(season)
    assert len(found) == 28
    assert found[0].weighted == pytest.approx(found[0].equal)
    assert all(0.0 < week.weighted < 1.0 for week in found)
    change, lower, upper = panels.difference(found)
    assert lower < change < upper
    assert abs(change) < 0.05
    later = season.rounds()[5][0]
    assert np.isnan(season.answers(later)).sum() > np.isnan(season.answers(season.rounds()[9][0])).sum()


@pytest.mark.parametrize(
    ("attack", "most"), [*zip(panels.ATTACKS, (0.4, 1.15, 1.05, 1.0, 1.0, 0.5), strict=True)], ids=panels.ATTACKS
)
def test_an_attack_gains_little(season: panels.Season, attack: str, most: float) -> None:
    """At the end of the season the attacker's weight is below a bound, in equal weights."""
    assert panels.by_week(panels.attacked(season, attack))[-1] <= most


def test_what_is_copied_keeps_its_weight(season: panels.Season) -> None:
    """The copy comes a minute later: of the weight that both share it has little."""
    alone, copied = panels.by_week(season, panels.best(season)), panels.by_attack(season)[panels.COPIED]
    assert copied[-1] > 0.85 * alone[-1]


def test_who_answers_last_gains_nothing(season: panels.Season) -> None:
    """Right answers to every question, in the last minute, are beside nobody's: the weight stays the equal one."""
    assert max(panels.by_week(panels.attacked(season, "answers last"))) <= 1.0


def test_other_methods_are_scored_on_the_same_weeks(season: panels.Season) -> None:
    """Each has every week, with the same equal weights beside it, and pools otherwise."""
    found = panels.refused(season)
    for scored in found.values():
        assert [week.equal for week in scored] == [week.equal for week in panels.weeks(season)]
        assert [week.weighted for week in scored] != [week.equal for week in scored]


def test_every_pool_is_scored_and_baselines_are_none_of_them(season: panels.Season) -> None:
    """Without an earlier season equal weights stand in its place; with baselines they are worse."""
    assert not any("baseline" in agent or "equal_cat" in agent for agent in season.agents)
    found = panels.weeks(season)
    assert {*found[0].scores} == {*panels.POOLS, panels.EVERYBODY}
    assert panels.difference(found, "seasons") == (0.0, 0.0, 0.0)
    assert panels.difference(found, panels.EVERYBODY)[1] > 0.0
    (change, lower, upper), (_, low, high) = (panels.difference(found, block=block) for block in (1, panels.BLOCK))
    assert low < change < high
    assert (low, high) != (lower, upper)
    table = panels.pool_table(found)
    assert len(table) == 2 + len(panels.POOLS) + 1


def test_an_earlier_season_decides(season: panels.Season) -> None:
    """The first two thirds of the season, moved a year back, stands for one: the answer is by the better half of it."""
    middle = len(season.questions) * 2 // 3
    order = sorted(range(len(season.questions)), key=lambda place: season.questions[place].target_at)
    moved = [season.questions[place] for place in order]
    year = timedelta(days=364)
    for place in range(middle):
        one = moved[place]
        vintages = tuple(replace(vintage, known_at=vintage.known_at - year) for vintage in one.vintages)
        moved[place] = replace(one, target_at=one.target_at - year, asked_at=one.asked_at - year, vintages=vintages)
    baselines = season.baselines[0][order], season.baselines[1][order]
    later = panels.Season(season.agents, moved, season.stated[order], season.ahead[order], middle, baselines)
    found = panels.weeks(later)
    assert "seasons" in {week.best for week in found}
    assert any(week.scores["seasons"] != pytest.approx(week.equal) for week in found)


def test_pictures_show_every_week(season: panels.Season) -> None:
    """Both pools, and each attack, have a line with as many points as the season has weeks."""
    found = [panels.Week(at, 24, {"equal": 0.2, "answer": 0.1}, "record") for at, _ in season.rounds()]
    drawn = panels.pictures(found, {name: [1.0] * len(found) for name in (*panels.ATTACKS, panels.COPIED)})
    for name, lines in (("panels-weeks.svg", 2), ("panels-attacks.svg", 6)):
        points = re.findall('polyline points="([^"]+)"', drawn[name])
        assert [len(one.split()) for one in points] == [28] * lines
