"""
``imem export``: the journal as lines of the load format, and memories as lines of the import of memories.

The first line is a header, by which ``imem load`` takes also what subsystems govern. Each event is one line with its
``known_at``, in the order of the journal; of one value at one moment the lines are in the order in which they count.
So the same facts count after a load, and the graph has the same hash. Who recorded an event and when is no part of a
line: after a load that is the import.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Final

import orjson
from psycopg.rows import DictRow

from imem.backup.database import ask, session
from imem.ingest.export_header import header_of
from imem.ingest.line_reader import RefusedLine
from imem.journal.errors import BadInput
from imem.journal.events.canonical import canonical_json
from imem.journal.statements import sql
from imem.kg.kinds.fields import moment_text
from imem.kg.load_format.lines import ANY_WRITER, parse_line

PAGE: Final = 500
"""Rows that are in memory at once."""


@dataclass(slots=True)
class ExportCounts:
    """
    The result of an export.

    Attributes:
        events: lines of events.
        memories: lines of memories.
        left_out: events that the load format cannot state, with the reason; the line is the position among events.
    """

    events: int = 0
    memories: int = 0
    left_out: list[RefusedLine] = field(default_factory=list)


def members_of(event: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """
    Yield the ways to state *event* as a line, the whole one first.

    The second leaves out the core: a claim that was repeated after its target is refused with it, and was recorded
    before.
    """
    family, _, name = event["kind"].partition(".")
    payload = event["payload"]
    clocks = {"known_at": moment_text(event["known_at"]), "occurred_at": moment_text(event["occurred_at"])}
    if family == "link":
        ends = {
            "from": {payload["from_label"]: payload["from_key"]},
            "to": {payload["to_label"]: payload["to_key"]},
        }
        yield {"link": name, **clocks, **ends, "props": payload["props"]}
        return
    if family == "correct":
        yield {"correct": name, **clocks, "core": payload["core"], "reason": payload["reason"]}
        return
    core, groups = payload.get("core"), payload.get("groups")
    late = {"record": name, **clocks, "key": payload["key"], "groups": groups}
    if core is not None:
        more = {"groups": groups, "body": event["body"], "turns": event["turns"]}
        yield {"record": name, **clocks, "core": core, **{key: value for key, value in more.items() if value}}
    if core is None or groups:
        yield late


def line_of(event: Mapping[str, Any]) -> bytes:
    """
    Return *event* as a line that a load takes.

    Raises:
        BadInput: there is none; says why the whole event is refused.
    """
    refusal: BadInput | None = None
    for members in members_of(event):
        raw = canonical_json(members)
        try:
            parse_line(raw, writer=ANY_WRITER)
        except BadInput as error:
            refusal = refusal or error
        else:
            return raw + b"\n"
    raise refusal or BadInput("kind", f"{event['kind']} is no line.")


@asynccontextmanager
async def _rows(url: str, name: str) -> AsyncIterator[AsyncIterator[DictRow]]:
    """Stream the rows of a named statement."""
    async with session(url) as conn, conn.transaction(), conn.cursor(name="imem_export") as cursor:
        cursor.itersize = PAGE
        await cursor.execute(sql(name))
        yield aiter(cursor)


async def export_events(url: str, file: IO[bytes], report: Callable[[int, int], None]) -> ExportCounts:
    """
    Write the journal at *url* as lines to *file*; memory holds a page of it.

    Raises:
        PostgresUnavailable: the file is incomplete.
    """
    counts = ExportCounts()
    async with session(url) as conn:
        [size] = await ask(conn, "export_size")
    file.write(header_of(size["position"]))
    async with _rows(url, "export_events") as rows:
        number = 0
        async for row in rows:
            number += 1
            try:
                file.write(line_of(row))
                counts.events += 1
            except BadInput as error:
                counts.left_out.append(RefusedLine.by(error, f"{row['kind']} {row['record_key']}", number))
            if number % PAGE == 0 or number == size["events"]:
                report(number, max(number, size["events"]))
    return counts


async def export_memories(url: str, file: IO[bytes], counts: ExportCounts) -> None:
    """
    Write what every memory says now to *file*, for ``imem memories import --from jsonl``.

    Raises:
        PostgresUnavailable: the file is incomplete.
    """
    async with _rows(url, "export_memories") as rows:
        async for row in rows:
            file.write(orjson.dumps({name: value for name, value in row.items() if value is not None}) + b"\n")
            counts.memories += 1
