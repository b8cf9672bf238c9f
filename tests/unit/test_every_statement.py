"""The statements that are planned before anybody waits for them are those with which records are written."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
import pytest

from imem.kg.projection.plan_warming import AWAITED
from imem.kg.projection.rows import Event, Projection, statements_of
from tests.kg.projection.histories import CORES, GROUPS
from tests.kg.projection.world import Line, entries_of

MOMENT = "2026-01-09T00:00:00.000000+00:00"


def texts_of(*lines: Line) -> list[str]:
    """Return the statements that write *lines* as one batch, in their order."""
    projection = Projection()
    for entry in entries_of(*lines):
        payload: dict[str, Any] = orjson.loads(entry.payload)
        projection.add(Event(1, uuid4(), entry.kind, entry.key, payload, MOMENT, MOMENT, MOMENT, MOMENT))
    return [work.text for work in projection.work()]


@pytest.mark.parametrize(("kind", "key"), [slot for slot in CORES if slot[0] in AWAITED])
def test_records_are_written_with_statements_that_are_planned(kind: str, key: str) -> None:
    """Each of them, and in the order in which they were planned; the first is the first."""
    groups = GROUPS.get((kind, key), {})
    # Each group has a subsystem of its own that may write it.
    written = texts_of(
        {"record": kind, "core": CORES[kind, key]},
        *({"record": kind, "key": key, "groups": {name: values[0]}} for name, values in groups.items()),
    )
    planned = [work.text for work in statements_of(kind)]

    assert [text for text in planned if text in written] == written
    assert planned[0] == written[0]
    assert all(work.rows == [] for work in statements_of(kind))


def test_all_kinds_that_are_waited_for_are_looked_at() -> None:
    assert {kind for kind, _ in CORES} >= set(AWAITED)
