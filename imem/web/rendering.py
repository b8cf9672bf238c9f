"""Templates: everything that they print is escaped, and characters that are not seen are shown as escapes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from imem.journal.clock import SystemClock

_JOINERS: Final = "\u200c\u200d"
"""Characters that words of Persian and Hindi, and emoji, are written with; they change no order."""


def visible(value: Any) -> Any:
    """
    Return what a template prints for *value*: its text, with control and bidirectional characters as escapes.

    Line breaks, tabs and joiners stay. Markup is what a template itself has made, and stays as it is.
    """
    if isinstance(value, Markup):
        return value
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" or char in _JOINERS else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def text_of(value: Any) -> str:
    """Return a value as a person reads it, on one line; numbers with all their digits."""
    match value:
        case None | "" | () | []:
            return "–"
        case bool():
            return "yes" if value else "no"
        case Enum():
            return words(str(value.value))
        case int() | float():
            return f"{value:,}"
        case datetime():
            return moment(value)
        case Mapping():
            return "; ".join(f"{words(str(name))} {text_of(one)}" for name, one in value.items())
        case list() | tuple() | set() | frozenset():
            return ", ".join(map(text_of, value))
        case _:
            return str(value)


def moment(at: datetime) -> str:
    """Return a moment in UTC, to the minute."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def words(name: str) -> str:
    """Return the name of a field as words."""
    return name.replace("_", " ")


def left(at: datetime) -> str:
    """Return how long it is until *at*: hours and minutes, days from two on."""
    minutes = max(int((at - SystemClock().now()) / timedelta(minutes=1)), 0)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24} d {hours % 24} h" if hours >= 48 else f"{hours} h {minutes:02} min"


def percent(value: float | None) -> str:
    """Return a fraction in percent."""
    return "–" if value is None else f"{value:.0%}"


ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=visible,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {
    "text": text_of, "moment": moment, "words": words, "left": left, "percent": percent,
    "part": lambda value: quote(str(value), safe=""),
}  # fmt: skip


def render(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page; it is never stored by a browser, since what it shows changes and needs a session."""
    text = ENVIRONMENT.get_template(template).render(**values)
    return HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store"})
