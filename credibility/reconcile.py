"""
The nightly reconciliation: recomputes all scores, track records and verdicts, and compares them with those stored.

Differences are reported, in a row and in the log, and overwritten with the recomputed value. The report leaves
out records that are due, since they are expected to differ, and records stored with another half-life. Each page is a
transaction under the settlement lock: after a crash the pages done stay corrected, and the run is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
import structlog

from imem.alerts.store import AlertContext, NewAlert, Severity, raise_alert
from imem.credibility import store
from imem.credibility.history import QuestionKey
from imem.credibility.regimes.runs import CHANGED, SCORES
from imem.credibility.settling import (
    BATCH_BUDGET_MS,
    QUEUE,
    alone,
    judge_decisions,
    make_dependents_due,
    recompute_scores,
    recompute_track_record,
    settle_due,
)
from imem.credibility.store import SCORE_COLUMNS, TrackRecordKey
from imem.jobs.due import BAD_CONTENT, make_due
from imem.journal.deadline import Deadline
from imem.journal.events.ids import id_of, new_id
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows

log = structlog.get_logger()

PAGE = 200
"""Questions or decisions in one transaction."""

TRACKS_PAGE = 5
"""Track records in one transaction: each is swept whole."""

TOLERATED = 1e-6
"""Largest difference of a number in a track record that raises no alert."""

MISMATCH = "CREDIBILITY_MISMATCH"
"""Kind of the alert."""

NAMED = 100
"""Most ids of each sort in a report; its counts are complete."""


@dataclass(slots=True)
class ReconciliationReport:
    """
    Result of a reconciliation.

    Attributes:
        questions, scores, track_records, decisions: numbers recomputed.
        findings, tracks, verdicts: what differed: finding ids, track records, decision ids.
        deviation: largest difference of a number in a track record; infinite if steps were missing.
    """

    questions: int = 0
    scores: int = 0
    track_records: int = 0
    decisions: int = 0
    findings: set[str] = field(default_factory=set)
    tracks: set[TrackRecordKey] = field(default_factory=set)
    verdicts: set[str] = field(default_factory=set)
    deviation: float = 0.0

    @property
    def differing(self) -> int:
        """Number of differing scores, track records and verdicts."""
        return len(self.findings) + len(self.tracks) + len(self.verdicts)

    def details(self) -> dict[str, Any]:
        """Return the ids of what differed, the first :data:`NAMED` of each sort."""
        return {
            "findings": sorted(self.findings)[:NAMED],
            "track_records": [pair._asdict() for pair in sorted(self.tracks)[:NAMED]],
            "decisions": sorted(self.verdicts)[:NAMED],
        }


async def reconcile(database: Database, gateway: Gateway, *, halflife_years: float) -> ReconciliationReport:
    """
    Recompute everything, correct what differs, write the report and return it.

    Raises:
        PostgresUnavailable: pages done before stay corrected; no report is written.
    """
    # Rows set aside for an unknown metric may succeed now, if the worker was restarted with it.
    await database.execute("due_retry", {"queue": QUEUE}, deadline=Deadline.never())
    await settle_due(database, gateway, halflife_years=halflife_years, until=Deadline.never())
    async with alone(database, wait=True) as conn:
        started_at = (await rows(conn, "database_now"))[0]["now"]
    report = ReconciliationReport()
    await _questions(database, report)
    await _tracks(database, report, halflife_years)
    await _decisions(database, gateway, report)
    await settle_due(database, gateway, halflife_years=halflife_years, until=Deadline.never())
    await database.named(
        "add_report",
        {
            "started_at": started_at,
            "questions": report.questions,
            "scores": report.scores,
            "track_records": report.track_records,
            "decisions": report.decisions,
            "differing": report.differing,
            "details": orjson.dumps(report.details()).decode(),
        },
        deadline=Deadline.never(),
    )
    if report.findings or report.deviation > TOLERATED:
        await _alert(database, report)
    if report.differing:
        log.warning("credibility.differed", differing=report.differing, **report.details())
    else:
        log.info("credibility.reconciled", questions=report.questions, scores=report.scores)
    return report


async def _alert(database: Database, report: ReconciliationReport) -> None:
    """Raise an alert that stored values differed from their recomputation; they are corrected already."""
    said = []
    if report.findings:
        # Not caused by a statement: a rule or the registry of metrics changed, or the table was written to directly.
        names = ", ".join(sorted(report.findings)[:3])
        said.append(f"{len(report.findings)} scores differed from their full recomputation, such as those of {names}.")
    if report.deviation > TOLERATED:
        apart = "by whole steps" if math.isinf(report.deviation) else f"by up to {report.deviation:.3g}"
        names = ", ".join(f"{pair.agent} in {pair.domain}" for pair in sorted(report.tracks)[:3])
        said.append(
            f"{len(report.tracks)} track records differed from their full recomputation {apart}, such as {names}."
        )
    reason = " ".join(said)
    situation = AlertContext(reason=reason)
    alert = NewAlert(
        alert_id=new_id(), kind=MISMATCH, severity=Severity.HIGH, about=id_of("mismatch", reason),
        payload=situation.to_payload(),
    )  # fmt: skip
    async with database.transaction(Deadline.after_ms(BATCH_BUDGET_MS)) as conn:
        await raise_alert(conn, alert)


async def _questions(database: Database, report: ReconciliationReport) -> None:
    first = {"subject_id": "", "metric": "", "target_at": datetime.min.replace(tzinfo=UTC)}

    async def mend(conn: Connection, page: Sequence[Row]) -> None:
        keys = [QuestionKey(row["subject_id"], row["metric"], row["target_at"]) for row in page]
        difference = await recompute_scores(conn, keys)
        # Read after the facts: a question with a statement recorded meanwhile is due by now, and so is one of which the
        # reference or the context changed.
        await make_dependents_due(conn)
        due = {
            QuestionKey(row["subject_id"], row["metric"], row["target_at"])
            for row in await rows(conn, "due_of_questions", store.columns_of(keys))
        }
        await difference.write(conn, None)
        report.questions += len(keys)
        report.scores += difference.claims
        report.findings |= {
            row[0] for row in difference.touched if QuestionKey(*(row[index] for index in _KEY)) not in due
        }

    await _pages(database, "questions_after", first, mend)


_KEY = [SCORE_COLUMNS.index(name) for name in QuestionKey._fields]


async def _tracks(database: Database, report: ReconciliationReport, halflife_years: float) -> None:
    async def mend(conn: Connection, page: Sequence[Row]) -> None:
        pairs = [TrackRecordKey(row["agent"], row["domain"]) for row in page]
        wanted = {"agents": [pair.agent for pair in pairs], "domains": [pair.domain for pair in pairs]}
        due = {TrackRecordKey(row["agent"], row["domain"]) for row in await rows(conn, "due_among_tracks", wanted)}
        for pair in pairs:
            differing = await recompute_track_record(conn, pair, halflife_years)
            report.track_records += 1
            if differing.steps and pair not in due:
                await make_due(conn, SCORES, CHANGED, [f"{pair.agent}/{pair.domain}"])
                if not differing.halflife:
                    report.tracks.add(pair)
                    report.deviation = max(report.deviation, differing.deviation)

    await _pages(database, "tracks_after", {"agent": "", "domain": ""}, mend, limit=TRACKS_PAGE)


async def _decisions(database: Database, gateway: Gateway, report: ReconciliationReport) -> None:
    async def mend(conn: Connection, page: Sequence[Row]) -> None:
        keys = [row["key"] for row in page]
        wanted = {"queue": QUEUE, "kind": "Decision", "keys": keys}
        due = {row["key"] for row in await rows(conn, "due_among", wanted)}
        recorded = await judge_decisions(conn, gateway, keys)
        report.decisions += len(keys)
        report.verdicts |= recorded.keys() - due

    await _pages(database, "citing_decisions_after", {"key": ""}, mend)


async def _pages(
    database: Database,
    name: str,
    after: dict[str, Any],
    mend: Callable[[Connection, Sequence[Row]], Awaitable[None]],
    *,
    limit: int = PAGE,
) -> None:
    """Call *mend* with each page of the named statement, in a transaction under the settlement lock."""
    while True:
        async with alone(database, wait=True) as conn:
            page = await rows(conn, name, {**after, "limit": limit})
        if not page:
            return
        try:
            async with alone(database, wait=True) as conn:
                await mend(conn, page)
        except BAD_CONTENT:
            await _one_by_one(database, page, mend)
        after = {column: page[-1][column] for column in after}


async def _one_by_one(
    database: Database, page: Sequence[Row], mend: Callable[[Connection, Sequence[Row]], Awaitable[None]]
) -> None:
    """Call *mend* with each row of a failed page by itself; log rows that fail."""
    for row in page:
        try:
            async with alone(database, wait=True) as conn:
                await mend(conn, [row])
        except BAD_CONTENT as error:
            log.exception("credibility.not_reconciled", what=dict(row), reason=type(error).__name__)
