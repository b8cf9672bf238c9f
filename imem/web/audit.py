"""The page of the audit, and its export as JSON lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from imem.journal.audit import AuditEntry
from imem.journal.errors import BadInput
from imem.services.facets.audit import MOST_ENTRIES
from imem.web.visitors import PAGE_MS, Visitor

SHOWN: Final = 100
"""Entries of a page."""

FILTERS: Final = ("actor", "resource", "action", "since", "until")


async def show(request: Request, visitor: Visitor) -> Response:
    """Show the newest entries, or those after a cursor."""
    asked = _asked(request)
    after = request.query_params.get("after") or None
    entries = await visitor.memory.audit.list(**_wanted(asked), after=after, limit=SHOWN, deadline_ms=PAGE_MS)
    older = urlencode({**asked, "after": entries[-1].cursor}) if len(entries) == SHOWN else None
    return visitor.page(
        "audit.html",
        entries=entries,
        asked={name: asked.get(name, "") for name in FILTERS},
        older=older,
        query=urlencode(asked),
    )


async def export(request: Request, visitor: Visitor) -> Response:
    """Send all entries that the filters name as JSON lines, the newest first."""
    wanted = _wanted(_asked(request))
    # The first are read before the response begins, so that a refusal is told as one.
    first = await visitor.memory.audit.list(**wanted, limit=MOST_ENTRIES, deadline_ms=PAGE_MS)
    return StreamingResponse(
        _lines(visitor, wanted, first),
        media_type="application/jsonl",
        headers={"Content-Disposition": 'attachment; filename="audit.jsonl"', "Cache-Control": "no-store"},
    )


async def _lines(visitor: Visitor, wanted: Mapping[str, Any], first: Sequence[AuditEntry]) -> AsyncIterator[bytes]:
    entries = first
    while entries:
        yield b"".join(entry.model_dump_json().encode() + b"\n" for entry in entries)
        if len(entries) < MOST_ENTRIES:
            return
        entries = await visitor.memory.audit.list(
            **wanted, after=entries[-1].cursor, limit=MOST_ENTRIES, deadline_ms=PAGE_MS
        )


def _asked(request: Request) -> dict[str, str]:
    """Return the filters that a request names."""
    return {name: text for name in FILTERS if (text := request.query_params.get(name, "").strip())}


def _wanted(asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the filters as the operation takes them: days of UTC, the last one included."""
    wanted: dict[str, Any] = dict(asked)
    for name, days in (("since", 0), ("until", 1)):
        if name in asked:
            try:
                wanted[name] = datetime.combine(date.fromisoformat(asked[name]), time.min, UTC) + timedelta(days=days)
            except (ValueError, OverflowError):
                raise BadInput(name, "is no day, such as 2026-06-01.") from None
    return wanted
