"""Memories for programs without an event loop; apart from the rest, since what makes vectors imports much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from imem.blocking.twin import Twin, blocking
from imem.services.memories import Memories

if TYPE_CHECKING:
    from imem.services.memory_store import SyncMemoryItems


class SyncMemories(Twin[Memories]):
    """The memories that the actor may read; for its methods see :class:`~imem.services.memories.Memories`."""

    search = blocking(Memories.search)
    relevant = blocking(Memories.relevant)
    prompt_section = blocking(Memories.prompt_section)
    record_decision = blocking(Memories.record_decision)
    record_outcome = blocking(Memories.record_outcome)
    history = blocking(Memories.history)
    list = blocking(Memories.list)
    get = blocking(Memories.get)
    supersede = blocking(Memories.supersede)
    retire = blocking(Memories.retire)
    delete = blocking(Memories.delete)
    delete_all = blocking(Memories.delete_all)
    store = blocking(Memories.store)
    extract = blocking(Memories.extract)

    def _items(
        self, root: str | None = None, fields: Sequence[str] | None = None, deadline_ms: float | None = None
    ) -> SyncMemoryItems:
        """Return the items of LangGraph's store; as those of Memories."""
        from imem.services.memory_store import SyncMemoryItems  # noqa: PLC0415 - LangGraph need not be installed

        items = self._inner._items(root, fields, deadline_ms)  # noqa: SLF001 - as its twin
        return SyncMemoryItems(self._caller, items)
