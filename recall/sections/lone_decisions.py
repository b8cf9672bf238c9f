"""Decisions about a subject that are in none of its analyses: a part of the history, under a heading of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from imem.kg.asof import Ref
from imem.recall.answers import DatedRecord, ReviewedDecision
from imem.recall.rendering.formatting import decision_text, label, result_text, share, when
from imem.recall.rendering.rendered import RenderContext, RenderedSection, faded, follow_up_call
from imem.recall.retrievers import RetrievalRequest, record
from imem.recall.sections.missing_verdicts import missing_verdicts

if TYPE_CHECKING:
    from imem.recall.sections.history import HistorySection

TITLE: Final = "Decisions without an analysis of the subject, newest first"
NOUNS: Final = ("decision without an analysis", "decisions without an analysis")

WORTH: Final = 0.99
FADING: Final = 0.97

AGENTS: Final = 3
"""Most agents named in a line."""


async def with_lone_decisions(request: RetrievalRequest, section: HistorySection) -> HistorySection:
    """
    Return *section* with the newest decisions about the subject whose analysis is not in its history.

    They name no analysis, or one that is of another subject or was not known. They are found in Postgres, so that they
    are there without the graph as well.
    """
    rows = await request.database.named(
        "lone_decisions",
        {"subject_id": request.subject_id, "limit": request.limits.analyses, **request.at.limits},
        deadline=request.deadline,
    )
    if not rows:
        return section
    refs: list[Ref] = [("Decision", row["decision"]) for row in rows]
    refs += [("Outcome", key) for row in rows for key in row["outcomes"]]
    answer = await request.dated(refs)
    found = [
        ReviewedDecision(
            decision=record(answer.records["Decision", row["decision"]]),
            outcomes=_outcomes(
                [record(answer.records[ref]) for key in row["outcomes"] if (ref := ("Outcome", key)) in answer.records]
            ),
        )
        for row in rows
        if ("Decision", row["decision"]) in answer.records
    ]
    # A correction may date a decision otherwise than its head does.
    found.sort(key=lambda one: one.decision.key)
    found.sort(key=lambda one: str(one.decision.core["decided_at"]), reverse=True)
    reasons = await missing_verdicts(request, found)
    found = [one.model_copy(update=reasons.get(one.decision.key, {})) for one in found]
    return section.model_copy(update={"decisions": found, "decisions_total": rows[0]["total"]})


def _outcomes(outcomes: Sequence[DatedRecord]) -> list[DatedRecord]:
    counted = [outcome for outcome in outcomes if not outcome.core.get("withdrawn")]
    return sorted(counted, key=lambda outcome: (str(outcome.core["target_at"]), outcome.known_at, outcome.key))


def render(context: RenderContext) -> RenderedSection:
    """Return the decisions, one line each; nothing without any."""
    answer = context.briefing.history
    return RenderedSection(
        TITLE if answer.decisions else "",
        tuple(faded((f"- {decision_line(one, context.briefing.as_of)}" for one in answer.decisions), WORTH, FADING)),
        total=answer.decisions_total,
        nouns=NOUNS,
        call=follow_up_call(context.own, "history", answer.decisions_total),
    )


def lines(section: HistorySection) -> Iterator[str]:
    """Yield the heading and the lines of the decisions of a history that is shown by itself."""
    if section.decisions:
        yield f"{TITLE}:"
        yield from (f"- {decision_line(one, None)}" for one in section.decisions)


def decision_line(one: ReviewedDecision, at: datetime | None) -> str:
    """Return a decision in a line: when, who, what it expects, and what came of it as of *at*."""
    core = one.decision.core
    agents = core["agents_involved"]
    more = f" and {len(agents) - AGENTS} more" if len(agents) > AGENTS else ""
    said = [f"{', '.join(map(label, agents[:AGENTS]))}{more} {decision_text(one)}"]
    if core.get("stance"):
        said.append(f"stance {core['stance']}")
    if core.get("confidence") is not None:
        said.append(f"confidence {share(core['confidence'])}")
    if core.get("analysis_id"):
        said.append(f"names the analysis {label(core['analysis_id'])}")
    corrected = " (corrected)" if one.decision.corrected_at is not None else ""
    end = result_text([one], None, at, None)
    return f"{when(core['decided_at'])}{corrected} {', '.join(said)}{f' → {end}' if end else ''}"
