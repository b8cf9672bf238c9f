"""
Trial stacks: local ones whose time a person moves, so that a year passes in seconds.

A home becomes a trial's before its first start, by a file that says by how much its time is ahead of the machine's.
Processes that use the stack read it (:mod:`imem.journal.clock`); for SQL the owner puts the same number into the
journal's function. Time moves forward only. A command that is killed between the two leaves the journal ahead of the
file; the next start, or the next move, makes them agree.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Final

from imem.journal.clock import MachineClock
from imem.journal.errors import BadInput, StackError
from imem.journal.settings import Settings
from imem.journal.statements import sql
from imem.local import state
from imem.local.folders import Folders, read_json, write_private

LONGEST: Final = timedelta(days=3_660)
"""Longest distance from the machine's time: ten years."""

_UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400}
_DURATION: Final = re.compile(r"([1-9]\d{0,6})([mhd])")


def ahead_s(folders: Folders) -> int | None:
    """
    Return by how much the time of a home is ahead of the machine's, in seconds; None where it is no trial's.

    Raises:
        StackError: the file is damaged.
    """
    found = read_json(folders.clock)
    if found is None:
        return None
    if type(found.get("ahead_s")) is not int:
        raise StackError(f"{folders.clock} is damaged.", mend="`imem down --purge` deletes the trial.")
    return int(found["ahead_s"])


def time_of(folders: Folders) -> tuple[int, datetime] | None:
    """Return by how much a trial's time is ahead of the machine's, in seconds, and what it is; None for no trial."""
    ahead = ahead_s(folders)
    return None if ahead is None else (ahead, MachineClock().now() + timedelta(seconds=ahead))


def sentence(folders: Folders) -> str | None:
    """Return what a person is told of the time of a trial; None where the home is no trial's."""
    if (found := time_of(folders)) is None:
        return None
    ahead, at = found
    days = f"{abs(ahead) / 86_400:.1f} days {'ahead of' if ahead >= 0 else 'behind'}"
    return f"TRIAL: its time is {at:%Y-%m-%d %H:%M} UTC, {days} the machine's."


def begin(settings: Settings, at: datetime | None) -> None:
    """
    Make the home a trial's, whose time begins at *at*, or with None at the machine's time.

    Raises:
        StackError: the home holds a memory already, is a trial's whose time has begun, or the journal is another
            server's.
        BadInput: *at* is more than ten years away.
    """
    folders = Folders(settings.home)
    if folders.clock.exists():
        if at is not None:
            raise StackError(
                f"The time of the trial in {folders.home} has begun.", mend="Move it: `imem clock advance`."
            )
        return
    if folders.secrets.exists():
        raise StackError(
            f"{folders.home} holds a memory that is no trial: its time stays the machine's.",
            mend="Give the trial a folder of its own: IMEM_HOME=/some/folder imem up --trial",
        )
    if settings.postgres_url is not None:
        raise _foreign_journal()
    folders.prepare()
    begins = timedelta() if at is None else at - MachineClock().now()
    _write(folders, _within(round(begins.total_seconds()), "--at"))


def check(settings: Settings) -> None:
    """
    Look whether a stack may start with these settings.

    Raises:
        StackError: the home is a trial's, and the journal is another server's.
    """
    if settings.postgres_url is not None and Folders(settings.home).clock.exists():
        raise _foreign_journal()


def _foreign_journal() -> StackError:
    return StackError(
        "A trial keeps its journal in a Postgres of its own, and IMEM_POSTGRES_URL is set.",
        mend="Unset it, or choose another IMEM_HOME.",
    )


def duration(text: str) -> timedelta:
    """
    Return what a person wrote, such as ``31d``, ``12h`` or ``90m``.

    Raises:
        BadInput: it is no duration above zero.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise BadInput("BY", f"{text!r:.40} is no duration, such as 31d, 12h or 90m.")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def advance(settings: Settings, by: timedelta) -> datetime:
    """
    Move the time of the trial that runs forward, for SQL and for every process; return what it is now.

    Raises:
        StackError: no stack runs on this home, it is no trial, or its journal is another server's.
        BadInput: it would be more than ten years away from the machine's.
    """
    folders = Folders(settings.home)
    running = state.running(folders)
    if running is None or not running.ready:
        raise StackError(f"No stack that is ready runs on {folders.home}.", mend="`imem up --trial` starts a trial.")
    check(settings)
    ahead = ahead_s(folders)
    if ahead is None or settings.postgres_url is not None:
        raise StackError(
            f"The stack on {folders.home} is no trial: its time is the machine's and cannot be moved.",
            mend="Start a trial in a folder of its own: IMEM_HOME=/some/folder imem up --trial",
        )
    later = _within(ahead + round(by.total_seconds()), "BY")
    _write(folders, _put(running.endpoints["postgres_admin_url"], later))
    return MachineClock().now() + timedelta(seconds=ahead_s(folders) or 0)


def settle(settings: Settings) -> None:
    """Make the journal and the file of a trial agree, before anything works; elsewhere nothing is done."""
    folders = Folders(settings.home)
    ahead = ahead_s(folders)
    if ahead is not None and settings.postgres_admin_url is not None:
        _write(folders, _put(settings.postgres_admin_url.get_secret_value(), ahead))


def _within(ahead: int, option: str) -> int:
    if abs(ahead) > LONGEST.total_seconds():
        raise BadInput(option, "would be more than ten years away from the machine's time.")
    return ahead


def _put(admin_url: str, ahead: int) -> int:
    import psycopg  # noqa: PLC0415 - a command that only looks at the time shall not wait for the driver

    from imem.journal.postgres.database import translate_error  # noqa: PLC0415 - as above

    try:
        with psycopg.connect(admin_url, autocommit=True, connect_timeout=5) as connection:
            row = connection.execute(sql("advance_clock"), {"ahead_s": ahead}).fetchone()
    except psycopg.Error as error:
        raise translate_error(error) from error
    return ahead if row is None else int(row[0])


def _write(folders: Folders, ahead: int) -> None:
    write_private(folders.clock, json.dumps({"ahead_s": ahead}))
