"""
A program in which managers are killed: ``python -m tests.pauses.killed``, what to do as JSON on standard input.

For each point it has an analysis of its own: a process that orders a pause (or a resume) and carries it out kills
itself with SIGKILL before its n-th act, an act being a statement, a commit, or a call of a Valkey. When a process came
through by itself, or enough were killed, another one, which nobody kills, does the manager's rounds until nothing is
left. The program prints how many were killed, of how many points.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import psycopg
from pydantic import SecretStr

from cache.client import Client
from journal.connection import Connection

from .world import PERSON, World, close_world, make_world, soon

AGENTS = ("business_research", "financial_analyst")


def arm(after: int) -> None:
    """Let this process die before its act number *after*."""
    left = [after]

    def deadly(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def act(*args: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return await function(*args, **named)

        return act

    for owner, name in (
        (Connection, "execute"),
        (psycopg.AsyncTransaction, "__aexit__"),
        (Client, "run"),
        (Client, "run_flushed"),
    ):
        setattr(owner, name, deadly(getattr(owner, name)))


def world_of(task: dict[str, Any]) -> World:
    settings = SimpleNamespace(
        valkey_working_url=SecretStr(task["working"]), valkey_durable_url=SecretStr(task["durable"])
    )
    return make_world(settings, task["postgres"], task["postgres"])


async def prepare(task: dict[str, Any], names: list[str]) -> None:
    """Have analyses of two agents that have stopped; to be resumed, they are paused."""
    world = world_of(task)

    async def one(analysis_id: str) -> None:
        for name in AGENTS:
            await world.release(await world.begin(analysis_id, name, stock_id=f"company:{analysis_id}"))
        if task["operation"] == "resume":
            result = await world.pauses.pause_analysis(
                None, "First.", analysis_id=analysis_id, by=PERSON, deadline=soon()
            )
            assert result.status == "PAUSED", result

    for start in range(0, len(names), 4):
        await asyncio.gather(*(one(name) for name in names[start : start + 4]))
    await close_world(world)


async def order(task: dict[str, Any], analysis_id: str, after: int) -> None:
    world = world_of(task)
    arm(after)
    if task["operation"] == "pause":
        await world.pauses.pause_analysis(None, "Now.", analysis_id=analysis_id, by=PERSON, deadline=soon())
    else:
        await world.pauses.resume_analysis(None, analysis_id=analysis_id, by=PERSON, deadline=soon())
    await close_world(world)


async def carry_on(task: dict[str, Any], after: int) -> None:
    """Do a manager's rounds, which may be killed as well."""
    world = world_of(task)
    arm(after)
    await world.manager.round(deadline=soon())
    await close_world(world)


async def reconcile(task: dict[str, Any]) -> None:
    world = world_of(task)
    async with asyncio.timeout(180):
        while True:
            told = await world.manager.round(deadline=soon(120_000))
            assert told.troubles == {}, told
            left = await world.rows(
                "SELECT FROM workflow.paused_analyses WHERE status IN ('PAUSING', 'RESUMING') LIMIT 1"
            )
            if not left:
                break
    await close_world(world)


def forked(work: Callable[[], Awaitable[None]]) -> int:
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(work())  # type: ignore[arg-type]
        except BaseException as error:  # noqa: BLE001 - the parent has to hear of whatever it is
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    return child


def waited(child: int) -> bool:
    """Wait for a child and return whether it was killed; one that failed by itself ends everything."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(1)
    return False


def main(task: dict[str, Any]) -> None:
    names = [f"{task['operation']}-{task.get('seed', 1)}-{number}" for number in range(task["most"])]
    waited(forked(partial(prepare, task, names)))
    killed, points = 0, 0
    chance = random.Random(task.get("seed", 1))
    for name in names:
        points += 1
        if task.get("at_random"):
            # Two managers at once, each of which dies somewhere.
            orders = (partial(order, task, name, chance.randint(1, 90)), partial(carry_on, task, chance.randint(1, 90)))
            killed += sum(waited(child) for child in [forked(one) for one in orders])
        elif waited(forked(partial(order, task, name, points))):
            killed += 1
        else:
            break
    waited(forked(partial(reconcile, task)))
    sys.stdout.write(json.dumps({"killed": killed, "points": points}) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.stdin.readline()))
