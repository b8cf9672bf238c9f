"""What a command prints never commands the terminal, whoever wrote it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from typing import Any

import psycopg
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from docs import from_code
from imem.cli import app
from imem.terminal import output
from tests.imem.ingest.conftest import KNOWN, TOP, LoadHarness

EVIL = "pwned\x1b]0;title\x07\x1b[2J\x9b31m\x9d\u202egpj\u2066\x7f\rover\x08"
"""Escape sequences that set the title and clear the screen, the same as C1, other orders of letters, the cursor."""

SCRIPT = """
import io, json, sys
from imem.cli import main
found = []
for words in json.load(sys.stdin):
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2)]
    sys.argv, (sys.stdout, sys.stderr) = ["imem", *words], streams
    try:
        main()
    except SystemExit:
        pass
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    for stream in streams:
        stream.flush()
    found.append([stream.buffer.getvalue().decode() for stream in streams])
sys.__stdout__.write(json.dumps(found))
"""


def record(kind: str, core: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"record": kind, "known_at": KNOWN, "core": core, **more}


SUBJECT = f"company:{EVIL}"
LINES = [
    record("Company", {"ticker": EVIL}, groups={"profile": {"name": EVIL, "sector": EVIL}}),
    record("Domain", {"name": EVIL, "description": EVIL}),
    record("Agent", {"name": EVIL}, groups={"profile": {"specialization": EVIL, "kind": "model", "team": EVIL}}),
    record("Analysis", {"id": EVIL, "subject_id": SUBJECT, "date": KNOWN, "kind": EVIL, "summary": EVIL}, body=EVIL),
    record(
        "Finding",
        {"id": EVIL, "analysis_id": EVIL, "subject_id": SUBJECT, "agent": EVIL, "domain": EVIL, "statement": EVIL,
         "key_drivers": [EVIL], "direction": "negative", "confidence": 0.5},
        body=EVIL,
    ),
    record("Decision", {"id": EVIL, "subject_id": SUBJECT, "type": EVIL, "agents_involved": [EVIL], "decided_at": KNOWN,
                        "action": EVIL}, body=EVIL),
    record(
        "Debate",
        {"id": EVIL, "subject_id": SUBJECT, "topic": EVIL, "challenger_agent": EVIL, "challenged_agent": "ann",
         "participants": [EVIL, "ann"], "timestamp": KNOWN, "disputed_finding": EVIL, "challenge_basis": EVIL},
        groups={"state": {"state": "closed", "provisional": True, "final_position": EVIL}},
        turns=[{"number": 1, "speaker": EVIL, "stance": EVIL, "text": EVIL}],
    ),
    record("DataContradiction", {"id": EVIL, "subject_id": SUBJECT, "data_point": EVIL, "source_a": EVIL,
                                 "source_b": "b", "value_a": 1, "value_b": 2, "timestamp": KNOWN}),
    *(
        record("DataPoint", {"subject_id": SUBJECT, "metric": EVIL, "period_end": KNOWN, "unit": EVIL, "value": value,
                             "source": EVIL, "document": f"{value}{EVIL}"[:200], "filed_at": KNOWN})
        for value in (1.0, 2.0)
    ),
    record("RegimeReading", {"id": EVIL, "observed_at": KNOWN, "regime": "NORMAL", "stale": False, "source": EVIL}),
]  # fmt: skip

TELLING = {
    "brief": [SUBJECT],
    "history": [SUBJECT],
    "contradictions": [SUBJECT, "--all"],  # what it prints without is in the brief as well
    "view": ["agent_credibility", EVIL],
    "debates": [SUBJECT],
    "debate show": [EVIL],
    "precedents": [EVIL],
    "text": ["Analysis", EVIL],
    "query": ["debates_of_subject", "--set", f"subject_id={SUBJECT}"],
    "ask": [EVIL],
    "memories search": [EVIL],
    "memories list": [],
    "signals": [SUBJECT, "--agent", EVIL, "--as-of", KNOWN],
    "sync dead": [],
    "regime": [],
    "value": [SUBJECT, EVIL, KNOWN],
    "sources": [],
    "load": [],  # of a file with hostile lines and a hostile name, see below
}
"""Commands that print what is stored, with arguments by which they print it."""

ECHOING = {
    "agents": [EVIL, "--context", f"sector={EVIL}"],
    "reflections show": [EVIL],
    "reflections promote": [EVIL],
    "remember": [EVIL, "--author", EVIL],
    "trades": [EVIL],
    "memories import": [EVIL],
    "memories show": [EVIL],
    "memories correct": [EVIL, EVIL, "--reason", EVIL],
    "memories retire": [EVIL, "--reason", EVIL],
    "memories delete": ["--user", EVIL],
    "patterns": [SUBJECT],
    "lessons": [SUBJECT],
    "learning effect": [EVIL],
    "replay policy": ["--setting", EVIL],
    "learning lessons": ["--state", EVIL],
    "learning report": ["--since", EVIL],
    "learning plan-test": [EVIL],
    "learning mine": [EVIL, EVIL, "--category", EVIL],
    "learning propose-pattern": [EVIL],
    "learning patterns": ["--status", EVIL],
    "learning pattern": [EVIL],
    "learning set-pattern": [EVIL, "deprecated", "--reason", EVIL],
    "learning add": ["--insight", EVIL, "--do", EVIL, "--category", EVIL, "--domain", EVIL],
    "forecasts": [EVIL],
    "postmortems": [EVIL],
    "credibility pin": [EVIL, EVIL, "0.5", "--reason", EVIL],
    "credibility unpin": [EVIL, "--reason", EVIL],
    "credibility override": [EVIL, EVIL, "--reason", "other", "--finding", EVIL],
    "credibility rebuild": [EVIL],
    "similar": [EVIL],
    "schema": [EVIL],
    "logs": [EVIL],
    "working": [EVIL],
    "checkpoints list": [EVIL],
    "checkpoints show": [EVIL],
    "alerts": [EVIL],
    "alerts ack": [EVIL],
    "jobs": [EVIL],
    "panel": [EVIL],
    "archive list": ["--regime", EVIL],
    "archive show": [EVIL],
    "archive get": [EVIL, "nowhere"],
    "archive verify": [EVIL],
    "archive file": [EVIL],
    "archive restore": [EVIL, "--reason", EVIL],
    "archive hold": ["manual", "file", EVIL, "--reason", EVIL],
    "archive holds": [],
    "archive runs": [],
    "archive rebuild": [],
    "archive prune": ["--dry-run"],
    "archive detail": ["Finding", EVIL],
    "archive release": [EVIL, "--reason", EVIL],
    "archive approve": [EVIL, "--reason", EVIL],
    "regime set": [EVIL],
    "regime withdraw": [EVIL, "--reason", EVIL],
    "regime import": [EVIL],
    "debate list": ["--agent", EVIL],
    "debate challenge": [EVIL, EVIL, "--value", EVIL],
    "debate respond": [EVIL, EVIL, "--evidence", EVIL],
    "debate acknowledge": [EVIL],
    "debate accept": [EVIL, EVIL],
    "debate stand": [EVIL, EVIL],
    "debate withdraw": [EVIL, EVIL],
    "debate judge": [EVIL, EVIL, EVIL],
    "tasks": [EVIL],
    "tasks list": ["--kind", EVIL],
    "tasks show": [EVIL],
    "tasks answer": [EVIL, EVIL, "--set", f"{EVIL}={EVIL}"],
    "tasks delegate": [EVIL, EVIL, "--reason", EVIL],
    "tasks rules": [EVIL],
    "tasks rules revoke": [EVIL, "--reason", EVIL],
    "tasks roster": [EVIL],
    "tasks roster set": [EVIL, "--kind", EVIL],
    "pause": [EVIL, "--reason", EVIL],
    "start": [EVIL, EVIL],
    "gates open": [EVIL],
    "gates answer": [EVIL],
    "resume": [EVIL],
    "extend": [EVIL, "--until", EVIL],
    "pauses": [EVIL],
    "pauses show": [EVIL],
    "pauses cancel": [EVIL, "--reason", EVIL],
    "pauses batches": [EVIL],
    "snapshot show": [EVIL],
    "sync status": [EVIL],
    "sync replay": [EVIL],
    "sync gate": [EVIL],
    "doctor": [EVIL],
    "status": [EVIL],
    "clock show": [EVIL],
    "clock advance": [EVIL],
    "erase": [EVIL, "--reason", EVIL],
    "metrics": [EVIL],
    "graph hash": [EVIL],
}
"""Commands that have nothing stored to print here, with hostile arguments."""

STARTING = {"up", "down", "demo", "migrate", "rebuild graph", "mcp"}
"""Commands that start or end servers; they print names of ours alone, or JSON of the protocol."""


def commands(command: Any, *path: str) -> set[str]:
    """Return the name of every command that the program has."""
    inner = list(from_code.inner_commands(command))
    if not inner:
        return {" ".join(path)}
    return set().union(*(commands(one, *path, name) for name, one in inner))


def unprintable(text: str) -> set[str]:
    """Return what a terminal would obey: an independent reading of the promise."""
    allowed = {"\n", "\t"}
    order = {"\u061c", "\u200e", "\u200f", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
    return {
        char for char in text if (ord(char) < 32 or 127 <= ord(char) < 160 or char in order) and char not in allowed
    }


def run_all(harness: LoadHarness, lines: list[list[str]]) -> list[tuple[str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=json.dumps(lines), env=harness.environment, cwd=TOP, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [(out, err) for out, err in json.loads(done.stdout)]


def test_every_command_is_looked_at() -> None:
    """A command that is new has its place in one of the tables above."""
    assert commands(typer.main.get_command(app)) <= TELLING.keys() | ECHOING.keys() | STARTING


@pytest.mark.longer
@pytest.mark.usefixtures("graph")
def test_no_command_prints_what_a_terminal_would_obey(harness: LoadHarness) -> None:
    """Stored text, names, paths, errors and arguments are shown escaped by all of them, and whole in their JSON."""
    path = harness.file("desk.jsonl", LINES)
    bad = harness.folder / f"{EVIL}.jsonl"
    bad.write_bytes(
        json.dumps({**LINES[0], EVIL: 1}).encode() + b"\n" + json.dumps({"record": EVIL, "known_at": KNOWN}).encode()
    )
    with harness.applier():
        loaded = harness.run("load", path)
        assert loaded.returncode == 0, loaded.stderr
        assert harness.run("remember", EVIL, "--author", EVIL).returncode == 0
    with psycopg.connect(harness.admin_url) as conn:
        made = "INSERT INTO view_version (name, source_seq) VALUES ('agent_credibility', 1) RETURNING name, version"
        name, version = conn.execute(made).fetchone() or ("", 0)
        conn.execute("INSERT INTO view_row VALUES (%s, %s, %s, %s)", [name, version, EVIL, json.dumps({EVIL: EVIL})])
        conn.execute("INSERT INTO view_current VALUES (%s, %s)", [name, version])
        conn.execute("UPDATE delivery SET state = 'dead', error = %s WHERE position = 1", [EVIL])
    load = ["load", str(bad), "--source", "x", "--no-wait"]
    plain = [load if name == "load" else [*name.split(), *words] for name, words in TELLING.items()]
    as_json = [[*words, "--json"] for words in plain]
    echoing = [[*name.split(), *words] for name, words in ECHOING.items()]

    # Time enough on a busy machine: what is late is not printed.
    said = run_all(harness.having(deadline_ms=30_000), plain + as_json + echoing)

    for words, streams in zip(plain + as_json + echoing, said, strict=True):
        assert unprintable("".join(streams)) == set(), words
        assert "Traceback" not in streams[1], words
        assert "Something unexpected" not in streams[1], words
    for words, streams in zip(plain, said, strict=False):
        assert "pwned" in "".join(streams) or "before the deadline" in streams[1], words
    for words, (out, err) in zip(as_json, said[len(plain) :], strict=False):
        if "before the deadline" in err:  # On a busy machine; that sentence was looked at above.
            continue
        assert out, (words, err)
        assert any(EVIL in text for text in texts(json.loads(out))), words


def texts(document: Any) -> list[str]:
    """Return every string of a document."""
    if isinstance(document, dict):
        return [text for name, value in document.items() for text in (name, *texts(value))]
    if isinstance(document, list):
        return [text for value in document for text in texts(value)]
    return [document] if isinstance(document, str) else []


@pytest.mark.longer
def test_raw_text_goes_into_files_alone(harness: LoadHarness) -> None:
    """``--raw`` prints a body byte for byte into a pipe, and to a terminal never."""
    harness.load(harness.file("desk.jsonl", LINES))
    words = ["text", "Analysis", EVIL]

    raw = subprocess.run(
        harness.command("--raw", *words), env=harness.environment, capture_output=True, check=True
    ).stdout
    terminal = subprocess.run(
        ["script", "-qec", f"{sys.executable} -m imem --raw schema Agent", "/dev/null"],
        env={**harness.environment, "COLUMNS": "200"}, capture_output=True, check=False,
    )  # fmt: skip

    assert raw.decode().rstrip("\n") == EVIL
    assert terminal.returncode == 2
    assert "a terminal would obey" in re.sub(r"[\s│]+", " ", terminal.stdout.decode())


# The one place


@given(st.text(st.characters(), max_size=50))
def test_clean_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    """Whatever the text, it can be printed, and as JSON it says the same."""
    shown = output.clean(text)
    document = json.dumps(text, ensure_ascii=False)

    assert unprintable(shown) == set()
    shown.encode()
    assert json.loads(output.clean(document)) == text
    assert output.clean(shown) == shown


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=50))
def test_plain_text_stays(text: str) -> None:
    """What everybody writes is not touched."""
    assert output.clean(text + "\n\tÄ株👩\u200d💻") == text + "\n\tÄ株👩\u200d💻"


def test_a_console_colours_and_what_it_shows_does_not() -> None:
    """Our own tables have colours on a terminal; an escape sequence in a cell, a title or a line is shown as text."""
    stream = io.StringIO()
    console = output.console()
    console.file = stream
    console._force_terminal = True
    console._color_system = console._detect_color_system()
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row("\x1b[31mred", style="bold")
    console.print(table)
    console.print(EVIL, markup=False)

    said = stream.getvalue()
    assert "\x1b[1m" in said
    assert "\\u001b[31mred" in said
    assert "\x1b]" not in said
    assert "\x1b[2J" not in said
    assert "\x1b[31m" not in said
    assert not unprintable(said) - {"\x1b"}


def test_a_stream_has_no_way_past_it() -> None:
    """Neither lines nor a writer of bytes get around it, and what the encoding lacks is no failure."""
    script = (
        "import sys\nfrom imem.terminal import output\noutput.guard()\n"
        "sys.stdout.writelines(['\\x1b[2J', 'a\\n']); print('\\x9b', 'é', '\\ud800', file=sys.stderr)\n"
        "import typer; typer.echo('\\x1b]0;x\\x07 株'); assert not hasattr(sys.stdout, 'buffer')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=TOP, env={"PYTHONIOENCODING": "ascii"}, capture_output=True, check=True
    )

    assert done.stdout.splitlines()[0] == b"\\u001b[2Ja"
    assert b"\x1b" not in done.stdout
    assert done.stderr == b"\\u009b \\xe9 \\ud800\n"
