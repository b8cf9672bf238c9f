"""
The items that an agent publishes from its working memory: records and links, marked there until they are pushed.

An item gets its identity when it is published, and the journal's event has the same one: a second push, after a crash
or by another process, writes nothing more. The item is a line of the journal's format. The actor is not part of it: it
is always the owner of the memory, whichever process pushes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson
from uuid_utils.compat import uuid7

from imem.cache.working import changes
from imem.cache.working.changes import Change
from imem.journal.errors import BadInput, ConsistencyError, TooLarge
from imem.journal.events.entry import Tier
from imem.kg.load_format.entries import object_of
from imem.kg.load_format.lines import LINE_BYTES, Line, LinkLine, RecordLine, parse_line, record_of
from imem.kg.model import Kind, Turn

LONGEST_PUSH_RESULT: Final = 1_500
"""Characters of the stored reason of a refusal."""


@dataclass(frozen=True, slots=True)
class PublishedItem:
    """
    A published item.

    Attributes:
        id: its identity; sorts in the order of publishing.
        line: the record or link.
        tier: how soon it must be visible; None where its importance decides.
    """

    id: UUID
    line: RecordLine | LinkLine
    tier: Tier | None = None


@dataclass(frozen=True, slots=True)
class PushResult:
    """
    The result of pushing an item.

    Attributes:
        position: of the event that holds its content; None where it was refused.
        field, reason: of the refusal.
    """

    position: int | None
    field: str | None = None
    reason: str | None = None


def item_of(
    record: Kind | Line, *, body: str | None = None, turns: Sequence[Turn] = (), tier: Tier | None = None
) -> PublishedItem:
    """
    Return *record* as an item to be published.

    It is a model, or a line as :func:`imem.kg.load_format.lines.link_of` and its siblings return.

    Raises:
        BadInput: it is invalid, is a correction, or has its own ``known_at``: pushing has no right for those.
        TooLarge: it takes more than 1 MB.
    """
    line = record_of(record, body=body, turns=turns) if isinstance(record, Kind) else record
    if not isinstance(line, RecordLine | LinkLine):
        raise BadInput("item", "must be a record or a link; a correction is written by whoever may correct.")
    if line.known_at is not None:
        raise BadInput("known_at", "leave it out: a published item becomes known when it is pushed.")
    item = PublishedItem(uuid7(), line, tier)
    encoded(item)
    return item


def publication(item: PublishedItem) -> Change:
    """Return the change that publishes *item*, to be written alone or with others."""
    return changes.publish(item.id, encoded(item))


def encoded(item: PublishedItem) -> bytes:
    """
    Return *item* as it is stored.

    Raises:
        TooLarge: it takes more than 1 MB.
    """
    text = orjson.dumps({"line": object_of(item.line), "tier": None if item.tier is None else int(item.tier)})
    if len(text) > LINE_BYTES:
        raise TooLarge("item", f"takes {len(text):,} bytes; a payload may take {LINE_BYTES:,}.")
    return text


def decoded(item_id: bytes, text: bytes) -> PublishedItem:
    """
    Return the item stored under *item_id*.

    Raises:
        ConsistencyError: another program wrote it.
    """
    try:
        found = orjson.loads(text)
        line = parse_line(orjson.dumps(found["line"]), needs_known_at=False)
        tier = None if found["tier"] is None else Tier(found["tier"])
        name = UUID(item_id.decode("ascii"))
    except (ValueError, KeyError, TypeError, BadInput) as error:
        raise ConsistencyError(f"A published item is damaged: {item_id[:40]!r}.") from error
    if not isinstance(line, RecordLine | LinkLine) or line.known_at is not None:
        raise ConsistencyError(f"A published item has a field that none may have: {item_id[:40]!r}.")
    return PublishedItem(name, line, tier)


def encode_push_result(fate: PushResult) -> bytes:
    """Return a push result as it is stored."""
    reason = fate.reason[:LONGEST_PUSH_RESULT] if fate.reason is not None else None
    return orjson.dumps({"position": fate.position, "field": fate.field, "reason": reason})


def decode_push_result(text: bytes) -> PushResult:
    """
    Return the push result in *text*.

    Raises:
        ConsistencyError: another program wrote it.
    """
    try:
        return PushResult(**orjson.loads(text))
    except (ValueError, TypeError) as error:
        raise ConsistencyError("The record of a published item is damaged.") from error
