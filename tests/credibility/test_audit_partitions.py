"""The audit's partition of a month is made while others write in that month: they write again, and nothing fails."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from tests.credibility.conftest import IMPORTER, World, outcome, world
from tests.servers import ahead
from tests.waiting import until

__all__ = ["world"]

LATER = timedelta(days=200)
WAITS = """
    SELECT FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
    WHERE NOT l.granted AND a.datname = current_database()"""


async def test_a_writer_that_waits_for_a_new_partition_writes_again(world: World) -> None:
    """Its row was for the default partition, which that month has left: Postgres refuses it once."""
    options = ahead(world.admin_url, LATER)
    pipelines, owner = (Database(url, size=2, options=options) for url in (world.pipeline_url, world.admin_url))
    before, world.gateway = world.gateway, Gateway(pipelines, IMPORTER)
    at = datetime.now(UTC)

    async def waits() -> bool:
        return bool(await world.rows(WAITS))

    try:
        async with owner.transaction(Deadline.never()) as conn:
            # As imem_audit_partitions does: that month is in the default partition until this is committed.
            await conn.execute("LOCK TABLE memory_access_audit_default IN ACCESS EXCLUSIVE MODE")
            writing = asyncio.create_task(world.say(outcome("o", at, at - timedelta(days=1), 1.0)))
            await until(waits)
            await conn.execute("SELECT imem_audit_partitions()")
        await writing
    finally:
        world.gateway = before
        for one in (pipelines, owner):
            await one.close()
    month = f"memory_access_audit_{at + LATER:%Y_%m}"
    written = "SELECT tableoid::regclass::text AS place FROM memory_access_audit WHERE action = 'import'"
    assert [row["place"] for row in await world.rows(written)] == [month]
    assert len(await world.rows("SELECT FROM event")) == 1
