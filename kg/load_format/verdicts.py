"""
The rules by which a line is refused: one table, for parsing, for dry runs, and for the journal's refusals.

The journal decides again when it appends, by the same rules in SQL: it alone knows the moment, and what is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from imem.journal.errors import BadInput, CoreConflict
from imem.journal.events.entry import AppendStatus
from imem.kg.kinds.catalog import KINDS, PAST_DATES
from imem.kg.kinds.fields import shown

CLOCK_TOLERANCE: Final = timedelta(minutes=1)
"""By how much a date may lie in the future, since a caller's clock may be ahead; the same in SQL."""


class Rule(NamedTuple):
    """
    The reason of a refusal.

    Attributes:
        field: the offending field; ``{dated}`` is the one with the latest date.
        reason: what is wrong with it, of ``{kind}`` and ``{key}``.
        mend: what to do about it, likewise; may be empty.
        error: its class.
    """

    field: str
    reason: str
    mend: str = ""
    error: type[BadInput] = BadInput


RULES: Final[Mapping[AppendStatus, Rule]] = MappingProxyType(
    {
        AppendStatus.FUTURE: Rule("known_at", "lies in the future."),
        AppendStatus.PREMATURE: Rule(
            "known_at", "lies before target_at: nobody knew then what it would turn out to be."
        ),
        AppendStatus.LATE_CLAIM: Rule(
            "core.target_at",
            "is not after known_at: a claim made when its answer could be known is settled by nothing.",
            "Leave out metric and target_at to record it as a remark.",
        ),
        AppendStatus.NOTHING_TO_CORRECT: Rule("key", "nothing is recorded for {key} that could be corrected."),
        AppendStatus.REFERENCE_CHANGED: Rule(
            "core",
            "changes what links or scores of {key} hang on, which a correction may not.",
            "Record it under another key instead.",
        ),
        AppendStatus.NOT_BEGUN: Rule("{dated}", "lies in the future: nothing is recorded before it happens."),
        AppendStatus.NOT_CITABLE: Rule("to", "names no active pattern: no other may be cited."),
        AppendStatus.CORE_CONFLICT: Rule(
            "core",
            "is not the recorded core of {key}.",
            'If the recorded one is wrong, replace it with {{"correct": "{kind}", …}} and a reason.',
            CoreConflict,
        ),
    }
)
"""Every status that refuses, in the order in which they are tried."""


def refusal_by(status: AppendStatus, kind: str = "a link", key: str = "it", dated: str | None = None) -> BadInput:
    """Return the refusal of a line about *kind* and *key*; *dated* is its field with the latest date."""
    rule, names = RULES[status], {"kind": kind, "key": shown(key)}
    return rule.error(
        rule.field.format(dated=dated or "occurred_at"), rule.reason.format(**names), mend=rule.mend.format(**names)
    )


def latest_date(
    head_kind: str, members: Mapping[str, Any], occurred_at: datetime | None = None
) -> tuple[datetime, str] | None:
    """
    Return the latest time at which a line says that something happened, and its field; None without any.

    Args:
        head_kind: kind of its heads.
        members: ``core``, ``groups`` and ``props``, in canonical form.
        occurred_at: as stated.
    """
    found = [] if occurred_at is None else [(occurred_at, "occurred_at")]
    paths = PAST_DATES.get(head_kind, ())
    info = KINDS.get(head_kind)
    if info is not None and info.occurred is not None and not info.settles:
        # A kind of an extension may name its date in this way alone.
        paths = tuple(dict.fromkeys([*paths, ("core", info.occurred)]))
    for path in paths:
        value: Any = members
        for name in path:
            value = value.get(name) if value is not None else None
        if value is not None:
            found.append((datetime.fromisoformat(value), ".".join(path)))
    return max(found, default=None)


def verdict_by_target(
    kind: str, core: Mapping[str, Any] | None, known_at: datetime | None, *, corrects: bool = False
) -> AppendStatus | None:
    """
    Return the status by which a line is refused because of the target of its core; None if it is not.

    Args:
        kind: its kind.
        core: its canonical core, if it has one.
        known_at: as stated; without it the journal alone decides.
        corrects: whether the line corrects; a claim that was made in time may be corrected later.
    """
    if known_at is None or core is None or core.get("metric") is None or core.get("target_at") is None:
        return None
    target_at = datetime.fromisoformat(core["target_at"])
    if KINDS[kind].settles:
        return AppendStatus.PREMATURE if known_at < target_at else None
    return AppendStatus.LATE_CLAIM if known_at >= target_at and not corrects else None
