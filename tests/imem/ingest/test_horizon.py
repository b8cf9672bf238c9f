"""The safe horizon: nothing recorded at or before it is still to come, whoever commits at that very moment."""

from __future__ import annotations

import asyncio
from datetime import datetime

import psycopg

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from tests.imem.ingest.conftest import LoadHarness

SLOW = """
    CREATE OR REPLACE FUNCTION imem_now() RETURNS timestamptz LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_sleep(1.0); RETURN clock_timestamp(); END $$
"""
"""Makes the gap as long as a writer needs that commits in it; as a rule it is microseconds."""

LOOK = "SELECT imem_safe_horizon() AS at, clock_timestamp() AS now"

WRITE = """
    WITH written AS (
        INSERT INTO event (event_id, kind, record_key, actor, actor_role, imported, agent_seq, occurred_at,
                           known_at, recorded_at, order_key, payload, payload_hash)
        SELECT gen_random_uuid(), 'record.Agent', 'a', 'me', 'agent', false, 1, at, at, at, 'a', '{}', sha256('')
        FROM (SELECT clock_timestamp() AS at) AS now RETURNING position, recorded_at
    ), delivered AS (INSERT INTO delivery (position, actor, tier) SELECT position, 'me', 3 FROM written)
    SELECT recorded_at FROM written
"""


async def horizon(database: Database) -> datetime:
    found: datetime = (await database.named("safe_horizon", deadline=Deadline.after_ms(20_000)))[0]["horizon"]
    return found


async def test_a_writer_that_commits_while_the_horizon_is_read_is_not_passed_over(harness: LoadHarness) -> None:
    """It is no open transaction any more, and was no delivery yet: one of the two must still see it."""
    database = Database(harness.url)
    try:
        first = await horizon(database)
        with psycopg.connect(harness.admin_url) as writer:
            row = writer.execute(WRITE).fetchone()
            assert row is not None
            (recorded_at,) = row
            assert first < recorded_at
            assert await horizon(database) < recorded_at, "an open writer holds it back"

            with psycopg.connect(harness.admin_url, autocommit=True) as owner:
                owner.execute(SLOW)
            asked = asyncio.create_task(horizon(database))
            await asyncio.sleep(0.5)
            assert not asked.done()
            writer.commit()
            assert await asked < recorded_at
    finally:
        await database.close()


async def test_within_one_transaction_it_moves_on(harness: LoadHarness) -> None:
    """What was seen of the open transactions the first time does not stay until the end."""
    database = Database(harness.url)
    try:
        async with database.transaction(Deadline.after_ms(20_000)) as conn:
            with psycopg.connect(harness.admin_url) as writer:
                writer.execute("CREATE TABLE something (one integer)")
                held = await (await conn.execute(LOOK)).fetchone()
            free = await (await conn.execute(LOOK)).fetchone()
        assert held is not None
        assert free is not None
        assert held["at"] < held["now"] < free["at"]
    finally:
        await database.close()
