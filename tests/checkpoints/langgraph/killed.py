"""
A program whose writers are killed: ``python -m tests.checkpoints.langgraph.killed OPERATION COUNT``; it reads the URL.

It forks one writer after the other. Each says on standard output what was acknowledged to it, and kills itself with
SIGKILL at the point whose turn it is: before a statement is sent, when it is sent and not answered, or when it is
answered and not yet acknowledged. In the end the program prints how many were killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions
from langgraph.checkpoint.base.id import uuid6
from psycopg.waiting import Wait

from imem.checkpoints.langgraph import executors
from imem.checkpoints.langgraph.operations import StatementCall
from imem.langgraph import ImemSaver

POINTS: Final = ("before", "sent", "answered")
LENGTH: Final = 5
"""Checkpoints of a thread, or tasks after one."""

armed: list[str] = []
"""The point at which this process dies, once it is set."""


def die(point: str) -> None:
    if armed == [point]:
        os.kill(os.getpid(), signal.SIGKILL)


def make_deadly() -> None:
    """Put the points into the code that waits."""
    run, until = executors.ThreadExecutor.run, executors._until

    def deadly_run(self: executors.ThreadExecutor, call: StatementCall) -> Any:
        die("before")
        rows = run(self, call)
        die("answered")
        return rows

    def deadly_until(gen: Any, ends_s: float) -> Any:
        inner = until(gen, ends_s)
        try:
            state = next(inner)
            while True:
                if state == Wait.R:
                    die("sent")
                state = inner.send((yield state))
        except StopIteration as done:
            return done.value

    executors.ThreadExecutor.run = deadly_run  # type: ignore[method-assign] # that is the point
    executors._until = deadly_until


def values(thread_id: str, step: int) -> dict[str, Any]:
    """Return what a checkpoint holds: much that could be torn."""
    changing = {f"changing{n}": [f"{thread_id}/{step}/{n}"] * 50 for n in range(4)}
    return {**changing, "lasting": [thread_id] * 50, "step": step}


def writes(thread_id: str, task: int) -> list[tuple[str, Any]]:
    """Return what a task writes."""
    return [(f"channel{n}", [f"{thread_id}/{task}/{n}"] * 20) for n in range(4)]


def put(saver: ImemSaver, thread_id: str, step: int, parent: RunnableConfig | None) -> RunnableConfig:
    """Put the checkpoint of a step."""
    held = values(thread_id, step)
    versions: ChannelVersions = {name: "1" if name == "lasting" else f"{step}" for name in held}
    where: RunnableConfig = parent or {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    new = versions if step == 0 else {name: one for name, one in versions.items() if name != "lasting"}
    made: Any = {
        "v": 4, "id": str(uuid6()), "ts": "2026-01-01T00:00:00+00:00", "channel_values": held,
        "channel_versions": versions, "versions_seen": {}, "updated_channels": None,
    }  # fmt: skip
    return saver.put(where, made, {"source": "loop", "step": step, "parents": {}}, new)


def say(*words: object) -> None:
    """Acknowledge, in one write that no death divides."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def putting(saver: ImemSaver, thread_id: str, point: str, at: int) -> None:
    stored = None
    for step in range(LENGTH):
        if step == at:
            armed.append(point)
        stored = put(saver, thread_id, step, stored)
        say("put", thread_id, step)


def writing(saver: ImemSaver, thread_id: str, point: str, at: int) -> None:
    stored = put(saver, thread_id, 0, None)
    say("put", thread_id, 0)
    for task in range(LENGTH):
        if task == at:
            armed.append(point)
        saver.put_writes(stored, writes(thread_id, task), f"{task}")
        say("written", thread_id, task)


def pruning(saver: ImemSaver, thread_id: str, point: str, at: int) -> None:
    stored = None
    for step in range(1 + at):
        stored = put(saver, thread_id, step, stored)
    say("put", thread_id, at)
    saver.prune(["warm"])
    armed.append(point)
    saver.prune([thread_id])


def copying(saver: ImemSaver, thread_id: str, point: str, at: int) -> None:
    stored = None
    for step in range(1 + at):
        stored = put(saver, thread_id, step, stored)
        say("put", thread_id, step)
    saver.copy_thread("warm", "warm copy")
    armed.append(point)
    saver.copy_thread(thread_id, f"{thread_id}-copy")


OPERATIONS: Final[Mapping[str, Callable[[ImemSaver, str, str, int], None]]] = {
    "put": putting,
    "put_writes": writing,
    "prune": pruning,
    "copy_thread": copying,
}


def main(url: str, operation: str, count: int) -> int:
    make_deadly()
    generator = random.Random(operation)
    killed = 0
    for n in range(count):
        at = generator.randrange(1, LENGTH)
        child = os.fork()
        if child == 0:
            with ImemSaver.from_conn_string(url, pool_size=1) as saver:
                OPERATIONS[operation](saver, f"{operation}-{n}", POINTS[n % len(POINTS)], at)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    say("killed", killed)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline().strip(), sys.argv[1], int(sys.argv[2])))
