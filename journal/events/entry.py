"""Entries of the journal, their tiers, and the receipts of writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

from imem.journal.events.canonical import canonical_json, content_hash


class Tier(IntEnum):
    """How soon an event must be visible in the graph."""

    SYSTEM_CRITICAL = 0
    CRITICAL = 1
    HIGH = 2
    NORMAL = 3


@dataclass(frozen=True, slots=True)
class GroupHash:
    """
    The hash of one property group, for the test of identity.

    Attributes:
        name: ``core``, ``correction``, ``body``, ``turns``, ``props`` of a link, or a group of the kind.
        hash: SHA-256 of the canonical JSON of its value.
    """

    name: str
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """
    One validated line, as it is appended to the journal.

    Attributes:
        kind: ``record.<Kind>``, ``correct.<Kind>`` or ``link.<TYPE>``.
        head_kind: kind of its heads: ``<Kind>`` or ``link.<TYPE>``.
        key: the record's key, or the link's identity.
        payload: canonical JSON of what the graph stores.
        payload_hash: SHA-256 of it.
        groups: hashes of its property groups, none twice.
        body: long text kept in Postgres only.
        turns: canonical JSON list of a debate's turns.
        occurred_at: when it was true in the world; by default when it was known.
        known_at: earliest moment it could be known; None means now. Only with the import right.
        analysis_id: the analysis it belongs to.
        subject_id: what it is about.
        metric, target_at: of a claim or an outcome.
        ref_hash: SHA-256 of the fields that a correction may not change.
        importance: fraction 0–1.
        tier: how soon it must be visible.
        traceparent, correlation_id: trace context and correlation id of the call, if any.
        event_id: the event's id if it was published before, which makes writing it again idempotent; else a new one.
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


def notice_entry(kind: str, key: str, group: str, payload: Mapping[str, Any]) -> JournalEntry:
    """
    Return the entry of a notice, which the graph does not hold; the same payload again is the same event.

    Args:
        group: name of the part of the record's head whose hash is that of *payload*.
    """
    digest = content_hash(payload)
    return JournalEntry(
        kind=kind, head_kind=kind, key=key, payload=canonical_json(payload), payload_hash=digest,
        groups=(GroupHash(group, digest),),
    )  # fmt: skip


class AppendStatus(StrEnum):
    """The result of an append for a line."""

    NEW = "new"
    CHANGED = "changed"
    IDENTICAL = "identical"
    CORE_CONFLICT = "core_conflict"
    NOTHING_TO_CORRECT = "nothing_to_correct"
    REFERENCE_CHANGED = "reference_changed"
    FUTURE = "future"
    PREMATURE = "premature"
    LATE_CLAIM = "late_claim"
    NOT_BEGUN = "not_begun"
    NOT_CITABLE = "not_citable"

    @property
    def refused(self) -> bool:
        """Whether nothing of the line was written, nor is recorded already."""
        return self not in {AppendStatus.NEW, AppendStatus.CHANGED, AppendStatus.IDENTICAL}


@dataclass(frozen=True, slots=True)
class Receipt:
    """
    The result of appending one line.

    Attributes:
        verdict: what was done.
        event_id, position: of the event that holds the content, the earlier one when identical; None when refused.
        recorded_at: when it was recorded.
        durable: whether it is committed.
        visible: whether the graph holds it; None when the caller did not wait.
    """

    verdict: AppendStatus
    event_id: UUID | None
    position: int | None
    recorded_at: datetime | None
    durable: bool
    visible: bool | None = None

    @property
    def state(self) -> str:
        """The state for display: ``visible``, ``durable``, ``durable_not_visible`` or ``rejected``."""
        if not self.durable:
            return "rejected"
        return {None: "durable", True: "visible", False: "durable_not_visible"}[self.visible]
