"""A journal with records, memories, an agent's checkpoint and objects; and empty installations to restore into."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql as composed
from pydantic import SecretStr

from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.settings import Role
from tests.imem.ingest.conftest import LoadHarness, analysis, company, finding, graph, new_desk, performed
from tests.servers import in_database, let_go, with_database

__all__ = ["graph"]

LINES: Final[list[dict[str, Any]]] = [
    company("MU", name="Micron"), {"record": "Agent", "known_at": "2026-06-01T10:00:00Z", "core": {"name": "ann"}},
    {**analysis("a", summary="Memory prices rise: \u682a"), "body": "Everything that the analysis says."},
    finding("f"), performed("ann", "a"),
    {"correct": "Analysis", "known_at": "2026-06-02T10:00:00Z", "reason": "A slip.",
     "core": {"id": "a", "subject_id": "company:MU", "date": "2026-06-01T10:00:00Z", "kind": "equity_research",
              "summary": "Memory prices rose."}},
    {"record": "Debate", "known_at": "2026-06-03T10:00:00Z",
     "core": {"id": "d", "subject_id": "company:MU", "topic": "MU", "challenger_agent": "bob",
              "challenged_agent": "ann", "participants": ["ann", "bob"], "disputed_finding": "f",
              "timestamp": "2026-06-03T10:00:00Z"},
     "turns": [{"number": 0, "speaker": "bob", "text": "It falls."},
               {"number": 1, "speaker": "ann", "text": "It rises.", "cites": ["f"]}]},
    company("MU", name="Micron Technology"),
]  # fmt: skip

OBJECTS: Final = {"journal.json": b"{}", "evidence/p1/1.json": b"[1, 2]", "evidence/p1/empty": b""}


def soon() -> Deadline:
    return Deadline.after_ms(60_000)


@dataclass(frozen=True)
class Office:
    """
    An installation, and a place for backups of it.

    Attributes:
        harness: its commands, as a person who may back up.
        place: a folder that is not there yet.
    """

    harness: LoadHarness
    place: Path

    def runs(self, *words: object, code: int = 0) -> dict[str, Any]:
        """Run a command that prints one document."""
        done = self.harness.run(*words, "--json")
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def says(self, *words: object) -> str:
        """Run a command that is refused, and return its sentence."""
        done = self.harness.run(*words)
        assert (done.returncode in {1, 2}, "Traceback" in done.stderr) == (True, False), done.stdout + done.stderr
        return " ".join(done.stderr.replace("\u2502", " ").split())

    @property
    def objects(self) -> ObjectStore:
        """Its store of objects."""
        return ObjectStore.of(self.harness.settings)

    def graph_hash(self) -> str:
        """Return the hash of the graph in use."""
        return str(self.runs("graph", "hash")["digest"])


@pytest.fixture
def office(stack: Any, template: str, tmp_path: Path) -> Iterator[Office]:
    """An installation that holds something of each."""
    with new_desk(stack, template, tmp_path) as made:
        office = Office(made.as_role(Role.HUMAN_ADMIN, "kate", may_import=True), tmp_path / "backup")
        loaded = made.load(made.file("lines.jsonl", LINES), "--source", "desk")
        assert loaded["code"] == 0, loaded
        assert office.harness.run("remember", "Micron reports in June.").returncode == 0
        for key, content in OBJECTS.items():
            asyncio.run(office.objects.put(key, content, deadline=soon()))
        yield office


@pytest.fixture
def harness(office: Office) -> LoadHarness:
    """The journal whose graph the fixture *graph* empties."""
    return office.harness


@contextmanager
def empty_office(office: Office, name: str) -> Iterator[Office]:
    """Lend an installation with a database without tables, on the same servers."""
    admin, database = office.harness.admin_url, f"empty_{uuid4().hex[:8]}"
    folder = office.harness.folder / name
    folder.mkdir()
    with psycopg.connect(with_database(admin, "postgres"), autocommit=True) as conn:
        conn.execute(composed.SQL("CREATE DATABASE {}").format(composed.Identifier(database)))
    owner = with_database(admin, database)
    urls = in_database(office.harness.settings, with_database(office.harness.url, database))
    settings = {**urls, "postgres_admin_url": SecretStr(owner), "home": folder / "home"}
    try:
        yield Office(LoadHarness(office.harness.settings.model_copy(update=settings), folder), office.place)
    finally:
        let_go(owner)
        with psycopg.connect(with_database(admin, "postgres"), autocommit=True) as conn:
            conn.execute(composed.SQL("DROP DATABASE {} WITH (FORCE)").format(composed.Identifier(database)))


@pytest.fixture
def migrated(office: Office, stack: Any, template: str, tmp_path: Path) -> Iterator[Office]:
    """An installation with a schema and without rows."""
    folder = tmp_path / "migrated"
    folder.mkdir()
    with new_desk(stack, template, folder) as made:
        yield Office(made.as_role(Role.HUMAN_ADMIN, "kate", may_import=True), office.place)


@pytest.fixture
def empty(office: Office) -> Iterator[Office]:
    with empty_office(office, "empty") as made:
        yield made
