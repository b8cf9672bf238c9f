"""
The rounds of backups: one a day below ``IMEM_BACKUP_URL``, named by its day, and a check of the newest each Sunday.

Without that setting there are none. Each failure raises an alert, which the next success of its round closes. A run
that was killed leaves a backup without a manifest, which the next run of the day repeats and a later one deletes.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from imem.alerts.store import NewAlert, Severity, close_alerts, is_open, raise_once
from imem.backup.creation import back_up
from imem.backup.manifest import MANIFEST, OBJECT_MS, has_manifest
from imem.backup.places import store_of
from imem.backup.verification import verify
from imem.jobs.pipeline import Daily, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.errors import BackupError, ImemError, LeaseHeld
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings

_DAY: Final = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")

_ALERT_MS: Final = 10_000
"""Timeout of an alert, in milliseconds."""

FAILED: Final = "BACKUP_FAILED"
UNVERIFIED: Final = "BACKUP_UNVERIFIED"


class BackupRuntime(Runtime, Protocol):
    """A runtime with the settings, of which the rounds need the owner's login and where backups are."""

    settings: Settings


async def days(top: ObjectStore) -> dict[str, bool]:
    """
    Return the days of which something is there, the newest first, and whether each is complete.

    Raises:
        ObjectsUnavailable: retryable.
    """
    keys = await top.keys("", deadline=Deadline.after_ms(OBJECT_MS))
    found = {day for key in keys if _DAY.match(day := key.partition("/")[0])}
    return {day: f"{day}/{MANIFEST}" in keys for day in sorted(found, reverse=True)}


async def daily(settings: Settings, url: str) -> dict[str, Any]:
    """
    Make the backup of today unless it is there, and delete those beyond the number that is kept.

    Raises:
        ImemError: as :func:`imem.backup.creation.back_up`.
    """
    today = SystemClock().now().date().isoformat()
    place = store_of(f"{url}/{today}")
    made = not await has_manifest(place)
    if made:
        await back_up(settings, place)
    deleted = await _delete_old(store_of(url), keep=settings.backup_keep)
    return {"day": today, "made": made, "deleted": deleted}


async def _delete_old(top: ObjectStore, *, keep: int) -> list[str]:
    """Delete all but the newest complete backups, and what was cut off before the newest; return the days."""
    found = await days(top)
    complete = [day for day, whole in found.items() if whole]
    kept = {*complete[:keep]}
    old = [day for day in found if day not in kept and (not complete or day < complete[0])]
    for day in old:
        # The manifest first: what is left after a crash is no backup.
        keys = await top.keys(day, deadline=Deadline.after_ms(OBJECT_MS))
        for key in sorted(keys, key=lambda key: key != f"{day}/{MANIFEST}"):
            await top.delete(key, deadline=Deadline.after_ms(OBJECT_MS))
    return old


async def weekly(settings: Settings, url: str) -> dict[str, Any]:
    """
    Verify the newest backup by restoring it into a database of a moment.

    Raises:
        BackupError: there is none, or it is not what its manifest says.
        ImemError: as :func:`imem.backup.verification.verify`.
    """
    newest = next((day for day, whole in (await days(store_of(url))).items() if whole), None)
    if newest is None:
        raise BackupError("There is no complete backup.", mend="`imem jobs show backup.daily` says why.")
    found = await verify(settings, store_of(f"{url}/{newest}"))
    found.raise_unless_ok()
    return {"day": newest, "rows": found.manifest.rows, "objects": len(found.manifest.objects)}


async def _alerted(
    runtime: BackupRuntime, kind: str, work: Callable[[Settings, str], Awaitable[dict[str, Any]]]
) -> Report:
    """Do a round; its failure raises the alert, and its success closes it."""
    url = runtime.settings.backup_url
    if url is None:
        return {}
    about = id_of("backup", kind)
    try:
        report = await work(runtime.settings, url.rstrip("/"))
    except LeaseHeld:
        return {"under_way": True}  # The broker delivers again what takes longer than it waits.
    except ImemError as error:
        await raise_failure(runtime.database, kind, str(error))
        raise
    async with runtime.database.transaction(Deadline.after_ms(_ALERT_MS)) as conn:
        if await is_open(conn, kind, about):
            await close_alerts(conn, about)
    return report


async def raise_failure(database: Database, kind: str, reason: str) -> None:
    """Raise the alert of a round, unless it is open."""
    alert = NewAlert(
        alert_id=new_id(), kind=kind, severity=Severity.HIGH, about=id_of("backup", kind), payload={"reason": reason}
    )
    async with database.transaction(Deadline.after_ms(_ALERT_MS)) as conn:
        await raise_once(conn, alert)


async def _daily(runtime: BackupRuntime, _until: Deadline) -> Report:
    return await _alerted(runtime, FAILED, daily)


async def _weekly(runtime: BackupRuntime, _until: Deadline) -> Report:
    return await _alerted(runtime, UNVERIFIED, weekly)


def _if_set(cadence: Daily) -> Callable[[Settings], Daily | None]:
    return lambda settings: cadence if settings.backup_url is not None else None


BACK_UP: Final = Pipeline("backup.daily", _daily, _if_set(Daily(2, 17)), budget_ms=None, retry_max_s=600, reports=30)

VERIFY: Final = Pipeline(
    "backup.verify", _weekly, _if_set(Daily(4, 17, sundays=True)), budget_ms=None, retry_max_s=600, reports=5
)
