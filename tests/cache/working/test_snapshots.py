"""Snapshots and copies on the durable server: the latest stays, whole."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from imem.cache.keys import checkpoint, snapshot
from imem.cache.working.document import contents_of, digest, document_of
from imem.cache.working.snapshots import CheckpointCopy, SnapshotStore
from imem.cache.working.state import ms_of
from imem.journal.clock import ManualClock
from imem.journal.errors import BadInput, ConsistencyError

from .conftest import DAY, EXAMPLES, NEVER, snapshot_meta, somebody
from .strategies import CONTENTS

DOCUMENT = {"a": {"type": "string", "enc": "utf8", "value": "1", "ttl": None}}


async def test_what_is_put_comes_back(snapshots: SnapshotStore, clock: ManualClock) -> None:
    """Document and meta; nothing where there is nothing."""
    meta = snapshot_meta(somebody(), clock, epoch=3, seq=5, key_count=1)
    assert await snapshots.get(meta.identity.agent_id, deadline=NEVER) is None
    put = await snapshots.put(meta, DOCUMENT, deadline=NEVER)
    assert (bool(put), put.kept, put.flushed) == (True, True, False)
    found = await snapshots.get(meta.identity.agent_id, deadline=NEVER)
    assert found is not None
    ends = clock.now() + 14 * DAY
    assert found[1] == DOCUMENT
    assert ms_of(found[0].protects_until or clock.now()) == ms_of(ends)
    assert replace(found[0], protects_until=None) == meta
    assert await snapshots.drop(meta.identity.agent_id, deadline=NEVER)
    assert not await snapshots.drop(meta.identity.agent_id, deadline=NEVER)
    assert await snapshots.get(meta.identity.agent_id, deadline=NEVER) is None


async def test_a_pause_waits_for_the_file(snapshots: SnapshotStore, durable: Any, clock: ManualClock) -> None:
    """The server says when it has written it, from 7.2 on; an older one is not waited for."""
    version = tuple(int(part) for part in durable.info("server")["redis_version"].split("."))
    put = await snapshots.put(snapshot_meta(somebody(), clock), DOCUMENT, flush=True, deadline=NEVER)
    assert (put.kept, put.flushed) == (True, version >= (7, 2))


@pytest.mark.spec("CK-15")
async def test_a_snapshot_lives_as_long_as_what_it_protects(
    snapshots: SnapshotStore, durable: Any, clock: ManualClock
) -> None:
    """14 days from its making, longer where the memory does, and never less than it did."""
    identity = somebody()
    its = snapshot(identity.agent_id)

    def ends() -> set[Any]:
        return {durable.pexpiretime(its.body), durable.pexpiretime(its.meta)}

    await snapshots.put(snapshot_meta(identity, clock, protects_until=clock.now() + DAY), DOCUMENT, deadline=NEVER)
    assert ends() == {ms_of(clock.now() + 14 * DAY)}
    until = clock.now() + 29 * DAY
    await snapshots.put(snapshot_meta(identity, clock, seq=2, protects_until=until), DOCUMENT, deadline=NEVER)
    assert ends() == {ms_of(until)}
    clock.advance(DAY)
    await snapshots.put(snapshot_meta(identity, clock, seq=3), DOCUMENT, deadline=NEVER)
    assert ends() == {ms_of(until)}


@pytest.mark.parametrize("order", list(itertools.permutations([(1, 7), (2, 1), (2, 3), (2, 3)])), ids=str)
async def test_the_latest_stays(
    snapshots: SnapshotStore, clock: ManualClock, order: tuple[tuple[int, int], ...]
) -> None:
    """In whatever order they come, the highest (epoch, seq) is there in the end; body and meta are of one snapshot."""
    identity, highest = somebody(), (0, 0)
    for epoch, seq in order:
        document = {f"{epoch}/{seq}": DOCUMENT["a"]}
        kept = await snapshots.put(snapshot_meta(identity, clock, epoch=epoch, seq=seq), document, deadline=NEVER)
        assert bool(kept) == ((epoch, seq) >= highest)
        highest = max(highest, (epoch, seq))
        found = await snapshots.get(identity.agent_id, deadline=NEVER)
        assert found is not None
        assert ((found[0].epoch, found[0].seq), list(found[1])) == (highest, [f"{highest[0]}/{highest[1]}"])


async def test_many_at_once(snapshots: SnapshotStore, clock: ManualClock) -> None:
    """Writers that race leave one whole snapshot, the latest."""
    identity = somebody()
    metas = [snapshot_meta(identity, clock, epoch=epoch, seq=seq) for epoch in range(5) for seq in range(8)]
    await asyncio.gather(
        *(snapshots.put(one, {f"{one.epoch}/{one.seq}": DOCUMENT["a"]}, deadline=NEVER) for one in metas[::3]),
        *(snapshots.put(one, {f"{one.epoch}/{one.seq}": DOCUMENT["a"]}, deadline=NEVER) for one in metas[::-1]),
    )
    found = await snapshots.get(identity.agent_id, deadline=NEVER)
    assert found is not None
    assert (found[0].epoch, found[0].seq, list(found[1])) == (4, 7, ["4/7"])


async def test_another_analysis_snapshot_is_not_overwritten(snapshots: SnapshotStore, clock: ManualClock) -> None:
    """An agent id names one agent of one analysis."""
    meta = snapshot_meta(somebody(), clock)
    await snapshots.put(meta, DOCUMENT, deadline=NEVER)
    other = replace(meta, identity=replace(meta.identity, analysis_id="another"), epoch=99)
    with pytest.raises(ConsistencyError, match="belongs to the analysis"):
        await snapshots.put(other, DOCUMENT, deadline=NEVER)
    assert await snapshots.get(meta.identity.agent_id, deadline=NEVER) is not None


async def test_what_is_damaged_says_so(snapshots: SnapshotStore, durable: Any, clock: ManualClock) -> None:
    """A part that is missing or is no such thing: the next tier serves."""
    meta = snapshot_meta(somebody(), clock)
    its = snapshot(meta.identity.agent_id)
    damages: tuple[Callable[[], Any], ...] = (
        lambda: durable.delete(its.body),
        lambda: durable.delete(its.meta),
        lambda: durable.set(its.body, b"{"),
        lambda: durable.set(its.body, b"[]"),
        lambda: durable.hset(its.meta, "seq", "x"),
        lambda: durable.hdel(its.meta, "hash"),
        lambda: durable.hset(its.meta, "timestamp", "yesterday"),
    )
    for damage in damages:
        await snapshots.drop(meta.identity.agent_id, deadline=NEVER)
        await snapshots.put(meta, DOCUMENT, deadline=NEVER)
        damage()
        with pytest.raises(ConsistencyError):
            await snapshots.get(meta.identity.agent_id, deadline=NEVER)


async def test_a_clock_far_behind_is_refused(snapshots: SnapshotStore, clock: ManualClock) -> None:
    """What would be gone at once is not said to be kept."""
    clock.advance(-15 * DAY)
    with pytest.raises(BadInput, match="is over by the server's clock"):
        await snapshots.put(snapshot_meta(somebody(), clock), DOCUMENT, deadline=NEVER)
    with pytest.raises(BadInput, match="is over by the server's clock"):
        await snapshots.put_checkpoint(somebody().analysis_id, "valuation", epoch=1, seq=1, body=b"{}", deadline=NEVER)


async def test_copies_of_checkpoints(snapshots: SnapshotStore, durable: Any, clock: ManualClock) -> None:
    """The latest stays, for seven days; others are not touched."""
    analysis, kind = somebody().analysis_id, "valuation"
    assert await snapshots.get_checkpoint(analysis, kind, deadline=NEVER) is None
    for epoch, seq, kept in ((1, 1, True), (1, 0, False), (2, 2, True), (1, 9, False), (2, 2, True)):
        body = b'{"seq": %d, "nul": "\\u0000"}\xff' % seq
        put = await snapshots.put_checkpoint(analysis, kind, epoch=epoch, seq=seq, body=body, deadline=NEVER)
        assert put is kept
    found = await snapshots.get_checkpoint(analysis, kind, deadline=NEVER)
    assert found == CheckpointCopy(2, 2, b'{"seq": 2, "nul": "\\u0000"}\xff')
    assert durable.pexpiretime(checkpoint(analysis, kind)) == ms_of(clock.now() + timedelta(days=7))
    assert await snapshots.get_checkpoint(analysis, "screening", deadline=NEVER) is None
    durable.hdel(checkpoint(analysis, kind), "body")
    with pytest.raises(ConsistencyError):
        await snapshots.get_checkpoint(analysis, kind, deadline=NEVER)
    assert await snapshots.drop_checkpoint(analysis, kind, deadline=NEVER)
    assert not await snapshots.drop_checkpoint(analysis, kind, deadline=NEVER)


@pytest.mark.spec("CK-19")
@pytest.mark.longer
@EXAMPLES
@given(contents=CONTENTS)
def test_any_content_comes_back(light_stack: Any, contents: Any) -> None:
    """Through the durable server as through Postgres."""
    from datetime import UTC, datetime

    from imem.cache.client import Client

    from .conftest import url_of

    async def run() -> None:
        clock = ManualClock(datetime.now(UTC))
        async with Client(url_of(light_stack, "durable")) as client:
            store, meta = SnapshotStore(client, clock), snapshot_meta(somebody(), clock, digest=digest(contents))
            await store.put(meta, document_of(contents), deadline=NEVER)
            found = await store.get(meta.identity.agent_id, deadline=NEVER)
            assert found is not None
            assert digest(contents_of(found[1])) == found[0].digest

    asyncio.run(run())
