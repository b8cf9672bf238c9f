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
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.kinds.catalog import CORE, KINDS, implied_links, subject_id_of
from imem.kg.projection.rows import Event

Ref = tuple[str, str]

PATTERNS: Final = "patterns"
LESSONS: Final = "lessons"

SETTLED: Final = "settled_by"
SIMILAR: Final = "similar_to"
"""Derived values that results show: scores of findings, and neighbours of analyses. No result shows counters."""

_LESSON_LINKS: Final = frozenset({"HAS_POSTMORTEM", "GENERATED_LESSON", "AFFECTS_PATTERN"})
_AGENT_KINDS: Final = frozenset({"AgentCredibility"})
"""Kinds of records about the agent that they name; a finding is one once it is scored."""

_UNTAGGED_KINDS: Final = frozenset({"Agent", "Domain", "Human"})
"""Ends of links without a tag: they name an actor, not a subject."""


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
        own, ends = _tags_of_event(event)
        tags |= own
        refs |= ends
    return tags | await _related_tags(refs, _AGENT_KINDS, database, deadline)


async def tags_of_derived(sort: str, keys: Iterable[str], database: Database, *, deadline: Deadline) -> set[str]:
    """
    Return the tags that derived values of *sort* invalidate, by the keys of their nodes.

    Raises:
        PostgresUnavailable, BudgetExceeded: the look-up of subjects failed.
    """
    if sort == SIMILAR:
        return await _related_tags({("Analysis", key) for key in keys}, frozenset(), database, deadline)
    if sort != SETTLED:
        return set()
    return await _related_tags({("Finding", key) for key in keys}, _AGENT_KINDS | {"Finding"}, database, deadline)


def _tags_of_event(event: Event) -> tuple[set[str], set[Ref]]:
    """Return the tags that follow from an event alone, and the records whose subjects have to be looked up."""
    sort, _, name = event.kind.partition(".")
    if sort == "link":
        payload = event.payload
        ends = {(payload["from_label"], payload["from_key"]), (payload["to_label"], payload["to_key"])}
        tags = {LESSONS} if name in _LESSON_LINKS or "Lesson" in {label for label, _ in ends} else set()
        return tags, {ref for ref in ends if ref[0] not in _UNTAGGED_KINDS}
    tags, refs = {record(name, event.key)}, {(name, event.key)}
    if name == "Pattern":
        tags.add(PATTERNS)
    if name in {"Lesson", "PostMortem"}:
        tags.add(LESSONS)
    if name == "Agent":
        tags.add(agent(event.key))
    if name in KINDS and CORE in event.payload:
        core = event.payload[CORE]
        if core.get("subject_id"):
            tags.add(subject(core["subject_id"]))
        if name == "Market" and core.get("series_id"):
            tags.add(series(core["series_id"]))
        if name == "AgentCredibility":
            tags.add(agent(core["agent_id"]))
        for _, from_label, from_key, to_label, to_key, *_ in implied_links(name, core):
            refs |= {ref for ref in ((from_label, from_key), (to_label, to_key)) if ref[0] not in _UNTAGGED_KINDS}
    return tags, refs


async def _related_tags(
    refs: Iterable[Ref], of_agents: frozenset[str], database: Database, deadline: Deadline
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
