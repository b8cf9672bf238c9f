"""LangGraph's own suite, counted: its verdict is good as well when tests are missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

COUNTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "prune": 8,
    "copy_thread": 8,
    "delete_for_runs": 7,
}
"""Capability → how many tests of it passed."""


@pytest.mark.spec("IF-5")
async def test_the_suite_passes_by_count(either: Any) -> None:
    """All of it, through the methods for tasks and through those for threads, which the suite itself never calls."""

    @checkpointer_test(name="ImemSaver")
    async def ours() -> AsyncIterator[Any]:
        yield either

    report = await validate(ours)

    assert {name: result.failures for name, result in report.results.items() if result.failures} == {}
    assert {name: result.tests_passed for name, result in report.results.items()} == COUNTS
    assert report.passed_all_base()
