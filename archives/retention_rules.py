"""Whether a file of data may be deleted, by the patterns that it supports. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from imem.archives.scoring import TIER_1, TIER_2
from imem.journal.clock import months_after, years_after
from imem.kg.kinds.enums import PatternStatus, StorageTier

WARM_YEARS, COLD_YEARS, KEPT_YEARS = 2, 5, 7

MONTHS_AFTER_END: Final = 18
"""Calendar months for which evidence is kept after its pattern was deprecated or rejected."""

GRACE_DAYS: Final = 30

CAP_PERCENT: Final = 5
"""Most of the cold files that a run may mark, in percent, unless a person approved more."""

IN_USE: Final = frozenset(
    {
        PatternStatus.CANDIDATE, PatternStatus.STATISTICALLY_VALIDATED, PatternStatus.HUMAN_APPROVED,
        PatternStatus.ACTIVE, PatternStatus.PROBATIONARY, PatternStatus.ACTIVE_FROM_ARCHIVE,
    }
)  # fmt: skip

ENDED: Final = frozenset(
    {
        PatternStatus.DEPRECATED, PatternStatus.REJECTED_HOLDOUT, PatternStatus.REJECTED_BLIND,
        PatternStatus.REJECTED_STATISTICAL, PatternStatus.REJECTED_GATE6, PatternStatus.REJECTED_PROBATION,
        PatternStatus.REJECTED_HUMAN_OVERRIDE, PatternStatus.REJECTED_INSUFFICIENT,
    }
)  # fmt: skip
"""Statuses after which files go in the end; one that is in neither set keeps them."""


class RetentionRule(StrEnum):
    """Rules about a file; all but ``deletable`` keep it."""

    PINNED = "pinned"
    TOO_YOUNG = "too_young"
    HELD = "held"
    UNDER_INVESTIGATION = "under_investigation"
    UNKNOWN_STATUS = "unknown_status"
    IN_USE = "in_use"
    ENDED_LATELY = "ended_lately"
    NO_ARCHIVE = "no_archive"
    DELETABLE = "deletable"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternState:
    """
    A pattern that a file supports, as far as retention needs it.

    Attributes:
        pattern_id: the pattern.
        status: its status; None if none is recorded, or no such one is known.
        since: since when it has the status.
        late: whether it ever was approved, active or on probation.
        investigated: whether an open post-mortem concerns it.
        tiers: the tiers of its archives that are complete, intact and without a gap.
    """

    pattern_id: str
    status: PatternStatus | None
    since: datetime | None
    late: bool
    investigated: bool
    tiers: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """
    Why a file is kept, or that it is not.

    Attributes:
        pattern_id: the pattern that the rule is about; None for one about the file.
        rule: the rule.
        until: until when it holds at least; None where that is not known.
    """

    pattern_id: str | None
    rule: RetentionRule
    until: datetime | None = None

    @property
    def keeps(self) -> bool:
        """Whether the file is kept by it."""
        return self.rule is not RetentionRule.DELETABLE


def label_of(created_at: datetime, now: datetime) -> StorageTier:
    """Return the label of a file by its age in calendar years."""
    if now >= years_after(created_at, COLD_YEARS):
        return StorageTier.COLD
    return StorageTier.WARM if now >= years_after(created_at, WARM_YEARS) else StorageTier.HOT


def rule_of(pattern: PatternState, now: datetime) -> Explanation:
    """Return what a pattern says of the files that support it."""

    def explained(rule: RetentionRule, until: datetime | None = None) -> Explanation:
        return Explanation(pattern_id=pattern.pattern_id, rule=rule, until=until)

    if pattern.investigated:
        return explained(RetentionRule.UNDER_INVESTIGATION)
    if pattern.status is None or pattern.since is None:
        return explained(RetentionRule.UNKNOWN_STATUS)
    if pattern.status in IN_USE:
        return explained(RetentionRule.IN_USE)
    if pattern.status not in ENDED:
        return explained(RetentionRule.UNKNOWN_STATUS)
    until = months_after(pattern.since, MONTHS_AFTER_END)
    if now < until:
        return explained(RetentionRule.ENDED_LATELY, until)
    enough = {TIER_2} if pattern.late else {TIER_1, TIER_2}
    if pattern.status is PatternStatus.DEPRECATED and not enough & pattern.tiers:
        return explained(RetentionRule.NO_ARCHIVE)
    return explained(RetentionRule.DELETABLE)


def explain_file(
    *, created_at: datetime, pinned: bool, held: bool, patterns: Iterable[PatternState], now: datetime
) -> list[Explanation]:
    """Return why a file is kept, the rules about the file itself first; it may go if none of them keeps it."""
    own = []
    kept_until = years_after(created_at, KEPT_YEARS)
    if pinned:
        own.append(Explanation(pattern_id=None, rule=RetentionRule.PINNED))
    if held:
        own.append(Explanation(pattern_id=None, rule=RetentionRule.HELD))
    if now < kept_until:
        own.append(Explanation(pattern_id=None, rule=RetentionRule.TOO_YOUNG, until=kept_until))
    return own + [rule_of(one, now) for one in patterns]


def exceeds_cap(proposed: int, cold: int) -> bool:
    """Return whether a run proposes more than the cap lets it mark."""
    return proposed * 100 > cold * CAP_PERCENT
