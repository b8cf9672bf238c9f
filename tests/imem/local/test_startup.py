"""A start is waited for as long as the process gets on, and not longer; why it failed is said, and shown by its log."""

from __future__ import annotations

import asyncio
import io
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from imem.cli import app
from imem.journal.errors import StackError
from imem.local import startup, state, status_view
from imem.local.doctor import checks
from imem.local.folders import Folders, Secrets
from imem.local.process import Child, Command, ProcessIdentity, listens, start
from imem.local.servers.neo4j import Neo4j
from imem.local.servers.server import free_port
from imem.local.servers.valkey import Valkey
from imem.local.startup import StartProgress
from imem.local.supervisor import LocalStack
from imem.local.workers import Worker
from imem.metrics import VARIABLE, keep_serving, serve
from tests.conftest import Stack, settings_for
from tests.disks import may_mount, small_disk
from tests.imem.local.programs import nothing_left, until
from tests.waiting import until as soon

TIMEOUT_S = 60.0
WORK_S = 2.0


class Now:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


async def running(script: str, folder: Path) -> Child:
    """Return a child that runs *script*."""
    return await start(Command((sys.executable, "-c", script), folder), folder / "child.log", folder)


async def test_a_start_that_gets_on_is_waited_for_and_one_that_does_not_ends(tmp_path: Path) -> None:
    """Processor time, a log that grows, a port: each renews the timeout. Without any the start has stalled."""
    now = Now()
    child = await running("import sys; sys.stdin.read(); __import__('time').sleep(600)", tmp_path)
    progress = StartProgress(child, tmp_path / "child.log", TIMEOUT_S, now)
    try:
        for grows in range(5):
            now.s += TIMEOUT_S - 1
            (tmp_path / "child.log").write_text("x" * (grows + 1))
            assert not progress.stalled(listens=False)
        now.s += TIMEOUT_S - 1
        assert not progress.stalled(listens=True), "it has begun to listen"
        now.s += TIMEOUT_S - 1
        assert not progress.stalled(listens=True)
        now.s += 2
        assert progress.stalled(listens=True), "nothing for longer than the timeout"
    finally:
        await child.stop()


async def test_processor_time_is_progress_and_an_endless_loop_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    """A process that computes gets on; after half an hour even that has failed."""
    now = Now()
    child = await running("while True: pass", tmp_path)
    progress = StartProgress(child, tmp_path / "child.log", 2.0, now)
    try:
        for _ in range(int(startup.LONGEST_START_S / 300.0)):
            await _computed(child, 0.1)
            now.s += 300.0
            assert not progress.stalled(listens=False)
        await _computed(child, 0.1)
        now.s += 300.0
        assert progress.stalled(listens=False)
    finally:
        await child.stop()


async def test_what_an_ended_child_has_computed_is_not_taken_back(tmp_path: Path) -> None:
    """A start that forks for its work, as an upgrade of data does, gets on with each of its children."""
    now = Now()
    work = f"import time\nwhile time.process_time() < {WORK_S}: pass\nopen('done', 'w').close(); time.sleep(600)"
    script = (
        "import os, subprocess, sys, time\n"
        f"first = subprocess.Popen([sys.executable, '-c', {work!r}])\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "first.kill(); first.wait()\nopen('ended', 'w').close()\n"
        "while not os.path.exists('on'): time.sleep(0.01)\n"
        "begun = time.process_time()\nwhile time.process_time() < begun + 0.3: pass\n"
        "open('more', 'w').close(); time.sleep(600)"
    )
    child = await running(script, tmp_path)
    # Of this timeout, what the first child has used is far more than its share, and so is what comes then.
    progress = StartProgress(child, tmp_path / "child.log", 1.0, now)
    try:
        await _there(tmp_path / "done")
        now.s += 0.5
        assert not progress.stalled(listens=False)
        (tmp_path / "go").touch()
        await _there(tmp_path / "ended")
        now.s += 0.5
        progress.stalled(listens=False)
        (tmp_path / "on").touch()
        await _there(tmp_path / "more")
        now.s += 100.0
        assert not progress.stalled(listens=False), "it has computed since, less than its first child had"
    finally:
        await child.stop()


async def _there(file: Path) -> None:
    await soon(lambda: asyncio.to_thread(file.exists), within_s=300.0)


async def _computed(child: Child, seconds: float) -> None:
    """Wait until *child* has used the processor for so long: on a busy machine that takes a while."""

    def used_s() -> float:
        return sum(startup.cpu_s(child.identity.pid).values())

    enough = used_s() + seconds
    while used_s() < enough:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.02)


def test_a_server_that_hangs_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It neither computes nor writes: the start ends, says so, and leaves nothing."""
    hanging = Command((sys.executable, "-c", "__import__('time').sleep(600)"), home)
    monkeypatch.setattr(Valkey, "command", lambda _: hanging)
    monkeypatch.setattr(Valkey, "timeout_s", 3.0)
    with pytest.raises(StackError, match=r"did not answer within \d+ s and made no progress"):
        LocalStack(settings_for(home), servers={"valkey"}, workers=False).start()
    assert nothing_left(home)


def test_a_worker_that_computes_is_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far beyond the timeout, as on a machine with too many processes, and then it is ready."""
    monkeypatch.setattr("imem.local.supervisor.WORKERS_TIMEOUT_S", 1.0)
    script = (
        "import time\nfrom imem.local.readiness import notify_ready\n"
        "while time.process_time() < 4.0: pass\nnotify_ready(); time.sleep(600)"
    )
    worker = Worker("slow", (sys.executable, "-c", script), notifies_ready=True)
    with LocalStack(settings_for(home), servers=set(), workers=[worker]) as local:
        assert (local.state.ready, local.state.unready) == (True, ())


# What went wrong is said


@pytest.mark.usefixtures("unspared")
def test_a_neo4j_without_room_says_so(home: Path) -> None:
    """Neo4j's own words name no disk; the start does, whether the disk is full or too small for its logs."""
    server = Neo4j(Folders(home), Secrets.of(_prepared(home)), settings_for(home))
    words = "ERROR Failed to start\n\tat x.LogFileChannelNativeAccessor.preallocateSpace(L.java:1)\nINFO  Stopped."
    assert "is full" in str(server.explain(words))
    assert "ERROR Failed to start" in str(server.explain("ERROR Failed to start\nINFO  Stopped."))
    if not may_mount():
        return
    with small_disk(home / "disk", 20) as disk:
        with pytest.raises(StackError, match=r"The disk that holds .* is full. Free some space there"):
            LocalStack(settings_for(disk / "stack"), servers={"neo4j"}, workers=False).start()
        assert nothing_left(disk / "stack")


def _prepared(home: Path) -> Folders:
    folders = Folders(home)
    folders.prepare()
    return folders


def test_the_log_of_neo4j_is_neo4js(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """`imem logs neo4j` shows what the server says of itself."""
    monkeypatch.setenv("IMEM_HOME", str(stack.settings.home))
    shown = CliRunner().invoke(app, ["logs", "neo4j", "--lines", "1000"])

    assert "Bolt enabled on" in shown.stdout
    assert "INFO  Started." in shown.stdout


# The table


def test_the_status_reads_well_at_eighty_columns() -> None:
    """No line is longer, no number is cut, and a note is there to its end."""
    note = "Postgres cannot be started: the disk that holds /home/somebody/.local/share/imem is full, free some space"
    now = state.StackState(ProcessIdentity(1, 2, "boot"), ready=True)
    for name in ("postgres", "neo4j", "valkey-working", "valkey-durable", "valkey-cache", "applier", "celery", "beat"):
        now = now.with_child(name, state="restarting", port=65535, pid=4194304, restarts=12)
    now = now.with_child("postgres", note=note).with_child("neo4j", state="elsewhere", note="bolt://graph.example:7687")
    console = Console(width=80, record=True, file=io.StringIO())

    console.print(status_view.table(now))

    text = console.export_text()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text
    assert lines[0].split() == ["server", "state", "port", "pid", "memory", "restarts"]
    (celery,) = (line for line in lines if line.startswith("celery "))
    assert celery.split() == ["celery", "restarting", "65535", "4194304", "12"]
    assert note.replace(" ", "") in text.replace("\n", "").replace(" ", "")
    assert "neo4j: bolt://graph.example:7687" in lines


# The port of the metrics


async def test_a_port_that_is_taken_is_used_once_it_is_free(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker goes on meanwhile, and then shows its metrics."""
    monkeypatch.delenv(VARIABLE, raising=False)
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert serve(home, port) is None
        serving = asyncio.create_task(keep_serving(home, port, every_s=0.05))
        await asyncio.sleep(0)
    try:
        await soon(lambda: asyncio.to_thread(_answers, port), within_s=120.0)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert not _answers(port)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_the_doctor_says_who_has_the_port_of_the_metrics(home: Path) -> None:
    """A stranger on it, nobody, the applier itself."""
    port = free_port()
    settings = settings_for(home, prometheus_port=port)
    with _applier_on(settings.home, port) as now:
        found = list(checks._metrics(settings, now))
        assert [(one.level, one.text) for one in found] == [
            (checks.CheckLevel.FINE, f"shown on http://127.0.0.1:{port}/metrics")
        ]
    free = list(checks._metrics(settings, now))
    assert [one.level for one in free] == [checks.CheckLevel.WEAK]
    assert free[0].text.startswith("Nothing listens")
    with socket.create_server(("127.0.0.1", port)):
        nobody = now.with_child("applier", pid=1)
        (stranger,) = checks._metrics(settings, nobody)
    assert (stranger.level, stranger.about) == (checks.CheckLevel.WEAK, "metrics")
    assert stranger.text.startswith(f"Another program listens on port {port}")
    assert list(checks._metrics(settings_for(home), now)) == []


@contextmanager
def _applier_on(home: Path, port: int) -> Iterator[state.StackState]:
    """A process that listens on *port*, as the applier of a running stack."""
    script = f"import socket; s = socket.create_server(('127.0.0.1', {port})); __import__('time').sleep(600)"
    worker = Worker("applier", (sys.executable, "-c", script))
    with LocalStack(settings_for(home), servers=set(), workers=[worker]) as local:
        pid = local.state.children["applier"].pid
        assert pid is not None
        until(lambda: listens(pid, port), "it listens")
        yield local.state
