"""How alike two analyses are: one number from either side, between 0 and 1, of what both state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.kg.kinds.enums import SizeClass
from imem.kg.similarity.scoring import (
    NEIGHBOURS,
    WEIGHTS,
    Features,
    Neighbour,
    asks,
    comparable,
    ranked,
    reranked,
    score,
)

NAMES = st.frozensets(st.sampled_from("abcd"), max_size=3)
FEATURES = st.builds(
    Features,
    key=st.sampled_from(["k1", "k2"]),
    subject_id=st.sampled_from([None, "company:A", "company:B"]),
    sector=st.sampled_from([None, "energy", "banks"]),
    size=st.sampled_from([None, *SizeClass, "odd"]),
    metrics=NAMES,
    patterns=NAMES,
)
COSINES = st.floats(-1.0, 1.0)


@given(COSINES, FEATURES, FEATURES)
def test_it_is_a_share_and_the_same_from_either_side(cosine: float, one: Features, other: Features) -> None:
    found = score(cosine, one, other)
    assert 0.0 <= found <= 1.0
    assert found == score(cosine, other, one)


@given(COSINES, COSINES, FEATURES, FEATURES)
def test_a_nearer_text_is_never_less_alike(cosine: float, more: float, one: Features, other: Features) -> None:
    low, high = sorted((cosine, more))
    assert score(low, one, other) <= score(high, one, other)


def test_what_is_common_counts_as_the_table_says() -> None:
    one = Features("a", "company:A", "energy", "small", frozenset({"x", "y"}), frozenset({"p"}))
    other = Features("b", "company:B", "energy", "mid", frozenset({"y"}), frozenset({"q"}))
    expected = 0.55 * 0.8 + 0.20 * 1 + 0.05 * 0.5 + 0.10 * 0.5 + 0.10 * 0
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)
    assert score(0.8, one, other) == pytest.approx(expected)


def test_what_only_one_states_is_left_out() -> None:
    plain, told = Features("a", "company:A"), Features("b", "company:B", "energy", "small", frozenset({"x"}))
    assert score(0.7, plain, told) == pytest.approx(0.7)
    assert score(0.7, Features("a", sector="energy"), told) == pytest.approx((0.55 * 0.7 + 0.2) / 0.75)
    assert score(-1.0, plain, told) == 0.0


def test_the_best_come_first_and_none_twice() -> None:
    given = [Neighbour(0.5, "b"), Neighbour(0.9, "a"), Neighbour(0.5, "a"), Neighbour(0.5, "c")]
    assert ranked(given) == [Neighbour(0.9, "a"), Neighbour(0.5, "b"), Neighbour(0.5, "c")]
    assert len(ranked(Neighbour(0.1, str(n)) for n in range(30))) == NEIGHBOURS


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (("Will it rise by week 3 of 2025?", None), ("will it rise, by week 12 of 2026", None), True),
        (("Will it rise?", "weekly"), ("Will it fall?", "weekly"), True),
        (("Will it rise?", "weekly"), ("Will it fall?", "daily"), False),
        (("Wird es in Köln regnen?", None), ("Wird es in Bonn regnen?", None), False),
        (("会下雨吗 3", None), ("会下雨吗 4", None), True),
        ((None, None), (None, None), False),
    ],
)
def test_a_question_is_known_again_by_its_words_without_figures_and_by_its_series(
    one: tuple[str | None, str | None],
    other: tuple[str | None, str | None],
    alike: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    features = [Features(key, f"market:{key}", asks=asks(*said)) for key, said in (("a", one), ("b", other))]
    assert comparable(*features) is not alike


def test_candidates_on_the_same_subject_and_unknown_ones_are_left_out() -> None:
    own = Features("a", "company:A", "energy")
    features = {
        "a": own,
        "b": Features("b", "company:A", "energy"),
        "c": Features("c", "company:C", "banks"),
        "d": Features("d", "company:D", "energy"),
        "e": Features("e", None, "energy"),
    }
    found = reranked(own, [("a", 0.0), ("b", 0.1), ("c", 0.1), ("gone", 0.1), ("d", 0.2), ("e", 0.9)], features)
    assert [one.key for one in found] == ["d", "c", "e"]
