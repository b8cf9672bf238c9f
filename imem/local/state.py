"""
The state file: what runs, where, and how to reach it.

Only the supervisor writes it, atomically; other processes read it. It holds passwords, so it is private to its owner.
A file whose supervisor does not run any more was left by a crash and is ignored.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import SecretStr

from imem.journal.clock import follow_trial
from imem.journal.errors import StackError, StackStarting
from imem.journal.settings import Settings
from imem.local.folders import Folders, read_json, write_private
from imem.local.process import ProcessIdentity

SERVERS: Mapping[str, tuple[str, ...]] = {
    "postgres_url": ("postgres_curator_url", "postgres_pipeline_url", "postgres_admin_url"),
    "neo4j_url": ("neo4j_user", "neo4j_password"),
    "valkey_working_url": (),
    "valkey_durable_url": (),
    "valkey_cache_url": (),
}
"""The setting that says where a server is → the settings that only make sense together with it."""

CARRIED: Mapping[str, tuple[str, ...]] = {"webhook_url": ("webhook_secret",), "embedding_url": ("embedding_key",)}
"""The same for endpoints outside the stack; the workers read them, with their secrets, from the state file alone."""


@dataclass(frozen=True, slots=True)
class ChildState:
    """
    One line of the status table.

    Attributes:
        state: ``preparing``, ``starting``, ``ready``, ``restarting``, ``stopped`` or ``elsewhere`` (given by URL).
        pid: process id, while there is one.
        start_time: start of that process, in clock ticks since boot.
        port: the port it listens on, if it does.
        log: path of its output.
        restarts: how often it died and was started again.
        note: what it is doing or why it failed, one sentence.
    """

    state: str = "preparing"
    pid: int | None = None
    start_time: int | None = None
    port: int | None = None
    log: str = ""
    restarts: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class StackState:
    """
    The content of the state file; endpoints are hidden in ``repr``.

    Attributes:
        supervisor: the process that writes the file.
        ready: whether the start is over: every server answers, and every worker is ready or has stalled.
        endpoints: name of a setting → its value, for every server of the stack.
        children: by name.
    """

    supervisor: ProcessIdentity
    ready: bool = False
    endpoints: Mapping[str, str] = field(default_factory=dict)
    children: Mapping[str, ChildState] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"StackState(supervisor={self.supervisor.pid}, ready={self.ready}, children={sorted(self.children)})"

    def identities(self) -> list[ProcessIdentity]:
        """Return the children that have a process."""
        return [
            ProcessIdentity(child.pid, child.start_time, self.supervisor.boot)
            for child in self.children.values()
            if child.pid is not None and child.start_time is not None
        ]

    @property
    def unready(self) -> tuple[str, ...]:
        """Return the names of those that do not do their work now."""
        return tuple(name for name, child in self.children.items() if child.state not in {"ready", "elsewhere"})

    def with_child(self, name: str, **changes: Any) -> StackState:
        """Return a copy in which one child has changed."""
        child = replace(self.children.get(name, ChildState()), **changes)
        return replace(self, children={**self.children, name: child})

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> StackState:
        """
        Return the state of which *found* was made.

        Raises:
            KeyError, TypeError: it was made of something else.
        """
        return cls(
            supervisor=ProcessIdentity(**found["supervisor"]),
            ready=found["ready"],
            endpoints=found["endpoints"],
            children={name: ChildState(**child) for name, child in found["children"].items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Return what the file holds."""
        return {
            "supervisor": asdict(self.supervisor),
            "ready": self.ready,
            "endpoints": dict(self.endpoints),
            "children": {name: asdict(child) for name, child in self.children.items()},
        }


def write(folders: Folders, state: StackState) -> None:
    """Replace the state file; it needs not outlive the machine, since nothing it names does."""
    write_private(folders.state, json.dumps(state.to_json(), indent=1), lasting=False)


def read(folders: Folders) -> StackState | None:
    """
    Return what the file says, alive or left behind, or None when there is none.

    Raises:
        StackError: the file is damaged, or of another version.
    """
    found = read_json(folders.state)
    if found is None:
        return None
    try:
        return StackState.from_json(found)
    except (KeyError, TypeError) as error:
        raise StackError(
            f"{folders.state} is damaged, or another version wrote it.",
            mend="Remove it when no stack runs on this folder.",
        ) from error


def running(folders: Folders) -> StackState | None:
    """Return the state of the stack that runs on this home, or None."""
    state = read(folders)
    return state if state is not None and state.supervisor.alive else None


def supervised(folders: Folders) -> bool:
    """
    Return whether a supervisor holds the lock of this home; it does from before its first state until after its last.

    The test takes the lock for a moment, shared with other tests; a starting supervisor waits for that.
    """
    try:
        with folders.lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def fill(settings: Settings, endpoints: Mapping[str, str]) -> Settings:
    """Return *settings* with every server they do not name taken from *endpoints*, each with its own credentials."""
    filled: dict[str, Any] = {}
    for url, others in {**SERVERS, **CARRIED}.items():
        if getattr(settings, url) is None and endpoints.get(url):
            filled |= {name: endpoints[name] for name in (url, *others) if endpoints.get(name)}
    hidden = Settings.secrets()
    return settings.model_copy(
        update={name: SecretStr(text) if name in hidden else text for name, text in filled.items()}
    )


def with_local_endpoints(settings: Settings) -> Settings:
    """
    Return *settings* with the addresses of the local stack for servers that are not set.

    Where the journal is that of a trial, this process follows its clock from then on, and else the machine's.

    Raises:
        StackError: an address is missing and no stack runs on this home.
        StackStarting: a stack is starting and has no such address yet; retryable.
    """
    folders = Folders(settings.home)
    follow_trial(folders.clock if settings.postgres_url is None and folders.clock.exists() else None)
    if all(getattr(settings, name) is not None for name in SERVERS):
        return settings
    state = running(folders)
    if state is None and not supervised(folders):
        # Again: between the two tests a start may have written its first state.
        state = running(folders)
        if state is None:
            raise StackError(
                f"No stack runs on {settings.home}.", mend="Start one with `imem up`, or set the servers' URLs."
            )
    filled = settings if state is None else fill(settings, state.endpoints)
    if state is None or (not state.ready and any(getattr(filled, name) is None for name in SERVERS)):
        raise StackStarting(f"The stack on {settings.home} is starting.", mend="`imem status` shows how far it is.")
    return filled
