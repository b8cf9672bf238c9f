"""What a machine can do to a start: a disk that fills up, a user without rights, other users' folders."""

from __future__ import annotations

import errno
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import redis

from imem.journal.errors import StackError
from imem.local.folders import file_error, trim_log
from imem.local.process import RunAs
from imem.local.servers import jars
from imem.local.servers.postgres import passable, user
from imem.local.supervisor import LocalStack
from tests.conftest import settings_for
from tests.disks import fill, may_mount, small_disk
from tests.imem.local.programs import TIMEOUT_S, TOP, environment, nothing_left

STRANGER = RunAs(54_321, 54_321)
"""A user that no file knows."""

ORDINARY = "daemon"
"""A user that every system knows and that may do nothing."""


@pytest.mark.parametrize("family", ["postgres", "valkey"])
def test_a_full_disk_is_said_and_nothing_is_left(home: Path, family: str) -> None:
    """The servers' own words are understood; a start on the same folder with room works."""
    if not may_mount():  # The words are the same.
        assert "is full" in str(file_error(OSError(errno.ENOSPC, "No space left on device"), home))
        return
    with small_disk(home / "disk", 8) as disk:
        fill(disk)
        with pytest.raises(StackError, match=r"The disk that holds .* is full. Free some space there"):
            LocalStack(settings_for(disk / "stack"), servers={family}, workers=False).start()
        assert nothing_left(disk / "stack")


def test_a_damaged_file_of_writes_is_named_and_moving_it_aside_mends_the_start(home: Path) -> None:
    """One that is cut short loses its last write alone; bytes that are wrong in its midst are no reason to guess."""
    settings = settings_for(home)

    def started() -> LocalStack:
        return LocalStack(settings, servers={"valkey"}, workers=False)

    with started() as stack:
        assert stack.settings.valkey_working_url is not None
        with redis.Redis.from_url(stack.settings.valkey_working_url.get_secret_value()) as client:
            for number in range(100):
                client.set(f"key-{number}", "x" * 50)
    folder = home / "valkey" / "working" / "appendonlydir"
    (written,) = folder.glob("*.incr.aof")
    content = written.read_bytes()

    written.write_bytes(content[:-10])
    with started() as stack:
        assert stack.settings.valkey_working_url is not None
        with redis.Redis.from_url(stack.settings.valkey_working_url.get_secret_value()) as client:
            assert client.dbsize() == 99

    middle = len(content) // 2
    written.write_bytes(content[:middle] + b"\xff" * 40 + content[middle + 40 :])
    with pytest.raises(StackError, match="file of writes of valkey-working is damaged") as refused:
        started().start()
    assert str(folder) in str(refused.value)
    assert "Move that folder aside" in refused.value.mend

    folder.rename(home / "aside")
    with started() as stack:
        assert stack.settings.valkey_working_url is not None
        with redis.Redis.from_url(stack.settings.valkey_working_url.get_secret_value()) as client:
            assert client.dbsize() == 0


def test_a_folder_that_may_not_be_written_is_named(home: Path) -> None:
    """The mend names the two settings that move things."""
    refused = file_error(PermissionError(errno.EACCES, "Permission denied", str(home / "x")), home)

    assert str(refused).startswith(f"{home / 'x'} cannot be written (Permission denied).")
    assert "IMEM_HOME" in refused.mend
    assert "IMEM_CACHE_DIR" in refused.mend


def test_a_home_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files would be unreadable for their owner or for us."""
    monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 1)

    with pytest.raises(StackError, match="belongs to another user"):
        LocalStack(settings_for(home), servers=set(), workers=False).start()


def test_postgres_as_root_needs_the_user_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none, the ways out are said."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def unknown(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", unknown)
    with pytest.raises(StackError, match=r"as an ordinary user .* or set IMEM_POSTGRES_URL"):
        user()


def test_a_log_is_kept_within_bounds_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer goes on in the same file."""
    monkeypatch.setattr("imem.local.folders.LOG_LIMIT_BYTES", 100)
    log = tmp_path / "x.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 101)
        trim_log(log)
        writer.write(b"b")

    assert log.read_bytes() == b"b"
    assert (tmp_path / "x.log.1").read_bytes() == b"a" * 101


def within_reach(path: Path, folder: Path, *names: str) -> Path:
    """Return *path*, or a copy of it below *folder* where a stranger could not get at it."""
    if passable(path, STRANGER) or os.geteuid() != 0:
        return path
    copy = folder / "copies" / path.name
    for name in names or (".",):
        shutil.copytree(path / name, copy / name, symlinks=True, dirs_exist_ok=True, ignore=_not_needed)
    return copy


def _not_needed(_folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name in {"site-packages", "test", "__pycache__", ".git", ".venv"}}


def python_for_strangers(folder: Path) -> Path:
    """Return an interpreter of our version that any user can run."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    if os.geteuid() != 0 or passable(base / "bin", STRANGER):
        return base / "bin" / name
    copy = folder / "copies" / "python"
    shutil.copytree(base / "lib" / name, copy / "lib" / name, symlinks=True, ignore=_not_needed)
    (copy / "bin").mkdir()
    shutil.copy2((base / "bin" / name).resolve(), copy / "bin" / name)
    for library in (base / "lib").glob("libpython*.so*"):
        shutil.copy2(library, copy / "lib" / library.name, follow_symlinks=False)
    return copy / "bin" / name


class Ordinary:
    """The command line in the hands of a user who may do nothing outside one folder."""

    def __init__(self, home: Path, run_as: RunAs) -> None:
        settings = settings_for(home)
        mirror = settings.maven_repository
        for name in (jars.neo4j_lock(settings.neo4j_version), jars.ENCODER):
            lib = jars.ensure(name, settings.cache_dir, mirror.get_secret_value() if mirror else None)
            cache = jars.place(name, home / "cache")
            shutil.copytree(lib, cache)
            for folder in (cache, cache.parent, cache.parent.parent):
                folder.chmod(0o755)
        self.folder = home / "mine"
        self.folder.mkdir()
        path = [within_reach(TOP, home, "imem", "journal", "kg", "credibility", "recall", "sql", "cypher")]
        path.append(within_reach(Path(sysconfig.get_paths()["purelib"]), home))
        self._python = python_for_strangers(home)
        self._env = environment(
            HOME=str(self.folder),
            IMEM_HOME=str(self.folder / "data"),
            IMEM_CACHE_DIR=str(home / "cache"),
            IMEM_NEO4J_VERSION=settings.neo4j_version,
            PYTHONPATH=os.pathsep.join(map(str, path)),
            LD_LIBRARY_PATH=str(self._python.parent.parent / "lib"),
        )
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            os.chown(self.folder, run_as.uid, run_as.gid)
            self._user = {"user": run_as.uid, "group": run_as.gid, "extra_groups": []}

    def imem(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        return subprocess.run(
            [str(self._python), "-m", "imem", *words],
            env=self._env,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            **self._user,
        )


@pytest.mark.chaos
def test_an_ordinary_user_runs_everything_at_home(home: Path) -> None:
    """All five servers, as another user when root runs the tests; from a clone, one does so in tests/e2e."""
    entry = pwd.getpwnam(ORDINARY)
    person = Ordinary(home, RunAs(entry.pw_uid, entry.pw_gid))
    data = person.folder / "data"

    started = person.imem("up", "--detach", "--json")

    assert started.returncode == 0, started.stderr
    children = json.loads(started.stdout)["children"]
    for name in ("postgres", "neo4j", "valkey-durable"):
        assert Path(f"/proc/{children[name]['pid']}").stat().st_uid == person.folder.stat().st_uid != 0
    assert (data / "postgres" / "data" / "PG_VERSION").exists()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert person.imem("down").stdout == "Stopped.\n"
    assert nothing_left(data)


def test_a_user_without_a_name_is_told(home: Path) -> None:
    """As in containers that run under a bare number; whatever had begun is stopped."""
    if os.geteuid() != 0:  # Nobody else can become such a user.
        return
    person = Ordinary(home, STRANGER)

    refused = person.imem("up", "--detach")

    assert refused.returncode == 1
    assert "Postgres runs only as a user with a name, and number 54321 has none." in refused.stderr
    assert "Traceback" not in refused.stderr
    assert nothing_left(person.folder / "data")
