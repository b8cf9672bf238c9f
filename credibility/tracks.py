"""
From the scores of one agent in one domain to its track record after each change. Pure.

Claims with the same ``target_at`` move together: they are one observation, their mean. The record is swept in the order
of one clock; a step holds the sums that stand from its moment on, decayed to it, so that a read as of T takes the
newest step at or before T and ages it by the rest. A step follows from what began or ended up to its moment alone.

Beside the observations stand the proper scores of claims that gave a probability, over claims: their own Brier and log
sums, the Brier sum of the baselines on the common ones, and that of the agent's own earlier base rate: (0.5 + times it
happened) / (1 + answers) over its claims whose answer was known before the claim was made, as they stood when the
claim was first scored.

A step follows from the one before it and from what changes at its moment. So a sweep need not begin at the beginning:
from a stored step, with the observations that stand there and the base rates of the claims that still change, it goes
on to the same sums, bit for bit (:func:`steps_after`). A score that comes in order costs one step, whatever came
before; one that comes late costs those behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from credibility.history import Span
from credibility.posterior import decay, years_between
from credibility.settlement import brier
from kg.asof import Clock


class Scored(NamedTuple):
    """
    One score, as a track record counts it.

    Attributes:
        finding_id: whose score it is; claims are told apart by it.
        target_at, predicted_at, first_known_at: when true, when claimed, when it could first be scored.
        stated, happened, y, brier, log_score, reference: see ``agent_outcome``.
        known, recorded: when it stands on each clock.
    """

    finding_id: str
    target_at: datetime
    predicted_at: datetime
    first_known_at: datetime
    stated: float
    happened: int | None
    y: int | None
    brier: float | None
    log_score: float | None
    reference: float | None
    known: Span | None
    recorded: Span | None


class Step(NamedTuple):
    """
    The sums of a track record from one moment on.

    Attributes:
        at: the moment, to which ``weight`` and ``successes`` are decayed.
        observations: distinct ``target_at`` with a scored claim.
        scored, correct, abstained: claims; an abstention is counted, not scored.
        weight, successes: decayed observations, and decayed sum of their means.
        probabilities: scored claims that gave one; the sums after it are over them.
        common: those that baselines answered too; ``common_sum`` is the agent's Brier sum there.
        squares: sum over observations of their squared weights: ``weight² / squares`` is how many of equal weight they
            are worth.
    """

    at: datetime
    observations: int = 0
    scored: int = 0
    correct: int = 0
    abstained: int = 0
    weight: float = 0.0
    successes: float = 0.0
    probabilities: int = 0
    brier_sum: float = 0.0
    log_sum: float = 0.0
    base_sum: float = 0.0
    common: int = 0
    common_sum: float = 0.0
    reference_sum: float = 0.0
    squares: float = 0.0


class Standing(NamedTuple):
    """
    An observation that stands at a step, whose claims will change after it.

    Attributes:
        scored, correct: its claims.
    """

    scored: int
    correct: int


class Start(NamedTuple):
    """
    Where a sweep goes on.

    Attributes:
        step: the last one before the first change.
        observations: by ``target_at``, those of them that change later; none of them was scored before it was true.
        base_rates: of every claim that begins or ends later and gave a probability, by finding.
    """

    step: Step
    observations: Mapping[datetime, Standing]
    base_rates: Mapping[str, float]


def steps_of(scores: Iterable[Scored], clock: Clock, halflife_years: float) -> list[Step]:
    """Return the steps of one agent in one domain on *clock*, by time."""
    changes = _changes(scores, clock)
    sweep = _Sweep(halflife_years, _Answers(sorted({change[3].first_known_at for change in changes})))
    return _swept(sweep, changes)


def steps_after(start: Start, scores: Iterable[Scored], clock: Clock, halflife_years: float) -> list[Step]:
    """
    Return the steps behind ``start.step``, the same that :func:`steps_of` would return there.

    Args:
        scores: those that begin or end behind it; what stood before and still stands need not be given.
    """
    changes = [change for change in _changes(scores, clock) if change[0] > start.step.at]
    return _swept(_Sweep.resumed(halflife_years, start), changes)


_Change = tuple[datetime, bool, str, Scored]


def _changes(scores: Iterable[Scored], clock: Clock) -> list[_Change]:
    changes: list[_Change] = []
    for score in scores:
        span = span_of(score, clock)
        if span is not None:
            changes.append((span.start, True, score.finding_id, score))
            if span.end is not None:
                changes.append((span.end, False, score.finding_id, score))
    # Endings first, so that a claim never counts twice; then by finding, so that sums round the same every time.
    changes.sort(key=lambda change: change[:3])
    return changes


def span_of(score: Scored, clock: Clock) -> Span | None:
    """Return when *score* stands on *clock*."""
    return score.known if clock is Clock.KNOWN else score.recorded


def _swept(sweep: _Sweep, changes: Sequence[_Change]) -> list[Step]:
    return [
        sweep.step(at, [(begins, score) for _, begins, _, score in group])
        for at, group in groupby(changes, key=lambda change: change[0])
    ]


@dataclass(slots=True)
class _Observation:
    """
    What agents call a day: claims that are true at one moment.

    Attributes:
        anchor: from when it ages: ``target_at``, or when it was first scored if that came earlier.
    """

    anchor: datetime
    scored: int = 0
    correct: int = 0

    @property
    def mean(self) -> float:
        return self.correct / self.scored


class _Answers:
    """How often it happened, over answers known before a moment; a Fenwick tree over the moments that occur."""

    def __init__(self, moments: Sequence[datetime]) -> None:
        self._moments = moments
        self._counts = [0] * (len(moments) + 1)
        self._sums = [0] * (len(moments) + 1)

    def add(self, moment: datetime, count: int, happened: int) -> None:
        index = bisect_left(self._moments, moment) + 1
        while index < len(self._counts):
            self._counts[index] += count
            self._sums[index] += happened
            index += index & -index

    def base_rate(self, before: datetime) -> float:
        index, count, happened = bisect_left(self._moments, before), 0, 0
        while index:
            count += self._counts[index]
            happened += self._sums[index]
            index -= index & -index
        return (0.5 + happened) / (1.0 + count)


@dataclass(slots=True)
class _Sums:
    """What a step holds, while it moves; see :class:`Step`."""

    observations: int = 0
    scored: int = 0
    correct: int = 0
    abstained: int = 0
    weight: float = 0.0
    successes: float = 0.0
    probabilities: int = 0
    brier_sum: float = 0.0
    log_sum: float = 0.0
    base_sum: float = 0.0
    common: int = 0
    common_sum: float = 0.0
    reference_sum: float = 0.0
    squares: float = 0.0


_VALUES = attrgetter(*Step._fields[1:])


class _Sweep:
    """The running sums, and what they are made of."""

    def __init__(self, halflife_years: float, answers: _Answers | None) -> None:
        self.halflife_years = halflife_years
        self.now: datetime | None = None
        self.sums = _Sums()
        self.observations: dict[datetime, _Observation] = {}
        self.answers = answers
        self.base_rates: dict[str, float] = {}

    @classmethod
    def resumed(cls, halflife_years: float, start: Start) -> _Sweep:
        """Return the sweep as it stood after ``start.step``."""
        sweep = cls(halflife_years, None)
        sweep.now = start.step.at
        sweep.sums = _Sums(*start.step[1:])
        sweep.observations = {at: _Observation(at, *standing) for at, standing in start.observations.items()}
        sweep.base_rates = dict(start.base_rates)
        return sweep

    def step(self, at: datetime, changes: Sequence[tuple[bool, Scored]]) -> Step:
        """Take in what begins and ends at a moment, and return what stands from it on."""
        if self.now is not None:
            fade = decay(years_between(self.now, at), self.halflife_years)
            self.sums.weight *= fade
            self.sums.successes *= fade
            self.sums.squares *= fade * fade
        self.now = at
        for begins, score in changes:
            if score.happened is not None and self.answers is not None:
                sign = 1 if begins else -1
                self.answers.add(score.first_known_at, sign, sign * score.happened)
        for begins, score in changes:
            self._count(at, score, 1 if begins else -1)
        if self.sums.observations == 0:
            # Nothing is scored any more: what rounding left must not stay.
            self.sums = _Sums(abstained=self.sums.abstained)
        return Step(at, *_VALUES(self.sums))

    def _count(self, at: datetime, score: Scored, sign: int) -> None:
        sums = self.sums
        if score.y is None:
            sums.abstained += sign
            return
        self._observe(at, score.target_at, sign, score.y * sign)
        sums.scored += sign
        sums.correct += score.y * sign
        if score.brier is None or score.log_score is None or score.happened is None:
            return
        sums.probabilities += sign
        sums.brier_sum += sign * score.brier
        sums.log_sum += sign * score.log_score
        sums.base_sum += sign * brier(self._base_rate(score), score.happened)
        if score.reference is not None:
            sums.common += sign
            sums.common_sum += sign * score.brier
            sums.reference_sum += sign * brier(score.reference, score.happened)

    def _observe(self, at: datetime, target_at: datetime, scored: int, correct: int) -> None:
        """Change one observation, and by as much the decayed sums."""
        one = self.observations.get(target_at)
        before = 0.0 if one is None else one.mean
        new = one is None
        if one is None:
            one = self.observations[target_at] = _Observation(min(target_at, at))
            self.sums.observations += 1
        weight = decay(years_between(one.anchor, at), self.halflife_years)
        one.scored += scored
        one.correct += correct
        if one.scored == 0:
            del self.observations[target_at]
            self.sums.observations -= 1
            self.sums.squares -= weight * weight
            self.sums.weight -= weight
            self.sums.successes -= weight * before
            return
        self.sums.weight += weight if new else 0.0
        self.sums.squares += weight * weight if new else 0.0
        self.sums.successes += weight * (one.mean - before)

    def _base_rate(self, score: Scored) -> float:
        """Return the base rate before the claim, the same for as long as the claim lives."""
        rate = self.base_rates.get(score.finding_id)
        if rate is None:
            if self.answers is None:
                raise LookupError(f"The base rate of {score.finding_id} was not given.")
            rate = self.base_rates[score.finding_id] = self.answers.base_rate(score.predicted_at)
        return rate
