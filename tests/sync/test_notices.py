"""Queues of notices: who is admitted, who makes room, and that nothing is lost with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from imem.cache.client import Client
from imem.cache.keys import notices as keys_of
from imem.journal.actors import Actor
from imem.journal.events.entry import Tier
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of
from imem.kg.model import Debate
from imem.sync.delivery.notices import ADMITTED_BELOW, Notice, Notices, OfferResult
from imem.sync.status import watch_queue
from tests.cache.working.conftest import url_of

from .conftest import SyncHarness, soon

SYSTEM, CRITICAL, HIGH, NORMAL = Tier


async def fill(harness: SyncHarness, agent_id: str, tier: Tier, count: int, first: int = 1) -> OfferResult:
    wanted = [Notice(position, tier) for position in range(first, first + count)]
    return await harness.notices.offer(agent_id, wanted, deadline=soon())


async def one(harness: SyncHarness, agent_id: str, tier: Tier, position: int) -> OfferResult:
    return await harness.notices.offer(agent_id, [Notice(position, tier)], deadline=soon())


@pytest.mark.spec("SY-6")
async def test_a_queue_admits_by_tier(harness: SyncHarness) -> None:
    """At 70 high is refused and critical accepted; at 90 with nothing to displace only system-critical is."""
    agent_id = harness.agent("ann")
    assert (await fill(harness, agent_id, CRITICAL, 69)).depth == 69
    assert (await one(harness, agent_id, HIGH, 1000)).queued == (1000,)
    assert (await one(harness, agent_id, HIGH, 1001)).refused == (1001,)
    assert (await one(harness, agent_id, NORMAL, 1002)).refused == (1002,)
    assert (await one(harness, agent_id, CRITICAL, 1003)).queued == (1003,)

    await harness.notices.drop(agent_id, [1000], deadline=soon())
    assert (await fill(harness, agent_id, CRITICAL, 20, first=2000)).depth == 90

    refused = await one(harness, agent_id, CRITICAL, 3000)
    assert (refused.refused, refused.displaced, refused.depth) == ((3000,), (), 90)
    accepted = await one(harness, agent_id, SYSTEM, 3001)
    assert (accepted.queued, accepted.displaced, accepted.depth) == ((3001,), (), 91)


@pytest.mark.spec("SY-6")
async def test_critical_displaces_the_oldest_normal_then_high(harness: SyncHarness) -> None:
    agent_id = harness.agent("ann")
    await fill(harness, agent_id, HIGH, 2, first=10)
    await fill(harness, agent_id, NORMAL, 2, first=20)
    await fill(harness, agent_id, CRITICAL, 86, first=100)

    gone = [(await one(harness, agent_id, CRITICAL, 500 + n)).displaced for n in range(5)]

    assert gone == [(20,), (21,), (10,), (11,), ()]
    assert len(await harness.notices.waiting(agent_id, deadline=soon())) == 90


async def test_system_critical_displaces_normal_then_high_then_critical(harness: SyncHarness) -> None:
    agent_id = harness.agent("ann")
    await fill(harness, agent_id, NORMAL, 1, first=20)
    await fill(harness, agent_id, HIGH, 1, first=10)
    await fill(harness, agent_id, CRITICAL, 88, first=100)
    await fill(harness, agent_id, SYSTEM, 10, first=300)

    gone = [(await one(harness, agent_id, SYSTEM, 500 + n)).displaced for n in range(3)]

    assert gone == [(20,), (10,), (100,)]
    assert len(await harness.notices.waiting(agent_id, deadline=soon())) == 100


async def test_offering_twice_is_once(harness: SyncHarness) -> None:
    agent_id = harness.agent("ann")
    await fill(harness, agent_id, HIGH, 5)

    again = await fill(harness, agent_id, HIGH, 5)

    assert (again.depth, again.queued) == (5, (1, 2, 3, 4, 5))


def expected(offers: Sequence[Notice]) -> tuple[set[tuple[int, Tier]], int]:
    """Return what a queue holds, by a model that one can read."""
    held: list[Notice] = []
    refused = 0
    for offer in offers:
        if offer in held:
            continue
        if len(held) >= ADMITTED_BELOW[offer.tier]:
            yields = {SYSTEM: (NORMAL, HIGH, CRITICAL), CRITICAL: (NORMAL, HIGH)}.get(offer.tier, ())
            found = [min(its, key=lambda n: n.position) for t in yields if (its := [n for n in held if n.tier is t])]
            if not found:
                refused += 1
                continue
            held.remove(found[0])
        held.append(offer)
    return {(one.position, one.tier) for one in held}, refused


@settings(max_examples=30)
@given(tiers=st.lists(st.sampled_from(Tier), min_size=60, max_size=180))
def test_queues_behave_as_the_model(light_stack: Any, tiers: list[Tier]) -> None:
    """Whatever comes in whatever order, depth never passes 100 and nothing urgent makes room for less urgent."""
    offers = [Notice(number, tier) for number, tier in enumerate(tiers, 1)]

    async def run() -> None:
        async with Client(url_of(light_stack, "durable")) as client:
            queue, agent_id = Notices(client), f"model-{time.monotonic_ns()}"
            refused = 0
            for offer in offers:
                result = await queue.offer(agent_id, [offer], deadline=soon())
                refused += len(result.refused)
                assert result.depth <= 100
            held = {(one.position, one.tier) for one in await queue.waiting(agent_id, deadline=soon())}
            assert (held, refused) == expected(offers)

    asyncio.run(run())


# From rows


@pytest.mark.spec("SY-7")
async def test_a_regime_change_reaches_every_agent_and_what_it_displaced_arrives_later(harness: SyncHarness) -> None:
    """With 90 critical and 10 system-critical notices in every queue."""
    everybody = [
        (await harness.begin(f"agent{n}", kind)).agent_id for n, kind in enumerate(("valuation", "business", "macro"))
    ]
    first = await harness.record("zed", tier=CRITICAL, importance=0.9)
    await harness.router.step()
    assert first.position is not None
    for agent_id in everybody:
        # The oldest critical one is real; the rest stand for what came before it.
        await fill(harness, agent_id, CRITICAL, 89, first=first.position + 1_000)
        await fill(harness, agent_id, SYSTEM, 10, first=first.position + 2_000)

    began = time.monotonic()
    change = await harness.record("zed", tier=SYSTEM, statement="The regime has changed.")
    await harness.router.step()

    waits = {agent_id: await harness.notices.waiting(agent_id, deadline=soon()) for agent_id in everybody}
    assert time.monotonic() - began < 2.0
    assert all(Notice(change.position or 0, SYSTEM) in notices for notices in waits.values())
    assert all(Notice(first.position, CRITICAL) not in notices for notices in waits.values())
    assert {len(notices) for notices in waits.values()} == {100}

    for agent_id in everybody:
        await harness.notices.drop(agent_id, range(first.position + 1_000, first.position + 1_040), deadline=soon())
    await harness.router.queue_notices(deadline=soon())

    for agent_id in everybody:
        assert Notice(first.position, CRITICAL) in await harness.notices.waiting(agent_id, deadline=soon())


@pytest.mark.spec("SY-5")
async def test_notices_that_were_lost_with_their_server_are_queued_again(
    harness: SyncHarness, light_stack: Any
) -> None:
    agent_id = (await harness.begin("bob")).agent_id
    receipt = await harness.record("ann", importance=0.9)
    await harness.router.step()
    with redis.Redis.from_url(url_of(light_stack, "durable")) as bare:
        bare.delete(*keys_of(agent_id), b"imem:notices-run")

    await harness.router.step()

    assert [one.position for one in await harness.notices.waiting(agent_id, deadline=soon())] == [receipt.position]


async def test_the_sender_hears_nothing_of_its_own_word(harness: SyncHarness) -> None:
    own, other = (await harness.begin("ann")).agent_id, (await harness.begin("bob", "business")).agent_id
    await harness.record("ann", importance=0.9)
    await harness.router.step()

    assert await harness.notices.waiting(own, deadline=soon()) == []
    assert len(await harness.notices.waiting(other, deadline=soon())) == 1


async def test_a_challenge_reaches_another_instance_of_the_same_owner(harness: SyncHarness) -> None:
    """Named recipients are always told; and a challenge is critical without anybody's saying so."""
    one = (await harness.begin("ann")).agent_id
    other = (await harness.begin("second", "business", owner="ann")).agent_id
    challenge = Debate(
        id="d-1",
        subject_id="company:MU",
        analysis_id=harness.analysis,
        topic="Margins",
        challenger_agent=one,
        challenged_agent=other,
        participants=[one, other],
        timestamp=datetime(2026, 6, 1, tzinfo=UTC),
    )
    [receipt] = await harness.gateway("ann").append([entry_of(record_of(challenge))], deadline=soon())
    await harness.router.step()

    assert await harness.notices.waiting(other, deadline=soon()) == [Notice(receipt.position or 0, CRITICAL)]


async def test_the_deepest_queue_is_seen_as_long_as_it_is_deep(harness: SyncHarness) -> None:
    """Also when nothing is queued any more; not where the analysis is over."""
    await harness.begin("bob")
    for _ in range(3):
        await harness.record("ann", importance=0.9)
    for _ in range(2):
        await harness.router.step()

    assert await deepest(harness) == 3.0
    labels = {"queue": "delivery", "tier": "normal"}
    assert REGISTRY.get_sample_value("sync_queue_depth_gauge", labels) == 3.0
    assert REGISTRY.get_sample_value("sync_backpressure_active_gauge", {"queue": "delivery"}) == 0.0
    harness.owner("UPDATE workflow.recipient SET pulled_at = imem_now() WHERE seq = 1")
    assert await deepest(harness) == 2.0
    harness.owner("UPDATE workflow.analysis SET outcome = 'succeeded', ended_at = imem_now()")
    assert await deepest(harness) == 0.0


async def deepest(harness: SyncHarness) -> float | None:
    """Return what the metric says after one look."""

    async def stop(_: float) -> None:
        raise EOFError

    with pytest.raises(EOFError):
        await watch_queue(harness.database, lambda: False, sleep=stop)
    return REGISTRY.get_sample_value("sync_notices_deepest_queue")


async def test_scores_are_logged_also_of_those_who_are_not_told(harness: SyncHarness) -> None:
    near = (await harness.begin("bob")).agent_id
    far = (await harness.begin("cyd", "macro", analysis="other:" + harness.mark, subject="company:NVDA")).agent_id
    receipt = await harness.record("ann", importance=0.9)
    await harness.router.step()

    found = await harness.database.named("recipients_of", {"position": receipt.position}, deadline=soon())

    assert {row["agent_id"]: row["why"] for row in found} == {near: "important", far: "below"}
    assert all(len(row["parts"]) == 5 and 0 <= row["score"] <= 1 for row in found)


async def test_history_that_is_imported_tells_nobody(harness: SyncHarness) -> None:
    await harness.begin("bob")
    importer = Gateway(harness.pipelines, Actor("import:desk", Role.KNOWLEDGE_BASE_AGENT, may_import=True))
    old = record_of(harness.finding("ann", importance=0.9), known_at=datetime(2026, 1, 1, tzinfo=UTC))
    [receipt] = await importer.append([entry_of(old)], deadline=soon())
    assert receipt.durable

    assert await harness.router.route(deadline=soon()) == 0


async def test_two_routers_at_once_tell_each_agent_once(harness: SyncHarness) -> None:
    agent_id = (await harness.begin("bob")).agent_id
    for _ in range(30):
        await harness.record("ann", importance=0.9)

    done = await asyncio.gather(*(harness.router.route(limit=5, deadline=soon()) for _ in range(10)))
    done += [await harness.router.route_all(deadline=soon())]

    assert sum(done) == 30
    numbers = await harness.rows("SELECT seq FROM workflow.recipient WHERE agent_id = %s ORDER BY seq", agent_id)
    assert [row["seq"] for row in numbers] == list(range(1, 31))


async def test_a_queue_that_grows_raises_one_alert_that_ends_when_it_is_pulled(harness: SyncHarness) -> None:
    agent_id = (await harness.begin("bob")).agent_id
    for _ in range(52):
        await harness.record("ann", importance=0.9)
    for _ in range(2):
        await harness.router.step()

    alerts = await harness.rows("SELECT severity, closed_at FROM workflow.alert WHERE kind = 'NOTICES_WAITING'")
    assert [(row["severity"], row["closed_at"]) for row in alerts] == [("HIGH", None)]

    positions = [one.position for one in await harness.notices.waiting(agent_id, deadline=soon())]
    await harness.rows("UPDATE workflow.recipient SET pulled_at = imem_now() RETURNING 1")
    await harness.notices.drop(agent_id, positions, deadline=soon())
    await harness.router.step()

    alerts = await harness.rows("SELECT closed_at FROM workflow.alert WHERE kind = 'NOTICES_WAITING'")
    assert [row["closed_at"] is None for row in alerts] == [False]
