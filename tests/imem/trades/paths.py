"""Random paths of prices and positions, and a broker that keeps its cash by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from imem.postmortem.trades.materialiser import step
from imem.postmortem.trades.model import (
    Bar,
    DecisionSnapshot,
    Position,
    Side,
    TickDecision,
    Trade,
    TradeStatus,
)

START = datetime(2025, 10, 1, 14, tzinfo=UTC)
SYMBOLS = ("AMD", "MU")


def amounts(least: str, most: str, places: int) -> st.SearchStrategy[Decimal]:
    return st.decimals(least, most, places=places, allow_nan=False, allow_infinity=False)


@dataclass(frozen=True)
class Move:
    """What happens to a symbol at a tick; target None: it is held as it was."""

    close: Decimal
    fill: Decimal | None
    spread: Decimal | None
    target: Decimal | None
    fee: Decimal
    liquidated: bool


MOVES = st.builds(
    Move,
    close=amounts("0.01", "900", 4),
    fill=st.none() | amounts("0.01", "900", 18),
    spread=st.none() | amounts("0", "0.009", 5),
    target=st.sampled_from([None, None, Decimal(0), Decimal(-3), Decimal(3)]) | amounts("-9", "9", 7),
    fee=st.just(Decimal(0)) | amounts("-1", "3", 5),
    liquidated=st.booleans(),
)
PATHS = st.lists(st.fixed_dictionaries(dict.fromkeys(SYMBOLS, MOVES)), min_size=2, max_size=12)

UNEVEN = [
    dict.fromkeys(SYMBOLS, Move(Decimal(price), None, None, Decimal(target), Decimal("0.1"), liquidated=False))
    for price, target in (
        ("1.000000000000000001", "1"), ("2", "3"), ("3", "2.0000001"), ("5", "1"), ("711.111111111111111111", "7"),
        ("3", "-1"), ("4", "-3"),
    )
]  # fmt: skip
"""Mean prices and parts of costs that no decimal has, and amounts of more digits than a context's 28."""


@dataclass(frozen=True)
class Tick:
    """The arguments of one tick."""

    at: datetime
    positions: list[Position]
    bars: dict[str, Bar]
    decision: TickDecision
    fees: dict[str, Decimal]


@dataclass
class Broker:
    """Keeps cash and signed quantities, and tells nobody how."""

    deployment: str = "desk-1"
    cash: Decimal = Decimal(0)
    held: dict[str, Decimal] = field(default_factory=dict)

    def ticks(self, path: Sequence[dict[str, Move]], *, ends: bool = True) -> list[Tick]:
        """Trade a path; at its end nothing is held, if *ends*."""
        last = [dict.fromkeys(SYMBOLS, Move(Decimal("7.77"), None, None, Decimal(0), Decimal(0), liquidated=False))]
        return [self._tick(nth, moves) for nth, moves in enumerate([*path, *(last if ends else [])])]

    def _tick(self, nth: int, moves: dict[str, Move]) -> Tick:
        at = START + timedelta(hours=nth)
        positions, bars, fees = [], {}, {}
        for symbol, move in moves.items():
            before = self.held.get(symbol, Decimal(0))
            after = before if move.target is None else move.target
            price = move.close if move.fill is None else move.fill
            fee = move.fee if before or after else Decimal(0)
            self.cash -= (after - before) * price + fee
            self.held[symbol] = after
            high = move.close + move.spread if move.spread is not None else None
            low = move.close - move.spread if move.spread is not None else None
            bars[symbol] = Bar(move.close, high, low, move.fill)
            fees[symbol] = fee
            if after or move.liquidated:
                side = Side.SHORT if after < 0 else Side.LONG
                positions.append(Position(symbol, side, abs(after), liquidated=move.liquidated))
        snapshot = DecisionSnapshot({"tick": nth}, {"buy": "…"}, "ok", nth, Decimal("0.001")) if nth % 2 else None
        decision = TickDecision(self.deployment, "momentum", "1.2", f"tick {nth}", {"MU": "mu\nof " * 90}, snapshot)
        return Tick(at, positions, bars, decision, fees)


def in_memory(ticks: Iterable[Tick]) -> dict[Any, Trade]:
    """Return the rows that a simulation keeps, by id."""
    rows: dict[Any, Trade] = {}
    for tick in ticks:
        prior = [trade for trade in rows.values() if trade.status is TradeStatus.OPEN]
        for change in step(prior, tick.positions, tick.bars, tick.decision, fees=tick.fees, at=tick.at):
            rows[change.trade.id] = change.trade
    return rows


def canonical(rows: Iterable[Trade]) -> bytes:
    return "\n".join(sorted(trade.canonical for trade in rows)).encode()
