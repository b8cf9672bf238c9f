"""
``imem doctor``: checks settings, servers, disks and data, and says how to mend what it finds.

A check never changes anything and never hangs: each server gets a few seconds. Findings come in a fixed order.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.table import Table
from rich.text import Text

from imem.journal.clock import Clock, MachineClock
from imem.journal.errors import ImemError
from imem.journal.settings import PREFIX, Settings
from imem.local import state, trial
from imem.local.doctor import servers
from imem.local.doctor.finding import CheckLevel, CheckResult, broken, fine, weak
from imem.local.folders import Folders, Secrets, free_bytes
from imem.local.process import LOOPBACK, ProcessIdentity, listens
from imem.local.servers import jars
from imem.local.servers.jars import ENCODER
from imem.local.servers.postgres import SHARED_FOR_ROOT, USER_FOR_ROOT, Postgres
from imem.local.servers.server import is_free

__all__ = ["CheckLevel", "CheckResult", "examine", "table"]

FULL_BYTES = 256 * 1024 * 1024
TIGHT_BYTES = 2 * 1024 * 1024 * 1024
_SIGNS = {CheckLevel.FINE: ("✓", "green"), CheckLevel.WEAK: ("!", "yellow"), CheckLevel.BROKEN: ("✗", "red")}


def examine(env: Mapping[str, str], clock: Clock | None = None) -> list[CheckResult]:
    """Return what was found, good and bad, for the settings in *env*."""
    try:
        settings = Settings.read(env)
    except ImemError as error:
        return [broken("settings", error.message, error.mend or "Correct the variable.")]
    findings = [fine("settings", "all known")]
    folders = Folders(settings.home)
    running = None
    try:
        running = state.running(folders)
    except ImemError as error:
        findings.append(broken("stack", error.message, error.mend))
    findings += [
        *_permissions(folders),
        *_postgres_user(folders),
        *_disk(settings),
        *_stack(settings, running),
        *_trial(folders),
        *_jars(settings),
        *_encoder(settings),
    ]
    findings += _metrics(settings, running)
    whole = state.fill(settings, running.endpoints) if running is not None else settings
    return findings + _servers(whole, clock or MachineClock())


def _servers(settings: Settings, clock: Clock) -> list[CheckResult]:
    """Ask all servers at once; the slowest decides how long it takes."""
    checks: list[Callable[[], list[CheckResult]]] = [
        lambda: servers.postgres(settings, clock),
        lambda: servers.neo4j(settings, clock),
        lambda: servers.projection(settings),
        *(lambda role=role: servers.valkey(settings, role, clock) for role in servers.ROLES),
    ]
    with ThreadPoolExecutor(len(checks)) as pool:
        return [finding for found in pool.map(lambda check: check(), checks) for finding in found]


def _permissions(folders: Folders) -> Iterator[CheckResult]:
    about = "permissions"
    if not folders.home.exists():
        yield fine(about, f"{folders.home} will be made by the first start")
        return
    if not os.access(folders.home, os.W_OK | os.X_OK):
        yield broken(about, f"{folders.home} cannot be written.", "Make it yours, or choose another IMEM_HOME.")
        return
    open_files = [path for path in (folders.secrets, folders.state, folders.logs) if _open_to_others(path)]
    for path in open_files:
        mode = "700" if path.is_dir() else "600"
        yield broken(about, f"Other users can read {path}.", f"chmod {mode} {path}")
    if not open_files:
        yield fine(about, f"{folders.home} is private")


def _postgres_user(folders: Folders) -> Iterator[CheckResult]:
    """Look whose Postgres' data is, where root has to give it to another user."""
    if os.geteuid() != 0 or not folders.secrets.exists():
        return
    try:
        data = Postgres(folders, Secrets.of(folders)).data
        owner = data.stat().st_uid if data.exists() else None
    except ImemError:
        return  # A damaged file of passwords, or no binaries: findings of their own.
    if owner is not None and owner == pwd.getpwnam(USER_FOR_ROOT).pw_uid:
        yield weak(
            "permissions",
            f"Postgres' data belongs to {USER_FOR_ROOT!r}, an account that other programs share: {data}.",
            "`imem down` and `imem up` give it to a user of its own where the system can; or run as an ordinary user.",
        )


def _open_to_others(path: Path) -> bool:
    return path.exists() and bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def _disk(settings: Settings) -> Iterator[CheckResult]:
    """Look at every disk that the stack writes to, each once."""
    places = [settings.home, settings.cache_dir]
    if os.geteuid() == 0 and SHARED_FOR_ROOT.exists():
        places.append(SHARED_FOR_ROOT)
    seen = set()
    for place in places:
        existing = next(path for path in (place, *place.parents) if path.exists())
        if existing.stat().st_dev in seen:
            continue
        seen.add(existing.stat().st_dev)
        free = free_bytes(existing)
        text = f"{free / 1e9:.1f} GB free for {place}"
        mend = "Free some space there, or choose another IMEM_HOME (data) or IMEM_CACHE_DIR (jars)."
        if free < FULL_BYTES:
            yield broken("disk", f"The disk is full: {text}.", mend)
        elif free < TIGHT_BYTES:
            yield weak("disk", f"The disk is nearly full: {text}.", mend)
        else:
            yield fine("disk", text)


def _stack(settings: Settings, running: state.StackState | None) -> Iterator[CheckResult]:
    about = "stack"
    missing = [name for name in state.SERVERS if getattr(settings, name) is None]
    if not missing:
        yield fine(about, "every server is named by a URL")
        return
    if running is None:
        yield broken(
            about,
            f"No stack runs on {settings.home}.",
            f"Start it with `imem up`, or set {', '.join(PREFIX + name.upper() for name in missing)}.",
        )
        return
    if not running.ready:
        yield weak(about, "The stack is still starting.", "`imem status` shows how far it is.")
        return
    troubles = list(_children(running))
    yield from troubles or [fine(about, f"{len(running.children)} servers and workers run")]


def _trial(folders: Folders) -> Iterator[CheckResult]:
    """Say that a home is a trial's, and what its time is."""
    try:
        said = trial.sentence(folders)
    except ImemError as error:
        yield broken("clock", error.message, error.mend)
        return
    if said is not None:
        yield weak("clock", said, "Keep nothing in it that shall last; `imem down --purge` deletes it.")


def _children(running: state.StackState) -> Iterator[CheckResult]:
    for name, child in running.children.items():
        mend = f"`imem logs {name}` shows why; `imem down` and `imem up` start everything anew."
        if child.state == "starting":
            yield weak(
                name, f"{name} is starting.", f"`imem status` shows when it is ready, `imem logs {name}` why not."
            )
        elif child.state not in {"ready", "elsewhere"}:
            yield broken(name, f"{name} is {child.state}{f': {child.note}' if child.note else ''}.", mend)
        elif child.pid is not None and child.start_time is not None:
            if not ProcessIdentity(child.pid, child.start_time, running.supervisor.boot).alive:
                yield broken(name, f"{name} has ended and was not started again.", mend)
            elif child.port is not None and is_free(child.port):
                yield broken(name, f"Nothing listens on port {child.port}, which is {name}'s.", mend)
        if child.restarts:
            yield weak(
                name,
                f"{name} had to be started again {'once' if child.restarts == 1 else f'{child.restarts} times'}.",
                f"`imem logs {name}` shows why.",
            )


def _metrics(settings: Settings, running: state.StackState | None) -> Iterator[CheckResult]:
    """Look who listens where the applier of the running stack is to show its metrics."""
    about, port = "metrics", settings.prometheus_port
    applier = running.children.get("applier") if running is not None else None
    if port is None or applier is None or applier.pid is None or applier.state != "ready":
        return
    if listens(applier.pid, port):
        yield fine(about, f"shown on http://{LOOPBACK}:{port}/metrics")
    elif is_free(port):
        yield weak(
            about,
            f"Nothing listens on port {port} yet, where the applier is to show its metrics.",
            "It tries every few seconds; a stack started with another IMEM_PROMETHEUS_PORT has to be restarted.",
        )
    else:
        yield weak(
            about,
            f"Another program listens on port {port}, where the applier is to show its metrics.",
            "End that program, and the applier takes the port within seconds; or choose another IMEM_PROMETHEUS_PORT.",
        )


def _jars(settings: Settings) -> Iterator[CheckResult]:
    about = "jars"
    if settings.neo4j_url is not None:
        return
    try:
        if settings.neo4j_home is not None:
            lib = jars.find(settings.neo4j_home)
            jars.main_class(lib)
            yield fine(about, f"Neo4j in {settings.neo4j_home}")
            return
        name = jars.neo4j_lock(settings.neo4j_version)
    except ImemError as error:
        yield broken(about, error.message, error.mend)
        return
    yield _fetched(about, f"Neo4j {settings.neo4j_version}", name, settings)


def _encoder(settings: Settings) -> Iterator[CheckResult]:
    if settings.embedding_url is None and settings.embedding_local == ENCODER:
        yield _fetched("encoder", f"The sentence encoder {ENCODER}", ENCODER, settings)


def _fetched(about: str, what: str, name: str, settings: Settings) -> CheckResult:
    """Check the jars of the lock *name*."""
    locked, lib = jars.read_lock(name), jars.place(name, settings.cache_dir)
    if not lib.exists():
        mend = f"The first use fetches it: {jars.megabytes(locked)} MB."
        return weak(about, f"{what} is not here yet.", mend)
    bad = jars.wrong(lib, locked)
    if bad:
        found = f"{what}: missing or altered are {len(bad)} of {len(locked)} jars, such as {bad[0].filename}."
        return broken(about, found, "The next use fetches them again.")
    return fine(about, f"{what} is intact")


def table(findings: list[CheckResult]) -> Table:
    """Return the findings for a person."""
    rows = Table(box=None, pad_edge=False, show_header=False)
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column()
    for finding in findings:
        sign, colour = _SIGNS[finding.level]
        text = Text(finding.text)
        if finding.mend:
            text.append(f"\n→ {finding.mend}", style="bold")
        rows.add_row(Text(sign, style=colour), finding.about, text)
    return rows
