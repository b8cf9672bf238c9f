"""
Replays the trades of six language-model agents through the ledger, and compares it with the source's round trips.

Each hour in which an agent traded is a tick of its deployment. The source matches what was sold with what was bought
first; the ledger has the mean price of what is held. While a part is held the two differ; once nothing is, they agree.

Run it with ``python examples/llm_traders/replay.py [--record]``: ``--record`` puts the ticks into the memory as well,
each deployment owned by its agent.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from zoneinfo import ZoneInfo

from imem.memory import Memory
from imem.postmortem.trades.materialiser import step
from imem.postmortem.trades.model import Bar, ChangeKind, Position, Side, TickDecision, Trade, TradeStatus

SOURCE = Path(__file__).resolve().parent / "source"
EXCHANGE = ZoneInfo("America/New_York")
ROUNDING = Decimal("0.001")
"""The source rounds cash to a thousandth of a dollar or so."""


@dataclass(frozen=True)
class Tick:
    """What an agent traded in an hour, and what it holds then."""

    agent: str
    at: datetime
    positions: list[Position]
    bars: dict[str, Bar]
    reason: str

    @property
    def decision(self) -> TickDecision:
        """Who traded, and why."""
        return TickDecision(f"llm_traders-{self.agent}", "us_hourly", self.agent, self.reason)


@dataclass
class Comparison:
    """
    The ledger beside the source.

    Attributes:
        trades: the ledger's rows by id.
        sales, same: hours in which something of a symbol was sold, and in how many of them both have the same profit.
        trips: round trips of the source; within: those of positions that were left in the end.
        closed, agree: closed rows, and those whose profit is that of their round trips.
        cash: by agent, what the source says came in, less what the ledger says.
    """

    trades: dict[object, Trade] = field(default_factory=dict)
    sales: int = 0
    same: int = 0
    trips: int = 0
    within: int = 0
    closed: int = 0
    agree: int = 0
    cash: dict[str, Decimal] = field(default_factory=dict)


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a source file."""
    with gzip.open(SOURCE / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def moment(text: str) -> datetime:
    """Return the moment of a local time of the exchange."""
    return datetime.fromisoformat(text).replace(tzinfo=EXCHANGE).astimezone(UTC)


def ticks() -> Iterator[Tick]:
    """Yield the ticks of all agents, each agent's in order."""
    for agent, actions in groupby(rows("actions"), lambda row: row["agent"]):
        held: dict[str, Decimal] = {}
        for ts, hour in groupby(actions, lambda row: row["ts"]):
            bars, reason = {}, ""
            for row in hour:
                held[row["symbol"]] = Decimal(row["position_after"])
                bars[row["symbol"]] = Bar(Decimal(row["price"]))
                reason = row["reason"]
            positions = [Position(symbol, Side.LONG, quantity) for symbol, quantity in held.items() if quantity]
            yield Tick(agent, moment(ts), positions, bars, reason)


def compare() -> Comparison:
    """Return what the ledger says beside what the source says."""
    found = Comparison()
    sold: defaultdict[tuple[str, datetime, str], Decimal] = defaultdict(Decimal)
    for tick in ticks():
        prior = [
            trade
            for trade in found.trades.values()
            if trade.status is TradeStatus.OPEN and trade.skill_version == tick.agent
        ]
        for change in step(prior, tick.positions, tick.bars, tick.decision, fees={}, at=tick.at):
            found.trades[change.trade.id] = change.trade
            if change.kind in {ChangeKind.SHRINK, ChangeKind.CLOSE}:
                sold[tick.agent, tick.at, change.trade.symbol] += change.pnl_usd
    trips = [(row["agent"], moment(row["exit_ts"]), row["symbol"], Decimal(row["pnl"])) for row in rows("round_trips")]
    matched: defaultdict[tuple[str, datetime, str], Decimal] = defaultdict(Decimal)
    for agent, at, symbol, pnl in trips:
        matched[agent, at, symbol] += pnl
    found.trips, found.sales = len(trips), len(sold)
    found.same = sum(abs(pnl - matched[sale]) <= ROUNDING for sale, pnl in sold.items())
    for trade in found.trades.values():
        if trade.exit_tick_at is None:
            continue
        own = [
            pnl
            for agent, at, symbol, pnl in trips
            if (agent, symbol) == (trade.skill_version, trade.symbol)
            and trade.entry_tick_at <= at <= trade.exit_tick_at
        ]
        found.closed += 1
        found.within += len(own)
        found.agree += abs(trade.realized_pnl_usd - sum(own)) <= ROUNDING
    for agent, actions in groupby(rows("actions"), lambda row: row["agent"]):
        came = Decimal(list(actions)[-1]["cash_after"]) - 10_000
        own_trades = [trade for trade in found.trades.values() if trade.skill_version == agent]
        found.cash[agent] = came - sum(trade.realized_pnl_usd - trade.remaining_size_usd for trade in own_trades)
    return found


def record() -> None:
    """Put the ticks into the memory that the settings name; again it writes nothing."""
    with Memory.sync() as memory:
        for agent, own in groupby(ticks(), lambda tick: tick.agent):
            with memory.acting_as(agent) as mine:
                for tick in own:
                    mine.trades.record(tick.decision, tick.positions, tick.bars, at=tick.at)


def main(arguments: list[str]) -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="put the ticks into the memory as well")
    if parser.parse_args(arguments).record:
        record()
    found = compare()
    still = len(found.trades) - found.closed
    lines = [
        f"{len(found.trades)} rows: {found.closed} closed, {still} open",
        f"{found.trips} round trips of the source, {found.within} of them of closed rows",
        f"{found.agree} of {found.closed} closed rows: the same profit as their round trips",
        f"{found.same} of {found.sales} sales: the same profit, first in, first out and by the mean price",
        f"largest difference from an agent's cash: ${max(map(abs, found.cash.values())):.4f}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
