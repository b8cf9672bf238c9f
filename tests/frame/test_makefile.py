"""The targets that people and machines type, and the locks that they install from."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

TARGETS = (
    "demo",
    "test",
    "e2e",
    "test-latest",
    "bench",
    "chaos",
    "mutate",
    "lint",
    "up",
    "clean",
    "docs",
    "wheel",
    "lock",
    "help",
)
LOCKS = ("runtime", "dev", "docs", "installer")
_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)(?:\[[^\]]*\])?==([^ ;\\]+)", re.MULTILINE)


def _pins(root: Path, name: str) -> dict[str, set[str]]:
    """Return name → versions of one lock; several where they depend on the Python."""
    pins: dict[str, set[str]] = {}
    for package, version in _PIN.findall((root / "requirements" / f"{name}.lock").read_text(encoding="utf-8")):
        pins.setdefault(package, set()).add(version)
    return pins


def _names(requirements: list[object]) -> set[str]:
    return {
        re.split(r"[\[<>=!~ ;]", wanted, maxsplit=1)[0].lower() for wanted in requirements if isinstance(wanted, str)
    }


@pytest.mark.parametrize("target", TARGETS)
def test_target_exists_and_is_listed(root: Path, target: str) -> None:
    """`make TARGET` would do something, and `make` alone says what."""
    planned = subprocess.run(["make", "--dry-run", target], cwd=root, capture_output=True, text=True, check=False)
    listed = subprocess.run(["make", "help"], cwd=root, capture_output=True, text=True, check=True).stdout

    assert planned.returncode == 0, planned.stderr
    assert re.search(rf"^  {target} +\S", listed, re.MULTILINE)


def test_the_newest_neo4j_has_a_jar_lock(root: Path) -> None:
    """`make test-latest` asks for a release whose jars are known by hash."""
    version = re.search(r"^NEO4J_LATEST \?= (\S+)$", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    assert version
    assert (root / "imem" / "local" / "jars" / f"neo4j-{version[1]}.lock").is_file()


@pytest.mark.parametrize("name", LOCKS)
def test_lock_holds_names_versions_and_hashes_alone(root: Path, name: str) -> None:
    """No address of a registry, and no package without a hash."""
    text = (root / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=[a-z0-9])", text.replace("\\\n", " "))

    assert "://" not in text
    assert "index-url" not in text
    unhashed = [block.split()[0] for block in blocks if _PIN.match(block) and "--hash=sha256:" not in block]
    assert unhashed == []


def test_locks_hold_everything_that_is_asked_for(root: Path) -> None:
    """A dependency added to pyproject.toml without `make lock` would be missing from every environment."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]

    assert _names(project["project"]["dependencies"]) - set(_pins(root, "runtime")) == set()
    for name in ("dev", "docs", "installer"):
        wanted = _names(groups[name]) | _names(groups["build"] if {"include-group": "build"} in groups[name] else [])
        assert wanted - set(_pins(root, name)) == set(), name


def test_locks_agree_with_each_other(root: Path) -> None:
    """One environment holds several of them, so none may undo another."""
    runtime, dev = _pins(root, "runtime"), _pins(root, "dev")
    assert {name: versions for name, versions in runtime.items() if dev.get(name) != versions} == {}
    for other in ("docs", "installer"):
        pins = _pins(root, other)
        assert {name: (pins[name], dev[name]) for name in set(pins) & set(dev) if pins[name] != dev[name]} == {}, other


def test_every_lint_exception_carries_its_reason(root: Path) -> None:
    """A rule switched off without a word is a rule nobody dares to switch on again."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    block = text[text.index("ignore = [") : text.index("[tool.ruff.lint.per-file-ignores]")]

    assert [line for line in block.splitlines() if line.startswith('  "') and " # " not in line] == []


def _planned(root: Path, target: str) -> str:
    # What the caller's own make was told must not leak into this one.
    env = {name: value for name, value in os.environ.items() if name not in {"ARGS", "MAKEFLAGS", "MAKELEVEL"}}
    return subprocess.run(
        ["make", "--dry-run", target], cwd=root, env=env, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.spec("GR-15")
def test_the_newest_neo4j_runs_the_graph_suite_every_night(root: Path) -> None:
    """By the one variable; what takes hours beside it is nightly as well."""
    planned = _planned(root, "test-latest")
    assert re.search(r"IMEM_TEST_NEO4J=\S+ .* tests/kg/queries tests/kg/projection$", planned, re.MULTILINE), planned
    nightly = (root / ".ci" / "nightly").read_text(encoding="utf-8")
    assert "for target in test-latest mutate chaos" in nightly


def test_what_takes_minutes_is_run_for_every_commit(root: Path) -> None:
    """Tests that `make test` leaves out as they start whole stacks: those of every folder, by one target."""
    assert re.search(r"^stage .* make e2e ", (root / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    planned = _planned(root, "e2e")
    assert re.search(r' -m "e2e and not chaos" *$', planned, re.MULTILINE), planned
