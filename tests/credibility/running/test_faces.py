"""Debates from a terminal and from a graph of LangGraph: what a person reads, and threads that wait for an end."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from typer.testing import CliRunner

from imem.cli import app
from imem.debates.states import Act
from imem.journal.errors import BadInput
from imem.journal.settings import Role, Settings
from imem.langgraph import DebateGraphState, ImemSaver, debate_node, ready_threads
from imem.memory import Memory
from tests import forking
from tests.recall.test_existence import environment
from tests.servers import in_database

from ..conftest import World  # noqa: TID252 - a folder of its own
from .conftest import BEAR, BULL, ENOUGH, Forum, claimed

SettingsOf = Callable[[str], Settings]
Said = Callable[..., Awaitable[str]]


@pytest.fixture
def settings_of(stack: Any, world: World) -> SettingsOf:
    """Return settings for an actor in the journal of the test."""
    addresses = {**in_database(stack.settings, world.url), "neo4j_url": "bolt://127.0.0.1:1", "deadline_ms": 30_000}

    def of(actor: str) -> Settings:
        given: Settings = stack.settings
        return given.model_copy(update={**addresses, "actor": actor, "role": Role.AGENT})

    return of


# A terminal


RESTING = [
    claimed("d-1", "cora", analysis="a-2"),
    {
        "link": "CITES", "known_at": "2026-01-06T00:00:00Z",
        "from": {"Finding": "d-1"}, "to": {"Finding": "f-bull"},
        "props": {"at": "2026-01-06T00:00:00Z", "rank": 1},
    },
]  # fmt: skip
"""A finding of another analysis that rests on the disputed one."""


@pytest.fixture
def said(settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch) -> Said:
    """Run ``imem debate`` as an agent, and return what it prints."""

    async def said(actor: str, *words: str, code: int = 0) -> str:
        monkeypatch.setattr(Settings, "read", lambda *_, **__: settings_of(actor))
        done = await asyncio.to_thread(CliRunner().invoke, app, ["debate", *words])
        assert done.exit_code == code, done.output
        return done.output

    return said


async def test_a_debate_from_a_terminal(forum: Forum, said: Said) -> None:
    """Both sides act; positions, turn, time left and what counts are shown, and at the end the resolution."""
    await forum.reviewer()
    await forum.world.say(*RESTING)

    assert await said("bear") == "No debate runs.\n"
    words = [
        "challenge",
        "f-bull",
        "Margins shrink.",
        "--value",
        "80",
        "--evidence",
        "e-bear",
        "--required",
        "The 10-K",
    ]
    opened = json.loads(await said("bear", *words, "--json"))
    key = opened["debate_id"]
    text = await said("bear", *words)
    assert '"bear" challenged "bull": "The target of f-bull is 100.0."' in text
    assert '"price_target": 80 ("bear", evidence "e-bear") against 100 ("bull")' in text
    assert 'asked for: "The 10-K"' in text
    assert re.search(r'initiated: "bull" is to act until .* UTC \(1[0-4] min left\)', text)
    assert 'counts: 100 ("bull"), the finding as it was recorded' in text
    assert "if nobody acts: level 2, where records decide, else a person does" in text
    for chosen in (["--agent", "bull"], ["--analysis", "a-1"], ["list"], []):
        assert key in await said("bull", *chosen)
    assert [one["debate_id"] for one in json.loads(await said("bull", "--json"))] == [key]
    for other in (["--agent", "cora"], ["--analysis", "a-2"]):
        assert await said("bull", *other) == "No debate runs.\n"

    await said("bear", "acknowledge", key, code=1)
    await said("bull", "acknowledge", key)
    await said("bull", "respond", key, "They are prepaid.", "--value", "buy", code=2)
    answered = await said("bull", "respond", key, "They are prepaid.", "--value", "95")
    assert all(part in answered for part in ('"bear" is to act', '95 ("bull")'))
    assert '95 ("bull", stands)' in await said("bull", "stand", key)
    assert "records are being compared" not in await said("bear", "stand", key, "Nothing is new.")
    await forum.advance()
    shown = await said("bull", key)
    assert re.search(r"level3: a person decides until .* UTC \(5 h 5\d min left\)", shown)
    assert 'counts: 80 ("bear"), provisionally' in shown
    assert '1. "bear" ("challenge"): "Margins shrink."' in shown
    assert "resolved" not in shown

    await forum.answer("choose", "challenger", rationale="The 10-K says so.")
    shown = await said("bull", "show", key)
    assert 'counts: 80 ("bear")\n' in shown
    assert 'resolved for "bear": "price_target 80.0 (bear)" after ' in shown
    assert 'a person\'s rationale: "The 10-K says so."' in shown
    assert 'what rests on the finding: "rerun: a-2"' in shown
    document = json.loads(await said("bull", key, "--json"))
    assert (document["progress"]["state"], document["progress"]["counts_now"]) == ("closed", 80.0)
    assert await said("bear") == "No debate runs.\n"
    for late in (["withdraw", key], ["judge", key, "bear", "I win."], ["accept", "none"]):
        await said("bear", *late, code=1)


# A graph

PROGRAM = """
import sys
from imem import Memory
from imem.langgraph import ImemSaver
from tests.credibility.running.test_faces import graph_of

with Memory.sync() as memory, ImemSaver.open() as saver:
    graph = graph_of(memory, saver)
    given = {"challenge": {"finding_id": "f-bull", "basis": "Margins shrink.", "value": 80}}
    ended = graph.invoke(given, {"configurable": {"thread_id": sys.argv[1]}}, durability="sync")
    print(ended["__interrupt__"][0].value["imem_debate"]["state"])
"""


def graph_of(memory: Any, saver: Any) -> Any:
    builder = StateGraph(DebateGraphState)
    builder.add_node("debate", debate_node(memory))
    builder.add_edge(START, "debate")
    builder.add_edge("debate", END)
    return builder.compile(checkpointer=saver)


def several(memory: Any, saver: Any) -> Any:
    """Return a graph that debates several findings at once, and asks a person something beside."""
    builder = StateGraph(DebateGraphState)
    builder.add_node("debate", debate_node(memory))
    builder.add_node("ask", lambda _: interrupt("Publish?"))
    given = [{"finding_id": key, "basis": "Margins shrink.", "value": 80.0} for key in ("f-bull", "e-bull")]
    builder.add_conditional_edges(START, lambda _: [Send("debate", {"challenge": one}) for one in given] + ["ask"])
    return builder.compile(checkpointer=saver)


async def test_a_thread_waits_for_a_debate_across_processes(
    forum: Forum, settings_of: SettingsOf, tmp_path: Path
) -> None:
    """The process that challenged is gone; another one goes on once the debate has ended, and nothing is said twice."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    begun = await asyncio.to_thread(
        lambda: forking.run("script", str(script), "t-1", env=environment(settings_of("bear")))
    )
    assert (begun.returncode, begun.stdout) == (0, "initiated\n"), begun.stderr
    config: Any = {"configurable": {"thread_id": "t-1"}}
    async with (
        Memory.open(settings_of("bear")) as memory,
        ImemSaver.open(settings_of("bear")) as saver,
    ):
        graph = graph_of(memory, saver)
        [debate] = await memory.running_debates(agent="bear")
        assert await ready_threads(memory, saver) == []
        # Too early: it waits again.
        [waiting] = [one async for one in saver.ainterrupts()]
        again = await graph.ainvoke(Command(resume={waiting.interrupt_id: True}), config, durability="sync")
        assert again["__interrupt__"][0].value["imem_debate"]["debate_id"] == debate.debate_id
        assert await ready_threads(memory, saver) == []

        await forum.act(debate, Act.ACCEPT, BULL)
        assert await ready_threads(memory, saver) == []  # It has no effect yet.
        await forum.advance()
        [ready] = await ready_threads(memory, saver)
        assert (ready.thread_id, ready.debate.state, ready.debate.counts) == ("t-1", "closed", "bear")
        assert await ready_threads(memory, saver, thread_ids=["t-2"]) == []
        ended = await graph.ainvoke(ready.resume, ready.config, durability="sync")
        assert "__interrupt__" not in ended
        position = ended["positions"]["f-bull"]
        assert (position["counts_now"], position["counts"], position["state"]) == (80.0, "bear", "closed")
        assert await ready_threads(memory, saver) == []
        # Once it has ended, the node does not wait.
        asked = {"finding_id": "f-bull", "basis": "Margins shrink.", "value": 80.0}
        other = await graph.ainvoke({"challenge": asked}, {"configurable": {"thread_id": "t-2"}})
        assert other["positions"] == ended["positions"]
    [rows] = await forum.world.rows(
        "SELECT (SELECT count(*) FROM lifecycle WHERE kind = 'debate') AS debates,"
        " (SELECT count(*) FROM event WHERE kind = 'record.DebateTurn') AS turns"
    )
    assert rows == {"debates": 1, "turns": 1}


async def test_of_several_debates_each_goes_on_by_itself(forum: Forum, settings_of: SettingsOf) -> None:
    """Also a provisional one; a question to a person beside them waits for the person."""
    settings = settings_of("bear")

    def work(step: str) -> Any:
        with Memory.sync(settings) as memory, ImemSaver.open(settings) as saver:
            graph = several(memory, saver)
            config: Any = {"configurable": {"thread_id": "t-1"}}
            if step == "begin":
                assert len(graph.invoke({}, config, durability="sync")["__interrupt__"]) == 3
            ready = ready_threads(memory, saver)
            for one in ready:
                graph.invoke(one.resume, one.config, durability="sync")
            assert ready_threads(memory, saver) == []
            return [one.debate.finding_id for one in ready], graph.get_state(config).values.get("positions", {})

    assert await asyncio.to_thread(work, "begin") == ([], {})
    running = await forum.debates.running(agent="bear", analysis_id=None, limit=9, deadline=ENOUGH)
    by_finding = {one.finding_id: one for one in running}
    await forum.act(by_finding["e-bull"], Act.ACCEPT, BEAR)
    await forum.advance()
    found, _ = await asyncio.to_thread(work, "first")
    assert found == ["e-bull"]
    for side in (BEAR, BULL):
        await forum.act(by_finding["f-bull"], Act.STAND, side)
    await forum.advance()  # Nobody is on the roster: it is provisional.
    found, _ = await asyncio.to_thread(work, "second")
    assert found == ["f-bull"]
    with ImemSaver.open(settings) as saver:
        [left] = saver.interrupts()
        assert left.value == "Publish?"


async def test_a_state_without_a_challenge_goes_through(settings_of: SettingsOf) -> None:
    """And a challenge that is none is named."""
    async with Memory.open(settings_of("bear")) as memory:
        graph = graph_of(memory, None)
        assert await graph.ainvoke({"challenge": None}) == {"challenge": None, "positions": {}}
        for wrong in ({"finding_id": "f-bull"}, "f-bull", {"basis": "x", "finding_id": "none"}):
            with pytest.raises(BadInput, match=r"is an object with|no Finding"):
                await graph.ainvoke({"challenge": wrong})
