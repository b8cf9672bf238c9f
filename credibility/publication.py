"""
Publication of scores: what ``Memory.credibility`` says of an agent in a domain, as a record ``AgentCredibility``.

A score is due when an outcome changed it, when a person said something of it, and by each run of the regime
(:mod:`imem.credibility.regimes.runs`). It is published under the cached regime of the newest run, which is that of the
product's regime factor; while that run has none, nothing is published. A batch is one transaction under the lock of the
market: a crash publishes all of it or nothing, and two workers publish nothing twice.

A score that fell by more than :data:`FALL` within :data:`FALL_WITHIN` raises an alert, by what could be known then and
now: outcomes of years ago that are loaded today are no fall.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import structlog

from imem.alerts.store import NewAlert, Severity, close_alerts, raise_alert
from imem.credibility.regimes.metrics import STALENESS_S, UPDATE_S
from imem.credibility.regimes.runs import (
    BATCH_MS,
    CHANGED,
    DAILY,
    SCORES,
    RegimeRun,
    locked,
    newest_run,
    warn_if_late,
)
from imem.credibility.scores.people import KINDS as SAID
from imem.credibility.scores.published import credibility_of
from imem.credibility.scores.reading import AgentScore, agent_scores
from imem.credibility.store import TrackRecordKey
from imem.credibility.track_record import ENOUGH_OBSERVATIONS, TrackRecord, dated_records
from imem.jobs.due import DueRow, finish_due, halving, next_due, set_due_aside
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Tier
from imem.journal.events.ids import id_of, new_id
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.journal.settings import Role
from imem.kg.asof import AsOf
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of

log = structlog.get_logger()

ACTOR: Final = Actor("credibility-scores", Role.LEARNING_ENGINE)
"""The actor that publishes. What it says of half-lives is what was used, and sets none."""

WRITER: Final = "credibility"
"""The subsystem that owns the kind."""

BATCH: Final = 200
"""Scores published in one transaction."""

FALL: Final = 0.2
FALL_WITHIN: Final = timedelta(days=7)
FALLEN: Final = "CREDIBILITY_FALL"
"""Kind of the alert about a score that fell; it is over when the fall is less."""

STALE_S: Final = 300.0
"""Staleness (see :class:`RegimeRun`) above which an alert says so, in seconds."""

STALENESS: Final = "REGIME_STALENESS"
"""Kind of that alert."""

DUE: Final = (CHANGED, *SAID, DAILY)
"""Kinds of due rows: also the kinds of records in which people say something of an agent, by their keys."""


@dataclass(frozen=True, slots=True)
class Publication:
    """
    The result of a run of publication.

    Attributes:
        run: the run of the regime whose scores were published, or that is waited for.
        waiting: whether that run has no cached regime yet, so that nothing was published.
        scores: scores published.
        fallen: alerts about falls that were raised.
        stuck: due rows that were set aside.
        more: whether scores are left.
    """

    run: UUID | None = None
    waiting: bool = False
    scores: int = 0
    fallen: int = 0
    stuck: int = 0
    more: bool = False

    def report(self) -> dict[str, Any]:
        """Return it as JSON types; empty if nothing was done."""
        if not (self.waiting or self.scores or self.stuck):
            return {}
        return {
            "run": str(self.run), "waiting": self.waiting, "scores": self.scores, "fallen": self.fallen,
            "stuck": self.stuck, "more": self.more,
        }  # fmt: skip


async def publish_scores(
    database: Database, gateway: Gateway, *, halflife_years: float, until: Deadline, batch: int = BATCH
) -> Publication:
    """
    Publish due scores until none is left or *until* has passed.

    Args:
        gateway: appends the records, as :data:`ACTOR`.
        halflife_years: for agents whose record names none.
        batch: most scores of one transaction.

    Raises:
        PostgresUnavailable: committed batches stay published; the rest is still due.
    """
    total = Publication()
    while not until.passed:
        done = await halving(
            lambda size: _publish(database, gateway, halflife_years, size), batch, lambda error: _alone(database, error)
        )
        total = Publication(
            done.run, done.waiting, total.scores + done.scores, total.fallen + done.fallen, total.stuck + done.stuck
        )
        if done.waiting or not done.more:
            if total.scores:
                await gateway.publish_wakeup(tuple(Tier))
            return total
    return Publication(total.run, total.waiting, total.scores, total.fallen, total.stuck, more=True)


async def _alone(database: Database, error: Exception) -> Publication:
    async with locked(database) as conn:
        due = await next_due(conn, SCORES, DUE, 1)
        await set_due_aside(conn, SCORES, due, error)
    return Publication(stuck=len(due), more=True)


async def _publish(database: Database, gateway: Gateway, halflife_years: float, size: int) -> Publication:
    async with locked(database) as conn:
        run = await newest_run(conn)
        if not run.cached:
            STALENESS_S.set(run.staleness_s)
            await warn_if_late(conn, run)
            return Publication(run.run_id, waiting=True)
        due = await next_due(conn, SCORES, DUE, size)
        pairs = await _pairs(conn, due)
        scores = await _scores(database, pairs, run, halflife_years) if pairs else {}
        daily = len({one.key for one in due if one.kind == DAILY})
        if daily:
            [row] = await rows(conn, "run_published", {"run_id": run.run_id, "count": daily})
            if row["published_at"] is not None:
                UPDATE_S.labels(step="publish").observe(row["took_s"])
        await finish_due(conn, SCORES, due)
        entries = [
            entry_of(record_of(credibility_of(now, run.now, run.run_id), writer=WRITER)) for _, now in scores.values()
        ]
        if entries:
            await gateway.append_in(
                conn, entries, actor=ACTOR, action=Action.APPEND_CREDIBILITY, deadline=Deadline.after_ms(BATCH_MS)
            )
        fallen = await _falls(conn, scores)
        await _staleness(conn, await newest_run(conn) if daily else run)
    return Publication(run.run_id, scores=len(entries), fallen=fallen, more=len(due) == size)


async def _pairs(conn: Connection, due: Sequence[DueRow]) -> list[TrackRecordKey]:
    said = [one for one in due if one.kind in SAID]
    given = {"kinds": [one.kind for one in said], "keys": [one.key for one in said]}
    about = await rows(conn, "scores_spoken_of", given) if said else []
    changed = [one.key.split("/", 1) for one in due if one.kind not in SAID]
    return sorted({TrackRecordKey(*pair) for pair in changed} | {TrackRecordKey(**row) for row in about})


async def _scores(
    database: Database, pairs: Sequence[TrackRecordKey], run: RegimeRun, halflife_years: float
) -> dict[TrackRecordKey, tuple[TrackRecord, AgentScore]]:
    """Return each track record as of :data:`FALL_WITHIN` ago, and each score as of now under the regime of *run*."""
    deadline = Deadline.after_ms(BATCH_MS)
    asked = [(*pair, AsOf(run.now - FALL_WITHIN)) for pair in pairs]
    before, _ = await dated_records(database, asked, halflife_years=halflife_years, deadline=deadline)
    now, _ = await agent_scores(
        database, pairs, AsOf(run.now), context=None, regime=run.regime, halflife_years=halflife_years,
        deadline=deadline,
    )  # fmt: skip
    return {pair: (old, new) for pair, (_, old), new in zip(pairs, before, now, strict=True)}


async def _falls(conn: Connection, scores: Mapping[TrackRecordKey, tuple[TrackRecord, AgentScore]]) -> int:
    """Raise an alert about each score that fell, and close those of which the fall is over; return how many are new."""
    if not scores:
        return 0
    matters = {id_of("credibility fall", *pair): pair for pair in scores}
    fallen = {
        matter: pair
        for matter, pair in matters.items()
        if scores[pair][0].n > 0 and scores[pair][0].mean - scores[pair][1].record.mean > FALL + 1e-9
    }
    among = {"kind": FALLEN, "abouts": sorted(matters)}
    open_now = {row["about"] for row in await rows(conn, "open_alerts_among", among)}
    for matter in sorted(open_now - fallen.keys()):
        await close_alerts(conn, matter)
    new = sorted(fallen.keys() - open_now)
    for matter in new:
        pair = fallen[matter]
        before, after = scores[pair][0], scores[pair][1].record
        reason = (
            f"The score of {pair.agent} in {pair.domain} fell from {before.mean:.2f} to {after.mean:.2f} within "
            f"{FALL_WITHIN.days} days, on {after.n} observations."
        )
        payload = {
            "agent": pair.agent, "domain": pair.domain, "before": round(before.mean, 4), "after": round(after.mean, 4),
            "observations": after.n, "reason": reason,
        }  # fmt: skip
        # On little evidence one outcome moves a score as far. A normal alert would announce an end, and need no action.
        severity = Severity.HIGH if after.n >= ENOUGH_OBSERVATIONS else Severity.MEDIUM
        alert = NewAlert(alert_id=new_id(), kind=FALLEN, severity=severity, about=matter, payload=payload)
        await raise_alert(conn, alert)
    return len(new)


async def _staleness(conn: Connection, run: RegimeRun) -> None:
    """Show how stale the scores of *run* are, with an alert while it is too much."""
    STALENESS_S.set(run.staleness_s)
    about = id_of("regime staleness", run.run_id)
    if run.published:
        await close_alerts(conn, about)
    elif run.staleness_s > STALE_S and not await rows(
        conn, "open_alerts_among", {"kind": STALENESS, "abouts": [about]}
    ):
        reason = f"After {run.staleness_s:.0f} s not all scores are published under the regime of the day."
        payload = {"run": str(run.run_id), "reason": reason}
        alert = NewAlert(alert_id=new_id(), kind=STALENESS, severity=Severity.MEDIUM, about=about, payload=payload)
        await raise_alert(conn, alert)
