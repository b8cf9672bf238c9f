"""What a program that has not configured its logs gets to see, and what a person at the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]

SAYS = """
import sys
import structlog
import imem.commands
from imem.logs import by_default
imem.commands.is_command = sys.argv[1] == "command"
by_default(sys.argv[2])
for level in ("info", "warning", "error"):
    getattr(structlog.get_logger(), level)("said " + level)
"""


@pytest.mark.parametrize(
    ("who", "level", "heard"),
    [
        ("program", "DEBUG", ["warning", "error"]),
        ("program", "INFO", ["warning", "error"]),
        ("program", "ERROR", ["error"]),
        ("program", "WARNING", ["warning", "error"]),
        ("command", "INFO", ["error"]),
    ],
)
def test_what_is_logged_where_nobody_configured_it(who: str, level: str, heard: list[str]) -> None:
    """A program hears warnings and errors alone, on standard error, whatever is logged; a command speaks itself."""
    done = subprocess.run([sys.executable, "-c", SAYS, who, level], cwd=TOP, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert [word for word in ("info", "warning", "error") if f"said {word}" in done.stderr] == heard


SLOW = """
import asyncio, sys, time
from imem.logs import by_default, configure
from imem.journal.deadline import Deadline
from imem.journal.telemetry.slow_queries import SlowLog

async def explain():
    print("asked for the plan")
    return "the plan"

async def ask():
    slow = SlowLog("journal", slow_ms=100.0)
    slow.note("one", time.monotonic() - 0.2, explain, deadline=Deadline.after_ms(500))
    if slow._task is not None:
        await slow._task

configure(sys.argv[2]) if sys.argv[1] == "process" else by_default(sys.argv[2])
asyncio.run(ask())
"""


@pytest.mark.parametrize(
    ("who", "level", "heard", "asked"),
    [
        ("program", "INFO", [], False),
        ("program", "DEBUG", [], False),
        ("process", "INFO", ["query.slow"], False),
        ("process", "DEBUG", ["query.slow", "query.plan"], True),
    ],
)
def test_slow_queries_say_nothing_to_a_program(who: str, level: str, heard: list[str], asked: bool) -> None:  # noqa: FBT001 - a parameter
    """A program that uses the library stays quiet; our own processes log what was slow, and plans on request."""
    done = subprocess.run([sys.executable, "-c", SLOW, who, level], cwd=TOP, capture_output=True, text=True, check=True)

    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [event["event"] for event in events if event["event"].startswith("query.")] == heard
    assert (done.stdout != "") == asked
    if not heard:
        assert done.stderr == ""
