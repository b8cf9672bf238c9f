"""
Measures detection on real filings and reports: ``python -m tests.credibility.disputes.measured`` prints the tables.

Faults are planted in a copy of a point of each control, a metric and period of which all filings agree: in the last
filing itself, and as another source that comes after it.
"""

from __future__ import annotations

import gzip
import math
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import orjson

from examples.lines import known_at_of_date, read_rows
from imem.credibility.disputes.cells import CONTRADICTIONS, Pair, Point, differ, pairs_of
from imem.credibility.disputes.findings import OpenQuestion, line_of_report
from imem.credibility.disputes.levels import Claim, settle
from imem.credibility.disputes.sources import Source, source_in
from imem.credibility.disputes.values import Judge, standing_of
from imem.kg.kinds.enums import ContradictionPriority, DataDifference
from imem.kg.kinds.trust import DataContradiction

EXAMPLES: Final = Path(__file__).parents[3] / "examples"

Row = dict[str, str]
Plant = Callable[[Point, Sequence[float]], float | None]


def filings() -> dict[str, list[Point]]:
    """Return the points of each group of the filings, in their order."""
    groups: dict[str, list[Point]] = defaultdict(list)
    for row in read_rows(EXAMPLES / "sec_facts" / "source" / "facts.csv.gz"):
        at = known_at_of_date(date.fromisoformat(row["filed"]))
        document = row["accession"]
        groups[row["group_id"]].append(
            Point(document, float(row["value"]), "SEC_EDGAR", document, at, at, row["unit"])
        )  # fmt: skip
    return {key: sorted(points, key=lambda one: one.place) for key, points in groups.items()}


def labels() -> dict[str, str]:
    """Return how the values of each group differ, by the rule of thumb of the data."""
    rows = read_rows(EXAMPLES / "sec_facts" / "source" / "labels.csv.gz")
    return {row["group_id"]: row["kind"] for row in rows}


def compared() -> Counter[tuple[str, str]]:
    """Return how many groups have each label and each set of differences."""
    of = labels()
    found: Counter[tuple[str, str]] = Counter()
    for key, points in filings().items():
        kinds = sorted({pair.difference.value for pair in pairs_of(points)}) or ["same"]
        found[of[key], " + ".join(kinds)] += 1
    return found


# Planted faults


def _rounded(point: Point, _: Sequence[float]) -> float | None:
    value = float(f"{point.value:.1e}")
    return value if differ(value, point.value) else None


def _split(point: Point, _: Sequence[float]) -> float | None:
    if point.unit == "shares":
        return point.value * 4.0
    return round(point.value / 4.0, 2) if point.unit == "USD/shares" and abs(point.value) >= 1.0 else None


def _other_period(point: Point, others: Sequence[float]) -> float | None:
    return next((value for value in others if differ(value, point.value, point.unit)), None)


PLANTS: Final[dict[str, tuple[Plant, frozenset[DataDifference]]]] = {
    "× 10": (lambda point, _: point.value * 10.0, frozenset({DataDifference.SCALE})),
    "× 1,000": (lambda point, _: point.value * 1000.0, frozenset({DataDifference.SCALE})),
    "sign": (lambda point, _: -point.value, frozenset({DataDifference.SIGN})),
    "wrong period": (_other_period, CONTRADICTIONS),
    "rounding, decimals stated": (_rounded, frozenset({DataDifference.ROUNDING})),
    "rounding": (_rounded, frozenset({DataDifference.ROUNDING})),
    "split": (_split, frozenset({DataDifference.SPLIT})),
}
"""Fault → how it is planted, and as what it has to be found."""

STATED: Final = "rounding, decimals stated"


def controls() -> dict[str, list[Point]]:
    """Return the groups of which all filings agree on a value other than zero."""
    of = labels()
    return {key: points for key, points in filings().items() if of[key] == "same" and points[0].value}


def planted(name: str, source: str) -> Iterator[Pair]:
    """Yield the pair that ends at a planted fault, for each control in which it can be planted."""
    chance, (plant, _) = random.Random(7), PLANTS[name]
    groups = controls()
    values: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for key, points in groups.items():
        values[tuple(key.split("|")[:3])].append(points[0].value)
    for key, points in groups.items():
        others = values[tuple(key.split("|")[:3])]
        value = plant(points[-1], chance.sample(others, len(others)))
        if value is None:
            continue
        places = 1 - math.floor(math.log10(abs(points[-1].value))) if name == STATED else None
        fault = replace(points[-1], value=value, decimals=places)
        whole = [*points[:-1], fault]
        if source != "SEC_EDGAR":
            at = points[-1].known_at + timedelta(days=1)
            whole = [*points, replace(fault, source=source, document="d", key="d", known_at=at, filed_at=at)]
        yield pairs_of(whole)[-1]


def recall(name: str, source: str) -> tuple[int, int]:
    """Return how many planted faults were found as what they are, and how many were planted."""
    expected = PLANTS[name][1]
    found = [pair.difference in expected for pair in planted(name, source)]
    return sum(found), len(found)


def wins_of_evidence(name: str, source: str, *, guard: bool = True) -> int:
    """Return how many planted faults were settled in favour of the fault by levels 1 and 2."""
    won = 0
    for pair in filter(lambda pair: pair.contradicts, planted(name, source)):
        a, b = (
            Claim(one.value, source_in({}, one.source, one.known_at), one.filed_at) for one in (pair.a, pair.b)
        )  # fmt: skip
        verdict = settle(a, b, ContradictionPriority.MEDIUM, guard=guard)
        won += verdict is not None and verdict.winner == "b"
    return won


def confirmed() -> Counter[str]:
    """Return what the next filing says of each real restatement that has one: the newer value, the older, another."""
    found: Counter[str] = Counter()
    for points in filings().values():
        for pair in pairs_of(points):
            later = [one for one in points if one.place > pair.b.place and one.document != pair.b.document]
            if pair.difference is not DataDifference.RESTATEMENT or not later:
                continue
            told = [not differ(later[0].value, one.value, one.unit) for one in (pair.b, pair.a)]
            found["newer" if told[0] else "older" if told[1] else "another"] += 1
    return found


# Reports of analysts


def reported() -> Counter[tuple[str, str]]:
    """Return level and status of the contradictions of two analysts of one run where nobody answers."""
    found: Counter[tuple[str, str]] = Counter()
    with gzip.open(EXAMPLES / "trading_desk" / "trading_desk.jsonl.gz") as lines:
        cores = [orjson.loads(line)["core"] for line in lines if line.startswith(b'{"record":"DataContradiction"')]
    for core in cores:
        model = DataContradiction.model_validate(core)
        line = line_of_report(model, model.timestamp, _unproven, guard=True)
        assert isinstance(line, OpenQuestion), "no analyst is a source of a known type"
        found[line.verdict.level.value, line.verdict.status.value] += 1
    return found


# Reports that are revised


def reports() -> dict[tuple[str, str], list[Point]]:
    """Return the points of each place and week, in the order of their publication."""
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for row in read_rows(EXAMPLES / "flusight" / "source" / "revisions.csv.gz"):
        at = datetime.combine(date.fromisoformat(row["published_on"]), datetime.min.time(), UTC)
        document = row["published_on"]
        groups[row["location"], row["week"]].append(
            Point(document, float(row["value"]), "NHSN", document, at, at, "admissions")
        )  # fmt: skip
    return {key: sorted(points, key=lambda one: one.place) for key, points in groups.items()}


def _unproven(name: str) -> Source:
    """Return a source without any outcome."""
    return source_in({}, name, datetime.min.replace(tzinfo=UTC))


JUDGE: Final = Judge(_unproven, ContradictionPriority.MEDIUM, guard=True)


def value_on(points: Sequence[Point], at: datetime) -> float | None:
    """Return the value that counts on a day."""
    standing = standing_of([one for one in points if one.known_at <= at], JUDGE)
    return None if standing is None or standing.point is None else standing.point.value


def main() -> None:
    out = [f"| {label} | {kinds} | {count} |" for (label, kinds), count in sorted(compared().items())]
    for name in PLANTS:
        for source in ("SEC_EDGAR", "Bloomberg"):
            found, total = recall(name, source)
            out.append(f"| {name} | {source} | {total} | {found / total:.3f} | {wins_of_evidence(name, source)} |")
    days = [(points, one) for points in reports().values() for one in points]
    right = sum(value_on(points, one.known_at) == one.value for points, one in days)
    out += [f"next filing: {dict(confirmed())}", f"days of publication: {right} of {len(days)}"]
    out += [f"analysts at odds, {' '.join(how)}: {number}" for how, number in reported().items()]
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
