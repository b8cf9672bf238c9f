"""Upon one event the graph keeps a stub; in any order, in a rebuild, and after a crash it is the same graph."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from imem.kg.asof import END_OF_TIME
from imem.kg.projection.hash import graph_hash
from tests.kg.projection.world import NEVER, Journal, World, analysis, cut

KNOWN = "2026-01-02T00:00:00Z"
FINDING: dict[str, Any] = {
    "id": "f1", "analysis_id": "a1", "subject_id": "company:MU", "agent": "bull", "domain": "d", "importance": 0.5,
    "statement": "it rises", "key_drivers": ["x"], "distribution": {"up": 0.6},
}  # fmt: skip
STATED = [
    analysis("a1", summary="long " * 300, confidence=0.5),
    {"record": "Finding", "known_at": KNOWN, "core": FINDING},
    {"link": "PERFORMED", "known_at": KNOWN, "from": {"Agent": "bull"}, "to": {"Analysis": "a1"}, "props": {}},
]


def pruned(kind: str, key: str, summary: str = "it") -> dict[str, Any]:
    groups = {"archive": {"archive_summary": summary, "archive_grounds": ["old", "unread"]}}
    return {"record": kind, "known_at": KNOWN, "key": key, "groups": groups}


async def history(world: World) -> list[dict[str, Any]]:
    given = {"subject_id": "company:MU", "detailed": 2, "findings_limit": 5, "limit": 5}
    return await world.graph.read(
        "company_history", {**given, "known_until": END_OF_TIME, "recorded_until": END_OF_TIME}, deadline=NEVER
    )


@pytest.mark.spec("AR-19", "PF-13")
async def test_the_projection_keeps_a_stub(empty: World, journal: Journal) -> None:
    """Detail goes; keys, numbers, times and links stay, so that queries find what they found."""
    await journal.say(*STATED)
    await empty.apply(await journal.events())
    before, found = await graph_hash(empty.graph), await history(empty)
    assert found[0]["findings"] == ["f1"]

    await journal.say(pruned("Analysis", "a1"), pruned("Finding", "f1"))
    await empty.apply(await journal.events())

    node, stub = await empty.node("Finding", "f1"), await empty.node("Analysis", "a1")
    assert node is not None
    assert stub is not None
    assert node["archived"]
    assert stub["archived"]
    assert not {"statement", "key_drivers", "distribution"} & node.keys()
    assert "summary" not in stub
    assert (node["archive_summary"], node["importance"], stub["confidence"]) == ("it", 0.5, 0.5)
    assert await history(empty) == found
    after = await graph_hash(empty.graph)
    assert (after.nodes, after.links) == (before.nodes, before.links)
    assert after.differing(before) == [
        "Analysis (1 against 1, with other content)",
        "Finding (1 against 1, with other content)",
    ]


@pytest.mark.spec("PF-13")
async def test_in_any_order_it_is_the_same_graph(empty: World, journal: Journal) -> None:
    """A correction that comes after the event brings no detail back; nor does the core, in a rebuild or a repeat."""
    corrected = {
        "correct": "Finding",
        "known_at": KNOWN,
        "core": {**FINDING, "statement": "it fell"},
        "reason": "misread",
    }
    await journal.say(STATED[1], pruned("Finding", "f1"), corrected)
    events = await journal.events()
    for told in (events[:2], events):
        hashes = {
            (await empty.hash_of(*cut(order, size))).digest for order in permutations(told) for size in (1, len(told))
        }
        assert len(hashes) == 1
        node = await empty.node("Finding", "f1")
        assert node is not None
        assert "statement" not in node
        await empty.apply(told[:1], told)
        assert (await graph_hash(empty.graph)).digest in hashes
