"""What is told of patterns that are none is what was simulated, and what the product's own functions say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from docs.pattern_cases import SOURCES, cases
from docs.pattern_simulation import (
    PICTURE,
    RESAMPLES,
    RUNS,
    Way,
    World,
    chance_pass,
    kept,
    picture,
    share,
    simulate,
    table,
    table_of_real,
)
from docs.pictures import FOLDER
from imem.patterns.definition import Period
from imem.patterns.evidence.holdout import SEED, Direction, holdout_p
from imem.patterns.evidence.splits import split
from imem.patterns.mining import Finding, mine
from tests.docs.pictures import check_picture

PAGE = FOLDER.parent / "patterns-proven.md"
AGAIN = 2


def test_the_counts_are_whole() -> None:
    found = kept()
    assert list(found) == list(SOURCES)
    for source, ways in found.items():
        assert list(ways) == list(Way)
        assert {len(counts[gate]) for counts in ways.values() for gate in ("designed", "both")} == {RUNS[source]}


def test_the_picture_and_the_tables_are_those_of_the_counts() -> None:
    check_picture(PICTURE, picture())
    page = PAGE.read_text("utf-8")
    assert f"(pictures/{PICTURE.name})" in page
    assert table(kept()) in page
    assert table_of_real(kept()) in page


def test_three_cases_prove_nothing() -> None:
    """A coin: by the specification one pass in two of three cases, and one in four of two such parts."""
    assert chance_pass(3, 0.5) == pytest.approx(0.5)
    assert chance_pass(3, 0.5) ** 2 == pytest.approx(0.25)
    assert chance_pass(10, 0.5) ** 2 == pytest.approx(0.1719**2, abs=1e-4)


@pytest.mark.spec("PV-31")
@pytest.mark.parametrize("source", SOURCES)
def test_where_no_condition_says_anything_hardly_any_survives(source: str) -> None:
    """Though the gate of the design lets some pass in every run."""
    counts = kept()[source][Way.SOUND]
    assert share(counts["both"])[1] <= 0.05
    assert share(counts["designed"])[0] > 0.9


@pytest.mark.spec("PV-31")
@pytest.mark.parametrize(("source", "way"), [("flusight", Way.BASE_RATE), ("market_crowds", Way.ROWS)])
def test_a_mistake_lets_more_survive(source: str, way: Way) -> None:
    """That of a missing embargo is not to be seen where outcomes are exchanged, but on the real ones."""
    assert share(kept()[source][way]["both"])[1] > 0.05
    real = kept()["market_crowds"]
    assert real[Way.BY_FORECAST]["real"][-1] > real[Way.SOUND]["real"][-1] == 0


@pytest.mark.spec("PV-31")
@pytest.mark.parametrize(
    ("source", "way", "runs"),
    [
        ("market_crowds", Way.SOUND, AGAIN),
        ("flusight", Way.BASE_RATE, AGAIN),
        *(pytest.param(source, way, RUNS[source], marks=pytest.mark.chaos) for source in SOURCES for way in Way),
    ],
)
def test_the_counts_are_found_again(source: str, way: Way, runs: int) -> None:
    """The first runs of each source, and in ``make chaos`` all of them, ten minutes."""
    found, stored = simulate(source, way, runs), kept()[source][way]
    assert found["real"] == stored["real"]
    for gate in ("designed", "both"):
        assert [count > 0 for count in found[gate]] == [count > 0 for count in stored[gate][:runs]]


def test_the_simulation_computes_p_values_as_the_product_does() -> None:
    world = World("market_crowds", Way.SOUND)
    test = [world.cases[place] for place in world.test]
    places = [int(place) for place in world.enough.nonzero()[0][:4]]
    conditions = [
        [replace(case, matches=bool(held)) for case, held in zip(test, world.held[1][place], strict=True)]
        for place in places
    ]
    claims = [Direction.LOWER, Direction.HIGHER, Direction.LOWER, Direction.HIGHER]
    found = world.p_values(
        [Finding(place, claim, 2.0) for place, claim in zip(places, claims, strict=True)], world.real
    )
    assert found == pytest.approx(holdout_p(test, conditions, claims, resamples=RESAMPLES, seed=SEED))


@pytest.mark.parametrize("source", SOURCES)
def test_an_exchange_moves_outcomes_with_their_forecasts_within_the_week(source: str) -> None:
    world = World(source, Way.SOUND)
    moved = world.permuted(0)
    weeks: dict[str, list[int]] = {}
    for place, case in enumerate(world.cases):
        weeks.setdefault(case.period, []).append(place)
    for here in weeks.values():
        before, after = (
            sorted(zip(*(values[here].tolist() for values in of), strict=True)) for of in (world.real, moved)
        )
        assert before == after
    assert (moved.outcome != world.real.outcome).mean() > 0.05


def test_the_miner_proposes_what_the_simulation_tests() -> None:
    """On real outcomes, by the function that the product calls."""
    found = cases("market_crowds")
    mined = mine(found, metric="up", reference="crowd", category="financial", period=Period.WEEK)
    looked_at, proposed = kept()["market_crowds"][Way.SOUND]["real"][:2]
    assert (mined.search_space, len(mined.proposals)) == (looked_at, proposed)
    assert mined.training == len(split([one.case for one in found]).training)
