"""The index of vectors finds what a comparison one by one finds, also where a filter leaves few."""

from __future__ import annotations

import asyncio

import pytest

from imem.memory import Memory
from tests.imem.memories.conftest import memory_of
from tests.imem.memory.conftest import MemoryHarness

QUESTIONS = [f"question {nth}" for nth in range(10)]
MOST = 10


async def nearest(memory: Memory, monkeypatch: pytest.MonkeyPatch, exact: int, agent: str | None) -> list[set[str]]:
    monkeypatch.setattr("imem.recall.memories.store.EXACT", exact)
    found = [await memory.memories.search(one, agent=agent, limit=MOST) for one in QUESTIONS]
    return [{item.content for item in one.items} for one in found]


@pytest.mark.spec("RC-19")
@pytest.mark.usefixtures("places")
async def test_the_index_finds_what_a_comparison_of_all_finds(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 300, of which a filter leaves one in twenty."""
    async with memory_of(harness, "ann") as ann, memory_of(harness, "bob") as bob:
        for memory, count in ((ann, 285), (bob, 15)):
            for start in range(0, count, 15):
                texts = (f"{memory._actor.id} {nth} said" for nth in range(start, start + 15))
                await asyncio.gather(*(memory.remember(text, namespace="symbol/MU") for text in texts))
        for agent in (None, "bob"):
            exact = await nearest(ann, monkeypatch, 10_000, agent)
            found = await nearest(ann, monkeypatch, 0, agent)
            assert all(len(one) == MOST for one in exact)
            assert sum(len(one & other) for one, other in zip(exact, found, strict=True)) >= 0.95 * MOST * len(
                QUESTIONS
            )
