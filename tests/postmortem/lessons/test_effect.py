"""The uplift of a lesson against decisions that it does not speak of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import sqrt
from random import Random
from statistics import fmean, variance

import pytest

from imem.postmortem.lessons.effect import CELLS, Cell, EffectVerdict, LessonEffect, MeasuredDecision, effect_of

APPLIED = datetime(2026, 1, 5, tzinfo=UTC)
SPEC = {(True, False): 0.62, (True, True): 0.71, (False, False): 0.66, (False, True): 0.69}
"""Cell → share of right decisions, as in the example of the specification."""


def decisions(shares: dict[Cell, float], count: int = 100, missing: Cell | None = None) -> list[MeasuredDecision]:
    """Return so many decisions of each cell, one fewer of *missing*, of which that share is right."""
    return [
        MeasuredDecision(
            decision_id=f"{scope}-{late}-{number}", in_scope=scope, accuracy=float(number < round(share * count)),
            decided_at=APPLIED + timedelta(days=1 + number if late else -number),
        )
        for (scope, late), share in shares.items()
        for number in range(count - ((scope, late) == missing))
    ]  # fmt: skip


@pytest.mark.spec("PM-15")
def test_the_example_of_the_specification() -> None:
    found = effect_of(decisions(SPEC), APPLIED)
    assert found.uplift == pytest.approx(0.06)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0 < found.high, "of a hundred decisions each this may be chance"
    assert found.verdict is EffectVerdict.UNCLEAR
    assert found.after_in_scope.decisions == 100
    assert found.after_in_scope.accuracy == pytest.approx(0.71)
    assert effect_of(decisions(SPEC), APPLIED) == found, "the same question has the same answer"


@pytest.mark.spec("PM-15")
@pytest.mark.parametrize("cell", CELLS)
def test_nine_decisions_of_a_cell_are_insufficient(cell: Cell) -> None:
    assert effect_of(decisions(SPEC, 10), APPLIED).verdict is not EffectVerdict.INSUFFICIENT
    found = effect_of(decisions(SPEC, 10, missing=cell), APPLIED)
    assert (found.verdict, found.uplift, found.low) == (EffectVerdict.INSUFFICIENT, None, None)


@pytest.mark.spec("PM-15")
def test_the_decisions_behind_the_lesson_count_in_neither_period() -> None:
    found = effect_of(decisions(SPEC, 10), APPLIED, made_it=["True-False-3"])
    assert (found.before_in_scope.decisions, found.verdict) == (9, EffectVerdict.INSUFFICIENT)
    late = effect_of(decisions(SPEC, 11), APPLIED, made_it=["True-True-3"])
    assert (late.after_in_scope.decisions, late.before_in_scope.decisions) == (10, 11)


def test_a_large_effect_is_seen_and_what_changed_everywhere_is_none() -> None:
    large = effect_of(decisions({**SPEC, (True, True): 0.95}), APPLIED)
    harm = effect_of(decisions({**SPEC, (True, True): 0.35}), APPLIED)
    same = effect_of(decisions({cell: 0.5 + 0.4 * cell[1] for cell in CELLS}), APPLIED)
    assert [one.verdict for one in (large, harm)] == [EffectVerdict.EFFECTIVE, EffectVerdict.HARMFUL]
    assert same.verdict is EffectVerdict.UNCLEAR
    assert same.uplift == pytest.approx(0.0)


def test_without_an_effect_the_interval_seldom_leaves_out_zero() -> None:
    """Of 60 lessons without an effect, few are called effective or harmful: of very many, one in twenty."""
    random = Random(7)

    def one() -> LessonEffect:
        chance = decisions(dict.fromkeys(CELLS, 0.0), 30)
        flips = [
            MeasuredDecision(
                decision_id=each.decision_id, decided_at=each.decided_at, in_scope=each.in_scope,
                accuracy=float(random.random() < 0.6),
            )
            for each in chance
        ]  # fmt: skip
        return effect_of(flips, APPLIED)

    wrong = sum(one().verdict is not EffectVerdict.UNCLEAR for _ in range(60))
    assert wrong <= 8


def test_the_interval_of_few_decisions_is_as_wide_as_that_of_a_difference_of_means() -> None:
    """In ten draws of ten decisions a cell: about 1.96 standard errors on both sides."""
    random, ratios = Random(3), []
    for _ in range(10):
        values = {cell: [random.random() for _ in range(10)] for cell in CELLS}
        found = effect_of(
            [
                MeasuredDecision(
                    decision_id=f"{scope}-{late}-{number}", in_scope=scope, accuracy=value,
                    decided_at=APPLIED + timedelta(days=1 if late else -1),
                )
                for (scope, late), drawn in values.items()
                for number, value in enumerate(drawn)
            ],
            APPLIED,
        )  # fmt: skip
        assert found.low is not None
        assert found.high is not None
        error = sqrt(sum(variance(drawn) / 10 for drawn in values.values()))
        ratios.append((found.high - found.low) / (2 * 1.96 * error))
    assert fmean(ratios) == pytest.approx(1.0, abs=0.015)
