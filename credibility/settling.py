"""
The settlement step: scores due claims, updates track records, and records verdicts on decisions.

A batch reads due rows (:mod:`imem.jobs.due`), then the facts, then writes its effects and deletes the rows, in one
transaction. One process settles at a time, under a lock held for the transaction: a crash rolls the batch back and
releases the lock. Every step recomputes from what is stored, so it is idempotent.

A row that cannot be settled is set aside until its record becomes due again, or until the next reconciliation.

Verdicts are events of the journal, appended in the batch's transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from imem.credibility import store
from imem.credibility.history import Question, QuestionKey, scores_of
from imem.credibility.regimes.runs import CHANGED, SCORES
from imem.credibility.store import ScoreId, ScoreRow, StepDifference, TrackRecordKey
from imem.credibility.track_steps import ScoredClaim, steps_after, steps_of
from imem.credibility.verdicts import DecisionVerdict, missing, verdicts
from imem.jobs.due import DueRow, due_rows_of, finish_due, halving, make_due, next_due, set_due_aside
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, PostgresUnavailable
from imem.journal.events.entry import JournalEntry, Tier
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows
from imem.journal.retry import ATTEMPTS, retry
from imem.journal.settings import Role
from imem.kg.asof import END_OF_TIME, AsOfClock
from imem.kg.kinds.enums import DecisionOutcome
from imem.kg.kinds.metrics import metric_of
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of
from imem.kg.model import Decision
from imem.kg.projection.derived_values import QUEUE as GRAPH_QUEUE

log = structlog.get_logger()

ACTOR = Actor("credibility", Role.LEARNING_ENGINE, may_import=True)
"""The actor that records verdicts; it may import, to state from when each could be known."""

QUEUE = "credibility"
"""The queue of its due rows: of outcomes, findings, decisions, agents, subjects and readings of the regime."""

WRITER = "credibility"
"""The subsystem that owns the governed groups written here."""

QUESTIONS = 200
"""Questions settled in one transaction."""

DUE_ROWS = 2_000
"""Due rows read for one batch; they often belong to few questions."""

TRACKS = 20
"""Most track records recomputed in one transaction."""

TRACKS_MS = 10_000
"""How long a transaction takes on further track records, in milliseconds: to sweep a long one takes seconds."""

DECISIONS = 200
"""Decisions judged in one transaction."""

SUBJECT_KINDS = ("Company", "Market")
"""Kinds of what claims are about."""

BATCH_BUDGET_MS = 60_000
"""How long one transaction may take, in milliseconds."""


@dataclass(frozen=True, slots=True)
class SettlementResult:
    """
    Counts of what a run did.

    Attributes:
        due: due rows settled.
        scores: scores written or removed.
        tracks: track records recomputed.
        verdicts: verdicts recorded.
        stuck: due rows set aside because they could not be settled.
        more: whether work was left when the time was over.
        busy: whether another process held the settlement lock.
    """

    due: int = 0
    scores: int = 0
    tracks: int = 0
    verdicts: int = 0
    stuck: int = 0
    more: bool = False
    busy: bool = False

    def __add__(self, other: SettlementResult) -> SettlementResult:
        return SettlementResult(
            self.due + other.due,
            self.scores + other.scores,
            self.tracks + other.tracks,
            self.verdicts + other.verdicts,
            self.stuck + other.stuck,
            other.more,
            self.busy or other.busy,
        )


class SettlementLocked(ImemError):
    """Another process holds the settlement lock."""

    retryable = True


@asynccontextmanager
async def alone(database: Database, *, wait: bool = False) -> AsyncIterator[Connection]:
    """
    Open the transaction of one batch, under the settlement lock.

    Args:
        wait: whether to wait for the lock.

    Raises:
        SettlementLocked: another process holds the lock, and *wait* is false.
    """
    async with database.transaction(Deadline.after_ms(BATCH_BUDGET_MS)) as conn:
        if wait:
            await rows(conn, "settle_lock_wait")
        elif not (await rows(conn, "settle_lock"))[0]["held"]:
            raise SettlementLocked("Another process is settling.")
        await rows(conn, "settle_plans")
        yield conn


async def settle_due(
    database: Database, gateway: Gateway, *, halflife_years: float, until: Deadline, questions: int = QUESTIONS
) -> SettlementResult:
    """
    Settle due rows until none is left or *until* has passed.

    Args:
        database: Postgres.
        gateway: appends verdicts, as :data:`ACTOR`.
        halflife_years: age at which an observation weighs half, for agents whose record names none.
        until: when to stop and leave the rest due; a batch that has begun is finished.
        questions: most questions of one transaction.

    Raises:
        PostgresUnavailable: committed batches stay settled; the rest is still due.
    """
    total = SettlementResult()
    await database.commit("note_open_writers", deadline=Deadline.after_ms(BATCH_BUDGET_MS))
    stages: tuple[Callable[[], Awaitable[SettlementResult]], ...] = (
        # Agents and contexts before questions: else what a load describes would make its questions due twice.
        lambda: settle_agents(database),
        lambda: settle_contexts(database),
        lambda: settle_questions(database, questions=questions),
        lambda: settle_tracks(database, halflife_years=halflife_years),
        lambda: settle_decisions(database, gateway),
    )
    try:
        while True:
            before = total
            for stage in stages:
                total = await _drain(stage, until, total)
                if until.passed:
                    return total + SettlementResult(more=True)
            if total == before:
                return total
    except SettlementLocked:
        return total + SettlementResult(busy=True)


async def _drain(
    stage: Callable[[], Awaitable[SettlementResult]], until: Deadline, total: SettlementResult
) -> SettlementResult:
    """Run *stage* until it finds nothing to do; retry a batch that fails with PostgresUnavailable."""
    while not until.passed:
        done = await retry(stage, deadline=until, errors=PostgresUnavailable, attempts=ATTEMPTS)
        if done == SettlementResult():
            break
        total += done
    return total


# Questions


async def settle_questions(database: Database, *, questions: int = QUESTIONS) -> SettlementResult:
    """
    Score the claims of the oldest questions that are due.

    A failing batch is halved until a single question is left, which is set aside.

    Raises:
        SettlementLocked: another process holds the settlement lock.
    """
    return await halving(
        lambda size: _settle_questions(database, size), questions, lambda error: _set_question_aside(database, error)
    )


async def _set_question_aside(database: Database, error: Exception) -> SettlementResult:
    async with alone(database) as conn:
        keys = await _due_questions(conn, 1)
        return await _set_aside(conn, due_rows_of(await rows(conn, "due_of_questions", store.columns_of(keys))), error)


async def _set_aside(conn: Connection, due: Sequence[DueRow], error: Exception) -> SettlementResult:
    await set_due_aside(conn, QUEUE, due, error)
    return SettlementResult(stuck=len(due))


async def _due_questions(conn: Connection, questions: int) -> list[QuestionKey]:
    found = await rows(conn, "due_questions", {"rows": DUE_ROWS, "questions": questions})
    return [QuestionKey(row["subject_id"], row["metric"], row["target_at"]) for row in found]


async def _settle_questions(database: Database, questions: int) -> SettlementResult:
    async with alone(database) as conn:
        keys = await _due_questions(conn, questions)
        if not keys:
            due = due_rows_of(await rows(conn, "due_orphans", {"rows": DUE_ROWS}))
            await finish_due(conn, QUEUE, due)
            return SettlementResult(due=len(due))
        # Rows before facts: a statement recorded after this line makes the question due again.
        due = due_rows_of(await rows(conn, "due_of_questions", store.columns_of(keys)))
        difference = await recompute_scores(conn, keys)
        await difference.write(conn, min((one.created_at for one in due), default=None))
        await finish_due(conn, QUEUE, due)
        return SettlementResult(due=len(due), scores=len(difference.written) + len(difference.removed))


@dataclass(frozen=True, slots=True)
class ScoreDifference:
    """
    Difference between recomputed and stored scores.

    Attributes:
        written: rows that are new or changed.
        removed: rows that are no longer valid.
        touched: changed and removed rows, both their new and old versions.
        claims: number of recomputed scores.
    """

    written: Sequence[ScoreRow]
    removed: Sequence[ScoreId]
    touched: Sequence[ScoreRow]
    claims: int

    async def write(self, conn: Connection, since: datetime | None) -> None:
        """Write the difference, and make dependent track records and decisions due; *since*: oldest cause, or now."""
        if not self.touched:
            return
        await store.write_scores(conn, self.written, self.removed)
        findings = sorted({row[0] for row in self.touched})
        await make_due(conn, GRAPH_QUEUE, "settled_by", findings)
        await execute(conn, "due_citing", {"findings": findings})
        changed = self.changed_from()
        pairs = sorted(changed)
        await execute(
            conn,
            "due_tracks",
            {
                "agents": [pair.agent for pair in pairs],
                "domains": [pair.domain for pair in pairs],
                "known_from": [changed[pair][AsOfClock.KNOWN] for pair in pairs],
                "recorded_from": [changed[pair][AsOfClock.RECORDED] for pair in pairs],
                "since": since or (await rows(conn, "database_now"))[0]["now"],
            },
        )

    def changed_from(self) -> dict[TrackRecordKey, dict[AsOfClock, datetime]]:
        """Return, for each affected track record, the first moment on each clock at which anything differs."""
        found: dict[TrackRecordKey, dict[AsOfClock, datetime]] = {}
        versions: dict[ScoreId, list[ScoreRow]] = {}
        for row in self.touched:
            versions.setdefault(row[:3], []).append(row)
        for written in versions.values():
            for clock, first in _first_changes(written).items():
                for pair in {TrackRecordKey(row[_AGENT], row[_DOMAIN]) for row in written}:
                    moments = found.setdefault(pair, dict.fromkeys(AsOfClock, END_OF_TIME))
                    moments[clock] = min(moments[clock], first)
        return found


def _first_changes(rows: Sequence[ScoreRow]) -> dict[AsOfClock, datetime]:
    """
    Return the first moment on each clock at which two versions of a score differ.

    Args:
        rows: both versions, or the only one; a clock without a difference gets the end of time.
    """
    found = {}
    for clock, (start, end) in _SPANS.items():
        starts = [row[start] for row in rows if row[start] is not None]
        ends = [row[end] for row in rows]
        if len(rows) == 2 and len(set(starts)) == 1 and len(starts) == 2 and _content(rows[0]) == _content(rows[1]):
            # Only the end of its validity differs.
            moments = [at for at in ends if at is not None] if ends[0] != ends[1] else []
        else:
            moments = starts
        found[clock] = min(moments, default=END_OF_TIME)
    return found


async def recompute_scores(conn: Connection, keys: Sequence[QuestionKey]) -> ScoreDifference:
    """Recompute every score of the given questions from the journal and compare them with those stored."""
    wanted: dict[ScoreId, ScoreRow] = {}
    for question in await store.questions(conn, keys):
        for row in _rows(question):
            wanted[row[:3]] = row
    stored = await store.stored_scores(conn, keys)
    written = [row for identity, row in wanted.items() if stored.get(identity) != row]
    removed = [identity for identity in stored if identity not in wanted]
    touched = [*written, *(stored[row[:3]] for row in written if row[:3] in stored), *(stored[one] for one in removed)]
    return ScoreDifference(written, removed, touched, len(wanted))


_AGENT, _DOMAIN = (store.SCORE_COLUMNS.index(name) for name in TrackRecordKey._fields)

_SPANS = {
    AsOfClock.KNOWN: (store.SCORE_COLUMNS.index("known_at"), store.SCORE_COLUMNS.index("superseded_known_at")),
    AsOfClock.RECORDED: (store.SCORE_COLUMNS.index("recorded_at"), store.SCORE_COLUMNS.index("superseded_recorded_at")),
}
"""Columns of a score's validity interval, by clock."""

_CONTENT = store.SCORE_COLUMNS.index("known_at")


def _content(row: ScoreRow) -> ScoreRow:
    """Return a score's row without its validity intervals."""
    return row[:_CONTENT]


def _rows(question: Question) -> list[ScoreRow]:
    metric = metric_of(question.key.metric)
    if metric is None:
        # It was registered in the process that loaded it, not in this one. Existing scores stay.
        raise LookupError(
            f"The metric {question.key.metric!r} is not known to the worker: set there what it was loaded with, "
            "IMEM_METRICS_FILE or IMEM_METRICS."
        )
    return [store.row_of(score, question.key) for score in scores_of(question, metric)]


# Agents


async def settle_agents(database: Database) -> SettlementResult:
    """
    Make the questions due on which a present or former baseline has claims: their reference may have changed.

    Raises:
        SettlementLocked: another process holds the settlement lock.
    """
    async with alone(database) as conn:
        return SettlementResult(due=await _due_of_agents(conn))


async def _due_of_agents(conn: Connection) -> int:
    due = await next_due(conn, QUEUE, ("Agent",), DUE_ROWS)
    if due:
        profiles = await rows(conn, "baseline_profiles", {"agents": sorted(one.key for one in due)})
        agents = sorted({row["agent"] for row in profiles})
        if agents:
            since = min(one.created_at for one in due)
            await execute(conn, "due_questions_of_agents", {"agents": agents, "since": since})
        await finish_due(conn, QUEUE, due)
    return len(due)


# Contexts


async def settle_contexts(database: Database) -> SettlementResult:
    """
    Make the scored claims due whose context may have changed: on a subject that was described, or in a regime.

    Raises:
        SettlementLocked: another process holds the settlement lock.
    """
    async with alone(database) as conn:
        return SettlementResult(due=await _due_of_contexts(conn))


async def _due_of_contexts(conn: Connection) -> int:
    due = await next_due(conn, QUEUE, (*SUBJECT_KINDS, "RegimeReading"), DUE_ROWS)
    since = min((one.created_at for one in due), default=None)
    subjects = [one for one in due if one.kind in SUBJECT_KINDS]
    readings = [one for one in due if one.kind == "RegimeReading"]
    if subjects:
        kinds = {"kinds": [one.kind for one in subjects]}
        await execute(conn, "due_claims_on_subjects", {**kinds, **_positions(subjects), "since": since})
    if readings:
        market = {"market": store.MARKET, "since": since}
        await execute(conn, "due_claims_in_regimes", {**_positions(readings), **market})
    await finish_due(conn, QUEUE, due)
    return len(due)


async def make_dependents_due(conn: Connection) -> None:
    """Make all claims due that depend on what is due of agents, subjects and regimes, in *conn*'s transaction."""
    while await _due_of_agents(conn) + await _due_of_contexts(conn):
        pass


def _positions(due: Sequence[DueRow]) -> dict[str, list[Any]]:
    return {"keys": [one.key for one in due], "positions": [one.position or 0 for one in due]}


# Track records


async def settle_tracks(database: Database, *, halflife_years: float, limit: int = TRACKS) -> SettlementResult:
    """
    Update due track records: from the first change on, or whole if the sweep cannot resume there.

    Raises:
        SettlementLocked: another process holds the settlement lock.
    """
    enough = Deadline.after_ms(TRACKS_MS)
    async with alone(database) as conn:
        due = []
        for row in await rows(conn, "claim_tracks", {"limit": limit}):
            since = {AsOfClock.KNOWN: row["known_from"], AsOfClock.RECORDED: row["recorded_from"]}
            await recompute_track_record(conn, TrackRecordKey(row["agent"], row["domain"]), halflife_years, since=since)
            due.append(row)
            if enough.passed:
                break
        if due:
            ordered = sorted(due, key=lambda row: (row["agent"], row["domain"]))
            await execute(
                conn,
                "delete_track_due",
                {
                    "agents": [row["agent"] for row in ordered],
                    "domains": [row["domain"] for row in ordered],
                    "versions": [row["version"] for row in ordered],
                },
            )
            await make_due(conn, SCORES, CHANGED, [f"{row['agent']}/{row['domain']}" for row in ordered])
        return SettlementResult(tracks=len(due))


async def recompute_track_record(
    conn: Connection, pair: TrackRecordKey, halflife_years: float, *, since: Mapping[AsOfClock, datetime] | None = None
) -> StepDifference:
    """
    Recompute one track record, write it, and return how its stored steps differed.

    Args:
        since: by clock, the first moment at which anything changed; steps before it are not recomputed. None
            recomputes everything.
    """
    halflife = await store.halflife_of(conn, pair, halflife_years)
    differing = StepDifference()
    scores: list[ScoredClaim] | None = None
    for clock in AsOfClock:
        first = since[clock] if since is not None else None
        if first == END_OF_TIME:
            continue
        resumed = await store.resumable(conn, pair, clock, first, halflife) if first is not None else None
        if resumed is not None:
            start, changed = resumed
            found = steps_after(start, changed, clock, halflife)
        else:
            first = None
            await rows(conn, "sweep_idle_timeout")
            if scores is None:
                scores = await store.scores_of(conn, pair)
            found = steps_of(scores, clock, halflife)
        differing += await store.write_steps(conn, pair, clock, found.steps, halflife, since=first)
        differing += await store.write_cells(conn, pair, clock, found.cells, halflife, since=first)
        differing += await store.write_observations(conn, pair, clock, found.observations, since=first)
    return differing


# Decisions


async def settle_decisions(database: Database, gateway: Gateway, *, limit: int = DECISIONS) -> SettlementResult:
    """
    Record the missing verdicts on due decisions.

    Raises:
        SettlementLocked: another process holds the settlement lock.
    """
    return await halving(
        lambda size: _settle_decisions(database, gateway, size),
        limit,
        lambda error: _set_decision_aside(database, error),
    )


async def _set_decision_aside(database: Database, error: Exception) -> SettlementResult:
    async with alone(database) as conn:
        return await _set_aside(conn, await next_due(conn, QUEUE, ("Decision",), 1), error)


async def _settle_decisions(database: Database, gateway: Gateway, limit: int) -> SettlementResult:
    async with alone(database) as conn:
        due = await next_due(conn, QUEUE, ("Decision",), limit)
        await finish_due(conn, QUEUE, due)
        recorded = await judge_decisions(conn, gateway, sorted({one.key for one in due})) if due else {}
    if recorded:
        await gateway.publish_wakeup(tuple(Tier))
    return SettlementResult(due=len(due), verdicts=sum(len(found) for found in recorded.values()))


async def judge_decisions(
    conn: Connection, gateway: Gateway, decisions: Sequence[str]
) -> dict[str, list[DecisionVerdict]]:
    """
    Record the missing verdicts on *decisions* and return them, by decision.

    *conn*'s transaction holds the settlement lock, and commits the verdicts; nothing is read or written after them.
    """
    cited = await store.citations(conn, decisions)
    findings = {one.value.finding_id for links in cited.values() for link in links.values() for one in link}
    claims, marks = await store.cited_claims(conn, findings), await store.marks(conn, findings)
    stances = await store.stances(conn, decisions)
    recorded = await store.recorded_verdicts(conn, decisions)
    found: dict[str, list[DecisionVerdict]] = {}
    for decision in decisions:
        wanted = verdicts(cited.get(decision, {}), marks, claims, stances.get(decision, []))
        to_record = missing(wanted, recorded.get(decision, []))
        if to_record:
            found[decision] = to_record
    entries = [_entry(decision, verdict) for decision, to_record in found.items() for verdict in to_record]
    if entries:
        await gateway.append_in(
            conn, entries, actor=ACTOR, action=Action.APPEND_CREDIBILITY, deadline=Deadline.after_ms(BATCH_BUDGET_MS)
        )
    return found


def _entry(decision: str, verdict: DecisionVerdict) -> JournalEntry:
    outcome = Decision.Outcome(outcome=DecisionOutcome(verdict.outcome))
    return entry_of(groups_of(Decision, decision, {"outcome": outcome}, known_at=verdict.known_at, writer=WRITER))
