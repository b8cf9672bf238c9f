"""
Locks on the writes of actors, held while a snapshot is taken.

A lock expires after :data:`LOCK_TTL` and is released once the snapshot is stored; a process that crashes in between
blocks the actors no longer than that. All participants are locked by one statement, in one order, or none is: two
debates never deadlock. Each lock has a new epoch, which the journal compares with every append (``imem_event_added``):
only the holder passes it. Other writers are refused, retryably, and so is a holder whose lock has expired.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import uuid4

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, LeaseHeld, LeaseLost, OutcomeUnknown
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.retry import retry
from imem.journal.statements import sql

LOCK_TTL: Final = timedelta(seconds=5)
"""Lifetime of a lock: longer than everything that is done under it."""

_RELEASE_MS: Final = 1_000
"""Timeout of a release, in milliseconds; a lock that was not released expires."""


@dataclass(frozen=True, slots=True)
class HeldLocks:
    """
    Locks that are held.

    Attributes:
        holder: a unique name.
        epochs: actor → the epoch under which its writes are locked.
    """

    holder: str
    epochs: Mapping[str, int]

    @property
    def actors(self) -> list[str]:
        """The locked actors, sorted."""
        return sorted(self.epochs)


class WriteLocks:
    """
    The locks on actors' writes.

    Args:
        database: the journal.
        lasts: lifetime of a lock.
    """

    def __init__(self, database: Database, lasts: timedelta = LOCK_TTL) -> None:
        self._database = database
        self._lasts = lasts

    async def acquire(self, actors: Collection[str], *, deadline: Deadline) -> HeldLocks:
        """
        Lock the writes of all *actors*; appends that began before are committed by then.

        Raises:
            LeaseHeld: another holder kept one of them until the deadline; retryable, nothing is locked.
            PostgresUnavailable, BudgetExceeded: nothing is locked, or it expires.
        """
        holder = f"snapshot-{uuid4().hex}"
        # After an unknown outcome the same holder may lock again.
        return await retry(
            lambda: self._try_to_acquire(actors, holder, deadline),
            deadline=deadline,
            errors=(LeaseHeld, OutcomeUnknown),
        )

    async def _try_to_acquire(self, actors: Collection[str], holder: str, deadline: Deadline) -> HeldLocks:
        asked = {"actors": sorted(set(actors)), "holder": holder, "lasts": self._lasts}
        rows = await self._database.commit("lock_writers", asked, deadline=deadline)
        for row in rows:
            if row["held_by"] is not None:
                raise LeaseHeld(
                    f"The writes of {row['actor']} are locked by another snapshot.",
                    mend="Repeat the call: a lock lasts 5 s at most.",
                )
        return HeldLocks(holder, {row["actor"]: row["epoch"] for row in rows})

    async def release(self, locked: HeldLocks) -> None:
        """Release the locks; on an error they expire."""
        with suppress(ImemError):
            asked = {"actors": locked.actors, "holder": locked.holder}
            await self._database.commit("unlock_writers", asked, deadline=Deadline.after_ms(_RELEASE_MS))

    @asynccontextmanager
    async def held(self, actors: Collection[str], *, deadline: Deadline) -> AsyncIterator[HeldLocks]:
        """Hold the locks while the block runs; raises as :meth:`acquire`."""
        locked = await self.acquire(actors, deadline=deadline)
        try:
            yield locked
        finally:
            await self.release(locked)


async def check(conn: Connection, locked: HeldLocks) -> None:
    """
    Fail unless the locks are held, in the transaction of *conn*.

    Raises:
        LeaseLost: one has expired, or another holder has it.
    """
    asked = {"actors": locked.actors, "holder": locked.holder}
    rows = await (await conn.execute(sql("locks_held"), asked)).fetchall()
    if {row["actor"]: row["lock_epoch"] for row in rows} != dict(locked.epochs):
        raise LeaseLost("A lock on the participants' writes ran out before the snapshot was taken; nothing was kept.")
