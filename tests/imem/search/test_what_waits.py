"""What a search says while vectors are still to be made, and what it shows of rows that are gone meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.kg.model import Analysis, Finding
from imem.recall.answers import Quality
from tests.imem.memories.conftest import Places, make_vectors
from tests.imem.search.conftest import MemoryHarness, memory_of, project
from tests.imem.search.test_search import day

ASKED = "zzz"
"""No text says it."""


async def test_a_text_without_a_vector_and_without_a_shared_word(harness: MemoryHarness, places: Places) -> None:
    """It cannot be found, so the answer is partial until its vector is made; before it was known, it is not missed."""
    places.cosines = {ASKED: 1.0}
    async with memory_of(harness) as memory:
        analysis = Analysis(id="a", subject_id="company:MU", date=day(2), kind="equity_research", summary="Oil rises.")
        await memory.record(analysis)
        places.away = True
        with pytest.raises(ImemError, match="busy"):
            await project(harness, places)
        places.away = False
        assert harness.rows("SELECT model FROM recall.record_text WHERE kind = 'Analysis'") == [{"model": None}]

        found = await memory.search(ASKED)
        assert (found.quality, found.items) == (Quality.PARTIAL, [])
        assert found.reason == "some of the texts have no vector yet and are found by words alone"
        assert (await memory.search(ASKED, as_of=day(1))).quality is Quality.EXACT
        assert (await memory.search(ASKED, kinds=["memory"])).quality is Quality.EXACT

        await project(harness, places)
        assert (await memory.search(ASKED)).quality is Quality.EXACT


async def test_a_memory_without_a_vector_and_without_a_shared_word(harness: MemoryHarness, places: Places) -> None:
    """Of the namespaces that are searched, in both searches; one that the model refuses waits for nothing."""
    places.cosines = {ASKED: 1.0}
    async with memory_of(harness) as memory:
        places.away = True
        await memory.remember("Oil rises.", namespace="symbol/XOM")
        places.away = False

        for found in (
            await memory.search(ASKED, kinds=["memory"]),
            await memory.memories.search(ASKED, namespace="symbol/*"),
        ):
            assert (found.quality, found.items) == (Quality.PARTIAL, [])
            assert found.reason == "some of the texts have no vector yet and are found by words alone"
        assert (await memory.memories.search(ASKED, namespace="symbol/MU")).quality is Quality.EXACT
        assert (await memory.memories.search(ASKED, namespace="symbol/*", as_of=day(1))).quality is Quality.EXACT

        await make_vectors(harness, places)
        assert (await memory.search(ASKED, kinds=["memory"])).quality is Quality.EXACT
        assert (await memory.memories.search(ASKED, namespace="symbol/*")).quality is Quality.EXACT

        # As a model leaves a text that it refuses: without a vector, and due no more.
        harness.rows("UPDATE recall.memory SET model = NULL, vector = NULL RETURNING 1")
        assert (await memory.memories.search(ASKED, namespace="symbol/*")).quality is Quality.EXACT


async def test_rows_that_are_deleted_meanwhile(
    harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two statements of a search: what is gone is not shown, and the rest is."""
    finding = {"analysis_id": "a", "subject_id": "company:MU", "agent": "ann", "domain": "supply"}
    async with memory_of(harness) as memory:
        for nth in range(2):
            await memory.record(Finding(id=f"f-{nth}", statement=f"Copper number {nth}.", **finding))
            await memory.remember(f"Copper is scarce in mine {nth}.", namespace="symbol/CU")
        await project(harness, places)
        gone = {
            "memories_by_version": "DELETE FROM recall.memory WHERE content LIKE '%% 0.' RETURNING 1",
            "record_texts_by_version": "DELETE FROM recall.record_text WHERE key = 'f-0' RETURNING 1",
        }
        named = Database.named

        async def late(self: Database, name: str, *given: Any, deadline: Deadline) -> list[Row]:
            if name in gone:
                assert harness.rows(gone.pop(name))
            return await named(self, name, *given, deadline=deadline)

        monkeypatch.setattr(Database, "named", late)
        found = await memory.search("copper", limit=10)
        assert not gone
        assert {item.text for item in found.items} == {"Copper number 1.", "Copper is scarce in mine 1."}
        assert found.total == 2

        gone["memories_by_version"] = "DELETE FROM recall.memory RETURNING 1"
        nothing = await memory.memories.search("copper", namespace="symbol/*")
        assert (gone, nothing.items, nothing.total) == ({}, [], 0)
