"""Single-runner work: a lease in Postgres, with an epoch that fences off whoever was presumed dead."""

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
"""How long a lease lasts without renewal, in seconds."""

RENEW_S = 1.5
"""How often it is renewed, in seconds."""


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid_utils.uuid4()}"


@dataclass(slots=True)
class LeaderLease:
    """
    A claim to run the named work alone.

    A process that dies keeps the lease for at most :data:`LEASE_S`; whoever takes it then has a higher epoch, and
    statements of the dead one that arrive late change nothing.

    Attributes:
        database: where the lease is.
        name: of the work.
        epoch: of our holding, 0 before the first.
    """

    database: Database
    name: str
    epoch: int = 0
    holder: str = field(default_factory=_holder)

    @property
    def fence(self) -> dict[str, Any]:
        """Parameters by which a statement checks that the lease is still ours."""
        return {"name": self.name, "holder": self.holder, "epoch": self.epoch}

    async def take(self) -> bool:
        """
        Take or renew the lease; return whether we hold it.

        Raises:
            LeaseLost: we held it and somebody else has taken over meanwhile.
            PostgresUnavailable: nobody can say.
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
        Take the lease from whoever holds it.

        The other learns of it when it renews or marks its work, at most :data:`RENEW_S` later; what it still does
        must be harmless beside ours.

        Raises:
            PostgresUnavailable: nothing was taken.
        """
        rows = await self.database.named(
            "seize_lease",
            {"name": self.name, "holder": self.holder, "seconds": LEASE_S},
            deadline=Deadline.after_ms(LEASE_S * 400),
        )
        self.epoch = rows[0]["epoch"]

    def reset_holder(self) -> None:
        """Be somebody who never held it: what was done under a lease that was lost is none of ours any more."""
        self.holder, self.epoch = _holder(), 0

    async def drop(self) -> None:
        """Let it go, so that a standby need not wait; a server that cannot be told lets it lapse."""
        if self.epoch:
            with suppress(ImemError):
                await self.database.execute("drop_lease", self.fence, deadline=Deadline.after_ms(1000))
            self.epoch = 0

    async def renew_until_cancelled(self) -> None:
        """
        Renew until cancelled.

        Raises:
            LeaseLost: somebody else has taken over.
        """
        while True:
            heed_cancellation()
            await asyncio.sleep(RENEW_S)
            try:
                await self.take()
            except ImemError as error:
                if not error.retryable:
                    raise
                # Postgres is away: nobody else can take the lease either, and our marks will fail of themselves.
