"""Snapshots of debates: the same for all, of one moment, immutable, proven on each read, and there for good."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import Any
from uuid import uuid4

import orjson
import psycopg
import pytest

from imem.cache.client import Client
from imem.cache.keys import memory_snapshot
from imem.cache.working.store import WorkingStore
from imem.ingest.recorder import Recorder
from imem.journal.actors import Actor
from imem.journal.clock import SystemClock
from imem.journal.errors import BadInput, ConsistencyError, LeaseHeld, LeaseLost, PostgresUnavailable, TransitionRefused
from imem.journal.events.entry import Tier
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import correction_of, link_of
from imem.sync.locks import WriteLocks
from imem.sync.snapshots import MOST_DEFERRALS, SnapshotOutcome, Snapshots
from imem.sync.synchronizer import Synchronizer
from tests.cache.working.conftest import bare_client, url_of

from .conftest import SyncHarness, soon
from .parts import debate, graph_that_follows, held, nowhere, snapshots


async def two(harness: SyncHarness) -> tuple[Any, Any]:
    """Have two agents who are about to argue; return their memories."""
    ann, bob = await held(harness, await harness.begin()), await held(harness, await harness.begin("bob", "business"))
    debate(harness)
    return ann, bob


@pytest.mark.spec("SY-3")
async def test_a_finding_stored_before_a_challenge_is_in_the_snapshot(harness: SyncHarness) -> None:
    ann, bob = await two(harness)
    await ann.publish(harness.finding("ann", id="f-a", statement="Margins widen."))
    await bob.publish(harness.finding("bob", id="f-b", statement="Margins narrow."))

    async with graph_that_follows(harness):
        taken = await snapshots(harness).take("d-1")

    assert (taken.outcome, taken.degraded, taken.excluded) == (SnapshotOutcome.TAKEN, False, ())
    found = await snapshots(harness).read(taken.snapshot_id or "", deadline=soon())
    texts = {one["node"]: one["content"]["core"]["statement"] for one in found.body["records"]}
    assert texts == {"Finding/f-a": "Margins widen.", "Finding/f-b": "Margins narrow."}
    assert {agent: one["pushed_seq"] for agent, one in found.seqs.items()} == {
        harness.agent("ann"): 1,
        harness.agent("bob"): 1,
    }
    assert found.stale_reason is None


async def test_what_is_not_published_is_in_no_snapshot(harness: SyncHarness) -> None:
    ann, _ = await two(harness)
    await ann.set("thought", "I am not sure of this at all.")

    taken = await snapshots(harness).take("d-1", deadline_ms=20_000)

    found = await snapshots(harness).read(taken.snapshot_id or "", deadline=soon())
    assert "not sure" not in orjson.dumps(found).decode()


@pytest.mark.spec("SY-11")
async def test_all_participants_read_the_same_and_later_writes_leave_it_unchanged(harness: SyncHarness) -> None:
    ann, _ = await two(harness)
    await ann.publish(harness.finding("ann", id="f-a"))
    taken = await snapshots(harness).take("d-1", deadline_ms=20_000)

    before = [await snapshots(harness).read(taken.snapshot_id or "", deadline=soon()) for _ in range(3)]
    await ann.publish(harness.finding("ann", id="f-later"))
    await harness.record("bob", id="f-other")
    repeated = await snapshots(harness).take("d-1", deadline_ms=20_000)
    after = await snapshots(harness).read(taken.snapshot_id or "", deadline=soon())

    assert {one.sha256 for one in [*before, after]} == {taken.sha256}
    assert hashlib.sha256(orjson.dumps(after.body, option=orjson.OPT_SORT_KEYS)).hexdigest() == taken.sha256
    assert (repeated.snapshot_id, repeated.sha256) == (taken.snapshot_id, taken.sha256)
    assert [one["node"] for one in after.body["records"]] == ["Finding/f-a"]


async def test_the_manifest_names_each_record_by_version_and_hash(harness: SyncHarness) -> None:
    ann, _ = await two(harness)
    await ann.publish(harness.finding("ann", id="f-a"))
    taken = await snapshots(harness).take("d-1", deadline_ms=20_000)

    [row] = await harness.rows("SELECT manifest, body FROM workflow.memory_snapshot")
    [position] = [row["position"] for row in await harness.rows("SELECT position FROM event")]

    content = orjson.loads(row["body"])["records"][0]["content"]
    expected = hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
    assert row["manifest"] == [{"node": "Finding/f-a", "version": position, "hash": expected}]
    assert taken.degraded


async def test_corrections_links_and_late_groups_are_as_they_stand(harness: SyncHarness) -> None:
    await two(harness)
    priya = Gateway(harness.pipelines, Actor("priya", Role.HUMAN_ADMIN))
    await harness.record("ann", id="f-a", statement="It was so.")
    await harness.record("bob", id="f-b")
    fix = entry_of(correction_of(harness.finding("ann", id="f-a", statement="It is so."), "A slip."))
    cites = entry_of(link_of("CITES", ("Finding", "f-a"), ("Finding", "f-b"), {"at": "2026-06-01T10:00:00Z"}))
    await priya.append([fix, cites], deadline=soon())

    taken = await snapshots(harness).take("d-1", deadline_ms=20_000)

    body = (await snapshots(harness).read(taken.snapshot_id or "", deadline=soon())).body
    assert body["records"][0]["content"]["core"]["statement"] == "It is so."
    assert [(one["from"], one["to"]) for one in body["citations"]] == [("Finding/f-a", "Finding/f-b")]


async def test_what_the_graph_lacks_is_in_it_and_flags_the_debate(harness: SyncHarness) -> None:
    ann, _ = await two(harness)
    await ann.publish(harness.finding("ann", id="f-a"))

    taken = await snapshots(harness).take("d-1", deadline_ms=20_000)

    found = await snapshots(harness).read(taken.snapshot_id or "", deadline=soon())
    assert (taken.degraded, found.degraded) == (True, True)
    assert len(found.body["not_in_graph"]) == 1
    assert (await harness.rows("SELECT degraded FROM workflow.memory_snapshot"))[0]["degraded"]


@pytest.mark.spec("SY-10")
async def test_nothing_is_pushed_between_flush_and_freeze(harness: SyncHarness) -> None:
    """Both sides write all the while; what was acknowledged before the lock is in, what came after is not."""
    await two(harness)
    acknowledged: list[int] = []
    stop, locked_out = asyncio.Event(), 0

    async def write(actor: str) -> None:
        nonlocal locked_out
        while not stop.is_set():
            try:
                receipt = await harness.record(actor)
                acknowledged.append(receipt.position or 0)
            except LeaseHeld:
                locked_out += 1
                await asyncio.sleep(0.002)

    writing = [asyncio.create_task(write(actor)) for actor in ("ann", "bob")]
    await asyncio.sleep(0.1)
    before = list(acknowledged)
    taken = await snapshots(harness).take("d-1", deadline_ms=20_000)
    await asyncio.sleep(0.1)
    stop.set()
    await asyncio.gather(*writing)

    body = (await snapshots(harness).read(taken.snapshot_id or "", deadline=soon())).body
    held_positions = {one["version"] for one in body["records"]}
    assert set(before) <= held_positions
    assert held_positions == {position for position in acknowledged if position <= body["upto"]}
    assert locked_out > 0
    assert any(position > body["upto"] for position in acknowledged)


@pytest.mark.spec("SY-13")
async def test_debates_that_share_agents_are_all_opened(harness: SyncHarness) -> None:
    names = ["ann", "bob", "cyd", "dan"]
    for name, kind in zip(names, ("valuation", "business", "macro", "strategy"), strict=True):
        await harness.begin(name, kind)
    pairs = [(one, other) for one in names for other in names if one != other]
    for number, (one, other) in enumerate(pairs):
        debate(harness, f"d-{number}", one, other)

    async with graph_that_follows(harness):
        async with asyncio.timeout(60):
            taken = await asyncio.gather(*(opened(harness, f"d-{number}") for number in range(len(pairs))))

    assert {one.outcome for one in taken} == {SnapshotOutcome.TAKEN}


async def opened(harness: SyncHarness, debate_id: str) -> Any:
    while True:
        try:
            return await snapshots(harness).take(debate_id)
        except LeaseHeld:
            continue


# For as long as it is wanted


@pytest.mark.spec("SY-12")
async def test_it_is_readable_eight_hours_after_the_debate_began(harness: SyncHarness, light_stack: Any) -> None:
    """The copy is gone by then; the row is not."""
    await two(harness)
    taken = await snapshots(harness).take("d-1", deadline_ms=20_000)
    assert taken.snapshot_id is not None
    with bare_client(url_of(light_stack, "durable")) as bare:
        assert 3_500_000 < bare.pttl(memory_snapshot(taken.snapshot_id)) <= 3_600_000
        bare.delete(memory_snapshot(taken.snapshot_id))

    async with harness.later(timedelta(hours=8)) as database:
        found = await Snapshots(database, None, harness.durable).read(taken.snapshot_id, deadline=soon())  # type: ignore[arg-type]

        assert found.sha256 == taken.sha256
        with bare_client(url_of(light_stack, "durable")) as bare:
            assert bare.exists(memory_snapshot(taken.snapshot_id)), "copied again, for as long as the debate is open"
    assert found.expires_at is not None
    assert (found.expires_at - found.created_at).days > 9 * 365


@pytest.mark.parametrize(
    "statement", ["UPDATE workflow.{} SET {}", "DELETE FROM workflow.{}", "TRUNCATE workflow.{} CASCADE"]
)
async def test_nobody_changes_a_snapshot(harness: SyncHarness, statement: str) -> None:
    await two(harness)
    await snapshots(harness).take("d-1", deadline_ms=20_000)

    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        harness.owner(statement.format("memory_snapshot", "degraded = false"))


async def test_a_damaged_copy_is_passed_over_and_a_damaged_row_refused(harness: SyncHarness, light_stack: Any) -> None:
    await two(harness)
    taken = await snapshots(harness).take("d-1", deadline_ms=20_000)
    assert taken.snapshot_id is not None
    with bare_client(url_of(light_stack, "durable")) as bare:
        bare.hset(memory_snapshot(taken.snapshot_id), "body", "{}")
    assert (await snapshots(harness).read(taken.snapshot_id, deadline=soon())).sha256 == taken.sha256

    with bare_client(url_of(light_stack, "durable")) as bare:
        bare.delete(memory_snapshot(taken.snapshot_id))
    harness.owner("ALTER TABLE workflow.memory_snapshot DISABLE TRIGGER append_only")
    harness.owner("ALTER TABLE workflow.memory_snapshot DROP CONSTRAINT memory_snapshot_check")
    harness.owner("UPDATE workflow.memory_snapshot SET body = '{}'")
    with pytest.raises(ConsistencyError):
        await snapshots(harness).read(taken.snapshot_id, deadline=soon())


@pytest.mark.spec("SY-11")
async def test_a_copy_counts_only_where_it_is_what_postgres_says(harness: SyncHarness, light_stack: Any) -> None:
    """One that is whole by its own hash, of another moment say, is passed over and replaced: all read the same."""
    ann, _ = await two(harness)
    await ann.publish(harness.finding("ann", id="f-a"))
    taken = await snapshots(harness).take("d-1", deadline_ms=20_000)
    assert taken.snapshot_id is not None
    copy = memory_snapshot(taken.snapshot_id)
    with bare_client(url_of(light_stack, "durable")) as bare:
        kept = bare.hgetall(copy)
        other = orjson.dumps({**orjson.loads(kept[b"body"]), "records": []}, option=orjson.OPT_SORT_KEYS)
        bare.hset(copy, mapping={"body": other, "sha256": hashlib.sha256(other).hexdigest()})

        found = await snapshots(harness).read(taken.snapshot_id, deadline=soon())

        assert [one["node"] for one in found.body["records"]] == ["Finding/f-a"]
        assert hashlib.sha256(orjson.dumps(found.body, option=orjson.OPT_SORT_KEYS)).hexdigest() == taken.sha256
        assert bare.hgetall(copy) == kept


async def test_a_copy_serves_while_postgres_is_away_and_says_so(harness: SyncHarness) -> None:
    ann, _ = await two(harness)
    await ann.publish(harness.finding("ann", id="f-a"))
    taken = await snapshots(harness).take("d-1", deadline_ms=20_000)
    away = Database("postgresql://nobody@127.0.0.1:1/none")

    found = await Snapshots(away, None, harness.durable).read(taken.snapshot_id or "", deadline=soon())  # type: ignore[arg-type]
    assert (found.sha256, found.confirmed, found.debate_id) == (taken.sha256, False, "d-1")
    with pytest.raises(PostgresUnavailable):
        await Snapshots(away, None, harness.durable).read(uuid4(), deadline=soon(300))  # type: ignore[arg-type]
    await away.close()


async def test_what_shakes_the_system_makes_open_debates_snapshots_stale(harness: SyncHarness) -> None:
    """The snapshot says why and stays as it is; the debate may have another, once: it has to end some day."""
    await two(harness)
    debate(harness, "d-closed", "bob", "ann")
    first = await snapshots(harness).take("d-1", deadline_ms=20_000)
    closed = await snapshots(harness).take("d-closed", deadline_ms=20_000)
    harness.owner("UPDATE lifecycle SET state = 'closed' WHERE key = 'd-closed'")

    await harness.record("zed", id="f-change", tier=Tier.SYSTEM_CRITICAL)
    await harness.router.step()

    found = await snapshots(harness).read(first.snapshot_id or "", deadline=soon())
    assert (found.stale_reason, found.sha256) == ("Finding f-change", first.sha256)
    assert (await snapshots(harness).read(closed.snapshot_id or "", deadline=soon())).stale_reason is None
    second = await snapshots(harness).take("d-1", deadline_ms=20_000)
    assert second.snapshot_id != first.snapshot_id
    assert (await snapshots(harness).read(second.snapshot_id or "", deadline=soon())).stale_reason is None

    await harness.record("zed", id="f-again", tier=Tier.SYSTEM_CRITICAL)
    await harness.router.step()
    third = await snapshots(harness).take("d-1", deadline_ms=20_000)
    assert third.snapshot_id == second.snapshot_id
    assert (await snapshots(harness).read(third.snapshot_id or "", deadline=soon())).stale_reason == "Finding f-again"


@pytest.mark.parametrize("state", ["level3", "provisional"])
async def test_what_people_decide_keeps_its_snapshot_whatever_happens(harness: SyncHarness, state: str) -> None:
    """Agents may argue anew; people are shown what has changed."""
    await two(harness)
    first = await snapshots(harness).take("d-1", deadline_ms=20_000)
    harness.owner("UPDATE lifecycle SET state = %s", state)
    await harness.record("zed", id="f-change", tier=Tier.SYSTEM_CRITICAL)
    await harness.router.step()

    again = await snapshots(harness).take("d-1", deadline_ms=20_000)

    assert (again.outcome, again.snapshot_id) == (SnapshotOutcome.TAKEN, first.snapshot_id)
    found = await snapshots(harness).read(again.snapshot_id or "", deadline=soon())
    assert found.stale_reason == "Finding f-change"


# Trouble


def waited(harness: SyncHarness) -> None:
    """Let the time be over for which a debate was put off."""
    harness.owner("UPDATE lifecycle SET data = jsonb_set(data, '{snapshot,deferred_until}', to_jsonb(imem_now()))")


class Broken(WorkingStore):
    """Memories of which some cannot be read."""

    def __init__(self, client: Client, broken: set[str]) -> None:
        super().__init__(client, SystemClock())
        self.broken, self.asked = broken, 0

    async def published(self, agent_id: str, *, deadline: Any) -> Any:
        if agent_id in self.broken:
            self.asked += 1
            return await nowhere().published(agent_id, deadline=deadline)
        return await super().published(agent_id, deadline=deadline)


async def test_a_side_that_cannot_be_flushed_puts_the_debate_off_three_times_then_people_decide(
    harness: SyncHarness,
) -> None:
    await two(harness)
    broken = Broken(harness.working, {harness.agent("bob")})

    for number in range(1, MOST_DEFERRALS + 1):
        deferred = await snapshots(harness, memories=broken).take("d-1", deadline_ms=20_000)
        assert (deferred.outcome, deferred.deferrals) == (SnapshotOutcome.DEFERRED, number)
        assert harness.agent("bob") in (deferred.reason or "")
        assert broken.asked == 2 * number, "one retry"
        # Until the five minutes are over nothing is tried.
        waits = await snapshots(harness, memories=broken).take("d-1", deadline_ms=20_000)
        assert (waits.outcome, waits.deferred_until) == (SnapshotOutcome.DEFERRED, deferred.deferred_until)
        waited(harness)

    # Also where agents argue already, and were to begin anew.
    harness.owner("UPDATE lifecycle SET state = 'level1'")
    level3 = await snapshots(harness, memories=broken).take("d-1", deadline_ms=20_000)

    assert level3.outcome is SnapshotOutcome.LEVEL3
    assert (await snapshots(harness).take("d-1", deadline_ms=20_000)).outcome is SnapshotOutcome.LEVEL3
    assert (await harness.record("bob")).durable, "no lock is left behind"


async def test_another_participant_that_cannot_be_flushed_is_left_out_and_that_is_recorded(
    harness: SyncHarness,
) -> None:
    await two(harness)
    await harness.begin("cyd", "macro")
    broken = Broken(harness.working, {harness.agent("cyd")})

    taken = await snapshots(harness, memories=broken).take("d-1", [harness.agent("cyd")], deadline_ms=20_000)

    assert taken.outcome is SnapshotOutcome.TAKEN
    assert [one.agent_id for one in taken.excluded] == [harness.agent("cyd")]
    found = await snapshots(harness).read(taken.snapshot_id or "", deadline=soon())
    assert found.participants == (harness.agent("ann"), harness.agent("bob"))
    assert "cannot be reached" in found.excluded[0].reason


async def test_a_debate_that_was_put_off_opens_when_its_side_is_back(harness: SyncHarness) -> None:
    await two(harness)
    await snapshots(harness, memories=Broken(harness.working, {harness.agent("ann")})).take("d-1", deadline_ms=20_000)
    waited(harness)

    taken = await snapshots(harness).take("d-1", deadline_ms=20_000)

    assert (taken.outcome, taken.deferrals) == (SnapshotOutcome.TAKEN, 1)


async def test_a_lock_that_ran_out_keeps_nothing(harness: SyncHarness) -> None:
    """Whoever is too slow notices in the transaction itself."""
    await two(harness)
    slow = Snapshots(harness.database, sync_of(harness), harness.durable, WriteLocks(harness.database, timedelta(0)))

    with pytest.raises(LeaseLost, match="ran out before the snapshot was taken"):
        await slow.take("d-1", deadline_ms=20_000)

    assert await harness.rows("SELECT FROM workflow.memory_snapshot") == []


def sync_of(harness: SyncHarness) -> Synchronizer:
    gateway = harness.gateway("facilitator")
    return Synchronizer(harness.database, harness.memories, Recorder(gateway), gateway)


async def test_two_processes_that_open_one_debate_agree(harness: SyncHarness) -> None:
    await two(harness)

    taken = await asyncio.gather(*(opened_once(harness) for _ in range(4)))

    assert len({one.snapshot_id for one in taken}) == 1
    assert len(await harness.rows("SELECT FROM workflow.memory_snapshot")) == 1


async def opened_once(harness: SyncHarness) -> Any:
    while True:
        try:
            return await snapshots(harness).take("d-1", deadline_ms=20_000)
        except (LeaseHeld, LeaseLost):
            continue


async def test_what_cannot_be_snapshotted_is_refused_by_its_field(harness: SyncHarness) -> None:
    await two(harness)
    for call, field in (
        ({"debate_id": "d-none"}, "debate_id"),
        ({"debate_id": ""}, "debate_id"),
        ({"debate_id": "d-1", "participants": ["nobody-here"]}, "participants"),
    ):
        with pytest.raises(BadInput) as refused:
            await snapshots(harness).take(**call)
        assert refused.value.field == field
    for which in (uuid4(), "no id"):
        with pytest.raises(BadInput, match="snapshot_id"):
            await snapshots(harness).read(which, deadline=soon())
    harness.owner("UPDATE lifecycle SET state = 'closed'")
    with pytest.raises(TransitionRefused):
        await snapshots(harness).take("d-1")
