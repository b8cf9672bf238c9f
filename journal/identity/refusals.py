"""Audit rows of refused attempts, in bounded number: whoever guesses secrets must not fill the audit."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from imem.journal.actors import ResourceType
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.postgres.database import Database

UNKNOWN: Final = "unknown"
"""Actor and role of an attempt with a secret that nobody has."""

ROWS_PER_MINUTE: Final = 20
"""Attempts of one actor that are written one by one within a minute; those beyond are counted."""

_WINDOW_S: Final = 60.0

_MOST_ACTORS: Final = 1_000
"""Actors whose attempts are counted at a time; beyond, all counts are written and begin anew."""

_CLOSE_MS: Final = 2_000
"""Budget of the last rows, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """
    Who was refused.

    Attributes:
        actor, role: whose secret it was, or :data:`UNKNOWN`.
        secret_id: the public id of the token or session, if it is known.
        reason: ``unknown``, ``expired``, ``revoked`` or ``ended``; for the audit alone.
    """

    actor: str = UNKNOWN
    role: str = UNKNOWN
    secret_id: str | None = None
    reason: str = UNKNOWN


@dataclass(slots=True)
class _Window:
    last: Attempt
    begun_s: float
    written: int = 0
    counted: int = 0


class RefusalLog:
    """
    Writes refused attempts of one process.

    Each actor's first :data:`ROWS_PER_MINUTE` in a minute have a row each; the rest of that minute has one row with
    their number, written with the next refused attempt or by :meth:`close`. A crash loses that number.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    async def note(self, attempt: Attempt, *, deadline: Deadline) -> None:
        """Write or count *attempt*; a row that cannot be written changes nothing: the attempt is refused anyway."""
        now_s = self._clock()
        full = len(self._windows) >= _MOST_ACTORS and attempt.actor not in self._windows
        over = [
            self._windows.pop(actor)
            for actor, window in list(self._windows.items())
            if full or now_s - window.begun_s >= _WINDOW_S
        ]
        window = self._windows.setdefault(attempt.actor, _Window(attempt, now_s))
        window.last = attempt
        if single := window.written < ROWS_PER_MINUTE:
            window.written += 1
        else:
            window.counted += 1
        await self._write_counts(over, deadline)
        if single:
            await self._write(attempt, 1, deadline)

    async def close(self) -> None:
        """Write the numbers that are not written yet."""
        windows, self._windows = list(self._windows.values()), {}
        await self._write_counts(windows, Deadline.after_ms(_CLOSE_MS))

    async def _write_counts(self, windows: list[_Window], deadline: Deadline) -> None:
        for window in windows:
            if window.counted:
                await self._write(window.last, window.counted, deadline)

    async def _write(self, attempt: Attempt, attempts: int, deadline: Deadline) -> None:
        row = {
            "actor": attempt.actor,
            "role": attempt.role,
            "resource_type": ResourceType.IDENTITY.value,
            "resource_id": attempt.secret_id,
            "action": "authenticate",
            "authorized": False,
            "reason": attempt.reason,
            "context": context_of(None, attempts=attempts),
            "outcome": "denied",
        }
        with suppress(ImemError):
            await self._database.named("audit", row, deadline=deadline)
