"""Migrations of both stores: from empty, again, at once, resumed, changed, newer."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import LiteralString
from urllib.parse import urlsplit, urlunsplit

import neo4j
import psycopg
import pytest
from psycopg import sql

import imem.journal.postgres.migrations
from imem.journal.errors import GraphUnavailable, PostgresUnavailable, SchemaError
from imem.journal.postgres.migrations import Migration, migrations_in, postgres_migrations
from imem.journal.statements import load, root_of
from imem.kg import migrations
from imem.kg.kinds.catalog import KINDS
from tests.conftest import Stack
from tests.kg.queries.conftest import Address, wipe

pytestmark = pytest.mark.spec("GR-13")

CYPHER = root_of("kg", "cypher") / "schema"
SQL = root_of("journal", "sql")
SCHEMA = "sql/schema"


def names(folder: Path) -> list[str]:
    return [one.name for one in migrations_in(folder)]


def digests(found: Sequence[Migration]) -> dict[int, str]:
    return {one.number: one.sha256 for one in found}


# The graph


@pytest.fixture
def bare(address: Address, connection: neo4j.Driver) -> Iterator[neo4j.Driver]:
    """A graph without content and schema; it gets its schema back."""
    _strip(connection)
    yield connection
    _strip(connection)
    migrations.migrate(*address)


def _strip(driver: neo4j.Driver) -> None:
    wipe(driver)
    driver.execute_query("MATCH (v:SchemaVersion) DELETE v", database_="neo4j")
    for show, drop in (
        ("SHOW CONSTRAINTS YIELD name RETURN name", "DROP CONSTRAINT $name"),
        ("SHOW INDEXES YIELD name, type WHERE type <> 'LOOKUP' RETURN name", "DROP INDEX $name"),
    ):
        shown, _, _ = driver.execute_query(show, database_="neo4j")
        for row in shown:
            driver.execute_query(drop, {"name": row["name"]}, database_="neo4j")


def schema(driver: neo4j.Driver) -> list[set[tuple[str, ...]]]:
    """Return constraints and indexes, as they would have to be made again."""
    constraints, _, _ = driver.execute_query(
        "SHOW CONSTRAINTS YIELD name, type, labelsOrTypes, properties", database_="neo4j"
    )
    indexes, _, _ = driver.execute_query(
        "SHOW INDEXES YIELD name, type, labelsOrTypes, properties, state, owningConstraint", database_="neo4j"
    )
    return [{tuple(map(str, row.values())) for row in rows} for rows in (constraints, indexes)]


def test_the_graph_migrates_from_empty_and_a_second_time_changes_nothing(address: Address, bare: neo4j.Driver) -> None:
    assert migrations.applied_migrations(*address) == {}
    assert migrations.migrate(*address) == names(CYPHER)
    first = schema(bare)
    assert migrations.applied_migrations(*address) == digests(migrations_in(CYPHER))
    recorded, _, _ = bare.execute_query("MATCH (v:SchemaVersion) RETURN v", database_="neo4j")
    assert migrations.migrate(*address) == []
    assert schema(bare) == first
    again, _, _ = bare.execute_query("MATCH (v:SchemaVersion) RETURN v", database_="neo4j")
    assert [dict(row["v"]) for row in again] == [dict(row["v"]) for row in recorded]


def test_every_key_is_unique_and_every_index_answers(driver: neo4j.Driver) -> None:
    """One constraint for each kind's key, and one over companies and markets together."""
    constraints, _, _ = driver.execute_query(
        "SHOW CONSTRAINTS YIELD type, labelsOrTypes, properties", database_="neo4j"
    )
    found = {(row["labelsOrTypes"][0], *row["properties"]) for row in constraints}
    assert {row["type"] for row in constraints} <= {"UNIQUENESS", "NODE_PROPERTY_UNIQUENESS"}
    bookkeeping = {("AppliedEvent", "event_id"), ("SchemaVersion", "number")}
    assert found - bookkeeping == {(info.label, info.key) for info in KINDS.values()} | {("Subject", "subject_id")}
    assert bookkeeping <= found
    states, _, _ = driver.execute_query("SHOW INDEXES YIELD name, state WHERE state <> 'ONLINE'", database_="neo4j")
    assert states == []


def test_range_indexes_stand_on_properties_that_exist(driver: neo4j.Driver) -> None:
    """A misspelt property would make an index that nothing ever fills."""
    rows, _, _ = driver.execute_query(
        "SHOW INDEXES YIELD type, labelsOrTypes, properties WHERE type IN ['RANGE', 'FULLTEXT']", database_="neo4j"
    )
    known = {"Subject": set(), "AppliedEvent": {"event_id"}, "SchemaVersion": {"number"}}
    for info in KINDS.values():
        properties = {"correction_known_at", "correction_recorded_at"}
        properties.update(*(part.properties for part in (info.core, *info.groups.values())))
        for label in (*info.labels, *info.labels_when):
            known[label] = known.get(label, set()) | properties
    for row in rows:
        for label in row["labelsOrTypes"]:
            assert set(row["properties"]) <= known[label], label


def test_two_processes_at_once_migrate_the_graph_once(address: Address, bare: neo4j.Driver) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(migrations.migrate, *address) for _ in range(2)]
        for run in runs:
            assert set(run.result()) <= set(names(CYPHER))
    rows, _, _ = bare.execute_query(
        "MATCH (v:SchemaVersion) RETURN v.number AS number, v.sha256 AS sha256 ORDER BY number", database_="neo4j"
    )
    assert [tuple(row.values()) for row in rows] == sorted(digests(migrations_in(CYPHER)).items())
    at_once = schema(bare)
    _strip(bare)
    migrations.migrate(*address)
    assert schema(bare) == at_once


def test_a_crash_between_two_statements_is_resumed(
    address: Address, bare: neo4j.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies before anything, in a file, before a file is recorded, in the next; another ends the same."""
    migrations.migrate(*address)
    whole = schema(bare)
    run = migrations._run
    first = len(migrations.statements_in(migrations_in(CYPHER)[0].text))

    def dying(left: int) -> Callable[..., list[neo4j.Record]]:
        def step(driver: neo4j.Driver, text: LiteralString, **parameters: object) -> list[neo4j.Record]:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return run(driver, text, **parameters)

        return step

    # Before the first file run two statements: what was applied, and where to record it.
    for survived, recorded in ((2, 0), (2 + first // 2, 0), (2 + first, 0), (2 + first + 5, 1)):
        _strip(bare)
        monkeypatch.setattr(migrations, "_run", dying(survived))
        with pytest.raises(KeyboardInterrupt):
            migrations.migrate(*address)
        monkeypatch.setattr(migrations, "_run", run)
        assert len(migrations.applied_migrations(*address)) == recorded
        assert migrations.migrate(*address) == names(CYPHER)[recorded:]
        assert schema(bare) == whole


@pytest.fixture
def edited(tmp_path: Path) -> Callable[[Path], Path]:
    """Give a copy of a folder of migrations, to be changed."""

    def copy(folder: Path) -> Path:
        return Path(shutil.copytree(folder, tmp_path / folder.name))

    return copy


def test_the_graph_refuses_a_file_that_was_changed(address: Address, edited: Callable[[Path], Path]) -> None:
    folder = edited(CYPHER)
    with (folder / "002_indexes.cypher").open("a") as file:
        file.write("// One more word.\n")
    with pytest.raises(SchemaError, match=r"002_indexes\.cypher was changed after it was applied"):
        migrations.migrate(*address, folder=folder)


def test_the_graph_refuses_a_program_older_than_its_schema(address: Address, edited: Callable[[Path], Path]) -> None:
    folder = edited(CYPHER)
    *known, newest = sorted(folder.glob("*.cypher"))
    newest.unlink()
    with pytest.raises(SchemaError, match=f"newer than this program, which knows {len(known)}"):
        migrations.migrate(*address, folder=folder)


def test_a_later_migration_is_applied_alone(
    address: Address, bare: neo4j.Driver, edited: Callable[[Path], Path]
) -> None:
    folder = edited(CYPHER)
    migrations.migrate(*address)
    later = folder / f"{len(list(folder.iterdir())) + 1:03}_more.cypher"
    later.write_text(
        "// A comment; with a semicolon.\nCREATE INDEX more_a IF NOT EXISTS FOR (n:Agent)\nON (n.a);\n"
        "CREATE INDEX more_b IF NOT EXISTS FOR (n:Agent) ON (n.b)"
    )
    assert migrations.migrate(*address, folder=folder) == [later.name]
    rows, _, _ = bare.execute_query(
        "SHOW INDEXES YIELD name WHERE name STARTS WITH 'more_' RETURN name ORDER BY name", database_="neo4j"
    )
    assert [row["name"] for row in rows] == ["more_a", "more_b"]


def test_content_that_breaks_a_constraint_is_named_and_the_rest_stays(address: Address, bare: neo4j.Driver) -> None:
    """The file is not recorded; once the content is mended, migrating ends as ever."""
    bare.execute_query("CREATE (:Agent {name: 'twice'}), (:Agent {name: 'twice'})", database_="neo4j")
    with pytest.raises(SchemaError, match=r"001_constraints\.cypher cannot be applied") as refused:
        migrations.migrate(*address)
    assert "rebuild" in refused.value.mend
    assert migrations.applied_migrations(*address) == {}
    wipe(bare)
    assert migrations.migrate(*address) == names(CYPHER)


def test_a_server_that_is_not_there_is_an_error_in_our_words(address: Address) -> None:
    with pytest.raises(GraphUnavailable, match="cannot be reached"):
        migrations.migrate("bolt://127.0.0.1:1", address.user, address.password)
    with pytest.raises(GraphUnavailable, match="refused the user or the password"):
        migrations.applied_migrations(address.url, address.user, "wrong-password")


def test_statements_end_with_a_semicolon_at_the_end_of_a_line() -> None:
    text = "// First; a comment.\nCREATE a;\n\nCREATE b {x: ';'} \nMORE b;  \n// The end;\n"
    assert migrations.statements_in(text) == ["CREATE a", "CREATE b {x: ';'} \nMORE b"]


# Postgres


@pytest.fixture
def database(stack: Stack) -> Iterator[str]:
    """Give the owner's URL of an empty database of the test's own."""
    assert stack.settings.postgres_admin_url is not None
    admin = stack.settings.postgres_admin_url.get_secret_value()
    name = f"migrations_{secrets.token_hex(4)}"
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield urlunsplit(urlsplit(admin)._replace(path=f"/{name}"))
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


CATALOGUE = """
    SELECT 'column' AS what, table_name, column_name, data_type, is_nullable, column_default
    FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL
    SELECT 'index', tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL
    SELECT 'function', proname, md5(prosrc), pg_get_function_identity_arguments(oid), '', '' FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace AND prokind = 'f'
    UNION ALL
    SELECT 'version', number::text, name, sha256, '', applied_at::text FROM schema_version
    ORDER BY 1, 2, 3, 4
"""


def catalogue(url: str) -> list[tuple[str, ...]]:
    with psycopg.connect(url) as conn:
        return conn.execute(CATALOGUE).fetchall()


@pytest.fixture
def later(edited: Callable[[Path], Path]) -> Path:
    """Give a copy of the program's SQL with a migration after the schema, as a later release has it."""
    folder = edited(SQL)
    (folder / "migrations").mkdir(exist_ok=True)
    (folder / "migrations" / "002_more.sql").write_text("CREATE TABLE more (n integer);\n")
    return folder


def test_postgres_migrates_from_empty_and_a_second_time_changes_nothing(database: str) -> None:
    assert imem.journal.postgres.migrations.applied_migrations(database) == {}
    assert imem.journal.postgres.migrations.migrate(database) == [SCHEMA]
    first = catalogue(database)
    assert imem.journal.postgres.migrations.applied_migrations(database) == digests(postgres_migrations())
    assert imem.journal.postgres.migrations.migrate(database) == []
    assert catalogue(database) == first


def test_two_processes_at_once_migrate_postgres_once(database: str, later: Path) -> None:
    """One applies all, the other waits and finds nothing left to do."""
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(imem.journal.postgres.migrations.migrate, database, folder=later) for _ in range(2)]
        results = sorted((run.result() for run in runs), key=len)
    assert results == [[], [SCHEMA, "002_more.sql"]]


def test_a_later_migration_is_applied_to_a_database_that_has_the_schema(database: str, later: Path) -> None:
    imem.journal.postgres.migrations.migrate(database)
    before = catalogue(database)
    assert imem.journal.postgres.migrations.migrate(database, folder=later) == ["002_more.sql"]
    assert imem.journal.postgres.migrations.applied_migrations(database) == digests(postgres_migrations(later))
    assert "more" in {row[1] for row in catalogue(database)}
    assert set(before) <= set(catalogue(database))


def test_a_file_that_fails_leaves_those_before_it_and_is_resumed(database: str, later: Path) -> None:
    file = later / "migrations" / "002_more.sql"
    file.write_text("CREATE TABLE more (n integer);\nSELECT 1 / 0;\n")
    with pytest.raises(Exception, match="Postgres refused a statement"):
        imem.journal.postgres.migrations.migrate(database, folder=later)
    assert imem.journal.postgres.migrations.applied_migrations(database) == digests(postgres_migrations())
    assert "more" not in {row[1] for row in catalogue(database)}
    file.write_text("CREATE TABLE more (n integer);\n")
    assert imem.journal.postgres.migrations.migrate(database, folder=later) == ["002_more.sql"]
    assert "more" in {row[1] for row in catalogue(database)}


def test_a_schema_that_fails_leaves_nothing(database: str, edited: Callable[[Path], Path]) -> None:
    folder = edited(SQL)
    (folder / "schema" / "99_broken.sql").write_text("SELECT 1 / 0;\n")
    with pytest.raises(Exception, match="Postgres refused a statement"):
        imem.journal.postgres.migrations.migrate(database, folder=folder)
    assert imem.journal.postgres.migrations.applied_migrations(database) == {}
    assert {row[1] for row in catalogue(database)} == {"schema_version"}
    assert imem.journal.postgres.migrations.migrate(database) == [SCHEMA]


def test_postgres_refuses_a_file_that_was_changed(database: str, later: Path) -> None:
    imem.journal.postgres.migrations.migrate(database, folder=later)
    with (later / "migrations" / "002_more.sql").open("a") as file:
        file.write("-- One more word.\n")
    before = catalogue(database)
    with pytest.raises(SchemaError, match=r"002_more\.sql was changed after it was applied"):
        imem.journal.postgres.migrations.migrate(database, folder=later)
    assert catalogue(database) == before


def test_postgres_refuses_a_schema_that_was_changed(database: str, edited: Callable[[Path], Path]) -> None:
    imem.journal.postgres.migrations.migrate(database)
    folder = edited(SQL)
    with max((folder / "schema").iterdir()).open("a") as file:
        file.write("-- One more word.\n")
    before = catalogue(database)
    with pytest.raises(SchemaError, match="or the files of sql/schema were changed"):
        imem.journal.postgres.migrations.migrate(database, folder=folder)
    assert catalogue(database) == before


def test_postgres_refuses_a_database_from_before_the_first_release(database: str) -> None:
    """It holds what migrations made that this program does not have: the error says what to do, and nothing changes."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(load(SQL / "queries", ".sql")["create_schema_version"].text)
        conn.execute(
            "INSERT INTO schema_version (number, name, sha256) VALUES"
            " (1, '001_journal.sql', repeat('a', 64)), (2, '002_append.sql', repeat('b', 64))"
        )
    before = catalogue(database)
    with pytest.raises(SchemaError, match="from before the first release") as refused:
        imem.journal.postgres.migrations.migrate(database)
    assert "Migrate a new database and load the data again" in refused.value.mend
    assert "imem down --purge" in refused.value.mend
    assert catalogue(database) == before


def test_postgres_refuses_a_program_older_than_its_schema(database: str, later: Path) -> None:
    imem.journal.postgres.migrations.migrate(database, folder=later)
    with pytest.raises(SchemaError, match="at version 2, newer than this program, which knows 1"):
        imem.journal.postgres.migrations.migrate(database)


def test_the_owner_cannot_be_reached(database: str) -> None:
    with pytest.raises(PostgresUnavailable):
        imem.journal.postgres.migrations.migrate(urlunsplit(urlsplit(database)._replace(netloc="nobody@127.0.0.1:1")))


# What both share


@pytest.mark.parametrize("wrong", ["3_short.cypher", "003-dash.cypher", "003_Upper.sql"])
def test_a_name_that_does_not_fit_is_refused(edited: Callable[[Path], Path], wrong: str) -> None:
    folder = edited(CYPHER)
    (folder / wrong).write_text("")
    with pytest.raises(SchemaError, match="is no name for a migration"):
        migrations_in(folder)


@pytest.mark.parametrize("wrong", ["900_gap.cypher", "002_twice.cypher"])
def test_numbers_have_no_gaps_and_none_stands_twice(edited: Callable[[Path], Path], wrong: str) -> None:
    folder = edited(CYPHER)
    (folder / wrong).write_text("")
    with pytest.raises(SchemaError, match="not numbered without gaps"):
        migrations_in(folder)
