"""What is published is pushed once, in its owner's name, whoever pushes it and however often."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.cache.working.changes import put
from imem.cache.working.document import digest
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.published import decoded, encoded, item_of, publication
from imem.ingest.recorder import Recorder
from imem.journal.actors import Actor
from imem.journal.errors import BadInput, ConsistencyError, TooLarge
from imem.journal.events.entry import Tier
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import correction_of, link_of, record_of
from imem.kg.model import Debate, Finding, Turn
from imem.sync.delivery.pusher import PushState
from imem.sync.synchronizer import SyncState

from .conftest import SyncHarness, soon
from .parts import FACILITATOR, force_sync, held, member, synchronizer


async def events(harness: SyncHarness, actor: str = "ann") -> list[dict[str, Any]]:
    return await harness.rows("SELECT * FROM event WHERE actor = %s ORDER BY agent_seq", actor)


async def test_the_holder_publishes_and_pushes(harness: SyncHarness) -> None:
    memory = await held(harness, await harness.begin())
    first = await memory.publish(harness.finding(importance=0.9, id="f-1"))
    second = await memory.publish(harness.finding(id="f-2"))

    done = await synchronizer(harness, Actor("ann", Role.AGENT)).push(
        await member(harness), holder=memory, deadline=soon()
    )

    assert [(one.item, one.state, one.key) for one in done] == [
        (first, PushState.DURABLE, "f-1"),
        (second, PushState.DURABLE, "f-2"),
    ]
    found = await events(harness)
    assert [(row["event_id"], row["record_key"]) for row in found] == [(first, "f-1"), (second, "f-2")]
    assert await memory.published() == []
    assert await synchronizer(harness).push(await member(harness), deadline=soon()) == []


async def test_a_stranger_flushes_in_the_owners_name(harness: SyncHarness) -> None:
    """The original actor is preserved, under the role of an agent; the memory's digest does not change."""
    memory = await held(harness, await harness.begin())
    item = await memory.publish(harness.finding(id="f-1"))
    _, before = await harness.memories.read(memory.identity.agent_id, deadline=soon())

    [done] = await synchronizer(harness).push(await member(harness), deadline=soon())

    assert (done.item, done.state) == (item, PushState.DURABLE)
    assert [(row["actor"], row["actor_role"]) for row in await events(harness)] == [("ann", "agent")]
    meta, after = await harness.memories.read(memory.identity.agent_id, deadline=soon())
    assert (digest(after), meta.rev) == (digest(before), memory.rev)


async def test_pushing_again_writes_nothing(harness: SyncHarness) -> None:
    """By a stranger twice, then by the holder, who takes the items away, and once more."""
    memory = await held(harness, await harness.begin())
    await memory.publish(harness.finding(id="f-1"))
    who = await member(harness)

    for holder in (None, None, memory, memory):
        await synchronizer(harness).push(who, holder=holder, deadline=soon())

    assert len(await events(harness)) == 1
    assert await memory.published() == []
    assert (await harness.memories.published(who.agent_id, deadline=soon())).items == []


async def test_a_push_that_died_before_it_was_noted_is_known_by_its_identity(harness: SyncHarness) -> None:
    """Even where somebody has stated something else of the same record since."""
    memory = await held(harness, await harness.begin())
    first = item_of(harness.finding(id="f-1"), body="A first text.")
    await memory.write(publication(first))
    recorder = Recorder(Gateway(harness.database, FACILITATOR))
    await recorder([first], owner="ann", lock_epoch=None, deadline=soon())
    second = item_of(first_model(harness), body="A second text.")
    await recorder([second], owner="ann", lock_epoch=None, deadline=soon())

    [done] = await synchronizer(harness).push(await member(harness), deadline=soon())

    assert (done.state, done.event_id) == (PushState.DURABLE, first.id)
    assert len(await events(harness)) == 2


def first_model(harness: SyncHarness) -> Finding:
    return harness.finding(id="f-1")


async def test_many_who_push_at_once_write_each_item_once(harness: SyncHarness) -> None:
    memory = await held(harness, await harness.begin())
    for number in range(20):
        await memory.publish(harness.finding(id=f"f-{number}"))
    who = await member(harness)

    done = await asyncio.gather(*(synchronizer(harness).push(who, deadline=soon()) for _ in range(6)))

    assert {one.state for each in done for one in each} == {PushState.DURABLE}
    assert [row["record_key"] for row in await events(harness)] == [f"f-{number}" for number in range(20)]


async def test_an_item_that_cannot_be_written_holds_nothing_up(harness: SyncHarness) -> None:
    """A core that conflicts with the recorded one is rejected, with the field; the holder sees it and it is gone."""
    await harness.record("ann", id="f-1", statement="As it was.")
    memory = await held(harness, await harness.begin())
    await memory.publish(harness.finding(id="f-1", statement="Otherwise."))
    await memory.publish(harness.finding(id="f-2"))
    who = await member(harness)

    flushed = await synchronizer(harness).push(who, deadline=soon())
    mine = await synchronizer(harness, Actor("ann", Role.AGENT)).push(who, holder=memory, deadline=soon())

    for done in (flushed, mine):
        assert [(one.key, one.state, one.field) for one in done] == [
            ("f-1", PushState.REJECTED, "core"),
            ("f-2", PushState.DURABLE, None),
        ]
    assert await memory.published() == []


async def test_a_stranger_cannot_state_what_an_agent_may_not(harness: SyncHarness) -> None:
    """Somebody else's finding is denied to the role of an agent; the owner, with another role, pushes it itself."""
    memory = await held(harness, await harness.begin())
    await memory.publish(harness.finding("somebody-else", id="f-1"))
    who = await member(harness)

    result = (await force_sync(synchronizer(harness), [who.agent_id], deadline_ms=1_500))[who.agent_id]
    assert result.state is SyncState.FAILED
    assert await events(harness) == []

    person = synchronizer(harness, Actor("ann", Role.HUMAN_ADMIN))
    [done] = await person.push(who, holder=memory, deadline=soon())
    assert done.state is PushState.DURABLE


async def test_publishing_and_other_changes_are_one_write(harness: SyncHarness) -> None:
    memory = await held(harness, await harness.begin())
    item = item_of(harness.finding())

    await memory.write(put("stage", "margins"), publication(item))

    assert await memory.get("stage") == "margins"
    assert [one.id for one in await memory.published()] == [item.id]


async def test_published_items_come_back_with_the_memory(harness: SyncHarness) -> None:
    """They are part of its content: a restore brings them back, and pushing them again writes nothing."""
    memory = await held(harness, lease := await harness.begin())
    await memory.publish(harness.finding(id="f-1"))
    meta, contents = await harness.memories.read(lease.agent_id, deadline=soon())
    await synchronizer(harness).push(await member(harness), holder=memory, deadline=soon())

    again = await harness.memories.restore(meta.identity, contents, digest(contents), lease.epoch, 1, deadline=soon())
    memory = WorkingMemory(harness.memories, again)
    assert len(await memory.published()) == 1
    await synchronizer(harness).push(await member(harness), holder=memory, deadline=soon())

    assert len(await events(harness)) == 1


async def test_an_agent_without_a_memory_has_nothing_to_push(harness: SyncHarness) -> None:
    await harness.begin(memory=False)

    assert await synchronizer(harness).push(await member(harness), deadline=soon()) == []


# What an item is


@settings(max_examples=40)
@given(
    statement=st.text(
        st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=("Cs", "Cc")), min_size=1, max_size=80
    )
    .map(str.strip)
    .filter(bool),
    importance=st.none() | st.floats(0, 1, allow_nan=False),
    tier=st.none() | st.sampled_from(Tier),
)
def test_an_item_is_the_same_entry_after_it_was_kept(
    statement: str, importance: float | None, tier: Tier | None
) -> None:
    """Whoever pushes it states what the agent stated, to the byte."""
    finding = Finding(
        id="f-1", analysis_id="a-1", subject_id="company:MU", agent="ann", domain="margins",
        statement=f"x{statement}", importance=importance,
    )  # fmt: skip
    item = item_of(finding, body="Long text.", tier=tier)

    again = decoded(str(item.id).encode(), encoded(item))

    assert again == item
    assert entry_of(again.line, tier=again.tier) == entry_of(record_of(finding, body="Long text."), tier=tier)


def test_links_and_turns_are_kept_as_well() -> None:
    link = item_of(link_of("PERFORMED", ("Agent", "ann"), ("Analysis", "a-1"), {"role": "lead"}))
    turn = Turn(number=0, speaker="ann", text="No.")
    debate = Debate(
        id="d-1", subject_id="company:MU", topic="Margins", challenger_agent="ann", challenged_agent="bob",
        timestamp=datetime(2026, 6, 1, tzinfo=UTC), participants=["ann", "bob"],
    )  # fmt: skip
    for item in (link, item_of(debate, turns=[turn])):
        assert decoded(str(item.id).encode(), encoded(item)) == item


def test_what_cannot_be_published_is_refused_by_its_field() -> None:
    finding = Finding(
        id="f-1", analysis_id="a-1", subject_id="company:MU", agent="ann", domain="margins", statement="x"
    )
    with pytest.raises(BadInput, match="item: must be a record or a link"):
        item_of(correction_of(finding, "It was wrong."))
    with pytest.raises(BadInput, match="known_at"):
        item_of(record_of(finding, known_at=datetime(2026, 1, 1, tzinfo=UTC)))
    turns = [Turn(number=number, speaker="ann", text="x" * 4_000) for number in range(300)]
    debate = Debate(
        id="d-1", subject_id="company:MU", topic="Margins", challenger_agent="ann", challenged_agent="bob",
        timestamp=datetime(2026, 6, 1, tzinfo=UTC), participants=["ann", "bob"],
    )  # fmt: skip
    with pytest.raises(TooLarge, match="item: takes"):
        item_of(debate, turns=turns)


def test_an_item_that_somebody_tampered_with_is_refused() -> None:
    """The memory is not where a time comes from, or a right."""
    line = {"record": "Finding", "known_at": "2020-01-01T00:00:00Z"}
    core = {
        "id": "f", "analysis_id": "a", "subject_id": "company:MU", "agent": "ann", "domain": "m", "statement": "x",
    }  # fmt: skip
    name = b"01900000-0000-7000-8000-000000000000"
    with pytest.raises(ConsistencyError, match="has a field that none may have"):
        decoded(name, orjson.dumps({"line": {**line, "core": core}, "tier": None}))
    with pytest.raises(ConsistencyError, match="damaged"):
        decoded(name, b"{}")
