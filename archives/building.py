"""
The pipeline that builds archives: for patterns whose tests, status or evidence changed, or that a decision cites.

Objects and the manifest come first, then the row in Postgres, in one transaction with the events that name it. A crash
in between leaves the pattern due: the next round finds the manifest and adds the rest. While the store of objects is
away, patterns stay due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Protocol

from imem.alerts.store import NewAlert, Severity, close_alerts, raise_once
from imem.archives.archive import MANIFEST, SCHEMA_VERSION, Manifest, Recorded, build, verify
from imem.archives.contents import ROOT, folder_of
from imem.archives.facts import PatternFacts, facts_of
from imem.archives.marker import check_store
from imem.jobs.due import DueRow, DueRule
from imem.jobs.lifecycle import BATCH_MS, DueBatches, Effects, LifecycleRuntime
from imem.jobs.pipeline import Every, Pipeline, Report
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.errors import BadInput, ConsistencyError, ObjectMissing
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, json, rows
from imem.journal.settings import Role
from imem.kg.kinds.enums import ArchiveContent
from imem.kg.kinds.patterns import ArchiveDirectory, Pattern
from imem.kg.load_format.entries import entry_of as journal_entry
from imem.kg.load_format.lines import Line, groups_of, record_of

ACTOR: Final = Actor("archives", Role.KNOWLEDGE_BASE_AGENT)
"""The actor that records archives."""

QUEUE: Final = "archives"
"""The queue of its due rows: patterns whose evidence may have changed."""

WRITER: Final = "patterns"
"""The subsystem that owns the records."""

MB: Final = 1e6

INCOMPLETE, CORRUPT = "ARCHIVE_INCOMPLETE", "ARCHIVE_CORRUPT"
"""Kinds of the alerts about archives."""


class ArchivingRuntime(LifecycleRuntime, Protocol):
    """A runtime with the store of objects."""

    objects: ObjectStore


async def build_archives(runtime: ArchivingRuntime, *, until: Deadline) -> Report:
    """
    Build the archives of due patterns until none is left or *until* has passed.

    Returns:
        How many patterns were *due*, and how many archives were *built*, and *extended* by later tests.

    Raises:
        PostgresUnavailable, ObjectsUnavailable: committed batches stay; the rest is still due.
    """
    return await ARCHIVES.run(runtime, until=until)


async def _archive(
    runtime: ArchivingRuntime, conn: Connection, due: Sequence[DueRow], now: datetime
) -> tuple[Effects, dict[str, int]]:
    facts = await facts_of(conn, [one.key for one in due])
    await check_store(runtime.database, runtime.objects, claim=True, deadline=Deadline.after_ms(BATCH_MS))
    effects, built, extended = Effects(), 0, 0
    before: dict[str, dict[int, str]] = {}
    recorded: dict[str, Recorded] = {}
    for row in await rows(conn, "archive_rows", {"patterns": sorted(facts)}):
        before.setdefault(row["pattern_id"], {})[row["tier"]] = row["manifest_sha256"]
        recorded[row["pattern_id"]] = Recorded(row["manifest_version"], row["manifest_sha256"])
    for pattern_id, one in sorted(facts.items()):
        deadline = Deadline.after_ms(BATCH_MS)
        try:
            manifest = await build(runtime.objects, one, now, recorded=recorded.get(pattern_id), deadline=deadline)
        except ConsistencyError as error:
            # One damaged archive is set aside, and the others go on.
            raise BadInput("archive", error.message) from error
        known = before.get(pattern_id, {})
        if manifest is not None:
            await write_rows(conn, manifest)
            built += len(manifest.tiers.keys() - known.keys())
            extended += any(sha256 != manifest.sha256 for sha256 in known.values())
        effects += _effects(one, manifest, known)
    return effects, {"due": len(due), "built": built, "extended": extended}


async def write_rows(conn: Connection, manifest: Manifest) -> None:
    """Write the rows that follow from a manifest: of each archive, and of the index."""
    for tier, archive in manifest.tiers.items():
        values = {
            "pattern_id": manifest.pattern_id, "tier": tier, "path": folder_of(manifest.pattern_id),
            "manifest_version": manifest.version, "manifest_sha256": manifest.sha256, "schema_version": SCHEMA_VERSION,
            "created_at": archive.created_at, "size_bytes": archive.size_bytes, "gaps": list(archive.gaps),
            "retention_expiry": archive.retention_expiry, "content_types": list(archive.content_types),
        }  # fmt: skip
        await execute(conn, "archive_write", values)
    await execute(conn, "archive_index_write", {"entry": json(dict(manifest.entry))})


def _effects(facts: PatternFacts, manifest: Manifest | None, known: Mapping[int, str]) -> Effects:
    """Return the events that name the archives, and an alert for each new one with a gap."""
    lines: list[Line] = []
    after = _evidence(facts, manifest)
    if after is not None and after != facts.evidence:
        group = Pattern.Evidence.model_validate(after)
        lines.append(groups_of(Pattern, facts.pattern_id, {"evidence": group}, writer=WRITER))
    alerts = []
    for tier, archive in manifest.tiers.items() if manifest is not None else ():
        if tier in known:
            continue
        directory = ArchiveDirectory(
            pattern_id=facts.pattern_id, tier=tier, path=f"{folder_of(facts.pattern_id)}/tier{tier}",
            created_date=archive.created_at, size_mb=archive.size_bytes / MB,
            retention_expiry=archive.retention_expiry,
            content_types=tuple(ArchiveContent(one) for one in archive.content_types),
        )  # fmt: skip
        lines.append(record_of(directory, writer=WRITER))
        if archive.gaps:
            missing = ", ".join(archive.gaps[:20])
            reason = f"The archive of tier {tier} of the pattern {facts.pattern_id} lacks evidence: {missing}."
            alerts.append(alert_about(INCOMPLETE, facts.pattern_id, tier, reason))
    return Effects(facts=[(ACTOR, Action.APPEND_PATTERNS, journal_entry(line)) for line in lines], alerts=alerts)


def _evidence(facts: PatternFacts, manifest: Manifest | None) -> dict[str, Any] | None:
    """Return the pattern's evidence with what follows from its archives; None without archive, test and decision."""
    if manifest is None and not (facts.tests or facts.decisions):
        return None
    tiers = manifest.tiers if manifest is not None else {}
    found = facts.criticality
    stated = {
        "is_critical": found.critical, "critical_score": found.score, "impact_score": facts.impact,
        "used_in_investment_decision": bool(facts.decisions), "validation_count": len(facts.tests),
        "archive_tier": max(tiers, default=0),
        "archive_refs": [f"{folder_of(facts.pattern_id)}/tier{tier}" for tier in sorted(tiers)] or None,
        "archive_size_mb": sum(one.size_bytes for one in tiers.values()) / MB if tiers else None,
        **{f"tier{tier}_created_date": one.created_at for tier, one in tiers.items()},
    }  # fmt: skip
    group = Pattern.Evidence.model_validate({**facts.evidence, **stated})
    after: dict[str, Any] = groups_of(Pattern, facts.pattern_id, {"evidence": group}, writer=WRITER).groups["evidence"]
    return after


def alert_about(kind: str, pattern_id: str, tier: int, reason: str) -> NewAlert:
    """Return the alert about an archive; raising it again changes nothing."""
    matter = id_of(kind, pattern_id, tier)
    payload = {"pattern_id": pattern_id, "tier": tier, "reason": reason[:2_000]}
    return NewAlert(alert_id=matter, kind=kind, severity=Severity.HIGH, about=matter, payload=payload)


ARCHIVES: Final[DueBatches[ArchivingRuntime]] = DueBatches(
    queue=QUEUE, kinds=("Pattern",), lock="archives_lock", step=_archive, size=4
)

_CHANGED = "$key ? (exists($.groups.status) || exists($.groups.evidence) || exists($.groups.performance))"

BUILD_ARCHIVES: Final[Pipeline[ArchivingRuntime]] = Pipeline(
    "archives.build",
    lambda runtime, until: build_archives(runtime, until=until),
    Every(60.0),
    budget_ms=45_000,
    without_broker=True,
    due=(
        DueRule(QUEUE, "Pattern", "record.PatternValidation", "$.core.pattern_id"),
        DueRule(QUEUE, "Pattern", "correct.PatternValidation", "$.core.pattern_id"),
        DueRule(QUEUE, "Pattern", "link.CITES", '$.to_key ? ($.to_label == "Pattern" && $.from_label == "Decision")'),
        DueRule(QUEUE, "Pattern", "record.Pattern", _CHANGED),
    ),
)


async def check_archive(
    database: Database, store: ObjectStore, pattern_id: str, tier: int, *, deadline: Deadline
) -> bool:
    """
    Compare an archive with its manifest and note the result; return whether it can be relied on.

    A corrupt one gets an alert, and counts as absent until a comparison finds it intact. One with a gap is intact and
    does not suffice.

    Raises:
        ObjectsUnavailable, PostgresUnavailable, BudgetExceeded: nothing is known of it; retryable.
    """
    found = await database.named("archive_rows", {"patterns": [pattern_id]}, deadline=deadline)
    row = next((one for one in found if one["tier"] == tier), None)
    if row is None:
        return False
    result = await verify(store, pattern_id, tier, manifest_sha256=row["manifest_sha256"], deadline=deadline)
    state = "complete" if result.ok else "corrupt"
    async with database.transaction(deadline) as conn:
        await execute(conn, "archive_verified", {"pattern_id": pattern_id, "tier": tier, "state": state})
        if not result.ok:
            wrong = ", ".join((*result.missing, *result.mismatched)[:20])
            reason = f"The archive of tier {tier} of the pattern {pattern_id} is not what its manifest says: {wrong}."
            alert = alert_about(CORRUPT, pattern_id, tier, reason)
            await raise_once(conn, replace(alert, alert_id=new_id()))
        elif row["state"] == "corrupt":
            await close_alerts(conn, id_of(CORRUPT, pattern_id, tier))
    return result.ok and not row["gaps"]


async def rebuild_index(database: Database, store: ObjectStore, *, deadline: Deadline) -> int:
    """
    Build the index, and the rows of archives that are lost, anew from the manifests; return how many patterns have one.

    An archive whose manifest cannot be read, or is not the one that its row has, is corrupt: its rows stay. One
    transaction: a crash leaves the index as it was.

    Raises:
        ObjectsUnavailable, PostgresUnavailable, BudgetExceeded: retryable.
    """
    await check_store(database, store, claim=True, deadline=deadline)
    manifests: dict[str, Manifest] = {}
    for key in await store.keys(ROOT, deadline=deadline):
        if key.endswith(f"/{MANIFEST}"):
            with suppress(ConsistencyError, ObjectMissing):
                manifest = Manifest.parse(await store.get(key, deadline=deadline))
                if key == f"{folder_of(manifest.pattern_id)}/{MANIFEST}":
                    manifests[manifest.pattern_id] = manifest
    async with database.transaction(deadline) as conn:
        await rows(conn, "archives_lock")
        corrupt = [
            row["pattern_id"] for row in await rows(conn, "archive_rows_all")
            if row["pattern_id"] not in manifests or manifests[row["pattern_id"]].sha256 != row["manifest_sha256"]
        ]  # fmt: skip
        await execute(conn, "archives_corrupt", {"patterns": corrupt})
        await execute(conn, "archive_index_forget", {"kept": corrupt})
        for pattern_id in sorted(manifests.keys() - set(corrupt)):
            await write_rows(conn, manifests[pattern_id])
    return len(manifests.keys() | set(corrupt))
