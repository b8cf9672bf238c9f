"""What the tests of the repository itself share: where it is, and which files it tracks."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def tracked() -> tuple[Path, ...]:
    """Every file that a commit of the present state would hold, tracked or about to be, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    return tuple(sorted(path for name in listed.split("\0") if name and (ROOT / (path := Path(name))).is_file()))


@pytest.fixture(scope="session")
def python_files(tracked: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(path for path in tracked if path.suffix == ".py")


@pytest.fixture(autouse=True, scope="module")
def _undisturbed() -> Iterator[None]:
    """
    Collect nothing while files are parsed.

    What other tests left may say something when it is collected, for which Python 3.11 parses a line of the traceback;
    within another parse that is an error of its own (AST constructor recursion depth mismatch).
    """
    gc.collect()
    gc.disable()
    yield
    gc.enable()
