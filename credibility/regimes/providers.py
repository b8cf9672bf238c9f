"""
Providers of indicators: a file, or an endpoint that returns JSON.

Both give dated rows: ``known_at``, when the values could be known, and any of the three indicators. A day counts from
its end in UTC, since what a day closed with could not be known on it. In CSV an empty cell, and in JSON a missing name
or null, states nothing. Rows in any order; of each indicator the newest value that could be known counts.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

from imem.credibility.regimes.detect import Indicators
from imem.journal.deadline import Deadline
from imem.journal.endpoints.feeds import Feed, RowShape, feed_of, number_of
from imem.journal.errors import BadInput, BudgetExceeded, StoreUnavailable
from imem.journal.settings import Settings
from imem.kg.kinds.fields import parse_moment

KNOWN_AT: Final = "known_at"

MOST_AGE: Final[Mapping[str, timedelta]] = {
    "sp500_return_12m": timedelta(days=5),
    "fed_funds": timedelta(days=45),
    "vix": timedelta(days=5),
}
"""Age from which an indicator counts as missing: markets close for four days at most, the rate is published monthly."""

BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "sp500_return_12m": (-1.0, 3.0),
    "fed_funds": (-10.0, 100.0),
    "vix": (0.0, 1000.0),
}
"""Least and largest value that is believed: a return in percent would be taken for a fraction."""

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


class IndicatorRow(NamedTuple):
    """
    Values that could be known at a moment.

    Attributes:
        known_at: when; aware, UTC.
        values: those that are stated.
    """

    known_at: datetime
    values: Indicators


IndicatorProvider = Feed[IndicatorRow]
"""Provides the indicators of a market."""


def indicators_at(rows: Iterable[IndicatorRow], at: datetime) -> Indicators:
    """Return the newest values that could be known at *at*, each None if it is older than :data:`MOST_AGE`."""
    newest: dict[str, tuple[datetime, float]] = {}
    for row in rows:
        for name, value in row.values._asdict().items():
            if value is None or not math.isfinite(value) or not at - MOST_AGE[name] <= row.known_at <= at:
                continue
            if name not in newest or newest[name][0] <= row.known_at:
                newest[name] = (row.known_at, value)
    return Indicators(**{name: value for name, (_, value) in newest.items()})


def moment_of(given: object, where: str) -> datetime:
    """
    Return when the values of a row could be known; a day counts from its end in UTC.

    Raises:
        BadInput: it is neither a day nor a time with its zone; names *where*.
    """
    try:
        if isinstance(given, str) and _DAY.fullmatch(given):
            return datetime.combine(date.fromisoformat(given) + timedelta(days=1), datetime.min.time(), UTC)
        return parse_moment(given)
    except ValueError:
        raise BadInput(where, "must be a day, or a time with its zone: when the values could be known.") from None


def _row(given: Mapping[str, Any], number: int) -> IndicatorRow:
    values = {name: number_of(given.get(name), f"row {number}.{name}", *BOUNDS[name]) for name in Indicators._fields}
    return IndicatorRow(moment_of(given.get(KNOWN_AT), f"row {number}.{KNOWN_AT}"), Indicators(**values))


INDICATORS: Final = RowShape("indicators", "regime_url", (KNOWN_AT, *Indicators._fields), _row)
"""Rows of indicators."""


def provider_of(settings: Settings) -> IndicatorProvider | None:
    """Return the provider that *settings* name; None if they name none."""
    return feed_of(INDICATORS, settings.regime_file, settings.regime_url, settings.regime_key)


async def read_indicators(
    provider: IndicatorProvider, at: datetime, *, deadline: Deadline
) -> tuple[Indicators, str | None]:
    """
    Return the indicators as of *at*, and why none could be read; without a reason they were.

    A provider that fails gives no indicators, which keeps the regime: a detection must end.
    """
    try:
        async with asyncio.timeout(deadline.left_s()):
            return indicators_at(await provider.rows(deadline=deadline), at), None
    except (StoreUnavailable, BudgetExceeded, BadInput, TimeoutError) as error:
        return Indicators(), str(error) or "It did not answer in time."
