"""Turns of a debate as records of their own: each by its speaker, read in order with those that were imported."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.settings import Role, Settings
from imem.kg.model import Debate, DebateTurn, Turn
from imem.memory import Memory
from imem.recall.search.model import SearchKind
from imem.services.embedders import embedder_of
from tests.imem.debates.conftest import MemoryHarness, project

E5 = embedder_of(Settings.read({}))
OPENED = datetime(2026, 6, 1, 12, tzinfo=UTC)


def turn(number: int, speaker: str, text: str, **more: Any) -> DebateTurn:
    return DebateTurn(
        subject_id="company:MU", debate_id="peak", number=number, speaker=speaker, text=text, **more
    )  # fmt: skip


def agent(harness: MemoryHarness, name: str) -> AbstractAsyncContextManager[Memory]:
    return Memory.open(harness.of(name, Role.AGENT))


async def open_debate(harness: MemoryHarness, *turns: Turn) -> None:
    """Import the debate, with the turns that were spoken before."""
    settings = harness.of("kate", Role.HUMAN_ADMIN).model_copy(update={"may_import": True})
    debate = Debate(
        id="peak", subject_id="company:MU", topic="Have margins peaked?", challenger_agent="bob",
        challenged_agent="ann", participants=("ann", "bob"), timestamp=OPENED,
    )  # fmt: skip
    async with Memory.open(settings) as memory:
        await memory.record_debate(debate, turns=turns, known_at=OPENED)


async def test_each_speaker_records_its_turns(harness: MemoryHarness) -> None:
    """They are read by number, after those that were imported with the debate; a repeat records nothing."""
    await open_debate(harness, Turn(number=1, speaker="bob", text="Every cycle ended in a glut."))
    async with agent(harness, "ann") as ann, agent(harness, "bob") as bob:
        await bob.record(turn(3, "bob", "Prepayments were refunded in 2019."))
        await ann.record(turn(2, "ann", "Contracts are prepaid.", stance="bull", cites=("f-1",)))
        again = await bob.record(turn(3, "bob", "Prepayments were refunded in 2019."))
        found = await ann.debate("peak")

    assert again.verdict == "identical"
    assert [(one.number, one.speaker, one.text) for one in found.turns] == [
        (1, "bob", "Every cycle ended in a glut."),
        (2, "ann", "Contracts are prepaid."),
        (3, "bob", "Prepayments were refunded in 2019."),
    ]
    assert (found.turns[1].stance, found.turns[1].cites) == ("bull", ["f-1"])
    assert (found.debate.turns, found.debate.speakers) == (3, 2)


async def test_nobody_records_a_turn_of_another(harness: MemoryHarness) -> None:
    """Neither an agent, by record or with a debate, nor a facilitator; one's own turn keeps its text."""
    await open_debate(harness)
    async with agent(harness, "ann") as ann:
        with pytest.raises(PermissionDenied):
            await ann.record(turn(1, "bob", "I concede."))
        await ann.record(turn(2, "ann", "Contracts are prepaid."))
        with pytest.raises(BadInput):
            await ann.record(turn(2, "ann", "I never said so."))
    async with Memory.open(harness.of("fay", Role.DEBATE_FACILITATOR)) as facilitator:
        with pytest.raises(PermissionDenied):
            await facilitator.record(turn(1, "bob", "I concede."))
        found = await facilitator.debate("peak")

    assert [one.text for one in found.turns] == ["Contracts are prepaid."]


async def test_a_turn_is_read_from_when_it_was_known(harness: MemoryHarness) -> None:
    """Two speakers may take one number; a briefing of before the turns counts none."""
    await open_debate(harness)
    settings = harness.of("kate", Role.HUMAN_ADMIN).model_copy(update={"may_import": True})
    async with Memory.open(settings) as memory:
        for hours, speaker in ((2, "ann"), (1, "bob")):
            await memory.record(turn(1, speaker, f"{speaker} first."), known_at=OPENED + timedelta(hours=hours))
        counts = []
        for hours in (0, 1, 2):
            at = OPENED + timedelta(hours=hours)
            read = await memory.debate("peak", as_of=at)
            listed = await memory.debates("company:MU", as_of=at)
            assert [item.turns for item in listed.items] == [len(read.turns)]
            counts.append([one.speaker for one in read.turns])

    assert counts == [[], ["bob"], ["bob", "ann"]]


async def test_a_turn_is_found(harness: MemoryHarness) -> None:
    """It stands in its debate, with its speaker, and is about the debate's subject."""
    await open_debate(harness)
    async with agent(harness, "ann") as ann:
        await ann.record(turn(1, "ann", "The order book is prepaid until 2027."))
        await project(harness, E5)
        found = await ann.search("prepaid order book", kinds=["debate"], deadline_ms=5_000)

    hit = next(item for item in found.items if item.key == "peak#1/ann")
    assert (hit.kind, hit.part_of, hit.author, hit.subject_id) == (
        SearchKind.DEBATE, "Debate/peak", "ann", "company:MU",
    )  # fmt: skip


def test_the_id_follows_from_the_turn() -> None:
    assert turn(4, "ann", "So.").id == "peak#4/ann"
    with pytest.raises(BadInput, match="must be <debate_id>"):
        DebateTurn(subject_id="company:MU", debate_id="peak", number=4, speaker="ann", text="So.", id="peak#5/ann")
