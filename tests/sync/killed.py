"""
Processes that are killed: ``python -m tests.sync.killed``, told on its first line where the servers are, and on each
further line what to do and at which point to die.

A point is ``before_`` or ``after_`` a statement or a script: after a statement that is part of a transaction means that
it was executed and not committed. Each run is a fork of this process; it answers with how the run ended: the negative
number of the signal, or 0.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from imem.cache.client import Client
from imem.cache.scripts import Script
from imem.cache.working.store import WorkingStore
from imem.ingest.recorder import Recorder
from imem.journal.actors import Actor
from imem.journal.clock import SystemClock
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.journal.statements import sql
from imem.sync.delivery.notices import Notices
from imem.sync.members import members
from imem.sync.snapshots import Snapshots
from imem.sync.synchronizer import Synchronizer
from tests.kill_points import run_each_line

from .conftest import soon

POINTS = {
    "push": (
        "before_published", "after_published", "before_append", "after_append", "before_note_pushed",
        "after_note_pushed",
    ),
    "route": (
        "before_notices_due", "after_notices_due", "after_inbox_numbers", "after_recipients_add",
        "after_notices_routed", "before_notices_untold", "before_offer", "after_offer", "after_notices_queued",
    ),
    "pull": (
        "before_updates_to_pull", "before_learn", "after_learn", "after_updates_pulled", "after_usage_pulled",
        "before_drop_notices", "after_drop_notices",
    ),
    "snapshot": (
        "before_lock_writers", "after_lock_writers", "after_append", "before_note_pushed", "before_hasten",
        "after_repeatable_read", "after_snapshot_records", "after_snapshot_insert", "after_debate_snapshot_set",
        "before_unlock_writers", "after_unlock_writers", "before_put_memory_snapshot",
    ),
}  # fmt: skip
"""Operation → where its process dies."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Put the death into the product's way."""
    when, _, name = point.partition("_")
    run = Client.run

    def watched(execute: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watching(conn: Connection, query: Any, *arguments: Any, **named: Any) -> Any:
            if query != statement:
                return await execute(conn, query, *arguments, **named)
            if when == "before":
                die()
            answer = await execute(conn, query, *arguments, **named)
            die()
            return answer

        return watching

    async def run_watched(client: Client, script: Script, *arguments: Any, **named: Any) -> Any:
        if script.name != name:
            return await run(client, script, *arguments, **named)
        if when == "before":
            die()
        answer = await run(client, script, *arguments, **named)
        die()
        return answer

    try:
        statement: Any = sql(name)
        for ways in ("execute", "answer"):
            setattr(Connection, ways, watched(getattr(Connection, ways)))
    except KeyError:
        Client.run = run_watched  # type: ignore[method-assign, assignment]


async def run(where: Any, line: str) -> None:
    """Do what is told until killed, or to the end."""
    told = json.loads(line)
    arm(told["point"])
    database, working, durable = Database(where["url"], size=8), Client(where["working"]), Client(where["durable"])
    gateway = Gateway(database, Actor("facilitator", Role.DEBATE_FACILITATOR))
    memories = WorkingStore(working, SystemClock())
    sync = Synchronizer(database, memories, Recorder(gateway), gateway, notices=Notices(durable))
    if told["operation"] == "snapshot":
        await Snapshots(database, sync, durable).take(told["debate_id"], deadline_ms=30_000)
    elif told["operation"] == "route":
        await sync.router.step()
    else:
        [member] = await members(database, [told["agent_id"]], deadline=soon())
        await getattr(sync, told["operation"])(member, deadline=soon())


if __name__ == "__main__":
    run_each_line(run)
