"""
Messages of a conversation, and where a thread may be cut for a summary. Pure.

A tool's result belongs to the nearest earlier call with its ``tool_call_id``. An assistant's message names its calls in
``metadata["tool_calls"]``, in the form of chat models (a list of objects with an ``id``), or a single one in its
``tool_call_id``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Self, cast, get_args

import uuid_utils

from imem.checkpoints.model import LONGEST_THREAD, UNSTORABLE, checked_text
from imem.journal.errors import BadInput, TooLarge
from imem.journal.postgres.connection import Row
from imem.journal.texts.json_text import exact_object_text, object_text, value_of

MessageRole = Literal["user", "assistant", "system", "tool"]

WINDOW: Final = 20
"""Messages of a window at most, without pinned ones."""

OLDEST: Final = 15
"""How many of the oldest messages become one summary, as far as tool calls allow."""

MOST_PINNED: Final = 20
"""Pinned messages of a thread at most."""

MOST_CALLS: Final = WINDOW - 2
"""Tool calls of one message at most: with its results and the last user message it fits into a window."""

CONTENT_BYTES: Final = 256 * 1024
"""Longest content, in bytes of UTF-8."""

METADATA_BYTES: Final = 64 * 1024
"""Largest metadata, in bytes of JSON."""

SUMMARY: Final = {"type": "summary"}
"""Metadata of a summary."""

PREFIX: Final = "[Previous conversation summary]: "
"""Prefix of a summary's text."""

_ID_CHARS: Final = 200
_AGENT = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """
    One message to be added.

    Attributes:
        role: ``user``, ``assistant``, ``system`` or ``tool``.
        content: its text, at most :data:`CONTENT_BYTES`; may be empty.
        id: names it within its thread, 1 to 200 characters; a message with an existing id is not added twice. New by
            default.
        agent_id: the agent instance that speaks, if any.
        tool_call_id: of a tool, the call that it answers; required there.
        metadata: JSON, at most :data:`METADATA_BYTES`; ``tool_calls`` of an assistant names its calls.
        pinned: whether it stays in every window; system messages only. By default, those before all other messages do.

    Raises:
        BadInput: a field is invalid; names it.
        TooLarge: the content or the metadata is too long.
    """

    role: MessageRole
    content: str
    id: str = field(default_factory=lambda: str(uuid_utils.uuid7()))
    agent_id: str | None = None
    tool_call_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    pinned: bool | None = None

    def __post_init__(self) -> None:
        if self.role not in get_args(MessageRole):
            raise BadInput("role", f"{self.role!r} is none of {', '.join(get_args(MessageRole))}.")
        checked_text("id", self.id, _ID_CHARS)
        _check_content(self.content)
        if self.agent_id is not None and not _AGENT.fullmatch(self.agent_id):
            raise BadInput("agent_id", "is 1 to 64 letters, digits, underscores and hyphens.")
        if self.tool_call_id is not None:
            checked_text("tool_call_id", self.tool_call_id, LONGEST_THREAD)
        elif self.role == "tool":
            raise BadInput("tool_call_id", "is missing: a tool's message names the call that it answers.")
        if self.pinned and self.role != "system":
            raise BadInput("pinned", "holds for system messages alone.")
        _check_metadata(self.metadata)
        _check_calls(self.role, self.metadata)
        # A private copy of what JSON will return.
        object.__setattr__(self, "metadata", value_of(object_text(self.metadata, "metadata")))

    @property
    def calls(self) -> frozenset[str]:
        """The tool calls that it makes, by id."""
        return calls_of(self.role, self.tool_call_id, self.metadata.get("tool_calls"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """
    A message as it is stored; see :class:`Message`.

    Attributes:
        seq: its number: messages are numbered from 1 without gaps; a summary has that of the first message that it
            replaces.
        depth: 0 for a message; for a summary, how many levels of summaries it holds.
        superseded_by: id of the summary that replaces it, if there is one.
        created_at: when it was stored.
    """

    id: str
    seq: int
    depth: int
    role: MessageRole
    content: str
    agent_id: str | None
    tool_call_id: str | None
    metadata: Mapping[str, Any]
    pinned: bool
    superseded_by: str | None
    created_at: datetime

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return the message of a row."""
        return cls(**{name: row[name] for name in cls.__slots__})

    @property
    def is_summary(self) -> bool:
        """Whether it is a summary."""
        return self.depth > 0

    @property
    def calls(self) -> frozenset[str]:
        """The tool calls that it makes, by id."""
        return calls_of(self.role, self.tool_call_id, self.metadata.get("tool_calls"))

    def to_chat(self) -> dict[str, Any]:
        """Return it as a message of a chat model."""
        chat: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.role == "tool":
            chat["tool_call_id"] = self.tool_call_id
        if self.role == "assistant" and self.metadata.get("tool_calls"):
            chat["tool_calls"] = self.metadata["tool_calls"]
        return chat


@dataclass(frozen=True, slots=True)
class MessageOutline:
    """A message without its text."""

    id: str
    role: str
    tool_call_id: str | None
    calls: frozenset[str]

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return the outline of a row."""
        calls = calls_of(row["role"], row["tool_call_id"], row["tool_calls"])
        return cls(row["id"], row["role"], row["tool_call_id"], calls)


ConversationTurn = Message | StoredMessage | MessageOutline
"""A message, as far as it decides where a thread may be cut: its role, its calls, and the call that it answers."""


def calls_of(role: str, tool_call_id: str | None, tool_calls: Any) -> frozenset[str]:
    """Return the ids of a message's calls; empty unless it is an assistant's."""
    if role != "assistant":
        return frozenset()
    found = {call["id"] for call in tool_calls or ()}
    return frozenset(found | ({tool_call_id} if tool_call_id else set()))


def answered(turns: Sequence[ConversationTurn]) -> list[int | None]:
    """Return for each turn the index of the call that it answers; None where it is no tool's or the call is missing."""
    latest: dict[str, int] = {}
    found: list[int | None] = []
    for index, turn in enumerate(turns):
        found.append(latest.get(turn.tool_call_id) if turn.role == "tool" and turn.tool_call_id is not None else None)
        # Some models reuse call ids: the nearest call before a result counts.
        latest.update(dict.fromkeys(turn.calls, index))
    return found


def cut(turns: Sequence[ConversationTurn], wanted: int = OLDEST) -> int:
    """
    Return how many of the oldest turns may become one summary: about *wanted*, 0 if none may.

    A call is never separated from its results, nor, where possible, from results that are still missing. A call that is
    never answered must not block summaries for ever.
    """
    found = list(answered(turns))
    for wait_for_results in (True, False):
        ends = _ends(turns, found, wait_for_results=wait_for_results)
        furthest = -1
        allowed = []
        for index, end in enumerate(ends):
            furthest = max(furthest, end)
            # A summary of one message would not be shorter, and the last message stays.
            if furthest <= index and 2 <= index + 1 < len(turns):
                allowed.append(index + 1)
        if allowed:
            return min(allowed, key=lambda count: (abs(count - wanted), count))
    return 0


def _ends(turns: Sequence[ConversationTurn], found: Sequence[int | None], *, wait_for_results: bool) -> list[int]:
    """Return for each turn the index of the last turn that must stay with it."""
    ends = list(range(len(turns)))
    open_calls = {index: set(turn.calls) for index, turn in enumerate(turns) if turn.calls}
    for index, call in enumerate(found):
        if call is not None:
            ends[call] = max(ends[call], index)
            open_calls[call].discard(cast("str", turns[index].tool_call_id))
    if wait_for_results:
        for index, calls in open_calls.items():
            if calls:
                ends[index] = len(turns)
    return ends


# Validation


def _check_content(content: str) -> None:
    if not isinstance(content, str):
        raise BadInput("content", "is a text.")
    if UNSTORABLE.search(content):
        raise BadInput("content", "must not hold NUL or half of a surrogate pair.")
    size = len(content.encode())
    if size > CONTENT_BYTES:
        raise TooLarge(
            "content", f"has {size:,} bytes; at most {CONTENT_BYTES:,} are kept.",
            mend="Keep the long text where it belongs and say here where that is.",
        )  # fmt: skip


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    if not isinstance(metadata, dict):
        raise BadInput("metadata", "is an object of JSON values.")
    size = len(exact_object_text(metadata, "metadata").encode())
    if size > METADATA_BYTES:
        raise TooLarge("metadata", f"has {size:,} bytes of JSON; at most {METADATA_BYTES:,} are kept.")


def _check_calls(role: str, metadata: Mapping[str, Any]) -> None:
    calls = metadata.get("tool_calls")
    if calls is None:
        return
    name = "metadata.tool_calls"
    if role != "assistant":
        raise BadInput(name, "are made by an assistant alone.")
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise BadInput(name, "is a list of objects.")
    if len(calls) > MOST_CALLS:
        raise BadInput(name, f"are at most {MOST_CALLS}: with results and a question they must fit into a window.")
    for call in calls:
        checked_text(f"{name}.id", call.get("id"), LONGEST_THREAD)
