"""Deleting what an installation keeps, and nothing else that may lie in the same folder."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from imem.local.folders import Folders, read_json, translate_os_errors
from imem.local.servers.postgres import SHARED_FOR_ROOT
from imem.local.supervisor import lock

OWNED = (
    "postgres",
    "neo4j",
    "neo4j-new",
    "neo4j-old",
    "valkey",
    "beat",
    "metrics",
    "logs",
    "run",
    "rebuild.lock",
    "stack.json",
    "clock.json",
    "secrets.json",
)
"""Everything the product puts into its home, in the order in which it goes: what opens the data goes last."""


def purge(folders: Folders) -> list[Path]:
    """
    Delete the data of this installation; return what was deleted.

    Fetched jars stay: they are in the cache, which other installations share.

    Raises:
        StackError: a stack runs on it, or something cannot be deleted.
    """
    if not folders.home.is_dir():
        return []
    held = lock(folders)
    try:
        found = read_json(folders.secrets) or {}
        places = [folders.home / name for name in OWNED]
        if isinstance(found.get("installation"), str):
            places.insert(0, SHARED_FOR_ROOT / found["installation"])
        deleted = [place for place in places if place.exists()]
        for place in deleted:
            with translate_os_errors(place):
                if place.is_dir():
                    shutil.rmtree(place)
                else:
                    place.unlink()
        folders.lock.unlink(missing_ok=True)
    finally:
        os.close(held)
    with suppress(OSError):  # Something of the user's is in there: the folder stays.
        folders.home.rmdir()
    return deleted
