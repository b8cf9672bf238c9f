"""
Feeds of rows: a file, or an endpoint that returns JSON; both are read whole and anew each time.

In CSV an empty cell, and in JSON a missing name or null, states nothing.
"""

from __future__ import annotations

import asyncio
import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import orjson
from pydantic import SecretStr

from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, StoreUnavailable
from imem.journal.retry import retry

T = TypeVar("T")

MOST_BYTES: Final = 16_000_000
"""Largest file or answer that is read."""

ATTEMPTS: Final = 4
"""Most attempts of one call of an endpoint, within its deadline."""


@dataclass(frozen=True, slots=True)
class RowShape(Generic[T]):
    """
    The kind of rows of a feed.

    Attributes:
        what: their plural, for messages.
        setting: of the endpoint's address.
        columns: those that a table must have.
        row: makes a row of its values by name and its number, from 1.
    """

    what: str
    setting: str
    columns: tuple[str, ...]
    row: Callable[[Mapping[str, Any], int], T]

    def rows_of(self, data: bytes, *, as_json: bool) -> list[T]:
        """
        Parse rows.

        Raises:
            BadInput: a row cannot be read; names it, from 1, and the field.
        """
        found = self._json(data) if as_json else self._csv(data)
        return [self.row(given, number) for number, given in enumerate(found, start=1)]

    def _json(self, data: bytes) -> Sequence[Mapping[str, Any]]:
        try:
            found = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise BadInput(self.what, f"are no JSON: {error.msg}.") from None
        found = found if isinstance(found, list) else [found]
        if any(not isinstance(one, dict) for one in found):
            raise BadInput(self.what, "must be an object, or a list of objects.")
        return found

    def _csv(self, data: bytes) -> Sequence[Mapping[str, Any]]:
        try:
            reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
            found = [{name: value or None for name, value in row.items() if name is not None} for row in reader]
        except (UnicodeDecodeError, csv.Error) as error:
            raise BadInput(self.what, f"are no CSV in UTF-8 ({type(error).__name__}).") from None
        missing = set(self.columns) - set(reader.fieldnames or ())
        if missing:
            raise BadInput(self.what, f"want the column {min(missing)}.")
        return found


class Feed(Protocol[T]):
    """Provides rows."""

    @property
    def name(self) -> str:
        """The name that records give as their source."""

    async def rows(self, *, deadline: Deadline) -> list[T]:
        """
        Return all rows that there are, in any order.

        Raises:
            StoreUnavailable, BudgetExceeded: it cannot be read now.
            BadInput: what it gives cannot be read; names the row and the field.
        """


@dataclass(frozen=True, slots=True)
class FileFeed(Generic[T]):
    """A CSV file, or a JSON one if its name says so; read anew each time."""

    path: Path
    shape: RowShape[T]

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name[:200]

    async def rows(self, *, deadline: Deadline) -> list[T]:
        """Return its rows; see :class:`Feed`."""
        deadline.check(f"the file of {self.shape.what}")
        try:
            data = await asyncio.to_thread(_read, self.path)
        except OSError as error:
            reason = f"The file of {self.shape.what} cannot be read ({type(error).__name__})."
            raise StoreUnavailable(reason) from error
        return await asyncio.to_thread(self.shape.rows_of, data, as_json=self.path.suffix.lower() == ".json")


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise BadInput("file", f"is larger than {MOST_BYTES:,} bytes.")
    return data


@dataclass(frozen=True, slots=True)
class HttpFeed(Generic[T]):
    """An endpoint that answers a GET with JSON: a row, or a list of rows; a busy one is asked again as it wants."""

    url: str = field(repr=False)
    shape: RowShape[T]
    key: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The endpoint's host."""
        return (urlsplit(self.url).hostname or "endpoint")[:200]

    async def rows(self, *, deadline: Deadline) -> list[T]:
        """Return its rows; see :class:`Feed`."""
        from imem.journal.endpoints.http_client import request  # noqa: PLC0415 - reads of a file, and of readings, need no HTTP

        headers = {"accept": "application/json"}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"

        async def ask() -> bytes:
            answer = await request("GET", self.url, headers, most_bytes=MOST_BYTES, deadline=deadline)
            if answer.ok:
                return answer.body
            if answer.busy:
                busy = StoreUnavailable(f"The endpoint of {self.shape.what} is busy (status {answer.status}).")
                busy.retry_after_s = answer.retry_after_s or 0.0
                raise busy
            raise BadInput(self.shape.setting, f"was refused by its endpoint with status {answer.status}.")

        body = await retry(
            ask, deadline=deadline, errors=StoreUnavailable, attempts=ATTEMPTS, first_pause_s=0.5, longest_pause_s=4.0
        )
        return await asyncio.to_thread(self.shape.rows_of, body, as_json=True)


def feed_of(shape: RowShape[T], file: Path | None, url: SecretStr | None, key: SecretStr | None) -> Feed[T] | None:
    """Return the feed that settings name; None if they name none."""
    if file is not None:
        return FileFeed(file, shape)
    if url is None:
        return None
    return HttpFeed(url.get_secret_value(), shape, key.get_secret_value() if key is not None else None)


def number_of(given: object, where: str, least: float, most: float) -> float | None:
    """
    Return a number that a row states; None where it states none.

    Raises:
        BadInput: it is no number from *least* to *most*; names *where*.
    """
    if given is None:
        return None
    try:
        value = float(given) if isinstance(given, str | int | float) and not isinstance(given, bool) else math.nan
    except (ValueError, OverflowError):
        value = math.nan
    if not least <= value <= most:
        raise BadInput(where, f"must be a number from {least:g} to {most:g}.")
    return value
