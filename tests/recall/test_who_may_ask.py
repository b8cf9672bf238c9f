"""Patterns and credibility, asked for by those who may see all of it and by those who may not; what the audit keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import pytest

from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.settings import Role
from imem.memory import Memory
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import day

AUDITED = """
    SELECT actor_id, resource_type, resource_id, action, authorized FROM memory_access_audit
    WHERE resource_type = %s ORDER BY id"""


@asynccontextmanager
async def asking(harness: RecallHarness, role: Role, actor: str = "agent0") -> AsyncIterator[Memory]:
    """Open the memory as somebody else."""
    async with Memory.open(harness.settings.model_copy(update={"actor": actor, "role": role})) as memory:
        yield memory


async def audited(harness: RecallHarness, resource_type: str) -> list[tuple[str, str, str, bool]]:
    """Return who did what to what, and whether it was granted."""
    rows = await harness.journal.rows(AUDITED, resource_type)
    return [(row["actor_id"], row["action"], row["resource_id"], row["authorized"]) for row in rows]


@pytest.mark.spec("AC-1")
async def test_the_text_of_a_pattern_is_open_to_agents_while_it_is_active(harness: RecallHarness) -> None:
    """As of a day on which it was active; validators read it whatever its status; every look is in the audit."""
    await harness.know(
        [
            {**facts.pattern("p0", 0), "body": "How it was found."}, facts.pattern_status("p0", 1, "candidate"),
            facts.pattern_status("p0", 3, "active"), facts.pattern_status("p0", 6, "deprecated"),
        ]
    )  # fmt: skip
    days = {number: datetime.fromisoformat(day(number)) for number in (0, 2, 4, 7)}
    for role in (Role.AGENT, Role.DEBATE_FACILITATOR):
        async with asking(harness, role) as memory:
            found = {number: await memory.text("Pattern", "p0", as_of=at) for number, at in days.items()}
            assert {number for number, text in found.items() if text is not None} == {4}, role
            assert await memory.text("Pattern", "p0") is None
            assert await memory.text("Pattern", "none") is None
            for closed in ("PatternValidation", "ShadowAnalysis", "ArchiveDirectory", "DataFile"):
                with pytest.raises(PermissionDenied):
                    await memory.text(closed, "x")
            with pytest.raises(BadInput, match="kind"):
                await memory.text("pattern", "p0")
    async with asking(harness, Role.KNOWLEDGE_BASE_AGENT, "validator") as memory:
        for at in days.values():
            text = await memory.text("Pattern", "p0", as_of=at)
            assert text is not None
            assert text.body == "How it was found."
    looks = [("agent0", "read", key, True) for key in ["p0"] * 5 + ["none"]]
    closed_to = [("agent0", "validate", "x", False)] * 4
    assert await audited(harness, "patterns") == [*(looks + closed_to) * 2, *[("validator", "read", "p0", True)] * 4]


@pytest.mark.spec("AC-1")
async def test_every_query_that_shows_patterns_is_in_the_audit(harness: RecallHarness) -> None:
    """What agents may ask as well, and what is closed to them: granted or denied, a row each."""
    for_all = ("active_patterns",)
    closed = ("patterns_ready_for_gate6", "tier2_candidates")
    given = {"active_patterns": {"sector": None}}
    for role, actor in ((Role.AGENT, "agent0"), (Role.KNOWLEDGE_BASE_AGENT, "validator")):
        async with asking(harness, role, actor) as memory:
            for name in (*for_all, *closed):
                if role is Role.AGENT and name in closed:
                    with pytest.raises(PermissionDenied):
                        await memory.query(name, given.get(name))
                else:
                    assert await memory.query(name, given.get(name)) == []
    assert await audited(harness, "patterns") == [
        *(("agent0", "read", name, True) for name in for_all),
        *(("agent0", "validate", name, False) for name in closed),
        *(("validator", "read", name, True) for name in for_all),
        *(("validator", "validate", name, True) for name in closed),
    ]


@pytest.mark.spec("AC-1")
async def test_an_agent_asks_for_its_own_credibility_alone(harness: RecallHarness) -> None:
    """Records, queries, texts and ``for_agent``: its own are answered, others' denied; a briefing shows who spoke."""
    claims = [facts.finding("f0", 1), facts.finding("f4", 1)]
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 1), *claims, facts.outcome("o0", 4)])
    names = ("agent_credibility_in", "accuracy_full_scan")
    async with asking(harness, Role.AGENT) as memory:
        assert [one.agent for one in (await memory.track_record("agent0")).items] == ["agent0"]
        for name in names:
            await memory.query(name, {"agent": "agent0", "domain": "up_or_down"})
        briefing = await memory.brief("T0", for_agent="agent0")
        assert [one.agent for one in briefing.track_records.items] == ["agent0", "agent1"]

        assert await audited(harness, "credibility") == []
        with pytest.raises(PermissionDenied, match="agent1"):
            await memory.track_record("agent1", "up_or_down")
        for refused in (
            memory.credibility(), memory.credibility(["agent0", "agent1"]), memory.explain("agent1", "up_or_down"),
            memory.auto_resolve("agent0", "agent1", "up_or_down"),
        ):  # fmt: skip
            with pytest.raises(PermissionDenied):
                await refused
        assert [one.record.agent for one in (await memory.credibility(["agent0"])).items] == ["agent0"]
        for name in names:
            with pytest.raises(PermissionDenied):
                await memory.query(name, {"agent": "agent1", "domain": "up_or_down"})
        with pytest.raises(PermissionDenied):
            await memory.text("AgentCredibility", "agent1/up_or_down")
        with pytest.raises(PermissionDenied):
            await memory.brief("T0", for_agent="agent1")
    denied = ["agent1", None, "agent1", "agent1", "agent1", *names, "agent1/up_or_down", "agent1"]
    assert await audited(harness, "credibility") == [("agent0", "read", what, False) for what in denied]
    async with asking(harness, Role.DEBATE_FACILITATOR, "facilitator") as memory:
        assert (await memory.track_record("agent1")).total == 1
        assert await memory.text("AgentCredibility", "agent1/up_or_down") is None
        await memory.brief("T0", for_agent="agent1")
