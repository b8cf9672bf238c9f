"""The history of a subject: its analyses with findings, decisions and outcomes, one line each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pydantic import Field

from imem.credibility.track_record import BASELINE, scores_as_of
from imem.kg.asof import Ref, ValuesAsOf
from imem.kg.load_format.entries import link_key
from imem.recall.answers import AnswerModel, BriefingSection, ClaimSummary, DatedRecord, ReviewedDecision
from imem.recall.dated_rows import DatedQuery, Row, newest_rows
from imem.recall.rendering.formatting import (
    conclusion,
    decision_text,
    label,
    quote_lead,
    result_text,
    when,
    with_noun,
)
from imem.recall.rendering.rendered import RenderContext, RenderedSection, faded, follow_up_call, rendered_section
from imem.recall.retrievers import RetrievalRequest, claims_settled, graph_rows, journal_keys, mark_partial, record
from imem.recall.sections import lone_decisions
from imem.recall.sections.changes import changes
from imem.recall.sections.lone_decisions import with_lone_decisions
from imem.recall.sections.missing_verdicts import missing_verdicts
from imem.recall.sections.newest import analysis_text, newest
from imem.recall.sections.spec import SectionSpec

WORTH: Final = 1.0
FADING: Final = 0.97
"""Worth of a line, as a share of the line before it: last week's analysis is worth nearly as much as yesterday's."""

SUMMARY_CHARS: Final = 70
"""Longest quotation of a summary, for an analysis without a conclusion, in characters."""


class FindingScore(AnswerModel):
    """
    How a finding turned out.

    Attributes:
        outcome: key of the outcome that settled it.
        vintage: version of the number, 0 for the first published.
        actual: the outcome's value.
        right: whether the finding was right; none when it took no side.
        brier: squared error of its probability, where it gave one.
    """

    outcome: str
    vintage: int
    actual: float
    right: bool | None
    brier: float | None = None


class SettledFinding(AnswerModel):
    """A finding and, once an outcome settled it, its score."""

    finding: DatedRecord
    score: FindingScore | None = None


class Performer(AnswerModel):
    """An agent that ran an analysis, and its role."""

    agent: str
    role: str | None = None


class HistoryItem(AnswerModel):
    """
    An analysis with its findings, decisions and outcomes.

    Attributes:
        subject_id: the subject asked about, or another market of its series.
        concluder: the one agent whose conclusion it is; None for that of a team, or if it is not recorded.
        performed_by, findings: filled for the first :attr:`Limits.detailed` analyses of a history alone.
        findings_total: number of its findings; ``findings`` holds the most important ones.
        claims: how its claims turned out; None without any.
    """

    subject_id: str
    analysis: DatedRecord
    concluder: str | None = None
    performed_by: list[Performer] = Field(default_factory=list)
    findings: list[SettledFinding] = Field(default_factory=list)
    findings_total: int = 0
    decisions: list[ReviewedDecision] = Field(default_factory=list)
    claims: ClaimSummary | None = None


class HistorySection(BriefingSection):
    """
    Analyses with findings, decisions and outcomes, newest first.

    Attributes:
        decisions: the newest decisions about the subject that are in none of its analyses.
        decisions_total: how many of them there are.
    """

    items: list[HistoryItem] = Field(default_factory=list)
    decisions: list[ReviewedDecision] = Field(default_factory=list)
    decisions_total: int = 0


# Retrieval


async def load(request: RetrievalRequest) -> HistorySection:
    """Return the newest analyses of the subject and its series, with findings, decisions and outcomes."""
    rows, total = await graph_rows(request, "company_history", **_parameters(request))
    return await with_lone_decisions(request, await _answer(request, rows, total))


def _parameters(request: RetrievalRequest) -> dict[str, int]:
    limits = request.limits
    return {"limit": limits.analyses, "detailed": limits.detailed, "findings_limit": limits.findings}


async def load_from_journal(request: RetrievalRequest) -> HistorySection:
    """Return the subject's newest analyses from record heads: without links, without those of its series."""
    keys = await journal_keys(request, "Analysis", request.limits.analyses)
    section = await _answer(request, await _rows_from_journal(request, keys), len(keys))
    return mark_partial(await with_lone_decisions(request, section))


async def _answer(request: RetrievalRequest, rows: Sequence[dict[str, Any]], total: int) -> HistorySection:
    answer = await request.dated(_refs(rows))
    kept = _dated_rows(rows, answer, _parameters(request))
    shown = [finding for row in kept for finding in row["findings"]]
    taken = {row["analysis"]: _decisions(row, answer) for row in kept}
    scores, concluders, claims, unsettled = await asyncio.gather(
        _scores(request, shown),
        _concluders(request, [row["analysis"] for row in kept]),
        claims_settled(request, [row["analysis"] for row in kept]),
        missing_verdicts(request, [one for decisions in taken.values() for one in decisions]),
    )
    items = [
        HistoryItem(
            subject_id=row["subject"],
            analysis=record(answer.records["Analysis", row["analysis"]]),
            concluder=concluders.get(row["analysis"]),
            performed_by=_performers(row, answer),
            findings=[
                SettledFinding(finding=record(answer.records["Finding", key]), score=_score(scores.get(key)))
                for key in row["findings"]
            ],
            findings_total=row["findings_total"],
            decisions=[one.model_copy(update=unsettled.get(one.decision.key, {})) for one in taken[row["analysis"]]],
            claims=claims.get(row["analysis"]),
        )
        for row in kept
    ]
    return HistorySection(items=items, total=max(total, len(items)))


async def _scores(request: RetrievalRequest, findings: Sequence[str]) -> Mapping[str, Any]:
    return await scores_as_of(request.database, findings, request.at, deadline=request.deadline) if findings else {}


async def _concluders(request: RetrievalRequest, analyses: Sequence[str]) -> dict[str, str | None]:
    """
    Return who concluded each of the given analyses; None for a team.

    It is the only agent that performed the analysis; without any, the only agent of its findings; without any, the
    agent or person that recorded it, None for an import.
    """
    if not analyses:
        return {}
    given = {"analyses": list(analyses), **request.at.limits}
    rows = await request.database.named("concluders_of_analyses", given, deadline=request.deadline)
    found = {}
    for row in rows:
        agents = row["performers"] or row["speakers"] or [row["recorder"]]
        found[row["analysis_id"]] = agents[0] if len(agents) == 1 else None
    return found


async def _rows_from_journal(request: RetrievalRequest, analyses: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows like those of ``company_history`` for *analyses*, from record heads."""
    detailed = set(analyses[: request.limits.detailed])
    rows, speakers = await asyncio.gather(
        request.database.named(
            "parts_of_analyses", {"analyses": list(analyses), **request.at.limits}, deadline=request.deadline
        ),
        request.database.named(
            "speakers_of_analyses", {"analyses": sorted(detailed), **request.at.limits}, deadline=request.deadline
        ),
    )
    voices = {row["analysis_id"]: row for row in speakers}
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


def _refs(rows: Sequence[Row]) -> list[Ref]:
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
            found = [answer.records[ref] for key in one["outcomes"] if (ref := ("Outcome", key)) in answer.records]
            outcomes = [outcome for outcome in found if not outcome.core.get("withdrawn")]
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


# Order of rows


def _dated_rows(rows: Iterable[Row], answer: ValuesAsOf, given: Mapping[str, Any]) -> list[Row]:
    """Return rows of ``company_history``, own ones before those of the series; the first ones name their findings."""
    kept = newest_rows(rows, answer, "analysis", "Analysis", "date")
    kept.sort(key=lambda row: not row["own"])
    return [
        _detailed(row, answer, given["findings_limit"])
        if place < given["detailed"]
        else {**row, "findings": [], "performed_by": [], "makers": [], "baselines": []}
        for place, row in enumerate(kept[: given["limit"]])
    ]


def _detailed(row: Row, answer: ValuesAsOf, findings_limit: int) -> Row:
    """Return a row with its findings in order; ``baselines`` holds the agents that were baselines at the moment."""
    baselines = sorted({agent for agent in row["baselines"] if _is_baseline(agent, answer)})
    findings = _weightiest({**row, "baselines": baselines}, answer)[:findings_limit]
    return {**row, "makers": sorted(row["makers"]), "baselines": baselines, "findings": findings}


def _weightiest(row: Row, answer: ValuesAsOf) -> list[str]:
    """
    Return the recorded findings of a row of ``company_history``, by weight.

    Findings of agents that ran the analysis or took its decisions come first, those of baselines last; then by recorded
    importance, then claims before remarks. The briefing sorts the chosen ones further, by track record.
    """
    makers, baselines = set(row["makers"]), set(row["baselines"])

    def rank(key: str) -> tuple[bool, bool, float, bool, str]:
        core = answer.records["Finding", key].core
        agent, importance = core["agent"], float(core.get("importance", -1.0))
        return agent in baselines, agent not in makers, -importance, core.get("metric") is None, key

    return sorted((key for key in row["findings"] if ("Finding", key) in answer.records), key=rank)


def _is_baseline(agent: str, answer: ValuesAsOf) -> bool:
    known = answer.records.get(("Agent", agent))
    return known is not None and known.groups.get("profile", {}).get("kind") == BASELINE


def _query_refs(rows: Iterable[Row]) -> list[Ref]:
    refs: list[Ref] = []
    for row in rows:
        refs.append(("Analysis", row["analysis"]))
        refs += [("Finding", key) for key in row["findings"]]
        refs += [("Agent", agent) for agent in row["baselines"]]
    return refs


# Rendering


def render(context: RenderContext) -> RenderedSection:
    """Return the lines of the history, newest first."""
    answer = context.briefing.history
    kind = context.newest.analysis.core["kind"] if context.newest is not None else None
    at = context.briefing.as_of
    most = max(answer.total, context.newest.findings_total if context.newest is not None else 0)
    series = (
        ", this market before others of its series"
        if any(item.subject_id != context.own for item in answer.items)
        else ""
    )
    return rendered_section(
        f"History, newest first{series}: conclusion of each {label(kind)} → result" if kind else "History",
        answer,
        faded((f"- {_line(item, context.own, kind, at)}" for item in answer.items), WORTH, FADING),
        nouns=("analysis", "analyses"),
        call=follow_up_call(context.own, "history", most),
    )


def _line(item: HistoryItem, own: str, kind: str | None, at: datetime) -> str:
    core = item.analysis.core
    found = []
    if item.subject_id != own:
        found.append(label(item.subject_id))
    if core["kind"] != kind:
        found.append(label(core["kind"]))
    concluded = conclusion(item.analysis)
    if concluded:
        found.append(concluded)
    elif core.get("summary"):
        found.append(quote_lead(core["summary"], SUMMARY_CHARS))
    elif core["kind"] == kind and not item.decisions:
        found.append(f"no conclusion, {with_noun(item.findings_total, ('finding', 'findings'))}")
    found += [decision_text(one) for one in item.decisions]
    end = result_text(item.decisions, item.claims, at, core.get("probability"))
    corrected = " (corrected)" if item.analysis.corrected_at is not None else ""
    who = f"{label(item.concluder)}: " if item.concluder is not None else ""
    return f"{when(core['date'])}{corrected} {who}{', '.join(found)}{f' → {end}' if end else ''}"


SECTION: Final = SectionSpec(
    name="history",
    model=HistorySection,
    load=load,
    fallbacks=(load_from_journal,),
    limits=("analyses", "detailed", "findings"),
    query=DatedQuery("company_history", _query_refs, _dated_rows),
    renderers=(changes, render, lone_decisions.render, newest),
    item_text=analysis_text,
    tail=lone_decisions.lines,
)
