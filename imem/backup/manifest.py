"""The manifest of a backup: what it holds, stored last, with a hash of itself."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore, StoredObject, sha256_of
from imem.journal.errors import BackupError, ObjectMissing

MANIFEST: Final = "manifest.json"
DUMP: Final = "journal.dump"
FILES: Final = "files"
"""Prefix of the copies of the store of objects."""

OBJECT_MS: Final = 600_000
"""Timeout of one object, in milliseconds; the dump has none."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Copied(_Frozen):
    """
    One object of a backup.

    Attributes:
        key: its key in the backup.
        sha256: of its content, hexadecimal.
        size: in bytes.
    """

    key: str
    sha256: str
    size: int

    @classmethod
    def of(cls, stored: StoredObject) -> Copied:
        """Return the entry of an object that was stored."""
        return cls(key=stored.key, sha256=stored.sha256, size=stored.size)


class GraphDigest(_Frozen):
    """
    The hash of the graph at the moment of the dump (:class:`imem.kg.projection.hash.GraphHash`).

    Attributes:
        digest: of the whole, hexadecimal.
        nodes, links: how many it covers.
        parts: label or type → count and digest, to find where two graphs differ.
    """

    digest: str
    nodes: int
    links: int
    parts: dict[str, tuple[int, str]]


class Manifest(_Frozen):
    """
    What a backup holds.

    Attributes:
        format: of the backup.
        created_at: when it was begun, in UTC.
        program, server: versions of this program and of Postgres.
        migrations: number → SHA-256 of the schema's files.
        journal: the journal's identity.
        position: the journal's last position.
        tables: rows of each table.
        roles: those that have rights in the database.
        dump: of the database.
        files: of the store of objects.
        graph: its hash; None where the graph was not up to date.
        graph_unknown: why there is none.
    """

    format: Literal[1] = 1
    created_at: datetime
    program: str
    server: str
    migrations: dict[int, str]
    journal: str
    position: int
    tables: dict[str, int]
    roles: tuple[str, ...]
    dump: Copied
    files: tuple[Copied, ...]
    graph: GraphDigest | None
    graph_unknown: str | None

    @property
    def objects(self) -> tuple[Copied, ...]:
        """Everything that the backup names."""
        return (self.dump, *self.files)

    @property
    def size(self) -> int:
        """Bytes of it all."""
        return sum(one.size for one in self.objects)

    @property
    def rows(self) -> int:
        """Rows of all tables."""
        return sum(self.tables.values())


async def write_manifest(place: ObjectStore, manifest: Manifest) -> None:
    """
    Store *manifest*, from when on *place* is a backup.

    Raises:
        ConsistencyError, ObjectsUnavailable: there is none, or it is whole.
    """
    content = manifest.model_dump_json().encode()
    document = {"sha256": sha256_of(content), "manifest": content.decode()}
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2)
    await place.put(MANIFEST, text, deadline=Deadline.after_ms(OBJECT_MS))


async def has_manifest(place: ObjectStore) -> bool:
    """
    Return whether *place* has a manifest, sound or not.

    Raises:
        ObjectsUnavailable: that cannot be told.
    """
    try:
        await place.get(MANIFEST, deadline=Deadline.after_ms(OBJECT_MS))
    except ObjectMissing:
        return False
    return True


async def read_manifest(place: ObjectStore) -> Manifest:
    """
    Return the manifest of the backup in *place*.

    Raises:
        BackupError: there is none, it is damaged, or a later version of this program wrote it.
        ObjectsUnavailable: it cannot be read; retryable.
    """
    try:
        text = await place.get(MANIFEST, deadline=Deadline.after_ms(OBJECT_MS))
    except ObjectMissing:
        raise BackupError(
            "There is no complete backup: manifest.json, which is written last, is missing.",
            mend="Where a backup was cut off, repeat it; else name the folder that holds manifest.json.",
        ) from None
    try:
        document = orjson.loads(text)
        content = document["manifest"].encode()
        sound = sha256_of(content) == document["sha256"]
    except (ValueError, TypeError, KeyError, AttributeError):
        sound, content = False, b""
    if not sound:
        raise BackupError("The backup's manifest.json is damaged.", mend="Use another backup.")
    try:
        return Manifest.model_validate_json(content)
    except ValidationError:
        raise BackupError(
            "The backup's manifest.json is not one that this program understands.",
            mend="Use the version that wrote it.",
        ) from None
