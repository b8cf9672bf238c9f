"""
Memories of mem0: what ``get_all`` returns, a list or an object with ``results``.

``memory`` is the text (``text`` and ``data`` in older versions). The optional fields ``user_id`` or ``agent_id`` name
the owner; the others, such as ``categories``, ``run_id`` and ``hash``, stay in the metadata under ``mem0``.
"""

from __future__ import annotations

from typing import Final

from imem.ingest.memory_sources.entries import (
    ImportedMemory,
    Record,
    known_since,
    mapping,
    moment,
    required,
    rest,
    text,
)
from imem.recall.memories.model import NewMemory

LISTS: Final = ("results", "memories")
"""Keys of an object under which a list of entries may stand."""

_TEXTS: Final = ("memory", "text", "data")


def entry(record: Record) -> ImportedMemory:
    """
    Return the memory of an entry.

    Raises:
        BadInput: a field is missing or wrong.
    """
    user, known = text(record, "user_id"), required(record, "id")
    more = rest(record, *_TEXTS, "metadata", "created_at", "user_id", "score")
    memory = NewMemory(
        required(record, *_TEXTS),
        metadata={**mapping(record, "metadata"), "mem0": more},
        user_id=user,
        author=text(record, "actor_id"),
        distinct=True,
    )
    return ImportedMemory(
        known, memory, user=user, agent=text(record, "agent_id"), created_at=moment(record, "created_at"),
        known_at=known_since(record),
    )  # fmt: skip
