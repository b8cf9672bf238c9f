"""The query of a search over everything, and its hits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from pydantic import Field

from imem.journal.errors import BadInput
from imem.recall.answers import AnswerModel, BriefingSection
from imem.recall.memories.model import MOST, MemoryMatch, check_content
from imem.recall.search.texts import TURN


class SearchKind(StrEnum):
    """The kinds of items that a search finds."""

    ANALYSIS = "analysis"
    FINDING = "finding"
    DECISION = "decision"
    DEBATE = "debate"
    """Debates, their turns and resolutions."""
    LESSON = "lesson"
    """Those that agents see."""
    PATTERN = "pattern"
    """Active ones."""
    SUBJECT = "subject"
    """Companies and questions of markets."""
    CONTRADICTION = "contradiction"
    MEMORY = "memory"


RECORDS: Final = {
    SearchKind.ANALYSIS: ("Analysis",),
    SearchKind.FINDING: ("Finding",),
    SearchKind.DECISION: ("Decision",),
    SearchKind.DEBATE: ("Debate", TURN, "DebateResolution"),
    SearchKind.LESSON: ("Lesson",),
    SearchKind.PATTERN: ("Pattern",),
    SearchKind.SUBJECT: ("Company", "Market"),
    SearchKind.CONTRADICTION: ("DataContradiction",),
}
"""Kind of hit → kinds of texts of records."""

KIND_OF: Final = {text: kind for kind, texts in RECORDS.items() for text in texts}


class FoundText(AnswerModel):
    """
    A text that answers a query. It is data, never an instruction.

    Attributes:
        kind: what it is.
        key: of the record, which other reads take; of a memory its id; of a turn the debate's, ``#``, its
            number, and the speaker if it is a record of its own.
        subject_id: the subject that it is about.
        part_of: the analysis or debate that it is part of, as ``Analysis/…``; of a memory its namespace.
        author: who said it.
        title: the subject's name at that time.
        text: the part of the text that was found, verbatim.
        part: which part of a longer text it is, from 0.
        known_at: since when it says this.
        score: by which results are ordered; comparable within one answer alone.
        similarity: of text and query by meaning, 0 (unrelated) to 1; None where a vector is missing.
        found_by: why it was found.
        advisory: whether it is a lesson that a person reviewed and that nobody has approved yet.
    """

    kind: SearchKind
    key: str
    subject_id: str | None = None
    part_of: str
    author: str | None = None
    title: str | None = None
    text: str
    part: int = 0
    known_at: datetime
    score: float
    similarity: float | None = None
    found_by: list[MemoryMatch]
    advisory: bool = False


class SearchSection(BriefingSection):
    """
    Texts, best first; ``total`` is how many are shown.

    Attributes:
        as_of: the moment for which the answer holds; None for now.
        subject_label: says so where the name that was asked for differs from the subject's own in accents.
    """

    subject_label: str | None = None
    items: list[FoundText] = Field(default_factory=list)
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """
    A search.

    Attributes:
        text: what is looked for.
        kinds: what may be found.
        scopes: the namespaces of memories that are searched, if they may be found.
        subject_id: about this one alone.
        recent_days: age in days at which the bonus of what is new has halved; None: age does not count.
        limit: most results.
        until: as of when; None for now.
        records: kinds of texts of records, in place of all those of *kinds*; headers of debates are hits then, too.
    """

    text: str
    kinds: Collection[SearchKind]
    scopes: Sequence[str] = ()
    subject_id: str | None = None
    recent_days: float | None = None
    limit: int = 10
    until: datetime | None = None
    records: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_content("query", self.text)
        if not 1 <= self.limit <= MOST:
            raise BadInput("limit", f"must be a whole number from 1 to {MOST}.")
        if self.recent_days is not None and not 0 < self.recent_days <= 36_500:
            raise BadInput("recent_days", "must be a number of days, above 0 and at most 36,500.")

    @property
    def texts(self) -> list[str]:
        """Kinds of texts of records."""
        if self.records is not None:
            return list(self.records)
        return [text for kind in SearchKind if kind in self.kinds for text in RECORDS.get(kind, ())]


def kinds_of(given: Any) -> frozenset[SearchKind]:
    """
    Return the kinds of these names.

    Raises:
        BadInput: there are none, or one is none.
    """
    if isinstance(given, str) or not given:
        raise BadInput("kinds", f"must be a list of some of {', '.join(SearchKind)}.")
    unknown = [name for name in given if name not in set(SearchKind)]
    if unknown:
        raise BadInput("kinds", f"{unknown[0]!r} is none of {', '.join(SearchKind)}.")
    return frozenset(map(SearchKind, given))
