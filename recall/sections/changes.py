"""The changes between the last two analyses, and the news since the last one."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from imem.recall.rendering.formatting import (
    Topic,
    claims_result,
    conclusion,
    decision_text,
    label,
    number,
    quote_lead,
    settled_number,
    share,
    topic_of,
    verdict_of,
    when,
    with_noun,
)
from imem.recall.rendering.rendered import Block, RenderContext, RenderedSection
from imem.recall.sections.contradictions import PRIORITIES, contradiction_priority

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imem.recall.answers import DatedRecord
    from imem.recall.sections.history import HistoryItem

WORTH: Final = 1.3
SHIFT: Final = 0.1
"""Least change that is shown: of a probability, and of a value as a share."""

MOST: Final = 5
"""Most agents and endings shown."""

SUMMARY_CHARS: Final = 70
"""Longest quotation of a summary, for an analysis without a conclusion, in characters."""

MONTH_DAYS: Final = 30.44
SHORTEST_MONTH_DAYS: Final = 28

CONCLUDERS: Final = 5
"""Most concluders whose last conclusions are shown."""

NAMED: Final = 5
"""Most agents named as right, and as wrong."""


def changes(context: RenderContext) -> RenderedSection:
    """Return what changed; empty without an analysis."""
    if context.newest is None:
        return RenderedSection("")
    lines = [*_concluded(context), _minds(context.latest), _settled(context), _right(context), _new(context)]
    blocks = tuple(Block(f"- {line}", WORTH) for line in lines if line)
    return RenderedSection("What changed", blocks)


def _concluded(context: RenderContext) -> list[str]:
    """Return the two last conclusions of each concluder side by side, the newest first."""
    kinds = {newest.analysis.core["kind"] for newest, _ in context.latest if newest.concluder is None}
    answer = context.briefing.history
    whole = answer.quality == "exact" and answer.total <= len(answer.items)
    found = []
    for newest, before in context.latest:
        who = [label(newest.concluder)] if newest.concluder is not None else []
        if newest.concluder is None and len(kinds) > 1:
            who = [label(newest.analysis.core["kind"])]
        line = _last_conclusion(" ".join([*who, "last concluded"]), newest, before, whole=whole)
        found += [line[0].upper() + line[1:]] if line else []
    more = len(found) - CONCLUDERS
    return [*found[:CONCLUDERS], *([f"{more} more concluded earlier; see the history."] if more > 0 else [])]


def _last_conclusion(what: str, newest: HistoryItem, before: HistoryItem | None, *, whole: bool) -> str:
    now = _says(newest)
    at = when(newest.analysis.core["date"])
    if before is None:
        return f"{what} {at}: {now}{'; it is the first analysis known' if whole else ''}." if now else ""
    then = _says(before)
    # Of a series, another question was asked before.
    other = f" on {label(before.subject_id)}" if before.subject_id != newest.subject_id else ""
    since = f"{when(before.analysis.core['date'])}{other}"
    if now == then:
        return f"{what} {at}: {now}, as on {since}." if now else ""
    return f"{what} {at}: {now or 'nothing'}; before, {since}: {then or 'nothing'}."


def _says(item: HistoryItem) -> str:
    core = item.analysis.core
    concluded = conclusion(item.analysis) or (quote_lead(core["summary"], SUMMARY_CHARS) if core.get("summary") else "")
    return ", ".join([part for part in (concluded, *map(decision_text, item.decisions)) if part])


def _minds(latest: Sequence[tuple[HistoryItem, HistoryItem | None]]) -> str:
    """Return which agents changed side, the greatest change first."""
    both = [pair for newest, before in latest if before is not None for pair in _views(newest, before)]
    if not both:
        return ""
    heard = Counter(now.core["agent"] for now, _ in both)
    moved = [
        (_size(now, old), _moved(now, old, several=heard[now.core["agent"]] > 1), now.core["agent"])
        for now, old in both
        if _moved(now, old, several=False)
    ]
    if not moved:
        return f"No agent changed its view (of {len(heard)} compared)."
    moved.sort(key=lambda one: (-one[0], one[1]))
    more = f" and {len(moved) - MOST} more" if len(moved) > MOST else ""
    changed = "; ".join(text for _, text, _ in moved[:MOST])
    of = with_noun(len(heard), ("agent", "agents"))
    return f"{len({agent for *_, agent in moved})} of {of} changed: {changed}{more}."


def _views(newest: HistoryItem, before: HistoryItem) -> list[tuple[DatedRecord, DatedRecord]]:
    """Return the findings of the newest analysis, each with what the same agent said before about the same."""
    then: dict[Voice, list[DatedRecord]] = {}
    for one in before.findings:
        then.setdefault(_voice(one.finding), []).append(one.finding)
    heads = newest.analysis, before.analysis
    return [
        (one.finding, min((_apart(one.finding, old, *heads), old) for old in then[voice])[1])
        for one in newest.findings
        if (voice := _voice(one.finding)) in then
    ]


Voice = tuple[str, str, str | None, str | None, int | None]


def _voice(finding: DatedRecord) -> Voice:
    """
    Return who speaks in which domain about which metric, in which unit and over how long a period.

    Two analyses mostly ask about two days. What an agent says of a quarter is compared with what it said of a quarter.
    """
    topic = topic_of(finding)
    about = (topic.metric, topic.unit, _length(topic)) if topic is not None else (None, None, None)
    return finding.core["agent"], finding.core["domain"], *about


def _length(topic: Topic) -> int | None:
    """Return the length of a period in months, or below one in days as a negative number; None of a moment."""
    if topic.period_start is None or topic.target_at is None:
        return None
    days = (topic.target_at - topic.period_start) / timedelta(days=1)
    return round(days / MONTH_DAYS) if days >= SHORTEST_MONTH_DAYS else -round(days)


def _apart(now: DatedRecord, old: DatedRecord, newest: DatedRecord, before: DatedRecord) -> tuple[bool, float, str]:
    """Order what was said before by how near it is: the same day, else as far ahead of its analysis; then by key."""
    of, then = topic_of(now), topic_of(old)
    if of is None or then is None or of.target_at is None or then.target_at is None:
        return False, 0.0, old.key
    ahead = (of.target_at - newest.occurred_at) - (then.target_at - before.occurred_at)
    return of.target_at != then.target_at, abs(ahead / timedelta(days=1)), old.key


def _size(now: DatedRecord, old: DatedRecord) -> float:
    """Return how far a view moved: of a probability by how much, of a value by which share, at most 1."""
    new, former = now.core.get("probability"), old.core.get("probability")
    if new is not None and former is not None:
        return abs(float(new) - float(former))
    new, former = now.core.get("value"), old.core.get("value")
    if new is not None and former is not None and now.core.get("direction") == old.core.get("direction"):
        return min(abs(float(new) - float(former)) / (abs(float(former)) or 1.0), 1.0)
    return 1.0


def _moved(now: DatedRecord, old: DatedRecord, *, several: bool) -> str:
    """Return how an agent's view changed, or nothing; of *several* of its views, on what."""
    new, former = now.core.get("probability"), old.core.get("probability")
    topic = topic_of(now) if several else None
    who = f"{label(now.core['agent'])}{f' on {topic.text}' if topic is not None else ''}"
    if new is not None and former is not None:
        return f"{who} {share(former)} → {share(new)}" if abs(new - former) > SHIFT else ""
    if now.core.get("direction") and old.core.get("direction") and now.core["direction"] != old.core["direction"]:
        return f"{who} {old.core['direction']} → {now.core['direction']}"
    valued = topic_of(now) is not None and now.core.get("value") is not None and old.core.get("value") is not None
    if valued and _size(now, old) > SHIFT:
        return f"{who} {number(old.core['value'])} → {number(now.core['value'])}"
    return ""


def _settled(context: RenderContext) -> str:
    """Return what was settled after the newest analysis was known."""
    if context.newest is None:
        return ""
    since, day = _since(context.newest, context.briefing.clock), str(context.newest.analysis.core["date"])
    if since is None:
        return ""
    found = []
    for item in context.briefing.history.items:
        claims = item.claims
        if claims is None or claims.settled_at is None or claims.settled_at <= since:
            continue
        if str(item.analysis.core["date"]) > day:  # Of another question of the series: its line tells it.
            continue
        verdicts = [f"{decision_text(one)}: {verdict}" for one in item.decisions if (verdict := verdict_of(one))]
        result = "; ".join(
            [*verdicts, claims_result(claims, context.briefing.as_of, item.analysis.core.get("probability"))]
        )
        found.append(f"{when(item.analysis.core['date'])} ({result})")
    if not found:
        return ""
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return f"Settled since then: {'; '.join(found[:MOST])}{more}."


def _since(newest: HistoryItem, clock: str) -> datetime | None:
    """Return when the newest analysis began to count on the answer's clock; None if unknown."""
    if newest.claims is not None and newest.claims.made_at is not None:
        return newest.claims.made_at
    return newest.analysis.known_at if clock == "known" else None


def _right(context: RenderContext) -> str:
    """Return which agents were right and wrong when the subject was last settled, best track records first."""
    for item in context.briefing.history.items:
        claims = item.claims
        if claims is None or not claims.settled:
            continue
        who = [
            f"{len(agents)} {word} ({', '.join(map(label, shown))}{'…' if len(agents) > len(shown) else ''})"
            for word, agents in (("right", claims.right_agents), ("wrong", claims.wrong_agents))
            if agents and (shown := sorted(agents, key=lambda agent: _standing(agent, context))[:NAMED])
        ]
        on = f" on {label(item.subject_id)}" if item.subject_id != context.own else ""
        sided = ", ".join(who) or "no agent took a side"
        outcome = f", {value}" if (value := settled_number(claims)) else ""
        return f"Last settled: the analysis of {when(item.analysis.core['date'])}{on}{outcome}: {sided}."
    return ""


def _standing(agent: str, context: RenderContext) -> tuple[float, str]:
    """Return the sort key of an agent: by the best of its track records."""
    return -max((one.lower for (who, _), one in context.records.items() if who == agent and one.n), default=0.0), agent


def _new(context: RenderContext) -> str:
    """Return how many contradictions and debates came with the newest analysis or after it, and what is open."""
    if context.newest is None:
        return ""
    since = context.newest.analysis.known_at
    found = []
    contradictions = [one for one in context.briefing.contradictions.items if one.known_at >= since]
    if contradictions:
        levels = Counter(contradiction_priority(one) for one in contradictions)
        counts = ", ".join(f"{levels[level]} {level}" for level in PRIORITIES if levels[level])
        found.append(f"{with_noun(len(contradictions), ('contradiction', 'contradictions'))} ({counts})")
    debates = [one for one in context.briefing.debates.items if one.debate.known_at >= since]
    if debates:
        found.append(with_noun(len(debates), ("debate", "debates")))
    if not found:
        return ""
    return f"New with the newest analysis or later: {', '.join(found)}."
