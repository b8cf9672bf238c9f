"""Files are private, whole after a crash, and explain themselves when they cannot be used."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from imem import Memory
from imem.journal.errors import StackError, StackStarting
from imem.journal.settings import Settings
from imem.local import state
from imem.local.folders import Folders, Secrets, open_log, read_json, write_private
from imem.local.process import MARK, ProcessIdentity
from imem.local.servers.postgres import SHARED_FOR_ROOT, Postgres
from imem.local.state import ChildState, StackState, with_local_endpoints
from imem.local.supervisor import lock
from tests.imem.local.programs import TIMEOUT_S, environment, me, shown, supervised

URLS = {
    "postgres_url": "postgresql://imem_app:pw1@127.0.0.1:1/imem",
    "postgres_pipeline_url": "postgresql://imem_pipelines:pw7@127.0.0.1:1/imem",
    "postgres_admin_url": "postgresql://imem:pw2@127.0.0.1:1/imem",
    "neo4j_url": "bolt://127.0.0.1:2",
    "neo4j_user": "neo4j",
    "neo4j_password": "pw3",
    "valkey_working_url": "redis://:pw4@127.0.0.1:3/0",
    "valkey_durable_url": "redis://:pw5@127.0.0.1:4/0",
    "valkey_cache_url": "redis://:pw6@127.0.0.1:5/0",
}


def mode(path: Path) -> int:
    """Return the permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_made_is_private(tmp_path: Path) -> None:
    """Whatever the umask; root's home lets Postgres' user through and nothing more."""
    before = os.umask(0)
    try:
        folders = Folders(tmp_path / "a" / "home")
        folders.prepare()
        Secrets.of(folders)
        os.close(open_log(folders.log("x")))
    finally:
        os.umask(before)

    assert mode(folders.home) == (0o711 if os.geteuid() == 0 else 0o700)
    assert mode(folders.logs) == 0o700
    assert mode(folders.secrets) == mode(folders.log("x")) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's Postgres is another user")
def test_roots_own_folder_is_not_opened(tmp_path: Path) -> None:
    """A home that was there keeps its mode; data that cannot be reached in it are said, and new ones go elsewhere."""
    home = tmp_path / "root"
    home.mkdir(mode=0o700)
    folders = Folders(home)
    folders.prepare()
    server = Postgres(folders, Secrets.of(folders))

    assert mode(home) == 0o700
    assert server.folder == SHARED_FOR_ROOT / server.secrets.installation
    (home / "postgres" / "data").mkdir(parents=True)
    with pytest.raises(StackError, match=r"cannot get through to its data .*chmod o\+x"):
        server.prepare(lambda _: None)
    assert mode(home) == 0o700


def test_a_lock_on_a_deleted_file_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge deletes the file while another start has it open: that start takes the lock of the new file."""
    folders = Folders(tmp_path)
    real, calls = fcntl.flock, 0

    def flock(handle: int, how: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            folders.lock.unlink()
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    held = lock(folders)
    assert calls == 2
    with pytest.raises(StackError, match="already runs"):
        lock(folders)
    os.close(held)


def test_passwords_are_made_once_and_hidden(tmp_path: Path) -> None:
    """The same for every start of one installation, other ones for another, none in repr."""
    first, again, other = (Secrets.of(Folders(folder)) for folder in (tmp_path, tmp_path, _made(tmp_path / "other")))

    assert again.passwords == first.passwords
    assert not set(first.passwords.values()) & set(other.passwords.values())
    assert len(set(first.passwords.values())) == len(Secrets.NAMES)
    assert not [password for password in first.passwords.values() if password in repr(first)]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_damaged_file_of_passwords_is_not_replaced(tmp_path: Path) -> None:
    """New passwords would not open the old data."""
    (tmp_path / "secrets.json").write_text("{")

    with pytest.raises(StackError, match=r"secrets.json is damaged"):
        Secrets.of(Folders(tmp_path))
    (tmp_path / "secrets.json").write_text('{"installation": "x"}')
    with pytest.raises(StackError, match=r"lacks postgres_owner"):
        Secrets.of(Folders(tmp_path))


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """What a crash left beside it is no obstacle."""
    (tmp_path / "f.new").write_text("rest of a crash")

    write_private(tmp_path / "f", "1")
    write_private(tmp_path / "f", "2", lasting=False)

    assert (tmp_path / "f").read_text() == "2"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_an_overlong_log_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts do not pile up output for ever."""
    monkeypatch.setattr("imem.local.folders.LOG_LIMIT_BYTES", 10)
    (tmp_path / "log").write_text("eleven bytes")

    os.close(open_log(tmp_path / "log"))

    assert (tmp_path / "log").read_text() == ""
    assert (tmp_path / "log.1").read_text() == "eleven bytes"


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    """The sentence says what and how to mend it."""
    (tmp_path / "home").write_text("")

    with pytest.raises(StackError, match=r"home is in the way. Move it"):
        Folders(tmp_path / "home").prepare()


def test_the_state_survives_its_file(tmp_path: Path) -> None:
    """And the file is private, because it holds passwords, which repr does not show."""
    folders = Folders(tmp_path)
    child = ChildState("ready", 12, 34, 56, "/l", 1, "")
    written = StackState(ProcessIdentity(os.getpid(), 1, "b"), ready=True, endpoints=URLS, children={"neo4j": child})

    state.write(folders, written)

    assert state.read(folders) == written
    assert mode(folders.state) == 0o600
    assert "pw" not in repr(written)


def test_addresses_come_from_a_running_stack_alone(tmp_path: Path) -> None:
    """A file whose supervisor has ended is what a crash left."""
    folders = Folders(tmp_path)
    settings = Settings.read({}, home=tmp_path)
    ours = me()
    with pytest.raises(StackError, match=r"No stack runs on .*Start one with `imem up`"):
        with_local_endpoints(settings)
    state.write(folders, StackState(ProcessIdentity(ours.pid, ours.start_time + 1, ours.boot), endpoints=URLS))
    with pytest.raises(StackError, match="No stack runs"):
        with_local_endpoints(settings)

    state.write(folders, StackState(ours, endpoints=URLS))
    found = with_local_endpoints(settings)

    assert shown(found.neo4j_password) == "pw3"
    assert shown(found.postgres_admin_url) == URLS["postgres_admin_url"]
    assert shown(found.postgres_pipeline_url) == URLS["postgres_pipeline_url"]


async def test_a_stack_that_is_starting_is_waited_for_and_no_wrong_setting(tmp_path: Path) -> None:
    """While it starts its servers have no addresses yet: whoever opens the memory may simply try again."""
    folders = Folders(tmp_path)
    settings = Settings.read({}, home=tmp_path)
    early = {name: url for name, url in URLS.items() if not name.startswith("neo4j")}
    for endpoints in ({}, early):
        state.write(folders, StackState(me(), endpoints=endpoints))
        with pytest.raises(StackStarting, match="is starting") as starting:
            async with Memory.open(settings):
                pass
        assert starting.value.retryable

    # All of them are known before all of them answer: that is enough to go on.
    state.write(folders, StackState(me(), endpoints=URLS))
    assert with_local_endpoints(settings).neo4j_url == URLS["neo4j_url"]


async def test_through_the_gap_between_two_stacks_one_may_simply_try_again(home: Path) -> None:
    """
    One supervisor is killed, and the next ends what is left before it begins: that is a start, too.

    Meanwhile the file names the dead one. Only where nobody holds the lock does no stack run.
    """
    folders = Folders(home)
    elsewhere = {"IMEM_POSTGRES_URL": "postgresql://u:p@127.0.0.1:1/d", "IMEM_NEO4J_URL": "bolt://127.0.0.1:1"}
    settings = Settings.read(elsewhere, home=home)
    left_over = environment(**{MARK: str(home)})
    lasting = await asyncio.create_subprocess_exec("/bin/sleep", "600", env=left_over)
    with supervised(home, ["valkey"]) as first:
        async with Memory.open(settings):
            pass
        first.kill()
        first.wait()
        assert await opened(settings, folders) == "no stack"

        held = lock(folders)  # As a supervisor that has not written the file yet, for as long as one may look.
        try:
            assert await opened(settings, folders) == "no supervisor that lives is named"
        finally:
            os.close(held)
        with supervised(home, ["valkey"], wait=False):
            async with asyncio.timeout(TIMEOUT_S):
                while await opened(settings, folders) != "open":
                    pass
            assert await lasting.wait() == -signal.SIGKILL
        assert await opened(settings, folders) == "no stack"


async def opened(settings: Settings, folders: Folders) -> str:
    """Open the memory, and return what came of it; fail where the error may not be repeated and somebody starts."""
    held = is_held(folders)
    try:
        async with Memory.open(settings):
            return "open"
    except StackStarting:
        await asyncio.sleep(0.002)  # The other process is to get on.
        return "starting" if state.running(folders) else "no supervisor that lives is named"
    except StackError:
        assert not held, "somebody held the lock"
        return "no stack"


def is_held(folders: Folders) -> bool:
    """Whether somebody holds the lock of the home, as the system says."""
    with folders.lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_who_asks_for_the_lock_keeps_no_supervisor_out(tmp_path: Path) -> None:
    """To ask is to have it for a moment: a start waits for that, and for nothing longer."""
    folders = Folders(tmp_path)
    assert not state.supervised(folders)
    folders.lock.touch()
    assert not state.supervised(folders)
    with folders.lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert not state.supervised(folders), "one who asks is no supervisor"
        threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        held = lock(folders)
    try:
        assert state.supervised(folders)
        with pytest.raises(StackError, match="already runs"):
            lock(folders)
    finally:
        os.close(held)


def test_a_server_named_by_url_is_not_mixed_with_the_stacks(tmp_path: Path) -> None:
    """Its own credentials count, even where it has none: the stack's password is for another server."""
    state.write(Folders(tmp_path), StackState(me(), endpoints=URLS))
    settings = Settings.read(
        {"IMEM_NEO4J_URL": "bolt://elsewhere:7687", "IMEM_POSTGRES_URL": "postgresql://elsewhere/x"}, home=tmp_path
    )

    found = with_local_endpoints(settings)

    assert (found.neo4j_url, found.neo4j_password) == ("bolt://elsewhere:7687", None)
    assert (shown(found.postgres_url), found.postgres_admin_url) == ("postgresql://elsewhere/x", None)
    assert shown(found.valkey_cache_url) == URLS["valkey_cache_url"]


def test_nothing_is_read_when_every_server_is_named(tmp_path: Path) -> None:
    """A machine without a stack needs no state file."""
    env = {f"IMEM_{name.upper()}": url for name, url in URLS.items()}

    assert with_local_endpoints(Settings.read(env, home=tmp_path / "none")).neo4j_url == URLS["neo4j_url"]


def test_a_state_file_of_another_version_is_refused(tmp_path: Path) -> None:
    """Guessing its meaning could stop the wrong process."""
    (tmp_path / "stack.json").write_text(json.dumps({"version": 2}))

    with pytest.raises(StackError, match="another version"):
        state.read(Folders(tmp_path))
    assert read_json(tmp_path / "nothing") is None
