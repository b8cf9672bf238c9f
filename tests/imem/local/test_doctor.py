"""IF-11: the doctor names each trouble and its mend, and finds none in a healthy stack."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import redis
from psycopg import sql

from imem.journal.clock import ManualClock, SystemClock
from imem.journal.errors import SettingsError
from imem.journal.settings import Settings
from imem.local import state
from imem.local.doctor import checks, servers
from imem.local.doctor.finding import CheckLevel
from imem.local.folders import Folders
from imem.local.migrate import migrate
from imem.local.servers import postgres
from imem.local.state import ChildState, StackState
from imem.local.supervisor import LocalStack
from tests.conftest import settings_for
from tests.contents import no_audit
from tests.disks import may_mount, small_disk
from tests.imem.local.doctors import emptied, graph, only, troubles
from tests.imem.local.programs import me, shown

pytestmark = pytest.mark.spec("IF-11")


def test_a_missing_migration(env: dict[str, str]) -> None:
    """Both stores; `imem migrate` is the mend."""
    with graph(env) as driver:
        driver.execute_query("MATCH (v:SchemaVersion) DETACH DELETE v")
    found = troubles(env)
    for about, first in (("postgres", "sql/schema"), ("neo4j", "001_constraints.cypher")):
        text, mend = only(found, about)
        assert first in text
        assert mend == "Run `imem migrate`."


def test_a_healthy_installation(migrated: dict[str, str]) -> None:
    """Nothing is found, and what was looked at is listed for every server."""
    findings = checks.examine(migrated)

    assert [one for one in findings if one.level is not CheckLevel.FINE] == []
    looked_at = {"settings", "permissions", "disk", "stack", "postgres", "neo4j", "stubs", "properties", "scores"}
    looked_at |= {"pipelines", "graph", "similar", "valkey-working", "valkey-durable", "valkey-cache"}
    assert {one.about for one in findings} >= looked_at
    text = "\n".join(one.text for one in findings)
    assert "pgvector 0.8" in text
    assert "schema is at" in text


@contextmanager
def recorded_migration(env: Mapping[str, str], change: LiteralString) -> Iterator[None]:
    """Change what the database says of its migrations; it says the truth again afterwards."""
    with psycopg.connect(env["IMEM_POSTGRES_ADMIN_URL"], autocommit=True) as owner:
        owner.execute("CREATE TABLE schema_version_before AS TABLE schema_version")
        try:
            owner.execute(change)
            yield
        finally:
            owner.execute("TRUNCATE schema_version")
            owner.execute("INSERT INTO schema_version TABLE schema_version_before")
            owner.execute("DROP TABLE schema_version_before")


def test_a_schema_newer_than_the_program(migrated: dict[str, str]) -> None:
    """The mend is the newer program, not a migration."""
    newer = "INSERT INTO schema_version (number, name, sha256) VALUES (2, '002_more.sql', '')"
    with recorded_migration(migrated, newer):
        text, mend = only(troubles(migrated), "postgres")

    assert "newer than this program" in text
    assert mend == "Install the newer program."


def test_a_schema_from_before_the_first_release(migrated: dict[str, str]) -> None:
    """A new database is the mend."""
    with recorded_migration(migrated, "UPDATE schema_version SET name = '001_journal.sql', sha256 = repeat('a', 64)"):
        text, mend = only(troubles(migrated), "postgres")

    assert "from before the first release" in text
    assert "Migrate a new database and load the data again" in mend


@pytest.mark.parametrize(
    ("floor", "value", "text"),
    [
        ("OLDEST_POSTGRES", 99, "Postgres 18 is too old."),
        ("OLDEST_PGVECTOR", (9, 0), "pgvector 0.8.6 is too old."),
        ("OLDEST_NEO4J", (9999, 0), "is too old."),
        ("OLDEST_VALKEY", (99, 0), "is too old."),
    ],
)
def test_a_wrong_version(
    migrated: dict[str, str], monkeypatch: pytest.MonkeyPatch, floor: str, value: Any, text: str
) -> None:
    """Each server and pgvector has a floor; here it is raised above the servers at hand."""
    monkeypatch.setattr(servers, floor, value)

    found = troubles(migrated)

    assert found
    assert all(text in said and "or newer" in mend for _, said, mend in found)


def test_a_missing_extension(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real Postgres without pgvector's files."""
    package = postgres._package()
    copy = home / "wheel" / package.name
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.parent / name, copy.parent / name, symlinks=True)
    (copy / "pginstall" / "share" / "extension" / "vector.control").unlink()
    monkeypatch.setattr(postgres, "_package", lambda: copy)
    folder = home / "stack"
    with LocalStack(settings_for(folder), servers={"postgres"}, workers=False) as stack:
        url = shown(stack.settings.postgres_url)
        found = troubles({"IMEM_HOME": str(folder), "IMEM_POSTGRES_URL": url})

    assert ("postgres", "The extension pgvector is missing.", "Install pgvector 0.8 or newer on that server.") in found


@pytest.mark.parametrize(
    ("variable", "about"),
    [
        ("IMEM_POSTGRES_URL", "postgres"),
        ("IMEM_POSTGRES_CURATOR_URL", "postgres"),
        ("IMEM_POSTGRES_PIPELINE_URL", "postgres"),
        ("IMEM_POSTGRES_ADMIN_URL", "postgres"),
        ("IMEM_NEO4J_PASSWORD", "neo4j"),
        ("IMEM_VALKEY_DURABLE_URL", "valkey-durable"),
    ],
)
def test_a_bad_password(migrated: dict[str, str], variable: str, about: str) -> None:
    """The finding names the variable to correct, and shows no password."""
    if variable.endswith("_URL"):
        parts = urlsplit(migrated[variable])
        wrong = urlunsplit(parts._replace(netloc=f"{parts.username or ''}:hunter2@{parts.hostname}:{parts.port}"))
    else:
        wrong = "hunter2hunter2"

    text, mend = only(troubles({**migrated, variable: wrong}), about)

    assert variable in mend
    assert "hunter2" not in text + mend


def test_pipelines_without_a_role_of_their_own(migrated: dict[str, str]) -> None:
    """None is named; the application's own, which `imem migrate` refuses; one without rights; one that has too many."""
    without = {name: text for name, text in migrated.items() if name != "IMEM_POSTGRES_PIPELINE_URL"}
    text, mend = only(troubles(without), "postgres")
    assert text.startswith("IMEM_POSTGRES_PIPELINE_URL is not set")
    assert "CREATE ROLE imem_pipelines" in mend
    with pytest.raises(SettingsError, match="CREATE ROLE imem_pipelines"):
        migrate(Settings.read(without))

    same = {**migrated, "IMEM_POSTGRES_PIPELINE_URL": migrated["IMEM_POSTGRES_URL"]}
    text, mend = only(troubles(same), "postgres")
    assert (text, mend) == ("The pipelines' role may not write scores.", "Run `imem migrate` as the owner.")
    with pytest.raises(SettingsError, match="name the same role"):
        migrate(Settings.read(same))

    swapped = {**migrated, "IMEM_POSTGRES_URL": migrated["IMEM_POSTGRES_PIPELINE_URL"]}
    text, mend = only(troubles(swapped), "postgres")
    assert text == "Our role may write scores itself, as pipelines alone should."
    assert "IMEM_POSTGRES_PIPELINE_URL" in mend


def test_curators_without_a_role_of_their_own(migrated: dict[str, str]) -> None:
    """None is named though the actor is one; the application's, which `imem migrate` refuses; the two swapped."""
    without = {name: text for name, text in migrated.items() if name != "IMEM_POSTGRES_CURATOR_URL"}
    text, mend = only(troubles(without), "postgres")
    assert text == "IMEM_POSTGRES_CURATOR_URL is not set: local can neither import nor settle claims."
    assert "CREATE ROLE imem_curators" in mend
    assert troubles({**without, "IMEM_ROLE": "agent", "IMEM_MAY_IMPORT": "false"}) == []

    same = {**migrated, "IMEM_POSTGRES_CURATOR_URL": migrated["IMEM_POSTGRES_URL"]}
    text, mend = only(troubles(same), "postgres")
    assert (text, mend) == ("The curators' role may not settle claims.", "Run `imem migrate` as the owner.")
    with pytest.raises(SettingsError, match="agents could settle their own claims"):
        migrate(Settings.read(same))

    swapped = {**migrated, "IMEM_POSTGRES_URL": migrated["IMEM_POSTGRES_CURATOR_URL"]}
    text, mend = only(troubles(swapped), "postgres")
    assert text == "Our role may settle claims itself, as curators alone should."
    assert "IMEM_POSTGRES_CURATOR_URL" in mend


@pytest.mark.parametrize(
    ("variable", "url", "about"),
    [
        ("IMEM_POSTGRES_URL", "postgresql://u:hunter2@127.0.0.1:1/imem", "postgres"),
        ("IMEM_NEO4J_URL", "bolt://127.0.0.1:1", "neo4j"),
        ("IMEM_VALKEY_CACHE_URL", "redis://:hunter2@127.0.0.1:1/0", "valkey-cache"),
    ],
)
def test_a_server_that_is_down(migrated: dict[str, str], variable: str, url: str, about: str) -> None:
    """Where it was looked for is said."""
    text, mend = only(troubles({**migrated, variable: url}), about)

    assert text.startswith("127.0.0.1:1 cannot be reached.")
    assert "Start it, or correct its URL" in mend


@pytest.mark.parametrize(("seconds", "words"), [(300, "300 s behind"), (-300, "300 s ahead of")])
def test_clock_skew(migrated: dict[str, str], seconds: int, words: str) -> None:
    """Every server's clock is compared with ours, here set wrong on purpose."""
    clock = ManualClock(SystemClock().now() + timedelta(seconds=seconds))
    servers = {"postgres", "neo4j", "valkey-working", "valkey-durable", "valkey-cache"}

    found = [(about, text, mend) for about, text, mend in troubles(migrated, clock) if "clock" in text]

    assert {about for about, _, _ in found} == servers
    for _, text, mend in found:
        assert abs(int(text.split()[3]) - abs(seconds)) <= 30
        assert text.split()[5] == words.split()[2]
        assert "NTP" in mend


def test_a_full_disk(migrated: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real small disk where we may mount one, else one that says that it is full."""
    if may_mount():
        with small_disk(home / "disk", 4) as disk:
            found = troubles({**migrated, "IMEM_HOME": str(disk)})
    else:
        monkeypatch.setattr("imem.local.doctor.checks.free_bytes", lambda _path: 4_000_000)
        found = troubles({**migrated, "IMEM_HOME": str(home)})

    text, mend = only(found, "disk")
    assert "The disk is full: 0.0 GB free" in text
    assert "Free some space" in mend


def test_open_permissions(migrated: dict[str, str], home: Path) -> None:
    """Passwords that others can read; the mend is the command."""
    secrets = home / "secrets.json"
    secrets.write_text("{}")
    secrets.chmod(0o644)

    text, mend = only(troubles({**migrated, "IMEM_HOME": str(home)}), "permissions")

    assert text == f"Other users can read {secrets}."
    assert mend == f"chmod 600 {secrets}"


def test_an_unknown_setting(migrated: dict[str, str]) -> None:
    """A misspelt variable is named."""
    text, _ = only(troubles({**migrated, "IMEM_HOEM": "/x"}), "settings")

    assert "IMEM_HOEM" in text


def test_an_application_that_is_the_owner(migrated: dict[str, str]) -> None:
    """It works, but nothing keeps it from altering the audit."""
    text, mend = only(troubles({**migrated, "IMEM_POSTGRES_URL": migrated["IMEM_POSTGRES_ADMIN_URL"]}), "postgres")

    assert "owner" in text
    assert "IMEM_POSTGRES_ADMIN_URL" in mend


def test_events_that_the_graph_does_not_take(migrated: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead one is named with its reason, and a long wait is said; both are weak, for nothing is lost."""
    monkeypatch.setattr(servers, "LONGEST_WAIT_S", -1.0)
    with psycopg.connect(migrated["IMEM_POSTGRES_ADMIN_URL"], autocommit=True) as owner:
        appended = """
            INSERT INTO event (event_id, kind, record_key, actor, actor_role, imported, agent_seq, occurred_at,
                               known_at, recorded_at, order_key, payload, payload_hash)
            SELECT gen_random_uuid(), 'record.Agent', 'a' || n, 'doctor', 'agent', false, n, at, at, at,
                   n::text, '{}', sha256('')
            FROM generate_series(1, 2) AS n, LATERAL (SELECT now() - (n - 1) * interval '1 day') AS since (at)
            RETURNING position"""
        first, second = (row[0] for row in owner.execute(appended).fetchall())
        owner.execute("INSERT INTO delivery (position, actor, tier) VALUES (%s, 'x', 3)", (first,))
        dead = "INSERT INTO delivery (position, actor, tier, state, error) VALUES (%s, 'x', 3, 'dead', 'no such key')"
        owner.execute(dead, (second,))

        found = [(text, mend) for about, text, mend in troubles(migrated) if about == "events"]
        owner.execute("UPDATE delivery SET state = 'applied' WHERE actor = 'x'")

    assert [text for text, _ in found] == [
        f"Refused by the graph for good: 1 (event {second} first: no such key).",
        "Waiting for the graph: 1, the oldest for 0 minutes.",  # The dead one has not waited for a day.
    ]
    assert "imem sync replay --all" in found[0][1]


def test_a_graph_that_is_not_this_journals(migrated: dict[str, str]) -> None:
    """As beside a restored dump; it is no longer said that all is well."""
    with graph(migrated) as driver:
        driver.execute_query("CREATE (:AppliedEvent {event_id: 'of another dump', position: 7})")
    try:
        text, mend = only(troubles(migrated), "graph")
    finally:
        emptied(migrated)

    assert text == "The graph holds events that the journal does not know, as after an older dump was restored."
    assert "`imem sync status`" in mend
    (after,) = (one for one in checks.examine(migrated) if one.about == "graph")
    assert "does not know" not in after.text


def test_a_writer_that_does_not_end(migrated: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named with its process, and no longer when it has ended; who only reads is not meant."""
    monkeypatch.setattr(servers, "LONGEST_OPEN_S", 0.0)
    with psycopg.connect(migrated["IMEM_POSTGRES_URL"], application_name="sleepy") as writer:
        writer.execute("SELECT 1")
        assert "writers" not in {about for about, _, _ in troubles(migrated)}
        writer.execute("INSERT INTO workflow.alert_over (about) VALUES (gen_random_uuid())")

        text, mend = only(troubles(migrated), "writers")
        pid = writer.info.backend_pid
        writer.rollback()

    assert text.startswith(f"A write of process {pid} (sleepy, role imem_app) has been open for 0 minutes")
    assert f"pg_terminate_backend({pid})" in mend
    assert "writers" not in {about for about, _, _ in troubles(migrated)}


def test_an_owner_who_cannot_see_open_writers(migrated: dict[str, str]) -> None:
    """On a server where the owner is no superuser, the horizon would ignore the application's open writes."""
    keeper = sql.Identifier(f"keeper_{uuid.uuid4().hex[:8]}")
    with psycopg.connect(migrated["IMEM_POSTGRES_ADMIN_URL"], autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {}").format(keeper))
        try:
            owner.execute(sql.SQL("ALTER FUNCTION imem_safe_horizon() OWNER TO {}").format(keeper))
            text, mend = only(troubles(migrated), "postgres")
            owner.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(keeper))
            after = troubles(migrated)
        finally:
            owner.execute("ALTER FUNCTION imem_safe_horizon() OWNER TO CURRENT_USER")
            owner.execute(sql.SQL("DROP ROLE {}").format(keeper))

    assert "is not shown when other roles' transactions began" in text
    assert "GRANT pg_read_all_stats TO keeper_" in mend
    assert "postgres" not in {about for about, _, _ in after}


def test_an_audit_to_which_nothing_can_be_added(migrated: dict[str, str]) -> None:
    with no_audit(migrated["IMEM_POSTGRES_ADMIN_URL"]):
        text, mend = only(troubles(migrated), "audit")
    assert text == "No row can be added to the audit, so that every write is refused: no audit."
    assert "memory_access_audit" in mend
    assert "audit" not in {about for about, _, _ in troubles(migrated)}


def test_a_stack_that_is_down_and_jars_that_are_not_here(home: Path, tmp_path: Path) -> None:
    """What the first look on a new machine says."""
    found = troubles({"IMEM_HOME": str(home), "IMEM_CACHE_DIR": str(tmp_path)})

    assert "Start it with `imem up`" in only(found, "stack")[1]
    assert "The first use fetches it: 140 MB." in only(found, "jars")[1]
    assert "The first use fetches it: 25 MB." in only(found, "encoder")[1]


def test_a_child_that_is_gone_and_a_port_without_a_server(home: Path) -> None:
    """Read from the state file and from the processes themselves."""
    ours = me()
    children = {
        "gone": ChildState("ready", ours.pid, ours.start_time + 1, None),
        "deaf": ChildState("ready", ours.pid, ours.start_time, 1),
        "limping": ChildState("restarting", restarts=3, note="ended with signal 9"),
    }
    state.write(Folders(home), StackState(ours, ready=True, children=children))

    found = {
        about: (text, mend) for about, text, mend in troubles({"IMEM_HOME": str(home)}) if about in {"gone", "deaf"}
    }

    assert "has ended" in found["gone"][0]
    assert "Nothing listens on port 1" in found["deaf"][0]
    limping = [text for about, text, _ in troubles({"IMEM_HOME": str(home)}) if about == "limping"]
    assert limping == ["limping is restarting: ended with signal 9.", "limping had to be started again 3 times."]


def test_a_cache_that_keeps_too_much_and_a_store_that_forgets(migrated: dict[str, str]) -> None:
    """The three roles want different things, and URLs are easily exchanged."""
    swapped = {
        **migrated,
        "IMEM_VALKEY_CACHE_URL": migrated["IMEM_VALKEY_DURABLE_URL"],
        "IMEM_VALKEY_DURABLE_URL": migrated["IMEM_VALKEY_CACHE_URL"],
    }

    found = troubles(swapped)

    assert [text for about, text, _ in found if about == "valkey-durable"] == [
        "It forgets what it must keep (maxmemory-policy allkeys-lru).",
        "It loses everything when it restarts.",
    ]
    assert only(found, "valkey-cache")[1] == "Set maxmemory and maxmemory-policy allkeys-lru."


@pytest.mark.parametrize("role", ["working", "durable"])
def test_a_store_that_leaves_writing_to_the_system(migrated: dict[str, str], role: str) -> None:
    """It appends every write, and a power failure would lose far more than the second that is promised."""
    with redis.Redis.from_url(migrated[f"IMEM_VALKEY_{role.upper()}_URL"], decode_responses=True) as client:
        assert f"valkey-{role}" not in {about for about, _, _ in troubles(migrated)}
        client.config_set("appendfsync", "no")
        try:
            text, mend = only(troubles(migrated), f"valkey-{role}")
        finally:
            client.config_set("appendfsync", "everysec")
    assert text.endswith("(appendfsync no).")
    assert mend == "Set appendfsync everysec."


def test_findings_are_json_too(home: Path) -> None:
    """For whoever reads them by program."""
    found = json.loads(json.dumps([asdict(one) for one in checks.examine({"IMEM_HOME": str(home)})]))
    assert {"about", "level", "text", "mend"} == set(found[0])
