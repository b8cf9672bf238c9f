"""Every kind, group and link through an event and the graph, back to the model; and strings that mean harm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from imem.journal.errors import BadInput
from imem.kg.kinds.catalog import ARCHIVE, CORE, KINDS, LINKS, from_graph, implied_links, link_props
from imem.kg.kinds.links import LINK_KINDS, LinkKind
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from tests.kg.draining import drain
from tests.kg.projection.conftest import CHAOS
from tests.kg.projection.world import Journal, Line, World, analysis, writer_of
from tests.models import to_model
from tests.strategies import HOSTILE, cores_of, link_lines_of, properties_of

KNOWN = "2026-02-03T04:05:06.789012Z"

TWICE = settings(
    max_examples=50 if CHAOS else 2,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=not CHAOS,
    database=None,
)


@pytest_asyncio.fixture(scope="module")
async def shared(world: World) -> AsyncIterator[Journal]:
    """One journal for all examples; what a key says twice is left out."""
    await world.wipe()
    async with world.journal() as journal:
        yield journal


async def _through(world: World, journal: Journal, *lines: Line) -> list[dict[str, Any]]:
    """State the lines, apply what was accepted, and return the payloads."""
    payloads = []
    for line in lines:
        (receipt,) = await journal.say(line)
        assume(receipt.verdict == "new")
        rows = await _since(journal, receipt.position or 0)
        await world.apply(rows)
        payloads.append(dict(rows[0].payload))
    return payloads


async def _since(journal: Journal, position: int) -> list[Any]:
    return [event for event in await journal.events() if event.position >= position]


@pytest.mark.spec("GR-2")
@pytest.mark.parametrize("full", [True, False], ids=["every", "required"])
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.longer
@TWICE
@given(data=st.data())
async def test_records_come_back(world: World, shared: Journal, data: st.DataObject, kind: str, *, full: bool) -> None:
    """The core, each group as a late one of its own, and the links that the record implies."""
    info = KINDS[kind]
    core = data.draw(cores_of(kind, full=full))
    if kind == "Outcome":
        core["target_at"] = "2026-01-01T00:00:00Z"
    if kind == "Finding" and core.get("metric") is not None:
        core["target_at"] = "2199-01-01T00:00:00Z"
    if {"period_start", "target_at"} <= core.keys():
        core["period_start"] = "2000-01-01T00:00:00Z"
    lines: list[Line] = [{"record": kind, "known_at": KNOWN, "core": core}]
    key = orjson.loads(entry_of(parse_line(orjson.dumps(lines[0]), writer=info.governed)).payload)["key"]
    for name, group in info.groups.items():
        # Once it is archived, a node is a stub: that is asked by test_pruning.
        if not group.derived and name != ARCHIVE:
            stated = {name: data.draw(properties_of(group, full=full))}
            lines.append({"record": kind, "known_at": KNOWN, "key": key, "groups": stated})

    said = await _through(world, shared, *lines)

    groups = {name: value for payload in said[1:] for name, value in payload["groups"].items()}
    node = await world.node(kind, said[0]["key"])
    assert node is not None
    assert from_graph(kind, node) == to_model(kind, said[0][CORE], groups)
    assert node["known_at"].to_native().isoformat() == "2026-02-03T04:05:06.789012+00:00"
    for link in implied_links(kind, said[0][CORE]):
        (row,) = await world.run(
            f"MATCH (a:{link.from_label} {{{KINDS[link.from_label].key}: $a}})-[r:{link.type}]->"
            f"(b:{link.to_label} {{{KINDS[link.to_label].key}: $b}}) RETURN properties(r) AS r",
            a=link.from_key,
            b=link.to_key,
        )
        kind_of_link = LINKS[link.type, link.from_label, link.to_label]
        assert link_props(kind_of_link).from_graph(row["r"]) == link.props


WRITTEN = [link for link in LINK_KINDS if not link.implied_by and not link.derived]


@pytest.mark.spec("GR-2")
@pytest.mark.parametrize("full", [True, False], ids=["every", "required"])
@pytest.mark.parametrize("link", WRITTEN, ids=[f"{link.name}-{link.froms[0]}" for link in WRITTEN])
@pytest.mark.longer
@TWICE
@given(data=st.data())
async def test_links_come_back(
    world: World, shared: Journal, data: st.DataObject, link: LinkKind, *, full: bool
) -> None:
    line = {**data.draw(link_lines_of(link, full=full)), "known_at": KNOWN}

    (payload,) = await _through(world, shared, line)

    (row,) = [
        row
        for row in await world.run(
            f"MATCH (a:{payload['from_label']} {{{KINDS[payload['from_label']].key}: $a}})-[r:{link.name}]->"
            f"(b:{payload['to_label']} {{{KINDS[payload['to_label']].key}: $b}}) RETURN properties(r) AS r",
            a=payload["from_key"],
            b=payload["to_key"],
        )
        if link_props(link).from_graph(row["r"]) == payload["props"]
    ]
    assert row["r"]["known_at"].to_native().isoformat() == "2026-02-03T04:05:06.789012+00:00"


# Strings that mean harm


@pytest.mark.spec("GR-11")
@pytest.mark.parametrize("text", [*HOSTILE, "'\"`\\u0000{}", "a\u2028b", "\ud7ff\ue000", "x' OR 1=1 --"])
async def test_hostile_strings_are_stored_verbatim(empty: World, journal: Journal, text: str) -> None:
    """As key and as value, in nodes, links and stubs; nothing else in the graph changes."""
    await journal.say(analysis("bystander", ticker="safe"))
    key = text[:170]
    await journal.say(
        analysis(key, ticker=key, summary=text, model=text[:200]),
        {"record": "Company", "known_at": KNOWN, "key": key, "groups": {"profile": {"name": text[:200]}}},
        {"link": "PERFORMED", "known_at": KNOWN, "from": {"Agent": key[:90].replace("/", "|")}, "to": {"Analysis": key},
         "props": {"role": text[:200]}},
        {"link": "CITES", "known_at": KNOWN, "from": {"Decision": key}, "to": {"Analysis": key},
         "props": {"at": KNOWN}},
    )  # fmt: skip

    applier = empty.applier(journal)
    assert await drain(applier) == 5

    assert (await journal.counts())["dead"] == 0
    node = await empty.node("Analysis", key)
    assert node is not None
    assert (node["summary"], node["model"]) == (text, text[:200])
    assert (await empty.node("Company", key) or {})["name"] == text[:200]
    (counted,) = await empty.run("MATCH (n) WHERE NOT n:AppliedEvent AND NOT n:SchemaVersion RETURN count(n) AS n")
    assert counted == {"n": 6}
    assert (await empty.run("MATCH ()-[r:PERFORMED]->() RETURN r.role AS role")) == [{"role": text[:200]}]
    assert (await empty.node("Analysis", "bystander") or {})["kind"] == "research"


@pytest.mark.spec("GR-11")
@pytest.mark.parametrize(
    ("core", "field"),
    [
        ({"summary": "a\0b"}, "core.summary"),
        ({"summary": "x" * 1_000_000}, "core.summary"),
        ({"id": "k" * 201}, "core.id"),
        ({"id": "k\0"}, "core.id"),
        ({"kind": "🦉" * 201}, "core.kind"),
        ({"subject_id": "company:" + "x" * 1_000_000}, "core.subject_id"),
        ({"`) DETACH DELETE n //": 1}, "core.'`) DETACH DELETE n //'"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_refused_by_name(core: dict[str, Any], field: str) -> None:
    line = analysis("a")
    line["core"] |= core
    with pytest.raises(BadInput) as refused:
        parse_line(orjson.dumps(line), max_bytes=4_000_000, writer=writer_of(line))
    assert refused.value.field == field


@pytest.mark.spec("GR-11")
async def test_the_largest_event_goes_through(empty: World, journal: Journal) -> None:
    """Every long field at its limit, and a body of 64 kB that stays in Postgres."""
    text = "株" * 4000
    core = {"id": "h", "postmortem_id": "p", "primary_reason": text[:200], "factors_missed": text,
            "warning_signs_missed": text, "future_actions": text, "patterns_to_revise": [text[:200]] * 50,
            "foreseeability_rating": 1, "review_date": KNOWN}  # fmt: skip
    await journal.say({"record": "HumanInsight", "known_at": KNOWN, "core": core, "body": "b" * 65_536})

    await drain(empty.applier(journal))

    node = await empty.node("HumanInsight", "h")
    assert node is not None
    assert node["factors_missed"] == text
    assert node["patterns_to_revise"] == [text[:200]] * 50
    assert "body" not in node
