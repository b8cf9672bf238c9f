"""
The facet ``memory.memories``, without ``await``.

Written by `make reference` from the operations of ``Memory``; changed there alone.
"""

from __future__ import annotations

from imem.blocking.twin import Twin, blocking
from imem.services.memories import Memories


class SyncMemories(Twin[Memories]):
    """The facet ``memory.memories``; see :class:`~imem.services.memories.Memories`."""

    search = blocking(Memories.search)
    relevant = blocking(Memories.relevant)
    prompt_section = blocking(Memories.prompt_section)
    record_decision = blocking(Memories.record_decision)
    record_outcome = blocking(Memories.record_outcome)
    history = blocking(Memories.history)
    get = blocking(Memories.get)
    supersede = blocking(Memories.supersede)
    retire = blocking(Memories.retire)
    delete = blocking(Memories.delete)
    delete_all = blocking(Memories.delete_all)
    store = blocking(Memories.store)
    extract = blocking(Memories.extract)
    list = blocking(Memories.list)
