"""The first line of an export, by which a load knows one."""

from __future__ import annotations

from typing import Final

import orjson

from imem.journal.clock import SystemClock
from imem.journal.errors import BadInput

HEADER: Final = "export"
"""Member of the first line of an export; its value is the version of the format."""

FORMAT: Final = 1


def header_of(position: int) -> bytes:
    """Return the first line of an export of the journal up to *position*."""
    return orjson.dumps({HEADER: FORMAT, "position": position, "exported_at": SystemClock().now().isoformat()}) + b"\n"


def is_header(raw: bytes) -> bool:
    """
    Return whether *raw* is the first line of an export.

    Raises:
        BadInput: it is one of a later version.
    """
    if f'"{HEADER}"'.encode() not in raw[:40]:
        return False
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(found, dict) or found.keys() != {HEADER, "position", "exported_at"}:
        return False
    if found[HEADER] != FORMAT:
        raise BadInput(HEADER, f"is of version {found[HEADER]!r:.20}, and this program knows {FORMAT}.")
    return True
