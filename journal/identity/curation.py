"""Writes that say who may call: by an admin, under the curators' login."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import PermissionDenied, StatementRejected
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database


@dataclass(frozen=True, slots=True)
class Curation:
    """
    Writes of admins.

    Attributes:
        gateway: authorizes, and audits denials.
        database: the journal under the curators' login; the application's is refused by Postgres.
    """

    gateway: Gateway
    database: Database

    async def write(
        self, name: str, parameters: Mapping[str, Any], *, about: str, actor: Actor | None, deadline: Deadline
    ) -> list[Row]:
        """
        Run the named statement if *actor* may write identities; it writes its own audit row, about *about*.

        Raises:
            PermissionDenied: the role does not allow it, or the process is not logged in as a curator; one denial row
                was written.
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke while committing.
        """
        actor = actor or self.gateway.actor
        resource = Resource(ResourceType.IDENTITY, about)
        await self.gateway.authorize(resource, Action.WRITE, deadline=deadline, actor=actor)
        who = {"actor": actor.id, "role": actor.role.value}
        return await self.vouch(name, {**parameters, **who}, about=about, actor=actor, deadline=deadline)

    async def vouch(
        self, name: str, parameters: Mapping[str, Any], *, about: str, actor: Actor, deadline: Deadline
    ) -> list[Row]:
        """Run the named statement on the word of this process alone, as :meth:`write` does after its check."""
        values = {**parameters, "context": context_of(actor)}
        try:
            return await self.database.commit(name, values, deadline=deadline)
        except StatementRejected as error:
            if not isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                raise
            resource = Resource(ResourceType.IDENTITY, about)
            await self.gateway.audit_denial(resource, Action.WRITE, deadline=deadline, actor=actor)
            raise PermissionDenied(
                "Who may call is said under the curators' login of Postgres; nothing was written.",
                mend="Set IMEM_POSTGRES_CURATOR_URL.",
            ) from error
