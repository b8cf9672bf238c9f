"""
The makers of a note of closed trades: statistics alone, or a language model beside them.

A note's text is a first line about all trades, then one line for each bullet, which begins with ``- Repeat:`` or
``- Avoid:``. It is data: callers that show it quote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Protocol

from imem.journal.deadline import Deadline
from imem.postmortem.reflection.groups import TradeGroup, distinguishable, groups_of
from imem.postmortem.trades.model import Trade

LESSONS_CHARS: Final = 2000
"""Longest text of a note, in characters."""

REPEAT: Final = "Repeat"
AVOID: Final = "Avoid"

BY_STATISTICS: Final = "statistics"
"""``model_used`` of notes that no language model had a part in."""

NOTHING: Final = "Nothing is distinguishable from chance."


@dataclass(frozen=True, slots=True)
class Lessons:
    """
    The result of a distiller.

    Attributes:
        text: at most :data:`LESSONS_CHARS`.
        model_used: the language model, or :data:`BY_STATISTICS`.
        input_tokens, output_tokens: of the language model; None where its endpoint does not say.
        cost_usd: of asking it; None where it is not known.
    """

    text: str
    model_used: str = BY_STATISTICS
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cost_usd: Decimal | None = Decimal(0)


class Distiller(Protocol):
    """Makes lessons of closed trades."""

    async def distil(self, trades: Sequence[Trade], avoid: Sequence[str], *, deadline: Deadline) -> Lessons:
        """
        Return what *trades* say, outside any transaction.

        Args:
            trades: at least one, oldest first.
            avoid: what the strategy forbids.
            deadline: when the lessons are due.

        Raises:
            ImemError: none could be made.
        """


class StatisticalDistiller:
    """
    States the groups of trades that differ from chance, without a model and deterministically.

    Args:
        remark: stands at the end of each note.
    """

    def __init__(self, remark: str | None = None) -> None:
        self._remarks = () if remark is None else (remark,)

    async def distil(self, trades: Sequence[Trade], avoid: Sequence[str], *, deadline: Deadline) -> Lessons:  # noqa: ARG002 - as the protocol has it
        """Return the statistics of *trades*; see :class:`Distiller`."""
        return statistics_of(trades, *self._remarks)


def statistics_of(trades: Sequence[Trade], *remarks: str) -> Lessons:
    """Return the lessons of *trades*, with *remarks* on how they were made at the end."""
    found = distinguishable(groups_of(trades))
    return Lessons(joined([summary(trades, found)], [_bullet(group) for group in found], remarks))


def summary(trades: Sequence[Trade], found: Sequence[TradeGroup]) -> str:
    """Return a note's first line: the statistics of all trades, and whether any group differs from chance."""
    every = TradeGroup("", tuple(trade.realized_pnl_usd for trade in trades))
    return f"All closed trades: {every.text}.{'' if found else f' {NOTHING}'}"


def _bullet(group: TradeGroup) -> str:
    return f"- {REPEAT if group.total > 0 else AVOID}: {group.name}: {group.text}."


def joined(first: Sequence[str], bullets: Sequence[str], last: Sequence[str] = ()) -> str:
    """Return lines as a text of at most :data:`LESSONS_CHARS`; bullets that do not fit are counted."""
    kept = list(bullets)
    while True:
        left_out = [f"{len(bullets) - len(kept)} more are left out."] if len(kept) < len(bullets) else []
        text = "\n".join([*first, *kept, *left_out, *last])
        if len(text) <= LESSONS_CHARS or not kept:
            return text[:LESSONS_CHARS]
        kept.pop()
