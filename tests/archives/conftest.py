"""A journal with patterns, their tests and files, and a store of objects in a folder."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from imem.archives.archive import MANIFEST, VERSIONS
from imem.archives.building import build_archives
from imem.archives.contents import folder_of
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from tests.credibility.conftest import IMPORTER, World, decision, text, world
from tests.servers import ahead

__all__ = ["world"]

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
WRITER = Actor("import:patterns", Role.LEARNING_ENGINE, may_import=True)


def pattern(key: str = "p", status: str | None = "candidate", at: datetime = BEGIN, **evidence: Any) -> dict[str, Any]:
    groups = {"status": {"status": status, "quarantined": status != "active"}} if status else {}
    return {
        "record": "Pattern", "known_at": text(at),
        "core": {"pattern_id": key, "name": f"Margins of {key}", "category": "industry/margins", "sector": "semis"},
        "groups": groups | ({"evidence": evidence} if evidence else {}),
    }  # fmt: skip


def late(key: str, at: datetime, **groups: dict[str, Any]) -> dict[str, Any]:
    return {"record": "Pattern", "key": key, "known_at": text(at), "groups": groups}


def became(key: str, status: str, at: datetime) -> dict[str, Any]:
    return late(key, at, status={"status": status, "quarantined": status != "active"})


def validated(key: str, of: str = "p", *, passed: bool = True, at: datetime = BEGIN) -> dict[str, Any]:
    return {
        "record": "PatternValidation", "known_at": text(at),
        "core": {
            "id": key, "pattern_id": of, "validation_type": "holdout", "test_start_date": text(at - 30 * DAY),
            "test_end_date": text(at), "passed": passed, "sample_size": 20,
        },
    }  # fmt: skip


def cited(decision_id: str, of: str = "p", at: datetime = BEGIN) -> list[dict[str, Any]]:
    link = {
        "link": "CITES", "known_at": text(at), "from": {"Decision": decision_id}, "to": {"Pattern": of},
        "props": {"at": text(at), "rank": 1},
    }  # fmt: skip
    return [decision(decision_id, at, size_usd=20_000.0, subject_id="company:MU"), link]


def found_by(analysis: str, of: str = "p", at: datetime = BEGIN) -> list[dict[str, Any]]:
    core = {
        "id": analysis,
        "subject_id": "company:MU",
        "date": text(at),
        "kind": "equity_research",
        "summary": "Rising.",
    }
    link = {
        "link": "IDENTIFIED_PATTERN", "known_at": text(at), "from": {"Analysis": analysis}, "to": {"Pattern": of},
        "props": {"strength": 0.8},
    }  # fmt: skip
    return [{"record": "Analysis", "known_at": text(at), "core": core}, link]


def file(
    path: str, of: str | None = "p", at: datetime = BEGIN, created: datetime | None = None
) -> list[dict[str, Any]]:
    core = {"file_path": path, "created_date": text(created or at), "size_mb": 1.5}
    record = {"record": "DataFile", "known_at": text(at), "core": core}
    return [record] if of is None else [record, supported(path, of, at)]


def supported(path: str, of: str, at: datetime = BEGIN) -> dict[str, Any]:
    return {
        "link": "SUPPORTED_BY_FILE", "known_at": text(at), "from": {"Pattern": of}, "to": {"DataFile": path},
        "props": {},
    }  # fmt: skip


@dataclass
class Vault:
    """
    A journal whose patterns are archived.

    Attributes:
        world: the journal.
        folder: of the objects.
        objects: the store.
    """

    world: World
    folder: Path
    objects: ObjectStore = field(init=False)

    def __post_init__(self) -> None:
        self.objects = ObjectStore(str(self.folder))

    @property
    def database(self) -> Database:
        return self.world.pipelines

    @property
    def runtime(self) -> Any:
        return SimpleNamespace(database=self.database, gateway=self.gateway, objects=self.objects)

    @property
    def gateway(self) -> Gateway:
        return Gateway(self.database, IMPORTER)

    async def say(self, *lines: dict[str, Any]) -> None:
        """Record what subsystems record as well."""
        for line in lines:
            other = "investigation" in line.get("groups", {})
            parsed = parse_line(
                json.dumps(line).encode(), needs_known_at=False, writer="postmortem" if other else "patterns"
            )
            action = Action.APPEND_POSTMORTEM if other else Action.APPEND_PATTERNS
            [receipt] = await self.gateway.append(
                [entry_of(parsed)], actor=WRITER, action=action, deadline=Deadline.never()
            )
            assert not receipt.verdict.refused, receipt

    async def archive(self) -> dict[str, Any]:
        return dict(await build_archives(self.runtime, until=Deadline.after_ms(60_000)))

    async def settle(self) -> None:
        """Archive until nothing is due."""
        while await self.archive():
            pass

    async def evidence(self, key: str = "p") -> dict[str, Any]:
        found = await self.world.rows(
            "SELECT e.payload #> '{groups,evidence}' AS value FROM record_head AS h JOIN event AS e USING (position)"
            " WHERE h.kind = 'Pattern' AND h.key = %s AND h.grp = 'evidence'", key,
        )  # fmt: skip
        return found[0]["value"] if found else {}

    def manifest(self, key: str = "p") -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.folder / folder_of(key) / MANIFEST).read_text())
        return value

    def files(self, key: str = "p") -> dict[str, bytes]:
        """Return what is stored of a pattern, but for the copies of the manifest."""
        top = self.folder / folder_of(key)
        found = {str(one.relative_to(top)): one.read_bytes() for one in sorted(top.rglob("*")) if one.is_file()}
        return {name: content for name, content in found.items() if not name.startswith(VERSIONS)}

    def put(self, key: str, content: bytes = b"1,2\n") -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    @asynccontextmanager
    async def later(self, by: timedelta) -> AsyncIterator[None]:
        """Let the clock of the pipelines be ahead."""
        made = Database(self.world.pipeline_url, size=4, options=ahead(self.world.admin_url, by))
        before, self.world.pipelines = self.world.pipelines, made
        try:
            yield
        finally:
            self.world.pipelines = before
            await made.close()


@pytest.fixture
def vault(world: World, tmp_path: Path) -> Vault:
    return Vault(world, tmp_path / "objects")
