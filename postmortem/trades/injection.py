"""
Trades as text for a prompt: two sections in one format, the same bytes for the same trades.

A row takes about 30 tokens and those of its reason. Names and reasons are others' words: quoted, bounded, on one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import Final

from imem.journal.texts.prompt_text import WARNING, name, quoted, tokens
from imem.postmortem.trades.model import REASON_CHARS, Trade, TradeStatus

MOST: Final = 30
"""Most closed trades of one text, and most open ones."""

CLOSED: Final = "## Recent trades on this skill (closed)"
OPEN: Final = "## Open positions (memory view)"

_SYMBOL_CHARS: Final = 24
_CENT: Final = Decimal("0.01")
_TENTH: Final = Decimal("0.1")
_PRICE_DIGITS: Final = 6
_WIDE: Final = Context(prec=200)
"""The usual 28 digits do not hold the cents of the largest positions that a ledger takes."""


@dataclass(frozen=True, slots=True)
class HeldTrade:
    """A trade, and the last tick of its deployment, until which an open one was held."""

    trade: Trade
    last_tick_at: datetime


@dataclass(frozen=True, slots=True)
class RecentTrades:
    """
    The newest trades of a deployment or a skill, by entry, newest first.

    Attributes:
        closed, open: the trades; an open one is as it was at the last tick that changed it.
        text: both sections for a prompt; empty without trades.
        tokens: how many tokens the text takes, rather too high than too low.
        as_of: the moment for which they hold; None for now.
    """

    closed: tuple[Trade, ...]
    open: tuple[Trade, ...]
    text: str
    tokens: int
    as_of: datetime | None = None


def recent_trades(held: Sequence[HeldTrade], as_of: datetime | None = None) -> RecentTrades:
    """Return the trades as they are put into a prompt."""
    closed = [one for one in held if one.trade.status is TradeStatus.CLOSED]
    still = [one for one in held if one.trade.status is TradeStatus.OPEN]
    with localcontext(_WIDE):
        sections = ["\n".join([title, *map(_line, ones)]) for title, ones in ((CLOSED, closed), (OPEN, still)) if ones]
    text = "\n\n".join([WARNING, *sections]) + "\n" if sections else ""
    return RecentTrades(
        tuple(one.trade for one in closed), tuple(one.trade for one in still), text, tokens(text), as_of
    )


def _line(held: HeldTrade) -> str:
    trade = held.trade
    entry = f"{_minute(trade.entry_tick_at)} {trade.side} {name(trade.symbol, _SYMBOL_CHARS)}"
    size = f"${_rounded(trade.entry_size_usd, _CENT):,} at {_price(trade.entry_price)}"
    pnl = _result(trade.realized_pnl_usd, trade.entry_size_usd)
    if trade.exit_price is not None:
        minutes, reason = trade.holding_minutes or 0, trade.exit_reason or ""
        result = f"out {_price(trade.exit_price)} ({trade.close_kind}), {pnl}"
    else:
        minutes, reason = (held.last_tick_at - trade.entry_tick_at) // timedelta(minutes=1), trade.entry_reason
        result = f"${_rounded(trade.remaining_size_usd, _CENT):,} left, {pnl} realized"
    return f"- {entry} {size}, {result}, {minutes:,} min: {quoted(reason, REASON_CHARS)}"


def _minute(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


def _rounded(amount: Decimal, unit: Decimal) -> Decimal:
    return amount.quantize(unit, ROUND_HALF_EVEN)


def _result(pnl: Decimal, size: Decimal) -> str:
    """Return a result in dollars and percent of the position; a loss has its sign, however little of it is left."""
    sign = "-" if pnl < 0 else "+"
    earned = abs(pnl)
    return f"{sign}${_rounded(earned, _CENT):,} ({sign}{_rounded(earned / size * 100, _TENTH):,}%)"


def _price(price: Decimal) -> str:
    """Return a price in six significant digits, whole units at least."""
    unit = Decimal(1).scaleb(min(price.adjusted() - _PRICE_DIGITS + 1, 0))
    return f"{price.quantize(unit).normalize():,f}"
