"""Access control: the whole table, the gateway's denials, and an audit that nobody can go around."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql as composed

from imem import Memory
from imem.jobs.journal_pipelines import UPKEEP
from imem.journal.actors import AUTHORIZATION, Action, Actor, Resource, ResourceType, allowed
from imem.journal.deadline import Deadline
from imem.journal.errors import PermissionDenied
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.postgres.migrations import migrate
from imem.journal.settings import Role
from imem.journal.upkeep import make_audit_partitions
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.model import Company
from imem.workers.celery_app import make_app
from tests.imem.ingest.conftest import LoadHarness
from tests.servers import as_curators

NOBODY = ""
DENIAL = "SELECT imem_audit_v1('x', 'agent', 'journal', NULL, 'append', false, NULL, '{}', 'denied')"
"""Writes an audit row."""

OWN, ALL = "own", "all"
WORKING, CACHE, GRAPH, PATTERNS, CREDIBILITY, AUDIT, JOURNAL, WORKFLOW, SYNC, MEMORIES, TRADES, REFLECTIONS, REVIEWS = (
    "working_memory", "agent_cache", "graph", "patterns", "credibility", "audit", "journal", "workflow", "sync",
    "memories", "trades", "reflections", "reviews",
)  # fmt: skip
LESSONS = "lessons"

TABLE: dict[str, dict[str, dict[str, str]]] = {
    "agent": {
        WORKING: {"read": OWN, "write": OWN},
        CACHE: {"read": OWN, "write": OWN},
        GRAPH: {"read": ALL},
        PATTERNS: {"read": ALL, "propose": ALL},
        CREDIBILITY: {"read": OWN},
        JOURNAL: {"append": OWN},
        WORKFLOW: {"read": OWN, "write": OWN, "delete": OWN},
        SYNC: {"read": ALL, "synchronize": OWN},
        MEMORIES: {"read": OWN, "write": OWN, "delete": OWN},
        TRADES: {"read": OWN, "write": OWN},
        REFLECTIONS: {"read": OWN, "write": OWN},
    },
    "knowledge_base_agent": {
        WORKING: {"read": OWN, "write": OWN},
        CACHE: {"read": OWN, "write": OWN},
        GRAPH: {"read": ALL, "write": ALL},
        PATTERNS: {"read": ALL, "propose": ALL, "validate": ALL, "activate": ALL},
        CREDIBILITY: {"read": ALL},
        AUDIT: {"read": ALL},
        JOURNAL: {"append": ALL, "import": ALL, "append_patterns": ALL},
        WORKFLOW: {"read": OWN, "write": OWN, "delete": OWN},
        SYNC: {"read": ALL, "synchronize": ALL},
        MEMORIES: {"read": ALL, "write": ALL, "delete": ALL},
        TRADES: {"read": ALL, "write": ALL},
        REFLECTIONS: {"read": ALL, "write": ALL},
    },
    "debate_facilitator": {
        WORKING: {"read": OWN, "write": OWN},
        CACHE: {"read": ALL},
        GRAPH: {"read": ALL},
        PATTERNS: {"read": ALL},
        CREDIBILITY: {"read": ALL},
        AUDIT: {"read": ALL},
        JOURNAL: {"append_debates": ALL},
        WORKFLOW: {"read": OWN, "write": OWN, "delete": OWN},
        SYNC: {"read": ALL, "synchronize": ALL},
        MEMORIES: {"read": OWN, "write": OWN, "delete": OWN},
    },
    "learning_engine": {
        CACHE: {"read": ALL},
        GRAPH: {"read": ALL, "write": ALL},
        PATTERNS: {"read": ALL, "validate": ALL, "deprecate": ALL},
        CREDIBILITY: {"read": ALL, "write": ALL},
        AUDIT: {"read": ALL},
        JOURNAL: {
            "append": ALL, "import": ALL, "append_patterns": ALL, "append_credibility": ALL, "append_postmortem": ALL,
        },
        SYNC: {"read": ALL},
        MEMORIES: {"read": ALL},
        TRADES: {"read": ALL},
        REFLECTIONS: {"read": ALL},
        LESSONS: {"read": ALL},
    },
    "human_admin": {
        WORKING: {"read": ALL},
        CACHE: {"read": ALL},
        GRAPH: {"read": ALL, "write": ALL, "delete": ALL},
        PATTERNS: {
            "read": ALL, "propose": ALL, "validate": ALL, "approve": ALL, "activate": ALL, "deprecate": ALL,
            "archive": ALL,
        },
        CREDIBILITY: {"read": ALL, "write": ALL, "approve": ALL},
        AUDIT: {"read": ALL, "drop_expired": ALL},
        JOURNAL: {"append": ALL, "import": ALL, "append_gates": ALL, "append_postmortem": ALL, "replay": ALL},
        WORKFLOW: {
            "read": ALL, "delete": ALL, "pause": ALL, "resume": ALL, "extend": ALL, "cancel": ALL, "acknowledge": ALL,
        },
        SYNC: {"read": ALL, "synchronize": ALL},
        MEMORIES: {"read": ALL, "write": ALL, "delete": ALL, "overrule": ALL},
        TRADES: {"read": ALL},
        REFLECTIONS: {"read": ALL, "write": ALL, "approve": ALL},
        REVIEWS: {"read": ALL, "write": ALL, "answer": ALL},
        LESSONS: {"read": ALL},
    },
    "reviewer": {
        GRAPH: {"read": ALL},
        PATTERNS: {"read": ALL},
        CREDIBILITY: {"read": ALL},
        SYNC: {"read": ALL},
        MEMORIES: {"read": OWN},
        REVIEWS: {"read": ALL, "answer": ALL},
        LESSONS: {"read": ALL},
    },
    "reader": {
        GRAPH: {"read": ALL},
        PATTERNS: {"read": ALL},
        CREDIBILITY: {"read": ALL},
        SYNC: {"read": ALL},
        MEMORIES: {"read": OWN},
    },
}  # fmt: skip
"""The specification's table, written out by hand: role → resource → action → whose. What is not here is denied."""

CELLS = list(itertools.product(Role, ResourceType, Action))


def expected(role: Role, resource: ResourceType, action: Action, owner: str) -> bool:
    scope = TABLE[role.value].get(resource.value, {}).get(action.value)
    return scope == ALL or (scope == OWN and owner == "me")


@pytest.mark.spec("AC-1")
def test_every_cell_of_the_table() -> None:
    """Each role, resource and action, for what is one's own, another's and nobody's, is allowed as the table says."""
    wrong = [
        (role, resource, action, owner)
        for role, resource, action in CELLS
        for owner in ("me", "other", NOBODY)
        if allowed(Actor("me", role, may_import=True), Resource(resource, owner=owner), action)
        != expected(role, resource, action, owner)
    ]

    assert not wrong
    assert {(role, resource) for role, resource, _ in AUTHORIZATION} == {
        (Role(role), ResourceType(resource)) for role, resources in TABLE.items() for resource in resources
    }


@pytest.mark.spec("AC-1")
def test_importing_takes_the_right_beside_the_cell() -> None:
    """No role imports without the right."""
    for role in Role:
        assert not allowed(
            Actor("me", role, may_import=False), Resource(ResourceType.JOURNAL, owner="me"), Action.IMPORT
        )


@pytest_asyncio.fixture
async def database(harness: LoadHarness) -> AsyncIterator[Database]:
    opened = Database(as_curators(harness.settings, harness.url), size=4)
    yield opened
    await opened.close()


@pytest.mark.spec("AC-1")
async def test_the_gateway_keeps_the_table_and_records_every_denial(harness: LoadHarness, database: Database) -> None:
    """Through the gateway each cell does the same: allowed work is done, denied work is not and leaves one row."""
    done: list[tuple[Any, ...]] = []
    denied = 0
    for (role, resource, action), owner in itertools.product(CELLS, ("me", "other")):

        async def work(cell: tuple[Any, ...] = (role, resource, action, owner)) -> None:
            done.append(cell)

        gateway = Gateway(database, Actor("me", role, may_import=True))
        try:
            await gateway.authorize_and_execute(Resource(resource, "x", owner), action, work, deadline=Deadline.never())
        except PermissionDenied:
            denied += 1

    assert done == [
        (*cell, owner) for cell, owner in itertools.product(CELLS, ("me", "other")) if expected(*cell, owner)
    ]
    rows = harness.rows("SELECT count(*), count(DISTINCT actor_role) FROM memory_access_audit WHERE NOT authorized")
    assert rows == [(denied, len(Role))]


@pytest.mark.spec("AC-1")
@pytest.mark.parametrize("role", list(Role))
async def test_appending_by_role(harness: LoadHarness, database: Database, role: Role) -> None:
    """Each role appends and imports as the table's row `journal` says; what is denied is not written."""
    gateway = Gateway(database, Actor("me", role, may_import=True))
    told = {}
    for number, (owner, known_at) in enumerate(itertools.product(("me", "other"), (None, "2026-06-01T10:00:00Z"))):
        text = f'{{"record": "Company", "core": {{"ticker": "T{number}"}}, "known_at": "{known_at}"}}'
        line = parse_line(text.replace('"None"', "null").encode(), needs_known_at=False)
        try:
            await gateway.append([entry_of(line)], owner=owner, deadline=Deadline.never())
        except PermissionDenied:
            told[owner, known_at is not None] = False
        else:
            told[owner, known_at is not None] = True

    row = TABLE[role.value].get(JOURNAL, {})
    assert told == {
        (owner, imports): (row.get("append") == ALL or (row.get("append") == OWN and owner == "me"))
        and (not imports or row.get("import") == ALL)
        for owner in ("me", "other")
        for imports in (False, True)
    }
    assert harness.count("event") == sum(told.values())
    assert harness.rows("SELECT count(*) FROM memory_access_audit WHERE NOT authorized") == [(4 - sum(told.values()),)]


@pytest.mark.parametrize("command", ["rebuild", "prune"])
def test_archives_are_rebuilt_and_pruned_by_people_alone(harness: LoadHarness, command: str) -> None:
    """Both commands take the pipelines' login, and ask for the actor's right all the same."""
    denied = harness.as_role(Role.LEARNING_ENGINE, "engine").run("archive", command)
    assert denied.returncode == 1
    assert "may not archive" in denied.stderr
    query = "SELECT actor_id, action, resource_type FROM memory_access_audit WHERE NOT authorized"
    assert harness.rows(query) == [("engine", "archive", "patterns")]
    done = harness.as_role(Role.HUMAN_ADMIN, "kate").run("archive", command)
    assert done.returncode == 0, done.stderr


INSERT = """
    INSERT INTO {} (actor_id, actor_role, resource_type, action, authorized, outcome)
    VALUES ('x', 'agent', 'journal', 'append', true, 'recorded')
"""


def _audit_tables(harness: LoadHarness) -> list[str]:
    rows = harness.rows(
        "SELECT c.relname FROM pg_class AS c WHERE c.relname LIKE 'memory_access_audit%%' AND c.relkind IN ('r', 'p')"
        " ORDER BY c.relname"
    )
    return [name for (name,) in rows]


@pytest.mark.spec("AC-7")
async def test_the_audit_cannot_be_altered(harness: LoadHarness) -> None:
    """Neither the application's role nor the owner changes, deletes or empties audit rows, partitions included."""
    async with Memory.open(harness.settings) as memory:
        await memory.record_company(Company(ticker="MU"))
    before = harness.rows("SELECT * FROM memory_access_audit")
    tables = _audit_tables(harness)
    attempts = [
        composed.SQL(text).format(composed.Identifier(table))
        for table in (*tables, "event", "record_history")
        for text in (
            "UPDATE {} SET kind = 'x'" if table in {"event", "record_history"} else "UPDATE {} SET actor_id = 'x'",
            "DELETE FROM {}",
            "TRUNCATE {} CASCADE",
        )
    ]
    as_application = [
        *attempts,
        *(
            composed.SQL(text).format(composed.Identifier(table))
            for table in tables
            for text in (
                INSERT,
                "ALTER TABLE {} DISABLE TRIGGER ALL",
                "DROP TABLE {}",
                "DROP TRIGGER append_only ON {}",
            )
        ),
    ]
    for url, statements in ((harness.url, as_application), (harness.admin_url, attempts)):
        with psycopg.connect(url, autocommit=True) as conn:
            for statement in statements:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(statement)

    assert len(tables) >= 6  # the parent, the default, and four months
    assert harness.rows("SELECT * FROM memory_access_audit") == before


@pytest.mark.spec("AC-7")
def test_later_partitions_are_append_only_too(harness: LoadHarness) -> None:
    """A month's partition that is made later is guarded from its beginning."""
    with psycopg.connect(harness.admin_url, autocommit=True) as conn:
        conn.execute("SET imem.clock_shift = '200 days'")
        assert conn.execute("SELECT imem_audit_partitions()").fetchone() == (4,)
        unguarded = conn.execute(
            "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = 'memory_access_audit'::regclass AND NOT EXISTS ("
            " SELECT FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND t.tgname = 'append_only' AND t.tgenabled = 'O')"
        ).fetchall()
    assert unguarded == []


@pytest.mark.spec("AC-7")
def test_only_the_owner_shifts_the_clock(harness: LoadHarness) -> None:
    """The application cannot date its events and audit rows itself, not even through the owner's functions."""
    away = "SELECT abs(extract(epoch FROM imem_now() - clock_timestamp())) > 60"
    for url, shifted in ((harness.admin_url, True), (harness.url, False)):
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("SET imem.clock_shift = '-40 days'")
            assert conn.execute(away).fetchone() == (shifted,)
            conn.execute(DENIAL)

    days = "SELECT (clock_timestamp() - timestamp) > interval '39 days' FROM memory_access_audit ORDER BY id"
    assert harness.rows(days) == [(True,), (False,)]


@pytest.mark.spec("AC-7")
async def test_audit_rows_that_came_before_their_partition_are_moved_into_it(harness: LoadHarness) -> None:
    """After months without upkeep nothing stays in the default partition, nothing is lost, and all is guarded."""
    with psycopg.connect(harness.admin_url, autocommit=True) as conn:
        for days in (150, 160, 200):
            conn.execute("SELECT set_config('imem.clock_shift', %s, false)", (f"{days} days",))
            conn.execute(DENIAL)
        before = harness.rows("SELECT * FROM memory_access_audit ORDER BY id")
        assert harness.count("memory_access_audit_default") == 3

        conn.execute("SELECT imem_audit_partitions()")
        assert conn.execute("SELECT imem_audit_partitions()").fetchone() == (0,)

    assert harness.count("memory_access_audit_default") == 0
    assert harness.rows("SELECT * FROM memory_access_audit ORDER BY id") == before
    for table in _audit_tables(harness):
        with psycopg.connect(harness.admin_url) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(composed.SQL("DELETE FROM {}").format(composed.Identifier(table)))


@pytest.mark.parametrize("way", ["migrate", "upkeep"])
async def test_missing_audit_partitions_are_made_by_migrating_and_by_the_daily_task(
    harness: LoadHarness, way: str
) -> None:
    """The application's role may make no table; its worker has this one function for it."""
    tables = _audit_tables(harness)
    newest = max(table for table in tables if table != "memory_access_audit_default")
    with psycopg.connect(harness.admin_url, autocommit=True) as conn:
        conn.execute(composed.SQL("DROP TABLE {}").format(composed.Identifier(newest)))
    assert len(_audit_tables(harness)) == len(tables) - 1

    if way == "migrate":
        assert migrate(harness.admin_url, application_role="imem_app") == []
    else:
        database = Database(harness.url)
        try:
            assert await make_audit_partitions(database, deadline=Deadline.after_ms(20_000)) == 1
            assert await make_audit_partitions(database, deadline=Deadline.after_ms(20_000)) == 0
        finally:
            await database.close()

    assert _audit_tables(harness) == tables
    assert make_app(harness.settings).conf.beat_schedule[UPKEEP.name]["task"] == UPKEEP.name
