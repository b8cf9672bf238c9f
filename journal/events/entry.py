"""What goes into the journal, and the receipt that comes back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum
from uuid import UUID


class Tier(IntEnum):
    """How soon an event must be visible in the graph."""

    SYSTEM_CRITICAL = 0
    CRITICAL = 1
    HIGH = 2
    NORMAL = 3


@dataclass(frozen=True, slots=True)
class GroupHash:
    """
    The content of one property group, as identity sees it.

    Attributes:
        name: ``core``, ``correction``, ``body``, ``turns``, ``props`` of a link, or a group of the kind.
        hash: SHA-256 of the canonical JSON of its value.
    """

    name: str
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """
    One line on its way into the journal; already validated.

    Attributes:
        kind: ``record.<Kind>``, ``correct.<Kind>`` or ``link.<TYPE>``.
        head_kind: under which kind its heads stand: ``<Kind>`` or ``link.<TYPE>``.
        key: the record's key, or the link's identity.
        payload: canonical JSON of what the graph stores.
        payload_hash: SHA-256 of it.
        groups: what identity compares, none twice.
        body: long text kept in Postgres only.
        turns: canonical JSON list of a debate's turns.
        occurred_at: when it was true in the world; by default when it was known.
        known_at: earliest moment it could be known; none means now. Only with the import right.
        analysis_id: the analysis it belongs to.
        subject_id: what it is about.
        metric, target_at: what a claim or an outcome speaks of.
        ref_hash: SHA-256 of the fields that a correction may not change.
        importance: fraction 0–1.
        tier: how soon it must be visible.
        traceparent, correlation_id: in which trace, and under which name the caller follows it, if it does.
        event_id: under which it was published, so that writing it once more writes nothing; a new one by default.
    """

    kind: str
    head_kind: str
    key: str
    payload: bytes
    payload_hash: bytes
    groups: tuple[GroupHash, ...]
    body: str | None = None
    turns: bytes | None = None
    occurred_at: datetime | None = None
    known_at: datetime | None = None
    analysis_id: str | None = None
    subject_id: str | None = None
    metric: str | None = None
    target_at: datetime | None = None
    ref_hash: bytes | None = None
    importance: float | None = None
    tier: Tier = Tier.NORMAL
    traceparent: str | None = None
    correlation_id: str | None = None
    event_id: UUID | None = None


class AppendStatus(StrEnum):
    """What the journal did with a line."""

    NEW = "new"
    CHANGED = "changed"
    IDENTICAL = "identical"
    CORE_CONFLICT = "core_conflict"
    NOTHING_TO_CORRECT = "nothing_to_correct"
    REFERENCE_CHANGED = "reference_changed"
    FUTURE = "future"
    PREMATURE = "premature"
    LATE_CLAIM = "late_claim"

    @property
    def refused(self) -> bool:
        """Whether nothing of the line was written, and nothing like it stands."""
        return self not in {AppendStatus.NEW, AppendStatus.CHANGED, AppendStatus.IDENTICAL}


@dataclass(frozen=True, slots=True)
class Receipt:
    """
    What the caller may rely on.

    Attributes:
        verdict: what was done.
        event_id, position: the event that holds the content; of the earlier one when identical; none when refused.
        recorded_at: when it was recorded.
        durable: whether it is committed.
        visible: whether the graph holds it; none when nobody waited to see.
    """

    verdict: AppendStatus
    event_id: UUID | None
    position: int | None
    recorded_at: datetime | None
    durable: bool
    visible: bool | None = None

    @property
    def state(self) -> str:
        """One word for people: ``visible``, ``durable``, ``durable_not_visible`` or ``rejected``."""
        if not self.durable:
            return "rejected"
        return {None: "durable", True: "visible", False: "durable_not_visible"}[self.visible]
