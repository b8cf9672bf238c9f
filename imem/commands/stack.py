"""``imem up``, ``down``, ``status``, ``logs``, ``doctor``, ``migrate``: the local stack."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console

from imem.journal.errors import BadInput, ImemError, StackError
from imem.journal.modes import Health, Mode
from imem.journal.settings import PREFIX, Settings
from imem.local import state, status_view, trial
from imem.local.folders import Folders, open_log
from imem.local.process import ProcessIdentity
from imem.local.workers import TOP
from imem.terminal import output
from imem.terminal.command import DEGRADED, FAILURE, Json, moment, print_answer, print_json, wrong_usage

if TYPE_CHECKING:
    from imem.jobs.backlog import Waiting

STOP_WAIT_S = 60.0
POLL_S = 0.05

app = typer.Typer()


@app.command()
def up(
    *,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when everything is ready.")] = False,
    as_trial: Annotated[bool, typer.Option("--trial", help="Begin a trial, whose time `imem clock` moves.")] = False,
    at: Annotated[
        str | None,
        typer.Option(metavar="T", help="When a trial begins: a time with its zone, or a day (its end in UTC)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """
    Start the whole local stack; Ctrl-C stops it cleanly.

    Exit code with --detach: 0: all is ready; 3: it runs, but a worker (named) is not ready yet; 1: it does not run.
    """
    settings = Settings.read()
    with wrong_usage():
        if at is not None and not as_trial:
            raise BadInput("--at", "goes with --trial.")
        if as_trial:
            trial.check(settings)
            trial.begin(settings, moment(at, "--at"))
    console = output.console(stderr=True)
    with status_view.watching(console, quiet=as_json) as report:
        if detach:
            now = start_detached(settings, report)
        else:
            from imem.local.daemon import supervise  # noqa: PLC0415 - a command imports only what it needs
            from imem.logs import configure  # noqa: PLC0415

            folders = Folders(settings.home)
            folders.prepare()
            with os.fdopen(open_log(folders.log("supervisor")), "a", encoding="utf-8") as log:
                configure(settings.log_level, log)  # The terminal is the table's.
                asyncio.run(supervise(settings, _announcing(report, console, as_json=as_json)))
    if detach:
        _print_state(state.running(Folders(settings.home)), as_json=as_json)
        if now.unready:
            console.print(not_ready(now), highlight=False, soft_wrap=True)
            raise typer.Exit(DEGRADED)


def not_ready(now: state.StackState) -> str:
    """Return the sentence for a stack that has started without all of its workers."""
    names = ", ".join(now.unready)
    return (
        f"Not ready yet: {names}. The rest runs; `imem status` shows when all is, `imem logs {now.unready[0]}` why not."
    )


def _announcing(
    report: Callable[[state.StackState], None], console: Console, *, as_json: bool
) -> Callable[[state.StackState], None]:
    """Return *report*, extended by one line when the start is over."""
    announced = False

    def announce(now: state.StackState) -> None:
        nonlocal announced
        report(now)
        if now.ready and not announced:
            announced = True
            if as_json:
                typer.echo(json.dumps(status_view.to_json(now)))
            else:
                word = not_ready(now) if now.unready else "Ready."
                console.print(f"{word} Ctrl-C stops the stack.", highlight=False, soft_wrap=True)

    return announce


def start_detached(settings: Settings, report: Callable[[state.StackState], None]) -> state.StackState:
    """
    Start the supervisor as a process of its own, follow it until its start is over, and return how that ended.

    Raises:
        StackError: what it says, when it does not start.
    """
    folders = Folders(settings.home)
    folders.prepare()
    reading, writing = os.pipe()
    output = open_log(folders.log("supervisor"))
    path = os.pathsep.join(part for part in (str(TOP), os.environ.get("PYTHONPATH", "")) if part)
    try:
        daemon = subprocess.Popen(  # noqa: S603 - our own module with a number as its argument
            [sys.executable, "-m", "imem.local.daemon", str(writing)],
            env={**os.environ, "PYTHONPATH": path},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writing,),
            start_new_session=True,
        )
    finally:
        os.close(writing)
        os.close(output)
    try:
        ended = _follow(reading, report)
    except BaseException:
        daemon.send_signal(signal.SIGTERM)  # Half a stack serves no caller.
        daemon.wait()
        raise
    daemon.returncode = 0  # It lives on by intention; without this Python warns that it still runs.
    return ended


def _follow(reading: int, report: Callable[[state.StackState], None]) -> state.StackState:
    now = state.StackState(ProcessIdentity(0, 0, ""))
    with os.fdopen(reading, encoding="utf-8") as pipe:
        for line in pipe:
            message = json.loads(line)
            if "error" in message:
                raise StackError(message["error"]["message"], mend=message["error"]["mend"])
            if "ready" in message:
                return now
            now = state.StackState.from_json(message["state"])
            report(now)
    raise StackError("The supervisor ended while starting.", mend="`imem logs supervisor` shows why.")


@app.command()
def down(
    *,
    delete: Annotated[bool, typer.Option("--purge", help="Delete this installation's data as well.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting.")] = False,
    as_json: Json = False,
) -> None:
    """Stop the local stack; with --purge delete its data too."""
    from imem.local.purge import purge  # noqa: PLC0415 - a command imports only what it needs

    folders = Folders(Settings.read().home)
    if delete and not yes:
        typer.confirm(f"Delete everything that the stack keeps in {folders.home}?", abort=True)
    running = state.running(folders)
    if running is not None:
        stop_running(running.supervisor)
    deleted = [str(path) for path in purge(folders)] if delete else []
    said = "Stopped." if running is not None else f"No stack runs on {folders.home}."
    document = {"stopped": running is not None, "deleted": deleted}
    print_answer(document, lambda: [said, *(f"Deleted {path}." for path in deleted)], as_json=as_json)


def stop_running(supervisor: ProcessIdentity) -> None:
    """
    Ask *supervisor* to stop everything and wait until it has.

    Raises:
        StackError: it may not be signalled, or takes too long.
    """
    try:
        os.kill(supervisor.pid, signal.SIGTERM)
    except PermissionError as error:
        raise StackError("The stack was started by another user.", mend="Stop it as that user.") from error
    except ProcessLookupError:
        return
    end = time.monotonic() + STOP_WAIT_S
    while supervisor.alive:
        if time.monotonic() > end:
            raise StackError("The stack does not stop.", mend=f"`kill -9 {supervisor.pid}` ends it; nothing is lost.")
        time.sleep(POLL_S)  # It is no child of ours, whose end could be waited for.


@app.command()
def status(*, as_json: Json = False) -> None:
    """
    Show what runs, the mode, and what the pipelines still have to do.

    Modes are normal, degraded_read, degraded_write, read_only and recovering.

    Exit code 0: all is ready and the mode normal; 3: something is not; 1: no stack runs.
    """
    settings = Settings.read()
    now, health, left = state.running(Folders(settings.home)), None, None
    if now is not None:
        now = status_view.with_ended_children(now)
        health, left = asyncio.run(_health(settings)) if now.ready else (None, None)
    _print_state(now, health, left, as_json=as_json)
    if now is None:
        raise typer.Exit(FAILURE)
    if not now.ready or now.unready or (health is not None and health.mode is not Mode.NORMAL):
        raise typer.Exit(DEGRADED)


async def _health(settings: Settings) -> tuple[Health | None, tuple[Waiting, ...] | None]:
    """Return what answers, None for a part of a stack; and what the pipelines have to do, None if that is unknown."""
    from imem.services.health import backlog, check_health  # noqa: PLC0415 - a command imports only what it needs
    from imem.services.stores import Stores  # noqa: PLC0415

    health = None
    try:
        async with Stores.open(settings) as stores:
            health = await check_health(stores)
            return health, await backlog(stores)
    except ImemError:  # A part of a stack, a schema that is not migrated, or a store that is away.
        return health, None


def _print_state(
    now: state.StackState | None,
    health: Health | None = None,
    left: tuple[Waiting, ...] | None = None,
    *,
    as_json: bool,
) -> None:
    folders = Folders(Settings.read().home)
    if as_json:
        clock = trial_json(folders)
        known = status_view.to_json(now) | (status_view.health_json(health, left) if health is not None else {})
        typer.echo(json.dumps(known | ({"clock": clock} if clock is not None else {})))
        return
    if now is None:
        typer.echo("No stack runs here. `imem up` starts one.")
    else:
        output.console().print(status_view.table(now))
        if health is not None:
            typer.echo("\n".join((status_view.mode_line(health), *status_view.backlog_lines(left))))
    if (line := trial.sentence(folders)) is not None:
        typer.echo(line)


clock_app = typer.Typer(help="The time of a trial stack (`imem up --trial`).", no_args_is_help=True)
app.add_typer(clock_app, name="clock")


@clock_app.command()
def show(*, as_json: Json = False) -> None:
    """Show the time of the stack on this home."""
    folders = Folders(Settings.read().home)
    document = trial_json(folders) or {"trial": False}
    print_answer(document, lambda: [trial.sentence(folders) or "No trial: the time is the machine's."], as_json=as_json)


@clock_app.command()
def advance(
    by: Annotated[str, typer.Argument(metavar="BY", help="By how much, such as 31d, 12h or 90m.")],
    *,
    as_json: Json = False,
) -> None:
    """Move the time of a trial stack forward, for all of its servers and workers and for every program that uses it."""
    settings = Settings.read()
    with wrong_usage():
        trial.advance(settings, trial.duration(by))
    folders = Folders(settings.home)
    print_answer(trial_json(folders), lambda: [trial.sentence(folders) or ""], as_json=as_json)


def trial_json(folders: Folders) -> dict[str, Any] | None:
    """Return the time of a trial; None where the home is none."""
    if (found := trial.time_of(folders)) is None:
        return None
    ahead, now = found
    return {"trial": True, "now": now.isoformat(), "ahead_s": ahead}


@app.command()
def metrics() -> None:
    """Print what the workers of the stack counted, in the text format of Prometheus."""
    from imem.metrics import text_of  # noqa: PLC0415 - a command imports only what it needs

    typer.echo(text_of(Settings.read().home).decode(), nl=False)


@app.command()
def logs(
    name: Annotated[str, typer.Argument(help="A server or worker, or `supervisor`.")],
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines are added.")] = False,
    as_json: Json = False,
) -> None:
    """Print the output of one server or worker."""
    folders = Folders(Settings.read().home)
    known = sorted(path.stem for path in folders.logs.glob("*.log"))
    if name not in known:
        raise StackError(f"There is no log {name!r}.", mend=f"There are: {', '.join(known) or 'none yet'}.")
    with folders.log(name).open(encoding="utf-8", errors="replace") as file:
        last = deque(file, maxlen=lines)
        if as_json:
            typer.echo(json.dumps({"name": name, "lines": [line.rstrip("\n") for line in last]}))
            return
        typer.echo("".join(last), nl=False)
        reading: TextIO = file
        while follow:
            added = reading.read()
            if added:
                typer.echo(added, nl=False)
                continue
            reading = _renewed(reading, folders.log(name))
            time.sleep(POLL_S)  # Polling: a file gives no notification of growth.


def _renewed(reading: TextIO, path: Path) -> TextIO:
    """Return the file from which to continue reading a log: reopened if it was replaced, rewound if it was rotated."""
    with suppress(FileNotFoundError):
        now = path.stat()
        if not os.path.samestat(os.fstat(reading.fileno()), now):
            reading.close()
            return path.open(encoding="utf-8", errors="replace")
        if now.st_size < os.lseek(reading.fileno(), 0, os.SEEK_CUR):
            reading.seek(0)
    return reading


@app.command()
def migrate(*, as_json: Json = False) -> None:
    """Bring Postgres and Neo4j to the newest schema."""
    from imem.local.migrate import migrate as bring_up_to_date  # noqa: PLC0415 - a command imports only what it needs

    done = bring_up_to_date(state.with_local_endpoints(Settings.read()))
    lines = [f"Applied {name}." for name in done] or ["Both stores are up to date."]
    print_answer({"applied": done}, lambda: lines, as_json=as_json)


@app.command()
def doctor(
    *,
    settings: Annotated[bool, typer.Option("--settings", help="List every setting and its value instead.")] = False,
    as_json: Json = False,
) -> None:
    """Check every server and folder. Exit code 0: all is well; 3: something is weak; 1: something is broken."""
    if settings:
        _print_settings(as_json=as_json)
        return
    from imem.local.doctor import checks as examination  # noqa: PLC0415 - a command imports only what it needs

    findings = examination.examine(os.environ)
    if as_json:
        print_json({"findings": findings})
    else:
        output.console().print(examination.table(findings))
    levels = {finding.level for finding in findings}
    if examination.CheckLevel.BROKEN in levels:
        raise typer.Exit(FAILURE)
    if examination.CheckLevel.WEAK in levels:
        raise typer.Exit(DEGRADED)


def _print_settings(*, as_json: bool) -> None:
    """List the settings; a variable that names none is no reason to hide those that are known."""
    from imem.local.doctor.settings_view import settings_table  # noqa: PLC0415 - a command imports only what it needs

    known = {name: text for name, text in os.environ.items() if name.upper() in Settings.variables()}
    found = Settings.read(known)
    if as_json:
        print_json({PREFIX + name.upper(): value for name, value in found.model_dump(mode="json").items()})
    else:
        output.console().print(settings_table(found))
