"""Servers with a database of the module's own, for tests of the doctor."""

from __future__ import annotations

import uuid

import psycopg
import pytest
from psycopg import sql

from imem.journal.settings import Settings
from imem.local.migrate import migrate
from tests.conftest import Stack
from tests.imem.local.doctors import HIDDEN, POSTGRES, emptied
from tests.imem.local.programs import shown
from tests.servers import with_database


@pytest.fixture(scope="module")
def env(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables that name every server, with a database of this module's own that is not migrated yet."""
    settings, name = stack.settings, f"doctor_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(shown(settings.postgres_admin_url), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    found = {f"IMEM_{field.upper()}": getattr(settings, field).get_secret_value() for field in HIDDEN}
    for field in (f"IMEM_{name.upper()}" for name in POSTGRES):
        found[field] = with_database(found[field], name)
    return found | {
        "IMEM_NEO4J_URL": settings.neo4j_url,
        "IMEM_NEO4J_PASSWORD": shown(settings.neo4j_password),
        "IMEM_HOME": str(tmp_path_factory.mktemp("home")),
        "IMEM_CACHE_DIR": str(settings.cache_dir),
    }


@pytest.fixture(scope="module")
def migrated(env: dict[str, str]) -> dict[str, str]:
    """The same, with both schemas up to date and nothing in the graph."""
    migrate(Settings.read(env))
    emptied(env)
    return env
