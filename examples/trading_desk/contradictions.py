"""
Figures that two analysts of one run state differently.

The source found them by pattern, so many are noise: another period, another stock, a rounded or implied price, the
number beside the one meant. A wrong contradiction costs trust in two analysts, so the rule is strict and prefers few:

1. Both analysts belong to the same run, and each states one value of the metric throughout (within 0.1 %). One that
   contradicts itself is unsure, or was misread; either way it says nothing about the other.
2. The context must show the value right behind the metric's own name, with nothing between but words without digits
   ("stands at"), no second metric beside it ("50/200 Day MA"), and no sign of an estimate ("~", "implied"). The
   sentiment analyst has no contexts, so it never takes part.
3. Both speak of the same period: no context names a date (both say "now"), or all name the same one. A close always
   belongs to a session, so it needs the date.
4. The values differ by more than 0.1 % of the larger.

The figures are averages, ratios and prices, none of which is on the lists of critical or high priority: the worker
gives all of them the priority MEDIUM.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations

from examples import lines
from examples.lines import Line, record

TOLERANCE = 0.001
"""Relative difference up to which two values agree."""

_NAMES = {
    "sma_50": r"(?<![\d/])(?<!vs )50[- ]?(?:day )?(?:sma|dma|ma|moving average)\b",
    "sma_200": r"(?<![\d/])(?<!vs )200[- ]?(?:day )?(?:sma|dma|ma|moving average)\b",
    "last_close": r"\bclos(?:e|ed|es|ing)\b",
    "forward_pe": r"\bforward p/?e\b",
    "trailing_pe": r"\b(?:trailing p/?e|ttm p/?e|p/?e(?: ratio)? \(ttm\))",
    "peg": r"\bpeg\b",
    "beta": r"\bbeta\b",
    "week52_high": r"\b52[- ]?w(?:ee)?k high\b",
}
_DATED_METRICS = {"last_close"}
_GAP = re.compile(r"[^\d/~≈]{0,40}\Z")
_ESTIMATE = re.compile(r"approx|about|around|implied|near|\bvs\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMED_DATE = re.compile(rf"\b({'|'.join(_MONTHS)})[a-z]*\.? (\d{{1,2}})\b", re.IGNORECASE)
_NUMBERED_DATE = re.compile(r"\b(?:\d{4}-)?(\d{1,2})[-/](\d{1,2})\b")


@dataclass(frozen=True, slots=True)
class Claim:
    """
    What one analyst holds a metric to be.

    Attributes:
        value: the one value that it states.
        period: the dates that its contexts name, as (month, day); empty where none does.
    """

    value: float
    period: frozenset[tuple[int, int]]


def lines_of(
    claims: Iterable[dict[str, str]],
    *,
    analysis_id: str,
    subject_id: str,
    known_at: datetime,
    agent_of: Callable[[str], str],
) -> list[Line]:
    """
    Return the contradictions among one run's rows of ``metric_claims``; *agent_of* gives each analyst's agent.

    A metric without a rule here, and a row without a number, are no claim that could be compared.
    """
    by_metric: dict[str, dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in claims:
        if row["metric"] in _NAMES and is_number(row["value"]):
            by_metric[row["metric"]][agent_of(row["analyst"])].append(row)
    found = []
    for metric, by_agent in sorted(by_metric.items()):
        settled = {agent: claim for agent, rows in by_agent.items() if (claim := claim_of(metric, rows)) is not None}
        for first, second in combinations(sorted(settled), 2):
            a, b = settled[first], settled[second]
            if a.period != b.period or not differ(a.value, b.value):
                continue
            core = {
                "id": f"{analysis_id}/{metric}/{first}-{second}",
                "subject_id": subject_id,
                "analysis_id": analysis_id,
                "data_point": metric,
                "source_a": first,
                "source_b": second,
                "value_a": a.value,
                "value_b": b.value,
                "timestamp": lines.stamp(known_at),
            }
            found.append(record("DataContradiction", core, known_at=known_at))
    return found


def claim_of(metric: str, rows: list[dict[str, str]]) -> Claim | None:
    """Return what an analyst holds *metric* to be, or None where its rows do not say so beyond doubt."""
    values = [float(row["value"]) for row in rows]
    if differ(min(values), max(values)):
        return None
    stated = [row for row in rows if states(metric, float(row["value"]), row["context"])]
    if not stated:
        return None
    period = frozenset(day for row in rows for day in dates_in(row["context"]))
    if len(period) > 1 or (metric in _DATED_METRICS and not period):
        return None
    return Claim(float(stated[0]["value"]), period)


def is_number(text: str) -> bool:
    """Tell whether *text* is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def differ(a: float, b: float) -> bool:
    """Tell whether two values are further apart than ``TOLERANCE`` of the larger."""
    return abs(a - b) > TOLERANCE * max(abs(a), abs(b)) + 1e-9


def states(metric: str, value: float, context: str) -> bool:
    """Tell whether *context* shows *value* right behind the name of *metric*, as a statement and no estimate."""
    for number in _NUMBER.finditer(context):
        if abs(float(number[0].replace(",", "")) - value) > 1e-9:
            continue
        for name in re.finditer(_NAMES[metric], context[: number.start()], re.IGNORECASE):
            gap = context[name.end() : number.start()]
            if _GAP.fullmatch(gap) and not _ESTIMATE.search(gap):
                return True
    return False


def dates_in(context: str) -> set[tuple[int, int]]:
    """Return the days that *context* names, as (month, day)."""
    named = {(_MONTHS.index(found[1].lower()) + 1, int(found[2])) for found in _NAMED_DATE.finditer(context)}
    numbered = {(int(found[1]), int(found[2])) for found in _NUMBERED_DATE.finditer(context)}
    return named | {(month, day) for month, day in numbered if 1 <= month <= 12 and 1 <= day <= 31}
