"""
Providers of prices: a file, or an endpoint that returns JSON; one row a subject and session.

A row states ``subject_id``, ``session`` (a day on which the exchange is open) and ``close`` in USD, and where they are
not nothing ``dividend`` (cash a share, for those who held it before the session), ``split`` (new shares for an old one,
from the session on), ``known_at`` (the session's close without it) and ``delisted``: the session is the last, and its
close the terminal value, 0 where holders got nothing. No other close may be 0; a price that is missing is not stated.

A row that cannot be read does not stop the others: it becomes a :class:`RefusedPrice`, and its subject is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final, NamedTuple

from imem.credibility.forecasts.sessions import closes_at, is_session
from imem.credibility.regimes.providers import KNOWN_AT, moment_of
from imem.journal.endpoints.feeds import Feed, RowShape, feed_of, number_of
from imem.journal.errors import BadInput
from imem.journal.settings import Settings
from imem.kg.kinds.fields import SUBJECT

MOST_CLOSE: Final = 1e9
"""Largest close and dividend that is believed, in USD."""

SPLITS: Final = (1e-4, 1e4)
"""Least and largest split that is believed."""

_FLAGS: Final[Mapping[str, bool]] = {"none": False, "true": True, "false": False, "1": True, "0": False}


class PriceRow(NamedTuple):
    """
    The closing values of a session.

    Attributes:
        subject_id: of what.
        session: the day.
        known_at: when it could be known; aware.
        close: in USD; above 0, or the terminal value where *delisted*.
        dividend: cash a share, in USD.
        split: new shares for an old one.
        delisted: whether it is the last session.
    """

    subject_id: str
    session: date
    known_at: datetime
    close: float
    dividend: float = 0.0
    split: float = 1.0
    delisted: bool = False


class RefusedPrice(NamedTuple):
    """
    A row that cannot be read.

    Attributes:
        subject_id: of what; None if that cannot be read either.
        reason: names the row and the field.
    """

    subject_id: str | None
    reason: str


PriceProvider = Feed[PriceRow | RefusedPrice]
"""Provides prices."""


def _row(given: Mapping[str, Any], number: int) -> PriceRow | RefusedPrice:
    subject_id = given.get("subject_id")
    if not isinstance(subject_id, str) or not re.fullmatch(SUBJECT, subject_id):
        return RefusedPrice(None, f"row {number}.subject_id must be company:<ticker> or market:<market_id>.")
    try:
        return _price(subject_id, given, number)
    except BadInput as error:
        return RefusedPrice(subject_id, str(error))


def _price(subject_id: str, given: Mapping[str, Any], number: int) -> PriceRow:
    session = _session(given.get("session"), f"row {number}.session")
    delisted = _FLAGS.get(str(given.get("delisted")).lower())
    if delisted is None:
        raise BadInput(f"row {number}.delisted", "must be true or false.")
    close = number_of(given.get("close"), f"row {number}.close", 0.0, MOST_CLOSE)
    if close is None or (close == 0.0 and not delisted):
        raise BadInput(f"row {number}.close", "must be above 0; without a price there is no row.")
    known_at = closes_at(session)
    if given.get(KNOWN_AT) is not None:
        known_at = moment_of(given[KNOWN_AT], f"row {number}.{KNOWN_AT}")
        if known_at < closes_at(session):
            raise BadInput(f"row {number}.{KNOWN_AT}", "is before the session's close.")
    dividend = number_of(given.get("dividend"), f"row {number}.dividend", 0.0, MOST_CLOSE)
    split = number_of(given.get("split"), f"row {number}.split", *SPLITS)
    return PriceRow(
        subject_id, session, known_at, close, dividend or 0.0, 1.0 if split is None else split, delisted
    )  # fmt: skip


def _session(given: object, where: str) -> date:
    try:
        session = date.fromisoformat(given) if isinstance(given, str) else None
    except ValueError:
        session = None
    if session is None or not is_session(session):
        raise BadInput(where, "must be a day on which the exchange is open, as 2026-06-01.")
    return session


PRICES: Final = RowShape("prices", "price_url", ("subject_id", "session", "close"), _row)
"""Rows of prices."""


def price_provider_of(settings: Settings) -> PriceProvider | None:
    """Return the provider that *settings* name; None if they name none."""
    return feed_of(PRICES, settings.price_file, settings.price_url, settings.price_key)
