"""
Lines of the load format, as the converters of the examples write them.

A converter turns somebody else's files into JSON Lines that ``imem load`` reads. It needs the standard library alone,
so that it can be copied and changed for data of one's own before anything is installed.

Two rules carry the honesty of imported history (see ``known_at_of_date`` and ``known_at_of_naive``): a fact is dated
with the earliest moment at which it could have been known, and where the source is vague, as late as it allows.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

TEXT_LIMIT = 2000
"""Characters in a field of type text."""

STRING_LIMIT = 200
"""Characters in a field of type string."""

NAME_LIMIT = 90
"""Characters in the name of an agent or a domain."""

BODY_LIMIT = 65_536
"""Bytes of UTF-8 in a body."""

ELLIPSIS = " […] "
"""Stands where a text was cut."""

_LATEST_ZONE = timezone(timedelta(hours=-12))

PHASES = (
    "Domain",
    "Agent",
    "Company",
    "Market",
    "Analysis",
    "Finding",
    "Debate",
    "DebateResolution",
    "Decision",
    "DataPoint",
    "DataContradiction",
    "Outcome",
    "link",
)
"""Order of lines that became known at the same moment: what is pointed at comes first."""


@dataclass(frozen=True, slots=True)
class Line:
    """
    One line with its place in the history.

    Attributes:
        known_at: earliest moment at which it could have been known, aware, UTC.
        phase: index into ``PHASES``.
        content: the JSON object, without ``known_at``.
    """

    known_at: datetime
    phase: int
    content: Mapping[str, Any]

    def to_json(self) -> str:
        """Return the line's text, without the line feed."""
        return json.dumps(
            {**self.content, "known_at": stamp(self.known_at)},
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        )


def known_at_of_date(day: date) -> datetime:
    """Return when a fact dated with a day alone could be known: 12:00 UTC of the next, when it is over everywhere."""
    return datetime.combine(day + timedelta(days=1), time(12), tzinfo=UTC)


def known_at_of_naive(local: datetime) -> datetime:
    """
    Return when a fact stamped with a local time of unknown zone was known at the latest: read in UTC-12.

    Raises:
        ValueError: the time names its zone already.
    """
    if local.tzinfo is not None:
        raise ValueError("The time already names its zone.")
    return local.replace(tzinfo=_LATEST_ZONE).astimezone(UTC)


def stamp(moment: datetime) -> str:
    """Return *moment* as RFC 3339 text in UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cut(text: str, limit: int = TEXT_LIMIT, *, closing: int = 500) -> str:
    """Return *text* in at most *limit* characters: where it is longer, its opening and its last *closing* ones."""
    if len(text) <= limit:
        return text
    opening = text[: limit - len(ELLIPSIS) - closing].rstrip()
    ending = text[len(text) - closing :].lstrip()
    return (opening + ELLIPSIS + ending).rstrip()


def name_of(text: str) -> str:
    """Return *text* as the name of an agent or a domain, which is short and holds no slash."""
    return cut(text.strip().replace("/", "-"), NAME_LIMIT, closing=0)


def fit_body(text: str) -> str:
    """Return *text* as a body: where it is too long, its opening and its last characters."""
    most = len(text)
    while len(text.encode()) > BODY_LIMIT:
        most = most * 9 // 10
        text = cut(text, most)
    return text


def present(**fields: Any) -> dict[str, Any]:
    """Return *fields* without those that are None: an absent field is left out, never guessed."""
    return {name: value for name, value in fields.items() if value is not None}


def record(
    kind: str,
    core: Mapping[str, Any],
    *,
    known_at: datetime,
    groups: Mapping[str, Mapping[str, Any]] | None = None,
    occurred_at: datetime | None = None,
    body: str | None = None,
    turns: list[dict[str, Any]] | None = None,
) -> Line:
    """Return a line that records a node; *occurred_at* is left out where it is when the fact became known."""
    content = present(
        record=kind,
        occurred_at=None if occurred_at is None else stamp(occurred_at),
        core=core,
        groups=groups,
        body=None if body is None else fit_body(body),
        turns=turns,
    )
    return Line(known_at, PHASES.index(kind), content)


def late_group(kind: str, key: str, group: str, value: Mapping[str, Any], *, known_at: datetime) -> Line:
    """Return a line that adds one property group to a node recorded earlier."""
    return Line(known_at, PHASES.index("link"), {"record": kind, "key": key, "groups": {group: value}})


def link(
    kind: str,
    source: tuple[str, str],
    target: tuple[str, str],
    *,
    known_at: datetime,
    props: Mapping[str, Any] | None = None,
) -> Line:
    """Return a line that links *source* to *target*, each a label and a key."""
    content = present(link=kind, **{"from": dict([source]), "to": dict([target])}, props=props)
    return Line(known_at, PHASES.index("link"), content)


def in_order(lines: Iterable[Line]) -> list[Line]:
    """Return *lines* as a history that can be replayed: by ``known_at``, then by phase, else as they came."""
    return sorted(lines, key=lambda line: (line.known_at, line.phase))


def write(lines: Iterable[Line], out: Path | None) -> None:
    """
    Write *lines* to *out*, or to standard output where it is None.

    A name that ends in ``.gz`` is compressed, without a name or time inside, so that the same lines give the same file.
    A crash leaves a file that is cut short; run the converter again.
    """
    text = "".join(line.to_json() + "\n" for line in lines).encode()
    if out is None:
        sys.stdout.buffer.write(text)
    elif out.suffix == ".gz":
        out.write_bytes(gzip.compress(text, compresslevel=9, mtime=0))
    else:
        out.write_bytes(text)


def read_text(path: Path) -> str:
    """Return the UTF-8 text of a file, of a gzip file where the name ends in ``.gz``."""
    with (
        gzip.open(path, "rt", encoding="utf-8", newline="")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8", newline="") as file
    ):
        return file.read()


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file with a header; a value that a short row lacks is empty."""
    return list(csv.DictReader(io.StringIO(read_text(path).removeprefix("\ufeff")), restval=""))


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON Lines file."""
    # Not splitlines: a text may hold one of Unicode's other ends of a line.
    return [json.loads(line) for line in read_text(path).split("\n") if line.strip()]
