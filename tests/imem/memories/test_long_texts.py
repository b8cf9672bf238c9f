"""Texts of several parts: each is found by the meaning of any of them, as a text of one part is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

import psycopg
import pytest

from imem.langgraph import MemoryStore
from imem.memory import Memory
from imem.recall.memories.model import CONTENT_CHARS, MemoriesSection, MemoryMatch, StoreStatus
from imem.recall.memories.parts import APART, PART_CHARS, SEPARATOR, split
from imem.recall.memories.pipelines import PAGE
from tests.imem.memories.conftest import Places, make_vectors, memory_of
from tests.imem.memory.conftest import MemoryHarness
from tests.waiting import until

PADDING: Final = (
    "The committee then heard the usual reports of its members, and thanked them for their work. " * 9
    + "So far the minutes."
)
WHEAT: Final = "A drought in the plains will halve the harvest of wheat."
LONG: Final = f"{PADDING}\n\n{PADDING}\n\n{WHEAT}"
QUERY: Final = "Will there be less bread grain?"
PARTS: Final = len(split(LONG))

MS: Final = 30_000
"""Budget of each call: however slow the machine is, answers are compared."""


@pytest.fixture
def wheat(places: Places) -> Places:
    """Place the last part of the long text where the query points, and a short one beside it."""
    assert split(LONG)[-1] == WHEAT
    places.cosines = {QUERY: 1.0, WHEAT: 0.95, "Bakers raise prices.": 0.5}
    return places


def best(found: MemoriesSection) -> tuple[str, str | None, float]:
    item = found.items[0]
    assert MemoryMatch.MEANING in item.found_by
    return item.content, item.excerpt, round(item.similarity or 0.0, 2)


async def test_the_end_of_a_long_text_is_found(harness: MemoryHarness) -> None:
    """By the default encoder, which reads the first 256 tokens of a text: of a note of ten thousand characters too."""
    text = f"{PADDING * 8}"[: CONTENT_CHARS - len(WHEAT) - 1] + f" {WHEAT}"
    async with memory_of(harness) as memory:
        await memory.remember(text, deadline_ms=MS)
        for nth in range(5):
            await memory.remember(f"Harbour {nth} reports its cargo of steel and timber.", deadline_ms=MS)
        [found] = (await memory.memories.search("Is a shortage of grain expected?", limit=1, deadline_ms=MS)).items
        assert found.content == text
        assert found.excerpt is not None
        assert WHEAT in found.excerpt
        assert MemoryMatch.MEANING in found.found_by


async def test_each_answer_shows_the_part_that_was_found(harness: MemoryHarness, wheat: Places) -> None:
    """The similarity is the best part's; a search over everything, a section of a prompt and a listing quote that."""
    async with memory_of(harness) as memory:
        await memory.remember(LONG)
        await memory.remember("Bakers raise prices.")
        found = await memory.memories.search(QUERY, deadline_ms=MS)
        assert best(found) == (LONG, WHEAT, 0.95)
        assert found.items[1].excerpt is None
        assert len(wheat.texts) == PARTS + 2, "each part is encoded once"

        [hit, *_] = (await memory.search(QUERY, kinds=["memory"], deadline_ms=MS)).items
        assert (hit.text, hit.part, round(hit.similarity or 0.0, 2)) == (WHEAT, PARTS - 1, 0.95)
        assert WHEAT in await memory.memories.prompt_section(QUERY, deadline_ms=MS)


@pytest.mark.usefixtures("wheat")
@pytest.mark.parametrize("exact", [5_000, 0])
async def test_parts_belong_to_their_version(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch, exact: int
) -> None:
    """Compared one by one and by the index: a version of the same text keeps them, one of another does not."""
    monkeypatch.setattr("imem.recall.memories.store.EXACT", exact)
    async with memory_of(harness) as memory:
        stored = await memory.remember(LONG)
        again = await memory.remember(LONG, metadata={"page": 1})
        assert (again.id, again.version, again.status) == (stored.id, 2, StoreStatus.UPDATED)
        assert best(await memory.memories.search(QUERY, deadline_ms=MS)) == (LONG, WHEAT, 0.95)
        assert (
            best(await memory.memories.search(QUERY, deadline_ms=MS, memory_type="semantic", agent="ann"))[1] == WHEAT
        )
        assert (await memory.memories.search(QUERY, deadline_ms=MS, agent="bob")).items == []

        before = datetime.now(UTC)
        await memory.memories.supersede(stored.id, "It rained.", reason="The forecast was wrong.")
        assert all(item.content != LONG for item in (await memory.memories.search(QUERY, deadline_ms=MS)).items)
        assert best(await memory.memories.search(QUERY, deadline_ms=MS, as_of=before)) == (LONG, WHEAT, 0.95)
    current = "SELECT count(*) FROM recall.memory_part WHERE superseded_at IS NULL"
    assert harness.rows(current) == [{"count": 0}]


@pytest.mark.usefixtures("wheat")
async def test_what_begins_or_reads_alike_is_not_merged(harness: MemoryHarness) -> None:
    """A part that says what a short memory says makes neither the other."""
    async with memory_of(harness) as memory:
        long = await memory.remember(LONG)
        short = await memory.remember(WHEAT)
        other = await memory.remember(LONG.replace("halve", "double"))
        assert len({long.id, short.id, other.id}) == 3
        assert [one.status for one in (long, short, other)] == [StoreStatus.NEW] * 3
        assert (await memory.remember(LONG)).status is StoreStatus.IDENTICAL


async def test_parts_are_made_later(harness: MemoryHarness, wheat: Places) -> None:
    """Without the encoder, and by another model: batch by batch, all parts of a text at once."""
    many = PAGE // PARTS + 2
    async with memory_of(harness) as memory:
        wheat.away = True
        for nth in range(many):
            assert (await memory.remember(f"{nth}. {LONG}")).waits
        wheat.away = False
        assert await make_vectors(harness, wheat) == {"vectors": many, "more": False}
        assert best(await memory.memories.search(QUERY, deadline_ms=MS))[1:] == (WHEAT, 0.95)
        assert harness.rows("SELECT count(*) FROM due_row WHERE queue = 'memories'") == [{"count": 0}]

    newer = Places(model_id="newer", cosines=wheat.cosines)
    assert (await make_vectors(harness, newer))["vectors"] == many
    rows = harness.rows(
        "SELECT e.model_id, count(*) FROM recall.memory_part AS p JOIN embedding_model AS e USING (model) GROUP BY 1"
    )
    assert rows == [{"model_id": "newer", "count": many * (PARTS - 1)}]


WAITING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.mark.parametrize("kept", ["memory", "item"])
@pytest.mark.usefixtures("wheat")
async def test_a_text_is_stored_again_while_its_vectors_are_made_anew(harness: MemoryHarness, kept: str) -> None:
    """The new version has the vectors of the new model, all of them, although the old one was read before."""
    async with memory_of(harness) as memory:
        store = MemoryStore(memory, deadline_ms=MS)

        async def put(title: str) -> None:
            if kept == "memory":
                await memory.remember(LONG, metadata={"title": title})
            else:
                await store.aput(("notes",), "plains", {"title": title, "text": LONG}, index=["text"])

        await put("Minutes")
        [row] = harness.rows("SELECT id FROM recall.memory")
        vector = f"[{','.join(['1'] + ['0'] * 15)}]"
        async with await psycopg.AsyncConnection.connect(harness.admin_url) as rival:
            [(model,)] = await (await rival.execute("SELECT recall.text_model_v1('newer', 16, 0)")).fetchall()
            await rival.commit()
            made = [model, [row["id"]], [1], [vector], [f"[{','.join([vector] * (PARTS - 1))}]"], [None]]
            await rival.execute(
                "SELECT recall.set_vectors_v1(%s::smallint, %s, %s::integer[], %s::text[], %s::text[], %s::text[])",
                made,
            )
            putting = asyncio.create_task(put("Report"))

            async def waits() -> bool:
                return bool(harness.rows(WAITING))

            await until(waits)
            await rival.commit()
        await putting
    rows = harness.rows(
        "SELECT m.version, m.model, vector_dims(m.vector) AS first, array_agg(vector_dims(p.vector)) AS others, "
        "array_agg(DISTINCT p.model) AS models "
        "FROM recall.memory AS m JOIN recall.memory_part AS p USING (id, version) GROUP BY 1, 2, 3 ORDER BY 1"
    )
    assert rows == [
        {"version": version, "model": model, "first": 16, "others": [16] * (PARTS - 1), "models": [model]}
        for version in (1, 2)
    ]


@pytest.mark.usefixtures("wheat")
def test_items_of_a_store_have_parts(harness: MemoryHarness) -> None:
    """All that is indexed of a value is found, whichever field holds it, and gone with it."""
    with Memory.sync(harness.of()) as memory:
        store = MemoryStore(memory, deadline_ms=MS)
        store.put(("notes",), "plains", {"title": "Minutes", "text": LONG})
        store.put(("notes",), "bakers", {"text": "Bakers raise prices."})
        store.put(("notes",), "title", {"title": "Minutes", "text": LONG}, index=["title"])
        found = store.search(("notes",), query=QUERY)
        assert [(item.key, round(item.score or 0.0, 2)) for item in found][:2] == [("plains", 0.95), ("bakers", 0.5)]
        assert store.search(("notes",), query=QUERY, filter={"title": "Minutes"})[0].key == "plains"
        store.put(("notes",), "plains", {"title": "Report", "text": LONG})
        assert store.search(("notes",), query=QUERY)[0].key == "plains"
        store.delete(("notes",), "plains")
        assert store.search(("notes",), query=QUERY)[0].key == "bakers"


async def test_each_indexed_text_of_an_item_has_vectors_of_its_own(harness: MemoryHarness, wheat: Places) -> None:
    """Of the fields the most similar one counts, and is the excerpt; made by a worker, the vectors are the same."""
    value = {
        "title": "Bakers raise prices.",
        "notes": [{"text": f"Note {nth}."} for nth in range(9)] + [{"text": WHEAT}],
    }
    async with memory_of(harness) as memory:
        store = MemoryStore(memory, fields=["title", "notes[*].text"], deadline_ms=MS)
        for key in ("now", "later"):
            wheat.away = key == "later"
            await store.aput(("notes",), key, value)
        wheat.away = False
        assert await make_vectors(harness, wheat) == {"vectors": 1, "more": False}
        found = await store.asearch(("notes",), query=QUERY)
        assert {(item.key, round(item.score or 0.0, 2)) for item in found} == {("now", 0.95), ("later", 0.95)}
        assert best(await memory.memories.search(QUERY, deadline_ms=MS))[1:] == (WHEAT, 0.95)


def test_of_many_texts_the_last_ones_share_parts() -> None:
    """So that none is lost, however many a value has."""
    texts = [f"Note {nth} of a list." for nth in range(400)]
    parts = split(SEPARATOR.join(texts))
    assert parts[: APART - 1] == texts[: APART - 1]
    assert len(parts) < 2 * APART
    assert all(any(text in part for part in parts) for text in texts)


def test_parts_cover_the_text() -> None:
    """Nothing is lost but blanks between parts, up to the longest memory."""
    text = (PADDING * 20)[:CONTENT_CHARS].strip()
    parts = split(text)
    assert all(0 < len(part) <= PART_CHARS for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())
