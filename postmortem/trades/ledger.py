"""
The ledger in Postgres: ticks recorded once, and the state from which a runner goes on.

A tick is computed from what Postgres holds and written by one function, in one transaction: a crash leaves all of it or
nothing, and the same tick again does nothing. Nothing is held in memory between ticks. Rights are checked by the caller
(:mod:`imem.services.trading.trades`), and by the function too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.postgres.database import Database
from imem.journal.texts.json_text import json_text
from imem.postmortem.trades.injection import HeldTrade
from imem.postmortem.trades.materialiser import step, without_position
from imem.postmortem.trades.model import (
    Bar,
    Position,
    TickDecision,
    TickEntry,
    Trade,
    TradeChange,
    TradeScope,
    json_of,
    plain_value,
    plain_values,
    utc,
)
from imem.postmortem.trades.reconciliation import RecordedTick

_FIRST = "-infinity"


class TickStatus(StrEnum):
    """The result of recording a tick."""

    RECORDED = "recorded"
    IDENTICAL = "identical"
    """It was there already; nothing was written."""


@dataclass(frozen=True, slots=True)
class TickReceipt:
    """The result of recording a tick, and its changes, now or when it was recorded first."""

    status: TickStatus
    tick_at: datetime
    recorded_at: datetime
    entries: tuple[TickEntry, ...]


@dataclass(frozen=True, slots=True)
class LedgerState:
    """
    Where a deployment stands: all that a runner needs to go on.

    Attributes:
        owner: who owns it; None before its first tick.
        last_tick_at: its last tick; None before the first.
        open: its open trades.
    """

    owner: str | None = None
    last_tick_at: datetime | None = None
    open: tuple[Trade, ...] = ()


class TradeLedger:
    """The ledger of all deployments; holds no state of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def resume(self, deployment_id: str, *, deadline: Deadline) -> LedgerState:
        """
        Return where a deployment stands.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        found = await self._database.named("trade_state", {"deployment_id": deployment_id}, deadline=deadline)
        if not found:
            return LedgerState()
        trades = tuple(Trade.from_row(row) for row in found if row["id"] is not None)
        return LedgerState(found[0]["owner"], _moment(found[0]["last_tick_at"]), trades)

    async def record(
        self,
        actor: Actor,
        decision: TickDecision,
        positions: Iterable[Position],
        bars: Mapping[str, Bar],
        *,
        fees: Mapping[str, Decimal],
        at: datetime,
        deadline: Deadline,
    ) -> TickReceipt:
        """
        Put what a tick changed into the ledger; whose first one it is owns the deployment.

        Raises:
            BadInput: the tick lies before the last one or more than a day in the future, does not fit what is held, or
                its snapshot is no JSON.
            PermissionDenied: the deployment is another's.
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
        """
        current, moment = list(positions), utc(at)
        while True:
            state = await self.resume(decision.deployment_id, deadline=deadline)
            after = state.last_tick_at
            # Of an earlier moment the function says whether it was recorded; what it changed is not computed again.
            due = after is None or moment > after
            prior = [*state.open, *await self._billed(decision.deployment_id, state.open, current, fees, deadline)]
            changes = step(prior, current, bars, decision, fees=fees, at=moment) if due else []
            given = {
                "actor": actor.id,
                "role": actor.role.value,
                "deployment_id": decision.deployment_id,
                "tick_at": moment,
                "after": after,
                **_written(changes, decision, moment),
            }
            [row] = await self._database.commit("record_tick", given, deadline=deadline)
            match row["status"]:
                case "late":
                    last = row["last_tick_at"].astimezone(UTC)
                    raise BadInput("at", f"lies before {last.isoformat()}, the last tick of {decision.deployment_id}.")
                case "early":
                    raise BadInput("at", "lies more than a day in the future; every tick until then would be refused.")
                case "behind":
                    deadline.check("recording a tick beside another runner of the deployment")
                case status:
                    entries = tuple(TickEntry.of(one) for one in row["changes"])
                    return TickReceipt(TickStatus(status), moment, row["recorded_at"].astimezone(UTC), entries)

    async def _billed(
        self,
        deployment_id: str,
        held: Iterable[Trade],
        current: Iterable[Position],
        fees: Mapping[str, Decimal],
        deadline: Deadline,
    ) -> list[Trade]:
        """Return the last closed trades of the symbols that have fees and no position."""
        symbols = without_position(fees, [trade.symbol for trade in held], current)
        if not symbols:
            return []
        given = {"deployment_id": deployment_id, "symbols": sorted(symbols)}
        return [
            Trade.from_row(row) for row in await self._database.named("trades_closed_last", given, deadline=deadline)
        ]

    async def owner_of(self, deployment_id: str, *, deadline: Deadline) -> str | None:
        """Return who owns a deployment; None before its first tick."""
        found = await self._database.named("trade_owner", {"deployment_id": deployment_id}, deadline=deadline)
        return found[0]["owner"] if found else None

    async def recent(self, scope: TradeScope, *, closed: int, still_open: int, deadline: Deadline) -> list[HeldTrade]:
        """Return the newest trades of *scope*, so many of each status; raises as :meth:`resume`."""
        given = {**scope.parameters, "closed": closed, "open": still_open}
        found = await self._database.named("recent_trades", given, deadline=deadline)
        return [HeldTrade(Trade.from_row(row), row["last_tick_at"].astimezone(UTC)) for row in found]

    async def ticks(self, deployment_id: str, since: datetime | None, *, deadline: Deadline) -> list[RecordedTick]:
        """Return the ticks of a deployment after *since*, None for all, in order; raises as :meth:`resume`."""
        given = {"deployment_id": deployment_id, "since": since or _FIRST}
        found = await self._database.named("trade_ticks", given, deadline=deadline)
        return [
            RecordedTick(row["tick_at"].astimezone(UTC), tuple(TickEntry.of(one) for one in row["changes"]))
            for row in found
        ]


def _written(changes: list[TradeChange], decision: TickDecision, at: datetime) -> dict[str, Any]:
    """Return the parameters that say what a tick changed."""
    snapshot = decision.snapshot
    content = plain_values(snapshot) | {"id": plain_value(decision.snapshot_id(at))} if snapshot is not None else None
    return {
        "trades": json_of([plain_values(change.trade) for change in changes]),
        "changes": json_of([plain_values(change.entry) for change in changes]),
        "snapshot": json_text(content, "snapshot") if content is not None else None,
    }


def _moment(at: datetime | None) -> datetime | None:
    return at.astimezone(UTC) if at is not None else None
