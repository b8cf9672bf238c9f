"""
FluSight forecasts as a history that ``imem load`` reads.

Each question ("will flu admissions in this state rise by that week?") becomes a Market of the series of its state and
horizon, with one Analysis and one Finding per model's forecast; each answer becomes an Outcome. An answer has two
vintages: 0 from the first reports, 1 from the last revision, often half a year later; each is dated with the day on
which it was published, and nothing here is known before.

Choices where the source leaves one:

- Forecasts are dated by their deadline (`asked_on`), publications by their day; a day alone is known at 12:00 UTC of
  the next one. A target week is over, by the same rule, at 12:00 UTC of the Sunday after it: that is ``target_at``.
- The metric is ``up`` (increase or large increase): probability is ``p_up``, confidence the largest of the five
  probabilities, and all five stand in ``distribution``. A forecast has no ``direction``: a probability of 0.4 is no
  "negative".
- An Analysis is a round of the hub; nobody in the data ran it, so no PERFORMED link is written. Its ``probability`` is
  that of FluSight-ensemble, the hub's own combination, where it answered.
- An agent's profile is dated with its first forecast in this extract.

Run it with ``python examples/flusight/convert.py [--data DIR] [--out FILE]``; the standard library is enough.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

if __name__ == "__main__":  # a script finds its own folder only; the shared module lies two above
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from examples import lines
from examples.lines import STRING_LIMIT, Line, known_at_of_date, late_group, present, record

HERE = Path(__file__).resolve().parent
DOMAIN = "flu_admissions_direction"
METRIC = "up"
SEASON = "2024-25"
HUB_ENSEMBLE = "FluSight-ensemble"

LOCATIONS = ("06", "12", "17", "36", "42", "48")
"""FIPS codes of the six most populous states of the 2020 census: CA, FL, IL, NY, PA, TX; chosen without the answers."""

CLASSES = ("large_decrease", "decrease", "stable", "increase", "large_increase")

LICENCES = {"CC-BY_SA-4.0": "CC-BY-SA-4.0"}
"""A spelling of the source, and the licence that it means."""


@dataclass(frozen=True, slots=True)
class Vintage:
    """
    One answer to a question.

    Attributes:
        number: 0 from the first reports, 1 from the last revision.
        known_at: when it was published, read as late as its day allows.
        published_on: that day.
        outcome: one of ``CLASSES``.
        up: whether admissions rose.
        change: admissions of the baseline week and of the target week, as published.
    """

    number: int
    known_at: datetime
    published_on: date
    outcome: str
    up: bool
    change: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Forecast:
    """One model's five probabilities for one question, in the order of ``CLASSES``."""

    agent: str
    probabilities: tuple[Decimal, ...]

    @property
    def p_up(self) -> Decimal:
        """Probability that admissions rise; the source rounds, so that a sum may pass 1 by a hair."""
        return min(Decimal(1), self.probabilities[3] + self.probabilities[4])


@dataclass(frozen=True, slots=True)
class Question:
    """
    One question of the hub.

    Attributes:
        key: key of its Market, from the source's own id.
        asked_at: when its forecasts could be known: the deadline.
        target_at: when the target week is over everywhere.
    """

    key: str
    location: str
    location_name: str
    horizon_weeks: int
    asked_on: date
    asked_at: datetime
    baseline_week: date
    target_week: date
    target_at: datetime
    vintages: tuple[Vintage, ...]

    @property
    def subject_id(self) -> str:
        """Return the subject that analyses, findings and outcomes name."""
        return f"market:{self.key}"

    @property
    def analysis_id(self) -> str:
        """Return the key of the round's Analysis."""
        return f"{self.key}/round"


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a gzip CSV file with a header."""
    return list(csv.DictReader(io.StringIO(lines.read_text(path))))


def read_vintages(row: dict[str, str]) -> tuple[Vintage, ...]:
    """
    Return the answers that a question ever had, none to two.

    Six questions of the source never got a final number and some no first report (their week was archived late or
    never): such an answer is left out, not filled from the other vintage.
    """
    sources = (
        (
            0,
            "first_known_on",
            "outcome_first_report",
            "up_first_report",
            "baseline_first_report",
            "target_first_report",
        ),
        (1, "final_known_on", "outcome", "up", "baseline_value", "target_value"),
    )
    found = []
    for number, known_on, outcome, up, baseline, target in sources:
        if row[up] not in {"0", "1"} or not row[known_on]:
            continue
        day = date.fromisoformat(row[known_on])
        change = (row[baseline], row[target])
        found.append(Vintage(number, known_at_of_date(day), day, row[outcome], row[up] == "1", change))
    return tuple(found)


def read_question(row: dict[str, str]) -> Question:
    """Return the question of a row."""
    asked_on, target_week = date.fromisoformat(row["asked_on"]), date.fromisoformat(row["target_week"])
    return Question(
        key=f"flusight:{row['question_id']}",
        location=row["location"],
        location_name=row["location_name"],
        horizon_weeks=int(row["horizon_weeks"]),
        asked_on=asked_on,
        asked_at=known_at_of_date(asked_on),
        baseline_week=date.fromisoformat(row["baseline_week"]),
        target_week=target_week,
        target_at=known_at_of_date(target_week),
        vintages=read_vintages(row),
    )


def read_forecasts(path: Path) -> dict[str, list[Forecast]]:
    """Return the forecasts by question key, in the order of the file."""
    found: dict[str, list[Forecast]] = defaultdict(list)
    for row in read_rows(path):
        probabilities = tuple(Decimal(row[f"p_{name}"]) for name in CLASSES)
        found[f"flusight:{row['question_id']}"].append(Forecast(row["agent"], probabilities))
    return found


def question_lines(question: Question, forecasts: list[Forecast], baselines: set[str]) -> list[Line]:
    """Return the Market, its Analysis and one Finding per forecast, all known at the deadline."""
    market = record(
        "Market",
        {
            "market_id": question.key,
            "subject_id": question.subject_id,
            "question": (
                f"Will weekly flu hospital admissions in {question.location_name} rise (increase or large increase)"
                f" from the week ending {question.baseline_week} to the week ending {question.target_week}?"
            ),
            "series_id": f"flusight:{question.location}-h{question.horizon_weeks}",
            "closes_at": lines.stamp(question.asked_at),
        },
        known_at=question.asked_at,
    )
    by_agent = {forecast.agent: forecast for forecast in forecasts}
    ensemble = by_agent.get(HUB_ENSEMBLE)
    analysis = record(
        "Analysis",
        present(
            id=question.analysis_id,
            subject_id=question.subject_id,
            date=lines.stamp(datetime.combine(question.asked_on, time(), tzinfo=UTC)),
            kind="forecast_round",
            probability=None if ensemble is None else float(ensemble.p_up),
            horizon_days=(question.target_week - question.asked_on).days,
            summary=summary_of(forecasts, baselines),
        ),
        known_at=question.asked_at,
    )
    return [market, analysis, *(finding_line(question, forecast) for forecast in forecasts)]


def summary_of(forecasts: list[Forecast], baselines: set[str]) -> str:
    """Return one sentence on what the round said; baselines are no opinion and stay out of the median."""
    opinions = sorted(forecast.p_up for forecast in forecasts if forecast.agent not in baselines)
    if not opinions:
        return "Only baselines answered."
    return (
        f"{len(opinions)} models answered: median probability of a rise {median(opinions):.2f},"
        f" from {opinions[0]:.2f} to {opinions[-1]:.2f}."
    )


def finding_line(question: Question, forecast: Forecast) -> Line:
    """Return the Finding of one forecast."""
    named = dict(zip(CLASSES, forecast.probabilities, strict=True))
    likeliest = max(CLASSES, key=lambda name: named[name])
    return record(
        "Finding",
        {
            "id": f"{question.key}/{forecast.agent}",
            "analysis_id": question.analysis_id,
            "subject_id": question.subject_id,
            "agent": forecast.agent,
            "domain": DOMAIN,
            "statement": (
                f"Probability of a rise {forecast.p_up:.3f}; likeliest is {likeliest.replace('_', ' ')}"
                f" with {named[likeliest]:.3f}."
            ),
            "probability": float(forecast.p_up),
            "confidence": float(min(Decimal(1), named[likeliest])),
            "metric": METRIC,
            "target_at": lines.stamp(question.target_at),
            "distribution": json.dumps(
                {name: float(value) for name, value in named.items()}, sort_keys=True, separators=(",", ":")
            ),
        },
        known_at=question.asked_at,
    )


def answer_lines(question: Question) -> list[Line]:
    """
    Return an Outcome per vintage, and the Market's resolution whenever its text changes by date.

    An answer that was never revised keeps both vintages. Nobody knew on that day that it was the last word, so the
    resolution says by when the numbers were published and never calls them final.
    """
    found = []
    for vintage in question.vintages:
        baseline, target = vintage.change
        core = {
            "id": f"{question.key}/{METRIC}/{vintage.number}",
            "subject_id": question.subject_id,
            "metric": METRIC,
            "target_at": lines.stamp(question.target_at),
            "actual": 1.0 if vintage.up else 0.0,
            "observed_at": lines.stamp(vintage.known_at),
            "vintage": vintage.number,
            "source": (
                f"CDC NHSN as archived by FluSight, published by {vintage.published_on}: {vintage.outcome},"
                f" {float(baseline):g} to {float(target):g} admissions"
            ),
        }
        found.append(record("Outcome", core, known_at=vintage.known_at, occurred_at=question.target_at))
    latest = {vintage.known_at: vintage for vintage in question.vintages}
    for known_at, vintage in latest.items():
        answer = "rose" if vintage.up else "did not rise"
        resolution = f"{answer} ({vintage.outcome}), numbers published by {vintage.published_on}"
        value = {"resolved_at": lines.stamp(known_at), "resolution": resolution}
        found.append(late_group("Market", question.key, "resolution", value, known_at=known_at))
    return found


def agent_lines(rows: list[dict[str, str]], first_forecast: dict[str, datetime]) -> list[Line]:
    """Return one Agent per model that answers a question of the extract."""
    found = []
    for row in rows:
        known_at = first_forecast.get(row["agent"])
        if known_at is None:
            continue
        profile: dict[str, Any] = {
            "specialization": lines.cut(row["model_name"], STRING_LIMIT, closing=0),
            "kind": row["kind"],
            "domains": [DOMAIN],
            "team": lines.cut(row["team"], STRING_LIMIT, closing=0),
            "licence": LICENCES.get(row["licence"], row["licence"]),
        }
        body = row["methods"] or None
        found.append(record("Agent", {"name": row["agent"]}, groups={"profile": profile}, known_at=known_at, body=body))
    return found


def convert(data: Path = HERE / "source") -> list[Line]:
    """
    Return the lines of the extract in *data*, in order.

    Rows of other seasons and places are passed over: the whole source gives the same lines as the part beside this
    file.
    """
    questions = [
        read_question(row)
        for row in read_rows(data / "questions.csv.gz")
        if row["season"] == SEASON and row["location"] in LOCATIONS
    ]
    forecasts = read_forecasts(data / "forecasts.csv.gz")
    agents = read_rows(data / "agents.csv.gz")
    baselines = {row["agent"] for row in agents if row["kind"] == "baseline"}
    first_forecast: dict[str, datetime] = {}
    found: list[Line] = []
    for question in questions:
        answers = forecasts.get(question.key, [])
        for forecast in answers:
            earliest = first_forecast.get(forecast.agent, question.asked_at)
            first_forecast[forecast.agent] = min(earliest, question.asked_at)
        found += question_lines(question, answers, baselines)
        found += answer_lines(question)
    domain = {"name": DOMAIN, "description": "Whether weekly flu hospital admissions in a US state rise."}
    found.append(record("Domain", domain, known_at=min(first_forecast.values())))
    found += agent_lines(agents, first_forecast)
    return lines.in_order(found)


def main() -> None:
    """Write the example where the demo looks for it, or where the caller says."""
    parser = argparse.ArgumentParser(description="Turn the FluSight extract into JSON Lines for imem load.")
    parser.add_argument("--data", type=Path, default=HERE / "source", help="folder with the source's CSV files")
    parser.add_argument("--out", default=str(HERE / "flusight.jsonl.gz"), help="file to write; - is standard output")
    arguments = parser.parse_args()
    lines.write(convert(arguments.data), None if arguments.out == "-" else Path(arguments.out))


if __name__ == "__main__":
    main()
