"""The order of precedents, and the rates and the lesson over them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.credibility.scores.wilson import wilson
from imem.debates.precedents.model import LEAST_FOR_LESSON, Precedent, Precedents
from imem.debates.precedents.ranking import best, with_rates
from imem.debates.precedents.rendering import precedents_lines

START = datetime(2026, 6, 1, tzinfo=UTC)
SIDES = {"subject_id": "company:MU", "topic": "Have margins peaked?", "challenger": "bob", "challenged": "ann"}


def made(key: str, *, day: int = 0, score: float = 0.0, **more: object) -> Precedent:
    values = {"debate_id": key, "opened_at": START + timedelta(days=day), "score": score, **SIDES, **more}
    return Precedent.model_validate(values)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.1, 0.5, 0.9])), max_size=12), st.integers(1, 12))
def test_the_best_come_first_and_of_equals_the_newest(which: list[tuple[int, float]], k: int) -> None:
    found = [made(f"d{nth:02}", day=day, score=score) for nth, (day, score) in enumerate(which)]

    shown = best(reversed(found), k)

    expected = sorted(found, key=lambda one: (-one.score, -one.opened_at.timestamp(), one.debate_id))
    assert shown == expected[:k]


ACCURACIES = st.lists(st.none() | st.floats(0, 1), max_size=12)


@pytest.mark.spec("DB-18")
@given(ACCURACIES)
def test_unknown_outcomes_are_shown_and_in_no_rate(accuracies: list[float | None]) -> None:
    """They stand in the list and in the text; the rate, its n and its interval are those of the known ones."""
    items = [made(f"d{nth}", accuracy=one) for nth, one in enumerate(accuracies)]

    answer = with_rates(Precedents(items=items))

    known = [one for one in accuracies if one is not None]
    assert answer.items == items
    assert answer.accuracy.n == len(known)
    assert " ".join(precedents_lines(answer)).count("outcome unknown") == len(accuracies) - len(known)
    if known:
        share = sum(known) / len(known)
        interval = wilson(share, len(known))
        assert answer.accuracy.share == pytest.approx(share)
        assert (answer.accuracy.lower, answer.accuracy.upper) == (interval.lower, interval.upper)
    else:
        assert answer.accuracy.share is None


@given(ACCURACIES)
def test_no_lesson_from_fewer_than_five_known_outcomes(accuracies: list[float | None]) -> None:
    answer = with_rates(Precedents(items=[made(f"d{nth}", accuracy=one) for nth, one in enumerate(accuracies)]))

    assert LEAST_FOR_LESSON == 5
    assert (answer.lesson is not None) == (sum(one is not None for one in accuracies) >= 5)


def test_a_winner_that_scores_chose_is_no_evidence() -> None:
    """It is shown and flagged, and counts in no rate of winners; nor does a debate without a winner."""
    items = [
        made("a", winner="bob", method="judged"),
        made("b", winner="ann", method="credibility_weighted", by_credibility=True),
        made("c"),
    ]

    answer = with_rates(Precedents(items=items))

    assert (answer.challenger_won.share, answer.challenger_won.n) == (1.0, 1)
    assert sum("no independent evidence" in line for line in precedents_lines(answer)) == 1
