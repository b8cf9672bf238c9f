"""``imem remember`` and ``imem memories``: what they print, and with which exit code they end."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.journal.settings import Role, Settings
from tests.imem.memories.conftest import Places
from tests.imem.memory.conftest import MemoryHarness


def test_on_the_command_line(harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text for people, JSON for programs; 0 done, 2 wrong usage, 3 in part, with the reason beside the answer."""
    monkeypatch.setattr(Settings, "read", lambda *_, **__: harness.of("kate", Role.HUMAN_ADMIN))
    places.cosines = {"Margins rise.": 1.0, "Do margins rise?": 1.0}
    runner = CliRunner()

    def run(*words: str, code: int = 0) -> str:
        done = runner.invoke(app, words)
        assert done.exit_code == code, done.output
        return done.output

    assert run("remember", "Margins rise.", "--author", "Ann").startswith("new: ")
    again = json.loads(run("remember", "Margins rise.", "--json"))
    assert (again["status"], again["version"], again["waits"]) == ("identical", 1, False)
    run("remember", "Prices fall.", "--namespace", "symbol/MU", "--conversation", "c", "--importance", "0.9")

    line = run("memories", "Do margins rise?", "--limit", "1")
    assert '"agent/kate", "Ann": "Margins rise."' in line
    [found] = json.loads(run("memories", "prices", "--namespace", "symbol/*", "--json"))["items"]
    assert (found["content"], found["importance"], found["ordinal"]) == ("Prices fall.", 0.9, 1)
    assert "Nothing is remembered there." in run("memories", "prices", "--namespace", "user/nobody")
    assert "Nothing is remembered there." in run("memories", "prices", "--as-of", "2020-01-01")
    for wrong in (
        ("remember", "x", "--namespace", "a%b"),
        ("remember", " "),
        ("remember", "x", "--type", "vague"),
        ("memories", "x", "--limit", "0"),
        ("memories", "x", "--as-of", "soon"),
    ):
        run(*wrong, code=2)

    places.away = True
    assert "by words alone" in run("memories", "Do margins rise?", code=3)
    assert "words find it" in run("remember", "Demand grows.")
