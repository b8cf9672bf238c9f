"""Agent nodes of LangGraph that are shown their earlier signals, whatever Postgres does."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import psycopg
import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from psycopg import sql
from pydantic import BaseModel, SecretStr

from imem.journal.errors import BadInput
from imem.journal.settings import Role, Settings
from imem.kg.model import Company
from imem.langgraph import ImemSaver, SignalState, memory_node, remembering
from imem.local.supervisor import LocalStack
from imem.memory import Memory
from imem.recall.signals import AgentMemory
from imem.recall.signals.nodes import merge_by_agent
from tests.conftest import settings_for
from tests.imem.memory.conftest import MemoryHarness
from tests.imem.signals.conftest import applied, memory_of, signal
from tests.proxy import SlowProxy, slowly, through
from tests.servers import cloned, frozen, in_database, migrated_template

BUDGET_MS = 400
"""Of a read while Postgres does not answer, in milliseconds."""

AMPLE_MS = 5_000
"""Of a read that is to succeed however busy the machine is, in milliseconds."""

BUSY_S = 1.5
"""What a busy machine adds, in seconds."""


class Desk(SignalState, total=False):
    """The state of a graph of two agents."""

    prompts: list[str]


def conclude(agent: str, seen: dict[str, str], **changes: Any) -> Any:
    """Return an agent's node that notes its prompt and concludes something."""

    def node(state: Desk) -> dict[str, Any]:
        seen[agent] = state["system_prompt"]
        given = {"direction": "YES", "fair_probability": 0.6, "confidence": 0.8, "key_drivers": [f"of {agent}"]}
        return {"signals": {agent: {**given, **changes}}}

    return node


def graph_of(
    memory: Any, seen: dict[str, str], *agents: str, saver: Any = None, deadline_ms: float = AMPLE_MS, **changes: Any
) -> Any:
    builder = StateGraph(Desk)
    builder.add_node("memory", memory_node(memory, agents, deadline_ms=deadline_ms))
    builder.add_edge(START, "memory")
    for agent in agents:
        node = conclude(agent, seen, **changes)
        builder.add_node(agent, remembering(node, agent, memory, deadline_ms=deadline_ms))
        builder.add_edge("memory", agent)
        builder.add_edge(agent, END)
    return builder.compile(checkpointer=saver)


def events(state: Any) -> list[str]:
    return [entry["event"] for entry in state["audit_log"]]


@pytest.mark.parametrize("way", ["async", "blocking"])
async def test_agents_in_branches_are_shown_their_own_and_what_they_conclude_is_recorded_and_compared(
    shared: MemoryHarness, way: str
) -> None:
    """Also from a stored state, whose memories are built anew."""
    market = f"market:graph-{way}"
    given = {"market_id": market, "system_prompt": "You forecast."}
    first: dict[str, str] = {}
    second: dict[str, str] = {}
    settings = shared.of("desk", Role.HUMAN_ADMIN)
    if way == "blocking":

        def work() -> Any:
            config = {"configurable": {"thread_id": market}}
            with Memory.sync(settings) as memory, ImemSaver.open(shared.settings) as saver:
                graph_of(memory, first, "macro", "polls").invoke({**given, "analysis_id": "g/1"})
                graph = graph_of(memory, second, "macro", "polls", saver=saver, direction="NO")
                graph.invoke({**given, "analysis_id": "g/2"}, config)
                return graph.get_state(config).values

        state = await asyncio.to_thread(work)
    else:
        async with Memory.open(settings) as memory, ImemSaver.open(shared.settings) as saver:
            config = {"configurable": {"thread_id": market}}
            await graph_of(memory, first, "macro", "polls").ainvoke({**given, "analysis_id": "h/1"})
            graph = graph_of(memory, second, "macro", "polls", saver=saver, direction="NO")
            await graph.ainvoke({**given, "analysis_id": "h/2"}, config)
            state = (await graph.aget_state(config)).values
    for agent, other in (("macro", "polls"), ("polls", "macro")):
        assert first[agent].startswith("You forecast.\n\n## Your Previous Analysis\n\nNo previous analysis")
        assert f'• "of {agent}"' in second[agent]
        assert f"of {other}" not in second[agent]
        assert state["memory_context"][agent].signals[0].key_drivers == (f"of {agent}",)
        assert isinstance(state["memory_context"][agent], AgentMemory)
    assert sorted(events(state)) == [
        *["signal_evolution"] * 2, *["signal_recorded"] * 2, "signals_read", *["signals_shown"] * 2
    ]  # fmt: skip
    shown = {entry["agent"]: entry["context"] for entry in state["audit_log"] if entry["event"] == "signals_shown"}
    assert all(shown[agent] in second[agent] for agent in second)
    rows = shared.rows(
        "SELECT request_context FROM memory_access_audit WHERE resource_id = %s AND action = 'signal_recorded' "
        "ORDER BY id DESC LIMIT 2",
        market,
    )
    assert {row["request_context"]["context"] for row in rows} == set(shown.values())
    assert all(row["request_context"]["changes"][0]["type"] == "direction_change" for row in rows)


@pytest.mark.parametrize("way", ["async", "blocking"])
async def test_a_replay_shows_nothing_that_was_concluded_later(shared: MemoryHarness, way: str) -> None:
    """Neither what is read, nor what the state has already of a later moment."""
    market, seen = f"market:replay-{way}", list[str]()
    settings = shared.of("desk", Role.HUMAN_ADMIN)

    def agent(state: Desk) -> dict[str, Any]:
        seen.append(state["system_prompt"])
        return {}

    async with Memory.open(settings) as memory:
        first = (await memory.record_signal(signal(market, "macro", key_drivers=["Rates"]))).signal.created_at
        await memory.record_signal(signal(market, "macro", key_drivers=["Jobs"]))
        applied(shared)
        await memory.record_signal(signal(f"{market}-other"))
        applied(shared)
        later = await memory.signal_histories(market, ["macro"], deadline_ms=AMPLE_MS)
        assert first is not None
        moments: list[Any] = [first, first - timedelta(days=1), lambda state: first if state["market_id"] else None]
        for at in moments:
            state: Any = {"market_id": market}
            more = {"as_of": at, "deadline_ms": AMPLE_MS}
            if way == "async":
                node, fill = remembering(agent, "macro", memory, **more), memory_node(memory, ["macro"], **more)
                found = await fill(state)
                await node({**state, **found})
                await node({**state, "memory_context": later})
            else:
                await asyncio.to_thread(_replayed, settings, agent, state, later, more)
    assert len(seen) == 2 * len(moments)
    assert not any("Jobs" in prompt for prompt in seen)
    assert ["Rates" in prompt for prompt in seen] == [True, True, False, False, True, True]


def _replayed(settings: Settings, agent: Any, state: Any, later: Any, more: dict[str, Any]) -> None:
    with Memory.sync(settings) as memory:
        node, fill = remembering(agent, "macro", memory, **more), memory_node(memory, ["macro"], **more)
        node({**state, **fill(state)})
        node({**state, "memory_context": later})


@dataclass(frozen=True, slots=True)
class FrozenState:
    """A state as a dataclass, which cannot be changed, nor given other fields."""

    market_id: str
    system_prompt: str = "You forecast."
    analysis_id: str | None = None
    memory_context: Annotated[dict[str, AgentMemory], merge_by_agent] = field(default_factory=dict)
    signals: Annotated[dict[str, Any], merge_by_agent] = field(default_factory=dict)
    audit_log: Annotated[list[dict[str, Any]], operator.add] = field(default_factory=list)


class CheckedState(BaseModel, frozen=True, extra="forbid"):
    """A state as a model of pydantic."""

    market_id: str
    system_prompt: str = "You forecast."
    analysis_id: str | None = None
    memory_context: Annotated[dict[str, AgentMemory], merge_by_agent] = {}
    signals: Annotated[dict[str, Any], merge_by_agent] = {}
    audit_log: Annotated[list[dict[str, Any]], operator.add] = []


@pytest.mark.parametrize("returns", ["a mapping", "a state", "a command"])
@pytest.mark.parametrize("kind", [SignalState, FrozenState, CheckedState])
async def test_states_are_mappings_dataclasses_or_models(shared: MemoryHarness, kind: Any, returns: str) -> None:
    """A node is given a state of the graph's class, with the section in its prompt, and may return one."""
    market, seen = f"market:{kind.__name__}-{returns}", list[Any]()

    def conclude(state: Any) -> Any:
        seen.append(state)
        given = {"direction": "YES", "fair_probability": 0.6, "confidence": 0.8, "key_drivers": ["Wages"]}
        written = {"market_id": market, "signals": {"ann": given}, "audit_log": [{"event": "own"}]}
        if returns == "a mapping":
            return written
        whole = kind(**written)
        return Command(update=whole) if returns == "a command" else whole

    async with memory_of(shared) as memory:
        builder = StateGraph(kind)
        builder.add_node("memory", memory_node(memory, ["ann"]))
        builder.add_node("ann", remembering(conclude, "ann", memory))
        builder.add_edge(START, "memory")
        builder.add_edge("memory", "ann")
        builder.add_edge("ann", END)
        graph = builder.compile()
        given = {"market_id": market, "system_prompt": "You forecast."}
        await graph.ainvoke({**given, "analysis_id": f"{market}/1"})
        state = await graph.ainvoke({**given, "analysis_id": f"{market}/2"})
        assert (await memory.signals(market)).signals[0].analysis_id == f"{market}/2"
    prompts = [one["system_prompt"] if kind is SignalState else one.system_prompt for one in seen]
    assert all(isinstance(one, dict if kind is SignalState else kind) for one in seen)
    assert prompts[0].startswith("You forecast.\n\n## Your Previous Analysis\n\nNo previous analysis")
    assert '• "Wages"' in prompts[1]
    assert state["system_prompt"] == "You forecast.", "the section is the node's own"
    assert events(state) == ["signals_read", "own", "signals_shown", "signal_recorded"]


async def test_a_state_that_can_hold_no_prompt_is_named(shared: MemoryHarness) -> None:
    @dataclass(slots=True)
    class Bare:
        market_id: str

    async with memory_of(shared) as memory:
        with pytest.raises(BadInput, match="Bare") as error:
            await remembering(lambda _: None, "ann", memory)(Bare("market:bare"))
        assert error.value.field == "system_prompt"


async def test_a_command_and_a_node_that_concludes_nothing_are_passed_on(shared: MemoryHarness) -> None:
    async with memory_of(shared) as memory:
        state = {"market_id": "market:commands"}
        given = {"direction": "NO", "fair_probability": 0.1, "confidence": 0.5}
        node = remembering(lambda _: Command(goto="end", update={"signals": {"ann": given}}), "ann", memory)
        moved = await node(state)
        assert moved.goto == "end"
        assert [entry["event"] for entry in moved.update["audit_log"]][-1] == "signal_recorded"
        assert (await memory.signals("market:commands")).signals[0].direction == "NO"
        quiet = await remembering(lambda _: None, "ann", memory)(state)
        assert [entry["event"] for entry in quiet["audit_log"]] == ["signals_read", "signals_shown"]

        def breaks(_: Any) -> None:
            raise LookupError("the node's own")

        with pytest.raises(LookupError, match="own"):
            await remembering(breaks, "ann", memory)(state)


@asynccontextmanager
async def behind(harness: MemoryHarness) -> AsyncIterator[tuple[Memory, SlowProxy]]:
    """Open an agent's memory whose Postgres is behind a proxy."""
    assert harness.settings.postgres_url is not None
    url = harness.settings.postgres_url.get_secret_value()
    async with slowly(url) as proxy:
        settings: dict[str, Any] = {"postgres_url": SecretStr(through(url, proxy)), "signals_timeout_ms": BUDGET_MS}
        async with memory_of(harness, **settings) as memory:
            yield memory, proxy


def limited(harness: MemoryHarness, connections: int) -> None:
    """Let the database take so many connections; -1: any number."""
    with psycopg.connect(harness.admin_url, autocommit=True) as conn:
        name = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("ALTER DATABASE {} CONNECTION LIMIT {}").format(name, sql.Literal(connections)))


@pytest.mark.spec("RC-7")
@pytest.mark.parametrize("how", ["refused", "hanging", "cut", "full"])
async def test_without_postgres_an_agent_runs_in_time_with_an_empty_memory(shared: MemoryHarness, how: str) -> None:
    """Refused, silent from the start, silent in the midst of connections, and full; the audit row comes later."""
    market, seen = f"market:rc7-{how}", dict[str, str]()
    async with behind(shared) as (memory, proxy):
        if how == "cut":
            assert (await memory.signals(market)).error is None
        if how == "refused":
            await proxy.refuse()
        elif how == "full":
            limited(shared, 0)
        else:
            proxy.stall()
        begun_s = time.monotonic()
        try:
            state = await graph_of(memory, seen, "ann", deadline_ms=BUDGET_MS).ainvoke({"market_id": market})
        finally:
            took_s = time.monotonic() - begun_s
            if how == "full":
                limited(shared, -1)
        # A read, and a recording, which has two seconds of its own.
        assert took_s < (BUDGET_MS + 2_000) / 1000 + BUSY_S
        assert "could not be read" in seen["ann"], "it ran"
        found = state["memory_context"]["ann"]
        kind = "timeout" if how in {"hanging", "cut"} else "connection"
        assert not found.signals
        assert found.reason
        assert found.error == kind
        read = state["audit_log"][0]
        assert (read["event"], read["success"], read["error_kind"]) == ("signals_read", False, kind)
        assert 0 < read["took_ms"] <= took_s * 1000
        assert events(state)[1:] == ["signals_shown", "signal_not_recorded"]
        proxy.flow()
        if how == "refused":
            await proxy.listen()
    rows = shared.rows(
        "SELECT outcome, request_context FROM memory_access_audit WHERE resource_id = %s AND action = 'signals_read' "
        "ORDER BY id DESC LIMIT 1",
        market,
    )
    assert [(row["outcome"], row["request_context"]["error_kind"]) for row in rows] == [(kind, kind)]
    assert rows[0]["request_context"]["took_ms"] > 0


@pytest.mark.spec("RC-7")
async def test_a_frozen_postgres_stops_no_agent(shared: MemoryHarness, home: Path) -> None:
    """A server whose processes are stopped in the midst of connections; it gets the audit row when it goes on."""
    market, seen = "market:rc7-frozen", dict[str, str]()
    with (
        LocalStack(settings_for(home), servers={"postgres"}, workers=False) as stack,
        migrated_template(stack.settings) as name,
        cloned(stack.settings, name) as (url, admin_url),
    ):
        harness = MemoryHarness(shared.settings.model_copy(update=in_database(stack.settings, url)), admin_url)
        pid = stack.state.children["postgres"].pid
        assert pid is not None
        async with memory_of(harness, signals_timeout_ms=BUDGET_MS) as memory:
            assert (await memory.signals(market, deadline_ms=5_000)).error is None
            with frozen(pid):
                begun_s = time.monotonic()
                state = await graph_of(memory, seen, "ann", deadline_ms=BUDGET_MS).ainvoke({"market_id": market})
                took_s = time.monotonic() - begun_s
        rows = harness.rows(
            "SELECT outcome FROM memory_access_audit WHERE resource_id = %s AND action = 'signals_read' ORDER BY id",
            market,
        )
    assert took_s < (BUDGET_MS + 2_000) / 1000 + BUSY_S
    assert "could not be read" in seen["ann"], "it ran"
    found = state["memory_context"]["ann"]
    assert (found.signals, found.error) == ((), "timeout")
    assert events(state) == ["signals_read", "signals_shown", "signal_not_recorded"]
    assert [row["outcome"] for row in rows] == ["granted", "timeout"]


@pytest.mark.parametrize("retries", [3, 1])
async def test_a_full_server_is_asked_again_as_often_as_the_settings_say(shared: MemoryHarness, retries: int) -> None:
    """With pauses that double, within the caller's time; and the reason says what it was."""
    async with memory_of(shared, signals_retries=retries) as memory:
        limited(shared, 0)
        try:
            found = await memory.signals("market:full", deadline_ms=5_000)
        finally:
            limited(shared, -1)
        assert (found.attempts, found.error) == (1 + retries, "connection")
        assert found.reason


async def test_a_lost_connection_is_retried_once_after_a_second(shared: MemoryHarness) -> None:
    """If the caller has that time."""
    async with behind(shared) as (memory, proxy):
        await memory.record_signal(signal("market:retried"))
        await proxy.refuse()
        asked = asyncio.create_task(memory.signals("market:retried", deadline_ms=5_000))
        await asyncio.sleep(0.5)  # The first attempt has failed by then.
        await proxy.listen()
        found = await asked
        assert (found.attempts, found.error, len(found.signals)) == (2, None, 1)
        await proxy.refuse()
        begun_s = time.monotonic()
        found = await memory.signals("market:retried", deadline_ms=BUDGET_MS)
        assert time.monotonic() - begun_s < BUDGET_MS / 1000 + BUSY_S
        assert (found.attempts, found.error) == (1, "connection")
        proxy.flow()
        await proxy.listen()


async def test_wrong_states_and_signals_stop_no_agent(shared: MemoryHarness) -> None:
    seen: dict[str, str] = {}
    async with memory_of(shared) as memory:
        for state in ({}, {"market_id": 7}, {"market_id": ""}):
            found = await memory_node(memory, ["ann"])(state)
            assert found["memory_context"]["ann"].error == "validation"
        for wrong in ({"confidence": 2}, {"colour": "red"}):
            node = remembering(conclude("ann", seen, **wrong), "ann", memory)
            entries = (await node({"market_id": "market:wrong"}))["audit_log"]
            assert (entries[-1]["event"], entries[-1]["error_kind"]) == ("signal_not_recorded", "validation")
        for given in ({"ann": "up"}, {"ann": {1: "up"}}, ["up"], "up"):
            node = remembering(lambda _, given=given: {"signals": given}, "ann", memory)
            assert (await node({"market_id": "market:wrong"}))["audit_log"][-1]["error_kind"] == "validation"
        # Nor another's name: an agent records its own.
        node = remembering(conclude("bob", seen), "bob", memory)
        assert (await node({"market_id": "market:wrong"}))["audit_log"][-1]["event"] == "signal_not_recorded"


async def test_a_name_that_was_not_found_out_is_no_market(shared: MemoryHarness) -> None:
    """Nothing is recorded about a market of that name: it may be a company's, or that of several."""
    seen: dict[str, str] = {}
    async with memory_of(shared, "people", Role.HUMAN_ADMIN) as people:
        for ticker, name in (("TWIN1", "Twin"), ("TWIN2", "Twin"), ("SOLO1", "Solo")):
            await people.record_company(Company(ticker=ticker, profile=Company.Profile(name=name)))
    async with memory_of(shared) as memory:
        for state in ({"market_id": "Twin"}, {"market_id": ""}, {}):
            entry = (await remembering(conclude("ann", seen), "ann", memory)(state))["audit_log"][-1]
            assert (entry["event"], entry["error_kind"]) == ("signal_not_recorded", "validation")
    assert not shared.rows("SELECT FROM record_head WHERE subject_id IN ('market:Twin', 'market:unknown')")
    async with behind(shared) as (memory, proxy):
        await memory.signals("market:rc7-names")
        proxy.stall()
        begun_s = time.monotonic()
        state = await remembering(conclude("ann", seen), "ann", memory, deadline_ms=BUDGET_MS)({"market_id": "Solo"})
        # A read, and another.
        assert time.monotonic() - begun_s < 2 * BUDGET_MS / 1000 + BUSY_S
        assert events(state) == ["signals_read", "signals_shown", "signal_not_recorded"]
        proxy.flow()

        def late(state: Desk) -> Any:
            proxy.flow()
            return conclude("ann", seen)(state)

        await memory.signals("market:rc7-names")
        proxy.stall()
        state = await remembering(late, "ann", memory, deadline_ms=BUDGET_MS)({"market_id": "Solo"})
        assert [entry["event"] for entry in state["audit_log"]] == ["signals_read", "signals_shown", "signal_recorded"]
        assert state["audit_log"][0]["error_kind"] == "timeout"
    assert shared.rows("SELECT subject_id FROM record_head WHERE kind = 'Finding' AND subject_id ~ 'S(OLO|olo)'") == [
        {"subject_id": "company:SOLO1"}
    ]
