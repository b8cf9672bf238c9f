"""What the demo leaves behind, however it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.commands import demo
from imem.journal.errors import BudgetExceeded, PostgresUnavailable, StackError

ENDINGS: Sequence[tuple[int | BaseException, Sequence[str], bool]] = (
    (0, (), True),
    (0, ("--keep",), False),
    (1, (), False),
    (StackError("Nothing has changed for 15 minutes, with work left."), (), False),
    (PostgresUnavailable("Postgres cannot be reached."), (), False),
    (BudgetExceeded("Postgres did not answer before the deadline."), (), False),
    (demo.ForeignData("This memory holds data of its own."), (), True),
    (KeyboardInterrupt(), (), True),
)
"""How showing ends (with so many briefings in part, or an error), options, and whether the servers are stopped."""


@pytest.mark.parametrize(("ending", "options", "stops"), ENDINGS, ids=[f"{one[0]!r}{one[1]}" for one in ENDINGS])
def test_the_servers_go_on_when_there_is_more_to_do(
    ending: int | BaseException, options: Sequence[str], *, stops: bool, monkeypatch: pytest.MonkeyPatch, home: Any
) -> None:
    """A demo that is done, interrupted or refused stops what it started; one that gives up says how to go on."""
    stopped: list[object] = []

    async def shown(*_: object, **__: object) -> int:
        if isinstance(ending, BaseException):
            raise ending
        return ending

    monkeypatch.setattr(demo, "_show", shown)
    monkeypatch.setattr(demo, "_start", lambda *_: None)
    monkeypatch.setattr(demo, "_stop", stopped.append)

    ran = CliRunner().invoke(app, ["demo", *options], env={"IMEM_HOME": str(home), "COLUMNS": "500"})

    assert bool(stopped) is stops
    assert (ran.exit_code == 0) is (ending == 0)
    gives_up = not stops and not options
    assert ("`imem demo` goes on from here" in ran.stderr) is gives_up
