"""Intervals of shares, drawn: as lines of text, and as a picture (SVG)."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

import typer

WIDTH: Final = 41
"""Columns of the scale from 0 to 1 in text."""


class IntervalRow(NamedTuple):
    """A share with its interval, fractions; *note* stands behind it."""

    label: str
    lower: float
    mean: float
    upper: float
    note: str = ""


def interval_lines(rows: Sequence[IntervalRow]) -> list[str]:
    """Return a line for each row under a scale from 0 to 1: ``-`` is the interval, ``o`` the mean, ``|`` a half."""
    if not rows:
        return []
    longest = max(len(row.label) for row in rows)
    scale = "0" + "0.5".center(WIDTH - 2) + "1"
    return [f"{'':{longest}}  {scale}", *(f"{row.label:{longest}}  {_bar(row)}  {row.note}".rstrip() for row in rows)]


def _bar(row: IntervalRow) -> str:
    marks = [" "] * WIDTH
    marks[WIDTH // 2] = "|"
    lower, mean, upper = (round(share * (WIDTH - 1)) for share in (row.lower, row.mean, row.upper))
    marks[lower : upper + 1] = "-" * (upper + 1 - lower)
    marks[mean] = "o"
    return "".join(marks)


ROW: Final = 24
LABELS: Final = 230
SCALE: Final = 420
"""Heights and widths in the picture, in pixels."""


def write_svg(path: Path, rows: Sequence[IntervalRow], title: str) -> None:
    """Write the picture into a file; one that cannot be written ends with exit code 2."""
    try:
        path.write_text(interval_svg(rows, title), "utf-8")
    except OSError as error:
        raise typer.BadParameter(f"--svg: {path}: {error.strerror}.") from error


def interval_svg(rows: Sequence[IntervalRow], title: str) -> str:
    """Return the same as a picture, which needs nothing beside it."""
    height, end = ROW * (len(rows) + 2), LABELS + SCALE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{end + 200}" height="{height}" font-size="12">',
        '<style>text { font-family: sans-serif }</style><rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="17" font-weight="bold">{escape(title)}</text>',
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LABELS + share * SCALE
        parts.append(
            f'<line x1="{x:g}" y1="{ROW}" x2="{x:g}" y2="{height - ROW}" stroke="#ddd"/>'
            f'<text x="{x:g}" y="{height - 8}" text-anchor="middle">{share:g}</text>'
        )
    for place, row in enumerate(rows, start=1):
        y = ROW * place + ROW / 2
        lower, mean, upper = (LABELS + share * SCALE for share in (row.lower, row.mean, row.upper))
        parts.append(
            f'<text x="{LABELS - 8}" y="{y + 4:g}" text-anchor="end">{escape(row.label)}</text>'
            f'<line x1="{lower:.1f}" y1="{y:g}" x2="{upper:.1f}" y2="{y:g}" stroke="#3a6a9a" stroke-width="3"/>'
            f'<circle cx="{mean:.1f}" cy="{y:g}" r="4" fill="#0b3d66"/>'
            f'<text x="{end + 10}" y="{y + 4:g}" fill="#5a5a5a">{escape(row.note)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
