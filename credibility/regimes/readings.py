"""Readings of regimes from the journal, as of any moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Final

import orjson

from imem.credibility.regimes.detect import detect
from imem.credibility.regimes.providers import MOST_AGE, IndicatorRow, indicators_at
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.kg.asof import END_OF_TIME, AsOf
from imem.kg.kinds.enums import Regime
from imem.kg.kinds.fields import dated_key, moment_text
from imem.kg.kinds.trust import RegimeReading

MARKET: Final = "US"
"""The market whose regime is detected."""


@dataclass(frozen=True, slots=True)
class DatedReading:
    """
    A reading as of a moment.

    Attributes:
        reading: as it was corrected by then.
        known_at: since when it could be known.
        corrected_at: since when the correction could be; None without one.
    """

    reading: RegimeReading
    known_at: datetime
    corrected_at: datetime | None

    @classmethod
    def from_row(cls, row: Row) -> DatedReading:
        """Return the reading of a row of ``regime_readings``."""
        corrected_at = row["corrected_at"]
        return cls(
            RegimeReading.model_validate(orjson.loads(row["core"])),
            row["known_at"].astimezone(UTC),
            corrected_at.astimezone(UTC) if corrected_at is not None else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        known = {"known_at": self.known_at.isoformat()}
        corrected = {"corrected_at": self.corrected_at.isoformat()} if self.corrected_at is not None else {}
        return {**self.reading.model_dump(mode="json", exclude_none=True), **known, **corrected}


@dataclass(frozen=True, slots=True)
class MarketRegime:
    """
    The regime of a market as of a moment.

    Attributes:
        market: which.
        as_of: the moment in use.
        regime: NORMAL where no reading was known.
        stale: no reading was known, or the one in force kept the regime for want of an indicator.
        readings: the newest readings, the one in force first.
    """

    market: str
    as_of: datetime
    regime: Regime
    stale: bool
    readings: tuple[DatedReading, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "market": self.market,
            "as_of": self.as_of.isoformat(),
            "regime": self.regime.value,
            "stale": self.stale,
            "readings": [one.to_dict() for one in self.readings],
        }


async def market_regime(
    database: Database, at: AsOf, *, market: str = MARKET, limit: int = 1, deadline: Deadline
) -> MarketRegime:
    """
    Return the regime of a market as of *at*, with its newest *limit* readings.

    Raises:
        PostgresUnavailable, BudgetExceeded: it could not be read in time; retryable.
    """
    given = {"market": market, "limit": max(limit, 1), **at.limits}
    found = [DatedReading.from_row(row) for row in await database.named("regime_readings", given, deadline=deadline)]
    in_force = found[0].reading if found else None
    return MarketRegime(
        market,
        at.at,
        in_force.regime if in_force is not None else Regime.NORMAL,
        in_force is None or in_force.stale,
        tuple(found[:limit]),
    )


async def reading_in_force(conn: Connection, market: str, now: datetime) -> RegimeReading | None:
    """Return the reading in force at *now*, in the transaction of *conn*."""
    given = {"market": market, "limit": 1, "known_until": now, "recorded_until": END_OF_TIME}
    found = await rows(conn, "regime_readings", given)
    return DatedReading.from_row(found[0]).reading if found else None


def reading_id(market: str, source: str, at: datetime) -> str:
    """Return the id of what *source* reads of *at*."""
    return dated_key(market, source, at=moment_text(at))


def readings_of(given: Iterable[IndicatorRow], source: str, *, market: str = MARKET) -> list[RegimeReading]:
    """
    Return the readings that dated indicators of the past give: one for each moment at which any could be known.

    A missing indicator keeps the regime of the reading before. ``observed_at`` is the moment; it is also the
    ``known_at`` to record them with.
    """
    ordered = sorted(given, key=lambda row: row.known_at)
    recent: deque[IndicatorRow] = deque()
    readings: list[RegimeReading] = []
    for row, following in zip_longest(ordered, ordered[1:]):
        recent.append(row)
        if following is not None and following.known_at == row.known_at:
            continue
        while recent[0].known_at < row.known_at - max(MOST_AGE.values()):
            recent.popleft()
        values = indicators_at(recent, row.known_at)
        found = detect(values, readings[-1].regime if readings else None)
        readings.append(
            RegimeReading(
                id=reading_id(market, source, row.known_at),
                market=market,
                observed_at=row.known_at,
                regime=found.regime,
                stale=found.stale,
                source=source,
                **values._asdict(),
            )
        )
    return readings
