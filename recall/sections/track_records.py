"""Track records of the agents with claims about the subject."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from imem.cache.tiers import tags
from imem.credibility.track_record import TrackRecord, track_records
from imem.recall.answers import AnswerModel, BriefingSection, Completeness, Quality
from imem.recall.dated_rows import DatedQuery
from imem.recall.rendering.formatting import EVIDENCE, label, share, with_marks
from imem.recall.rendering.rendered import (
    Block,
    FollowUpCall,
    RenderContext,
    RenderedSection,
    follow_up_call,
    rendered_section,
)
from imem.recall.retrievers import RetrievalRequest, graph_rows, mark_partial
from imem.recall.sections.spec import SectionSpec

WORTH: Final = 0.97
FADING: Final = 0.92
BASELINE_WORTH: Final = 0.55
"""Worth of the best baseline, with which the others are compared."""

NOTHING_WORTH: Final = 0.15
"""Worth of an empty record."""

NOT_ENOUGH: Final = "not enough evidence"

NO_OUTCOMES: Final = "no outcomes yet"

_KINDS: Final = frozenset({"baseline", "ensemble", "human"})
"""Kinds of agents that are shown; the others are models."""

LEGEND: Final = (
    "n: observations; claims on all subjects that settle at the same time count as one. Older ones weigh less; small n "
    "pulls the share right toward 0.5. Sorted by the interval's lower bound."
)

ALL_LITTLE: Final = " All rows have little evidence (n below 15)."


class TrackRecordItem(AnswerModel):
    """
    An agent's track record in a domain: share right with its 95 % interval, and skill.

    Attributes:
        n: observations; claims with the same ``target_at`` count as one.
        rows: claims scored.
        right, abstained: claims that were right, that abstained; abstentions are counted, not scored.
        mean, lower, upper: decayed posterior share right with its 95 % interval.
        brier, log_score: mean scores of stated probabilities; lower Brier is better.
        skill: decayed Brier skill against *reference*, on *reference_rows* claims; above zero is better.
        skill_lower, skill_upper: its 95 % interval; None with a single observation.
        evidence: ``none`` without observations, ``little`` below fifteen, else ``enough``.
        baseline: whether the agent is a baseline: a reference for others, not ranked.
    """

    agent: str
    domain: str
    kind: str | None
    n: int
    rows: int
    right: int
    abstained: int
    mean: float
    lower: float
    upper: float
    brier: float | None
    log_score: float | None
    skill: float | None
    skill_lower: float | None
    skill_upper: float | None
    reference: str | None
    reference_rows: int
    evidence: Literal["none", "little", "enough"]
    baseline: bool


class DatedTrackRecord(TrackRecordItem):
    """
    A track record as of a moment.

    Attributes:
        as_of: the moment asked for, or the earlier one to which it was clamped.
        pinned: the score at which a person holds the agent's; None without a pin, and of several moments.
    """

    as_of: datetime
    pinned: float | None = None


class TrackRecordsTable(BriefingSection):
    """Track records of many agents as of many moments: by moment, domain and name; baselines last in a domain."""

    items: list[DatedTrackRecord] = Field(default_factory=list)


class TrackRecordsSection(BriefingSection):
    """Track records of the agents with claims about the subject, by domain and name; baselines last."""

    items: list[TrackRecordItem] = Field(default_factory=list)


# Retrieval


async def load(request: RetrievalRequest) -> TrackRecordsSection:
    """
    Return the track records of the agents that made claims about the subject, in the domains of those claims.

    An actor that may read the claims may read these (docs/decisions/0012). That of *for_agent* is added without claims;
    the caller has authorized it.
    """
    (row,), _ = await graph_rows(request, "speakers_of_subject", request.limits.speakers)
    return await _answer(request, row["speakers"])


async def load_from_journal(request: RetrievalRequest) -> TrackRecordsSection:
    """Return track records of agents with claims about the subject itself, without its series."""
    return mark_partial(await _answer(request, await _rows_from_journal(request, half=False)))


async def load_sample(request: RetrievalRequest) -> TrackRecordsSection:
    """Return track records of the agents in a sample of half of the findings about the subject."""
    return mark_partial(await _answer(request, await _rows_from_journal(request, half=True)), Completeness.SAMPLED)


async def _rows_from_journal(request: RetrievalRequest, *, half: bool) -> list[dict[str, Any]]:
    parameters = {"subject_id": request.subject_id, "limit": request.limits.speakers, "half": half, **request.at.limits}
    return await request.database.named("speakers_in_journal", parameters, deadline=request.deadline)


async def _answer(request: RetrievalRequest, rows: Sequence[dict[str, Any]]) -> TrackRecordsSection:
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
    return TrackRecordItem(**{field: getattr(one, field) for field in TrackRecordItem.model_fields})


def _tags(section: TrackRecordsSection) -> frozenset[str]:
    return frozenset(tags.agent(item.agent) for item in section.items)


# Rendering


@dataclass(frozen=True, slots=True)
class TableLayout:
    """
    Columns and remarks of the table's rows.

    Attributes:
        domain: whether rows name the domain; a table of one domain names it above.
        reference: the reference of every skill, if the head names it.
        skill: whether there is a column for skill.
        little: whether rows are marked as little evidence; the head says it if it holds of all.
        nothing: the text of a record without an outcome.
    """

    domain: bool
    reference: str | None
    skill: bool = True
    little: bool = True
    nothing: str = NOT_ENOUGH


def render(context: RenderContext) -> RenderedSection:
    """Return the track records, best first, baselines last."""
    answer = context.briefing.track_records
    items = sorted(answer.items, key=_rank)
    form = _layout_of(items)
    blocks, baselines = [], 0
    for place, item in enumerate(items):
        worth = WORTH * FADING**place
        if item.baseline:
            worth = min(worth, BASELINE_WORTH * FADING**baselines)
            baselines += 1
        if item.evidence == "none":
            worth = min(worth, NOTHING_WORTH)
        blocks.append(Block(_row(item, context.briefing.for_agent, form), worth))
    where = "" if form.domain or not items else f" in {label(items[0].domain)}"
    made = follow_up_call(context.own, "brief", 1)
    subject = made.python.removeprefix("await memory.brief(").split(", limit", maxsplit=1)[0]
    call = FollowUpCall(f"(await memory.brief({subject}{{when}})).track_records", f"imem brief {subject} --json")
    return rendered_section(
        f"Track records of agents with claims{where}, best first",
        answer,
        blocks,
        nouns=("agent's track record", "agents' track records"),
        nothing="track records",
        head=_head(form),
        call=call,
    )


def track_table(items: Sequence[TrackRecordItem]) -> str:
    """Return track records as a table by domain, best first in each; empty if there are none."""
    form = replace(_layout_of(items), domain=True, reference=None, nothing=NO_OUTCOMES)
    return "\n".join([_head(form), *(_row(item, None, form) for item in ranked(items))]) if items else ""


def ranked(items: Sequence[TrackRecordItem]) -> list[TrackRecordItem]:
    """Return track records by domain, best first in each, baselines last."""
    return sorted(items, key=lambda item: (item.domain, _rank(item)))


def _rank(item: TrackRecordItem) -> tuple[bool, int, float, int, str, str]:
    """Return the sort key: by evidence, then by the lower end of the interval."""
    return item.baseline, EVIDENCE.index(item.evidence), -item.lower, -item.n, item.agent, item.domain


def _layout_of(items: Sequence[TrackRecordItem]) -> TableLayout:
    references = {item.reference for item in items if item.skill is not None}
    return TableLayout(
        domain=len({item.domain for item in items}) > 1,
        reference=references.pop() if len(references) == 1 else None,
        skill=any(item.skill is not None for item in items),
        little=any(item.evidence != "little" for item in items),
    )


def _head(form: TableLayout) -> str:
    skill = f"skill vs {form.reference}, 95 %" if form.reference is not None else "skill, 95 %"
    columns = ["agent", *(["domain"] if form.domain else []), "n (claims)", "right", "share right, 95 %"]
    columns += [skill] if form.skill else []
    legend = LEGEND if form.little else LEGEND + ALL_LITTLE
    return f"{legend}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def _row(item: TrackRecordItem, for_agent: str | None, form: TableLayout) -> str:
    kind = str(item.kind) if item.kind in _KINDS else ""
    pinned = item.pinned if isinstance(item, DatedTrackRecord) else None
    held = "" if pinned is None else f"pinned at {pinned:g}"
    who = with_marks(item.agent, kind, "you" if item.agent == for_agent else "", held)
    right = f"{item.right}/{item.rows}" if item.rows else "–"
    if item.abstained:
        right += f" (and {item.abstained} took no side)"
    cells = [who, *([label(item.domain)] if form.domain else []), f"{item.n} ({item.rows})", right]
    if item.evidence == "none":
        cells.append(NOT_ENOUGH if item.abstained else form.nothing)
    else:
        little = ", little evidence" if item.evidence == "little" and form.little else ""
        cells.append(f"{share(item.mean)} [{share(item.lower)}, {share(item.upper)}]{little}")
    if form.skill:
        cells.append(_skill(item, form))
    return f"| {' | '.join(cells)} |"


def _skill(item: TrackRecordItem, form: TableLayout) -> str:
    if item.skill is None or item.evidence == "none":
        return "–"
    there = item.skill_lower is not None and item.skill_upper is not None
    interval = f" [{item.skill_lower:+.2f}, {item.skill_upper:+.2f}]" if there else ""
    against = f" vs {item.reference}" if form.reference is None else ""
    return f"{item.skill:+.2f}{interval}{against}"


SECTION: Final = SectionSpec(
    name="track_records",
    model=TrackRecordsSection,
    load=load,
    fallbacks=(load_from_journal, load_sample),
    limits=("speakers",),
    tags=_tags,
    for_agent=True,
    query=DatedQuery("speakers_of_subject"),
    renderers=(render,),
)
