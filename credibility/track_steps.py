"""
Steps of a track record: the sums of one agent in one domain after each change of its scores. Pure.

Claims with the same ``target_at`` are correlated: they count as one observation, their mean. A sweep processes the
scores in the order of one clock. A step holds the sums valid from its moment on, decayed to it, so that a read as of T
takes the newest step at or before T and decays it by the rest. A step depends only on scores that became valid or
invalid up to its moment.

A step also holds the proper scores of claims that gave a probability: their Brier and log sums, and two comparisons of
Brier scores, by observation and with the same decay. One is with the baselines on the common claims. The other is with
the agent's own earlier base rate, (0.5 + times it happened) / (1 + answers), over its claims whose answer was known
before the claim was made, as they were when the claim was first scored.

The same sweep yields the steps of the record's parts by context (:mod:`imem.credibility.scores.cells`).

A step is computed from the one before it and from what changes at its moment. So a sweep may resume at a stored step,
with the observations valid there, the base rates of claims that still change and the cells that they change, and gets
the same sums, bit for bit (:func:`steps_after`). A score that comes in order costs one step; a late one costs the steps
after it as well.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import NamedTuple

from imem.credibility.history import ValidityInterval
from imem.credibility.observations import Briers, Observation, ObservationClaim, PeerComparison
from imem.credibility.posterior import decay, years_between
from imem.credibility.scores.cells import CellStep, RunningCells
from imem.credibility.scores.context import ClaimContext
from imem.kg.asof import AsOfClock


class ScoredClaim(NamedTuple):
    """
    One score, as a track record counts it.

    Attributes:
        finding_id: the finding, which identifies the claim.
        target_at, predicted_at, first_known_at: when true, when claimed, when it could first be scored.
        stated, happened, y, brier, log_score, reference: see ``agent_outcome``.
        known, recorded: when it is valid on each clock.
        context: the context of the claim.
        error, peer_loss: see ``agent_outcome``.
        question: its subject and metric.
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
    known: ValidityInterval | None
    recorded: ValidityInterval | None
    context: ClaimContext = ClaimContext()
    error: float | None = None
    peer_loss: float | None = None
    question: tuple[str, str] = ("", "")


class TrackRecordStep(NamedTuple):
    """
    The sums of a track record from one moment on.

    Attributes:
        at: the moment, to which ``weight`` and ``successes`` are decayed.
        observations: distinct ``target_at`` with a scored claim.
        scored, correct, abstained: claims; an abstention is counted, not scored.
        weight, successes: decayed observations, and decayed sum of their means.
        probabilities: scored claims that gave one; ``brier_sum`` and ``log_sum`` are over them, whatever their age.
        common: those that baselines answered too.
        common_sum, reference_sum: decayed Brier sums of the agent and of the baselines over the common claims.
        common_squares, common_cross, reference_squares: over observations, the products of each one's two sums, times
            its squared weight; the variance of their ratio is computed from them.
        own_sum, base_sum, own_squares, own_cross, base_squares: the same over all probabilities, of the agent and of
            its own earlier base rate.
        squares: sum of the observations' squared weights; ``weight² / squares`` is the effective number of
            observations.
        answers, happened: claims on binary metrics that have an answer, abstentions too, and those whose event
            happened.
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
    common: int = 0
    common_sum: float = 0.0
    reference_sum: float = 0.0
    common_squares: float = 0.0
    common_cross: float = 0.0
    reference_squares: float = 0.0
    own_sum: float = 0.0
    base_sum: float = 0.0
    own_squares: float = 0.0
    own_cross: float = 0.0
    base_squares: float = 0.0
    squares: float = 0.0
    answers: int = 0
    happened: int = 0


class ObservationStep(NamedTuple):
    """An observation's comparison in a context from a moment on."""

    at: datetime
    target_at: datetime
    context: ClaimContext
    compared: PeerComparison


class RecordSteps(NamedTuple):
    """The steps of a track record by time, those of its cells, and those of its observations, by time and context."""

    steps: list[TrackRecordStep]
    cells: list[CellStep]
    observations: list[ObservationStep]


class SweepStart(NamedTuple):
    """
    State from which a sweep resumes.

    Attributes:
        step: the last step before the first change.
        observations: ``target_at`` → claims by finding, of observations that change later; none was scored before its
            ``target_at``.
        base_rates: finding → base rate, of claims with a probability that change later or are in *observations*.
        cells: context → the last step at or before *step*, of the contexts of claims that change later or are in
            *observations*; those without one are empty.
    """

    step: TrackRecordStep
    observations: Mapping[datetime, Mapping[str, ObservationClaim]]
    base_rates: Mapping[str, float]
    cells: Mapping[ClaimContext, CellStep]


def steps_of(scores: Iterable[ScoredClaim], clock: AsOfClock, halflife_years: float) -> RecordSteps:
    """Return the steps of one agent in one domain on *clock*."""
    changes = _changes(scores, clock)
    sweep = _Sweep(halflife_years, _OutcomeCounts(sorted({change[3].first_known_at for change in changes})))
    return _run_sweep(sweep, changes)


def steps_after(
    start: SweepStart, scores: Iterable[ScoredClaim], clock: AsOfClock, halflife_years: float
) -> RecordSteps:
    """
    Return the steps after ``start.step``, equal to those of :func:`steps_of`.

    Args:
        scores: those that become valid or invalid after it.
    """
    changes = [change for change in _changes(scores, clock) if change[0] > start.step.at]
    return _run_sweep(_Sweep.resumed(halflife_years, start), changes)


_Change = tuple[datetime, bool, str, ScoredClaim]


def _changes(scores: Iterable[ScoredClaim], clock: AsOfClock) -> list[_Change]:
    changes: list[_Change] = []
    for score in scores:
        span = span_of(score, clock)
        if span is not None:
            changes.append((span.start, True, score.finding_id, score))
            if span.end is not None:
                changes.append((span.end, False, score.finding_id, score))
    # Ends first, so that a claim never counts twice; then by finding, so that sums always round the same.
    changes.sort(key=itemgetter(0, 1, 2))
    return changes


def span_of(score: ScoredClaim, clock: AsOfClock) -> ValidityInterval | None:
    """Return when *score* is valid on *clock*."""
    return score.known if clock is AsOfClock.KNOWN else score.recorded


def _run_sweep(sweep: _Sweep, changes: Sequence[_Change]) -> RecordSteps:
    found = RecordSteps([], [], sweep.observed)
    for at, group in groupby(changes, key=itemgetter(0)):
        found.steps.append(sweep.step(at, [(begins, score) for _, begins, _, score in group]))
        found.cells.extend(sweep.cells.steps())
    return found


@dataclass(slots=True)
class _RunningComparison:
    """Decayed Brier sums of the agent and of a reference over observations, and the sums of their products."""

    own: float = 0.0
    other: float = 0.0
    own_squares: float = 0.0
    cross: float = 0.0
    other_squares: float = 0.0

    def age(self, fade: float) -> None:
        squared = fade * fade
        self.own *= fade
        self.other *= fade
        self.own_squares *= squared
        self.cross *= squared
        self.other_squares *= squared

    def change(self, weight: float, before: Briers, now: Briers) -> None:
        squared = weight * weight
        self.own += weight * (now.own - before.own)
        self.other += weight * (now.other - before.other)
        self.own_squares += squared * (now.own * now.own - before.own * before.own)
        self.cross += squared * (now.own * now.other - before.own * before.other)
        self.other_squares += squared * (now.other * now.other - before.other * before.other)


class _OutcomeCounts:
    """Base rate over the answers known before a moment: a Fenwick tree over the moments that occur."""

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
    """Mutable sums of a step; see :class:`TrackRecordStep`."""

    observations: int = 0
    scored: int = 0
    correct: int = 0
    abstained: int = 0
    weight: float = 0.0
    successes: float = 0.0
    probabilities: int = 0
    brier_sum: float = 0.0
    log_sum: float = 0.0
    common: int = 0
    baselines: _RunningComparison = field(default_factory=_RunningComparison)
    base_rate: _RunningComparison = field(default_factory=_RunningComparison)
    squares: float = 0.0
    answers: int = 0
    happened: int = 0

    @classmethod
    def of(cls, step: TrackRecordStep) -> _Sums:
        """Return the sums of a step."""
        return cls(*step[1:11], _RunningComparison(*step[11:16]), _RunningComparison(*step[16:21]), *step[21:])

    def step(self, at: datetime) -> TrackRecordStep:
        """Return the sums as the step at *at*."""
        return TrackRecordStep._make((
            at, self.observations, self.scored, self.correct, self.abstained, self.weight, self.successes,
            self.probabilities, self.brier_sum, self.log_sum, self.common, *_COMPARED(self.baselines),
            *_COMPARED(self.base_rate), self.squares, self.answers, self.happened,
        ))  # fmt: skip

    def age(self, fade: float) -> None:
        """Multiply all decaying sums by *fade*."""
        self.weight *= fade
        self.successes *= fade
        self.squares *= fade * fade
        self.baselines.age(fade)
        self.base_rate.age(fade)

    def tidy(self) -> None:
        """Reset sums over no claims to exactly zero, so that rounding errors do not accumulate."""
        if self.observations == 0:
            self.weight = self.successes = self.squares = self.brier_sum = self.log_sum = 0.0
        if self.common == 0:
            self.baselines = _RunningComparison()
        if self.probabilities == 0:
            self.base_rate = _RunningComparison()


_COMPARED = attrgetter("own", "other", "own_squares", "cross", "other_squares")


class _Sweep:
    """The running sums, with the observations and base rates they are computed from."""

    def __init__(
        self,
        halflife_years: float,
        answers: _OutcomeCounts | None,
        cells: Mapping[ClaimContext, CellStep] = MappingProxyType({}),
    ) -> None:
        self.halflife_years = halflife_years
        self.now: datetime | None = None
        self.sums = _Sums()
        self.observations: dict[datetime, Observation] = {}
        self.answers = answers
        self.base_rates: dict[str, float] = {}
        self.cells = RunningCells(halflife_years, cells)
        self.observed: list[ObservationStep] = []

    @classmethod
    def resumed(cls, halflife_years: float, start: SweepStart) -> _Sweep:
        """Return the sweep in its state after ``start.step``."""
        sweep = cls(halflife_years, None, start.cells)
        sweep.now = start.step.at
        sweep.sums = _Sums.of(start.step)
        sweep.base_rates = dict(start.base_rates)
        for at, members in start.observations.items():
            one = sweep.observations[at] = Observation(at)
            for finding, claim in members.items():
                one.add(finding, claim, sweep.base_rates[finding] if claim.stated else None)
            one.stands = True
            one.mean, one.common, one.base = one.counted()
            one.shares = one.current_shares()
            one.compare()
        return sweep

    def step(self, at: datetime, changes: Sequence[tuple[bool, ScoredClaim]]) -> TrackRecordStep:
        """Apply the scores that become valid or invalid at *at*, and return the step."""
        if self.now is not None:
            self.sums.age(decay(years_between(self.now, at), self.halflife_years))
        self.now = at
        answers: dict[datetime, list[int]] = {}
        for begins, score in changes:
            if score.happened is not None:
                sign = 1 if begins else -1
                counts = answers.setdefault(score.first_known_at, [0, 0])
                counts[0] += sign
                counts[1] += sign * score.happened
        for first_known_at, (count, happened) in answers.items():
            self.sums.answers += count
            self.sums.happened += happened
            if self.answers is not None:
                self.answers.add(first_known_at, count, happened)
        for begins, score in changes:
            self._count(at, score, begins=begins)
        # By moment, and each observation once for all its changes, so that sums always round the same.
        for target_at in sorted({score.target_at for _, score in changes if score.y is not None}):
            self._observe(at, target_at)
        self.sums.tidy()
        return self.sums.step(at)

    def _count(self, at: datetime, score: ScoredClaim, *, begins: bool) -> None:
        """Add a claim to the counts and its observation, or remove it."""
        sums, sign = self.sums, 1 if begins else -1
        if score.y is None:
            sums.abstained += sign
            return
        sums.scored += sign
        sums.correct += score.y * sign
        one = self.observations.get(score.target_at)
        if one is None:
            one = self.observations[score.target_at] = Observation(min(score.target_at, at))
        probability = score.brier is not None and score.log_score is not None and score.happened is not None
        if begins:
            claim = ObservationClaim(
                score.y, score.happened, score.brier, score.reference, score.context, score.error, score.peer_loss,
                (score.target_at - score.predicted_at).total_seconds(), score.question,
            )  # fmt: skip
            one.add(score.finding_id, claim, self._base_rate(score) if probability else None)
            self.cells.resolved(at, score.context, score.first_known_at)
        else:
            one.remove(score.finding_id)
        if score.brier is None or score.log_score is None or score.happened is None:
            return
        sums.probabilities += sign
        sums.brier_sum += sign * score.brier
        sums.log_sum += sign * score.log_score
        if score.reference is not None:
            sums.common += sign

    def _observe(self, at: datetime, target_at: datetime) -> None:
        """Add the change of one observation to the decayed sums."""
        one, sums = self.observations[target_at], self.sums
        weight = decay(years_between(one.anchor, at), self.halflife_years)
        mean, common, base = one.counted()
        sums.successes += weight * (mean - one.mean)
        sums.baselines.change(weight, one.common, common)
        sums.base_rate.change(weight, one.base, base)
        one.mean, one.common, one.base = mean, common, base
        shares = one.current_shares()
        self.cells.observe(at, weight, one.shares, shares)
        one.shares = shares
        compared = one.compare()
        self.observed += [
            ObservationStep(at, target_at, context, compared[context]) for context in sorted(compared, key=repr)
        ]
        change = bool(one.members) - one.stands
        one.stands = bool(one.members)
        sums.observations += change
        sums.weight += change * weight
        sums.squares += change * weight * weight
        if not one.stands:
            del self.observations[target_at]

    def _base_rate(self, score: ScoredClaim) -> float:
        """Return the base rate before a claim, which is counted once per claim."""
        found = self.base_rates.get(score.finding_id)
        if found is None:
            if self.answers is None:
                raise LookupError(f"The base rate of {score.finding_id} was not given.")
            found = self.base_rates[score.finding_id] = self.answers.base_rate(score.predicted_at)
        return found
