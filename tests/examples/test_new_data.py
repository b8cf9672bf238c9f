"""The converters on data that they have not seen: names, seasons, states and companies are data, and gaps are gaps."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.flusight import convert as flusight
from examples.trading_desk import convert as trading_desk
from examples.trading_desk import exchange
from imem.kg.load_format.lines import parse_line
from tests.examples import rules
from tests.examples.conftest import EXAMPLES, Lines
from tests.examples.test_lines import key_of, targets

Row = dict[str, Any]
Change = Callable[[Row], Row | None]


def table(path: Path) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        if path.name.endswith(".csv.gz"):
            return list(csv.DictReader(file))
        return [json.loads(line) for line in file]


def write(path: Path, rows: list[Row]) -> None:
    out = io.StringIO()
    if path.name.endswith(".csv.gz"):
        writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else ["none"])
        writer.writeheader()
        writer.writerows(rows)
    else:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(gzip.compress(out.getvalue().encode()))


def changed(name: str, folder: Path, **changes: Change) -> Path:
    """Return *folder* with a part of an example's source; *changes* say by file what becomes of each row."""
    folder.mkdir(exist_ok=True)
    for path in (EXAMPLES / name / "source").iterdir():
        change = changes.get(path.name.split(".")[0], dict)
        write(folder / path.name, [new for row in table(path) if ours(row) and (new := change(row)) is not None])
    return folder


def ours(row: Row) -> bool:
    """Keep two companies on two days, or one state's first weeks: enough to see every kind of line."""
    run, question = row.get("run_id", row.get("quoted_in")), row.get("question_id")
    if run is not None:
        return str(run) in {"AAPL-20260602", "AAPL-20260603", "NKE-20260602", "NKE-20260603"}
    return question is None or str(question).startswith(("06-2024-11", "48-2024-11"))


def checked(lines: Iterable[Any]) -> Lines:
    """Return the lines, which fit the graph, are taken by the loader, and point at nothing that is not told before."""
    found = [json.loads(line.to_json()) for line in lines]
    known: set[tuple[str, str]] = set()
    assert [problem for line in found for problem in rules.problems(line)] == []
    for line in found:
        parse_line(json.dumps(line).encode())
        assert targets(line) <= known, line
        if "core" in line:
            known.add((line["record"], key_of(line)))
            if line["record"] in {"Company", "Market"}:
                known.add(("Subject", line["core"]["subject_id"]))
    return found


def of(lines: Lines, kind: str) -> Lines:
    return [line["core"] for line in lines if line.get("record") == kind and "core" in line]


# The trading desk


def rename(row: Row) -> Row:
    """Return *row* of other companies: one with a dash in its ticker, and one that nobody here has heard of."""
    text = json.dumps(row)
    return json.loads(text.replace("AAPL", "NWT-B").replace("NKE", "ZZ9"))  # type: ignore[no-any-return]


def test_companies_that_nobody_here_knows(tmp_path: Path) -> None:
    """A ticker without a name is a company without a profile, and one with a dash keeps its runs and outcomes."""
    everything = dict.fromkeys(
        ("decisions", "debate_turns", "analyst_conclusions", "metric_claims", "closes", "outcomes"), rename
    )

    lines = checked(trading_desk.convert(changed("trading_desk", tmp_path, **everything)))

    assert {core["ticker"] for core in of(lines, "Company")} == {"NWT-B", "ZZ9"}
    assert all("groups" not in line for line in lines if line.get("record") == "Company")
    assert {core["subject_id"] for core in of(lines, "Outcome")} == {"company:NWT-B", "company:ZZ9"}
    assert any("decision_id" in core for core in of(lines, "Outcome") if core["subject_id"] == "company:NWT-B")


def test_names_come_with_the_data(tmp_path: Path) -> None:
    """A ``companies.csv`` beside the data names its companies."""
    folder = changed("trading_desk", tmp_path)
    (folder / "companies.csv").write_text("ticker,name,sector\nAAPL,Northwind Orchards,Consumer Staples\nNKE,,\n")

    lines = checked(trading_desk.convert(folder))

    groups = {line["core"]["ticker"]: line.get("groups") for line in lines if line.get("record") == "Company"}
    assert groups["AAPL"] == {"profile": {"name": "Northwind Orchards", "sector": "Consumer Staples"}}
    assert groups["NKE"] is None


@pytest.mark.parametrize("part", ["sentiment", "research_manager", "trader", "portfolio_manager"])
@pytest.mark.parametrize("lack", ["absent", "null", "empty", "without a rating"])
def test_a_run_without_a_rating(part: str, lack: str, tmp_path: Path) -> None:
    """What a seat did not say is left out with what rests on it; the rest of the run is kept."""
    agents = {"sentiment": "sentiment_analyst"}

    def change(row: Row) -> Row:
        new = {"absent": None, "null": None, "empty": {}}.get(lack, {**row[part], "rating": None})
        if lack == "without a rating":
            new = {name: None if name in {"rating", "label", "action"} else value for name, value in row[part].items()}
        rest = {name: value for name, value in row.items() if name != part}
        return rest if lack == "absent" else {**rest, part: new}

    lines = checked(trading_desk.convert(changed("trading_desk", tmp_path, decisions=change)))

    speaking = {core["agent"] for core in of(lines, "Finding")}
    assert agents.get(part, part) not in speaking
    assert len(speaking) == 7
    assert len(of(lines, "Decision")) == (0 if part == "portfolio_manager" else 4)
    assert len(of(lines, "Analysis")) == 4
    cited = {line["to"]["Finding"] for line in lines if line.get("link") == "CITES"}
    assert cited <= {core["id"] for core in of(lines, "Finding")}


def test_ratings_and_labels_of_other_desks(tmp_path: Path) -> None:
    """Buy and Sell are directions like Overweight and Underweight; a label that is unknown claims nothing."""

    def change(row: Row) -> Row:
        rating = "Buy" if row["ticker"] == "AAPL" else "Sell"
        manager = {**row["portfolio_manager"], "rating": rating}
        return {
            **row,
            "portfolio_manager": manager,
            "research_manager": {**row["research_manager"], "rating": "Speculative"},
            "sentiment": {"label": "Euphoric", "score": 9},
        }

    lines = checked(trading_desk.convert(changed("trading_desk", tmp_path, decisions=change)))

    by_agent = {(core["agent"], core["subject_id"]): core for core in of(lines, "Finding")}
    assert by_agent["portfolio_manager", "company:AAPL"]["direction"] == "positive"
    assert by_agent["portfolio_manager", "company:NKE"]["direction"] == "negative"
    assert {core["recommendation"] for core in of(lines, "Analysis")} == {"buy", "sell"}
    for agent in ("research_manager", "sentiment_analyst"):
        assert "direction" not in by_agent[agent, "company:NKE"]
        assert "metric" not in by_agent[agent, "company:NKE"]


def test_roles_of_other_desks(tmp_path: Path) -> None:
    """A debater and an analyst without a seat here keep the names that the source gives them, and are recorded."""

    def turn(row: Row) -> Row:
        return {**row, "role": "quant/desk"} if row["role"] == "aggressive" else row

    def report(row: Row) -> Row:
        return {**row, "analyst": "macro"} if row["analyst"] == "fundamentals" else row

    folder = changed("trading_desk", tmp_path, debate_turns=turn, analyst_conclusions=report, metric_claims=report)
    lines = checked(trading_desk.convert(folder))

    risk = next(core for core in of(lines, "Debate") if core["id"].endswith("/risk"))
    assert "quant-desk" in risk["participants"]
    assert {core["domain"] for core in of(lines, "Finding") if core["agent"] == "macro_analyst"} == {"macro_analyst"}
    assert {"quant-desk", "macro_analyst"} <= {core["name"] for core in of(lines, "Agent")}


@pytest.mark.parametrize("labelled", [True, False])
def test_reports_of_sentiment_and_news(*, labelled: bool, tmp_path: Path) -> None:
    """A label and a report of one analyst are one finding; without the label the report stands alone."""

    def report(row: Row) -> Row:
        other = {"market": "sentiment", "fundamentals": "news"}[row["analyst"]]
        return {
            **row,
            "analyst": other,
            "conclusion": f"| a | b |\n|---|---|\n| x | 1 |\nThe mood turns. It is the {other}.",
        }

    def decision(row: Row) -> Row:
        return row if labelled else {**row, "sentiment": None}

    folder = changed("trading_desk", tmp_path, analyst_conclusions=report, decisions=decision)
    lines = checked(trading_desk.convert(folder))

    ids = [core["id"] for core in of(lines, "Finding")]
    assert len(ids) == len(set(ids))
    moods = [line for line in lines if line.get("core", {}).get("agent") == "sentiment_analyst"]
    assert len(moods) == 4
    for line in moods:
        assert line["body"].startswith("| a | b |")
        assert line["core"]["statement"].endswith("The mood turns. It is the sentiment. x, 1")
        assert line["core"]["statement"].startswith("Sentiment ") == ("metric" in line["core"]) == labelled
    news = [core for core in of(lines, "Finding") if core["agent"] == "news_analyst"]
    assert {(core["domain"], core["statement"]) for core in news} == {
        ("news_analyst", "The mood turns. It is the news. x, 1")
    }
    cited = {line["to"]["Finding"] for line in lines if line.get("link") == "CITES"}
    assert {core["id"] for core in news} <= cited
    profiles = {line["core"]["name"]: line["groups"]["profile"] for line in lines if line.get("record") == "Agent"}
    assert profiles["news_analyst"]["domains"] == ["news_analyst"]


def test_a_report_that_says_hardly_anything_but_in_tables() -> None:
    """It begins with its sentence, not with the table; a heading or half a sentence is none."""
    table = "| Metric | Value |\n|---|---|\n| P/E | 48x |\n| Beta | 2.17 |"
    assert trading_desk.prose(f"{table}\nToo dear.") == "Too dear. P/E, 48x; Beta, 2.17"
    assert trading_desk.prose(f"**Summary of the**\n{table}") == "P/E, 48x; Beta, 2.17"


@pytest.mark.parametrize("silent", ["debate_turns", "analyst_conclusions", "metric_claims", "closes", "outcomes"])
def test_a_desk_without_a_part(silent: str, tmp_path: Path) -> None:
    """A desk that has no debates, reports, figures, closes or returns is told without them."""
    lines = checked(trading_desk.convert(changed("trading_desk", tmp_path, **{silent: lambda _: None})))

    assert len(of(lines, "Decision")) == 4
    assert (of(lines, "Debate") == []) == (silent == "debate_turns")
    assert (of(lines, "Outcome") == []) == (silent == "outcomes")


def test_a_return_of_a_run_that_is_not_there(tmp_path: Path) -> None:
    """It is an outcome that reviews no decision; so is one whose closes nobody quoted."""

    def decisions(row: Row) -> Row | None:
        return None if row["ticker"] == "AAPL" else row

    def closes(row: Row) -> Row | None:
        return None if row["ticker"] == "AAPL" and row["session"] != "2026-06-04" else row

    lines = checked_without_companies(
        trading_desk.convert(changed("trading_desk", tmp_path, decisions=decisions, closes=closes))
    )

    returns = [core for core in of(lines, "Outcome") if core["subject_id"] == "company:AAPL"]
    assert returns
    assert not any("decision_id" in core for core in returns)
    assert any("quoted nowhere" in core["source"] for core in returns)


def checked_without_companies(lines: Iterable[Any]) -> Lines:
    found = [json.loads(line.to_json()) for line in lines]
    assert [problem for line in found for problem in rules.problems(line)] == []
    return found


@pytest.mark.parametrize(
    ("created_at", "known_at"),
    [
        (None, "2026-06-03T12:00:00Z"),
        ("", "2026-06-03T12:00:00Z"),
        ("2026-06-02T10:00:00+02:00", "2026-06-02T08:00:00Z"),
        ("2026-06-02T10:00:00", "2026-06-02T22:00:00Z"),
    ],
)
def test_clocks_of_other_desks(created_at: str | None, known_at: str, tmp_path: Path) -> None:
    """A run without a time is known when its day is over everywhere, one with a zone at that moment."""

    def change(row: Row) -> Row | None:
        return {**row, "created_at": created_at} if row["run_id"] == "AAPL-20260602" else None

    def only(row: Row) -> Row | None:
        return row if row["run_id"] == "AAPL-20260602" else None

    folder = changed("trading_desk", tmp_path, decisions=change, outcomes=only)
    analysis = next(line for line in checked(trading_desk.convert(folder)) if line.get("record") == "Analysis")

    assert analysis["known_at"] == known_at


def test_figures_without_a_rule_or_a_number(tmp_path: Path) -> None:
    """A metric of another desk and an empty value are no contradictions, and no crash."""

    def change(row: Row) -> Row:
        return {**row, "metric": "ev_ebitda"} if row["metric"] == "sma_50" else {**row, "value": ""}

    assert of(checked(trading_desk.convert(changed("trading_desk", tmp_path, metric_claims=change))), "Finding")


def test_a_text_with_other_ends_of_lines(tmp_path: Path) -> None:
    """A line separator of Unicode inside a text ends no line of the file."""

    def change(row: Row) -> Row:
        return {**row, "conclusion": "Strong.\u2028Rising.\x85Buy it." * 20}

    lines = checked(trading_desk.convert(changed("trading_desk", tmp_path, analyst_conclusions=change)))

    assert any("\u2028" in line.get("body", "") for line in lines)


@pytest.mark.parametrize(
    ("day", "opens"),
    [
        (date(2026, 6, 18), "13:30"),
        (date(2026, 1, 2), "14:30"),
        (date(2026, 3, 6), "14:30"),
        (date(2026, 3, 9), "13:30"),
        (date(2026, 10, 30), "13:30"),
        (date(2026, 11, 2), "14:30"),
    ],
)
def test_sessions_of_other_seasons(day: date, opens: str) -> None:
    """New York's clock changes twice a year."""
    assert exchange.opens_at(day) == datetime.fromisoformat(f"{day}T{opens}:00").replace(tzinfo=UTC)
    assert exchange.is_session(day)


def test_holidays() -> None:
    """The exchange's own lists of holidays for three years."""
    published = """
        2024-01-01 2024-01-15 2024-02-19 2024-03-29 2024-05-27 2024-06-19 2024-07-04 2024-09-02 2024-11-28 2024-12-25
        2026-01-01 2026-01-19 2026-02-16 2026-04-03 2026-05-25 2026-06-19 2026-07-03 2026-09-07 2026-11-26 2026-12-25
        2027-01-01 2027-01-18 2027-02-15 2027-03-26 2027-05-31 2027-06-18 2027-07-05 2027-09-06 2027-11-25 2027-12-24
    """
    days = [
        date.fromordinal(n)
        for year in (2024, 2026, 2027)
        for n in range(date(year, 1, 1).toordinal(), 1 + date(year, 12, 31).toordinal())
    ]

    assert [str(day) for day in days if day.weekday() < 5 and not exchange.is_session(day)] == published.split()
    assert exchange.session_after(date(2026, 7, 2)) == date(2026, 7, 6)


# The flu forecasts


def test_another_season_and_another_state(tmp_path: Path) -> None:
    """A later season of a state that the example has not: nothing is passed over but what the caller asks for."""

    def question(row: Row) -> Row:
        later = {
            name: re.sub(r"\b202[4-6](?=-\d\d-)", lambda year: str(int(year[0]) + 2), str(value))
            for name, value in row.items()
        }
        return {
            **later,
            "season": "2026-27",
            "location": "69",
            "location_name": "Northern Mariana Islands",
            "question_id": row["question_id"],
        }

    folder = changed("flusight", tmp_path, questions=question)
    lines = checked(flusight.convert(folder))

    assert all("Northern Mariana Islands" in core["question"] for core in of(lines, "Market"))
    assert len(of(lines, "Market")) == len(table(folder / "questions.csv.gz"))
    assert len(of(lines, "Finding")) > 100
    assert flusight.convert(folder, ["2024-25"]) == []
    assert checked(flusight.convert(folder, ["2026-27"], ["69"])) == lines


def test_a_season_that_nobody_forecast(tmp_path: Path) -> None:
    """Questions without forecasts and a folder without the season asked for end in lines and a sentence."""
    folder = changed("flusight", tmp_path, forecasts=lambda _: None)
    script = [sys.executable, "-B", str(EXAMPLES / "flusight" / "convert.py"), "--data", str(folder), "--out", "-"]

    lines = checked(flusight.convert(folder))
    done = subprocess.run([*script, "--season", "1999-00"], capture_output=True, text=True, check=False)

    assert of(lines, "Finding") == of(lines, "Agent") == []
    assert done.returncode == 1
    assert done.stdout == ""
    assert "No question" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_season_that_is_not_over(tmp_path: Path) -> None:
    """Its table lacks the columns of final numbers; answers come from the first reports alone."""

    def question(row: Row) -> Row:
        final = {"baseline_value", "target_value", "outcome", "up", "final_known_on"}
        return {name: value for name, value in row.items() if name not in final}

    lines = checked(flusight.convert(changed("flusight", tmp_path, questions=question)))

    assert {core["vintage"] for core in of(lines, "Outcome")} == {0}


def test_answers_without_numbers(tmp_path: Path) -> None:
    """An answer is kept where its numbers are missing, and says nothing of them."""

    def question(row: Row) -> Row:
        return {**row, "baseline_first_report": "", "target_value": "NA", "outcome": ""}

    lines = checked(flusight.convert(changed("flusight", tmp_path, questions=question)))

    assert of(lines, "Outcome")
    assert not any("admissions" in core["source"] for core in of(lines, "Outcome"))


@pytest.mark.parametrize("value", ["", "NA", "nan", "-0.1", "7"])
def test_a_forecast_that_is_not_whole(value: str, tmp_path: Path) -> None:
    """A missing or impossible probability leaves its forecast out, and no other."""

    def forecast(row: Row) -> Row:
        return {**row, "p_stable": value} if row["agent"] == "PSI-PROF" else row

    agents = {core["agent"] for core in of(checked(flusight.convert(changed("flusight", tmp_path))), "Finding")}
    lines = checked(flusight.convert(changed("flusight", tmp_path / "again", forecasts=forecast)))

    assert {core["agent"] for core in of(lines, "Finding")} == agents - {"PSI-PROF"}


def test_models_that_the_source_does_not_describe(tmp_path: Path) -> None:
    """They are recorded without a profile; a kind that is none of ours, or an empty team, is not made up."""

    def agent(row: Row) -> Row | None:
        kinds = {"PSI-PROF": {"kind": "oracle"}, "MOBS-GLEAM_FLUH": {"team": "", "licence": "", "methods": ""}}
        return None if row["agent"] == "UMass-flusion" else {**row, **kinds.get(row["agent"], {})}

    lines = checked(flusight.convert(changed("flusight", tmp_path, agents=agent)))

    agents = {line["core"]["name"]: line.get("groups") for line in lines if line.get("record") == "Agent"}
    assert agents["UMass-flusion"] is agents["PSI-PROF"] is None
    assert agents["MOBS-GLEAM_FLUH"] is not None
    assert not agents["MOBS-GLEAM_FLUH"]["profile"].keys() & {"team", "licence"}


def test_a_week_that_was_over_when_it_was_asked(tmp_path: Path) -> None:
    """A forecast of it is kept and claims nothing: no outcome could settle what came after it."""

    def question(row: Row) -> Row:
        return {**row, "asked_on": row["target_week"], "horizon_weeks": "-1"}

    lines = checked(flusight.convert(changed("flusight", tmp_path, questions=question)))

    assert of(lines, "Finding")
    assert not any(core.keys() & {"metric", "target_at"} for core in of(lines, "Finding"))
