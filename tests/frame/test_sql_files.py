"""The files of SQL: every statement is run by the product, and every name that is run exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imem.journal.statements import load, root_of
from tests.frame.test_contracts import FLOORS

PACKAGES = (*FLOORS, "imem")

RUN = re.compile(r'\b(?:sql|named|rows)\(\s*(?:conn,\s*)?"(\w+)"')
"""How the product runs a statement by its name."""


@pytest.mark.spec("GR-8")
def test_every_statement_is_used_and_every_use_exists(root: Path) -> None:
    """A statement that nobody runs is a promise that nobody keeps, such as a report that is never read."""
    code = "\n".join(path.read_text() for package in PACKAGES for path in sorted((root / package).rglob("*.py")))
    known = set(load(root_of("journal", "sql") / "queries", ".sql"))
    assert {name for name in known if f'"{name}"' not in code} == set()
    uses = set(RUN.findall(code))
    assert uses - known == set()
    assert len(uses) > len(known) / 2, "the pattern still finds uses"
