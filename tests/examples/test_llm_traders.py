"""Trades of six language models through the ledger, beside the round trips of their source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from examples.llm_traders import replay
from examples.llm_traders.replay import ROUNDING


def test_every_round_trip_is_accounted_for() -> None:
    """What was left in the end has the source's profit to a thousandth of a dollar, and each agent its cash."""
    found = replay.compare()

    assert (found.trips, found.within, len(found.trades)) == (294, 200, 155)
    assert found.agree == found.closed == 89
    assert (found.same, found.sales) == (126, 219)
    assert all(abs(difference) <= ROUNDING for difference in found.cash.values())
    assert len(found.cash) == 6


def test_the_page_shows_what_the_script_prints() -> None:
    script = Path(replay.__file__)
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)

    assert ran.stdout in (script.parent / "README.md").read_text(encoding="utf-8")
