"""Loads that are killed, and servers that go away, leave whole batches; running again continues without duplicates."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from typing import Any

import psycopg
import pytest

from tests.imem.ingest.conftest import KNOWN, LoadHarness, analysis, company, finding, performed

LINES = 4000


def history() -> list[dict[str, Any]]:
    """Return a history in which order matters: groups that change, corrections, links."""
    lines: list[dict[str, Any]] = []
    for number in range(LINES // 5):
        key = f"a{number}"
        lines += [
            company(f"T{number % 50}", name=f"Name {number}"),
            analysis(key, summary=f"Summary {number}"),
            finding(f"f{number}", analysis_id=key),
            performed(f"agent{number % 7}", key),
        ]
        core = analysis(f"a{number // 2}", summary=f"Better {number}")["core"]
        lines.append({"correct": "Analysis", "known_at": KNOWN, "core": core, "reason": "It was cut."})
    return lines


def fingerprint(harness: LoadHarness) -> tuple[Any, ...]:
    """Return every head with its place in the order of the source, and how many rows the rest has."""
    heads = harness.rows(
        "SELECT md5(string_agg(concat_ws('|', kind, key, grp, encode(hash, 'hex'), order_key), ';'"
        ' ORDER BY kind COLLATE "C", key COLLATE "C", grp COLLATE "C")), count(*) FROM record_head'
    )
    counted = ("event", "delivery", "record_history", "memory_access_audit")
    return (heads, *(harness.count(name) for name in counted), harness.rows("SELECT pushed_seq FROM agent_cursor"))


def killed_after(harness: LoadHarness, events: int, arguments: list[str]) -> None:
    """Start a load and kill it as soon as the journal holds so many events, or earlier if it has ended."""
    process = subprocess.Popen(
        harness.command(*arguments), env=harness.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with process, psycopg.connect(harness.admin_url, autocommit=True) as conn:
        while process.poll() is None:
            row = conn.execute("SELECT count(*) FROM event").fetchone()
            if row is not None and row[0] >= events:
                break
            time.sleep(0.001)  # Between two looks at what another process does.
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("kills", [6, pytest.param(60, marks=pytest.mark.chaos)])
def test_killed_loads_end_like_an_undisturbed_one(harness: LoadHarness, another_desk: LoadHarness, kills: int) -> None:
    """SIGKILL at random moments, then once more: heads, order and counts are those of a single run."""
    path = harness.file("history.jsonl", history())
    assert another_desk.load(path)["code"] == 0
    moments = random.Random(8).sample(range(1, LINES), kills)

    for moment in sorted(moments):
        killed_after(harness, moment, ["load", "--no-wait", str(path)])
    told = harness.load(path)

    assert told["code"] == 0
    assert told["identical"] > 0
    assert fingerprint(harness) == fingerprint(another_desk)


def test_a_connection_that_breaks_is_taken_up_again(harness: LoadHarness, another_desk: LoadHarness) -> None:
    """Connections that the server ends in the middle of a load cost a retry, no line and no double."""
    path = harness.file("history.jsonl", history())
    another_desk.load(path)

    process = subprocess.Popen(
        harness.command("load", "--no-wait", str(path)),
        env=harness.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    ended = 0
    with process, psycopg.connect(harness.admin_url, autocommit=True) as conn:
        while process.poll() is None:
            row = conn.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND (SELECT count(*) FROM event) >= %s",
                (ended * 1000 + 500,),
            ).fetchone()
            ended += bool(row and row[0])
            time.sleep(0.001)  # Between two looks at what another process does.
        assert process.stderr is not None
        told = process.stderr.read().decode()

    assert (process.returncode, ended > 0) == (0, True), told
    assert fingerprint(harness) == fingerprint(another_desk)


def test_memory_is_flat(harness: LoadHarness) -> None:
    """A file ten times as long takes hardly more memory: nothing of it is kept."""
    small, large = (
        harness.load_measured(
            harness.file(f"{lines}.jsonl.gz", [analysis(f"{lines}/{n}") | {"body": "x" * 60_000} for n in range(lines)])
        ).peak_kib
        for lines in (200, 2000)
    )

    assert large < small + 20 * 1024, (small, large)


def test_interrupted_load_says_how_far_it_came(harness: LoadHarness) -> None:
    """Ctrl-C ends a load at once, in words, and a second run finishes it."""
    path = harness.file("history.jsonl", history())
    process = subprocess.Popen(
        harness.command("load", "--no-wait", str(path)),
        env=harness.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with process, psycopg.connect(harness.admin_url, autocommit=True) as conn:
        while not conn.execute("SELECT FROM event LIMIT 1").fetchall():
            assert process.poll() is None
            time.sleep(0.001)  # Between two looks at what another process does.
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        told = process.stderr.read().decode()

    assert process.returncode == 130, told
    assert "Stopped after " in told
    assert "Traceback" not in told
    assert 0 < harness.count("event") < LINES
    assert harness.load(path)["code"] == 0
