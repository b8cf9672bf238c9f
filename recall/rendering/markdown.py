"""
The briefing as Markdown for a prompt: deterministic byte for byte, and within a token bound.

Each section (:mod:`imem.recall.sections`) offers items with a worth to an agent that is about to decide. Items are
added by worth across all sections until the bound is reached. Within a section they are sorted by worth, so that what
is shown of it is its beginning. The end lists what was left out, with the calls that fetch it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Final

from imem.journal.errors import BadInput
from imem.journal.texts.prompt_text import BYTES_PER_TOKEN, NAME_CHARS, TEXT_CHARS, WARNING, name, quoted
from imem.recall.rendering.formatting import moment, with_noun
from imem.recall.rendering.rendered import FollowUpCall, RenderedSection, render_context_of
from imem.recall.section_registry import BRIEFING_SECTIONS

if TYPE_CHECKING:
    from imem.recall.model import Briefing

DEFAULT_TOKENS: Final = 1900

LEAST_CHARS: Final = 2000
"""Room for headings and notes, in characters."""

LEAST_TOKENS: Final = 1000
"""The same in tokens: a name of thirty characters may take four bytes per character."""


@dataclass(frozen=True, slots=True)
class HeaderDetail:
    """
    How much of the fixed parts is shown.

    Attributes:
        text: characters of a quotation about the subject; none leaves facts about it out.
        names: characters of the subject's names.
        reason: characters of the reason why a section is not exact.
        calls: whether the calls that fetch what is left out are listed.
    """

    text: int
    names: int
    reason: int
    calls: bool


HEADER_DETAILS: Final = (
    HeaderDetail(TEXT_CHARS, NAME_CHARS, 200, calls=True),
    HeaderDetail(60, NAME_CHARS, 60, calls=True),
    HeaderDetail(0, 30, 0, calls=False),
)
"""From ample to scarce; the last always fits into :data:`LEAST_CHARS`."""


def render(briefing: Briefing, max_tokens: int | None = None, max_chars: int | None = None) -> str:
    """Return *briefing* as Markdown within the given bound; see :meth:`Briefing.to_markdown`."""
    if max_tokens is not None and max_chars is not None:
        raise BadInput("max_chars", "is one bound too many: give max_tokens or max_chars.")
    size: Callable[[str], int]
    if max_chars is not None:
        _enough("max_chars", max_chars, LEAST_CHARS)
        size, room = len, max_chars
    else:
        wanted = DEFAULT_TOKENS if max_tokens is None else max_tokens
        _enough("max_tokens", wanted, LEAST_TOKENS)
        size, room = _bytes, wanted * BYTES_PER_TOKEN
    context = render_context_of(briefing)
    drafts = [render_part(context) for spec in BRIEFING_SECTIONS for render_part in spec.renderers]
    for fit in HEADER_DETAILS:
        draft = Draft(briefing, drafts, fit, size)
        if draft.total() <= room:
            break
    draft.fill(room)
    return draft.text()


def _enough(field: str, given: int, least: int) -> None:
    if given < least:
        raise BadInput(field, f"must be at least {least:,}: headings and notes alone need that.")


def _bytes(text: str) -> int:
    return len(text.encode())


class Draft:
    """
    A briefing with a number of items of each section.

    The size of each part is cached until the number of its items changes, so that adding an item does not render the
    whole again, and the bound is met exactly.
    """

    def __init__(
        self, briefing: Briefing, sections: Sequence[RenderedSection], fit: HeaderDetail, size: Callable[[str], int]
    ) -> None:
        self._sections, self._fit, self._size = sections, fit, size
        self._call = _moment_of(briefing)
        self._kept = [0] * len(sections)
        self._head = "\n".join([WARNING, "", *_head(briefing, fit)])
        self._nothing = _nothing(sections)
        self._sizes = [size(self._part(index)) for index in range(len(sections))]

    def fill(self, room: int) -> None:
        """Add items by worth until the bound is reached."""
        open_ones = {index for index, section in enumerate(self._sections) if section.blocks}
        while open_ones:
            index = min(open_ones, key=lambda one: (-self._sections[one].blocks[self._kept[one]].worth, one))
            before = self._sizes[index]
            self._kept[index] += 1
            self._sizes[index] = self._size(self._part(index))
            if self.total() > room:
                self._kept[index] -= 1
                self._sizes[index] = before
                open_ones.discard(index)
            elif self._kept[index] == len(self._sections[index].blocks):
                open_ones.discard(index)

    def total(self) -> int:
        """Return the size of the whole."""
        fixed = self._size(self._head) + self._size(self._nothing) + self._size(self._left_out())
        return fixed + sum(self._sizes) + 1

    def text(self) -> str:
        """Return the whole."""
        parts = [self._part(index) for index in range(len(self._sections))]
        return "".join([self._head, *parts, self._nothing, self._left_out(), "\n"])

    def _part(self, index: int) -> str:
        """Return a section with the blank line before it; empty if it has nothing to show."""
        section, count = self._sections[index], self._kept[index]
        note = _note(section, self._fit)
        if not count and not note:
            return ""
        lines = [f"## {section.title}", *([note] if note else [])]
        if count:
            lines += [*([section.head] if section.head else []), *(block.text for block in section.blocks[:count])]
        return "\n\n" + "\n".join(lines)

    def _left_out(self) -> str:
        """Return what is left out, with the calls that fetch it."""
        groups: dict[FollowUpCall | None, list[str]] = {}
        for section, kept in zip(self._sections, self._kept, strict=True):
            left = section.left(kept)
            if not left:
                continue
            groups.setdefault(section.call, []).append(with_noun(left, section.nouns))
        if not groups:
            return ""
        if not self._fit.calls:
            return f"\n\nLeft out: {'; '.join(', '.join(counts) for counts in groups.values())}."
        when, define, option = self._call
        lines = [f"## Left out{f', with {define}' if define else ''}"]
        for call, counts in groups.items():
            how = f": `{call.python.replace('{when}', when)}` or `{call.command}{option}`" if call is not None else ""
            lines.append(f"- {', '.join(counts)}{how}")
        return "\n\n" + "\n".join(lines)


def _moment_of(briefing: Briefing) -> tuple[str, str, str]:
    """Return the arguments that repeat the as-of: for Python, with the variable's definition, and as CLI options."""
    clock = briefing.clock != "known"
    at = (briefing.asked_as_of or briefing.as_of).astimezone(UTC).isoformat().replace("+00:00", "Z")
    asked = briefing.asked_as_of is not None
    python = (", as_of=at" if asked else "") + (f', clock="{briefing.clock}"' if clock else "")
    option = (f" --as-of {at}" if asked else "") + (f" --clock {briefing.clock}" if clock else "")
    return python, f'`at = datetime.fromisoformat("{at}")`' if asked else "", option


def _about(briefing: Briefing, fit: HeaderDetail) -> tuple[str, list[str]]:
    """Return the subject's names, and facts about it."""
    record = briefing.subject.record
    title = name(briefing.subject.subject_id, fit.names)
    label = [briefing.subject.label] if briefing.subject.label is not None else []
    if record is None:
        return title, label
    profile = record.groups.get("profile", {})
    if profile.get("name"):
        title = f"{name(profile['name'], fit.names)} ({title})"
    facts = label + [f"{field} {name(profile[field])}" for field in ("sector", "industry") if profile.get(field)]
    if record.core.get("question"):
        facts.append(quoted(record.core["question"], fit.text))
    if record.groups.get("resolution"):
        facts.append(f"resolved: {quoted(record.groups['resolution']['resolution'], fit.text)}")
    return title, facts


def _head(briefing: Briefing, fit: HeaderDetail) -> list[str]:
    """Return title, facts about the subject, and the moment."""
    title, facts = _about(briefing, fit)
    lines = [f"# Briefing: {title}"]
    if facts and fit.text:
        lines.append(" · ".join(facts))
    clock = {"known": "what could have been known", "recorded": "what was recorded here"}[briefing.clock]
    lines.append(f"As of {moment(briefing.as_of)}: {clock} by then. All times are UTC.")
    if briefing.asked_as_of is not None and briefing.asked_as_of > briefing.as_of:
        lines.append(f"Asked for {moment(briefing.asked_as_of)}; records are complete only up to the time above.")
    if (
        briefing.asked_as_of is None
        and briefing.complete_until is not None
        and briefing.complete_until < briefing.as_of
    ):
        behind_s = (briefing.as_of - briefing.complete_until).total_seconds()
        if behind_s >= 1:
            lines.append(f"Complete up to {moment(briefing.complete_until)}; later writes may be missing.")
    if briefing.degraded:
        lines.append("Some sections are not exact; the line below their heading says why.")
    if briefing.late_ms is not None:
        lines.append(f"This answer came {briefing.late_ms:,.0f} ms after its deadline: the machine is overloaded.")
    return lines


def _note(section: RenderedSection, fit: HeaderDetail) -> str:
    """Return a section's quality and reason; empty if it is exact."""
    if section.quality == "exact":
        return ""
    reason = section.reason
    shown = reason if len(reason) <= fit.reason else reason[: fit.reason] + "…"
    return f"[{section.quality}{f': {shown}' if fit.reason and shown else ''}]"


def _nothing(sections: Sequence[RenderedSection]) -> str:
    """Return one line that lists the sections without items; one that is not exact says so under its own heading."""
    names = [one.nothing for one in sections if one.nothing and not one.blocks and one.quality == "exact"]
    return f"\n\nNothing recorded: {', '.join(names)}." if names else ""
