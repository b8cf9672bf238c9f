"""The flu forecasts: what becomes of each part of the source, and of each of its traps."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter, defaultdict
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from examples.flusight import convert
from tests.examples.conftest import EXAMPLES, Lines

SOURCE = EXAMPLES / "flusight" / "source"


def table(name: str) -> list[dict[str, str]]:
    with gzip.open(SOURCE / f"{name}.csv.gz", "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def of_kind(lines: Lines, kind: str) -> Lines:
    return [line for line in lines if line.get("record") == kind]


def noon_after(day: str) -> str:
    return (datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=1, hours=12)).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )


@pytest.fixture(scope="module")
def questions() -> dict[str, dict[str, str]]:
    return {f"flusight:{row['question_id']}": row for row in table("questions")}


@pytest.fixture(scope="module")
def outcomes(flu_lines: Lines) -> dict[tuple[str, int], dict[str, Any]]:
    return {(line["core"]["subject_id"], line["core"]["vintage"]): line for line in of_kind(flu_lines, "Outcome")}


def test_counts(flu_lines: Lines) -> None:
    """Six states, 28 weeks, four horizons: 672 questions, each with both answers, within 20,000 lines."""
    counts = Counter(line["record"] for line in flu_lines if "core" in line)

    assert counts == {"Domain": 1, "Agent": 24, "Market": 672, "Analysis": 672, "Finding": 13432, "Outcome": 2 * 672}
    assert len(flu_lines) <= 20_000
    assert len({line["core"]["series_id"] for line in of_kind(flu_lines, "Market") if "core" in line}) == 6 * 4


def test_a_whole_season_of_several_places(questions: dict[str, dict[str, str]]) -> None:
    """Every week of the season is there for every place and horizon."""
    by_series = Counter((row["location_name"], row["horizon_weeks"]) for row in questions.values())

    assert set(by_series.values()) == {28}
    assert {place for place, _ in by_series} == {
        "California",
        "Florida",
        "Illinois",
        "New York",
        "Pennsylvania",
        "Texas",
    }
    assert {row["season"] for row in questions.values()} == {"2024-25"}


def test_all_kinds_of_agents_speak(flu_lines: Lines) -> None:
    """Models, ensembles and baselines, each with its team and licence."""
    profiles = {line["core"]["name"]: line["groups"]["profile"] for line in of_kind(flu_lines, "Agent")}
    kinds = Counter(profile["kind"] for profile in profiles.values())

    assert kinds == {"model": 20, "ensemble": 2, "baseline": 2}
    assert all(profile["team"] for profile in profiles.values())
    assert {profile["licence"] for profile in profiles.values()} == {"CC-BY-4.0", "CC-BY-SA-4.0"}
    assert profiles["MOBS-GLEAM_FLUH"]["licence"] == "CC-BY-SA-4.0"


def test_findings_carry_the_forecast(flu_lines: Lines) -> None:
    """Probability is that of a rise, confidence the largest of the five, and the five stand beside."""
    source = {(f"flusight:{row['question_id']}/{row['agent']}"): row for row in table("forecasts")}
    for line in of_kind(flu_lines, "Finding"):
        core, row = line["core"], source[line["core"]["id"]]
        five = {name.removeprefix("p_"): float(value) for name, value in row.items() if name.startswith("p_")}
        assert json.loads(core["distribution"]) == five
        assert core["probability"] == pytest.approx(five["increase"] + five["large_increase"], abs=1e-9)
        assert core["confidence"] == pytest.approx(max(five.values()), abs=1e-9)
        assert sum(five.values()) == pytest.approx(1, abs=1e-3)
        assert (core["metric"], core["domain"]) == ("up", "flu_admissions_direction")


def test_forecasts_are_known_at_their_deadline(flu_lines: Lines, questions: dict[str, dict[str, str]]) -> None:
    """A deadline is a day: known at noon UTC of the next one, and so are the question and its round."""
    for line in flu_lines:
        if line.get("record") in {"Market", "Analysis", "Finding"} and "core" in line:
            market = line["core"].get("market_id") or line["core"]["subject_id"].removeprefix("market:")
            assert line["known_at"] == noon_after(questions[market]["asked_on"])


def test_question_and_round_say_nothing_of_the_answer(flu_lines: Lines) -> None:
    """A question is the same whatever came out: no admissions, no outcome, no later date."""
    for line in of_kind(flu_lines, "Market"):
        if "core" in line:
            assert line["core"].keys() == {"market_id", "subject_id", "question", "series_id", "closes_at"}
            assert "groups" not in line


def test_trap_two_vintages(
    outcomes: dict[tuple[str, int], dict[str, Any]], questions: dict[str, dict[str, str]]
) -> None:
    """Each answer stands twice, dated with the first reports and with the last revision, and is known no earlier."""
    revised = 0
    for market, row in questions.items():
        first, final = (outcomes[f"market:{market}", vintage] for vintage in (0, 1))
        assert first["known_at"] == noon_after(row["first_known_on"])
        assert final["known_at"] == noon_after(row["final_known_on"])
        assert first["core"]["actual"] == float(row["up_first_report"])
        assert final["core"]["actual"] == float(row["up"])
        revised += first["core"]["actual"] != final["core"]["actual"]
    assert revised == 17


def test_trap_final_answer_comes_months_later(outcomes: dict[tuple[str, int], dict[str, Any]]) -> None:
    """Half of the final answers came more than half a year after the first: using them early would be look-ahead."""
    waits = sorted(
        datetime.fromisoformat(outcomes[subject, 1]["known_at"]) - datetime.fromisoformat(line["known_at"])
        for (subject, vintage), line in outcomes.items()
        if vintage == 0
    )

    assert waits[len(waits) // 2] > timedelta(days=182)


def test_trap_weeks_are_published_four_days_later(questions: dict[str, dict[str, str]]) -> None:
    """The archive names files by the last data week; here a week is known only when it was published."""
    for row in questions.values():
        gap = date.fromisoformat(row["first_known_on"]) - date.fromisoformat(row["target_week"])
        assert gap >= timedelta(days=4)


def test_trap_missing_answers_stay_missing() -> None:
    """A question without a final number, or without a first report, has no such outcome, and nothing fills the gap."""
    row = {
        **table("questions")[0],
        "target_value": "nan",
        "outcome": "",
        "up": "",
        "outcome_first_report": "",
        "up_first_report": "",
    }
    only_final = {**table("questions")[0], "up_first_report": "", "first_known_on": ""}

    assert convert.answer_lines(convert.read_question(row)) == []
    kinds = [
        (line.content["record"], line.content.get("core", {}).get("vintage"))
        for line in convert.answer_lines(convert.read_question(only_final))
    ]
    assert kinds == [("Outcome", 1), ("Market", None)]


def test_trap_places_move_together(flu_lines: Lines) -> None:
    """Claims of one agent on one week share their target, so that a track record counts 31 weeks and not 672 rows."""
    targets: dict[str, list[str]] = defaultdict(list)
    for line in of_kind(flu_lines, "Finding"):
        targets[line["core"]["agent"]].append(line["core"]["target_at"])

    assert len(targets["SigSci-BECAM"]) == 672
    assert len(set(targets["SigSci-BECAM"])) == 31
    assert all(datetime.fromisoformat(target).weekday() == 6 for target in set(targets["SigSci-BECAM"]))


def test_trap_most_weeks_do_not_rise(flu_lines: Lines, outcomes: dict[tuple[str, int], dict[str, Any]]) -> None:
    """Always saying no is right most of the time, and the no-skill control is there to tell habit from skill."""
    rises = [line["core"]["actual"] for (_, vintage), line in outcomes.items() if vintage == 1]
    control = {
        line["core"]["probability"]
        for line in of_kind(flu_lines, "Finding")
        if line["core"]["agent"] == "FluSight-equal_cat"
    }

    assert sum(rises) / len(rises) < 0.4
    assert control == {0.4}


def test_trap_agents_answer_different_questions(flu_lines: Lines) -> None:
    """No agent's silence is filled: each has the questions that it answered."""
    answered = Counter(line["core"]["agent"] for line in of_kind(flu_lines, "Finding"))

    assert answered == Counter(row["agent"] for row in table("forecasts"))
    assert min(answered.values()) < max(answered.values()) / 3


def test_resolution_is_dated_with_each_publication(flu_lines: Lines, questions: dict[str, dict[str, str]]) -> None:
    """The market's answer changes with the publication that changed it and never claims to be the last."""
    late = [line for line in of_kind(flu_lines, "Market") if "key" in line]
    dates: dict[str, set[str]] = defaultdict(set)
    for line in late:
        dates[line["key"]].add(line["known_at"])
        assert line["groups"]["resolution"]["resolved_at"] == line["known_at"]
        assert "final" not in line["groups"]["resolution"]["resolution"]

    for market, row in questions.items():
        assert dates[market] == {noon_after(row["first_known_on"]), noon_after(row["final_known_on"])}


def test_the_round_tells_the_hubs_own_combination(flu_lines: Lines) -> None:
    """An analysis' probability is the hub ensemble's where it answered; nobody ran the round."""
    ensemble = {
        line["core"]["analysis_id"]: line["core"]["probability"]
        for line in of_kind(flu_lines, "Finding")
        if line["core"]["agent"] == "FluSight-ensemble"
    }

    for line in of_kind(flu_lines, "Analysis"):
        assert line["core"].get("probability") == ensemble.get(line["core"]["id"])
    assert not any("link" in line for line in flu_lines)
