"""Memories in our own terms: an object with ``content``, and what :meth:`imem.memory.Memory.remember` takes beside."""

from __future__ import annotations

import hashlib
from typing import Final

from imem.ingest.memory_sources.entries import ImportedMemory, Record, mapping, moment, required, text
from imem.journal.errors import BadInput
from imem.recall.memories.model import NewMemory, memory_type_of

LISTS: Final = ("memories",)
"""Keys of an object under which a list of entries may stand."""

_FIELDS: Final = frozenset(
    {"id", "content", "memory_type", "metadata", "importance", "user_id", "conversation_id", "author", "namespace"}
) | {"created_at"}


def entry(record: Record) -> ImportedMemory:
    """
    Return the memory of an entry; without an ``id`` it is known by its text.

    Raises:
        BadInput: a field is missing, unknown or wrong.
    """
    if unknown := sorted(record.keys() - _FIELDS):
        raise BadInput(unknown[0], f"is unknown; there are {', '.join(sorted(_FIELDS))}.")
    content, importance = required(record, "content"), record.get("importance", 0.5)
    if not isinstance(importance, int | float) or isinstance(importance, bool):
        raise BadInput("importance", "must be a number from 0 to 1.")
    memory = NewMemory(
        content,
        memory_type_of(text(record, "memory_type") or "semantic"),
        mapping(record, "metadata"),
        importance,
        user_id=text(record, "user_id"),
        conversation_id=text(record, "conversation_id"),
        author=text(record, "author"),
        distinct=True,
    )
    known = text(record, "id") or hashlib.sha256(content.encode()).hexdigest()
    return ImportedMemory(known, memory, text(record, "namespace"), created_at=moment(record, "created_at"))
