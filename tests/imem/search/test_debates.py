"""Debates in a search: turns are found by who spoke and when, and a debate's header is no hit of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from imem.journal.settings import Role
from imem.kg.model import Debate, DebateTurn, Turn
from imem.kg.similarity.vectors import as_text
from imem.memory import Memory
from imem.recall.memories.model import MemoryMatch
from tests.imem.memories.conftest import Places
from tests.imem.search.conftest import MemoryHarness, project
from tests.imem.search.test_search import company, day, keys, one


def debate(key: str, **more: Any) -> Debate:
    return Debate(
        id=key, subject_id="company:MU", topic="Peak margins?", challenger_agent="bob", challenged_agent="ann",
        participants=["ann", "bob"], timestamp=day(3), **more,
    )  # fmt: skip


def importing(harness: MemoryHarness) -> Any:
    settings = harness.of("kate", Role.HUMAN_ADMIN).model_copy(update={"may_import": True, "deadline_ms": 30_000})
    return Memory.open(settings)


async def record(memory: Memory, *debates: Debate) -> None:
    """Record each with two turns, and one that its speaker records later."""
    await memory.record(company("MU", "Micron Technology"), known_at=day(1))
    for one_debate in debates:
        await memory.record(
            one_debate,
            turns=[
                Turn(number=1, speaker="bob", text="Every cycle ended with a glut of chips."),
                Turn(number=2, speaker="ann", text="This one has contracts."),
            ],
            known_at=one_debate.timestamp,
        )
        await memory.record(
            DebateTurn(
                subject_id="company:MU", debate_id=one_debate.id, number=3, speaker="carol", text="Both are right."
            ),
            known_at=one_debate.timestamp + timedelta(days=90),
        )


async def test_turns_are_found_by_their_speakers(harness: MemoryHarness, places: Places) -> None:
    """The name counts among the words and in the vectors, of what is said after it too, and is not shown."""
    async with importing(harness) as memory:
        await record(memory, debate("b-1"))
        await project(harness, places)
        found = one(await memory.search("carol"), "b-1#3/carol")
        assert MemoryMatch.WORDS in found.found_by
        assert (found.text, found.author) == ("Both are right.", "carol")
        text, title = "bob: Every cycle ended with a glut of chips.", "Micron Technology (MU)"
        for column, key, wanted in (
            ("vector", "b-1#1", f"{title}: {text}"),
            ("context_vector", "b-1#2", f"{text}\n{title}: ann: This one has contracts."),
        ):
            vectors = harness.rows(
                "SELECT (CASE %s WHEN 'vector' THEN t.vector ELSE t.context_vector END) <=> %s::halfvec AS distance "
                "FROM recall.record_text AS t WHERE t.key = %s",
                column,
                as_text(places._vector(wanted)),
                key,
            )
            assert [row["distance"] < 1e-3 for row in vectors] == [True], column


@pytest.mark.usefixtures("places")
async def test_a_header_that_says_nothing_is_no_hit(harness: MemoryHarness, places: Places) -> None:
    """Its topic leads to the turns; with a challenge, a result or a text it says something, and is one."""
    async with importing(harness) as memory:
        await record(memory, debate("b-1"), debate("b-2", challenge_basis="Prices fall."))
        state = Debate.State(state="closed", final_position="ann is right", provisional=False)
        await memory.record(debate("b-3"), known_at=day(3))
        await memory.record_groups(Debate, "b-3", {"state": state}, known_at=day(5))
        await project(harness, places)
        found = await memory.search("Peak margins?", limit=50)
        assert {"b-2", "b-3", "b-1#1"} <= set(keys(found))
        assert "b-1" not in keys(found)
        assert MemoryMatch.WORDS not in one(found, "b-1#1").found_by
        # Before its result the third was a header, too.
        assert {"b-1", "b-3"}.isdisjoint(keys(await memory.search("Peak margins?", limit=50, as_of=day(4))))


async def test_records_are_found_by_when_they_happened(harness: MemoryHarness, places: Places) -> None:
    """By the date that the record states, whenever it was known."""
    async with importing(harness) as memory:
        for month in (3, 7):
            await record(memory, debate(f"b-{month}").model_copy(update={"timestamp": day(month)}))
        await project(harness, places)
        for month in (3, 7):
            found = keys(await memory.search(f"glut of chips in 2026-0{month}", kinds=["debate"]))
            first = [key.split("#")[0] for key in found if key.split("#")[1:] == ["1"]]
            assert first == [f"b-{month}", f"b-{10 - month}"]
