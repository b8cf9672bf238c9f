"""The page about extending the product: its blocks make a copy of the checkout into one that has what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import neo4j
import pytest

from imem.journal.settings import Settings
from tests.conftest import KEPT, OPTIONAL, Stack
from tests.docs.pages import ROOT, blocks
from tools.mutate import copied_tree

PAGE: Final = "docs/how-to/extend.md"
MIGRATION: Final = 3
"""Number of the graph's migration that the page adds."""

REGISTRIES: Final = (
    *(f"tests/unit/test_kinds_{what}.py" for what in ("spec", "tags", "lines", "schema", "values")),
    *("tests/unit/test_pipelines.py", "tests/unit/test_every_statement.py", "tests/unit/test_frozen_migrations.py"),
    *("tests/frame/test_sql_files.py", "tests/frame/test_contracts.py", "tests/frame/test_docs.py"),
    *(
        "tests/recall/test_left_out.py",
        "tests/credibility/test_pipeline_role.py",
        "tests/kg/queries/test_migrations.py",
    ),
    "tests/kg/queries/test_query_files.py",
)
"""Tests that look at everything that is declared."""

_HUNK: Final = re.compile(r"^@@ (\S+)\n", re.MULTILINE)


def apply(tree: Path) -> list[str]:
    """Apply the page's blocks to *tree*, each exactly; return the paths of what they made or changed."""
    changed: list[str] = []
    for block in blocks(PAGE):
        if block.marker == "file":
            assert not (tree / block.value).exists(), f"{block.place}: {block.value} is there already"
            (tree / block.value).write_text(block.text, encoding="utf-8")
            changed.append(block.value)
        elif block.marker == "append":
            with (tree / block.value).open("a", encoding="utf-8") as file:
                file.write(("\n\n" if block.language == "python" else "\n") + block.text)
            changed.append(block.value)
        else:
            assert block.language == "diff", f"{block.place} says nothing of where it goes"
            _, *hunks = _HUNK.split(block.text)
            for path, hunk in zip(hunks[::2], hunks[1::2], strict=True):
                _change(tree / path, hunk, block.place)
                changed.append(path)
    return list(dict.fromkeys(changed))


def _change(file: Path, hunk: str, place: str) -> None:
    lines = hunk.splitlines(keepends=True)
    before, after = ("".join(line[1:] or "\n" for line in lines if not line.startswith(sign)) for sign in "+-")
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{place}: {file.name} has {text.count(before)} such places:\n{before}"
    file.write_text(text.replace(before, after), encoding="utf-8")


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """Make the copy, with the page's blocks and the test that it names."""
    with copied_tree() as folder:
        apply(folder)
        shutil.copy(ROOT / "tests" / "data" / "test_rumours.txt", folder / "tests" / "recall" / "test_rumours.py")
        run(folder, "tools.reference")
        yield folder


def run(tree: Path, *words: str, **more: str) -> None:
    """Run a module of the environment in *tree*; it must end well."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("IMEM_") or name in KEPT}
    env |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", **more}
    ran = subprocess.run([sys.executable, "-m", *words], cwd=tree, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{' '.join(words)}\n{ran.stdout}{ran.stderr}"


def urls(settings: Settings) -> dict[str, str]:
    """Return the variables by which the tests of the copy use the servers of *settings*."""
    values = {
        name: getattr(settings, name)
        for name in Settings.model_fields
        if (name.endswith("_url") and name not in OPTIONAL) or name in {"neo4j_user", "neo4j_password"}
    }
    shown = {
        f"IMEM_{name.upper()}": value.get_secret_value() if hasattr(value, "get_secret_value") else str(value)
        for name, value in values.items()
    }
    return {"IMEM_TEST_STACK": "urls", **shown}


def test_each_file_is_named_beside_its_block() -> None:
    """Readers do not see the markers: the sentence before a block says which file it is or changes."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for block in blocks(PAGE):
        if block.marker:
            said = text.split(f"<!-- {block.marker}: {block.value} -->")[0].rstrip().rpartition("\n\n")[2]
            assert f"`{block.value}`" in said, block.place


@pytest.fixture
def servers(stack: Stack) -> Iterator[dict[str, str]]:
    """Lend the session's servers to the copy, and take its migration of the graph back: later tests do not know it."""
    settings = stack.settings
    yield urls(settings)
    assert settings.neo4j_url is not None
    assert settings.neo4j_password is not None
    auth = (settings.neo4j_user, settings.neo4j_password.get_secret_value())
    with neo4j.GraphDatabase.driver(settings.neo4j_url, auth=auth) as driver:
        driver.execute_query("DROP CONSTRAINT rumour_id IF EXISTS")
        driver.execute_query("MATCH (v:SchemaVersion {number: $number}) DELETE v", number=MIGRATION)


def test_what_the_page_adds_works(tree: Path, servers: dict[str, str]) -> None:
    """From the line through graph and briefing to the pipeline's report and the refused transition, on real servers."""
    run(tree, "pytest", "-q", "-n0", "tests/recall/test_rumours.py", **servers)


@pytest.mark.e2e
def test_what_looks_at_every_declaration_agrees(tree: Path, servers: dict[str, str]) -> None:
    """Types, style, imports, and the tests of the registries: the page names every place that a declaration needs."""
    if (ROOT / ".mypy_cache").is_dir():
        # What the page leaves alone was checked by `make lint`: mypy takes of it what has the same hash.
        shutil.copytree(ROOT / ".mypy_cache", tree / ".mypy_cache")
    run(tree, "mypy", ".")
    run(tree, "ruff", "check", ".")
    run(tree, "ruff", "format", "--check", ".")
    run(tree, "pytest", "-q", "-n0", *REGISTRIES, **servers)
