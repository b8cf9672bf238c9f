"""
The part of a thread that a model is shown: pinned messages, the summary, the newest units, and the last question. Pure.

A unit is a message, or a call with all its results: chat models refuse a call whose results do not follow at once, and
a result without its call. So a result that came late stands behind its call, and a call without a result gets a marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID, uuid5

from imem.checkpoints.conversations.messages import WINDOW, StoredMessage, answered

UNANSWERED: Final = "[No result of this call was recorded.]"
"""Content of the marker that closes a call without a result."""

MARKER: Final = {"type": "unanswered"}
"""Metadata of such a marker."""

_MARKERS: Final = UUID("7c0f5f0a-2b0e-5d3c-8f43-5e8f0e6f6a57")
"""Namespace of the ids of markers."""


@dataclass(slots=True)
class Unit:
    """
    A message, or a call with its results.

    Attributes:
        head: the message, or the call.
        results: by call, the newest of each.
    """

    head: StoredMessage
    results: dict[str, StoredMessage] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many messages it is, with markers."""
        return 1 + len(self.head.calls)

    @property
    def newest(self) -> int:
        """Number of its newest message: a call whose result has just come is as new as that."""
        return max(self.head.seq, *(message.seq for message in self.results.values()), 0)

    def messages(self) -> list[StoredMessage]:
        """Return its messages: results in their order, then a marker for each call without one."""
        given = sorted(self.results.values(), key=lambda message: message.seq)
        missing = sorted(self.head.calls - self.results.keys())
        return [self.head, *given, *(_marker(self.head, call) for call in missing)]


def _marker(head: StoredMessage, call: str) -> StoredMessage:
    return replace(
        head,
        id=str(uuid5(_MARKERS, f"{head.id}\n{call}")),
        role="tool",
        content=UNANSWERED,
        agent_id=None,
        tool_call_id=call,
        metadata=MARKER,
    )


def units_of(messages: Sequence[StoredMessage]) -> list[Unit]:
    """Return the units of *messages*, which are in order; a result without its call is none."""
    units: dict[int, Unit] = {}
    for index, (message, call) in enumerate(zip(messages, answered(messages), strict=True)):
        if message.role != "tool":
            units[index] = Unit(message)
        elif call is not None and message.tool_call_id is not None:
            units[call].results[message.tool_call_id] = message
    return list(units.values())


def window_of(messages: Sequence[StoredMessage]) -> tuple[StoredMessage, ...]:
    """
    Return the window: the pinned ones of *messages*, and at most :data:`WINDOW` others.

    The last user message is always among these, then comes the newest unit, the summary, and older units as they fit.

    Args:
        messages: of a thread, in order: the pinned ones, a summary at most, the newest ones, all messages of their
            units, and the last user message.
    """
    others = [message for message in messages if not message.pinned]
    summaries = [Unit(message) for message in others if message.is_summary]
    units = units_of([message for message in others if not message.is_summary])
    asked = max((unit for unit in units if unit.head.role == "user"), key=lambda unit: unit.newest, default=None)
    units = sorted((unit for unit in units if unit is not asked), key=lambda unit: unit.newest, reverse=True)
    chosen = [asked] if asked is not None else []
    if units and (asked is None or units[0].newest > asked.newest):
        chosen.append(units.pop(0))
    chosen += _fitting([*summaries, *units], WINDOW - sum(unit.size for unit in chosen))
    shown = [*chosen, *(Unit(message) for message in messages if message.pinned)]
    # A summary has the number of the first message that it replaces, which may be shown beside it.
    shown.sort(key=lambda unit: (unit.head.seq, not unit.head.is_summary))
    return tuple(message for unit in shown for message in unit.messages())


def _fitting(units: Iterable[Unit], room: int) -> list[Unit]:
    """Return *units* up to the first one for which there is no room, so that nothing is left out in between."""
    kept: list[Unit] = []
    for unit in units:
        room -= unit.size
        if room < 0:
            break
        kept.append(unit)
    return kept
