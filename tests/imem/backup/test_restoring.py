"""``imem backup`` and ``imem restore``: the same rows, the same rights, the same graph; and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import neo4j
import psycopg
import pytest
from psycopg import sql as composed
from pydantic import SecretStr

from imem.backup.database import row_counts
from imem.backup.manifest import MANIFEST
from imem.journal.endpoints.objects import sha256_of
from imem.journal.settings import Role
from tests.imem.backup.conftest import OBJECTS, Office, soon
from tests.imem.ingest.conftest import analysis
from tests.servers import asked, kept, let_go

RIGHTS = """
    SELECT c.oid::regclass::text AS name, a.grantee::regrole::text AS role, a.privilege_type AS may
    FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
    WHERE c.relnamespace::regnamespace::text IN ('public', 'workflow', 'langgraph', 'recall')
    UNION ALL
    SELECT p.oid::regprocedure::text, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
        a.privilege_type
    FROM pg_proc AS p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
    WHERE p.pronamespace::regnamespace::text IN ('public', 'workflow', 'langgraph', 'recall')
      AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = p.oid AND d.deptype = 'e')
    ORDER BY 1, 2, 3
"""


def replayed(office: Office) -> str:
    """Have the graph hold what the journal does; return its hash."""
    office.harness.run("rebuild", "graph", "--in-place")
    return office.graph_hash()


@pytest.mark.spec("IF-12")
def test_the_same_rows_objects_rights_and_graph_come_back(office: Office, empty: Office, graph: neo4j.Driver) -> None:
    before = replayed(office)
    made = office.runs("backup", office.place)
    assert (made["graph_hash"], made["graph_unknown"]) == (before, None)
    assert made["tables"]["public.event"] == office.harness.count("event") > 0
    assert made["tables"]["recall.memory"] == 1

    empty.runs("restore", office.place)

    assert asyncio.run(row_counts(empty.harness.admin_url)) == made["tables"]
    for key, content in OBJECTS.items():
        assert asyncio.run(empty.objects.get(key, deadline=soon())) == content
    assert asked(empty.harness.admin_url, RIGHTS) == asked(office.harness.admin_url, RIGHTS)
    graph.execute_query("MATCH (n) WHERE NOT n:SchemaVersion DETACH DELETE n")
    assert replayed(empty) == before

    assert empty.harness.load(empty.harness.file("later.jsonl", [analysis("b")]))["code"] == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        kept(empty.harness.url).execute("UPDATE event SET kind = 'x'")


@pytest.mark.spec("RS-9")
def test_what_failed_comes_back_and_goes_on_with_the_same_graph(
    office: Office, empty: Office, graph: neo4j.Driver
) -> None:
    """The graph is lost with the database; events that it did not hold yet are replayed from the outbox."""
    with office.harness.applier():
        assert (
            office.harness.run(
                "load", office.harness.file("more.jsonl", [analysis(f"m{n}") for n in range(50)])
            ).returncode
            == 0
        )
    before = office.graph_hash()
    late = office.harness.load(office.harness.file("late.jsonl", [analysis(f"l{n}") for n in range(30)]))
    assert late["new"] == 30
    office.runs("backup", office.place)
    expected = replayed(office)
    assert expected != before
    let_go(office.harness.admin_url)
    graph.execute_query("MATCH (n) WHERE NOT n:SchemaVersion DETACH DELETE n")

    done = empty.runs("restore", office.place, "--wait")

    assert done["graph_hash"] is None
    assert "events were not in the graph yet" in done["graph_unknown"]
    assert empty.graph_hash() == expected


def test_a_graph_that_differs_from_the_backups_ends_with_1(office: Office, empty: Office, graph: neo4j.Driver) -> None:
    replayed(office)
    graph.execute_query("MATCH (n:Analysis {id: 'a'}) SET n.summary = 'Something else.'")
    office.runs("backup", office.place)

    done = empty.runs("restore", office.place, "--wait", code=1)

    assert done["graph_same"] is False
    assert done["graph_differing"] == ["Analysis (1 instead of 1)"]


def test_without_a_graph_the_manifest_says_why(office: Office) -> None:
    nowhere = office.harness.having(neo4j_url="bolt://127.0.0.1:9")
    asyncio.run(_applied(office))
    made = Office(nowhere, office.place).runs("backup", office.place)
    assert made["graph_hash"] is None
    assert made["graph_unknown"]


async def _applied(office: Office) -> None:
    """Have the journal say that everything is applied."""
    await asyncio.to_thread(kept(office.harness.admin_url).execute, "UPDATE delivery SET state = 'applied'")


@pytest.mark.usefixtures("graph")
def test_what_is_not_empty_is_not_restored_into(office: Office, empty: Office, migrated: Office) -> None:
    office.runs("backup", office.place)
    held = office.harness.count("event")
    assert "other sessions" in office.says("restore", office.place)
    let_go(office.harness.admin_url)
    let_go(office.harness.url)
    assert "is not empty" in office.says("restore", office.place)
    assert office.harness.count("event") == held
    assert "has tables already" in migrated.says("restore", office.place)

    asyncio.run(empty.objects.put("others/1", b"x", deadline=soon()))
    assert "store of objects is not empty" in empty.says("restore", office.place)
    assert asyncio.run(row_counts(empty.harness.admin_url)) == {}


def test_a_complete_backup_is_not_overwritten(office: Office) -> None:
    office.runs("backup", office.place)
    manifest = (office.place / MANIFEST).read_bytes()
    assert "holds a complete backup, which is not overwritten" in office.says("backup", office.place)
    assert (office.place / MANIFEST).read_bytes() == manifest
    assert "lies among the objects themselves" in office.says("backup", office.harness.settings.home / "objects" / "x")


def test_only_a_person_may(office: Office, empty: Office) -> None:
    agent = Office(office.harness.as_role(Role.AGENT, "mallory"), office.place)
    assert "may not backup journal" in agent.says("backup", office.place)
    assert "may not backup journal" in agent.says("export", office.harness.folder / "all.jsonl")
    assert not office.place.exists()
    [denied] = asked(
        office.harness.admin_url,
        "SELECT count(*) AS n FROM memory_access_audit"
        " WHERE actor_id = 'mallory' AND action = 'backup' AND NOT authorized",
    )
    assert denied["n"] == 2
    office.runs("backup", office.place)
    for command in (("restore",), ("verify",), ("verify", "--quick")):
        other = Office(empty.harness.as_role(Role.AGENT, "mallory"), office.place)
        assert "may not backup journal" in other.says(*command, office.place)
    ownerless = Office(office.harness.having(postgres_admin_url=None), office.place)
    assert "IMEM_POSTGRES_ADMIN_URL is not set" in ownerless.says("backup", office.harness.folder / "other")


def test_a_backup_of_another_schema_is_refused_by_name(office: Office, empty: Office) -> None:
    office.runs("backup", office.place)
    _rewrite(office.place, lambda manifest: manifest["migrations"].update({"999": "0" * 64}))
    assert "newer than this program" in empty.says("restore", office.place)
    _rewrite(office.place, lambda manifest: manifest.update(migrations={"1": "0" * 64}))
    assert "from before the first release" in empty.says("restore", office.place)
    assert asyncio.run(row_counts(empty.harness.admin_url)) == {}


def _rewrite(place: Path, change: object) -> None:
    """Change the manifest as a program would that wrote it."""
    document = json.loads((place / MANIFEST).read_bytes())
    manifest = json.loads(document["manifest"])
    change(manifest)  # type: ignore[operator]
    text = json.dumps(manifest)
    (place / MANIFEST).write_text(json.dumps({"sha256": sha256_of(text.encode()), "manifest": text}))


def test_roles_of_another_name_get_no_rights_here(office: Office, empty: Office) -> None:
    """The backup names a role that this server lacks: it is made for the restore, and removed."""
    admin = kept(office.harness.admin_url)
    name = composed.Identifier("left_behind")
    admin.execute(composed.SQL("CREATE ROLE {}").format(name))
    admin.execute(composed.SQL("GRANT SELECT ON event TO {}").format(name))
    try:
        office.runs("backup", office.place)
    finally:
        admin.execute(composed.SQL("REVOKE ALL ON event FROM {}").format(name))
        admin.execute(composed.SQL("DROP ROLE {}").format(name))

    empty.runs("restore", office.place)

    assert asked(empty.harness.admin_url, "SELECT FROM pg_roles WHERE rolname = 'left_behind'") == []


def test_no_password_is_among_the_arguments(office: Office) -> None:
    """A wrong one is named by the sentence of the server, and not shown."""
    url = office.harness.admin_url.replace("@", "x@")
    wrong = Office(office.harness.having(postgres_admin_url=SecretStr(url)), office.place)
    said = wrong.says("backup", office.place)
    password = url.split(":")[2].split("@")[0]
    assert password not in said
