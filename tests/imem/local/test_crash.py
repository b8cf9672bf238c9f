"""IF-10: SIGKILL at any moment, then a start: everything acknowledged is there and nothing is in the way."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import neo4j
import psycopg
import pytest
import redis

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.settings import Settings
from imem.kg.kinds.subjects import Company
from imem.local import state
from imem.local.folders import Folders, read_json
from imem.local.process import ProcessIdentity, marked
from imem.local.servers import valkey
from imem.local.state import ChildState, with_local_endpoints
from imem.local.supervisor import LocalStack
from imem.memory import Memory
from tests.conftest import settings_for
from tests.imem.local.programs import begun, identity_of, imem, nothing_left, shown, supervised, sure, until

SMALL = ["postgres", "valkey"]
SERVERS = ("postgres", "neo4j", "valkey-working", "valkey-durable", "valkey-cache")
WORKERS = ("applier", "celery", "beat")
ROUNDS = 100 if os.environ.get("IMEM_CHAOS") else 12
KILLS = 20 if os.environ.get("IMEM_CHAOS") else 1
"""How often the whole stack is killed, at a moment that is another one each time: each costs the start of Neo4j."""

STARTS_S = 10.0
"""Within so many seconds most of a start has happened: servers, migrations, workers."""


class Ledger:
    """
    Writes to the stores and remembers what they acknowledged.

    Only what was acknowledged must be there afterwards; what was under way may be.
    """

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self._next = 0

    def write(self, settings: Settings, count: int = 5) -> None:
        """Write *count* numbers to Postgres and to the lasting Valkey, one transaction each."""
        with (
            psycopg.connect(shown(settings.postgres_admin_url), autocommit=True) as connection,
            redis.Redis.from_url(shown(settings.valkey_durable_url)) as client,
        ):
            connection.execute("CREATE TABLE IF NOT EXISTS ledger (n integer PRIMARY KEY)")
            for _ in range(count):
                self._next += 1
                connection.execute("INSERT INTO ledger VALUES (%s)", (self._next,))
                client.sadd("ledger", self._next)
                self.acknowledged.add(self._next)

    def check(self, settings: Settings) -> None:
        """Everything acknowledged is in both."""
        if not self.acknowledged:
            return
        with psycopg.connect(shown(settings.postgres_admin_url)) as connection:
            assert {row[0] for row in connection.execute("SELECT n FROM ledger").fetchall()} >= self.acknowledged
        with redis.Redis.from_url(shown(settings.valkey_durable_url)) as client:
            assert {int(n) for n in client.smembers("ledger")} >= self.acknowledged


@pytest.mark.spec("IF-10")
@pytest.mark.longer
def test_the_supervisor_may_be_killed_at_any_moment(home: Path) -> None:
    """During the first start, later ones, the run and the stop; the next start always succeeds with all the data."""
    ledger, moments = Ledger(), random.Random(10)
    for number in range(ROUNDS):
        if number % 2:
            with supervised(home, SMALL, wait=False) as process:
                until((home / "lock").exists, "it has begun")
                time.sleep(moments.uniform(0, 1.5))  # Any moment of a start: that is what is tried.
                process.send_signal(signal.SIGKILL)
        else:
            with supervised(home, SMALL) as process:
                settings = with_local_endpoints(settings_for(home, neo4j_url="bolt://elsewhere"))
                ledger.check(settings)
                ledger.write(settings)
                if number % 4:
                    process.send_signal(signal.SIGINT)
                process.send_signal(signal.SIGKILL)
    with LocalStack(settings_for(home), servers=SMALL, workers=False) as stack:
        ledger.check(stack.settings)
    assert nothing_left(home)


@pytest.mark.spec("IF-10")
def test_a_killed_child_comes_back_with_everything(home: Path) -> None:
    """At the same address, so that clients only have to connect again."""
    ledger = Ledger()
    with LocalStack(settings_for(home), servers=SMALL, workers=False) as stack:
        for name in ("postgres", "valkey-durable", "postgres"):
            ledger.write(stack.settings)
            before = stack.state.children[name]
            os.kill(identity_of(stack.state, name).pid, signal.SIGKILL)

            def back(name: str = name, before: ChildState = before) -> bool:
                now = stack.state.children[name]
                return now.state == "ready" and now.restarts > before.restarts

            until(back, f"{name} is back")
            assert stack.state.children[name].port == before.port
            assert stack.state.children[name].note == ""
            ledger.check(stack.settings)


@pytest.mark.spec("IF-10")
@pytest.mark.chaos
def test_neo4j_and_everything_else_killed_at_once(home: Path) -> None:
    """Power failure as far as programs can have one: every process of the stack gets SIGKILL together."""
    with supervised(home, ["neo4j", *SMALL]) as process:
        settings = with_local_endpoints(settings_for(home))
        ledger = Ledger()
        ledger.write(settings)
        with graph(settings) as driver:
            driver.execute_query("UNWIND range(1, 500) AS n CREATE (:Ledger {n: n})")
        everybody = [*marked(home), sure(state.running(Folders(home))).supervisor]
        for one in everybody:
            os.kill(one.pid, signal.SIGKILL)
        process.wait()

    with LocalStack(settings_for(home), workers=False) as stack:
        ledger.check(stack.settings)
        with graph(stack.settings) as driver:
            assert driver.execute_query("MATCH (l:Ledger) RETURN count(l) AS n").records[0]["n"] == 500
        os.kill(identity_of(stack.state, "neo4j").pid, signal.SIGKILL)
        until(
            lambda: stack.state.children["neo4j"].restarts and stack.state.children["neo4j"].state == "ready",
            "it is back",
        )
        with graph(stack.settings) as driver:
            assert driver.execute_query("MATCH (l:Ledger) RETURN count(l) AS n").records[0]["n"] == 500
    assert nothing_left(home)


@pytest.mark.spec("IF-10")
@pytest.mark.e2e
@pytest.mark.longer
def test_the_whole_of_imem_up_killed_at_any_moment_keeps_what_was_acknowledged(home: Path) -> None:
    """
    Every process gets SIGKILL together while agents record: servers, Neo4j, applier, Celery, beat and the supervisor.

    The next ``imem up`` begins cleanly: what was acknowledged is recorded, and comes into the graph. It shows itself
    whole, stops and is purged. In ``make chaos``, one that is killed while it starts comes between the two.
    """
    moments, recorded = random.SystemRandom(), list[str]()
    for _ in range(KILLS):
        started = imem(home, "up", "--detach", "--json")
        assert started.returncode == 0, started.stderr
        settings = with_local_endpoints(settings_for(home, actor="steward", role="human_admin"))
        at_most_s = moments.uniform(0.0, 3.0)
        asyncio.run(_killed_while_recording(settings, home, recorded, at_most_s))
        until(lambda: nothing_left(home), "all of it is gone")
        assert imem(home, "status").returncode == 1
        if KILLS > 1:
            _killed_while_starting(home, moments.uniform(0.0, STARTS_S))
    started = imem(home, "up", "--detach", "--json")
    assert started.returncode == 0, started.stderr
    try:
        settings = with_local_endpoints(settings_for(home, actor="steward", role="human_admin"))
        asyncio.run(_all_there(settings, recorded))
        assert recorded
        _shows_itself(home, started.stdout)
        _ends(home)
    finally:
        imem(home, "down")


def _shows_itself(home: Path, started: str) -> None:
    """A second ``up`` is refused; ``status``, ``doctor``, ``metrics``, ``migrate`` and ``logs`` speak of all of it."""
    children = json.loads(started)["children"]
    assert [name for name in SERVERS if children[name]["state"] == "ready"] == list(SERVERS)
    again = imem(home, "up")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.strip() == (
        f"A stack already runs on {home}. `imem status` shows it; another IMEM_HOME gives another stack."
    )
    seen = json.loads(imem(home, "status", "--json").stdout)
    assert set(seen["children"]) == {*SERVERS, *WORKERS}
    assert all(seen["children"][name]["memory_mb"] > 1 for name in SERVERS)
    assert (seen["mode"], seen["away"], seen["behind_s"]) == ("normal", [], 0)
    table = imem(home, "status").stdout
    assert "neo4j" in table
    assert "\nMode: normal.\nPipelines:" in table
    assert seen["pipelines"] is not None
    assert "# TYPE sync_notices_routed_total counter" in imem(home, "metrics").stdout
    findings = json.loads(imem(home, "doctor", "--json").stdout)["findings"]
    assert [one for one in findings if one["level"] != "fine" and one["about"] not in WORKERS] == []
    assert json.loads(imem(home, "migrate", "--json").stdout) == {"applied": []}
    assert "valkey" in imem(home, "logs", "valkey-cache").stdout.lower()


def _ends(home: Path) -> None:
    """``down`` leaves no process, and with ``--purge`` no file."""
    assert imem(home, "down").stdout == "Stopped.\n"
    assert nothing_left(home)
    deleted = json.loads(imem(home, "down", "--purge", "--yes", "--json").stdout)
    assert deleted["stopped"] is False
    assert str(home / "secrets.json") in deleted["deleted"]
    assert not home.exists()
    home.mkdir()


async def _killed_while_recording(settings: Settings, home: Path, recorded: list[str], at_most_s: float) -> None:
    """Record companies until everything is killed, some moments after the first was acknowledged."""
    async with Memory.open(settings) as memory:

        async def record() -> None:
            while True:
                ticker = f"C{len(recorded)}"
                await memory.record_company(Company(ticker=ticker), deadline_ms=20_000)
                recorded.append(ticker)

        before = len(recorded)
        recording = asyncio.create_task(record())
        while len(recorded) == before:
            await asyncio.sleep(0.01)
            assert not recording.done() or recording.result()
        await asyncio.sleep(at_most_s)  # Any moment: that is what is tried.
        for one in [*marked(home), sure(state.running(Folders(home))).supervisor]:
            os.kill(one.pid, signal.SIGKILL)
        with suppress(ImemError):
            await asyncio.wait_for(recording, 60)


def _killed_while_starting(home: Path, after_s: float) -> None:
    """Kill ``imem up`` so long after its beginning; all that it has started by then ends with it."""
    with begun(home, "up") as process:
        time.sleep(after_s)  # Any moment: that is what is tried.
        process.kill()


async def _all_there(settings: Settings, recorded: list[str]) -> None:
    async with Memory.open(settings) as memory:
        # Visible once it is applied: everything before it is as well.
        async with asyncio.timeout(120):
            # A call waits for two seconds at most, and an applier that has just started has all the rest before it.
            while not (await memory.record_company(Company(ticker="LAST"), wait_visible=True)).visible:
                pass
        database = memory._stores.database
        rows = await database.rows(
            "SELECT key FROM record_head WHERE kind = 'Company'", deadline=Deadline.after_ms(20_000)
        )
        assert {row["key"] for row in rows} >= set(recorded)
    with graph(settings) as driver:
        found = driver.execute_query("MATCH (c:Company) RETURN c.ticker AS ticker").records
        assert {record["ticker"] for record in found} >= set(recorded)


def graph(settings: Settings) -> neo4j.Driver:
    """Return a driver."""
    auth = (settings.neo4j_user, shown(settings.neo4j_password))
    return neo4j.GraphDatabase.driver(sure(settings.neo4j_url), auth=auth)


def test_leftovers_that_the_kernel_did_not_end_are_ended(home: Path) -> None:
    """A child that survived its supervisor, for whatever reason, is found by its identity and stopped."""
    with LocalStack(settings_for(home), servers=["valkey"], workers=False) as stack:
        kept = (home / "stack.json").read_text()
        argv = stack.state.children["valkey-durable"]
        config = home / "valkey" / "durable" / "valkey.conf"
        assert argv.port
    # Started by the test, so that no supervisor's death ends it; the mark is missing, the state file names it.
    with subprocess.Popen([valkey.program(), config], stdout=subprocess.DEVNULL) as orphan:
        identity = sure(ProcessIdentity.of(orphan.pid))
        found = json.loads(kept)
        found["children"]["valkey-durable"] |= {"pid": identity.pid, "start_time": identity.start_time}
        (home / "stack.json").write_text(json.dumps(found))

        with LocalStack(settings_for(home), servers=["valkey"], workers=False):
            assert not identity.alive
        orphan.wait()


def test_a_stranger_with_a_used_process_id_is_left_alone(home: Path) -> None:
    """The state file of a crash may name an id that somebody else has now."""
    with subprocess.Popen(["/bin/sleep", "600"]) as stranger:
        with LocalStack(settings_for(home), servers=["valkey"], workers=False):
            kept = sure(read_json(home / "stack.json"))
        kept["children"]["valkey-cache"] |= {"pid": stranger.pid, "start_time": 1}
        (home / "stack.json").write_text(json.dumps(kept))

        with LocalStack(settings_for(home), servers=["valkey"], workers=False):
            assert stranger.poll() is None
        stranger.kill()


def test_a_damaged_state_file_does_not_keep_a_stack_down(home: Path) -> None:
    """It says nothing that cannot be found out otherwise."""
    home.joinpath("stack.json").write_text("{ half")

    with LocalStack(settings_for(home), servers=["valkey"], workers=False) as stack:
        assert identity_of(stack.state, "valkey-cache").alive
