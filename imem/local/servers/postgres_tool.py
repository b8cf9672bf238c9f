"""
``python -m imem.local.servers.postgres_tool pg_dump …``: a Postgres program on the local stack's database.

It runs as the database's owner, with the address and the password in its environment. Where no stack runs, Postgres
alone is started for it, and stopped afterwards: a database can only be restored while no worker uses it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from imem.journal.errors import ImemError, StackError
from imem.journal.settings import Settings
from imem.local import state
from imem.local.folders import Folders
from imem.local.servers.postgres import program
from imem.local.supervisor import LocalStack

PROGRAMS: Final = ("pg_dump", "pg_restore", "psql")


def run(settings: Settings, name: str, arguments: Sequence[str]) -> int:
    """
    Run the program *name* and return its exit code.

    Raises:
        StackError: Postgres is not the stack's own, or does not start.
    """
    if settings.postgres_url is not None:
        raise StackError("IMEM_POSTGRES_URL names a server of your own.", mend=f"Use the {name} of that server.")
    path = program(name)
    running = state.running(Folders(settings.home))
    if running is not None:
        return _call(path, arguments, running.endpoints)
    with LocalStack(settings, servers={"postgres"}, workers=False) as alone:
        return _call(path, arguments, alone.state.endpoints)


def _call(path: Path, arguments: Sequence[str], endpoints: Mapping[str, str]) -> int:
    url = urlsplit(endpoints.get("postgres_admin_url", ""))
    if url.hostname is None:
        raise StackError("The stack's Postgres is not ready.", mend="`imem status` shows how far it is.")
    variables = {
        "PGHOST": url.hostname,
        "PGPORT": str(url.port),
        "PGUSER": unquote(url.username or ""),
        "PGPASSWORD": unquote(url.password or ""),
        "PGDATABASE": url.path.removeprefix("/"),
    }
    return subprocess.run([str(path), *arguments], env={**os.environ, **variables}, check=False).returncode  # noqa: S603 - what its caller typed


def main() -> int:
    """Run the program that the command line names."""
    if len(sys.argv) < 2 or sys.argv[1] not in PROGRAMS:
        sys.stderr.write(f"usage: python -m imem.local.servers.postgres_tool {{{','.join(PROGRAMS)}}} [ARGUMENT …]\n")
        return 2
    try:
        return run(Settings.read(), sys.argv[1], sys.argv[2:])
    except ImemError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
