"""
Patterns after their tests: deployed once a person approved them, watched while they are active, tried on probation.

Each is a step of the lifecycle's pipeline, in one transaction: a crash leaves the pattern as it was. A window is ninety
days; it ends once, and only then is a pattern judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from imem.alerts.store import NewAlert, Severity
from imem.jobs.lifecycle import BATCH_MS, Effects, Lifecycle, LifecycleRow, TransitionRequest, wanted
from imem.jobs.pipeline import Every, Pipeline, Report
from imem.journal.clock import months_after
from imem.journal.deadline import Deadline
from imem.journal.errors import TransitionRefused
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection
from imem.journal.settings import Role
from imem.kg.kinds.enums import PatternStatus
from imem.patterns.cases import cases
from imem.patterns.definition import PatternDefinition, definition_of
from imem.patterns.evidence.splits import Case
from imem.patterns.evidence.watching import (
    CONFIRMATIONS,
    EXTENSION,
    QUARTER,
    WINDOW,
    Counts,
    Decay,
    ProbationEnd,
    confirmed,
    decay,
    probation_end,
)
from imem.patterns.life import (
    ACTOR,
    BY_PEOPLE,
    DUE,
    KIND,
    PatternsRuntime,
    activate,
    enter,
    hold,
    keep,
    next_look,
    open_patterns,
    performance,
)
from imem.patterns.looks import look_at_blind_tests
from imem.patterns.prospective import begin_blind_tests, run_shadows
from imem.patterns.states import PatternFacts
from imem.patterns.testing import test_candidates

DECAY_ALERT: Final = "PATTERN_DECAYED"
"""Kind of the alert about an active pattern whose success fell."""

PROBATION_ALERT: Final = "PROBATION_ENDS"
"""Kind of the alert that a probation ends soon."""

_S = PatternStatus


async def _step(runtime: PatternsRuntime, conn: Connection, row: LifecycleRow, now: datetime) -> Effects:
    if row.request is not None:
        return await _asked(conn, row, row.request, now)
    status = PatternStatus(row.state)
    if status is _S.HUMAN_APPROVED:
        return await _deploy(conn, row, now)
    if status is _S.ACTIVE:
        return await _watch(runtime, conn, row, now)
    if status is _S.PROBATIONARY:
        return await _try(runtime, conn, row, now)
    if status is _S.ACTIVE_FROM_ARCHIVE:
        return await _check_restored(runtime, conn, row)
    await keep(conn, row, row.data)
    return Effects()


LIFE: Final[Lifecycle[Any]] = Lifecycle(KIND, _step)


async def _asked(conn: Connection, row: LifecycleRow, request: TransitionRequest, now: datetime) -> Effects:
    """Do what a person asked for: withdraw a pattern, or hold or deprecate an active one."""
    status = wanted(PatternStatus, request)
    if status not in BY_PEOPLE:
        raise TransitionRefused(f"{status.value} is decided at Gate 6, or by tests.")
    facts = PatternFacts(role=Role(request.role))
    if status is _S.PROBATIONARY:
        return (await hold(conn, row, facts, now))[1]
    return (await enter(conn, row, status, facts))[1]


async def _deploy(conn: Connection, row: LifecycleRow, now: datetime) -> Effects:
    facts = PatternFacts(role=Role.KNOWLEDGE_BASE_AGENT, approved=True)
    return (await activate(conn, row, facts, now, reason="A person approved it."))[1]


# Watching


def counted(found: Sequence[Case], definition: PatternDefinition, since: datetime, until: datetime) -> Counts:
    """Return successes among the matching cases whose outcome became known after *since*, until *until*."""
    held = [case for case in found if case.matches and since < case.known_at <= until]
    return Counts(sum(definition.claim.hit(case.outcome, case.reference) for case in held), len(held))


async def _counts(runtime: PatternsRuntime, row: LifecycleRow, since: datetime, until: datetime) -> Counts:
    definition = definition_of(row.data["definition"])
    found = await cases(runtime.database, definition, until=until, deadline=Deadline.after_ms(BATCH_MS))
    return counted(found, definition, since, until)


async def _watch(runtime: PatternsRuntime, conn: Connection, row: LifecycleRow, now: datetime) -> Effects:
    """Judge the window that has ended; windows do not overlap."""
    since = datetime.fromisoformat(row.data["window_since"])
    until = since + WINDOW
    window, baseline = await _counts(runtime, row, since, until), Counts(**row.data["baseline"])
    found = decay(window, baseline)
    windows = [*row.data.get("windows", ()), {"until": until.isoformat(), **window._asdict(), "p": found.p}]
    data = {**row.data, "window_since": until.isoformat(), "windows": windows[-12:]}
    checked = performance(row, window.rate, window.cases, now) if window.cases else Effects()
    alerts = [_decayed(row, found, window, until)] if found.alarming or found.status is not None else []
    if found.status is None:
        await keep(conn, row, data, until + WINDOW)
        return checked + Effects(alerts=alerts)
    reason = f"{window.successes} of {window.cases} in 90 days, against {baseline.successes} of {baseline.cases}."
    facts = PatternFacts(role=ACTOR.role)
    if found.status is _S.PROBATIONARY:
        _, effects = await hold(conn, row, facts, now, data=data, reason=reason)
    else:
        _, effects = await enter(conn, row, found.status, facts, data=data, reason=reason)
    return checked + effects + Effects(alerts=alerts)


def _decayed(row: LifecycleRow, found: Decay, window: Counts, until: datetime) -> NewAlert:
    share = "unknown" if found.ratio is None else f"{found.ratio:.2f}"
    reason = (
        f"The pattern {row.key} succeeded in {window.successes} of {window.cases} cases of 90 days, {share} of what it"
        f" did before: {found.sound.value}."
    )
    return NewAlert(
        alert_id=id_of("decay", row.key, until.isoformat()), kind=DECAY_ALERT,
        severity=Severity.CRITICAL if found.alarming else Severity.HIGH, about=row.matter, payload={"reason": reason},
    )  # fmt: skip


# Probation


async def _try(runtime: PatternsRuntime, conn: Connection, row: LifecycleRow, now: datetime) -> Effects:
    """Tell people that a probation ends soon; at its end, say what the new evidence says."""
    terms = row.data["probation"]
    until = datetime.fromisoformat(terms["until"])
    if now < until:
        await keep(conn, row, row.data, next_look(row.data, now))
        return Effects(alerts=[_ends(row, until)])
    new = await _counts(runtime, row, datetime.fromisoformat(terms["since"]), now)
    end = probation_end(
        required=terms["required"], new=new.cases, initial=terms["initial"], updated=new.rate,
        extensions=terms["extensions"],
    )  # fmt: skip
    if end is ProbationEnd.EXTEND:
        longer = {**terms, "until": (until + EXTENSION).isoformat(), "extensions": terms["extensions"] + 1}
        data = {**row.data, "probation": longer}
        await keep(conn, row, data, next_look(data, now))
        return Effects()
    back = PatternStatus(terms["returns_to"])
    passed = end is ProbationEnd.PASS
    facts = PatternFacts(role=ACTOR.role, returns_to=back, approved="approved_at" in row.data, probation_passed=passed)
    reason = f"{new.successes} of {new.cases} new cases; {terms['required']} were required."
    data = {**row.data, "window_since": now.isoformat(), "new": new._asdict()}
    due = now + WINDOW if passed and back is _S.ACTIVE else None
    status = back if passed else _S.REJECTED_PROBATION
    _, effects = await enter(conn, row, status, facts, data=data, due_at=due, reason=reason)
    return effects + Effects(over=[row.matter])


def _ends(row: LifecycleRow, until: datetime) -> NewAlert:
    reason = f"The probation of the pattern {row.key} ends on {until:%Y-%m-%d}."
    return NewAlert(
        alert_id=id_of("probation", row.key, until.isoformat(), str(row.version)), kind=PROBATION_ALERT,
        severity=Severity.MEDIUM, about=row.matter, payload={"reason": reason},
    )  # fmt: skip


async def _check_restored(runtime: PatternsRuntime, conn: Connection, row: LifecycleRow) -> Effects:
    """
    Judge the quarter that has ended of a pattern from the archive.

    After two or more it waits for Gate 6 if two confirmed it and none failed; else it is deprecated again.
    """
    restored = row.data["restored"]
    since = datetime.fromisoformat(restored["since"])
    until = months_after(since, QUARTER)
    new = await _counts(runtime, row, since, until)
    found = confirmed(new, Counts(**row.data["baseline"]))
    quarters = [*restored["quarters"], {"until": until.isoformat(), **new._asdict(), "confirmed": found}]
    results = [one["confirmed"] for one in quarters]
    held = results.count(True) >= CONFIRMATIONS and False not in results
    data = {**row.data, "restored": {**restored, "since": until.isoformat(), "quarters": quarters, "held": held}}
    if len(quarters) < CONFIRMATIONS or held:
        await keep(conn, row, data, None if held else months_after(until, QUARTER))
        return Effects()
    reason = f"Of {len(quarters)} quarters {results.count(True)} confirmed it, and {results.count(False)} failed."
    return (await enter(conn, row, _S.DEPRECATED, PatternFacts(role=ACTOR.role), data=data, reason=reason))[1]


# The pipeline


async def test_patterns(runtime: PatternsRuntime, *, until: Deadline) -> Report:
    """Do what is due of proposals, hold-outs, shadow analyses and looks; return what was done; empty if nothing was."""
    done: dict[str, Any] = {}
    for part in (open_patterns, test_candidates, begin_blind_tests, run_shadows, look_at_blind_tests):
        if until.passed:
            return {**done, "more": True}
        done.update(await part(runtime, until=until))
    return done


TEST_PATTERNS: Final[Pipeline[PatternsRuntime]] = Pipeline(
    "patterns.test",
    lambda runtime, until: test_patterns(runtime, until=until),
    Every(600.0),
    budget_ms=240_000,
    due=(DUE,),
)
