"""
The tier of each event: how soon it must be visible in the graph. Pure: no I/O, no clock.

Tiers 0 and 1 have a lane of their own in the applier. In the other lane tier 2 is applied before tier 3. A write whose
caller waits for visibility is of tier 1; otherwise the message type decides, for some types with a number in the
message.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from imem.journal.errors import BadInput
from imem.journal.events.entry import Tier

HIGH_ABOVE: Final = 0.70
"""Importance above which a finding is of tier 2; a fraction, 0–1."""

BROADCAST_ABOVE: Final = 0.80
"""Importance above which something is sent to every relevant agent; a fraction, 0–1."""

CONFIDENT_ABOVE: Final = 0.80
"""Confidence above which a change of regime is of tier 0; a fraction, 0–1."""

MAJOR_BASIS_POINTS: Final = 25
"""Change of rates from which a central bank's announcement is of tier 0, in basis points."""

AWAITED: Final = Tier.CRITICAL
"""Tier of a write whose caller waits until the graph holds it."""

_ROUNDING: Final = 1e-9
"""Tolerance of floats: 0.1 × 7 is not above 0.70."""


class MessageType(StrEnum):
    """Message types with a tier of their own; any other is normal."""

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
"""Message type → its tier, if the condition of :func:`tier_of_message` holds."""

_MESSAGES: Final[Mapping[str, MessageType]] = {
    "record.Finding": MessageType.FINDING,
    "link.IDENTIFIED_PATTERN": MessageType.PATTERN_MATCH,
}
"""Event kind → message type; every other kind is routine."""


def tier_of_message(
    message: str,
    *,
    importance: float | None = None,
    confidence: float | None = None,
    basis_points: float | None = None,
    policy_shift: bool = False,
) -> Tier:
    """
    Return the tier of a message; normal if the condition of its type does not hold or the type is unknown.

    Args:
        message: its type, of :class:`MessageType` or any other.
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
    Return the default tier of an event.

    Args:
        kind: ``record.<Kind>``, ``correct.<Kind>`` or ``link.<TYPE>``.
        importance: of a finding, a fraction 0–1.
        stated: whether it carries a ``known_at``: an import of history, which is not urgent.
        challenges: whether it opens a debate.
    """
    if stated:
        return tier_of_message(MessageType.BATCH)
    message = MessageType.DEBATE_OPENED if challenges else _MESSAGES.get(kind, MessageType.BATCH)
    return tier_of_message(message, importance=importance)


def broadcasts(importance: float | None) -> bool:
    """Return whether something of that importance is sent to every relevant agent."""
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
