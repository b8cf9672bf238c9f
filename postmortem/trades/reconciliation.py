"""The ledger against the broker's fills: every difference, by tick and symbol."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from imem.postmortem.trades.model import ZERO, TickEntry, checked_amount, checked_name, utc

TOLERANCE: Final = Decimal("1e-9")
"""Differences up to it are none: a mean price of several fills was rounded."""


@dataclass(frozen=True, slots=True)
class Fill:
    """
    An order that the broker executed.

    Attributes:
        quantity: units bought, less than 0 for units sold; 0 for a fee alone.
        fees_usd: paid; less than 0 is received.
    """

    symbol: str
    at: datetime
    quantity: Decimal
    price: Decimal
    fees_usd: Decimal = ZERO

    def __post_init__(self) -> None:
        checked_name("symbol", self.symbol)
        utc(self.at)
        checked_amount("quantity", self.quantity)
        checked_amount("price", self.price, least=ZERO)
        checked_amount("fees_usd", self.fees_usd)


@dataclass(frozen=True, slots=True)
class RecordedTick:
    """A tick of the ledger, with what it changed."""

    at: datetime
    entries: tuple[TickEntry, ...]


@dataclass(frozen=True, slots=True)
class LedgerDifference:
    """
    A difference between ledger and broker.

    Attributes:
        symbol: of what.
        tick_at: the tick, which covers the time since the one before; None for fills after the last one.
        quantity, cash_usd, fees_usd: the broker's less the ledger's: units bought, cash that came in before fees, fees.
    """

    symbol: str
    tick_at: datetime | None
    quantity: Decimal
    cash_usd: Decimal
    fees_usd: Decimal


def reconcile(ticks: Sequence[RecordedTick], fills: Iterable[Fill]) -> list[LedgerDifference]:
    """
    Return every difference between what *ticks*, in order, say was executed, and *fills*; by tick and symbol.

    What was bought and sold again between two ticks is one: the ledger sees positions at ticks alone.
    """
    moments = [tick.at for tick in ticks]
    found: defaultdict[tuple[int, str], list[Decimal]] = defaultdict(lambda: [ZERO, ZERO, ZERO])

    def add(place: tuple[int, str], sign: int, quantity: Decimal, price: Decimal, fees: Decimal) -> None:
        for nth, amount in enumerate((quantity, -quantity * price, fees)):
            found[place][nth] += sign * amount

    for nth, tick in enumerate(ticks):
        for entry in tick.entries:
            add((nth, entry.symbol), -1, entry.signed_quantity, entry.price, entry.fees_usd)
    for fill in fills:
        add((bisect_left(moments, fill.at), fill.symbol), 1, fill.quantity, fill.price, fill.fees_usd)
    return [
        LedgerDifference(symbol, moments[nth] if nth < len(moments) else None, *amounts)
        for (nth, symbol), amounts in sorted(found.items())
        if any(abs(amount) > TOLERANCE for amount in amounts)
    ]
