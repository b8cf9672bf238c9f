"""The daily pipelines: near-duplicates are merged, importance decays, unused memories are deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from imem.journal.errors import PostgresUnavailable
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings
from imem.kg.similarity.embedders import unit
from imem.recall.memories import upkeep
from imem.recall.memories.model import StoreStatus
from imem.recall.memories.upkeep import UpkeepRules, consolidate, maintain
from tests.imem.memories.conftest import NEVER, Places, make_vectors, memory_of
from tests.imem.memory.conftest import MemoryHarness
from tests.servers import as_pipelines

RULES = UpkeepRules()


OLD = "UPDATE recall.memory SET created_at = now() - interval '40 days', recorded_at = now() - interval '40 days'"
A_DAY_LATER = "UPDATE recall.memory_namespace SET maintained_at = maintained_at - interval '1 day'"


@pytest_asyncio.fixture
async def pipelines(harness: MemoryHarness) -> AsyncIterator[Database]:
    assert harness.settings.postgres_url is not None
    database = Database(as_pipelines(harness.settings, harness.settings.postgres_url.get_secret_value()), size=2)
    yield database
    await database.close()


def on_a_circle(degrees: float) -> Any:
    return unit([[np.cos(np.radians(degrees)), np.sin(np.radians(degrees)), *([0.0] * 62)]])[0]


ANGLES = {"Demand is strong.": 0.0, "Strong demand.": 20.0, "Demand is rather strong.": 41.0, "Demand was weak.": 120.0}
"""cos 20° is 0.94, cos 21° 0.93, cos 41° 0.75: a chain. All below 0.95, so that storing makes nothing one."""


@pytest.mark.spec("RC-20")
@pytest.mark.parametrize("page", [upkeep.PAGE, 1])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1), (3, 2, 1, 0)])
async def test_what_says_the_same_becomes_one(
    harness: MemoryHarness,
    places: Places,
    pipelines: Database,
    monkeypatch: pytest.MonkeyPatch,
    *,
    order: Sequence[int],
    page: int,
) -> None:
    """In whichever order it was stored: of a chain the two nearest, with what both knew; the other stays in history."""
    monkeypatch.setattr(upkeep, "PAGE", page)
    monkeypatch.setattr(
        Places, "_vector", lambda self, text: on_a_circle(ANGLES[text]) if text in ANGLES else self._noise(text)
    )
    texts = list(ANGLES)
    async with memory_of(harness) as memory:
        for number in order:
            await memory.remember(texts[number], metadata={str(number): True}, importance=0.5 + number / 10)
        await memory.remember("Strong demand.", namespace="symbol/MU")
        await memory.remember("Demand is strong.", namespace="symbol/MU", conversation_id="c")
        assert await consolidate(pipelines, places, RULES, until=NEVER) == {"merged": 1, "more": False}
        found = {item.content: item for item in (await memory.memories.search("demand", namespace="agent/ann")).items}
        assert sorted(found) == ["Demand is rather strong.", "Demand was weak.", "Strong demand."]
        kept = found["Strong demand."]
        assert (kept.importance, kept.metadata) == (0.6, {"0": True, "1": True})
        versions = {one.content: one for one in await memory.memories.history(kept.id) if one.superseded_by}
        assert versions["Demand is strong."].superseded_by == kept.id
        counts = harness.rows("SELECT memories FROM recall.memory_namespace ORDER BY namespace")
        assert counts == [{"memories": 3}, {"memories": 2}]
        assert await consolidate(pipelines, places, RULES, until=NEVER) == {"merged": 0, "more": False}


@pytest.mark.spec("RC-20")
@pytest.mark.parametrize("seed", [None, 1, 2])
async def test_more_than_are_compared_at_once_do_not_depend_on_their_order(
    harness: MemoryHarness, places: Places, pipelines: Database, monkeypatch: pytest.MonkeyPatch, seed: int | None
) -> None:
    """A long chain, compared in blocks: whatever was stored first, the same texts are kept."""
    monkeypatch.setattr(upkeep, "MOST_ALIKE", 3)
    monkeypatch.setattr(upkeep, "PAGE", 1)
    # From 18.5° to 23.3° between neighbours, whose similarity falls from 0.948 to 0.918; cos 37° is 0.80.
    angles = {letter * (nth + 1): 18.5 * nth + 0.4 * nth * (nth - 1) for nth, letter in enumerate("abcdefgh")}
    monkeypatch.setattr(
        Places, "_vector", lambda self, text: on_a_circle(angles[text]) if text in angles else self._noise(text)
    )
    texts = list(angles)
    if seed is not None:
        Random(seed).shuffle(texts)
    async with memory_of(harness) as memory:
        for text in texts:
            await memory.remember(text)
        assert (await consolidate(pipelines, places, RULES, until=NEVER))["more"] is False
        found = await memory.memories.search("chain", namespace="agent/ann", limit=50)
    left = sorted(item.content for item in found.items)
    assert left == ["bb", "dddd", "eeeee", "ggggggg", "hhhhhhhh"]


@pytest.mark.spec("RC-21")
@pytest.mark.usefixtures("places")
async def test_unused_memories_decay_and_are_deleted(harness: MemoryHarness, pipelines: Database) -> None:
    """A memory never found decays too, once a day; it is deleted if it is unimportant, old and hardly ever found."""
    conditions = {
        "old, unimportant, never found": (RULES.least_importance / 2, RULES.age, 0),
        "old, unimportant, twice found": (RULES.least_importance / 2, RULES.age, RULES.accesses - 1),
        "young": (RULES.least_importance / 2, RULES.age - timedelta(days=2), 0),
        "found often": (RULES.least_importance / 2, RULES.age, RULES.accesses),
        "important": (0.5, RULES.age, 0),
        "at the bound": (RULES.least_importance, RULES.age, 0),
        "found lately": (0.5, timedelta(days=1), 1),
    }
    async with memory_of(harness) as memory:
        for name, (importance, age, accesses) in conditions.items():
            one = await memory.remember(name, importance=importance)
            before = age + timedelta(minutes=1)
            harness.rows(
                "UPDATE recall.memory SET created_at = now() - %s, recorded_at = now() - %s WHERE id = %s",
                before,
                before,
                one.id,
            )
            if accesses:
                harness.rows("INSERT INTO recall.memory_use VALUES (%s, %s, now() - %s)", one.id, accesses, before)

        assert await maintain(pipelines, RULES, until=NEVER) == {"decayed": 1, "deleted": 2, "more": False}
        left = {
            item.content: item.importance
            for item in (await memory.memories.search("old and important", deadline_ms=30_000)).items
        }
        assert left.keys() == conditions.keys() - {"old, unimportant, never found", "old, unimportant, twice found"}
        assert left["important"] == pytest.approx(0.5 * RULES.daily_decay)
        assert (left["at the bound"], left["found lately"]) == (RULES.least_importance, 0.5)
        assert harness.rows("SELECT memories FROM recall.memory_namespace") == [{"memories": 5}]
        assert await maintain(pipelines, RULES, until=NEVER) == {"decayed": 0, "deleted": 0, "more": False}, (
            "once a day"
        )
        harness.rows(
            "UPDATE recall.memory_use SET last_accessed_at = last_accessed_at - interval '1 day' WHERE access_count < 3"
        )
        harness.rows(A_DAY_LATER)
        assert (await maintain(pipelines, RULES, until=NEVER))["decayed"] == 1


@pytest.mark.usefixtures("places")
async def test_what_is_left_of_importance_is_that_of_the_moment(harness: MemoryHarness, pipelines: Database) -> None:
    """An answer as of a day has the importance of that day; writes go by what is left."""
    async with memory_of(harness) as memory:
        one = await memory.remember("Margins rise.", importance=0.5)
        other = await memory.remember("The plant opens.", importance=0.5)
        harness.rows(OLD)
        moments, shown = [], []
        for _ in range(3):
            moments.append(datetime.now(UTC))
            found = await memory.memories.search("margins", as_of=moments[-1])
            shown.append(found.items)
            assert (await maintain(pipelines, RULES, until=NEVER))["decayed"] == 2
            harness.rows(A_DAY_LATER)
        left = [0.5 * RULES.daily_decay**day for day in range(4)]
        for moment, items, importance in zip(moments, shown, left, strict=False):
            assert (await memory.memories.search("margins", as_of=moment)).items == items
            assert [item.importance for item in items] == pytest.approx([importance] * 2)
        assert [item.importance for item in (await memory.memories.search("margins")).items] == pytest.approx(
            left[3:] * 2
        )

        again = await memory.remember("Margins rise.", importance=0.49)
        assert (again.status, again.version) == (StoreStatus.UPDATED, 2), "it is more than what was left"
        new = await memory.memories.supersede(other.id, "The plant closes.", reason="It was said.")
        current = {item.id: item.importance for item in (await memory.memories.search("margins")).items}
        assert current == pytest.approx({one.id: 0.49, new.id: left[3]})
    assert harness.rows(
        "SELECT count(*) FROM recall.memory WHERE importance <> 0.5 AND id <> ALL (%s)", [one.id, new.id]
    ) == [{"count": 0}], "no version was rewritten"


@pytest.mark.spec("RC-21")
@pytest.mark.usefixtures("places")
async def test_a_large_namespace_decays_page_by_page(
    harness: MemoryHarness, pipelines: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that ends between two pages goes on where it was: each memory decays once, and is deleted once."""
    monkeypatch.setattr(upkeep, "MAINTAINED", 2)
    async with memory_of(harness) as memory:
        for letter in "abcdefg":
            await memory.remember(f"something, {letter}")
        await memory.remember("unimportant", importance=0.01)
    harness.rows(OLD.replace("40 days", "100 days"))
    real, pages = Database.commit, 0

    async def commit(self: Database, name: str, given: Any = None, **more: Any) -> Any:
        nonlocal pages
        pages += name == "maintain_memories"
        if pages in {2, 5}:
            pages += 1
            raise PostgresUnavailable("It was killed.")
        return await real(self, name, given, **more)

    monkeypatch.setattr(Database, "commit", commit)
    for _ in range(2):
        with pytest.raises(PostgresUnavailable):
            await maintain(pipelines, RULES, until=NEVER)
    steps = harness.rows("SELECT cardinality(at) AS steps FROM recall.memory_decay")
    assert 0 < len(steps) < 7, "it is under way"
    assert (await maintain(pipelines, RULES, until=NEVER))["more"] is False
    steps = harness.rows("SELECT cardinality(at) AS steps FROM recall.memory_decay")
    assert steps == [{"steps": 1}] * 7
    assert harness.rows("SELECT memories FROM recall.memory_namespace WHERE maintained_to IS NULL") == [{"memories": 7}]
    assert await maintain(pipelines, RULES, until=NEVER) == {"decayed": 0, "deleted": 0, "more": False}, "once a day"


@pytest.mark.usefixtures("places")
async def test_rules_are_settings(harness: MemoryHarness, pipelines: Database) -> None:
    """Every threshold and rate, by the names of the settings."""
    assert UpkeepRules.of(harness.settings) == RULES
    given = {
        "memory_merge_similarity": 0.8,
        "memory_unused_days": 1,
        "memory_daily_decay": 0.5,
        "memory_least_importance": 0.3,
        "memory_delete_days": 2,
        "memory_delete_accesses": 1,
    }
    rules = UpkeepRules.of(Settings.read({}, **given))
    assert rules == UpkeepRules(0.8, timedelta(days=1), 0.5, 0.3, timedelta(days=2), 1)
    async with memory_of(harness) as memory:
        await memory.remember("Margins rise.", importance=0.5)
    harness.rows(OLD.replace("40 days", "3 days"))
    assert await maintain(pipelines, rules, until=NEVER) == {"decayed": 1, "deleted": 1, "more": False}


@pytest.mark.usefixtures("places")
async def test_what_was_imported_is_as_old_as_its_import(harness: MemoryHarness, pipelines: Database) -> None:
    """However old it is where it comes from: it neither decays nor is deleted on the day after."""
    async with memory_of(harness) as memory:
        for name, importance in (("old", 0.5), ("old and unimportant", RULES.least_importance / 2)):
            one = await memory.remember(name, importance=importance)
            harness.rows("UPDATE recall.memory SET created_at = '2020-01-01' WHERE id = %s", one.id)
    assert await maintain(pipelines, RULES, until=NEVER) == {"decayed": 0, "deleted": 0, "more": False}


async def test_a_large_namespace_is_consolidated_page_by_page(
    harness: MemoryHarness, places: Places, pipelines: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No statement looks at more than a page of new memories, and what says the same on two of them becomes one."""
    monkeypatch.setattr(upkeep, "PAGE", 3)
    looked: list[int] = []
    real = Database.named

    async def named(self: Database, name: str, given: Any = None, **more: Any) -> Any:
        if name == "similar_memories":
            [row] = harness.rows(
                "SELECT count(*) FROM recall.memory AS m JOIN recall.memory_namespace AS s USING (namespace) "
                "WHERE m.recorded_at > greatest(s.consolidated_at, %s) AND m.recorded_at <= %s "
                "AND m.superseded_at IS NULL",
                given["after"],
                given["at"],
            )
            looked.append(row["count"])
        return await real(self, name, given, **more)

    monkeypatch.setattr(Database, "named", named)
    places.cosines = {"head of it": 1.0, "tail of it": 0.93}
    async with memory_of(harness) as memory:
        await memory.remember("head of it")
        for letter in "abcdefgh":
            await memory.remember(f"something else, {letter}")
        await memory.remember("tail of it")
    assert await consolidate(pipelines, places, RULES, until=NEVER) == {"merged": 1, "more": False}
    assert len(looked) >= 4
    assert max(looked) == 3


async def test_a_vector_that_is_made_late_is_compared_too(
    harness: MemoryHarness, places: Places, pipelines: Database
) -> None:
    """Of a text that was stored without the encoder, the first round after its vector is made finds what is similar."""
    places.cosines = {"a report": 1.0, "the report": 0.93}
    async with memory_of(harness) as memory:
        places.away = True
        await memory.remember("the report")
        places.away = False
        await memory.remember("a report")
    assert (await consolidate(pipelines, places, RULES, until=NEVER))["merged"] == 0
    await make_vectors(harness, places)
    assert await consolidate(pipelines, places, RULES, until=NEVER) == {"merged": 1, "more": False}
