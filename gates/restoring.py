"""
Patterns that come back from the archive, until a person sends one back.

A pattern that three people looked up within thirty days, or that was tested in the regime to which the policy rate has
moved, returns to a status in which nobody but people sees it. People have 48 hours to object; silence keeps it. New
cases and Gate 6 decide whether it becomes active.

The archive is compared with its manifest first; then status and task change in one transaction. A crash leaves the
pattern deprecated, and the next run finds it again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from pydantic import BaseModel, ConfigDict

from imem.archives.building import ArchivingRuntime, check_archive
from imem.archives.marker import check_store
from imem.archives.scoring import LEAST_CONFIDENCE, TOLERANCE, qualifies, regime_score
from imem.credibility.regimes.readings import market_regime
from imem.jobs.lifecycle import BATCH_MS, Effects, LifecycleRow, finish
from imem.jobs.pipeline import Daily, Pipeline, Report
from imem.journal.clock import months_after, years_after
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Tier
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.journal.settings import Role
from imem.kg.asof import AsOf
from imem.kg.kinds.enums import PatternStatus
from imem.patterns.definition import definition_of
from imem.patterns.evidence.watching import QUARTER
from imem.patterns.life import ACTOR, enter, sent_back
from imem.patterns.states import PatternFacts
from imem.review.kinds import Answer, Fields, Task, TaskAction, TaskKind
from imem.review.states import TaskState
from imem.review.tasks import ReviewRuntime, open_task

PEOPLE: Final = 3
"""People who retrieved its archive within thirty days bring a pattern back."""

MOVE: Final = 2.0
"""Points by which the policy rate must move, and by more, in :data:`MOVE_MONTHS` months."""

MOVE_MONTHS: Final = 6

READINGS: Final = 1_000
"""Readings of the regime that are looked at, at most; they are daily."""

WINDOW: Final = timedelta(hours=48)
"""How long people have to object."""

OLD_YEARS: Final = 7
"""Evidence that is older is called old."""

AT_ONCE: Final = 10
"""So many patterns of one trigger are told at once, fewer with the daily digest."""

KEEP, SEND_BACK = "approve", "reject"


class RestoringRuntime(ArchivingRuntime, ReviewRuntime, Protocol):
    """A runtime with archives and review tasks."""


class RestoreTrigger(StrEnum):
    """An event that restores patterns."""

    ACCESS = "access"
    POLICY_RATE = "policy_rate"


class SendBackReason(StrEnum):
    """Why a pattern is sent back."""

    FALSE_REGIME_SIGNAL = "false_regime_signal"
    PATTERN_OBSOLETE = "pattern_obsolete"
    OTHER = "other"


class SentBack(Fields):
    """Why a pattern is sent back."""

    why: SendBackReason


class RestoredPattern(BaseModel):
    """
    The view of a restored pattern.

    Attributes:
        pattern_id, name, says: of the pattern.
        trigger, measured: what brought it back, and what was measured.
        restored_at: when.
        together: patterns that the trigger brought back in this run.
        confidence, accuracy: as the index has them, 0 to 1; None where not known.
        deprecated_at: since when it was deprecated.
        last_accessed: when its archive was retrieved last; None: never.
        tested_at: when its last test ended; *old_evidence*: more than seven years ago.
        gaps: evidence that its archive lacks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pattern_id: str
    name: str
    says: str
    trigger: RestoreTrigger
    measured: str
    restored_at: datetime
    together: int
    confidence: float | None
    accuracy: float | None
    deprecated_at: datetime
    last_accessed: datetime | None
    tested_at: datetime
    old_evidence: bool
    gaps: tuple[str, ...]


async def _apply(
    _runtime: Any, conn: Connection, task: Task[RestoredPattern], answer: Answer | None, now: datetime
) -> Effects:
    """Send a pattern back if a person says so; nothing if it has another status by now."""
    if answer is None or answer.action == KEEP:
        return Effects()
    row = LifecycleRow.of((await rows(conn, "pattern_rows", {"keys": [task.package.pattern_id]}))[0])
    if row.state != PatternStatus.ACTIVE_FROM_ARCHIVE or row.data["restored"]["task"] != task.task_id:
        return Effects()
    facts, data = PatternFacts(role=Role.HUMAN_ADMIN), sent_back(row, now)
    return (await enter(conn, row, PatternStatus.DEPRECATED, facts, data=data, reason=answer.rationale))[1]


RESTORATION: Final[TaskKind[Any, RestoredPattern]] = TaskKind(
    name="restoration",
    package=RestoredPattern,
    actions=TaskKind.of(
        TaskAction(name=KEEP, does="It stays, on probation: new cases and Gate 6 decide.", reviews=TaskState.CONFIRMED),
        TaskAction(
            name=SEND_BACK, does="It is deprecated again, and the same trigger leaves it alone for six months.",
            fields=SentBack, rationale=True,
        ),
    ),
    headline=lambda seen: f"{seen.name} is back from the archive: {seen.measured}",
    default=lambda _: "It stays, on probation: agents do not see it, and no decision may cite it.",
    apply=_apply,
    due=WINDOW,
    queued=False,
    likeness=lambda seen: f"{seen.trigger.value} {seen.restored_at.isoformat()}",
)  # fmt: skip


# Triggers


_Found = list[tuple[Row, str]]
"""Rows of the index whose patterns a trigger brings back, and what it measured of each."""


async def _asked_for(database: Database, _now: datetime, until: Deadline) -> _Found:
    given = {"trigger": RestoreTrigger.ACCESS.value, "least": PEOPLE, "tags": None, "before": None, "confidence": None}
    found = await database.named("restorable", given, deadline=until)
    return [(row, f"{row['people']} people retrieved its archive within 30 days.") for row in found]


async def _rate_moved(database: Database, now: datetime, until: Deadline) -> _Found:
    """Return patterns of the regime to which the policy rate moved, deprecated before it did."""
    market = await market_regime(database, AsOf(now), limit=READINGS, deadline=until)
    since = months_after(now, -MOVE_MONTHS)
    rates = [
        (one.reading.fed_funds, one.reading.observed_at) for one in market.readings
        if one.reading.fed_funds is not None and one.reading.observed_at >= since
    ]  # fmt: skip
    moves = [(rates[0][0] - rate, at) for rate, at in rates]
    move, began = max(moves, key=lambda one: abs(one[0]), default=(0.0, now))
    if abs(move) <= MOVE + TOLERANCE:
        return []
    tags = [market.regime.value]
    given = {
        "trigger": RestoreTrigger.POLICY_RATE.value, "least": 0, "tags": tags, "before": began,
        "confidence": LEAST_CONFIDENCE - TOLERANCE,
    }  # fmt: skip
    found = await database.named("restorable", given, deadline=until)
    said = f"The policy rate moved by {move:+.2f} points since {began:%Y-%m-%d}, and the regime is {market.regime}."
    chosen = []
    for row in found:
        score = regime_score(
            triggers=tags, tags=row["regime_tags"], confidence=row["confidence"], accuracy=row["accuracy"] or 0.0,
            deprecated_at=row["ended_at"], now=now,
        )  # fmt: skip
        if qualifies(row["confidence"], score):
            chosen.append((row, f"{said} Score {score:.2f}."))
    return chosen


_TRIGGERS: Final = {RestoreTrigger.ACCESS: _asked_for, RestoreTrigger.POLICY_RATE: _rate_moved}


# Restoring


async def restore(runtime: RestoringRuntime, *, until: Deadline) -> Report:
    """
    Bring back what a trigger asks for.

    Returns:
        How many patterns are *restored*, and how many archives are *damaged*: these patterns stay as they are, with an
        alert.

    Raises:
        PostgresUnavailable, ObjectsUnavailable, BudgetExceeded: what was restored before stays; retryable.
    """
    now = (await runtime.database.named("database_now", deadline=until))[0]["now"]
    report = {"restored": 0, "damaged": 0}
    for trigger, find in _TRIGGERS.items():
        found = await find(runtime.database, now, until)
        if found:
            await check_store(runtime.database, runtime.objects, deadline=until)
        whole = []
        for row, measured in found:
            gaps = await _whole(runtime, row, until)
            if gaps is None:
                report["damaged"] += 1
            else:
                whole.append((row, measured, gaps))
        for row, measured, gaps in whole:
            seen = {"trigger": trigger, "measured": measured, "gaps": gaps, "together": len(whole)}
            report["restored"] += await _restore(runtime, row, seen, now, until)
    return report


async def _whole(runtime: RestoringRuntime, row: Row, until: Deadline) -> tuple[str, ...] | None:
    """Return the evidence that an archive lacks; None if it is not what its manifest says."""
    key, tier = row["pattern_id"], row["archive_tier"]
    await check_archive(runtime.database, runtime.objects, key, tier, deadline=until)
    found = await runtime.database.named("archive_rows", {"patterns": [key]}, deadline=until)
    checked = next((one for one in found if one["tier"] == tier), None)
    return tuple(checked["gaps"]) if checked is not None and checked["state"] == "complete" else None


async def _restore(runtime: RestoringRuntime, found: Row, seen: dict[str, Any], now: datetime, until: Deadline) -> bool:
    """Restore one pattern and open its task; nothing if its status was changed meanwhile."""
    async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        row = LifecycleRow.of((await rows(conn, "pattern_rows", {"keys": [found["pattern_id"]]}))[0])
        if row.state != PatternStatus.DEPRECATED or row.request is not None:
            return False
        definition, tested = definition_of(row.data["definition"]), datetime.fromisoformat(row.data["control"]["at"])
        package = RestoredPattern(
            pattern_id=row.key, name=definition.name, says=definition.words, restored_at=now,
            deprecated_at=found["ended_at"], tested_at=tested,
            old_evidence=years_after(tested, OLD_YEARS) < now,
            **{name: found[name] for name in ("confidence", "accuracy", "last_accessed")}, **seen,
        )  # fmt: skip
        task_id = f"restoration-{row.key}-{row.version}"[:200]
        restored: dict[str, Any] = {
            "trigger": package.trigger.value, "since": now.isoformat(), "quarters": [], "held": False, "task": task_id,
            "ended_at": package.deprecated_at.isoformat(),
        }  # fmt: skip
        _, effects = await enter(
            conn, row, PatternStatus.ACTIVE_FROM_ARCHIVE, PatternFacts(role=ACTOR.role),
            data={**row.data, "restored": restored}, due_at=months_after(now, QUARTER), reason=package.measured,
        )  # fmt: skip
        rank = 0 if package.together >= AT_ONCE else 1
        _, asked = await open_task(runtime, conn, RESTORATION, package, task_id=task_id, rank=rank)
        await finish(conn, effects + asked, runtime.gateway, until)
    await runtime.gateway.publish_wakeup(tuple(Tier))
    return True


RESTORE: Final[Pipeline[RestoringRuntime]] = Pipeline(
    "gates.restore", lambda runtime, until: restore(runtime, until=until), Daily(3, 20), budget_ms=None, reports=35
)
