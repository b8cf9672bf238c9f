"""
How long files of data are kept: labels by age, marks, the grace, and deletion.

A run marks what the rules let go; for thirty days the rules are run again each day, and a new reference, a hold or a
request restores a file; then it is deleted. The deletion is committed before the object is removed: a crash in between
leaves an object, which the next run removes. References are copied from the journal in the transaction of their event;
the graph is not asked.

A clock that jumps deletes nothing: a run that comes long after the last one, or before it, only records itself; and a
grace lasts so many daily runs, whatever the clock says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from imem.alerts.store import NewAlert, Severity, raise_once
from imem.archives.building import ACTOR, WRITER, ArchivingRuntime, check_archive
from imem.archives.marker import check_store
from imem.archives.retention_rules import (
    COLD_YEARS,
    GRACE_DAYS,
    KEPT_YEARS,
    Explanation,
    PatternState,
    RetentionRule,
    exceeds_cap,
    explain_file,
)
from imem.archives.scoring import LATE_STATUSES
from imem.jobs.lifecycle import BATCH_MS, Effects, finish
from imem.jobs.pipeline import Daily, Pipeline, Report
from imem.journal.actors import Action
from imem.journal.audit import context_of
from imem.journal.clock import years_after
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import is_key, sha256_of
from imem.journal.errors import BadInput, ObjectMissing
from imem.journal.events.entry import Tier
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows
from imem.kg.kinds.enums import PatternStatus, StorageTier
from imem.kg.kinds.links import TierMigrationProps
from imem.kg.kinds.patterns import DataFile
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of, link_of

BEHIND_S: Final = 300.0
"""A run marks nothing while the graph is behind by more, in seconds."""

LONGEST_PAUSE: Final = timedelta(days=7)
"""A run that comes later after the last one only records itself."""

GRACE_CHECKS: Final = 28
"""On so many days of its grace the rules must have let a file go."""

PAGE: Final = 5_000
LABELS: Final = 500
"""Most rows of one statement, and files of one transaction whose labels change."""

HALTED, UNARCHIVED = "RETENTION_HALTED", "EVIDENCE_UNARCHIVED"
"""Kinds of alerts: a run halted, and a pattern whose files are kept since it has no sufficient archive."""

_FIRST: Final = datetime.min.replace(tzinfo=UTC)


async def retain(runtime: ArchivingRuntime, *, until: Deadline) -> Report:
    """
    Do one run.

    Returns:
        How many files were *labelled*, *purged*, *restored*, *marked*, and why the run was *halted*.

    Raises:
        PostgresUnavailable, ObjectsUnavailable: what was committed stays; nothing else was marked or deleted.
    """
    database = runtime.database
    await check_store(database, runtime.objects, claim=True, deadline=until)
    report: dict[str, Any] = {"labelled": await _relabel(runtime, until)}
    await _remove_left(runtime, until)
    [last] = await database.named("retention_last_run", deadline=until)
    now: datetime = last["now"]
    [cold] = await database.named("retention_cold", {"before": years_after(now, -COLD_YEARS)}, deadline=until)
    halted, proposed = None, 0
    if last["run_at"] is None or not timedelta(hours=-1) < now - last["run_at"] <= LONGEST_PAUSE:
        halted = "clock"
    elif (await database.named("delivery_behind", deadline=until))[0]["behind_s"] > BEHIND_S:
        halted = "behind"
    else:
        report |= await _check_marked(runtime, now, until)
        files = await _deletable(runtime, now, until)
        proposed = len(files)
        [approved] = await database.named("retention_approved", deadline=until)
        if exceeds_cap(proposed, cold["cold"]) and proposed > approved["proposed"]:
            halted = "cap"
        else:
            report["marked"] = await _mark(database, files, until)
    async with database.transaction(until) as conn:
        await execute(conn, "retention_note_run", {"cold": cold["cold"], "proposed": proposed, "halted": halted})
        if halted == "cap":
            reason = f"Retention would mark {proposed:,} of {cold['cold']:,} cold files, more than one in twenty."
            await raise_once(conn, _alert(HALTED, "retention", {"reason": reason, "proposed": proposed}))
    for row in await database.named("archives_to_verify", deadline=until):
        await check_archive(database, runtime.objects, row["pattern_id"], row["tier"], deadline=until)
    return {**report, "halted": halted} if halted else report


async def explain(database: Database, file_id: str, *, deadline: Deadline) -> list[Explanation]:
    """
    Return why a file is kept; it may go where no explanation keeps it.

    Raises:
        BadInput: no such file is recorded.
    """
    found = await database.named("retention_files", {"files": [file_id]}, deadline=deadline)
    if not found:
        raise BadInput("file_id", f"no file {file_id!r} is recorded.")
    given = {"files": [file_id], "late": sorted(LATE_STATUSES)}
    return _explain(found[0], _states(await database.named("retention_patterns", given, deadline=deadline)))


def _states(found: Iterable[Row]) -> dict[str, PatternState]:
    known = set(PatternStatus)
    return {
        row["pattern_id"]: PatternState(
            pattern_id=row["pattern_id"], status=PatternStatus(row["status"]) if row["status"] in known else None,
            since=row["since"], late=row["late"], investigated=row["investigated"], tiers=frozenset(row["tiers"]),
        )
        for row in found
    }  # fmt: skip


def _explain(row: Mapping[str, Any], states: Mapping[str, PatternState]) -> list[Explanation]:
    # One that was referenced after the states were read keeps the file.
    patterns = [
        states.get(one)
        or PatternState(pattern_id=one, status=None, since=None, late=False, investigated=False, tiers=frozenset())
        for one in row["patterns"]
    ]
    return explain_file(
        created_at=row["created_at"], pinned=row["pinned"], held=row["held"], patterns=patterns, now=row["now"]
    )


async def _relabel(runtime: ArchivingRuntime, until: Deadline) -> int:
    """Set the labels that changed by age, each with its event; return how many."""
    changed = 0
    while not until.passed:
        async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
            found = await rows(conn, "retention_labels", {"limit": LABELS})
            facts = []
            for row in found:
                await execute(conn, "retention_set_label", {"file_id": row["file_id"], "label": row["becomes"]})
                storage = DataFile.Storage(
                    storage_tier=StorageTier(row["becomes"]), tier_migration_date=row["now"],
                    supports_pattern_count=row["supports"], in_archive=row["archived"],
                    retention_expiry=years_after(row["created_at"], KEPT_YEARS),
                )  # fmt: skip
                move = TierMigrationProps(
                    from_tier=StorageTier(row["label"]), to_tier=storage.storage_tier, date=row["now"]
                )
                end = ("DataFile", row["file_id"])
                lines = (
                    groups_of(DataFile, row["file_id"], {"storage": storage}, writer=WRITER),
                    link_of("MIGRATED_TO_TIER", end, end, move, writer=WRITER),
                )
                facts += [(ACTOR, Action.APPEND_PATTERNS, entry_of(line)) for line in lines]
            await finish(conn, Effects(facts=facts), runtime.gateway, until)
        changed += len(found)
        if len(found) < LABELS:
            break
    if changed:
        await runtime.gateway.publish_wakeup(tuple(Tier))
    return changed


async def _deletable(runtime: ArchivingRuntime, now: datetime, until: Deadline) -> list[str]:
    """
    Return the files that every rule lets go, after a comparison of each archive that this relies on.

    An alert names each pattern whose files are kept for lack of a sufficient archive.
    """
    states = await _all_states(runtime.database, until)
    found, unarchived = await _candidates(runtime.database, states, now, until)
    found = await _not_held(runtime.database, found, until)
    await _check_archives(runtime, {one for row in found for one in row["patterns"]}, states, until)
    found, damaged = _free(found, await _all_states(runtime.database, until), now)
    async with runtime.database.transaction(until) as conn:
        for pattern_id in sorted(unarchived | damaged):
            reason = f"Files of the deprecated pattern {pattern_id} are kept: it has no sufficient archive."
            await raise_once(conn, _alert(UNARCHIVED, pattern_id, {"reason": reason}))
    return [row["file_id"] for row in found]


async def _all_states(database: Database, until: Deadline) -> dict[str, PatternState]:
    given = {"files": None, "late": sorted(LATE_STATUSES)}
    return _states(await database.named("retention_patterns", given, deadline=until))


async def _check_archives(
    runtime: ArchivingRuntime, patterns: Collection[str], states: Mapping[str, PatternState], until: Deadline
) -> None:
    for pattern_id in sorted(patterns):
        state = states[pattern_id]
        for tier in sorted(state.tiers) if state.status is PatternStatus.DEPRECATED else ():
            await check_archive(runtime.database, runtime.objects, pattern_id, tier, deadline=until)


async def _candidates(
    database: Database, states: Mapping[str, PatternState], now: datetime, until: Deadline
) -> tuple[list[Row], set[str]]:
    """Return the files that are old enough and free by *states*, and the patterns without a sufficient archive."""
    found: list[Row] = []
    unarchived: set[str] = set()
    after = {"after_at": _FIRST, "after_id": "", "before": years_after(now, -KEPT_YEARS), "limit": PAGE}
    while page := await database.named("retention_candidates", after, deadline=until):
        free, lacking = _free(page, states, now)
        found += free
        unarchived |= lacking
        after |= {"after_at": page[-1]["created_at"], "after_id": page[-1]["file_id"]}
    return found, unarchived


def _free(found: Sequence[Row], states: Mapping[str, PatternState], now: datetime) -> tuple[list[Row], set[str]]:
    """Return the files that no rule about their patterns keeps, and the patterns without a sufficient archive."""
    free: list[Row] = []
    unarchived: set[str] = set()
    for row in found:
        explained = _explain({**row, "pinned": False, "held": False, "now": now}, states)
        unarchived |= {str(one.pattern_id) for one in explained if one.rule is RetentionRule.NO_ARCHIVE}
        if not any(one.keeps for one in explained):
            free.append(row)
    return free, unarchived


async def _not_held(database: Database, found: Sequence[Row], until: Deadline) -> list[Row]:
    if not found or not await database.named("retention_holds", {"open": True, "limit": 1}, deadline=until):
        return list(found)
    files = [row["file_id"] for row in found]
    held = {
        row["file_id"]
        for row in await database.named("retention_files", {"files": files}, deadline=until)
        if row["held"]
    }
    return [row for row in found if row["file_id"] not in held]


async def _mark(database: Database, files: Sequence[str], until: Deadline) -> int:
    """Mark what each rule still lets go, looked at again under a lock of the rows."""
    marked = 0
    for first in range(0, len(files), PAGE):
        async with database.transaction(until) as conn:
            free, _ = await _explained_now(conn, files[first : first + PAGE])
            marked += await execute(conn, "retention_mark", {"files": [row["file_id"] for row in free]})
    return marked


async def _explained_now(conn: Connection, files: Sequence[str]) -> tuple[list[Row], list[Row]]:
    """Return which of *files* may go and which are kept; locks them and all holds until the transaction ends."""
    await rows(conn, "retention_lock_holds")
    await rows(conn, "retention_lock_files", {"files": list(files)})
    found = await rows(conn, "retention_files", {"files": list(files)})
    states = _states(await rows(conn, "retention_patterns", {"files": list(files), "late": sorted(LATE_STATUSES)}))
    kept = {row["file_id"] for row in found if any(one.keeps for one in _explain(row, states))}
    free = [row for row in found if row["file_id"] not in kept]
    return free, [row for row in found if row["file_id"] in kept]


async def _check_marked(runtime: ArchivingRuntime, now: datetime, until: Deadline) -> dict[str, int]:
    """Run the rules again on what is marked: restore it, count the day, or delete it when its grace is over."""
    files = [row["file_id"] for row in await runtime.database.named("retention_marked", deadline=until)]
    restored, over = 0, []
    for first in range(0, len(files), PAGE):
        async with runtime.database.transaction(until) as conn:
            free, kept = await _explained_now(conn, files[first : first + PAGE])
            restored += await execute(conn, "retention_restore", {"files": [row["file_id"] for row in kept]})
            await execute(conn, "retention_check", {"files": [row["file_id"] for row in free]})
        over += [row for row in free if _grace_is_over(row, now)]
    if over:
        patterns = {one for row in over for one in row["patterns"]}
        await _check_archives(runtime, patterns, await _all_states(runtime.database, until), until)
    purged = 0
    for row in over:
        purged += await _purge(runtime, row["file_id"], until)
    return {"restored": restored, "purged": purged}


def _grace_is_over(row: Mapping[str, Any], now: datetime) -> bool:
    return bool(row["marked_at"] + timedelta(days=GRACE_DAYS) <= now and row["checks"] >= GRACE_CHECKS)


async def _purge(runtime: ArchivingRuntime, file_id: str, until: Deadline) -> bool:
    """Delete a file if every rule still lets it go and its grace is over; return whether it was."""
    try:
        sha256 = sha256_of(await runtime.objects.get(file_id, deadline=until))
    except (ObjectMissing, ValueError):
        sha256 = None
    async with runtime.database.transaction(until) as conn:
        free, _ = await _explained_now(conn, [file_id])
        if not free or free[0]["delete_state"] != "marked" or not _grace_is_over(free[0], free[0]["now"]):
            return False
        row = free[0]
        reason = f"It is older than {KEPT_YEARS} years, and no rule keeps it."
        given = {"file_id": file_id, "reason": reason, "actor": ACTOR.id, "sha256": sha256, "patterns": row["patterns"]}
        await execute(conn, "retention_purge", given)
        audit = {
            "actor": ACTOR.id, "role": ACTOR.role.value, "resource_type": "patterns", "resource_id": f"file {file_id}",
            "action": "delete", "authorized": True, "reason": reason, "outcome": "done",
            "context": context_of(None, sha256=sha256, patterns=row["patterns"]),
        }  # fmt: skip
        await rows(conn, "audit", audit)
    await _remove_left(runtime, until)
    return True


async def _remove_left(runtime: ArchivingRuntime, until: Deadline) -> None:
    """Remove the objects of files that are deleted."""
    for row in await runtime.database.named("retention_left", deadline=until):
        if is_key(row["file_id"]):
            await runtime.objects.delete(row["file_id"], deadline=until)
        await runtime.database.execute("retention_removed", {"file_id": row["file_id"]}, deadline=until)


def _alert(kind: str, key: str, payload: Mapping[str, Any]) -> NewAlert:
    return NewAlert(alert_id=new_id(), kind=kind, severity=Severity.HIGH, about=id_of(kind, key), payload=payload)


RETAIN: Final[Pipeline[ArchivingRuntime]] = Pipeline(
    "archives.retain", lambda runtime, until: retain(runtime, until=until), Daily(2, 45), budget_ms=None, reports=35
)
