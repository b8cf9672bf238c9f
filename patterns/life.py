"""
Patterns: proposed by anybody, opened as candidates, tested by pipelines, decided on by people.

A pattern is one lifecycle row, and its status a governed group of its record; both change in one transaction with the
epoch that ends cached answers. A proposal is a notice in the journal, which the graph does not hold, so that no other
agent sees it; it makes a due row, and a pipeline opens the candidate. A crash leaves whole batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from imem.jobs.due import DueRow, DueRule
from imem.jobs.lifecycle import DueBatches, Effects, LifecycleRow, LifecycleRuntime, move, request_transition
from imem.jobs.pipeline import Report
from imem.journal.actors import Action, Actor
from imem.journal.clock import months_after
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, TransitionRefused
from imem.journal.events.entry import JournalEntry, notice_entry
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import json, rows
from imem.journal.settings import Role
from imem.kg.kinds.enums import PatternStatus
from imem.kg.kinds.patterns import Pattern
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import Line, groups_of, record_of
from imem.patterns.definition import PatternDefinition, Period, definition_of
from imem.patterns.evidence.watching import QUARTER, WINDOW, Counts, probation_length, required_occurrences
from imem.patterns.shadows import ShadowRunner
from imem.patterns.states import PATTERN_STATES, REJECTED, PatternFacts, quarantined
from imem.review.tasks import ReviewRuntime

ACTOR: Final = Actor("patterns", Role.LEARNING_ENGINE)
"""The actor that records patterns and what becomes of them."""

WRITER: Final = "patterns"
"""The subsystem that owns the governed groups written here."""

KIND: Final = "pattern"
"""Kind of the lifecycle rows."""

QUEUE: Final = "patterns"
"""The queue of its due rows: proposals."""

PROPOSED: Final = "notice.PATTERN_PROPOSED"
"""Kind of the event of a proposal."""


COOLDOWN_MONTHS: Final = 6
"""So long a trigger does not bring back a pattern that a person sent back."""

NOTICES: Final = (timedelta(days=30), timedelta(days=7))
"""How long before the end of a probation people are told."""


class GateMode(StrEnum):
    """The gates that a pattern must pass."""

    BOTH = "both"
    """Those of the design, and the sound tests."""
    AS_DESIGNED = "as_designed"


class PatternsRuntime(ReviewRuntime, Protocol):
    """
    A runtime that tests patterns.

    Attributes:
        pattern_gate_mode: which gates they must pass.
        shadow_runner: makes the forecasts with a pattern; None: no blind test goes on.
        shadow_runs_per_month: shadow analyses of 30 days at most, of all patterns.
    """

    pattern_gate_mode: GateMode
    shadow_runner: ShadowRunner | None
    shadow_runs_per_month: int


CANDIDATES: Final[Mapping[str, Any]] = {"states": [PatternStatus.CANDIDATE.value], "stage": None}
"""Parameters that choose candidates."""


class Stage(StrEnum):
    """
    The event that a candidate waits for.

    The row keeps until when in ``look_at`` and not in ``due_at``, so that a family is judged together.
    """

    HOLDOUT = "holdout"
    ISOLATION = "isolation"
    """The hold-out is passed; the blind test begins once agents are seen to know nothing of it."""
    BLIND = "blind"


def staged(data: Mapping[str, Any], stage: Stage, look_at: datetime, **more: Any) -> dict[str, Any]:
    """Return what a candidate keeps, with what it waits for next, and until when."""
    return {**data, **more, "stage": stage.value, "look_at": look_at.isoformat()}


async def keep(conn: Connection, row: LifecycleRow, data: Mapping[str, Any], due_at: datetime | None = None) -> None:
    """Replace what is kept of a pattern; nothing if it was changed meanwhile."""
    await rows(conn, "pattern_keep", {"key": row.key, "version": row.version, "data": json(data), "due_at": due_at})


def proposal(
    definition: PatternDefinition,
    by: str,
    *,
    run: str | None = None,
    search_space_size: int | None = None,
    since: datetime | None = None,
) -> JournalEntry:
    """
    Return the event by which *by* proposes a pattern; a repeated proposal is the same event.

    Args:
        run, search_space_size: the mining run that found it, and how many candidates the run looked at.
        since: forecasts made before are not used to test it, since *by* has seen their outcomes; None: all are used.
    """
    payload = {
        "definition": definition.model_dump(mode="json"), "run": run, "search_space_size": search_space_size,
    }  # fmt: skip
    if since is not None:
        payload["since"] = since.isoformat()
    return notice_entry(PROPOSED, f"{definition.key}/{by}", "proposal", payload)


def run_of(metric: str, reference: str, period: Period, until: datetime) -> str:
    """Return the name of a mining run: what it looked at, and until when."""
    return f"{metric} by {reference}, {period.value}, until {until.isoformat()}"[:200]


# Opening


async def _open_due(
    _runtime: LifecycleRuntime, conn: Connection, due: Sequence[DueRow], now: datetime
) -> tuple[Effects, dict[str, int]]:
    effects, opened = Effects(), 0
    for found in await rows(conn, "patterns_proposed", {"keys": sorted({one.key for one in due}), "kind": PROPOSED}):
        more = await _open(conn, found, now)
        effects += more or Effects()
        opened += more is not None
    return effects, {"proposals": len(due), "opened": opened}


OPENING: Final[DueBatches[LifecycleRuntime]] = DueBatches(
    queue=QUEUE, kinds=("PatternProposal",), lock="patterns_lock", step=_open_due, size=100
)

DUE: Final = DueRule(QUEUE, "PatternProposal", PROPOSED, "$key")


async def open_patterns(runtime: LifecycleRuntime, *, until: Deadline) -> Report:
    """Open the candidates that are proposed; see :meth:`~imem.jobs.lifecycle.DueBatches.run`."""
    return await OPENING.run(runtime, until=until)


async def _open(conn: Connection, found: Row, now: datetime) -> Effects | None:
    """Open a candidate, unless the same condition and claim are known; after a rejection, on later data alone."""
    stated = found["payload"]
    definition = definition_of(stated["definition"])
    known = [LifecycleRow.of(row) for row in await rows(conn, "pattern_versions", {"about": definition.key})]
    last = known[-1] if known else None
    if last is not None and PatternStatus(last.state) not in REJECTED:
        return None
    begins = [one.entered_at for one in known]
    if (asked := stated.get("since")) is not None:
        begins.append(datetime.fromisoformat(asked))
    since = max(begins, default=None)
    key = definition.key if last is None else f"{definition.key}/{len(known) + 1}"
    data = {
        "definition": stated["definition"], "run": stated["run"], "search_space_size": stated["search_space_size"],
        "proposed_by": found["actor"], "since": None if since is None else since.isoformat(), "attempt": 1,
        "stage": Stage.HOLDOUT.value, "look_at": now.isoformat(),
    }  # fmt: skip
    PATTERN_STATES.check(None, PatternStatus.CANDIDATE, PatternFacts(role=ACTOR.role), of=f"The pattern {key}")
    [opened] = await rows(conn, "pattern_insert", {"key": key, "about": definition.key, "data": json(data)})
    core = Pattern(pattern_id=key, name=definition.name, category=definition.category)
    values = definition.model_dump(mode="json", exclude={"name", "category", "condition"})
    condition = {"all": [one.model_dump(mode="json") for one in definition.condition]}
    described = Pattern.Definition(
        **values,
        says=definition.words,
        condition=condition,
        search_space_size=stated["search_space_size"],
        run=stated["run"],
    )
    return recorded(record_of(core), grouped(key, definition=described)) + status_of(LifecycleRow.of(opened))


def recorded(*lines: Line) -> Effects:
    """Return what records *lines*."""
    return Effects(facts=[(ACTOR, Action.APPEND_PATTERNS, entry_of(line)) for line in lines])


def grouped(key: str, **groups: Any) -> Line:
    """Return the line of groups of a pattern."""
    return groups_of(Pattern, key, groups, writer=WRITER)


def status_of(row: LifecycleRow) -> Effects:
    """Return what records the status of a pattern; whether it is in quarantine follows from it."""
    status = PatternStatus(row.state)
    approved = row.data.get("approved_at")
    values = Pattern.Status(
        status=status, quarantined=quarantined(status),
        approved_date=None if approved is None else datetime.fromisoformat(approved),
    )  # fmt: skip
    return recorded(grouped(row.key, status=values))


async def enter(
    conn: Connection,
    row: LifecycleRow,
    status: PatternStatus,
    facts: PatternFacts,
    *,
    data: Mapping[str, Any] | None = None,
    due_at: datetime | None = None,
    reason: str | None = None,
) -> tuple[LifecycleRow, Effects]:
    """
    Let a pattern enter a status; return its row, and what records it at the end of the transaction.

    Raises:
        TransitionRefused: the status does not follow from the present one, or not for this role, or not yet.
    """
    said = reason if reason is not None else row.request.reason if row.request else None
    kept = {**(row.data if data is None else data), "reason": said}
    moved = await move(conn, PATTERN_STATES, row, status, facts, due_at=due_at, data=kept, reason=reason)
    return moved, status_of(moved)


# Activation


async def activate(
    conn: Connection,
    row: LifecycleRow,
    facts: PatternFacts,
    now: datetime,
    *,
    data: Mapping[str, Any] | None = None,
    reason: str | None = None,
) -> tuple[LifecycleRow, Effects]:
    """Show a pattern to agents, as :func:`enter`, and watch it from now on."""
    kept = {**(row.data if data is None else data), "window_since": now.isoformat()}
    moved, effects = await enter(conn, row, PatternStatus.ACTIVE, facts, data=kept, due_at=now + WINDOW, reason=reason)
    baseline = Counts(**row.data["baseline"])
    return moved, effects + performance(moved, baseline.rate, baseline.cases, now)


def performance(row: LifecycleRow, rate: float | None, seen: int, now: datetime) -> Effects:
    """Return what records the success rate of a pattern, of so many cases."""
    values = Pattern.Performance(success_rate=rate, occurrence_count=seen, last_performance_check=now)
    return recorded(grouped(row.key, performance=values))


# Probation


async def wait_longer(conn: Connection, row: LifecycleRow, now: datetime) -> None:
    """Have a pattern from the archive wait for the cases of another quarter, as a person asked."""
    restored = {**row.data["restored"], "since": now.isoformat(), "held": False}
    await keep(conn, row, {**row.data, "restored": restored}, months_after(now, QUARTER))


def sent_back(row: LifecycleRow, now: datetime) -> dict[str, Any]:
    """Return what is kept of a pattern from the archive that a person rejects: what brought it back must wait."""
    restored = row.data["restored"]
    until = months_after(now, COOLDOWN_MONTHS).isoformat()
    cooldowns = {**row.data.get("cooldowns", {}), restored["trigger"]: until}
    return {**row.data, "cooldowns": cooldowns, "restored": {**restored, "sent_back": True}}


async def hold(
    conn: Connection,
    row: LifecycleRow,
    facts: PatternFacts,
    now: datetime,
    *,
    data: Mapping[str, Any] | None = None,
    reason: str | None = None,
) -> tuple[LifecycleRow, Effects]:
    """
    Put a pattern on probation, as :func:`enter`; it has to keep up to its success in the tests.

    One that was active returns there if it passes, any other to Gate 6.
    """
    kept = row.data if data is None else data
    baseline, frequency = kept["baseline"], definition_of(kept["definition"]).frequency
    initial = baseline["successes"] / baseline["cases"] if baseline["cases"] else 0.0
    active = row.state == PatternStatus.ACTIVE
    kept = {
        **kept,
        "probation": {
            "since": now.isoformat(), "until": (now + probation_length(frequency)).isoformat(), "extensions": 0,
            "required": required_occurrences(initial, baseline["cases"]), "initial": initial,
            "returns_to": (PatternStatus.ACTIVE if active else PatternStatus.STATISTICALLY_VALIDATED).value,
        },
    }  # fmt: skip
    due_at = next_look(kept, now)
    return await enter(conn, row, PatternStatus.PROBATIONARY, facts, data=kept, due_at=due_at, reason=reason)


def next_look(data: Mapping[str, Any], now: datetime) -> datetime:
    """Return when a pattern on probation is looked at next: a month and a week before its end, and at it."""
    until = datetime.fromisoformat(data["probation"]["until"])
    return next((until - notice for notice in NOTICES if until - notice > now), until)


# What people ask for

BY_PEOPLE: Final = (PatternStatus.REJECTED_HUMAN_OVERRIDE, PatternStatus.DEPRECATED, PatternStatus.PROBATIONARY)
"""Statuses that a person may ask for outside of Gate 6: withdrawn, deprecated, held."""


async def ask_for_status(
    database: Database, pattern_id: str, status: PatternStatus, *, by: Actor, reason: str, deadline: Deadline
) -> None:
    """
    Store a person's request that a pattern enters a status; a pipeline gives it its effect.

    Raises:
        BadInput: there is no such pattern.
        TransitionRefused: the status does not follow from the present one, or not for this role, or it was changed
            meanwhile.
    """
    found = await database.named("pattern_row", {"key": pattern_id}, deadline=deadline)
    if not found:
        raise BadInput("pattern_id", f"there is no pattern {pattern_id!r:.300}.")
    row = LifecycleRow.of(found[0])
    asked = PATTERN_STATES.check(
        PatternStatus(row.state), status, PatternFacts(role=by.role), of=f"The pattern {pattern_id}"
    )
    if asked.after not in BY_PEOPLE:
        raise TransitionRefused(f"{status.value} is decided at Gate 6, or by tests.")
    kept = await request_transition(
        database, KIND, pattern_id, row.version, status, by=by, reason=reason, late=True, deadline=deadline
    )
    if kept is None:
        raise TransitionRefused(f"The pattern {pattern_id} was changed meanwhile.", mend="Look at it, and ask again.")
