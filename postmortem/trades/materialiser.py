"""
The changes of the ledger by a tick: a pure function of positions, prices and fees, the same for a simulation and live.

Profit of what is left is quantity × exit - cost (for a short position the reverse), less the fees of the tick; that is
size × (exit - entry) / entry × (+1 long, -1 short) - fees. A mean entry price weighs entries by quantity: by dollars,
the sum would not be the cash that moved. The cost of a part is rounded, and the rest keeps what that leaves. Fees count
as realized when they are paid; those of a flip are split by quantity, of which the opened row takes the rest.

A bar tells what the position held *before* the tick went through; what the tick bought was not held at its high.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Context, Decimal, Inexact, localcontext
from typing import Final

from imem.journal.errors import BadInput
from imem.journal.events.ids import id_of
from imem.postmortem.trades.model import (
    MEAN_DIGITS,
    ZERO,
    Bar,
    ChangeKind,
    CloseKind,
    PartialExit,
    Position,
    TickDecision,
    Trade,
    TradeChange,
    TradeStatus,
    checked_amount,
    json_of,
    plain_value,
    utc,
)

_EXACT: Final = Context(prec=200, traps=[Inexact])
"""More digits than amounts within their bounds have; that something is rounded all the same is an error."""

_MEAN: Final = Context(prec=MEAN_DIGITS)


def step(
    prior: Sequence[Trade],
    current: Iterable[Position],
    bars: Mapping[str, Bar],
    decision: TickDecision,
    *,
    fees: Mapping[str, Decimal],
    at: datetime,
) -> list[TradeChange]:
    """
    Return what a tick changes, by symbol; a symbol that stays as it was, without a new extreme, changes nothing.

    Args:
        prior: the open trades, and the last closed ones of symbols that have fees and no position.
        current: the broker's positions after the tick, one a symbol; a symbol without one is not held.
        bars: by symbol, of each that is held or traded.
        decision: who traded, and why.
        fees: paid since the tick before, by symbol, in USD; less than 0 is received. If the symbol is not held, they
            belong to the trade that was closed last: billed late, they change its fees and its profit.
        at: the tick's moment.

    Raises:
        BadInput: a symbol has two positions, no price though its position changed, or fees and no trade; or a trade is
            open whose entry is not before the tick.
    """
    tick = _Tick(decision, utc(at))
    held = {trade.symbol: trade for trade in prior if trade.status is TradeStatus.OPEN}
    left = {trade.symbol: trade for trade in prior if trade.status is TradeStatus.CLOSED}
    now: dict[str, Position] = {}
    for position in current:
        if position.symbol in now:
            raise BadInput("positions", f"{position.symbol!r} is stated twice; the ledger keeps net positions.")
        now[position.symbol] = position
    late = without_position(fees, held, now.values())
    if missing := late - left.keys():
        raise BadInput("fees", f"{min(missing)!r} has no trade that they are of, open or closed.")
    if any(trade.entry_tick_at >= tick.at for trade in held.values()):
        raise BadInput("at", "must be later than every entry of what is open.")
    changes: list[TradeChange] = []
    with localcontext(_EXACT):
        for symbol in sorted({*held, *now, *late}):
            if symbol in late:
                changes.append(_billed_late(left[symbol], fees[symbol]))
                continue
            changes += tick.changes(held.get(symbol), now.get(symbol), bars.get(symbol), fees.get(symbol, ZERO))
    return changes


def without_position(fees: Mapping[str, Decimal], held: Collection[str], current: Iterable[Position]) -> set[str]:
    """
    Return the symbols that have fees and no position, neither before the tick nor after it.

    Raises:
        BadInput: a fee is no amount.
    """
    for fee in fees.values():
        checked_amount("fees", fee)
    return {symbol for symbol, fee in fees.items() if fee} - {*held, *(one.symbol for one in current if one.quantity)}


class _Tick:
    """One tick: each of its methods returns what it does to one trade."""

    def __init__(self, decision: TickDecision, at: datetime) -> None:
        self.decision = decision
        self.at = at
        self._snapshot_id = decision.snapshot_id(at)

    def changes(self, held: Trade | None, now: Position | None, bar: Bar | None, fee: Decimal) -> list[TradeChange]:
        """Return the changes of one symbol."""
        quantity = now.quantity if now is not None else ZERO
        if bar is None:
            if fee or quantity != (held.quantity if held is not None else ZERO):
                symbol = held.symbol if held is not None else now.symbol if now is not None else ""
                raise BadInput("bars", f"has no price of {symbol!r}, whose position or fees changed.")
            return []
        forced = now is not None and now.liquidated
        kind = CloseKind.LIQUIDATION if forced else CloseKind.CLOSE
        if held is None:
            return [self._opened(now, bar, fee)] if now is not None and quantity else []
        seen = _with_extremes(held, bar.seen)
        if now is None or not quantity:
            return [self._left(seen, held.quantity, bar, fee, kind)]
        if now.side is not held.side:
            share = _MEAN.divide(fee * held.quantity, held.quantity + quantity)
            flip = CloseKind.LIQUIDATION if forced else CloseKind.FLIP
            return [self._left(seen, held.quantity, bar, share, flip), self._opened(now, bar, fee - share)]
        if quantity > held.quantity:
            return [self._grown(seen, quantity - held.quantity, bar, fee)]
        if quantity < held.quantity:
            return [self._left(seen, held.quantity - quantity, bar, fee, kind)]
        if seen == held and not fee:
            return []
        return [TradeChange(ChangeKind.MARK, _charged(seen, fee), ZERO, bar.close, fee, -fee)]

    def _opened(self, now: Position, bar: Bar, fee: Decimal) -> TradeChange:
        decision, price = self.decision, bar.traded
        size = now.quantity * price
        names = (decision.deployment_id, now.symbol, now.side.value, plain_value(self.at))
        trade = Trade(
            id=id_of("trade", json_of(names)),
            deployment_id=decision.deployment_id,
            skill_id=decision.skill_id,
            skill_version=decision.skill_version,
            symbol=now.symbol,
            side=now.side,
            quantity=now.quantity,
            entry_tick_at=self.at,
            entry_price=price,
            entry_size_usd=size,
            entry_leverage=now.leverage,
            entry_reason=decision.reason_for(now.symbol),
            entry_snapshot_id=self._snapshot_id,
            remaining_size_usd=size,
        )
        after = _with_extremes(_charged(trade, fee), [bar.close])
        return TradeChange(ChangeKind.OPEN, after, now.quantity, price, fee, -fee)

    def _grown(self, held: Trade, quantity: Decimal, bar: Bar, fee: Decimal) -> TradeChange:
        cost = quantity * bar.traded
        holds, size = held.quantity + quantity, held.remaining_size_usd + cost
        trade = replace(
            _charged(held, fee),
            quantity=holds,
            entry_price=_MEAN.divide(size, holds),
            entry_size_usd=held.entry_size_usd + cost,
            remaining_size_usd=size,
        )
        return TradeChange(ChangeKind.GROW, _with_extremes(trade, [bar.close]), quantity, bar.traded, fee, -fee)

    def _left(self, held: Trade, quantity: Decimal, bar: Bar, fee: Decimal, kind: CloseKind) -> TradeChange:
        """Return the change for a part of a position that is left, or for all of it."""
        price, whole, reason = bar.traded, quantity == held.quantity, self.decision.reason_for(held.symbol)
        size = held.remaining_size_usd
        if not whole:
            size = min(size, _MEAN.divide(size * quantity, held.quantity))
        pnl = held.side.sign * (quantity * price - size) - fee
        trade = replace(
            _charged(held, fee),
            quantity=held.quantity - quantity,
            remaining_size_usd=held.remaining_size_usd - size,
            realized_pnl_usd=held.realized_pnl_usd + pnl,  # in which the fee is
        )
        if not whole:
            part = PartialExit(self.at, price, quantity, size, pnl, fee, kind, reason)
            trade = replace(trade, partial_exits=(*held.partial_exits, part))
            return TradeChange(ChangeKind.SHRINK, trade, quantity, price, fee, pnl)
        closed = replace(
            trade,
            status=TradeStatus.CLOSED,
            exit_tick_at=self.at,
            exit_price=price,
            exit_reason=reason,
            exit_snapshot_id=self._snapshot_id,
            holding_minutes=(self.at - held.entry_tick_at) // timedelta(minutes=1),
            close_kind=kind,
        )
        return TradeChange(ChangeKind.CLOSE, closed, quantity, price, fee, pnl)


def _billed_late(closed: Trade, fee: Decimal) -> TradeChange:
    price = closed.exit_price if closed.exit_price is not None else closed.entry_price
    return TradeChange(ChangeKind.MARK, _charged(closed, fee), ZERO, price, fee, -fee)


def _charged(trade: Trade, fee: Decimal) -> Trade:
    return replace(trade, fees_usd=trade.fees_usd + fee, realized_pnl_usd=trade.realized_pnl_usd - fee)


def _with_extremes(trade: Trade, prices: Iterable[Decimal]) -> Trade:
    """Return *trade* with the profits that it showed at these prices, before fees."""
    cost, quantity, sign = trade.remaining_size_usd, trade.quantity, trade.side.sign
    profits = [sign * (quantity * price - cost) for price in prices]
    return replace(trade, mfe_usd=max(trade.mfe_usd, *profits), mae_usd=min(trade.mae_usd, *profits))
