"""Builders are killed at each point: before the manifest nothing counts, and the next round completes it."""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Final

import pytest

from imem.archives.archive import verify
from imem.journal.deadline import Deadline
from tests.archives.conftest import Vault, cited, file, pattern, validated
from tests.archives.killed import BEFORE_MANIFEST, POINTS
from tests.killed_programs import killed_program
from tests.waiting import until

KILLS: Final = 25 if os.environ.get("IMEM_CHAOS") else 2
"""At each point."""


async def written(vault: Vault, key: str) -> dict[str, Any]:
    """Return the rows and events about a pattern, without what differs from one pattern or moment to another."""
    rows = await vault.world.rows("SELECT tier, manifest_version, gaps FROM pattern_archive WHERE pattern_id = %s", key)
    events = await vault.world.rows(
        "SELECT kind, count(*) AS n FROM event WHERE actor = 'archives' AND record_key IN (%s, %s)"
        " GROUP BY 1 ORDER BY 1", key, f"{key}/tier2",
    )  # fmt: skip
    return {"rows": rows, "events": events, "tier": (await vault.evidence(key)).get("archive_tier")}


@pytest.mark.longer
@pytest.mark.spec("AR-4")
async def test_killed_at_each_point(vault: Vault) -> None:
    vault.put("data.csv")
    whole = {
        "rows": [{"tier": 2, "manifest_version": 1, "gaps": []}], "tier": 2,
        "events": [{"kind": "record.ArchiveDirectory", "n": 1}, {"kind": "record.Pattern", "n": 1}],
    }  # fmt: skip
    numbers = iter(range(10_000))
    async with killed_program("tests.archives.killed", vault.world.pipeline_url) as program:
        for point in POINTS:
            for _ in range(KILLS):
                key = f"p{next(numbers)}"
                await vault.say(
                    pattern(key), *cited(f"d-{key}", key), *file("data.csv", key), validated(f"v-{key}", key)
                )
                ended = await program.ended(json.dumps({"folder": str(vault.folder), "point": point}))
                assert ended == -signal.SIGKILL, point
                await until(vault.world.released)
                found = await written(vault, key)
                if point == "after_commit":
                    assert found == whole, point
                else:
                    assert found == {"rows": [], "events": [], "tier": None}, point
                intact = await verify(vault.objects, key, 2, deadline=Deadline.never())
                assert intact.ok is (point not in BEFORE_MANIFEST), point

                await vault.settle()
                assert await written(vault, key) == whole, point
                assert (await verify(vault.objects, key, 2, deadline=Deadline.never())).ok
