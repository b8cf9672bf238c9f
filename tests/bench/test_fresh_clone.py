"""How long a newcomer waits for the first briefing, and for the second."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.table import Figure, Table
from tests.e2e.newcomer import newcomer_in

pytestmark = pytest.mark.bench

DATA = "examples"


@pytest.mark.spec("IF-1")
def test_the_two_demos_of_a_fresh_clone(table: Table, tmp_path: Path) -> None:
    """The first installs, fetches 140 MB of jars and loads everything; the second finds all of it there."""
    with newcomer_in(tmp_path) as newcomer:
        first, first_s = newcomer.make("demo")
        second, second_s = newcomer.make("demo")

    assert first.returncode == second.returncode == 0
    table.add(
        Figure(name="make demo, the first time", data=DATA, value=first_s, unit="s", bar=180.0),
        Figure(name="make demo, the second time", data=DATA, value=second_s, unit="s", bar=60.0),
    )
