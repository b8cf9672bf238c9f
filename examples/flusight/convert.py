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
- An agent's profile is dated with its first forecast in the data.
- What the source lacks is left out, never filled: an answer without numbers, a forecast without all five
  probabilities. A question about a week that was over when it was asked is a nowcast: its forecasts are kept, but
  claim nothing.

Run it with ``python examples/flusight/convert.py [--data DIR] [--season S …] [--location FIPS …] [--out FILE]``; the
standard library is enough. Without a season or location it takes all that the data has.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
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
HUB_ENSEMBLE = "FluSight-ensemble"

CLASSES = ("large_decrease", "decrease", "stable", "increase", "large_increase")

KINDS = ("model", "ensemble", "baseline")
"""What an agent of the source may be."""

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

    @property
    def said(self) -> str:
        """Return the answer in words, with its numbers where the source has them."""
        answer = self.outcome or ("up" if self.up else "not up")
        if not all(map(is_number, self.change)):
            return answer
        baseline, target = map(float, self.change)
        return f"{answer}, {baseline:g} to {target:g} admissions"


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


def read_vintages(row: dict[str, str]) -> tuple[Vintage, ...]:
    """
    Return the answers that a question ever had, none to two.

    Some questions never got a final number and some no first report (their week was archived late or never), and a
    season that is not over has no final numbers yet, or not even their columns: such an answer is left out, not filled
    from the other vintage.
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
        published_on, answer = row.get(known_on, ""), row.get(up, "")
        if answer not in {"0", "1"} or not published_on:
            continue
        day = date.fromisoformat(published_on)
        change = (row.get(baseline, ""), row.get(target, ""))
        found.append(Vintage(number, known_at_of_date(day), day, row.get(outcome, ""), answer == "1", change))
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
    """Return the forecasts by question key, in the order of the file; one that is not whole is left out."""
    found: dict[str, list[Forecast]] = defaultdict(list)
    for row in lines.read_rows(path):
        stated = [row[f"p_{name}"] for name in CLASSES]
        if not all(map(is_probability, stated)):
            continue
        probabilities = tuple(map(Decimal, stated))
        found[f"flusight:{row['question_id']}"].append(Forecast(row["agent"], probabilities))
    return found


def is_number(text: str) -> bool:
    """Tell whether *text* is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def is_probability(text: str) -> bool:
    """Tell whether *text* is a number from 0 to 1."""
    try:
        return 0 <= Decimal(text) <= 1
    except InvalidOperation:
        return False


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
    claims = question.asked_at < question.target_at
    core = present(
        id=f"{question.key}/{forecast.agent}",
        analysis_id=question.analysis_id,
        subject_id=question.subject_id,
        agent=forecast.agent,
        domain=DOMAIN,
        statement=(
            f"Probability of a rise {forecast.p_up:.3f}; likeliest is {likeliest.replace('_', ' ')}"
            f" with {named[likeliest]:.3f}."
        ),
        probability=float(forecast.p_up),
        confidence=float(named[likeliest]),
        metric=METRIC if claims else None,
        target_at=lines.stamp(question.target_at) if claims else None,
        distribution=json.dumps(
            {name: float(value) for name, value in named.items()}, sort_keys=True, separators=(",", ":")
        ),
    )
    return record("Finding", core, known_at=question.asked_at)


def answer_lines(question: Question) -> list[Line]:
    """
    Return an Outcome per vintage, and the Market's resolution whenever its text changes by date.

    An answer that was never revised keeps both vintages. Nobody knew on that day that it was the last word, so the
    resolution says by when the numbers were published and never calls them final.
    """
    found = []
    for vintage in question.vintages:
        core = {
            "id": f"{question.key}/{METRIC}/{vintage.number}",
            "subject_id": question.subject_id,
            "metric": METRIC,
            "target_at": lines.stamp(question.target_at),
            "actual": 1.0 if vintage.up else 0.0,
            "observed_at": lines.stamp(vintage.known_at),
            "vintage": vintage.number,
            "source": f"CDC NHSN as archived by FluSight, published by {vintage.published_on}: {vintage.said}",
        }
        found.append(record("Outcome", core, known_at=vintage.known_at, occurred_at=question.target_at))
    latest = {vintage.known_at: vintage for vintage in question.vintages}
    for known_at, vintage in latest.items():
        answer = "rose" if vintage.up else "did not rise"
        named = f" ({vintage.outcome})" if vintage.outcome else ""
        resolution = f"{answer}{named}, numbers published by {vintage.published_on}"
        value = {"resolved_at": lines.stamp(known_at), "resolution": resolution}
        found.append(late_group("Market", question.key, "resolution", value, known_at=known_at))
    return found


def agent_lines(rows: list[dict[str, str]], first_forecast: dict[str, datetime]) -> list[Line]:
    """Return one Agent per model that answers a question; one that the source does not describe has no profile."""
    described = {row["agent"]: row for row in rows}
    return [agent_line(name, described.get(name, {}), known_at) for name, known_at in first_forecast.items()]


def agent_line(name: str, row: dict[str, str], known_at: datetime) -> Line:
    """Return one Agent."""
    if row.get("kind", "") not in KINDS:
        return record("Agent", {"name": name}, known_at=known_at)
    profile: dict[str, Any] = present(
        specialization=lines.cut(row["model_name"] or name, STRING_LIMIT, closing=0),
        kind=row["kind"],
        domains=[DOMAIN],
        team=lines.cut(row["team"], STRING_LIMIT, closing=0) or None,
        licence=LICENCES.get(row["licence"], row["licence"]) or None,
    )
    return record("Agent", {"name": name}, groups={"profile": profile}, known_at=known_at, body=row["methods"] or None)


def convert(data: Path = HERE / "source", seasons: Iterable[str] = (), locations: Iterable[str] = ()) -> list[Line]:
    """
    Return the lines of the questions in *data*, in order.

    Args:
        seasons: pass over questions of others, such as ``2024-25``; all by default.
        locations: pass over questions of others, by FIPS code; all by default.
    """
    of_season, of_location = frozenset(seasons), frozenset(locations)
    questions = [
        read_question(row)
        for row in lines.read_rows(data / "questions.csv.gz")
        if (not of_season or row["season"] in of_season) and (not of_location or row["location"] in of_location)
    ]
    forecasts = read_forecasts(data / "forecasts.csv.gz")
    agents = lines.read_rows(data / "agents.csv.gz")
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
    if first_forecast:
        domain = {"name": DOMAIN, "description": "Whether weekly flu hospital admissions in a US state rise."}
        found.append(record("Domain", domain, known_at=min(first_forecast.values())))
    return lines.in_order(found + agent_lines(agents, first_forecast))


def main() -> None:
    """Write the example where the demo looks for it, or where the caller says."""
    parser = argparse.ArgumentParser(description="Turn the FluSight extract into JSON Lines for imem load.")
    parser.add_argument("--data", type=Path, default=HERE / "source", help="folder with the source's CSV files")
    parser.add_argument("--out", default=str(HERE / "flusight.jsonl.gz"), help="file to write; - is standard output")
    parser.add_argument("--season", nargs="+", default=[], help="only these, such as 2024-25")
    parser.add_argument("--location", nargs="+", default=[], help="only these, by FIPS code")
    arguments = parser.parse_args()
    found = convert(arguments.data, arguments.season, arguments.location)
    if not found:
        parser.exit(1, f"No question in {arguments.data} is of such a season and location.\n")
    lines.write(found, None if arguments.out == "-" else Path(arguments.out))


if __name__ == "__main__":
    main()
