"""``imem rebuild graph`` on a local stack: the new graph takes over, also from a run that was killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from imem.journal.deadline import Deadline
from imem.journal.settings import Settings
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.projection.applier import Applier
from imem.kg.projection.hash import graph_hash
from imem.local import state
from imem.local.folders import Folders
from imem.local.migrate import migrate
from imem.local.servers import takeover
from imem.local.supervisor import LocalStack
from imem.services.stores import Stores
from tests import forking
from tests.conftest import KEPT, settings_for, temporary_home
from tests.imem.local.programs import environment
from tests.kg.draining import drain
from tests.kg.projection.test_rebuild import history
from tests.kg.projection.world import NEVER, NoWakeups, importer

TOP = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def local() -> Iterator[Settings]:
    """A stack of our own, whose supervisor the command can ask to start the new graph."""
    with temporary_home() as home, LocalStack(settings_for(home), workers=False, migrate=migrate) as running:
        yield running.settings


@pytest_asyncio.fixture
async def stores(local: Settings) -> AsyncIterator[Stores]:
    async with Stores.open(local, pipelines=True) as opened:
        yield opened


def variables_of(local: Settings) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return environment(IMEM_HOME=str(local.home), IMEM_NEO4J_VERSION=local.neo4j_version, **kept)


def begun(local: Settings, *arguments: str) -> subprocess.Popen[str]:
    """Start the command on the stack's home, as a person does."""
    return subprocess.Popen(
        [sys.executable, "-m", "imem", *arguments],
        cwd=TOP,
        env=variables_of(local),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.communicate, timeout=240)


async def finished(local: Settings, *arguments: str) -> tuple[int, str, str]:
    """Run the command to its end."""
    done = await asyncio.to_thread(forking.run, "imem", *arguments, env=variables_of(local))
    return done.returncode, done.stdout, done.stderr


async def loaded(stores: Stores, analyses: int) -> None:
    entries = [entry_of(parse_line(orjson.dumps(line))) for line in history(analyses)]
    await stores.gateway.append(entries, actor=importer(), deadline=NEVER)


@pytest.mark.spec("GR-6")
@pytest.mark.e2e
@pytest.mark.parametrize("killed_first", [False, pytest.param(True, marks=pytest.mark.chaos)])
async def test_the_new_graph_takes_over(local: Settings, stores: Stores, *, killed_first: bool) -> None:
    """It is compared, the folders are exchanged, and the applier goes on; in ``make chaos`` after a killed run too."""
    await loaded(stores, 60)
    applier = Applier(stores.database, stores.graph, NoWakeups())
    await drain(applier)
    before = await graph_hash(stores.graph)
    running = asyncio.create_task(applier.run())
    folders = Folders(local.home)

    if killed_first:
        first = begun(local, "rebuild", "graph")
        assert first.stderr is not None
        line = await asyncio.to_thread(first.stderr.readline)
        assert "of 300 events" in line
        await killed(first)
        assert (folders.home / takeover.NEW).is_dir()

    code, out, err = await finished(local, "rebuild", "graph", "--json")

    assert code == 0, err
    told = json.loads(out)
    assert (told["same"], told["taken_over"], told["after"]["digest"]) == (True, True, before.digest)
    assert sorted(path.name for path in folders.home.glob("neo4j*")) == ["neo4j"]
    assert await graph_hash(stores.graph) == before
    now = state.running(folders)
    assert now is not None
    assert now.children["neo4j"].restarts == 0, "what is planned is no trouble"
    await loaded(stores, 61)
    await _visible(stores)
    assert (await graph_hash(stores.graph)).parts["Analysis"].count == 61
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await applier.stop()


async def tampered_with(stores: Stores) -> None:
    """Fill the graph, and write something into it that the journal does not say."""
    await loaded(stores, 3)
    await drain(Applier(stores.database, stores.graph, NoWakeups()))

    async def tamper(transaction: Any) -> None:
        await (await transaction.run("CREATE (:Human {id: 'not-in-the-journal'})")).consume()

    await stores.graph.write("test", tamper, deadline=NEVER)


async def _visible(stores: Stores) -> None:
    positions = [
        row["position"]
        for row in await stores.database.named("events_waiting", {"upto": 2**62, "limit": 10_000}, deadline=NEVER)
    ]
    assert await stores.gateway.wait_visible(positions, Deadline.after_ms(60_000))


@pytest.mark.chaos
async def test_a_graph_that_differs_stays(local: Settings, stores: Stores) -> None:
    """The one in use is not replaced by one that says something else; the report says in what, exit code 1."""
    await tampered_with(stores)

    code, out, err = await finished(local, "rebuild", "graph")

    assert (code, err.count("Traceback")) == (1, 0)
    assert "Human (1 against 0)" in out
    assert "The graph in use stays." in out
    assert (await graph_hash(stores.graph)).parts["Human"].count == 1
    code, out, _ = await finished(local, "graph", "hash")
    assert code == 0
    assert out.startswith((await graph_hash(stores.graph)).digest)


# The exchange of folders


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    for name in (takeover.CURRENT, takeover.NEW):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which").write_text(name)
    return Folders(tmp_path)


def in_use(folders: Folders) -> str:
    return (folders.home / takeover.CURRENT / "which").read_text()


def test_without_a_mark_nothing_is_exchanged(folders: Folders) -> None:
    assert not takeover.carry_out(folders)
    assert in_use(folders) == takeover.CURRENT


def test_a_good_mark_exchanges_the_folders(folders: Folders) -> None:
    takeover.ask(folders)

    assert takeover.carry_out(folders)

    assert in_use(folders) == takeover.NEW
    assert not takeover.ask(folders)
    assert not takeover.carry_out(folders)


def test_a_mark_whose_writer_was_killed_goes_stale(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours later the new graph lacks what was written meanwhile: it must not come in."""
    takeover.ask(folders)
    later = time.time() + takeover.REQUEST_TTL_S
    monkeypatch.setattr(time, "time", lambda: later)

    assert not takeover.carry_out(folders)
    assert in_use(folders) == takeover.CURRENT


def test_a_crash_between_the_renames_is_finished(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    takeover.ask(folders)
    (folders.home / takeover.CURRENT).rename(folders.home / takeover.OLD)
    later = time.time() + 1e6
    monkeypatch.setattr(time, "time", lambda: later)

    assert takeover.carry_out(folders)
    assert in_use(folders) == takeover.NEW
