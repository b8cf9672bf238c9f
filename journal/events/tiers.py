"""
How soon what is said must be visible in the graph: the one place where a tier is decided. Pure: no I/O, no clock.

Tiers 0 and 1 are waited for and have a lane of their own; tier 2 goes ahead of tier 3 in the other one. What somebody
waits for is critical whatever it says; otherwise the sort of message decides, and for some of them a number in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from imem.journal.errors import BadInput
from imem.journal.events.entry import Tier

HIGH_ABOVE: Final = 0.70
"""A finding of greater importance is of tier 2; a fraction, 0–1."""

BROADCAST_ABOVE: Final = 0.80
"""What is of greater importance goes to every relevant agent; a fraction, 0–1."""

CONFIDENT_ABOVE: Final = 0.80
"""A change of regime is of tier 0 when its confidence is greater; a fraction, 0–1."""

MAJOR_BASIS_POINTS: Final = 25
"""A central bank's announcement is of tier 0 when rates move by so much, in basis points."""

AWAITED: Final = Tier.CRITICAL
"""The tier of a write whose caller waits until the graph holds it."""

_ROUNDING: Final = 1e-9
"""Importance is what somebody typed: 0.1 × 7 is no more than 0.70."""


class MessageType(StrEnum):
    """The sorts of messages that have a tier of their own; any other is normal."""

    REGIME_CHANGE = "regime_change"
    FED_ANNOUNCEMENT = "fed_announcement"
    GLOBAL_STOP = "global_stop"
    PANIC_BUTTON = "panic_button"
    DEBATE_OPENED = "debate_opened"
    CHALLENGE = "challenge"
    GATE_APPROACHING = "gate_approaching"
    HUMAN_REQUEST = "human_request"
    ALERT = "alert"
    CONFIRMATION = "confirmation"
    FINDING_WITH_PRECEDENT = "finding_with_precedent"
    PATTERN_MATCH = "pattern_match"
    FINDING = "finding"
    REQUEST = "request"
    BATCH = "batch"
    MACRO_BREACH = "macro_breach"


TIERS: Final[Mapping[MessageType, Tier]] = {
    MessageType.REGIME_CHANGE: Tier.SYSTEM_CRITICAL,
    MessageType.FED_ANNOUNCEMENT: Tier.SYSTEM_CRITICAL,
    MessageType.GLOBAL_STOP: Tier.SYSTEM_CRITICAL,
    MessageType.PANIC_BUTTON: Tier.SYSTEM_CRITICAL,
    MessageType.DEBATE_OPENED: Tier.CRITICAL,
    MessageType.CHALLENGE: Tier.CRITICAL,
    MessageType.GATE_APPROACHING: Tier.CRITICAL,
    MessageType.HUMAN_REQUEST: Tier.CRITICAL,
    MessageType.ALERT: Tier.HIGH,
    MessageType.CONFIRMATION: Tier.HIGH,
    MessageType.FINDING_WITH_PRECEDENT: Tier.HIGH,
    MessageType.PATTERN_MATCH: Tier.HIGH,
    MessageType.FINDING: Tier.NORMAL,
    MessageType.REQUEST: Tier.NORMAL,
    MessageType.BATCH: Tier.NORMAL,
    MessageType.MACRO_BREACH: Tier.NORMAL,
}
"""Sort of message → its tier, if it is as grave as that tier asks for (:func:`tier_of_message`)."""

_MESSAGES: Final[Mapping[str, MessageType]] = {
    "record.Finding": MessageType.FINDING,
    "link.IDENTIFIED_PATTERN": MessageType.PATTERN_MATCH,
}
"""Kind of event → what its statement is, as a message; every other kind is routine."""


def tier_of_message(
    message: str,
    *,
    importance: float | None = None,
    confidence: float | None = None,
    basis_points: float | None = None,
    policy_shift: bool = False,
) -> Tier:
    """
    Return the tier of a message; what misses the condition of its tier is normal, as an unknown sort is.

    Args:
        message: its sort, one of :class:`MessageType` or anything.
        importance: of a finding, a fraction 0–1.
        confidence: that the regime has changed, a fraction 0–1.
        basis_points: by how much rates move, in either direction.
        policy_shift: whether a central bank begins or ends buying or selling assets.
    """
    if message not in TIERS:
        return Tier.NORMAL
    sort = MessageType(message)
    if sort is MessageType.FINDING:
        return Tier.HIGH if _above(importance, HIGH_ABOVE) else Tier.NORMAL
    if sort is MessageType.REGIME_CHANGE and not _above(confidence, CONFIDENT_ABOVE):
        return Tier.NORMAL
    if sort is MessageType.FED_ANNOUNCEMENT and not (policy_shift or abs(basis_points or 0.0) >= MAJOR_BASIS_POINTS):
        return Tier.NORMAL
    return TIERS[sort]


def tier_of_event(
    kind: str, *, importance: float | None = None, stated: bool = False, challenges: bool = False
) -> Tier:
    """
    Return the tier of an event that nobody chose one for.

    Args:
        kind: ``record.<Kind>``, ``correct.<Kind>`` or ``link.<TYPE>``.
        importance: of a finding, a fraction 0–1.
        stated: whether it says when it was known: an import tells history, which is in no hurry.
        challenges: whether it opens a debate.
    """
    if stated:
        return tier_of_message(MessageType.BATCH)
    message = MessageType.DEBATE_OPENED if challenges else _MESSAGES.get(kind, MessageType.BATCH)
    return tier_of_message(message, importance=importance)


def broadcasts(importance: float | None) -> bool:
    """Return whether something of that importance goes to every relevant agent."""
    return _above(importance, BROADCAST_ABOVE)


def tier_named(name: object, field: str = "tier") -> Tier:
    """
    Return the tier of a name such as ``critical``, or of a number.

    Raises:
        BadInput: there is no such tier; names *field*.
    """
    for tier in Tier:
        if str(name).strip().lower() in {tier.name.lower(), str(int(tier))}:
            return tier
    known = ", ".join(f"{int(tier)} ({tier.name.lower()})" for tier in Tier)
    raise BadInput(field, f"{str(name)[:40]!r} is no tier.", mend=f"Tiers are {known}.")


def _above(value: float | None, bound: float) -> bool:
    return value is not None and value > bound + _ROUNDING
