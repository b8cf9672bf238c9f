"""
Memories of Zep: facts (edges of its graph) and messages of threads, lists of either or an object that holds one.

A fact keeps when it was valid, and its other fields, in the metadata under ``zep``. A message is one of a conversation,
its thread (``session_id`` in older versions), in the order of the file. A thread's own list, ``{messages, user_id}``,
says whose it is, but neither it nor its messages say which thread it is.
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
from imem.recall.memories.model import MemoryType, NewMemory

LISTS: Final = ("edges", "facts", "messages")
"""Keys of an object under which a list of entries may stand."""

CONVERSATIONS: Final = ("thread_id", "session_id")
"""Fields that name the conversation of a message, the first that counts first."""


def entry(record: Record) -> ImportedMemory:
    """
    Return the memory of a fact or a message.

    Raises:
        BadInput: a field is missing or wrong.
    """
    known, user = required(record, "uuid", "uuid_"), text(record, "user_id")
    if "fact" in record:
        memory = NewMemory(
            required(record, "fact"),
            metadata={
                **mapping(record, "attributes"),
                "zep": rest(record, "fact", "created_at", "user_id", "attributes"),
            },
            user_id=user,
            distinct=True,
        )
    else:
        memory = NewMemory(
            required(record, "content"),
            MemoryType.EPISODIC,
            {**mapping(record, "metadata"), "zep": rest(record, "content", "created_at", "user_id", "metadata")},
            user_id=user,
            conversation_id=next(filter(None, (text(record, name) for name in CONVERSATIONS)), None),
            author=text(record, "name") or text(record, "role"),
            distinct=True,
        )
    return ImportedMemory(
        known, memory, user=user, created_at=moment(record, "created_at"), known_at=known_since(record)
    )
