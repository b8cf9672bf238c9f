"""Memories from end to end: stored, found by words and by meaning, updated, superseded, dated, counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from imem.journal.errors import BadInput, TooLarge
from imem.memory import Memory
from imem.recall.answers import Quality
from imem.recall.memories import accesses
from imem.recall.memories.model import MemoriesSection, MemoryMatch, StoreStatus
from imem.recall.memories.store import EXACT
from imem.recall.memories.upkeep import UpkeepRules, consolidate
from tests.imem.memories.conftest import Places, make_vectors, memory_of, round_of
from tests.imem.memory.conftest import MemoryHarness


@contextmanager
def locked(harness: MemoryHarness) -> Iterator[None]:
    """Hold the counts, as a writer that does not end."""
    with psycopg.connect(harness.admin_url) as conn:
        conn.execute("SELECT FROM recall.memory_use FOR UPDATE")
        yield
        conn.rollback()


def texts(found: MemoriesSection) -> list[str]:
    return [item.content for item in found.items]


async def test_what_is_remembered_is_found(harness: MemoryHarness) -> None:
    """By its words and by its meaning, with the encoder that is the default; who asks has not named where."""
    async with memory_of(harness) as memory:
        stored = await memory.remember("High-bandwidth memory is sold out until 2027.", metadata={"source": "call"})
        await memory.remember("The court postponed the hearing about the river's dam.", namespace="symbol/DAM")
        await memory.remember("Ann prefers short answers.", namespace="user/ann", memory_type="procedural")

        found = await memory.memories.search("Is there enough HBM supply for AI chips?")
        assert (found.quality, found.reason, found.total) == (Quality.EXACT, None, 3)
        best = found.items[0]
        assert (best.id, best.content) == (stored.id, "High-bandwidth memory is sold out until 2027.")
        assert (best.namespace, best.agent_id, best.metadata) == ("agent/ann", "ann", {"source": "call"})
        assert best.similarity == max(item.similarity or 0.0 for item in found.items)
        assert MemoryMatch.MEANING in best.found_by
        assert texts(await memory.memories.search("Was the hearing postponed?", limit=1)) == [
            "The court postponed the hearing about the river's dam."
        ]
        assert texts(await memory.memories.search("hearing", memory_type="procedural")) == [
            "Ann prefers short answers."
        ]
        assert texts(await memory.memories.search("hearing", namespace="user/*")) == ["Ann prefers short answers."]


@pytest.mark.usefixtures("places")
def test_without_await(harness: MemoryHarness) -> None:
    """The same methods, and a memory lent to another agent sees its own."""
    with Memory.sync(harness.of()) as memory:
        stored = memory.remember("Margins rise.")
        assert texts(memory.memories.search("margins")) == ["Margins rise."]
        assert [one.version for one in memory.memories.history(stored.id)] == [1]
        with memory.acting_as("bob") as bob:
            assert bob.memories.search("margins").items == []


@pytest.mark.spec("RC-17")
async def test_a_near_duplicate_updates(harness: MemoryHarness, places: Places) -> None:
    """Above 0.95 with the same figures it is one memory, with what both knew; below, or with others, it is another."""
    places.cosines = {"It rises 4 %.": 1.0, "Up 4 %.": 0.951, "Growth 4 %.": 0.949, "Up 11 %.": 0.99}
    async with memory_of(harness) as memory:
        first = await memory.remember("It rises 4 %.", metadata={"a": 1, "b": 1}, importance=0.7)
        again = await memory.remember("Up 4 %.", metadata={"b": 2}, importance=0.2)
        assert (first.status, again.status) == (StoreStatus.NEW, StoreStatus.UPDATED)
        assert (again.id, again.version) == (first.id, 2)
        [current] = (await memory.memories.search("rises", namespace="agent/ann")).items
        assert (current.content, current.importance, current.metadata) == ("Up 4 %.", 0.7, {"a": 1, "b": 2})
        assert [one.content for one in await memory.memories.history(first.id)] == ["It rises 4 %.", "Up 4 %."]

        assert (await memory.remember("Up 4 %.")).status is StoreStatus.IDENTICAL
        assert (await memory.remember("Up 11 %.")).status is StoreStatus.NEW
        assert (await memory.remember("It rises 4 %.", namespace="symbol/MU")).status is StoreStatus.NEW
        assert (await memory.remember("Growth 4 %.", namespace="symbol/MU")).status is StoreStatus.NEW


@pytest.mark.parametrize("conversation", [None, "c"])
@pytest.mark.parametrize("away", [False, True], ids=["with vectors", "without"])
async def test_the_same_of_another_user_or_type_is_another(
    harness: MemoryHarness, places: Places, conversation: str | None, *, away: bool
) -> None:
    """Word by word or nearly: each is stored and found; again, each is identical; the daily round keeps all."""
    places.away = away
    places.cosines = {"Prefers green tea.": 1.0, "Likes green tea.": 0.99}
    kinds: list[dict[str, Any]] = [{"user_id": "ann"}, {"user_id": "bob"}, {}, {"memory_type": "procedural"}]
    async with memory_of(harness) as memory:
        given: dict[str, Any] = {"namespace": "symbol/MU", "conversation_id": conversation}
        stored = [await memory.remember("Prefers green tea.", **given, **kind) for kind in kinds]
        assert {one.status for one in stored} == {StoreStatus.NEW}
        again = [await memory.remember("Prefers green tea.", **given, **kind) for kind in kinds]
        assert [(one.status, one.id) for one in again] == [(StoreStatus.IDENTICAL, one.id) for one in stored]
        assert texts(await memory.memories.search("tea", memory_type="procedural")) == ["Prefers green tea."]
        if conversation is None and not away:
            near = [await memory.remember("Likes green tea.", **given, **kind) for kind in kinds]
            assert [(one.status, one.id) for one in near] == [(StoreStatus.UPDATED, one.id) for one in stored]
            # One is superseded by what another user's says already.
            newer = await memory.memories.supersede(stored[0].id, "Prefers black tea.", reason="Ann said so.")
            await memory.memories.supersede(stored[1].id, "Prefers black tea.", reason="Bob said so.")
            with pytest.raises(BadInput, match="says already"):
                await memory.memories.supersede(stored[2].id, "Likes green tea.", reason="No.")
            assert newer.status is StoreStatus.SUPERSEDED
    places.away = False
    await make_vectors(harness, places)
    assert (await round_of(harness, consolidate, places, UpkeepRules()))["merged"] == 0
    current = "SELECT user_id, memory_type FROM recall.memory WHERE superseded_at IS NULL ORDER BY 1, 2"
    assert [tuple(row.values()) for row in harness.rows(current)] == [
        ("ann", "semantic"),
        ("bob", "semantic"),
        (None, "procedural"),
        (None, "semantic"),
    ]


@pytest.mark.spec("RC-17")
@pytest.mark.parametrize("exact", [EXACT, 0])
async def test_nothing_nearer_hides_a_near_duplicate(
    harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch, exact: int
) -> None:
    """Neither messages, nor other types, nor other figures; compared one by one, or by the index."""
    monkeypatch.setattr("imem.recall.memories.store.EXACT", exact)
    places.cosines = {"It rises 4 %.": 0.96, "Up 4 %.": 1.0}
    nearer: list[tuple[str, dict[str, Any]]] = [(text, {}) for text in (f"Up {nth} %." for nth in range(11, 22))]
    for nth in range(60):
        nearer += [(f"Up, {nth}", {"conversation_id": "a"}), (f"Up; {nth}", {"memory_type": "procedural"})]
    places.cosines |= {text: 0.99 for text, _ in nearer}
    async with memory_of(harness) as memory:
        first = await memory.remember("It rises 4 %.")
        for text, given in nearer:
            await memory.remember(text, **given)
        again = await memory.remember("Up 4 %.")
        assert (again.status, again.id) == (StoreStatus.UPDATED, first.id)


async def test_messages_stay_as_they_were_said(harness: MemoryHarness, places: Places) -> None:
    """A short answer is one message in each conversation and of each author; what is similar replaces none of them."""
    places.cosines = {"Yes.": 1.0, "Yes, it is.": 0.99}
    async with memory_of(harness) as memory:
        first = await memory.remember("Yes.", conversation_id="a", author="Ann")
        for conversation, author in (("a", "Bob"), ("b", "Ann"), (None, None)):
            said = await memory.remember("Yes.", conversation_id=conversation, author=author)
            assert said.status is StoreStatus.NEW
        for conversation in ("a", "b"):
            assert (await memory.remember("Yes, it is.", conversation_id=conversation)).status is StoreStatus.NEW
        again = await memory.remember("Yes.", conversation_id="a", author="Ann")
        assert (again.status, again.id) == (StoreStatus.IDENTICAL, first.id), "a repeated call is safe"
        assert (await memory.remember("Yes, it is.")).status is StoreStatus.UPDATED
    current = "SELECT conversation_id, ordinal, author, content FROM recall.memory WHERE superseded_at IS NULL"
    assert [tuple(row.values()) for row in harness.rows(f"{current} ORDER BY 1, 2")] == [
        ("a", 1, "Ann", "Yes."),
        ("a", 2, "Bob", "Yes."),
        ("a", 3, None, "Yes, it is."),
        ("b", 1, "Ann", "Yes."),
        ("b", 2, None, "Yes, it is."),
        (None, None, None, "Yes, it is."),
    ]


async def test_texts_that_begin_alike_are_two(harness: MemoryHarness) -> None:
    """Their vectors are the same, as the encoder reads the beginning: what they end with is not lost."""
    beginning = "The board met on Monday and heard the report of the committee. " * 30
    async with memory_of(harness) as memory:
        for end in ("It sells the plant.", "It keeps the plant."):
            assert (await memory.remember(beginning + end)).status is StoreStatus.NEW


@pytest.mark.spec("RC-17")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Margins moved by 4 %.", "Margins moved by -4 %."),
        ("The target went from 4 to 11.", "The target went from 11 to 4."),
        ("ارتفع السعر ٤٪", "ارتفع السعر ٢٣٪"),
        ("HBM is sold out.", "HBM is not sold out."),
        ("It does open.", "It doesn't open."),
        ("Margins will rise.", "Margins will fall."),
        ("The bid is over the limit.", "The bid is under the limit."),
        ("Prices rose and costs declined.", "Prices dropped and costs increased."),
        ("Two plants open in May.", "Three plants open in May."),
        ("It may open.", "It will open."),
        ("Margins ↑", "Margins ↓"),
        # The encoder's own vectors of these are as similar as those of near-duplicates.
        ("Micron gained share from Samsung.", "Samsung gained share from Micron."),
        ("ارتفع سعر النفط بسبب العقوبات", "انخفض سعر النفط بسبب العقوبات"),
        ("ราคาน้ำมันสูงขึ้น", "โรงงานจะปิด"),
        ("株を買う", "株を売る"),
    ],
)
async def test_what_vectors_do_not_tell_apart(harness: MemoryHarness, places: Places, one: str, other: str) -> None:
    """A sign, an order, a negation, a script that the encoder cannot read: neither takes the place of the other."""
    places.cosines = {one: 1.0, other: 1.0}
    async with memory_of(harness) as memory:
        assert [(await memory.remember(text)).status for text in (one, other)] == [StoreStatus.NEW] * 2
    assert (await round_of(harness, consolidate, places, UpkeepRules()))["merged"] == 0


@pytest.mark.parametrize(
    "said",
    [
        ["It isn't open.", "It is not open.", "It is not opened yet."],
        ["Margins will rise.", "Margins are going up.", "Margins will increase.", "Margins are rising."],
        ["The target was cut by 4 %.", "The target was lowered 4 %.", "A 4 % reduction of the target."],
        ["It costs more than 4 dollars.", "It costs over 4 dollars.", "The cost is above 4 dollars."],
        ["The net result is flat.", "The result is flat."],
    ],
)
async def test_the_same_in_other_words(harness: MemoryHarness, places: Places, said: list[str]) -> None:
    """Neither a contraction nor another word of the same direction makes another memory of it."""
    places.cosines = dict.fromkeys(said, 1.0)
    async with memory_of(harness) as memory:
        assert len({(await memory.remember(text)).id for text in said}) == 1


OPPOSITES = """
    up/down upward/downward upside/downside over/under above/below more/less more/fewer most/least high/low
    higher/lower highest/lowest top/bottom peak/trough maximum/minimum rise/fall rose/fell risen/fallen
    rising/falling increase/decrease increased/decreased raised/cut raised/reduced gain/loss gained/lost grow/shrink
    grew/shrank grown/shrunk climbed/dropped jumped/plunged surged/slumped rallied/crashed advanced/retreated
    accelerated/decelerated accelerates/slows fast/slow expanded/contracted widened/narrowed wide/narrow
    doubled/halved strong/weak strengthened/weakened heavy/light large/small surplus/shortage upgraded/downgraded
    inflows/outflows outperformed/underperformed overvalued/undervalued overbought/oversold overweight/underweight
    expensive/cheap profit/loss bullish/bearish bull/bear hawkish/dovish optimistic/pessimistic positive/negative
    good/bad better/worse best/worst improved/worsened tight/loose tighten/ease long/short buy/sell bought/sold
    buyer/seller lends/borrows creditor/debtor leads/lags enters/exits entered/left accepted/rejected
    approved/denied allowed/blocked agrees/disagrees supports/opposes for/against confirmed/cancelled beat/missed
    win/lose won/lost passed/failed open/closed opened/shut started/ended began/stopped resumed/suspended
    after/before late/early last/first import/export included/excluded likes/dislikes likely/unlikely
    possible/impossible true/false right/wrong same/different full/partial safe/risky million/billion Monday/Friday
    May/July first/second north/south will/may half/quarter with/without
"""


def test_opposites_are_literals(harness: MemoryHarness) -> None:
    """Of every listed pair neither word is taken for the other, in whatever case."""
    pairs = [pair.split("/") for pair in OPPOSITES.split()]
    query = "SELECT recall.may_say_the_same_v1(%s, %s) AS same"
    same = [
        (one, other)
        for one, other in pairs
        for first, second in ((f"It is {one} there.", f"It is {other} there."), (one.upper(), other.capitalize()))
        if harness.rows(query, first, second)[0]["same"]
    ]
    assert same == []


async def test_metadata_that_are_too_large_together(harness: MemoryHarness, places: Places) -> None:
    """The call says so, and nothing is written; the daily round leaves such memories as they are."""
    places.cosines = {"Up 4 %.": 1.0, "Growth 4 %.": 0.92}
    async with memory_of(harness) as memory:
        await memory.remember("Up 4 %.", metadata={"a": "x" * 40_000})
        with pytest.raises(TooLarge, match="64 KiB"):
            await memory.remember("Up 4 %.", metadata={"b": "x" * 40_000})
        await memory.remember("Growth 4 %.", metadata={"b": "x" * 40_000})
    assert await round_of(harness, consolidate, places, UpkeepRules()) == {"merged": 0, "more": False}
    assert harness.rows("SELECT count(*) FROM recall.memory") == [{"count": 2}]


@pytest.mark.usefixtures("places")
async def test_a_full_namespace_refuses_what_is_new(harness: MemoryHarness) -> None:
    """With an error that names it, and nothing written; what is there is updated and superseded all the same."""
    async with Memory.open(harness.of().model_copy(update={"memory_namespace_limit": 2})) as memory:
        first = await memory.remember("Margins rise.")
        await memory.remember("Yes.", conversation_id="c")
        for conversation in (None, "c"):
            with pytest.raises(TooLarge, match="2 memories") as refused:
                await memory.remember("The plant opens.", conversation_id=conversation)
            assert refused.value.field == "namespace"
        assert (await memory.remember("Margins rise.", importance=0.9)).status is StoreStatus.UPDATED
        assert (await memory.remember("The plant opens.", namespace="symbol/MU")).status is StoreStatus.NEW
        await memory.memories.supersede(first.id, "Margins fall.", reason="They do.")
        assert len((await memory.memories.search("margins", deadline_ms=30_000)).items) == 3
    assert harness.rows("SELECT memories FROM recall.memory_namespace ORDER BY namespace") == [
        {"memories": 2},
        {"memories": 1},
    ]


@pytest.mark.spec("RC-17")
@pytest.mark.parametrize("away", [False, True], ids=["with vectors", "without"])
async def test_two_at_once_leave_one(harness: MemoryHarness, places: Places, away: bool) -> None:  # noqa: FBT001 - a case
    """Whether or not the encoder is there: the namespace holds the text once."""
    places.away = away
    async with memory_of(harness, "ann") as ann, memory_of(harness, "bob") as bob:
        stored = await asyncio.gather(
            *(one.remember("Margins rise.", namespace="symbol/MU") for one in (ann, bob) for _ in range(5))
        )
    assert len({one.id for one in stored}) == 1
    assert sorted(one.status for one in stored) == [StoreStatus.IDENTICAL] * 9 + [StoreStatus.NEW]
    assert harness.rows("SELECT count(*) FROM recall.memory") == [{"count": 1}]


@pytest.mark.usefixtures("places")
async def test_superseded_on_purpose(harness: MemoryHarness) -> None:
    """What contradicts takes the place of what was; both stay in the history, with the reason."""
    async with memory_of(harness) as memory:
        old = await memory.remember("The plant opens in May.", importance=0.8)
        new = await memory.memories.supersede(old.id, "The plant opens in July.", reason="The company said so.")
        assert new.status is StoreStatus.SUPERSEDED
        [current] = (await memory.memories.search("When does the plant open?")).items
        assert (current.id, current.content, current.importance) == (new.id, "The plant opens in July.", 0.8)
        for one in (old.id, str(new.id)):
            before, after = await memory.memories.history(one)
            assert (before.superseded_by, before.reason) == (new.id, "The company said so.")
            assert (before.superseded_at, after.superseded_at) == (after.recorded_at, None)

        again = await memory.memories.supersede(old.id, "The plant opens in July.", reason="Again.")
        assert (again.status, again.id) == (StoreStatus.IDENTICAL, new.id)
        with pytest.raises(BadInput, match="was superseded by"):
            await memory.memories.supersede(old.id, "Never.", reason="No.")
        other = await memory.remember("Something else.")
        with pytest.raises(BadInput, match="says already"):
            await memory.memories.supersede(other.id, "The plant opens in July.", reason="No.")
        with pytest.raises(BadInput, match="there is no memory"):
            await memory.memories.supersede(uuid4(), "Never.", reason="No.")


@pytest.mark.usefixtures("places")
async def test_retired_on_purpose(harness: MemoryHarness) -> None:
    """It is found as of earlier moments alone, and its history has the reason; the text may be stored anew."""
    async with memory_of(harness) as memory:
        old = await memory.remember("The plant opens in May.")
        await memory.remember("Margins rise.")
        then = datetime.now(UTC)
        before = texts(await memory.memories.search("plant", as_of=then))
        done = await memory.memories.retire(old.id, reason="The plant was sold.")
        assert (done.status, done.id, done.version) == (StoreStatus.RETIRED, old.id, 1)
        assert texts(await memory.memories.search("plant")) == ["Margins rise."]
        assert texts(await memory.memories.search("plant", as_of=then)) == before
        assert "The plant opens in May." in before
        [ended] = await memory.memories.history(old.id)
        assert (ended.superseded_at is not None, ended.superseded_by, ended.reason) == (
            True,
            None,
            "The plant was sold.",
        )
        assert harness.rows("SELECT memories FROM recall.memory_namespace") == [{"memories": 1}]

        assert (await memory.memories.retire(old.id, reason="Again.")).status is StoreStatus.IDENTICAL
        with pytest.raises(BadInput, match="was retired already"):
            await memory.memories.supersede(old.id, "The plant opens in July.", reason="No.")
        anew = await memory.remember("The plant opens in May.")
        assert (anew.status, anew.id != old.id) == (StoreStatus.NEW, True)
        newer = await memory.memories.supersede(anew.id, "The plant opens in July.", reason="It is late.")
        with pytest.raises(BadInput, match=f"was superseded by {newer.id} already"):
            await memory.memories.retire(anew.id, reason="No.")
        with pytest.raises(BadInput, match="there is no memory"):
            await memory.memories.retire(uuid4(), reason="No.")
        with pytest.raises(BadInput, match="reason"):
            await memory.memories.retire(newer.id, reason="")


@pytest.mark.usefixtures("places")
async def test_as_of_a_moment(harness: MemoryHarness) -> None:
    """The versions that were current then, with the same scores; nothing that was stored later changes the answer."""
    async with memory_of(harness) as memory:
        await memory.remember("The plant opens in May.", conversation_id="c", author="Ann")
        second = await memory.remember("It makes memory chips.", conversation_id="c", author="Bob")
        then = await memory.memories.search("plant of Bob", as_of=datetime.now(UTC))
        assert then.as_of is not None
        await memory.memories.supersede(second.id, "It makes processors.", reason="Corrected.")
        await memory.remember("Another plant opens in June.", conversation_id="c")

        assert await memory.memories.search("plant of Bob", as_of=then.as_of) == then
        assert sorted(texts(then)) == ["It makes memory chips.", "The plant opens in May."]
        assert len((await memory.memories.search("plant of Bob")).items) == 3
        assert (await memory.memories.search("plant", as_of=datetime(2020, 1, 1, tzinfo=UTC))).items == []


async def test_conversations_help_to_find(harness: MemoryHarness, places: Places) -> None:
    """The message beside the one that is found is a candidate too, and an author who is named is preferred."""
    # By its context Lisbon is what was asked; by itself it is far.
    places.cosines = {"Where did you go in spring?\nTo Lisbon.": 1.0, "Which town did Bob see in spring?": 1.0}
    async with memory_of(harness) as memory:
        said = [("Ann", "Where did you go in spring?"), ("Bob", "To Lisbon."), ("Ann", "Was it warm?")]
        for author, text in said:
            await memory.remember(text, conversation_id="c", author=author)
        for number in range(120):
            await memory.remember(f"Nothing of that sort, {number} times.", conversation_id="other")
        found = await memory.memories.search("Which town did Bob see in spring?", limit=3)
        assert {"Where did you go in spring?", "To Lisbon."} <= set(texts(found)[:2])
        kinds = {item.content: item.found_by for item in found.items}
        assert MemoryMatch.WORDS in kinds["Where did you go in spring?"]


async def test_without_the_encoder(harness: MemoryHarness, places: Places) -> None:
    """It is stored and found by words, the answer says so; a worker makes the vectors, and then it is found by all."""
    async with memory_of(harness) as memory:
        places.away = True
        first = await memory.remember("Margins rise.", conversation_id="c")
        await memory.remember("So do prices.", conversation_id="c")
        assert first.waits
        found = await memory.memories.search("Do margins rise?")
        assert (texts(found)[0], found.quality) == ("Margins rise.", Quality.PARTIAL)
        assert found.reason is not None
        assert found.reason.startswith("searched by words alone")
        places.away = False
        assert "no vector yet" in str((await memory.memories.search("Do margins rise?")).reason)

        assert await make_vectors(harness, places) == {"vectors": 2, "more": False}
        assert (await memory.memories.search("Do margins rise?")).quality is Quality.EXACT
        assert harness.rows("SELECT count(*) FROM due_row") == [{"count": 0}]
        assert harness.rows("SELECT count(*) FROM recall.memory WHERE context_vector IS NOT NULL") == [{"count": 1}]
        # Of another model they are made anew.
        places.model_id = "another"
        assert await make_vectors(harness, places) == {"vectors": 2, "more": False}
        assert (await memory.memories.search("Do margins rise?")).quality is Quality.EXACT


@pytest.mark.spec("RC-22")
@pytest.mark.usefixtures("places")
async def test_accesses_are_counted_without_a_write_on_a_read(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the counts are locked a read answers; two readers' counts are all there at the end."""
    assert accesses.FLUSH_S < 60, "they are written within a minute"
    monkeypatch.setattr("imem.recall.memories.accesses.FLUSH_S", 0.01)
    async with memory_of(harness) as memory:
        stored = await memory.remember("Margins rise.")
        await memory.memories.search("margins")
    counted = "SELECT access_count FROM recall.memory_use WHERE id = %s"
    assert harness.rows(counted, stored.id) == [{"access_count": 1}], "written when it closes"
    async with memory_of(harness) as memory:
        with locked(harness):
            for _ in range(20):
                await memory.memories.search("margins", deadline_ms=5_000)
                await asyncio.sleep(0.01)  # So that a batch is under way.
            assert harness.rows(counted, stored.id) == [{"access_count": 1}]
    assert harness.rows(counted, stored.id) == [{"access_count": 21}]
    async with memory_of(harness) as ann, memory_of(harness) as bob:

        async def read(memory: Memory) -> None:
            for _ in range(50):
                await memory.memories.search("margins", deadline_ms=5_000)

        await asyncio.gather(read(ann), read(bob))
    assert harness.rows(counted, stored.id) == [{"access_count": 121}]
    async with memory_of(harness) as memory:
        [item] = (await memory.memories.search("margins")).items
        assert item.access_count == 121
