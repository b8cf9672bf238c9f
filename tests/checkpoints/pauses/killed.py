"""
A program in which managers are killed: ``python -m tests.checkpoints.pauses.killed``, with its work as JSON on stdin.

Every process that dies is a fork of this one, which has imported everything: it kills itself with SIGKILL before its
n-th act, an act being a statement, a commit, or a call of a Valkey. There are two ways:

*sweep* (``pause``, ``resume``): for each n there is an analysis of its own, whose order is given and carried out by a
process that dies before act n; one or more managers go on with what is under way, and die as well.

*relay* (``both``, ``batch``, ``gate``): some analyses, which processes at random moments order to be paused, resume, or
go on with, several processes at once, until enough of them have died.

In the end a process that nobody kills does the manager's rounds until nothing is left. The program prints how many were
killed, by what they were at.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import psycopg
from pydantic import SecretStr

from imem.cache.client import Client
from imem.checkpoints.pauses.gate_memory import RETRY_AFTER
from imem.journal.errors import TransitionRefused
from imem.journal.postgres.connection import Connection
from tests.kill_points import killing

from .world import PERSON, World, close_world, make_world, soon

AGENTS = ("business_research", "financial_analyst")

LIVES = (15, 120)
"""Acts after which a process that goes on is dead at the latest: within a step or two, or near the end of its work."""


def arm(after: int) -> None:
    """Let this process die before its act number *after*."""
    left = [after]
    for owner, name in (
        (Connection, "execute"),
        (Connection, "answer"),
        (psycopg.AsyncTransaction, "__aexit__"),
        (Client, "run"),
        (Client, "run_flushed"),
    ):
        setattr(owner, name, killing(left, getattr(owner, name)))


def world_of(task: dict[str, Any]) -> World:
    settings = SimpleNamespace(
        valkey_working_url=SecretStr(task["working"]), valkey_durable_url=SecretStr(task["durable"])
    )
    return make_world(settings, task["postgres"], task["owner"])


async def prepare(task: dict[str, Any], names: list[str]) -> None:
    """Have analyses of two agents that have stopped; to be resumed, they are paused."""
    world = world_of(task)

    async def one(analysis_id: str) -> None:
        for name in AGENTS:
            await world.release(await world.begin(analysis_id, name, stock_id=f"company:{analysis_id}"))
        if task["operation"] == "resume":
            result = await world.pauses.pause_analysis(analysis_id, "First.", by=PERSON, deadline=soon())
            assert result.status == "PAUSED", result
        if task["operation"] == "gate":
            world.gate(analysis_id)

    for start in range(0, len(names), 4):
        await asyncio.gather(*(one(name) for name in names[start : start + 4]))
    await close_world(world)


# What processes are at


async def order(task: dict[str, Any], analysis_id: str, after: int, say: Say) -> None:
    """Order what the sweep is about, and carry it out."""
    world = world_of(task)
    say(task["operation"])
    arm(after)
    if task["operation"] == "pause":
        await world.pauses.pause_analysis(analysis_id, "Now.", by=PERSON, deadline=soon())
    else:
        await world.pauses.resume_analysis(analysis_id, by=PERSON, deadline=soon())
    await close_world(world)


async def go_on(task: dict[str, Any], after: int, say: Say) -> None:
    """Go on with what is under way, as a manager does."""
    world = world_of(task)
    say(task["operation"])
    arm(after)
    await world.manager._sagas(soon())
    await close_world(world)


async def either(task: dict[str, Any], analysis_id: str, after: int, say: Say) -> None:
    """Pause an analysis that runs, resume one that is paused, and go on with what is under way."""
    world = world_of(task)
    found = await world.rows(
        "SELECT status FROM workflow.paused_analyses WHERE analysis_id = %s AND status <> 'RESUMED'", analysis_id
    )
    status = found[0]["status"] if found else None
    say({None: "pause", "PAUSING": "pause"}.get(status, "resume"))
    arm(after)
    # Somebody else may order the same just now.
    with suppress(TransitionRefused):
        if status is None:
            await world.pauses.pause_analysis(analysis_id, "Now.", by=PERSON, deadline=soon())
        elif status == "PAUSED":
            await world.pauses.resume_analysis(analysis_id, by=PERSON, deadline=soon())
    await world.manager._sagas(soon())
    await close_world(world)


async def together(task: dict[str, Any], _: str, after: int, say: Say) -> None:
    """Go on with the batch that is under way; without one, pause together what runs, or resume what is paused."""
    world = world_of(task)
    batches = await world.rows(
        "SELECT operation FROM workflow.batch_pause_operations WHERE status = 'IN_PROGRESS' LIMIT 1"
    )
    running = await world.rows(
        "SELECT analysis_id FROM workflow.analysis AS a WHERE NOT EXISTS (SELECT FROM workflow.paused_analyses AS p "
        "WHERE p.analysis_id = a.analysis_id AND p.status <> 'RESUMED') ORDER BY analysis_id"
    )
    paused = await world.rows("SELECT analysis_id FROM workflow.paused_analyses WHERE status = 'PAUSED' ORDER BY 1")
    operation = batches[0]["operation"] if batches else ("pause" if running else "resume")
    say(f"{operation} batch")
    arm(after)
    if batches:
        await world.manager._launches(soon())
        await world.manager._sagas(soon())
    elif running:
        names = [row["analysis_id"] for row in running]
        await world.batches.pause_batch(names, "All.", by=PERSON, deadline=soon())
    elif paused:
        names = [row["analysis_id"] for row in paused]
        await world.batches.resume_batch(names, by=PERSON, deadline=soon())
    await close_world(world)


async def attend(task: dict[str, Any], _: str, after: int, say: Say) -> None:
    """Have memories wait with their gates; where all do, let half of the gates be answered, or wait anew."""
    world = world_of(task)
    if not await world.database.named("gates_to_look_at", {"again": RETRY_AFTER, "limit": 1}, deadline=soon()):
        world.owner(
            "UPDATE lifecycle SET requested_at = CASE WHEN requested_at IS NULL THEN imem_now() END, request = CASE "
            "WHEN request IS NULL THEN jsonb_build_object('state', 'VALIDATED', 'actor', 'priya', 'role', "
            "'human_admin', 'reason', NULL) END WHERE random() < 0.5"
        )
    say("gate")
    arm(after)
    await world.manager._gates.run_due(limit=200, deadline=soon())
    await close_world(world)


async def reconcile(task: dict[str, Any]) -> None:
    world = world_of(task)
    async with asyncio.timeout(180):
        while True:
            told = await world.round()
            assert told.troubles == {}, told
            left = await world.rows(
                "SELECT FROM workflow.paused_analyses WHERE status IN ('PAUSING', 'RESUMING') UNION ALL "
                "SELECT FROM workflow.batch_pause_operations WHERE status = 'IN_PROGRESS' LIMIT 1"
            )
            if not left and "waiting" not in told.done:
                break
    await close_world(world)


# Processes

Say = Callable[[str], None]
"""Tells the parent what a process is at, before it can die of it."""


@dataclass(frozen=True)
class Forked:
    """A process that may die."""

    pid: int
    told: int

    def killed(self) -> str | None:
        """Wait for its end, and return what it was at if it was killed; one that failed by itself ends everything."""
        with os.fdopen(self.told) as words:
            at = words.read()
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return at
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit(1)
        return None


def forked(work: Callable[[Say], Awaitable[None]]) -> Forked:
    reads, writes = os.pipe()

    def say(at: str) -> None:
        os.write(writes, at.encode())

    child = os.fork()
    if child == 0:
        try:
            asyncio.run(work(say))  # type: ignore[arg-type]
        except BaseException as error:  # noqa: BLE001 - the parent has to hear of whatever it is
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    os.close(writes)
    return Forked(child, reads)


def undisturbed(work: Callable[[], Awaitable[None]]) -> None:
    async def deaf(_: Say) -> None:
        await work()

    assert forked(deaf).killed() is None


def life(chance: random.Random) -> int:
    return chance.randint(1, chance.choice(LIVES))


def sweep(task: dict[str, Any]) -> dict[str, int]:
    """Kill before every act of an order, then as often as asked whoever goes on."""
    chance = random.Random(task.get("seed", 1))
    names = [f"{task['operation']}-{number}" for number in range(task["most"])]
    undisturbed(partial(prepare, task, names))
    points, kills = 0, 0
    for name in names:
        points += 1
        if forked(partial(order, task, name, points)).killed() is None:
            break
        kills += 1
        # *again* is how many on average.
        for _ in range(int(points * task["again"]) - int((points - 1) * task["again"])):
            kills += forked(partial(go_on, task, life(chance))).killed() is not None
    return {"points": points, "killed": kills}


RELAYS = {"both": either, "batch": together, "gate": attend}


def relay(task: dict[str, Any]) -> dict[str, int]:
    """Kill as often as asked, several at once, and so often at least at each of what they may be at."""
    chance, kills = random.Random(task.get("seed", 1)), Counter[str]()
    names = [f"a-{number}" for number in range(task["analyses"])]
    undisturbed(partial(prepare, task, names))
    work = RELAYS[task["operation"]]
    while kills.total() < task["kills"] or min(kills[at] for at in task["of"]) < task["each"]:
        lives = [(chance.choice(names), life(chance)) for _ in range(task["at_once"])]
        for one in [forked(partial(work, task, name, after)) for name, after in lives]:
            if at := one.killed():
                kills[at] += 1
    return dict(kills)


def main(task: dict[str, Any]) -> None:
    told = relay(task) if task["operation"] in RELAYS else sweep(task)
    undisturbed(partial(reconcile, task))
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.stdin.readline()))
