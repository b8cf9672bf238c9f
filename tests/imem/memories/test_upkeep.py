"""The daily pipelines: near-duplicates are merged, importance decays, unused memories are deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from imem.journal.postgres.database import Database
from imem.kg.similarity.embedders import unit
from imem.recall.memories import upkeep
from imem.recall.memories.upkeep import ACCESSES, AGE, DECAY, LEAST, UNUSED, consolidate, maintain
from tests.imem.memories.conftest import NEVER, Places, make_vectors, memory_of
from tests.imem.memory.conftest import House
from tests.servers import as_pipelines


@pytest_asyncio.fixture
async def pipelines(house: House) -> AsyncIterator[Database]:
    assert house.settings.postgres_url is not None
    database = Database(as_pipelines(house.settings, house.settings.postgres_url.get_secret_value()), size=2)
    yield database
    await database.close()


def on_a_circle(degrees: float) -> Any:
    return unit([[np.cos(np.radians(degrees)), np.sin(np.radians(degrees)), *([0.0] * 62)]])[0]


ANGLES = {"Demand is strong.": 0.0, "Strong demand.": 20.0, "Demand is rather strong.": 41.0, "Demand was weak.": 120.0}
"""cos 20° is 0.94, cos 21° 0.93, cos 41° 0.75: a chain. All below 0.95, so that storing makes nothing one."""


@pytest.mark.spec("RC-20")
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1), (3, 2, 1, 0)])
async def test_what_says_the_same_becomes_one(
    house: House, places: Places, pipelines: Database, monkeypatch: pytest.MonkeyPatch, order: Sequence[int]
) -> None:
    """In whichever order it was stored: of a chain the two nearest, with what both knew; the other stays in history."""
    monkeypatch.setattr(
        Places, "_vector", lambda self, text: on_a_circle(ANGLES[text]) if text in ANGLES else self._noise(text)
    )
    texts = list(ANGLES)
    async with memory_of(house) as memory:
        for number in order:
            await memory.remember(texts[number], metadata={str(number): True}, importance=0.5 + number / 10)
        await memory.remember("Strong demand.", namespace="symbol/MU")
        await memory.remember("Demand is strong.", namespace="symbol/MU", conversation_id="c")
        assert await consolidate(pipelines, places, until=NEVER) == {"merged": 1, "more": False}
        found = {item.content: item for item in (await memory.memories.search("demand", namespace="agent/ann")).items}
        assert sorted(found) == ["Demand is rather strong.", "Demand was weak.", "Strong demand."]
        kept = found["Strong demand."]
        assert (kept.importance, kept.metadata) == (0.6, {"0": True, "1": True})
        versions = {one.content: one for one in await memory.memories.history(kept.id) if one.superseded_by}
        assert versions["Demand is strong."].superseded_by == kept.id
        counts = house.rows("SELECT memories FROM recall.memory_namespace ORDER BY namespace")
        assert counts == [{"memories": 3}, {"memories": 2}]
        assert await consolidate(pipelines, places, until=NEVER) == {"merged": 0, "more": False}


@pytest.mark.spec("RC-21")
@pytest.mark.usefixtures("places")
async def test_what_nobody_needs_fades(house: House, pipelines: Database) -> None:
    """A memory never found decays too, once a day; it is deleted if it is unimportant, old and hardly ever found."""
    conditions = {
        "old, unimportant, never found": (LEAST / 2, AGE, 0),
        "old, unimportant, twice found": (LEAST / 2, AGE, ACCESSES - 1),
        "young": (LEAST / 2, AGE - timedelta(days=2), 0),
        "found often": (LEAST / 2, AGE, ACCESSES),
        "important": (0.5, AGE, 0),
        "at the bound": (LEAST, AGE, 0),
        "found lately": (0.5, timedelta(days=1), 1),
    }
    async with memory_of(house) as memory:
        for name, (importance, age, accesses) in conditions.items():
            one = await memory.remember(name, importance=importance)
            before = age + timedelta(minutes=1)
            house.rows(
                "UPDATE recall.memory SET created_at = now() - %s, recorded_at = now() - %s WHERE id = %s",
                before,
                before,
                one.id,
            )
            if accesses:
                house.rows("INSERT INTO recall.memory_use VALUES (%s, %s, now() - %s)", one.id, accesses, before)

        assert await maintain(pipelines, until=NEVER) == {"decayed": 1, "deleted": 2, "more": False}
        left = {
            row["content"]: row["importance"] for row in house.rows("SELECT content, importance FROM recall.memory")
        }
        assert left.keys() == conditions.keys() - {"old, unimportant, never found", "old, unimportant, twice found"}
        assert left["important"] == pytest.approx(0.5 * DECAY)
        assert (left["at the bound"], left["found lately"]) == (LEAST, 0.5)
        assert house.rows("SELECT memories FROM recall.memory_namespace") == [{"memories": 5}]
        assert await maintain(pipelines, until=NEVER) == {"decayed": 0, "deleted": 0, "more": False}, "once a day"
        house.rows("UPDATE recall.memory_namespace SET maintained_at = now() - interval '1 day'")
        assert (await maintain(pipelines, until=NEVER))["decayed"] == 1
    assert timedelta(days=1) < UNUSED


@pytest.mark.usefixtures("places")
async def test_what_was_imported_is_as_old_as_its_import(house: House, pipelines: Database) -> None:
    """However old it is where it comes from: it neither decays nor is deleted on the day after."""
    async with memory_of(house) as memory:
        for name, importance in (("old", 0.5), ("old and unimportant", LEAST / 2)):
            one = await memory.remember(name, importance=importance)
            house.rows("UPDATE recall.memory SET created_at = '2020-01-01' WHERE id = %s", one.id)
    assert await maintain(pipelines, until=NEVER) == {"decayed": 0, "deleted": 0, "more": False}


async def test_a_large_namespace_is_consolidated_page_by_page(
    house: House, places: Places, pipelines: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No statement looks at more than a page of new memories, and what says the same on two of them becomes one."""
    monkeypatch.setattr(upkeep, "PAGE", 3)
    looked: list[int] = []
    real = Database.named

    async def named(self: Database, name: str, given: Any = None, **more: Any) -> Any:
        if name == "similar_memories":
            [row] = house.rows(
                "SELECT count(*) FROM recall.memory AS m JOIN recall.memory_namespace AS s USING (namespace) "
                "WHERE m.recorded_at > s.consolidated_at AND m.recorded_at <= %s AND m.superseded_at IS NULL",
                given["at"],
            )
            looked.append(row["count"])
        return await real(self, name, given, **more)

    monkeypatch.setattr(Database, "named", named)
    places.cosines = {"head of it": 1.0, "tail of it": 0.93}
    async with memory_of(house) as memory:
        await memory.remember("head of it")
        for letter in "abcdefgh":
            await memory.remember(f"something else, {letter}")
        await memory.remember("tail of it")
    assert await consolidate(pipelines, places, until=NEVER) == {"merged": 1, "more": False}
    assert len(looked) >= 4
    assert max(looked) == 3
    assert upkeep.MERGED == 0.90


async def test_a_vector_that_is_made_late_is_compared_too(house: House, places: Places, pipelines: Database) -> None:
    """Of a text that was stored without the encoder, the first round after its vector is made finds what is similar."""
    places.cosines = {"a report": 1.0, "the report": 0.93}
    async with memory_of(house) as memory:
        places.away = True
        await memory.remember("the report")
        places.away = False
        await memory.remember("a report")
    assert (await consolidate(pipelines, places, until=NEVER))["merged"] == 0
    await make_vectors(house, places)
    assert await consolidate(pipelines, places, until=NEVER) == {"merged": 1, "more": False}
