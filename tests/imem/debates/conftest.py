"""The harness of searches: a journal of the test's own, whoever records, and the pipeline that projects texts."""

from __future__ import annotations

from tests.imem.search.conftest import MemoryHarness, harness, memory_of, places, project

__all__ = ["MemoryHarness", "harness", "memory_of", "places", "project"]
