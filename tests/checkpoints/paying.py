"""
An agent that pays for a call in a process of its own: a script, its task on stdin.

It completes the subtasks before the named one, and in that one writes to its memory, pays, and writes again; told to,
it kills itself with SIGKILL then, in the middle. Otherwise it completes everything, and prints what its memory holds.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import httpx

from imem.cache.client import Client
from imem.checkpoints.session import SessionFactory
from imem.journal.clock import SystemClock
from imem.journal.postgres.database import Database
from tests.checkpoints.recovering import READERS, WHO


async def main(task: dict[str, Any]) -> None:
    """Work as the task says."""
    database = Database(task["postgres"], size=4)
    working, durable = Client(task["working"]), Client(task["durable"])
    harness = SessionFactory.over(database, working, durable, READERS, SystemClock())

    async def pay() -> dict[str, Any]:
        async with httpx.AsyncClient() as client:
            found: dict[str, Any] = (await client.get(task["upstream"])).raise_for_status().json()
            return found

    who: dict[str, Any] = {"analysis_id": task["analysis"], "agent_id": task["agent"], **WHO}
    async with harness.begin(**who) as session:
        while (subtask := session.current) is not None:
            log = session.memory.list("log")
            await log.append(f"{subtask} begun")
            if subtask == task["pays_in"]:
                answer = await session.memoize("prices of MU", pay, durable=task["keep"])
                await log.append(f"paid {answer['price']}")
                if task["dies"]:
                    os.kill(os.getpid(), signal.SIGKILL)
            await session.complete(subtask)
        sys.stdout.write(json.dumps(await session.memory.get("log")))
    await database.close()
    for client in (working, durable):
        await client.close()


if __name__ == "__main__":
    asyncio.run(main(json.load(sys.stdin)))
