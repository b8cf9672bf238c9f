"""
A graph that is killed in the middle of a step and goes on where it stood, with what it knew.

    python examples/langgraph/killed.py

Two nodes work side by side. One has ended, the other has paid for two filings of three, when the process is killed with
SIGKILL: nothing can be tidied up. A new process takes over once the lease of the dead one has run out, after half a
minute at most. LangGraph runs the node again that had not ended, and no other; working memory still holds what the node
had paid for, so that nothing is paid for twice.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypedDict
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from imem import Memory
from imem.blocking.working import SyncSession
from imem.checkpoints.model import AgentLease
from imem.journal.settings import Role, Settings
from imem.langgraph import ImemSaver

NODES: Final = ("plan", "prices", "filings", "verdict")

WAIT_MS: Final = 60_000
"""How long a process waits for the lease of another one, in milliseconds: a dead one's runs out after 30 s."""

LOOKING_S: Final = 0.02
"""How often the watcher looks whether the first node's work is stored, in seconds."""

PATIENCE_S: Final = 30.0
"""How long it looks, in seconds."""


class State(TypedDict, total=False):
    """What the graph knows."""

    subject: str
    questions: list[str]
    prices: str
    filings: str
    verdict: str


def build(
    saver: BaseCheckpointSaver[Any], session: SyncSession, buy: Callable[[str], str]
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the graph; *buy* gets a filing for money."""

    def plan(state: State) -> State:
        say("began", "plan")
        if session.current == "plan":  # A node may be run again; a subtask is completed once.
            session.complete("plan")
        return {"questions": [f"What does {state['subject']} cost?", f"What has {state['subject']} filed?"]}

    def prices(state: State) -> State:
        say("began", "prices")
        return {"prices": f"{state['subject']} trades at 12 times earnings"}

    def filings(state: State) -> State:
        say("began", "filings")
        known = session.memory
        # Each filing is a subtask of the agent: once completed, it is in Postgres with all that the agent knows.
        while (filing := session.current) is not None:
            if filing not in known:  # Killed between the two lines below, the agent finds here what it has paid for.
                known[filing] = buy(filing)
            session.complete(filing)
        return {"filings": f"{state['subject']} has filed {', '.join(known.values())}"}

    def verdict(state: State) -> State:
        say("began", "verdict")
        return {"verdict": f"{state['prices']}; {state['filings']}."}

    graph = StateGraph(State)
    for node in (plan, prices, filings, verdict):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "prices")
    graph.add_edge("plan", "filings")
    graph.add_edge(["prices", "filings"], "verdict")
    graph.add_edge("verdict", END)
    return graph.compile(checkpointer=saver)


def config_of(thread_id: str, lease: AgentLease | None = None) -> RunnableConfig:
    """Return the config of a thread; with a *lease*, nobody who has lost it writes to the thread."""
    fence = {"imem_epoch": lease.epoch, "imem_lease": (lease.analysis_id, lease.agent_type)} if lease else {}
    return {"configurable": {"thread_id": thread_id, **fence}}


def settings() -> Settings:
    """Return the environment's settings, for an agent that is defined beside this program."""
    agents = Path(__file__).with_name("agents.json")
    return Settings.read(actor="filings-reader", role=Role.AGENT, agents=agents, log_level="WARNING")


def work(thread_id: str, *, hang: bool) -> None:
    """Run the thread to its end, from its beginning or where it stands; *hang*: until it asks for the last filing."""

    def buy(filing: str) -> str:
        if hang and filing == "filing_2026":
            say("hangs")
            while True:
                signal.pause()
        say("paid for", filing)
        return f"a 10-K for {filing.removeprefix('filing_')}"

    with (
        Memory.sync(settings()) as memory,
        memory.session(
            thread_id, analysis_id=thread_id, agent_type="filings_reader", subject_id="company:MU", wait_ms=WAIT_MS
        ) as session,
        ImemSaver.open(settings()) as saver,
    ):
        found = session.recovered
        proof = "digest verified" if found.verified else "digest not compared"
        say("recovered", f"checkpoint {found.seq} from {found.tier.value}, {proof}")
        graph, config = build(saver, session, buy), config_of(thread_id, session.lease)
        before = graph.get_state(config)
        say("goes on at", ", ".join(task.name for task in before.tasks if not task.result))
        # Input begins a thread; without any, it goes on.
        graph.invoke(None if before.values else {"subject": "company:MU"}, config, durability="sync")
        say("verdict", graph.get_state(config).values["verdict"])


# Two processes, and who watches them


def say(word: str, what: str = "") -> None:
    """Tell whoever started this process; in one piece, since two nodes may speak at once."""
    print(f"{word}: {what}\n", end="", flush=True)


def started(thread_id: str, *arguments: str) -> subprocess.Popen[str]:
    """Start this program as a process that works on the thread."""
    command = [sys.executable, str(Path(__file__).resolve()), "--work", thread_id, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own program


def told(process: subprocess.Popen[str]) -> Iterator[tuple[str, str]]:
    """Yield what a process says, as it does."""
    for line in process.stdout or ():
        word, _, what = line.strip().partition(": ")
        yield word.removesuffix(":"), what


def of(word: str, said: list[tuple[str, str]]) -> str:
    """Return everything that a process said after *word*; nodes in the order of the graph."""
    found = [what for one, what in said if one == word]
    return ", ".join(sorted(found, key=lambda what: NODES.index(what) if what in NODES else 0))


def wait_for_prices(saver: ImemSaver, thread_id: str) -> None:
    """Wait until what the node ``prices`` found is stored."""
    ends_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_s:
        found = saver.get_tuple(config_of(thread_id))
        if found is not None and any(channel == "prices" for _, channel, _ in found.pending_writes or []):
            return
        time.sleep(LOOKING_S)  # It is another process that writes; the saver tells nobody.
    raise TimeoutError("The node `prices` did not end.")


def main(thread_id: str) -> None:
    """Kill a process in the middle of a step, and let another one go on."""
    with ImemSaver.open(settings()) as saver, started(thread_id, "--hang") as first:
        said = list(takewhile(lambda line: line[0] != "hangs", told(first)))
        wait_for_prices(saver, thread_id)
        os.kill(first.pid, signal.SIGKILL)
        said += told(first)
    print("first process began:", of("began", said))
    print("first process paid for:", of("paid for", said))
    print("killed while it worked on: filings")
    with started(thread_id) as second:
        said = list(told(second))
    for word in ("recovered", "goes on at", "began", "paid for"):
        print(f"second process {word}:", of(word, said))
    print("verdict:", of("verdict", said))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1] if __doc__ else None)
    parser.add_argument("--work", metavar="THREAD", help="work on this thread, as the processes that are started do")
    parser.add_argument("--hang", action="store_true", help="stay in the node `filings` until killed")
    given = parser.parse_args()
    if given.work:
        work(given.work, hang=given.hang)
    else:
        main(f"killed-{uuid4()}")
