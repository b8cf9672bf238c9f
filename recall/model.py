"""
Models of briefings and other answers; those of single sections stand with their sections.

Times are UTC; probabilities, confidences and shares are fractions 0–1. Texts are verbatim, as they were stored: data,
never instructions. :mod:`imem.recall.rendering.markdown` quotes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pydantic import Field

from imem.journal.arguments import checks_arguments
from imem.journal.modes import Mode
from imem.recall.answers import (
    AWAY,
    EXHAUSTED,
    AnswerModel,
    BriefingSection,
    ClaimSummary,
    Completeness,
    DatedRecord,
    Quality,
    RecordsSection,
    ReviewedDecision,
)
from imem.recall.immutable import sealed
from imem.recall.rendering.markdown import render
from imem.recall.section_registry import BRIEFING_SECTIONS
from imem.recall.sections.debates import DebateItem, DebatesSection, RecordedDebate, TurnItem
from imem.recall.sections.history import FindingScore, HistoryItem, HistorySection, Performer, SettledFinding
from imem.recall.sections.own_signals import OwnSignalsSection
from imem.recall.sections.panels import DatedWeight, PanelAnswer, PanelItem, PanelsSection, PooledAnswer, WeightsTable
from imem.recall.sections.similar_analyses import SimilarItem, SimilarSection
from imem.recall.sections.subject import SubjectSection
from imem.recall.sections.track_records import (
    DatedTrackRecord,
    TrackRecordItem,
    TrackRecordsSection,
    TrackRecordsTable,
)

__all__ = [
    "AWAY",
    "EXHAUSTED",
    "AnswerModel",
    "Briefing",
    "BriefingSection",
    "ClaimSummary",
    "Completeness",
    "DatedRecord",
    "DatedTrackRecord",
    "DatedWeight",
    "DebateItem",
    "DebatesSection",
    "FindingScore",
    "HistoryItem",
    "HistorySection",
    "LongText",
    "OwnSignalsSection",
    "PanelAnswer",
    "PanelItem",
    "PanelsSection",
    "Performer",
    "PooledAnswer",
    "Quality",
    "RecordedDebate",
    "RecordsSection",
    "ReviewedDecision",
    "Rows",
    "SettledFinding",
    "SimilarItem",
    "SimilarSection",
    "Subject",
    "SubjectSection",
    "TrackRecordItem",
    "TrackRecordsSection",
    "TrackRecordsTable",
    "TurnItem",
    "WeightsTable",
]  # fmt: skip


class LongText(AnswerModel):
    """
    The long text of a record.

    Attributes:
        mode: how well the institution could answer.
        late_ms: by how many milliseconds the answer missed its deadline; None if it did not.
    """

    kind: str
    key: str
    body: str
    known_at: datetime
    mode: Mode = Mode.NORMAL
    late_ms: float | None = None


class Rows(list[dict[str, Any]]):
    """
    The rows of a named query.

    Attributes:
        mode: how well the institution could answer.
        late_ms: by how many milliseconds the answer missed its deadline; None if it did not.
    """

    def __init__(
        self, rows: Iterable[dict[str, Any]] = (), *, mode: Mode = Mode.NORMAL, late_ms: float | None = None
    ) -> None:
        super().__init__(rows)
        self.mode = mode
        self.late_ms = late_ms


class Subject(AnswerModel):
    """
    The subject of the briefing.

    Attributes:
        subject_id: ``company:<ticker>`` or ``market:<market_id>``.
        record: its record as of the moment; None if only other records mention it.
        label: says so where the name that was asked differs from its own in accents.
    """

    subject_id: str
    record: DatedRecord | None = None
    label: str | None = None


@checks_arguments
class Briefing(AnswerModel):
    """
    The knowledge of the institution about a subject at a moment.

    Attributes:
        as_of: the resolved as-of.
        clock: ``known`` (what could have been known) or ``recorded`` (what was recorded here).
        asked_as_of: the as-of asked for; ``as_of`` is earlier if it was clamped to the safe horizon.
        complete_until: everything recorded until then is in the answer; None if Postgres did not answer.
        mode: ``normal``; ``degraded_read`` if a section is less than exact; ``read_only`` if there is evidence that
            Postgres is away; ``recovering`` if the graph was far behind.
        for_agent: the agent that asked.
        took_ms: how long it took, in milliseconds; not part of the Markdown.
        late_ms: by how many milliseconds it missed its deadline; None if it did not.
    """

    subject: Subject
    as_of: datetime
    clock: str
    asked_as_of: datetime | None = None
    complete_until: datetime | None = None
    mode: Mode = Mode.NORMAL
    for_agent: str | None = None
    took_ms: float = 0.0
    late_ms: float | None = None
    history: HistorySection
    own_signals: OwnSignalsSection = Field(default_factory=lambda: sealed(OwnSignalsSection()))
    panels: PanelsSection = Field(default_factory=lambda: sealed(PanelsSection()))
    track_records: TrackRecordsSection
    contradictions: RecordsSection
    similar_analyses: SimilarSection = Field(default_factory=SimilarSection)
    debates: DebatesSection
    patterns: RecordsSection
    lessons: RecordsSection

    @property
    def degraded(self) -> bool:
        """Whether any section is less than exact."""
        return any(section.quality is not Quality.EXACT for section in self.sections.values())

    @property
    def sections(self) -> dict[str, BriefingSection]:
        """The sections by name, in the order in which they are shown; some only where an agent asked."""
        named = self.for_agent is not None
        return {spec.name: getattr(self, spec.name) for spec in BRIEFING_SECTIONS if named or not spec.needs_agent}

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_markdown(self, *, max_tokens: int | None = None, max_chars: int | None = None) -> str:
        """
        Return it as Markdown within a bound, byte for byte the same for the same answer.

        The items of greatest worth are shown; the end lists what is left out, with the calls that fetch it.

        Args:
            max_tokens: tokens at most, by the estimate of :func:`imem.journal.texts.prompt_text.tokens`; 1,900 where
            none is given. max_chars: characters at most, instead.

        Raises:
            BadInput: one is no whole number, both are given, or the bound is too small for even the headings.
        """
        return render(self, max_tokens, max_chars)
