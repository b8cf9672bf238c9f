"""A Postgres that accepts and then says nothing: every call ends by its deadline, and all is well once it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import orjson
import pytest
import pytest_asyncio
from pydantic import SecretStr

import imem.journal.postgres.connection
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, OutcomeUnknown, PostgresUnavailable
from imem.journal.events.entry import JournalEntry
from imem.journal.gateway import Gateway
from imem.journal.postgres import failure_detector
from imem.journal.postgres.database import Database
from imem.journal.postgres.failure_detector import PROBE_S, FailureDetector
from imem.journal.postgres.migrations import migrate
from imem.journal.postgres.pool import WAITING_FOR_EACH
from imem.journal.settings import Role, Settings
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.model import Company
from imem.local.supervisor import LocalStack
from imem.memory import Memory
from imem.recall.model import Quality
from tests.conftest import settings_for, temporary_home
from tests.imem.ingest.conftest import analysis
from tests.kg.projection.proxy import proxied
from tests.kg.projection.world import importer

SIZE = 3
"""Connections of a pool."""

BUDGET_MS = 300
LATE_S = 1.7
"""How much later than its deadline a call may end on a busy machine; the driver's own way out takes 10 s."""

LONGEST_S = 8.0
"""How long the server is silent at most, in seconds."""

SLEEP = "SELECT pg_sleep(%s)"


@pytest.fixture(scope="module")
def local() -> Iterator[LocalStack]:
    """A Postgres of our own, which may be ill-treated."""
    with temporary_home() as home, LocalStack(settings_for(home), servers={"postgres"}, workers=False) as running:
        given = running.settings
        assert given.postgres_url is not None
        assert given.postgres_curator_url is not None
        assert given.postgres_admin_url is not None
        application, curators = (
            urlsplit(url.get_secret_value()).username for url in (given.postgres_url, given.postgres_curator_url)
        )
        migrate(given.postgres_admin_url.get_secret_value(), application_role=application, curator_role=curators)
        yield running


@pytest.fixture
def settings(local: LocalStack) -> Settings:
    """Everything but Postgres refuses at once."""
    return local.settings.model_copy(
        update={
            "neo4j_url": "bolt://127.0.0.1:1",
            "valkey_durable_url": SecretStr("redis://127.0.0.1:1"),
            "postgres_pool_size": SIZE,
            "role": Role.AGENT,
            "actor": "me",
        }
    )


@pytest_asyncio.fixture
async def database(local: LocalStack) -> AsyncIterator[Database]:
    assert local.settings.postgres_curator_url is not None
    opened = Database(local.settings.postgres_curator_url.get_secret_value(), size=SIZE)
    yield opened
    await opened.close()


async def warm(database: Database) -> None:
    """Open every connection that the pool may have."""
    await asyncio.gather(*(database.rows(SLEEP, (0.1,), deadline=Deadline.after_ms(20_000)) for _ in range(SIZE)))


def processes(local: LocalStack) -> list[int]:
    """Return Postgres and its children, each of which has a process group of its own."""
    pid = local.state.children["postgres"].pid
    assert pid is not None
    found = [pid]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(") ")[2].split()[1])
        except OSError:  # It ended meanwhile.
            continue
        if parent == pid:
            found.append(int(stat.parent.name))
    return found


@contextmanager
def silent(local: LocalStack) -> Iterator[None]:
    """Stop every process of the server for as long as the block lasts; the system goes on accepting for it."""
    stopped: list[int] = []

    def go_on() -> None:
        while stopped:
            os.kill(stopped.pop(), signal.SIGCONT)

    # Whoever waits for ever fails for it all the same.
    at_last = threading.Timer(LONGEST_S, go_on)
    at_last.start()
    try:
        for pid in processes(local):
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
        yield
    finally:
        at_last.cancel()
        go_on()


@asynccontextmanager
async def within(budget_ms: float) -> AsyncIterator[None]:
    """Demand that the block ends by its deadline, or a little later."""
    began = time.monotonic()
    yield
    took_s = time.monotonic() - began
    assert took_s < budget_ms / 1000 + LATE_S, f"{took_s:.2f} s"


async def works(database: Database) -> None:
    """Demand that as many statements run at once as the pool is large: none of its places is lost."""
    began = time.monotonic()
    await warm(database)
    await asyncio.gather(*(database.rows(SLEEP, (1.0,), deadline=Deadline.after_ms(20_000)) for _ in range(SIZE)))
    assert time.monotonic() - began < 1.0 * SIZE


def entry(key: str) -> JournalEntry:
    return entry_of(parse_line(orjson.dumps(analysis(key))))


async def test_reading_ends_by_the_deadline(local: LocalStack, database: Database) -> None:
    """More calls than there are connections: those that had one, and those that waited for one."""
    await warm(database)
    with silent(local):
        async with within(BUDGET_MS):
            answers = await asyncio.gather(
                *(database.rows("SELECT 1", deadline=Deadline.after_ms(BUDGET_MS)) for _ in range(SIZE * 3)),
                return_exceptions=True,
            )
        assert {type(one) for one in answers} == {BudgetExceeded, PostgresUnavailable}
        assert [type(one) for one in answers].count(BudgetExceeded) == SIZE

        async with within(BUDGET_MS):  # Every connection is being made anew, and none is.
            with pytest.raises(PostgresUnavailable):
                await database.rows("SELECT 1", deadline=Deadline.after_ms(BUDGET_MS))

    await works(database)


async def test_a_statement_under_way_ends_by_the_deadline(local: LocalStack, database: Database) -> None:
    """The server falls silent after it has taken the statement and its own timeout."""
    await warm(database)
    asked = asyncio.create_task(database.rows(SLEEP, (30,), deadline=Deadline.after_ms(BUDGET_MS)))
    await asyncio.sleep(BUDGET_MS / 3000)
    with silent(local):
        async with within(BUDGET_MS):
            with pytest.raises(BudgetExceeded):
                await asked

    await works(database)


async def test_writing_and_waiting_end_by_the_deadline(local: LocalStack, database: Database) -> None:
    """The gateway's own retries and looks do not outlive it either, and afterwards the same write is new."""
    gateway = Gateway(database, importer())
    await warm(database)
    (before,) = await gateway.append([entry("before")], deadline=Deadline.after_ms(20_000))
    assert before.position is not None
    await warm(database)
    with silent(local):
        async with within(BUDGET_MS):
            with pytest.raises((BudgetExceeded, PostgresUnavailable)):
                await gateway.append([entry("during")], deadline=Deadline.after_ms(BUDGET_MS))
        async with within(BUDGET_MS):
            assert not await gateway.wait_visible([before.position], Deadline.after_ms(BUDGET_MS))

    (after,) = await gateway.append([entry("during")], deadline=Deadline.after_ms(20_000))
    assert after.verdict == "new"
    await works(database)


async def test_silence_while_committing_leaves_the_outcome_open(local: LocalStack, database: Database) -> None:
    """Nobody can say whether the server took the COMMIT before it fell silent."""
    await warm(database)
    with ExitStack() as stack:

        async def commit() -> None:
            async with database.transaction(Deadline.after_ms(BUDGET_MS)) as conn:
                await conn.execute("SELECT 1")
                stack.enter_context(silent(local))

        async with within(BUDGET_MS):
            with pytest.raises(OutcomeUnknown):
                await commit()

    await works(database)


@pytest.mark.parametrize("how", ["cancelled", "timeout"])
async def test_whoever_loses_interest_is_let_go(local: LocalStack, database: Database, how: str) -> None:
    """A cancellation from outside does not wait for the server, whatever the deadline; idle places stay usable."""
    await warm(database)
    with silent(local):
        async with within(BUDGET_MS):
            asked = asyncio.create_task(database.rows("SELECT 1", deadline=Deadline.never()))
            if how == "cancelled":
                await asyncio.sleep(BUDGET_MS / 1000)
                asked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asked
            else:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(BUDGET_MS / 1000):
                        await asked

    await works(database)


async def test_a_cancelled_statement_ends_on_the_server_and_the_connection_is_kept(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers is asked to stop, so that what nobody waits for does not run on."""
    # How long a busy machine takes to answer is not what is tested.
    monkeypatch.setattr(imem.journal.postgres.connection, "GRACE_S", 10.0)
    await warm(database)
    busy = "SELECT count(*) AS n FROM pg_stat_activity WHERE query = %s AND state = 'active'"
    backends = "SELECT array_agg(pid ORDER BY pid) AS pids FROM pg_stat_activity WHERE application_name = 'imem'"
    deadline = Deadline.after_ms(20_000)
    before = await database.rows(backends, deadline=deadline)
    asked = asyncio.create_task(database.rows("SELECT pg_sleep(19)", deadline=deadline))
    while not (await database.rows(busy, ("SELECT pg_sleep(19)",), deadline=deadline))[0]["n"]:
        deadline.check("the statement to begin")

    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked

    assert (await database.rows(busy, ("SELECT pg_sleep(19)",), deadline=deadline))[0]["n"] == 0
    assert await database.rows(backends, deadline=deadline) == before


async def test_work_without_a_deadline_ends_too(
    local: LocalStack, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit is a long one, and the error one that it may try again after."""
    await warm(database)
    monkeypatch.setattr(imem.journal.postgres.connection, "BACKGROUND_TIMEOUT_S", BUDGET_MS / 1000)
    with silent(local):
        async with within(BUDGET_MS):
            with pytest.raises(PostgresUnavailable, match="did not answer for"):
                await database.rows("SELECT 1", deadline=Deadline.never())


async def test_a_briefing_ends_by_its_deadline(local: LocalStack, settings: Settings) -> None:
    """It says that the journal was away; closing does not wait for the server either."""
    async with Memory.open(settings) as memory:
        await memory.record_company(Company(ticker="MU"), deadline_ms=20_000)
        before = await asyncio.gather(*(memory.brief("MU", deadline_ms=30_000) for _ in range(SIZE)))
        assert all(one.history.quality is not Quality.UNAVAILABLE for one in before)
        with silent(local):
            async with within(500):
                briefing = await memory.brief("MU", deadline_ms=500)
            assert briefing.history.quality is Quality.UNAVAILABLE
            assert briefing.took_ms < 500 + LATE_S * 1000

        began = time.monotonic()
        while (await memory.brief("MU", deadline_ms=30_000)).history.quality is Quality.UNAVAILABLE:
            assert time.monotonic() - began < 20


async def test_silence_is_evidence_once_nobody_was_answered_for_two_seconds(
    local: LocalStack, database: Database
) -> None:
    """A call that misses its deadline is none; any answer takes it back."""
    await warm(database)
    found: list[bool] = []
    with silent(local):
        with pytest.raises(BudgetExceeded):
            await database.rows("SELECT 1", deadline=Deadline.after_ms(BUDGET_MS))
        found.append(database.detector.away)
        begun_s = time.monotonic()
        found.append(await database.detector.settled())
        assert time.monotonic() - begun_s > PROBE_S - BUDGET_MS / 1000
        with pytest.raises((BudgetExceeded, PostgresUnavailable)):
            await database.rows("SELECT 1", deadline=Deadline.after_ms(BUDGET_MS))
        found.append(database.detector.away)
    await warm(database)
    assert [*found, database.detector.away] == [False, True, True, False]


async def test_a_server_that_answers_others_is_not_away(database: Database) -> None:
    """One statement takes too long, again and again; the answers of others are the evidence."""
    await warm(database)
    for _ in range(3):
        with pytest.raises(BudgetExceeded):
            await database.rows(SLEEP, (30,), deadline=Deadline.after_ms(BUDGET_MS))
    assert not await database.detector.settled()


async def test_a_process_that_does_not_run_has_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own loop stands still while the server would have to be heard."""
    probes = 0

    async def probe(deadline: Deadline) -> None:
        nonlocal probes
        probes += 1
        if probes == 3:
            detector.answered()
            return
        time.sleep(deadline.left_s())  # noqa: ASYNC251 - the loop is held up on purpose
        raise BudgetExceeded("late")

    monkeypatch.setattr(failure_detector, "PROBE_S", 0.2)
    detector = FailureDetector(probe)
    detector.unanswered(time.monotonic() - 1.0)
    assert not await detector.settled()
    assert probes == 3


async def test_nothing_is_probed_once_it_is_closed() -> None:
    """What was left behind by an answer ends after the memory is closed: a probe then would outlive the event loop."""
    probes = 0

    async def probe(_deadline: Deadline) -> None:
        nonlocal probes
        probes += 1
        raise BudgetExceeded("late")

    before = asyncio.all_tasks()
    detector = FailureDetector(probe)
    detector.unanswered(time.monotonic() - 1.0)
    await detector.close()
    detector.unanswered(time.monotonic() - 1.0)
    assert not await detector.settled()
    assert probes == 0
    assert asyncio.all_tasks() - before == set()


async def test_a_server_that_refuses_is_no_reason_to_wait(local: LocalStack, database: Database) -> None:
    """More callers than connections: each hears of it at once, however far its deadline; later all is as before."""
    nobody = Database("postgresql://u:p@127.0.0.1:1/d", size=SIZE)
    for _ in range(2):
        async with within(0):
            answers = await asyncio.gather(
                *(nobody.rows("SELECT 1", deadline=Deadline.after_ms(20_000)) for _ in range(4 * SIZE)),
                return_exceptions=True,
            )
        assert {type(answer) for answer in answers} == {PostgresUnavailable}
        assert nobody.detector.away
    await nobody.close()

    await warm(database)
    pid = local.state.children["postgres"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while True:
        async with within(100):
            try:
                await warm(database)
            except PostgresUnavailable:
                continue
        break
    await works(database)


@pytest.mark.parametrize("away", ["silent", "refusing"])
async def test_an_outage_of_many_calls_is_over_when_the_server_is_back(local: LocalStack, away: str) -> None:
    """More calls give up than may wait at all: none of them is in the way of those that come later."""
    assert local.settings.postgres_url is not None
    url = urlsplit(local.settings.postgres_url.get_secret_value())
    assert url.hostname is not None
    assert url.port is not None
    async with proxied(url.hostname, url.port) as proxy:
        behind = url._replace(netloc=url.netloc.replace(f":{url.port}", f":{proxy.port}"))
        database = Database(urlunsplit(behind), size=SIZE)
        await warm(database)
        if away == "refusing":
            await proxy.refuse()
        with silent(local) if away == "silent" else nullcontext():
            for _ in range(2 * WAITING_FOR_EACH):
                answers = await asyncio.gather(
                    *(database.rows("SELECT 1", deadline=Deadline.after_ms(10)) for _ in range(SIZE)),
                    return_exceptions=True,
                )
                assert {type(one) for one in answers} <= {BudgetExceeded, PostgresUnavailable}
        if away == "refusing":
            await proxy.listen()
        # A connection that was begun while the server was silent takes its three seconds.
        async with within(4_000):
            while True:
                with suppress(PostgresUnavailable):
                    await warm(database)
                    break
                await asyncio.sleep(0.1)
        await works(database)
        await database.close()
