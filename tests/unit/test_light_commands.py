"""A command imports what it needs: no driver and no statistics for a help, a version or a status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from docs import from_code
from imem.cli import app
from imem.commands.table import GROUPS
from tests.unit.test_bad_questions import NOWHERE

ROOT = Path(__file__).resolve().parents[2]

HEAVY = (
    "celery", "cryptography", "fsspec", "holidays", "httpx", "langchain_core", "langgraph", "mcp", "neo4j", "numpy",
    "onnxruntime", "opentelemetry", "pandas", "prometheus_client", "psycopg", "pyarrow", "redis", "scipy", "tokenizers",
    "uvicorn",
)  # fmt: skip
"""Packages that take longer to import than a command's help may take."""

COMMAND = """
import os
sys.argv, sys.stdout = ["imem", *{words!r}], open(os.devnull, "w")
from imem.cli import main
try:
    main()
except SystemExit:
    pass
"""


def loaded_by(program: str, **env: str) -> set[str]:
    """Return the heavy packages that a process has imported when it has run *program*."""
    report = f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]), file=sys.__stdout__)"
    script = f"import json, sys\n{program}\n{report}"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "words",
    [
        ["--version"], ["--help"], [], ["nonsense"], ["status"], ["status", "--json"], ["clock", "show"],
        ["doctor", "--settings"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_cheap_command_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    """Where no stack runs."""
    assert loaded_by(COMMAND.format(words=words), IMEM_HOME=str(tmp_path)) == set()


def test_no_commands_help_imports_anything_heavy() -> None:
    """Neither the module of a command nor what that needs for its arguments."""
    assert (
        loaded_by(
            "import typer.main; from imem.cli import app; from imem.commands.table import GROUPS\n"
            "for entries in GROUPS.values():\n    for name in entries: typer.main.get_command(app).load(name)"
        )
        == set()
    )


def test_a_memory_is_opened_without_what_a_search_does_not_need(tmp_path: Path) -> None:
    """Neo4j's driver imports pandas and pyarrow where they are installed; intervals of scores take SciPy."""
    unneeded = {"celery", "fsspec", "httpx", "langgraph", "neo4j", "onnxruntime", "pandas", "pyarrow", "scipy"}
    opened = loaded_by(
        "import asyncio; from imem import Memory\n"
        "async def opened():\n"
        "    async with Memory.open(): pass\n"
        "asyncio.run(opened())",
        **NOWHERE,
        IMEM_HOME=str(tmp_path),
    )
    assert opened & unneeded == set()


def test_the_table_says_what_the_commands_say() -> None:
    """Their first paragraphs; each command that a module of the table has stands in the table."""
    group: Any = typer.main.get_command(app)
    said = {
        name: " ".join((command.help or "").strip().split("\n\n")[0].split())
        for name, command in from_code.inner_commands(group)
    }
    assert said == {name: entry.help for entries in GROUPS.values() for name, entry in entries.items()}


def test_no_command_is_missing_in_the_table() -> None:
    """What the modules of the table define is listed."""
    group: Any = typer.main.get_command(app)
    defined: set[str] = set()
    for module in {entry.module for entries in GROUPS.values() for entry in entries.values()}:
        defined |= set(group.module_commands(module))

    # `imem learning` takes the commands about patterns in.
    assert defined == {name for entries in GROUPS.values() for name in entries}
