"""Nothing is recorded with a date of the future at which it happened, whatever its kind and whichever door it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from mcp_types import CallToolRequestParams

from imem import Memory
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.events.entry import AppendStatus
from imem.journal.settings import Role
from imem.kg.kinds.base import Kind
from imem.kg.kinds.catalog import KINDS, PAST_DATES, link_props
from imem.kg.kinds.links import LINK_KINDS
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.mcp.server import MemoryServer
from imem.services.stores import Stores
from tests.imem.ingest.conftest import LoadHarness

Line = dict[str, Any]

LATER = "2099-01-01T00:00:00.000000Z"
KNOWN = "2026-06-01T10:00:00.000000Z"
MU: Line = {"subject_id": "company:MU"}

RECORDS: Mapping[str, tuple[str, Line]] = {
    "Analysis": ("date", {"id": "x", **MU, "kind": "note"}),
    "Decision": ("decided_at", {"id": "x", **MU, "type": "portfolio", "agents_involved": ["ann"]}),
    "Debate": (
        "timestamp",
        {"id": "x", **MU, "topic": "?", "challenger_agent": "ann", "challenged_agent": "bob",
         "participants": ["ann", "bob"]},
    ),
    "DataContradiction": (
        "timestamp",
        {"id": "x", **MU, "data_point": "p", "source_a": "a", "source_b": "b", "value_a": 1.0, "value_b": 2.0},
    ),
    "DataPoint": (
        "filed_at",
        {**MU, "metric": "m", "period_end": KNOWN, "unit": "USD", "value": 1.0, "source": "s", "document": "d"},
    ),
    "Outcome": (
        "observed_at", {"id": "x", **MU, "metric": "up", "target_at": KNOWN, "actual": 1.0, "vintage": 0},
    ),
    "RegimeReading": ("observed_at", {"id": "x", "regime": "NORMAL", "stale": False, "source": "eve", "market": "US"}),
    "CredibilityPin": ("pinned_at", {"id": "x", "agent": "ann", "domain": "d", "score": 0.5, "reason": "A review."}),
}  # fmt: skip
"""Kinds that are recorded from outside, with the field of their date and the rest of a core."""

LINKS: Mapping[str, Line] = {
    "CITES": {"from": {"Decision": "d"}, "to": {"Finding": "f"}},
    "RECEIVED_LESSON": {"from": {"Agent": "ann"}, "to": {"Lesson": "l"}},
}

CASES: dict[str, tuple[Line, str]] = {
    **{
        kind: ({"record": kind, "core": {**core, field: LATER}}, f"core.{field}")
        for kind, (field, core) in RECORDS.items()
    },
    **{name: ({"link": name, **ends, "props": {"at": LATER}}, "props.at") for name, ends in LINKS.items()},
    "a resolution": (
        {"record": "Market", "key": "m", "groups": {"resolution": {"resolved_at": LATER, "resolution": "yes"}}},
        "groups.resolution.resolved_at",
    ),
    "occurred_at": ({"record": "Company", "core": {"ticker": "MU"}, "occurred_at": LATER}, "occurred_at"),
    "occurred_at of a link": (
        {"link": "PERFORMED", "from": {"Agent": "ann"}, "to": {"Analysis": "x"}, "props": {}, "occurred_at": LATER},
        "occurred_at",
    ),
}


async def record(memory: Any, line: Line) -> Any:
    """Call the method that records *line*; the blocking twin's answer is the receipt itself."""
    clocks = {} if "occurred_at" not in line else {"occurred_at": datetime.fromisoformat(line["occurred_at"])}
    if "link" in line:
        ends = [next(iter(line[end].items())) for end in ("from", "to")]
        made = memory.link(line["link"], *ends, line["props"], **clocks)
    else:
        info = KINDS[line["record"]]
        if "core" in line:
            model: Kind = info.model.model_validate(line["core"])
            made = memory.record(model, **clocks)
        else:
            groups = {name: info.groups[name].model.model_validate(one) for name, one in line["groups"].items()}
            made = memory.record_groups(info.model, line["key"], groups, **clocks)
    return made if not hasattr(made, "__await__") else await made


@pytest.mark.parametrize("name", CASES)
async def test_every_door_refuses_and_names_the_field(harness: LoadHarness, name: str) -> None:
    """Python, its blocking twin, a load, a strict one, a dry run, and the append itself, of an import and a person."""
    line, field = CASES[name]
    person = harness.as_role(Role.HUMAN_ADMIN, "eve", may_import=True)
    async with Memory.open(person.settings) as memory:
        with pytest.raises(BadInput, match="lies in the future") as refused:
            await record(memory, line)
        assert refused.value.field == field
    with Memory.sync(person.settings) as blocking, pytest.raises(BadInput, match="lies in the future") as refused:
        await record(blocking, line)
    assert refused.value.field == field
    stated = {**line, "known_at": KNOWN}
    async with Stores.open(person.settings) as stores:
        for given, actor in (
            (line, Actor("eve", Role.HUMAN_ADMIN)),
            (stated, Actor("eve", Role.HUMAN_ADMIN, may_import=True)),
        ):
            entry = entry_of(parse_line(orjson.dumps(given), needs_known_at="known_at" in given))
            (receipt,) = await stores.gateway.append([entry], actor=actor, deadline=Deadline.never())
            assert receipt.verdict is AppendStatus.NOT_BEGUN
    path = harness.file("lines.jsonl", [stated])
    for options in ((), ("--strict",), ("--dry-run",)):
        told = harness.load(*options, path)
        assert [(one["field"], "future" in one["reason"]) for one in told["refused"]] == [(field, True)], options
    assert harness.count("event") == 0


@pytest.mark.parametrize("name", CASES)
async def test_a_clock_that_is_a_little_ahead_is_not_refused(harness: LoadHarness, name: str) -> None:
    at = (datetime.now(UTC) + timedelta(seconds=40)).isoformat().replace("+00:00", "Z")
    line = json.loads(json.dumps(CASES[name][0]).replace(LATER, at))

    async with Memory.open(harness.as_role(Role.HUMAN_ADMIN, "eve", may_import=True).settings) as memory:
        assert (await record(memory, line)).verdict is AppendStatus.NEW


async def test_mcp_refuses_an_analysis_of_the_future(harness: LoadHarness) -> None:
    agent = Actor("ann", Role.AGENT)
    given = {"id": "x", "subject_id": "company:MU", "date": LATER, "kind": "note"}
    async with Memory.open(harness.as_role(Role.AGENT, "ann").settings) as memory:
        handlers = MemoryServer(memory, agent, "1")
        answer = await handlers.call_tool(None, CallToolRequestParams(name="record_analysis", arguments=given))

    assert answer.is_error
    assert "lies in the future" in str(answer.structured_content)
    assert harness.count("event") == 0


async def test_a_correction_sets_no_date_of_the_future(harness: LoadHarness) -> None:
    """Where the record it corrects was dated well."""
    field, core = RECORDS["Decision"]
    model = KINDS["Decision"].model
    async with Memory.open(harness.as_role(Role.HUMAN_ADMIN, "eve", may_import=True).settings) as memory:
        await memory.record(model.model_validate({**core, field: KNOWN}))
        with pytest.raises(BadInput, match="lies in the future") as refused:
            await memory.correct(model.model_validate({**core, field: LATER}), "A slip.")
    assert refused.value.field == f"core.{field}"


async def test_what_lies_ahead_may_be_stated(harness: LoadHarness) -> None:
    """The day on which a claim is due, a question closes, or a pin ends."""
    async with Memory.open(harness.as_role(Role.HUMAN_ADMIN, "eve", may_import=True).settings) as memory:
        for kind, core in (
            ("Market", {"market_id": "m", "question": "Will it?", "closes_at": LATER}),
            ("Finding", {"id": "f", "analysis_id": "a", **MU, "agent": "eve", "domain": "d", "statement": "It does.",
                         "metric": "up", "probability": 0.7, "target_at": LATER}),
            ("CredibilityPin", {**RECORDS["CredibilityPin"][1], "pinned_at": KNOWN, "until": LATER}),
        ):  # fmt: skip
            assert (await memory.record(KINDS[kind].model.model_validate(core))).verdict is AppendStatus.NEW


def test_sql_knows_the_dates_of_every_kind(harness: LoadHarness) -> None:
    for kind, paths in PAST_DATES.items():
        [(found,)] = harness.rows("SELECT imem_past_dates_v1(%s)", kind)
        assert sorted(found or ()) == sorted("{" + ",".join(path) + "}" for path in paths), kind


AHEAD = {
    "Market.opens_at", "Market.closes_at", "Finding.period_start", "Finding.target_at", "Outcome.period_start",
    "Outcome.target_at", "PatternValidation.test_start_date", "PatternValidation.test_end_date",
    "ArchiveDirectory.retention_expiry", "CredibilityPin.until", "DataPoint.period_start", "DataPoint.period_end",
}  # fmt: skip
"""Times of a core that may lie in the future; that of an outcome is refused by a rule of its own."""


def test_every_time_of_a_core_or_a_link_is_of_the_past_or_may_lie_ahead() -> None:
    times = {
        f"{label}.{name}": prop.type.past or (name == info.occurred and not info.settles)
        for label, info in KINDS.items()
        for name, prop in info.core.properties.items()
        if prop.type.name == "datetime"
    }
    times |= {
        f"{link.name}.{name}": prop.type.past
        for link in LINK_KINDS
        if not link.derived
        for name, prop in link_props(link).properties.items()
        if prop.type.name == "datetime"
    }

    assert {name for name, past in times.items() if not past} == AHEAD
