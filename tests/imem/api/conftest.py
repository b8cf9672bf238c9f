"""The application in this process, over a journal of its own, called as over the network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest_asyncio

from imem.api.app import make_app
from imem.api.server import Server
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.identity.tokens import NewToken, Tokens
from imem.journal.settings import Role
from imem.memory import Memory
from imem.services.operations import Caller
from imem.services.remote import NoStores, RemoteMemory
from tests.imem.ingest.conftest import LoadHarness, harness

__all__ = ["harness"]

ADMIN = Actor("root", Role.HUMAN_ADMIN)


async def new_token(server: Server, agent: str, role: Role = Role.AGENT, **options: Any) -> NewToken:
    """Create a token, as an admin."""
    return await tokens_of(server).create(agent, role, actor=ADMIN, deadline=Deadline.after_ms(10_000), **options)


def tokens_of(server: Server) -> Tokens:
    """Return the tokens of a server's journal."""
    return Tokens(server.stores.gateway, curators=server.stores.curating.database, verifier=server.verifier)


@dataclass(frozen=True)
class Face:
    """
    An application that answers calls.

    Attributes:
        harness: its journal.
        server: its parts.
        app: the application.
    """

    harness: LoadHarness
    server: Server
    app: Any

    async def token(self, agent: str, role: Role = Role.AGENT, **options: Any) -> str:
        """Create a token."""
        return (await new_token(self.server, agent, role, **options)).secret

    def client(self, token: str | None = None) -> httpx2.AsyncClient:
        """Return a client of the application."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url="http://face", headers=headers)

    @asynccontextmanager
    async def remote(self, token: str) -> AsyncIterator[Memory]:
        """Open a memory over the application, as a program elsewhere does."""
        given: Any = {"transport": httpx2.ASGITransport(self.app)}
        async with RemoteMemory.open("http://face", token, **given) as caller:
            called: Caller = caller
            stores: Any = NoStores()
            yield Memory(stores, remote=called)


@pytest_asyncio.fixture
async def face(harness: LoadHarness) -> AsyncIterator[Face]:
    # Answers have the time that a busy machine takes.
    async with Server.open(harness.settings.model_copy(update={"deadline_ms": 30_000})) as server:
        yield Face(harness, server, make_app(server))
