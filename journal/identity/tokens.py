"""Tokens of programs: created, listed and revoked by admins."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from imem.journal.actors import Action, Actor, Resource, ResourceType, checked_name, may_hold_import
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.gateway import Gateway
from imem.journal.identity.curation import Curation
from imem.journal.identity.secret_values import TOKEN_PREFIX, digest_of, new_public_id, new_secret
from imem.journal.identity.verifier import Verifier
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role

DEFAULT_DAYS: Final = 90.0
"""How long a token is valid by default, in days."""

LONGEST_DAYS: Final = 730.0
"""How long it may be valid, in days."""

LONGEST_NAME: Final = 200
"""Characters of what a token is for."""

MOST_LISTED: Final = 1_000
"""Tokens that a list shows."""

_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """
    A token, without its secret.

    Attributes:
        token_id: names it to people; no secret.
        actor_id, role, may_import: the identity that it is bound to.
        name: what it is for.
        last_used_at: to a minute; None where it was never used.
    """

    token_id: str
    actor_id: str
    role: Role
    may_import: bool
    name: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    revoked_by: str | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """
    A token that was just created.

    Attributes:
        secret: what its holder sends; it cannot be read again.
    """

    token: Token
    secret: str = field(repr=False)


class Tokens:
    """
    Tokens, for admins.

    Args:
        gateway: authorizes, and audits denials.
        curators: the journal under the curators' login; the gateway's database by default, as in a command.
        verifier: of this process, if it has one: a token that is revoked here is refused here at once.
    """

    def __init__(self, gateway: Gateway, *, curators: Database | None = None, verifier: Verifier | None = None) -> None:
        self._gateway = gateway
        self._curation = Curation(gateway, curators or gateway.database)
        self._verifier = verifier

    async def create(
        self,
        agent: str,
        role: Role,
        *,
        name: str = "",
        days: float = DEFAULT_DAYS,
        may_import: bool = False,
        actor: Actor | None = None,
        deadline: Deadline,
    ) -> NewToken:
        """
        Create a token with which a program calls as *agent*.

        Args:
            agent: the actor's id, 1 to 200 printable characters without a colon.
            name: what the token is for, at most 200 printable characters.
            days: how long it is valid; at most 730.
            may_import: whether its holder may state a ``known_at``; not for agents, reviewers and readers.
            actor: who creates it; the process' own by default.

        Raises:
            BadInput: an argument is wrong; names it.
            PermissionDenied: *actor* is no admin, or the process is not logged in as a curator; one denial row was
                written.
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke while committing. There may be a token whose secret nobody knows; it
                is harmless, and create another.
        """
        checked_name(agent, "agent")
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise BadInput("name", f"is not at most {LONGEST_NAME} printable characters.")
        if not 0 < days <= LONGEST_DAYS:
            raise BadInput("days", f"must be above 0 and at most {LONGEST_DAYS:.0f}.")
        if may_import and not may_hold_import(role):
            raise BadInput("may_import", f"cannot be given to the role {role}.")
        token_id, secret = new_public_id(), new_secret(TOKEN_PREFIX)
        values = {
            "token_id": token_id,
            "hash": digest_of(secret),
            "actor_id": agent,
            "token_role": role.value,
            "may_import": may_import,
            "name": name,
            "lasts_s": days * _DAY_S,
        }
        (row,) = await self._curation.write("token_create", values, about=token_id, actor=actor, deadline=deadline)
        return NewToken(_token(row), secret)

    async def list_tokens(self, *, actor: Actor | None = None, deadline: Deadline) -> list[Token]:
        """
        Return the tokens, those in force first, then the newest first; at most :data:`MOST_LISTED`.

        Raises:
            PermissionDenied: *actor* is no admin; one denial row was written.
            StatementRejected: the process is not logged in as a curator.
        """
        await self._gateway.authorize(
            Resource(ResourceType.IDENTITY), Action.READ, deadline=deadline, actor=actor or self._gateway.actor
        )
        rows = await self._curation.database.named("tokens_listed", {"limit": MOST_LISTED}, deadline=deadline)
        return [_token(row) for row in rows]

    async def revoke(self, token_id: str, *, actor: Actor | None = None, deadline: Deadline) -> Token:
        """
        Revoke a token; one that is revoked stays as it is.

        It is refused here at once, and by other processes within :data:`~imem.journal.identity.verifier.KEPT_S`
        seconds.

        Raises:
            BadInput: there is no token of that id.
            PermissionDenied: as :meth:`create`.
            OutcomeUnknown: the connection broke while committing; repeat the call.
        """
        if not (0 < len(token_id) <= LONGEST_NAME and token_id.isprintable()):
            raise BadInput("token", "is no id of a token.")
        try:
            rows = await self._curation.write(
                "token_revoke", {"token_id": token_id}, about=token_id, actor=actor, deadline=deadline
            )
        finally:
            if self._verifier is not None:
                self._verifier.forget(token_id)
        if not rows:
            raise BadInput("token", f"there is no token {token_id!r}.", mend="`imem token list` lists them.")
        return _token(rows[0])


def _token(row: Row) -> Token:
    return Token(**{**row, "role": Role(row["role"])})
