"""Memories in our own terms: an object with ``content``, and what :meth:`imem.memory.Memory.remember` takes beside."""

from __future__ import annotations

import hashlib
import json
from typing import Final

from imem.ingest.memory_sources.entries import ImportedMemory, Record, mapping, moment, required, text
from imem.journal.errors import BadInput
from imem.recall.memories.model import NewMemory, memory_type_of

LISTS: Final = ("memories",)
"""Keys of an object under which a list of entries may stand."""

CONVERSATIONS: Final = ("conversation_id",)
"""Fields that name the conversation of a message, the first that counts first."""

_FIELDS: Final = frozenset(
    {"id", "content", "memory_type", "metadata", "importance", "user_id", "conversation_id", "author", "namespace"}
) | {"created_at", "occurred_at"}


def entry(record: Record) -> ImportedMemory:
    """
    Return the memory of an entry.

    Without an ``id`` it is known by all its fields, and a message also by its place among equal ones.

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
        occurred_at=moment(record, "occurred_at", said=True),
        distinct=True,
    )
    known, namespace, created_at = text(record, "id"), text(record, "namespace"), moment(record, "created_at")
    return ImportedMemory(
        known or hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest(),
        memory,
        namespace,
        created_at=created_at,
        known_at=created_at,
        numbered=not known and memory.conversation_id is not None,
    )
