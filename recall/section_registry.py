"""The sections of a briefing: each is declared in its module of :mod:`imem.recall.sections`, and listed here once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from imem.recall.dated_rows import DatedQuery
from imem.recall.sections import (
    contradictions,
    debates,
    history,
    lessons,
    own_signals,
    panels,
    patterns,
    similar_analyses,
    subject,
    track_records,
)
from imem.recall.sections.spec import SectionSpec

SUBJECT: Final = subject.SECTION

BRIEFING_SECTIONS: Final[tuple[SectionSpec[Any], ...]] = (
    history.SECTION,
    own_signals.SECTION,
    panels.SECTION,
    track_records.SECTION,
    contradictions.SECTION,
    similar_analyses.SECTION,
    debates.SECTION,
    patterns.SECTION,
    lessons.SECTION,
)
"""The sections of a briefing, in the order in which they are shown."""

SECTIONS_BY_NAME: Final[Mapping[str, SectionSpec[Any]]] = {spec.name: spec for spec in BRIEFING_SECTIONS}

DATED_QUERIES: Final[Mapping[str, DatedQuery]] = {
    spec.query.name: spec.query for spec in BRIEFING_SECTIONS if spec.query is not None
}
"""The named queries that answer as of a moment."""
