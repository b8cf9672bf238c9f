"""
The parts of an answer with several sections.

Times are UTC; probabilities, confidences and shares are fractions 0–1. Texts are verbatim, as they were stored: data,
never instructions. :mod:`imem.recall.rendering.markdown` quotes them.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from imem.credibility.verdicts import NoVerdict
from imem.journal.modes import Mode


class AnswerModel(BaseModel):
    """A frozen value without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Quality(StrEnum):
    """How good a section's answer is."""

    EXACT = "exact"
    """Everything that was known, as asked."""
    STALE = "stale"
    """An earlier answer from the cache, as old as ``age_s``: a store did not answer in time."""
    PARTIAL = "partial"
    """Something may be missing; the reason says what."""
    UNAVAILABLE = "unavailable"
    """No answer: being empty does not mean that nothing is known."""


class Completeness(StrEnum):
    """The completeness of an answer."""

    TOP_N = "top_n"
    """The first records alone."""
    SAMPLED = "sampled"
    """A sample of half of the records."""


EXHAUSTED: str = "QUERY_TIMEOUT_EXHAUSTED"
"""Error of an unavailable section whose load and fallbacks timed out."""

AWAY: str = "STORE_UNAVAILABLE"
"""Error of an unavailable section whose store refused, and whose fallbacks failed."""


class DatedRecord(AnswerModel):
    """
    A record as of a moment.

    Attributes:
        kind, key: its identity.
        core: its facts.
        groups: its property groups that were known.
        known_at: the earliest moment it could be known.
        occurred_at: when it was true in the world.
        corrected_at: since when its last correction is valid.
        more: whether it has a long text as well.
    """

    kind: str
    key: str
    core: dict[str, Any]
    groups: dict[str, dict[str, Any]] = Field(default_factory=dict)
    known_at: datetime
    occurred_at: datetime
    corrected_at: datetime | None = None
    more: bool = False


class ReviewedDecision(AnswerModel):
    """
    A decision with the outcomes that reviewed it; its verdict is in its group ``outcome``.

    Attributes:
        no_verdict: in a history, why there is no verdict; None with one.
        due_at: when the outcome that the verdict waits for is due.
    """

    decision: DatedRecord
    outcomes: list[DatedRecord] = Field(default_factory=list)
    no_verdict: NoVerdict | None = None
    due_at: datetime | None = None


class ClaimSummary(AnswerModel):
    """
    How the claims of an analysis turned out.

    Attributes:
        claims: number of its findings that an outcome can settle.
        settled, right, wrong: number of them; settled ones that are neither right nor wrong abstained.
        right_agents, wrong_agents: agents that made them.
        metric, unit, period_start, target_at: the question, if all claims are about one.
        actual: the outcome's value, if known.
        made_at: when the first claim began to count, on the clock asked for.
        settled_at: when the last settled claim was settled, on that clock.
        due_at: ``target_at`` of the first unsettled claim.
    """

    claims: int
    settled: int
    right: int
    wrong: int
    right_agents: list[str] = Field(default_factory=list)
    wrong_agents: list[str] = Field(default_factory=list)
    metric: str | None = None
    unit: str | None = None
    period_start: datetime | None = None
    target_at: datetime | None = None
    actual: float | None = None
    made_at: datetime | None = None
    settled_at: datetime | None = None
    due_at: datetime | None = None


class BriefingSection(AnswerModel):
    """
    One section of a briefing.

    Attributes:
        quality: how good the answer is.
        reason: why it is not exact.
        total: how many items exist; ``items`` may hold fewer.
        age_s: age of a stale answer, in seconds.
        completeness: what a partial answer is made of.
        error: of an unavailable one, ``QUERY_TIMEOUT_EXHAUSTED`` or ``STORE_UNAVAILABLE``.
        fallback_exhausted: whether every fallback failed; being empty then does not mean that nothing is known.
        mode: the institution's mode, if the section was read by itself; a briefing has one for all.
        late_ms: by how many milliseconds it missed its deadline, if it was read by itself; None if it did not.
    """

    quality: Quality = Quality.EXACT
    reason: str | None = None
    total: int = 0
    age_s: float | None = None
    completeness: Completeness | None = None
    error: str | None = None
    fallback_exhausted: bool | None = None
    mode: Mode | None = None
    late_ms: float | None = None


class RecordsSection(BriefingSection):
    """Records of one kind, newest first."""

    items: list[DatedRecord] = Field(default_factory=list)
