"""The requests of people and programs to archives and retention; each call is authorized and audited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from imem.archives.archive import MANIFEST, Verification, stored_manifest, verify
from imem.archives.contents import folder_of
from imem.archives.marker import check_store
from imem.archives.pruning import Prunable, detail, prunable
from imem.archives.retention import explain
from imem.archives.retention_rules import Explanation
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.errors import BadInput, ConsistencyError, shown
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Row

T = TypeVar("T")

MOST: Final = 200
"""Most rows of one answer."""


class HoldKind(StrEnum):
    """Why something is held."""

    LEGAL = "legal"
    POST_MORTEM = "post_mortem"
    VALIDATION = "validation"
    MANUAL = "manual"


class HoldSubject(StrEnum):
    """The records that a hold covers: a file, or all files of a pattern, a company or a decision."""

    FILE = "file"
    PATTERN = "pattern"
    COMPANY = "company"
    DECISION = "decision"


class Archives:
    """
    Searches the index, retrieves and verifies archives, and says and decides what is kept.

    All of it takes the right to archive patterns, since archives show patterns that agents may not see.

    Args:
        gateway: authorizes each call of its actor.
        objects: the store of archives; searches of the index do not use it.
    """

    def __init__(self, gateway: Gateway, objects: ObjectStore) -> None:
        self._gateway = gateway
        self._objects = objects

    # The index

    async def by_regime(self, tags: Collection[str], *, deadline: Deadline) -> list[Row]:
        """Return archived patterns that were tested in one of the given regimes, the most confident first."""
        return await self._rows("index", "index_by_regime", {"tags": sorted(tags), "limit": MOST}, deadline)

    async def by_industry(self, tags: Collection[str], *, deadline: Deadline) -> list[Row]:
        """Return archived patterns of one of the given industries, the most confident first."""
        return await self._rows("index", "index_by_industry", {"tags": sorted(tags), "limit": MOST}, deadline)

    async def by_metrics(self, confidence: float, accuracy: float, *, deadline: Deadline) -> list[Row]:
        """Return archived patterns of at least this confidence and accuracy, both 0 to 1."""
        given = {"confidence": confidence, "accuracy": accuracy, "limit": MOST}
        return await self._rows("index", "index_by_metrics", given, deadline)

    async def candidates(self, least: int = 3, *, deadline: Deadline) -> list[Row]:
        """Return deprecated patterns whose archives at least so many different actors retrieved within 30 days."""
        return await self._rows("index", "index_candidates", {"least": least, "limit": MOST}, deadline)

    async def entry(self, pattern_id: str, *, deadline: Deadline) -> Row:
        """
        Return the row of a pattern, with when its archive was last retrieved and how often.

        Raises:
            BadInput: the pattern has no archive.
        """
        found = await self._rows(pattern_id, "index_entry", {"pattern_id": pattern_id}, deadline)
        if not found:
            raise _no_archive(pattern_id)
        return found[0]

    # Archives

    async def verify(self, pattern_id: str, *, deadline: Deadline) -> dict[int, Verification]:
        """
        Return tier → the result of comparing each archive of a pattern with its manifest; nothing is changed.

        Raises:
            BadInput: the pattern has no archive.
            ObjectsUnavailable, BudgetExceeded: retryable.
        """
        found = await self._rows(pattern_id, "archive_rows", {"patterns": [pattern_id]}, deadline)
        if not found:
            raise _no_archive(pattern_id)
        await check_store(self._gateway.database, self._objects, deadline=deadline)
        return {
            row["tier"]: await verify(
                self._objects, pattern_id, row["tier"], manifest_sha256=row["manifest_sha256"], deadline=deadline
            )
            for row in found
        }

    async def retrieve(self, pattern_id: str, folder: Path, *, deadline: Deadline) -> int:
        """
        Copy the archives of a pattern into a folder, which then opens without the product; return how many files.

        The pattern stays as it is. The retrieval is counted (:meth:`candidates`).

        Raises:
            BadInput: the pattern has no archive.
            ConsistencyError: an object is not what the manifest says; what was copied before stays.
            ObjectsUnavailable, BudgetExceeded: retryable.
        """
        return await self._do(pattern_id, lambda: self._retrieve(pattern_id, folder, deadline), deadline)

    async def _retrieve(self, pattern_id: str, folder: Path, deadline: Deadline) -> int:
        database = self._gateway.database
        await check_store(database, self._objects, deadline=deadline)
        recorded = await database.named("archive_rows", {"patterns": [pattern_id]}, deadline=deadline)
        if not recorded:
            raise _no_archive(pattern_id)
        manifest = await stored_manifest(self._objects, pattern_id, deadline=deadline)
        if manifest is None or manifest.sha256 != recorded[0]["manifest_sha256"]:
            raise ConsistencyError(f"The manifest of {shown(pattern_id)} is not the one that was recorded.")
        actor = self._gateway.actor
        given = {"pattern_id": pattern_id, "actor": actor.id, "role": actor.role.value, "context": context_of(actor)}
        await database.commit("archive_accessed", given, deadline=deadline)
        top = folder_of(pattern_id)
        objects = {key: sha256 for one in manifest.tiers.values() for key, (sha256, _) in one.objects.items()}
        for key, sha256 in {**objects, f"{top}/{MANIFEST}": manifest.sha256}.items():
            path = folder.joinpath(*key.removeprefix(f"{top}/").split("/"))
            content = await self._objects.get(key, sha256=sha256, deadline=deadline)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return len(objects) + 1

    # The graph

    async def prunable(self, *, deadline: Deadline) -> tuple[list[Prunable], int]:
        """Return the first records whose detail the next run would drop from the graph, and how many there are."""

        async def look() -> tuple[list[Prunable], int]:
            found: list[Prunable] = []
            number = 0
            async for page in prunable(self._gateway.database, deadline=deadline):
                found += page[: MOST - len(found)]
                number += len(page)
            return found, number

        return await self._do("graph", look, deadline)

    async def detail(self, kind: str, key: str, *, deadline: Deadline) -> dict[str, Any]:
        """
        Return the whole of a record, whether the graph holds a stub of it or not; it counts as a use of the record.

        Raises:
            BadInput: records of that kind are not pruned, or no such record is known.
        """
        database, actor = self._gateway.database, self._gateway.actor
        resource = Resource(ResourceType.GRAPH, f"{kind} {key}")
        found = await self._gateway.authorize_and_execute(
            resource, Action.READ, lambda: detail(database, kind, key, deadline=deadline), deadline=deadline
        )
        audit = {
            "actor": actor.id, "role": actor.role.value, "resource_type": resource.type.value,
            "resource_id": resource.id, "action": "read_detail", "authorized": True, "reason": None,
            "context": context_of(actor), "outcome": "done",
        }  # fmt: skip
        await database.named("audit", audit, deadline=deadline)
        return found

    # Retention

    async def explain(self, file_id: str, *, deadline: Deadline) -> list[Explanation]:
        """
        Return why a file is kept, for each pattern that it supports, and until when.

        Raises:
            BadInput: no such file is recorded.
        """
        return await self._do(
            f"file {file_id}", lambda: explain(self._gateway.database, file_id, deadline=deadline), deadline
        )

    async def holds(self, *, released: bool = False, deadline: Deadline) -> list[Row]:
        """Return the holds that are open, the newest first; also those that were released if *released*."""
        return await self._rows("holds", "retention_holds", {"open": not released, "limit": MOST}, deadline)

    async def hold(
        self, kind: HoldKind, subject: HoldSubject, subject_id: str, reason: str, *, deadline: Deadline
    ) -> Row:
        """
        Place a hold: nothing that it covers is deleted until it is released.

        Returns:
            The hold, with how many *files* it covers now.

        Raises:
            BadInput: nothing is recorded of the subject, or no reason is given.
        """
        given = {"kind": kind.value, "subject_type": subject.value, "subject_id": subject_id}
        given["reason"] = _reason(reason)
        found = await self._commit(f"{subject.value} {subject_id}", "hold_place", given, deadline)
        if not found:
            raise BadInput("subject", f"no {subject.value} {shown(subject_id)} is recorded.")
        covered = await self._gateway.database.named("hold_covers", {"id": found[0]["id"]}, deadline=deadline)
        return {**found[0], **covered[0]}

    async def release(self, hold_id: int, reason: str, *, deadline: Deadline) -> Row:
        """
        Release a hold.

        Raises:
            BadInput: it was released, or never placed, or no reason is given.
        """
        given = {"id": hold_id, "reason": _reason(reason)}
        found = await self._commit(f"hold {hold_id}", "hold_release", given, deadline)
        if not found:
            raise BadInput("hold", f"no hold {hold_id} is open.")
        return found[0]

    async def restore(self, file_id: str, reason: str, *, deadline: Deadline) -> None:
        """
        Restore a file that is marked for deletion.

        Raises:
            BadInput: it is not marked.
        """
        given = {"file_id": file_id, "reason": reason}
        if not (await self._commit(f"file {file_id}", "file_restore", given, deadline))[0]["done"]:
            raise BadInput("file", f"{shown(file_id)} is not marked for deletion.")

    async def runs(self, *, deadline: Deadline) -> list[Row]:
        """Return the last runs of retention."""
        return await self._rows("retention", "retention_runs", {"limit": MOST}, deadline)

    async def approve(self, run_id: int, reason: str, *, deadline: Deadline) -> None:
        """
        Let the next run mark as many files as one proposed that halted at the cap.

        Raises:
            BadInput: no such run is halted, or no reason is given.
        """
        given = {"id": run_id, "reason": _reason(reason)}
        if not (await self._commit(f"run {run_id}", "retention_approve", given, deadline))[0]["done"]:
            raise BadInput("run", f"no run {run_id} is halted at the cap.")

    async def _do(self, what: str, work: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        resource = Resource(ResourceType.PATTERNS, what)
        return await self._gateway.authorize_and_execute(resource, Action.ARCHIVE, work, deadline=deadline)

    async def _rows(self, what: str, name: str, given: Mapping[str, Any], deadline: Deadline) -> list[Row]:
        return await self._do(what, lambda: self._gateway.database.named(name, given, deadline=deadline), deadline)

    async def _commit(self, what: str, name: str, given: Mapping[str, Any], deadline: Deadline) -> list[Row]:
        actor = self._gateway.actor
        who = {"actor": actor.id, "role": actor.role.value, "context": context_of(actor)}
        commit = self._gateway.database.commit
        return await self._do(what, lambda: commit(name, {**given, **who}, deadline=deadline), deadline)


def _no_archive(pattern_id: str) -> BadInput:
    return BadInput("pattern", f"{shown(pattern_id)} has no archive.")


def _reason(reason: str) -> str:
    if not reason.strip():
        raise BadInput("reason", "must say why.")
    return reason
