"""
Dependency tags of writes: which cached results a write invalidates.

================  ==================================================================================================
``subject:…``     everything recorded about a subject, or about the parts of its analyses
``series:…``      the same for the questions of a series
``agent:…``       an agent's profile, and the outcomes of its claims
``record:…``      one record, for results that show it without being about its subject
``patterns``      patterns; their status has an epoch of its own, which is checked at each use
``lessons``       lessons, post-mortems and their links
================  ==================================================================================================

Kinds and links declare theirs (:mod:`imem.kg.kinds`); here they are filled in from events, and from Postgres where the
event does not say of which subject or agent its record is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.kinds.base import Tag, TagName
from imem.kg.kinds.catalog import CORE, KINDS, LINKS, implied_links, subject_id_of
from imem.kg.kinds.links import LINK_KINDS, LinkKind
from imem.kg.projection.rows import Event

Ref = tuple[str, str]

PATTERNS: Final[TagName] = "patterns"
LESSONS: Final[TagName] = "lessons"

_DERIVED: Final[Mapping[str, Sequence[LinkKind]]] = {
    sort: [link for link in LINK_KINDS if link.derived and link.name.lower() == sort]
    for sort in {link.name.lower() for link in LINK_KINDS if link.derived}
}
"""Links that are computed here, by the name under which the applier publishes them. No result shows its counters."""

_AGENT_KINDS: Final = frozenset(info.label for info in KINDS.values() if any(tag.name == "agent" for tag in info.tags))


def subject(subject_id: str) -> str:
    """Return the tag of a subject."""
    return f"subject:{subject_id}"


def series(series_id: str) -> str:
    """Return the tag of a series of questions."""
    return f"series:{series_id}"


def agent(name: str) -> str:
    """Return the tag of an agent."""
    return f"agent:{name}"


def record(kind: str, key: str) -> str:
    """Return the tag of one record."""
    return f"record:{kind}/{key}"


async def tags_of_events(events: Sequence[Event], database: Database, *, deadline: Deadline) -> set[str]:
    """
    Return the tags that *events* invalidate.

    Raises:
        PostgresUnavailable, BudgetExceeded: the look-up of subjects failed.
    """
    tags: set[str] = set()
    refs: set[Ref] = set()
    for event in events:
        own, looked_up = _tags_of_event(event)
        tags |= own
        refs |= looked_up
    return tags | await _related_tags(refs, _AGENT_KINDS, database, deadline)


async def tags_of_derived(sort: str, keys: Sequence[str], database: Database, *, deadline: Deadline) -> set[str]:
    """
    Return the tags that derived links of *sort* invalidate, by the keys of the nodes from which they start.

    Raises:
        PostgresUnavailable, BudgetExceeded: the look-up of subjects failed.
    """
    links = [link for link in _DERIVED.get(sort, ()) if link.tags]
    refs = {(label, key) for link in links for label in link.froms for key in keys}
    of_agents = {label for link in links for label in link.froms if any(isinstance(tag, Tag) for tag in link.tags)}
    return await _related_tags(refs, of_agents, database, deadline)


def _tags_of_event(event: Event) -> tuple[set[str], set[Ref]]:
    """Return the tags that follow from an event alone, and the records whose subjects have to be looked up."""
    sort, _, name = event.kind.partition(".")
    if sort == "link":
        of = event.payload
        return _tags_of_link(name, (of["from_label"], of["from_key"]), (of["to_label"], of["to_key"]))
    tags, refs = {record(name, event.key)}, {(name, event.key)}
    if name in KINDS:
        info, core = KINDS[name], event.payload.get(CORE)
        values = {info.key: event.key, **(core or {})}
        tags |= {_text(tag, values) for tag in info.tags if tag.field is None or values.get(tag.field)}
        for link in implied_links(name, core) if core else ():
            of_link, ends = _tags_of_link(link.type, (link.from_label, link.from_key), (link.to_label, link.to_key))
            tags |= of_link
            refs |= ends
    return tags, refs


def _tags_of_link(type_: str, start: Ref, end: Ref) -> tuple[set[str], set[Ref]]:
    tags: set[str] = set()
    refs: set[Ref] = set()
    for ref in (start, end):
        for tag in KINDS[ref[0]].tags:
            if tag.name not in LINKS[type_, start[0], end[0]].tags:
                continue
            if tag.field is None:
                tags.add(tag.name)
            else:
                refs.add(ref)
    return tags, refs


def _text(tag: Tag, values: Mapping[str, str]) -> str:
    return tag.name if tag.field is None else f"{tag.name}:{values[tag.field]}"


async def _related_tags(
    refs: Iterable[Ref], of_agents: Collection[str], database: Database, deadline: Deadline
) -> set[str]:
    wanted = sorted(refs)
    if not wanted:
        return set()
    subjects = {found for kind, key in wanted if kind in KINDS and (found := subject_id_of(kind, key)) is not None}
    rows = await database.named(
        "related_subjects",
        {
            "kinds": [kind for kind, _ in wanted],
            "keys": [key for _, key in wanted],
            "subjects": sorted(subjects),
        },
        deadline=deadline,
    )
    tags: set[str] = set()
    for row in rows:
        if row["subject_id"] is not None:
            tags.add(subject(row["subject_id"]))
        if row["series_id"] is not None:
            tags.add(series(row["series_id"]))
        if row["kind"] in of_agents:
            tags.add(agent(row["agent"]))
    return tags
