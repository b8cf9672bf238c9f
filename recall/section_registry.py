"""Declarations of the sections: retriever, fallbacks, limits, rights, and dependency tags of cached results."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Generic, TypeVar

import orjson

from imem.cache.tiers import tags
from imem.journal.actors import ResourceType
from imem.recall import retrievers, similar_analyses
from imem.recall.model import (
    BriefingSection,
    DebatesSection,
    HistorySection,
    RecordsSection,
    SimilarSection,
    SubjectSection,
    TrackRecordsSection,
)
from imem.recall.retrievers import Limits, RetrievalRequest

A = TypeVar("A", bound=BriefingSection)

MAX_FALLBACKS: Final = 2
"""Most fallback retrievers tried when the exact one fails or is late."""


def _no_tags(_: Any) -> frozenset[str]:
    return frozenset()


@dataclass(frozen=True, slots=True)
class SectionSpec(Generic[A]):
    """
    Declaration of one section.

    Attributes:
        name: name of the section and of its query in metrics and cache keys.
        make: its model.
        exact: its retriever.
        fallbacks: fallback retrievers, in order.
        limits: fields of :class:`~imem.recall.retrievers.Limits` that are part of its cache key.
        resource: resource type that the gateway authorizes.
        own_record: whether its dependency tag is the subject's own record, not all records about the subject.
        tags: further dependency tags, from the answer.
        shows_patterns: whether it may show patterns.
        for_agent: whether it includes the track record of the agent that asks.
        current_only: cached only without an as-of: the tags do not cover all that an answer as of a day depends on.
    """

    name: str
    make: type[A]
    exact: Callable[[RetrievalRequest], Awaitable[A]]
    fallbacks: tuple[Callable[[RetrievalRequest], Awaitable[A]], ...] = ()
    limits: tuple[str, ...] = ()
    resource: ResourceType = ResourceType.GRAPH
    own_record: bool = False
    tags: Callable[[A], frozenset[str]] = field(default=_no_tags)
    shows_patterns: bool = False
    for_agent: bool = False
    current_only: bool = False

    def arguments(self, limits: Limits) -> dict[str, int]:
        """Return the limits that are part of its cache key."""
        return {name: getattr(limits, name) for name in self.limits}


def _of_debates(section: DebatesSection) -> frozenset[str]:
    shown = [one for item in section.items for one in (*item.resolutions, *([item.disputed] if item.disputed else ()))]
    return frozenset(tags.record(one.kind, one.key) for one in shown)


def _of_neighbours(section: SimilarSection) -> frozenset[str]:
    return frozenset(tags.subject(item.subject_id) for item in section.items)


def _of_speakers(section: TrackRecordsSection) -> frozenset[str]:
    return frozenset(tags.agent(item.agent) for item in section.items)


SUBJECT: Final = SectionSpec("subject", SubjectSection, retrievers.about, own_record=True)
HISTORY: Final = SectionSpec(
    "history",
    HistorySection,
    retrievers.history,
    (retrievers.history_in_journal,),
    limits=("analyses", "detailed", "findings"),
)
SIMILAR: Final = SectionSpec(
    "similar_analyses",
    SimilarSection,
    similar_analyses.analyses,
    (similar_analyses.similar_to_newest,),
    limits=("similar",),
    tags=_of_neighbours,
    current_only=True,
)
DEBATES: Final = SectionSpec(
    "debates",
    DebatesSection,
    retrievers.debates,
    (retrievers.debates_in_journal,),
    limits=("debates",),
    tags=_of_debates,
)
TRACK_RECORDS: Final = SectionSpec(
    "track_records",
    TrackRecordsSection,
    retrievers.speakers,
    (retrievers.speakers_in_journal, retrievers.speakers_sampled),
    limits=("speakers",),
    tags=_of_speakers,
    for_agent=True,
)
CONTRADICTIONS: Final = SectionSpec(
    "contradictions",
    RecordsSection,
    retrievers.contradictions,
    (retrievers.contradictions_in_journal,),
    limits=("contradictions",),
)
PATTERNS: Final = SectionSpec(
    "patterns",
    RecordsSection,
    retrievers.patterns,
    (retrievers.patterns_of_view,),
    limits=("patterns",),
    resource=ResourceType.PATTERNS,
    own_record=True,
    tags=lambda _: frozenset({tags.PATTERNS}),
    shows_patterns=True,
)
LESSONS: Final = SectionSpec(
    "lessons",
    RecordsSection,
    retrievers.lessons,
    (retrievers.lessons_in_journal, retrievers.lessons_sampled),
    limits=("lessons",),
    tags=lambda _: frozenset({tags.PATTERNS, tags.LESSONS}),
    shows_patterns=True,
)

BRIEFING_SECTIONS: Final[tuple[SectionSpec[Any], ...]] = (
    HISTORY,
    SIMILAR,
    DEBATES,
    TRACK_RECORDS,
    CONTRADICTIONS,
    PATTERNS,
    LESSONS,
)
"""The sections of a briefing, in the order in which they are shown."""

SECTIONS_BY_NAME: Final[Mapping[str, SectionSpec[Any]]] = {kind.name: kind for kind in BRIEFING_SECTIONS}


@cache
def schema_of(make: type[BriefingSection]) -> str:
    """Return a hash of a model's JSON schema, part of cache keys: programs with different models share no entry."""
    return hashlib.blake2b(orjson.dumps(make.model_json_schema()), digest_size=6).hexdigest()
