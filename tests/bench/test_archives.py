"""How fast archives are built, how fast their index is searched, and how long retention takes over very many files."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from imem.archives.access import Archives
from imem.archives.retention import explain, retain
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from tests.archives.conftest import Vault, cited, file, found_by, pattern, validated
from tests.bench.table import Figure, Table, percentile
from tests.credibility.conftest import opened
from tests.servers import cloned

pytestmark = pytest.mark.bench

ENTRIES: Final = {"full": 10_000, "tiny": 400}
FILES: Final = {"full": 1_000_000, "tiny": 40_000}
BUILT: Final = {"full": 400, "tiny": 20}
ROUNDS: Final = 100
BAR_MS: Final = 100.0
RETENTION_BAR_S: Final = 600.0
TAGS: Final = ("BULL_LOW_RATES", "BULL_HIGH_RATES", "BEAR_HIGH_RATES", "BEAR_LOW_RATES", "HIGH_VOLATILITY", "NORMAL")


@pytest_asyncio.fixture
async def vault(light_stack: Any, light_template: str, tmp_path: Path) -> AsyncIterator[Vault]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        async with opened(light_stack.settings, url, admin_url) as world:
            yield Vault(world, tmp_path / "objects")


class NoObjects(ObjectStore):
    """Fails on any call."""

    async def _call(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("an object was read")


@pytest.mark.spec("AR-20")
async def test_the_index(vault: Vault, table: Table) -> None:
    """Each search over all entries, without one read of an object."""
    number = ENTRIES[table.scale]
    vault.world.owner(
        "INSERT INTO archive_index SELECT 'p' || n, 'Margins ' || n, 'industry/margins',"
        " CASE WHEN n %% 2 = 0 THEN 'deprecated' ELSE 'archived' END, now(), 1 + n %% 2, 'pattern_archives/p' || n,"
        " ARRAY[(%s::text[])[1 + n %% 6]], ARRAY['industry' || n %% 40], (n %% 100) / 100.0, n %% 9, (n %% 77) / 77.0"
        " FROM generate_series(1, %s) AS n",
        list(TAGS), number,
    )  # fmt: skip
    vault.world.owner(
        "INSERT INTO archive_access SELECT 'p' || n %% 500, 'actor' || n %% 7, now() FROM generate_series(1, 20000) n"
    )
    vault.world.owner("ANALYZE archive_index, archive_access")
    gateway = Gateway(vault.world.database, Actor("ann", Role.HUMAN_ADMIN))
    archives, chance = Archives(gateway, NoObjects("/nowhere")), random.Random(1)
    soon = Deadline.never()
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "by regime": lambda: archives.by_regime([chance.choice(TAGS)], deadline=soon),
        "by industry": lambda: archives.by_industry([f"industry{chance.randrange(40)}"], deadline=soon),
        "by metrics": lambda: archives.by_metrics(0.9, chance.random(), deadline=soon),
        "candidates": lambda: archives.candidates(3, deadline=soon),
        "one entry": lambda: archives.entry(f"p{1 + chance.randrange(number)}", deadline=soon),
    }
    data, note = f"{number:,} entries", "zero object reads"
    for name, call in calls.items():
        took = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            assert await call() is not None
            took.append((time.perf_counter() - begun) * 1_000)
        p95 = percentile(took, 0.95)
        table.add(Figure(name=f"archive index {name}, p95", data=data, value=p95, unit="ms", bar=BAR_MS, note=note))


async def test_archives_a_second(vault: Vault, table: Table) -> None:
    """Full archives with a file each, into a folder."""
    number = BUILT[table.scale]
    vault.put("data.csv", b"1,2\n" * 5_000)
    for n in range(number):
        key = f"p{n}"
        await vault.say(pattern(key, "active"), validated(f"v{n}", key), *file("data.csv", key), *cited(f"d{n}", key),
                        *found_by(f"a{n}", key))  # fmt: skip
    begun = time.perf_counter()
    built = 0
    while done := await vault.archive():
        built += done["built"]
    took_s = time.perf_counter() - begun
    assert built == number
    data, note = f"{number:,} patterns", "tier 2, with a file of 20 kB; into a folder"
    table.add(Figure(name="archives built a second", data=data, value=number / took_s, unit="/s", note=note))


async def test_retention(vault: Vault, table: Table) -> None:
    """One run over all files, of which each supports one of 5,000 patterns; and the explanation of one."""
    number = FILES[table.scale]
    for n in range(50):
        await vault.say(pattern(f"p{n}", "active" if n % 5 else "rejected_blind", datetime(2018, 1, 1, tzinfo=UTC)))
    vault.world.owner(
        "INSERT INTO file_metadata (file_id, created_at, size_mb, label)"
        " SELECT 'f' || n, c.at, 1, imem_label_v1(c.at, now()) FROM generate_series(1, %s) AS n"
        " CROSS JOIN LATERAL (SELECT now() - (n %% 4000) * interval '1 day' AS at) AS c",
        number,
    )
    vault.world.owner(
        "INSERT INTO file_reference SELECT 'f' || n, 'p' || n %% 50 FROM generate_series(1, %s) AS n WHERE n %% 50 > 0",
        number,
    )
    vault.world.owner("ANALYZE file_metadata, file_reference")
    vault.world.owner("UPDATE delivery SET state = 'applied'")
    await retain(vault.runtime, until=Deadline.never())
    begun = time.perf_counter()
    async with vault.later(timedelta(hours=2)):
        report = await retain(vault.runtime, until=Deadline.never())
    took_s = time.perf_counter() - begun
    assert report["halted"] == "cap", "more than a twentieth of the cold files support a pattern that was rejected"
    took = []
    for n in range(ROUNDS):
        begun = time.perf_counter()
        assert await explain(vault.database, f"f{1 + n * 7}", deadline=Deadline.never())
        took.append((time.perf_counter() - begun) * 1_000)
    data = f"{number:,} files"
    note = "the rules of each old one, nothing marked"
    p95 = percentile(took, 0.95)
    table.add(
        Figure(name="retention run", data=data, value=took_s, unit="s", bar=RETENTION_BAR_S, note=note),
        Figure(name="explain a file, p95", data=data, value=p95, unit="ms", bar=BAR_MS),
    )
