"""The newest analysis in full: consensus, decisions, summary and findings."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from imem.kg.kinds.metrics import metric_of
from imem.recall.rendering.formatting import (
    EVIDENCE,
    Topic,
    label,
    number,
    outcome_text,
    quote_lead,
    share,
    topic_of,
    verdict_text,
    when,
    with_marks,
    with_noun,
)
from imem.recall.rendering.rendered import Block, RenderContext, RenderedSection, follow_up_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from imem.recall.answers import DatedRecord, ReviewedDecision
    from imem.recall.sections.history import HistoryItem, SettledFinding
    from imem.recall.sections.track_records import TrackRecordItem

    Records = Mapping[tuple[str, str], TrackRecordItem]

CONSENSUS_WORTH: Final = 1.25
DECISION_WORTH: Final = 1.2
SUMMARY_WORTH: Final = 1.0
FINDING_WORTH: Final = 0.99
FADING: Final = 0.91
"""Worth of a finding, as a share of the one before it."""

BASELINE_WORTH: Final = 0.2
"""Worth of a baseline's finding: it is a reference, not an opinion."""

FIRST: Final = 4
"""Findings that are quoted at length."""

LONG_CHARS, SHORT_CHARS = 170, 80
"""Longest quotation of one of the first findings, and of another, in characters."""

SUMMARY_CHARS: Final = 240
OUTCOMES: Final = 3
"""Most outcomes shown for a decision."""


def newest(context: RenderContext) -> RenderedSection:
    """Return the newest analysis; empty if none is known."""
    item = context.newest
    if item is None:
        return RenderedSection("")
    heads, findings = in_full(item, context.records, context.briefing.for_agent, context.briefing.as_of)
    return RenderedSection(
        title=f"Newest analysis: {_title(item, context.own)}",
        blocks=(*heads, *findings),
        total=len(heads) + item.findings_total,
        nouns=("finding of the newest analysis", "findings of the newest analysis"),
        call=follow_up_call(context.own, "history", max(context.briefing.history.total, item.findings_total)),
    )


def analysis_text(item: HistoryItem) -> str:
    """Return an analysis in full as Markdown."""
    heads, findings = in_full(item, {}, None, None)
    left = item.findings_total - len(findings)
    more = [f"- ({with_noun(left, ('more finding', 'more findings'))})"] if left > 0 else []
    return "\n".join([f"## {_title(item, '')}", *(block.text for block in (*heads, *findings)), *more])


def _title(item: HistoryItem, own: str) -> str:
    performers = ", ".join(
        f"{label(one.agent)} ({label(one.role)})" if one.role else label(one.agent) for one in item.performed_by[:4]
    )
    performers = performers or (label(item.concluder) if item.concluder is not None else "")
    by = f" by {performers}" if performers else ""
    on = f" on {label(item.subject_id)}" if item.subject_id != own else ""
    return f"{when(item.analysis.core['date'])}{on} [{label(item.analysis.key)}]{by}"


def in_full(
    item: HistoryItem, records: Records, for_agent: str | None, at: datetime | None
) -> tuple[list[Block], list[Block]]:
    """
    Return an analysis in two parts: consensus, decisions and summary; and its findings.

    Args:
        item: the analysis.
        records: track records of its agents, as far as available.
        for_agent: the agent that asks, if known.
        at: the answer's moment, if known.
    """
    findings = ordered(item, records)
    question = _question(findings)
    consensus = _consensus(findings, item.findings_total, records, question)
    heads = [Block(f"- {line}", CONSENSUS_WORTH) for line in consensus]
    heads += [Block(_decision(taken, at), DECISION_WORTH) for taken in item.decisions]
    if item.analysis.core.get("summary"):
        heads.append(Block(f"- Summary: {quote_lead(item.analysis.core['summary'], SUMMARY_CHARS)}", SUMMARY_WORTH))
    if question is not None:
        heads.insert(0, Block(f"- {_asked(question)}", CONSENSUS_WORTH))
    settled = any(one.score is not None for one in findings)
    blocks = []
    for place, one in enumerate(findings):
        baseline = _baseline(one.finding, records)
        marks = ("baseline" if baseline else "", "you" if one.finding.core["agent"] == for_agent else "")
        worth = BASELINE_WORTH if baseline else FINDING_WORTH * FADING**place
        blocks.append(Block(f"- {_finding(one, marks, question, first=place < FIRST, settled=settled)}", worth))
    return heads, blocks


# Order of findings


def ordered(item: HistoryItem, records: Records) -> list[SettledFinding]:
    """
    Return the findings by weight.

    Those of agents that took the decision come first, in its order, then those of agents that ran the analysis. The
    others follow by recorded importance, then by track record. Baselines are last.
    """
    named = [agent for taken in item.decisions for agent in taken.decision.core.get("agents_involved") or ()]
    makers = {
        agent: place for place, agent in reversed(list(enumerate([*named, *(p.agent for p in item.performed_by)])))
    }

    def rank(one: SettledFinding) -> tuple[bool, int, float, bool, int, float, str]:
        core = one.finding.core
        record = _record(one.finding, records)
        return (
            _baseline(one.finding, records),
            makers.get(core["agent"], len(makers) + len(named)),
            -float(core.get("importance", -1.0)),
            core.get("metric") is None,
            EVIDENCE.index(record.evidence) if record is not None else len(EVIDENCE),
            -record.lower if record is not None else 0.0,
            one.finding.key,
        )

    return sorted(item.findings, key=rank)


def _record(finding: DatedRecord, records: Records) -> TrackRecordItem | None:
    return records.get((finding.core["agent"], finding.core["domain"]))


def _baseline(finding: DatedRecord, records: Records) -> bool:
    record = _record(finding, records)
    return record is not None and record.baseline


# Consensus


def _consensus(findings: Sequence[SettledFinding], total: int, records: Records, question: Topic | None) -> list[str]:
    """Return a line on the directions, then one per topic and field; *question* was named before."""
    voices = [one.finding for one in findings if not _baseline(one.finding, records)]
    left = len(findings) - len(voices)
    of = f" (the {len(findings):,} most important of {total:,})" if total > len(findings) else ""
    without = f", without {with_noun(left, ('baseline', 'baselines'))}" if left else ""
    lines = []
    directions = Counter(one.core["direction"] for one in voices if one.core.get("direction"))
    if directions:
        counts = ", ".join(
            f"{directions[side]} {side}" for side in ("positive", "negative", "neutral") if directions[side]
        )
        lines.append(f"{_give(directions.total(), 'direction')}{of}: {counts}{without}")
    for field, shown in (("probability", share), ("value", number)):
        for topic, values in _grouped(voices, field).items():
            about = _about(topic, question)
            lines.append(f"{_give(len(values), field)}{about}{of}: {_spread(values, shown)}{without}")
    return [f"Consensus: {line}." for line in lines[:3]]


def _give(count: int, field: str) -> str:
    return f"{with_noun(count, ('finding gives', 'findings give'))} a {field}"


def _grouped(voices: Sequence[DatedRecord], field: str) -> dict[Topic | str | None, list[float]]:
    """
    Return the numbers in *field* by topic, topics in the order in which they first occur.

    Findings without a metric are grouped by unit instead, if they have one.
    """
    found: dict[Topic | str | None, list[float]] = {}
    for one in voices:
        if one.core.get(field) is not None:
            unit = one.core.get("unit") if field == "value" else None
            found.setdefault(topic_of(one) or unit, []).append(float(one.core[field]))
    return found


def _about(topic: Topic | str | None, question: Topic | None) -> str:
    """Return the topic of a line of consensus; empty if it is *question*."""
    if isinstance(topic, Topic):
        return f" of {topic.text}" if topic != question else ""
    unit = f" in {label(topic)}" if topic is not None else ""
    return f"{' without a metric' if question is not None else ''}{unit}"


def _spread(values: Sequence[float], shown: Callable[[float], str]) -> str:
    if len(values) == 1:
        return shown(values[0])
    low, high = shown(min(values)), shown(max(values))
    return f"median {shown(median(values))}, mean {shown(fmean(values))}, from {low} to {high}"


# Texts


def _question(findings: Sequence[SettledFinding]) -> Topic | None:
    """Return the topic of most claims: the first line names it, and findings name theirs only if it differs."""
    asked = Counter(topic for one in findings if (topic := topic_of(one.finding)) is not None)
    return min(asked, key=lambda topic: (-asked[topic], topic.metric, topic.text)) if asked else None


def _asked(question: Topic) -> str:
    """Return the line that names the topic of most claims, with the metric's meaning."""
    known = metric_of(question.metric)
    meaning = f": {known.meaning}" if known is not None and known.meaning is not None else ""
    return f"Most claims are about {question.text}{meaning}."


def _finding(one: SettledFinding, marks: tuple[str, ...], question: Topic | None, *, first: bool, settled: bool) -> str:
    core, topic = one.finding.core, topic_of(one.finding)
    who = with_marks(core["agent"], *marks)
    says = []
    if core.get("probability") is not None:
        says.append(share(core["probability"]))
    elif core.get("direction"):
        says.append(core["direction"])
    if core.get("value") is not None:
        unit = topic.unit if topic is not None else core.get("unit")
        says.append(f"{number(core['value'])} {label(unit)}" if unit else number(core["value"]))
    if core.get("confidence") is not None:
        says.append(f"confidence {share(core['confidence'])}")
    about = ""
    if topic is not None and topic != question:
        # The unit is shown with the value already.
        about = f" on {topic.text if core.get('value') is None else topic.at(label(topic.metric))}"
    corrected = " (corrected)" if one.finding.corrected_at is not None else ""
    head = f"{who}: {', '.join(says)}{about}".rstrip(": ")
    text = f"{head}{corrected}{_verdict(one) if settled else ''}"
    if not first and (core.get("probability") is not None or core.get("value") is not None):
        # The statement mostly repeats the number.
        return text
    return f"{text}; {quote_lead(core['statement'], LONG_CHARS if first else SHORT_CHARS)}"


def _verdict(settled: SettledFinding) -> str:
    score = settled.score
    if score is None:
        return " → open" if settled.finding.core.get("metric") else ""
    word = {True: "right", False: "wrong", None: "took no side"}[score.right]
    brier = f", Brier {score.brier:.2f}" if score.brier is not None else ""
    return f" → {word} (was {number(score.actual)}{brier})"


def _decision(taken: ReviewedDecision, at: datetime | None) -> str:
    core = taken.decision.core
    parts = [f"Decided {when(core['decided_at'])}: {label(core['type'])}"]
    if core.get("action"):
        parts.append(label(core["action"]))
    if core.get("confidence") is not None:
        parts.append(f"confidence {share(core['confidence'])}")
    if core.get("size_usd") is not None:
        parts.append(f"USD {core['size_usd']:,.0f}")
    if core.get("portfolio_share") is not None:
        parts.append(f"{share(core['portfolio_share'])} of the portfolio")
    corrected = " (corrected)" if taken.decision.corrected_at is not None else ""
    ends = "; ".join(_outcome(one) for one in taken.outcomes[:OUTCOMES])
    verdict = verdict_text(taken, at) or "no verdict"
    return f"- {', '.join(parts)}{corrected} → {verdict}{f'; {ends}' if ends else ''}"


def _outcome(record: DatedRecord) -> str:
    topic = topic_of(record)
    return outcome_text(topic, record.core["actual"]) if topic is not None else ""
