"""The audit: without its row nothing is written, and its role is the one of the settings, whatever is asked."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from imem import Memory
from imem.journal.errors import PermissionDenied, StatementRejected
from imem.journal.settings import Role, Settings
from imem.kg.model import Agent, AgentKind, Company, Human, Market, Turn
from imem.recall.signals import AgentSignal
from tests.contents import contents, no_audit
from tests.imem.ingest.conftest import LoadHarness, company
from tests.imem.ingest.test_loading import counts
from tests.imem.ingest.test_memory import (
    analysis,
    contradiction,
    data_point,
    debate,
    decision,
    finding,
    outcome,
    profile,
)
from tests.surface import public_methods


def signal() -> AgentSignal:
    said = {"agent_name": "ann", "market_id": "company:MU", "direction": "YES", "confidence": 0.5, "analysis_id": "a"}
    return AgentSignal(**said)


Write = Callable[[Memory], Awaitable[Any]]

WRITES: list[tuple[str, Write]] = [
    ("a company", lambda m: m.record_company(Company(ticker="NVDA"))),
    ("a question", lambda m: m.record_market(Market(market_id="q", question="Will it rain?"))),
    ("an agent", lambda m: m.record_agent(Agent(name="bob", profile=profile()))),
    ("an analysis", lambda m: m.record_analysis(analysis(key="another"))),
    ("a finding", lambda m: m.record_finding(finding("ann"))),
    ("a decision", lambda m: m.record_decision(decision("ann"))),
    ("an outcome", lambda m: m.record_outcome(outcome("o"))),
    ("a debate", lambda m: m.record_debate(debate("ann"), turns=[Turn(number=1, speaker="ann", text="No.")])),
    ("a contradiction", lambda m: m.record_contradiction(contradiction())),
    ("a data point", lambda m: m.record_data_point(data_point())),
    ("a record", lambda m: m.record(Human(id="eve"))),
    ("groups", lambda m: m.record_groups(Agent, "ann", {"profile": profile(AgentKind.BASELINE)})),
    ("a link", lambda m: m.link("PERFORMED", ("Agent", "ann"), ("Analysis", "a"))),
    ("a signal", lambda m: m.record_signal(signal())),
    ("a correction", lambda m: m.correct(analysis(summary="Better."), "A slip.")),
]
"""What leaves an audit row, each by a call."""


def test_every_write_of_a_record_is_among_them() -> None:
    """A method that records and is not tried here would be proved by nothing."""
    writes = {name for name, _ in inspect.getmembers(Memory, inspect.iscoroutinefunction) if name.startswith("record")}
    tried = {name for _, call in WRITES for name in call.__code__.co_names}
    assert writes | {"link", "correct"} <= tried


@pytest.mark.spec("AC-5")
async def test_without_its_audit_row_nothing_is_written(harness: LoadHarness) -> None:
    """When the audit row cannot be inserted, each write is refused, and not one table has anything of it."""
    async with Memory.open(harness.settings) as memory:
        await memory.record_analysis(analysis())
        await memory.record_agent(Agent(name="ann", profile=profile()))
        before = contents(harness.admin_url)
        with no_audit(harness.admin_url):
            for name, call in WRITES:
                with pytest.raises(StatementRejected):
                    await call(memory)
                assert contents(harness.admin_url) == before, name
        for _, call in WRITES:
            await call(memory)
    granted = "SELECT count(*) FROM memory_access_audit WHERE authorized"
    assert harness.rows(granted) == [(2 + len(WRITES),)]


@pytest.mark.spec("AC-5")
def test_without_its_audit_row_nothing_is_loaded(harness: LoadHarness) -> None:
    """A file whose audit rows cannot be inserted leaves nothing, and is loaded whole once they can."""
    path = harness.file("two.jsonl", [company("MU"), company("NVDA")])
    before = contents(harness.admin_url)
    with no_audit(harness.admin_url):
        assert harness.run("load", "--no-wait", path).returncode != 0
        after = contents(harness.admin_url)
    assert {name for name in after if after[name] != before[name]} == set()
    assert counts(harness.load(path)) == (2, 0, 0, 0)


NAMES_A_ROLE = {"role", "owner", "may_import", "as_role", "actor_role"}


@pytest.mark.spec("AC-6")
def test_no_public_call_names_a_role() -> None:
    """Of no class that a program is given does a method take a role, or whose right an act is; nor an actor."""
    named = [
        f"{kind.__qualname__}.{name}({parameter})"
        for kind, name in public_methods()
        if not issubclass(kind, Settings)
        for parameter in inspect.signature(getattr(kind, name)).parameters
        if parameter in NAMES_A_ROLE | {"actor"}
    ]
    assert named == []


@pytest.mark.spec("AC-6")
async def test_a_role_in_what_is_written_gives_no_right(harness: LoadHarness) -> None:
    """Whatever an agent calls itself, in a field, a name or an id: the audit has the role that it logged in with."""
    agent = harness.as_role(Role.AGENT, "human_admin")
    async with Memory.open(agent.settings) as memory:
        with pytest.raises(PermissionDenied):
            await memory.record(Human(id="eve"))
        await memory.record_company(Company(ticker="human_admin"))
        await memory.link("PERFORMED", ("Agent", "human_admin"), ("Analysis", "a"), {"role": "human_admin"})
        with pytest.raises(PermissionDenied):
            await memory.record_agent(Agent(name="human_admin", profile=profile(AgentKind.BASELINE)))
        async with memory.acting_as("learning_engine") as another:
            with pytest.raises(PermissionDenied):
                await another.correct(analysis(summary="Better."), "A slip.")
            await another.record_agent(Agent(name="learning_engine", profile=profile()))
    rows = harness.rows(
        "SELECT DISTINCT actor_id, actor_role, request_context ->> 'lent_by' FROM memory_access_audit ORDER BY 1"
    )
    assert rows == [("human_admin", "agent", None), ("learning_engine", "agent", "human_admin")]


BY_WHOM = """
    SELECT DISTINCT actor_id, action, authorized, request_context ->> 'lent_by' FROM memory_access_audit
    WHERE actor_id <> 'desk-worker' ORDER BY 1, 2
"""


@pytest.mark.spec("AC-5")
async def test_the_audit_names_who_lent_a_name(harness: LoadHarness) -> None:
    """What was written, read of patterns and denied, of every kind of row; also where who was lent a name lends on."""
    worker = harness.as_role(Role.HUMAN_ADMIN, "desk-worker")
    async with (
        Memory.open(worker.settings) as memory,
        memory.acting_as("ann") as ann,
        ann.acting_as("bob") as bob,
    ):
        await memory.record_company(Company(ticker="NVDA"))
        for name, its in (("ann", ann), ("bob", bob)):
            await its.record_finding(finding(name, f"of {name}"))
            await its.view("top_patterns", "*")
            with pytest.raises(PermissionDenied):
                await its.record_groups(Agent, name, {"profile": profile(AgentKind.BASELINE)})
            with pytest.raises(PermissionDenied):
                await its.pause("company:MU", "Agents do not pause.")
    done = [("append", True), ("import", False), ("pause", False), ("read", True)]
    assert harness.rows(BY_WHOM) == [(name, *one, "desk-worker") for name in ("ann", "bob") for one in done]
    own = "SELECT DISTINCT request_context ->> 'lent_by' FROM memory_access_audit WHERE actor_id = 'desk-worker'"
    assert harness.rows(own) == [(None,)]


@pytest.mark.spec("AC-3")
async def test_an_agent_cannot_act_as_a_baseline(harness: LoadHarness) -> None:
    """What a person said that others are measured against is lent by people, and by no process of an agent's."""
    async with Memory.open(harness.as_role(Role.HUMAN_ADMIN, "eve").settings) as memory:
        await memory.record_agent(Agent(name="climatology", profile=profile(AgentKind.BASELINE)))
        async with memory.acting_as("climatology") as its:
            await its.record_finding(finding("climatology", "of eve's"))
    async with Memory.open(harness.as_role(Role.AGENT, "ann").settings) as memory:
        with pytest.raises(PermissionDenied, match="may not act as climatology"):
            async with memory.acting_as("climatology"):
                pass
        async with memory.acting_as("bob") as bob:
            with pytest.raises(PermissionDenied, match="may not act as climatology"):
                async with bob.acting_as("climatology"):
                    pass
    denied = harness.rows("SELECT actor_id, request_context ->> 'owner' FROM memory_access_audit WHERE NOT authorized")
    assert sorted(denied) == [("ann", "climatology"), ("bob", "climatology")]
