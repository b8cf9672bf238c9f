"""The role that only reads: whatever it calls, nothing is written, by the gateway and by Postgres."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from imem import Memory
from imem.blocking.memory import SyncMemory
from imem.journal.actors import AUTHORIZATION, Action, Actor, only_reads
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, PermissionDenied, SettingsError
from imem.journal.gateway import _columns
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.journal.statements import sql
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of
from imem.kg.model import Agent, Company, Human, Market
from imem.langgraph import ImemSaver
from imem.recall.signals.model import AgentSignal
from tests.imem.ingest.conftest import LoadHarness
from tests.imem.ingest.test_memory import NOW, analysis, contradiction, data_point, debate, decision, finding, outcome
from tests.surface import methods_of

Call = Callable[[Memory], Awaitable[Any]]

PATTERN = {
    "name": "p", "category": "financial", "metric": "up", "reference": "ann", "claim": "lower", "mechanism": "m",
    "condition": [{"feature": "forecast", "comparison": "at_least", "value": 0.5}],
}  # fmt: skip

WRITES: dict[str, Call] = {
    "record_company": lambda m: m.record_company(Company(ticker="MU")),
    "record_market": lambda m: m.record_market(Market(market_id="q", question="Will it rain?")),
    "record_agent": lambda m: m.record_agent(Agent(name="eve")),
    "record_analysis": lambda m: m.record_analysis(analysis(), findings=[finding("eve")]),
    "record_finding": lambda m: m.record_finding(finding("eve")),
    "record_decision": lambda m: m.record_decision(decision("eve")),
    "record_outcome": lambda m: m.record_outcome(outcome("own:eve/o")),
    "record_debate": lambda m: m.record_debate(debate("eve")),
    "record_contradiction": lambda m: m.record_contradiction(contradiction()),
    "record_data_point": lambda m: m.record_data_point(data_point()),
    "record": lambda m: m.record(Human(id="eve")),
    "record_groups": lambda m: m.record_groups(Human, "eve", {"profile": Human.Profile(role="reviewer")}),
    "link": lambda m: m.link("PERFORMED", ("Agent", "eve"), ("Analysis", "a")),
    "correct": lambda m: m.correct(analysis(summary="Better."), "A slip."),
    "record_signal": lambda m: m.record_signal(
        AgentSignal(agent_name="eve", market_id="company:MU", direction="YES", confidence=0.6)
    ),
    "remember": lambda m: m.remember("It rises.", namespace="symbol/MU"),
    "start_analysis": lambda m: m.start_analysis("a", "company:MU", {"valuation": "v"}),
    "open_gate": lambda m: m.open_gate("a", 1),
    "answer_gate": lambda m: m.answer_gate("a", 1, "validate", reason="Right."),
    "answer": lambda m: m.answer("t", "confirm"),
    "delegate": lambda m: m.delegate("t", "eve", reason="A reason."),
    "challenge": lambda m: m.challenge("f", "A reason."),
    "acknowledge": lambda m: m.acknowledge("d"),
    "respond": lambda m: m.respond("d", "A text."),
    "accept": lambda m: m.accept("d"),
    "stand": lambda m: m.stand("d"),
    "withdraw": lambda m: m.withdraw("d"),
    "judge": lambda m: m.judge("d", "eve", "A reason."),
    "revoke_rule": lambda m: m.revoke_rule("r", reason="A reason."),
    "set_reviewer": lambda m: m.set_reviewer("eve"),
    "pause": lambda m: m.pause("a", "A reason."),
    "resume": lambda m: m.resume("a"),
    "extend_pause": lambda m: m.extend_pause("a", NOW + timedelta(days=9000), "A reason."),
    "cancel_pause": lambda m: m.cancel_pause("a", "A reason."),
    "force_sync": lambda m: m.force_sync(["eve"]),
    "snapshot": lambda m: m.snapshot("debate", ["eve", "bob"]),
    "sync_gate": lambda m: m.sync_gate("a/1"),
    "memories.supersede": lambda m: m.memories.supersede(uuid4(), "It falls.", reason="It fell."),
    "memories.retire": lambda m: m.memories.retire(uuid4(), reason="It fell."),
    "memories.delete": lambda m: m.memories.delete(uuid4()),
    "memories.delete_all": lambda m: m.memories.delete_all(namespace="symbol/MU"),
    "memories.record_decision": lambda m: m.memories.record_decision(decision("eve")),
    "trades.resume": lambda m: m.trades.resume("fund"),
    "all_lessons": lambda m: m.all_lessons(),
    "lesson_effect": lambda m: m.lesson_effect("l"),
    "learning_report": lambda m: m.learning_report(),
    "reflections.promote": lambda m: m.reflections.promote(uuid4()),
    "conversation": lambda m: m.conversation("w", "t").delete(),
    "working": lambda m: m.working("eve").set("x", "1"),
    "plan_pattern_test": lambda m: m.plan_pattern_test(PATTERN),
    "mine_patterns": lambda m: m.mine_patterns("up", "crowd", category="financial"),
    "propose_pattern": lambda m: m.propose_pattern(PATTERN),
    "all_patterns": lambda m: m.all_patterns(),
    "pattern_tests": lambda m: m.pattern_tests("p"),
    "set_pattern_status": lambda m: m.set_pattern_status("p", "deprecated", reason="A reason."),
}
"""A call of each method that writes, or that reaches what people review or an agent keeps for itself."""

FOUND_FIRST = frozenset({"force_sync", "memories.supersede", "memories.retire", "memories.delete"})
"""Of what is not there, these say so before they ask for a right."""

OPEN = frozenset({
    "auto_resolve", "brief", "contradictions", "credibility", "debate", "debates", "debate_progress", "explain",
    "find_precedents", "history", "lessons",
    "panel", "patterns", "query", "regime", "search", "similar", "signal_histories", "signals", "text", "track_record",
    "track_records", "view", "warm", "weights", "read_snapshot", "gate_report", "value", "differences", "sources",
    "running_debates", "forecasts", "forecast_report", "replay_policy",
})  # fmt: skip
"""Methods that only read."""

OF_MEMBERS = frozenset(
    {
        "push",
        "pull",
        "notices",
        "route",
        "analysis_state",
        "gates",
        "paused",
        "pause_state",
        "session",
        "postmortems",
        "tasks",
        "task",
        "roster",
        "standing_rules",
    }
)
"""Methods about analyses under way; none is open to the role, as the table of authorization says."""

TABLES = ("event", "record_head", "recall.memory", "workflow.analysis", "lifecycle", "agent_cursor")


def test_every_method_is_looked_at() -> None:
    """A new one is either a read, or called below."""
    named = {name for name in methods_of(Memory) if not name.startswith("_")}
    given = {name for name in named if inspect.iscoroutinefunction(inspect.unwrap(getattr(Memory, name)))}
    assert given - OPEN - OF_MEMBERS <= WRITES.keys()


def test_the_role_reads_and_nothing_else() -> None:
    """In the one table; every other role may do more."""
    assert {action for role, _, action in AUTHORIZATION if role is Role.READER} == {Action.READ}
    assert [role for role in Role if only_reads(role)] == [Role.READER]


async def test_whatever_a_reader_calls_nothing_is_written(harness: LoadHarness) -> None:
    """Each call is denied by name, with the role; the import right that settings give changes nothing."""

    def counts() -> list[Any]:
        return [harness.rows(f"SELECT count(*) FROM {table}") for table in TABLES]

    before = counts()
    async with Memory.open(harness.as_role(Role.READER, "eve", may_import=True).settings) as memory:
        for name, call in WRITES.items():
            with pytest.raises(ImemError) as refused:
                await call(memory)
            if name not in FOUND_FIRST:
                assert isinstance(refused.value, PermissionDenied), (name, refused.value)
                assert "eve (reader) may not" in str(refused.value), name
        for agent in ("bob", "eve"):
            with pytest.raises(PermissionDenied, match=r"eve \(reader\) may not append"):
                async with memory.acting_as(agent):
                    pytest.fail("a name was lent")
    assert counts() == before
    assert harness.rows("SELECT DISTINCT actor_role FROM memory_access_audit") == [("reader",)]


def test_a_reader_saves_no_checkpoints(harness: LoadHarness) -> None:
    """LangGraph's saver speaks to Postgres by itself, and asks the role first."""
    opened = ImemSaver.open(harness.as_role(Role.READER, "eve").settings)
    with pytest.raises(SettingsError, match="reader"), opened:
        pytest.fail("it was opened")


def test_a_reader_reads(harness: LoadHarness) -> None:
    """What agents may read of the institution, and the records of all agents."""
    with Memory.sync(harness.settings) as memory:
        memory.record_analysis(analysis(), findings=[finding("ann")], body="A long report.")
        memory.record_company(Company(ticker="MU"))
    with Memory.sync(harness.as_role(Role.READER, "eve").settings) as memory:
        assert isinstance(memory, SyncMemory)
        text = memory.text("Analysis", "a", deadline_ms=30_000)
        assert text is not None
        assert text.body == "A long report."
        assert memory.brief("MU", deadline_ms=30_000).subject.subject_id == "company:MU"
        assert memory.track_record("ann", deadline_ms=30_000).items == []


async def test_postgres_appends_nothing_for_a_reader(harness: LoadHarness) -> None:
    """Whoever logged in, and whatever the program that called said of its rights: the function refuses."""
    entry = entry_of(record_of(Company(ticker="MU")))
    given = {**_columns([entry], Actor("eve", Role.AGENT), Action.APPEND), "role": Role.READER.value}
    database = Database(harness.url)
    try:
        with pytest.raises(PermissionDenied, match="may not append to the journal"):
            await database.commit("append", given, deadline=Deadline.never())
    finally:
        await database.close()
    with psycopg.connect(harness.admin_url) as owner, pytest.raises(psycopg.Error, match="may not append"):
        owner.execute(sql("append"), given)
    assert harness.count("event") == 0
