"""What holds for every example: it can be made again, it fits the graph, and it never knows too early."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import lines
from imem.journal import clock
from tests.examples import rules
from tests.examples.conftest import EXAMPLES, Lines


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize("name", ["trading_desk", "flusight", "sec_facts"])
def test_committed_file_is_what_the_converter_writes(name: str, tmp_path: Path) -> None:
    """The script runs without any installed package, gives the committed lines byte for byte, and stamps no time."""
    out = tmp_path / "out.jsonl.gz"
    script = EXAMPLES / name / "convert.py"
    again = tmp_path / "again.jsonl.gz"

    for target in (out, again):
        subprocess.run([sys.executable, "-S", "-E", "-B", script, "--out", target], check=True, cwd=tmp_path)

    committed = (EXAMPLES / name / f"{name}.jsonl.gz").read_bytes()
    # The lines are compared, not the compressed bytes: another build of zlib packs the same lines differently.
    assert gzip.decompress(out.read_bytes()) == gzip.decompress(committed)
    assert out.read_bytes() == again.read_bytes()
    assert committed[4:8] == b"\0\0\0\0"


def test_converter_writes_plain_lines_to_standard_output() -> None:
    """``--out -`` prints the same lines."""
    script = EXAMPLES / "flusight" / "convert.py"

    printed = subprocess.run([sys.executable, "-B", script, "--out", "-"], check=True, capture_output=True).stdout

    assert printed == gzip.decompress((EXAMPLES / "flusight" / "flusight.jsonl.gz").read_bytes())


def test_examples_stay_small() -> None:
    """A clone and a wheel carry them, so they stay below 6.5 MB."""
    files = [path for path in EXAMPLES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]

    assert sum(path.stat().st_size for path in files) < 6_500_000


def test_every_line_fits_the_graph(any_lines: Lines) -> None:
    """Kinds, groups, types, lengths and link ends are those of graph.yaml; nothing governed, derived or implied."""
    wrong = [(line, found) for line in any_lines if (found := rules.problems(line))]

    assert wrong == []


def test_the_checker_sees_what_is_wrong(desk_lines: Lines) -> None:
    """The test above would fail on bad lines."""
    finding = next(line for line in desk_lines if line.get("record") == "Finding")

    for change in ({"metric": "mood"}, {"probability": 1.5}, {"statement": "x" * 2001}, {"agent": "a/b"}, {"extra": 1}):
        assert rules.problems({**finding, "core": {**finding["core"], **change}})
    assert rules.problems({**finding, "known_at": "2026-06-01T10:27:49"})
    assert rules.problems({**finding, "groups": {}, "turns": []})


def test_lines_are_a_history_that_can_be_replayed(any_lines: Lines) -> None:
    """Lines come in the order in which they became known, and none points at what comes later."""
    times = [line["known_at"] for line in any_lines]
    known: set[tuple[str, str]] = set()

    assert times == sorted(times)
    for line in any_lines:
        assert targets(line) <= known, line
        if "core" in line:
            known.add((line["record"], key_of(line)))
            if "subject_id" in line["core"] and line["record"] in {"Company", "Market"}:
                known.add(("Subject", line["core"]["subject_id"]))


def key_of(line: dict[str, Any]) -> str:
    fields = {"Company": "ticker", "Market": "market_id", "Agent": "name", "Domain": "name"}
    return str(line["core"][fields.get(line["record"], "id")])


def targets(line: dict[str, Any]) -> set[tuple[str, str]]:
    """Return everything that a line points at, as label and key."""
    if "link" in line:
        return set(line["from"].items()) | set(line["to"].items())
    if "core" not in line:
        return {(line["record"], line["key"])}
    core = line["core"]
    names = {
        "analysis_id": "Analysis",
        "decision_id": "Decision",
        "debate_id": "Debate",
        "disputed_finding": "Finding",
        "agent": "Agent",
        "domain": "Domain",
        "challenger_agent": "Agent",
        "challenged_agent": "Agent",
        "winning_agent": "Agent",
        "source_a": "Agent",
        "source_b": "Agent",
    }
    found = {(label, core[name]) for name, label in names.items() if name in core}
    if "subject_id" in core and line["record"] not in {"Company", "Market"}:
        found.add(("Subject", core["subject_id"]))
    for name in ("participants", "agents_involved"):
        found |= {("Agent", agent) for agent in core.get(name, [])}
    domains = line.get("groups", {}).get("profile", {}).get("domains", [])
    speakers = {("Agent", turn["speaker"]) for turn in line.get("turns", [])}
    return found | {("Domain", domain) for domain in domains} | speakers


def test_nothing_is_said_twice(any_lines: Lines) -> None:
    """Each key is recorded once, and each link written once."""
    records = Counter((line["record"], key_of(line)) for line in any_lines if "core" in line)
    links = Counter(
        (line["link"], *line["from"].items(), *line["to"].items(), line.get("props", {}).get("at"))
        for line in any_lines
        if "link" in line
    )

    assert max(records.values()) == 1
    assert not links or max(links.values()) == 1


def test_outcomes_are_known_after_they_are_true(any_lines: Lines) -> None:
    """No outcome is known before its target, and it says itself when it was observed."""
    outcomes = [line for line in any_lines if line.get("record") == "Outcome"]

    assert outcomes
    for line in outcomes:
        assert line["core"]["target_at"] == line["occurred_at"]
        assert moment(line["core"]["target_at"]) <= moment(line["known_at"])
        assert line["core"]["observed_at"] == line["known_at"]


def test_claims_are_made_before_their_target(any_lines: Lines) -> None:
    """A claim known after its target could never be settled."""
    claims = [line for line in any_lines if line.get("record") == "Finding" and "metric" in line["core"]]

    assert claims
    assert all(moment(line["known_at"]) < moment(line["core"]["target_at"]) for line in claims)


@given(st.dates())
def test_days_are_dated_as_the_journal_dates_them(day: date) -> None:
    """A converter stands alone, but its rule for days is the journal's."""
    if day < day.max:
        assert lines.known_at_of_date(day) == clock.known_at_of_date(day)


@given(st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001  naive is the point
def test_local_times_are_dated_as_the_journal_dates_them(local: datetime) -> None:
    """Likewise its rule for local times, which never come after their day."""
    assert lines.known_at_of_naive(local) == clock.known_at_of_naive(local)
    assert lines.known_at_of_naive(local) < lines.known_at_of_date(local.date())


def test_a_time_with_a_zone_is_no_local_time() -> None:
    """Reading it again in another zone would move it."""
    with pytest.raises(ValueError, match="already"):
        lines.known_at_of_naive(datetime(2026, 6, 1, tzinfo=UTC))


@given(st.text(max_size=300), st.integers(50, 100), st.integers(0, 40))
def test_cut_keeps_opening_and_closing(text: str, limit: int, closing: int) -> None:
    """A cut text fits, begins as the whole does, ends as it does, and says that it was cut."""
    short = lines.cut(text, limit, closing=closing)

    if len(text) <= limit:
        assert short == text
    else:
        opening, _, ending = short.partition(lines.ELLIPSIS.rstrip())
        assert len(short) <= limit
        assert text.startswith(opening)
        assert text.rstrip().endswith(ending.strip()) or lines.ELLIPSIS.strip() in text


def test_the_loader_takes_every_line(any_lines: Lines) -> None:
    """The product's own parser refuses none of them."""
    from imem.kg.load_format.lines import parse_line

    for line in any_lines:
        parse_line(json.dumps(line).encode())
