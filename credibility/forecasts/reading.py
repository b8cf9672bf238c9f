"""How the forecasts of decisions turned out, as of any moment; from the journal alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from imem.credibility.forecasts.measures import POLICY, DeviationClass, DeviationPolicy
from imem.credibility.forecasts.states import ForecastFacts, ForecastState
from imem.credibility.forecasts.tracking import KIND, TrackedForecast, tracked
from imem.jobs.lifecycle import LifecycleRow
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf, dated
from imem.kg.kinds.enums import Stance
from imem.kg.kinds.fields import shown
from imem.kg.kinds.work import Decision

LISTED = 200
"""Forecasts of one list of a report at most."""


class DecisionForecast(BaseModel):
    """
    The forecast of a decision for one checkpoint, and its outcome.

    Attributes:
        decision_id, subject_id: of the decision.
        metric, days: what was forecast, and for how many days after the decision.
        predicted, low, high: the forecast, in the unit of the metric, and its interval if it has one.
        target_at: when the checkpoint is over: the close of the last session at or before the day.
        state: ``scheduled``, ``awaiting_data`` or ``measured``.
        outcome_id, vintage, actual: the outcome that counts.
        deviation: abs(actual - predicted) / max(abs(predicted), floor of the metric); None without an outcome, or where
            that divides by zero.
        accuracy: 1 inside the tolerance of the metric, else 0.
        verdict: what the deviation means.
        volatility: standard deviation of the metric over the time, which says how much is noise; None if unknown.
        counterfactual: whether the position had been left before the checkpoint: nobody gained or lost by it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    decision_id: str
    subject_id: str
    metric: str
    days: int
    predicted: float
    low: float | None = None
    high: float | None = None
    target_at: datetime
    state: ForecastState
    outcome_id: str | None = None
    vintage: int | None = None
    actual: float | None = None
    deviation: float | None = None
    accuracy: float | None = None
    verdict: DeviationClass | None = None
    volatility: float | None = None
    counterfactual: bool = False


class ForecastReport(BaseModel):
    """
    How the forecasts of all decisions stand now.

    Attributes:
        scheduled, awaiting_data, measured: checkpoints in each state.
        unmeasurable: decisions without a forecast, which nothing can be compared with.
        waiting: checkpoints without an outcome, the oldest first; at most :data:`LISTED`.
        off: measured ones that are off, the newest checkpoint first; at most :data:`LISTED`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheduled: int = 0
    awaiting_data: int = 0
    measured: int = 0
    unmeasurable: int = 0
    waiting: tuple[DecisionForecast, ...] = ()
    off: tuple[DecisionForecast, ...] = ()


def _forecast_of(one: TrackedForecast, now: datetime) -> DecisionForecast:
    facts = ForecastFacts(late=now >= one.target_at, outcome=one.measured is not None)
    values = {**one.stored(), "target_at": one.target_at}
    return DecisionForecast(decision_id=one.decision_id, state=facts.state, **values)


def _forecast_of_row(row: Row) -> DecisionForecast:
    stored = LifecycleRow.of({name: row[name] for name in row if name != "now"})
    return DecisionForecast(decision_id=str(stored.about), state=ForecastState(stored.state), **stored.data)


async def forecasts_at(database: Database, decision_id: str, at: AsOf, *, deadline: Deadline) -> list[DecisionForecast]:
    """
    Return the forecasts of a decision beside the outcomes that were known at *at*.

    Raises:
        BadInput: there was no such decision then.
    """
    found = await _with_decisions(database, [decision_id], at, POLICY, deadline)
    if decision_id not in found:
        raise BadInput("decision_id", f"no Decision {shown(decision_id)} is recorded.")
    decision, forecasts = found[decision_id]
    left = await exited_at(database, decision, at, deadline=deadline) if forecasts else None
    return [one.model_copy(update={"counterfactual": left is not None and left < one.target_at}) for one in forecasts]


async def exited_at(database: Database, decision: Decision, at: AsOf, *, deadline: Deadline) -> datetime | None:
    """
    Return when the position of *decision* was left, as far as was known at *at*; None if it was not, or there was none.

    Its agents, or one of them, leave a long or short position by a later decision about the subject with another stance
    than that, ``hold`` apart.
    """
    if decision.stance not in _POSITIONS:
        return None
    asked = {"subject_id": decision.subject_id, "decided_at": decision.decided_at, "decision_id": decision.id}
    asked["agents"] = list(decision.agents_involved)
    keys = [row["key"] for row in await database.named("decisions_after", {**asked, **at.limits}, deadline=deadline)]
    found = await dated(database, [("Decision", key) for key in keys], at, deadline=deadline)
    later = sorted((Decision.model_validate({**one.core}) for one in found.records.values()), key=_decided)
    own = set(decision.agents_involved)
    return next(
        (
            one.decided_at
            for one in later
            if one.stance is not None and one.stance not in {decision.stance, Stance.HOLD}
            if own.intersection(one.agents_involved) and one.decided_at > decision.decided_at
        ),
        None,
    )


_POSITIONS = frozenset({Stance.LONG, Stance.SHORT})


def _decided(decision: Decision) -> tuple[datetime, str]:
    return decision.decided_at, decision.id


async def forecasts_of(
    database: Database,
    decisions: Sequence[str],
    at: AsOf,
    policy: DeviationPolicy = POLICY,
    *,
    deadline: Deadline,
) -> dict[str, list[DecisionForecast]]:
    """Return the forecasts of those of *decisions* that were known at *at*, beside the outcomes that were."""
    found = await _with_decisions(database, decisions, at, policy, deadline)
    return {key: forecasts for key, (_, forecasts) in found.items()}


async def _with_decisions(
    database: Database, decisions: Sequence[str], at: AsOf, policy: DeviationPolicy, deadline: Deadline
) -> dict[str, tuple[Decision, list[DecisionForecast]]]:
    read = await dated(database, [("Decision", key) for key in decisions], at, deadline=deadline)
    named = await database.named("outcomes_naming", {"decisions": list(decisions), **at.limits}, deadline=deadline)
    known = await dated(database, [("Outcome", row["key"]) for row in named], at, deadline=deadline)
    outcomes: dict[str, dict[tuple[int, str], Row]] = {}
    for (_, key), one in sorted(known.records.items(), key=lambda item: (-item[1].core["vintage"], item[0])):
        core = one.core
        if core.get("checkpoint") is not None and not core.get("withdrawn"):
            row = {
                "outcome_id": key, "vintage": core["vintage"], "actual": core["actual"],
                "volatility": core.get("volatility"),
            }  # fmt: skip
            outcomes.setdefault(core["decision_id"], {}).setdefault((core["checkpoint"], core["metric"]), row)
    both = {}
    for (_, key), found in read.records.items():
        decision = Decision.model_validate({**found.core})
        forecasts = tracked(decision, found.known_at, outcomes.get(key, {}), policy)
        both[key] = decision, [_forecast_of(one, at.at) for one in forecasts]
    return both


async def forecast_report(database: Database, *, deadline: Deadline) -> ForecastReport:
    """Return how the forecasts of all decisions stand."""
    counts = await database.named("forecast_counts", {"kind": KIND}, deadline=deadline)
    listed = {
        name: tuple(
            _forecast_of_row(row)
            for row in await database.named(
                "forecasts_listed",
                {"state": state.value, "verdict": verdict, "newest": newest, "limit": LISTED},
                deadline=deadline,
            )
        )
        for name, state, verdict, newest in (
            ("waiting", ForecastState.AWAITING_DATA, None, False),
            ("off", ForecastState.MEASURED, DeviationClass.OFF.value, True),
        )
    }
    return ForecastReport(**{row["state"]: row["count"] for row in counts}, **listed)
