"""
The demo on a machine that has ten times the work that it can do: it takes its time, and shows everything.

Marked ``chaos`` as well: it takes up to half an hour, so that it is run by `make chaos` and at night alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import KEPT

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

BUSY = 10
"""Programs that never rest, for each processor."""

TIMEOUT_S = 3600.0


@pytest.fixture
def busy() -> Iterator[None]:
    programs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY * len(os.sched_getaffinity(0)))
    ]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@pytest.mark.usefixtures("busy")
def test_the_demo_succeeds_on_a_busy_machine(home: Path) -> None:
    """Twice, the second time without loading anything; no briefing lacks anything, and nothing is left running."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("IMEM_") or name in KEPT}
    env["IMEM_HOME"] = str(home / "home")

    def imem(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("imem")), *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)

    try:
        first, second = imem("demo"), imem("demo")
    finally:
        imem("down", "--purge", "--yes")
    for ran in (first, second):
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "could not ask everything" not in ran.stderr
    assert "loaded already" not in first.stderr
    assert "loaded already" in second.stderr
