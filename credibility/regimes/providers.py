"""
Providers of indicators: a file, or an endpoint that returns JSON.

Both give dated rows: ``known_at``, when the values could be known, and any of the three indicators. A day counts from
its end in UTC, since what a day closed with could not be known on it. In CSV an empty cell, and in JSON a missing name
or null, states nothing. Rows in any order; of each indicator the newest value that could be known counts.
"""

from __future__ import annotations

import asyncio
import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import orjson

from imem.credibility.regimes.detect import Indicators
from imem.journal.deadline import Deadline
from imem.journal.endpoints.http_client import request
from imem.journal.errors import BadInput, BudgetExceeded, StoreUnavailable
from imem.journal.retry import retry
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

MOST_BYTES: Final = 16_000_000
"""Largest file or answer that is read."""

ATTEMPTS: Final = 4
"""Most attempts of one call of an endpoint, within its deadline."""

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


class IndicatorProvider(Protocol):
    """Provides the indicators of a market."""

    @property
    def name(self) -> str:
        """What readings name as their source."""

    async def rows(self, *, deadline: Deadline) -> list[IndicatorRow]:
        """
        Return all dated rows that there are, in any order.

        Raises:
            StoreUnavailable, BudgetExceeded: it cannot be read now.
            BadInput: what it gives cannot be read; names the row and the field.
        """


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


@dataclass(frozen=True, slots=True)
class FileProvider:
    """A CSV file, or a JSON one if its name says so; read anew each time."""

    path: Path

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name[:200]

    async def rows(self, *, deadline: Deadline) -> list[IndicatorRow]:
        """Return its rows; see :class:`IndicatorProvider`."""
        deadline.check("the file of indicators")
        try:
            data = await asyncio.to_thread(_read, self.path)
        except OSError as error:
            raise StoreUnavailable(f"The file of indicators cannot be read ({type(error).__name__}).") from error
        return rows_of(data, as_json=self.path.suffix.lower() == ".json")


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise BadInput("file", f"is larger than {MOST_BYTES:,} bytes.")
    return data


@dataclass(frozen=True, slots=True)
class HttpProvider:
    """An endpoint that answers a GET with JSON: a row, or a list of rows; a busy one is asked again as it wants."""

    url: str = field(repr=False)
    key: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The endpoint's host."""
        return (urlsplit(self.url).hostname or "endpoint")[:200]

    async def rows(self, *, deadline: Deadline) -> list[IndicatorRow]:
        """Return its rows; see :class:`IndicatorProvider`."""
        headers = {"accept": "application/json"}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"

        async def ask() -> bytes:
            answer = await request("GET", self.url, headers, most_bytes=MOST_BYTES, deadline=deadline)
            if answer.ok:
                return answer.body
            if answer.busy:
                busy = StoreUnavailable(f"The endpoint of indicators is busy (status {answer.status}).")
                busy.retry_after_s = answer.retry_after_s or 0.0
                raise busy
            raise BadInput("regime_url", f"was refused by its endpoint with status {answer.status}.")

        body = await retry(
            ask, deadline=deadline, errors=StoreUnavailable, attempts=ATTEMPTS, first_pause_s=0.5, longest_pause_s=4.0
        )
        return rows_of(body, as_json=True)


def provider_of(settings: Settings) -> IndicatorProvider | None:
    """Return the provider that *settings* name; None if they name none."""
    if settings.regime_file is not None:
        return FileProvider(settings.regime_file)
    if settings.regime_url is None:
        return None
    key = settings.regime_key.get_secret_value() if settings.regime_key is not None else None
    return HttpProvider(settings.regime_url.get_secret_value(), key)


def rows_of(data: bytes, *, as_json: bool) -> list[IndicatorRow]:
    """
    Parse dated rows.

    Raises:
        BadInput: a row cannot be read; names it, from 1, and the field.
    """
    return [_row(given, number) for number, given in enumerate(_json(data) if as_json else _csv(data), start=1)]


def _json(data: bytes) -> Sequence[Mapping[str, Any]]:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadInput("indicators", f"are no JSON: {error.msg}.") from None
    found = found if isinstance(found, list) else [found]
    if any(not isinstance(one, dict) for one in found):
        raise BadInput("indicators", "must be an object, or a list of objects.")
    return found


def _csv(data: bytes) -> Sequence[Mapping[str, Any]]:
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        found = [{name: value or None for name, value in row.items() if name is not None} for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput("indicators", f"are no CSV in UTF-8 ({type(error).__name__}).") from None
    missing = {KNOWN_AT, *Indicators._fields} - set(reader.fieldnames or ())
    if missing:
        raise BadInput("indicators", f"want the column {min(missing)}.")
    return found


def _row(given: Mapping[str, Any], number: int) -> IndicatorRow:
    values = {name: _value(given.get(name), name, number) for name in Indicators._fields}
    return IndicatorRow(_moment(given.get(KNOWN_AT), number), Indicators(**values))


def _moment(given: object, number: int) -> datetime:
    try:
        if isinstance(given, str) and _DAY.fullmatch(given):
            return datetime.combine(date.fromisoformat(given) + timedelta(days=1), datetime.min.time(), UTC)
        return parse_moment(given)
    except ValueError:
        reason = "must be a day, or a time with its zone: when the values could be known."
        raise BadInput(f"row {number}.{KNOWN_AT}", reason) from None


def _value(given: object, name: str, number: int) -> float | None:
    if given is None:
        return None
    least, most = BOUNDS[name]
    try:
        value = float(given) if isinstance(given, str | int | float) and not isinstance(given, bool) else math.nan
    except (ValueError, OverflowError):
        value = math.nan
    if not least <= value <= most:
        raise BadInput(f"row {number}.{name}", f"must be a number from {least:g} to {most:g}.")
    return value


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
