"""Debates on the subject: topic, sides, and how they ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import Field

from imem.cache.tiers import tags
from imem.journal.modes import Mode
from imem.journal.texts.prompt_text import name, quoted
from imem.kg.asof import RecordAsOf, Ref, ValuesAsOf
from imem.recall.answers import AnswerModel, BriefingSection, DatedRecord
from imem.recall.dated_rows import DatedQuery, Row, newest_rows, refs_in
from imem.recall.rendering.formatting import label, quote_lead, when, with_noun
from imem.recall.rendering.rendered import RenderContext, RenderedSection, faded, follow_up_call, rendered_section
from imem.recall.retrievers import RetrievalRequest, graph_rows, journal_keys, mark_partial, record
from imem.recall.sections.spec import SectionSpec

WORTH: Final = 0.94
FADING: Final = 0.7
TOPIC_CHARS, POSITION_CHARS = 90, 130
"""Longest quotation of a topic, and of a position, in characters."""

TURN_CHARS: Final = 4000


class DebateItem(AnswerModel):
    """
    A debate and how it ended.

    Attributes:
        turns: number of turns recorded.
        speakers: number of distinct speakers.
    """

    debate: DatedRecord
    disputed: DatedRecord | None = None
    resolutions: list[DatedRecord] = Field(default_factory=list)
    turns: int = 0
    speakers: int = 0


class TurnItem(AnswerModel):
    """One turn of a debate, verbatim, whether it was recorded with the debate or by its speaker."""

    number: int
    stage: str | None = None
    speaker: str
    stance: str | None = None
    text: str
    cites: list[str] = Field(default_factory=list)


class RecordedDebate(AnswerModel):
    """
    A debate with every turn.

    Attributes:
        mode: how well the institution could answer.
        late_ms: by how many milliseconds the answer missed its deadline; None if it did not.
    """

    debate: DebateItem
    turns: list[TurnItem]
    mode: Mode = Mode.NORMAL
    late_ms: float | None = None


class DebatesSection(BriefingSection):
    """Debates on the subject and how they ended, newest first."""

    items: list[DebateItem] = Field(default_factory=list)


# Retrieval


async def load(request: RetrievalRequest) -> DebatesSection:
    """Return the newest debates on the subject and how they ended."""
    return await _answer(request, *await graph_rows(request, "debates_of_subject", request.limits.debates))


async def load_from_journal(request: RetrievalRequest) -> DebatesSection:
    """Return the newest debates from record heads: without the disputed finding and the resolutions."""
    keys = await journal_keys(request, "Debate", request.limits.debates)
    return mark_partial(
        await _answer(request, [{"debate": key, "disputed": None, "resolutions": []} for key in keys], len(keys))
    )


async def _answer(request: RetrievalRequest, rows: Sequence[dict[str, Any]], total: int) -> DebatesSection:
    refs: list[Ref] = [("Debate", row["debate"]) for row in rows]
    refs += [("Finding", row["disputed"]) for row in rows if row["disputed"]]
    refs += [("DebateResolution", key) for row in rows for key in row["resolutions"]]
    answer = await request.dated(refs)
    rows = _dated_rows(rows, answer, {"limit": request.limits.debates})
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


def _dated_rows(rows: Iterable[Row], answer: ValuesAsOf, given: Mapping[str, Any]) -> list[Row]:
    """Return rows of ``debates_of_subject``, the newest first."""
    return newest_rows(rows, answer, "debate", "Debate", "timestamp")[: given["limit"]]


async def _turn_counts(request: RetrievalRequest, found: Sequence[RecordAsOf]) -> dict[str, tuple[int, int]]:
    if not found:
        return {}
    given = {"debates": [one.key for one in found], "positions": [one.turns_position for one in found]}
    rows = await request.database.named("turn_counts", {**given, **request.at.limits}, deadline=request.deadline)
    return {row["debate_id"]: (row["turns"], row["speakers"]) for row in rows}


def _tags(section: DebatesSection) -> frozenset[str]:
    shown = [one for item in section.items for one in (*item.resolutions, *([item.disputed] if item.disputed else ()))]
    return frozenset(tags.record(one.kind, one.key) for one in shown)


# Rendering


def render(context: RenderContext) -> RenderedSection:
    """Return the debates, newest first."""
    answer = context.briefing.debates
    return rendered_section(
        "Debates",
        answer,
        faded(map(debate_text, answer.items), WORTH, FADING),
        nouns=("debate", "debates"),
        call=follow_up_call(context.own, "debates", answer.total),
    )


def debate_text(item: DebateItem) -> str:
    """Return a debate and how it ended as a list item."""
    core = item.debate.core
    corrected = " (corrected)" if item.debate.corrected_at is not None else ""
    head = (
        f"- {when(core['timestamp'])}{corrected} {label(core['challenger_agent'])} challenged "
        f"{label(core['challenged_agent'])}: {quoted(core['topic'], TOPIC_CHARS)}"
    )
    turns = with_noun(item.turns, ("turn", "turns"))
    spoken = f"; {turns} by {with_noun(item.speakers, ('speaker', 'speakers'))}" if item.turns else ""
    return f"{head} → {_end(item)}{spoken} [{name(item.debate.key)}]"


def _end(item: DebateItem) -> str:
    state = item.debate.groups.get("state", {})
    how = [f"level {state['resolution_level']}"] if state.get("resolution_level") else []
    how += [str(state["resolution_method"]).replace("_", " ")] if state.get("resolution_method") else []
    how += ["provisional"] if state.get("provisional") else []
    by = f" ({', '.join(how)})" if how else ""
    if item.resolutions:
        ended = []
        for resolution in item.resolutions[:2]:
            won = resolution.core.get("winning_agent")
            who = f"{label(won)} won" if won else "no winner"
            ended.append(f"{who}: {quote_lead(resolution.core['winning_position'], POSITION_CHARS)}")
        return f"{'; '.join(ended)}{by}"
    if not state:
        return "not resolved"
    position = f": {quote_lead(state['final_position'], POSITION_CHARS)}" if state.get("final_position") else ""
    return f"{label(state['state'])}{position}{by}"


def turn_text(turn: TurnItem) -> str:
    """Return a turn, quoted in full, as a list item."""
    where = f" ({label(turn.stage)})" if turn.stage else ""
    return f"- {turn.number}. {name(turn.speaker)}{where}: {quoted(turn.text, TURN_CHARS)}"


SECTION: Final = SectionSpec(
    name="debates",
    model=DebatesSection,
    load=load,
    fallbacks=(load_from_journal,),
    limits=("debates",),
    tags=_tags,
    query=DatedQuery("debates_of_subject", refs_in("debate", "Debate"), _dated_rows),
    renderers=(render,),
    item_text=debate_text,
)
