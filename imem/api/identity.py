"""Whose a call over the network is, and the memory that it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fastapi import Request

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.memory import Memory
from imem.services.operations import Operation

if TYPE_CHECKING:
    from imem.api.server import Server

AUTHENTICATION_MS: Final = 1_000
"""Budget of looking up whose a call is, in milliseconds."""

COOKIE: Final = "imem_session"
"""Cookie of a session of a person."""

_BEARER: Final = "bearer"


@dataclass(frozen=True, slots=True)
class Caller:
    """
    An authenticated call.

    Attributes:
        actor: who calls, of the token or session.
        memory: acts as that actor.
        server: the process.
    """

    actor: Actor
    memory: Memory
    server: Server


async def authenticate(server: Server, authorization: str | None) -> Actor:
    """
    Return whose the call with this ``Authorization`` header is.

    Raises:
        NotAuthenticated: it names no token in force.
    """
    scheme, _, token = (authorization or "").partition(" ")
    text = token.strip() if scheme.lower() == _BEARER else None
    return await server.verifier.actor(text, deadline=Deadline.after_ms(AUTHENTICATION_MS))


async def admit(request: Request, operation: Operation) -> Caller:
    """
    Return the caller of a request, which is counted.

    Raises:
        NotAuthenticated: it carries no token in force.
        TooManyRequests: its identity made too many calls.
    """
    server: Server = request.app.state.server
    actor = await authenticate(server, request.headers.get("authorization"))
    await server.limiter.admit(actor, writes=operation.right.writes, deadline=Deadline.after_ms(AUTHENTICATION_MS))
    return Caller(actor, server.memory_of(actor), server)
