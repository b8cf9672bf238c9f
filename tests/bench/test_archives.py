"""How fast archives are built and their index is searched, and how long retention and pruning take over very many."""

from __future__ import annotations

import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import pytest_asyncio

from imem.archives.access import Archives
from imem.archives.contents import ROOT
from imem.archives.pruning import PAGE, _parameters
from imem.archives.retention import explain, retain
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from tests.archives.conftest import Vault, cited, file, found_by, pattern, validated
from tests.archives.test_pruning import LATER, analysis, remark
from tests.bench.seeding import _JOURNAL, COPIES, _copied, _key
from tests.bench.table import Figure, Table, percentile
from tests.credibility.conftest import opened
from tests.servers import cloned

pytestmark = pytest.mark.bench

ENTRIES: Final = {"full": 10_000, "tiny": 400}
FILES: Final = {"full": 1_000_000, "tiny": 40_000}
BUILT: Final = {"full": 400, "tiny": 20}
PRUNED: Final = {"full": 1_000, "tiny": 40}
"""Analyses that are recorded, each with a finding; the rest are copies of them."""
PAGES: Final = 40
ROUNDS: Final = 100
BAR_MS: Final = 100.0
RETENTION_BAR_S: Final = 600.0
TAGS: Final = ("BULL_LOW_RATES", "BULL_HIGH_RATES", "BEAR_HIGH_RATES", "BEAR_LOW_RATES", "HIGH_VOLATILITY", "NORMAL")
FLOOR: Final = """
SELECT count(*) AS files, sum(n) AS refs FROM (
    SELECT m.file_id, count(r.pattern_id) AS n
    FROM file_metadata AS m LEFT JOIN file_reference AS r ON r.file_id = m.file_id
    WHERE m.delete_state = 'none' AND m.created_at <= imem_now() - interval '7 years' GROUP BY m.file_id) AS f
"""
"""The old files and their references, in one statement."""
PAGE_FLOOR: Final = """
SELECT h.key, e.payload -> 'core' AS core FROM record_head AS h JOIN event AS e ON e.position = h.position
WHERE h.kind = %s AND h.grp = 'core' AND h.key > %s ORDER BY h.key LIMIT %s
"""
"""One page of records of a kind."""


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


def written(files: Sequence[tuple[str, bytes]], folder: Path) -> float:
    """Return how long it takes to write files and their folders to the disk, one after the other, in seconds."""
    begun = time.perf_counter()
    for name, content in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file_:
            file_.write(content)
            file_.flush()
            os.fsync(file_.fileno())
        parent = os.open(path.parent, os.O_RDONLY)
        os.fsync(parent)
        os.close(parent)
    return time.perf_counter() - begun


async def test_archives_a_second(vault: Vault, table: Table, tmp_path: Path) -> None:
    """Full archives with a file each, into a folder; the floor writes the same files there, each with its fsync."""
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
    archives = vault.folder / ROOT
    paths = sorted(path for path in archives.rglob("*") if path.is_file())
    files = [(str(path.relative_to(archives)), path.read_bytes()) for path in paths]
    floor_s = written(files, tmp_path / "floor")
    data = f"{number:,} patterns"
    note = f"tier 2, with a file of 20 kB; into a folder, {len(files) / number:.1f} files each"
    rate, floor = number / took_s, number / floor_s
    table.add(Figure(name="archives built a second", data=data, value=rate, unit="/s", floor=floor, note=note))


async def test_retention(vault: Vault, table: Table) -> None:
    """Time one run over all files and the explanation of one file; each file supports one of 50 patterns."""
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
    begun = time.perf_counter()
    [old] = await vault.database.rows(FLOOR, (), deadline=Deadline.never())
    floor_s = time.perf_counter() - begun
    [run] = await vault.database.named("retention_runs", {"limit": 1}, deadline=Deadline.never())
    assert 0 < run["proposed"] < old["files"]
    assert report["halted"] == "cap", "more than a twentieth of the cold files support a pattern that was rejected"
    took = []
    for n in range(ROUNDS):
        begun = time.perf_counter()
        assert await explain(vault.database, f"f{1 + n * 7}", deadline=Deadline.never())
        took.append((time.perf_counter() - begun) * 1_000)
    data = f"{number:,} files"
    note = f"the rules of {old['files']:,} old ones, nothing marked; the floor is one statement over them"
    p95 = percentile(took, 0.95)
    table.add(
        Figure(name="retention run", data=data, value=took_s, unit="s", floor=floor_s, bar=RETENTION_BAR_S, note=note),
        Figure(name="explain a file, p95", data=data, value=p95, unit="ms", bar=BAR_MS),
    )


@pytest.mark.parametrize("kind", ["Analysis", "Finding"])
async def test_a_page_of_pruning(vault: Vault, table: Table, kind: str) -> None:
    """Pages of candidates from anywhere among very many; the floor reads the same records, without their use."""
    number = PRUNED[table.scale]
    for first in range(0, number, PAGE):
        keys = [_key(n, 0) for n in range(first, min(first + PAGE, number))]
        await vault.world.say(*(line for key in keys for line in (analysis(key), remark(f"{key}/0", key))))
    [last] = await vault.world.rows("SELECT max(position) AS position FROM event")
    with psycopg.connect(vault.world.admin_url, autocommit=True) as conn:
        _copied(conn, _JOURNAL, last["position"])
        conn.execute("ANALYZE event, record_head")
    chance, took, floors = random.Random(1), [], []
    async with vault.later(LATER):
        for _ in range(PAGES):
            given = _parameters(kind, _key(chance.randrange(number), chance.randrange(COPIES - 1)), [])
            begun = time.perf_counter()
            page = await vault.database.named("prune_candidates", given, deadline=Deadline.never())
            took.append((time.perf_counter() - begun) * 1_000)
            begun = time.perf_counter()
            bare = await vault.database.rows(
                PAGE_FLOOR, (kind, given["after"], given["limit"]), deadline=Deadline.never()
            )
            floors.append((time.perf_counter() - begun) * 1_000)
            assert [row["key"] for row in page] == [row["key"] for row in bare]
    table.add(
        Figure(
            name=f"page of pruning, {kind}, p95", data=f"{number * COPIES:,} of each kind",
            value=percentile(took, 0.95), unit="ms", floor=percentile(floors, 0.95),
            note=f"{PAGE} records, how they are used and what exempts them",
        )
    )  # fmt: skip
