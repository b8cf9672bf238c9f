"""
Forecasts of decisions: scheduled with the decision, and measured when an outcome is recorded.

A forecast at a checkpoint is one lifecycle row; what it says follows from the decision and from the outcomes of its
checkpoints alone, so that a step may be repeated. A decision or an outcome that is recorded or corrected makes the
decision due; a batch of decisions is one transaction under a lock: a crash writes all of it or nothing. Without an
outcome a forecast is looked at once a day, and after :data:`ALERT_AFTER` an alert says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from imem.alerts.store import NewAlert, Severity
from imem.credibility.forecasts.measures import POLICY, DeviationPolicy, Measurement, measure
from imem.credibility.forecasts.sessions import checkpoint_at
from imem.credibility.forecasts.states import FORECAST_STATES, ForecastFacts, ForecastState
from imem.jobs.due import DueRow
from imem.jobs.lifecycle import DueBatches, Effects, Lifecycle, LifecycleRow, LifecycleRuntime, move
from imem.jobs.pipeline import Report
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import json, rows
from imem.journal.settings import Role
from imem.kg.kinds.forecasts import Forecast, ForecastPoint
from imem.kg.kinds.metrics import metric_of
from imem.kg.kinds.work import Decision, Outcome
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of

ACTOR: Final = Actor("forecasts", Role.LEARNING_ENGINE)
"""The actor that records how outcomes compare with forecasts."""

QUEUE: Final = "forecasts"
"""The queue of its due rows: decisions, whose forecasts or outcomes changed."""

WRITER: Final = "postmortem"
"""The subsystem that owns the governed groups written here."""

KIND: Final = "forecast"
"""Kind of the lifecycle rows."""

RETRY_AFTER: Final = timedelta(days=1)
"""After how long a forecast without an outcome is looked at again."""

ALERT_AFTER: Final = timedelta(days=7)
"""After how long without an outcome an alert says so."""

MISSING_ALERT: Final = "OUTCOME_MISSING"
"""Kind of the alert about a checkpoint whose outcome is not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedForecast:
    """
    A forecast at a checkpoint, beside its outcome.

    Attributes:
        decision_id, subject_id: of the decision.
        metric: what is forecast.
        point: the checkpoint, and what is expected then.
        target_at: when the checkpoint is over.
        outcome_id, vintage: the outcome that counts; None without one.
        volatility: standard deviation of the metric over the time, as the outcome says it; None if unknown.
        measured: how it compares; None without an outcome.
    """

    decision_id: str
    subject_id: str
    metric: str
    point: ForecastPoint
    target_at: datetime
    outcome_id: str | None = None
    vintage: int | None = None
    volatility: float | None = None
    measured: Measurement | None = None

    @property
    def key(self) -> str:
        """Return the key of its row."""
        return f"{self.decision_id}/{self.point.days}"

    def stored(self) -> dict[str, Any]:
        """Return it as JSON types, for its row."""
        found = self.measured
        values: dict[str, Any] = {
            "subject_id": self.subject_id, "metric": self.metric, **self.point.model_dump(exclude_none=True),
            "target_at": self.target_at.isoformat(),
        }  # fmt: skip
        if found is not None:
            values |= {
                "outcome_id": self.outcome_id, "vintage": self.vintage, "actual": found.actual,
                "deviation": None if found.deviation is None else str(found.deviation),
                "accuracy": found.accuracy, "verdict": found.verdict.value,
            }  # fmt: skip
            if self.volatility is not None:
                values["volatility"] = self.volatility
        return values


def tracked(
    decision: Decision,
    known_at: datetime,
    outcomes: Mapping[tuple[int, str], Row],
    policy: DeviationPolicy = POLICY,
) -> list[TrackedForecast]:
    """
    Return the forecasts of *decision* beside what happened.

    A forecast that became known only when its checkpoint was over is left out: it could be made with hindsight.

    Args:
        known_at: when the decision became known.
        outcomes: (checkpoint, metric) → the outcome that counts, a row of ``outcomes_of_decisions``.
        policy: what counts as a deviation.
    """
    if decision.forecast is None:
        return []
    forecast = Forecast.of(decision.forecast)
    metric = metric_of(forecast.metric)
    found = []
    for point in forecast.points:
        row, target_at = outcomes.get((point.days, forecast.metric)), checkpoint_at(decision.decided_at, point.days)
        if known_at >= target_at:
            continue
        found.append(
            TrackedForecast(
                decision_id=decision.id,
                subject_id=decision.subject_id,
                metric=forecast.metric,
                point=point,
                target_at=target_at,
                outcome_id=None if row is None else row["outcome_id"],
                vintage=None if row is None else row["vintage"],
                volatility=None if row is None else row["volatility"],
                # A metric that is registered no more measures nothing.
                measured=(
                    None
                    if row is None or metric is None
                    else measure(point, metric, row["actual"], row["volatility"], policy)
                ),
            )
        )
    return found


async def _track(
    _runtime: LifecycleRuntime, conn: Connection, due: Sequence[DueRow], now: datetime
) -> tuple[Effects, dict[str, int]]:
    keys = sorted({one.key for one in due})
    known = [LifecycleRow.of(row) for row in await rows(conn, "forecast_rows", {"decisions": keys})]
    changed, effects = await _compare(conn, keys, {row.key: row for row in known}, now, new=True)
    return effects, {"decisions": len(keys), "changed": changed}


TRACKING: Final[DueBatches[LifecycleRuntime]] = DueBatches(
    queue=QUEUE, kinds=("Decision",), lock="forecasts_lock", step=_track
)


async def track_forecasts(runtime: LifecycleRuntime, *, until: Deadline) -> Report:
    """
    Compare the forecasts of due decisions with their outcomes until none is left or *until* has passed.

    Returns:
        Decisions looked at, and forecasts that were scheduled or measured; empty if nothing was due.

    Raises:
        PostgresUnavailable: committed batches stay; the rest is still due.
    """
    return await TRACKING.run(runtime, until=until)


async def _compare(
    conn: Connection, decisions: Sequence[str], known: Mapping[str, LifecycleRow], now: datetime, *, new: bool
) -> tuple[int, Effects]:
    """
    Bring the *known* rows of the forecasts of *decisions* up to date; return how many changed, and the effects.

    Args:
        new: whether forecasts without a row get one.
    """
    given = {"decisions": list(decisions)}
    stated = [
        (Decision.model_validate(row["core"]), row["known_at"])
        for row in await rows(conn, "decisions_with_forecasts", given)
    ]
    outcomes: dict[str, dict[tuple[int, str], Row]] = {}
    for found in await rows(conn, "outcomes_of_decisions", given):
        outcomes.setdefault(found["decision_id"], {})[found["checkpoint"], found["metric"]] = found
    changed, effects = 0, Effects()
    for decision, known_at in stated:
        for one in tracked(decision, known_at, outcomes.get(decision.id, {})):
            row = known.get(one.key)
            if row is None:
                if not new:
                    continue
                row = await _schedule(conn, one)
            more = await _advance(conn, row, one, now)
            changed += more is not None or one.key not in known
            effects += more or Effects()
    return changed, effects


async def _schedule(conn: Connection, one: TrackedForecast) -> LifecycleRow:
    facts = ForecastFacts(late=False, outcome=False)
    FORECAST_STATES.check(None, ForecastState.SCHEDULED, facts, of=f"The forecast {one.key}")
    unmeasured = {name: value for name, value in one.stored().items() if name not in _MEASURED}
    opened = {"key": one.key, "decision_id": one.decision_id, "due_at": one.target_at, "data": json(unmeasured)}
    [row] = await rows(conn, "forecast_schedule", opened)
    return LifecycleRow.of(row)


_MEASURED: Final = frozenset({"outcome_id", "vintage", "actual", "deviation", "accuracy", "verdict", "volatility"})


async def _advance(conn: Connection, row: LifecycleRow, one: TrackedForecast, now: datetime) -> Effects | None:
    """Bring one row up to date; None where it is."""
    facts = ForecastFacts(late=now >= one.target_at, outcome=one.measured is not None)
    before, after = ForecastState(row.state), facts.state
    data = one.stored()
    if before is after and dict(row.data) == data and after is not ForecastState.AWAITING_DATA:
        return None
    due_at = {
        ForecastState.SCHEDULED: one.target_at,
        ForecastState.AWAITING_DATA: now + RETRY_AFTER,
        ForecastState.MEASURED: None,
    }[after]
    if before is after and after is not ForecastState.MEASURED:
        await rows(conn, "forecast_wait", {"key": row.key, "due_at": due_at, "data": json(data)})
    else:
        await move(conn, FORECAST_STATES, row, after, facts, due_at=due_at, data=data, reason=_reason(one))
    if after is ForecastState.MEASURED:
        return Effects(facts=[_assessed(one)], over=[row.matter])
    if after is ForecastState.AWAITING_DATA and now - one.target_at >= ALERT_AFTER:
        return Effects(alerts=[_missing(row, one)])
    return Effects(over=[row.matter] if after is ForecastState.SCHEDULED else [])


def _reason(one: TrackedForecast) -> str | None:
    if one.measured is None:
        return None
    return f"The outcome {one.outcome_id} says {one.measured.actual}, and {one.point.predicted} was forecast."


def _assessed(one: TrackedForecast) -> Any:
    assert one.measured is not None  # noqa: S101 - the caller measured it
    found = one.measured
    values = Outcome.Assessment(
        deviation=None if found.deviation is None else float(found.deviation), accuracy=found.accuracy
    )
    line = groups_of(Outcome, str(one.outcome_id), {"assessment": values}, writer=WRITER)
    return ACTOR, Action.APPEND_POSTMORTEM, entry_of(line)


def _missing(row: LifecycleRow, one: TrackedForecast) -> NewAlert:
    reason = f"The decision {one.decision_id} forecast {one.metric} for {one.target_at:%Y-%m-%d}; no outcome says it."
    return NewAlert(
        alert_id=id_of("outcome missing", one.key, one.target_at.isoformat()), kind=MISSING_ALERT,
        severity=Severity.MEDIUM, subject=one.subject_id, about=row.matter, payload={"reason": reason[:2000]},
    )  # fmt: skip


async def _step(_runtime: LifecycleRuntime, conn: Connection, row: LifecycleRow, now: datetime) -> Effects:
    """Look at a forecast whose checkpoint is over, or that waits for its outcome."""
    # Only this row: two processes that each lock several rows of a decision could deadlock.
    changed, effects = await _compare(conn, [str(row.about)], {row.key: row}, now, new=False)
    if not changed:
        # The decision states it no more, or it was made with hindsight: nothing is to be waited for.
        await rows(conn, "forecast_wait", {"key": row.key, "due_at": None, "data": json(row.data)})
    return effects


FORECASTS: Final[Lifecycle[Any]] = Lifecycle(KIND, _step)
