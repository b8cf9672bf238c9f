"""Dates that a question names: which forms are read, which are none, and how far a day lies from them."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from imem.recall.memories.dates import MONTHS, NamedDate, named_dates

NOW = datetime(2025, 6, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("What did Ann say on 2024-05-07?", [(2024, 5, 7)]),
        ("What did Ann say in 2024-05?", [(2024, 5, None)]),
        ("on 7 May 2024", [(2024, 5, 7)]),
        ("on the 7th of May, 2024", [(2024, 5, 7)]),
        ("on May 7th, 2024, and later", [(2024, 5, 7)]),
        ("on December 1,2024", [(2024, 12, 1)]),
        ("What about May 7?", [(None, 5, 7)]),
        ("on 29 February", [(None, 2, 29)]),
        ("on Aug. 15th", [(None, 8, 15)]),
        ("Which plant was built in MARCH 2024?", [(2024, 3, None)]),
        ("in mid-August 2024", [(2024, 8, None)]),
        ("Sept. 2024", [(2024, 9, None)]),
        ("before may", [(None, 5, None)]),
        ("the October setback", [(None, 10, None)]),
        ("in 2024", [(2024, None, None)]),
        ("the 2024 results?", [(2024, None, None)]),
        ("last March", [(2025, 3, None)]),
        ("last June", [(2024, 6, None)]),
        ("this July", [(2025, 7, None)]),
        ("LAST YEAR", [(2024, None, None)]),
        ("this month", [(2025, 6, None)]),
        ("last month", [(2025, 5, None)]),
        ("yesterday", [(2025, 6, 14)]),
        ("between 3 May 2024 and 2024-06-01", [(2024, 6, 1), (2024, 5, 3)]),
    ],
)
def test_plain_forms(query: str, named: list[tuple[int | None, int | None, int | None]]) -> None:
    assert named_dates(query, NOW) == [NamedDate(*one) for one in named]


@pytest.mark.parametrize(
    "query",
    [
        "What may happen?",
        "They march on.",
        "2,024 units at $2024",
        "version 2024.1",
        "order 120240 and 2024-13-01",
        "31 February 2024",
        "30 Feb",
        "a mayor, a marching band and an augury",
        "the last one",
        "07.05.2024 or 05/07/2024",
        "",
    ],
)
def test_what_is_no_date(query: str) -> None:
    """Words, figures, days that the calendar lacks, and figures whose order nobody knows."""
    assert named_dates(query, NOW) == []


@given(some.dates(date(1900, 1, 1), date(2099, 12, 31)))
def test_every_day_is_read_in_every_form(day: date) -> None:
    month = MONTHS[day.month - 1].capitalize()
    named = NamedDate(day.year, day.month, day.day)
    for form in (f"{day}", f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}"):
        assert named_dates(f"What was said on {form}?", NOW) == [named]
    assert named.days_from(day) == 0
    assert NamedDate(None, day.month, day.day).days_from(day) == 0
    assert NamedDate(day.year, day.month).days_from(day) == 0
    assert NamedDate(day.year).days_from(day) == 0


@given(some.text() | some.text(alphabet="0123456789 -/.,MayJunlast"), some.datetimes(timezones=some.just(UTC)))
def test_any_text_and_any_moment(query: str, now: datetime) -> None:
    for named in named_dates(query, now):
        named.days_from(now.date())


def test_how_far_a_day_lies() -> None:
    """Before it negative; without a year from the nearest one."""
    assert NamedDate(2024, 5).days_from(date(2024, 6, 3)) == 3
    assert NamedDate(2024, 5, 7).days_from(date(2024, 5, 1)) == -6
    assert NamedDate(None, 12, 31).days_from(date(2024, 1, 2)) == 2
    assert NamedDate(None, 1).days_from(date(2024, 12, 30)) == -2
    assert NamedDate(None, 2, 29).days_from(date(2025, 3, 1)) == 1
