"""In one word how well the institution can work, from what answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from imem.journal.modes import Health, Mode
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings
from imem.services.health import check_health
from imem.services.stores import Stores
from tests.conftest import Stack
from tests.kg.projection.world import Journal, analysis
from tests.servers import as_pipelines, cloned, in_database

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("health", "mode"),
    [
        (Health(), Mode.NORMAL),
        (Health(cache=False), Mode.NORMAL),
        (Health(graph=False), Mode.DEGRADED_READ),
        (Health(graph=False, working=False, behind_s=900.0), Mode.DEGRADED_READ),
        (Health(working=False), Mode.DEGRADED_WRITE),
        (Health(durable=False), Mode.DEGRADED_WRITE),
        (Health(postgres=False, behind_s=None), Mode.READ_ONLY),
        (Health(postgres=False, graph=False, behind_s=None), Mode.READ_ONLY),
        (Health(behind_s=5.0), Mode.NORMAL),
        (Health(behind_s=5.1), Mode.RECOVERING),
        (Health(behind_s=304.0, applier_interval_s=300.0), Mode.NORMAL),
        (Health(behind_s=306.0, applier_interval_s=300.0), Mode.RECOVERING),
    ],
)
def test_the_mode_of_what_is_away(health: Health, mode: Mode) -> None:
    """The worst of what follows."""
    assert health.mode is mode


@pytest.fixture
def settings(stack: Stack, template: str) -> Iterator[Settings]:
    with cloned(stack.settings, template) as (url, _):
        yield stack.settings.model_copy(update=in_database(stack.settings, url))


async def found(settings: Settings) -> Health:
    async with Stores.open(settings) as stores:
        return await check_health(stores)


async def test_all_is_well(settings: Settings) -> None:
    health = await found(settings)
    assert (health.mode, health.away, health.behind_s) == (Mode.NORMAL, (), 0.0)


@pytest.mark.parametrize(
    ("setting", "url", "away", "mode"),
    [
        ("postgres_url", SecretStr(f"postgresql://u:p@{NOBODY}/d"), "postgres", Mode.READ_ONLY),
        ("neo4j_url", f"bolt://{NOBODY}", "graph", Mode.DEGRADED_READ),
        ("valkey_working_url", SecretStr(f"redis://{NOBODY}"), "working", Mode.DEGRADED_WRITE),
        ("valkey_durable_url", SecretStr(f"redis://{NOBODY}"), "durable", Mode.DEGRADED_WRITE),
        ("valkey_cache_url", SecretStr(f"redis://{NOBODY}"), "cache", Mode.NORMAL),
    ],
)
async def test_a_store_that_refuses(settings: Settings, setting: str, url: Any, away: str, mode: Mode) -> None:
    """Each is missed by name, and nothing waits long for it."""
    health = await found(settings.model_copy(update={"postgres_curator_url": None, setting: url}))
    assert (health.away, health.mode) == ((away,), mode)


@pytest.mark.spec("SY-16")
@pytest.mark.parametrize(("priority", "mode"), [(True, Mode.RECOVERING), (False, Mode.NORMAL)])
async def test_what_waits_is_seen(stack: Stack, template: str, priority: bool, mode: Mode) -> None:  # noqa: FBT001
    """An event that nobody applies, a minute later: the institution is catching up, unless that is its cycle."""
    settings = stack.settings.model_copy(update={"sync_priority": priority})
    with cloned(stack.settings, template) as (url, admin_url):
        pipeline_url = as_pipelines(stack.settings, url)
        database = Database(pipeline_url)
        await Journal(url, admin_url, database, pipeline_url).say(analysis("a1"))
        await database.close()
        async with Stores.open(settings) as stores:
            stores.database = Database(admin_url, options="-c imem.clock_shift=60s")
            health = await check_health(stores)
            await stores.database.close()
    assert health.behind_s is not None
    assert 60 <= health.behind_s < 120
    assert health.mode is mode
