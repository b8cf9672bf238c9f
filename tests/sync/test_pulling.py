"""What others said reaches an agent once, lies beside its memory, and ends with it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import imem.sync.synchronizer
from imem.cache.keys import working as keys_of
from imem.cache.working.document import digest
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.state import ExpiryMode
from imem.cache.working.store import MOST_KNOWN
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, NotOpen, ValkeyUnavailable
from imem.journal.events.entry import Tier
from imem.sync.delivery.puller import PAGE, PullFilter
from imem.sync.delivery.routing import Router
from imem.sync.synchronizer import SyncState
from tests.cache.working.conftest import bare_client, url_of

from .conftest import Desk, soon
from .parts import force_sync, graph_that_follows, held, member, nowhere, synchronizer


async def told(desk: Desk, count: int = 1, **named: Any) -> list[str]:
    """Have somebody say things that everybody here is told; return their keys."""
    keys = []
    for _ in range(count):
        finding_id = f"f-{len(await desk.rows('SELECT FROM event'))}"
        await desk.record("zed", id=finding_id, **{"importance": 0.9, **named})
        keys.append(finding_id)
    await desk.router.step()
    return keys


async def test_a_pull_brings_what_was_told_once(desk: Desk) -> None:
    await desk.begin()
    keys = await told(desk, 3)
    who, sync = await member(desk), synchronizer(desk)

    first = await sync.pull(who, deadline=soon())
    second = await sync.pull(who, deadline=soon())

    assert [(one.seq, one.key, one.kind, one.actor) for one in first.updates] == [
        (number, key, "Finding", "zed") for number, key in enumerate(keys, 1)
    ]
    assert first.updates[0].content["core"]["statement"] == "Margins widen."
    assert not first.updates[0].in_graph
    assert (first.cursor, first.waiting, first.kept) == (3, 0, True)
    assert (second.updates, second.cursor) == ((), 3)
    assert await sync.notices(who, deadline=soon()) == []


async def test_an_agent_that_lost_what_it_knew_pulls_from_a_number_on(desk: Desk) -> None:
    await desk.begin()
    keys = await told(desk, 3)
    who, sync = await member(desk), synchronizer(desk)
    await sync.pull(who, deadline=soon())

    again = await sync.pull(who, 1, deadline=soon())

    assert [one.key for one in again.updates] == keys[1:]
    assert again.cursor == 3


async def test_what_a_filter_leaves_out_still_waits(desk: Desk) -> None:
    await desk.begin()
    await told(desk, 2)
    urgent = await told(desk, 1, tier=Tier.CRITICAL)
    who, sync = await member(desk), synchronizer(desk)

    got = await sync.pull(who, wanted=PullFilter.of(tiers=["critical"]), deadline=soon())

    assert [one.key for one in got.updates] == urgent
    assert (got.cursor, got.waiting) == (0, 2)
    assert len((await sync.pull(who, wanted=PullFilter.of(limit=1), deadline=soon())).updates) == 1


async def test_what_was_too_irrelevant_can_be_looked_at_apart(desk: Desk) -> None:
    await desk.begin()
    await desk.record("zed", id="f-far", subject_id="company:NVDA", analysis_id="other", domain="options")
    await desk.router.step()
    who, sync = await member(desk), synchronizer(desk)

    assert (await sync.pull(who, deadline=soon())).updates == ()
    [apart] = (await sync.pull(who, wanted=PullFilter.of(apart=True), deadline=soon())).updates
    assert (apart.seq, apart.key, apart.why) == (None, "f-far", "below")
    assert (await sync.pull(who, wanted=PullFilter.of(apart=True), deadline=soon())).updates == ()


async def test_what_an_agent_takes_counts_for_the_next_score(desk: Desk) -> None:
    await desk.begin()
    await told(desk, 1)
    before = (await desk.rows("SELECT parts[3] AS usage FROM workflow.recipient"))[0]["usage"]
    await synchronizer(desk).pull(await member(desk), deadline=soon())
    await told(desk, 1)

    after = (await desk.rows("SELECT parts[3] AS usage FROM workflow.recipient ORDER BY position DESC"))[0]["usage"]

    assert (before, round(after, 4)) == (0.5, 0.6667)


# Beside the memory


async def test_knowledge_lies_beside_the_working_keys(desk: Desk) -> None:
    """In no list of keys, no content, no digest, no size."""
    memory = await held(desk, await desk.begin())
    await memory.set("stage", "margins")
    meta, contents = await desk.memories.read(memory.identity.agent_id, deadline=soon())
    [key] = await told(desk, 1)

    await synchronizer(desk).pull(await member(desk), deadline=soon())

    assert [one["key"] for one in await memory.knowledge()] == [key]
    assert await memory.keys() == ["stage"]
    again, now = await desk.memories.read(memory.identity.agent_id, deadline=soon())
    assert (digest(now), again.size_bytes, again.rev) == (digest(contents), meta.size_bytes, meta.rev)


async def test_knowledge_lives_and_ends_with_the_memory(desk: Desk, light_stack: Any) -> None:
    lease = await desk.begin()
    await told(desk, 1)
    await synchronizer(desk).pull(await member(desk), deadline=soon())
    its, agent_id = keys_of(lease.agent_id), lease.agent_id

    with bare_client(url_of(light_stack, "working")) as bare:

        def ends() -> tuple[int, int]:
            return bare.pexpiretime(its.knowledge), bare.pexpiretime(its.meta)

        assert ends()[0] == ends()[1] > 0
        later = desk.memories._clock.now() + timedelta(days=10)
        await desk.memories.expire(agent_id, ExpiryMode.PAUSED, later, deadline=soon())
        assert ends()[0] == ends()[1] == int(later.timestamp() * 1000)

        await desk.memories.clear(agent_id, lease.epoch, deadline=soon())
        assert bare.exists(its.knowledge) == 0


async def test_knowledge_outlasts_a_restore_of_the_same_memory_alone(desk: Desk) -> None:
    memory = await held(desk, lease := await desk.begin())
    await memory.set("stage", "margins")
    await told(desk, 1)
    await synchronizer(desk).pull(await member(desk), deadline=soon())
    meta, contents = await desk.memories.read(lease.agent_id, deadline=soon())

    meta = await desk.memories.restore(meta.identity, contents, digest(contents), lease.epoch, 1, deadline=soon())
    assert len(await WorkingMemory(desk.memories, meta).knowledge()) == 1

    meta = await desk.memories.open(meta.identity, lease.epoch, replace=True, deadline=soon())
    assert await WorkingMemory(desk.memories, meta).knowledge() == []


async def test_knowledge_is_bounded_and_the_oldest_goes(desk: Desk) -> None:
    lease = await desk.begin()
    for first in range(0, MOST_KNOWN + 100, 100):
        updates = {number: b'{"key":"%d"}' % number for number in range(first, first + 100)}
        await desk.memories.learn(lease.agent_id, updates, deadline=soon())

    known = await (await held(desk, lease)).knowledge()

    assert [one["key"] for one in known] == [str(number) for number in range(100, MOST_KNOWN + 100)]


async def test_what_cannot_be_put_beside_the_memory_is_not_pulled(desk: Desk) -> None:
    """Its server is away: whoever pulled for the agent would have it, and the agent never."""
    await desk.begin()
    [key] = await told(desk, 1)

    with pytest.raises(ValkeyUnavailable):
        await synchronizer(desk, memories=nowhere()).pull(await member(desk), deadline=soon())

    assert [one.key for one in (await synchronizer(desk).pull(await member(desk), deadline=soon())).updates] == [key]


async def test_an_agent_without_a_memory_gets_the_updates_all_the_same(desk: Desk) -> None:
    await desk.begin(memory=False)
    await told(desk, 1)

    got = await synchronizer(desk).pull(await member(desk), deadline=soon())

    assert (len(got.updates), got.kept) == (1, False)
    with pytest.raises(NotOpen):
        await desk.memories.learn(desk.agent("ann"), {1: b"{}"}, deadline=soon())


# Synchronising


async def test_synchronising_works_both_ways(desk: Desk) -> None:
    """What each published is durable and visible, and reaches the others, without the router."""
    ann, bob = await held(desk, await desk.begin()), await held(desk, await desk.begin("bob", "business"))
    await ann.publish(desk.finding("ann", id="f-a", importance=0.9))
    await bob.publish(desk.finding("bob", id="f-b", importance=0.9))

    async with graph_that_follows(desk):
        done = await force_sync(synchronizer(desk), [desk.agent("ann"), desk.agent("bob")])

    assert {one.state for one in done.values()} == {SyncState.SYNCHRONIZED}
    assert [(one.pushed, one.pulled) for one in done.values()] == [(1, 1), (1, 1)]
    assert [one["key"] for one in await ann.knowledge()] == ["f-b"]
    assert [one["key"] for one in await bob.knowledge()] == ["f-a"]


async def test_a_graph_that_does_not_answer_leaves_everything_durable(desk: Desk) -> None:
    memory = await held(desk, await desk.begin())
    await memory.publish(desk.finding(id="f-a"))

    done = await force_sync(synchronizer(desk), [desk.agent("ann")], deadline_ms=1_500)

    assert [(one.state, one.pushed) for one in done.values()] == [(SyncState.DURABLE_NOT_VISIBLE, 1)]
    waiting = await desk.rows("SELECT tier FROM delivery WHERE state = 'pending'")
    assert [row["tier"] for row in waiting] == [1]


async def test_synchronising_brings_everything_that_is_urgent(desk: Desk) -> None:
    """However many pulls that takes."""
    await desk.begin()
    more = PAGE + 1
    await asyncio.gather(*(desk.record("zed", tier=Tier.HIGH, importance=0.9) for _ in range(more)))
    desk.applied()

    [done] = (await force_sync(synchronizer(desk), [desk.agent("ann")])).values()

    assert (done.state, done.pulled) == (SyncState.SYNCHRONIZED, more)
    assert (await synchronizer(desk).pull(await member(desk), deadline=soon())).waiting == 0


class Busy(Router):
    """Routes as long as it may, because so much is to be routed."""

    async def route_all(self, *, deadline: Deadline) -> int:
        await asyncio.sleep(deadline.left_s())
        raise BudgetExceeded("There was more.")


async def test_much_that_is_to_be_routed_hides_nothing_that_is_visible(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routing has all of the time that waiting for the graph has, and takes none of it."""
    monkeypatch.setattr(imem.sync.synchronizer, "_SPARE_MS", 1_000.0)
    memory = await held(desk, await desk.begin())
    await memory.publish(desk.finding(id="f-a"))
    ours = synchronizer(desk)
    ours.router = Busy(desk.database)

    async with graph_that_follows(desk):
        [done] = (await force_sync(ours, [desk.agent("ann")])).values()

    assert (done.state, done.pushed) == (SyncState.SYNCHRONIZED, 1)


async def test_a_memory_that_cannot_be_reached_fails_alone(desk: Desk) -> None:
    await desk.begin()

    done = await force_sync(synchronizer(desk, memories=nowhere()), [desk.agent("ann")], deadline_ms=1_500)

    [one] = done.values()
    assert (one.state, one.retryable) == (SyncState.FAILED, True)
    assert "pushing: The working Valkey cannot be reached" in (one.reason or "")


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ({"agent_ids": ["nobody-at-all"]}, "agents"),
        ({"agent_ids": []}, "agents"),
        ({"agent_ids": ["not an id"]}, "agent_id"),
    ],
)
async def test_what_cannot_be_synchronised_is_refused_by_its_field(desk: Desk, call: Any, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        await force_sync(synchronizer(desk), **call)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"tiers": [4]}, "tiers"),
        ({"tiers": ["urgent"]}, "tiers"),
        ({"tiers": []}, "tiers"),
        ({"kinds": ["Fact"]}, "kinds"),
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"analysis_id": ""}, "analysis_id"),
    ],
)
def test_what_cannot_be_filtered_is_refused_by_its_field(given: Any, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        PullFilter.of(**given)
    assert refused.value.field == field


async def test_a_number_to_pull_from_is_not_negative(desk: Desk) -> None:
    await desk.begin()
    with pytest.raises(BadInput, match="since"):
        await synchronizer(desk).pull(await member(desk), -1, deadline=soon())
