"""
The start of a process: it connects to the servers, and loads the encoder and SciPy, before its first answers.

No caller's deadline pays for that: a read's deadline begins when the process is connected to what the read needs. So a
first search finds by meaning as every later one does, and a first briefing is whole on a busy machine. All that comes
after keeps the deadline. A server that is away or silent holds up the first read alone, and by
:data:`CONNECTING_MS` at most; what it cannot answer the read then says itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Final

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.kg.similarity.sentence_models import Purpose

if TYPE_CHECKING:
    from imem.services.stores import Stores

CONNECTING_MS: Final = 5_000
"""Longest wait for a server to which the process was never connected, in milliseconds."""

LOADING_MS: Final = 30_000
"""Longest wait for the local encoder, in milliseconds; after that, searches go by words until it is loaded."""

AT_ONCE: Final = 4
"""Connections that are opened to each database: a briefing asks in parallel."""


class Part(StrEnum):
    """A server or model that a read may need."""

    POSTGRES = "Postgres"
    GRAPH = "Neo4j"
    CACHE = "Valkey"
    ENCODER = "encoder"
    SCORES = "SciPy"


class Connections:
    """
    The first connections of one process and one event loop.

    Args:
        stores: what to connect.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._attempts: dict[Part, asyncio.Task[None]] = {}
        self._loaded_before = False

    async def wait(self, *parts: Part) -> None:
        """
        Return when the process is connected to *parts*, or has tried to.

        Each part is tried once, for all callers together; errors are left to the calls that need it. A local encoder
        that was unloaded as nobody used it is loaded again.
        """
        tasks = [task for part in parts if (task := self._attempt(part)) is not None and not task.done()]
        if tasks:
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.result()  # A defect of ours is not left to the call.

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._attempts.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _attempt(self, part: Part) -> asyncio.Task[None] | None:
        task = self._attempts.get(part)
        if task is None or (part is Part.ENCODER and task.done() and self._unloaded()):
            task = self._attempts[part] = asyncio.get_running_loop().create_task(self._tried(part))
        return task

    async def _tried(self, part: Part) -> None:
        works: dict[Part, Callable[[Deadline], Awaitable[None]]] = {
            Part.POSTGRES: self._postgres,
            Part.GRAPH: self._graph,
            Part.CACHE: self._cache,
            Part.ENCODER: self._encoder,
            Part.SCORES: self._scores,
        }
        due = Deadline.after_ms(LOADING_MS if part is Part.ENCODER else CONNECTING_MS)
        try:
            async with asyncio.timeout(due.left_s()):
                await works[part](due)
        except (ImemError, TimeoutError):
            return  # The call that needs it says so.

    async def _postgres(self, due: Deadline) -> None:
        async def connect() -> None:
            async with self._stores.database.connection(due):
                return

        await asyncio.gather(*(connect() for _ in range(min(AT_ONCE, self._stores.settings.postgres_pool_size))))

    async def _graph(self, due: Deadline) -> None:
        graph = self._stores.graph
        await asyncio.gather(*(graph.connect(due) for _ in range(min(AT_ONCE, self._stores.settings.neo4j_pool_size))))

    async def _cache(self, due: Deadline) -> None:
        if (tiers := self._stores.tiers) is not None:
            clients = [one.client for one in (tiers.shared, tiers.changes) if one is not None]
            await asyncio.gather(*(client.connect(due) for client in clients))

    async def _encoder(self, due: Deadline) -> None:
        from imem.kg.similarity.embedders import LocalEmbedder  # noqa: PLC0415 - what makes vectors takes long to import

        embedder = self._stores.memories.encoder.embedder
        if isinstance(embedder, LocalEmbedder):
            await embedder.embed(["A first text."], deadline=due, purpose=Purpose.QUERY)
            self._loaded_before = True

    @staticmethod
    async def _scores(_due: Deadline) -> None:
        """Import what computes the intervals of scores: it takes half a second, for which no deadline pays."""
        await asyncio.to_thread(import_module, "scipy.special")

    def _unloaded(self) -> bool:
        """Whether a local encoder was loaded here and is no longer; one that could not be is not waited for again."""
        return self._loaded_before and not getattr(self._stores.memories.encoder.embedder, "loaded", True)
