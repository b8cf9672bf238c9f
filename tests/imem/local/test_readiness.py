"""A start is over when the workers do their work, and says which of them do not."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.commands import stack as commands
from imem.journal.errors import StackError
from imem.local import process, state, supervisor
from imem.local.doctor import checks
from imem.local.folders import Folders
from imem.local.state import StackState
from imem.local.supervisor import LocalStack
from imem.local.workers import Worker
from tests.conftest import settings_for
from tests.imem.local.programs import me, until


def telling(home: Path, script: str) -> Worker:
    """Return a worker that runs *script*, in which ``home`` is the home and ``notify_ready`` is known."""
    head = "import os, sys, time; from pathlib import Path; from imem.local.readiness import notify_ready\n"
    head += f"home = Path({str(home)!r})\n"
    return Worker("late", (sys.executable, "-c", head + script), notifies_ready=True)


@contextmanager
def starting(home: Path, *workers: Worker) -> Iterator[LocalStack]:
    """Begin a start without waiting for its end."""
    local = LocalStack(settings_for(home), servers=set(), workers=workers)
    local._thread.start()
    try:
        yield local
    finally:
        local.stop()


def child(local: LocalStack) -> state.ChildState:
    """Return what is said of the worker."""
    return local.state.children.get("late", state.ChildState())


def test_a_worker_that_tells_late_holds_back_the_start(home: Path) -> None:
    """That it runs is not enough."""
    script = "(home / 'up').touch()\nwhile not (home / 'go').exists(): time.sleep(0.01)\nnotify_ready(); time.sleep(60)"
    with starting(home, telling(home, script)) as local:
        until((home / "up").exists, "it runs")
        assert (child(local).state, local.state.ready, local.state.unready) == ("starting", False, ("late",))
        (home / "go").touch()
        until(lambda: local.state.ready, "the start is over")
        assert (child(local).state, local.state.unready) == ("ready", ())


def test_a_worker_that_never_tells_is_not_waited_for_for_ever(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start is over after a timeout; what is unready is said, and the doctor calls it weak, not broken."""
    monkeypatch.setattr(supervisor, "WORKERS_TIMEOUT_S", 0.5)
    with LocalStack(settings_for(home), servers=set(), workers=[telling(home, "time.sleep(600)")]) as local:
        assert (local.state.ready, local.state.unready) == (True, ("late",))
        found = [one for one in checks._children(local.state) if one.about == "late"]
        assert [one.level for one in found] == [checks.CheckLevel.WEAK]


def test_a_worker_that_dies_after_telling_is_started_again(home: Path) -> None:
    """And is ready once it has told again, not before."""
    script = (
        "first = not (home / 'ran').exists(); (home / 'ran').touch(); notify_ready()\n"
        "while first and not (home / 'die').exists(): time.sleep(0.01)\n"
        "first or time.sleep(600)"
    )
    with LocalStack(settings_for(home), servers=set(), workers=[telling(home, script)]) as local:
        assert child(local).restarts == 0
        (home / "die").touch()
        until(lambda: child(local).restarts == 1 and child(local).state == "ready", "it does its work again")


@pytest.mark.parametrize("error", [OSError(errno.EAGAIN, "Try again"), StackError("Full."), RuntimeError("no thread")])
def test_a_fork_that_fails_stops_nothing(home: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Neither a worker's nor a server's: the others go on, and it is tried again."""
    script = "notify_ready()\nwhile not (home / 'die').exists(): time.sleep(0.01)\n(home / 'die').unlink()"
    failures = 0
    real = process.start

    async def start(*words: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise error
        return await real(*words)

    monkeypatch.setattr(supervisor, "start", start)
    with LocalStack(settings_for(home), servers={"valkey"}, workers=[telling(home, script)]) as local:
        failures = 2
        (home / "die").touch()
        until(lambda: child(local).restarts == 1 and child(local).state == "ready", "the worker is back")
        assert failures == 0
        failures = 2
        os.kill(local.state.children["valkey-cache"].pid or 0, 9)
        until(lambda: failures == 0 and not local.state.unready, "the server is back")
        assert local.state.children["valkey-cache"].restarts == 1


def test_a_first_fork_that_fails_is_one_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left running."""

    async def start(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(supervisor, "start", start)
    with pytest.raises(StackError, match="cannot be started: Too many open files"):
        LocalStack(settings_for(home), servers={"valkey"}, workers=False).start()


def test_a_full_disk_at_the_end_of_a_start_stops_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state file is for others; the stack itself knows."""
    real = state.write

    def write(folders: Folders, now: StackState) -> None:
        if now.ready:
            raise StackError("The disk is full.")
        real(folders, now)

    monkeypatch.setattr(state, "write", write)
    with LocalStack(
        settings_for(home), servers=set(), workers=[telling(home, "notify_ready(); time.sleep(600)")]
    ) as local:
        assert local.state.ready
        time.sleep(0.2)
        assert local._thread.is_alive()


# What the commands say


def late() -> StackState:
    """Return a stack whose start is over while a worker has not told."""
    now = StackState(me(), ready=True).with_child("postgres", state="ready").with_child("applier", state="starting")
    return now.with_child("neo4j", state="elsewhere")


def test_up_detached_with_a_worker_that_is_not_ready(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3, and its name; with all ready 0."""
    monkeypatch.setenv("IMEM_HOME", str(home))
    monkeypatch.setattr(commands, "start_detached", lambda *_: late())
    monkeypatch.setattr(state, "running", lambda _: late())
    done = CliRunner().invoke(app, ["up", "--detach", "--json"])

    assert done.exit_code == 3
    assert "Not ready yet: applier." in done.stderr
    assert json.loads(done.stdout)["ready"] is False
    monkeypatch.setattr(commands, "start_detached", lambda *_: late().with_child("applier", state="ready"))
    assert CliRunner().invoke(app, ["up", "--detach", "--json"]).exit_code == 0


def test_up_says_ready_only_when_all_is(capsys: pytest.CaptureFixture[str]) -> None:
    """In the foreground as well."""
    from rich.console import Console

    for now, said in ((late(), "Not ready yet: applier."), (late().with_child("applier", state="ready"), "Ready.")):
        commands._announcing(lambda _: None, Console(stderr=True), as_json=False)(now)
        assert capsys.readouterr().err.startswith(said)


def test_the_state_that_ends_a_start_is_what_the_daemon_told() -> None:
    """Its last one before it says that the start is over."""
    reading, writing = os.pipe()
    os.write(writing, json.dumps({"state": late().to_json()}).encode() + b'\n{"ready": true}\n')
    os.close(writing)

    assert commands._follow(reading, lambda _: None).unready == ("applier",)


# The files


def test_what_an_earlier_process_left_says_nothing(home: Path) -> None:
    """Neither of an earlier start nor of a worker that died: the file is gone before the process begins."""
    script = "(home / 'up').touch()\nwhile not (home / 'go').exists(): time.sleep(0.01)\nnotify_ready(); time.sleep(60)"
    folders = Folders(home)
    folders.prepare()
    left = folders.run / "late.ready"
    left.touch()
    with starting(home, telling(home, script)) as local:
        until((home / "up").exists, "it runs")
        time.sleep(3 * supervisor.READY_POLL_S)
        assert (child(local).state, left.exists()) == ("starting", False)
        (home / "go").touch()
        until(lambda: child(local).state == "ready", "it is ready")
        assert left.stat().st_mode & 0o777 == 0o600
        (home / "go").unlink()
        os.kill(child(local).pid or 0, 9)
        until(lambda: child(local).restarts == 1 and child(local).state == "starting", "it runs again")
        time.sleep(3 * supervisor.READY_POLL_S)
        assert child(local).state == "starting"


# The applier's plans


async def test_planning_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the error: the worker is ready, and plans again when the graph has grown."""
    from imem.workers import applier

    planned: list[int] = []

    async def fail(_: Any) -> int:
        planned.append(1)
        raise ValueError("unexpected")

    async def worth(_: Any) -> bool:
        return True

    for name in ("QUIET_S", "PLAN_EVERY_S"):
        monkeypatch.setattr(applier, name, 0.0)
    monkeypatch.setattr(applier, "warm", fail)
    monkeypatch.setattr(applier, "has_analyses", worth)
    warmer, told = applier.PlanWarmer(None), asyncio.Event()  # type: ignore[arg-type]
    running = asyncio.create_task(warmer.run(told.set))
    await asyncio.wait_for(told.wait(), 5)
    warmer.applied()
    # At the start, after it has grown, and once more when that plan may be replaced.
    while len(planned) < 3:
        assert not running.done()
        await asyncio.sleep(0.01)
    running.cancel()
