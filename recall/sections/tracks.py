"""Track records of the agents with claims about the subject."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from imem.recall.sections.base import (
    EVIDENCE,
    Block,
    FollowUpCall,
    RenderContext,
    RenderedSection,
    calls,
    label,
    marked,
    section,
    share,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imem.recall.model import TrackRecordItem

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


LEGEND: Final = (
    "n: claims on all subjects that settle at one moment count once. Shares and skill fade with age; few n draw the "
    "share toward 0.5. First comes the highest lower end."
)
ALL_LITTLE: Final = " All are little evidence (n below 15)."


def tracks(context: RenderContext) -> RenderedSection:
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
    made = calls(context.own, "brief", "brief", 1)
    subject = made.python.removeprefix("await memory.brief(").split(", limit", maxsplit=1)[0]
    call = FollowUpCall(
        "brief", f"(await memory.brief({subject}{{when}})).track_records", f"imem brief {subject} --json"
    )
    return section(
        f"Track records of those who spoke{where}, best first",
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
    ranked = sorted(items, key=lambda item: (item.domain, _rank(item)))
    return "\n".join([_head(form), *(_row(item, None, form) for item in ranked)]) if items else ""


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
    who = marked(item.agent, kind, "you" if item.agent == for_agent else "")
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
