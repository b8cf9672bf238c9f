"""
Backups and restores that are killed: ``python -m tests.imem.backup.killed``, told the settings on its first line.

Each further line names the command, the place and the point (:data:`BACKUP` or :data:`RESTORE`) at which the process
ends itself.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Final

from imem.backup import creation, database, restoration
from imem.backup.manifest import DUMP, MANIFEST
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.settings import Settings
from imem.local.migrate import migrate
from tests.kill_points import run_each_line

BEFORE_MANIFEST: Final = (
    "before_dump", "inside_dump", "after_dump", "inside_an_object", "after_an_object", "before_manifest",
    "inside_manifest",
)  # fmt: skip
BACKUP: Final = (*BEFORE_MANIFEST, "after_manifest")
RESTORE: Final = ("before_objects", "after_an_object", "before_dump", "inside_dump", "after_dump")


def _arm(point: str) -> None:
    def reach(*here: str) -> None:
        if point in here:
            os.kill(os.getpid(), signal.SIGKILL)

    put, put_stream, get_stream = ObjectStore.put, ObjectStore.put_stream, ObjectStore.get_stream
    replace, anew = os.replace, database.make_extension

    async def stored(store: ObjectStore, key: str, content: bytes, **named: Any) -> Any:
        reach("before_manifest" if key == MANIFEST else "before_objects")
        found = await put(store, key, content, **named)
        reach("after_manifest" if key == MANIFEST else "after_an_object")
        return found

    async def streamed(store: ObjectStore, key: str, source: Any, **named: Any) -> Any:
        reach("before_dump")
        found = await put_stream(store, key, source, **named)
        reach("after_dump")
        return found

    async def fed(store: ObjectStore, key: str, take: Any, **named: Any) -> Any:
        def half(chunk: bytes) -> None:
            take(chunk[: len(chunk) // 2])
            reach("inside_dump")
            take(chunk[len(chunk) // 2 :])

        return await get_stream(store, key, half if take is not len else take, **named)

    def renamed(part: str, path: str) -> None:
        reach({DUMP: "inside_dump", MANIFEST: "inside_manifest"}.get(path.rpartition("/")[2], "inside_an_object"))
        replace(part, path)

    async def emptied(url: str) -> None:
        await anew(url)
        reach("before_dump")

    def migrated(settings: Settings) -> list[str]:
        reach("after_dump")
        return migrate(settings)

    ObjectStore.put = stored  # type: ignore[method-assign, assignment]
    ObjectStore.put_stream = streamed  # type: ignore[method-assign, assignment]
    ObjectStore.get_stream = fed  # type: ignore[method-assign, assignment]
    os.replace = renamed  # type: ignore[assignment]
    database.make_extension = emptied
    vars(restoration)["migrate"] = migrated


async def run(env: dict[str, str], line: str) -> None:
    """Back up or restore until the point."""
    told = json.loads(line)
    settings, place = Settings.read(env), ObjectStore(told["place"])
    _arm(told["point"])
    if told["command"] == "backup":
        await creation.back_up(settings, place)
    else:
        await restoration.restore_backup(settings, place, local=False)


if __name__ == "__main__":
    run_each_line(run)
