"""Real graphs: the two examples as a reader runs them, and what LangGraph itself does with the saver."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from examples.langgraph import approval
from imem.checkpoints.langgraph.operations import PAGE, PendingInterrupt
from imem.journal.clock import ManualClock
from imem.langgraph import ImemSaver
from tests import forking
from tests.checkpoints.langgraph.conftest import Base, config, listed, thread

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "langgraph"


@pytest.fixture
def environment(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the servers to programs, as a user does."""
    for name in [name for name in os.environ if name.startswith("IMEM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("IMEM_POSTGRES_URL", base.url)
    for name in ("valkey_working_url", "valkey_durable_url", "valkey_cache_url"):
        monkeypatch.setenv(f"IMEM_{name.upper()}", getattr(base.settings, name).get_secret_value())
    # No graph is asked.
    monkeypatch.setenv("IMEM_NEO4J_URL", "bolt://127.0.0.1:1")
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parents[1]))


def ran(name: str, *arguments: str) -> str:
    done = forking.run("script", str(EXAMPLES / name), *arguments, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.spec("IF-5")
@pytest.mark.usefixtures("environment")
def test_a_graph_killed_in_a_step_resumes_at_the_right_node_with_its_working_memory(base: Base) -> None:
    """
    The process died by SIGKILL; of two nodes side by side, the one that had ended is not run again.

    The other one finds in its working memory, proven by its digest, what it had paid for, and pays for the rest alone.
    """
    assert ran("killed.py") == code_block("killed.py")

    saved = base.rows("SELECT epoch, kind, current_subtask FROM workflow.agent_checkpoints ORDER BY seq")
    assert [tuple(row.values()) for row in saved] == [
        (1, "start", "plan"),
        (1, "subtask", "filing_2024"),
        (1, "subtask", "filing_2025"),
        (1, "subtask", "filing_2026"),
        (2, "subtask", None),
    ]


PAID_AND_KILLED = """
import os, signal, sys
from examples.langgraph import killed
from imem.blocking.working import SyncSession

def complete(self, subtask, **named):
    if subtask == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    return completed(self, subtask, **named)

completed, SyncSession.complete = SyncSession.complete, complete
killed.work(sys.argv[1], hang=False)
"""


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("paid", ["filing_2024", "filing_2026"])
def test_what_was_paid_for_a_moment_ago_is_not_paid_for_again(base: Base, paid: str) -> None:
    """Killed after paying, before anything of it is in Postgres: the memory itself still has it."""
    thread_id = f"killed-{uuid4()}"
    died = subprocess.run([sys.executable, "-c", PAID_AND_KILLED, thread_id, paid], capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    base.rows("UPDATE workflow.agent_leases SET expires_at = expires_at - interval '31 s'")

    first, second = died.stdout.decode().splitlines(), ran("killed.py", "--work", thread_id).splitlines()

    filings = ["filing_2024", "filing_2025", "filing_2026"]
    assert [line for line in first + second if line.startswith("paid for")] == [f"paid for: {one}" for one in filings]
    assert second[0] == f"recovered: checkpoint {filings.index(paid) + 1} from l1_existing, digest not compared"
    # Whether the node beside it had been stored by then is a matter of milliseconds.
    assert second[1] in {"goes on at: filings", "goes on at: prices, filings"}


@pytest.mark.usefixtures("environment")
def test_a_graph_waits_for_a_person_as_long_as_it_takes() -> None:
    assert ran("approval.py") == code_block("approval.py")


def code_block(name: str) -> str:
    """Return what the README says that a program prints."""
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    return readme.partition(f"$ python examples/langgraph/{name}\n")[2].partition("```")[0]


@pytest.mark.usefixtures("environment")
def test_question_and_answer_in_two_programs() -> None:
    thread_id = thread()

    assert "Publish this?" in ran("approval.py", "ask", thread_id)
    assert ran("approval.py", "answer", thread_id, "no") == "answered after 0 days: not published\n"


@pytest.mark.usefixtures("environment")
def test_pruning_does_not_answer_for_a_person(saver: ImemSaver) -> None:
    """A thread that waits keeps its newest checkpoint, and with it the question."""
    thread_id, clock = thread(), ManualClock()
    approval.ask(thread_id, clock)
    clock.advance(timedelta(days=13))

    saver.prune([thread_id])
    saver.prune_older(timedelta(0))

    known = approval.answer(thread_id, clock, approved=True)
    assert known["published"] == "Buy company:MU."
    assert known["decided_at"] == "2026-01-14T00:00:00+00:00"


@pytest.mark.usefixtures("environment")
def test_a_run_that_nothing_kills_does_everything_once() -> None:
    told = ran("killed.py", "--work", thread()).splitlines()

    assert told[:2] == ["recovered: checkpoint 0 from clean_start, digest not compared", "goes on at: "]
    assert sorted(line for line in told if line.startswith("began")) == [
        "began: filings", "began: plan", "began: prices", "began: verdict",
    ]  # fmt: skip
    assert sum(line.startswith("paid for") for line in told) == 3
    assert told[-1].startswith("verdict: company:MU trades at")


class State(TypedDict, total=False):
    """A state with a channel that grows."""

    log: Annotated[list[str], add]
    odd: Any
    answer: str


def graph_of(saver: Any, failing: list[str] | None = None) -> Any:
    """Return a graph that sends tasks out, asks a person in a subgraph, and ends."""
    failing = failing if failing is not None else []

    def one(state: State) -> State:  # noqa: ARG001 - the name is LangGraph's
        return {"log": ["one"], "odd": {"nul": "\x00", "nan": float("nan")}}

    def task(state: State) -> State:
        if failing:
            raise RuntimeError(failing.pop())
        return {"log": [f"task {state['answer']}"]}

    def ask(state: State) -> State:  # noqa: ARG001 - the name is LangGraph's
        return {"log": [f"asked, heard {interrupt('well?')}"]}

    inner = StateGraph(State)
    inner.add_node("ask", ask)
    inner.add_edge(START, "ask")
    outer = StateGraph(State)
    outer.add_node("one", one)
    outer.add_node("task", task)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "one")
    outer.add_conditional_edges("one", lambda _: [Send("task", {"answer": f"{n}"}) for n in range(3)], ["task"])
    outer.add_edge("task", "inner")
    outer.add_edge("inner", END)
    return outer.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("half", ["invoke", "ainvoke"])
async def test_a_graph_with_tasks_and_a_subgraph(
    saver: ImemSaver, asaver: ImemSaver, durability: str, half: str
) -> None:
    """Interrupted in a subgraph, resumed with an answer, its history told; whatever the durability."""
    where = config(thread())

    async def run(given: Any) -> Any:
        if half == "ainvoke":
            return await graph_of(asaver).ainvoke(given, where, durability=durability)
        return await asyncio.to_thread(graph_of(saver).invoke, given, where, durability=durability)

    stopped = await run({"log": ["in"]})
    assert stopped["__interrupt__"][0].value == "well?"
    ended = await run(Command(resume="yes"))

    log = ["in", "one", "task 0", "task 1", "task 2", "asked, heard yes"]
    # A subgraph that shares the channel hands back what it was given as well.
    assert ended["log"][: len(log) - 1] == log[:-1]
    assert ended["log"][-1] == log[-1]
    assert ended["odd"]["nul"] == "\x00"
    history = [state async for state in graph_of(asaver).aget_state_history(where)]
    assert history[0].next == ()
    assert [one.config for one in history] == [one.config for one in await listed(asaver, where)]
    if durability != "exit":
        assert history[-1].next == (START,)


def test_what_ended_is_not_run_again_after_an_error(saver: ImemSaver) -> None:
    """Of three tasks one failed: what ended does not run again, and its error is told meanwhile."""
    where, failing = config(thread()), ["no luck"]
    graph = graph_of(saver, failing)

    with pytest.raises(RuntimeError, match="no luck"):
        graph.invoke({"log": []}, where)
    state = graph.get_state(where)
    # Of a task that had not begun LangGraph says that it was cancelled.
    assert {task.error for task in state.tasks if task.error} - {"CancelledError()"} == {"RuntimeError('no luck')"}
    again = graph.invoke(None, where)

    assert sorted(again["log"]) == ["one", "task 0", "task 1", "task 2"]


def test_going_back_in_time_and_branching_off(saver: ImemSaver) -> None:
    """From any recorded state, by hand, without an epoch."""
    where = config(thread())
    graph = graph_of(saver)
    graph.invoke({"log": ["in"]}, where)
    early = next(state for state in graph.get_state_history(where) if state.next == ("one",))

    fork = graph.update_state(early.config, {"log": ["changed"]})
    stopped = graph.invoke(None, fork)

    assert stopped["log"] == ["in", "changed", "one", "task 0", "task 1", "task 2"]
    assert graph.get_state(where).values["log"] == stopped["log"]


def test_an_epoch_in_the_config_reaches_every_write(saver: ImemSaver) -> None:
    """Also those of subgraphs: a run that was taken over stores nothing more."""
    from imem.journal.errors import StaleEpoch

    thread_id = thread()
    graph = graph_of(saver)
    graph.invoke({"log": []}, config(thread_id, imem_epoch=1))
    graph.invoke(Command(resume="yes"), config(thread_id, imem_epoch=2))
    before = len(list(saver.list({"configurable": {"thread_id": thread_id}})))

    with pytest.raises(StaleEpoch):
        graph.invoke({"log": []}, config(thread_id, imem_epoch=1), durability="sync")

    found = list(saver.list({"configurable": {"thread_id": thread_id}}))
    assert len(found) == before
    assert not any("imem_epoch" in one.metadata for one in found)


def test_threads_of_a_process_share_a_graph(saver: ImemSaver) -> None:
    """Many runs at once through the half for threads, on fewer connections."""
    from concurrent.futures import ThreadPoolExecutor

    graph, run_id = graph_of(saver), str(uuid4())

    def run(n: int) -> list[str]:
        where = config(f"{run_id}-{n}")
        graph.invoke({"log": [f"{n}"]}, where)
        ended: list[str] = graph.invoke(Command(resume="yes"), where)["log"]
        return ended

    with ThreadPoolExecutor(12) as pool:
        for n, log in enumerate(pool.map(run, range(24))):
            assert log[:2] == [f"{n}", "one"]
            assert log[-1] == "asked, heard yes"


@dataclass(frozen=True)
class Question:
    """A type of the user's own."""

    text: str


def asking(saver: ImemSaver, question: Any) -> Any:
    """Return a graph whose subgraph asks something."""
    inner = StateGraph(State)
    inner.add_node("ask", lambda _: {"log": [interrupt(question)]})
    inner.add_edge(START, "ask")
    builder = StateGraph(State)
    builder.add_node("inner", inner.compile())
    builder.add_edge(START, "inner")
    return builder.compile(checkpointer=saver)


def test_what_threads_wait_for_is_listed(saver: ImemSaver, base: Base) -> None:
    """Of any number of threads, each once, though a subgraph asks; until it is answered, and if it may be built."""
    threads = sorted(thread() for _ in range(PAGE + 2))
    graph = asking(saver, "Publish?")
    for one in threads:
        graph.invoke({"log": []}, config(one), durability="sync")
    foreign = thread()
    with ImemSaver.open(base.settings, allow=[Question]) as other:
        asking(other, Question("Publish?")).invoke({"log": []}, config(foreign), durability="sync")
        assert [one.value for one in other.interrupts() if one.thread_id == foreign] == [Question("Publish?")]

    bare = saver.put({"configurable": {"thread_id": thread(), "checkpoint_ns": ""}}, empty_checkpoint(), {}, {})
    saver.put_writes(bare, [("__interrupt__", "no interrupt"), ("log", 1)], "a-task")

    def listed() -> list[PendingInterrupt]:
        return [one for one in saver.interrupts() if one.thread_id in {*threads, foreign}]

    assert [(one.thread_id, one.value) for one in listed()] == [(one, "Publish?") for one in threads]
    answered = listed()[0]
    known = graph.invoke(Command(resume={answered.interrupt_id: "yes"}), config(answered.thread_id))
    assert known["log"] == ["yes"]
    saver.prune(threads[1:3])
    saver.delete_thread(threads[3])
    assert [one.thread_id for one in listed()] == [*threads[1:3], *threads[4:]]
