"""Ten times as many analyses as the largest institution is meant to have, seeded by Neo4j's offline import."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from imem.journal.deadline import Deadline
from imem.kg.asof import END_OF_TIME
from imem.recall.model import Briefing, Quality
from imem.services.stores import Stores
from tests.bench.conftest import HEAP_MB, PATTERNS, SCALES
from tests.bench.seeding import Seeded, seeded
from tests.bench.table import Figure, Table, percentile
from tests.bench.test_memory import COUNTS, UNCACHED_MS, measured_briefs, questions_of, timed_briefs, uncaching
from tests.bench.test_similar import MODEL, timed
from tests.conftest import settings_for, temporary_home

pytestmark = pytest.mark.bench

PAGECACHE_MB = 1024
"""Of a graph ten times as large, in MB; the others have 256."""


@pytest.fixture(scope="module")
def far(table: Table) -> Iterator[Seeded]:
    with temporary_home() as home:
        settings = settings_for(home, neo4j_heap_mb=HEAP_MB, neo4j_pagecache_mb=PAGECACHE_MB)
        with seeded(settings, SCALES[table.scale][1] * 10, PATTERNS[table.scale][1]) as made:
            yield made


def cut_short(answer: Briefing) -> bool:
    """Say whether a part is missing; that an index looked at part of very many vectors is as it should be."""
    return any(
        section.quality is not Quality.EXACT and "an approximate index" not in (section.reason or "")
        for section in answer.sections.values()
    )


async def warmed(far: Seeded, stores: Stores, table: Table) -> None:
    """
    Ask about every subject once, and note how long that takes on servers that were started a moment ago.

    The other sets were loaded through their servers, which had compiled their statements and read what they hold. These
    have read nothing yet of 14 GB on disk.
    """
    now, then = await questions_of(stores)
    asked = now + then
    random.Random(11).shuffle(asked)
    taken, missing = await timed_briefs(uncaching(stores), asked, cut_short)
    note = "every subject once, now and as of a day in the middle, on servers that have just been started"
    table.add(
        *(
            Figure(
                name=f"brief, just started, p{share:.0%}".rstrip("%"), data=far.data, value=percentile(taken, share),
                unit="ms", note=note,
            )
            for share in (0.50, 0.95)
        ),
        Figure(name="briefs with a part missing, just started", data=far.data, value=len(missing), unit="", note=note),
    )  # fmt: skip


async def test_brief(far: Seeded, table: Table) -> None:
    """A briefing with all sections takes less than twice as long as with a tenth of the analyses."""
    note = "events of a fiftieth stated and scored, the rest copied; graph by `database import full`"
    table.add(
        Figure(name="seeding by the offline import", data=far.data, value=far.seconds, unit="s", bar=600, note=note)
    )
    async with Stores.open(far.settings) as stores:
        await warmed(far, stores, table)
        await measured_briefs(far.data, stores, table, COUNTS[table.scale], bar=UNCACHED_MS, less=cut_short)


async def test_similar(far: Seeded, table: Table) -> None:
    """Candidates by the index are found as soon as among a tenth."""
    now = {"known_until": END_OF_TIME, "recorded_until": END_OF_TIME, "limit": 50}
    never = Deadline.never()
    async with Stores.open(far.settings) as stores:
        [model] = await stores.database.rows(MODEL, deadline=never)
        rows = await stores.database.rows("SELECT key FROM embedding ORDER BY key", deadline=never)
        keys = random.Random(3).sample([row["key"] for row in rows], min(1_200, len(rows)))
        taken = await timed(
            lambda key: stores.database.named(
                "nearest", {"model": model["model"], "keys": [key], **now}, deadline=never
            ),
            keys,
        )
    note = (
        "50 candidates by HNSW, of made-up vectors; the first read the index from the disk, the last 200 are measured"
    )
    p95 = percentile(taken[-200:], 0.95)
    table.add(
        Figure(
            name="similar, by the index, just started, p95", data=far.data, value=percentile(taken[:200], 0.95),
            unit="ms", note=note,
        ),
        Figure(name="similar, by the index p95", data=far.data, value=p95, unit="ms", bar=10, note=note),
    )  # fmt: skip
