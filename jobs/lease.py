"""Leases in Postgres for single-runner work, with a fencing epoch."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import uuid_utils

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, LeaseLost
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.database import Database

LEASE_S = 5.0
"""Duration of a lease without renewal, in seconds."""

RENEW_S = 1.5
"""Interval between renewals, in seconds."""


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid_utils.uuid4()}"


@dataclass(slots=True)
class LeaderLease:
    """
    A lease that lets one process at a time run the named work.

    A process that dies keeps the lease for at most :data:`LEASE_S`. The next holder has a higher epoch, and late
    statements of the previous one change nothing, since they check the epoch.

    Attributes:
        database: where the lease is.
        name: of the work.
        epoch: of this holder's lease, 0 before the first.
        holder: host, process and a random id.
    """

    database: Database
    name: str
    epoch: int = 0
    holder: str = field(default_factory=_holder)

    @property
    def fence(self) -> dict[str, Any]:
        """Parameters by which a statement checks that this holder still has the lease."""
        return {"name": self.name, "holder": self.holder, "epoch": self.epoch}

    async def take(self) -> bool:
        """
        Acquire or renew the lease; return whether this holder has it.

        Raises:
            LeaseLost: this holder had it and another process has taken over.
            PostgresUnavailable: Postgres cannot be reached; whether the lease is held is unknown.
        """
        rows = await self.database.named(
            "take_lease",
            {"name": self.name, "holder": self.holder, "seconds": LEASE_S},
            deadline=Deadline.after_ms(LEASE_S * 400),
        )
        if not rows:
            if self.epoch:
                raise LeaseLost(f"Another process runs the {self.name} now.")
            return False
        if self.epoch and rows[0]["epoch"] != self.epoch:
            raise LeaseLost(f"Another process ran the {self.name} meanwhile.")
        self.epoch = rows[0]["epoch"]
        return True

    async def seize(self) -> None:
        """
        Take the lease from its present holder.

        That one notices when it renews or marks its work, at most :data:`RENEW_S` later; what it still does meanwhile
        must be harmless.

        Raises:
            PostgresUnavailable: the lease was not taken.
        """
        rows = await self.database.named(
            "seize_lease",
            {"name": self.name, "holder": self.holder, "seconds": LEASE_S},
            deadline=Deadline.after_ms(LEASE_S * 400),
        )
        self.epoch = rows[0]["epoch"]

    def reset_holder(self) -> None:
        """Become a new holder after the lease was lost, so that the old epoch is not taken for this one's."""
        self.holder, self.epoch = _holder(), 0

    async def drop(self) -> None:
        """Release the lease, so that a standby need not wait; if Postgres cannot be reached, it expires."""
        if self.epoch:
            with suppress(ImemError):
                await self.database.execute("drop_lease", self.fence, deadline=Deadline.after_ms(1000))
            self.epoch = 0

    async def renew_until_cancelled(self) -> None:
        """
        Renew until cancelled.

        Raises:
            LeaseLost: another process has taken over.
        """
        while True:
            heed_cancellation()
            await asyncio.sleep(RENEW_S)
            try:
                await self.take()
            except ImemError as error:
                if not error.retryable:
                    raise
                # Postgres is away: no other process can take the lease, and fenced statements fail anyway.
