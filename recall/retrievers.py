"""
Retrievers of a briefing's sections: each finds keys in the graph and reads their values as of the moment in Postgres.

``*_in_journal`` are the fallbacks without Neo4j: they find the keys in the journal's record heads, so what is known
through links alone is missing, and the section is labelled partial. ``*_sampled`` read half of the rows.
:mod:`imem.recall.requests` decides which one runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from imem.credibility.track_record import TrackRecord, scores_as_of, scores_until, track_records
from imem.journal.arguments import check_int
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf, AsOfClock, RecordAsOf, Ref, ValuesAsOf, dated
from imem.kg.engine import Graph
from imem.kg.kinds.catalog import subject_ref
from imem.kg.kinds.metrics import unit_of
from imem.kg.load_format.entries import link_key
from imem.kg.views import OF_NO_SECTOR, TOP_PATTERNS, view
from imem.recall import dated_rows as dating
from imem.recall.model import (
    BriefingSection,
    ClaimSummary,
    Completeness,
    DatedRecord,
    DebateItem,
    DebatesSection,
    FindingScore,
    HistoryItem,
    HistorySection,
    Performer,
    Quality,
    RecordsSection,
    ReviewedDecision,
    SettledFinding,
    SubjectSection,
    TrackRecordItem,
    TrackRecordsSection,
)

A = TypeVar("A", bound=BriefingSection)

FIRST_PATTERNS: Final = 100
"""Active patterns that the fallback considers."""

GRAPH_SHARE: Final = 0.75
"""Share of the time left for the graph; the rest is for Postgres."""

WITHOUT_GRAPH: Final = (
    "Neo4j could not be asked; this is what Postgres knows, without what is known through links alone"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """
    Most items of each sort in an answer.

    Attributes:
        analyses: analyses in a history.
        findings: findings of an analysis.
        detailed: newest analyses of a history that are shown with findings; others with their conclusion alone.
    """

    analyses: int = 30
    findings: int = 40
    debates: int = 10
    speakers: int = 60
    contradictions: int = 20
    patterns: int = 10
    lessons: int = 10
    similar: int = 5
    detailed: int = 2

    def __post_init__(self) -> None:
        """Check that each limit is a whole number; BadInput names the limit."""
        for limit in fields(self):
            check_int(f"limits.{limit.name}", getattr(self, limit.name))


@dataclass(frozen=True, slots=True)
class RetrievalRequest:
    """
    Arguments of a retriever.

    Attributes:
        subject_id: the subject.
        at: the resolved as-of.
        gateway: authorizes and audits every read.
        graph: the Neo4j client.
        deadline: when the answer is due.
        limits: most items of each sort.
        halflife_years: age at which an observation weighs half.
        for_agent: the agent that asks, if known.
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
        """Postgres."""
        return self.gateway.database

    async def dated(self, refs: Iterable[Ref]) -> ValuesAsOf:
        """Return the values of *refs* as of the moment, from Postgres."""
        return await dated(self.database, refs, self.at, deadline=self.deadline)


async def _found(request: RetrievalRequest, name: str, limit: int, **more: Any) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of a named graph query, and the total before the limit."""
    parameters = {"subject_id": request.subject_id, "limit": limit, **request.at.limits, **more}
    share = request.deadline.within_ms(request.deadline.left_ms() * GRAPH_SHARE)
    rows = await request.graph.read(name, parameters, deadline=share)
    return rows, rows[0].get("total", len(rows)) if rows else 0


async def _in_journal(request: RetrievalRequest, kind: str, limit: int) -> list[str]:
    """Return the keys of the newest records of *kind* about the subject, from record heads."""
    rows = await request.database.named(
        "records_of_subject",
        {"subject_id": request.subject_id, "kinds": [kind], "limit": limit, **request.at.limits},
        deadline=request.deadline,
    )
    return [row["key"] for row in rows]


def _mark_partial(section: A, completeness: Completeness = Completeness.TOP_N, reason: str = WITHOUT_GRAPH) -> A:
    """Return *section* labelled as a fallback."""
    return section.model_copy(update={"quality": Quality.PARTIAL, "reason": reason, "completeness": completeness})


def record(one: RecordAsOf) -> DatedRecord:
    """Return a dated record as an answer shows it."""
    return DatedRecord(
        kind=one.kind,
        key=one.key,
        core=dict(one.core),
        groups={name: dict(group) for name, group in one.groups.items()},
        known_at=one.known_at,
        occurred_at=one.occurred_at,
        corrected_at=one.corrected_at,
        more=one.has_body,
    )


# The subject


async def about(request: RetrievalRequest) -> SubjectSection:
    """Return the subject's own record; none if only other records mention it."""
    ref = subject_ref(request.subject_id)
    found = (await request.dated([ref])).records.get(ref)
    return SubjectSection(record=record(found) if found is not None else None, total=int(found is not None))


# History


async def history(request: RetrievalRequest) -> HistorySection:
    """Return the newest analyses of the subject and its series, with findings, decisions and outcomes."""
    wanted = {"detailed": request.limits.detailed, "findings_limit": request.limits.findings}
    rows, total = await _found(request, "company_history", request.limits.analyses, **wanted)
    return await _history(request, rows, total)


async def history_in_journal(request: RetrievalRequest) -> HistorySection:
    """Return the subject's newest analyses from record heads: without links, without those of its series."""
    keys = await _in_journal(request, "Analysis", request.limits.analyses)
    return _mark_partial(await _history(request, await _history_from_journal(request, keys), len(keys)))


async def _history(request: RetrievalRequest, rows: Sequence[dict[str, Any]], total: int) -> HistorySection:
    answer = await request.dated(_history_refs(rows))
    kept = dating.history(rows, answer, request.limits.analyses, request.limits.findings, request.limits.detailed)
    shown = [finding for row in kept for finding in row["findings"]]
    scores, claims = await asyncio.gather(
        _scores(request, shown),
        claims_settled(request, [row["analysis"] for row in kept]),
    )
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
            claims=claims.get(row["analysis"]),
        )
        for row in kept
    ]
    return HistorySection(items=items, total=max(total, len(items)))


async def _scores(request: RetrievalRequest, findings: Sequence[str]) -> Mapping[str, Any]:
    return await scores_as_of(request.database, findings, request.at, deadline=request.deadline) if findings else {}


async def claims_settled(request: RetrievalRequest, analyses: Sequence[str]) -> dict[str, ClaimSummary]:
    """Return how the claims of the given analyses turned out, by analysis; those without a claim are left out."""
    if not analyses:
        return {}
    until = await scores_until(request.database, request.at, deadline=request.deadline)
    given = {"analyses": list(analyses), "clock": request.at.clock.value, "until": until, **request.at.limits}
    rows = await request.database.named("claims_of_analyses", given, deadline=request.deadline)
    return {row.pop("analysis_id"): _claims(row) for row in rows}


def _claims(row: dict[str, Any]) -> ClaimSummary:
    """Return how claims turned out; metric, period and actual only if all claims are about one question in one unit."""
    stated, metric = row.pop("units"), row["metric"]
    units = {unit_of(metric, one) for one in stated} if metric is not None else set()
    if len(units) == 1:
        return ClaimSummary.model_validate({**row, "unit": units.pop()})
    return ClaimSummary.model_validate({**row, **dict.fromkeys(("metric", "period_start", "target_at", "actual"))})


async def _history_from_journal(request: RetrievalRequest, analyses: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows like those of ``company_history`` for *analyses*, from record heads."""
    detailed = set(analyses[: request.limits.detailed])
    rows, told = await asyncio.gather(
        request.database.named(
            "parts_of_analyses", {"analyses": list(analyses), **request.at.limits}, deadline=request.deadline
        ),
        request.database.named(
            "speakers_of_analyses", {"analyses": sorted(detailed), **request.at.limits}, deadline=request.deadline
        ),
    )
    voices = {row["analysis_id"]: row for row in told}
    parts: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        parts.setdefault((row["analysis_id"], row["kind"]), []).append(row["key"])
    return [
        {
            "subject": request.subject_id,
            "own": True,
            "analysis": key,
            "performed_by": [],
            "makers": voices[key]["makers"] if key in voices else [],
            "baselines": voices[key]["speakers"] if key in voices else [],
            "findings": parts.get((key, "Finding"), []) if key in detailed else [],
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
        refs += [("Agent", agent) for agent in row["baselines"]]
        for taken in row["decisions"]:
            refs.append(("Decision", taken["decision"]))
            refs += [("Outcome", outcome) for outcome in taken["outcomes"]]
    return refs


def _performed(agent: str, analysis: str) -> Ref:
    return "link.PERFORMED", link_key("Agent", agent, "Analysis", analysis)


def _performers(row: dict[str, Any], answer: ValuesAsOf) -> list[Performer]:
    named = [(agent, _performed(agent, row["analysis"])) for agent in row["performed_by"]]
    return [Performer(agent=agent, role=answer.links[ref].get("role")) for agent, ref in named if ref in answer.links]


def _decisions(row: dict[str, Any], answer: ValuesAsOf) -> list[ReviewedDecision]:
    taken = []
    for one in row["decisions"]:
        decision = answer.records.get(("Decision", one["decision"]))
        if decision is not None:
            outcomes = [answer.records[ref] for key in one["outcomes"] if (ref := ("Outcome", key)) in answer.records]
            outcomes.sort(key=lambda outcome: (str(outcome.core["target_at"]), outcome.known_at, outcome.key))
            taken.append(
                ReviewedDecision(decision=record(decision), outcomes=[record(outcome) for outcome in outcomes])
            )
    return taken


def _score(row: Any) -> FindingScore | None:
    if row is None:
        return None
    return FindingScore(
        outcome=row["outcome_id"],
        vintage=row["vintage"],
        actual=row["actual"],
        right=None if row["y"] is None else bool(row["y"]),
        brier=row["brier"],
    )


# Debates


async def debates(request: RetrievalRequest) -> DebatesSection:
    """Return the newest debates on the subject and how they ended."""
    return await _debates(request, *await _found(request, "debates_of_subject", request.limits.debates))


async def debates_in_journal(request: RetrievalRequest) -> DebatesSection:
    """Return the newest debates from record heads: without the disputed finding and the resolutions."""
    keys = await _in_journal(request, "Debate", request.limits.debates)
    return _mark_partial(
        await _debates(request, [{"debate": key, "disputed": None, "resolutions": []} for key in keys], len(keys))
    )


async def _debates(request: RetrievalRequest, rows: Sequence[dict[str, Any]], total: int) -> DebatesSection:
    refs: list[Ref] = [("Debate", row["debate"]) for row in rows]
    refs += [("Finding", row["disputed"]) for row in rows if row["disputed"]]
    refs += [("DebateResolution", key) for row in rows for key in row["resolutions"]]
    answer = await request.dated(refs)
    rows = dating.newest(rows, answer, "debate", "Debate", "timestamp")[: request.limits.debates]
    counts = await _turn_counts(request, [answer.records["Debate", row["debate"]] for row in rows])
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
    return DebatesSection(items=items, total=max(total, len(items)))


async def _turn_counts(request: RetrievalRequest, found: Sequence[RecordAsOf]) -> dict[str, tuple[int, int]]:
    stated = [(one.key, one.turns_position) for one in found if one.turns_position is not None]
    if not stated:
        return {}
    rows = await request.database.named(
        "turn_counts",
        {"debates": [key for key, _ in stated], "positions": [position for _, position in stated]},
        deadline=request.deadline,
    )
    return {row["debate_id"]: (row["turns"], row["speakers"]) for row in rows}


# Track records


async def speakers(request: RetrievalRequest) -> TrackRecordsSection:
    """
    Return the track records of the agents that made claims about the subject, in the domains of those claims.

    An actor that may read the claims may read these (docs/decisions/0012). That of *for_agent* is added without claims;
    the caller has authorized it.
    """
    (row,), _ = await _found(request, "speakers_of_subject", request.limits.speakers)
    return await _speakers(request, row["speakers"])


async def speakers_in_journal(request: RetrievalRequest) -> TrackRecordsSection:
    """Return track records of agents with claims about the subject itself, without its series."""
    return _mark_partial(await _speakers(request, await _speakers_in_journal(request, half=False)))


async def speakers_sampled(request: RetrievalRequest) -> TrackRecordsSection:
    """Return track records of the agents in a sample of half of the findings about the subject."""
    return _mark_partial(await _speakers(request, await _speakers_in_journal(request, half=True)), Completeness.SAMPLED)


async def _speakers_in_journal(request: RetrievalRequest, *, half: bool) -> list[dict[str, Any]]:
    parameters = {"subject_id": request.subject_id, "limit": request.limits.speakers, "half": half, **request.at.limits}
    return await request.database.named("speakers_in_journal", parameters, deadline=request.deadline)


async def _speakers(request: RetrievalRequest, rows: Sequence[dict[str, Any]]) -> TrackRecordsSection:
    pairs = [(row["agent"], row["domain"]) for row in rows if row["claims"]]
    if request.for_agent is not None:
        pairs += [(request.for_agent, domain) for domain in sorted({domain for _, domain in pairs})]
    if not pairs:
        return TrackRecordsSection()
    answer = await track_records(
        request.database, pairs, request.at, halflife_years=request.halflife_years, deadline=request.deadline
    )
    spoke = set(pairs)
    items = [track_record(one) for one in answer.records if one.n or one.abstained or (one.agent, one.domain) in spoke]
    section = TrackRecordsSection(items=items, total=len(items))
    if answer.waiting_since is not None and answer.waiting_since <= request.at.recorded_until:
        return section.model_copy(update={"quality": Quality.PARTIAL, "reason": "some outcomes are not scored yet"})
    return section


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
        skill_lower=one.skill_lower,
        skill_upper=one.skill_upper,
        reference=one.reference,
        reference_rows=one.reference_rows,
        evidence=one.evidence,
        baseline=one.baseline,
    )


# Contradictions, patterns, lessons


async def contradictions(request: RetrievalRequest) -> RecordsSection:
    """Return contradictions between sources about the subject's data: open ones first, by priority, then the newest."""
    rows, total = await _found(request, "contradictions_of_subject", request.limits.contradictions)
    return await _contradictions(request, rows, total)


async def contradictions_in_journal(request: RetrievalRequest) -> RecordsSection:
    """Return the subject's contradictions from record heads."""
    given = {"subject_id": request.subject_id, "limit": request.limits.contradictions, **request.at.limits}
    rows = await request.database.named("contradictions_in_journal", given, deadline=request.deadline)
    return _mark_partial(await _contradictions(request, rows, rows[0]["total"] if rows else 0))


async def _contradictions(request: RetrievalRequest, rows: Sequence[dict[str, Any]], total: int) -> RecordsSection:
    found = await request.dated(("DataContradiction", row["contradiction"]) for row in rows)
    rows = dating.contradictions(rows, found, request.limits.contradictions)
    items = [record(found.records["DataContradiction", row["contradiction"]]) for row in rows]
    return RecordsSection(items=items, total=max(total, len(items)))


async def patterns(request: RetrievalRequest) -> RecordsSection:
    """Return the patterns that were active at the moment, of the subject's sector or of none, the best first."""
    return await _patterns(request, dating.MOST_PATTERNS)


async def patterns_first(request: RetrievalRequest) -> RecordsSection:
    """Return the best of the first :data:`FIRST_PATTERNS` active patterns."""
    reason = f"the time was over; these are of the first {FIRST_PATTERNS} active patterns of its sector"
    return _mark_partial(await _patterns(request, FIRST_PATTERNS), reason=reason)


async def _patterns(request: RetrievalRequest, among: int) -> RecordsSection:
    sector = await _sector(request)
    given = {"sector": sector, "among": among, "limit": request.limits.patterns, **request.at.limits}
    rows = await request.database.named("patterns_at", given, deadline=request.deadline)
    found = (await request.dated(("Pattern", row["key"]) for row in rows)).records
    items = [record(found["Pattern", row["key"]]) for row in rows]
    return RecordsSection(items=items, total=rows[0]["total"] if rows else 0)


async def _sector(request: RetrievalRequest) -> str | None:
    """Return the sector of the subject at the moment; None if unknown."""
    ref = subject_ref(request.subject_id)
    subject = (await request.dated([ref])).records.get(ref)
    if subject is None:
        return None
    sector = subject.groups.get("profile", {}).get("sector") or subject.get("sector")
    return str(sector) if sector is not None else None


async def lessons(request: RetrievalRequest) -> RecordsSection:
    """Return the lessons that bear on the subject, newest first."""
    active = await dating.active_patterns(request.database, request.subject_id, request.at, deadline=request.deadline)
    rows, _ = await _found(request, "lessons_of_subject", request.limits.lessons, active=active)
    found = await request.dated(("Lesson", row["lesson"]) for row in rows)
    rows = dating.lessons(rows, found, request.limits.lessons)
    return _lessons([found.records["Lesson", row["lesson"]] for row in rows], rows[0]["total"] if rows else 0)


async def lessons_in_journal(request: RetrievalRequest) -> RecordsSection:
    """Return the newest lessons for the domains of records about the subject, from record heads."""
    return _mark_partial(await _lessons_in_journal(request, half=False))


async def lessons_sampled(request: RetrievalRequest) -> RecordsSection:
    """Return a sample of half of the lessons."""
    return _mark_partial(await _lessons_in_journal(request, half=True), Completeness.SAMPLED)


async def _lessons_in_journal(request: RetrievalRequest, *, half: bool) -> RecordsSection:
    parameters = {"subject_id": request.subject_id, "limit": request.limits.lessons, "half": half, **request.at.limits}
    rows = await request.database.named("lessons_in_journal", parameters, deadline=request.deadline)
    found = await request.dated(("Lesson", row["key"]) for row in rows)
    bearing = [found.records["Lesson", row["key"]] for row in rows if ("Lesson", row["key"]) in found.records]
    return _lessons(bearing, rows[0]["total"] if rows else 0)


def _lessons(bearing: list[RecordAsOf], total: int) -> RecordsSection:
    bearing.sort(key=lambda one: one.key)
    bearing.sort(key=lambda one: one.known_at, reverse=True)
    return RecordsSection(items=[record(one) for one in bearing], total=total)


# Patterns from the materialised view


async def patterns_of_view(request: RetrievalRequest) -> RecordsSection:
    """
    Return the most successful active patterns of the subject's sector and of no sector, from the materialised view.

    The view holds the best hundred of each, as of now. With an as-of, or before the view was first built, this is
    :func:`patterns_first`.
    """
    if request.at.asked is not None or request.at.clock is not AsOfClock.KNOWN:
        return await patterns_first(request)
    sector = await _sector(request)
    keys = [OF_NO_SECTOR] if sector is None else [OF_NO_SECTOR, sector]
    made = [row for key in keys if (row := await view(request.database, TOP_PATTERNS, key, deadline=request.deadline))]
    if not made:
        return await patterns_first(request)
    best = [pattern for row in made for pattern in row.value or ()]
    best.sort(key=lambda one: (-float(one["success_rate"] or 0.0), one["pattern_id"]))
    refs = [("Pattern", one["pattern_id"]) for one in best[: request.limits.patterns]]
    found = (await request.dated(refs)).records
    section = RecordsSection(items=[record(found[ref]) for ref in refs if ref in found], total=len(best))
    return _mark_partial(
        section, reason=f"the time was over; these are of a view that was made {made[0].age_s:,.0f} s ago"
    )
