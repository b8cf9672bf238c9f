"""Panels on the season of the example: every week is scored both ways, and no attack gains much."""

from __future__ import annotations

import re

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
    ("attack", "most"), [*zip(panels.ATTACKS, (0.4, 1.15, 1.05, 1.0, 1.0), strict=True)], ids=panels.ATTACKS
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


def test_pictures_show_every_week(season: panels.Season) -> None:
    """Both pools, and each attack, have a line with as many points as the season has weeks."""
    found = [panels.Week(at, 24, 0.2, 0.1) for at, _ in season.rounds()]
    drawn = panels.pictures(found, {name: [1.0] * len(found) for name in (*panels.ATTACKS, panels.COPIED)})
    for name, lines in (("panels-weeks.svg", 2), ("panels-attacks.svg", 6)):
        points = re.findall('polyline points="([^"]+)"', drawn[name])
        assert [len(one.split()) for one in points] == [28] * lines
