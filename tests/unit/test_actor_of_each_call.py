"""One gateway serves all actors of a process: whatever serves a caller names the caller in each of its calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent.parent

ASKED = frozenset({"authorize", "authorize_and_execute", "authorize_patterns", "append", "may"})
"""Methods of the gateway that decide by the actor."""

SERVING = sorted(
    [*(TOP / "imem" / "services").rglob("*.py"), *(TOP / "recall").rglob("*.py"), TOP / "imem" / "memory.py"]
)


def calls_of(path: Path) -> Iterator[ast.Call]:
    """Calls of the gateway's methods in a module, whatever the gateway is called there."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKED:
            holder = ast.unparse(node.func.value)
            if holder.rpartition(".")[2] in {"gateway", "_gateway"}:
                yield node


@pytest.mark.parametrize("path", SERVING, ids=lambda path: str(path.relative_to(TOP)))
def test_each_call_names_its_actor(path: Path) -> None:
    """One that names none would be made in the name of the process."""
    for call in calls_of(path):
        assert "actor" in {keyword.arg for keyword in call.keywords}, f"{path.name}:{call.lineno}"


def test_the_calls_are_found() -> None:
    """Or else nothing would have been looked at."""
    assert sum(len(list(calls_of(path))) for path in SERVING) >= 15
