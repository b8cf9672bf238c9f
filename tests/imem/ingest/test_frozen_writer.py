"""A writer that is stopped between its write and COMMIT delays others for seconds, not for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from imem.ingest.line_reader import Batch, LoadSource, RefusedLine, sources_of
from imem.ingest.loader import LoadCounts, Loader
from imem.journal.deadline import Deadline
from imem.journal.errors import OutcomeUnknown, PostgresUnavailable
from imem.journal.postgres.database import LONGEST_TRANSACTION_S, Database
from imem.journal.postgres.pool import LONGEST_IDLE_S
from imem.journal.settings import Role
from imem.kg.model import Company
from imem.kg.similarity.index import run_lock
from imem.memory import Memory
from imem.services.stores import Stores
from tests.imem.ingest.conftest import KNOWN, LoadHarness

STOPPING = """
import asyncio, os, signal, sys
from imem.journal.postgres import database
from imem.memory import Memory
from imem.kg.model import Company

async def main():
    async with Memory.open() as memory:
        plain = database.Connection.execute

        async def stopped(self, query, *rest, **named):
            answer = await plain(self, query, *rest, **named)
            if "imem_append_v1" in str(query):
                os.kill(os.getpid(), signal.SIGSTOP)
            return answer

        database.Connection.execute = stopped
        await memory.record_company(Company(ticker="FROZEN"))

asyncio.run(main())
"""


@contextmanager
def stopped_writer(harness: LoadHarness) -> Iterator[subprocess.Popen[bytes]]:
    """Run a writer of the harness' actor until it stands still between its append and COMMIT."""
    with subprocess.Popen([sys.executable, "-c", STOPPING], env=harness.environment, stderr=subprocess.PIPE) as process:
        try:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), f"it ended with {status} instead of standing still"
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


async def test_a_stopped_writer_holds_its_actor_and_the_horizon_for_seconds(harness: LoadHarness) -> None:
    """The server ends its transaction: the actor's next write goes through, and the horizon moves on."""
    person = harness.as_role(Role.HUMAN_ADMIN, "head-of-research")
    database = Database(person.url)
    try:
        with stopped_writer(person):
            begun = time.monotonic()
            held = (await database.named("safe_horizon", deadline=Deadline.after_ms(5_000)))[0]
            async with Memory.open(person.settings) as memory:
                receipt = await memory.record_company(Company(ticker="NEXT"), deadline_ms=LONGEST_IDLE_S * 6_000)
            waited_s = time.monotonic() - begun
            moved = (await database.named("safe_horizon", deadline=Deadline.after_ms(5_000)))[0]
    finally:
        await database.close()

    assert receipt.durable
    assert waited_s > 1, "the writer held nothing"
    assert receipt.recorded_at is not None
    assert held["horizon"] < receipt.recorded_at
    assert (moved["now"] - moved["horizon"]).total_seconds() < waited_s or moved["horizon"] > held["horizon"]
    assert harness.rows("SELECT record_key FROM event") == [("NEXT",)]


async def test_a_writer_that_wakes_up_too_late_is_told_that_nothing_was_written(harness: LoadHarness) -> None:
    """Its transaction is gone: the error may be retried, and nothing was written."""
    database = Database(harness.url, options="-c idle_in_transaction_session_timeout=100ms")
    observer = Database(harness.url)

    async def write_and_sleep() -> None:
        async with database.transaction(Deadline.after_ms(60_000)) as conn:
            await conn.execute("INSERT INTO workflow.alert_over (about) VALUES (gen_random_uuid())")
            here = "SELECT count(*) AS here FROM pg_stat_activity WHERE pid = %s"
            pid = conn.info.backend_pid
            while (await observer.rows(here, [pid], deadline=Deadline.after_ms(60_000)))[0]["here"]:
                pass

    try:
        with pytest.raises((PostgresUnavailable, OutcomeUnknown)) as caught:
            await write_and_sleep()
    finally:
        await database.close()
        await observer.close()

    assert caught.value.retryable
    assert harness.rows("SELECT * FROM workflow.alert_over") == []


async def test_a_writer_that_is_never_idle_is_ended_by_the_server(
    harness: LoadHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    By the time of its whole transaction, however short each statement: the horizon moves on, and nothing was written.

    Where the server cannot bound that (before 17), its idle time alone is bounded.
    """
    limit_s = 1
    monkeypatch.setattr("imem.journal.postgres.database.LONGEST_TRANSACTION_S", limit_s)
    database, observer = Database(harness.url), Database(harness.url)
    ended_s = 0.0

    async def write_and_stay_busy() -> None:
        nonlocal ended_s
        async with database.transaction(Deadline.after_ms(120_000)) as conn:
            begun_s = time.monotonic()
            await conn.execute("INSERT INTO workflow.alert_over (about) VALUES (gen_random_uuid())")
            try:
                while time.monotonic() < begun_s + 60.0:
                    await conn.execute("SELECT pg_sleep(0.01)")
            finally:
                ended_s = time.monotonic() - begun_s

    try:
        async with observer.connection(Deadline.after_ms(60_000)) as conn:
            if conn.info.server_version < 170_000:
                return
        with pytest.raises(PostgresUnavailable) as caught:
            await write_and_stay_busy()
        open_ones = "SELECT count(*) AS here FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = %s"
        name = (await observer.rows("SELECT current_database() AS name", deadline=Deadline.after_ms(60_000)))[0]["name"]
        left = await observer.rows(open_ones, [name], deadline=Deadline.after_ms(60_000))
    finally:
        await database.close()
        await observer.close()

    assert limit_s * 0.9 <= ended_s < 30.0
    assert caught.value.retryable
    assert left == [{"here": 0}]
    assert harness.rows("SELECT * FROM workflow.alert_over") == []


async def test_every_connection_bounds_its_transactions_on_the_server(harness: LoadHarness) -> None:
    """By idle time everywhere, by total time where the server can (17 and newer)."""
    database = Database(harness.url)
    try:
        async with database.connection(Deadline.after_ms(60_000)) as conn:
            idle = await (await conn.execute("SHOW idle_in_transaction_session_timeout")).fetchone()
            assert idle == {"idle_in_transaction_session_timeout": f"{LONGEST_IDLE_S}s"}
            if conn.info.server_version >= 170_000:
                total = await (await conn.execute("SHOW transaction_timeout")).fetchone()
                assert total == {"transaction_timeout": f"{LONGEST_TRANSACTION_S // 60}min"}
    finally:
        await database.close()


class Watching:
    """A listener that notes the open transactions that have written, after each batch that was checked."""

    def __init__(self, harness: LoadHarness) -> None:
        self.harness = harness
        self.seen: list[tuple[int]] = []

    def checked(self, _source: LoadSource, _batch: Batch) -> None:
        self.seen += self.harness.rows(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL"
        )
        self.seen += [(0,)]

    def refused(self, line: RefusedLine) -> None:
        raise AssertionError(line)

    def loaded(self, _source: LoadSource, _batch: Batch, _counts: LoadCounts) -> None:
        raise AssertionError("a check loads nothing")

    def waiting(self, _counts: LoadCounts) -> None:
        raise AssertionError("a check waits for nothing")


async def test_checking_files_does_not_hold_the_horizon_back(harness: LoadHarness) -> None:
    """A strict load reads its files before it writes; while it does, it has no transaction that has written."""
    lines = [{"record": "Human", "known_at": KNOWN, "core": {"id": f"h{n}"}} for n in range(1_100)]
    sources = sources_of([str(harness.file("people.jsonl", lines))])
    watching = Watching(harness)
    async with Stores.open(harness.having(may_import=True).settings) as stores:
        loader = Loader(stores.gateway, watching)
        # Twice on one connection: nothing is left of the first.
        assert [await loader.check(sources), await loader.check(sources)] == [0, 0]
    assert watching.seen == [(0,)] * 6


async def test_the_only_process_of_a_long_run_stays_the_only_one(harness: LoadHarness) -> None:
    """A transaction that says only who works, and has written nothing, may be idle longer than a writer."""
    database = Database(harness.url, size=2, options="-c idle_in_transaction_session_timeout=1s")
    try:
        async with run_lock(database, "vectors") as held:
            assert held
            await database.rows("SELECT pg_sleep(1.5)", deadline=Deadline.after_ms(60_000))
            async with run_lock(database, "vectors") as another:
                assert not another
    finally:
        await database.close()
