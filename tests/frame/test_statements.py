"""Tests claim statements of the specification; the claims are true to it."""

from __future__ import annotations

import ast
from pathlib import Path

RELEASE = (
    *(f"GR-{number}" for number in range(1, 16)),
    *("AC-1", "AC-5", "AC-6", "AC-7"),
    *("IF-1", "IF-5", "IF-10", "IF-11"),
    *(f"CK-{number}" for number in range(1, 47)),
    *(f"SY-{number}" for number in range(1, 17)),
    *(f"PF-{number}" for number in (*range(1, 13), 15)),
    *("RS-1", "RS-2", "RS-3", "RS-4", "RS-6"),
)
"""What the present release promises."""


def known(root: Path) -> set[str]:
    """Return the ids of the specification, from the copy beside the tests."""
    lines = (root / "tests" / "data" / "statements.txt").read_text(encoding="utf-8").splitlines()
    return {line.partition("\t")[0] for line in lines if line and not line.startswith("#")}


def claims(root: Path, python_files: tuple[Path, ...]) -> dict[str, list[str]]:
    """Return id → where it is claimed, read from the syntax tree: a claim in a comment does not count."""
    found: dict[str, list[str]] = {}
    for path in python_files:
        if path.parts[0] != "tests":
            continue
        for node in ast.walk(ast.parse((root / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "spec":
                for argument in node.args:
                    assert isinstance(argument, ast.Constant), f"{path}:{node.lineno}: an id is written out"
                    found.setdefault(str(argument.value), []).append(f"{path}:{node.lineno}")
    return found


def test_claimed_statements_exist(root: Path, python_files: tuple[Path, ...]) -> None:
    """A test cannot claim what the specification does not say."""
    assert {claim: places for claim, places in claims(root, python_files).items() if claim not in known(root)} == {}


def test_what_this_release_promises_is_claimed(root: Path, python_files: tuple[Path, ...]) -> None:
    """Each statement of the release has a test that fails when it ceases to hold."""
    assert sorted(set(RELEASE) - set(claims(root, python_files))) == []
