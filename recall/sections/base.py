"""Types of a rendered section, and formatting of its values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from imem.kg.kinds.metrics import metric_of, unit_of
from imem.recall.rendering.lead import lead
from imem.recall.rendering.quoting import name, quoted

if TYPE_CHECKING:
    from imem.recall.answers import BriefingSection, ClaimSummary, DatedRecord, ReviewedDecision
    from imem.recall.model import Briefing
    from imem.recall.sections.history import HistoryItem
    from imem.recall.sections.track_records import TrackRecordItem

SHORT_NAME: Final = 48
"""Longest name inside a line, in characters."""

EVIDENCE: Final = ("enough", "little", "none")
"""Levels of evidence of a track record, highest first."""

_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,89}")
"""Subject ids that need no escaping in Python or a shell."""


class Block(NamedTuple):
    """One item of a section, and its worth: items are shown by descending worth."""

    text: str
    worth: float


class FollowUpCall(NamedTuple):
    """The call that fetches the rest of a section, in Python and as a command, without moment and clock."""

    python: str
    command: str


@dataclass(frozen=True, slots=True)
class RenderedSection:
    """
    A section, rendered.

    Attributes:
        title: its heading; empty if there is nothing to show.
        blocks: its items, by descending worth.
        total: number of items in all, shown or not.
        nouns: singular and plural for the items left out; empty if they are not counted.
        quality, reason: quality of the answer, and why it is not exact.
        head: lines before the blocks; shown only with at least one block.
        nothing: its name in the line that lists sections without items.
        call: the call that fetches the rest.
    """

    title: str
    blocks: tuple[Block, ...] = ()
    total: int = 0
    nouns: tuple[str, str] = ("", "")
    quality: str = "exact"
    reason: str = ""
    head: str = ""
    nothing: str = ""
    call: FollowUpCall | None = None

    def left(self, kept: int) -> int:
        """Return how many items are left out if *kept* blocks are shown."""
        return max(self.total - kept, 0) if self.nouns[1] else 0


def rendered_section(
    title: str,
    answer: BriefingSection,
    blocks: Sequence[Block],
    *,
    nouns: tuple[str, str],
    call: FollowUpCall,
    nothing: str = "",
    head: str = "",
) -> RenderedSection:
    """Return the rendered section of *answer*; *nothing* is the plural of *nouns* unless it is given."""
    return RenderedSection(
        title=title,
        blocks=tuple(blocks),
        total=max(answer.total, len(blocks)),
        nouns=nouns,
        quality=answer.quality,
        reason=answer.reason or "",
        head=head,
        nothing=nothing or nouns[1],
        call=call,
    )


def faded(texts: Iterable[str], worth: float, fading: float) -> list[Block]:
    """Return items of which the first has *worth*, and each other that of the one before it times *fading*."""
    return [Block(text, worth * fading**place) for place, text in enumerate(texts)]


def follow_up_call(subject_id: str, method: str, limit: int) -> FollowUpCall:
    """Return the call of *method*, and of the command of that name, about the subject."""
    # An id that could end a Python literal or a shell word is replaced by a placeholder.
    subject = f'"{subject_id}"' if _PLAIN_ID.fullmatch(subject_id) else "subject"
    most = max(1, min(limit, MOST))
    return FollowUpCall(
        f"await memory.{method}({subject}, limit={most}{{when}})", f"imem {method} {subject} --limit {most}"
    )


MOST: Final = 200
"""Most items that one call returns."""


@dataclass(frozen=True, slots=True)
class RenderContext:
    """
    What sections are rendered from.

    Attributes:
        briefing: the answer.
        newest, before: the newest analysis, and the one before it.
        records: the track records of agents with claims, by agent and domain.
    """

    briefing: Briefing
    newest: HistoryItem | None = None
    before: HistoryItem | None = None
    records: Mapping[tuple[str, str], TrackRecordItem] = field(default_factory=dict)

    @property
    def own(self) -> str:
        """The subject's id."""
        return self.briefing.subject.subject_id


def render_context_of(briefing: Briefing) -> RenderContext:
    """Return the render context of *briefing*."""
    items = briefing.history.items
    newest = items[0] if items else None
    before = None
    if newest is not None:
        # A market's own analyses come before those of its series, which may be later.
        day = str(newest.analysis.core["date"])
        before = next((one for one in items[1:] if str(one.analysis.core["date"]) <= day), None)
    return RenderContext(
        briefing, newest, before, {(one.agent, one.domain): one for one in briefing.track_records.items}
    )


# Formatting of values


def moment(at: datetime) -> str:
    """Return a time in UTC, to the minute; with seconds unless they are zero."""
    at = at.astimezone(UTC)
    shape = "%Y-%m-%d %H:%M" if at.second == at.microsecond == 0 else "%Y-%m-%d %H:%M:%S"
    return f"{at.strftime(shape)} UTC"


def when(at: datetime | str) -> str:
    """Return a time inside a line: the day in UTC, and hour and minute unless it is midnight."""
    at = (datetime.fromisoformat(at) if isinstance(at, str) else at).astimezone(UTC)
    return at.strftime("%Y-%m-%d" if at.hour == at.minute == 0 else "%Y-%m-%d %H:%M")


def share(value: float) -> str:
    """Return a fraction in two digits."""
    return f"{value:.2f}"


def number(value: float) -> str:
    """Return a number in few digits, without an exponent and without trailing zeros."""
    text = f"{value:.4f}" if abs(value) < 1 else f"{value:,.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def label(text: Any) -> str:
    """Return a name inside a line."""
    return name(str(text), SHORT_NAME)


def quote_lead(text: str, limit: int) -> str:
    """Return the lead of a text as a quotation."""
    # The lead marks what it cut inside the text; escapes do not count against either limit.
    return quoted(lead(text, limit), limit + 4)


def with_marks(who: str, *marks: str) -> str:
    """Return a name with the renderer's remarks in brackets, if any."""
    shown = ", ".join(mark for mark in marks if mark)
    return f"{label(who)} ({shown})" if shown else label(who)


def with_noun(count: int, nouns: tuple[str, str]) -> str:
    """Return a number with its noun."""
    return f"{count:,} {nouns[0] if count == 1 else nouns[1]}"


class Topic(NamedTuple):
    """
    What a claim or an outcome is about, beside its subject; numbers are comparable only if it is equal.

    Attributes:
        metric: the metric.
        unit: the recorded unit, else the metric's own.
        period_start: start of the period that ends at *target_at*; None for a metric of a moment.
        target_at: when the value is true; None if it is not shown.
    """

    metric: str
    unit: str | None = None
    period_start: datetime | None = None
    target_at: datetime | None = None

    @property
    def named(self) -> str:
        """The metric, with its unit unless that is implied."""
        known = metric_of(self.metric)
        implied = known is not None and known.kind != "value" and self.unit == known.unit
        return label(self.metric) if self.unit is None or implied else f"{label(self.metric)} ({label(self.unit)})"

    def at(self, what: str) -> str:
        """Return *what* followed by the period or moment."""
        if self.target_at is None:
            return what
        if self.period_start is not None:
            return f"{what}, {when(self.period_start)} to {when(self.target_at)}"
        return f"{what} at {when(self.target_at)}"

    @property
    def text(self) -> str:
        """Metric, unit and period or moment as text."""
        return self.at(self.named)


def topic_of(record: DatedRecord) -> Topic | None:
    """Return what a finding or an outcome is about; None if it has no metric."""
    core = record.core
    metric = core.get("metric")
    if not metric:
        return None
    begins = datetime.fromisoformat(core["period_start"]) if core.get("period_start") else None
    return Topic(metric, unit_of(metric, core.get("unit")), begins, datetime.fromisoformat(core["target_at"]))


def settled_number(claims: ClaimSummary) -> str:
    """Return the outcome that all claims of an analysis are about; empty if unknown."""
    if claims.metric is None or claims.actual is None:
        return ""
    # The line's day implies the moment, but not a period.
    target_at = claims.target_at if claims.period_start is not None else None
    return outcome_text(Topic(claims.metric, claims.unit, claims.period_start, target_at), claims.actual)


def outcome_text(topic: Topic, actual: float) -> str:
    """Return the outcome of a topic as text."""
    return f"{topic.text}{',' if topic.period_start is not None else ''} was {number(actual)}"


def conclusion(record: DatedRecord) -> str:
    """Return an analysis's recommendation, probability and confidence as text."""
    core = record.core
    found = []
    if core.get("recommendation"):
        found.append(core["recommendation"])
    if core.get("probability") is not None:
        found.append(f"probability {share(core['probability'])}")
    if core.get("confidence") is not None:
        found.append(f"confidence {share(core['confidence'])}")
    return ", ".join(found)


def verdict_of(taken: ReviewedDecision) -> str | None:
    """Return a decision's verdict; None if there is none."""
    verdict = taken.decision.groups.get("outcome", {}).get("outcome")
    return str(verdict) if verdict is not None else None


def decision_text(taken: ReviewedDecision) -> str:
    """Return a decision's action, else its type, as text."""
    return f"decided {label(taken.decision.core.get('action') or taken.decision.core['type'])}"


def claims_result(claims: ClaimSummary | None, at: datetime | None, probability: float | None = None) -> str:
    """
    Return how the claims of an analysis turned out, or when they are due; empty if it made none.

    Args:
        at: the answer's moment, if known; a claim due before it has no outcome yet.
        probability: the analysis's own probability; judged only if all claims are about one binary question.
    """
    if claims is None:
        return ""
    if not claims.settled:
        if claims.due_at is None:
            return "open"
        over = at is not None and claims.due_at <= at
        return f"open, {'no outcome since' if over else 'due'} {when(claims.due_at)}"
    found = []
    if claims.actual is not None and (settled := settled_number(claims)):
        side = ""
        if probability is not None and claims.actual in {0.0, 1.0} and probability != EVEN:
            side = " (right side)" if (probability > EVEN) == bool(claims.actual) else " (wrong side)"
        found.append(f"{settled}{side}")
    sided = claims.right + claims.wrong
    found.append(f"{claims.right} of {sided} claims right" if sided else "no claim took a side")
    if claims.settled < claims.claims:
        found.append(f"{claims.claims - claims.settled} open")
    return ", ".join(found)


EVEN: Final = 0.5
"""The probability that counts as an abstention."""


def result_text(
    taken: Sequence[ReviewedDecision], claims: ClaimSummary | None, at: datetime | None, probability: float | None
) -> str:
    """Return the verdicts of an analysis's decisions, then the results of its claims, as of *at*."""
    verdicts = [verdict for one in taken if (verdict := verdict_of(one))]
    return "; ".join([*verdicts, *([came] if (came := claims_result(claims, at, probability)) else [])])
