"""A migrated Neo4j for the tests of the graph, empty at the beginning of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import neo4j
import pytest

from imem.kg import migrations
from imem.kg.kinds.catalog import GROUP_BOOKKEEPING, KINDS, LABELS, LINK_TYPES, LINKS, NODE_BOOKKEEPING, link_props
from tests.conftest import Stack
from tests.servers import EMPTYING


class Address(NamedTuple):
    """Where a Neo4j answers."""

    url: str
    user: str
    password: str


@pytest.fixture(scope="session")
def address(stack: Stack) -> Address:
    settings = stack.settings
    assert settings.neo4j_url is not None
    assert settings.neo4j_password is not None
    return Address(settings.neo4j_url, settings.neo4j_user, settings.neo4j_password.get_secret_value())


@pytest.fixture(scope="session")
def connection(address: Address) -> Iterator[neo4j.Driver]:
    with neo4j.GraphDatabase.driver(
        address.url, auth=(address.user, address.password), notifications_min_severity="OFF", telemetry_disabled=True
    ) as driver:
        yield driver


def wipe(driver: neo4j.Driver) -> None:
    """Empty the graph, in batches; what migrations made stays."""
    with driver.session(database="neo4j") as session:
        for text in EMPTYING:
            session.run(text).consume()


@pytest.fixture
def driver(address: Address, connection: neo4j.Driver) -> neo4j.Driver:
    """Give an empty graph with the newest schema."""
    migrations.migrate(*address)
    wipe(connection)
    return connection


@pytest.fixture
def vocabulary(driver: neo4j.Driver) -> neo4j.Driver:
    """
    Make every label, relationship type and property known to the server.

    It then warns of a name in a query only when the product has no such name.
    """
    properties = set(NODE_BOOKKEEPING) | {"order", "subject_id"}
    for info in KINDS.values():
        for part in (info.core, *info.groups.values()):
            properties |= set(part.properties)
        for group in ("core", "correction", *info.groups):
            properties |= {f"{group}_{ending}" for ending in GROUP_BOOKKEEPING}
    for link in LINKS.values():
        properties |= set(link_props(link).properties)
    for statement, names in (
        ("CALL db.createLabel($name)", LABELS | {"SchemaVersion", "AppliedEvent"}),
        ("CALL db.createRelationshipType($name)", LINK_TYPES),
        ("CALL db.createProperty($name)", properties),
    ):
        for name in sorted(names):
            driver.execute_query(statement, {"name": name}, database_="neo4j")
    return driver
