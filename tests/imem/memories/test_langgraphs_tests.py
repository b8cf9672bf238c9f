"""
LangGraph's own tests of its store for Postgres, run against ours.

They are fetched from the package index as its source distribution: that of the installed version, by the hash in the
lock file. ``langgraphs_tests.py`` puts our store in the place of theirs. A test that is added there is run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from tests.imem.memory.conftest import MemoryHarness
from tests.recall.test_existence import environment

DISTRIBUTION: Final = "langgraph-checkpoint-postgres"
PROGRAM: Final = Path(__file__).with_name("langgraphs_tests.py")
HASHES: Final = Path(__file__).parents[3] / "requirements" / "dev.lock"

MODULES: Final = ("test_store", "test_async_store")

OTHER_VECTORS: Final = ("halfvec", "inner_product", "l2")
"""Ours has one kind of vectors and one distance: of each of their tests, the case ``vector-cosine`` is run."""

NOT_OF_OURS: Final = {
    "test_escape_like_literal": "A function of theirs that writes patterns, which no statement of ours uses.",
    "test_namespace_match_pattern": "Likewise.",
    "test_nonnull_migrations": "The list of their migrations.",
    "test_abatch_uses_single_pool_checkout": "Counts calls of a function of theirs.",
    "test_large_batches_async": (
        "60,000 calls at once. Theirs are joined to batches, all of which fail with one; each of ours is a transaction "
        "with a time limit of its own, in which the last ones would not have their turn."
    ),
}
"""Tests that are left out, and why."""

DIFFERENT: Final = {
    "test_vector_store_initialization": "The stack has the embedding model, and not a store.",
    "test_scores[poisson-vector-cosine]": "A score is a similarity from 0 to 1; theirs, the cosine, is negative here.",
    "test_omit_expired_disabled_preserves_expired_rows[default]": "What has expired is not shown, swept or not.",
    "test_omit_expired_disabled_preserves_expired_rows[explicit-false]": "Likewise.",
    "test_omit_expired_search_pagination": "Sets when items were put in their table; ours orders versions.",
}
"""Tests that fail, and why; one of them that passes belongs here no longer."""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the unpacked distribution."""
    folder = tmp_path_factory.mktemp("langgraph")
    locked = HASHES.read_text(encoding="utf-8")
    lines = locked[locked.index(f"{DISTRIBUTION}=={version(DISTRIBUTION)} ") :].splitlines()
    pinned = [lines[0], *takewhile(lambda line: line.lstrip().startswith("--hash"), lines[1:])]
    (folder / "pinned.txt").write_text("\n".join(pinned).rstrip("\\ "), encoding="utf-8")
    fetch = (
        "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", "--no-build-isolation", "--require-hashes",
        "--requirement=pinned.txt",
    )  # fmt: skip
    subprocess.run([sys.executable, "-m", *fetch], cwd=folder, check=True)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def test_what_is_left_out_is_there(theirs: Path) -> None:
    """A name that theirs no longer have would leave out nothing, or soon another test."""
    source = "".join((theirs / "tests" / f"{name}.py").read_text(encoding="utf-8") for name in MODULES)
    wanted = {name.partition("[")[0] for name in (*NOT_OF_OURS, *DIFFERENT)}
    assert {name for name in wanted if f"def {name}(" not in source} == set()


@pytest.mark.parametrize("name", MODULES)
def test_langgraphs_tests_pass(harness: MemoryHarness, theirs: Path, name: str, tmp_path: Path) -> None:
    """All of them, called with and without await, but those that are named above."""
    report = tmp_path / "report.xml"
    options = (
        "--noconftest", "-c", "pyproject.toml", "-p", "no:cacheprovider", "-p", "no:anyio", "-p", "no:langsmith_plugin",
        "-o", "asyncio_default_fixture_loop_scope=function", "-W", "error", "--tb", "short", "--junitxml", str(report),
        "-k", " and ".join(f"not {one}" for one in (*OTHER_VECTORS, *NOT_OF_OURS)),
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(PROGRAM)],
        cwd=theirs,
        env={
            **{variable: value for variable, value in os.environ.items() if not variable.startswith("IMEM_")},
            **environment(harness.of()),
            "ADMIN_URL": harness.admin_url,
            "PYTHONPATH": str(theirs),
            "THEIRS": f"tests.{name}",
        },
        check=False,
        capture_output=True,
        text=True,
    )
    cases = list(ET.parse(report).iter("testcase")) if report.exists() else []  # noqa: S314 - our own file
    named = {case.attrib["name"]: case for case in cases}
    failed = {title for title, case in named.items() if case.find("failure") is not None}
    assert all(case.find("error") is None and case.find("skipped") is None for case in cases), done.stdout
    assert done.returncode == 1, done.stdout + done.stderr
    assert failed == {title for title in DIFFERENT if title in named}, done.stdout
