"""
Trades, ticks and what a tick changes.

Amounts are :class:`~decimal.Decimal`, exact: what is rounded (:data:`MEAN_DIGITS`) is a mean price or the share of a
cost, and what the rounding leaves stays with the rest of the position, so that the sum over a ledger is the cash that
moved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Self
from uuid import UUID

from imem.journal.errors import BadInput
from imem.journal.events.ids import id_of
from imem.journal.texts.prompt_text import plain

REASON_CHARS: Final = 200
"""Longest reason that is kept, in characters."""

MEAN_DIGITS: Final = 28
"""Significant digits of a mean price, and of the share of a cost."""

DECIMALS: Final = 18
"""Most decimal places of a quantity, price or fee that a runner states."""

LARGEST: Final = Decimal(10) ** 15
"""Beyond what a quantity, price or fee must not be."""

ZERO: Final = Decimal(0)

_NAME_CHARS: Final = 200


class Side(StrEnum):
    """Direction of a position."""

    LONG = "long"
    SHORT = "short"

    @property
    def sign(self) -> int:
        """+1 where a rising price is profit, else -1."""
        return 1 if self is Side.LONG else -1


class TradeStatus(StrEnum):
    """Whether something of a trade is held."""

    OPEN = "open"
    CLOSED = "closed"


class CloseKind(StrEnum):
    """How a position was left, or a part of it."""

    CLOSE = "close"
    FLIP = "flip"
    """The opposite position was taken at the same tick."""
    LIQUIDATION = "liquidation"
    """By force."""


class ChangeKind(StrEnum):
    """What a tick did to a trade."""

    OPEN = "open"
    GROW = "grow"
    SHRINK = "shrink"
    CLOSE = "close"
    MARK = "mark"
    """The position is the same; a new extreme or a fee was noted, of a closed trade a fee that was billed late."""


@dataclass(frozen=True, slots=True)
class PartialExit:
    """A part of a position that was left: what it was bought for (*size_usd*), and its profit after its own fees."""

    tick_at: datetime
    price: Decimal
    quantity: Decimal
    size_usd: Decimal
    pnl_usd: Decimal
    fees_usd: Decimal
    kind: CloseKind
    reason: str

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return what a row's JSON says."""
        amounts = {name: Decimal(stored[name]) for name in ("price", "quantity", "size_usd", "pnl_usd", "fees_usd")}
        at, kind = datetime.fromisoformat(stored["tick_at"]), CloseKind(stored["kind"])
        return cls(tick_at=at, kind=kind, reason=stored["reason"], **amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """
    A round trip: a row of ``recall.trade_history``. Its reasons are data, never instructions.

    Attributes:
        id: follows from deployment, symbol, side and entry.
        deployment_id, skill_id, skill_version: what traded.
        quantity: units held; 0 once closed.
        entry_tick_at: the tick at which the position appeared.
        entry_price: mean of the entries by quantity, of what was held when it last grew.
        entry_size_usd: all that was ever put in, at the prices paid.
        entry_leverage: the position's, when it appeared.
        entry_reason, exit_reason: at most :data:`REASON_CHARS` characters on one line.
        entry_snapshot_id, exit_snapshot_id: the decisions' snapshots; None if none was given.
        exit_tick_at, exit_price, close_kind: the last exit; None while it is open.
        holding_minutes: whole minutes from entry to exit.
        realized_pnl_usd: of all exits so far, partial ones included, less *fees_usd*.
        fees_usd: all fees so far, those of the entry included.
        mfe_usd, mae_usd: highest and lowest profit that the position held showed since its entry, before fees.
        remaining_size_usd: what the quantity held was bought for (a short one: sold for).
        partial_exits: oldest first.
        created_at, updated_at: when the row was written; None before it is.
    """

    id: UUID
    deployment_id: str
    skill_id: str
    skill_version: str
    symbol: str
    side: Side
    status: TradeStatus = TradeStatus.OPEN
    quantity: Decimal
    entry_tick_at: datetime
    entry_price: Decimal
    entry_size_usd: Decimal
    entry_leverage: Decimal
    entry_reason: str
    entry_snapshot_id: UUID | None = None
    exit_tick_at: datetime | None = None
    exit_price: Decimal | None = None
    exit_reason: str | None = None
    exit_snapshot_id: UUID | None = None
    holding_minutes: int | None = None
    realized_pnl_usd: Decimal = ZERO
    fees_usd: Decimal = ZERO
    mfe_usd: Decimal = ZERO
    mae_usd: Decimal = ZERO
    remaining_size_usd: Decimal
    partial_exits: tuple[PartialExit, ...] = ()
    close_kind: CloseKind | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the trade of a row of ``recall.trade_history``."""
        values = {one.name: row[one.name] for one in fields(cls)}
        values["side"], values["status"] = Side(row["side"]), TradeStatus(row["status"])
        values["close_kind"] = CloseKind(row["close_kind"]) if row["close_kind"] is not None else None
        values["partial_exits"] = tuple(PartialExit.of(one) for one in row["partial_exits"])
        return cls(**{name: _utc(value) for name, value in values.items()})

    @property
    def canonical(self) -> str:
        """The trade as JSON with sorted keys, without when it was written: equal for equal ticks, however they ran."""
        return json_of({k: v for k, v in plain_values(self).items() if k not in {"created_at", "updated_at"}})


@dataclass(frozen=True, slots=True)
class TradeChange:
    """
    What a tick did to a trade.

    Attributes:
        kind: what.
        trade: the row after it.
        quantity: units bought or sold, 0 for a mark.
        price: at which they were; for a mark the bar's close, or of a closed trade its exit.
        fees_usd: what was paid.
        pnl_usd: what was realized, after those fees.
    """

    kind: ChangeKind
    trade: Trade
    quantity: Decimal
    price: Decimal
    fees_usd: Decimal
    pnl_usd: Decimal

    @property
    def entry(self) -> TickEntry:
        """What of it stands beside the tick."""
        trade = self.trade
        amounts = (self.quantity, self.price, self.fees_usd, self.pnl_usd)
        return TickEntry(self.kind, trade.id, trade.symbol, trade.side, *amounts)


@dataclass(frozen=True, slots=True)
class TickEntry:
    """A change as it stands beside its tick; see :class:`TradeChange`."""

    kind: ChangeKind
    trade_id: UUID
    symbol: str
    side: Side
    quantity: Decimal
    price: Decimal
    fees_usd: Decimal
    pnl_usd: Decimal

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return what the JSON of a tick says."""
        amounts = (Decimal(stored[name]) for name in ("quantity", "price", "fees_usd", "pnl_usd"))
        named = ChangeKind(stored["kind"]), UUID(stored["trade_id"]), stored["symbol"], Side(stored["side"])
        return cls(*named, *amounts)

    @property
    def signed_quantity(self) -> Decimal:
        """Units bought, less than 0 for units sold."""
        if self.kind is ChangeKind.MARK:
            return ZERO
        return self.quantity * self.side.sign * (1 if self.kind in {ChangeKind.OPEN, ChangeKind.GROW} else -1)


# What a runner states


@dataclass(frozen=True, slots=True)
class Position:
    """
    The broker's holding of a symbol after a tick.

    Attributes:
        quantity: units, without a sign. 0, as a symbol that is not stated, is none.
        liquidated: whether what is missing of what was held before was taken by force.
    """

    symbol: str
    side: Side
    quantity: Decimal
    leverage: Decimal = Decimal(1)
    liquidated: bool = False

    def __post_init__(self) -> None:
        checked_name("symbol", self.symbol)
        if not isinstance(self.side, Side):
            raise BadInput("side", f"must be a Side, not {type(self.side).__name__}.")
        checked_amount("quantity", self.quantity, least=ZERO)
        checked_amount("leverage", self.leverage, above=ZERO)


@dataclass(frozen=True, slots=True)
class Bar:
    """
    Prices of a symbol since the tick before.

    Attributes:
        close: at the tick.
        high, low: since the tick before; None where a feed has none, and then the close counts.
        fill: the mean price of what was bought or sold at the tick; the close by default.
    """

    close: Decimal
    high: Decimal | None = None
    low: Decimal | None = None
    fill: Decimal | None = None

    def __post_init__(self) -> None:
        for name in ("close", "high", "low", "fill"):
            if (price := getattr(self, name)) is not None:
                checked_amount(name, price, above=ZERO)
        if self.high is not None and self.low is not None and self.high < self.low:
            raise BadInput("high", "must not be below the low.")

    @property
    def seen(self) -> tuple[Decimal, ...]:
        """Every price that it states."""
        return tuple(price for price in (self.high, self.low, self.close, self.fill) if price is not None)

    @property
    def traded(self) -> Decimal:
        """The price at which the tick bought or sold."""
        return self.close if self.fill is None else self.fill


@dataclass(frozen=True, slots=True)
class DecisionSnapshot:
    """The inputs of a decision: context and proposed action are objects of JSON values."""

    context: Mapping[str, Any] = field(default_factory=dict)
    proposed_action: Mapping[str, Any] = field(default_factory=dict)
    verdict: str = ""
    tokens: int = 0
    cost_usd: Decimal = ZERO

    def __post_init__(self) -> None:
        if len(self.verdict) > 1000:
            raise BadInput("verdict", "must have at most 1,000 characters.")
        if self.tokens < 0:
            raise BadInput("tokens", "must not be negative.")
        checked_amount("cost_usd", self.cost_usd, least=ZERO)


@dataclass(frozen=True, slots=True)
class TickDecision:
    """
    A deployment's decision at a tick.

    Attributes:
        deployment_id, skill_id, skill_version: what traded.
        reason: of all that it did; cut to :data:`REASON_CHARS` characters.
        reasons: of what it did with a symbol.
        snapshot: what it saw and proposed; None keeps none.
    """

    deployment_id: str
    skill_id: str
    skill_version: str
    reason: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)
    snapshot: DecisionSnapshot | None = None

    def __post_init__(self) -> None:
        for name in ("deployment_id", "skill_id", "skill_version"):
            checked_name(name, getattr(self, name))
        if not all(isinstance(reason, str) for reason in (self.reason, *self.reasons.values())):
            raise BadInput("reason", "must be text.")

    def reason_for(self, symbol: str) -> str:
        """Return why *symbol* was traded, on one line, bounded."""
        return plain(self.reasons.get(symbol, self.reason))[:REASON_CHARS]

    def snapshot_id(self, at: datetime) -> UUID | None:
        """Return the id of its snapshot; None if there is none."""
        return id_of("decision_snapshot", self.deployment_id, utc(at)) if self.snapshot is not None else None


@dataclass(frozen=True, slots=True)
class TradeScope:
    """
    The trades that are asked about, and the moment.

    Attributes:
        deployment_id: of this deployment, or
        skill_id, skill_version, owner: of a skill, of one version where it is given, of one owner where it is given.
        until: as known at this moment; None: now.
    """

    deployment_id: str | None = None
    skill_id: str | None = None
    skill_version: str | None = None
    owner: str | None = None
    until: datetime | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The scope as parameters of a statement."""
        return {**asdict(self), "until": self.until or "infinity"}


def utc(at: datetime) -> datetime:
    """
    Return the moment in UTC.

    Raises:
        BadInput: it names no zone.
    """
    if at.utcoffset() is None:
        raise BadInput("at", "must name its zone; a time without one is ambiguous.")
    return at.astimezone(UTC)


def checked_name(name: str, text: object) -> str:
    """
    Return the name or id.

    Raises:
        BadInput: it is no text of 1 to 200 printable characters; names *name*.
    """
    if not isinstance(text, str) or not 1 <= len(text) <= _NAME_CHARS or not text.isprintable():
        raise BadInput(name, "must be a text of 1 to 200 printable characters.")
    return text


def json_of(value: object) -> str:
    """Return *value*, of JSON's types, as text in one form."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def plain_value(value: Any) -> Any:
    """Return *value* in JSON's types: amounts as text, exact and in one form, moments in UTC."""
    match value:
        case Decimal():
            # Not by normalize(), which rounds to the digits of a context.
            text = format(value, "f")
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return "0" if text == "-0" else text
        case datetime():
            return value.astimezone(UTC).isoformat()
        case UUID():
            return str(value)
        case tuple():
            return [plain_values(one) for one in value]
        case _:
            return value


def plain_values(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass in JSON's types."""
    return {one.name: plain_value(getattr(record, one.name)) for one in fields(record)}


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def checked_amount(name: str, value: object, *, least: Decimal | None = None, above: Decimal | None = None) -> None:
    """
    Check an amount that a runner states.

    Raises:
        BadInput: it is no finite Decimal, has too many digits, or is out of bounds; names *name*.
    """
    if not isinstance(value, Decimal) or not value.is_finite():
        raise BadInput(name, "must be a finite Decimal.")
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -DECIMALS or abs(value) >= LARGEST:
        raise BadInput(name, f"must have at most {DECIMALS} decimal places and be below {LARGEST:,}.")
    if (least is not None and value < least) or (above is not None and value <= above):
        raise BadInput(name, f"must be {'at least' if least is not None else 'above'} 0.")
