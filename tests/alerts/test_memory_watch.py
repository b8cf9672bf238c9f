"""A Valkey that fills up: people are told at 80 %, the mode and the doctor say when it is full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import redis

from imem.alerts.memory_watch import watch_memory
from imem.jobs.alert_pipelines import WATCH_MEMORY
from imem.jobs.fallback_rounds import fallback_rounds
from imem.journal.clock import SystemClock
from imem.journal.modes import Health, Mode
from imem.journal.settings import Settings
from imem.journal.valkey_memory import MemoryUse
from imem.local.doctor import servers
from imem.local.doctor.finding import CheckLevel
from imem.services.health import check_health
from imem.services.stores import Stores, secret
from imem.workers.celery import VALKEYS
from imem.workers.celery_app import make_app
from imem.workers.pipelines import PIPELINES
from tests.servers import in_database

from .conftest import NEVER, AlertHarness

FILLING = 32 << 20
"""Bytes beside which what a connection needs counts for nothing."""


def urls_of(settings: Settings) -> dict[str, str]:
    return {role: secret(settings, f"valkey_{role}_url") for role in VALKEYS}


@pytest.mark.parametrize(
    ("used", "limit", "policy", "high", "full"),
    [
        (79, 100, "noeviction", False, False),
        (80, 100, "noeviction", True, False),
        (99, 100, "noeviction", True, True),
        (100, 100, "allkeys-lru", False, False),
        (100, 0, "noeviction", False, False),
    ],
)
def test_how_full_a_server_is(used: int, limit: int, policy: str, high: bool, full: bool) -> None:  # noqa: FBT001
    """Forgetting is how a cache works, and without a limit nothing is known."""
    use = MemoryUse.of(
        {"used_memory": used + 7, "mem_not_counted_for_evict": 7, "maxmemory": limit, "maxmemory_policy": policy}
    )
    assert (use.high, use.full) == (high, full)


class Filled:
    """The durable Valkey of the tests under a limit of its own."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client

    def up_to(self, share: float) -> None:
        """Hold so much of the limit, which is set to what that makes it: an allocator gives more than is asked for."""
        if not self.client.exists("filling"):
            self.client.config_set("maxmemory", 0)
            # Made by the server: what a large command takes on its way counts until a moment after it.
            self.client.setrange("filling", FILLING - 1, b"x")
        use = MemoryUse.of(self.client.info("memory"))
        self.client.config_set("maxmemory", int(use.used_bytes / share))


@pytest_asyncio.fixture
async def durable(light_stack: Any) -> AsyncIterator[Filled]:
    with redis.Redis.from_url(light_stack.settings.valkey_durable_url.get_secret_value()) as client:
        limit = client.config_get("maxmemory")["maxmemory"]
        try:
            yield Filled(client)
        finally:
            client.config_set("maxmemory", limit)
            client.delete("filling")


async def _open(harness: AlertHarness) -> list[tuple[str, str]]:
    rows = await harness.rows("SELECT kind, severity FROM workflow.alert WHERE closed_at IS NULL ORDER BY raised_at")
    return [(row["kind"], row["severity"]) for row in rows]


HIGH, FULL = ("VALKEY_MEMORY_HIGH", "HIGH"), ("VALKEY_MEMORY_FULL", "CRITICAL")


async def test_people_are_told_once_before_it_is_full_and_once_when_it_is(
    light_stack: Any, harness: AlertHarness, durable: Filled
) -> None:
    """One alert a level however often it is looked at, and by two processes at once; over when it has fallen below."""
    urls = urls_of(light_stack.settings)
    found = []
    for share in (0.5, 0.83, 0.83, 0.995, 0.995, 0.97, 0.83, 0.78, 0.5):
        durable.up_to(share)
        await asyncio.gather(*(watch_memory(harness.database, urls, deadline=NEVER) for _ in range(2)))
        found.append(await _open(harness))
    assert found == [[], [HIGH], [HIGH], [HIGH, FULL], [HIGH, FULL], [HIGH, FULL], [HIGH], [HIGH], []]
    reasons = await harness.rows("SELECT payload ->> 'reason' AS reason FROM workflow.alert")
    assert all("The durable Valkey holds" in row["reason"] for row in reasons)


async def test_a_valkey_that_is_away_raises_no_alert_about_memory(light_stack: Any, harness: AlertHarness) -> None:
    """The others are looked at all the same."""
    urls = {**urls_of(light_stack.settings), "working": "redis://127.0.0.1:1"}
    assert set(await watch_memory(harness.database, urls, deadline=NEVER)) == {"durable", "cache"}
    assert await _open(harness) == []


async def test_a_full_valkey_is_no_normal_mode_and_broken_for_the_doctor(
    light_stack: Any, harness: AlertHarness, durable: Filled
) -> None:
    """It answers, and takes nothing: writes are degraded, and the finding says what to do."""
    settings = light_stack.settings.model_copy(
        update={
            **in_database(light_stack.settings, harness.url),
            "neo4j_url": "bolt://127.0.0.1:1",
            "neo4j_password": None,
        }
    )
    role = next(role for role in servers.ROLES if role.name == "durable")
    said = {}
    for share in (0.5, 0.9, 1.0):
        durable.up_to(share)
        async with Stores.open(settings) as stores:
            health = await check_health(stores)
        assert health.durable
        assert health.full == (("durable",) if share == 1.0 else ())
        findings = servers.valkey(settings, role, SystemClock())
        said[share] = [one.level for one in findings if "full" in one.text]
    assert said == {0.5: [], 0.9: [CheckLevel.WEAK], 1.0: [CheckLevel.BROKEN]}
    assert Health(full=("durable",)).mode is Mode.DEGRADED_WRITE


def test_it_is_looked_at_every_half_minute_also_without_the_broker(light_stack: Any) -> None:
    """A full broker takes no task: the worker's processes check_health by themselves."""
    entry = make_app(light_stack.settings).conf.beat_schedule[WATCH_MEMORY.name]
    assert (entry["task"], entry["schedule"]) == (WATCH_MEMORY.name, 30.0)
    assert WATCH_MEMORY.name in {one.name for one in fallback_rounds(PIPELINES, light_stack.settings)}
