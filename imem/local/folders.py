"""
Folders and files of the local stack, and their permissions.

::

    <home>/            0700; for root 0711 if made here, else as it is (Postgres, as another user, may pass through)
      secrets.json     0600  passwords and the id of this installation; made once, and none ever changed
      stack.json       0600  endpoints and children of the running stack; gone when it is down
      clock.json       0600  only a trial's: by how much its time is ahead (:mod:`imem.local.trial`)
      lock             held (flock) by the one supervisor of this folder
      logs/NAME.log    0600  output of each child
      metrics/         0700  what the workers count, in files; begun anew with each stack
      run/             0700  sockets on which workers say that they are ready
      postgres/data    0700  (for root: ``/var/lib/imem/<id>`` when its user cannot reach the home)
      neo4j/           0700  data, conf, logs
      neo4j-new/       0700  a graph that is being made anew; neo4j-old: the one that it has just replaced
      valkey/ROLE      0700  configuration and append-only file
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imem.journal.errors import StackError

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
PASSABLE_FOLDER = 0o711
LOG_LIMIT_BYTES = 16 * 1024 * 1024
FULL_BYTES = 1024 * 1024
"""Free bytes below which a failed start is explained by a full disk: each server writes files before it answers."""


@dataclass(frozen=True, slots=True)
class Folders:
    """
    Paths below one home.

    Attributes:
        home: the folder of this installation, absolute.
    """

    home: Path

    @property
    def secrets(self) -> Path:
        """File of passwords."""
        return self.home / "secrets.json"

    @property
    def state(self) -> Path:
        """File of endpoints and children, which exists while a stack runs."""
        return self.home / "stack.json"

    @property
    def clock(self) -> Path:
        """File by which a home is a trial's: it says by how much its time is ahead."""
        return self.home / "clock.json"

    @property
    def lock(self) -> Path:
        """File whose lock the supervisor holds."""
        return self.home / "lock"

    @property
    def logs(self) -> Path:
        """Folder of the children's output."""
        return self.home / "logs"

    @property
    def run(self) -> Path:
        """Folder of the files by which workers say that they are ready."""
        return self.home / "run"

    def log(self, name: str) -> Path:
        """Return the log of the child *name*."""
        return self.logs / f"{name}.log"

    def prepare(self) -> None:
        """
        Make the home and the folders in it, private.

        For root a home that is there already keeps its mode: it may be a folder of the system's. Where
        Postgres' user cannot pass through it, its data lies elsewhere (:mod:`imem.local.servers.postgres`).

        Raises:
            StackError: the folder cannot be made or written, or belongs to another user.
        """
        with translate_os_errors(self.home):
            made = _make_home(self.home)
            if self.home.stat().st_uid != os.geteuid():
                raise StackError(
                    f"The folder {self.home} belongs to another user.",
                    mend="Choose a folder of your own with IMEM_HOME.",
                )
            if made or os.geteuid() != 0:
                self.home.chmod(PASSABLE_FOLDER if os.geteuid() == 0 else PRIVATE_FOLDER)
            self.logs.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            self.run.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def _make_home(home: Path) -> bool:
    """Make *home* and what is missing above it; return whether it was not there."""
    home.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    try:
        home.mkdir(mode=PRIVATE_FOLDER)
    except FileExistsError:
        if not home.is_dir():
            raise
        return False
    return True


class translate_os_errors:  # noqa: N801 - reads as a word in a with statement
    """
    Translate an OSError on a path into a StackError that says how to mend it.

    Raises:
        StackError: in place of an OSError of the block.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Translate."""
        if isinstance(error, OSError):
            raise file_error(error, self.path) from error


def file_error(error: OSError, path: Path) -> StackError:
    """Return the sentence for *error*, met while using *path*."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(path)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StackError(
            f"{error.filename or path} cannot be written ({error.strerror}).",
            mend="Make it writable for you, or choose another folder with IMEM_HOME (data) or IMEM_CACHE_DIR (jars).",
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return StackError(f"{error.filename or path} is in the way.", mend="Move it, or choose another IMEM_HOME.")
    return StackError(f"{error.filename or path}: {error.strerror}.", mend="See `imem doctor`.")


def disk_full(path: Path) -> StackError:
    """Return the sentence for a disk that is full."""
    return StackError(
        f"The disk that holds {path} is full.", mend="Free some space there, or choose another IMEM_HOME."
    )


def is_full(path: Path) -> bool:
    """Whether the disk that holds *path* has too little room for any server to start."""
    return free_bytes(path) < FULL_BYTES


def make_private(folder: Path) -> Path:
    """Make *folder* (and what is missing above it) readable by its owner alone; return it."""
    with translate_os_errors(folder):
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        folder.chmod(PRIVATE_FOLDER)
    return folder


def write_private(path: Path, text: str, *, lasting: bool = True) -> None:
    """
    Replace *path* by *text* in one step, readable by its owner alone.

    A crash leaves the old content or the new one, and perhaps a file with the suffix ``.new``. Without *lasting* that
    holds for a crash of programs, not for one of the machine.
    """
    new = path.with_name(path.name + ".new")
    with translate_os_errors(path):
        new.unlink(missing_ok=True)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        new.replace(path)


def trim_log(path: Path) -> None:
    """
    Rotate an overlong log while its writer goes on.

    The writer appends, so that it continues at the new beginning; what it writes in this very moment may be lost.
    """
    with translate_os_errors(path), suppress(FileNotFoundError):
        if path.stat().st_size > LOG_LIMIT_BYTES:
            aside = path.with_name(path.name + ".1")
            shutil.copyfile(path, aside)
            aside.chmod(PRIVATE_FILE)
            os.truncate(path, 0)


def open_log(path: Path) -> int:
    """
    Return a descriptor that appends to the log *path*, which is private; an overlong one is set aside first.

    The caller closes it.
    """
    with translate_os_errors(path):
        with suppress(FileNotFoundError):
            if path.stat().st_size > LOG_LIMIT_BYTES:
                path.replace(path.with_name(path.name + ".1"))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)


def read_json(path: Path) -> dict[str, Any] | None:
    """
    Return the object in *path*, or None when there is no such file.

    Raises:
        StackError: the file cannot be read or holds something else.
    """
    with translate_os_errors(path):
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise StackError(f"{path} is damaged.", mend="Put back an intact copy, or choose another IMEM_HOME.")
    return value


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """
    The passwords of one installation; hidden in ``repr``.

    Attributes:
        installation: random id of this installation, 16 hexadecimal digits; no secret.
        passwords: by the name of what they open.
    """

    installation: str
    passwords: Mapping[str, str]

    NAMES = (
        *("postgres_owner", "postgres_app", "postgres_curators", "postgres_pipelines"),
        *("neo4j", "valkey_working", "valkey_durable", "valkey_cache"),
    )

    def __repr__(self) -> str:
        return f"Secrets(installation={self.installation!r}, passwords=…)"

    def __getitem__(self, name: str) -> str:
        return self.passwords[name]

    @classmethod
    def of(cls, folders: Folders) -> Secrets:
        """
        Return the passwords of this home; the first call makes them.

        Raises:
            StackError: the file is damaged or cannot be written.
        """
        found = read_json(folders.secrets)
        if found is None:
            found = {"version": 1, "installation": secrets.token_hex(8)}
            # Hexadecimal: a password that begins with a dash is an option to Neo4j's administration program.
            found |= {name: secrets.token_hex(24) for name in cls.NAMES}
            write_private(folders.secrets, json.dumps(found, indent=1))
        missing = [name for name in ("installation", *cls.NAMES) if not isinstance(found.get(name), str)]
        if missing:
            raise StackError(
                f"{folders.secrets} lacks {', '.join(missing)}.",
                mend="Put back an intact copy, or choose another IMEM_HOME.",
            )
        return cls(found["installation"], {name: found[name] for name in cls.NAMES})


def free_bytes(path: Path) -> int:
    """Return the bytes free on the disk that holds *path* or the nearest folder above it that exists."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
