"""An event becomes the line of which it was made, and only an export's file may state what subsystems govern."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from imem.ingest.export import line_of
from imem.ingest.export_header import header_of, is_header
from imem.ingest.line_reader import LineBatches, LineReader, LoadSource
from imem.journal.errors import BadInput
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import ANY_WRITER, parse_line
from tests.kg.projection.histories import CORES, DAYS, GROUPS, LINES

KNOWN = "2026-06-01T10:00:00.123456Z"

TOLD: list[dict[str, Any]] = [
    *({"record": kind, "core": core} for (kind, _), core in CORES.items()),
    *(
        {"record": kind, "key": key, "groups": {name: value}}
        for (kind, key), groups in GROUPS.items() for name, values in groups.items() for value in values
    ),
    *LINES,
    {"correct": "Analysis", "core": CORES["Analysis", "a1"], "reason": "A slip."},
    {"record": "Analysis", "core": CORES["Analysis", "a1"], "body": "Long."},
    {"record": "Debate", "core": CORES["Debate", "b1"], "groups": {"state": {"state": "level1", "provisional": False}},
     "turns": [{"number": 0, "speaker": "bull", "text": "\u682a \u0001", "cites": ["f1"]}]},
]  # fmt: skip


def event_of(members: dict[str, Any], known: str = KNOWN) -> dict[str, Any]:
    """Return the event that a line becomes, as Postgres returns it."""
    entry = entry_of(parse_line(orjson.dumps({**members, "known_at": known}), writer=ANY_WRITER))
    at = datetime.fromisoformat(known)
    return {
        "kind": entry.kind, "record_key": entry.key, "payload": orjson.loads(entry.payload), "body": entry.body,
        "turns": orjson.loads(entry.turns) if entry.turns else None, "known_at": at,
        "occurred_at": entry.occurred_at or at,
    }  # fmt: skip


@pytest.mark.parametrize("members", TOLD, ids=lambda members: next(iter(members.values())))
def test_an_event_comes_back_as_the_same_entry(members: dict[str, Any]) -> None:
    event = event_of(members)

    line = parse_line(line_of(event), writer=ANY_WRITER)

    told = entry_of(parse_line(orjson.dumps({**members, "known_at": KNOWN}), writer=ANY_WRITER))
    back = entry_of(line)
    assert (back.kind, back.key, back.payload, back.groups, back.body, back.turns) == (
        told.kind, told.key, told.payload, told.groups, told.body, told.turns,
    )  # fmt: skip
    assert (back.known_at, back.occurred_at) == (event["known_at"], event["occurred_at"])


def test_a_claim_that_was_repeated_after_its_target_keeps_its_groups() -> None:
    core = {**CORES["Finding", "f1"], "target_at": DAYS[0]}
    archive = GROUPS["Finding", "f1"]["archive"][0]
    event = {
        **event_of({"record": "Finding", "key": "f1", "groups": {"archive": archive}}),
        "payload": {"key": "f1", "core": core, "groups": {"archive": archive}},
    }
    late = orjson.loads(line_of(event))
    assert ("core" in late, late["key"], late["groups"].keys()) == (False, "f1", {"archive"})
    del event["payload"]["groups"]
    with pytest.raises(BadInput, match="is not after known_at"):
        line_of(event)


def test_a_link_that_no_program_knows_is_named() -> None:
    with pytest.raises(BadInput, match="is no kind of record"):
        line_of({**event_of(TOLD[0]), "kind": "record.Unknown"})


def read(content: bytes) -> Any:
    reader = LineReader(LoadSource(None, "test"), io.BufferedReader(io.BytesIO(content)))
    return LineBatches(reader).next_batch()


def test_the_first_line_alone_lets_in_what_subsystems_govern() -> None:
    status = {"record": "Pattern", "key": "p1", "groups": {"status": {"status": "active", "quarantined": False}}}
    line = orjson.dumps({**status, "known_at": KNOWN}) + b"\n"
    taken, plain, late = read(header_of(7) + line), read(line), read(line + header_of(7) + line)
    assert (taken.exported, len(taken.lines), taken.refused) == (True, 1, [])
    assert (plain.exported, len(plain.lines), len(plain.refused)) == (False, 0, 1)
    assert (late.exported, len(late.lines), len(late.refused)) == (False, 0, 3)
    assert taken.numbers == [2]


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"export":1}', b'{"export":1,"position":1,"exported_at":"x","core":{}}', b"\xff"]
)
def test_what_is_no_header_is_a_line(raw: bytes) -> None:
    assert not is_header(raw)


def test_a_header_of_a_later_version_is_refused() -> None:
    assert datetime.fromisoformat(orjson.loads(header_of(1))["exported_at"]) <= datetime.now(UTC)
    with pytest.raises(BadInput, match="is of version 2"):
        is_header(header_of(1).replace(b'"export":1', b'"export":2'))
