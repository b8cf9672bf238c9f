"""The arms by name: how each is asked, what stands in for it, and what a kept answer of it hangs on."""

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
from imem.recall.model import Arm, DebatesArm, HistoryArm, RecordsArm, SimilarArm, SubjectArm, TrackRecordsArm
from imem.recall.retrievers import Limits, Question

A = TypeVar("A", bound=Arm)

MOST_STEPS: Final = 2
"""Things that are tried at most where an answer does not come in time."""


def _no_tags(_: Any) -> frozenset[str]:
    return frozenset()


@dataclass(frozen=True, slots=True)
class ArmKind(Generic[A]):
    """
    One kind of arm.

    Attributes:
        name: of the arm, and the type of its query.
        make: its model.
        exact: the answer.
        instead: what may stand in for it, in order.
        limits: those of :class:`~imem.recall.retrievers.Limits` that shape it.
        resource: what the gateway is asked for.
        own_record: whether an answer hangs on the subject's own record alone, not on all that is stated about it.
        tags: beside that: what else an answer hangs on.
        shows_patterns: whether it may show patterns.
        for_agent: whether it shows the record of who asks.
        of_now_alone: whether only answers as of now are kept: one of a day hangs on more than its tags say.
    """

    name: str
    make: type[A]
    exact: Callable[[Question], Awaitable[A]]
    instead: tuple[Callable[[Question], Awaitable[A]], ...] = ()
    limits: tuple[str, ...] = ()
    resource: ResourceType = ResourceType.GRAPH
    own_record: bool = False
    tags: Callable[[A], frozenset[str]] = field(default=_no_tags)
    shows_patterns: bool = False
    for_agent: bool = False
    of_now_alone: bool = False

    def arguments(self, limits: Limits) -> dict[str, int]:
        """Return what of *limits* it is shaped by."""
        return {name: getattr(limits, name) for name in self.limits}


def _of_debates(arm: DebatesArm) -> frozenset[str]:
    shown = [one for item in arm.items for one in (*item.resolutions, *([item.disputed] if item.disputed else ()))]
    return frozenset(tags.record(one.kind, one.key) for one in shown)


def _of_neighbours(arm: SimilarArm) -> frozenset[str]:
    return frozenset(tags.subject(item.subject_id) for item in arm.items)


def _of_speakers(arm: TrackRecordsArm) -> frozenset[str]:
    return frozenset(tags.agent(item.agent) for item in arm.items)


SUBJECT: Final = ArmKind("subject", SubjectArm, retrievers.about, own_record=True)
HISTORY: Final = ArmKind(
    "history",
    HistoryArm,
    retrievers.history,
    (retrievers.history_in_journal,),
    limits=("analyses", "detailed", "findings"),
)
SIMILAR: Final = ArmKind(
    "similar_analyses",
    SimilarArm,
    similar_analyses.analyses,
    (similar_analyses.fewer,),
    limits=("similar",),
    tags=_of_neighbours,
    of_now_alone=True,
)
DEBATES: Final = ArmKind(
    "debates", DebatesArm, retrievers.debates, (retrievers.debates_in_journal,), limits=("debates",), tags=_of_debates
)
TRACK_RECORDS: Final = ArmKind(
    "track_records",
    TrackRecordsArm,
    retrievers.speakers,
    (retrievers.speakers_in_journal, retrievers.speakers_sampled),
    limits=("speakers",),
    tags=_of_speakers,
    for_agent=True,
)
CONTRADICTIONS: Final = ArmKind(
    "contradictions",
    RecordsArm,
    retrievers.contradictions,
    (retrievers.contradictions_in_journal,),
    limits=("contradictions",),
)
PATTERNS: Final = ArmKind(
    "patterns",
    RecordsArm,
    retrievers.patterns,
    (retrievers.patterns_of_view,),
    limits=("patterns",),
    resource=ResourceType.PATTERNS,
    own_record=True,
    tags=lambda _: frozenset({tags.PATTERNS}),
    shows_patterns=True,
)
LESSONS: Final = ArmKind(
    "lessons",
    RecordsArm,
    retrievers.lessons,
    (retrievers.lessons_in_journal, retrievers.lessons_sampled),
    limits=("lessons",),
    tags=lambda _: frozenset({tags.PATTERNS, tags.LESSONS}),
    shows_patterns=True,
)

ARMS: Final[tuple[ArmKind[Any], ...]] = (HISTORY, SIMILAR, DEBATES, TRACK_RECORDS, CONTRADICTIONS, PATTERNS, LESSONS)
"""The arms of a briefing, in the order in which they are shown."""

PARTS: Final[Mapping[str, ArmKind[Any]]] = {kind.name: kind for kind in ARMS}


@cache
def schema_of(make: type[Arm]) -> str:
    """Return a name for the form of a model: a program whose models differ keeps its answers apart."""
    return hashlib.blake2b(orjson.dumps(make.model_json_schema()), digest_size=6).hexdigest()
