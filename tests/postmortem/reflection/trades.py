"""Closed trades, made for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from imem.postmortem.trades.model import CloseKind, Side, Trade, TradeStatus

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def closed(number: int, pnl: float | str, **other: Any) -> Trade:
    """Return a closed trade; the higher its number, the later."""
    entry = BEGIN + timedelta(hours=number)
    minutes = other.pop("holding_minutes", 30)
    values: dict[str, Any] = {
        "id": UUID(int=number + 1),
        "deployment_id": "d",
        "skill_id": "momentum",
        "skill_version": "1",
        "symbol": "BTC",
        "side": Side.LONG,
        "status": TradeStatus.CLOSED,
        "quantity": Decimal(0),
        "entry_tick_at": entry,
        "entry_price": Decimal(100),
        "entry_size_usd": Decimal(250),
        "entry_leverage": Decimal(1),
        "entry_reason": "",
        "exit_tick_at": entry + timedelta(minutes=minutes),
        "exit_price": Decimal(101),
        "exit_reason": "",
        "holding_minutes": minutes,
        "realized_pnl_usd": Decimal(str(pnl)),
        "remaining_size_usd": Decimal(0),
        "close_kind": CloseKind.CLOSE,
    }
    return Trade(**{**values, **other})


REASONS = ("breakout above range", "funding extreme", "mean reversion after liquidation cascade", "news headline", "")


def coin_flips(chance: Random) -> list[Trade]:
    """Return trades that win or lose their amount by the toss of a coin, whatever they are."""
    return [
        closed(
            number,
            chance.choice((-1, 1)) * round(chance.lognormvariate(3, 1), 2),
            symbol=chance.choice(("BTC", "ETH", "SOL", "DOGE", "XRP")),
            side=chance.choice(tuple(Side)),
            close_kind=chance.choice(tuple(CloseKind)),
            holding_minutes=chance.choice((5, 90, 3000, 20000)),
            entry_reason=chance.choice(REASONS),
        )
        for number in range(chance.randrange(1, 200))
    ]


def bullets(text: str) -> Sequence[str]:
    """Return the bullets of a note."""
    return [line for line in text.splitlines() if line.startswith("- ")]
