"""
Models of briefings and other answers.

Times are UTC; probabilities, confidences and shares are fractions 0–1. Texts are verbatim, as they were stored: data,
never instructions. :mod:`imem.recall.rendering.markdown` quotes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from imem.journal.arguments import checks_arguments
from imem.journal.modes import Mode
from imem.recall.rendering.markdown import render


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
    """What a partial answer is made of."""

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


class FindingScore(AnswerModel):
    """
    How a finding turned out.

    Attributes:
        outcome: key of the outcome that settled it.
        vintage: version of the number, 0 for the first published.
        actual: the outcome's value.
        right: whether the finding was right; none when it took no side.
        brier: squared error of its probability, where it gave one.
    """

    outcome: str
    vintage: int
    actual: float
    right: bool | None
    brier: float | None = None


class SettledFinding(AnswerModel):
    """A finding and, once an outcome settled it, its score."""

    finding: DatedRecord
    score: FindingScore | None = None


class ReviewedDecision(AnswerModel):
    """A decision with the outcomes that reviewed it; its verdict is in its group ``outcome``."""

    decision: DatedRecord
    outcomes: list[DatedRecord] = Field(default_factory=list)


class Performer(AnswerModel):
    """An agent that ran an analysis, and its role."""

    agent: str
    role: str | None = None


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


class HistoryItem(AnswerModel):
    """
    An analysis with its findings, decisions and outcomes.

    Attributes:
        subject_id: the subject asked about, or another market of its series.
        performed_by, findings: filled for the first :attr:`Limits.detailed` analyses of a history alone.
        findings_total: number of its findings; ``findings`` holds the most important ones.
        claims: how its claims turned out; None without any.
    """

    subject_id: str
    analysis: DatedRecord
    performed_by: list[Performer] = Field(default_factory=list)
    findings: list[SettledFinding] = Field(default_factory=list)
    findings_total: int = 0
    decisions: list[ReviewedDecision] = Field(default_factory=list)
    claims: ClaimSummary | None = None


class SimilarItem(AnswerModel):
    """
    An analysis of another subject that is similar to one of the subject's own.

    Attributes:
        subject_id: its subject.
        like: key of the subject's own analysis that it is similar to.
        score: similarity, 0 to 1 (:mod:`imem.kg.similarity.scoring`).
        decisions: decisions that followed it, with their verdicts as of the moment.
        claims: how its claims turned out; None without any.
    """

    subject_id: str
    analysis: DatedRecord
    like: str
    score: float
    decisions: list[ReviewedDecision] = Field(default_factory=list)
    claims: ClaimSummary | None = None


class DebateItem(AnswerModel):
    """
    A debate and how it ended.

    Attributes:
        turns: number of turns recorded.
        speakers: number of distinct speakers.
    """

    debate: DatedRecord
    disputed: DatedRecord | None = None
    resolutions: list[DatedRecord] = Field(default_factory=list)
    turns: int = 0
    speakers: int = 0


class DebateTurn(AnswerModel):
    """One turn of a debate, verbatim."""

    number: int
    stage: str | None = None
    speaker: str
    stance: str | None = None
    text: str
    cites: list[str] = Field(default_factory=list)


class RecordedDebate(AnswerModel):
    """
    A debate with every turn.

    Attributes:
        mode: how well the institution could answer.
        late_ms: by how many milliseconds the answer missed its deadline; None if it did not.
    """

    debate: DebateItem
    turns: list[DebateTurn]
    mode: Mode = Mode.NORMAL
    late_ms: float | None = None


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


class TrackRecordItem(AnswerModel):
    """
    An agent's track record in a domain: share right with its 95 % interval, and skill.

    Attributes:
        n: observations; claims with the same ``target_at`` count as one.
        rows: claims scored.
        right, abstained: claims that were right, that abstained; abstentions are counted, not scored.
        mean, lower, upper: decayed posterior share right with its 95 % interval.
        brier, log_score: mean scores of stated probabilities; lower Brier is better.
        skill: decayed Brier skill against *reference*, on *reference_rows* claims; above zero is better.
        skill_lower, skill_upper: its 95 % interval; None with a single observation.
        evidence: ``none`` without observations, ``little`` below fifteen, else ``enough``.
        baseline: whether the agent is a baseline: a reference for others, not ranked.
    """

    agent: str
    domain: str
    kind: str | None
    n: int
    rows: int
    right: int
    abstained: int
    mean: float
    lower: float
    upper: float
    brier: float | None
    log_score: float | None
    skill: float | None
    skill_lower: float | None
    skill_upper: float | None
    reference: str | None
    reference_rows: int
    evidence: Literal["none", "little", "enough"]
    baseline: bool


class DatedTrackRecord(TrackRecordItem):
    """
    A track record as of a moment.

    Attributes:
        as_of: the moment asked for, or the earlier one to which it was clamped.
    """

    as_of: datetime


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


class HistorySection(BriefingSection):
    """Analyses with findings, decisions and outcomes, newest first."""

    items: list[HistoryItem] = Field(default_factory=list)


class SimilarSection(BriefingSection):
    """
    Analyses of other subjects that are similar to the newest of this one, most similar first.

    Attributes:
        model_version: version of vectors and rules behind the scores; scores of two versions are not comparable.
    """

    items: list[SimilarItem] = Field(default_factory=list)
    model_version: str | None = None


class DebatesSection(BriefingSection):
    """Debates on the subject and how they ended, newest first."""

    items: list[DebateItem] = Field(default_factory=list)


class TrackRecordsTable(BriefingSection):
    """Track records of many agents as of many moments: by moment, domain and name; baselines last in a domain."""

    items: list[DatedTrackRecord] = Field(default_factory=list)


class TrackRecordsSection(BriefingSection):
    """Track records of the agents with claims about the subject, by domain and name; baselines last."""

    items: list[TrackRecordItem] = Field(default_factory=list)


class RecordsSection(BriefingSection):
    """Records of one kind, newest first."""

    items: list[DatedRecord] = Field(default_factory=list)


class SubjectSection(BriefingSection):
    """The subject's own record; shown as the briefing's head, not as a section."""

    record: DatedRecord | None = None


class Subject(AnswerModel):
    """
    What the briefing is about.

    Attributes:
        subject_id: ``company:<ticker>`` or ``market:<market_id>``.
        record: its record as of the moment; None if only other records mention it.
    """

    subject_id: str
    record: DatedRecord | None = None


@checks_arguments
class Briefing(AnswerModel):
    """
    What the institution knew about a subject at a moment.

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
    similar_analyses: SimilarSection = Field(default_factory=SimilarSection)
    debates: DebatesSection
    track_records: TrackRecordsSection
    contradictions: RecordsSection
    patterns: RecordsSection
    lessons: RecordsSection

    @property
    def degraded(self) -> bool:
        """Whether any section is less than exact."""
        return any(section.quality is not Quality.EXACT for section in self.sections.values())

    @property
    def sections(self) -> dict[str, BriefingSection]:
        """The sections by name, in the order in which they are shown."""
        names = ("history", "similar_analyses", "debates", "track_records", "contradictions", "patterns", "lessons")
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_markdown(self, *, max_tokens: int | None = None, max_chars: int | None = None) -> str:
        """
        Return it as Markdown within a bound, byte for byte the same for the same answer.

        The items of greatest worth are shown; the end lists what is left out, with the calls that fetch it.

        Args:
            max_tokens: tokens at most, by the estimate of :func:`imem.recall.rendering.markdown.tokens`; 1,900 where
            none is given. max_chars: characters at most, instead.

        Raises:
            BadInput: one is no whole number, both are given, or the bound is too small for even the headings.
        """
        return render(self, max_tokens, max_chars)
