"""Checkpoints: one row for each completed subtask, whatever is repeated, raced or refused."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from imem.cache.working.snapshots import SnapshotStore
from imem.checkpoints.metrics import CONSISTENCY_ERRORS, RESTORE_LATENCY, SAVE_ERRORS, SAVE_LATENCY
from imem.checkpoints.model import Checkpoint, CheckpointKind, SubtaskFailure
from imem.checkpoints.store import Checkpoints
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, PostgresUnavailable, StaleEpoch, TooLarge
from imem.journal.postgres.database import Database
from tests.counting import total

from .conftest import DEFINITIONS, World, memory, soon

SUBTASKS = ("fetch", "parse", "rank")
RICH = {
    "numbers": [0.1, 1e16, 1e300, 2**70, -1, True, None],
    "text": "naïve \U0001f600 \u2028",
    "nested": {"empty": {}, "list": [[], {"a": 1.0}]},
    "1": "a key that looks like a number",
}


async def stored(world: World) -> list[tuple[int, str, str | None]]:
    """Return what rows there are: seq, kind, subtask."""
    rows = await world.rows(
        "SELECT seq, kind, subtask FROM workflow.agent_checkpoints WHERE analysis_id = %s ORDER BY seq", world.analysis
    )
    return [(row["seq"], row["kind"], row["subtask"]) for row in rows]


async def both_tiers(world: World, agent_type: str = "filer") -> tuple[Checkpoint, Checkpoint]:
    """Return the latest checkpoint from the copy and from Postgres, and see to it that they were."""
    RESTORE_LATENCY.clear()
    copied = await Checkpoints(world.database, DEFINITIONS, world.snapshots).load(
        world.analysis, agent_type, deadline=soon()
    )
    row = await Checkpoints(world.database, DEFINITIONS).load(world.analysis, agent_type, deadline=soon())
    assert total(RESTORE_LATENCY, tier="redis_secondary") == 1
    assert total(RESTORE_LATENCY, tier="postgresql_checkpoint") == 1
    assert copied is not None
    assert row is not None
    return copied, row


@pytest.mark.spec("CK-1")
async def test_every_completed_subtask_leaves_one_row_and_seq_has_no_gaps(world: World) -> None:
    """Over failures, a pause, repeats and a clean restart; each run completes each subtask once."""
    lease = await world.acquire()
    first = await world.save(lease, "fetch")
    await world.save(lease, "fetch")
    failed = await world.save(
        lease, "parse", kind=CheckpointKind.FAILURE, failure=SubtaskFailure(reason="Timed out.", retry_count=2)
    )
    await world.save(lease, "parse")
    paused = await world.save(lease, None, kind=CheckpointKind.PAUSE)
    again = await world.checkpoints.save(lease, kind=CheckpointKind.START, deadline=soon())
    await world.checkpoints.save(lease, kind=CheckpointKind.START, deadline=soon())
    for subtask in SUBTASKS:
        last = await world.save(lease, subtask)

    assert await stored(world) == [
        (0, "start", None), (1, "subtask", "fetch"), (2, "failure", "parse"), (3, "subtask", "parse"),
        (4, "pause", None), (5, "start", None), (6, "subtask", "fetch"), (7, "subtask", "parse"),
        (8, "subtask", "rank"),
    ]  # fmt: skip
    assert (first.run, failed.run, again.run, last.run) == (1, 1, 2, 2)
    assert (failed.current_subtask, failed.completed_subtasks) == ("parse", ("fetch",))
    assert (paused.current_subtask, paused.progress_pct) == ("rank", Decimal("66.67"))
    assert (again.completed_subtasks, again.pending_subtasks) == ((), SUBTASKS)
    assert (last.current_subtask, last.completed_subtasks, last.progress_pct) == (None, SUBTASKS, Decimal(100))


@pytest.mark.spec("CK-5")
@pytest.mark.parametrize("kind", [CheckpointKind.SUBTASK, CheckpointKind.FAILURE, CheckpointKind.PAUSE])
async def test_what_was_saved_is_loaded_field_by_field_from_either_tier(world: World, kind: CheckpointKind) -> None:
    lease = await world.acquire(agent_config={"first": 1})
    document, digest = memory(plain="text", empty="", unicode="ü\u2028")

    saved = await world.checkpoints.save(
        lease,
        kind=kind,
        subtask=None if kind is CheckpointKind.PAUSE else "fetch",
        document=document,
        digest=digest,
        interim_results=RICH,
        agent_config={"model": "large", "temperature": 0.0, "more": RICH},
        failure=SubtaskFailure(reason="No answer.", details=RICH, retry_count=3)
        if kind is CheckpointKind.FAILURE
        else None,
        deadline=soon(),
    )

    for tier in await both_tiers(world):
        for field in fields(Checkpoint):
            was, now = getattr(saved, field.name), getattr(tier, field.name)
            assert (type(now), now) == (type(was), was), field.name
    assert saved.interim_results == RICH
    assert type(saved.interim_results["numbers"][1]) is float
    assert saved.l1_snapshot == (document if kind is CheckpointKind.PAUSE else None)
    assert saved.checkpoint_time.utcoffset() == timedelta(0)
    assert await world.checkpoints.get(saved.id, deadline=soon()) == saved


@pytest.mark.spec("CK-8")
async def test_a_superseded_epoch_changes_neither_store(world: World) -> None:
    old = await world.acquire()
    await world.save(old, "fetch")
    async with world.later(timedelta(seconds=31)) as later:
        new = await later.acquire(holder="process-2")
    rows, copy = await stored(world), await world.snapshots.get_checkpoint(world.analysis, "filer", deadline=soon())

    for kind, subtask, named in (
        (CheckpointKind.SUBTASK, "parse", {}),
        (CheckpointKind.SUBTASK, "fetch", {}),
        (CheckpointKind.PAUSE, None, {}),
        (CheckpointKind.FAILURE, "parse", {"failure": SubtaskFailure(reason="Late.")}),
        (CheckpointKind.START, None, {"document": None, "digest": None}),
    ):
        with pytest.raises(StaleEpoch):
            await world.save(old, subtask, kind=kind, **named)
    with pytest.raises(StaleEpoch):
        await world.save(replace(new, epoch=new.epoch + 1), "parse")
    with pytest.raises(StaleEpoch):
        await world.save(replace(new, analysis_id="another"), "parse")

    assert await stored(world) == rows
    assert await world.snapshots.get_checkpoint(world.analysis, "filer", deadline=soon()) == copy
    assert (await world.save(new, "parse")).epoch == 2


async def test_a_lease_that_ran_out_and_that_nobody_took_still_saves(world: World) -> None:
    lease = await world.acquire()
    async with world.later(timedelta(days=2)) as later:
        assert (await later.save(lease, "fetch")).seq == 1


async def test_the_subtask_saved_is_the_first_pending_one(world: World) -> None:
    lease = await world.acquire()

    for subtask, said in (("parse", "the next one .* is fetch"), ("nonsense", "none that is called")):
        with pytest.raises(BadInput, match=said) as refused:
            await world.save(lease, subtask)
        assert refused.value.field == "subtask"
    await world.save(lease, "fetch")
    with pytest.raises(BadInput, match=r"the next one .* is parse"):
        await world.save(lease, "rank", kind=CheckpointKind.FAILURE, failure=SubtaskFailure(reason="x"))
    document, digest = memory(after="something else")
    with pytest.raises(BadInput, match="completed already"):
        await world.save(lease, "fetch", document=document, digest=digest)
    for subtask in ("parse", "rank"):
        await world.save(lease, subtask)
    with pytest.raises(BadInput, match="completed already"):
        await world.save(lease, "parse")
    done = await world.save(
        lease, None, kind=CheckpointKind.FAILURE, failure=SubtaskFailure(reason="While shutting down.")
    )
    assert (done.current_subtask, done.subtask) == (None, None)


async def test_repeating_the_last_save_returns_its_row(world: World) -> None:
    """As a caller does whose answer was lost; a later pause is another pause."""
    lease = await world.acquire()
    saved = await world.save(lease, "fetch", interim_results=RICH)
    assert await world.save(lease, "fetch", interim_results=RICH) == saved
    failure = SubtaskFailure(reason="x", details={"a": 1})
    failed = await world.save(lease, "parse", kind=CheckpointKind.FAILURE, failure=failure)
    assert await world.save(lease, "parse", kind=CheckpointKind.FAILURE, failure=failure) == failed
    second = await world.save(lease, "parse", kind=CheckpointKind.FAILURE, failure=replace(failure, retry_count=1))
    paused = await world.save(lease, None, kind=CheckpointKind.PAUSE)
    assert await world.save(lease, None, kind=CheckpointKind.PAUSE) == paused
    assert (failed.seq, second.seq, paused.seq) == (2, 3, 4)

    await world.leases.release(lease, deadline=soon())
    other = await world.acquire(holder="process-2")
    assert (await world.save(other, None, kind=CheckpointKind.PAUSE)).seq == 5


async def test_one_after_the_other_also_where_the_clock_was_set_back(world: World) -> None:
    lease = await world.acquire()
    async with world.later(timedelta(days=400)) as ahead:
        first = await ahead.save(lease, "fetch")
    second = await world.save(lease, "parse")

    assert second.seq == first.seq + 1
    assert second.checkpoint_time == first.checkpoint_time + timedelta(microseconds=1)
    assert second.created_at < first.created_at
    assert (await world.load()).id == second.id


async def test_of_saves_at_once_one_counts(world: World) -> None:
    """The same one many times is one row; two different ones of one subtask are a winner and a refusal."""
    lease = await world.acquire()
    same = await asyncio.gather(*(world.save(lease, "fetch") for _ in range(8)))
    assert {one.id for one in same} == {same[0].id}

    async def other(number: int) -> Checkpoint:
        document, digest = memory(by=str(number))
        return await world.save(lease, "parse", document=document, digest=digest)

    raced = await asyncio.gather(*(other(number) for number in range(8)), return_exceptions=True)
    assert sum(isinstance(one, Checkpoint) for one in raced) == 1
    assert sum(isinstance(one, BadInput) for one in raced) == 7
    assert [seq for seq, _, _ in await stored(world)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("named", "field"),
    [
        ({"subtask": None}, "subtask"),
        ({"kind": CheckpointKind.PAUSE}, "subtask"),
        ({"document": None}, "document"),
        ({"digest": None}, "digest"),
        ({"digest": "A" * 64}, "digest"),
        ({"kind": CheckpointKind.START, "subtask": None}, "document"),
        ({"failure": SubtaskFailure(reason="x")}, "failure"),
        ({"kind": CheckpointKind.FAILURE}, "failure"),
        ({"kind": CheckpointKind.FAILURE, "failure": SubtaskFailure(reason="")}, "failure.reason"),
        (
            {"kind": CheckpointKind.FAILURE, "failure": SubtaskFailure(reason="x", retry_count=-1)},
            "failure.retry_count",
        ),
        (
            {"kind": CheckpointKind.FAILURE, "failure": SubtaskFailure(reason="x", details={"a": float("inf")})},
            "failure.details.a",
        ),
        ({"interim_results": {"a": ["\0"]}}, "interim_results.a[0]"),
        ({"interim_results": [1]}, "interim_results"),
        ({"agent_config": {"a": object()}}, "agent_config.a"),
    ],
)
async def test_what_does_not_fit_is_refused_by_field(world: World, named: dict[str, Any], field: str) -> None:
    lease = await world.acquire()

    with pytest.raises(BadInput) as refused:
        await world.save(lease, **{"subtask": "fetch", **named})

    assert refused.value.field == field
    assert await stored(world) == [(0, "start", None)]


async def test_what_is_too_large_is_refused(world: World) -> None:
    lease = await world.acquire()

    with pytest.raises(TooLarge):
        await world.save(lease, "fetch", interim_results={"a": "x" * (9 * 1024 * 1024)})

    assert await stored(world) == [(0, "start", None)]


# Copies


async def test_a_copy_is_believed_only_where_postgres_says_that_it_is_the_latest(world: World) -> None:
    lease = await world.acquire()
    first = await world.save(lease, "fetch")
    without = Checkpoints(world.database, DEFINITIONS)
    document, digest = memory(after="parse")
    second = await without.save(
        lease, kind=CheckpointKind.SUBTASK, subtask="parse", document=document, digest=digest, deadline=soon()
    )

    assert await world.load() == second
    assert await world.checkpoints.copy(second, deadline=soon())
    assert not await world.checkpoints.copy(first, deadline=soon()), "an older one never replaces a later one"
    copied, row = await both_tiers(world)
    assert copied == row == second


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"id": "x"}'])
async def test_a_damaged_copy_is_counted_and_the_row_serves(world: World, body: bytes) -> None:
    lease = await world.acquire()
    saved = await world.save(lease, "fetch")
    await world.snapshots.put_checkpoint(
        world.analysis, "filer", epoch=saved.epoch, seq=saved.seq, body=body, deadline=soon()
    )

    assert await world.load() == saved
    assert total(CONSISTENCY_ERRORS) == 1


async def test_the_copy_of_another_row_with_that_seq_does_not_serve(world: World) -> None:
    """Such as one that a restored backup left behind."""
    saved = await world.save(await world.acquire(), "fetch")
    other = replace(saved, id=uuid4(), interim_results={"from": "another history"})
    assert await world.checkpoints.copy(other, deadline=soon())

    assert await world.load() == saved


async def test_a_valkey_that_is_away_is_counted_and_costs_no_save(world: World, unused_tcp_port: int) -> None:
    client = world.durable.__class__(f"redis://127.0.0.1:{unused_tcp_port}/0")
    away = SnapshotStore(client, SystemClock())
    checkpoints = Checkpoints(world.database, DEFINITIONS, away)
    lease = await world.acquire()
    document, digest = memory(a="b")

    saved = await checkpoints.save(
        lease, kind=CheckpointKind.SUBTASK, subtask="fetch", document=document, digest=digest, deadline=soon()
    )

    assert await checkpoints.load(world.analysis, "filer", deadline=soon()) == saved
    assert total(SAVE_ERRORS, store="durable") == 1
    assert total(SAVE_ERRORS, store="postgres") == 0
    assert (
        total(SAVE_LATENCY, store="postgres"),
        total(SAVE_LATENCY, store="durable"),
    ) == (
        1,
        0,
    )
    await client.close()


async def test_without_postgres_nothing_is_saved_and_no_copy_believed(world: World, unused_tcp_port: int) -> None:
    lease = await world.acquire()
    await world.save(lease, "fetch")
    database = Database(f"postgresql://nobody@127.0.0.1:{unused_tcp_port}/none")
    checkpoints = Checkpoints(database, DEFINITIONS, world.snapshots)
    document, digest = memory(a="b")

    with pytest.raises(PostgresUnavailable):
        await checkpoints.save(
            lease,
            kind=CheckpointKind.SUBTASK,
            subtask="parse",
            document=document,
            digest=digest,
            deadline=Deadline.after_ms(2000),
        )
    with pytest.raises(PostgresUnavailable):
        await checkpoints.load(world.analysis, "filer", deadline=Deadline.after_ms(2000))

    assert total(SAVE_ERRORS, store="postgres") == 1
    copy = await world.snapshots.get_checkpoint(world.analysis, "filer", deadline=soon())
    assert copy is not None
    assert copy.seq == 1
    await database.close()


# Looking


async def test_where_agents_stand_is_told_without_what_they_know(world: World) -> None:
    filer, clerk = await world.acquire("filer"), await world.acquire("clerk")
    await world.save(filer, "fetch", interim_results={"a": "x" * 5000})
    await world.save(clerk, "one")
    await world.save(filer, "parse")

    history = await world.checkpoints.history(world.analysis, deadline=soon())
    assert [(one.agent_type, one.seq) for one in history] == [
        ("filer", 0), ("clerk", 0), ("filer", 1), ("clerk", 1), ("filer", 2),
    ]  # fmt: skip
    assert [one.seq for one in await world.checkpoints.history(world.analysis, "clerk", deadline=soon())] == [0, 1]
    latest = await world.checkpoints.latest(world.analysis, deadline=soon())
    assert {name: (one.seq, one.current_subtask, one.progress_pct) for name, one in latest.items()} == {
        "filer": (2, "rank", Decimal("66.67")),
        "clerk": (1, "two", Decimal("50.00")),
    }
    assert all(one.stored_bytes > 0 for one in history)
    assert await world.checkpoints.load("nobody's", "filer", deadline=soon()) is None
    assert await world.checkpoints.get(uuid4(), deadline=soon()) is None
    analysis = await world.checkpoints.analysis(world.analysis, deadline=soon())
    assert analysis is not None
    assert (analysis.subject_id, analysis.outcome) == ("company:MU", None)


async def test_a_save_may_be_part_of_the_callers_transaction(world: World) -> None:
    """Rolled back with it, and copied only when its owner says that it is committed."""
    lease = await world.acquire()
    document, digest = memory(a="b")
    wish: dict[str, Any] = {"kind": CheckpointKind.PAUSE, "document": document, "digest": digest, "deadline": soon()}

    async def roll_back() -> None:
        async with world.database.transaction(soon()) as conn:
            await world.checkpoints.save(lease, **wish, conn=conn)
            raise KeyError

    with pytest.raises(KeyError):
        await roll_back()
    assert await stored(world) == [(0, "start", None)]

    async with world.database.transaction(soon()) as conn:
        await world.leases.raise_epoch(world.analysis, deadline=soon(), conn=conn)
        paused = await world.checkpoints.save(replace(lease, epoch=2, holder=None), **wish, conn=conn)
    assert await world.snapshots.get_checkpoint(world.analysis, "filer", deadline=soon()) is None
    assert await world.checkpoints.copy(paused, deadline=soon())
    assert await both_tiers(world) == (paused, paused)
