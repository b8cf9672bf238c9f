"""pg_dump and pg_restore of the local stack's own binaries, streaming between a database and a store of objects."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, Final, cast

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore, StoredObject
from imem.journal.errors import BackupError, ImemError
from imem.local.servers.postgres import program

LEAST_SERVER: Final = 17_00_00
"""Oldest Postgres that pg_restore of these binaries can restore into: it sets what older ones do not know."""

_SAID_CHARS: Final = 600
"""Characters of a failed program's output that an error shows."""


async def dump(url: str, snapshot: str, store: ObjectStore, key: str) -> StoredObject:
    """
    Store a dump of the database at *url*, as *snapshot* shows it, under *key*.

    Extensions are left out: on many servers only an administrator may make them. A crash leaves an object that no
    manifest names, or none.

    Raises:
        BackupError: pg_dump failed; its words are in the error.
        ConsistencyError, ObjectsUnavailable: it could not be stored.
    """
    arguments = ["--format=custom", f"--snapshot={snapshot}", "--exclude-extension=*", "--no-password"]
    with _running("pg_dump", arguments, url, stdout=subprocess.PIPE) as (process, said):
        stored = await store.put_stream(key, cast("IO[bytes]", process.stdout), deadline=Deadline.never())
        await _finish("pg_dump", process, said)
    return stored


async def restore(store: ObjectStore, key: str, url: str, *, rights: bool) -> None:
    """
    Restore a dump into the database at *url*, in one transaction; everything then belongs to who logs in.

    Args:
        rights: whether the rights of other roles are restored; these roles must exist.

    Raises:
        BackupError: pg_restore failed, its words are in the error; nothing was restored.
        ObjectMissing, ObjectsUnavailable: the dump cannot be read; nothing was restored.
    """
    arguments = ["--format=custom", "--single-transaction", "--exit-on-error", "--no-owner", "--no-password"]
    arguments += [] if rights else ["--no-privileges"]
    with _running("pg_restore", arguments, url, stdin=subprocess.PIPE) as (process, said):
        pipe = cast("IO[bytes]", process.stdin)
        broken = False

        def feed(chunk: bytes) -> None:
            nonlocal broken
            try:
                pipe.write(chunk)
            except BrokenPipeError:  # It has ended: what it said is the reason.
                broken = True
                raise

        try:
            await store.get_stream(key, feed, deadline=Deadline.never())
        except ImemError:
            if not broken:
                raise
        with suppress(BrokenPipeError):
            await asyncio.to_thread(pipe.close)
        await _finish("pg_restore", process, said)


@contextmanager
def _running(
    name: str, arguments: Sequence[str], url: str, *, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.DEVNULL
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Run a program on the database at *url*; it is killed if it still runs at the end."""
    address: dict[str, Any] = dict(conninfo_to_dict(url))
    password = address.pop("password", None)
    env = {**os.environ, **({"PGPASSWORD": str(password)} if password else {})}
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(  # noqa: S603 - our own program; no password is among the arguments
            [str(program(name)), *arguments, "--dbname", make_conninfo(**address)],
            env=env, stdin=stdin, stdout=stdout, stderr=said,
        ) as process,
    ):  # fmt: skip
        try:
            yield process, said
        finally:
            process.kill()
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()


async def _finish(name: str, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    """Wait until *process* ends, and raise what it said if it failed."""
    code = await asyncio.to_thread(process.wait)
    if code:
        said.seek(0)
        words = " ".join(said.read().decode(errors="replace").split())[-_SAID_CHARS:]
        raise BackupError(f"{name} ended with code {code}: {words or 'it said nothing'}")
