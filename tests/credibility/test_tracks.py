"""Steps of a track record against a plain computation from the scores that stand at a moment."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.credibility.history import ValidityInterval
from imem.credibility.observations import SAME_ANSWER
from imem.credibility.posterior import decay, years_between
from imem.credibility.scores.context import ClaimContext
from imem.credibility.track_steps import RecordSteps, ScoredClaim, TrackRecordStep, steps_of
from imem.kg.asof import AsOfClock

START = datetime(2026, 1, 1, tzinfo=UTC)
HALFLIFE = 0.1
CONTEXTS = [ClaimContext(), ClaimContext("Energy", "binary", "week"), ClaimContext("Energy", "binary", "month")]


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def span(start: int, length: int | None) -> ValidityInterval:
    return ValidityInterval(day(start), None if length is None else day(start + length))


@st.composite
def histories(draw: st.DrawFn) -> list[ScoredClaim]:
    """Scores of claims, up to two spans each on either clock, one after the other."""
    found = []
    for number in range(draw(st.integers(0, 8))):
        target, predicted = draw(st.integers(5, 8)), draw(st.integers(0, 4))
        known, recorded = draw(st.integers(9, 20)), draw(st.integers(9, 24))
        revised = draw(st.booleans())
        for vintage in range(1 + revised):
            open_end = vintage == revised
            stated = draw(st.sampled_from([0.2, 0.5, 0.9]))
            happened = draw(st.integers(0, 1))
            scored = stated != 0.5
            error = (stated - happened) ** 2 if scored else None
            found.append(
                ScoredClaim(
                    f"f{number}", day(target), day(predicted), day(known), stated, happened,
                    int((stated > 0.5) == bool(happened)) if scored else None, error, error,
                    draw(st.sampled_from([None, 0.4])),
                    span(known + 3 * vintage, None if open_end else 3),
                    span(recorded + 2 * vintage, None if open_end else 2),
                    draw(st.sampled_from(CONTEXTS)), stated - happened if scored else None,
                    draw(st.sampled_from([None, 0.1, 0.3])) if scored else None,
                    draw(st.sampled_from([("a", "up"), ("b", "up")])),
                )
            )  # fmt: skip
    return found


def spans(scores: list[ScoredClaim], clock: AsOfClock) -> list[tuple[ValidityInterval, ScoredClaim]]:
    found = [(score.known if clock is AsOfClock.KNOWN else score.recorded, score) for score in scores]
    return [(one, score) for one, score in found if one is not None]


def by_day(scores: list[ScoredClaim], value: Callable[[ScoredClaim], float]) -> dict[datetime, float]:
    found: dict[datetime, float] = {}
    for score in scores:
        found[score.target_at] = found.get(score.target_at, 0.0) + value(score)
    return found


def reference_error(score: ScoredClaim) -> float:
    return ((score.reference or 0.0) - (score.happened or 0)) ** 2


def plain(scores: list[ScoredClaim], clock: AsOfClock, at: datetime) -> TrackRecordStep:
    """Compute what a step at *at* must say, from the scores that stand then."""
    there = [s for one, s in spans(scores, clock) if one.start <= at and (one.end is None or at < one.end)]
    scored = [score for score in there if score.y is not None]
    days: dict[datetime, list[int]] = {}
    for score in scored:
        days.setdefault(score.target_at, []).append(score.y or 0)
    ages = {target: decay(years_between(target, at), HALFLIFE) for target in days}
    common = [score for score in scored if score.reference is not None]
    own, others = by_day(common, lambda one: one.brier or 0.0), by_day(common, reference_error)
    return TrackRecordStep(
        at,
        observations=len(days),
        scored=len(scored),
        correct=sum(score.y or 0 for score in scored),
        abstained=len(there) - len(scored),
        weight=sum(ages.values()),
        successes=sum(ages[target] * fmean(found) for target, found in days.items()),
        probabilities=len(scored),
        brier_sum=sum(score.brier or 0.0 for score in scored),
        log_sum=sum(score.log_score or 0.0 for score in scored),
        common=len(common),
        common_sum=sum(ages[target] * value for target, value in own.items()),
        reference_sum=sum(ages[target] * value for target, value in others.items()),
        common_squares=sum((ages[target] * value) ** 2 for target, value in own.items()),
        common_cross=sum(ages[target] ** 2 * value * others[target] for target, value in own.items()),
        reference_squares=sum((ages[target] * value) ** 2 for target, value in others.items()),
        own_sum=sum(ages[score.target_at] * (score.brier or 0.0) for score in scored),
        own_squares=sum(
            (ages[target] * value) ** 2 for target, value in by_day(scored, lambda one: one.brier or 0.0).items()
        ),
        squares=sum(age**2 for age in ages.values()),
        answers=len(there),
        happened=sum(score.happened or 0 for score in there),
    )


@settings(max_examples=300, deadline=None)
@given(histories())
def test_steps_are_what_stands(scores: list[ScoredClaim]) -> None:
    """Between changes nothing but age moves, and at each change the sums are those of the scores that stand."""
    for clock in AsOfClock:
        steps = steps_of(scores, clock, HALFLIFE).steps
        assert [step.at for step in steps] == sorted({at for one, _ in spans(scores, clock) for at in one if at})
        for step in steps:
            assert tuple(step._replace(base_sum=0.0, own_cross=0.0, base_squares=0.0))[1:] == pytest.approx(
                tuple(plain(scores, clock, step.at))[1:], abs=1e-9
            )


@settings(max_examples=200, deadline=None)
@given(histories(), st.integers(0, 30), st.randoms(use_true_random=False))
def test_later_changes_and_order_are_nothing(scores: list[ScoredClaim], cut: int, random: object) -> None:
    """Steps up to a moment are bit for bit the same without what begins after it, in any order of rows."""
    for clock in AsOfClock:
        before = []
        for score in scores:
            one = score.known if clock is AsOfClock.KNOWN else score.recorded
            if one is not None and one.start <= day(cut):
                end = one.end if one.end is not None and one.end <= day(cut) else None
                cut_off = ValidityInterval(one.start, end)
                before.append(
                    score._replace(known=cut_off) if clock is AsOfClock.KNOWN else score._replace(recorded=cut_off)
                )
        random.shuffle(before)  # type: ignore[attr-defined]
        full = steps_of(scores, clock, HALFLIFE)
        assert steps_of(before, clock, HALFLIFE) == RecordSteps(
            [step for step in full.steps if step.at <= day(cut)],
            [step for step in full.cells if step.at <= day(cut)],
            [step for step in full.observations if step.at <= day(cut)],
        )


def first_given(claim: ScoredClaim, standing: list[ScoredClaim]) -> datetime:
    """Return when the answer of a claim was first given: up to the last earlier answer that was another one."""
    earlier = [
        one
        for one in standing
        if (one.target_at, one.question) == (claim.target_at, claim.question) and one.predicted_at < claim.predicted_at
        if one.y is not None
    ]
    others = [one.predicted_at for one in earlier if abs((one.error or 0.0) - (claim.error or 0.0)) > SAME_ANSWER]
    same = {one.predicted_at for one in earlier if abs((one.error or 0.0) - (claim.error or 0.0)) <= SAME_ANSWER}
    # Of two answers given at one moment the same one was the later.
    kept = [at for at in same if not others or at >= max(others)]
    return min([claim.predicted_at, *kept])


@settings(max_examples=200, deadline=None)
@given(histories())
def test_observations_are_what_stands(scores: list[ScoredClaim]) -> None:
    """The newest step of each observation and context holds the means over what stands and others answered too."""
    for clock in AsOfClock:
        found = steps_of(scores, clock, HALFLIFE)
        for at in [step.at for step in found.steps]:
            newest = {(step.target_at, step.context): step.compared for step in found.observations if step.at <= at}
            standing = [
                score for one, score in spans(scores, clock) if one.start <= at and (one.end is None or one.end > at)
            ]
            there: dict[Any, list[ScoredClaim]] = {}
            for score in standing:
                if score.peer_loss is not None:
                    there.setdefault((score.target_at, score.context), []).append(score)
            assert {key for key, compared in newest.items() if compared.rows} == there.keys()
            for key, claims in there.items():
                errors = [claim.error or 0.0 for claim in claims]
                means = (
                    fmean(error**2 for error in errors),
                    fmean(one.peer_loss or 0.0 for one in claims),
                    fmean(errors),
                    fmean((one.target_at - first_given(one, standing)).total_seconds() for one in claims),
                )
                assert newest[key] == (len(claims), *means)


def claim(name: str, predicted: float, known: int, happened: int, stated: float = 0.9) -> ScoredClaim:
    error = (stated - happened) ** 2
    right = int((stated > 0.5) == bool(happened))
    stands = ValidityInterval(day(known), None)
    return ScoredClaim(
        name, day(known - 1), day(predicted), day(known), stated, happened, right, error, 0.1, None, stands, stands
    )


def test_own_base_rate_knows_what_was_known_before_the_claim() -> None:
    """The second claim was made before the first answer, the third after it, the fourth after three."""
    claims = [claim("a", 0, 5, 1), claim("b", 4.5, 8, 1), claim("c", 5.5, 9, 0), claim("d", 10, 12, 0)]
    rates = [0.5, 0.5, 1.5 / 2, 2.5 / 4]

    steps = steps_of(claims, AsOfClock.KNOWN, 2.0).steps

    expected = [(rate - one.happened) ** 2 for rate, one in zip(rates, claims, strict=True) if one.happened is not None]
    for n, step in enumerate(steps):
        weights = [decay(years_between(one.target_at, step.at), 2.0) for one in claims[: n + 1]]
        errors = list(zip(weights, claims, expected, strict=False))
        assert step.base_sum == pytest.approx(sum(weight * error for weight, _, error in errors))
        assert step.base_squares == pytest.approx(sum((weight * error) ** 2 for weight, _, error in errors))
        crossed = sum(weight**2 * error * (one.brier or 0.0) for weight, one, error in errors)
        assert step.own_cross == pytest.approx(crossed)


def test_claims_that_are_true_together_are_one_observation() -> None:
    """22 tickers on one day are one observation: their mean."""
    stands = ValidityInterval(day(2), None)
    claims = [
        ScoredClaim(f"f{n}", day(1), day(0), day(2), 1.0, None, int(n < 11), None, None, None, stands, stands)
        for n in range(22)
    ]

    (step,) = steps_of(claims, AsOfClock.KNOWN, 2.0).steps

    assert (step.observations, step.scored, step.correct) == (1, 22, 11)
    assert step.successes / step.weight == pytest.approx(0.5)
    assert step.weight == pytest.approx(decay(1 / 365.25, 2.0))
    assert step.probabilities == 0


def test_a_claim_settled_early_ages_from_then() -> None:
    """An answer known before target_at must not weigh more than one."""
    stands = ValidityInterval(day(1), None)
    (step,) = steps_of(
        [ScoredClaim("f", day(100), day(0), day(1), 1.0, None, 1, None, None, None, stands, None)], AsOfClock.KNOWN, 2.0
    ).steps

    assert step.weight == 1.0
