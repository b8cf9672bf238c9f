"""What an analysis leaves goes when it should, and not before: deliverables confirmed, pauses heard, failures kept."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import redis.asyncio

from imem.cache import keys
from imem.cache.client import Client
from imem.cache.working.snapshots import SnapshotMeta
from imem.cache.working.state import MemoryIdentity
from imem.checkpoints.cleanup import Cleanup, MissingResult
from imem.checkpoints.deliverables import ResultChecks
from imem.checkpoints.model import AgentLease, AnalysisOutcome, CheckpointKind, SubtaskFailure
from imem.checkpoints.orchestration.definitions import Location
from imem.checkpoints.pipelines import CLEANUP
from imem.jobs.runtime import slot
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, StaleEpoch, TransitionRefused, ValkeyUnavailable
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.workers.celery import LoopThread
from tests.servers import as_curators, as_pipelines

from .conftest import DEFINITIONS, World, memory, soon

SUBTASKS = ("fetch", "parse", "rank")
DAY = timedelta(days=1)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def state(world: World) -> str:
    """State a fact in the journal; return its event's id."""
    entry = entry_of(parse_line(b'{"record": "Company", "core": {"ticker": "MU"}}', needs_known_at=False))
    curators = Database(as_curators(world.settings, world.url), size=1)
    try:
        (receipt,) = await Gateway(curators, Actor("filer", Role.HUMAN_ADMIN)).append([entry], deadline=soon())
    finally:
        await curators.close()
    assert receipt.durable
    return str(receipt.event_id)


async def in_cache(world: World) -> Any:
    return redis.asyncio.Redis.from_url(world.settings.valkey_cache_url.get_secret_value())


async def worked(world: World) -> AgentLease:
    """Run the agent to its end, with everything delivered; return its lease."""
    lease = await world.acquire()
    its = world.deliverables
    await its.store(lease, "fetch", {"filings": [1, 2.5, 1e17]}, deadline=soon())
    await world.save(lease, "fetch")
    event = await state(world)
    record: dict[str, Any] = {"reference": "Company/MU", "digest": digest_of("record")}
    await its.put(lease, "parse", Location.GRAPH, **record, deadline=soon())
    await its.put(lease, "parse", Location.MESSAGE, reference=event, digest=digest_of("message"), deadline=soon())
    await world.save(lease, "parse")
    client = await in_cache(world)
    await client.set(f"ranks:{world.analysis}", "1")
    await client.aclose()
    ranks: dict[str, Any] = {"reference": f"ranks:{world.analysis}", "digest": digest_of("1")}
    await its.put(lease, "rank", Location.CACHE, **ranks, deadline=soon())
    await world.save(lease, "rank")
    await remember(world, lease)
    return lease


async def remember(world: World, lease: AgentLease) -> None:
    """Leave a working memory and its snapshot, as an agent does."""
    identity = MemoryIdentity(lease.agent_id, lease.analysis_id, lease.agent_type)
    await world.memories.open(identity, lease.epoch, deadline=soon())
    document, digest = memory(a="b")
    latest = await world.load(lease.agent_type)
    meta = SnapshotMeta(identity, lease.epoch, latest.seq, str(latest.id), digest, 1, latest.created_at)
    await world.snapshots.put(meta, document, deadline=soon())


async def left_keys(world: World, agent_type: str = "filer") -> list[bytes]:
    """Return every key that either Valkey still holds of an agent, asked of the servers themselves."""
    its, snapshot = keys.working(world.agent(agent_type)), keys.snapshot(world.agent(agent_type))
    found = []
    for name, wanted in (
        ("working", [its.meta, its.index]),
        ("durable", [snapshot.body, snapshot.meta, keys.checkpoint(world.analysis, agent_type)]),
    ):
        client = redis.asyncio.Redis.from_url(getattr(world.settings, f"valkey_{name}_url").get_secret_value())
        found += [key for key in wanted if await client.exists(key)]
        await client.aclose()
    return found


async def rows(world: World, table: str = "agent_checkpoints") -> list[int]:
    found = await world.rows(f"SELECT seq FROM workflow.{table} WHERE analysis_id = %s ORDER BY seq", world.analysis)
    return [row["seq"] for row in found]


# Success


@pytest.mark.spec("CK-7")
async def test_after_success_no_unpreserved_row_or_key_remains(world: World) -> None:
    lease = await worked(world)
    kept = next(one for one in await world.checkpoints.history(world.analysis, deadline=soon()) if one.seq == 1)
    await world.checkpoints.preserve(kept.id, deadline=soon())
    assert len(await left_keys(world)) == 4, "meta, snapshot, its meta, the checkpoint's copy"

    cleaned = await world.cleanup().cleanup_success(world.analysis, deadline=soon())

    assert (cleaned.deleted, cleaned.kept, cleaned.cleared, cleaned.missing) == (3, 0, True, ())
    assert await rows(world) == [1]
    assert await left_keys(world) == []
    assert await world.rows("SELECT FROM workflow.agent_leases") == []
    analysis = await world.checkpoints.analysis(world.analysis, deadline=soon())
    assert analysis is not None
    assert analysis.outcome is AnalysisOutcome.SUCCEEDED
    with pytest.raises(StaleEpoch):
        await world.save(lease, None, kind=CheckpointKind.PAUSE)
    again = await world.cleanup().cleanup_success(world.analysis, deadline=soon())
    assert (again.deleted, again.cleared) == (0, True)
    payloads = await world.payloads()
    assert payloads == {("filer", "fetch"): {"filings": [1, 2.5, 1e17]}}, "results are no checkpoints"


async def test_what_was_preserved_goes_once_nobody_wants_it(world: World) -> None:
    await worked(world)
    kept = (await world.load()).id
    await world.checkpoints.preserve(kept, deadline=soon())
    await world.cleanup().cleanup_success(world.analysis, deadline=soon())
    assert await rows(world) == [3]

    await world.checkpoints.preserve(kept, preserve=False, deadline=soon())
    swept = await world.cleanup().cleanup_failed(deadline=soon())

    assert (swept.analyses, swept.deleted) == (1, 1)
    assert await rows(world) == []


async def test_an_archive_keeps_every_row_that_goes(world: World) -> None:
    await worked(world)

    await world.cleanup(archive=True).cleanup_success(world.analysis, deadline=soon())

    assert await rows(world) == []
    assert await rows(world, "agent_checkpoints_archive") == [0, 1, 2, 3]


LOSSES = {
    "a payload": ("fetch", Location.POSTGRES, "DELETE FROM workflow.agent_deliverable WHERE location = 'postgres'"),
    "its content": (
        "fetch",
        Location.POSTGRES,
        "UPDATE workflow.agent_deliverable SET payload = '[]' WHERE location = 'postgres'",
    ),
    "a record": ("parse", Location.GRAPH, "DELETE FROM record_head"),
    "an event": (
        "parse",
        Location.MESSAGE,
        f"UPDATE workflow.agent_deliverable SET reference = '{uuid4()}' WHERE location = 'message'",
    ),
    "a row": ("parse", Location.MESSAGE, "DELETE FROM workflow.agent_deliverable WHERE location = 'message'"),
    "a key": ("rank", Location.CACHE, "SELECT 1"),
}


@pytest.mark.parametrize("what", LOSSES)
async def test_where_a_deliverable_is_missing_nothing_is_deleted_and_it_is_named(world: World, what: str) -> None:
    """The agent may be taken up again, and what is missing delivered again, under the same subtask."""
    subtask, location, statement = LOSSES[what]
    lease = await worked(world)
    world.owner(statement)
    if what == "a key":
        client = await in_cache(world)
        await client.delete(f"ranks:{world.analysis}")
        await client.aclose()

    cleaned = await world.cleanup().cleanup_success(world.analysis, deadline=soon())

    assert cleaned.missing == (MissingResult("filer", subtask, location),)
    assert (cleaned.deleted, await rows(world)) == (0, [0, 1, 2, 3])
    assert len(await left_keys(world)) == 4
    if what in {"a payload", "its content"}:
        other = await world.deliverables.store(lease, subtask, {"filings": "again"}, deadline=soon())
        assert other.location is location
        assert (await world.cleanup().cleanup_success(world.analysis, deadline=soon())).deleted == 4


async def test_a_result_that_the_cache_lost_counts_while_a_checkpoint_keeps_it(world: World) -> None:
    lease = await world.acquire()
    await world.deliverables.store(lease, "fetch", 1, deadline=soon())
    await world.save(lease, "fetch")
    event = await state(world)
    await world.deliverables.put(
        lease, "parse", Location.GRAPH, reference="Company/MU", digest="0" * 64, deadline=soon()
    )
    await world.deliverables.put(lease, "parse", Location.MESSAGE, reference=event, digest="0" * 64, deadline=soon())
    await world.save(lease, "parse")
    await world.deliverables.put(
        lease, "rank", Location.CACHE, reference=f"gone:{world.analysis}", digest="0" * 64, deadline=soon()
    )
    await world.save(lease, "rank", interim_results={"rank": [3, 1, 2]})

    cleaned = await world.cleanup().cleanup_success(world.analysis, deadline=soon())

    assert cleaned.missing == ()
    assert cleaned.deleted == 4


async def test_what_is_not_completed_or_was_never_delivered_is_missing(world: World) -> None:
    lease = await world.acquire()
    await world.save(lease, "fetch")
    await world.acquire("clerk")

    cleaned = await world.cleanup().cleanup_success(world.analysis, deadline=soon())

    assert set(cleaned.missing) == {
        MissingResult("filer", "fetch", Location.POSTGRES),
        MissingResult("filer", "parse", None),
        MissingResult("filer", "rank", None),
        MissingResult("clerk", "one", None),
        MissingResult("clerk", "two", None),
    }
    assert (await world.save(lease, "parse")).seq == 2, "nobody was fenced off"


async def test_a_store_that_cannot_say_stops_the_clean_up(world: World, unused_tcp_port: int) -> None:
    await worked(world)
    client = Client(f"redis://127.0.0.1:{unused_tcp_port}/0")
    cleanup = Cleanup(
        world.database, DEFINITIONS, ResultChecks(world.database, client), world.snapshots, world.memories
    )

    with pytest.raises(ValkeyUnavailable):
        await cleanup.cleanup_success(world.analysis, deadline=soon())

    assert await rows(world) == [0, 1, 2, 3]
    await client.close()


async def test_keys_that_could_not_be_removed_are_removed_by_the_next_run(world: World, unused_tcp_port: int) -> None:
    """The same as after a crash between rows and keys: the leases that name the keys are there until they are gone."""
    await worked(world)
    away = Client(f"redis://127.0.0.1:{unused_tcp_port}/0")
    cleanup = Cleanup(
        world.database,
        DEFINITIONS,
        ResultChecks(world.database, world.cache),
        durable=world.snapshots.__class__(away, world.snapshots._clock),
        working=world.memories,
    )

    cleaned = await cleanup.cleanup_success(world.analysis, deadline=soon())
    assert (cleaned.deleted, cleaned.cleared) == (4, False)
    assert len(await left_keys(world)) == 4
    assert (await cleanup.cleanup_failed(deadline=soon())).waiting == 1

    swept = await world.cleanup().cleanup_failed(deadline=soon())

    assert (swept.analyses, swept.cleared, swept.waiting) == (0, 1, 0)
    assert await left_keys(world) == []
    await away.close()


async def test_a_save_between_looking_and_ending_is_seen(world: World) -> None:
    """What was confirmed must be the whole: another agent that begins meanwhile is looked at too."""
    await worked(world)
    gate, entered = asyncio.Event(), asyncio.Event()

    class Slow(ResultChecks):
        """A check that lets somebody in between."""

        async def there(self, location: Location, wanted: Any, deadline: Deadline) -> Any:
            entered.set()
            await gate.wait()
            return await super().there(location, wanted, deadline)

    its = Slow(world.database, world.cache)
    cleaning = asyncio.create_task(
        Cleanup(world.database, DEFINITIONS, its, world.snapshots, world.memories).cleanup_success(
            world.analysis, deadline=soon()
        )
    )
    await entered.wait()
    clerk = await world.acquire("clerk")
    gate.set()

    cleaned = await cleaning

    assert {one.agent_type for one in cleaned.missing} == {"clerk"}
    assert (await world.save(clerk, "one")).seq == 1


async def test_an_analysis_ends_in_one_way(world: World) -> None:
    await worked(world)
    with pytest.raises(BadInput):
        await world.cleanup().cleanup_success("nobody's", deadline=soon())
    await world.fail("The ticker is gone.")
    await world.fail("Again.")

    with pytest.raises(TransitionRefused):
        await world.cleanup().cleanup_success(world.analysis, deadline=soon())
    analysis = await world.checkpoints.analysis(world.analysis, deadline=soon())
    assert analysis is not None
    assert (analysis.outcome, analysis.reason) == (AnalysisOutcome.FAILED, "The ticker is gone.")


# Failure


@pytest.mark.spec("CK-7")
async def test_after_failure_all_rows_remain_at_day_29_and_are_gone_at_day_31(world: World) -> None:
    """With or without a reason of their own; counted from the day on which the analysis failed."""
    async with world.later(-100 * DAY) as long_ago:
        lease = await long_ago.acquire()
        await long_ago.save(lease, "fetch")
        await long_ago.save(lease, "parse", kind=CheckpointKind.FAILURE, failure=SubtaskFailure(reason="It broke."))
    await remember(world, lease)
    await world.fail("It broke.")

    async with world.later(29 * DAY) as day:
        await day.fail("Said again.")
        assert (await day.cleanup().cleanup_failed(deadline=soon())).deleted == 0
    assert await rows(world) == [0, 1, 2]
    async with world.later(31 * DAY) as day:
        swept = await day.cleanup().cleanup_failed(deadline=soon())

    assert (swept.analyses, swept.deleted, swept.cleared) == (1, 3, 1)
    assert await rows(world) == []
    assert await left_keys(world) == []
    async with world.later(32 * DAY) as day:
        assert (await day.cleanup().cleanup_failed(deadline=soon())).analyses == 0


async def test_what_is_under_way_is_never_swept(world: World) -> None:
    await world.save(await world.acquire(), "fetch")

    async with world.later(4000 * DAY) as far:
        assert (await far.cleanup().cleanup_failed(deadline=soon())).deleted == 0

    assert await rows(world) == [0, 1]


async def test_many_analyses_are_swept_page_by_page(world: World) -> None:
    """Those whose rows all stay hold up nobody behind them."""
    for number in range(45):
        its = World(**{**vars(world), "analysis": f"analysis:{number:03}-{world.analysis[-6:]}"})
        lease = await its.acquire()
        if number < 25:
            saved = await its.save(lease, "fetch")
            await its.checkpoints.preserve(saved.id, deadline=soon())
        await its.fail("x")

    async with world.later(31 * DAY) as day:
        swept = await day.cleanup().cleanup_failed(deadline=soon())

    assert (swept.analyses, swept.deleted, swept.cleared, swept.waiting) == (45, 45, 45, 0)
    (left,) = await world.rows(
        "SELECT count(*) AS rows, count(*) FILTER (WHERE preserve) AS preserved FROM workflow.agent_checkpoints"
    )
    assert (left["rows"], left["preserved"]) == (25, 25)


# Pauses


OPEN = ("PAUSING", "PAUSED", "RESUMING", "STALE")
"""Statuses of a pause that is not over."""


PAUSE = (
    "INSERT INTO workflow.paused_analyses (id, stock_id, analysis_id, pause_reason, pause_trigger, pause_timestamp, "
    "checkpoint_id, status, created_by, drain_until) "
    "VALUES (%s, 'company:MU', %s, 'A look.', 'MANUAL', imem_now(), %s, 'PAUSING', 'priya', imem_now())"
)


@pytest.mark.spec("CK-40")
@pytest.mark.parametrize("outcome", list(AnalysisOutcome))
@pytest.mark.parametrize("status", OPEN)
async def test_a_checkpoint_that_an_open_pause_refers_to_is_never_cleaned_up(
    world: World, outcome: AnalysisOutcome, status: str
) -> None:
    """Neither after success nor years after failure; it goes when the pause is over, which may refer to it still."""
    lease = await worked(world)
    named, saved, pause_id = await world.load(), await world.save(lease, None, kind=CheckpointKind.PAUSE), uuid4()
    # A pause refers to what it was ordered on, and to what it saved of each agent.
    world.owner(PAUSE, pause_id, world.analysis, named.id)
    world.owner(
        "INSERT INTO workflow.pause_agent_checkpoints (pause_id, agent_type, agent_id, epoch, checkpoint_id) "
        "VALUES (%s, 'filer', %s, 1, %s)",
        pause_id, world.agent(), saved.id,
    )  # fmt: skip
    world.owner("UPDATE workflow.paused_analyses SET status = %s", status)
    if outcome is AnalysisOutcome.SUCCEEDED:
        cleaned = await world.cleanup().cleanup_success(world.analysis, deadline=soon())
        assert (cleaned.deleted, cleaned.kept) == (3, 2)
    else:
        await world.fail("x")

    async with world.later(1000 * DAY) as far:
        await far.cleanup().cleanup_failed(deadline=soon())
        assert await rows(world) == [named.seq, saved.seq]
        world.owner("UPDATE workflow.paused_analyses SET status = 'RESUMED', resume_timestamp = imem_now()")
        assert (await far.cleanup().cleanup_failed(deadline=soon())).deleted == 2
    assert await rows(world) == []
    assert await left_keys(world) == []


@pytest.mark.spec("CK-40")
async def test_a_pause_that_is_being_opened_is_waited_for(world: World) -> None:
    """It refers to a row in a transaction that has not ended when the clean-up comes to it."""
    paused = await world.save(await world.acquire(), None, kind=CheckpointKind.PAUSE)
    await world.fail("x")

    async with world.later(31 * DAY) as day:
        async with world.database.transaction(soon()) as conn:
            await conn.execute(PAUSE, (uuid4(), world.analysis, paused.id))
            sweeping = asyncio.create_task(day.cleanup().cleanup_failed(deadline=soon()))
            while not await day.rows("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
                assert not sweeping.done()
        await sweeping

    assert await rows(world) == [1]


# The task


async def test_the_daily_task_sweeps_agents_and_workflows(world: World) -> None:
    """As a worker process runs it, on its own loop and connections, with every Valkey."""
    lease = await world.acquire()
    await remember(world, lease)
    await world.fail("x")
    await world.workflows.save("w", "t", "s", 1, state_version=1, deadline=soon())
    await world.workflows.fail("w", deadline=soon())
    world.owner("UPDATE workflow.analysis SET ended_at = ended_at - interval '31 days'")
    world.owner("UPDATE workflow.workflow_thread SET failed_at = failed_at - interval '31 days'")
    runtime = LoopThread(world.settings, as_pipelines(world.settings, world.url))
    runtime.start()
    slot.install(runtime)
    try:
        did = await asyncio.to_thread(CLEANUP.run)
    finally:
        slot.install(None)
        await asyncio.to_thread(runtime.stop)

    assert did == {"analyses": 1, "deleted": 1, "cleared": 1, "waiting": 0, "threads": 1}
    assert await left_keys(world) == []
