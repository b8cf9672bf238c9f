"""MCP over HTTP: the protocol's own client and a server that listens, with several identities in one process."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import pytest
import pytest_asyncio
import uvicorn
from mcp import MCPError
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import SecretStr

from imem.api.app import make_app
from imem.api.guards import MOST_BODY_BYTES
from imem.api.mcp_endpoint import PATH, allowed_names
from imem.api.server import Server
from imem.cache.rate_limit import RateLimiter
from imem.journal.deadline import Deadline
from imem.journal.settings import Role, Settings
from imem.mcp.tools import TOOLS
from tests.imem.api.conftest import ADMIN, new_token, tokens_of
from tests.imem.mcp.test_stdio import CALLS, HELLO, KNOWN, text_of
from tests.recall.conftest import RecallHarness, empty, harness, journal, world

__all__ = ["empty", "harness", "journal", "world"]

READING = [tool.name for tool in TOOLS if not tool.right.writes]

ROLES = {"kate": Role.HUMAN_ADMIN, "ann": Role.AGENT, "eve": Role.READER}


@dataclass(frozen=True)
class Listener:
    """
    A server that listens.

    Attributes:
        url: of MCP.
        server: its parts.
    """

    url: str
    server: Server

    async def token(self, name: str, **options: Any) -> str:
        """Create a token of somebody of :data:`ROLES`."""
        return (await new_token(self.server, name, ROLES[name], **options)).secret

    @asynccontextmanager
    async def client(self, token: str, mode: str = "auto") -> AsyncIterator[Client]:
        """Connect the protocol's own client."""
        async with (
            self.bare(token) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as mcp,
        ):
            yield mcp

    def bare(self, token: str | None, **headers: str) -> httpx2.AsyncClient:
        """Return a client of HTTP."""
        mine = {} if token is None else {"Authorization": f"Bearer {token}"}
        accepted = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        return httpx2.AsyncClient(headers={**accepted, **mine, **headers}, timeout=60.0)

    async def post(self, token: str | None, body: bytes | dict[str, Any], **headers: str) -> httpx2.Response:
        """Send one message."""
        async with self.bare(token, **headers) as http:
            return await http.post(self.url, content=body if isinstance(body, bytes) else json.dumps(body))


def asked(method: str, **params: Any) -> dict[str, Any]:
    """Return a message."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@asynccontextmanager
async def listening(settings: Settings, **parts: Any) -> AsyncIterator[Listener]:
    """Listen in this process, on a free port; *parts* take the place of the server's own."""
    async with Server.open(settings) as whole:
        server = replace(whole, **parts)
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            bound.listen()
            served = uvicorn.Server(uvicorn.Config(make_app(server), log_config=None, access_log=False))
            task = asyncio.create_task(served.serve(sockets=[bound]))
            try:
                yield Listener(f"http://127.0.0.1:{bound.getsockname()[1]}{PATH}", server)
            finally:
                served.should_exit = True
                await task


def settings_of(harness: RecallHarness, **changes: Any) -> Settings:
    """Return settings whose encoder is one that nothing is fetched for."""
    return harness.settings.model_copy(update={"embedding_local": "universal-3", "deadline_ms": 20_000, **changes})


@pytest_asyncio.fixture
async def listener(harness: RecallHarness) -> AsyncIterator[Listener]:
    async with listening(settings_of(harness)) as listener:
        yield listener


@pytest.mark.spec("IF-4")
async def test_the_official_client_lists_and_calls_every_tool(harness: RecallHarness, listener: Listener) -> None:
    """In both eras of the protocol, for three identities of one process; a reader sees no tool that writes."""
    await harness.know(KNOWN)
    async with AsyncExitStack() as open_clients:
        kate, ann, eve = [
            await open_clients.enter_async_context(listener.client(await listener.token(name))) for name in ROLES
        ]
        listed = [[tool.name for tool in (await client.list_tools()).tools] for client in (kate, ann, eve)]
        assert listed == [list(CALLS), list(CALLS), READING]
        for name in ("challenge", *reversed(CALLS)):
            result = await kate.call_tool(name, CALLS[name])
            assert not result.is_error, text_of(result)
            assert result.structured_content is not None
        await harness.work()
        for name in READING:
            result = await eve.call_tool(name, CALLS[name])
            assert not result.is_error, text_of(result)
        for uri in ("imem://company/T0", "imem://debate/b0"):
            assert (await eve.read_resource(uri)).contents
        with pytest.raises(MCPError, match="nothing is known"):
            await eve.read_resource("imem://company/NONE")
    for name, tools in (("ann", list(CALLS)), ("eve", READING)):
        async with listener.client(await listener.token(name), mode="legacy") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == tools
            assert "Company T0" in text_of(await client.call_tool("brief", CALLS["brief"]))


@pytest.mark.spec("IF-4")
async def test_each_call_acts_as_its_token(harness: RecallHarness, listener: Listener) -> None:
    """Calls of three identities at once: each writes under its own name, and a reader is denied, with one audit row."""
    await harness.know(KNOWN)
    async with AsyncExitStack() as open_clients:
        clients = {
            name: await open_clients.enter_async_context(listener.client(await listener.token(name))) for name in ROLES
        }

        async def store(name: str, number: int) -> bool:
            given = {"text": f"Note {number} of {name}.", "namespace": "symbol/T0"}
            result = await clients[name].call_tool("store_memory", given)
            assert not result.is_error or f"eve ({Role.READER})" in text_of(result), text_of(result)
            return not result.is_error

        calls = [(name, number) for number in range(4) for name in ROLES]
        stored = await asyncio.gather(*(store(name, number) for name, number in calls))
        assert stored == [name != "eve" for name, _ in calls]
        other = await clients["ann"].call_tool("track_record", {"agent": "agent0"})
        assert "ann (agent)" in text_of(other)
        assert not (await clients["kate"].call_tool("track_record", {"agent": "agent0"})).is_error
    rows = await harness.journal.rows("SELECT agent_id, content FROM recall.memory ORDER BY agent_id, content")
    assert [tuple(row.values()) for row in rows] == [
        (name, f"Note {number} of {name}.") for name in ("ann", "kate") for number in range(4)
    ]
    denied = await harness.journal.rows(
        "SELECT actor_id, actor_role, resource_type, action FROM memory_access_audit WHERE NOT authorized ORDER BY id"
    )
    assert [tuple(row.values()) for row in denied] == [
        *[("eve", "reader", "memories", "write")] * 4,
        ("ann", "agent", "credibility", "read"),
    ]


async def test_without_a_token_in_force_nothing_is_answered(harness: RecallHarness, listener: Listener) -> None:
    """Missing, malformed, foreign, expired and revoked ones are refused alike, each with one row in the audit."""
    revoked = await new_token(listener.server, "ann")
    async with listener.client(revoked.secret) as client:
        assert (await client.list_tools()).tools
        await tokens_of(listener.server).revoke(revoked.token.token_id, actor=ADMIN, deadline=Deadline.after_ms(10_000))
        with pytest.raises(MCPError):
            await client.call_tool("brief", CALLS["brief"])
    expired = await listener.token("ann", days=1e-9)
    said = set()
    for token in (None, "a b", "none", "imem_" + "x" * 43, "x" * 10_000, expired):
        refused = await listener.post(token, asked("tools/list"))
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.headers["content-type"] == "application/problem+json"
        said.add(refused.text)
    assert len(said) == 1
    rows = await harness.journal.rows(
        "SELECT actor_id, action_reason FROM memory_access_audit WHERE action = 'authenticate' AND NOT authorized"
        " ORDER BY id"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("ann", "revoked"), *[("unknown", "unknown")] * 5, ("ann", "expired"),
    ]  # fmt: skip


async def test_a_session_id_of_another_gives_no_rights(listener: Listener) -> None:
    """No session is begun, so that there is none to take over: what counts is the token of the request itself."""
    kate, eve = await listener.token("kate"), await listener.token("eve")
    begun = await listener.post(kate, asked("initialize", **HELLO))
    assert begun.status_code == 200
    assert "mcp-session-id" not in begun.headers
    headers = {"Mcp-Session-Id": "of-kate", "MCP-Protocol-Version": HELLO["protocolVersion"]}
    listed = await listener.post(eve, asked("tools/list"), **headers)
    assert [tool["name"] for tool in listed.json()["result"]["tools"]] == READING
    call = asked("tools/call", name="store_memory", arguments=CALLS["store_memory"])
    denied = await listener.post(eve, call, **headers)
    assert denied.json()["result"]["structuredContent"]["error"] == "PermissionDenied"
    assert (await listener.post(None, call, **headers)).status_code == 401
    for method in ("GET", "DELETE"):
        async with listener.bare(kate, **headers) as http:
            assert (await http.request(method, listener.url)).status_code == 405


DEEP = b"[" * 100_000

WRONG: list[tuple[str, bytes, dict[str, str], int]] = [
    ("another site's name of this machine", b"{}", {"Host": "evil.example"}, 421),
    ("another site's page", b"{}", {"Origin": "https://evil.example"}, 403),
    ("too long", b'"' + b"x" * MOST_BODY_BYTES + b'"', {}, 413),
    ("not UTF-8", b'{"id": "\xff"}', {}, 422),
    ("no JSON", b"{", {}, 422),
    ("too deep", DEEP, {}, 422),
    ("deep", b"[" * 300 + b"]" * 300, {}, 400),
    ("several messages", json.dumps([asked("tools/list")]).encode(), {}, 400),
    ("no message", b'{"a": 1}', {}, 400),
    ("no type", b"{}", {"Content-Type": "text/plain"}, 400),
    ("an unknown version", json.dumps(asked("tools/list")).encode(), {"MCP-Protocol-Version": "1999-01-01"}, 400),
]


async def test_wrong_requests_are_refused(harness: RecallHarness, listener: Listener) -> None:
    """Each with its status; nothing is recorded, and the next request is answered."""
    kate = await listener.token("kate")
    message = asked("tools/list")
    for what, body, headers, status in WRONG:
        refused = await listener.post(kate, body if body != b"{}" or "Content-Type" in headers else message, **headers)
        assert (what, refused.status_code) == (what, status), refused.text
    listed = await listener.post(kate, message, Origin="http://localhost:3000")
    assert len(listed.json()["result"]["tools"]) == len(TOOLS)
    assert (await harness.journal.rows("SELECT count(*) AS n FROM event"))[0]["n"] == 0


async def test_calls_are_limited_by_identity(harness: RecallHarness) -> None:
    """Reads and writes apart; a call beyond the limit is a result that says when it may be repeated."""
    # The process counts by itself: a cache server that is busy would answer some calls too late to count them.
    limiter = RateLimiter(None, writes_per_minute=1, reads_per_minute=2)
    async with listening(settings_of(harness), limiter=limiter) as listener:
        for name in ("ann", "kate"):
            async with listener.client(await listener.token(name)) as client:
                first = await client.call_tool("change_memory", CALLS["change_memory"])
                assert not first.is_error, text_of(first)
                for tool in ("store_memory", "change_memory"):
                    beyond = await client.call_tool(tool, CALLS[tool])
                    assert beyond.is_error
                    assert beyond.structured_content is not None
                    assert beyond.structured_content["error"] == "TooManyRequests"
                    assert beyond.structured_content["retryable"] is True
                    assert beyond.structured_content["recorded"] is False
                assert not (await client.call_tool("search_memories", {})).is_error
                with pytest.raises(MCPError, match="none of imem:"):
                    await client.read_resource("imem://none/1")
                with pytest.raises(MCPError, match="Too many calls"):
                    await client.read_resource("imem://none/1")
    assert (await harness.journal.rows("SELECT count(*) AS n FROM recall.memory"))[0]["n"] == 0


async def test_a_journal_that_is_away_is_said_so(harness: RecallHarness) -> None:
    """Whose a call is cannot be looked up: 503, which may be tried again."""
    away = SecretStr("postgresql://a@127.0.0.1:1/a")
    async with listening(settings_of(harness, postgres_url=away, postgres_curator_url=None)) as listener:
        refused = await listener.post("imem_" + "x" * 43, asked("tools/list"))
    assert refused.status_code == 503
    assert refused.json()["retryable"] is True


def test_the_public_address_may_be_named() -> None:
    """Beside this machine's own names, with any port."""
    allowed = allowed_names("https://memory.example.com/")
    assert set(allowed.allowed_hosts) - set(allowed_names("").allowed_hosts) == {"memory.example.com"}
    assert set(allowed.allowed_origins) - set(allowed_names("").allowed_origins) == {"https://memory.example.com"}
    assert "127.0.0.1:*" in allowed.allowed_hosts
    assert "http://localhost:*" in allowed.allowed_origins
