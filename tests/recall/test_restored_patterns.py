"""A pattern that is back from the archive: its node, and what agents see of it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from imem.archives.building import build_archives
from imem.gates.restoring import restore
from imem.jobs.lifecycle import advance_due
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.events.entry import AppendStatus
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from imem.kg.kinds.enums import PatternStatus
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.views import rebuild
from imem.services.task_kinds import TASK_KINDS
from imem.workers.pipelines import LIFECYCLES
from tests.archives.conftest import validated
from tests.gates.parts import ROW, kept
from tests.kg.projection.conftest import empty, journal, world
from tests.kg.projection.world import importer
from tests.patterns.parts import ENOUGH
from tests.recall import facts
from tests.recall.conftest import RecallHarness, harness
from tests.recall.test_quarantine import MARK, Door, doors, doors_to, key_of, leaks, world_of
from tests.recall.test_who_may_ask import asking

__all__ = ["empty", "harness", "journal", "world"]


async def _restored(harness: RecallHarness, folder: Path) -> str:
    """Have a pattern that agents saw once, and that is back from the archive."""
    key = key_of(PatternStatus.DEPRECATED)
    await harness.know(world_of([PatternStatus.DEPRECATED]))
    tests = validated("v", key, at=datetime.fromisoformat(facts.day(1)))
    await harness.know([tests])
    harness.journal.owner(ROW, key, key, kept(name=f"{MARK} of deprecated"))
    for name in ("ann", "bob", "eve"):
        harness.journal.owner("INSERT INTO archive_access (pattern_id, actor) VALUES (%s, %s)", key, name)
    database = harness.journal.database
    runtime = SimpleNamespace(
        database=database, gateway=Gateway(database, importer()), objects=ObjectStore(str(folder)),
        task_kinds=TASK_KINDS,
    )  # fmt: skip
    while await build_archives(runtime, until=Deadline.after_ms(60_000)):
        pass
    assert await restore(runtime, until=ENOUGH) == {"restored": 1, "damaged": 0}
    await advance_due(runtime, LIFECYCLES, until=ENOUGH)
    await harness.work()
    return key


@pytest.mark.spec("AR-23", "AR-24")
async def test_one_node_is_left_that_no_agent_sees_and_no_decision_cites(
    harness: RecallHarness, tmp_path: Path
) -> None:
    key = await _restored(harness, tmp_path / "objects")
    query = "MATCH (p:Pattern {pattern_id: $given.key}) RETURN p.status AS status, labels(p) AS labels"
    found = await harness.world.graph.read_text("nodes", query, {"key": key}, deadline=ENOUGH)
    assert [row["status"] for row in found] == ["active_from_archive"]
    assert "ActivePattern" not in found[0]["labels"]
    await rebuild(harness.journal.database, deadline=Deadline.never())
    async with asking(harness, Role.AGENT) as memory:
        reads: list[Door] = [*doors(memory), *doors_to(memory, PatternStatus.DEPRECATED)]
        assert await leaks(reads) == []
    link = {"link": "CITES", "from": {"Decision": "d0"}, "to": {"Pattern": key},
            "props": {"at": facts.day(5), "rank": 2}}  # fmt: skip
    agent = Actor("agent0", Role.AGENT)
    entry = entry_of(parse_line(orjson.dumps(link), needs_known_at=False))
    [receipt] = await Gateway(harness.journal.database, agent).append([entry], deadline=ENOUGH)
    assert receipt.verdict is AppendStatus.NOT_CITABLE
