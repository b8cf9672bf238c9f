"""Who said a memory, and when: both count in a search, and nothing of them is in what it shows."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import pytest

from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.settings import Role
from imem.kg.similarity.vectors import as_text
from imem.memory import Memory
from imem.recall.memories.model import MemoryMatch
from imem.recall.memories.parts import PART_CHARS, searched_text, split
from imem.recall.memories.store import with_context
from tests.imem.memories.conftest import Places, make_vectors, memory_of
from tests.imem.memory.conftest import MemoryHarness

LONG = "Wheat was sown early. " * (PART_CHARS // 23) + "\n\n" + "Barley was sown late. " * 20


def check_vectors(harness: MemoryHarness, places: Places, **texts: str) -> None:
    """Check that the current memory whose metadata name it has the vector of each text."""
    for name, text in texts.items():
        [row] = harness.rows(
            "SELECT m.vector <=> %s::halfvec AS distance FROM recall.memory AS m "
            "WHERE m.superseded_at IS NULL AND m.metadata ? %s",
            as_text(places._vector(text)),
            name,
        )
        assert row["distance"] < 1e-3, name


@pytest.mark.parametrize("later", [False, True], ids=["at once", "by a worker"])
async def test_the_authors_name_is_searched(harness: MemoryHarness, places: Places, *, later: bool) -> None:
    """By words and in every vector, whenever it is made, of long texts too; shown is the text as it was said."""
    places.away = later
    async with memory_of(harness) as memory:
        for name, text, author in (
            ("short", "The plant is in Boise.", "Łucja Nowak"),
            ("own", "Ann: I keep the keys.", "Ann"),
            ("nobody", "Nobody said who.", None),
            ("long", LONG, "Bob"),
        ):
            await memory.remember(text, author=author, metadata={name: True})
        first = "Is the plant far?"
        await memory.remember(first, author="Bob", conversation_id="c")
        await memory.remember("No.", author="Ann", conversation_id="c", metadata={"after": True})
        places.away = False
        if later:
            await make_vectors(harness, places)
        check_vectors(
            harness, places, short="Łucja Nowak: The plant is in Boise.", own="Ann: I keep the keys.",
            nobody="Nobody said who.", after="Ann: No.",
        )  # fmt: skip
        [row] = harness.rows(
            "SELECT m.context_vector <=> %s::halfvec AS distance FROM recall.memory AS m WHERE m.metadata ? 'after'",
            as_text(places._vector(with_context("Ann: No.", f"Bob: {first}"))),
        )
        assert row["distance"] < 1e-3
        [part] = harness.rows(
            "SELECT p.vector <=> %s::halfvec AS distance FROM recall.memory_part AS p",
            as_text(places._vector(f"Bob: {split(LONG)[1]}")),
        )
        assert part["distance"] < 1e-3
        found = (await memory.memories.search("nowak")).items
        [named] = [item for item in found if MemoryMatch.WORDS in item.found_by]
        assert (named.content, named.author) == ("The plant is in Boise.", "Łucja Nowak")
        [shown] = [item for item in (await memory.memories.search("Barley")).items if "long" in item.metadata]
        assert shown.excerpt is not None
        assert not shown.excerpt.startswith("Bob:")


def test_the_name_is_in_front_in_one_way_in_sql(harness: MemoryHarness) -> None:
    """Vectors and words are made of the same text."""
    for author, text in ((None, "a"), ("Ann", "a"), ("Ann", "Ann: a"), ("Ann", "ann: a"), ("Å%_", "Å%_:"), ("A", "")):
        [row] = harness.rows("SELECT recall.searched_text_v1(%s::text, %s::text) AS said", author, text)
        assert row["said"] == searched_text(author, text)


async def test_counts_of_words_stay_those_of_the_rows(harness: MemoryHarness, places: Places) -> None:
    """After storing, storing again, correcting, and with an author whose name is several words."""
    places.cosines = {"Maria de la Cruz: Rain falls.": 1.0, "Maria de la Cruz: Rain is falling.": 0.99}
    async with memory_of(harness) as memory:
        stored = await memory.remember("Rain falls.", author="Maria de la Cruz", namespace="symbol/MU")
        await memory.remember("Rain is falling.", author="Maria de la Cruz", namespace="symbol/MU")
        await memory.memories.supersede(stored.id, "It is dry.", reason="The weather changed.")
        await memory.remember("Hail.", author="Bob", namespace="symbol/MU", conversation_id="c")
    counted = "SELECT s.memories, s.lexemes FROM recall.memory_namespace AS s"
    held = "SELECT count(*) AS memories, sum(lexemes) AS lexemes FROM recall.memory WHERE superseded_at IS NULL"
    assert harness.rows(counted) == harness.rows(held)


async def test_a_correction_keeps_the_author(harness: MemoryHarness, places: Places) -> None:
    """Its vector is that of the new text with the same name."""
    async with memory_of(harness) as memory:
        stored = await memory.remember("Margins rise.", author="Bob")
        await memory.memories.supersede(stored.id, "Margins fall.", reason="Misheard.", metadata={"now": True})
        check_vectors(harness, places, now="Bob: Margins fall.")


async def test_no_vector_is_of_another_name(harness: MemoryHarness, places: Places) -> None:
    """Who stores a text again under another name keeps the first, and the vector follows it."""
    places.cosines = {"Bob: Margins rise.": 1.0, "Ann: Margins are rising.": 1.0}
    async with memory_of(harness) as memory:
        await memory.remember("Margins rise.", author="Bob", namespace="symbol/MU")
        await memory.remember("Margins are rising.", author="Ann", namespace="symbol/MU", metadata={"again": True})
        [shown] = (await memory.memories.list(namespace="symbol/MU")).items
        assert (shown.content, shown.author) == ("Margins are rising.", "Bob")
        await make_vectors(harness, places)
        check_vectors(harness, places, again="Bob: Margins are rising.")


def day(nth: int, month: int = 3) -> datetime:
    return datetime(2024, month, nth, 12, tzinfo=UTC)


def importing(harness: MemoryHarness) -> AbstractAsyncContextManager[Memory]:
    settings = harness.of("kate", Role.HUMAN_ADMIN).model_copy(update={"may_import": True, "deadline_ms": 30_000})
    return Memory.open(settings)


@pytest.mark.usefixtures("places")
async def test_what_was_said_on_a_named_date_comes_first(harness: MemoryHarness) -> None:
    """Of texts that answer as well; a question without a date orders them as before."""
    async with importing(harness) as memory:
        for month in (3, 4, 5):
            for nth in (2, 20):
                await memory.remember(
                    "We met the supplier.", conversation_id=f"{month}-{nth}", author="Ann", occurred_at=day(nth, month)
                )
        for query, wanted in (
            ("supplier in April 2024", {day(2, 4), day(20, 4)}),
            ("supplier on 20 May", {day(20, 5)}),
            ("supplier on 2024-03-02?", {day(2)}),
        ):
            found = (await memory.memories.search(query, limit=len(wanted))).items
            assert {item.occurred_at for item in found} == wanted, query
            everything = await memory.search(query, limit=len(wanted))
            assert {item.key for item in everything.items} == {str(item.id) for item in found}
        plain = (await memory.memories.search("supplier")).items
        assert len({item.score for item in plain}) == 1


@pytest.mark.usefixtures("places")
async def test_a_past_date_is_since_when_it_is_known(harness: MemoryHarness) -> None:
    """As of before that nothing is found; when it was recorded here stays what it is."""
    async with importing(harness) as memory:
        stored = await memory.remember("We met the supplier.", occurred_at=day(2))
        before = day(2) - timedelta(microseconds=1)
        assert (await memory.memories.search("supplier in March 2024", as_of=before)).items == []
        for at in (day(2), stored.recorded_at):
            [found] = (await memory.memories.search("supplier last March", as_of=at)).items
            assert (found.occurred_at, found.recorded_at) == (day(2), stored.recorded_at)


@pytest.mark.usefixtures("places")
async def test_who_may_state_a_past_date(harness: MemoryHarness) -> None:
    """The import right alone; a moment without a zone, or one to come, is none."""
    async with memory_of(harness) as memory:
        with pytest.raises(PermissionDenied):
            await memory.remember("We met the supplier.", occurred_at=day(2))
        assert (await memory.memories.search("supplier")).items == []
    async with importing(harness) as memory:
        for wrong in (datetime(2024, 3, 2), datetime.now(UTC) + timedelta(days=1)):  # noqa: DTZ001 - refused
            with pytest.raises(BadInput, match="occurred_at"):
                await memory.remember("We met the supplier.", occurred_at=wrong)
        stored = await memory.remember("We met the supplier.", occurred_at=day(2))
        corrected = await memory.memories.supersede(stored.id, "We met the buyer.", reason="Misheard.")
        assert (await memory.memories.get(corrected.id)).occurred_at == day(2)
