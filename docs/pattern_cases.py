"""
Settled questions of two public sources as cases of patterns: docs/explanation/cases.

``python -m docs.pattern_cases FOLDER`` makes them anew of the sources, whose folders ``flusight`` and ``market_crowds``
are as examples/flusight/README.md describes the first. A question that a week has, by its first forecast in it, is one
row. An answer is that of the first reports, since one that counts from its last revision on leaves no case whose
forecast was made later.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

from docs.pictures import FOLDER
from imem.credibility.scores.context import DIMENSIONS
from imem.patterns.cases import FeaturedCase, featured

CASES: Final = FOLDER.parent / "cases"
SOURCES: Final = ("market_crowds", "flusight")
COLUMNS: Final = (
    "subject_id", "predicted_on", "known_on", "stated", "happened", "drift", "sector", "time_horizon",
)  # fmt: skip

Row = dict[str, Any]


def cases(source: str) -> list[FeaturedCase]:
    """Return the cases of a source, as the product reads them of the journal."""
    with gzip.open(CASES / f"{source}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return [featured(_row(line)) for line in csv.DictReader(file)]


def _row(line: dict[str, str]) -> Row:
    predicted = _known(line["predicted_on"])
    return {
        **dict.fromkeys(DIMENSIONS), "subject_id": line["subject_id"], "predicted_at": predicted,
        "known_at": _known(line["known_on"]), "period": predicted.date() - timedelta(days=predicted.weekday()),
        "stated": float(line["stated"]), "happened": int(line["happened"]), "error": None,
        "drift": float(line["drift"]) if line["drift"] else None, "sector": line["sector"] or None,
        "time_horizon": line["time_horizon"] or None,
    }  # fmt: skip


def _known(day: str) -> datetime:
    """Return noon of the next day, when a day is over everywhere."""
    return datetime.combine(date.fromisoformat(day) + timedelta(days=1), time(12), tzinfo=UTC)


def _table(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _weekly(rows: Iterable[Row]) -> list[Row]:
    """Return the first row of each subject and week."""
    found: dict[tuple[str, date], Row] = {}
    for row in sorted(rows, key=lambda row: (row["subject_id"], row["predicted_on"])):
        day = _known(row["predicted_on"]).date()
        found.setdefault((row["subject_id"], day - timedelta(days=day.weekday())), row)
    return list(found.values())


def market_crowds(folder: Path) -> Iterator[Row]:
    """Return the questions of markets week by week; the subject is the market, the sector its platform."""
    with gzip.open(folder / "markets.jsonl.gz", "rt", encoding="utf-8") as file:
        markets = {market["market_id"]: market for market in map(json.loads, file) if market["outcome"] is not None}
    rows = [
        {
            "subject_id": line["market_id"], "predicted_on": line["date"], "stated": float(line["probability"]),
            "known_on": markets[line["market_id"]]["resolved_on"], "happened": markets[line["market_id"]]["outcome"],
            "sector": markets[line["market_id"]]["platform"],
        }
        for line in _table(folder / "snapshots.csv.gz") if line["market_id"] in markets
    ]  # fmt: skip
    before: Row = {"subject_id": None}
    for row in _weekly(row for row in rows if row["predicted_on"] < row["known_on"]):
        same = before["subject_id"] == row["subject_id"]
        yield row | {"drift": round(row["stated"] - before["stated"], 6) if same else None}
        before = row


def flusight(folder: Path) -> Iterator[Row]:
    """Return the questions of the hub that its ensemble answered; the subject is state and horizon."""
    questions = {line["question_id"]: line for line in _table(folder / "questions.csv.gz")}
    rows = []
    for line in _table(folder / "forecasts.csv.gz"):
        question = questions[line["question_id"]]
        answered = question["first_known_on"] and question["up_first_report"]
        if line["agent"] == "FluSight-ensemble" and answered and question["asked_on"] < question["target_week"]:
            near = _known(question["target_week"]) - _known(question["asked_on"]) <= timedelta(days=7)
            stated = float(line["p_increase"]) + float(line["p_large_increase"])
            rows.append({
                "subject_id": f"{question['location']}-h{question['horizon_weeks']}", "stated": round(stated, 6),
                "predicted_on": question["asked_on"], "known_on": question["first_known_on"],
                "happened": question["up_first_report"], "time_horizon": "week" if near else "month",
            })  # fmt: skip
    yield from _weekly(rows)


def main(arguments: Sequence[str]) -> None:
    """Write the cases of both sources."""
    for source, read in zip(SOURCES, (market_crowds, flusight), strict=True):
        out = io.StringIO()
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(read(Path(arguments[0]) / source))
        (CASES / f"{source}.csv.gz").write_bytes(gzip.compress(out.getvalue().encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1:])
