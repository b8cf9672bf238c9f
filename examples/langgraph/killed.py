"""
A graph that is killed in the middle of a step and goes on where it stood.

    python examples/langgraph/killed.py

Two nodes work side by side. When the first is done and the second is not, the process is killed with SIGKILL: nothing
can be tidied up. A new process opens the same thread; it does what was not done, and nothing twice.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypedDict
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from imem.langgraph import MemorySaver

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


def build(saver: BaseCheckpointSaver[Any], begun: Callable[[str], None]) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the graph; *begun* hears the name of every node that begins."""

    def plan(state: State) -> State:
        begun("plan")
        return {"questions": [f"What does {state['subject']} cost?", f"What has {state['subject']} filed?"]}

    def prices(state: State) -> State:
        begun("prices")
        return {"prices": f"{state['subject']} trades at 12 times earnings"}

    def filings(state: State) -> State:
        begun("filings")
        return {"filings": f"{state['subject']} has filed nothing unusual"}

    def verdict(state: State) -> State:
        begun("verdict")
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


def config_of(thread_id: str) -> RunnableConfig:
    """Return the config of a thread."""
    return {"configurable": {"thread_id": thread_id}}


def work(thread_id: str, *, hang: bool) -> None:
    """Run the thread to its end, from its beginning or from where it stands; *hang*: until the node ``filings``."""

    def begun(node: str) -> None:
        # In one piece: two nodes may begin at once.
        print(f"{node}\n", end="", flush=True)
        while hang and node == "filings":
            signal.pause()

    with MemorySaver.open() as saver:
        graph = build(saver, begun)
        config = config_of(thread_id)
        # Input begins a thread; without any, it goes on.
        begins = not graph.get_state(config).values
        graph.invoke({"subject": "company:MU"} if begins else None, config, durability="sync")


def started(thread_id: str, *arguments: str) -> subprocess.Popen[str]:
    """Start this program as a process that works on the thread; it prints the nodes that it begins."""
    command = [sys.executable, str(Path(__file__).resolve()), "--work", thread_id, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own program


def nodes(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield the nodes that a process begins, as it does."""
    return (line.strip() for line in process.stdout or ())


def wait_for_prices(saver: MemorySaver, thread_id: str) -> None:
    """Wait until what the node ``prices`` found is stored."""
    ends_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_s:
        found = saver.get_tuple(config_of(thread_id))
        if found is not None and any(channel == "prices" for _, channel, _ in found.pending_writes or []):
            return
        time.sleep(LOOKING_S)
    raise TimeoutError("The node `prices` did not end.")


def main(thread_id: str) -> None:
    """Kill a process in the middle of a step, and let another one go on."""
    with MemorySaver.open() as saver, started(thread_id, "--hang") as first:
        begun = list(islice(nodes(first), 3))
        print("first process began:", ", ".join([begun[0], *sorted(begun[1:])]))
        wait_for_prices(saver, thread_id)
        os.kill(first.pid, signal.SIGKILL)
        print("killed while it worked on: filings")
        first.wait()
        state = build(saver, lambda _: None).get_state(config_of(thread_id))
        print("to be done next:", ", ".join(task.name for task in state.tasks if not task.result))
        with started(thread_id) as second:
            print("second process began:", ", ".join(nodes(second)))
        state = build(saver, lambda _: None).get_state(config_of(thread_id))
        print("verdict:", state.values["verdict"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1] if __doc__ else None)
    parser.add_argument("--work", metavar="THREAD", help="work on this thread, as the processes that are started do")
    parser.add_argument("--hang", action="store_true", help="stay in the node `filings` until killed")
    given = parser.parse_args()
    if given.work:
        work(given.work, hang=given.hang)
    else:
        main(f"killed-{uuid4()}")
