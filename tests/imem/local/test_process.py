"""Children are who we think, run as whom we say, and do not outlive the one who started them."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from imem.journal.errors import StackError
from imem.local.process import MARK, Command, ProcessIdentity, RunAs, clear, marked, start
from imem.local.servers.server import free_port
from tests.imem.local.programs import environment, me, sure, until

SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
SYSTEM_SLEEP = ("/bin/sleep", "600")

PARENT = """
import json, os, signal, subprocess, sys
from pathlib import Path
from imem.local.process import Command, RunAs
run_as = RunAs(*json.loads(sys.argv[1])) if sys.argv[1] != "null" else None
command = Command(("/bin/sleep", "600"), Path("/"), run_as=run_as, death_signal=signal.SIGKILL)
child = subprocess.Popen(command.wrapped(), env=command.environment(Path("/x")), process_group=0)
print(child.pid, flush=True)
sys.stdin.read()
"""


def users() -> list[RunAs | None]:
    """Ourselves, and for root the user that Postgres gets."""
    entry = pwd.getpwnam("nobody")
    return [None, RunAs(entry.pw_uid, entry.pw_gid)] if os.geteuid() == 0 else [None]


@pytest.mark.parametrize("run_as", users(), ids=str)
def test_a_child_dies_with_its_parent_even_under_another_user(run_as: RunAs | None) -> None:
    """The kernel's promise is asked for after the change of user, which would cancel it."""
    told = "null" if run_as is None else f"[{run_as.uid}, {run_as.gid}]"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, told],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        pid = int(sure(parent.stdout).readline())
        child = until(
            lambda: ProcessIdentity.of(pid) if _command(pid).startswith("/bin/sleep") else None, "the child is a sleep"
        )
        if run_as is not None:
            assert Path(f"/proc/{pid}").stat().st_uid == run_as.uid

        parent.send_signal(signal.SIGKILL)
        until(lambda: not child.alive, "the child is gone")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_launcher_whose_parent_is_gone_already_starts_nothing(tmp_path: Path) -> None:
    """Between fork and request the parent may die; the number it was given shows that."""
    command = Command(("/bin/touch", str(tmp_path / "started")), tmp_path)
    words = command.wrapped()
    words[words.index(str(os.getpid()))] = "1"

    assert subprocess.run(words, check=False).returncode == 127
    assert not (tmp_path / "started").exists()


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    """What cannot be started ends up as a line in the child's log."""
    done = subprocess.run(
        Command(("/nowhere/at-all",), tmp_path).wrapped(), capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (127, "/nowhere/at-all: No such file or directory\n")


def test_files_that_a_child_makes_are_private(tmp_path: Path) -> None:
    """Whatever the caller's umask is."""
    command = Command(("/bin/touch", str(tmp_path / "made")), tmp_path)

    subprocess.run(command.wrapped(), check=True)

    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o600


def test_a_used_process_id_is_not_taken_for_the_process() -> None:
    """Another start, or another boot, is somebody else."""
    ours = me()

    assert ours.alive
    assert not ProcessIdentity(ours.pid, ours.start_time + 1, ours.boot).alive
    assert not ProcessIdentity(ours.pid, ours.start_time, "another boot").alive


def test_a_zombie_does_not_count_as_alive() -> None:
    """It has ended; only its parent has not asked yet."""
    child = subprocess.Popen(["/bin/true"])
    until(lambda: ProcessIdentity.of(child.pid) is None, "it has ended")
    assert child.wait() == 0


def test_leftovers_are_found_by_their_mark_and_ended(tmp_path: Path) -> None:
    """Also those that ignore a polite request; strangers are left alone."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    with (
        subprocess.Popen([sys.executable, "-c", stubborn], env={MARK: str(tmp_path)}) as ours,
        subprocess.Popen(SYSTEM_SLEEP, env={MARK: str(tmp_path / "other")}) as other,
    ):
        found = until(lambda: list(marked(tmp_path)), "the mark shows")
        assert [one.pid for one in found] == [ours.pid]
        ours_identity, other_identity = sure(ProcessIdentity.of(ours.pid)), sure(ProcessIdentity.of(other.pid))

        clear(found, timeout_s=0.1)

        assert not ours_identity.alive
        assert other_identity.alive
        other.kill()


def test_a_leftover_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits for its disk survives SIGKILL for as long as that takes: a start must not wait for ever."""
    monkeypatch.setattr(ProcessIdentity, "alive", True)
    monkeypatch.setattr(os, "kill", lambda *_: None)

    with pytest.raises(StackError, match="does not end: process 4711"):
        clear([ProcessIdentity(4711, 1, "")], timeout_s=0.05, kill_timeout_s=0.05)


async def test_stopping_a_child_ends_what_it_had_started(tmp_path: Path) -> None:
    """A worker's own children must not go on without it."""
    script = "import subprocess, time; subprocess.Popen(['/bin/sleep', '600']); time.sleep(600)"
    command = Command((sys.executable, "-c", script), tmp_path, timeout_s=5.0)
    child = await start(command, tmp_path / "log", tmp_path)
    await asyncio.to_thread(until, lambda: len(list(marked(tmp_path))) == 2, "both run")

    await child.stop()

    # Both were told to end; the kernel may list the other one a moment longer.
    await asyncio.to_thread(until, lambda: not list(marked(tmp_path)), "none is left")
    assert child.process.returncode == -signal.SIGTERM


async def test_a_child_that_does_not_want_to_end_is_ended(tmp_path: Path) -> None:
    """A timeout ends the wait."""
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    command = Command((sys.executable, "-c", script), tmp_path, timeout_s=0.2)
    child = await start(command, tmp_path / "log", tmp_path)
    await asyncio.to_thread(until, (tmp_path / "log").read_text, "it ignores requests")

    await child.stop()

    assert child.process.returncode == -signal.SIGKILL


async def test_a_stranger_on_the_port_is_not_taken_for_the_child(tmp_path: Path) -> None:
    """The one who listens must be the process that was started."""
    port = free_port()
    listen = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"
    one = await start(Command((sys.executable, "-c", listen), tmp_path), tmp_path / "log", tmp_path)
    other = await start(Command(SYSTEM_SLEEP, tmp_path), tmp_path / "log", tmp_path)

    await asyncio.to_thread(until, lambda: one.listens(port), "it listens")
    assert not other.listens(port)
    await asyncio.gather(one.stop(), other.stop())


def test_no_secret_of_the_caller_reaches_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child gets a short list of variables and nothing else."""
    monkeypatch.setenv("IMEM_POSTGRES_URL", "postgresql://u:hunter2@h/d")
    monkeypatch.setenv("SOMETHING_ELSE", "hunter2")

    assert "hunter2" not in str(Command(SLEEP, tmp_path).environment(tmp_path))
