"""
Blind tests of candidates that passed the hold-out: how they begin, and the forecasts that they compare.

A test begins once agents are seen to know nothing of the candidate, and is looked at after six and twelve months
(:mod:`imem.patterns.looks`). Meanwhile each open forecast of the reference for which the condition holds gets a shadow
analysis. Their ids follow from pattern, attempt and question, so that a repeated run records nothing twice.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import structlog

from imem.alerts.store import NewAlert, Severity
from imem.credibility.store import contexts_of
from imem.jobs.lifecycle import BATCH_MS, Effects, LifecycleRow, finish
from imem.jobs.pipeline import Report
from imem.journal.clock import months_after
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError
from imem.journal.events.entry import Tier
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import rows
from imem.kg.kinds.patterns import ShadowAnalysis
from imem.kg.load_format.lines import record_of
from imem.patterns.definition import PatternDefinition, definition_of
from imem.patterns.evidence.blind import LOOKS
from imem.patterns.life import (
    ACTOR,
    CANDIDATES,
    PROPOSED,
    WRITER,
    PatternsRuntime,
    Stage,
    keep,
    recorded,
    staged,
)
from imem.patterns.shadows import OpenForecast, ShadowRunner

log = structlog.get_logger()

AT_ONCE: Final = 200
"""Candidates of one round, and shadow analyses of one transaction, at most."""

WAIT: Final = timedelta(days=30)
"""After how long a look without enough data, or a start that was not isolated, is tried again."""

OVERLAP: Final = timedelta(days=1)
"""How far back forecasts are looked for that were recorded before the last round saw them."""

MONTH: Final = timedelta(days=30)

ISOLATION_ALERT: Final = "BLIND_TEST_NOT_ISOLATED"
"""Kind of the alert about a candidate that agents know of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """
    The results of the checks before a blind test, and at each look.

    Attributes:
        cache_cleared: no view that agents read holds the pattern.
        logs_filtered: no agent has recorded its key or name, but in a proposal, which no other agent sees.
        knowledge_graph_blocked: its status keeps it from agents, and none has asked for it.
        agent_instances_clean: shadow analyses share nothing with agents that work.
    """

    cache_cleared: bool
    logs_filtered: bool
    knowledge_graph_blocked: bool
    agent_instances_clean: bool

    @property
    def signals(self) -> tuple[str, ...]:
        """Return what contaminates the test, by the names of the design."""
        named = (
            ("pattern_in_logs", self.logs_filtered), ("cache_hits", self.cache_cleared),
            ("knowledge_graph_queries", self.knowledge_graph_blocked),
            ("agent_instances", self.agent_instances_clean),
        )  # fmt: skip
        return tuple(name for name, clean in named if not clean)


async def verify_isolation(conn: Connection, row: LifecycleRow, runner: ShadowRunner, since: datetime) -> Isolation:
    """Return what agents can know of a candidate since a moment; a check that fails to answer counts as not clean."""
    name = row.data["definition"]["name"]
    ours = [ACTOR.id, row.data["proposed_by"]]
    given = {"key": row.key, "name": name, "since": since, "ours": ours, "proposal": PROPOSED}
    [found] = await rows(conn, "pattern_isolated", given)
    try:
        clean = await runner.clean()
    except Exception as error:  # noqa: BLE001 - of a runner that an installation brings, anything may come
        log.warning("patterns.runner_failed", pattern=row.key, reason=repr(error))
        clean = False
    return Isolation(
        cache_cleared=found["cleared"], logs_filtered=found["silent"],
        knowledge_graph_blocked=found["blocked"] and found["unasked"], agent_instances_clean=clean is True,
    )  # fmt: skip


Step = Callable[[Connection, LifecycleRow, datetime], Awaitable[tuple[str, Effects]]]
"""Takes the connection, a locked candidate and the present moment; returns what it did, in a word, and its effects."""


async def each_due(runtime: PatternsRuntime, stage: Stage, step: Step, *, until: Deadline) -> dict[str, int]:
    """Do a step with each candidate that is due for a stage, in a transaction of its own; count the words of steps."""
    done: dict[str, int] = {}
    given = {**CANDIDATES, "stage": stage.value, "limit": AT_ONCE}
    for found in await runtime.database.named("patterns_in", given, deadline=Deadline.after_ms(BATCH_MS)):
        if until.passed:
            break
        async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
            row = await locked(conn, LifecycleRow.of(found))
            if row is None:
                continue
            said, effects = await step(conn, row, found["now"])
            appended = await finish(conn, effects, runtime.gateway, Deadline.after_ms(BATCH_MS))
        done[said] = done.get(said, 0) + 1
        if appended:
            await runtime.gateway.publish_wakeup(tuple(Tier))
    return done


async def locked(conn: Connection, row: LifecycleRow) -> LifecycleRow | None:
    """Return a row as it was read, locked; None if it was changed meanwhile."""
    await rows(conn, "patterns_lock")
    present = await rows(conn, "pattern_rows", {"keys": [row.key]})
    return LifecycleRow.of(present[0]) if present and present[0]["version"] == row.version else None


# Beginning


async def begin_blind_tests(runtime: PatternsRuntime, *, until: Deadline) -> Report:
    """Begin the blind tests of candidates that passed the hold-out, where nothing shows that agents know of them."""
    if (runner := runtime.shadow_runner) is None:
        return {}
    return await each_due(runtime, Stage.ISOLATION, partial(_begin, runner), until=until)


async def _begin(runner: ShadowRunner, conn: Connection, row: LifecycleRow, now: datetime) -> tuple[str, Effects]:
    # Mentions of the last 30 days alone count: otherwise a single one would keep a test from ever beginning.
    signals = (await verify_isolation(conn, row, runner, max(row.opened_at, now - WAIT))).signals
    if signals:
        await keep(conn, row, staged(row.data, Stage.ISOLATION, now + WAIT))
        return "not_isolated", Effects(alerts=[not_isolated(row, signals, now)])
    await keep(conn, row, at_month_0(row.data, now))
    return "begun", Effects(over=[row.matter])


def at_month_0(data: Mapping[str, Any], now: datetime, **more: Any) -> dict[str, Any]:
    """Return what a candidate keeps as an attempt of its blind test begins."""
    blind = {"started_at": now.isoformat(), "seen_until": now.isoformat(), "looks": 0}
    return staged(data, Stage.BLIND, months_after(now, LOOKS[0]), blind=blind, **more)


def not_isolated(row: LifecycleRow, signals: Sequence[str], now: datetime) -> NewAlert:
    """Return the alert that agents may know of a candidate."""
    reason = f"Agents may know of the candidate {row.key}, whose blind test waits: {', '.join(signals)}."
    return NewAlert(
        alert_id=id_of("not isolated", row.key, f"{now:%Y-%m-%d}"), kind=ISOLATION_ALERT, severity=Severity.HIGH,
        about=row.matter, payload={"reason": reason},
    )  # fmt: skip


# Shadow analyses


def prefix_of(row: LifecycleRow) -> str:
    """Return what the ids of the shadow analyses of a pattern's present attempt begin with."""
    return f"{row.key}/shadow/{row.data['attempt']}/"


async def run_shadows(runtime: PatternsRuntime, *, until: Deadline) -> Report:
    """
    Make the shadow analyses of open forecasts for which the condition of a candidate holds; one a question.

    What an analysis cannot forecast is left out, and tried again by the next round while its question is open.
    """
    if (runner := runtime.shadow_runner) is None:
        return {}
    database, due = runtime.database, Deadline.after_ms(BATCH_MS)
    testing = await database.named("patterns_in", {**CANDIDATES, "limit": 10 * AT_ONCE}, deadline=due)
    testing = [found for found in testing if found["data"].get("stage") == Stage.BLIND]
    if not testing:
        return {}
    [spent] = await database.named("shadow_runs", {"since": testing[0]["now"] - MONTH}, deadline=due)
    left = runtime.shadow_runs_per_month - spent["runs"]
    made = 0
    for found in testing:
        if until.passed or made >= left:
            break
        row, most = LifecycleRow.of(found), min(AT_ONCE, left - made)
        made += await _shadow(runtime, row, runner, found["now"], most=most, until=until)
    return {"shadows": made} if made else {}


async def _forecast(runner: ShadowRunner, definition: PatternDefinition, effect: float, one: Row) -> float:
    of = OpenForecast(
        subject_id=one["subject_id"], metric=one["metric"], target_at=one["target_at"], predicted_at=one["known_at"],
        stated=one["stated"], event=one["event"],
    )  # fmt: skip
    forecast = await runner.forecast(definition, effect, of, deadline=Deadline.after_ms(BATCH_MS))
    if not math.isfinite(forecast):
        raise BadInput("forecast", f"must be a finite number, not {forecast!r:.50}.")
    return forecast


async def _shadow(
    runtime: PatternsRuntime, row: LifecycleRow, runner: ShadowRunner, now: datetime, *, most: int, until: Deadline
) -> int:
    definition, blind = definition_of(row.data["definition"]), row.data["blind"]
    async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        since = datetime.fromisoformat(blind["seen_until"]) - OVERLAP
        given = {
            "reference": definition.reference, "metric": definition.metric, "since": since,
            "known_since": datetime.fromisoformat(blind["started_at"]), "limit": 10 * AT_ONCE,
        }  # fmt: skip
        found = await rows(conn, "open_forecasts", given)
        wanted: dict[str, Row] = {}
        for one, context in zip(found, await contexts_of(conn, found), strict=True):
            features = context._asdict() | {"forecast": one["stated"], "drift": one["drift"]}
            if definition.holds(features):
                wanted.setdefault(f"{prefix_of(row)}{id_of('shadow', one['subject_id'], str(one['target_at']))}", one)
        for known in await rows(conn, "shadows_recorded", {"keys": sorted(wanted)}):
            del wanted[known["key"]]
    shadows = []
    for key, one in list(wanted.items())[:most]:
        # The forecasts that were made are recorded; the next round makes the others.
        if until.passed:
            break
        try:
            forecast = await _forecast(runner, definition, row.data["holdout"]["effect"], one)
        except Exception as error:  # noqa: BLE001 - what an installation's agents raise is known to them alone
            reason = error.message if isinstance(error, ImemError) else type(error).__name__
            log.warning("patterns.shadow_failed", pattern=row.key, reason=reason)
            continue
        shadows.append(
            ShadowAnalysis(
                id=key, pattern_id=row.key, analysis_id=one["analysis_id"], finding_id=one["finding_id"],
                with_pattern_prediction=forecast, without_pattern_prediction=one["stated"], timestamp=now,
            )
        )  # fmt: skip
    async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        if (present := await locked(conn, row)) is None:
            return 0
        if len(shadows) == len(wanted) and len(found) < 10 * AT_ONCE:
            seen = {**present.data, "blind": {**blind, "seen_until": now.isoformat()}}
            await keep(conn, present, seen)
        facts = recorded(*(record_of(one, writer=WRITER) for one in shadows))
        await finish(conn, facts, runtime.gateway, Deadline.after_ms(BATCH_MS))
    return len(shadows)
