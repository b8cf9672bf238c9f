"""The check of tokens: whose call it is, from the secret that came with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cachetools import TLRUCache

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import NotAuthenticated
from imem.journal.identity.refusals import Attempt, RefusalLog
from imem.journal.identity.secret_values import digest_of
from imem.journal.postgres.database import Database
from imem.journal.settings import Role

KEPT_S: Final = 30.0
"""How long an identity is kept, in seconds: after that, a token that another process revoked is refused here too."""

MOST_KEPT: Final = 10_000
"""Identities that a process keeps; the least recently used gives way."""


@dataclass(frozen=True, slots=True)
class _Identity:
    token_id: str
    actor: Actor
    left_s: float


class Verifier:
    """
    Tells whose a token is; one serves all calls of a process.

    Unknown, expired, revoked, malformed and missing tokens are refused alike: each is hashed and looked up once, and
    the error is the same. Refusals are not kept, so that a new token counts at once.

    Args:
        database: the journal, under the application's login.
        clock: monotonic time in seconds.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._refusals = RefusalLog(database, clock=clock)
        self._kept: TLRUCache[bytes, _Identity] = TLRUCache(
            MOST_KEPT, ttu=lambda _, identity, now: now + min(KEPT_S, identity.left_s), timer=clock
        )
        self._revocations = 0

    async def actor(self, token_text: str | None, *, deadline: Deadline) -> Actor:
        """
        Return the actor that *token_text* is bound to.

        Args:
            token_text: as it was presented, of any length and content; None where there was none.

        Raises:
            NotAuthenticated: it is no token in force; one audit row was written, or counted (see
                :class:`~imem.journal.identity.refusals.RefusalLog`).
            PostgresUnavailable, BudgetExceeded: it could not be looked up; retryable.
        """
        digest = digest_of(token_text or "")
        kept = self._kept.get(digest)
        if kept is not None:
            return kept.actor
        before = self._revocations
        rows = await self._database.named("token_authenticate", {"hash": digest}, deadline=deadline)
        row = rows[0] if rows else None
        if row is None or row["state"] != "valid":
            attempt = Attempt() if row is None else Attempt(row["actor_id"], row["role"], row["token_id"], row["state"])
            await self._refusals.note(attempt, deadline=deadline)
            raise NotAuthenticated
        actor = Actor(row["actor_id"], Role(row["role"]), row["may_import"])
        # A token that was revoked while this call looked it up is not kept.
        if self._revocations == before:
            self._kept[digest] = _Identity(row["token_id"], actor, row["left_s"])
        return actor

    def forget(self, token_id: str) -> None:
        """Look the token up again at its next call; whoever revokes one calls it, in this process."""
        self._revocations += 1
        for digest in [digest for digest, kept in self._kept.items() if kept.token_id == token_id]:
            self._kept.pop(digest, None)

    async def close(self) -> None:
        """Write the refused attempts that were only counted."""
        await self._refusals.close()
