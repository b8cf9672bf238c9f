"""
Two winters of the hub's ensemble, one week ahead, as a history that ``imem load`` reads.

The cases are those of docs/explanation/cases: forecasts of a rise in 53 states and territories, with the answers of the
first reports. ``python examples/flusight/winters.py DAY --out FILE`` writes what was known before a day;
``--months LOW HIGH`` says instead, by month, how often a rise was forecast and came, where the forecast lies between.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from statistics import fmean

if __name__ == "__main__":  # as in convert.py
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from examples import lines
from examples.lines import Line, known_at_of_date, record

CASES = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "cases" / "flusight.csv.gz"
AGENT = "FluSight-ensemble"
TARGET = timedelta(days=10)
"""From the day of a forecast to the end of the week that it is about."""

Case = dict[str, str]


def cases(before: date) -> Iterator[Case]:
    """Yield the cases one week ahead whose forecasts could be known before a day, in the order of the file."""
    with gzip.open(CASES, "rt", encoding="utf-8", newline="") as file:
        for case in csv.DictReader(file):
            if case["subject_id"].endswith("-h1") and known_at_of_date(_day(case, "predicted")).date() < before:
                yield case


def _day(case: Case, name: str) -> date:
    return date.fromisoformat(case[f"{name}_on"])


def convert(before: date) -> list[Line]:
    """Return the lines that could be known before a day."""
    rounds: dict[str, Line] = {}
    found: list[Line] = []
    for case in cases(before):
        asked, known = known_at_of_date(_day(case, "predicted")), known_at_of_date(_day(case, "known"))
        week = f"flusight:{case['predicted_on']}"
        question = {
            "id": f"{week}:{case['subject_id']}", "subject_id": f"market:flusight:{case['subject_id']}",
            "metric": "up", "target_at": lines.stamp(known_at_of_date(_day(case, "predicted") + TARGET)),
        }  # fmt: skip
        finding = {
            "analysis_id": week, "agent": AGENT, "domain": "flu_admissions_direction",
            "statement": f"A rise has probability {case['stated']}.", "probability": float(case["stated"]),
        }  # fmt: skip
        outcome = {"actual": float(case["happened"]), "observed_at": lines.stamp(known), "vintage": 0}
        analysis = {
            "id": week, "subject_id": "market:flusight:h1", "date": lines.stamp(asked), "kind": "forecast_round",
        }  # fmt: skip
        rounds.setdefault(week, record("Analysis", analysis, known_at=asked))
        found += [
            record("Finding", question | finding, known_at=asked),
            record("Outcome", question | outcome, known_at=known),
        ]
    return lines.in_order([line for line in [*rounds.values(), *found] if line.known_at.date() < before])


def months(before: date, low: float, high: float) -> Iterator[str]:
    """Yield by month of the forecast how often a rise was forecast, and came, where the forecast lies between."""
    found: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases(before):
        if known_at_of_date(_day(case, "known")).date() < before and low <= float(case["stated"]) < high:
            found[case["predicted_on"][:7]].append(case)
    for month, those in sorted(found.items()):
        stated, rose = (fmean(float(case[name]) for case in those) for name in ("stated", "happened"))
        yield f"{month}: {len(those)} forecasts of {stated:.0%} on average, and {rose:.0%} rose"


def main() -> None:
    """Write the history, or print the months."""
    parser = argparse.ArgumentParser(description="Two winters of flu forecasts, one week ahead, for imem load.")
    parser.add_argument("before", type=date.fromisoformat, help="leave out what became known on this day or later")
    parser.add_argument("--out", help="file to write; standard output by default")
    parser.add_argument("--months", nargs=2, type=float, metavar=("LOW", "HIGH"), help="print forecasts by month")
    arguments = parser.parse_args()
    if arguments.months:
        sys.stdout.writelines(f"{line}\n" for line in months(arguments.before, *arguments.months))
    else:
        lines.write(convert(arguments.before), Path(arguments.out) if arguments.out else None)


if __name__ == "__main__":
    main()
