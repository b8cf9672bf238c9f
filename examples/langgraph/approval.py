"""
A graph that a person interrupts, and that goes on days later.

    python examples/langgraph/approval.py                     both parts, the second four days later by its clock
    python examples/langgraph/approval.py ask THREAD          drafts, asks, and ends
    python examples/langgraph/approval.py answer THREAD yes   goes on with the answer, whenever that is

Between question and answer nothing runs: no process, no timer. The thread waits in Postgres.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt

from imem.journal.clock import Clock, ManualClock, SystemClock
from imem.langgraph import ImemSaver

LATER: Final = timedelta(days=4)
"""A long weekend."""


class State(TypedDict, total=False):
    """What the graph knows."""

    subject: str
    draft: str
    drafted_at: str
    approved: bool
    decided_at: str
    published: str


def build(saver: BaseCheckpointSaver[Any], clock: Clock) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the graph, which takes the time from *clock*."""

    def draft(state: State) -> State:
        return {"draft": f"Buy {state['subject']}.", "drafted_at": clock.now().isoformat()}

    def review(state: State) -> State:
        # The first time this ends the run; when somebody has answered, it returns the answer.
        approved = interrupt({"question": "Publish this?", "draft": state["draft"]})
        return {"approved": bool(approved), "decided_at": clock.now().isoformat()}

    def publish(state: State) -> State:
        return {"published": state["draft"]}

    graph = StateGraph(State)
    for node in (draft, review, publish):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "review")
    graph.add_conditional_edges("review", lambda state: "publish" if state["approved"] else END, ["publish", END])
    graph.add_edge("publish", END)
    return graph.compile(checkpointer=saver)


def config_of(thread_id: str) -> RunnableConfig:
    """Return the config of a thread."""
    return {"configurable": {"thread_id": thread_id}}


def ask(thread_id: str, clock: Clock) -> Any:
    """Run the thread up to its question, and return that."""
    with ImemSaver.open() as saver:
        ended = build(saver, clock).invoke({"subject": "company:MU"}, config_of(thread_id), durability="sync")
    return ended["__interrupt__"][0].value


def answer(thread_id: str, clock: Clock, *, approved: bool) -> dict[str, Any]:
    """Go on with the answer, and return what the graph knows in the end."""
    with ImemSaver.open() as saver:
        known: dict[str, Any] = build(saver, clock).invoke(
            Command(resume=approved), config_of(thread_id), durability="sync"
        )
    return known


def report(known: dict[str, Any]) -> None:
    """Print what came of it."""
    waited = datetime.fromisoformat(known["decided_at"]) - datetime.fromisoformat(known["drafted_at"])
    print(f"answered after {waited.days} days:", "published" if known.get("published") else "not published")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1] if __doc__ else None)
    parts = parser.add_subparsers(dest="part")
    parts.add_parser("ask").add_argument("thread")
    answering = parts.add_parser("answer")
    answering.add_argument("thread")
    answering.add_argument("approved", choices=["yes", "no"])
    given = parser.parse_args()
    match given.part:
        case "ask":
            print("asked:", ask(given.thread, SystemClock()))
        case "answer":
            report(answer(given.thread, SystemClock(), approved=given.approved == "yes"))
        case _:
            thread_id, clock = f"approval-{uuid4()}", ManualClock()
            print("asked:", ask(thread_id, clock))
            clock.advance(LATER)
            report(answer(thread_id, clock, approved=True))


if __name__ == "__main__":
    main()
