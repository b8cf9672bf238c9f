"""
Builders of archives that are killed: ``python -m tests.archives.killed``, told the database on its first line.

Each further line names the folder of the objects and the point (:data:`POINTS`) at which the process ends itself. One
that names options of the connection in place of the folder has the process prune the graph.
"""

from __future__ import annotations

import json
import os
import signal
from types import SimpleNamespace
from typing import Any, Final

import psycopg

from imem.archives.archive import MANIFEST
from imem.archives.building import ACTOR, build_archives
from imem.archives.pruning import prune
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from tests.kill_points import run_each_line

BEFORE_MANIFEST: Final = ("before_objects", "inside_an_object", "after_an_object", "before_manifest", "inside_manifest")
COMMIT: Final = ("before_append", "before_commit", "after_commit")
AFTER_MANIFEST: Final = ("after_manifest", *COMMIT)
POINTS: Final = (*BEFORE_MANIFEST, *AFTER_MANIFEST)


def _arm(point: str, built: list[str]) -> None:
    def reach(*here: str) -> None:
        if point in here:
            os.kill(os.getpid(), signal.SIGKILL)

    put, replace = ObjectStore.put, os.replace
    append, leave = Gateway.append_in, psycopg.AsyncTransaction.__aexit__

    async def watched(store: ObjectStore, key: str, content: bytes, *, deadline: Deadline) -> Any:
        manifest = key.endswith(MANIFEST)
        reach("before_manifest" if manifest else "before_objects")
        stored = await put(store, key, content, deadline=deadline)
        built.append(key)
        reach("after_manifest" if manifest else "after_an_object")
        return stored

    def renamed(part: str, path: str) -> None:
        reach("inside_manifest" if path.endswith(MANIFEST) else "inside_an_object")
        replace(part, path)

    async def appended(*given: Any, **named: Any) -> Any:
        reach("before_append")
        return await append(*given, **named)

    async def left(transaction: Any, *given: Any) -> Any:
        if not built:
            return await leave(transaction, *given)
        reach("before_commit")
        answer = await leave(transaction, *given)
        reach("after_commit")
        return answer

    ObjectStore.put = watched  # type: ignore[method-assign, assignment]
    os.replace = renamed  # type: ignore[assignment]
    Gateway.append_in = appended  # type: ignore[method-assign]
    psycopg.AsyncTransaction.__aexit__ = left  # type: ignore[method-assign, assignment]


async def run(url: str, line: str) -> None:
    """Build what is due until the point."""
    told = json.loads(line)
    _arm(told["point"], ["pages"] if "options" in told else [])
    database = Database(url, size=2, options=told.get("options", ""))
    if "options" in told:
        await prune(database, Gateway(database, ACTOR), until=Deadline.after_ms(30_000))
        return
    runtime: Any = SimpleNamespace(
        database=database, gateway=Gateway(database, ACTOR), objects=ObjectStore(told["folder"])
    )
    try:
        await build_archives(runtime, until=Deadline.after_ms(30_000))
    finally:
        await database.close()


if __name__ == "__main__":
    run_each_line(run)
