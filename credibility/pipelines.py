"""
Pipelines of credibility: settlement, contradictions, forecasts, the market's regime, published scores, a review.

The triggers of credibility-and-contradictions, section 6: whatever changes a score makes it due, and it is published
within a minute, critical or not; the run of the day publishes all of them anew under its regime, with the trend that is
wanted weekly; the comparison with a full recomputation that is wanted monthly is made each night.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final, Protocol

from imem.credibility.disputes.arbitration import ACTOR as DISPUTES
from imem.credibility.disputes.arbitration import QUEUE as DISPUTED
from imem.credibility.disputes.detection import find_contradictions
from imem.credibility.forecasts.tracking import ACTOR as FORECASTER
from imem.credibility.forecasts.tracking import QUEUE as FORECASTS_DUE
from imem.credibility.forecasts.tracking import track_forecasts
from imem.credibility.prices.measuring import ACTOR as MEASURER
from imem.credibility.prices.measuring import NAME as MEASURING
from imem.credibility.prices.measuring import measure_returns
from imem.credibility.prices.providers import PriceProvider
from imem.credibility.publication import ACTOR as PUBLISHER
from imem.credibility.publication import publish_scores
from imem.credibility.reconcile import reconcile
from imem.credibility.regimes.providers import IndicatorProvider
from imem.credibility.regimes.runs import ACTOR as DETECTOR
from imem.credibility.regimes.runs import QUEUE as REGIMES
from imem.credibility.regimes.runs import SCORES, advance
from imem.credibility.review import ACTOR as REVIEWER
from imem.credibility.review import review
from imem.credibility.scores.people import KINDS as SAID
from imem.credibility.settling import ACTOR as SETTLER
from imem.credibility.settling import QUEUE, settle_due
from imem.jobs.due import DueRule
from imem.jobs.pipeline import Daily, Every, Pipeline, Quarterly, Report
from imem.journal.deadline import Deadline
from imem.review.tasks import ReviewRuntime

ACTORS: Final = (SETTLER, PUBLISHER, DETECTOR, REVIEWER, DISPUTES, FORECASTER, MEASURER)
"""The actors that these pipelines record as."""

KEPT: Final = 100
"""Reports that are kept of detection, publication and reconciliation: of about three months."""

REVIEWS: Final = 8
"""Reports that are kept of the review: of two years."""


class CredibilityRuntime(ReviewRuntime, Protocol):
    """
    The stores and settings that the pipelines of credibility need.

    Attributes:
        halflife_years: of agents whose record names none.
        contradiction_guard: whether values that look mistyped go to a person.
        indicators: provides those of the market's regime; None without any.
        prices: provides those that forecasts are compared with; None without any.
    """

    halflife_years: float
    contradiction_guard: bool
    indicators: IndicatorProvider | None
    prices: PriceProvider | None


async def _settle(runtime: CredibilityRuntime, until: Deadline) -> Report:
    halflife_years = runtime.halflife_years
    return asdict(await settle_due(runtime.database, runtime.gateway, halflife_years=halflife_years, until=until))


async def _reconcile(runtime: CredibilityRuntime, _until: Deadline) -> Report:
    """Recompute everything from the journal, correct what differs, and report it."""
    report = await reconcile(runtime.database, runtime.gateway, halflife_years=runtime.halflife_years)
    return {"scores": report.scores, "differing": report.differing}


async def _publish_scores(runtime: CredibilityRuntime, until: Deadline) -> Report:
    halflife_years = runtime.halflife_years
    done = await publish_scores(runtime.database, runtime.gateway, halflife_years=halflife_years, until=until)
    return done.report()


# A run that uses up its budget requests another, so that no task runs longer than the broker's visibility timeout.
SETTLE: Final = Pipeline(
    "credibility.settle",
    _settle,
    Every(15.0),
    budget_ms=60_000,
    # Scores are published without the broker: what changes them has to be settled without it as well.
    without_broker=True,
    due=(
        *(
            DueRule(QUEUE, kind, f"{verb}.{kind}", "$key ? ($metric != null)")
            for kind in ("Outcome", "Finding")
            for verb in ("record", "correct")
        ),
        # An agent that becomes a baseline, or ceases to be one, changes what others are measured against.
        DueRule(QUEUE, "Agent", "record.Agent", "$key ? (exists($.groups.profile))"),
        # The context of a claim follows from its subject and from the regime of the market.
        DueRule(QUEUE, "Company", "record.Company", "$key ? (exists($.groups.profile))"),
        DueRule(QUEUE, "Market", "record.Market", "$key ? (exists($.core.sector))"),
        DueRule(QUEUE, "Market", "correct.Market", "$key"),
        *(DueRule(QUEUE, "RegimeReading", f"{verb}.RegimeReading", "$key") for verb in ("record", "correct")),
        # The verdict on a decision follows from its stance and from what it cites.
        DueRule(QUEUE, "Decision", "link.CITES", '$.from_key ? ($.from_label == "Decision")'),
        *(DueRule(QUEUE, "Decision", f"{verb}.Decision", "$key ? (exists($.core))") for verb in ("record", "correct")),
    ),
)

RECONCILE: Final = Pipeline(
    "credibility.reconcile",
    _reconcile,
    Daily(3, 17),
    budget_ms=None,
    retry_max_s=600,
    without_broker=True,
    reports=KEPT,
)

REVIEW: Final[Pipeline[CredibilityRuntime]] = Pipeline(
    "credibility.review",
    lambda runtime, _until: review(runtime.database, runtime.gateway, halflife_years=runtime.halflife_years),
    Quarterly(4, 37),
    budget_ms=None,
    retry_max_s=600,
    without_broker=True,
    reports=REVIEWS,
)

# The first of a day after midnight opens its run. What the pipeline detects itself names a run, and makes nothing due.
DETECT_REGIME: Final[Pipeline[CredibilityRuntime]] = Pipeline(
    "credibility.detect_regime",
    lambda runtime, until: advance(runtime.database, runtime.gateway, runtime.indicators, until=until),
    Every(15.0),
    budget_ms=45_000,
    without_broker=True,
    reports=KEPT,
    due=(
        DueRule(REGIMES, "RegimeReading", "record.RegimeReading", "$key ? (!exists($.core.run_id))"),
        DueRule(REGIMES, "RegimeReading", "correct.RegimeReading", "$key"),
    ),
)

PUBLISH_SCORES: Final = Pipeline(
    "credibility.publish_scores",
    _publish_scores,
    Every(15.0),
    budget_ms=45_000,
    without_broker=True,
    reports=KEPT,
    # The end of a pin and what was decided about a bias name neither agent nor domain: the record does.
    due=tuple(DueRule(SCORES, kind, f"{verb}.{kind}", "$key") for kind in SAID for verb in ("record", "correct")),
)

# Outcomes of checkpoints name the decision that they review.
TRACK_FORECASTS: Final[Pipeline[CredibilityRuntime]] = Pipeline(
    "credibility.track_forecasts",
    lambda runtime, until: track_forecasts(runtime, until=until),
    Every(15.0),
    budget_ms=45_000,
    without_broker=True,
    due=tuple(
        DueRule(FORECASTS_DUE, "Decision", f"{verb}.{kind}", path)
        for kind, path in (
            ("Decision", "$key ? (exists($.core.forecast))"),
            ("Outcome", "$.core.decision_id ? (exists($.core.checkpoint))"),
        )
        for verb in ("record", "correct")
    ),
)

# It asks each minute whether prices are to be read; they are once an hour, and when a checkpoint is over.
MEASURE_RETURNS: Final[Pipeline[CredibilityRuntime]] = Pipeline(
    MEASURING,
    lambda runtime, until: measure_returns(runtime, runtime.prices, until=until),
    Every(60.0),
    budget_ms=120_000,
    without_broker=True,
    reports=KEPT,
)

# A contradiction that the pipeline finds itself is recorded with its resolution, and makes nothing due.
FIND_CONTRADICTIONS: Final[Pipeline[CredibilityRuntime]] = Pipeline(
    "credibility.find_contradictions",
    lambda runtime, until: find_contradictions(runtime, guard=runtime.contradiction_guard, until=until),
    Every(15.0),
    budget_ms=45_000,
    without_broker=True,
    reports=KEPT,
    due=(
        DueRule(DISPUTED, "DataPoint", "record.DataPoint", "$key"),
        DueRule(DISPUTED, "DataPoint", "correct.DataPoint", "$key"),
        DueRule(
            DISPUTED,
            "DataContradiction",
            "record.DataContradiction",
            "$key ? (exists($.core) && !exists($.groups.resolution))",
        ),
        DueRule(DISPUTED, "DataContradiction", "correct.DataContradiction", "$key"),
    ),
)
