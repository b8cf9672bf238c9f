"""The extra ``langgraph`` brings what its examples import."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_import_of_the_examples_is_installed_by_the_extra_or_the_package() -> None:
    """By name: what another package happens to bring today may be gone tomorrow."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    stated = [*project["dependencies"], *project["optional-dependencies"]["langgraph"]]
    installed = {_normal(re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0]) for one in stated}
    ours = {"imem", "journal", "kg", "cache", "checkpoints", "sync", "credibility", "recall", "postmortem"}
    lacking = {}
    for file in (TOP / "examples" / "langgraph").glob("*.py"):
        tree = ast.parse(file.read_text())
        froms = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        names = froms | {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
        for name in {name for name in names if name.partition(".")[0] not in ours | sys.stdlib_module_names}:
            if installed.isdisjoint({_normal(one) for one in _distributions(name)}):
                lacking[file.name] = name

    assert lacking == {}


def _distributions(name: str) -> list[str]:
    """The distributions that hold a module: ``langgraph.graph`` is of another than ``langgraph.checkpoint``."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    origin = Path(spec.origin).resolve()
    return [
        one.metadata["Name"]
        for one in distributions()
        if any(Path(str(file.locate())).resolve() == origin for file in one.files or () if file.name == origin.name)
    ]
