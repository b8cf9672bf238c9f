"""From the first release on, neither a schema nor a migration changes: there are databases that they made."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from imem.journal.statements import root_of

FROZEN: Final[dict[str, str]] = {}
"""
Path of each file → its SHA-256; none before the first release, which enters all of them.

From then on a new file is added here, and none is ever edited, not even a comment.
"""

RELEASE: Final = re.compile(r"^## \[\d", re.MULTILINE)
"""The heading of a release in the changelog."""


def frozen_files() -> dict[str, str]:
    """Return path → SHA-256 of what databases and graphs are made by."""
    sql, cypher = root_of("journal", "sql"), root_of("kg", "cypher")
    files = [*sql.glob("schema/*.sql"), *sql.glob("migrations/*.sql"), *cypher.glob("schema/*.cypher")]
    return {
        file.relative_to(sql.parent).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }  # fmt: skip


def test_no_schema_and_no_migration_changes_once_there_is_a_release() -> None:
    changelog = root_of("journal", "sql").parent / "CHANGELOG.md"
    released = RELEASE.search(changelog.read_text(encoding="utf-8")) is not None
    assert (frozen_files() if released else {}) == FROZEN


def test_migrations_come_after_the_schema() -> None:
    """The files of the schema are applied in the order of their names, and no migration bears its number."""
    found = frozen_files()
    schema = sorted(name for name in found if name.startswith("sql/schema/"))
    assert [int(name.split("/")[-1][:2]) for name in schema] == list(range(len(schema)))
    assert not any(name.startswith("sql/migrations/001") for name in found)
