"""Random histories over few records, so that statements meet: drawn by hypothesis, told by several sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.kg.projection.world import Line

Telling = tuple[str, Line]
"""Who says it (``import:a``, or an agent's name), and the line."""

DAYS = tuple(f"2026-01-0{day}T00:00:00Z" for day in range(1, 6))

CORES: dict[tuple[str, str], dict[str, Any]] = {
    ("Company", "MU"): {"ticker": "MU"},
    ("Agent", "bull"): {"name": "bull"},
    ("Human", "h"): {"id": "h"},
    ("Analysis", "a1"): {"id": "a1", "subject_id": "company:MU", "date": DAYS[0], "kind": "research"},
    ("Analysis", "a2"): {"id": "a2", "subject_id": "market:q", "date": DAYS[1], "kind": "research", "confidence": 0.5},
    ("Finding", "f1"): {
        "id": "f1",
        "analysis_id": "a1",
        "subject_id": "company:MU",
        "agent": "bull",
        "domain": "d",
        "statement": "it rises",
        "metric": "eps",
        "value": 1.5,
        "target_at": "2199-01-01T00:00:00Z",
    },
    ("Decision", "d1"): {
        "id": "d1",
        "analysis_id": "a1",
        "subject_id": "company:MU",
        "type": "trade",
        "agents_involved": ["bull", "bear"],
        "decided_at": DAYS[2],
    },
    ("Debate", "b1"): {
        "id": "b1",
        "subject_id": "company:MU",
        "topic": "MU",
        "challenger_agent": "bear",
        "challenged_agent": "bull",
        "participants": ["bull", "bear"],
        "disputed_finding": "f1",
        "timestamp": DAYS[1],
    },
    ("Pattern", "p1"): {"pattern_id": "p1", "name": "p", "category": "c"},
    ("AgentCredibility", "bull/d"): {"agent_id": "bull", "domain": "d", "id": "bull/d"},
}
"""One core for each record: a second one would be refused."""

CORRECTABLE = {
    ("Analysis", "a1"): ("summary", "kind"),
    ("Finding", "f1"): ("statement", "unit"),
    ("Decision", "d1"): ("action", "type"),
    ("Pattern", "p1"): ("name", "sector"),
}

GROUPS: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {
    ("Company", "MU"): {"profile": [{"name": "Micron"}, {"name": "Micron", "sector": "chips"}, {}]},
    ("Agent", "bull"): {
        "profile": [{"specialization": "x", "kind": "model"}, {"specialization": "y", "kind": "human"}]
    },
    ("Debate", "b1"): {
        "state": [
            {"state": "level1", "provisional": True},
            {"state": "closed", "provisional": False, "defaulted_at": DAYS[3]},
        ]
    },
    ("Pattern", "p1"): {
        "performance": [{"occurrence_count": 1}, {"occurrence_count": 2, "success_rate": 0.5}],
        "status": [{"status": "active", "quarantined": False}, {"status": "deprecated", "quarantined": False}],
    },
    ("Analysis", "a1"): {
        "outcome": [{"outcome": 1.0}, {"outcome": 2}],
        "archive": [
            {"archive_summary": "rose", "archive_grounds": ["old", "unread"]},
            {"archive_summary": "", "archive_grounds": []},
        ],
    },
    ("Finding", "f1"): {
        "archive": [
            {"archive_summary": "it rises", "archive_grounds": ["old", "unread"]},
            {"archive_summary": "it fell", "archive_grounds": ["old", "irrelevant"]},
        ]
    },
    ("AgentCredibility", "bull/d"): {
        "score": [
            {"sample_size": 1, "last_updated": DAYS[2], "decay_halflife_years": 2.0, "overall_score": 0.5},
            {"sample_size": 2, "last_updated": DAYS[3], "decay_halflife_years": 2.0},
        ]
    },
}

LINES: tuple[Line, ...] = (
    {"link": "PEER_OF", "from": {"Company": "MU"}, "to": {"Company": "AMD"}, "props": {"similarity": 0.5}},
    {"link": "PEER_OF", "from": {"Company": "AMD"}, "to": {"Company": "MU"}, "props": {}},
    {"link": "PERFORMED", "from": {"Agent": "bull"}, "to": {"Analysis": "a1"}, "props": {"role": "lead"}},
    {"link": "PERFORMED", "from": {"Agent": "bull"}, "to": {"Analysis": "a1"}, "props": {"role": "reader"}},
    {"link": "CITES", "from": {"Decision": "d1"}, "to": {"Finding": "f1"}, "props": {"at": DAYS[2], "rank": 1}},
    {"link": "CITES", "from": {"Decision": "d1"}, "to": {"Finding": "f1"}, "props": {"at": DAYS[2]}},
    {"link": "CITES", "from": {"Decision": "d1"}, "to": {"Finding": "f1"}, "props": {"at": DAYS[3], "rank": 1}},
    {"link": "RESOLVED_BY", "from": {"Debate": "b1"}, "to": {"Agent": "bull"}, "props": {}},
    {"link": "RESOLVED_BY", "from": {"Debate": "b1"}, "to": {"Agent": "judge"}, "props": {}},
    {"link": "RESOLVED_BY", "from": {"Debate": "b1"}, "to": {"Human": "h"}, "props": {}},
    {"link": "WINNING_POSITION", "from": {"Debate": "b1"}, "to": {"Agent": "bull"}, "props": {}},
    {"link": "SUPPORTS_POSITION", "from": {"Pattern": "p1"}, "to": {"Debate": "b1"}, "props": {"side": "bull"}},
)


@st.composite
def lines(draw: st.DrawFn, *, corrections: bool = True) -> Line:
    """Draw a line without its ``known_at``."""
    sort = draw(st.sampled_from(["core", "group", "both", "link", *(["correct"] if corrections else [])]))
    if sort == "link":
        return dict(draw(st.sampled_from(LINES)))
    if sort == "correct":
        kind, key = draw(st.sampled_from(sorted(CORRECTABLE)))
        field = draw(st.sampled_from(CORRECTABLE[kind, key]))
        core = {**CORES[kind, key], field: draw(st.sampled_from(["new", "newer"]))}
        return {"correct": kind, "core": core, "reason": "misread"}
    kind, key = draw(st.sampled_from(sorted(CORES if sort == "core" else GROUPS)))
    line: Line = {"record": kind}
    line |= {"core": CORES[kind, key]} if sort != "group" else {"key": key}
    if sort != "core":
        name = draw(st.sampled_from(sorted(GROUPS[kind, key])))
        line["groups"] = {name: draw(st.sampled_from(GROUPS[kind, key][name]))}
    return line


@st.composite
def histories(
    draw: st.DrawFn,
    actors: Sequence[str] = ("import:a", "import:b", "bear"),
    *,
    corrections: bool = True,
    most: int = 14,
) -> list[Telling]:
    """Draw what several actors say, one after the other; imports say when it was known, the others know it now."""
    told = []
    for _ in range(draw(st.integers(1, most))):
        actor = draw(st.sampled_from(actors))
        line = draw(lines(corrections=corrections))
        told.append((actor, {**line, "known_at": draw(st.sampled_from(DAYS))} if actor.startswith("import:") else line))
    return told


@st.composite
def interleavings(draw: st.DrawFn, actors: Sequence[str]) -> list[int]:
    """Draw an order of what *actors* said, each keeping its own: indices into the history."""
    lanes: dict[str, list[int]] = {}
    for index, actor in enumerate(actors):
        lanes.setdefault(actor, []).append(index)
    order = []
    while lanes:
        actor = draw(st.sampled_from(sorted(lanes)))
        order.append(lanes[actor].pop(0))
        if not lanes[actor]:
            del lanes[actor]
    return order


@st.composite
def batched(draw: st.DrawFn, count: int) -> list[int]:
    """Draw sizes of batches that add up to *count*."""
    sizes: list[int] = []
    while sum(sizes) < count:
        sizes.append(draw(st.integers(1, min(5, count - sum(sizes)))))
    return sizes
