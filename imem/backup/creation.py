"""
Makes a backup: a dump of the database as one snapshot shows it, the objects, the hash of the graph, the manifest.

Everything goes on meanwhile. Objects are copied after the snapshot was taken, so that none that the database names is
missing; one that is deleted meanwhile is left out. A crash leaves no manifest, so that the same call repeats it all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from imem.backup.database import Snapshot, locked, session, snapshot
from imem.backup.database import ask as ask_database
from imem.backup.manifest import DUMP, FILES, OBJECT_MS, Copied, GraphDigest, Manifest, has_manifest, write_manifest
from imem.backup.places import owner_url
from imem.backup.programs import dump
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.errors import BadInput, ImemError, ObjectMissing
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings
from imem.terminal.version import version_of_this

log = structlog.get_logger()

Report = Callable[[str, int, int], None]
"""Called with what is being done, and how much of it is, of how much; 0 of 0 where that is not known."""

GRAPH_MS: Final = 10_000
"""Timeout of comparing the graph with the journal, in milliseconds."""


def silent(what: str, done: int, total: int) -> None:
    """Report to nobody."""


async def back_up(settings: Settings, place: ObjectStore, *, report: Report = silent) -> Manifest:
    """
    Back up the installation of *settings* into *place*, and return the manifest.

    Raises:
        BadInput: there is a complete backup in *place* already.
        SettingsError: the owner's login is not known.
        BackupError: pg_dump failed.
        LeaseHeld: another backup is under way.
        ConsistencyError, StoreUnavailable: it was cut off; repeating it goes on.
    """
    async with locked(owner_url(settings)):
        if await has_manifest(place):
            raise BadInput("PLACE", "holds a complete backup, which is not overwritten; name another folder.")
        return await _back_up(settings, place, report)


async def _back_up(settings: Settings, place: ObjectStore, report: Report) -> Manifest:
    url = owner_url(settings)
    begun = SystemClock().now()
    async with snapshot(url) as moment:
        report("Dumping the database", 0, 0)
        dumped = await dump(url, moment.id, place, DUMP)
    files = await _copy_objects(ObjectStore.of(settings), place, report)
    graph, unknown = await _hash_of_graph(settings, moment, report)
    manifest = Manifest(
        created_at=begun,
        program=version_of_this(),
        server=moment.server,
        migrations=moment.migrations,
        journal=moment.journal,
        position=moment.position,
        tables=moment.tables,
        roles=moment.roles,
        dump=Copied.of(dumped),
        files=tuple(files),
        graph=graph,
        graph_unknown=unknown,
    )
    report("Writing the manifest", 0, 0)
    await write_manifest(place, manifest)
    log.info("backup.made", position=manifest.position, bytes=manifest.size, objects=len(manifest.files))
    return manifest


async def _copy_objects(source: ObjectStore, place: ObjectStore, report: Report) -> list[Copied]:
    """Copy every object, and return what was stored and read back."""
    keys = await source.keys("", deadline=Deadline.after_ms(OBJECT_MS))
    copied = []
    for number, key in enumerate(keys, 1):
        try:
            content = await source.get(key, deadline=Deadline.after_ms(OBJECT_MS))
        except ObjectMissing:
            continue
        copied.append(Copied.of(await place.put(f"{FILES}/{key}", content, deadline=Deadline.after_ms(OBJECT_MS))))
        report("Copying objects", number, len(keys))
    return copied


async def _hash_of_graph(settings: Settings, moment: Snapshot, report: Report) -> tuple[GraphDigest | None, str | None]:
    """Return the hash of the graph if it is that of *moment*, or why it is none."""
    if settings.neo4j_url is None:
        return None, "The graph did not run."
    if moment.pending:
        return None, f"{moment.pending:,} events were not in the graph yet."
    from imem.kg.engine import Graph  # noqa: PLC0415 - its driver is slow to import
    from imem.kg.projection.hash import graph_hash  # noqa: PLC0415 - as above
    from imem.kg.projection.verification import compare  # noqa: PLC0415 - as above

    password = settings.neo4j_password.get_secret_value() if settings.neo4j_password is not None else ""
    graph = Graph(settings.neo4j_url, settings.neo4j_user, password)
    database = Database(owner_url(settings), size=1)
    try:
        report("Hashing the graph", 0, 0)
        status = await compare(database, graph, deadline=Deadline.after_ms(GRAPH_MS))
        if status.mismatch is not None:
            return None, status.mismatch
        found = await graph_hash(graph)
    except ImemError as error:
        return None, error.message
    finally:
        await graph.close()
        await database.close()
    async with session(owner_url(settings)) as conn:
        [now] = await ask_database(conn, "backup_progress")
    if now["events"] != moment.events or now["pending"]:
        return None, "Events were recorded while the backup was made."
    parts = {name: (part.count, part.digest) for name, part in found.parts.items()}
    return GraphDigest(digest=found.digest, nodes=found.nodes, links=found.links, parts=parts), None
