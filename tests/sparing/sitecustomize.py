"""
What spares the servers of the tests work that is of use only to servers which run for long; and programs the load of
the machine.

This folder is put on the path of programs that start such a server; there Python itself imports this module. A server's
module is changed once it is imported, as few programs need it and it is slow to import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Final

JVM_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
"""
Most of what such a server does in a test is to compile itself: so a fifth of the processor time is spared. A sixth of a
start's goes into the verification of classes, of jars whose hashes are known.
"""

OPTIONS: Final = ("-c", "scram_iterations=1")
"""
Options of Postgres: a small test opens several connections, and most of what one costs is to hash its password. What is
hashed is random, of 24 bytes, which nobody guesses however fast that is.
"""

LINES: Final = (
    # Otherwise a quarter of a gigabyte of zeros is written for each database, into memory mostly.
    "db.tx_log.preallocate=false",
    "db.logs.query.enabled=OFF",
    # A graph that is emptied for each test would have all its statements planned anew after each interval: a fifth of
    # what the server does. A test of plans has it forget them.
    "dbms.cypher.min_replan_interval=1h",
)
"""Lines of the server's configuration; they replace those of the same names."""


def spare_postgres(server: Any) -> None:
    """Change the module of Postgres' server."""
    command = server.Postgres.command

    @wraps(command)
    def changed(self: Any) -> Any:
        found = command(self)
        return replace(found, argv=(*found.argv, *OPTIONS))

    server.Postgres.command = changed


def spare_graph(server: Any) -> None:
    """Change the module of Neo4j's server."""
    configuration = server.Neo4j._configuration
    names = tuple(f"{line.partition('=')[0]}=" for line in LINES)

    @wraps(configuration)
    def changed(self: Any) -> str:
        kept = (line for line in configuration(self).splitlines() if not line.startswith(names))
        return "".join(f"{line}\n" for line in (*kept, *LINES))

    server.JVM_OPTIONS = JVM_OPTIONS
    server.Neo4j._configuration = changed


SERVERS: Final[Mapping[str, Callable[[Any], None]]] = {
    "imem.local.servers.neo4j": spare_graph,
    "imem.local.servers.postgres": spare_postgres,
}
"""The modules of servers, and what changes them."""


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        SERVERS[module.__name__](module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = PathFinder.find_spec(fullname, path, target) if fullname in SERVERS else None
        if found is not None and isinstance(found.loader, SourceFileLoader):
            found.loader = _Loader(found.loader.name, found.loader.path)
        return found


if __name__ == "sitecustomize":
    # A batch waits while the machine is busy: what else runs beside the tests is none of theirs.
    os.getloadavg = lambda: (0.0, 0.0, 0.0)
    sys.meta_path.insert(0, _Finder())
