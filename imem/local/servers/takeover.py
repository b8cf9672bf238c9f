"""
A new data folder of Neo4j that takes the place of the one in use.

Only the supervisor starts Neo4j, and only while Neo4j stands still may its folder be exchanged. So whoever made the new
folder leaves a mark in it and ends the server; the supervisor starts it again and, before that, exchanges the folders.
The mark is good for a few seconds, less than the applier's lease that its writer holds: a mark whose writer was killed
must not bring in, hours later, a graph that has missed what was written meanwhile.

A crash leaves the old folder in its place, or the new one; between the two renames, the next start finishes it.
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
"""How long a mark is good after it was written, in seconds; less than the applier's lease lasts unrenewed."""

_MARK: Final = "take-over.json"


def ask(folders: Folders) -> bool:
    """Leave or renew the mark; return False when the new folder has already taken over."""
    new = folders.home / NEW
    if not new.is_dir():
        return False
    with suppress(FileNotFoundError):
        write_private(new / _MARK, json.dumps({"until": time.time() + REQUEST_TTL_S}))
    return new.is_dir()


def asked(folders: Folders) -> bool:
    """Whether a good mark asks for the exchange now; a damaged one asks for nothing."""
    with suppress(StackError):
        mark = read_json(folders.home / NEW / _MARK)
        return mark is not None and time.time() < float(mark.get("until", 0.0))
    return False


def withdraw(folders: Folders) -> bool:
    """Take the mark away; return False when the new folder has already taken over."""
    with translate_os_errors(folders.home):
        (folders.home / NEW / _MARK).unlink(missing_ok=True)
    return (folders.home / NEW).is_dir()


def carry_out(folders: Folders) -> bool:
    """
    Exchange the folders if a good mark asks for it, or if a crash left the exchange half done; return whether it did.

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
    """Delete the folder that was replaced (:data:`OLD`), or a new one that cannot be used (:data:`NEW`)."""
    with translate_os_errors(folders.home):
        if (folders.home / name).exists():
            shutil.rmtree(folders.home / name)
