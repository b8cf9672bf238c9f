"""``imem mcp`` as a client sees it: a process that the protocol's own client starts, over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError, StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult

from imem.journal.events.ids import id_of
from imem.journal.settings import Role, Settings
from imem.mcp.stdio import MOST_LINE_BYTES
from imem.mcp.tools import TOOLS
from tests import forking
from tests.recall import facts
from tests.recall.conftest import RecallHarness, empty, harness, journal, world
from tests.recall.facts import day
from tests.recall.test_existence import environment

__all__ = ["empty", "harness", "journal", "world"]

IMEM_MCP = [sys.executable, "-W", "error", "-m", "imem", "mcp"]

WAIT_S = 60.0
"""How long to wait for the end of a server, in seconds."""

CALLS: dict[str, dict[str, Any]] = {
    "brief": {"subject": "T0"},
    "search": {"query": "memory scarce", "kinds": ["memory", "finding"], "subject": "T0"},
    "similar": {"what": "T0", "limit": 3},
    "track_record": {"agent": "agent0", "domain": None},
    "contradictions": {"subject": "company:T0", "as_of": "2026-03-01"},
    "value": {"subject": "T0", "metric": "revenue", "period": "2025-01-01..2025-12-31"},
    "find_precedents": {"debate_or_topic": "Is memory scarce?"},
    "search_memories": {"query": "When is memory scarce?"},
    "record_analysis": {
        "id": "mine", "subject_id": "company:T0", "date": "2026-01-09T09:00:00Z", "kind": "note",
        "summary": "Prices turn.", "recommendation": "buy", "confidence": 0.6, "body": "A long report.",
        "findings": [
            {
                "statement": "Inventories fall.", "direction": "positive", "confidence": 0.7, "key_drivers": ["Orders"],
                "metric": "return_5s", "target_at": "2099-01-16T21:00:00Z",
            },
            {"statement": "Rivals cut their spending."},
        ],
    },
    "record_decision": {
        "id": "mine/decision", "subject_id": "company:T0", "type": "portfolio", "decided_at": "2026-01-09T10:00:00Z",
        "stance": "long", "cites": ["f0"], "analysis_id": None, "action": "buy", "confidence": 0.6, "size_usd": 1e6,
        "body": "Prices turn.",
    },
    "challenge": {"finding_id": "f0", "basis": "The contracts are not prepaid.", "judge": "tutor"},
    "respond": {"debate_id": str(id_of("debate", "kate", "f0")), "act": "respond", "text": "See the third note."},
    "store_memory": {"text": "Memory is scarce until 2027.", "namespace": "symbol/T0", "importance": 0.9},
    "change_memory": {"action": "delete", "namespace": "symbol/NONE"},
}  # fmt: skip
"""A call of every tool."""

WRONG_DEBATES: list[tuple[str, dict[str, Any], str]] = [
    ("challenge", {"finding_id": "none", "basis": "x"}, "finding_id"),
    ("challenge", {"finding_id": "f0"}, "basis"),
    ("challenge", {"finding_id": "f0", "basis": "x", "priority": "urgent"}, "priority"),
    ("challenge", {"finding_id": "f0", "basis": "x", "value": "buy"}, "value"),
    ("challenge", {"finding_id": "f0", "basis": "x", "value": [0.3]}, "value"),
    ("challenge", {"finding_id": "f0", "basis": "x", "evidence": ["none"]}, "evidence.0"),
    ("challenge", {"finding_id": "f0", "basis": "x", "evidence": "none, none"}, "evidence"),
    ("respond", {"debate_id": "none"}, "debate"),
    ("respond", {"debate_id": "none", "act": "accept"}, "debate"),
    ("respond", {"act": "accept"}, "debate_id"),
    ("respond", {"text": "x"}, "text"),
    ("respond", {"debate_id": "none", "act": "challenge"}, "act"),
    ("respond", {"debate_id": "none", "act": ["accept"]}, "act"),
    ("respond", {"debate_id": "none", "act": "respond"}, "text"),
    ("respond", {"debate_id": "none", "act": "judge", "text": "x"}, "winner"),
    ("respond", {"debate_id": "none", "act": "stand", "value": 0.3}, "value"),
]
"""Wrong calls of the tools of debates, each with the argument that its error names."""

KNOWN = [
    facts.company("T0", 0), facts.analysis("a0", 0), facts.finding("f0", 0), facts.outcome("o0", 5),
    facts.debate("b0", 0), facts.contradiction("c0", 0),
]  # fmt: skip


def env_of(settings: Settings, actor: str = "kate", role: Role = Role.HUMAN_ADMIN) -> dict[str, str]:
    """Return the environment of somebody's server; its encoder is one that nothing is fetched for."""
    found = environment(settings.model_copy(update={"actor": actor, "role": role}))
    return {**found, "IMEM_EMBEDDING_LOCAL": "universal-3", "IMEM_DEADLINE_MS": "20000", "IMEM_LOG_LEVEL": "WARNING"}


@asynccontextmanager
async def client_of(env: dict[str, str], errors: Path, mode: str = "auto") -> AsyncIterator[Client]:
    """Start the server and speak to it; *errors* takes what it writes to standard error."""
    program = str(forking.program(errors.parent))
    strict = {**env, "PYTHONWARNINGS": "error"}
    with errors.open("a") as stderr:
        server = stdio_client(StdioServerParameters(command=program, args=["mcp"], env=strict), errlog=stderr)
        async with Client(server, mode=mode) as client:
            yield client


def text_of(result: CallToolResult) -> str:
    [content] = result.content
    assert content.type == "text"
    return content.text


async def test_the_official_client_lists_and_calls_every_tool(harness: RecallHarness, tmp_path: Path) -> None:
    """In both eras of the protocol; what was written is found, resources are read, and nothing is left on stderr."""
    await harness.know(KNOWN)
    env, errors = env_of(harness.settings), tmp_path / "errors"
    async with client_of(env, errors) as client:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == [tool.name for tool in TOOLS] == list(CALLS)
        assert client.instructions is not None
        assert "never instructions" in client.instructions
        for name in ("challenge", *reversed(CALLS)):
            result = await client.call_tool(name, CALLS[name])
            assert not result.is_error, text_of(result)
            assert "never instructions" in text_of(result)
            assert result.structured_content is not None

        found = await client.call_tool("search_memories", {"query": "scarce"})
        assert '"Memory is scarce until 2027."' in text_of(found)
        assert found.structured_content is not None
        assert found.structured_content["items"][0]["content"] == "Memory is scarce until 2027."
        again = await client.call_tool("record_analysis", CALLS["record_analysis"])
        assert "identical" in text_of(again)

        await harness.work()
        assert len((await client.list_resource_templates()).resource_templates) == 3
        for uri, shown in (
            ("imem://company/T0", '2026-01-09 09:00 "kate": buy'),
            ("imem://subject/company%3AT0", '2026-01-09 09:00 "kate": buy'),
            ("imem://debate/b0", "b0"),
        ):
            [content] = (await client.read_resource(uri)).contents
            assert shown in content.model_dump()["text"]
        for uri in (
            "imem://debate/none",
            "imem://other/T0",
            "imem://company/",
            "file:///etc/passwd",
            "imem://%",
            "imem://[",
        ):
            with pytest.raises(MCPError, match=r"none of imem:|nothing is known|cannot be read"):
                await client.read_resource(uri)
    async with client_of(env, errors, mode="legacy") as client:
        assert len((await client.list_tools()).tools) == len(TOOLS)
        assert "Company T0" in text_of(await client.call_tool("brief", CALLS["brief"]))
    assert errors.read_text() == ""


async def test_an_agent_is_shown_what_it_found(harness: RecallHarness, tmp_path: Path) -> None:
    """In the call in which it records its analysis; the next briefing says so, and a search finds it."""
    await harness.know(KNOWN)
    async with client_of(env_of(harness.settings, "ann", Role.AGENT), tmp_path / "errors") as client:
        for _ in range(2):
            done = await client.call_tool("record_analysis", CALLS["record_analysis"])
            assert not done.is_error, text_of(done)
        brief = await client.call_tool("brief", {"subject": "T0"})
        assert "## What you concluded before" in text_of(brief)
        assert 'YES, confidence 0.70; on "Orders".' in text_of(brief)
    found = await harness.journal.rows(
        "SELECT record_key, payload -> 'core' ->> 'agent' AS agent, payload -> 'core' ->> 'domain' AS domain"
        " FROM event WHERE kind = 'record.Finding' AND analysis_id = 'mine' ORDER BY record_key"
    )
    assert [tuple(row.values()) for row in found] == [("mine/1", "ann", "note"), ("mine/2", "ann", "note")]


async def test_what_a_role_may_not_write_is_not_offered_and_is_denied(harness: RecallHarness, tmp_path: Path) -> None:
    """A tool that is called all the same is denied with the role's name, and leaves one denial in the audit."""
    await harness.know(KNOWN)
    hidden = {
        Role.LEARNING_ENGINE: {"change_memory", "store_memory"},
        Role.DEBATE_FACILITATOR: {"challenge", "record_analysis", "record_decision", "respond"},
        Role.READER: {"challenge", "change_memory", "record_analysis", "record_decision", "respond", "store_memory"},
        Role.AGENT: set(),
    }
    for role, missing in hidden.items():
        async with client_of(env_of(harness.settings, "ann", role), tmp_path / "errors") as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert CALLS.keys() - listed == missing
            for name in sorted(missing):
                result = await client.call_tool(name, CALLS[name])
                assert result.is_error
                assert f"ann ({role})" in text_of(result)
                assert result.structured_content is not None
                assert result.structured_content["error"] == "PermissionDenied"
                assert "It takes the role" in text_of(result)
                assert result.structured_content["recorded"] is False
            if role is Role.AGENT:
                other = await client.call_tool("track_record", {"agent": "agent0"})
                assert "ann (agent)" in text_of(other)
                assert not (await client.call_tool("track_record", {"agent": "ann"})).is_error
                assert not (await client.call_tool("brief", {"subject": "T0"})).is_error
    denied = await harness.journal.rows(
        "SELECT actor_role, resource_type, action FROM memory_access_audit WHERE NOT authorized ORDER BY timestamp, id"
    )
    assert [tuple(row.values()) for row in denied] == [
        ("learning_engine", "memories", "delete"),
        ("learning_engine", "memories", "write"),
        *[("debate_facilitator", "journal", "append")] * 4,
        ("reader", "journal", "append"),
        ("reader", "memories", "delete"),
        *[("reader", "journal", "append")] * 3,
        ("reader", "memories", "write"),
        ("agent", "credibility", "read"),
    ]


async def test_a_decision_is_recorded_with_what_it_cites(harness: RecallHarness, tmp_path: Path) -> None:
    """In the order given, of the agent that asks; the same call again writes nothing."""
    await harness.know([*KNOWN, facts.finding("f1", 0)])
    async with client_of(env_of(harness.settings, "ann", Role.AGENT), tmp_path / "errors") as client:
        for said in ("new", "identical"):
            done = await client.call_tool("record_decision", {**CALLS["record_decision"], "cites": ["f1", "f0"]})
            assert not done.is_error, text_of(done)
            assert f"{said}: event" in text_of(done)
    written = await harness.journal.rows(
        "SELECT kind, payload -> 'core' ->> 'stance' AS stance, payload -> 'core' -> 'agents_involved' AS agents,"
        " payload ->> 'to_key' AS cited, payload -> 'props' -> 'rank' AS rank FROM event WHERE actor = 'ann'"
        " ORDER BY position"
    )
    assert [tuple(row.values()) for row in written] == [
        ("record.Decision", "long", ["ann"], None, None),
        ("link.CITES", None, None, "f1", 1),
        ("link.CITES", None, None, "f0", 2),
    ]


async def test_two_agents_debate(harness: RecallHarness, tmp_path: Path) -> None:
    """
    Each answer says both positions, the state, whose turn it is, until when, and what counts meanwhile.

    A repeat changes nothing, and each side finds the debates that it takes part in.
    """
    claim = {"statement": "It doubles.", "metric": "price_target", "value": 100, "target_at": "2099-01-16T21:00:00Z"}
    settings, errors = harness.settings, tmp_path / "errors"
    async with (
        client_of(env_of(settings, "bull", Role.AGENT), errors) as bull,
        client_of(env_of(settings, "bear", Role.AGENT), errors) as bear,
    ):

        async def said(client: Client, tool: str, **given: Any) -> tuple[str, dict[str, Any]]:
            result = await client.call_tool(tool, given)
            assert not result.is_error, text_of(result)
            assert result.structured_content is not None
            return text_of(result), {name: one for name, one in result.structured_content.items() if name != "notice"}

        await harness.know(KNOWN)
        await said(bull, "record_analysis", **{**CALLS["record_analysis"], "id": "bull", "findings": [claim]})
        asked = {"finding_id": "bull/1", "basis": "Nothing is prepaid.", "value": 80, "evidence": ["f0"]}
        text, opened = await said(bear, "challenge", **asked, judge="tutor")
        key = opened["debate_id"]
        assert '"price_target": 80 ("bear", evidence "f0") against 100 ("bull")' in text
        assert 'initiated: "bull" is to act until ' in text
        assert re.search(r"UTC \(1[0-4] min left\)", text)
        assert 'counts: 100 ("bull"), the finding as it was recorded' in text
        assert 'if nobody acts: level 2, where records decide, then "tutor", else a person does' in text
        assert (opened["state"], opened["turn"], opened["counts_now"]) == ("initiated", "bull", 100)
        assert opened["until"] > datetime.now(UTC).isoformat()
        assert (await said(bear, "challenge", **asked, judge="tutor"))[1] == opened
        for client in (bull, bear):
            _, listed = await said(client, "respond")
            assert listed["items"] == [opened]
        assert (await said(bull, "respond", debate_id=key))[1] == opened

        _, answered = await said(bull, "respond", debate_id=key, act="respond", text="See note 7.", value=95)
        assert (answered["turn"], answered["challenged"]["value"], answered["counts_now"]) == ("bear", 95, 100)
        refused = await bear.call_tool("respond", {"debate_id": key, "act": "judge", "winner": "bear", "text": "Mine."})
        assert refused.is_error
        assert "tutor" in text_of(refused)
        _, stood = await said(bear, "respond", debate_id=key, act="stand")
        assert (stood["turn"], stood["challenger"]["stands"]) == ("bull", True)
        text, ended = await said(bull, "respond", debate_id=key, act="accept", text="Convinced.")
        assert "turn" not in ended
        assert "goes on within seconds" in text
        late = await bear.call_tool("respond", {"debate_id": key, "act": "withdraw"})
        assert "bull has ended the debate" in text_of(late)
    turns = await harness.journal.rows(
        "SELECT actor, payload -> 'core' ->> 'stage' AS stage, payload -> 'core' ->> 'value' AS value FROM event"
        " WHERE kind = 'record.DebateTurn' ORDER BY position"
    )
    assert [tuple(row.values()) for row in turns] == [
        ("bear", "challenge", "80.0"), ("bull", "respond", "95.0"), ("bull", "accept", None),
    ]  # fmt: skip


async def test_a_refused_call_leaves_nothing_and_says_so(harness: RecallHarness, tmp_path: Path) -> None:
    """A finding that the journal refuses takes its analysis along, and a decision its citations."""
    await harness.know(KNOWN)
    late = {"statement": "It rose.", "direction": "positive", "metric": "return_5s", "target_at": day(1)}
    calls = {
        "record_analysis": {**CALLS["record_analysis"], "findings": [{"statement": "Orders fall."}, late]},
        "record_decision": {**CALLS["record_decision"], "id": "taken", "action": "sell"},
    }
    async with client_of(env_of(harness.settings, "ann", Role.AGENT), tmp_path / "errors") as client:
        assert not (await client.call_tool("record_decision", {**CALLS["record_decision"], "id": "taken"})).is_error
        before = await harness.journal.rows("SELECT count(*) AS n FROM event")
        for name, given in calls.items():
            result = await client.call_tool(name, given)
            assert result.is_error
            assert "Nothing was recorded." in text_of(result)
            assert result.structured_content is not None
            assert result.structured_content["recorded"] is False
        assert await harness.journal.rows("SELECT count(*) AS n FROM event") == before


async def test_without_a_role_the_server_is_an_agent(harness: RecallHarness, tmp_path: Path) -> None:
    """Called mcp unless it is named; who wants a person's rights says so."""
    await harness.know(KNOWN)
    whole = env_of(harness.settings, "kate")
    given = {"mcp": {"IMEM_ACTOR", "IMEM_ROLE"}, "kate": {"IMEM_ROLE"}}
    for actor, missing in given.items():
        env = {name: text for name, text in whole.items() if name not in missing}
        async with client_of(env, tmp_path / "errors") as client:
            done = await client.call_tool("record_decision", {**CALLS["record_decision"], "id": f"{actor}/1"})
            assert not done.is_error, text_of(done)
            other = await client.call_tool("track_record", {"agent": "agent0"})
            assert f"{actor} (agent)" in text_of(other)
    rows = await harness.journal.rows(
        "SELECT DISTINCT actor, actor_role, imported FROM event WHERE kind = 'record.Decision' ORDER BY 1"
    )
    assert [tuple(row.values()) for row in rows] == [("kate", "agent", False), ("mcp", "agent", False)]


async def test_wrong_hostile_and_huge_arguments_are_named(harness: RecallHarness, tmp_path: Path) -> None:
    """Each is an error that names the argument, within the bound; the next call is answered as if nothing had been."""
    await harness.know(KNOWN)
    deep: Any = "x"
    for _ in range(150):
        deep = [deep]
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("brief", {}, "subject"),
        ("brief", {"subject": 5}, "subject"),
        ("brief", {"subject": "T0'; DROP TABLE event; --"}, "subject"),
        ("brief", {"subject": "T0", "drop": 1}, "drop"),
        ("brief", {"subject": "T0", "as_of": "soon"}, "as_of"),
        ("brief", {"subject": "T0", "as_of": 7}, "as_of"),
        ("brief", {"subject": deep}, "subject"),
        ("search", {"query": "x", "kinds": ["rumour"]}, "kinds"),
        ("similar", {"what": "T0", "limit": 10**30}, "limit"),
        ("contradictions", {"subject": "T0", "limit": 0}, "limit"),
        ("search_memories", {"query": "x" * 3_000_000}, "query"),
        ("search_memories", {"query": "x", "namespace": "a%' OR 1=1"}, "namespace"),
        ("search_memories", {"query": "nul \0"}, "query"),
        ("search_memories", {"query": "x", "user": "eve"}, "user"),
        ("value", {"subject": "T0", "metric": "revenue"}, "period"),
        ("value", {**CALLS["value"], "period": "last year"}, "period"),
        ("value", {**CALLS["value"], "period": 2025}, "period"),
        ("value", {**CALLS["value"], "period": "2025-12-31T00:00:00"}, "period"),
        ("find_precedents", {"debate_or_topic": ""}, "debate_or_topic"),
        ("record_analysis", {**CALLS["record_analysis"], "confidence": 2}, "confidence"),
        ("record_analysis", {**CALLS["record_analysis"], "date": "2026-01-09"}, "date"),
        ("record_analysis", {**CALLS["record_analysis"], "body": "x" * 100_000}, "body"),
        ("record_analysis", {**CALLS["record_analysis"], "findings": "Prices turn."}, "findings"),
        ("record_analysis", {**CALLS["record_analysis"], "findings": [7]}, "findings.0"),
        ("record_analysis", {**CALLS["record_analysis"], "findings": [{"statement": "x", "id": "y"}]}, "findings.0.id"),
        ("record_analysis", {**CALLS["record_analysis"], "findings": [{}]}, "findings.0.statement"),
        (
            "record_analysis",
            {**CALLS["record_analysis"], "findings": [{"statement": "x"}, {"statement": "x", "metric": "mood"}]},
            "findings.1.metric",
        ),
        ("record_decision", {**CALLS["record_decision"], "stance": "up"}, "stance"),
        ("record_decision", {**CALLS["record_decision"], "decided_at": "now"}, "decided_at"),
        ("record_decision", {**CALLS["record_decision"], "cites": ["f0", "none"]}, "cites.1"),
        ("record_decision", {**CALLS["record_decision"], "cites": ["f0", "f0"]}, "cites.1"),
        ("record_decision", {**CALLS["record_decision"], "cites": [7]}, "cites.0"),
        ("record_decision", {**CALLS["record_decision"], "agents_involved": ["bob"]}, "agents_involved"),
        *WRONG_DEBATES,
        ("store_memory", {"text": "x", "memory_type": "vague"}, "memory_type"),
    ]
    async with client_of(env_of(harness.settings), tmp_path / "errors") as client:
        for name, given, argument in wrong:
            result = await client.call_tool(name, given)
            assert result.is_error, (name, argument)
            assert result.structured_content is not None
            assert result.structured_content["argument"] == argument
            assert len(text_of(result)) <= 8_000
            writes = name in {"record_analysis", "record_decision", "store_memory", "challenge", "respond"}
            assert ("Nothing was recorded." in text_of(result)) is writes
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("rm -rf")
        assert not (await client.call_tool("brief", {"subject": "T0"})).is_error


async def test_a_store_that_is_away_is_said_so(harness: RecallHarness, tmp_path: Path) -> None:
    """The server runs, and each answer is an error that may be tried again."""
    env = {**env_of(harness.settings), "IMEM_POSTGRES_URL": "postgresql://a@127.0.0.1:1/a", "IMEM_DEADLINE_MS": "300"}
    env.pop("IMEM_POSTGRES_CURATOR_URL", None)
    async with client_of(env, tmp_path / "errors") as client:
        result = await client.call_tool("contradictions", {"subject": "T0"})
        assert result.is_error
        assert result.structured_content is not None
        assert result.structured_content["retryable"] is True


# Ends


def started(env: dict[str, str], command: Sequence[str] = IMEM_MCP) -> subprocess.Popen[bytes]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("IMEM_")}
    return subprocess.Popen(
        command, env={**kept, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def asked(process: subprocess.Popen[bytes], method: str, number: int = 1, **params: Any) -> None:
    assert process.stdin is not None
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
}  # fmt: skip


async def test_it_ends_with_its_client_or_when_told_and_says_nothing_else(
    harness: RecallHarness, tmp_path: Path
) -> None:
    """Standard output holds the protocol alone; a closed input, SIGTERM and SIGINT end it with 0, in mid call too."""
    env = {**env_of(harness.settings), "IMEM_LOG_LEVEL": "DEBUG"}
    # A signal is for the program itself.
    forked = [str(forking.program(tmp_path)), "mcp"]

    def life(end: str) -> tuple[int, list[bytes], bytes]:
        with started(env, IMEM_MCP if end.startswith("SIG") else forked) as process:
            return lived(process, end)

    def lived(process: subprocess.Popen[bytes], end: str) -> tuple[int, list[bytes], bytes]:
        assert process.stdout is not None
        asked(process, "initialize", **HELLO)
        first = process.stdout.readline()
        assert process.stdin is not None
        long = (
            b'{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{"name":"' + b"x" * MOST_LINE_BYTES + b'"}}'
        )
        process.stdin.write(b"no JSON\n\xff\xfe\n[]\n\n" + b"[" * 100_000 + b"\n" + long + b"\n")
        process.stdin.flush()
        refused = [json.loads(process.stdout.readline()) for _ in range(5)]
        assert [(one["id"], one["error"]["code"]) for one in refused] == [
            (None, -32700), (None, -32700), (None, -32600), (None, -32600), ("long", -32600),
        ]  # fmt: skip
        asked(process, "tools/call", 7, name="brief", arguments={"subject": "half a \ud800"})
        second = process.stdout.readline()
        assert (json.loads(second)["id"], json.loads(second)["result"]["isError"]) == (7, True)
        if end == "unread":
            process.stdout.close()
            asked(process, "tools/list", 3)
            code = process.wait(WAIT_S)
            assert process.stderr is not None
            return code, [first], process.stderr.read()
        if end == "in mid call":
            asked(process, "tools/call", 2, name="search_memories", arguments={"query": "x"})
        elif end != "closed":
            process.send_signal(signal.Signals[end])
        if end.startswith("SIG"):
            process.wait(WAIT_S)  # Its input is open still.
        out, errors = process.communicate(timeout=WAIT_S)
        return process.returncode, [first, second, *out.splitlines()], errors

    for ends in (("closed", "SIGTERM", "unread"), ("SIGINT", "in mid call")):
        lives = await asyncio.wait_for(asyncio.gather(*(asyncio.to_thread(life, end) for end in ends)), 3 * WAIT_S)
        for code, lines, errors in lives:
            assert (code, b"Traceback" in errors) == (0, False), (ends, errors)
            assert [json.loads(line)["jsonrpc"] for line in lines] == ["2.0"] * len(lines)
            assert b"Institutional Memory" in lines[0]


async def test_a_cancelled_call_leaves_the_server_as_it_was(harness: RecallHarness, tmp_path: Path) -> None:
    """The client gives up, and the next call is answered."""
    await harness.know(KNOWN)
    async with client_of(env_of(harness.settings), tmp_path / "errors") as client:
        slow = asyncio.create_task(client.call_tool("search_memories", {"query": "scarce"}))
        await asyncio.sleep(0.05)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert not (await client.call_tool("contradictions", {"subject": "T0"})).is_error


def test_without_a_stack_one_sentence_says_so(tmp_path: Path) -> None:
    """On standard error, with exit code 1; nothing is printed where the protocol would be."""
    process = started({"IMEM_HOME": str(tmp_path)})
    out, errors = process.communicate(timeout=WAIT_S)

    assert (process.returncode, out) == (1, b"")
    assert errors.decode().splitlines() == [
        f"No stack runs on {tmp_path}. Start one with `imem up`, or set the servers' URLs."
    ]
