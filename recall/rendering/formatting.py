"""Formatting of the values in a rendered section."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from imem.credibility.verdicts import PENDING
from imem.journal.texts.prompt_text import name, quoted
from imem.kg.kinds.metrics import metric_of, unit_of
from imem.recall.rendering.lead import lead

if TYPE_CHECKING:
    from imem.recall.answers import ClaimSummary, DatedRecord, ReviewedDecision
    from imem.recall.memories.model import StoredMemory
    from imem.recall.search.model import FoundText

SHORT_NAME: Final = 48
"""Longest name inside a line, in characters."""

EVIDENCE: Final = ("enough", "little", "none")
"""Levels of evidence of a track record, highest first."""

LARGE: Final = 1e15
SMALL: Final = 1e-4
"""Numbers of this size or more, and below that one, are shown with an exponent."""

EVEN: Final = 0.5
"""The probability that counts as an abstention."""


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
    """Return a number in few digits, without trailing zeros; with an exponent if it is very large or very small."""
    size = abs(value)
    if size >= LARGE or 0 < size < SMALL:
        return f"{value:.4g}"
    text = f"{value:.4f}" if size < 1 else f"{value:,.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def label(text: Any) -> str:
    """Return a name inside a line."""
    return name(str(text), SHORT_NAME)


def quote_lead(text: str, limit: int) -> str:
    """Return the lead of a report as a quotation. Texts that are no reports are quoted from their beginning."""
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
    The topic of a claim or an outcome, beside its subject; numbers are comparable only if it is equal.

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
    """Return a decision's verdict; None if there is none, or if it was taken back."""
    verdict = taken.decision.groups.get("outcome", {}).get("outcome")
    return str(verdict) if verdict not in {None, PENDING} else None


def verdict_text(taken: ReviewedDecision, at: datetime | None) -> str:
    """Return a decision's verdict, or why there is none as of *at*; empty if that is unknown."""
    verdict, reason, due_at = verdict_of(taken), taken.no_verdict, taken.due_at
    if verdict is not None or reason is None:
        return verdict or ""
    if due_at is None:
        return f"no verdict: {reason}"
    over = at is not None and due_at <= at
    return f"no verdict yet: outcome {'overdue since' if over else 'due'} {when(due_at)}"


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
        return f"open, {'overdue since' if over else 'due'} {when(claims.due_at)}"
    found = []
    if claims.actual is not None and (settled := settled_number(claims)):
        side = ""
        if probability is not None and claims.actual in {0.0, 1.0} and probability != EVEN:
            side = " (right side)" if (probability > EVEN) == bool(claims.actual) else " (wrong side)"
        found.append(f"{settled}{side}")
    sided = claims.right + claims.wrong
    of = with_noun(sided, ("claim", "claims"))
    found.append(f"{claims.right} of {of} right" if sided else "no claim took a side")
    if claims.settled < claims.claims:
        found.append(f"{claims.claims - claims.settled} open")
    return ", ".join(found)


def result_text(
    taken: Sequence[ReviewedDecision], claims: ClaimSummary | None, at: datetime | None, probability: float | None
) -> str:
    """Return the verdicts of an analysis's decisions, or why there are none, then the results of its claims."""
    found = list(dict.fromkeys(text for one in taken if (text := verdict_text(one, at))))
    waits = claims is not None and not claims.settled and any(one.due_at == claims.due_at for one in taken)
    if claims is not None and not (waits and claims.due_at is not None):
        # The same day is not named twice.
        found.append(claims_result(claims, at, probability))
    return "; ".join(found)


MOST_NAMES: Final = 3
"""Most names of others who say what a memory says."""


def memory_text(item: StoredMemory, limit: int) -> str:
    """Return a memory as a list item, with at most *limit* characters of its text, its id and who else says so."""
    by = f", {label(item.author)}" if item.author is not None else ""
    excerpt = getattr(item, "excerpt", None)
    names = [label(one.agent_id) for one in item.also_said_by[:MOST_NAMES]]
    names += [f"{more} more"] if (more := len(item.also_said_by) - MOST_NAMES) > 0 else []
    also = f", also said by {', '.join(names)}" if names else ""
    ended = f", ended {when(item.superseded_at)}" if item.superseded_at is not None else ""
    said = quoted(excerpt or item.content, limit)
    # A namespace is a name that others chose, too.
    return f"- {when(item.recorded_at)} {name(item.namespace)}{by}: {said} ({item.id}{also}{ended})"


def found_text_lines(item: FoundText, limit: int) -> list[str]:
    """Return a hit in two lines: what it is, where it stands and why it was found; and at most *limit* of its text."""
    about = f" on {name(item.subject_id)}" if item.subject_id is not None else ""
    by = f" by {label(item.author)}" if item.author is not None else ""
    place = f", in {name(item.part_of)}" if not item.part_of.endswith(f"/{item.key}") else ""
    like = f" {item.similarity:.2f}" if item.similarity is not None and "meaning" in item.found_by else ""
    why = ", ".join(item.found_by) + like
    return [
        f"- {when(item.known_at)} {item.kind} {name(item.key)}{about}{by}{place} (found by {why})",
        f"  {quoted(item.text, limit)}",
    ]
