"""
Cases: opened for decisions that were off, and admitted to review, a few at a time.

A case is one lifecycle row. A forecast that is measured makes its outcome due, and the pipeline opens a case of the
decision if it is off, or brings the open one up to date. The cases of the highest priority are in review, at most
:data:`IN_REVIEW`; each is a review task. Opening and admission are each one transaction under a lock: a crash leaves
every case as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from imem.alerts.store import NewAlert, Severity
from imem.credibility.forecasts.measures import DeviationClass
from imem.jobs.due import BAD_CONTENT, DueRow, DueRule
from imem.jobs.lifecycle import BATCH_MS, DueBatches, Effects, Lifecycle, LifecycleRow, finish, move, put_off
from imem.jobs.pipeline import Every, Pipeline, Report
from imem.journal.deadline import Deadline
from imem.journal.errors import TransitionRefused
from imem.journal.events.entry import Tier
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import execute, json, rows
from imem.kg.asof import AsOf
from imem.kg.kinds.enums import PostmortemStatus
from imem.kg.kinds.forecasts import TOTAL_RETURN
from imem.kg.kinds.learning import PostMortem
from imem.kg.load_format.lines import record_of
from imem.postmortem.cases.answers import CASE
from imem.postmortem.cases.facts import WRITER, analysed, appended, case_id_of, investigated, stated
from imem.postmortem.cases.model_analyst import REPLY_MS, ModelAnalyst
from imem.postmortem.cases.package import REMIND_AFTER, REVIEW_WITHIN, PostmortemCase
from imem.postmortem.cases.priorities import SYSTEMIC, Impact, PriorityPolicy
from imem.postmortem.cases.records import case_of
from imem.postmortem.cases.states import CASE_STATES, CaseFacts
from imem.review.tasks import ReviewRuntime, open_task

QUEUE: Final = "postmortem"
"""The queue of its due rows: outcomes that were compared with a forecast."""

KIND: Final = "postmortem"
"""Kind of the lifecycle rows."""

IN_REVIEW: Final = 5
"""Cases that are in review at a time; the rest wait (postmortem-and-gates, section 2)."""

MOST_TRIED: Final = 50
"""Cases that one run tries to admit at most; more can only be needed where each was changed meanwhile."""

REMINDER: Final = "POSTMORTEM_REMINDER"
"""Kind of the alert about a review without an answer for a day."""

_S = PostmortemStatus


class PostmortemRuntime(ReviewRuntime, Protocol):
    """A runtime that says what orders the queue, and which model remarks on cases, if any."""

    postmortem_priority: PriorityPolicy
    postmortem_model: ModelAnalyst | None


# Opening


async def open_cases(runtime: PostmortemRuntime, *, until: Deadline) -> Report:
    """
    Open cases for due outcomes, and fill the free places of review; return the number of each.

    Raises:
        PostgresUnavailable: committed batches stay; the rest is still due.
    """
    total = await OPENING.run(runtime, until=until)
    admitted = await _admit(runtime, until)
    return {**total, "admitted": admitted} if admitted else total


async def _open_due(
    runtime: PostmortemRuntime, conn: Connection, due: Sequence[DueRow], _now: datetime
) -> tuple[Effects, dict[str, int]]:
    given = {"outcomes": sorted({one.key for one in due}), "decision_id": None}
    by_decision: dict[str, dict[int, Row]] = {}
    for row in await rows(conn, "forecasts_measured", given):
        by_decision.setdefault(row["decision_id"], {})[row["data"]["days"]] = row
    effects, opened = Effects(), 0
    for decision_id, checkpoints in by_decision.items():
        found = await rows(conn, "case_open_of", {"decision_id": decision_id})
        if found:
            effects += await _update(conn, runtime, LifecycleRow.of(found[0]), checkpoints)
            continue
        more = await _open(conn, runtime, decision_id, checkpoints)
        effects += more or Effects()
        opened += more is not None
    return effects, {"outcomes": len(due), "opened": opened}


OPENING: Final[DueBatches[PostmortemRuntime]] = DueBatches(
    queue=QUEUE, kinds=("Outcome",), lock="cases_lock", step=_open_due
)


async def _open(
    conn: Connection, runtime: PostmortemRuntime, decision_id: str, measured: Mapping[int, Row]
) -> Effects | None:
    """Open a case of a decision for checkpoints that are off and in no case that a person could review; None: none."""
    cases = await rows(conn, "cases_of_decision", {"decision_id": decision_id})
    seen = {days for case in cases for days in case["data"].get("shown", ())}
    checkpoints = _off({days: row for days, row in measured.items() if days not in seen})
    if not checkpoints:
        return None
    key = case_id_of(decision_id, len(cases) + 1)
    data = {"decision_id": decision_id, "attempt": 0, **await _ranked(conn, decision_id, checkpoints)}
    CASE_STATES.check(None, _S.QUEUED, CaseFacts(), of=f"The post-mortem {key}")
    [opened] = await rows(conn, "case_insert", {"key": key, "decision_id": decision_id, "data": json(data)})
    row, worst = LifecycleRow.of(opened), checkpoints[0]
    core = PostMortem(
        id=key, decision_id=decision_id, checkpoint=worst["days"], deviation=float(worst["deviation"]),
        trigger_date=row.opened_at,
    )  # fmt: skip
    state = stated(row, runtime.postmortem_priority)
    return appended(record_of(core, writer=WRITER)) + state + await investigated(conn, row, under=True)


async def _update(
    conn: Connection, runtime: PostmortemRuntime, row: LifecycleRow, measured: Mapping[int, Row]
) -> Effects:
    """Bring an open case up to date: with later checkpoints, and without those that a revision made right."""
    before = {one["days"]: one for one in row.data["checkpoints"]}
    off = {one["days"]: one for one in _off(measured)}
    kept = {days: one for days, one in before.items() if days not in measured} | off
    if kept == before or (not kept and row.state != _S.QUEUED):
        # A person is at it, who sees what was known when the review was opened.
        return Effects()
    return await _keep(conn, runtime, row, kept)


async def _keep(
    conn: Connection, runtime: PostmortemRuntime, row: LifecycleRow, kept: Mapping[int, Mapping[str, Any]]
) -> Effects:
    """Replace the checkpoints of an open case; without any it is withdrawn."""
    if not kept:
        moved = await move(
            conn, CASE_STATES, row, _S.WITHDRAWN, CaseFacts(off=False), reason="The outcome was revised or withdrawn."
        )  # fmt: skip
        return stated(moved, runtime.postmortem_priority) + await investigated(conn, moved, under=False)
    data = {**row.data, **await _ranked(conn, str(row.about), _worst_first(kept.values()))}
    [updated] = await rows(conn, "case_data", {"key": row.key, "data": json(data)})
    return stated(LifecycleRow.of(updated), runtime.postmortem_priority)


_CHECKPOINT: Final = (
    "days", "metric", "predicted", "low", "high", "actual", "deviation", "outcome_id", "subject_id", "target_at"
)  # fmt: skip

UNBOUNDED: Final = "1000000"
"""The deviation of an outcome from a forecast of zero, of a metric without a floor: it divides by zero."""


def _off(measured: Mapping[int, Row]) -> list[dict[str, Any]]:
    """Return the checkpoints that are off, the worst first."""
    found = [
        {name: row["data"][name] for name in _CHECKPOINT if name in row["data"]}
        | {"deviation": row["data"]["deviation"] or UNBOUNDED, "known_at": row["known_at"].isoformat()}
        for row in measured.values()
        if row["data"]["verdict"] == DeviationClass.OFF
    ]
    return _worst_first(found)


def _worst_first(checkpoints: Any) -> list[dict[str, Any]]:
    return sorted(checkpoints, key=lambda one: (-float(one["deviation"]), one["days"]))


async def _ranked(conn: Connection, decision_id: str, checkpoints: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a case keeps of its checkpoints, and by what it is ordered."""
    worst = checkpoints[0]
    [around] = await rows(conn, "case_impact", {"decision_id": decision_id})
    sign = {"long": 1.0, "short": -1.0}.get(around["stance"] or "", 0.0)
    lost = -sign * worst["actual"] if worst["metric"] == TOTAL_RETURN else 0.0
    impact = Impact(
        deviation=float(worst["deviation"]), loss_usd=max(lost, 0.0) * (around["size_usd"] or 0.0),
        portfolio_share=around["portfolio_share"] or 0.0, sector_failures=around["failures"],
    )  # fmt: skip
    return {
        "checkpoints": list(checkpoints), "deviation": float(worst["deviation"]), "impact": impact.score,
        "sector": around["sector"], "systemic": impact.systemic > SYSTEMIC,
    }  # fmt: skip


# Review


async def _admit(runtime: PostmortemRuntime, until: Deadline) -> int:
    """Open the review of as many cases as there are places, those of the highest priority first."""
    admitted = 0
    for _ in range(MOST_TRIED):
        candidate = await _next(runtime)
        if candidate is None or until.passed:
            break
        row, now = LifecycleRow.of({name: candidate[name] for name in candidate if name != "now"}), candidate["now"]
        try:
            # Read before the transaction, which must not wait for other connections.
            attempt = row.data["attempt"] + 1
            at = AsOf(_reviewed_as_of(row, attempt, now))
            case = await case_of(runtime.database, row, attempt, at, deadline=Deadline.after_ms(BATCH_MS))
            if (model := runtime.postmortem_model) is not None:
                remarks = await model.remarks(case, deadline=Deadline.after_ms(REPLY_MS))
                case = case.model_copy(update={"model": remarks})
            admitted += await _admit_one(runtime, row, case)
        except (TransitionRefused, *BAD_CONTENT) as error:
            await put_off(runtime.database, row, error, Deadline.after_ms(BATCH_MS))
    if admitted:
        await runtime.gateway.publish_wakeup(tuple(Tier))
    return admitted


async def _next(runtime: PostmortemRuntime) -> Row | None:
    given = {"places": IN_REVIEW, "by": runtime.postmortem_priority.column}
    found = await runtime.database.named("case_to_admit", given, deadline=Deadline.after_ms(BATCH_MS))
    return found[0] if found else None


async def _admit_one(runtime: PostmortemRuntime, row: LifecycleRow, case: PostmortemCase) -> int:
    """Open the review of a case, or withdraw it; nothing if it was changed since it was read."""
    async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        [clock] = await rows(conn, "cases_lock")
        first = await rows(conn, "case_to_admit", {"places": IN_REVIEW, "by": runtime.postmortem_priority.column})
        if [(one["key"], one["data"]) for one in first] != [(row.key, row.data)]:
            return 0
        given: dict[str, Any] = {"outcomes": [], "decision_id": row.about}
        off = _off({one["data"]["days"]: one for one in await rows(conn, "forecasts_measured", given)})
        current = {one["days"]: one for one in off}
        kept = {one["days"]: current[one["days"]] for one in row.data["checkpoints"] if one["days"] in current}
        if kept == {one["days"]: one for one in row.data["checkpoints"]}:
            effects, opened = await _review(conn, runtime, row, case, clock["now"]), 1
        else:
            # An outcome was withdrawn or revised, which nothing had told the case.
            effects, opened = await _keep(conn, runtime, row, kept), 0
        await finish(conn, effects, runtime.gateway, Deadline.after_ms(BATCH_MS))
    return opened


def _reviewed_as_of(row: LifecycleRow, attempt: int, now: datetime) -> datetime:
    """Return the day of a review: when the newest checkpoint was over and known; of a repeated one the present."""
    if attempt > 1:
        return now
    checkpoints = row.data["checkpoints"]
    return max(datetime.fromisoformat(one[name]) for one in checkpoints for name in ("known_at", "target_at"))


async def _review(
    conn: Connection, runtime: PostmortemRuntime, row: LifecycleRow, case: PostmortemCase, now: datetime
) -> Effects:
    task_id = str(id_of("postmortem task", row.key, case.attempt))
    shown = sorted({*row.data.get("shown", ()), *(one.days for one in case.checkpoints)})
    data = {**row.data, "attempt": case.attempt, "task_id": task_id, "shown": shown}
    moved = await move(
        conn, CASE_STATES, row, _S.IN_REVIEW, CaseFacts(room=True), due_at=now + REMIND_AFTER, data=data
    )  # fmt: skip
    rank, subjects = 0 if case.systemic else 1, [case.subject_id]
    _, effects = await open_task(runtime, conn, CASE, case, task_id=task_id, rank=rank, subject_ids=subjects)
    return effects + analysed(case) + stated(moved, runtime.postmortem_priority)


async def _step(_runtime: PostmortemRuntime, conn: Connection, row: LifecycleRow, now: datetime) -> Effects:
    """Remind the reviewers of a case that nobody has answered for a day."""
    await execute(conn, "case_reminded", {"key": row.key})
    ends_at = row.entered_at + REVIEW_WITHIN
    if row.state != _S.IN_REVIEW or now >= ends_at:
        return Effects()
    reason = f"The review of {row.data['decision_id']} ends at {ends_at:%Y-%m-%d %H:%M} UTC."
    alert = NewAlert(
        alert_id=id_of("postmortem reminder", row.data["task_id"]), kind=REMINDER, severity=Severity.HIGH,
        subject=row.data["checkpoints"][0].get("subject_id"), about=row.matter,
        payload={"task_id": row.data["task_id"], "reason": reason},
    )  # fmt: skip
    return Effects(alerts=[alert])


CASES: Final[Lifecycle[Any]] = Lifecycle(KIND, _step)

OPEN_CASES: Final[Pipeline[PostmortemRuntime]] = Pipeline(
    "postmortem.open_cases",
    lambda runtime, until: open_cases(runtime, until=until),
    Every(15.0),
    budget_ms=45_000,
    without_broker=True,
    # What the pipeline of forecasts records with an outcome.
    due=(DueRule(QUEUE, "Outcome", "record.Outcome", "$key ? (exists($.groups.assessment))"),),
)
