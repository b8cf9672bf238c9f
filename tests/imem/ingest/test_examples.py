"""The demo's examples: what is loaded is not loaded again, and what follows is waited for as long as anything moves."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from imem.commands.load import Waits, run
from imem.ingest.examples import STALLED_S, example_files, missing_examples, wait_for_pipelines
from imem.ingest.line_reader import sources_of
from imem.journal.errors import StackError
from imem.journal.settings import Role
from imem.services.stores import Stores
from tests.imem.memory.conftest import MemoryHarness, harness
from tests.proxy import slowly, through

__all__ = ["harness"]


def company(number: int) -> str:
    at = "2026-06-01T10:00:00Z"
    return f'{{"record": "Company", "known_at": "{at}", "core": {{"ticker": "T{number}"}}}}\n'


def settings(harness: MemoryHarness, **changes: Any) -> Any:
    return harness.of("demo", Role.HUMAN_ADMIN).model_copy(update={"may_import": True, **changes})


async def load(harness: MemoryHarness, *files: Path) -> None:
    sources = sources_of([str(file) for file in files])
    assert await run(settings(harness), sources, strict=False, waits=Waits(graph=False), report=None, as_json=True) == 0


def test_each_line_of_the_examples_is_an_event_of_its_own() -> None:
    """That is what is counted: no line of a file is there twice."""
    for file in example_files().values():
        lines = gzip.decompress(file.read_bytes()).splitlines()
        assert len(set(lines)) == len(lines)


async def test_what_is_loaded_whole_is_not_missing(harness: MemoryHarness, tmp_path: Path) -> None:
    """By the journal, not by a note beside it: nothing, a part, all, and all but one of two."""
    lines = [company(number) for number in range(5)]
    files = {f"import:{name}": tmp_path / f"{name}.jsonl.gz" for name in ("one", "two")}
    first, second = files.values()
    second.write_bytes(gzip.compress("".join(lines).encode()))
    first.write_bytes(gzip.compress("".join(lines[:3]).encode()))
    async with Stores.open(settings(harness)) as stores:
        assert await missing_examples(stores.database, files) == [first, second]
        await load(harness, first)
        assert await missing_examples(stores.database, files) == [second]
        # A load that was interrupted after three lines.
        first.write_bytes(gzip.compress("\n".join(lines).encode()))
        assert await missing_examples(stores.database, files) == [first, second]
        await load(harness, first, second)
        assert await missing_examples(stores.database, files) == []


def due(harness: MemoryHarness, number: int, queue: str = "claims") -> None:
    harness.rows("DELETE FROM due_row RETURNING 1")
    for key in range(number):
        harness.rows("INSERT INTO due_row (queue, kind, key) VALUES (%s, 'Finding', %s) RETURNING 1", queue, str(key))


def clock(*steps_s: float) -> Callable[[], float]:
    """Return a clock that goes on by these steps, and then stands."""

    def times() -> Iterator[float]:
        now = 0.0
        for step in steps_s:
            now += step
            yield now
        while True:
            yield now

    taken = times()
    return lambda: next(taken)


@pytest.mark.parametrize("queue", ["claims", "similar"])
async def test_it_waits_while_anything_moves(harness: MemoryHarness, queue: str) -> None:
    """However long that takes altogether, and whichever number it is that changes."""
    left = iter(range(6, -1, -1))
    due(harness, 7, queue)
    seen: list[int] = []

    def shown(row: Any) -> None:
        seen.append(row["due"] + row["uncompared"])
        if seen[-1]:
            due(harness, next(left), queue)

    async with Stores.open(settings(harness)) as stores:
        almost = clock(*[STALLED_S - 1] * 100)
        await wait_for_pipelines(stores.database, ["import:one"], shown=shown, runs=lambda: True, clock=almost)
    assert seen == [7, 6, 5, 4, 3, 2, 1, 0]


async def test_it_waits_while_servers_do_not_answer(harness: MemoryHarness) -> None:
    """A server that is away for a moment, as on a busy machine, is no reason to give up."""
    due(harness, 1)
    url = harness.settings.postgres_url
    assert url is not None
    async with slowly(url.get_secret_value()) as proxy:
        await proxy.refuse()
        looks, looked = 0, asyncio.Event()

        def runs() -> bool:
            nonlocal looks
            looks += 1
            if looks == 3:
                looked.set()
            return True

        async def comes_back() -> None:
            await looked.wait()
            due(harness, 0)
            await proxy.listen()

        changed = harness.of().model_copy(update={"postgres_url": SecretStr(through(url.get_secret_value(), proxy))})
        async with Stores.open(changed) as stores, asyncio.TaskGroup() as both:
            both.create_task(comes_back())
            ended = both.create_task(
                wait_for_pipelines(stores.database, ["import:one"], shown=lambda _: None, runs=runs)
            )
    assert ended.result()["due"] == 0


async def test_it_gives_up_only_for_a_reason(harness: MemoryHarness) -> None:
    """Nothing moves for a quarter of an hour, the stack has ended, or the graph has refused an event for good."""
    async with Stores.open(settings(harness)) as stores:

        def waiting(clock: Callable[[], float], *, runs: bool = True) -> Any:
            return wait_for_pipelines(
                stores.database, ["import:one"], shown=lambda _: None, runs=lambda: runs, clock=clock
            )

        due(harness, 2)
        with pytest.raises(StackError, match="Nothing has changed for 15 minutes"):
            await waiting(clock(0, 0, STALLED_S + 1))
        with pytest.raises(StackError, match="has ended"):
            await waiting(clock(), runs=False)
        due(harness, 0)
        await waiting(clock())
        file = harness_file(harness)
        await load(harness, file)
        harness.rows("UPDATE delivery SET state = 'dead' RETURNING 1")
        due(harness, 0)
        harness.rows("DELETE FROM track_due RETURNING 1")
        with pytest.raises(StackError, match="refused 1 event"):
            await waiting(clock())


def harness_file(harness: MemoryHarness) -> Path:
    assert harness.settings.agents is not None
    file = Path(harness.settings.agents).with_name("one.jsonl.gz")
    file.write_bytes(gzip.compress(company(1).encode()))
    return file
