"""
Exchange of Neo4j's data folder for a new one (blue/green).

Only the supervisor starts Neo4j, and the folders may be exchanged only while Neo4j does not run. So the rebuild writes
a request file into the new folder and kills the server; the supervisor exchanges the folders before it starts the
server again. The request expires after a few seconds, less than the applier's lease that its writer holds: a request
whose writer was killed must not put in use, hours later, a graph that lacks the events since.

A crash leaves either folder in its place; after a crash between the two renames, the next start finishes the exchange.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from typing import Final

from imem.journal.errors import StackError
from imem.local.folders import Folders, read_json, translate_os_errors, write_private

NEW: Final = "neo4j-new"
OLD: Final = "neo4j-old"
CURRENT: Final = "neo4j"

REQUEST_TTL_S: Final = 4.0
"""Time until a request expires, in seconds; less than the applier's lease."""

_MARK: Final = "take-over.json"


def ask(folders: Folders) -> bool:
    """Write or renew the request; return False if the folders were exchanged already."""
    new = folders.home / NEW
    if not new.is_dir():
        return False
    with suppress(FileNotFoundError):
        write_private(new / _MARK, json.dumps({"until": time.time() + REQUEST_TTL_S}))
    return new.is_dir()


def asked(folders: Folders) -> bool:
    """Whether there is a request that has not expired; a damaged one does not count."""
    with suppress(StackError):
        mark = read_json(folders.home / NEW / _MARK)
        return mark is not None and time.time() < float(mark.get("until", 0.0))
    return False


def withdraw(folders: Folders) -> bool:
    """Delete the request; return False if the folders were exchanged already."""
    with translate_os_errors(folders.home):
        (folders.home / NEW / _MARK).unlink(missing_ok=True)
    return (folders.home / NEW).is_dir()


def carry_out(folders: Folders) -> bool:
    """
    Exchange the folders if a valid request exists, or a crash left the exchange half done; return whether it did.

    Neo4j must not run.

    Raises:
        StackError: a folder cannot be renamed.
    """
    new, old, current = (folders.home / name for name in (NEW, OLD, CURRENT))
    mark = read_json(new / _MARK)
    if mark is None:
        return False
    half_done = not current.exists()
    if not half_done and not asked(folders):
        withdraw(folders)
        return False
    with translate_os_errors(folders.home):
        if not half_done:
            if old.exists():
                shutil.rmtree(old)
            current.rename(old)
        new.rename(current)
        (current / _MARK).unlink(missing_ok=True)
    return True


def discard(folders: Folders, name: str) -> None:
    """Delete the replaced folder (:data:`OLD`), or an unusable new one (:data:`NEW`)."""
    with translate_os_errors(folders.home):
        if (folders.home / name).exists():
            shutil.rmtree(folders.home / name)
