"""
Dates that a question names. Pure.

Plain forms are read: ``2024-05-07``, ``2024-05``, ``7 May 2024``, ``May 7th, 2024``, ``May 2024``, ``in May`` and
``2024``, and counted from the moment of the question ``last May``, ``last month``, ``this year``, ``yesterday`` and
``today``. Without a year every year's is meant. A date that the calendar does not have is ignored.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip

_MONTH: Final = "|".join(f"{name}|{name[:3]}[.]?" for name in MONTHS) + "|sept[.]?"
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR: Final = r"(?P<year>(?:19|20)\d\d)"

_FORMS: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?<![\w.,/-])(?P<year>(?:19|20)\d\d)-(?P<number>\d\d)(?:-(?P<day>\d\d))?(?![\w/-])",
        rf"\b{_DAY}\s+(?:of\s+)?(?P<month>{_MONTH})(?:,?\s*(?:of\s+)?{_YEAR})?(?!\w)",
        rf"\b(?P<month>{_MONTH})\s+{_DAY}(?:,?\s*{_YEAR})?(?![\w%]|[.,:]\d)",
        rf"\b(?P<month>{_MONTH}),?\s*(?:of\s+)?{_YEAR}(?!\w)",
        rf"\b(?P<which>last|this)\s+(?P<month>{_MONTH})(?!\w)",
        r"\b(?P<which>last|this)\s+(?P<unit>month|year)\b",
        r"\b(?P<unit>yesterday|today)\b",
        # The others are words or names, too: alone they count after what stands before a month.
        rf"\b(?:in|during|since|until|till|by|before|after|from|early|mid|late|end of)[\s-]+(?P<month>{_MONTH})(?!\w)",
        r"\b(?-i:(?=[A-Z]))(?P<month>january|february|july|september|october|november|december)(?!\w)",
        r"(?<![\w$€£.,/-])(?P<year>(?:19|20)\d\d)(?![\w%/-]|[.,]\d)",
    )
)
"""Forms of dates, the longer ones first: what one of them has read is not read again."""


@dataclass(frozen=True, slots=True)
class NamedDate:
    """
    A day, a month or a year.

    Attributes:
        year: None: any year.
        month, day: 1 to 12, and 1 to 31; None: all of them.
    """

    year: int | None
    month: int | None = None
    day: int | None = None

    def days_from(self, at: date) -> int:
        """Return by how many days *at* lies after its end, negative for before its begin; 0 within it."""
        years = (self.year,) if self.year is not None else (at.year - 1, at.year, at.year + 1)
        return min((self._days_in(year, at) for year in years if 1 <= year <= 9999), key=abs)

    def _days_in(self, year: int, at: date) -> int:
        first, last = self.month or 1, self.month or 12
        # The 29th of February is the 28th where there is none.
        begin = date(year, first, min(self.day or 1, monthrange(year, first)[1]))
        end = begin if self.day else date(year, last, monthrange(year, last)[1])
        return min(0, (at - begin).days) or max(0, (at - end).days)


def named_dates(query: str, now: datetime) -> list[NamedDate]:
    """Return the dates that *query* names, in the order of the forms; *now* is when it is asked."""
    found: list[NamedDate] = []
    rest = query
    for form in _FORMS:
        found += [named for match in form.finditer(rest) for named in _dates(match.groupdict(), now.date())]
        rest = form.sub(lambda match: " " * len(match[0]), rest)
    return list(dict.fromkeys(found))


def _dates(parts: dict[str, str | None], today: date) -> Iterator[NamedDate]:
    """Yield the date of the parts of a form; none if there is no such day."""
    month = _month(parts.get("month"), parts.get("number"))
    year, day = _number(parts.get("year")), _number(parts.get("day"))
    which, unit = _lower(parts.get("which")), _lower(parts.get("unit"))
    match which, unit:
        case None, None:
            if (month is None or 1 <= month <= 12) and (day is None or _exists(year, month, day)):
                yield NamedDate(year, month, day)
        case _, None:
            past = month is not None and month < today.month
            yield NamedDate(today.year if past or which == "this" else today.year - 1, month)
        case _, "year":
            yield NamedDate(today.year - (which == "last"))
        case _, "month":
            at = today.replace(day=1) - timedelta(days=which == "last")
            yield NamedDate(at.year, at.month)
        case _:
            at = today - timedelta(days=unit == "yesterday")
            yield NamedDate(at.year, at.month, at.day)


def _exists(year: int | None, month: int | None, day: int) -> bool:
    return month is not None and 1 <= day <= monthrange(year or 2000, month)[1]


def _month(name: str | None, number: str | None) -> int | None:
    if name is not None:
        return next(nth for nth, month in enumerate(MONTHS, start=1) if month.startswith(name[:3].lower()))
    return _number(number)


def _lower(text: str | None) -> str | None:
    return text.lower() if text is not None else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None else None
