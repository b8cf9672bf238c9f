"""
A newcomer's first minutes: a clone into an empty folder, the README's two commands, nothing else.

Nothing of the caller's is used: its own home, caches and environment, and a path on which ``java`` and ``docker`` only
complain; as root, once more as a freshly made ordinary user.
Marked ``e2e`` and run by ``make e2e`` alone: it installs the environment anew and starts the whole stack several times.
How long it takes is measured in ``tests/bench``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

import pytest

from tests.e2e.newcomer import ROOT, Newcomer, newcomer_in, ordinary_user_after

pytestmark = pytest.mark.e2e


class Demos(NamedTuple):
    """What came of the first demo and of the second, and which processes the first left running."""

    first: CompletedProcess[str]
    second: CompletedProcess[str]
    left: list[str]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    with newcomer_in(tmp_path_factory.mktemp("newcomer")) as someone:
        yield someone


@pytest.fixture(scope="module")
def demos(newcomer: Newcomer) -> Demos:
    """Run the first command twice; what is left running in between is found then."""
    first, _ = newcomer.make("demo")
    left = _processes_of(newcomer.home)
    second, _ = newcomer.make("demo")
    return Demos(first, second, left)


@pytest.fixture
def ordinary_user(newcomer: Newcomer) -> Iterator[Newcomer]:
    with ordinary_user_after(newcomer) as someone:
        yield someone


def _processes_of(home: Path) -> list[str]:
    """Return the command lines that still name something below *home*."""
    left = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if f"{home}/" in command:
                left.append(command[:200])
    return left


def _assert_good_demo(output: str) -> None:
    """A briefing of a real company on two days, a real flu question, and where to go on."""
    assert "Traceback" not in output
    assert "company:" in output
    assert "market:" in output
    assert "little evidence" in output.lower()
    assert re.findall(r"^\[(?:partial|unavailable|stale).*", output, re.MULTILINE) == [], "every part is whole"
    assert len(re.findall(r"^\s*\$?\s*(?:\S*/)?imem \w+", output, re.MULTILINE)) >= 3, "the commands to try next"


@pytest.mark.spec("IF-1")
def test_two_commands_from_a_fresh_clone(newcomer: Newcomer, demos: Demos) -> None:
    """`make demo` ends in briefings and stops what it started, a second one installs nothing; `make test` is green."""
    assert demos.first.returncode == 0
    _assert_good_demo(demos.first.stdout)
    assert demos.left == [], "the demo stops what it started"
    assert demos.second.returncode == 0
    _assert_good_demo(demos.second.stdout)
    assert "Installing" not in demos.second.stdout

    tests, _ = newcomer.make("test", "ARGS=tests/unit/test_settings.py tests/unit/test_kinds_values.py")
    assert tests.returncode == 0
    assert re.search(r"\d+ passed", tests.stdout)
    assert "failed" not in tests.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a user; anybody else has just been the ordinary one")
@pytest.mark.spec("IF-1")
def test_demo_as_an_ordinary_user(ordinary_user: Newcomer) -> None:
    """The same first command for somebody without any right but to their own home."""
    demo, _ = ordinary_user.make("demo")

    assert demo.returncode == 0
    _assert_good_demo(demo.stdout)
    assert _processes_of(ordinary_user.home) == []


def _shape(line: str) -> str:
    """Return the line without what differs from run to run: durations, rates, percentages of progress, space."""
    line = re.sub(r"\d[\d,.]*\s*(?:ms|s|min|/s|%|MB|GB)(?![A-Za-z])", "#", line)
    return re.sub(r"\s+", " ", line).strip()


def test_readme_shows_what_one_really_sees(demos: Demos) -> None:
    """
    The output in the README is the demo's, line by line and in order; a line of ``…`` stands for what is left out.

    Paste it between the two comments whenever the demo changes.
    """
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- demo: begin -->\n+```text\n(.*?)```\n+<!-- demo: end -->", page, re.DOTALL)
    assert block, "the README has a place for the demo's output"
    shown = [shape for line in block[1].splitlines() if (shape := _shape(line)) not in {"", "…"}]
    seen = iter([_shape(line) for line in demos.first.stdout.splitlines()])

    assert len(shown) > 10
    assert [line for line in shown if line not in seen] == [], (
        "lines of the README that the demo did not print, in order"
    )
