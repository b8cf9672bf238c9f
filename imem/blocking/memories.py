"""Memories for programs without an event loop; apart from the rest, since what makes vectors imports much."""

from __future__ import annotations

from imem.blocking.twin import Twin, blocking
from imem.services.memories import Memories


class SyncMemories(Twin[Memories]):
    """The memories that the actor may read; for its methods see :class:`~imem.services.memories.Memories`."""

    search = blocking(Memories.search)
    history = blocking(Memories.history)
    supersede = blocking(Memories.supersede)
    store = blocking(Memories.store)
