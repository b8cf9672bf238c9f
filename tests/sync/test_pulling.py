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

from .conftest import SyncHarness, soon
from .parts import force_sync, graph_that_follows, held, member, nowhere, synchronizer


async def told(harness: SyncHarness, count: int = 1, **named: Any) -> list[str]:
    """Have somebody say things that everybody here is told; return their keys."""
    keys = []
    for _ in range(count):
        finding_id = f"f-{len(await harness.rows('SELECT FROM event'))}"
        await harness.record("zed", id=finding_id, **{"importance": 0.9, **named})
        keys.append(finding_id)
    await harness.router.step()
    return keys


async def test_a_pull_brings_what_was_told_once(harness: SyncHarness) -> None:
    await harness.begin()
    keys = await told(harness, 3)
    who, sync = await member(harness), synchronizer(harness)

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


async def test_an_agent_that_lost_what_it_knew_pulls_from_a_number_on(harness: SyncHarness) -> None:
    await harness.begin()
    keys = await told(harness, 3)
    who, sync = await member(harness), synchronizer(harness)
    await sync.pull(who, deadline=soon())

    again = await sync.pull(who, 1, deadline=soon())

    assert [one.key for one in again.updates] == keys[1:]
    assert again.cursor == 3


async def test_what_a_filter_leaves_out_still_waits(harness: SyncHarness) -> None:
    await harness.begin()
    await told(harness, 2)
    urgent = await told(harness, 1, tier=Tier.CRITICAL)
    who, sync = await member(harness), synchronizer(harness)

    got = await sync.pull(who, wanted=PullFilter.of(tiers=["critical"]), deadline=soon())

    assert [one.key for one in got.updates] == urgent
    assert (got.cursor, got.waiting) == (0, 2)
    assert len((await sync.pull(who, wanted=PullFilter.of(limit=1), deadline=soon())).updates) == 1


async def test_what_was_too_irrelevant_can_be_looked_at_apart(harness: SyncHarness) -> None:
    await harness.begin()
    await harness.record("zed", id="f-far", subject_id="company:NVDA", analysis_id="other", domain="options")
    await harness.router.step()
    who, sync = await member(harness), synchronizer(harness)

    assert (await sync.pull(who, deadline=soon())).updates == ()
    [apart] = (await sync.pull(who, wanted=PullFilter.of(apart=True), deadline=soon())).updates
    assert (apart.seq, apart.key, apart.why) == (None, "f-far", "below")
    assert (await sync.pull(who, wanted=PullFilter.of(apart=True), deadline=soon())).updates == ()


async def test_what_an_agent_takes_counts_for_the_next_score(harness: SyncHarness) -> None:
    await harness.begin()
    await told(harness, 1)
    before = (await harness.rows("SELECT parts[3] AS usage FROM workflow.recipient"))[0]["usage"]
    await synchronizer(harness).pull(await member(harness), deadline=soon())
    await told(harness, 1)

    after = (await harness.rows("SELECT parts[3] AS usage FROM workflow.recipient ORDER BY position DESC"))[0]["usage"]

    assert (before, round(after, 4)) == (0.5, 0.6667)


# Beside the memory


async def test_knowledge_lies_beside_the_working_keys(harness: SyncHarness) -> None:
    """In no list of keys, no content, no digest, no size."""
    memory = await held(harness, await harness.begin())
    await memory.set("stage", "margins")
    meta, contents = await harness.memories.read(memory.identity.agent_id, deadline=soon())
    [key] = await told(harness, 1)

    await synchronizer(harness).pull(await member(harness), deadline=soon())

    assert [one["key"] for one in await memory.knowledge()] == [key]
    assert await memory.keys() == ["stage"]
    again, now = await harness.memories.read(memory.identity.agent_id, deadline=soon())
    assert (digest(now), again.size_bytes, again.rev) == (digest(contents), meta.size_bytes, meta.rev)


async def test_knowledge_lives_and_ends_with_the_memory(harness: SyncHarness, light_stack: Any) -> None:
    lease = await harness.begin()
    await told(harness, 1)
    await synchronizer(harness).pull(await member(harness), deadline=soon())
    its, agent_id = keys_of(lease.agent_id), lease.agent_id

    with bare_client(url_of(light_stack, "working")) as bare:

        def ends() -> tuple[int, int]:
            return bare.pexpiretime(its.knowledge), bare.pexpiretime(its.meta)

        assert ends()[0] == ends()[1] > 0
        later = harness.memories._clock.now() + timedelta(days=10)
        await harness.memories.expire(agent_id, ExpiryMode.PAUSED, later, deadline=soon())
        assert ends()[0] == ends()[1] == int(later.timestamp() * 1000)

        await harness.memories.clear(agent_id, lease.epoch, deadline=soon())
        assert bare.exists(its.knowledge) == 0


async def test_knowledge_outlasts_a_restore_of_the_same_memory_alone(harness: SyncHarness) -> None:
    memory = await held(harness, lease := await harness.begin())
    await memory.set("stage", "margins")
    await told(harness, 1)
    await synchronizer(harness).pull(await member(harness), deadline=soon())
    meta, contents = await harness.memories.read(lease.agent_id, deadline=soon())

    meta = await harness.memories.restore(meta.identity, contents, digest(contents), lease.epoch, 1, deadline=soon())
    assert len(await WorkingMemory(harness.memories, meta).knowledge()) == 1

    meta = await harness.memories.open(meta.identity, lease.epoch, replace=True, deadline=soon())
    assert await WorkingMemory(harness.memories, meta).knowledge() == []


async def test_knowledge_is_bounded_and_the_oldest_goes(harness: SyncHarness) -> None:
    lease = await harness.begin()
    for first in range(0, MOST_KNOWN + 100, 100):
        updates = {number: b'{"key":"%d"}' % number for number in range(first, first + 100)}
        await harness.memories.learn(lease.agent_id, updates, deadline=soon())

    known = await (await held(harness, lease)).knowledge()

    assert [one["key"] for one in known] == [str(number) for number in range(100, MOST_KNOWN + 100)]


async def test_what_cannot_be_put_beside_the_memory_is_not_pulled(harness: SyncHarness) -> None:
    """Its server is away: whoever pulled for the agent would have it, and the agent never."""
    await harness.begin()
    [key] = await told(harness, 1)

    with pytest.raises(ValkeyUnavailable):
        await synchronizer(harness, memories=nowhere()).pull(await member(harness), deadline=soon())

    assert [one.key for one in (await synchronizer(harness).pull(await member(harness), deadline=soon())).updates] == [
        key
    ]


async def test_an_agent_without_a_memory_gets_the_updates_all_the_same(harness: SyncHarness) -> None:
    await harness.begin(memory=False)
    await told(harness, 1)

    got = await synchronizer(harness).pull(await member(harness), deadline=soon())

    assert (len(got.updates), got.kept) == (1, False)
    with pytest.raises(NotOpen):
        await harness.memories.learn(harness.agent("ann"), {1: b"{}"}, deadline=soon())


# Synchronising


async def test_synchronising_works_both_ways(harness: SyncHarness) -> None:
    """What each published is durable and visible, and reaches the others, without the router."""
    ann, bob = await held(harness, await harness.begin()), await held(harness, await harness.begin("bob", "business"))
    await ann.publish(harness.finding("ann", id="f-a", importance=0.9))
    await bob.publish(harness.finding("bob", id="f-b", importance=0.9))

    async with graph_that_follows(harness):
        done = await force_sync(synchronizer(harness), [harness.agent("ann"), harness.agent("bob")])

    assert {one.state for one in done.values()} == {SyncState.SYNCHRONIZED}
    assert [(one.pushed, one.pulled) for one in done.values()] == [(1, 1), (1, 1)]
    assert [one["key"] for one in await ann.knowledge()] == ["f-b"]
    assert [one["key"] for one in await bob.knowledge()] == ["f-a"]


async def test_a_graph_that_does_not_answer_leaves_everything_durable(harness: SyncHarness) -> None:
    memory = await held(harness, await harness.begin())
    await memory.publish(harness.finding(id="f-a"))

    done = await force_sync(synchronizer(harness), [harness.agent("ann")], deadline_ms=1_500)

    assert [(one.state, one.pushed) for one in done.values()] == [(SyncState.DURABLE_NOT_VISIBLE, 1)]
    waiting = await harness.rows("SELECT tier FROM delivery WHERE state = 'pending'")
    assert [row["tier"] for row in waiting] == [1]


async def test_synchronising_brings_everything_that_is_urgent(harness: SyncHarness) -> None:
    """However many pulls that takes."""
    await harness.begin()
    more = PAGE + 1
    await asyncio.gather(*(harness.record("zed", tier=Tier.HIGH, importance=0.9) for _ in range(more)))
    harness.applied()

    [done] = (await force_sync(synchronizer(harness), [harness.agent("ann")])).values()

    assert (done.state, done.pulled) == (SyncState.SYNCHRONIZED, more)
    assert (await synchronizer(harness).pull(await member(harness), deadline=soon())).waiting == 0


class Busy(Router):
    """Routes as long as it may, because so much is to be routed."""

    async def route_all(self, *, deadline: Deadline) -> int:
        await asyncio.sleep(deadline.left_s())
        raise BudgetExceeded("There was more.")


async def test_much_that_is_to_be_routed_hides_nothing_that_is_visible(
    harness: SyncHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routing has all of the time that waiting for the graph has, and takes none of it."""
    monkeypatch.setattr(imem.sync.synchronizer, "_SPARE_MS", 1_000.0)
    memory = await held(harness, await harness.begin())
    await memory.publish(harness.finding(id="f-a"))
    ours = synchronizer(harness)
    ours.router = Busy(harness.database)

    async with graph_that_follows(harness):
        [done] = (await force_sync(ours, [harness.agent("ann")])).values()

    assert (done.state, done.pushed) == (SyncState.SYNCHRONIZED, 1)


async def test_a_memory_that_cannot_be_reached_fails_alone(harness: SyncHarness) -> None:
    await harness.begin()

    done = await force_sync(synchronizer(harness, memories=nowhere()), [harness.agent("ann")], deadline_ms=1_500)

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
async def test_what_cannot_be_synchronised_is_refused_by_its_field(harness: SyncHarness, call: Any, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        await force_sync(synchronizer(harness), **call)
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


async def test_a_number_to_pull_from_is_not_negative(harness: SyncHarness) -> None:
    await harness.begin()
    with pytest.raises(BadInput, match="since"):
        await synchronizer(harness).pull(await member(harness), -1, deadline=soon())
