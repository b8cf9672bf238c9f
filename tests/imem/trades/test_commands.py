"""``imem trades``: what it prints, and with which exit code it ends."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.journal.settings import Role, Settings
from imem.memory import Memory
from imem.postmortem.trades.model import plain_value
from tests.imem.memory.conftest import MemoryHarness

from .killed import ticks_of


def test_on_the_command_line(harness: MemoryHarness, desk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of the prompt with its size beside it; rows for programs; 2 for wrong usage."""
    with Memory.sync(harness.of()) as memory:
        for tick in ticks_of(desk)[:9]:
            memory.trades.record(tick.decision, tick.positions, tick.bars, fees=tick.fees, at=tick.at)
        expected = memory.trades.recent(deployment=desk)
    monkeypatch.setattr(Settings, "read", lambda *_, **__: harness.of("kate", Role.HUMAN_ADMIN))
    runner = CliRunner()

    def run(*words: str, code: int = 0) -> str:
        done = runner.invoke(app, ["trades", *words])
        assert done.exit_code == code, done.output
        return done.stdout

    assert run(desk) == expected.text
    assert f"About {expected.tokens:,} tokens." in runner.invoke(app, ["trades", desk]).stderr
    assert run("--skill", "momentum", "-k", "0", "--no-open") == "No trades.\n"
    assert run(desk, "--as-of", "2020-01-01") == "No trades.\n"
    rows = json.loads(run(desk, "--json"))
    assert [row["id"] for row in rows["closed"]] == [str(trade.id) for trade in expected.closed]
    assert rows["open"][0]["realized_pnl_usd"] == plain_value(expected.open[0].realized_pnl_usd)
    for wrong in ((), (desk, "--skill", "momentum"), (desk, "-k", "31"), (desk, "--as-of", "soon")):
        run(*wrong, code=2)
