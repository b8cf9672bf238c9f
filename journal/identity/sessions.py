"""People at a browser: links with which they sign in once, and their sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from imem.journal.actors import Action, Actor, Resource, ResourceType, checked_name
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, NotAuthenticated
from imem.journal.gateway import Gateway
from imem.journal.identity.curation import Curation
from imem.journal.identity.refusals import Attempt, RefusalLog
from imem.journal.identity.secret_values import digest_of, new_public_id, new_secret
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role

PEOPLES_ROLES: Final = frozenset({Role.HUMAN_ADMIN, Role.REVIEWER, Role.READER})
"""Roles of people."""

LINK_LASTS: Final = timedelta(minutes=15)
"""How long a link is valid."""

FIRST_LINK_LASTS: Final = timedelta(hours=24)
"""How long the first link of a new home is valid; no link is valid longer."""

MOST_LISTED: Final = 1_000
"""Sessions that a list shows."""


@dataclass(frozen=True, slots=True)
class SignInLink:
    """
    A link that begins one session.

    Attributes:
        secret: what the link carries; it cannot be read again.
    """

    person: str
    role: Role
    expires_at: datetime
    secret: str = field(repr=False)

    @property
    def path(self) -> str:
        """The path of the link, below the address of the web pages."""
        return f"/sign-in?link={self.secret}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """
    A session of a person.

    Attributes:
        session_id: names it to people; no secret.
        begun_by: ``link`` or ``oidc``.
        expires_at: 12 hours after the last use, and 7 days after its begin at most.
    """

    session_id: str
    person: str
    role: Role
    begun_by: str
    created_at: datetime
    expires_at: datetime

    @property
    def actor(self) -> Actor:
        """Who calls; a session carries no import right."""
        return Actor(self.person, self.role)


@dataclass(frozen=True, slots=True)
class NewSession:
    """
    A session that was just begun.

    Attributes:
        secret: the value of the cookie; it cannot be read again.
    """

    session: Session
    secret: str = field(repr=False)


class Sessions:
    """
    Sessions of people, and links to begin them.

    Sessions are looked up at every call, so that one that ended is refused at once by every process.

    Args:
        gateway: authorizes, and audits denials; its database may be under the application's login.
        curators: the journal under the curators' login; the gateway's database by default, as in a command.
    """

    def __init__(self, gateway: Gateway, *, curators: Database | None = None) -> None:
        self._gateway = gateway
        self._database = gateway.database
        self._curation = Curation(gateway, curators or gateway.database)
        self._refusals = RefusalLog(gateway.database)

    async def create_link(
        self,
        person: str,
        role: Role,
        *,
        lasts: timedelta = LINK_LASTS,
        actor: Actor | None = None,
        deadline: Deadline,
    ) -> SignInLink:
        """
        Create a link with which *person* signs in once.

        Args:
            person: 1 to 200 printable characters without a colon.
            lasts: how long it is valid; at most 24 hours.
            actor: who creates it; the process' own by default.

        Raises:
            BadInput: an argument is wrong; names it.
            PermissionDenied: *actor* is no admin, or the process is not logged in as a curator; one denial row was
                written.
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke while committing; create another.
        """
        _check_person(person, role)
        if not timedelta() < lasts <= FIRST_LINK_LASTS:
            raise BadInput("lasts", "must be above 0 and at most 24 hours.")
        secret = new_secret()
        values = {
            "hash": digest_of(secret),
            "person": person,
            "person_role": role.value,
            "lasts_s": lasts.total_seconds(),
        }
        (row,) = await self._curation.write("sign_in_link_create", values, about=person, actor=actor, deadline=deadline)
        return SignInLink(person, role, row["expires_at"], secret)

    async def begin(self, link_secret: str | None, *, deadline: Deadline) -> NewSession:
        """
        Begin the session of a link; of two calls with one link the second is refused.

        Raises:
            NotAuthenticated: it is no link, or it was used, withdrawn or is too old; one audit row was written, or
                counted.
            PostgresUnavailable, BudgetExceeded: the link was not used; retryable.
            OutcomeUnknown: the connection broke while committing: the link may be used up, and its person needs
                another.
        """
        session_id, secret = new_public_id(), new_secret()
        values = {
            "link_hash": digest_of(link_secret or ""),
            "session_id": session_id,
            "hash": digest_of(secret),
            "context": context_of(None),
        }
        rows = await self._database.commit("sign_in_link_use", values, deadline=deadline)
        row = await self._valid(rows, deadline)
        session = Session(
            session_id=session_id,
            person=row["person"],
            role=Role(row["role"]),
            begun_by="link",
            created_at=row["created_at"],
            expires_at=row["expires_at"],
        )
        return NewSession(session, secret)

    async def begin_verified(self, person: str, role: Role, *, deadline: Deadline) -> NewSession:
        """
        Begin a session of a person for whom an OpenID provider vouches: call it after its answer was verified.

        Raises:
            BadInput: *person* or *role* is not one of a person.
            PermissionDenied: the process is not logged in as a curator; one denial row was written.
        """
        _check_person(person, role)
        session_id, secret = new_public_id(), new_secret()
        values = {"session_id": session_id, "hash": digest_of(secret), "person": person, "person_role": role.value}
        (row,) = await self._curation.vouch(
            "session_begin", values, about=session_id, actor=Actor(person, role), deadline=deadline
        )
        session = Session(
            session_id=session_id,
            person=person,
            role=role,
            begun_by="oidc",
            created_at=row["created_at"],
            expires_at=row["expires_at"],
        )
        return NewSession(session, secret)

    async def session(self, secret: str | None, *, deadline: Deadline) -> Session:
        """
        Return the session with that secret; its end moves with its use, once a minute.

        Raises:
            NotAuthenticated: it is no session in force; one audit row was written, or counted.
            PostgresUnavailable, BudgetExceeded: it could not be looked up; retryable.
        """
        hashed = {"hash": digest_of(secret or "")}
        rows = await self._database.named("session_authenticate", hashed, deadline=deadline)
        return _session(await self._valid(rows, deadline))

    async def end(self, secret: str | None, *, everywhere: bool = False, deadline: Deadline) -> int:
        """
        End the session with that secret, or with *everywhere* all of its person; return how many.

        None where it is over already. *everywhere* also withdraws links of the person that were not used.
        """
        values = {"hash": digest_of(secret or ""), "everywhere": everywhere, "context": context_of(None)}
        (row,) = await self._database.commit("session_end", values, deadline=deadline)
        return int(row["ended"])

    async def list_sessions(self, *, actor: Actor | None = None, deadline: Deadline) -> list[Session]:
        """
        Return the sessions in force, the last used first; at most :data:`MOST_LISTED`.

        Raises:
            PermissionDenied: *actor* is no admin; one denial row was written.
            StatementRejected: the process is not logged in as a curator.
        """
        await self._gateway.authorize(
            Resource(ResourceType.IDENTITY), Action.READ, deadline=deadline, actor=actor or self._gateway.actor
        )
        rows = await self._curation.database.named("sessions_listed", {"limit": MOST_LISTED}, deadline=deadline)
        return [_session(row) for row in rows]

    async def revoke_all(self, person: str, *, actor: Actor | None = None, deadline: Deadline) -> int:
        """
        End all sessions of *person* and withdraw the links that were not used; return how many sessions.

        Raises:
            BadInput: *person* is no name.
            PermissionDenied: as :meth:`create_link`.
        """
        checked_name(person, "person")
        (row,) = await self._curation.write(
            "sessions_revoke", {"person": person}, about=person, actor=actor, deadline=deadline
        )
        return int(row["ended"])

    async def close(self) -> None:
        """Write the refused attempts that were only counted."""
        await self._refusals.close()

    async def _valid(self, rows: list[Row], deadline: Deadline) -> Row:
        """Return the one row if it is valid; note the attempt and raise otherwise."""
        row = rows[0] if rows else None
        if row is not None and row["state"] == "valid":
            return row
        attempt = Attempt() if row is None else Attempt(row["person"], row["role"], row.get("session_id"), row["state"])
        await self._refusals.note(attempt, deadline=deadline)
        raise NotAuthenticated


def _check_person(person: str, role: Role) -> None:
    checked_name(person, "person")
    if role not in PEOPLES_ROLES:
        raise BadInput("role", f"must be {', '.join(sorted(PEOPLES_ROLES))}, not {role}.")


def _session(row: Row) -> Session:
    return Session(
        session_id=row["session_id"],
        person=row["person"],
        role=Role(row["role"]),
        begun_by=row["begun_by"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )
