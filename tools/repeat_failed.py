"""
pytest, with one repetition of what failed: what a test of thousands does once by bad luck stops no change.

It takes pytest's arguments. Tests that failed run once more, alone, in one process. Those that pass then fail nothing;
they are printed as ``flaky: NAME`` and added to ``build/flaky.txt``. What fails twice, or cannot be repeated, fails. A
run fails as it stands if it was interrupted or killed, could not collect its tests, executed none, or has more failures
than chance makes. The last line is the summary of the last run, by pytest itself.

``.ci/run`` alone uses it, in the place of pytest: ``make test PYTEST='.venv/bin/python tools/repeat_failed.py'``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

MOST: Final = 20
"""How many failures are repeated at most; more have a cause that they share."""

FLAKY: Final = Path("build/flaky.txt")
"""Names of tests that failed and then passed, one a line: what the next change has to mend."""

_OF_MAKE: Final = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
"""By these a `make` that a test runs would take the place of pytest for its own."""

_FIRST: Final = "--first-run"


class FirstRun:
    """Notes which tests failed, for a second run to repeat them."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._failed: dict[str, None] = {}
        self._crashed: set[str] = set()
        self._whole = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note that tests were not tried."""
        self._whole = self._whole and not report.failed

    def pytest_keyboard_interrupt(self) -> None:
        """Note that tests were not tried; ``pytest.exit`` is an interruption too, whatever its exit code."""
        self._whole = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure; a test whose process ended was repeated by xdist itself, and is not tried a third time."""
        if report.failed:
            self._whole = self._whole and report.nodeid not in self._crashed
            self._failed[report.nodeid] = None
            if report.when not in {"setup", "call", "teardown"}:
                self._crashed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the names on, if every test was tried."""
        if self._whole and not session.shouldstop and not session.shouldfail:
            self._notes.write_text("\0".join(self._failed), encoding="utf-8")


class SecondRun:
    """Notes how repeated tests end, and names those that passed before pytest's last line."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._passed: set[str] = set()
        self._other: set[str] = set()

    @property
    def flaky(self) -> list[str]:
        """Those that passed as a whole, set-up and clean-up included."""
        return [name for name in self._names if name in self._passed - self._other]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a part of a test ended."""
        if not report.passed:
            self._other.add(report.nodeid)
        elif report.when == "call":
            self._passed.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print and keep the names."""
        for name in self.flaky:
            terminalreporter.write_line(f"flaky: {name}")
        FLAKY.parent.mkdir(exist_ok=True)
        with FLAKY.open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in self.flaky)


def main(arguments: Sequence[str]) -> int:
    """Run pytest, repeat what failed, and return the exit code."""
    for name in _OF_MAKE:
        os.environ.pop(name, None)
    with TemporaryDirectory(prefix="imem-failed-") as folder:
        notes = Path(folder, "failed")
        # A process of its own: what tests leave behind in one is gone for the second run.
        command = [sys.executable, __file__, _FIRST, str(notes), *arguments]
        code = subprocess.run(command, check=False).returncode  # noqa: S603 - this program
        failed = notes.read_text(encoding="utf-8").split("\0") if notes.is_file() else [""]
    if code != pytest.ExitCode.TESTS_FAILED or not failed[0] or len(failed) > MOST:
        return code
    print(f"Once more, alone: {len(failed)} of the tests.", flush=True)
    second = SecondRun(failed)
    code = pytest.main(["-n0", "-m", "", *failed], plugins=[second])
    return int(code) or int(second.flaky != failed)


if __name__ == "__main__":
    # As `python -m pytest` does.
    sys.path[0] = str(Path.cwd())
    if sys.argv[1:2] == [_FIRST]:
        sys.exit(pytest.main(sys.argv[3:], plugins=[FirstRun(Path(sys.argv[2]))]))
    sys.exit(main(sys.argv[1:]))
