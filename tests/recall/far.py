"""A memory whose every server is behind a proxy that a test makes slow, silent, or absent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest_asyncio
from pydantic import SecretStr

from imem.cache.tiers.tiered import CACHE_TIMEOUT_MS
from imem.journal.modes import Mode
from imem.journal.settings import Settings
from imem.memory import Memory
from imem.recall.model import AWAY, EXHAUSTED, Briefing, Quality
from tests.proxy import SlowProxy, slowly, through
from tests.recall.conftest import RecallHarness
from tests.recall.test_kept import _season


@dataclass
class Far:
    """
    A memory whose every server is behind a proxy.

    Attributes:
        harness: the same servers, without.
        memory: what is asked.
        settings: by which another like it can be opened.
        proxies: by server: graph, postgres, durable, cache.
    """

    harness: RecallHarness
    memory: Memory
    settings: Settings
    proxies: Mapping[str, SlowProxy]

    def stall(self, *names: str) -> None:
        for name in names:
            self.proxies[name].stall()

    def flow(self) -> None:
        for proxy in self.proxies.values():
            proxy.flow()
            proxy.delay_s = 0.0


@pytest_asyncio.fixture
async def far(telling: RecallHarness) -> AsyncIterator[Far]:
    await _season(telling)
    given = telling.settings
    urls = {
        "graph": given.neo4j_url,
        "postgres": given.postgres_url,
        "durable": given.valkey_durable_url,
        "cache": given.valkey_cache_url,
    }
    async with AsyncExitStack() as stack:
        proxies, changes = {}, {}
        for name, url in urls.items():
            assert url is not None
            plain = url.get_secret_value() if isinstance(url, SecretStr) else url
            proxies[name] = await stack.enter_async_context(slowly(plain))
            field = {"graph": "neo4j_url", "postgres": "postgres_url"}.get(name, f"valkey_{name}_url")
            changed = through(plain, proxies[name])
            changes[field] = SecretStr(changed) if isinstance(url, SecretStr) else changed
        assert given.postgres_curator_url is not None
        curators = through(given.postgres_curator_url.get_secret_value(), proxies["postgres"])
        changes["postgres_curator_url"] = SecretStr(curators)
        settings = given.model_copy(update={**changes, "deadline_ms": 500})
        memory = await stack.enter_async_context(Memory.open(settings))
        yield Far(telling, memory, settings, proxies)
        for proxy in proxies.values():
            proxy.flow()


async def kept(far: Far, *subjects: str) -> None:
    """Have everything kept, however busy the machine is; connections stand afterwards."""
    tiers = far.memory._stores.tiers
    assert tiers is not None
    assert tiers.shared is not None
    tiers.cache_timeout_ms = tiers.shared.budget_ms = 2_000.0
    for subject in subjects or ("T0",):
        for _ in range(20):
            briefing = await far.memory.brief(subject, deadline_ms=30_000)
            # The subject's own record, six sections, and what its name means.
            if briefing.mode == "normal" and len(tiers.local) >= 8:
                break
        assert briefing.mode == "normal", briefing
    tiers.cache_timeout_ms = tiers.shared.budget_ms = CACHE_TIMEOUT_MS


def forget(far: Far) -> None:
    """Drop what this process keeps."""
    tiers = far.memory._stores.tiers
    assert tiers is not None
    tiers.local.clear()


def labelled(briefing: Briefing) -> None:
    """Assert that whatever is not exact says what it is, and that what is empty does not look as if it were known."""
    for name, section in briefing.sections.items():
        match section.quality:
            case Quality.EXACT:
                assert section.error is None and section.age_s is None and section.completeness is None, name  # noqa: PT018
            case Quality.STALE:
                assert section.age_s is not None, name
                assert section.reason, name
            case Quality.PARTIAL:
                assert section.reason, name
            case Quality.UNAVAILABLE:
                assert section.error in {EXHAUSTED, AWAY}, name
                assert section.fallback_exhausted is True, name
                assert section.total == 0, name
    assert (briefing.mode in {Mode.DEGRADED_READ, Mode.READ_ONLY}) == briefing.degraded
