"""
Archives of one pattern: built, extended and verified in the store of objects.

All objects are stored and read back before ``archive_metadata.json``, the manifest with their hashes. Without it a
build has left nothing that counts, and repeating it stores the same objects. An object of a complete archive is never
changed: later tests are objects of their own, in a new version of the manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import orjson

from imem.archives.contents import CONTENT_TYPES, DOCUMENTS, documents_of, file_path, folder_of, plain, test_document
from imem.archives.facts import PatternFacts, moment_of
from imem.archives.scoring import RETENTION_YEARS, TIER_1, TIER_2
from imem.journal.clock import years_after
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore, StoredObject, is_key, sha256_of
from imem.journal.errors import ConsistencyError, ObjectMissing, shown
from imem.kg.kinds.enums import ArchiveContent

SCHEMA_VERSION: Final = 1
MANIFEST: Final = "archive_metadata.json"
VERSIONS: Final = "manifests"
"""Folder of a copy of each version of the manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierArchive:
    """
    The archive of one tier, as the manifest lists it.

    Attributes:
        created_at: when it was complete first.
        retention_expiry: until when it is kept at least.
        content_types: what it holds.
        objects: key → SHA-256 and size in bytes.
        gaps: evidence that was missing.
        summarized: paths of the tests that its summary holds already.
    """

    created_at: datetime
    retention_expiry: datetime
    content_types: tuple[str, ...]
    objects: Mapping[str, tuple[str, int]]
    gaps: tuple[str, ...] = ()
    summarized: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The size of all objects."""
        return sum(size for _, size in self.objects.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """
    The manifest of a pattern's archives.

    Attributes:
        pattern_id: the pattern.
        version: counts the manifests of the pattern.
        tiers: tier → its archive.
        entry: the row of the index that follows from the archives.
        sha256: of the manifest itself, as it is stored.
    """

    pattern_id: str
    version: int
    tiers: Mapping[int, TierArchive]
    entry: Mapping[str, Any]
    sha256: str = ""

    @property
    def content(self) -> bytes:
        """Its object."""
        tiers = {
            str(tier): {
                "created_at": one.created_at, "retention_expiry": one.retention_expiry,
                "content_types": list(one.content_types), "gaps": list(one.gaps),
                "summarized": list(one.summarized),
                "objects": {key: {"sha256": sha256, "bytes": size} for key, (sha256, size) in one.objects.items()},
            }
            for tier, one in self.tiers.items()
        }  # fmt: skip
        named = {"schema_version": SCHEMA_VERSION, "pattern_id": self.pattern_id, "version": self.version}
        return plain({**named, "tiers": tiers, "index": dict(self.entry)})

    @classmethod
    def parse(cls, content: bytes) -> Manifest:
        """
        Return the manifest in *content*.

        Raises:
            ConsistencyError: it is no manifest of a version that this program reads.
        """
        try:
            value = orjson.loads(content)
            if value["schema_version"] != SCHEMA_VERSION:
                raise ConsistencyError(f"A manifest has the version {value['schema_version']!r:.20} of its schema.")
            tiers = {int(tier): _tier_archive(one) for tier, one in value["tiers"].items()}
            _check_keys(value["pattern_id"], tiers)
            return cls(
                pattern_id=value["pattern_id"], version=value["version"], tiers=tiers, entry=value["index"],
                sha256=sha256_of(content),
            )  # fmt: skip
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConsistencyError("An object is no manifest of archives.") from error


def _check_keys(pattern_id: str, tiers: Mapping[int, TierArchive]) -> None:
    """Refuse a manifest that names what is no part of the archives, or lacks what each of them holds."""
    top = folder_of(pattern_id)
    for tier, archive in tiers.items():
        for key in archive.objects:
            if not is_key(key) or not key.startswith(f"{top}/tier{tier}/"):
                raise ConsistencyError(
                    f"The manifest of {shown(pattern_id)} names {shown(key)}, which is no part of it."
                )
        for name in DOCUMENTS[tier]:
            if f"{top}/tier{tier}/{name}" not in archive.objects:
                raise ConsistencyError(f"The manifest of {shown(pattern_id)} lacks {name} of tier {tier}.")


def _tier_archive(value: Mapping[str, Any]) -> TierArchive:
    return TierArchive(
        created_at=datetime.fromisoformat(value["created_at"]),
        retention_expiry=datetime.fromisoformat(value["retention_expiry"]),
        content_types=tuple(value["content_types"]), gaps=tuple(value["gaps"]),
        summarized=tuple(value["summarized"]),
        objects={key: (one["sha256"], one["bytes"]) for key, one in value["objects"].items()},
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recorded:
    """The version and the hash of the manifest that the row of an archive has."""

    version: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """
    The result of comparing an archive with its manifest.

    Attributes:
        missing: keys of objects that are not stored; of the manifest itself if there is none.
        mismatched: keys of objects with another hash.
    """

    missing: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the archive is what its manifest says."""
        return not self.missing and not self.mismatched


async def stored_manifest(store: ObjectStore, pattern_id: str, *, deadline: Deadline) -> Manifest | None:
    """
    Return the manifest of a pattern; None if it has no complete archive.

    Raises:
        ConsistencyError: it cannot be read.
        ObjectsUnavailable, BudgetExceeded: retryable.
    """
    try:
        found = Manifest.parse(await store.get(f"{folder_of(pattern_id)}/{MANIFEST}", deadline=deadline))
    except ObjectMissing:
        return None
    if found.pattern_id != pattern_id:
        raise ConsistencyError(f"The manifest of {shown(pattern_id)} is that of {shown(found.pattern_id)}.")
    return found


async def recorded_manifest(
    store: ObjectStore, pattern_id: str, recorded: Recorded | None, *, deadline: Deadline
) -> Manifest | None:
    """
    Return the manifest that Postgres recorded, or that is stored if it recorded none; None if there is none.

    A build that ended between the manifest and its row left a newer one: then the copy of the recorded one counts.

    Raises:
        ConsistencyError: none that is stored is the one that was recorded.
        ObjectsUnavailable, BudgetExceeded: retryable.
    """
    if recorded is None:
        return await stored_manifest(store, pattern_id, deadline=deadline)
    with suppress(ConsistencyError):
        found = await stored_manifest(store, pattern_id, deadline=deadline)
        if found is not None and found.sha256 == recorded.sha256:
            return found
    try:
        copy = f"{folder_of(pattern_id)}/{VERSIONS}/{recorded.version}.json"
        return Manifest.parse(await store.get(copy, sha256=recorded.sha256, deadline=deadline))
    except (ObjectMissing, ConsistencyError) as error:
        raise ConsistencyError(f"The manifest of {shown(pattern_id)} is not the one that was recorded.") from error


async def verify(
    store: ObjectStore, pattern_id: str, tier: int, *, manifest_sha256: str | None = None, deadline: Deadline
) -> Verification:
    """
    Compare every object of an archive with the manifest.

    Args:
        manifest_sha256: what the hash of the manifest must be.

    Raises:
        ObjectsUnavailable, BudgetExceeded: nothing is known of the archive; retryable.
    """
    key = f"{folder_of(pattern_id)}/{MANIFEST}"
    try:
        manifest = await stored_manifest(store, pattern_id, deadline=deadline)
    except ConsistencyError:
        return Verification(mismatched=(key,))
    if manifest is None or tier not in manifest.tiers:
        return Verification(missing=(key,))
    missing, mismatched = [], [key] if manifest_sha256 not in {None, manifest.sha256} else []
    for name, (sha256, _) in manifest.tiers[tier].objects.items():
        try:
            await store.get(name, sha256=sha256, deadline=deadline)
        except ObjectMissing:
            missing.append(name)
        except ConsistencyError:
            mismatched.append(name)
    return Verification(missing=tuple(missing), mismatched=tuple(mismatched))


async def build(
    store: ObjectStore, facts: PatternFacts, now: datetime, *, recorded: Recorded | None = None,
    least: Collection[int] = (), deadline: Deadline,
) -> Manifest | None:  # fmt: skip
    """
    Bring the archives of a pattern to what its facts deserve; return the manifest, None if it deserves no archive.

    Nothing is stored where nothing has changed.

    Args:
        recorded: the manifest that the rows of its archives have.
        least: tiers that it has had, and keeps whatever its evidence deserves now.

    Raises:
        ConsistencyError: the manifest that is stored, or an object that was stored now, is not what it was.
        ObjectsUnavailable, BudgetExceeded: the manifest is as it was; retryable.
    """
    before = await recorded_manifest(store, facts.pattern_id, recorded, deadline=deadline)
    tiers = dict(before.tiers) if before is not None else {}
    wanted = {*least} - tiers.keys()
    if facts.wanted_tier > max((*tiers, *wanted), default=0):
        wanted.add(facts.wanted_tier)
    for tier in sorted(wanted):
        tiers[tier] = await _new_tier(store, facts, tier, now, deadline)
    if not tiers:
        return None
    for tier, archive in tiers.items():
        tiers[tier] = await _with_tests(store, facts, tier, archive, deadline)
    entry = entry_of(facts, max(tiers))
    if before is not None and (before.tiers, before.entry) == (tiers, entry):
        return before
    after = Manifest(
        pattern_id=facts.pattern_id, version=1 if before is None else before.version + 1, tiers=tiers, entry=entry
    )
    top = folder_of(facts.pattern_id)
    await store.put(f"{top}/{VERSIONS}/{after.version}.json", after.content, deadline=deadline)
    stored = await store.put(f"{top}/{MANIFEST}", after.content, deadline=deadline)
    return replace(after, sha256=stored.sha256)


async def _new_tier(
    store: ObjectStore, facts: PatternFacts, tier: int, now: datetime, deadline: Deadline
) -> TierArchive:
    folder, gaps = f"{folder_of(facts.pattern_id)}/tier{tier}", [*facts.missing]
    objects: dict[str, tuple[str, int]] = {}
    for name, document in documents_of(facts, tier).items():
        _list(objects, await store.put(f"{folder}/{name}", document, deadline=deadline))
    for row in facts.files:
        copy = f"{folder}/{file_path(row['file_id'])}"
        content = await _content(store, row["file_id"], deadline)
        if content is None and tier == TIER_2:
            # An archive that is built anew has the only copy of a file that was deleted since.
            content = await _content(store, copy, deadline)
        if content is None:
            gaps.append(row["file_id"])
        elif tier == TIER_2:
            _list(objects, await store.put(copy, content, deadline=deadline))
    return TierArchive(
        created_at=now, retention_expiry=years_after(now, RETENTION_YEARS[tier]), objects=objects,
        content_types=tuple(one.value for one in CONTENT_TYPES[tier]), gaps=tuple(sorted(set(gaps))),
        summarized=tuple(test_document(one)[0] for one in facts.tests) if tier == TIER_1 else (),
    )  # fmt: skip


async def _content(store: ObjectStore, key: str, deadline: Deadline) -> bytes | None:
    """Return the content of an object; None if there is none, or the key is none."""
    try:
        return await store.get(key, deadline=deadline)
    except (ObjectMissing, ValueError):
        return None


async def _with_tests(
    store: ObjectStore, facts: PatternFacts, tier: int, archive: TierArchive, deadline: Deadline
) -> TierArchive:
    """Return *archive* with objects for the tests that it lacks."""
    objects = dict(archive.objects)
    for test in facts.tests:
        path, content = test_document(test)
        key = f"{folder_of(facts.pattern_id)}/tier{tier}/{path}"
        if key not in objects and path not in archive.summarized:
            _list(objects, await store.put(key, content, deadline=deadline))
    if objects.keys() == archive.objects.keys():
        return archive
    history = ArchiveContent.VALIDATION_HISTORY.value
    types = archive.content_types if history in archive.content_types else (*archive.content_types, history)
    return replace(archive, objects=objects, content_types=types)


def _list(objects: dict[str, tuple[str, int]], stored: StoredObject) -> None:
    objects[stored.key] = stored.sha256, stored.size


def entry_of(facts: PatternFacts, tier: int) -> dict[str, Any]:
    """Return the row of the index for a pattern, in JSON types."""
    sector, since = facts.core.get("sector"), moment_of(facts.deprecated_at)
    return {
        "pattern_id": facts.pattern_id, "pattern_name": facts.core["name"], "pattern_type": facts.core["category"],
        "status": "archived" if since is None else "deprecated",
        "deprecation_date": None if since is None else since.isoformat(), "archive_tier": tier,
        "archive_location": folder_of(facts.pattern_id), "regime_tags": list(facts.regimes),
        "industry_tags": [sector] if sector else [], "confidence": facts.confidence,
        "validation_count": len(facts.tests), "accuracy": facts.groups.get("performance", {}).get("success_rate"),
    }  # fmt: skip
