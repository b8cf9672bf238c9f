"""
Processes that are killed: ``python -m tests.checkpoints.killed``, told on its input what to do.

It starts one process after the other (forked, each with connections of its own) and lets each die by SIGKILL at a named
point of its work. A line of input is JSON: what to work on, at which point to die, and by how much the clock is ahead;
a line of output is how the process ended: its exit code, or minus the signal that killed it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg import waiting
from pydantic import SecretStr
from redis.asyncio.connection import AbstractConnection

from imem.cache.working.snapshots import SnapshotStore
from imem.checkpoints import cleanup, deliverables, leases, store
from imem.checkpoints.orchestration import workflows
from imem.checkpoints.versions import resumable
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings
from imem.journal.statements import sql
from tests.kill_points import run_each_line

from .conftest import DEFINITIONS, World, memory, opened, soon

POINTS = {
    "lease": ("before_lease", "in_lease", "after_lease"),
    "save": (
        "before_deliverable", "in_deliverable", "after_deliverable", "in_commit", "after_commit", "in_copy",
        "after_copy",
    ),
    "step": ("in_branch", "after_branch", "in_step", "after_step"),
    "cleanup": (
        "before_end", "in_end", "before_purge", "in_purge", "after_purge", "in_clear", "before_cleared", "in_cleared",
    ),
}  # fmt: skip
"""
Operation → where its process dies. *in* a statement is after it was sent and before the answer was read; what precedes
the commit is *before* or *after* the piece before it.
"""

STATEMENTS = {
    "lease": "acquire_lease", "deliverable": "deliver", "commit": "save_checkpoint", "branch": "finish_branch",
    "step": "save_step", "end": "end_analysis", "purge": "purge_checkpoints", "cleared": "cleared",
}  # fmt: skip


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Death:
    """Where this process dies, and whether it is just there."""

    point: str

    def arm(self) -> None:
        """Put itself into the product's way."""
        when, _, what = self.point.partition("_")
        if what in {"copy", "clear"}:
            owner, name = (SnapshotStore, "put_checkpoint") if what == "copy" else (cleanup.Cleanup, "_forget")
            setattr(owner, name, self._around(getattr(owner, name), when))
            return
        for module in (cleanup, deliverables, leases, store, workflows):
            module.call = self._call(module.call, when, STATEMENTS.get(what))  # type: ignore[attr-defined]

    def _around(self, function: Callable[..., Awaitable[Any]], when: str) -> Callable[..., Awaitable[Any]]:
        async def run(*args: Any, **named: Any) -> Any:
            if when == "in":
                self._dies_when_sent_to_valkey()
            answer = await function(*args, **named)
            if when == "after":
                die()
            return answer

        return run

    def _call(self, call: Callable[..., Awaitable[Any]], when: str, statement: str | None) -> Any:
        async def run(database: Database, name: str, parameters: Any, **named: Any) -> Any:
            if name != statement:
                return await call(database, name, parameters, **named)
            if when == "before":
                die()
            if when == "in":
                self._dies_when_sent(name)
            answer = await call(database, name, parameters, **named)
            if when == "after":
                die()
            return answer

        return run

    def _dies_when_sent(self, statement: str) -> None:
        """Let the process die as soon as the driver has sent everything and waits for the answer."""

        async def wait(gen: Any, *_: Any, **__: Any) -> Any:
            ready = next(gen)
            while ready != waiting.Wait.R:
                ready = gen.send(waiting.Ready.W)
            die()

        def watched(run: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def watching(conn: Connection, query: Any, *args: Any, **named: Any) -> Any:
                if query == sql(statement):
                    setattr(waiting, "wait_async", wait)  # noqa: B010 - the driver's own, which it looks up anew
                return await run(conn, query, *args, **named)

            return watching

        for name in ("execute", "answer"):
            setattr(Connection, name, watched(getattr(Connection, name)))

    def _dies_when_sent_to_valkey(self) -> None:
        async def read(*_: Any, **__: Any) -> Any:
            die()

        AbstractConnection.read_response = read  # type: ignore[method-assign]


async def lease(world: World) -> None:
    """Take the lease, which makes the start checkpoint the first time."""
    await world.acquire(holder=f"process-{os.getpid()}")


async def save(world: World) -> None:
    """Take over and go on from the latest checkpoint to the end, as an agent's program does."""
    taken = await world.acquire(holder=f"process-{os.getpid()}")
    while (found := resumable(await world.load(), DEFINITIONS)).current_subtask is not None:
        subtask = found.current_subtask
        steps = [*found.interim_results.get("steps", []), subtask]
        await world.deliverables.store(taken, subtask, {"by": os.getpid()}, deadline=soon())
        document, digest = memory(steps=",".join(steps))
        await world.save(taken, subtask, document=document, digest=digest, interim_results={"steps": steps})


async def step(world: World) -> None:
    """Go on with a workflow from where it stands: three branches, then the step that joins them, four times."""
    its, whose = world.workflows, (world.analysis, "thread")
    while True:
        found = await its.load(*whose, understands=(1,), deadline=soon())
        rounds = found.state["rounds"] if found is not None else 0
        if rounds == 4:
            return
        seq = found.seq if found is not None else (await _step(its, whose, 0, [])).seq
        pending = dict(found.pending) if found is not None else {}
        for branch in ("a", "b", "c"):
            if branch not in pending:
                pending[branch] = f"{rounds}{branch}"
                await its.finish_branch(*whose, seq, branch, pending[branch], deadline=soon())
        done = found.state["done"] if found is not None else []
        await _step(its, whose, rounds + 1, [*done, *(pending[branch] for branch in "abc")])


async def _step(its: Any, whose: tuple[str, str], rounds: int, done: list[str]) -> Any:
    state = {"rounds": rounds, "done": done}
    return await its.save(*whose, f"join#{rounds}", state, state_version=1, deadline=soon())


async def clean(world: World) -> None:
    """Clean up after success, and what an earlier attempt left."""
    cleaned = await world.cleanup().cleanup_success(world.analysis, deadline=soon())
    assert cleaned.missing == ()


OPERATIONS = {"lease": lease, "save": save, "step": step, "cleanup": clean}


async def live(first: dict[str, str], line: str) -> None:
    told = json.loads(line)
    if told["point"] is not None:
        Death(told["point"]).arm()
    settings = Settings.read({}, **{name: SecretStr(url) for name, url in first.items()})
    async with opened(settings, told["url"], told["admin_url"]) as made:
        world = World(**{**vars(made), "analysis": told["analysis"]})
        async with world.later(timedelta(seconds=told["ahead_s"])) as there:
            await OPERATIONS[told["operation"]](there)


if __name__ == "__main__":
    run_each_line(live)
