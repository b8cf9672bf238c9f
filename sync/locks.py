"""
Locks on the writes of actors, for the moment in which a snapshot of what they said is taken.

A lock lasts :data:`LOCK_TTL` and is given up as soon as the snapshot stands; a process that dies in between holds
nobody up for longer. All participants are locked by one statement, in one order, or none is: no two debates ever wait
for one another. Each lock has a new epoch, which the journal compares with every append (``imem_event_added``): whoever
holds the lock bears it, everybody else is refused, retryably, and so is a holder that was taken for dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, LeaseHeld, LeaseLost, OutcomeUnknown
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.statements import sql

LOCK_TTL: Final = timedelta(seconds=5)
"""How long a lock lasts: longer than everything that is done under it."""

_RELEASE_MS: Final = 1_000
"""How long letting go may take, in milliseconds; a lock that could not be given up runs out."""

_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.1
"""Between two attempts while somebody else holds a lock, in seconds."""


@dataclass(frozen=True, slots=True)
class HeldLocks:
    """
    Locks that are held.

    Attributes:
        holder: a name that nobody else ever has.
        epochs: actor → the epoch under which its writes are locked.
    """

    holder: str
    epochs: Mapping[str, int]

    @property
    def actors(self) -> list[str]:
        """Who is locked."""
        return sorted(self.epochs)


class WriteLocks:
    """
    The locks on actors' writes.

    Args:
        database: the journal.
        lasts: how long a lock lasts.
    """

    def __init__(self, database: Database, lasts: timedelta = LOCK_TTL) -> None:
        self._database = database
        self._lasts = lasts

    async def acquire(self, actors: Collection[str], *, deadline: Deadline) -> HeldLocks:
        """
        Lock the writes of all *actors*; what they began to append before is committed then.

        Raises:
            LeaseHeld: somebody else held one of them until the deadline; retryable, nothing is locked.
            PostgresUnavailable, BudgetExceeded: nothing is locked, or runs out by itself.
        """
        holder, pause_s = f"snapshot-{uuid4().hex}", _FIRST_PAUSE_S
        while True:
            rows = await self._locked(actors, holder, deadline)
            held = [row for row in rows if row["held_by"] is not None]
            if not held:
                return HeldLocks(holder, {row["actor"]: row["epoch"] for row in rows})
            if deadline.left_s() <= pause_s:
                raise LeaseHeld(
                    f"The writes of {held[0]['actor']} are locked by another snapshot.",
                    mend="Repeat the call: a lock lasts 5 s at most.",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _locked(self, actors: Collection[str], holder: str, deadline: Deadline) -> list[dict[str, Any]]:
        asked = {"actors": sorted(set(actors)), "holder": holder, "lasts": self._lasts}
        try:
            return await self._database.commit("lock_writers", asked, deadline=deadline)
        except OutcomeUnknown:
            # Whether or not the locks were taken: the same holder may lock again.
            return await self._database.commit("lock_writers", asked, deadline=deadline)

    async def release(self, locked: HeldLocks) -> None:
        """Let go; a server that cannot be told lets the lock run out."""
        with suppress(ImemError):
            asked = {"actors": locked.actors, "holder": locked.holder}
            await self._database.commit("unlock_writers", asked, deadline=Deadline.after_ms(_RELEASE_MS))

    @asynccontextmanager
    async def held(self, actors: Collection[str], *, deadline: Deadline) -> AsyncIterator[HeldLocks]:
        """Lock while the block runs; raises as :meth:`acquire`."""
        locked = await self.acquire(actors, deadline=deadline)
        try:
            yield locked
        finally:
            await self.release(locked)


async def check(conn: Connection, locked: HeldLocks) -> None:
    """
    Refuse to go on without the locks, in the transaction of *conn*.

    Raises:
        LeaseLost: one ran out, or somebody else has it.
    """
    asked = {"actors": locked.actors, "holder": locked.holder}
    rows = await (await conn.execute(sql("locks_held"), asked)).fetchall()
    if {row["actor"]: row["lock_epoch"] for row in rows} != dict(locked.epochs):
        raise LeaseLost("A lock on the participants' writes ran out before the snapshot was taken; nothing was kept.")
