"""Precedents as lines for a prompt or a terminal; what others wrote is quoted. Pure."""

from __future__ import annotations

from typing import Final

from imem.debates.precedents.model import Level2Outlook, PatternRate, Precedent, PrecedentRate, Precedents
from imem.journal.texts.prompt_text import name, quoted

TOPIC_CHARS, POSITION_CHARS, NAME_CHARS = 90, 130, 100
"""Longest quotation of a topic, of a position, and of a pattern's name, in characters."""

NONE: Final = "No precedent: no comparable debate was resolved before."


def precedents_lines(answer: Precedents) -> list[str]:
    """Return the answer as lines: precedents, what they say together, patterns, and the outlook of level 2."""
    lines = [precedent_text(one) for one in answer.items]
    if answer.items:
        lines += [
            f"The winning position was right: {rate_text(answer.accuracy)}.",
            f"The challenger won: {rate_text(answer.challenger_won)}.",
        ]
    elif answer.available:
        lines.append(NONE)
    lines += [answer.lesson] if answer.lesson is not None else []
    lines += [pattern_text(one) for one in answer.patterns]
    lines += level2_lines(answer.level2) if answer.level2 is not None else []
    return lines if answer.reason is None else [*lines, f"Incomplete: {answer.reason}."]


def precedent_text(one: Precedent) -> str:
    """Return a precedent as a list item."""
    how = [f"level {one.level}"] if one.level else []
    how += [one.method.replace("_", " ")] if one.method else []
    how += [f"differential {one.differential:.2f}"] if one.differential is not None else []
    how += ["decided by scores, no independent evidence"] if one.by_credibility else []
    ended = f"{name(one.winner)} won" if one.winner else "no winner"
    position = f": {quoted(one.position, POSITION_CHARS)}" if one.position else ""
    right = "outcome unknown" if one.accuracy is None else f"right to {one.accuracy:.0%}"
    return (
        f"- {one.opened_at:%Y-%m-%d} {name(one.challenger)} challenged {name(one.challenged)}: "
        f"{quoted(one.topic, TOPIC_CHARS)} → {ended}{position} ({', '.join(how)}); {right} [{name(one.debate_id)}]"
    )


def rate_text(rate: PrecedentRate) -> str:
    """Return a rate with its n and interval."""
    if rate.share is None:
        return "unknown (n 0)"
    return f"{rate.share:.0%} (n {rate.n}, 95 % {rate.lower:.0%} to {rate.upper:.0%})"


def pattern_text(pattern: PatternRate) -> str:
    """Return a pattern as a list item."""
    rate = "success rate unknown" if pattern.success_rate is None else f"success rate {pattern.success_rate:.0%}"
    over = "" if pattern.occurrence_count is None else f" over {pattern.occurrence_count}"
    return f"- pattern {quoted(pattern.name, NAME_CHARS)}: {rate}{over} [{name(pattern.pattern_id)}]"


def level2_lines(outlook: Level2Outlook) -> list[str]:
    """Return the records of both sides and whether they may decide."""
    lines = [
        f"- {name(one.agent)} in {name(outlook.domain)}: {one.score:.2f} (n {one.decisions:g}, 95 % {one.lower:.2f} to "
        f"{one.upper:.2f})"
        for one in outlook.records
    ]
    verdict = outlook.verdicts[outlook.basis]
    apart = "" if verdict.differential is None else f" (differential {verdict.differential:.2f})"
    if outlook.eligible and outlook.winner is not None:
        return [*lines, f"Level 2: eligible{apart}; {name(outlook.winner)} would win."]
    return [*lines, f"Level 2: not eligible, {outlook.reason.replace('_', ' ')}{apart}."]
