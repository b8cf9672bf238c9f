"""
Makes the searched texts of records. Pure.

:data:`SOURCES` declares for each kind which groups of a record its text is made of, and how. A text is split into parts
that a sentence encoder reads whole; each has a version from every moment at which something of it, or the name of its
subject, was known differently. Versions are those of the known clock.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from imem.recall.memories.parts import searched_text, split

BEFORE_CHARS: Final = 500
"""How much of the part before belongs to a context, in characters: its end."""

SHORT_CHARS: Final = 500
"""Longest text that has a context, in characters: what is longer says itself what it is about."""

TITLE_CHARS: Final = 200

TURN: Final = "Turn"
"""Kind of the texts of a debate's turns; the key is the debate's, a ``#``, the number, and ``/speaker`` of a record."""

_NUMBERED: Final = re.compile(r"(.*?)#(\d+)(?:/[^/]+)?", re.DOTALL | re.ASCII)
"""The key of a turn."""

Values = Mapping[str, Any]
"""A record at a moment: group → value; a correction counts as the core, ``body`` is the long text, ``turns`` a list."""


@dataclass(frozen=True, slots=True)
class Passage:
    """
    A text of a record, or of a turn of it: who said what.

    Attributes:
        kind, key, author, text: of which record it is, who said it, and what.
        header: whether it names what others are about and says nothing itself; it is searched, and is no hit.
    """

    kind: str
    key: str
    author: str | None
    text: str
    header: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """
    Where the text of a kind is.

    Attributes:
        groups: of the record, that the text is made of.
        passages: what it says, of key and values.
    """

    groups: tuple[str, ...]
    passages: Callable[[str, Values], Iterable[Passage]]


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A value that a group of a record had, of the record's history."""

    group: str
    known_at: datetime
    order_key: str
    value: Any
    occurred_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """
    A version of a part of a text, as ``recall.record_text`` has it.

    Attributes:
        id: of kind, key and number.
        version: its number, from 1.
        kind, key, part: which part of which record it is.
        place: of the analysis or debate that it is part of.
        ordinal: where it stands there.
        subject_id, author: whom it is about, and who said it.
        title: the subject's name.
        content: what it says.
        before: what was said before it, of a short text; empty for nothing.
        header: whether it is no hit of its own.
        occurred_at: when it was true in the world, as the record said first.
        known_at, superseded_at: when this version was valid; None: it is current.
    """

    id: UUID
    version: int
    kind: str
    key: str
    part: int
    place: str
    ordinal: int
    subject_id: str | None
    author: str | None
    title: str
    content: str
    before: str
    header: bool
    occurred_at: datetime | None
    known_at: datetime
    superseded_at: datetime | None


# What each kind says


def _sentences(*texts: str | None) -> str:
    return "\n".join(text.strip() for text in texts if text and text.strip())


def _plain(kind: str, *fields: str, author: str | None = None) -> Callable[[str, Values], Iterable[Passage]]:
    """Return passages of the fields of a core, and of the long text."""

    def passages(key: str, values: Values) -> Iterable[Passage]:
        core = values.get("core") or {}
        yield Passage(
            kind, key, core.get(author), _sentences(*(_words(core.get(name)) for name in fields), values.get("body"))
        )

    return passages


def _words(value: Any) -> str | None:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or None
    return None if value is None else str(value)


def _company(key: str, values: Values) -> Iterable[Passage]:
    profile = values.get("profile") or {}
    facts = (profile.get(name) for name in ("sector", "industry", "size_class", "growth_stage"))
    yield Passage("Company", key, None, _sentences(profile.get("name") or key, ", ".join(filter(None, facts))))


def _market(key: str, values: Values) -> Iterable[Passage]:
    core, resolution = values.get("core") or {}, values.get("resolution") or {}
    answer = resolution.get("resolution")
    said = _sentences(core.get("question"), core.get("sector"), answer and f"Answer: {answer}", values.get("body"))
    yield Passage("Market", key, None, said)


def _decision(key: str, values: Values) -> Iterable[Passage]:
    core = values.get("core") or {}
    said = ", ".join(filter(None, (core.get("type"), core.get("action"), core.get("stance"))))
    agents = core.get("agents_involved") or [None]
    yield Passage("Decision", key, agents[0], _sentences(f"Decision: {said}", values.get("body")))


def _contradiction(key: str, values: Values) -> Iterable[Passage]:
    core = values.get("core") or {}
    sides = " and ".join(f"{core.get(f'source_{side}')} says {core.get(f'value_{side}')}" for side in "ab")
    yield Passage("DataContradiction", key, None, f"{core.get('data_point')}: {sides}")


def _turn(key: str, values: Values) -> Iterable[Passage]:
    core = values.get("core") or {}
    yield Passage(TURN, key, core.get("speaker"), _sentences(core.get("text"), values.get("body")))


def _debate(key: str, values: Values) -> Iterable[Passage]:
    core, state = values.get("core") or {}, values.get("state") or {}
    final = state.get("final_position")
    said = _sentences(core.get("challenge_basis"), final and f"Final position: {final}", values.get("body"))
    yield Passage("Debate", key, core.get("challenger_agent"), _sentences(core.get("topic"), said), header=not said)
    for turn in sorted(values.get("turns") or (), key=lambda one: int(one["number"])):
        yield Passage(TURN, f"{key}#{turn['number']}", turn["speaker"], turn["text"])


SOURCES: Final[Mapping[str, Source]] = {
    "Company": Source(("core", "profile"), _company),
    "Market": Source(("core", "correction", "body", "resolution"), _market),
    "Analysis": Source(("core", "correction", "body"), _plain("Analysis", "summary")),
    "Finding": Source(("core", "correction", "body"), _plain("Finding", "statement", "key_drivers", author="agent")),
    "Decision": Source(("core", "correction", "body"), _decision),
    "Debate": Source(("core", "correction", "body", "state", "turns"), _debate),
    "DebateResolution": Source(
        ("core", "correction", "body"), _plain("DebateResolution", "winning_position", author="winning_agent")
    ),
    "DebateTurn": Source(("core", "correction", "body"), _turn),
    "DataContradiction": Source(("core", "correction"), _contradiction),
    "Lesson": Source(
        ("core", "correction", "body"),
        _plain("Lesson", "category", "insight", "recommended_action", "affected_domains"),
    ),
    "Pattern": Source(("core", "correction", "body"), _plain("Pattern", "name", "category", "sector")),
}
"""Kind → where its text is; the order is that in which records of one moment stand in an analysis."""

_RANK: Final = {kind: nth for nth, kind in enumerate([*SOURCES, TURN])}


# Parts and versions


def title_of(subject_id: str | None, name: str | None) -> str:
    """Return how a text names its subject: by name and ticker, as a question, or by its key alone."""
    if subject_id is None:
        return ""
    root, _, key = subject_id.partition(":")
    if name is None:
        return key
    return (f"{name} ({key})" if root == "company" else name)[:TITLE_CHARS]


Record = tuple[str, str]
"""Kind and key."""


def parts_of_place(
    place: str, records: Mapping[Record, Sequence[GroupValue]], names: Mapping[str, Sequence[tuple[datetime, str]]]
) -> list[Part]:
    """
    Return every version of every part of what is said in a place.

    Args:
        place: an analysis, a debate, or a record by itself, as ``Kind/key``.
        records: of the place, with the history of their groups.
        names: of subjects, each with the moments from which on it was the name, in their order.
    """
    versions: dict[tuple[str, str, int], list[_Version]] = {}
    for (kind, key), history in records.items():
        for version in _versions_of(kind, key, history, names):
            versions.setdefault((version.passage.kind, version.passage.key, version.part), []).append(version)
    order = sorted(versions, key=lambda one: (versions[one][0].known_at, _RANK[one[0]], _natural(one[1]), one[2]))
    parts: list[Part] = []
    for ordinal, which in enumerate(order, start=1):
        previous = versions[order[ordinal - 2]] if ordinal > 1 and _continues(order[ordinal - 2], which) else []
        parts += [
            Part(
                uuid5(NAMESPACE_URL, "/".join(map(str, which))),
                number,
                *which,
                place,
                ordinal,
                version.subject_id,
                version.passage.author,
                version.title,
                version.content,
                _said_by(previous, version.known_at) if len(version.content) <= SHORT_CHARS else "",
                version.passage.header,
                version.occurred_at,
                version.known_at,
                version.superseded_at,
            )
            for number, version in enumerate(versions[which], start=1)
        ]
    return parts


@dataclass(frozen=True, slots=True)
class _Version:
    passage: Passage
    part: int
    content: str
    subject_id: str | None
    title: str
    occurred_at: datetime | None
    known_at: datetime
    superseded_at: datetime | None


def _versions_of(
    kind: str, key: str, history: Sequence[GroupValue], names: Mapping[str, Sequence[tuple[datetime, str]]]
) -> Iterable[_Version]:
    """Yield the versions of each part of a record, those of one part in their order."""
    known = [one.known_at for one in history if one.group == "core"]
    if not known:
        return
    begins = min(known)
    occurred_at = min((one for one in history if one.group == "core"), key=lambda one: one.order_key).occurred_at
    subjects = {subject for one in history if (subject := _subject_of(one))}
    moments = {max(one.known_at, begins) for one in history}
    moments |= {at for subject in subjects for at, _ in names.get(subject, ()) if at > begins}
    open_parts: dict[tuple[str, str, int], _Version] = {}
    edges = [*sorted(moments), None]
    for at, until in pairwise(edges):
        if at is None:
            continue
        values = _values_at(history, at)
        core = values.get("core") or {}
        about: str | None = core.get("subject_id")
        name = _name_at(names.get(about, ()), at) if about is not None else None
        title = "" if kind in _OF_THEMSELVES else title_of(about, name)
        here: dict[tuple[str, str, int], _Version] = {}
        for passage in SOURCES[kind].passages(key, values):
            for part, content in enumerate(split(passage.text)):
                here[passage.kind, passage.key, part] = _Version(
                    passage, part, content, about, title, occurred_at, at, until
                )
        for which, before in open_parts.items():
            now = here.get(which)
            if now is not None and _same(before, now):
                here[which] = replace(now, known_at=before.known_at)
            else:
                yield before
        open_parts = here
    yield from open_parts.values()


_OF_THEMSELVES: Final = frozenset({"Company", "Market"})
"""Kinds that are subjects: their text names them."""


def _same(one: _Version, other: _Version) -> bool:
    return (one.passage.author, one.passage.header, one.content, one.subject_id, one.title) == (
        other.passage.author,
        other.passage.header,
        other.content,
        other.subject_id,
        other.title,
    )


def _subject_of(one: GroupValue) -> str | None:
    return one.value.get("subject_id") if one.group in {"core", "correction"} else None


def _values_at(history: Sequence[GroupValue], at: datetime) -> dict[str, Any]:
    """Return what each group was at a moment: of a core the earliest statement counts, of others the latest."""
    values: dict[str, Any] = {}
    for one in sorted(history, key=lambda one: one.order_key):
        if one.known_at <= at and not (one.group == "core" and "core" in values):
            values[one.group] = one.value
    correction = values.pop("correction", None)
    if correction is not None:
        values["core"] = correction
    return values


def _name_at(names: Sequence[tuple[datetime, str]], at: datetime) -> str | None:
    nth = bisect_right(names, at, key=lambda one: one[0])
    return names[nth - 1][1] if nth else None


def _continues(previous: tuple[str, str, int], which: tuple[str, str, int]) -> bool:
    """Return whether a part goes on from the one before it: of the same record, or of the debate's turns."""
    return previous[:2] == which[:2] or (which[0] == TURN and previous[0] in {TURN, "Debate"})


def _said_by(versions: Sequence[_Version], at: datetime) -> str:
    """Return the end of what a part said at a moment."""
    said = [
        spoken(one.passage.kind, one.passage.author, one.content)
        for one in versions
        if one.known_at <= at and (one.superseded_at is None or one.superseded_at > at)
    ]
    return said[0][-BEFORE_CHARS:] if said else ""


def spoken(kind: str, author: str | None, content: str) -> str:
    """Return a text as it is searched: of a turn with the speaker's name in front."""
    return searched_text(author if kind == TURN else None, content)


def _natural(key: str) -> tuple[str, int]:
    """Return what keys are ordered by: turns by their numbers."""
    numbered = _NUMBERED.fullmatch(key)
    return (numbered[1], int(numbered[2])) if numbered is not None else (key, 0)
