"""
Restores a backup into an empty installation.

Objects come first, and then the dump in one transaction: a crash before its commit leaves an empty database, so that
the same call repeats it. After it `imem up` gives roles their rights, as this does at the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from imem.backup import database
from imem.backup.creation import Report, silent
from imem.backup.manifest import FILES, OBJECT_MS, GraphDigest, Manifest
from imem.backup.places import owner_url
from imem.backup.programs import restore
from imem.backup.verification import compare_hashes
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.errors import BackupError, BadInput
from imem.journal.postgres.database import Database
from imem.journal.postgres.migrations import pending, postgres_migrations
from imem.journal.settings import Settings
from imem.kg.engine import Graph
from imem.kg.projection import verification
from imem.kg.projection.hash import GraphHash, graph_hash
from imem.kg.projection.rebuild import catch_up, holding_applier_lease, settled_end
from imem.local.migrate import migrate
from imem.services.graph_rebuild import REDERIVED
from imem.services.stores import pipeline_url

SEEDS: Final = frozenset(
    f"public.{name}"
    for name in (
        *("curated_fact", "due_row", "due_rule", "embedding_model", "journal_identity", "lease", "pattern_epoch"),
        *("pipeline_report", "reconciliation_report", "regime_cache", "regime_run", "retention_run", "schema_version"),
        *("similarity_build", "view_current", "view_row", "view_version"),
    )
)
"""Tables that migrations and the rounds of pipelines fill by themselves, where nothing was recorded."""


@dataclass(frozen=True, slots=True)
class Restored:
    """
    What was restored.

    Attributes:
        manifest: of the backup.
        migrated: what was applied to an older schema.
    """

    manifest: Manifest
    migrated: tuple[str, ...]


async def check_target(settings: Settings, *, local: bool) -> None:
    """
    Return if the database of *settings* may be restored into.

    Args:
        local: whether it is the local stack's own, which is replaced; another one must have no tables.

    Raises:
        BadInput: it holds something, or others use it.
        BackupError: its server is too old.
    """
    url = owner_url(settings)
    target = await database.target_of(url)
    if target.sessions:
        raise BadInput(
            "target",
            f"{target.sessions:,} other sessions use the database.",
            mend="Stop every worker and program of it.",
        )
    rows = await database.row_counts(url)
    held = [name for name, number in rows.items() if number and name not in SEEDS]
    if held:
        raise BadInput(
            "target",
            f"is not empty: {held[0]} holds {rows[held[0]]:,} rows.",
            mend="Restore into a new IMEM_HOME or a new database; `imem down --purge` deletes a local one.",
        )
    if rows and not local:
        raise BadInput(
            "target", "has tables already.", mend="Drop the database and make an empty one; `imem migrate` comes later."
        )


async def restore_backup(settings: Settings, place: ObjectStore, *, local: bool, report: Report = silent) -> Restored:
    """
    Restore the backup in *place* into the empty installation of *settings*.

    Args:
        local: see :func:`check_target`.

    Raises:
        BackupError: the backup is incomplete or damaged, or its rows are not there after the restore.
        BadInput: the installation is not empty.
        SchemaError: the backup's schema is newer than this program, or from before the first release.
    """
    found = await compare_hashes(place, report=report)
    found.raise_unless_ok()
    manifest, url = found.manifest, owner_url(settings)
    pending(postgres_migrations(), manifest.migrations)
    await check_target(settings, local=local)
    await _restore_objects(place, ObjectStore.of(settings), manifest, report)
    if local:
        await database.make_anew(url)
    else:
        await database.make_extension(url)
    report("Restoring the database", 0, 0)
    async with database.roles_present(url, manifest.roles, ours=roles_of(settings)):
        await restore(place, manifest.dump.key, url, rights=True)
    differing = database.differing_rows(manifest.tables, await database.row_counts(url))
    if differing:
        raise BackupError(f"The restored database differs from the manifest: {differing[0]}.")
    return Restored(manifest, tuple(migrate(settings)))


def roles_of(settings: Settings) -> list[str]:
    """Return the roles of this installation."""
    urls = (
        settings.postgres_admin_url,
        settings.postgres_url,
        settings.postgres_pipeline_url,
        settings.postgres_curator_url,
    )
    return [unquote(urlsplit(url.get_secret_value()).username or "") for url in urls if url is not None]


async def _restore_objects(place: ObjectStore, target: ObjectStore, manifest: Manifest, report: Report) -> None:
    """
    Copy the objects back.

    Raises:
        BadInput: the store holds others.
    """
    known = {one.key.removeprefix(f"{FILES}/") for one in manifest.files}
    others = sorted((await target.keys("", deadline=Deadline.after_ms(OBJECT_MS))).keys() - known)
    if others:
        raise BadInput(
            "target",
            f"the store of objects is not empty: it holds {others[0]}.",
            mend="Name an empty one (IMEM_OBJECTS_URL).",
        )
    for number, one in enumerate(manifest.files, 1):
        content = await place.get(one.key, sha256=one.sha256, deadline=Deadline.after_ms(OBJECT_MS))
        await target.put(one.key.removeprefix(f"{FILES}/"), content, deadline=Deadline.after_ms(OBJECT_MS))
        report("Restoring objects", number, len(manifest.files))


@dataclass(frozen=True, slots=True)
class ReplayedGraph:
    """
    The graph after a restore.

    Attributes:
        found: its hash.
        expected: that of the backup; None where the backup has none.
    """

    found: GraphHash
    expected: GraphDigest | None

    @property
    def same(self) -> bool | None:
        """Whether both are equal; None where that is not known."""
        return None if self.expected is None else self.found.digest == self.expected.digest

    @property
    def differing(self) -> list[str]:
        """The labels and types in which they differ, with the count of each."""
        if self.expected is None:
            return []
        here = {name: (part.count, part.digest) for name, part in self.found.parts.items()}
        there = self.expected.parts
        return [
            f"{name} ({here.get(name, (0, ''))[0]:,} instead of {there.get(name, (0, ''))[0]:,})"
            for name in sorted(here.keys() | there.keys())
            if here.get(name) != there.get(name)
        ]


async def replay_graph(settings: Settings, manifest: Manifest, report: Callable[[int, int], None]) -> ReplayedGraph:
    """
    Replay the journal into the graph, and compare the hashes.

    A graph of this journal that is still there is emptied first, so that the hash is that of what was restored. A crash
    leaves the rest to the applier.

    Raises:
        LeaseLost, StoreUnavailable: likewise.
    """
    async with _journal_and_graph(settings) as (journal, graph), holding_applier_lease(journal) as lease:
        upto = await settled_end(journal)
        await verification.ensure(journal, graph, lease, rederived=REDERIVED, anew=True)
        await catch_up(journal, graph, lease, upto, report=report)
        return ReplayedGraph(await graph_hash(graph), manifest.graph)


@asynccontextmanager
async def _journal_and_graph(settings: Settings) -> AsyncIterator[tuple[Database, Graph]]:
    """Open both, under the role of pipelines, and close them at the end."""
    if settings.neo4j_url is None:
        raise BackupError("There is no graph to replay into.", mend="Set IMEM_NEO4J_URL, or start the stack.")
    password = settings.neo4j_password.get_secret_value() if settings.neo4j_password is not None else ""
    journal = Database(pipeline_url(settings), size=4)
    graph = Graph(settings.neo4j_url, settings.neo4j_user, password, pool_size=settings.neo4j_pool_size)
    try:
        yield journal, graph
    finally:
        await graph.close()
        await journal.close()
