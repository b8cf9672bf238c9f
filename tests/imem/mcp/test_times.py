"""Times of the past in calls of tools: honoured where the actor may state them, and else said to have no effect."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from mcp_types import CallToolRequestParams, CallToolResult

from imem.journal.actors import Actor
from imem.journal.settings import Role
from imem.mcp.server import MemoryServer
from imem.mcp.times import stated_time
from imem.memory import Memory
from tests.recall import facts
from tests.recall.conftest import RecallHarness, empty, harness, journal, world

__all__ = ["empty", "harness", "journal", "world"]

PAST = "2026-01-05T09:00:00Z"
NO_EFFECT = "had no effect"
KNOWN_NOW = "known from now on"


async def called(memory: Memory, actor: Actor, name: str, **arguments: Any) -> CallToolResult:
    server = MemoryServer(memory, actor, "1")
    return await server.call_tool(None, CallToolRequestParams(name=name, arguments=arguments))


def said(result: CallToolResult) -> str:
    """Return what both forms say of a time; the same in each."""
    [content] = result.content
    assert content.type == "text"
    assert result.structured_content is not None
    remark = str(result.structured_content.get("remark", ""))
    assert not result.is_error, content.text
    assert remark in content.text
    return remark


def analysis(key: str, **more: Any) -> dict[str, Any]:
    return {"id": key, "subject_id": "company:T0", "date": PAST, "kind": "note", "recommendation": "buy", **more}


async def test_times_of_the_past(harness: RecallHarness) -> None:
    """An agent states none, and its result says so; a person with the import right does."""
    await harness.know([facts.company("T0", 0)])
    day_after = datetime(2026, 1, 6, tzinfo=UTC)
    agent = harness.settings.model_copy(update={"actor": "ann", "role": Role.AGENT, "may_import": False})
    person = harness.settings.model_copy(update={"actor": "kate", "role": Role.HUMAN_ADMIN, "may_import": True})
    async with Memory.open(agent) as memory:
        ann = Actor.from_settings(agent)
        for name, more in (("store_memory", {"text": "Ann said so."}), ("record_analysis", analysis("a1"))):
            remark = said(await called(memory, ann, name, **more, occurred_at=PAST))
            assert NO_EFFECT in remark
            assert KNOWN_NOW in remark
        assert KNOWN_NOW in said(await called(memory, ann, "record_analysis", **analysis("a2")))
        now = datetime.now(UTC).isoformat()
        assert said(await called(memory, ann, "record_analysis", **{**analysis("a3"), "date": now})) == ""
        assert said(await called(memory, ann, "store_memory", text="Ann says so now.", occurred_at=None)) == ""
        decided = {"id": "d1", "subject_id": "company:T0", "type": "portfolio", "decided_at": PAST}
        assert KNOWN_NOW in said(await called(memory, ann, "record_decision", **decided))
        assert (await memory.memories.search("ann", as_of=day_after, deadline_ms=10_000)).items == []
    async with Memory.open(person) as memory:
        kate = Actor.from_settings(person)
        assert said(await called(memory, kate, "store_memory", text="Kate said so.", occurred_at=PAST)) == ""
        assert said(await called(memory, kate, "record_analysis", **analysis("k1"), occurred_at=PAST)) == ""
        assert KNOWN_NOW in said(await called(memory, kate, "record_analysis", **analysis("k2")))
        found = await memory.memories.search("kate ann", as_of=day_after, deadline_ms=10_000)
        assert [one.content for one in found.items] == ["Kate said so."]
        await harness.work()
        history = await memory.history("company:T0", as_of=day_after)
        assert [one.analysis.key for one in history.items] == ["k1"]


@pytest.mark.parametrize(
    "wrong",
    ["soon", 5, (datetime.now(UTC) + timedelta(days=3)).isoformat(), "2026-01-05T09:00:00"],
    ids=["no time", "number", "future", "no zone"],
)
async def test_a_time_that_is_none(harness: RecallHarness, wrong: Any) -> None:
    """It is refused by name, for whoever states it."""
    settings = harness.settings.model_copy(update={"actor": "ann", "role": Role.AGENT, "may_import": False})
    async with Memory.open(settings) as memory:
        result = await called(memory, Actor.from_settings(settings), "store_memory", text="x", occurred_at=wrong)
    assert result.is_error
    assert result.structured_content is not None
    assert result.structured_content["argument"] == "occurred_at"


def test_a_day_alone_is_that_day() -> None:
    """Its end, and of today now; a clock that is a little ahead is none to refuse."""
    kate = Actor("kate", Role.HUMAN_ADMIN, may_import=True)
    now = datetime.now(UTC)

    def stated(value: str) -> datetime:
        return cast("datetime", stated_time({"occurred_at": value}, kate)["occurred_at"])

    assert stated("2026-05-31") == datetime(2026, 5, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    for today in (now.date().isoformat(), (now + timedelta(seconds=5)).isoformat()):
        assert now <= stated(today) <= datetime.now(UTC)
