"""
What spares the graphs' servers of the tests work that is of use only to servers which run for long; and programs the
load of the machine.

This folder is put on the path of programs that start such a server; there Python itself imports this module. The
server's module is changed once it is imported, as few programs need it and it is slow to import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Final

SERVER: Final = "imem.local.servers.neo4j"

JVM_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
"""
Most of what such a server does in a test is to compile itself: so a fifth of the processor time is spared. A sixth of a
start's goes into the verification of classes, of jars whose hashes are known.
"""

LINES: Final = (
    # Otherwise a quarter of a gigabyte of zeros is written for each database, into memory mostly.
    "db.tx_log.preallocate=false",
    "db.logs.query.enabled=OFF",
    # A graph that is emptied for each test would have all its statements planned anew each second.
    "dbms.cypher.min_replan_interval=10s",
)
"""Lines of the server's configuration; they replace those of the same names."""


def spare(server: Any) -> None:
    """Change the module *server*."""
    configuration = server.Neo4j._configuration
    names = tuple(f"{line.partition('=')[0]}=" for line in LINES)

    @wraps(configuration)
    def changed(self: Any) -> str:
        kept = (line for line in configuration(self).splitlines() if not line.startswith(names))
        return "".join(f"{line}\n" for line in (*kept, *LINES))

    server.JVM_OPTIONS = JVM_OPTIONS
    server.Neo4j._configuration = changed


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        spare(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = PathFinder.find_spec(fullname, path, target) if fullname == SERVER else None
        if found is not None and isinstance(found.loader, SourceFileLoader):
            found.loader = _Loader(found.loader.name, found.loader.path)
        return found


if __name__ == "sitecustomize":
    # A batch waits while the machine is busy: what else runs beside the tests is none of theirs.
    os.getloadavg = lambda: (0.0, 0.0, 0.0)
    sys.meta_path.insert(0, _Finder())
