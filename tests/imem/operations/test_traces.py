"""One write is followed from its caller through the streams and the applier into the graph; and found by its name."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import SecretStr

from imem.journal.errors import BadInput, SettingsError
from imem.journal.settings import Settings
from imem.journal.telemetry.correlation import correlated, correlation
from imem.tracing import send_traces
from tests.http_server import HttpServer, serving
from tests.kg.projection.world import Journal, World
from tests.servers import as_curators

TOP = Path(__file__).resolve().parents[3]


async def followed(world: World, journal: Journal, endpoint: str) -> list[dict[str, Any]]:
    """Run the program against the servers; return what it logged."""
    plain = {name: getattr(world.settings, name) for name in Settings.model_fields if name.endswith(("_url", "_user"))}
    told = {name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in plain.items()}
    told |= {
        "postgres_url": journal.url,
        "postgres_curator_url": as_curators(world.settings, journal.url),
        "postgres_pipeline_url": journal.pipeline_url,
        "otlp_endpoint": endpoint,
        "home": str(world.settings.home),
        "actor": "ann",
    }
    told |= (
        {"neo4j_password": world.settings.neo4j_password.get_secret_value()} if world.settings.neo4j_password else {}
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.imem.operations.followed", cwd=TOP,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    given = {name: value for name, value in told.items() if value is not None}
    _, logged = await asyncio.wait_for(process.communicate(json.dumps(given).encode() + b"\n"), 120)
    assert process.returncode == 0, logged.decode()
    return [json.loads(line) for line in logged.splitlines()]


def spans(collector: HttpServer) -> list[Any]:
    """Return what the collector got."""
    assert {asked.path for asked in collector.asked} == {"/v1/traces"}
    requests = [ExportTraceServiceRequest.FromString(asked.body) for asked in collector.asked]
    of_process = [resource for request in requests for resource in request.resource_spans]
    names = {
        attribute.value.string_value
        for resource in of_process
        for attribute in resource.resource.attributes
        if attribute.key == "service.name"
    }
    assert names == {"imem-test"}
    return [span for resource in of_process for scope in resource.scope_spans for span in scope.spans]


async def test_a_write_is_followed_into_the_graph(empty: World, journal: Journal) -> None:
    """
    Call, stream, applier and graph are in one trace; what is logged meanwhile names it; a reading has its sections.
    """
    with serving() as collector:
        logged = await followed(empty, journal, collector.url)
    found = spans(collector)
    by_name = {span.name: span for span in found}
    caller = by_name["the caller's own"]

    ours = {span.name: span for span in found if span.trace_id == caller.trace_id}
    assert {"imem.append", "imem.announce", "imem.apply.event"} <= ours.keys()
    assert ours["imem.append"].parent_span_id == caller.span_id
    assert ours["imem.announce"].parent_span_id == ours["imem.append"].span_id
    applied = ours["imem.apply.event"]
    assert applied.parent_span_id == ours["imem.append"].span_id
    (link,) = applied.links
    batch = next(span for span in found if span.span_id == link.span_id)
    assert batch.name == "imem.apply"
    write = next(span for span in found if span.name == "neo4j.write" and span.parent_span_id == batch.span_id)
    assert applied.start_time_unix_nano <= write.start_time_unix_nano
    assert write.end_time_unix_nano <= applied.end_time_unix_nano

    (said,) = [line for line in logged if line["event"] == "caller.says"]
    assert (said["trace_id"], said["correlation_id"]) == (caller.trace_id.hex(), "order-17")

    brief = by_name["imem.brief"]
    sections = [span for span in found if span.name == "imem.section" and span.parent_span_id == brief.span_id]
    assert len(sections) >= 7
    assert any(span.name == "neo4j.read" and span.trace_id == brief.trace_id for span in found)


async def test_a_write_is_found_by_its_name(empty: World, journal: Journal) -> None:
    """In the audit row of its own transaction and beside the event; what nobody named has a name in the audit alone."""
    with serving() as collector:
        await followed(empty, journal, collector.url)
    rows = await journal.rows(
        "SELECT e.record_key, c.correlation_id, c.traceparent FROM event_context AS c JOIN event AS e USING (position)"
    )
    assert [(row["record_key"], row["correlation_id"]) for row in rows] == [("a1", "order-17")]
    assert rows[0]["traceparent"].startswith("00-")
    audited = await journal.rows("SELECT request_context FROM memory_access_audit WHERE action = 'append'")
    assert [row["request_context"]["correlation_id"] for row in audited] == ["order-17"]

    await journal.say({"record": "Company", "core": {"ticker": "MU"}, "known_at": "2026-01-01T00:00:00Z"})
    assert len(await journal.rows("SELECT 1 FROM event_context")) == 1
    (row,) = await journal.rows("SELECT request_context FROM memory_access_audit WHERE action = 'import'")
    assert len(row["request_context"]["correlation_id"]) == 16


async def test_a_collector_that_is_away_stops_nothing(empty: World, journal: Journal) -> None:
    """Spans are dropped; the work is done."""
    await followed(empty, journal, "http://127.0.0.1:1")
    assert (await journal.counts())["pending"] == 0


def test_names_stand_one_in_the_other() -> None:
    """The inner one counts within; without one, that of the block around, or a new one each time."""
    assert correlation() is None
    with correlated("outer"):
        with correlated() as same, correlated("inner") as inner:
            assert (same, inner) == ("outer", "inner")
        now = correlation()
        assert now is not None
        assert (now.id, now.given) == ("outer", True)
    with correlated() as one:
        pass
    with correlated() as other:
        pass
    assert one != other
    assert correlation() is None


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\0b"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="correlation_id"), correlated(name):
        pass


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://h", "http://", "http://me:secret@h:4318"])
def test_an_address_that_is_none_is_refused(endpoint: str) -> None:
    """By the setting's name, without showing it."""
    settings = Settings.read({}, otlp_endpoint=endpoint)
    with pytest.raises(SettingsError, match="IMEM_OTLP_ENDPOINT is no URL") as refused:
        send_traces(settings, "test")
    assert "secret" not in str(refused.value)
