"""
Scores of the claims on one question, on both clocks, from what the journal holds about it. Pure.

A question is what an outcome answers: subject, metric, ``target_at``, period and unit
(:class:`imem.credibility.settlement.QuestionScope`). Those of one subject, metric and ``target_at`` are computed
together, since a correction may move a statement from one to another.

A *statement* is one version of a record, valid on the known clock from ``known_at``, on the recorded clock from
``recorded_at``. The *effective* statement of a record as of T is computed from the statements up to T alone, so that no
later one can change it. A *timeline* holds a value and the moments at which it changes. Each function below folds the
statements of one clock, in order, into a timeline.

- The effective statement of an outcome is its last correction, else its earliest statement; statements of agents
  without the import right do not count. The highest vintage of the outcomes that are not withdrawn is in force; within
  a vintage, the last one.
- A claim is what its finding said before ``target_at``: later corrections change nothing. A finding that became known
  at ``target_at`` or later is no claim.
- The reference is the mean probability of the baseline agents that claimed, each by the mean of its own claims. What an
  agent stated itself before it was a baseline does not count: who states it could know that others will be measured
  against it.
- The loss of the peers is the mean loss of the other agents' answers, without baselines, in the same stage of the
  question (:func:`stage_of`): who answers when nearly all is known is not compared with those who answered weeks
  before. The answer of an agent in a stage is its newest claim in it; its older ones have no peers, so that repetition
  counts once.
- The context of a claim is what could be known when it was made: of the subject the effective statement, of the regime
  of the market the latest reading that was not withdrawn. Later records of that change the context from then
  on, on the recorded clock alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from itertools import zip_longest
from statistics import fmean
from typing import Generic, NamedTuple, TypeVar

from imem.credibility.scores.context import ClaimContext, horizon_of
from imem.credibility.settlement import NO_SCOPE, Claim, Judgement, QuestionScope, judge, signed_error
from imem.kg.asof import AsOfClock
from imem.kg.kinds.metrics import Metric

V = TypeVar("V")
S = TypeVar("S")


class DatedStatement(NamedTuple, Generic[V]):
    """
    One version of a record in the journal.

    Attributes:
        known_at, recorded_at: from when it is valid, by clock.
        order_key: (known_at, actor, agent_seq) as sortable text.
        corrects: whether it is a correction of the core.
        value: its content.
    """

    known_at: datetime
    recorded_at: datetime
    order_key: str
    corrects: bool
    value: V


class OutcomeValue(NamedTuple):
    """
    The content of an outcome.

    Attributes:
        outcome_id: its key.
        vintage: 0 for the first number published.
        actual: the value.
        scope: its period and unit.
        withdrawn: whether it was taken back, so that it settles nothing.
    """

    outcome_id: str
    vintage: int
    actual: float
    scope: QuestionScope = NO_SCOPE
    withdrawn: bool = False


class StatedClaim(NamedTuple):
    """The part of a finding that is a claim; see :class:`imem.credibility.settlement.Claim`."""

    agent: str
    domain: str
    probability: float | None
    direction: str | None
    value: float | None
    scope: QuestionScope = NO_SCOPE


class SubjectData(NamedTuple):
    """The data of a subject; see :class:`imem.credibility.scores.context.ClaimContext`."""

    sector: str | None = None
    company_size: str | None = None
    growth_stage: str | None = None


class RegimeValue(NamedTuple):
    """
    The content of a reading of the market's regime.

    Attributes:
        reading_id: its key.
        observed_at: when the market was in it.
        regime: None if the reading is withdrawn.
    """

    reading_id: str
    observed_at: datetime
    regime: str | None


class QuestionKey(NamedTuple):
    """Subject, metric and ``target_at`` that a group of questions shares."""

    subject_id: str
    metric: str
    target_at: datetime


@dataclass(slots=True)
class Question:
    """
    All statements about the questions of one key.

    Attributes:
        key: subject, metric and ``target_at``.
        outcomes: outcome id → its statements that may settle.
        findings: finding id → its statements.
        profiles: agent → statements whether it is a baseline; only agents that ever were one.
        unmeasured: findings that are no reference, since their agent stated them itself before it was a baseline.
        subject: statements that count of what the subject is.
        regimes: readings that can be in force for one of the findings; shared by questions.
    """

    key: QuestionKey
    outcomes: dict[str, list[DatedStatement[OutcomeValue]]] = field(default_factory=lambda: defaultdict(list))
    findings: dict[str, list[DatedStatement[StatedClaim]]] = field(default_factory=lambda: defaultdict(list))
    profiles: dict[str, list[DatedStatement[bool]]] = field(default_factory=dict)
    unmeasured: set[str] = field(default_factory=set)
    subject: list[DatedStatement[SubjectData]] = field(default_factory=list)
    regimes: RegimeReadings | None = None


class ScoreContent(NamedTuple):
    """The content of a score, without its validity intervals."""

    outcome_id: str
    vintage: int
    agent: str
    domain: str
    predicted_at: datetime
    stated: float
    actual: float
    happened: int | None
    y: int | None
    brier: float | None
    log_score: float | None
    reference: float | None
    error: float | None
    peer_loss: float | None
    context: ClaimContext
    first_known_at: datetime


class ValidityInterval(NamedTuple):
    """From when until when something is valid; an end of None is open."""

    start: datetime
    end: datetime | None


class ScoreVersion(NamedTuple):
    """
    One row of ``agent_outcome``.

    Attributes:
        finding_id, revision: with the content's vintage, its identity.
        content: the score.
        known, recorded: when it is valid on each clock; None: never.
    """

    finding_id: str
    revision: int
    content: ScoreContent
    known: ValidityInterval | None
    recorded: ValidityInterval | None


class Timeline(Generic[V]):
    """
    A value that changes at moments.

    Attributes:
        times: when it changes, ascending.
        values: the value from then on; None: no value.
    """

    __slots__ = ("times", "values")

    def __init__(self, changes: Iterable[tuple[datetime, V | None]] = ()) -> None:
        self.times: list[datetime] = []
        self.values: list[V | None] = []
        for at, value in changes:
            if value != (self.values[-1] if self.values else None):
                self.times.append(at)
                self.values.append(value)

    def at(self, moment: datetime) -> V | None:
        """Return the value at *moment*."""
        index = bisect_right(self.times, moment)
        return self.values[index - 1] if index else None


def moment_of(statement: DatedStatement[V], clock: AsOfClock) -> datetime:
    """Return from when *statement* is valid on *clock*."""
    return statement.known_at if clock is AsOfClock.KNOWN else statement.recorded_at


def fold_statements(
    statements: Iterable[DatedStatement[V]], clock: AsOfClock, state: Callable[[Sequence[DatedStatement[V]]], S | None]
) -> Timeline[S]:
    """Return the timeline of *state* applied to the statements valid by each moment."""
    ordered = sorted(statements, key=lambda one: (moment_of(one, clock), one.order_key))
    changes: list[tuple[datetime, S | None]] = []
    for index, statement in enumerate(ordered):
        moment = moment_of(statement, clock)
        if index + 1 == len(ordered) or moment_of(ordered[index + 1], clock) != moment:
            changes.append((moment, state(ordered[: index + 1])))
    return Timeline(changes)


def latest(statements: Sequence[DatedStatement[V]]) -> V | None:
    """Return the value of the last statement by order key, which is in force for a property group."""
    return max(statements, key=lambda one: one.order_key).value


def effective_statement(statements: Sequence[DatedStatement[V]]) -> DatedStatement[V]:
    """Return the effective statement of a core: the last correction, else the earliest statement."""
    corrections = [one for one in statements if one.corrects]
    if corrections:
        return max(corrections, key=lambda one: one.order_key)
    return min(statements, key=lambda one: one.order_key)


class _EffectiveOutcome(NamedTuple):
    """The effective statement of an outcome, its order key, and since when the outcome was known."""

    answer: OutcomeValue
    order_key: str
    since: datetime


def _outcome(statements: Sequence[DatedStatement[OutcomeValue]]) -> _EffectiveOutcome:
    chosen = effective_statement(statements)
    return _EffectiveOutcome(chosen.value, chosen.order_key, min(one.known_at for one in statements))


def scopes(question: Question) -> set[QuestionScope]:
    """Return the scopes of all statements of outcomes."""
    return {one.value.scope for statements in question.outcomes.values() for one in statements}


def answers(
    question: Question, clock: AsOfClock, scope: QuestionScope = NO_SCOPE
) -> Timeline[tuple[OutcomeValue, datetime]]:
    """Return the outcome of *scope* in force at each moment, with the moment since when there was any."""
    steps = [fold_statements(statements, clock, _outcome) for statements in question.outcomes.values()]

    def force(moment: datetime) -> tuple[OutcomeValue, datetime] | None:
        found = [settled for one in steps if (settled := one.at(moment)) is not None]
        there = [one for one in found if one.answer.scope == scope and not one.answer.withdrawn]
        if not there:
            return None
        first = max(there, key=lambda one: (one.answer.vintage, one.order_key, one.answer.outcome_id))
        return first.answer, min(one.since for one in there)

    return _combine((one.times for one in steps), force)


def claims(statements: Iterable[DatedStatement[StatedClaim]], target_at: datetime, clock: AsOfClock) -> Timeline[Claim]:
    """Return the claim of a finding at each moment; none if the finding was not known before *target_at*."""

    def state(seen: Sequence[DatedStatement[StatedClaim]]) -> Claim | None:
        cores = [one for one in seen if not one.corrects]
        if not cores:
            return None
        first = min(cores, key=lambda one: one.order_key)
        if first.known_at >= target_at:
            return None
        said = effective_statement([one for one in seen if not one.corrects or one.known_at < target_at]).value
        return Claim(said.agent, said.domain, first.known_at, said.probability, said.direction, said.value, said.scope)

    return fold_statements(statements, clock, state)


def references(
    question: Question, made: dict[str, Timeline[Claim]], clock: AsOfClock, scope: QuestionScope = NO_SCOPE
) -> Timeline[float]:
    """Return the mean probability of the baselines' claims of *scope* at each moment."""
    kinds = {agent: fold_statements(statements, clock, latest) for agent, statements in question.profiles.items()}
    forecasts = [
        steps
        for finding, steps in made.items()
        if finding not in question.unmeasured
        and any(claim is not None and claim.agent in kinds for claim in steps.values)
    ]

    def mean(moment: datetime) -> float | None:
        given: dict[str, list[float]] = defaultdict(list)
        for steps in forecasts:
            claim = steps.at(moment)
            if claim is None or claim.scope != scope or claim.probability is None:
                continue
            if kinds[claim.agent].at(moment):
                given[claim.agent].append(claim.probability)
        return fmean(fmean(given[agent]) for agent in sorted(given)) if given else None

    return _combine([*(one.times for one in kinds.values()), *(one.times for one in forecasts)], mean)


class _Judge:
    """Judges the claims on a question, each beside an answer once: it is asked again at every moment of both clocks."""

    __slots__ = ("_found", "_metric")

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._found: dict[tuple[Claim, float], tuple[Judgement, float | None] | None] = {}

    def __call__(self, claim: Claim, actual: float) -> tuple[Judgement, float | None] | None:
        """Return how *claim* turned out, with its signed error; None as :func:`judge`."""
        asked = claim, actual
        if asked not in self._found:
            judged = judge(self._metric, claim, actual)
            self._found[asked] = None if judged is None else (judged, signed_error(self._metric, judged, actual))
        return self._found[asked]


class _Answer(NamedTuple):
    """A claim of an agent with its loss; the newest is greatest."""

    predicted_at: datetime
    finding_id: str
    loss: float


def peer_losses(
    judged: _Judge,
    target_at: datetime,
    made: Mapping[str, Timeline[Claim]],
    settled: Timeline[tuple[OutcomeValue, datetime]],
    scope: QuestionScope,
    *,
    baselines: Mapping[str, Timeline[bool]],
) -> Timeline[Mapping[str, float]]:
    """
    Return at each moment the loss of the peers by finding, of the claims of *scope* that have one.

    A baseline is no peer: it is a reference of its own, and may not change how agents compare with one another.
    """

    def found(moment: datetime) -> dict[str, float] | None:
        answer = settled.at(moment)
        if answer is None:
            return None
        newest: dict[int, dict[str, _Answer]] = defaultdict(dict)
        for finding, steps in made.items():
            claim = steps.at(moment)
            if claim is None or claim.scope != scope:
                continue
            turned_out = judged(claim, answer[0].actual)
            error = None if turned_out is None else turned_out[1]
            if error is not None:
                of_stage = newest[stage_of(claim.predicted_at, target_at)]
                one = _Answer(claim.predicted_at, finding, error * error)
                of_stage[claim.agent] = max(one, of_stage.get(claim.agent, one))
        losses = {}
        for of_stage in newest.values():
            peers = {agent: one.loss for agent, one in of_stage.items() if peer(agent, moment)}
            for agent, own in of_stage.items():
                # The mean is exact, whatever the order.
                others = [loss for name, loss in peers.items() if name != agent]
                if others:
                    losses[own.finding_id] = fmean(others)
        return losses

    def peer(agent: str, moment: datetime) -> bool:
        return agent not in baselines or not baselines[agent].at(moment)

    described = [one.times for one in baselines.values()]
    return _combine([settled.times, *described, *(steps.times for steps in made.values())], found)


def stage_of(predicted_at: datetime, target_at: datetime) -> int:
    """Return the stage of a question in which a claim was made: within one the time to go differs less than twofold."""
    # By seconds in powers of two, whose bounds lie beside whole hours, days and weeks.
    return int((target_at - predicted_at).total_seconds()).bit_length()


class RegimeReadings:
    """The readings of the market's regime, with what was in force for a claim made at a moment."""

    def __init__(self, statements: Iterable[DatedStatement[RegimeValue]]) -> None:
        self._statements = sorted(statements, key=lambda one: (one.known_at, one.order_key))
        self._known = [one.known_at for one in self._statements]
        self._observed = sorted(one.value.observed_at for one in self._statements)
        self._found: dict[tuple[int, int, AsOfClock], Timeline[str]] = {}

    def in_force(self, predicted_at: datetime, clock: AsOfClock) -> Timeline[str]:
        """Return the regime at each moment, by what was known at *predicted_at* and speaks of no later one."""
        # Claims made between the same two readings share one timeline.
        known = bisect_right(self._known, predicted_at)
        place = known, bisect_right(self._observed, predicted_at), clock
        found = self._found.get(place)
        if found is None:
            seen = [one for one in self._statements[:known] if one.value.observed_at <= predicted_at]
            found = self._found[place] = _in_force(seen, clock)
        return found


def _in_force(statements: Sequence[DatedStatement[RegimeValue]], clock: AsOfClock) -> Timeline[str]:
    readings: dict[str, list[DatedStatement[RegimeValue]]] = defaultdict(list)
    effective: dict[str, tuple[datetime, str, str]] = {}
    changes: list[tuple[datetime, str | None]] = []
    latest_one: tuple[datetime, str, str] | None = None
    for one in sorted(statements, key=lambda one: (moment_of(one, clock), one.order_key)):
        said = readings[one.value.reading_id]
        said.append(one)
        chosen = effective_statement(said)
        before = effective.pop(one.value.reading_id, None)
        now = (chosen.value.observed_at, chosen.order_key, chosen.value.regime or "")
        if chosen.value.regime is not None:
            effective[one.value.reading_id] = now
        if before is not None and before == latest_one:
            latest_one = max(effective.values(), default=None)
        elif chosen.value.regime is not None and (latest_one is None or now > latest_one):
            latest_one = now
        changes.append((moment_of(one, clock), None if latest_one is None else latest_one[2]))
    # Of changes at one moment the last counts.
    return Timeline(sorted(dict(changes).items()))


_NO_REGIME: Timeline[str] = Timeline()


def contexts(question: Question, metric: Metric, predicted_at: datetime, clock: AsOfClock) -> Timeline[ClaimContext]:
    """Return the context of a claim made at *predicted_at*, at each moment since then."""
    known = [one for one in question.subject if one.known_at <= predicted_at]
    subject = fold_statements(known, clock, lambda seen: effective_statement(seen).value)
    regimes = _NO_REGIME if question.regimes is None else question.regimes.in_force(predicted_at, clock)
    horizon = horizon_of(predicted_at, question.key.target_at)

    def context(moment: datetime) -> ClaimContext:
        sector, size, stage = subject.at(moment) or SubjectData()
        return ClaimContext(sector, metric.kind, horizon, size, stage, regimes.at(moment))

    later = (moment for one in (subject, regimes) for moment in one.times if moment > predicted_at)
    return _combine([[predicted_at], sorted(later)], context)


def scores_of(question: Question, metric: Metric) -> list[ScoreVersion]:
    """Return every score that was ever valid for a claim on *question*, by finding, vintage and revision."""
    judged = _Judge(metric)
    spans = {clock: _spans(question, metric, clock, judged) for clock in AsOfClock}
    scores: list[ScoreVersion] = []
    for finding_id in question.findings:
        known, recorded = (spans[clock].get(finding_id, {}) for clock in AsOfClock)
        rows = [
            (content, on_known, on_recorded)
            for content in {**known, **recorded}
            for on_known, on_recorded in _pair_intervals(known.get(content, []), recorded.get(content, []))
        ]
        # By vintage, then by start: on one clock no two begin at the same moment.
        rows.sort(key=lambda row: (row[0].vintage, _begin(row[1]), _begin(row[2])))
        revisions: dict[int, int] = defaultdict(int)
        for content, on_known, on_recorded in rows:
            scores.append(ScoreVersion(finding_id, revisions[content.vintage], content, on_known, on_recorded))
            revisions[content.vintage] += 1
    return scores


def _spans(
    question: Question, metric: Metric, clock: AsOfClock, judged: _Judge
) -> dict[str, dict[ScoreContent, list[ValidityInterval]]]:
    """Return the validity intervals of each finding's scores on *clock*."""
    settled = {scope: answers(question, clock, scope) for scope in scopes(question)}
    if not any(one.times for one in settled.values()):
        return {}
    target_at = question.key.target_at
    made = {finding: claims(statements, target_at, clock) for finding, statements in question.findings.items()}
    compared = metric.kind == "binary" and question.profiles
    reference = {scope: references(question, made, clock, scope) for scope in settled} if compared else {}
    baselines = {agent: fold_statements(statements, clock, latest) for agent, statements in question.profiles.items()}
    peers = {
        scope: peer_losses(judged, target_at, made, settled[scope], scope, baselines=baselines) for scope in settled
    }
    changing = [one.times for parts in (settled, reference, peers) for one in parts.values()]
    found = {}
    # Many claims are made at one moment, and few moments are of other contexts.
    context = cache(partial(contexts, question, metric, clock=clock))
    for finding, claim in made.items():

        def content(moment: datetime, finding: str = finding, claim: Timeline[Claim] = claim) -> ScoreContent | None:
            said = claim.at(moment)
            answer = settled[said.scope].at(moment) if said is not None and said.scope in settled else None
            if said is None or answer is None:
                return None
            own = said.agent in baselines and baselines[said.agent].at(moment)
            against = reference.get(said.scope)
            return _content(
                judged,
                said,
                answer,
                reference=None if own or against is None else against.at(moment),
                peer_loss=(peers[said.scope].at(moment) or {}).get(finding),
                context=context(said.predicted_at).at(moment) or ClaimContext(),
            )

        # Whether the agent is a baseline changes its score even where the reference's mean stays the same.
        described = [baselines[said.agent].times for said in claim.values if said and said.agent in baselines]
        described += [context(said.predicted_at).times for said in claim.values if said]
        found[finding] = _intervals_of(_combine([*changing, claim.times, *described], content))
    return found


def _content(
    judge_claim: _Judge,
    claim: Claim,
    answer: tuple[OutcomeValue, datetime],
    *,
    reference: float | None,
    peer_loss: float | None,
    context: ClaimContext,
) -> ScoreContent | None:
    (outcome_id, vintage, actual, *_), since = answer
    turned_out = judge_claim(claim, actual)
    if turned_out is None:
        return None
    judged, error = turned_out
    return ScoreContent(
        outcome_id, vintage, claim.agent, claim.domain, claim.predicted_at, judged.stated, actual, judged.happened,
        judged.y, judged.brier, judged.log_score, reference, error, peer_loss, context,
        max(since, claim.predicted_at),
    )  # fmt: skip


def _combine(times: Iterable[Sequence[datetime]], value: Callable[[datetime], S | None]) -> Timeline[S]:
    """Return the timeline of *value*, evaluated at every moment of *times*."""
    return Timeline((moment, value(moment)) for moment in sorted({moment for one in times for moment in one}))


def _intervals_of(steps: Timeline[ScoreContent]) -> dict[ScoreContent, list[ValidityInterval]]:
    found: dict[ScoreContent, list[ValidityInterval]] = defaultdict(list)
    for value, start, end in zip_longest(steps.values, steps.times, steps.times[1:]):
        if value is not None:
            found[value].append(ValidityInterval(start, end))
    return found


def _pair_intervals(
    known: Sequence[ValidityInterval], recorded: Sequence[ValidityInterval]
) -> list[tuple[ValidityInterval | None, ValidityInterval | None]]:
    """Pair the intervals of one content on both clocks: the first with the first, the second with the second."""
    length = max(len(known), len(recorded))
    padded = [[*spans, *[None] * (length - len(spans))] for spans in (known, recorded)]
    return list(zip(*padded, strict=True))


def _begin(span: ValidityInterval | None) -> tuple[bool, float]:
    return (span is None, 0.0 if span is None else span.start.timestamp())
