"""What a tick does to the ledger: each row of the table, and sums that are the broker's cash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import example, given, settings

from imem.journal.errors import BadInput
from imem.postmortem.trades.materialiser import step
from imem.postmortem.trades.model import (
    Bar,
    ChangeKind,
    CloseKind,
    Position,
    Side,
    TickDecision,
    Trade,
    TradeChange,
    TradeStatus,
)
from imem.postmortem.trades.reconciliation import Fill, LedgerDifference, RecordedTick, reconcile

from .paths import PATHS, START, UNEVEN, Broker, Move, in_memory

HOLDS = TickDecision("desk-1", "momentum", "1.2", "because")


def after(
    prior: Sequence[Trade], nth: int, quantity: str, price: str | Bar, fee: str = "0", *, forced: bool = False
) -> list[TradeChange]:
    """Step by one tick, at which MU is held in a signed quantity."""
    signed = Decimal(quantity)
    side = Side.SHORT if signed < 0 else Side.LONG
    bar = price if isinstance(price, Bar) else Bar(Decimal(price))
    held = [Position("MU", side, abs(signed), Decimal(3), liquidated=forced)]
    return step(prior, held, {"MU": bar}, HOLDS, fees={"MU": Decimal(fee)}, at=START + timedelta(minutes=nth * 90))


def only(changes: list[TradeChange]) -> Trade:
    [change] = changes
    return change.trade


def test_a_position_that_appears_opens_a_row() -> None:
    trade = only(after([], 0, "-10", "25", "0.5"))

    assert (trade.side, trade.status, trade.symbol) == (Side.SHORT, TradeStatus.OPEN, "MU")
    assert (trade.entry_price, trade.entry_size_usd, trade.entry_leverage) == (Decimal(25), Decimal(250), Decimal(3))
    assert (trade.entry_reason, trade.entry_tick_at, trade.skill_version) == ("because", START, "1.2")
    assert (trade.fees_usd, trade.realized_pnl_usd) == (Decimal("0.5"), Decimal("-0.5")), (
        "a fee is realized when it is paid"
    )


def test_one_that_disappears_is_closed_by_the_formula() -> None:
    """The sample of the design: $250 that gain 1.1 % earn $2.75, and no multiple of it."""
    opened = only(after([], 0, "2.5", "100"))
    trade = only(after([opened], 1, "0", "101.1", "0.25"))

    assert (trade.status, trade.close_kind, trade.exit_price) == (TradeStatus.CLOSED, CloseKind.CLOSE, Decimal("101.1"))
    assert (trade.holding_minutes, trade.exit_reason) == (90, "because")
    assert trade.realized_pnl_usd == Decimal(250) * (Decimal("101.1") - 100) / 100 - Decimal("0.25") == Decimal("2.5")
    assert trade.quantity == trade.remaining_size_usd == 0
    short = only(after([only(after([], 0, "-2.5", "100"))], 1, "0", "101.1"))
    assert short.realized_pnl_usd == Decimal("-2.75")


def test_one_that_grows_has_the_mean_price_by_quantity() -> None:
    """By dollars it would be 35.71, and the sum would not be the cash that moved."""
    opened = only(after([], 0, "10", "10"))
    [change] = after([opened], 1, "16", "50")

    assert change.kind is ChangeKind.GROW
    assert (change.trade.entry_price, change.trade.entry_size_usd) == (Decimal(25), Decimal(400))
    assert only(after([change.trade], 2, "0", "25")).realized_pnl_usd == 0


def test_one_that_shrinks_books_a_part_and_stays_open() -> None:
    opened = only(after([], 0, "10", "10", "1"))
    [change] = after([opened], 1, "4", "12", "0.3")
    trade = change.trade

    assert (change.kind, trade.status, trade.quantity) == (ChangeKind.SHRINK, TradeStatus.OPEN, Decimal(4))
    assert (trade.remaining_size_usd, trade.entry_price) == (Decimal(40), Decimal(10))
    [part] = trade.partial_exits
    assert (part.quantity, part.size_usd, part.price, part.pnl_usd) == (
        Decimal(6),
        Decimal(60),
        Decimal(12),
        Decimal("11.7"),
    )
    assert only(after([trade], 2, "0", "9")).realized_pnl_usd == Decimal(12) - 4 - Decimal("1.3")


def test_one_that_stays_notes_what_it_went_through() -> None:
    """High and low since the tick before, closes where a feed has neither; nothing new is no change."""
    opened = only(after([], 0, "10", Bar(Decimal(10), high=Decimal(99), low=Decimal(1))))
    assert opened.mfe_usd == opened.mae_usd == 0, "it was not held at the high of the bar before its entry"

    marked = only(after([opened], 1, "10", Bar(Decimal(10), high=Decimal(12), low=Decimal(7))))
    assert (marked.mfe_usd, marked.mae_usd, marked.status) == (Decimal(20), Decimal(-30), TradeStatus.OPEN)
    assert after([marked], 2, "10", Bar(Decimal(11))) == []
    assert only(after([marked], 2, "10", Bar(Decimal(13)))).mfe_usd == Decimal(30)
    assert only(after([marked], 2, "10", Bar(Decimal(11)), "0.2")).realized_pnl_usd == Decimal("-0.2"), (
        "funding is paid"
    )
    short = only(after([only(after([], 0, "-10", "10"))], 1, "0", Bar(Decimal(10), high=Decimal(12), low=Decimal(7))))
    assert (short.mfe_usd, short.mae_usd) == (Decimal(30), Decimal(-20))


@pytest.mark.parametrize(("forced", "kind"), [(False, CloseKind.FLIP), (True, CloseKind.LIQUIDATION)])
def test_one_that_flips_is_closed_and_opened(*, forced: bool, kind: CloseKind) -> None:
    """At one tick; the fee is shared by quantity, and nothing of it is lost."""
    opened = only(after([], 0, "2", "10"))
    closed, other = (change.trade for change in after([opened], 1, "-1", "11", "1", forced=forced))

    assert (closed.id, closed.close_kind, closed.exit_tick_at) == (opened.id, kind, other.entry_tick_at)
    assert (other.side, other.quantity, other.entry_price) == (Side.SHORT, Decimal(1), Decimal(11))
    assert closed.fees_usd + other.fees_usd == 1
    assert closed.fees_usd == pytest.approx(Decimal(2) / 3)


def test_one_that_goes_by_force_is_liquidated() -> None:
    opened = only(after([], 0, "2", "10"))
    assert only(after([opened], 1, "0", "1", forced=True)).close_kind is CloseKind.LIQUIDATION
    part = only(after([opened], 1, "1", "1", forced=True))
    assert (part.status, part.partial_exits[0].kind) == (TradeStatus.OPEN, CloseKind.LIQUIDATION)


def test_fees_that_are_billed_late_are_of_what_was_closed_last() -> None:
    """Without a price, as nothing is held; while something is held, they are of that."""
    opened = only(after([], 0, "2", "10", "1"))
    closed, at = only(after([opened], 1, "0", "12", "0.5")), START + timedelta(days=1)
    [change] = step([closed], [], {}, HOLDS, fees={"MU": Decimal("0.25")}, at=at)
    assert (change.kind, change.quantity, change.price, change.fees_usd) == (
        ChangeKind.MARK, Decimal(0), Decimal(12), Decimal("0.25")
    )  # fmt: skip
    assert change.trade == replace(closed, fees_usd=Decimal("1.75"), realized_pnl_usd=Decimal("2.25"))
    again = only(after([], 5, "1", "9"))
    held = [Position("MU", Side.LONG, Decimal(1))]
    charged = only(step([closed, again], held, {"MU": Bar(Decimal(9))}, HOLDS, fees={"MU": Decimal(1)}, at=at))
    assert (charged.id, charged.fees_usd) == (again.id, Decimal(1))


def test_what_does_not_fit_is_refused() -> None:
    opened = only(after([], 0, "2", "10"))
    held, at = Position("MU", Side.LONG, Decimal(1)), START + timedelta(hours=1)
    with pytest.raises(BadInput, match="has no price of 'MU'"):
        step([opened], [held], {}, HOLDS, fees={}, at=at)
    with pytest.raises(BadInput, match="stated twice"):
        step([], [held, held], {"MU": Bar(Decimal(1))}, HOLDS, fees={}, at=at)
    with pytest.raises(BadInput, match="'AMD' has no trade"):
        step([opened], [], {"MU": Bar(Decimal(1))}, HOLDS, fees={"AMD": Decimal(1)}, at=at)
    with pytest.raises(BadInput, match="later than every entry"):
        step([opened], [], {"MU": Bar(Decimal(1))}, HOLDS, fees={}, at=START)
    for price in (Decimal("NaN"), Decimal(0), Decimal("1e16"), Decimal("1e-19")):
        with pytest.raises(BadInput):
            Bar(price)
    assert step([opened], [Position("MU", Side.LONG, Decimal(2))], {}, HOLDS, fees={}, at=at) == [], "a gap in a feed"


@pytest.mark.spec("RC-10")
@settings(max_examples=150)
@given(path=PATHS)
@example(path=UNEVEN)
def test_the_ledgers_profit_is_the_brokers_cash(path: list[dict[str, Move]]) -> None:
    """At the end of every path, and before it with what open positions were bought for."""
    for ends in (True, False):
        broker = Broker()
        rows = in_memory(broker.ticks(path, ends=ends)).values()

        open_cost = sum(
            (trade.side.sign * trade.remaining_size_usd for trade in rows if trade.status is TradeStatus.OPEN),
            Decimal(0),
        )
        assert abs(sum((trade.realized_pnl_usd for trade in rows), Decimal(0)) - open_cost - broker.cash) <= Decimal(
            "1e-9"
        )
        assert not ends or open_cost == 0
        assert all(trade.mfe_usd >= 0 >= trade.mae_usd for trade in rows)


def executed(quantity: str, price: str, minute: int, fee: str = "0", symbol: str = "MU") -> Fill:
    return Fill(symbol, START + timedelta(minutes=minute), Decimal(quantity), Decimal(price), Decimal(fee))


def test_every_difference_from_the_fills_is_listed() -> None:
    """By tick and symbol: what is missing, what is too much, another price, another fee, and what came after."""
    opened = after([], 0, "2", "10", "0.1")
    flipped = after([opened[0].trade], 1, "-1", "11", "0.2")
    ticks = [
        RecordedTick(START + timedelta(minutes=90 * nth), tuple(change.entry for change in changes))
        for nth, changes in enumerate((opened, flipped, []))
    ]
    right = [executed("2", "10", -5, "0.1"), executed("-1", "10", 30), executed("-2", "11.5", 90, "0.2")]

    assert reconcile(ticks, right) == []
    assert reconcile(ticks, right[1:]) == [LedgerDifference("MU", START, Decimal(-2), Decimal(20), Decimal("-0.1"))]
    dearer = [replace(right[0], price=Decimal(11)), *right[1:]]
    assert reconcile(ticks, dearer) == [LedgerDifference("MU", START, Decimal(0), Decimal(-2), Decimal(0))]
    more = [*right, executed("1", "5", 100, "0.3", "AMD"), executed("1", "5", 200)]
    assert reconcile(ticks, more) == [
        LedgerDifference("AMD", START + timedelta(minutes=180), Decimal(1), Decimal(-5), Decimal("0.3")),
        LedgerDifference("MU", None, Decimal(1), Decimal(-5), Decimal(0)),
    ]
