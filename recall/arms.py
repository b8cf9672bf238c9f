"""
The arms of a briefing: each finds keys in the graph, dates them in the journal, and says how good its answer is.

Where the graph cannot be asked in time, an arm finds in the journal's heads instead and says so: the records are the
same, only what is known through links alone is missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from credibility.track_record import TrackRecord, scores_as_of, track_records
from journal.actors import Action, Resource, ResourceType
from journal.database import Database
from journal.deadline import Deadline
from journal.errors import BudgetExceeded, GraphUnavailable
from journal.gateway import Gateway
from kg.asof import Answer, AsOf, Dated, Ref, dated
from kg.catalog import subject_ref
from kg.engine import Graph
from kg.entries import link_key
from recall import rows as dating
from recall.model import (
    DebateItem,
    DebatesArm,
    HistoryArm,
    HistoryItem,
    Performer,
    Quality,
    Record,
    RecordsArm,
    Score,
    SettledFinding,
    TakenDecision,
    TrackRecordItem,
    TrackRecordsArm,
)

T = TypeVar("T")

GRAPH_SHARE: Final = 0.75
"""Share of the time left that the graph may take; the rest is for the journal, which dates or stands in."""

WITHOUT_GRAPH: Final = (
    "Neo4j could not be asked; this is what Postgres knows, without what is known through links alone"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many of each an answer holds."""

    analyses: int = 10
    findings: int = 5
    debates: int = 10
    speakers: int = 60
    contradictions: int = 20
    patterns: int = 10
    lessons: int = 10
    similar: int = 5


@dataclass(frozen=True, slots=True)
class Question:
    """
    What every arm is given.

    Attributes:
        subject_id: what about.
        at: the moment.
        gateway: through which everything is read.
        graph: the graph.
        deadline: when the answer is due.
        limits: how much is wanted.
        halflife_years: age at which an observation weighs half.
        for_agent: for whom, if that is known.
    """

    subject_id: str
    at: AsOf
    gateway: Gateway
    graph: Graph
    deadline: Deadline
    limits: Limits
    halflife_years: float
    for_agent: str | None = None

    @property
    def database(self) -> Database:
        """The journal."""
        return self.gateway.database

    async def read(self, kind: ResourceType, operation: Callable[[], Awaitable[T]]) -> T:
        """Run a reading operation through the gateway."""
        resource = Resource(kind, self.subject_id)
        return await self.gateway.authorize_and_execute(resource, Action.READ, operation, deadline=self.deadline)

    async def dated(self, refs: Iterable[Ref]) -> Answer:
        """Return what the journal says of *refs* at the moment."""
        return await dated(self.database, refs, self.at, deadline=self.deadline)


async def _found(
    ask: Question, name: str, limit: int, instead: Sequence[str] | None, **more: Any
) -> tuple[list[dict[str, Any]], str | None, int]:
    """
    Return the rows of a named query, or keys from the journal under ``key``; the reason if so; and how many there are.

    Args:
        instead: kinds of records to find in the journal where the graph cannot be asked; none lets the error pass.
    """
    parameters = {"subject_id": ask.subject_id, "limit": limit, **ask.at.limits, **more}
    share = ask.deadline.within_ms(ask.deadline.left_ms() * GRAPH_SHARE)
    try:
        rows = await ask.graph.read(name, parameters, deadline=share)
    except (GraphUnavailable, BudgetExceeded):
        if instead is None:
            raise
        rows = await ask.database.named(
            "records_of_subject",
            {"subject_id": ask.subject_id, "kinds": list(instead), "limit": limit, **ask.at.limits},
            deadline=ask.deadline,
        )
        return rows, WITHOUT_GRAPH, len(rows)
    return rows, None, rows[0].get("total", len(rows)) if rows else 0


def _quality(reason: str | None) -> dict[str, Any]:
    return {} if reason is None else {"quality": Quality.PARTIAL, "reason": reason}


def record(one: Dated) -> Record:
    """Return a dated record as an answer shows it."""
    return Record(
        kind=one.kind,
        key=one.key,
        core=dict(one.core),
        groups={name: dict(group) for name, group in one.groups.items()},
        known_at=one.known_at,
        occurred_at=one.occurred_at,
        corrected_at=one.corrected_at,
        more=one.has_body,
    )


# History


async def history(ask: Question) -> HistoryArm:
    """Return the newest analyses of the subject, and of its series, with what was found, decided and became of it."""
    return await ask.read(ResourceType.GRAPH, lambda: _history(ask))


async def _history(ask: Question) -> HistoryArm:
    rows, reason, total = await _found(
        ask, "company_history", ask.limits.analyses, ("Analysis",), findings_limit=ask.limits.findings
    )
    if reason is not None:
        rows = await _history_from_journal(ask, [row["key"] for row in rows])
    answer = await ask.dated(_history_refs(rows))
    kept = dating.history(rows, answer, ask.limits.analyses, ask.limits.findings)
    shown = [finding for row in kept for finding in row["findings"]]
    scores = await scores_as_of(ask.database, shown, ask.at, deadline=ask.deadline) if shown else {}
    items = [
        HistoryItem(
            subject_id=row["subject"],
            analysis=record(answer.records["Analysis", row["analysis"]]),
            performed_by=_performers(row, answer),
            findings=[
                SettledFinding(finding=record(answer.records["Finding", key]), score=_score(scores.get(key)))
                for key in row["findings"]
            ],
            findings_total=row["findings_total"],
            decisions=_decisions(row, answer),
        )
        for row in kept
    ]
    return HistoryArm(items=items, total=max(total, len(items)), **_quality(reason))


async def _history_from_journal(ask: Question, analyses: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows like those of ``company_history`` for *analyses*, as far as record heads tell."""
    rows = await ask.database.named(
        "parts_of_analyses", {"analyses": list(analyses), **ask.at.limits}, deadline=ask.deadline
    )
    parts: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        parts.setdefault((row["analysis_id"], row["kind"]), []).append(row["key"])
    return [
        {
            "subject": ask.subject_id,
            "own": True,
            "analysis": key,
            "performed_by": [],
            "findings": parts.get((key, "Finding"), []),
            "findings_total": len(parts.get((key, "Finding"), [])),
            "decisions": [{"decision": decision, "outcomes": []} for decision in parts.get((key, "Decision"), [])],
        }
        for key in analyses
    ]


def _history_refs(rows: Sequence[dict[str, Any]]) -> list[Ref]:
    refs: list[Ref] = []
    for row in rows:
        refs.append(("Analysis", row["analysis"]))
        refs += [("Finding", key) for key in row["findings"]]
        refs += [_performed(agent, row["analysis"]) for agent in row["performed_by"]]
        for taken in row["decisions"]:
            refs.append(("Decision", taken["decision"]))
            refs += [("Outcome", outcome) for outcome in taken["outcomes"]]
    return refs


def _performed(agent: str, analysis: str) -> Ref:
    return "link.PERFORMED", link_key("Agent", agent, "Analysis", analysis)


def _performers(row: dict[str, Any], answer: Answer) -> list[Performer]:
    named = [(agent, _performed(agent, row["analysis"])) for agent in row["performed_by"]]
    return [Performer(agent=agent, role=answer.links[ref].get("role")) for agent, ref in named if ref in answer.links]


def _decisions(row: dict[str, Any], answer: Answer) -> list[TakenDecision]:
    taken = []
    for one in row["decisions"]:
        decision = answer.records.get(("Decision", one["decision"]))
        if decision is not None:
            outcomes = [answer.records[ref] for key in one["outcomes"] if (ref := ("Outcome", key)) in answer.records]
            outcomes.sort(key=lambda outcome: (str(outcome.core["target_at"]), outcome.known_at, outcome.key))
            taken.append(TakenDecision(decision=record(decision), outcomes=[record(outcome) for outcome in outcomes]))
    return taken


def _score(row: Any) -> Score | None:
    if row is None:
        return None
    return Score(
        outcome=row["outcome_id"],
        vintage=row["vintage"],
        actual=row["actual"],
        right=None if row["y"] is None else bool(row["y"]),
        brier=row["brier"],
    )


# Debates


async def debates(ask: Question) -> DebatesArm:
    """Return the newest debates on the subject and how they ended."""
    return await ask.read(ResourceType.GRAPH, lambda: _debates(ask))


async def _debates(ask: Question) -> DebatesArm:
    rows, reason, total = await _found(ask, "debates_of_subject", ask.limits.debates, ("Debate",))
    if reason is not None:
        rows = [{"debate": row["key"], "disputed": None, "resolutions": []} for row in rows]
    refs: list[Ref] = [("Debate", row["debate"]) for row in rows]
    refs += [("Finding", row["disputed"]) for row in rows if row["disputed"]]
    refs += [("DebateResolution", key) for row in rows for key in row["resolutions"]]
    answer = await ask.dated(refs)
    rows = dating.newest(rows, answer, "debate", "Debate", "timestamp")[: ask.limits.debates]
    counts = await _turn_counts(ask, [answer.records["Debate", row["debate"]] for row in rows])
    items = []
    for row in rows:
        debate = answer.records["Debate", row["debate"]]
        disputed = answer.records.get(("Finding", row["disputed"])) if row["disputed"] else None
        ended = [
            answer.records[ref] for key in row["resolutions"] if (ref := ("DebateResolution", key)) in answer.records
        ]
        ended.sort(key=lambda one: (one.known_at, one.key))
        turns, speakers = counts.get(debate.key, (0, 0))
        items.append(
            DebateItem(
                debate=record(debate),
                disputed=record(disputed) if disputed is not None else None,
                resolutions=[record(one) for one in ended],
                turns=turns,
                speakers=speakers,
            )
        )
    return DebatesArm(items=items, total=max(total, len(items)), **_quality(reason))


async def _turn_counts(ask: Question, found: Sequence[Dated]) -> dict[str, tuple[int, int]]:
    stated = [(one.key, one.turns_position) for one in found if one.turns_position is not None]
    if not stated:
        return {}
    rows = await ask.database.named(
        "turn_counts",
        {"debates": [key for key, _ in stated], "positions": [position for _, position in stated]},
        deadline=ask.deadline,
    )
    return {row["debate_id"]: (row["turns"], row["speakers"]) for row in rows}


# Track records


async def speakers(ask: Question) -> TrackRecordsArm:
    """
    Return the track records of the agents that made claims about the subject, in the domains of those claims.

    They belong to what was said (docs/decisions/0012). That of *for_agent*, who may not have spoken, is shown as well:
    whether it may be seen was decided before.
    """
    return await ask.read(ResourceType.GRAPH, lambda: _speakers(ask))


async def _speakers(ask: Question) -> TrackRecordsArm:
    parameters = {"subject_id": ask.subject_id, "limit": ask.limits.speakers, **ask.at.limits}
    share = ask.deadline.within_ms(ask.deadline.left_ms() * GRAPH_SHARE)
    reason = None
    try:
        rows = await ask.graph.read("speakers_of_subject", parameters, deadline=share)
    except (GraphUnavailable, BudgetExceeded):
        rows = await ask.database.named("speakers_in_journal", parameters, deadline=ask.deadline)
        reason = WITHOUT_GRAPH
    pairs = [(row["agent"], row["domain"]) for row in rows if row["claims"]]
    if ask.for_agent is not None:
        pairs += [(ask.for_agent, domain) for domain in sorted({domain for _, domain in pairs})]
    if not pairs:
        return TrackRecordsArm(**_quality(reason))
    answer = await track_records(ask.database, pairs, ask.at, halflife_years=ask.halflife_years, deadline=ask.deadline)
    spoke = set(pairs)
    items = [track_record(one) for one in answer.records if one.n or one.abstained or (one.agent, one.domain) in spoke]
    if reason is None and answer.waiting_since is not None and answer.waiting_since <= ask.at.recorded_until:
        reason = "some outcomes are not scored yet"
    return TrackRecordsArm(items=items, total=len(items), **_quality(reason))


def track_record(one: TrackRecord) -> TrackRecordItem:
    """Return a track record as an answer shows it."""
    return TrackRecordItem(
        agent=one.agent,
        domain=one.domain,
        kind=one.kind,
        n=one.n,
        rows=one.rows,
        right=one.right,
        abstained=one.abstained,
        mean=one.mean,
        lower=one.lower,
        upper=one.upper,
        brier=one.brier,
        log_score=one.log_score,
        skill=one.skill,
        reference=one.reference,
        reference_rows=one.reference_rows,
        enough=one.enough,
        baseline=one.baseline,
    )


# Contradictions, patterns, lessons


async def contradictions(ask: Question) -> RecordsArm:
    """Return where sources disagreed about the subject's data, newest first."""

    async def answer() -> RecordsArm:
        rows, reason, total = await _found(
            ask, "contradictions_of_subject", ask.limits.contradictions, ("DataContradiction",)
        )
        rows = [{"contradiction": row.get("contradiction") or row["key"]} for row in rows]
        found = await ask.dated(("DataContradiction", row["contradiction"]) for row in rows)
        rows = dating.newest(rows, found, "contradiction", "DataContradiction", "timestamp")
        items = [
            record(found.records["DataContradiction", row["contradiction"]])
            for row in rows[: ask.limits.contradictions]
        ]
        return RecordsArm(items=items, total=max(total, len(items)), **_quality(reason))

    return await ask.read(ResourceType.GRAPH, answer)


async def patterns(ask: Question) -> RecordsArm:
    """Return the patterns that were active at the moment, of the subject's sector or of none, and nothing else."""

    async def answer() -> RecordsArm:
        limit = ask.limits.patterns * 100
        active = await dating.active_patterns(ask.database, ask.at, deadline=ask.deadline, limit=limit)
        if not active:
            return RecordsArm()
        about = subject_ref(ask.subject_id)
        found = (await ask.dated([about, *(("Pattern", key) for key in active)])).records
        sector = _sector(found.get(about))
        fitting = [one for one in found.values() if one.kind == "Pattern" and one.get("sector") in (None, sector)]
        fitting.sort(key=lambda one: (-float(one.groups.get("performance", {}).get("success_rate", 0.0)), one.key))
        items = [record(one) for one in fitting[: ask.limits.patterns]]
        return RecordsArm(items=items, total=len(fitting))

    return await ask.read(ResourceType.PATTERNS, answer)


def _sector(subject: Dated | None) -> str | None:
    if subject is None:
        return None
    sector = subject.groups.get("profile", {}).get("sector") or subject.get("sector")
    return str(sector) if sector is not None else None


async def lessons(ask: Question) -> RecordsArm:
    """Return the lessons that bear on the subject, newest first."""

    async def answer() -> RecordsArm:
        active = await dating.active_patterns(ask.database, ask.at, deadline=ask.deadline)
        rows, _, _ = await _found(ask, "lessons_of_subject", ask.limits.lessons, None, active=active)
        found = await ask.dated(("Lesson", row["lesson"]) for row in rows)
        rows = dating.lessons(rows, found, ask.limits.lessons)
        bearing = [found.records["Lesson", row["lesson"]] for row in rows]
        bearing.sort(key=lambda one: one.key)
        bearing.sort(key=lambda one: one.known_at, reverse=True)
        return RecordsArm(items=[record(one) for one in bearing], total=rows[0]["total"] if rows else 0)

    return await ask.read(ResourceType.GRAPH, answer)
