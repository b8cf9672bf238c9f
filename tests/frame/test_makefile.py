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


@pytest.mark.spec("GR-15")
def test_the_newest_neo4j_runs_the_graph_suite_every_night(root: Path) -> None:
    """By the one variable; what takes hours beside it is nightly as well."""
    # What the caller's own make was told must not leak into this one.
    env = {name: value for name, value in os.environ.items() if name not in {"ARGS", "MAKEFLAGS", "MAKELEVEL"}}
    planned = subprocess.run(
        ["make", "--dry-run", "test-latest"], cwd=root, env=env, capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"IMEM_TEST_NEO4J=\S+ .* tests/kg/queries tests/kg/projection$", planned, re.MULTILINE), planned
    nightly = (root / ".ci" / "nightly").read_text(encoding="utf-8")
    assert "for target in test-latest mutate chaos" in nightly


def test_what_takes_minutes_is_run_somewhere(root: Path) -> None:
    """Tests that `make test` leaves out by their marker: each folder that has some is named by what runs them."""
    runs = "".join((root / ".ci" / name).read_text(encoding="utf-8") for name in ("run", "nightly"))
    marked = {
        str(test.parent.relative_to(root))
        for test in (root / "tests").rglob("test_*.py")
        if re.search(r"pytest\.mark\.e2e\b", test.read_text(encoding="utf-8"))
    }
    assert {"tests/e2e", "tests/docs"} <= marked
    assert {folder for folder in marked if not re.search(rf"-m e2e [^\n]*{folder}\b", runs)} == set()
