"""
Runs of regimes: detect, then cache, then publish scores; strictly in this order, each step of one named run.

A run is opened for each day in UTC, for a reading that was recorded, and every hour while indicators are missing.
The newest run counts, by its number and not by a clock. Scores are published under the cached regime of the newest run
alone (:mod:`imem.credibility.publication`): until it is detected and cached nothing is published, so that yesterday's
never counts as today's.

Each step is one transaction under the lock of the market, and does nothing where it was done: any worker goes on where
a killed one stopped. Indicators are read outside of it; a claim keeps other workers from reading them as well for a
minute, and fences what a slow one brings.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import structlog

from imem.alerts.store import NewAlert, Severity, close_alerts, raise_alert
from imem.credibility.regimes.detect import DetectedRegime, Indicators, detect
from imem.credibility.regimes.metrics import UPDATE_S
from imem.credibility.regimes.providers import IndicatorProvider, read_indicators
from imem.credibility.regimes.readings import MARKET, reading_in_force
from imem.jobs.due import finish_due, make_due, next_due
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Tier
from imem.journal.events.ids import new_id
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows
from imem.journal.settings import Role
from imem.kg.kinds.enums import Regime
from imem.kg.kinds.trust import RegimeReading
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of

log = structlog.get_logger()

ACTOR: Final = Actor("regimes", Role.LEARNING_ENGINE, may_import=True)
"""The actor that records detected readings."""

QUEUE: Final = "regimes"
"""The queue of readings that were recorded, imported or corrected."""

SCORES: Final = "scores"
"""The queue of scores to publish."""

CHANGED, DAILY = "changed", "daily"
"""Kinds of its rows: a score that an outcome changed, and one that a run publishes anew."""

READ_MS: Final = 20_000
"""How long a provider may take, in milliseconds."""

BATCH_MS: Final = 60_000
"""How long one transaction may take, in milliseconds."""

DUE_ROWS: Final = 1_000
"""Due rows of one round: readings that were imported together make one run."""

LATE_S: Final = 60.0
"""Age of a run that is not detected and cached from which an alert says so, in seconds."""

LATE: Final = "REGIME_LATE"
"""Kind of that alert."""


@dataclass(frozen=True, slots=True)
class RegimeRun:
    """
    A run.

    Attributes:
        run_id: its name: what follows from it names it.
        cause: daily, stale or reading.
        now: the database's time when it was read.
        age_s: since it was opened, in seconds.
        detected: whether its regime was detected.
        cached: whether the cached regime is its own.
        regime, stale: what was detected; None before.
        records: how many scores it publishes; None before it is cached.
        staleness_s: how long ago it was opened when 99 of 100 scores were published, or how long ago until now.
        published: whether all of them were.
        retry_due: whether its indicators were missing, and an hour has passed.
    """

    run_id: UUID
    cause: str
    now: datetime
    age_s: float
    detected: bool
    cached: bool
    regime: Regime | None
    stale: bool | None
    records: int | None
    staleness_s: float
    published: bool
    retry_due: bool

    @classmethod
    def from_row(cls, row: Row) -> RegimeRun:
        """Return the run of a row of ``newest_run``."""
        return cls(
            run_id=row["run_id"],
            cause=row["cause"],
            now=row["now"].astimezone(UTC),
            age_s=row["age_s"],
            detected=row["detected_at"] is not None,
            cached=row["cached_at"] is not None and bool(row["cached"]),
            regime=Regime(row["regime"]) if row["regime"] is not None else None,
            stale=row["stale"],
            records=row["records"],
            staleness_s=row["staleness_s"],
            published=row["published_at"] is not None,
            retry_due=bool(row["retry_due"]),
        )


@asynccontextmanager
async def locked(database: Database) -> AsyncIterator[Connection]:
    """Open a transaction under the lock of the market."""
    async with database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        await rows(conn, "regime_lock", {"market": MARKET})
        yield conn


async def newest_run(conn: Connection) -> RegimeRun:
    """Return the newest run, after that of the day was opened."""
    await execute(conn, "open_daily_run", {"market": MARKET})
    return RegimeRun.from_row((await rows(conn, "newest_run", {"market": MARKET}))[0])


async def advance(
    database: Database, gateway: Gateway, provider: IndicatorProvider | None, *, until: Deadline
) -> dict[str, Any]:
    """
    Open what run is due, detect its regime and cache it; return what was done, empty if nothing was.

    Args:
        gateway: appends the reading, as :data:`ACTOR`.
        provider: of the indicators; without one the reading in force is the regime.
        until: when the provider's time ends.

    Raises:
        PostgresUnavailable: steps before stay done; the next call goes on.
    """
    async with locked(database) as conn:
        run = await _open(conn, retries=provider is not None)
        found = await rows(conn, "claim_detection", {"run_id": run.run_id}) if not run.detected else []
    done: dict[str, Any] = {}
    if found:
        asked = provider if run.cause != "reading" else None
        source = (asked.name if asked is not None else None, *await _read(asked, run, until))
        done = await _detect(database, gateway, run, found[0]["claims"], source)
    async with locked(database) as conn:
        run = await newest_run(conn)
        if run.detected and not run.cached:
            done |= {"run": str(run.run_id), "scores": await _cache(conn, run)}
            await close_alerts(conn, run.run_id)
        elif not run.cached:
            await warn_if_late(conn, run)
    return done


async def warn_if_late(conn: Connection, run: RegimeRun) -> None:
    """
    Raise an alert if *run*, which is not cached, was opened longer ago than :data:`LATE_S`.

    Make it the last statement of the transaction.
    """
    if run.age_s <= LATE_S:
        return
    await rows(conn, "lock_alerts_about", {"about": run.run_id})
    if await rows(conn, "open_alerts_among", {"kind": LATE, "abouts": [run.run_id]}):
        return
    reason = (
        f"The regime of {MARKET} was not detected within {LATE_S:.0f} s. Scores are published when it is; those of the "
        "run before stand."
    )
    log.error("regime.late", run=str(run.run_id), age_s=round(run.age_s))
    payload = {"run": str(run.run_id), "reason": reason}
    alert = NewAlert(alert_id=new_id(), kind=LATE, severity=Severity.HIGH, about=run.run_id, payload=payload)
    await raise_alert(conn, alert)


async def _open(conn: Connection, *, retries: bool) -> RegimeRun:
    """Open another run if a reading was recorded, or indicators were missing; return the newest."""
    run = await newest_run(conn)
    if not run.detected:
        # What is recorded while its indicators are read may be newer than they are: it waits for a run of its own.
        return run
    due = await next_due(conn, QUEUE, ("RegimeReading",), DUE_ROWS)
    await finish_due(conn, QUEUE, due)
    cause = "reading" if due else "stale" if retries and run.retry_due else None
    if cause is None:
        return run
    await execute(conn, "open_run", {"market": MARKET, "cause": cause})
    return await newest_run(conn)


async def _read(provider: IndicatorProvider | None, run: RegimeRun, until: Deadline) -> tuple[Indicators, str | None]:
    """Return the indicators of *run*, and why they could not be read."""
    if provider is None:
        return Indicators(), None
    due = Deadline.after_ms(min(READ_MS, until.left_s() * 1000))
    given, reason = await read_indicators(provider, run.now, deadline=due)
    if reason is not None:
        log.warning("regime.no_indicators", run=str(run.run_id), reason=reason)
    return given, reason


async def _detect(
    database: Database, gateway: Gateway, run: RegimeRun, claims: int, source: tuple[str | None, Indicators, str | None]
) -> dict[str, Any]:
    """
    Detect the regime of a claimed run; one commit, which a process that claimed it later fences off.

    Args:
        source: the provider, None without one; its indicators; why there are none.
    """
    name, given, reason = source
    async with locked(database) as conn:
        previous = await reading_in_force(conn, MARKET, run.now)
        reading = previous
        if name is not None:
            found = detect(given, previous.regime if previous is not None else None)
            if not (found.stale and previous is not None and previous.stale):
                reading = _reading(run, found, given, name)
        regime, stale = (reading.regime, reading.stale) if reading is not None else (Regime.NORMAL, True)
        wanted = {"reading_id": reading.id if reading is not None else None, "regime": regime.value, "stale": stale}
        if not await rows(
            conn, "finish_detection", {"run_id": run.run_id, "claims": claims, "reason": reason, **wanted}
        ):
            return {}
        if reading is not None and reading is not previous:
            await gateway.append_in(
                conn,
                [entry_of(record_of(reading))],
                actor=ACTOR,
                action=Action.APPEND_CREDIBILITY,
                deadline=Deadline.after_ms(BATCH_MS),
            )
    UPDATE_S.labels(step="detect").observe(run.age_s)
    log.info("regime.detected", run=str(run.run_id), regime=regime.value, stale=stale)
    await gateway.publish_wakeup(tuple(Tier))
    return {"run": str(run.run_id), "cause": run.cause, "regime": regime.value, "stale": stale, "reason": reason}


def _reading(run: RegimeRun, found: DetectedRegime, given: Indicators, source: str) -> RegimeReading:
    return RegimeReading(
        id=f"{MARKET}:{run.run_id}",
        observed_at=run.now,
        regime=found.regime,
        stale=found.stale,
        source=source,
        run_id=str(run.run_id),
        **given._asdict(),
    )


async def _cache(conn: Connection, run: RegimeRun) -> int:
    """Cache the regime of a detected run, and make every score due; return how many."""
    await execute(conn, "cache_regime", {"run_id": run.run_id})
    # What an earlier run has not published, and what is due otherwise, this one publishes: of a pair whose row is
    # forgotten the score is there, so that it is read after that.
    await execute(conn, "clear_due_scores", {"queue": SCORES})
    pairs = [f"{row['agent']}/{row['domain']}" for row in await rows(conn, "scored_pairs")]
    await make_due(conn, SCORES, DAILY, pairs, later=True)
    await execute(conn, "run_cached", {"run_id": run.run_id, "records": len(pairs)})
    return len(pairs)
