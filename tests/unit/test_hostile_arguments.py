"""Whatever stands on the command line: an exit code and a sentence, of every command and option that there is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from click.testing import CliRunner

from docs import from_code
from imem.cli import app
from imem.journal.errors import ImemError

NOT_UTF8 = os.fsdecode(b"caf\xe9")
HOSTILE = (
    "", " ", "-1", "0", "nan", "9" * 500, "1e999", "[" * 10_000, "a" * 20_000, "ünï 💥", "\x1b[31mred", "a\nb",
    NOT_UTF8, "*", "../../..", "$(id)", "%s{}", "--", "/", "/nowhere/at/all", "0001-01-01T00:00:00+14:00", "9999-12-31",
)  # fmt: skip

STARTS_SERVERS = frozenset({"up", "demo"})
"""Commands that would hold the test while what they start runs; their options are parsed like all others."""


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, inner in from_code.inner_commands(command):
            yield from _leaves(inner, (*path, name))
    else:
        yield path, command


COMMAND = typer.main.get_command(app)
"""Made once: that takes longer than most lines do."""

LEAVES = {" ".join(path): command for path, command in _leaves(COMMAND)}


def _lines(path: str, command: Any) -> Iterator[list[str]]:
    """Command lines of which one value is hostile; every other argument, and option that is needed, is harmless."""
    needed = [one for one in command.params if one.required or one.param_type_name == "argument"]

    def line(hostile: Any, value: str) -> list[str]:
        words = path.split()
        for one in [*needed, *([hostile] if hostile is not None and hostile not in needed else [])]:
            given = value if one is hostile else "a"
            words += [given] if one.param_type_name == "argument" else [one.opts[0], given]
        return words

    for parameter in command.params:
        if getattr(parameter, "is_flag", False):
            continue
        for value in HOSTILE:
            yield line(parameter, value)
    yield [*line(None, ""), "superfluous"]
    yield [*line(None, ""), f"--{NOT_UTF8}"]


def test_the_whole_tree_is_walked() -> None:
    """Commands of every group are among them."""
    assert {"brief", "load", "query", "resume", "sync status", "checkpoints list", "rebuild graph"} <= LEAVES.keys()


@pytest.mark.parametrize("path", [one for one in LEAVES if one not in STARTS_SERVERS])
def test_no_argument_ends_in_a_traceback(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Done, failed or refused: what is raised is an error of the product, said in one sentence."""
    for name in [one for one in os.environ if one.startswith("IMEM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("IMEM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IMEM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    runner: Any = CliRunner()
    broken = []
    for words in _lines(path, LEAVES[path]):
        done = runner.invoke(COMMAND, words)
        if done.exit_code not in {0, 1, 2, 3} or not isinstance(done.exception, SystemExit | ImemError | None):
            broken.append(([word[:40] for word in words], repr(done.exception)[:200]))

    assert broken == []
