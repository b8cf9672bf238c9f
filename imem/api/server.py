"""What one process that serves many identities is made of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Self

from imem.cache.rate_limit import RateLimiter
from imem.journal.actors import Actor
from imem.journal.identity.sessions import Sessions
from imem.journal.identity.verifier import Verifier
from imem.journal.settings import Settings
from imem.memory import Memory
from imem.services.stores import Stores


@dataclass(frozen=True, slots=True)
class Server:
    """
    The parts that all calls share.

    Attributes:
        stores: of the process, under the application's login.
        verifier: tells whose a token is.
        sessions: of people.
        limiter: admits calls.
        memory: of the process' own actor; every other one shares its reader and its caches.
        curating: acts under the curators' login, for actors that may state more than their own facts; the same as
            *memory* where no such login is set.
    """

    stores: Stores
    verifier: Verifier
    sessions: Sessions
    limiter: RateLimiter
    memory: Memory
    curating: Memory

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings | None = None) -> AsyncIterator[Self]:
        """
        Open the stores that *settings* name, the environment's by default.

        Raises:
            SettingsError: a setting is wrong.
            StackError: a server is not named and no local stack runs.
        """
        async with Stores.open(settings, application=True) as stores, AsyncExitStack() as closing:
            verifier = Verifier(stores.database)
            closing.push_async_callback(verifier.close)
            memory = await closing.enter_async_context(Memory.over(stores))
            curators = stores.curating
            curating = memory
            if curators is not stores:
                curating = await closing.enter_async_context(Memory.over(curators))
            client = stores.agents.client("cache") if stores.settings.valkey_cache_url is not None else None
            limiter = RateLimiter(client, stores.settings.writes_per_minute, stores.settings.reads_per_minute)
            yield cls(stores, verifier, Sessions(stores.gateway, curators=curators.database), limiter, memory, curating)

    def memory_of(self, actor: Actor) -> Memory:
        """Return the memory that acts as *actor*, under the login that its rights need."""
        shared = self.curating if actor.states_for_others else self.memory
        return shared.of(actor)
