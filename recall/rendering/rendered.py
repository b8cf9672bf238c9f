"""A rendered section, its items, and what sections are rendered from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from imem.recall.answers import BriefingSection
    from imem.recall.model import Briefing
    from imem.recall.sections.history import HistoryItem
    from imem.recall.sections.track_records import TrackRecordItem

_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,89}")
"""Subject ids that need no escaping in Python or a shell."""

MOST: Final = 200
"""Most items that one call returns."""


class Block(NamedTuple):
    """One item of a section, and its worth: items are shown by descending worth."""

    text: str
    worth: float


class FollowUpCall(NamedTuple):
    """The call that fetches the rest of a section, in Python and as a command, without moment and clock."""

    python: str
    command: str


@dataclass(frozen=True, slots=True)
class RenderedSection:
    """
    A section, rendered.

    Attributes:
        title: its heading; empty if there is nothing to show.
        blocks: its items, by descending worth.
        total: number of items in all, shown or not.
        nouns: singular and plural for the items left out; empty if they are not counted.
        quality, reason: quality of the answer, and why it is not exact.
        head: lines before the blocks; shown only with at least one block.
        nothing: its name in the line that lists sections without items.
        call: the call that fetches the rest; None for a section that is not read by itself.
    """

    title: str
    blocks: tuple[Block, ...] = ()
    total: int = 0
    nouns: tuple[str, str] = ("", "")
    quality: str = "exact"
    reason: str = ""
    head: str = ""
    nothing: str = ""
    call: FollowUpCall | None = None

    def left(self, kept: int) -> int:
        """Return how many items are left out if *kept* blocks are shown."""
        return max(self.total - kept, 0) if self.nouns[1] else 0


def rendered_section(
    title: str,
    answer: BriefingSection,
    blocks: Sequence[Block],
    *,
    nouns: tuple[str, str],
    call: FollowUpCall | None = None,
    nothing: str = "",
    head: str = "",
) -> RenderedSection:
    """Return the rendered section of *answer*; *nothing* is the plural of *nouns* unless it is given."""
    return RenderedSection(
        title=title,
        blocks=tuple(blocks),
        total=max(answer.total, len(blocks)),
        nouns=nouns,
        quality=answer.quality,
        reason=answer.reason or "",
        head=head,
        nothing=nothing or nouns[1],
        call=call,
    )


def faded(texts: Iterable[str], worth: float, fading: float) -> list[Block]:
    """Return items of which the first has *worth*, and each other that of the one before it times *fading*."""
    return [Block(text, worth * fading**place) for place, text in enumerate(texts)]


def follow_up_call(subject_id: str, method: str, limit: int) -> FollowUpCall:
    """Return the call of *method*, and of the command of that name, about the subject."""
    # An id that could end a Python literal or a shell word is replaced by a placeholder.
    subject = f'"{subject_id}"' if _PLAIN_ID.fullmatch(subject_id) else "subject"
    most = max(1, min(limit, MOST))
    return FollowUpCall(
        f"await memory.{method}({subject}, limit={most}{{when}})", f"imem {method} {subject} --limit {most}"
    )


@dataclass(frozen=True, slots=True)
class RenderContext:
    """
    The data from which sections are rendered.

    Attributes:
        briefing: the answer.
        newest: the newest analysis.
        latest: the newest analysis of each concluder and kind, with the one before it; newest first.
        records: the track records of agents with claims, by agent and domain.
    """

    briefing: Briefing
    newest: HistoryItem | None = None
    latest: tuple[tuple[HistoryItem, HistoryItem | None], ...] = ()
    records: Mapping[tuple[str, str], TrackRecordItem] = field(default_factory=dict)

    @property
    def own(self) -> str:
        """The subject's id."""
        return self.briefing.subject.subject_id


def render_context_of(briefing: Briefing) -> RenderContext:
    """Return the render context of *briefing*."""
    items = briefing.history.items
    records = {(one.agent, one.domain): one for one in briefing.track_records.items}
    return RenderContext(briefing, items[0] if items else None, _latest(items), records)


def _latest(items: Sequence[HistoryItem]) -> tuple[tuple[HistoryItem, HistoryItem | None], ...]:
    """
    Return the newest analysis of each concluder and kind, with the one before it.

    An agent is compared with itself, and a team's run with the team's run before.
    """
    found: dict[tuple[str | None, str], list[HistoryItem]] = {}
    for item in items:
        found.setdefault((item.concluder, item.analysis.core["kind"]), []).append(item)
    pairs = []
    for first, *others in found.values():
        # A market's own analyses come before those of its series, which may be later.
        day = str(first.analysis.core["date"])
        pairs.append((first, next((one for one in others if str(one.analysis.core["date"]) <= day), None)))
    return tuple(pairs)
