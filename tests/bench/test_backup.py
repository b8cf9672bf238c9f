"""How long a backup and a restore take, beside pg_dump and pg_restore alone, and that the graph's hash is the same."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import neo4j
import psycopg
import pytest
from psycopg import sql as composed

from imem.journal.settings import Role
from imem.local.servers.postgres import program
from tests.bench.generate import write
from tests.bench.table import MB, Figure, Table
from tests.imem.backup.conftest import Office, empty_office
from tests.imem.ingest.conftest import LoadHarness, graph, harness
from tests.servers import let_go, with_database

__all__ = ["graph", "harness"]

ANALYSES: Final = {"full": 15_000, "tiny": 600}

RESTORE_BAR_S: Final = 3_600.0
"""RS-9: restore and replay."""


def took(*words: str) -> float:
    """Run a program to its good end; return how long it took, in seconds."""
    begun = time.perf_counter()
    subprocess.run(words, check=True, env={**os.environ, "PGOPTIONS": "-c statement_timeout=0"})
    return time.perf_counter() - begun


def floor(admin: str, folder: Path) -> tuple[float, float]:
    """Return how long pg_dump takes into a file, and pg_restore from it into an empty database, in seconds."""
    dump, url = str(folder / "floor.dump"), with_database(admin, "floor_of_backup")
    dumped = took(str(program("pg_dump")), "--format=custom", "--exclude-extension=*", f"--file={dump}", admin)
    name = composed.Identifier("floor_of_backup")
    with psycopg.connect(with_database(admin, "postgres"), autocommit=True) as conn:
        conn.execute(composed.SQL("CREATE DATABASE {}").format(name))
        try:
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("CREATE EXTENSION vector")
            restored = took(str(program("pg_restore")), "--single-transaction", "--no-owner", f"--dbname={url}", dump)
        finally:
            conn.execute(composed.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
    return dumped, restored


def timed(office: Office, *words: object) -> tuple[float, dict[str, Any]]:
    begun = time.perf_counter()
    found = office.runs(*words)
    return time.perf_counter() - begun, found


@pytest.mark.bench
@pytest.mark.spec("RS-9")
def test_backup_and_restore(harness: LoadHarness, graph: neo4j.Driver, table: Table, tmp_path: Path) -> None:  # noqa: ARG001
    """Within the hour that the design allows, and the same graph."""
    analyses = ANALYSES[table.scale]
    write(analyses, tmp_path / "history.jsonl")
    office = Office(harness.as_role(Role.HUMAN_ADMIN, "kate", may_import=True), tmp_path / "backup")
    assert harness.load(tmp_path / "history.jsonl")["code"] == 0
    office.harness.run("rebuild", "graph", "--in-place")

    backup_s, made = timed(office, "backup", office.place)
    assert made["graph_unknown"] is None
    dump_s, plain_s = floor(harness.admin_url, tmp_path)
    with empty_office(office, "empty") as empty:
        let_go(empty.harness.admin_url)
        restore_s, done = timed(empty, "restore", office.place, "--wait")
    assert (done["graph_same"], done["graph_hash"]) == (True, made["graph_hash"])

    data = f"{analyses:,} analyses"
    table.add(
        Figure(
            name="backup", data=data, value=backup_s, unit="s", floor=dump_s,
            note="dump, objects, hash of the graph; floor: pg_dump alone",
        ),
        Figure(name="size of a backup", data=data, value=made["bytes"] / MB, unit="MB"),
        Figure(
            name="restore and replay", data=data, value=restore_s, unit="s", floor=plain_s, bar=RESTORE_BAR_S,
            note="hashes compared, database, graph replayed and hashed; floor: pg_restore alone",
        ),
    )  # fmt: skip
