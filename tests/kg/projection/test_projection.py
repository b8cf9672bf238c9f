"""A graph beside a restored journal: it is found out, said, and made anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql as composed

from imem.commands.sync import _sentence
from imem.jobs.lease import LeaderLease
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.projection import verification
from imem.kg.projection.applier import Applier
from imem.kg.projection.hash import graph_hash
from imem.kg.projection.verification import compare, ensure
from imem.services.graph_rebuild import REDERIVED
from imem.sync.status import status
from tests.kg.draining import drain
from tests.kg.projection.test_rebuild import history
from tests.kg.projection.world import NEVER, Journal, World
from tests.servers import with_database
from tests.waiting import until

FIRST, LATER = 6, 9
"""Analyses in the journal when the dump is made, and afterwards; each is five events."""


@asynccontextmanager
async def dumped(world: World, journal: Journal) -> AsyncIterator[Journal]:
    """A copy of *journal* as it is now, as restored from a dump later."""
    name = f"restored_{uuid4().hex[:12]}"
    assert world.settings.postgres_admin_url is not None
    admin = world.settings.postgres_admin_url.get_secret_value()
    original = composed.Identifier(journal.url.rpartition("/")[2])
    await journal.database.close()
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(composed.SQL("CREATE DATABASE {} TEMPLATE {}").format(composed.Identifier(name), original))
    journal.database = Database(journal.pipeline_url)
    url = with_database(journal.url, name)
    pipeline_url = with_database(journal.pipeline_url, name)
    copy = Journal(url, with_database(admin, name), Database(pipeline_url), pipeline_url)
    try:
        yield copy
    finally:
        await copy.database.close()
        with psycopg.connect(admin, autocommit=True) as conn:
            conn.execute(composed.SQL("DROP DATABASE {} WITH (FORCE)").format(composed.Identifier(name)))


def applier(world: World, journal: Journal) -> Applier:
    """Return an applier as the worker puts it together, as far as the graph's identity goes."""
    prepare = partial(ensure, journal.database, world.graph, rederived=REDERIVED)
    return world.applier(journal, prepare=prepare)


async def applied(world: World, journal: Journal) -> None:
    """Run an applier until the graph holds everything."""
    one = applier(world, journal)
    running = asyncio.create_task(one.run())

    async def done() -> bool:
        found = await compare(journal.database, world.graph, deadline=NEVER)
        return (
            found.mismatch is None
            and found.projected_journal is not None
            and found.held == found.applied == found.events
        )

    try:
        await until(done)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await one.stop()


async def mismatch(world: World, journal: Journal) -> str:
    """Return what people are told, or nothing."""
    found = await status(journal.database, world.graph, deadline=Deadline.after_ms(60_000))
    assert found.compared
    if found.mismatch is not None:
        assert found.mismatch in _sentence(found)
    return found.mismatch or ""


async def assert_as_from_the_journal_alone(world: World, journal: Journal) -> None:
    """Compare with a graph that never held anything else."""
    await applied(world, journal)
    assert await mismatch(world, journal) == ""
    made = await graph_hash(world.graph)
    assert made == await world.hash_of(await journal.events())


async def test_a_graph_of_this_journal_is_left_alone(empty: World, journal: Journal) -> None:
    """Also where a crash left events in the graph that are not marked yet."""
    await journal.say(*history(FIRST))
    await drain(empty.applier(journal))
    await journal.say(*history(LATER))
    waiting = [event for event in await journal.events() if event.position > FIRST * 5]
    await empty.apply(waiting[:3])
    before = await graph_hash(empty.graph)

    lease = LeaderLease(journal.database, "applier")
    await lease.seize()
    found = await ensure(journal.database, empty.graph, lease)
    await lease.drop()

    assert (found.mismatch, found.held, found.applied) == (None, FIRST * 5 + 3, FIRST * 5)
    assert await graph_hash(empty.graph) == before
    assert (await compare(journal.database, empty.graph, deadline=NEVER)).projected_journal == found.journal


async def test_an_older_dump(empty: World, journal: Journal) -> None:
    """The graph is ahead: what only it knows goes, and the rest is as from the journal alone."""
    await journal.say(*history(FIRST))
    await applied(empty, journal)
    async with dumped(empty, journal) as restored:
        await journal.say(*history(LATER))
        await applied(empty, journal)

        assert "holds events that the journal does not know" in await mismatch(empty, restored)
        await assert_as_from_the_journal_alone(empty, restored)


async def test_an_older_dump_that_went_on(empty: World, journal: Journal) -> None:
    """As many events were recorded since as were lost, so that every number agrees: the events are others."""
    await journal.say(*history(FIRST))
    await applied(empty, journal)
    async with dumped(empty, journal) as restored:
        await journal.say(*history(LATER))
        await applied(empty, journal)
        others = history(LATER + 3)[-3 * 5 :]
        await restored.say(*others)

        assert "holds events that the journal does not know" in await mismatch(empty, restored)
        await assert_as_from_the_journal_alone(empty, restored)


@pytest.mark.parametrize("lost", ["everything", "some"])
async def test_a_graph_that_lacks_what_is_called_applied(empty: World, journal: Journal, lost: str) -> None:
    """A dump beside an empty graph, or beside one that lost links: how many events are missing is said."""
    await journal.say(*history(LATER))
    await applied(empty, journal)
    if lost == "everything":
        await empty.wipe()
        lacking = LATER * 5
    else:
        await empty.run("MATCH (e:AppliedEvent) WHERE e.position > 0 WITH e LIMIT 7 DELETE e")
        await empty.run("MATCH (:Decision)-[r:CITES]->() DELETE r")
        lacking = 7

    assert f"lacks {lacking} of {LATER * 5} events" in await mismatch(empty, journal)
    await assert_as_from_the_journal_alone(empty, journal)


async def test_the_graph_of_another_journal(empty: World, journal: Journal) -> None:
    """Even where it looks the same."""
    await journal.say(*history(FIRST))
    await applied(empty, journal)
    journal.owner("UPDATE journal_identity SET id = gen_random_uuid()")

    assert "another journal" in await mismatch(empty, journal)
    await assert_as_from_the_journal_alone(empty, journal)


async def test_killed_while_it_empties_the_graph(
    empty: World, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left says that it is incomplete; the next applier goes on, and nothing of the foreign graph stays."""
    await journal.say(*history(FIRST))
    await applied(empty, journal)
    await empty.run("CREATE (:Human {id: 'of another journal'})")
    journal.owner("UPDATE journal_identity SET id = gen_random_uuid()")
    lease = LeaderLease(journal.database, "applier")
    await lease.seize()

    with monkeypatch.context() as patch:
        patch.setattr(verification, "WIPE_NODES", 3)

        def killed() -> None:
            raise KeyboardInterrupt

        patch.setattr(verification, "heed_cancellation", killed)
        with pytest.raises(KeyboardInterrupt):
            await ensure(journal.database, empty.graph, lease)
    await lease.drop()

    assert "being made anew" in await mismatch(empty, journal)
    await assert_as_from_the_journal_alone(empty, journal)
