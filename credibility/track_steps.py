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
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from math import fsum, inf
from operator import attrgetter
from statistics import fmean
from types import MappingProxyType
from typing import Final, NamedTuple

from imem.credibility.history import ValidityInterval
from imem.credibility.posterior import decay, years_between
from imem.credibility.scores.cells import CellShare, CellStep, RunningCells, shares_of
from imem.credibility.scores.context import ClaimContext
from imem.credibility.settlement import brier
from imem.kg.asof import AsOfClock

SAME_ANSWER: Final = 0.05
"""Difference of errors, -1 to 1, up to which an agent's next answer to a question repeats the one before."""


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


class PeerComparison(NamedTuple):
    """
    The claims of an observation in a context on questions that others answered too.

    Attributes:
        rows: how many.
        loss, peer_loss, error, ahead: means over them of the loss, that of the others, the signed error, and the
            seconds from when the agent first gave that answer to ``target_at``; zero without any.
    """

    rows: int = 0
    loss: float = 0.0
    peer_loss: float = 0.0
    error: float = 0.0
    ahead: float = 0.0


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


class ObservationClaim(NamedTuple):
    """
    A scored claim of an observation.

    Attributes:
        y: 1 right, 0 wrong.
        happened: 1 or 0 for a claim that gave a probability; else None, as are the following.
        brier: Brier score of its probability.
        reference: mean probability of the baselines; None without any.
        context: the context of the claim.
        error, peer_loss: its signed error, and the loss of the others on the question; None without others.
        ahead: seconds from the claim to ``target_at``.
        question: its subject and metric.
    """

    y: int
    happened: int | None
    brier: float | None
    reference: float | None
    context: ClaimContext = ClaimContext()
    error: float | None = None
    peer_loss: float | None = None
    ahead: float = 0.0
    question: tuple[str, str] = ("", "")


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
    changes.sort(key=lambda change: change[:3])
    return changes


def span_of(score: ScoredClaim, clock: AsOfClock) -> ValidityInterval | None:
    """Return when *score* is valid on *clock*."""
    return score.known if clock is AsOfClock.KNOWN else score.recorded


def _run_sweep(sweep: _Sweep, changes: Sequence[_Change]) -> RecordSteps:
    found = RecordSteps([], [], sweep.observed)
    for at, group in groupby(changes, key=lambda change: change[0]):
        found.steps.append(sweep.step(at, [(begins, score) for _, begins, _, score in group]))
        found.cells.extend(sweep.cells.steps())
    return found


class _Briers(NamedTuple):
    """Brier sums of one observation: the agent's and the reference's."""

    own: float = 0.0
    other: float = 0.0


_NONE = _Briers()


@dataclass(slots=True)
class _Observation:
    """
    An observation: the scored claims with one ``target_at``.

    Attributes:
        anchor: from when it decays: ``target_at``, or when it was first scored if that came earlier.
        members: its claims by finding.
        stands: whether it is part of the sums.
        mean, common, base, shares: the share right, Brier sums and shares of contexts with which it is.
        compared: the last steps of its comparison with others.
    """

    anchor: datetime
    members: dict[str, ObservationClaim]
    stands: bool = False
    mean: float = 0.0
    common: _Briers = _NONE
    base: _Briers = _NONE
    shares: Mapping[ClaimContext, CellShare] = field(default_factory=dict)
    compared: Mapping[ClaimContext, PeerComparison] = field(default_factory=dict)


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

    def change(self, weight: float, before: _Briers, now: _Briers) -> None:
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
        self.observations: dict[datetime, _Observation] = {}
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
            one = sweep.observations[at] = _Observation(at, dict(members), stands=True)
            one.mean, one.common, one.base = sweep.counted(one)
            one.shares = _shares(one)
            one.compared = _compared(one)
        return sweep

    def step(self, at: datetime, changes: Sequence[tuple[bool, ScoredClaim]]) -> TrackRecordStep:
        """Apply the scores that become valid or invalid at *at*, and return the step."""
        if self.now is not None:
            self.sums.age(decay(years_between(self.now, at), self.halflife_years))
        self.now = at
        for begins, score in changes:
            if score.happened is not None:
                sign = 1 if begins else -1
                self.sums.answers += sign
                self.sums.happened += sign * score.happened
                if self.answers is not None:
                    self.answers.add(score.first_known_at, sign, sign * score.happened)
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
            one = self.observations[score.target_at] = _Observation(min(score.target_at, at), {})
        if begins:
            one.members[score.finding_id] = ObservationClaim(
                score.y, score.happened, score.brier, score.reference, score.context, score.error, score.peer_loss,
                (score.target_at - score.predicted_at).total_seconds(), score.question,
            )  # fmt: skip
            self.cells.resolved(at, score.context, score.first_known_at)
        else:
            del one.members[score.finding_id]
        if score.brier is None or score.log_score is None or score.happened is None:
            return
        self._note_base_rate(score)
        sums.probabilities += sign
        sums.brier_sum += sign * score.brier
        sums.log_sum += sign * score.log_score
        if score.reference is not None:
            sums.common += sign

    def counted(self, one: _Observation) -> tuple[float, _Briers, _Briers]:
        """
        Return the share right of an observation, and its Brier sums beside the baselines' and the base rate's.

        Sums are exact and rounded once, so the order of the changes does not matter.
        """
        if not one.members:
            return 0.0, _NONE, _NONE
        stated = [
            (member.brier, member.reference, self.base_rates[finding], member.happened)
            for finding, member in one.members.items()
            if member.brier is not None and member.happened is not None
        ]
        common = [(own, brier(reference, hit)) for own, reference, _, hit in stated if reference is not None]
        return (
            sum(member.y for member in one.members.values()) / len(one.members),
            _Briers(fsum(own for own, _ in common), fsum(other for _, other in common)),
            _Briers(fsum(own for own, _, _, _ in stated), fsum(brier(rate, hit) for _, _, rate, hit in stated)),
        )

    def _observe(self, at: datetime, target_at: datetime) -> None:
        """Add the change of one observation to the decayed sums."""
        one, sums = self.observations[target_at], self.sums
        weight = decay(years_between(one.anchor, at), self.halflife_years)
        mean, common, base = self.counted(one)
        sums.successes += weight * (mean - one.mean)
        sums.baselines.change(weight, one.common, common)
        sums.base_rate.change(weight, one.base, base)
        one.mean, one.common, one.base = mean, common, base
        shares = _shares(one)
        self.cells.observe(at, weight, one.shares, shares)
        one.shares = shares
        compared = _compared(one)
        self.observed += [
            ObservationStep(at, target_at, context, now)
            for context in sorted({*one.compared, *compared}, key=repr)
            if (now := compared.get(context, PeerComparison())) != one.compared.get(context, PeerComparison())
        ]
        one.compared = compared
        change = bool(one.members) - one.stands
        one.stands = bool(one.members)
        sums.observations += change
        sums.weight += change * weight
        sums.squares += change * weight * weight
        if not one.stands:
            del self.observations[target_at]

    def _note_base_rate(self, score: ScoredClaim) -> None:
        """Store the base rate before a claim, once per claim."""
        if score.finding_id in self.base_rates:
            return
        if self.answers is None:
            raise LookupError(f"The base rate of {score.finding_id} was not given.")
        self.base_rates[score.finding_id] = self.answers.base_rate(score.predicted_at)


def _shares(one: _Observation) -> dict[ClaimContext, CellShare]:
    return shares_of((member.context, member.y) for member in one.members.values())


def _compared(one: _Observation) -> dict[ClaimContext, PeerComparison]:
    """Return the comparison with others by context; means are exact, so that the order of claims does not matter."""
    claims_of: dict[tuple[str, str], list[ObservationClaim]] = defaultdict(list)
    for member in one.members.values():
        claims_of[member.question].append(member)
    found: dict[ClaimContext, list[tuple[float, ...]]] = defaultdict(list)
    for claims in claims_of.values():
        for member in claims:
            if member.error is not None and member.peer_loss is not None:
                ahead = _first_said(member.ahead, member.error, claims)
                found[member.context].append((member.error * member.error, member.peer_loss, member.error, ahead))
    return {context: PeerComparison(len(rows), *map(fmean, zip(*rows, strict=True))) for context, rows in found.items()}


def _first_said(ahead: float, error: float, claims: Iterable[ObservationClaim]) -> float:
    """Return how many seconds ahead an answer given at *ahead* was given first, and has only been repeated since."""
    earlier = ((one.ahead, inf if one.error is None else abs(one.error - error)) for one in claims if one.ahead > ahead)
    for before, apart in sorted(earlier):
        if apart > SAME_ANSWER:
            break
        ahead = before
    return ahead
