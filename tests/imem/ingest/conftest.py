"""A migrated journal of its own for each test, and the command line and Memory pointed at it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import neo4j
import pytest
from psycopg import sql as composed
from pydantic import SecretStr

import imem.kg.migrations
from imem.journal.settings import Role, Settings
from tests import forking
from tests.servers import EMPTYING, cloned, in_database, kept
from tests.workers import variables

TOP = Path(__file__).resolve().parents[3]
KNOWN = "2026-06-01T10:00:00Z"


class Measured(NamedTuple):
    """
    What one load took.

    Attributes:
        peak_kib: resident memory at its highest, in KiB.
        told: the document that it printed.
    """

    peak_kib: int
    told: dict[str, Any]


@dataclass(frozen=True)
class LoadHarness:
    """
    One journal and the ways into it.

    Attributes:
        settings: with the addresses of every server.
        folder: for files to load.
    """

    settings: Settings
    folder: Path

    @property
    def url(self) -> str:
        """The application's address of the journal."""
        assert self.settings.postgres_url is not None
        return self.settings.postgres_url.get_secret_value()

    @property
    def admin_url(self) -> str:
        """The owner's address of the journal."""
        assert self.settings.postgres_admin_url is not None
        return self.settings.postgres_admin_url.get_secret_value()

    def having(self, **changes: Any) -> LoadHarness:
        """Return a harness with other settings."""
        return LoadHarness(self.settings.model_copy(update=changes), self.folder)

    def as_role(self, role: Role, actor: str, *, may_import: bool = False) -> LoadHarness:
        """Return the harness of another actor."""
        return self.having(role=role, actor=actor, may_import=may_import)

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return what the owner sees."""
        return kept(self.admin_url).execute(query, parameters).fetchall()

    def count(self, table: str) -> int:
        """Return the rows of a table."""
        counting = composed.SQL("SELECT count(*) AS n FROM {}").format(composed.Identifier(table))
        [(count,)] = kept(self.admin_url).execute(counting).fetchall()
        return int(count)

    def file(self, name: str, lines: Sequence[Mapping[str, Any] | bytes]) -> Path:
        """Write a file of lines: objects as JSON, bytes as they are."""
        path = self.folder / name
        data = b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a child process has the same settings."""
        found = {name: text for name, text in os.environ.items() if not name.startswith("IMEM_")}
        return {**found, **variables(self.settings), "PYTHONPATH": str(TOP), "PYTHONWARNINGS": "error"}

    def command(self, *arguments: str) -> list[str]:
        """Return the command line."""
        return [sys.executable, "-m", "imem", *arguments]

    def run(self, *arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """Run the command line and return what it said."""
        return forking.run("imem", *(str(one) for one in arguments), env=self.environment, cwd=Path.cwd(), stdin=stdin)

    def load(self, *arguments: object, stdin: bytes = b"") -> dict[str, Any]:
        """Load without waiting for the graph; return the document with its exit code."""
        done = self.run("load", "--json", "--no-wait", *arguments, stdin=stdin)
        try:
            return {**json.loads(done.stdout), "code": done.returncode, "stderr": done.stderr}
        except json.JSONDecodeError:
            raise AssertionError(f"{done.returncode}: {done.stdout}{done.stderr}") from None

    def load_measured(self, path: Path) -> Measured:
        """Load in a process of its own; return its peak of resident memory, of itself alone, and its seconds."""
        script = (
            "import sys; from imem.cli import main\n"
            "sys.argv = ['imem', 'load', '--json', '--no-wait', sys.argv[1]]\n"
            "try:\n    main()\n"
            "finally:\n    print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(path)], env=self.environment, capture_output=True, text=True, check=True
        )
        document, _, peak = done.stdout.rstrip().rpartition("\n")
        return Measured(int(peak), json.loads(document))

    @contextmanager
    def applier(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the applier's process for as long as the block lasts."""
        command = forking.command("module", "imem.worker", "applier")
        with subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL) as process:
            try:
                yield process
            finally:
                process.terminate()
                assert process.wait(20) == 0


@contextmanager
def new_desk(stack: Any, template: str, folder: Path) -> Iterator[LoadHarness]:
    """Clone the template for one harness."""
    given = stack.settings
    with cloned(given, template) as (url, admin_url):
        addresses = {**in_database(given, url), "postgres_admin_url": SecretStr(admin_url)}
        yield LoadHarness(given.model_copy(update={**addresses, "home": folder / "home"}), folder)


@pytest.fixture
def harness(stack: Any, template: str, tmp_path: Path) -> Iterator[LoadHarness]:
    with new_desk(stack, template, tmp_path) as made:
        yield made


@pytest.fixture
def another_desk(stack: Any, template: str, tmp_path: Path) -> Iterator[LoadHarness]:
    with new_desk(stack, template, tmp_path) as made:
        yield made


@pytest.fixture
def graph(harness: LoadHarness) -> Iterator[neo4j.Driver]:
    """Give an empty graph with the newest schema."""
    settings = harness.settings
    assert settings.neo4j_url is not None
    assert settings.neo4j_password is not None
    auth = (settings.neo4j_user, settings.neo4j_password.get_secret_value())
    imem.kg.migrations.migrate(settings.neo4j_url, *auth)
    with neo4j.GraphDatabase.driver(settings.neo4j_url, auth=auth, telemetry_disabled=True) as driver:
        with driver.session(database="neo4j") as session:
            for text in EMPTYING:
                session.run(text).consume()
        yield driver


# Lines


def company(ticker: str, **profile: Any) -> dict[str, Any]:
    line: dict[str, Any] = {"record": "Company", "known_at": KNOWN, "core": {"ticker": ticker}}
    return {**line, "groups": {"profile": profile}} if profile else line


def analysis(key: str, **core: Any) -> dict[str, Any]:
    base = {"id": key, "subject_id": "company:MU", "date": KNOWN, "kind": "equity_research"}
    return {"record": "Analysis", "known_at": KNOWN, "core": {**base, **core}}


def finding(key: str, **core: Any) -> dict[str, Any]:
    base = {
        "id": key,
        "analysis_id": "a",
        "subject_id": "company:MU",
        "agent": "ann",
        "domain": "equity_direction",
        "statement": "It rises.",
    }
    return {"record": "Finding", "known_at": KNOWN, "core": {**base, **core}}


def performed(agent: str, key: str) -> dict[str, Any]:
    return {"link": "PERFORMED", "known_at": KNOWN, "from": {"Agent": agent}, "to": {"Analysis": key}}
