"""Deletions over MCP: what a client reads when one stops half-way."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from mcp_types import CallToolRequestParams, CallToolResult

from imem.journal.actors import Actor
from imem.journal.settings import Role
from imem.mcp.server import MemoryServer
from imem.recall.memories import store as table
from tests.imem.memories.conftest import Places, memory_of, places
from tests.imem.memory.conftest import MemoryHarness, harness

__all__ = ["harness", "places"]

REFUSING = """
CREATE FUNCTION recall.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON recall.memory FOR EACH ROW WHEN (OLD.importance = 1)
EXECUTE FUNCTION recall.refuse();
"""
"""Makes Postgres refuse to delete one memory."""


async def test_a_deletion_that_stops_half_way_claims_nothing(
    harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error does not say that nothing was recorded; the same call deletes the rest."""
    del places
    monkeypatch.setattr(table, "DELETED", 2)
    async with memory_of(harness) as memory:
        server = MemoryServer(memory, Actor("ann", Role.AGENT), "1")

        async def call(name: str, **given: Any) -> tuple[CallToolResult, str]:
            result = await server.call_tool(None, CallToolRequestParams(name=name, arguments=given))
            [content] = result.content
            return result, content.model_dump()["text"]

        for nth in range(4):
            await memory.remember(f"Note {nth}.", namespace="symbol/MU")
        harness.rows(
            "UPDATE recall.memory SET importance = 1 WHERE id = (SELECT id FROM recall.memory ORDER BY id DESC LIMIT 1)"
            " RETURNING 1"
        )
        with psycopg.connect(harness.admin_url, autocommit=True) as conn:
            conn.execute(REFUSING)
            stopped, text = await call("change_memory", action="delete", namespace="symbol/MU")
            assert stopped.is_error
            assert harness.rows("SELECT count(*) FROM recall.memory") == [{"count": 2}]
            assert "recorded" not in text
            assert stopped.structured_content is not None
            assert "recorded" not in stopped.structured_content
            conn.execute("DROP TRIGGER refuse ON recall.memory")
        done, text = await call("change_memory", action="delete", namespace="symbol/MU")
        assert (done.is_error, "deleted: 2" in text) == (False, True)
        refused, text = await call("store_memory", text="x", namespace="symbol/../MU")
        assert (refused.is_error, "Nothing was recorded." in text) == (True, True)
