"""
The worlds that are measured, and the one table in which everything ends.

``IMEM_BENCH_SCALE=tiny`` measures on a 25th, to work on the measurements themselves; the bars hold for the full
scale alone.
"""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
import pytest_asyncio

from imem.journal.statements import root_of
from imem.memory import Memory
from imem.services.stores import Stores
from tests.bench.generate import write
from tests.bench.table import Table
from tests.bench.worlds import World
from tests.bench.worlds import world as make_world
from tests.conftest import settings_for, temporary_home

SCALES: Final = {"full": (1_500, 15_000), "tiny": (60, 600)}
PATTERNS: Final = {"full": (2_000, 5_000), "tiny": (80, 200)}
"""How many patterns stand beside so many analyses."""
EXAMPLES: Final = ("trading_desk", "flusight")

HEAP_MB: Final = 1024
PAGECACHE_MB: Final = 256

BUILD: Final = Path(__file__).resolve().parents[2] / "build"

TABLE: Final = pytest.StashKey[Table]()


def _scale() -> str:
    scale = os.environ.get("IMEM_BENCH_SCALE", "full")
    if scale not in SCALES:
        raise pytest.UsageError(f"IMEM_BENCH_SCALE={scale} is none of {', '.join(SCALES)}.")
    return scale


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TABLE] = Table(_scale())


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    table = config.stash[TABLE]
    if table.figures:
        table.write(BUILD)
        terminalreporter.section("what was measured")
        terminalreporter.write_line(table.text())
        terminalreporter.write_line(f"\nAlso in {BUILD.name}/bench.json and {BUILD.name}/bench.md.")


@pytest.fixture(scope="session")
def table(pytestconfig: pytest.Config) -> Table:
    return pytestconfig.stash[TABLE]


@pytest.fixture(scope="session", params=["examples", "small", "large"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Give a stack with one data set loaded, measured while it was."""
    with TemporaryDirectory(prefix="imem-bench-") as folder, temporary_home() as home, temporary_home() as bare:
        settings = settings_for(home, neo4j_heap_mb=HEAP_MB, neo4j_pagecache_mb=PAGECACHE_MB)
        patterns = 0
        if request.param == "examples":
            examples = root_of("imem", "examples")
            data, paths = "examples", [examples / name / f"{name}.jsonl.gz" for name in EXAMPLES]
        else:
            analyses = SCALES[_scale()][request.param == "large"]
            patterns = PATTERNS[_scale()][request.param == "large"]
            data, paths = f"{analyses:,}", [Path(folder) / f"history-{analyses}.jsonl"]
            write(analyses, paths[0])
        with make_world(data, paths, bare, settings, patterns=patterns) as made:
            # As docs/explanation/cached-results.md recommends for a long-lived process.
            gc.collect()
            gc.freeze()
            yield made
            gc.unfreeze()


@pytest_asyncio.fixture
async def stores(world: World) -> AsyncIterator[Stores]:
    async with Stores.open(world.settings) as opened:
        yield opened


@pytest.fixture
def memory(stores: Stores) -> Memory:
    return Memory(stores)
