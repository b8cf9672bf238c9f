"""
What a briefing is made of.

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
    """What was known a while ago, as asked then: a store did not answer in time; ``age_s`` says how long ago."""
    PARTIAL = "partial"
    """Something may be missing; the reason says what."""
    UNAVAILABLE = "unavailable"
    """It could not be asked: an empty answer here does not mean that nothing is known."""


class Completeness(StrEnum):
    """Of what an answer that is not whole was made."""

    TOP_N = "top_n"
    """Of the first ones alone."""
    SAMPLED = "sampled"
    """Of half of them."""


EXHAUSTED: str = "QUERY_TIMEOUT_EXHAUSTED"
"""The error of a section that is empty because the time was over, for the answer and for all that could stand in."""

AWAY: str = "STORE_UNAVAILABLE"
"""The error of a section that is empty because a store is away, and nothing could stand in."""


class DatedRecord(AnswerModel):
    """
    A record as it stood.

    Attributes:
        kind, key: which.
        core: its facts.
        groups: its property groups that were known.
        known_at: the earliest moment it could be known.
        occurred_at: when it was true in the world.
        corrected_at: since when a correction stands.
        more: whether a long text is on file beside it.
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
        vintage: which version of the number.
        actual: what happened.
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
    """A decision with the outcomes that reviewed it; its verdict stands in its group ``outcome``."""

    decision: DatedRecord
    outcomes: list[DatedRecord] = Field(default_factory=list)


class Performer(AnswerModel):
    """Who ran an analysis, in which role."""

    agent: str
    role: str | None = None


class ClaimSummary(AnswerModel):
    """
    How the claims of an analysis turned out.

    Attributes:
        claims: how many of its findings an outcome can settle.
        settled, right, wrong: of them; those that are neither right nor wrong took no side.
        right_agents, wrong_agents: whose they were.
        metric, unit, period_start, target_at: what all of them are about, where that is one number.
        actual: what it was, where it is known.
        made_at: since when the first of them was there, on the clock that was asked by.
        settled_at: since when the last of the settled ones is settled, on that clock.
        due_at: when the first of the others falls due.
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
    An analysis with what was found, decided and became of it.

    Attributes:
        subject_id: what it is about: the subject asked about, or another question of its series.
        performed_by, findings: of the first analyses of a history alone (:attr:`Limits.detailed`).
        findings_total: how many findings it has; ``findings`` holds the most important ones.
        claims: how those of its findings turned out that an outcome can settle; none without any.
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
    An analysis of another subject that is like one of the subject's own.

    Attributes:
        subject_id: what it is about.
        like: key of the analysis that it is like.
        score: how alike they are, 0 to 1 (:mod:`imem.kg.similarity.scoring`).
        decisions: what was decided after it, with the verdict that stood.
        claims: how its claims turned out; none without any.
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
        turns: how many turns are on file.
        speakers: by how many voices.
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
    What an agent's word in a domain has been worth.

    Attributes:
        n: observations: claims with one ``target_at`` are one.
        rows: claims scored.
        right, abstained: of them; abstentions are counted, not scored.
        mean, lower, upper: decayed posterior share right with its 95 % interval.
        brier, log_score: mean scores of stated probabilities; lower Brier is better.
        skill: decayed Brier skill against *reference*, on *reference_rows* claims; above zero is better than it.
        skill_lower, skill_upper: its 95 % interval; None where one observation is all there is.
        evidence: ``none`` where nothing is scored, ``little`` below fifteen observations, else ``enough``.
        baseline: a reference for others, not ranked.
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
        as_of: the moment: the one asked for, or an earlier one up to which everything is in place.
    """

    as_of: datetime


class BriefingSection(AnswerModel):
    """
    One part of a briefing.

    Attributes:
        quality: how good the answer is.
        reason: why it is not exact.
        total: how many there are; ``items`` may hold fewer.
        age_s: of a stale answer, its age in seconds.
        completeness: of a partial one, what it was made of.
        error: of an unavailable one, ``QUERY_TIMEOUT_EXHAUSTED`` or ``STORE_UNAVAILABLE``.
        fallback_exhausted: whether all that could stand in was tried in vain: an empty answer then says nothing.
        mode: how well the institution could answer, where the section was asked for alone; a briefing says it for all.
        late_ms: by how many milliseconds it missed its deadline, where the section was asked for alone; None if it did
            not.
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
    Analyses of other subjects that are like the newest of this one, most alike first.

    Attributes:
        model_version: which vectors and which rules the scores come from; those of two are not to be compared.
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
    """Track records of the agents that spoke about the subject, by domain and name; baselines last."""

    items: list[TrackRecordItem] = Field(default_factory=list)


class RecordsSection(BriefingSection):
    """Records of one kind, newest first."""

    items: list[DatedRecord] = Field(default_factory=list)


class SubjectSection(BriefingSection):
    """The subject's own record; no part of what is shown apart."""

    record: DatedRecord | None = None


class Subject(AnswerModel):
    """
    What the briefing is about.

    Attributes:
        subject_id: ``company:<ticker>`` or ``market:<market_id>``.
        record: its record as it stood; none when it is known only by what was said about it.
    """

    subject_id: str
    record: DatedRecord | None = None


@checks_arguments
class Briefing(AnswerModel):
    """
    What the institution knew about a subject at a moment.

    Attributes:
        as_of: the T that was used.
        clock: ``known`` (what could have been known) or ``recorded`` (what was on file here).
        asked_as_of: the T that was asked for; an earlier ``as_of`` means that not everything up to it was in place yet.
        complete_until: everything recorded by then is in the answer; none when the journal could not say.
        mode: how well the institution could answer: ``normal``; ``degraded_read`` where a part is less than exact;
            ``read_only`` where there is evidence that Postgres is away; ``recovering`` where the graph was far behind.
        for_agent: for whom.
        took_ms: how long it took, in milliseconds; not part of the Markdown.
        late_ms: by how many milliseconds it missed its deadline, in a process or on a machine with too much to do; None
            if it did not.
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

        What is worth most is shown; what is left out is told at the end, with the calls that get it.

        Args:
            max_tokens: tokens at most, by the estimate of :func:`imem.recall.rendering.markdown.tokens`; 1,900 where
            none is given. max_chars: characters at most, instead.

        Raises:
            BadInput: one is no whole number, both are given, or the bound is too small for even the headings.
        """
        return render(self, max_tokens, max_chars)
