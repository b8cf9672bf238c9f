"""Verifies a backup: compares every hash, and restores the dump into a database of a moment, whose rows are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imem.backup import database
from imem.backup.creation import Report, silent
from imem.backup.manifest import Manifest, read_manifest
from imem.backup.places import owner_url
from imem.backup.programs import restore
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.errors import BackupError, ObjectMissing
from imem.journal.settings import Settings


@dataclass(frozen=True, slots=True)
class Verification:
    """
    What a check found.

    Attributes:
        manifest: of the backup.
        missing: keys that the manifest names and the place does not hold.
        changed: keys whose content is not what was stored.
        tables: tables whose restored rows are not those of the manifest, in words; None where none was restored.
    """

    manifest: Manifest
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    tables: tuple[str, ...] | None = None

    @property
    def ok(self) -> bool:
        """Whether the backup is what its manifest says, as far as was looked."""
        return not (self.missing or self.changed or self.tables)

    def raise_unless_ok(self) -> None:
        """
        Raise if something was found.

        Raises:
            BackupError: names the first of it.
        """
        if self.ok:
            return
        reasons = [f"{key} is missing" for key in self.missing] + [f"{key} was changed" for key in self.changed]
        raise BackupError(
            f"The backup is not what its manifest says: {[*reasons, *(self.tables or ())][0]}.",
            mend="Use another backup; `imem verify` lists all of it.",
        )


async def compare_hashes(place: ObjectStore, *, report: Report = silent) -> Verification:
    """
    Read everything that the manifest names, and compare.

    Raises:
        BackupError: there is no manifest, or it is damaged.
        ObjectsUnavailable: it cannot be read; retryable.
    """
    manifest = await read_manifest(place)
    missing, changed = [], []
    for number, expected in enumerate(manifest.objects, 1):
        try:
            found = await place.get_stream(expected.key, len, deadline=Deadline.never())
        except ObjectMissing:
            missing.append(expected.key)
        else:
            if (found.sha256, found.size) != (expected.sha256, expected.size):
                changed.append(expected.key)
        report("Comparing hashes", number, len(manifest.objects))
    return Verification(manifest, tuple(missing), tuple(changed))


async def verify(settings: Settings, place: ObjectStore, *, report: Report = silent) -> Verification:
    """
    Compare every hash, then restore the dump beside the journal's database, count its rows, and drop it.

    The database is named by the journal, so that the next check drops what a crash left.

    Raises:
        BackupError, ObjectsUnavailable: as :func:`compare_hashes`; or the dump cannot be restored.
        StatementRejected: the owner may not make databases.
    """
    found = await compare_hashes(place, report=report)
    if not found.ok:
        return found
    url = owner_url(settings)
    await database.target_of(url)
    beside = database.with_database(url, f"imem_verify_{found.manifest.journal.replace('-', '')}")
    async with database.locked(url):
        report("Restoring into a database of a moment", 0, 0)
        try:
            await database.make_anew(beside)
            await restore(place, found.manifest.dump.key, beside, rights=False)
            rows = await database.row_counts(beside)
        finally:
            await database.drop(beside)
    tables: Sequence[str] = database.differing_rows(found.manifest.tables, rows)
    return Verification(found.manifest, (), (), tuple(tables))
