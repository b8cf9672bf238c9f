"""``imem load``: what is stored, what is refused and how that is said."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from imem.ingest.line_reader import Batch, sources_of
from imem.ingest.loader import LoadCounts
from imem.journal.settings import Role
from imem.kg.load_format.lines import LINE_BYTES
from imem.terminal.load_view import LoadView
from tests.imem.ingest.conftest import KNOWN, TOP, LoadHarness, analysis, company, finding, performed


def counts(told: dict[str, object]) -> tuple[object, ...]:
    return tuple(told[name] for name in ("new", "identical", "changed", "refused_lines"))


def test_new_then_identical(harness: LoadHarness) -> None:
    """Loading a file twice adds nothing, and both runs say so."""
    path = harness.file("desk.jsonl", [company("MU", name="Micron"), analysis("a"), performed("ann", "a")])

    first, second = harness.load(path), harness.load(path)

    assert (counts(first), first["code"]) == ((3, 0, 0, 0), 0)
    assert (counts(second), second["code"]) == ((0, 3, 0, 0), 0)
    assert harness.rows("SELECT DISTINCT actor FROM event") == [("import:desk",)]
    assert harness.count("event") == 3


def test_changed_group(harness: LoadHarness) -> None:
    """A group that says something else later is a change, and both values stay in history."""
    later = company("MU", name="Micron Technology") | {"known_at": "2026-06-02T10:00:00Z"}
    told = harness.load(harness.file("desk.jsonl", [company("MU", name="Micron"), later]))

    assert counts(told) == (1, 0, 1, 0)
    assert harness.rows("SELECT count(*) FROM record_history WHERE grp = 'profile'") == [(2,)]


def test_core_conflict_points_to_correction(harness: LoadHarness) -> None:
    """Another core is refused by field and the refusal names the way out, which then works."""
    other = analysis("a", kind="macro")
    told = harness.load(harness.file("one.jsonl", [analysis("a"), other]))

    assert counts(told) == (1, 0, 0, 1)
    assert told["code"] == 1
    [refused] = told["refused"]
    assert (refused["line"], refused["field"]) == (2, "core")
    assert '{"correct": "Analysis", …}' in refused["reason"]

    correction = {"correct": "Analysis", "known_at": KNOWN, "core": other["core"], "reason": "A slip."}
    assert counts(harness.load(harness.file("two.jsonl", [correction]))) == (1, 0, 0, 0)
    assert harness.rows("SELECT kind FROM event ORDER BY position") == [("record.Analysis",), ("correct.Analysis",)]


def test_what_the_journal_refuses(harness: LoadHarness) -> None:
    """Nothing to correct, a changed reference and a future known_at are refused by field; the rest is loaded."""
    correct = {"correct": "Analysis", "known_at": KNOWN, "reason": "A slip."}
    moved = {**correct, "core": analysis("a", subject_id="company:NVDA")["core"]}
    unknown = {**correct, "core": analysis("nobody")["core"]}
    future = company("NVDA") | {"known_at": "2199-01-01T00:00:00Z"}
    told = harness.load(harness.file("desk.jsonl", [analysis("a"), moved, unknown, future, company("MU")]))

    assert counts(told) == (2, 0, 0, 3)
    assert {(one["line"], one["field"]) for one in told["refused"]} == {(2, "core"), (3, "key"), (4, "known_at")}


BAD = [
    (b"{", "line"),
    (b"[1]", "line"),
    (b"\xff\xfe{}", "line"),
    (b'{"record": "Company", "record": "Company"}', "record"),
    (b"[" * 100_000, "line"),
    (json.dumps(company("X" * 201)).encode(), "core.ticker"),
    (json.dumps(analysis("a", confidence=1.5)).encode(), "core.confidence"),
    (json.dumps(analysis("a")).replace('"kind"', '"confidence": NaN, "kind"').encode(), "core.confidence"),
    (json.dumps(analysis("a", date="2026-06-01T10:00:00")).encode(), "core.date"),
    (json.dumps(analysis("a", colour="red")).encode(), "core.colour"),
    (json.dumps(analysis("a") | {"known_at": "2026-06-01T10:00:00"}).encode(), "known_at"),
    (json.dumps({"record": "Company", "core": {"ticker": "MU"}}).encode(), "known_at"),
    (json.dumps({"record": "Planet", "known_at": KNOWN, "core": {}}).encode(), "record"),
    (json.dumps({"link": "KNOWS", "known_at": KNOWN}).encode(), "link"),
    (json.dumps(company("MU") | {"actor": "someone"}).encode(), "actor"),
    (json.dumps(company("MU") | {"role": "human_admin"}).encode(), "role"),
    (json.dumps({"record": "AgentCredibility", "known_at": KNOWN, "core": {}}).encode(), "record"),
    (b'{"record": "Company", "core": {"ticker": "' + b"x" * LINE_BYTES + b'"}}', "line"),
]


@pytest.mark.spec("AC-6")
def test_bad_lines_are_refused_by_field_and_the_others_loaded(harness: LoadHarness) -> None:
    """Everything wrong is told by file, line, field and reason; a role in a line is no way to have one."""
    path = harness.file("bad.jsonl", [company("MU"), *(line for line, _ in BAD), company("NVDA")])

    told = harness.load(path, "--report", harness.folder / "report.jsonl")

    assert counts(told) == (2, 0, 0, len(BAD))
    assert [(one["line"], one["field"]) for one in told["refused"]] == [
        (number, field) for number, (_, field) in enumerate(BAD, 2)
    ]
    assert all(one["reason"] and one["file"] == str(path) for one in told["refused"])
    report = [json.loads(line) for line in (harness.folder / "report.jsonl").read_text().splitlines()]
    assert report == told["refused"]
    assert harness.count("event") == 2


def test_people_are_shown_the_first_refusals(harness: LoadHarness) -> None:
    """On a terminal's standard error stand file, line, field and reason, at most twenty of them, and the counts."""
    done = harness.run("load", "--no-wait", harness.file("bad.jsonl", [b"{"] * 30 + [company("MU")]))

    assert done.returncode == 1
    assert done.stderr.count("Refused: ") == 21
    assert "bad.jsonl, line 1: line: is no JSON" in done.stderr
    assert "1 new, 0 identical, 0 changed, 30 refused" in done.stderr
    assert "Traceback" not in done.stderr


def test_folders_gzip_and_standard_input(harness: LoadHarness) -> None:
    """A folder gives its files in order, each its own source; gzip is recognised by content; - reads standard input."""
    folder = harness.folder / "data"
    folder.mkdir()
    inside = LoadHarness(harness.settings, folder)
    inside.file("b.jsonl.gz", [company("B")])
    inside.file("a.jsonl", [company("A")])
    (folder / "notes.txt").write_text("no lines")

    told = harness.load(folder)
    piped = harness.load("-", "--source", "pipe", stdin=gzip.compress(json.dumps(company("C")).encode()))

    assert counts(told) == (2, 0, 0, 0)
    assert counts(piped) == (1, 0, 0, 0)
    assert harness.rows("SELECT actor, record_key FROM event ORDER BY position") == [
        ("import:a", "A"),
        ("import:b", "B"),
        ("import:pipe", "C"),
    ]


def test_blank_lines_and_no_end_of_line(harness: LoadHarness) -> None:
    """Blank lines count for the numbers alone, and the last line needs no end."""
    path = harness.folder / "desk.jsonl"
    path.write_bytes(b"\n\n" + json.dumps(company("MU")).encode() + b"\r\n\n{")

    told = harness.load(path)

    assert counts(told) == (1, 0, 0, 1)
    assert told["refused"][0]["line"] == 5


def test_an_importance_of_next_to_nothing(harness: LoadHarness) -> None:
    """A number that single precision cannot hold stops no load: it orders writes, and the graph keeps it as it is."""
    told = harness.load(harness.file("desk.jsonl", [finding("f", importance=5e-324), finding("g", importance=1e-40)]))

    assert counts(told) == (2, 0, 0, 0)
    assert harness.rows("SELECT importance FROM event WHERE importance <> 0") == []


def test_damaged_gzip_says_how_far(harness: LoadHarness) -> None:
    """A file that breaks off in the middle is said to be damaged, and what came before stands."""
    path = harness.file("desk.jsonl.gz", [analysis(f"a{number}", summary=f"{number:>500}") for number in range(2000)])
    path.write_bytes(path.read_bytes()[:-2000])

    done = harness.run("load", "--no-wait", path)

    assert done.returncode == 1
    assert "is damaged after line" in done.stderr
    assert "Stopped after" in done.stderr
    assert 0 < harness.count("event") < 2000


@pytest.mark.parametrize(
    "arguments",
    [("missing.jsonl",), ("empty",), ("desk.jsonl", "--source", "a|b"), ("desk.jsonl", "--source", "x" * 151)],
)
def test_wrong_usage(harness: LoadHarness, arguments: tuple[str, ...]) -> None:
    """A path that is not there, a folder without files and a name that cannot be one are wrong usage: exit code 2."""
    (harness.folder / "empty").mkdir()
    harness.file("desk.jsonl", [company("MU")])

    done = harness.run("load", harness.folder / arguments[0], *arguments[1:])

    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_strict_loads_all_or_nothing(harness: LoadHarness) -> None:
    """With a bad line, one that contradicts the journal, or one that contradicts an earlier line, nothing is loaded."""
    harness.load(harness.file("before.jsonl", [analysis("a")]))
    lines: list[dict[str, Any] | bytes] = [
        analysis("a", kind="macro"),
        *(company(f"T{number}") for number in range(600)),
        finding("f"),
        finding("f", statement="It falls."),
        {"correct": "Finding", "known_at": KNOWN, "core": finding("f", statement="So.")["core"], "reason": "A slip."},
        {"correct": "Finding", "known_at": KNOWN, "core": finding("g")["core"], "reason": "A slip."},
        b"{",
    ]
    told = harness.load("--strict", harness.file("strict.jsonl", lines))

    assert told["code"] == 1
    assert [(one["line"], one["field"]) for one in told["refused"]] == [
        (1, "core"),
        (603, "core"),
        (605, "key"),
        (606, "line"),
    ]
    assert harness.count("event") == 1

    good = [line for number, line in enumerate(lines, 1) if number not in {1, 603, 605, 606}]
    assert counts(harness.load("--strict", harness.file("strict.jsonl", good))) == (602, 0, 0, 0)


def test_strict_refuses_what_can_be_read_once(harness: LoadHarness) -> None:
    """A second reading of a pipe would find nothing, and call that a success."""
    pipe = harness.folder / "pipe.jsonl"
    os.mkfifo(pipe)

    for once in (pipe, "-"):
        done = harness.run("load", "--strict", once, stdin=json.dumps(company("MU")).encode())
        assert (done.returncode, "everything twice" in done.stderr) == (2, True)
    assert harness.count("event") == 0


def test_the_same_file_twice_is_read_twice(harness: LoadHarness) -> None:
    """The second reading adds nothing, and progress goes to the end."""
    path = harness.file("desk.jsonl", [company("MU"), company("NVDA")])
    view = LoadView(Console(), document=None, report=None, total_bytes=2 * path.stat().st_size)
    shown: list[int] = []
    view._show = lambda what, done, total, note: shown.append(done)  # type: ignore[method-assign] # noqa: ARG005
    for source in sources_of([str(path), str(path)]):
        view.loaded(source, Batch(upto_byte=path.stat().st_size), LoadCounts())

    assert shown == [path.stat().st_size, 2 * path.stat().st_size]
    assert counts(harness.load(path, path)) == (2, 2, 0, 0)


def test_agents_do_not_import(harness: LoadHarness) -> None:
    """The role comes from the settings: an agent is denied before anything is read, with one row in the audit."""
    done = harness.as_role(Role.AGENT, "ann", may_import=True).run("load", harness.file("desk.jsonl", [company("MU")]))

    assert done.returncode == 1
    assert "ann (agent) may not import journal." in done.stderr
    assert "Traceback" not in done.stderr
    assert harness.count("event") == 0
    assert harness.rows("SELECT actor_id, action, outcome FROM memory_access_audit") == [("ann", "import", "denied")]


def test_postgres_away(harness: LoadHarness) -> None:
    """Without Postgres one sentence says so, with exit code 1 and no traceback."""
    from pydantic import SecretStr

    away = harness.having(postgres_url=SecretStr("postgresql://imem:x@127.0.0.1:1/imem"), postgres_curator_url=None)
    done = away.run("load", harness.file("desk.jsonl", [company("MU")]))

    assert done.returncode == 1
    assert "Postgres cannot be reached." in done.stderr or "No connection to Postgres" in done.stderr
    assert "Traceback" not in done.stderr


def test_schema_prints_json() -> None:
    """`imem schema` describes the lines of one kind, of one link, or all; what it does not know is wrong usage."""

    def schema(*names: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "imem", "schema", *names]
        return subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)

    assert "$schema" in json.loads(schema("Finding").stdout)
    assert "PERFORMED" in schema("PERFORMED").stdout
    assert len(json.loads(schema().stdout)["anyOf"]) > 20
    assert schema("Findings").returncode == 2
    assert "is no kind of record or link" in schema("Findings").stderr
