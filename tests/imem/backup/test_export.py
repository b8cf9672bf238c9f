"""``imem export``: what it writes is loaded into an empty installation, whose graph then has the same hash."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from imem.ingest.recorder import prepare, record
from imem.journal.actors import Actor
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.load_format.lines import ANY_WRITER, parse_line
from tests.docs.pages import ROOT
from tests.imem.backup.conftest import Office, soon
from tests.imem.ingest.conftest import company
from tests.kg.projection.histories import CORES, GROUPS
from tests.servers import as_pipelines, asked

DESK_LINES: Final = None if os.environ.get("IMEM_CHAOS") else 600
"""Of the example that are exported; more than one batch of a load."""

GOVERNED = [
    line
    for (kind, key), core in CORES.items() if kind in {"Pattern", "AgentCredibility"}
    for line in (
        {"record": kind, "core": core},
        *(
            {"record": kind, "key": key, "groups": {name: value}}
            for name, values in GROUPS[kind, key].items() for value in (*values, values[0])
        ),
    )
]  # fmt: skip
"""What subsystems write, live; each value of a group after another, the first again at last."""


async def govern(office: Office) -> None:
    """Have subsystems record what they govern."""
    database = Database(as_pipelines(office.harness.settings, office.harness.url), size=1)
    try:
        gateway = Gateway(database, Actor("patterns", Role.LEARNING_ENGINE, may_import=True))
        for members in GOVERNED:
            line = parse_line(orjson.dumps(members), needs_known_at=False, writer=ANY_WRITER)
            [receipt] = await record(gateway, [prepare(line)], deadline=soon())
            assert not receipt.verdict.refused, members
    finally:
        await database.close()


def replayed(office: Office) -> str:
    office.harness.run("rebuild", "graph", "--in-place")
    return office.graph_hash()


def exported(office: Office, name: str = "all.jsonl", *words: object) -> list[dict[str, Any]]:
    """Export, and return the lines."""
    path = office.harness.folder / name
    office.runs("export", path, *words)
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.longer
@pytest.mark.usefixtures("graph")
def test_an_export_that_is_loaded_gives_the_same_graph(office: Office, migrated: Office) -> None:
    """Governed and live events, corrections and turns too; of two sources at one moment the same one counts."""
    with gzip.open(ROOT / "examples" / "trading_desk" / "trading_desk.jsonl.gz") as file:
        desk = office.harness.folder / "desk.jsonl"
        desk.write_bytes(b"".join(islice(file, DESK_LINES)))
    assert office.harness.load(desk)["code"] == 0
    for source, name in (("zoe", "Of Zoe"), ("abe", "Of Abe")):
        tied = office.harness.file(f"{source}.jsonl", [company("TIE", name=name)])
        assert office.harness.load(tied)["code"] == 0
    asyncio.run(govern(office))
    before = replayed(office)

    lines = exported(office)

    events = asked(office.harness.admin_url, "SELECT count(*) AS n FROM event WHERE kind NOT LIKE 'notice.%'")[0]["n"]
    assert len(lines) == events + 1
    loaded = migrated.harness.load(office.harness.folder / "all.jsonl")
    assert (loaded["code"], loaded["refused"]) == (0, []), loaded["stderr"]
    assert replayed(migrated) == before
    assert len(exported(migrated, "again.jsonl")) == len(lines)
    [debate] = asked(
        migrated.harness.admin_url,
        "SELECT json_agg(text ORDER BY number) AS said FROM debate_turn WHERE debate_id = 'd'",
    )
    assert debate["said"] == ["It falls.", "It rises."]
    assert asked(migrated.harness.admin_url, "SELECT body FROM event WHERE record_key = 'a' AND body IS NOT NULL") == [
        {"body": "Everything that the analysis says."}
    ]
    again = migrated.harness.load(office.harness.folder / "all.jsonl")
    assert (again["code"], again["new"] + again["changed"]) == (0, 0)


def test_memories_come_back_as_memories(office: Office, migrated: Office) -> None:
    office.harness.run("remember", "The second one.", "--importance", "0.9")
    path = office.harness.folder / "memories.jsonl"
    exported(office, "all.jsonl", "--memories", path)

    done = migrated.harness.run("memories", "import", path, "--json")

    assert json.loads(done.stdout) == {"counts": {"new": 2}, "refused": []}, done.stderr
    query = "SELECT namespace, content, importance, created_at, known_at FROM recall.memory ORDER BY content"
    assert asked(migrated.harness.admin_url, query) == asked(office.harness.admin_url, query)


def test_only_a_person_loads_what_subsystems_govern(office: Office, migrated: Office) -> None:
    asyncio.run(govern(office))
    exported(office)
    path = office.harness.folder / "all.jsonl"
    engine = migrated.harness.as_role(Role.LEARNING_ENGINE, "engine", may_import=True)
    refused = engine.run("load", "--no-wait", path)
    assert (refused.returncode, "may not backup journal" in refused.stderr) == (1, True), refused.stderr
    assert migrated.harness.count("event") == 0

    plain = migrated.harness.folder / "plain.jsonl"
    plain.write_bytes(path.read_bytes().partition(b"\n")[2])
    loaded = migrated.harness.load(plain)
    assert (loaded["code"], len(loaded["refused"]) > 0) == (1, True)


def test_standard_output_and_a_file_that_is_there(office: Office) -> None:
    lines = exported(office)
    done = office.harness.run("export", "-", "--json")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()][1:] == lines[1:]
    assert "cannot be made" in office.says("export", office.harness.folder / "all.jsonl")


def test_an_export_of_a_later_version_is_refused(office: Office, tmp_path: Path) -> None:
    path = tmp_path / "later.jsonl"
    path.write_text('{"export":2,"position":0,"exported_at":"2026-01-01T00:00:00Z"}\n')
    loaded = office.harness.load(path)
    [refused] = loaded["refused"]
    assert (loaded["code"], refused["line"], refused["field"]) == (1, 1, "export")
    assert "this program knows 1" in refused["reason"]
