"""
Scores of agents as of a moment, on both bases, from what settlement stored.

The sums that a score follows from are read by context (:mod:`imem.credibility.scores.evidence`); trends, calibration
and the last outcomes from the scores of claims. Nothing that became known, or was recorded, after the moment counts.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from imem.credibility.posterior import DecayedEvidence, Posterior, decay, posteriors, years_between
from imem.credibility.scores.auto_resolve import Contender, ScoreEstimate
from imem.credibility.scores.bias import corrected
from imem.credibility.scores.calibration import BINS, Calibration, CalibrationBin, calibration
from imem.credibility.scores.context import DIMENSIONS, ClaimContext, ContextCell, matches
from imem.credibility.scores.designed import DesignedScore, FormulaVersion, designed_score
from imem.credibility.scores.evidence import cells_read
from imem.credibility.scores.overrides import OverrideFigures
from imem.credibility.scores.people import NOTHING, Correction, PeopleFacts, people_facts
from imem.credibility.scores.scope import SCOPE_MATCHES, Share, by_dimension, matching, newest_resolved, scope_evidence
from imem.credibility.scores.trends import LinearTrend, RankTrend, WeekPoint, linear_trend, rank_trend
from imem.credibility.scores.wilson import WilsonInterval, wilson
from imem.credibility.store import TrackRecordKey
from imem.credibility.track_record import TrackRecord, dated_records, moments_read
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf
from imem.kg.kinds.enums import BiasKind

HIGH_CONFIDENCE: Final = 50
MEDIUM_CONFIDENCE: Final = 10
"""Observations from which the confidence in a score is high, or medium (credibility-and-contradictions, section 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentScore:
    """
    The score of one agent in one domain, on both bases; fractions, unless it says otherwise.

    Attributes:
        record: its track record: observations, rows, Brier, log score and skill.
        confidence: by the observations: high from 50, medium from 10.
        posterior: the sound score, of the scope of the context asked about.
        weight, scope_weight: decayed observations in the domain, and of them in that scope.
        scope_n: observations in that scope, not decayed; of one with rows in several contexts, their share.
        designed, simple: the as-designed score, comprehensive and simple.
        wilson: the interval of the base accuracy; None without outcomes.
        decayed_accuracy: the decayed mean over the domain; None without outcomes.
        recent_accuracy: mean of the last ten observations; None without any.
        trend, rank: the as-designed trend, and the test on buckets.
        calibration: of the probabilities stated in the last 52 weeks.
        people: what people overrode in the trailing year, the pin in force, and approved corrections of biases.
        contexts: observations and right ones by dimension and value; ``regime`` is one of the dimensions.
        regime: that of the regime factor; None where a context was asked about that names none.
        flags: what stands beside the score and never changes it.
    """

    record: TrackRecord
    confidence: Literal["high", "medium", "low"]
    posterior: Posterior
    weight: float
    scope_weight: float
    scope_n: float
    designed: DesignedScore
    simple: DesignedScore
    wilson: WilsonInterval | None
    decayed_accuracy: float | None
    recent_accuracy: float | None
    trend: LinearTrend
    rank: RankTrend
    calibration: Calibration
    people: PeopleFacts
    contexts: dict[str, dict[str, Share]]
    regime: str | None
    flags: tuple[str, ...]

    def contender(self, age: timedelta = timedelta()) -> Contender:
        """Return the score as a side of a comparison, that of a pin in its place; *age*: of a stale one."""
        pin = self.people.pin
        return Contender(
            n=self.scope_n,
            posterior=ScoreEstimate(self.posterior.mean if pin is None else pin.score, self.posterior.half_width),
            as_designed=ScoreEstimate(
                self.designed.score if pin is None else pin.score,
                0.5 if self.wilson is None else self.wilson.half_width,
            ),
            override_flag=self.people.overrides.flag,
            age=age,
        )


@dataclass(frozen=True, slots=True)
class CorrectedValue:
    """A value without a bias, beside the one stated: by which approved correction, of which kind, with which factor."""

    value: float
    correction_id: str
    kind: BiasKind
    bias: float


@dataclass(frozen=True, slots=True)
class BehindScore:
    """
    A settled claim that a score rests on.

    Attributes:
        finding_id, outcome_id, subject_id, metric: the claim, and what settled it.
        target_at, predicted_at: when it was to be true, and when it was made.
        stated, actual, brier: as the score of the claim.
        right: whether it was right.
        context: the dimensions that it has.
        inside: whether it is in the scope of the context asked about.
        weight: its decayed share of its observation.
        corrected: of a value, what an approved correction makes of it; the claim and its score stay as they are.
    """

    finding_id: str
    outcome_id: str
    subject_id: str
    metric: str
    target_at: datetime
    predicted_at: datetime
    stated: float
    actual: float
    brier: float | None
    right: bool
    context: dict[str, str]
    inside: bool
    weight: float
    corrected: CorrectedValue | None


async def agent_scores(
    database: Database,
    pairs: Sequence[tuple[str, str]],
    at: AsOf,
    *,
    context: ClaimContext | None,
    regime: str | None = None,
    halflife_years: float,
    deadline: Deadline,
) -> tuple[list[AgentScore], datetime | None]:
    """
    Return the score of each agent and domain in the order asked, and since when the oldest unscored statement waits.

    Args:
        pairs: (agent, domain).
        at: the moment.
        context: what is asked about; None for the whole domain.
        regime: that of the regime factor of the whole domain; a context names its own.
        halflife_years: for agents whose credibility record names none.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be read in time; retryable.
    """
    asked = [(agent, domain, at) for agent, domain in pairs]
    records, waiting = await dated_records(database, asked, halflife_years=halflife_years, deadline=deadline)
    # The horizon is read once: it moves on, and what is read of a later one would lie in the future of the rest.
    moment = moments_read(at, waiting)
    until = min(moment)
    given = {
        "agents": [agent for agent, _ in pairs],
        "domains": [domain for _, domain in pairs],
        "clock": at.clock.value,
        "until": until,
    }
    cells, weeks, bins, recent, said = await asyncio.gather(
        _cells(database, pairs, moment, at, halflife_years=halflife_years, deadline=deadline),
        database.named("weeks_of_scores", given, deadline=deadline),
        database.named("bins_of_scores", {**given, "bins": BINS}, deadline=deadline),
        database.named("recent_of_scores", given, deadline=deadline),
        people_facts(database, pairs, at, until, deadline=deadline),
    )
    by_week, by_bin = _grouped(weeks), _grouped(bins)
    last = {row["n"]: row["recent"] for row in recent}
    evidence = [scope_evidence(of_pair, context) for of_pair in cells]
    found = [
        _score(
            record, of_pair, context, until, regime=regime, sums=sums, body=body, weeks=by_week[n], bins=by_bin[n],
            last=last.get(n), people=said.get((record.agent, record.domain), NOTHING),
        )
        for n, ((_, record), of_pair, sums, body) in enumerate(
            zip(records, cells, evidence, posteriors(evidence), strict=True), start=1
        )
    ]  # fmt: skip
    return found, waiting


async def _cells(
    database: Database,
    pairs: Sequence[tuple[str, str]],
    moment: tuple[datetime, datetime],
    at: AsOf,
    *,
    halflife_years: float,
    deadline: Deadline,
) -> list[list[ContextCell]]:
    if not pairs:
        return []
    async with database.connection(deadline) as conn:
        of = [TrackRecordKey(*pair) for pair in pairs]
        return await cells_read(conn, of, [moment] * len(of), at.clock, halflife_years=halflife_years)


def _score(
    record: TrackRecord,
    cells: Sequence[ContextCell],
    context: ClaimContext | None,
    until: datetime,
    *,
    regime: str | None,
    sums: DecayedEvidence,
    body: Posterior,
    weeks: Sequence[Row],
    bins: Sequence[Row],
    last: float | None,
    people: PeopleFacts,
) -> AgentScore:
    points = [WeekPoint(row["week"], row["observations"], row["right"], row["rows"]) for row in weeks]
    trend, rank, newest = linear_trend(points), rank_trend(points), newest_resolved(cells)
    common: dict[str, Any] = {
        "age_years": None if newest is None else years_between(newest, until),
        "halflife_years": record.halflife_years,
        "trend": trend,
        "override_rate": people.overrides.rate,
        "regime": regime,
    }
    designed, simple = (designed_score(cells, context, formula_version=one, **common) for one in _VERSIONS)
    weight = sums.weight + sums.outside_weight
    return AgentScore(
        record=record,
        confidence="high" if record.n >= HIGH_CONFIDENCE else "medium" if record.n >= MEDIUM_CONFIDENCE else "low",
        posterior=body,
        weight=weight,
        scope_weight=sums.weight,
        scope_n=float(record.n) if context is None else matching(cells, context, SCOPE_MATCHES).observations,
        designed=designed,
        simple=simple,
        wilson=None if designed.base_accuracy is None else wilson(designed.base_accuracy, record.n),
        decayed_accuracy=(sums.successes + sums.outside_successes) / weight if weight > 0.0 else None,
        recent_accuracy=last,
        trend=trend,
        rank=rank,
        calibration=_calibration(bins),
        people=people,
        contexts=by_dimension(cells),
        regime=regime if context is None else context.regime,
        flags=tuple(_flags(trend, rank, people.overrides)),
    )


def _flags(trend: LinearTrend, rank: RankTrend, overrides: OverrideFigures) -> Iterator[str]:
    if overrides.flag:
        yield "override_flag"
    if rank.direction is not None:
        yield f"trend_{rank.direction.value}"
    if trend.strong:
        yield "trend_review"
    if overrides.reviews:
        yield "override_review"


_VERSIONS: Final = (FormulaVersion.COMPREHENSIVE, FormulaVersion.SIMPLE)


def _grouped(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["n"]].append(row)
    return found


def _calibration(rows: Sequence[Row]) -> Calibration:
    bins = [
        CalibrationBin(row["bin"], row["claims"], row["stated"], row["happened"])
        for row in rows
        if row["bin"] is not None
    ]
    return calibration(bins, next((row["observations"] for row in rows if row["bin"] is None), 0))


async def claims_behind(
    database: Database,
    score: AgentScore,
    at: AsOf,
    until: datetime,
    *,
    context: ClaimContext | None,
    limit: int,
    deadline: Deadline,
) -> tuple[list[BehindScore], int]:
    """
    Return the settled claims that a score rests on, the newest first, and how many there are.

    Args:
        until: the latest moment that counted for *score*, on the clock of *at*.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be read in time; retryable.
    """
    record = score.record
    given = {"agent": record.agent, "domain": record.domain, "clock": at.clock.value, "until": until, "limit": limit}
    rows = await database.named("claims_behind_score", given, deadline=deadline)
    claims = []
    for row in rows:
        of = ClaimContext(*(row[name] for name in DIMENSIONS))
        claims.append(
            BehindScore(
                row["finding_id"], row["outcome_id"], row["subject_id"], row["metric"], row["target_at"],
                row["predicted_at"], row["stated"], row["actual"], row["brier"], row["y"] == 1,
                {name: value for name, value in of._asdict().items() if value is not None},
                context is None or matches(of, context) >= SCOPE_MATCHES,
                decay(years_between(row["target_at"], until), record.halflife_years) / row["rows"],
                _corrected(row, of, score.people.corrections),
            )
        )  # fmt: skip
    return claims, rows[0]["total"] if rows else 0


def _corrected(row: Row, of: ClaimContext, corrections: Sequence[Correction]) -> CorrectedValue | None:
    """Return what the closest correction that holds for a claim makes of its value."""
    holding = [
        one
        for one in corrections
        if of.metric_type == "value"
        and one.metric == row["metric"]
        and one.sector in {None, of.sector}
        and one.regime in {None, of.regime}
    ]
    if not holding:
        return None
    one = max(holding, key=lambda one: (one.sector is not None, one.regime is not None, one.id))
    return CorrectedValue(corrected(row["stated"], one.kind, one.bias), one.id, one.kind, one.bias)
