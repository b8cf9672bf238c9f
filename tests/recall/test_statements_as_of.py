"""Each statement by which the journal answers as of a moment, by itself: what comes later changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pytest

from tests.kg.lanes.conftest import paper
from tests.kg.projection.world import NEVER, Journal, Line, importer
from tests.recall import facts
from tests.recall.facts import day

__all__ = ["paper"]

FAR = datetime.fromisoformat("9999-12-31T23:59:59+00:00")

ASKED: dict[str, dict[str, Any]] = {
    "records_of_subject": {"subject_id": "company:T0", "kinds": ["Analysis", "Debate"], "limit": 50},
    "parts_of_analyses": {"analyses": ["a0"]},
    "speakers_in_journal": {"subject_id": "company:T0", "half": False, "limit": 50},
    "parts_of_debates": {
        "debates": ["b0"],
        "kinds": ["record.DebateResolution", "record.DebateTurn"],
        "limit": 50,
    },
    "turn_counts": {"debates": ["b0"], "positions": [None]},
    "contradictions_in_journal": {"subject_id": "company:T0", "limit": 50},
    "speakers_of_analyses": {"analyses": ["a0"]},
    "lessons_in_journal": {"subject_id": "company:T0", "half": False, "limit": 50},
    "record_values_at": {"kinds": ["Debate"], "keys": ["b0"]},
    "body_of": {"kind": "Analysis", "key": "a0"},
    "patterns_at": {"sector": None, "among": 50, "limit": 50},
    "active_among": {"keys": ["p0", "p1"]},
    "active_patterns_of_subject": {"subject_id": "company:T0", "limit": 50},
}
"""Statement → its parameters beside the clocks."""


def resolution(key: str, at: float) -> Line:
    core = {"id": key, "debate_id": "b0", "winning_position": "It rises.", "winning_agent": "agent0"}
    return {"record": "DebateResolution", "known_at": day(at), "core": core}


def turn(number: int, at: float) -> Line:
    core = {"debate_id": "b0", "subject_id": "company:T0", "number": number, "speaker": "agent1", "text": "So it is."}
    return {"record": "DebateTurn", "known_at": day(at), "core": core}


def lesson(key: str, at: float) -> Line:
    return facts.lesson(key, at, affected_domains=["up_or_down"])


def body(text: str, at: float) -> Line:
    return {**facts.analysis("a0", at), "body": text}


FIRST: tuple[Line, ...] = (
    facts.company("T0", 0), body("As it was.", 1), facts.finding("f0", 1), facts.decision("d0", 1),
    facts.debate("b0", 1), facts.debate_state("b0", 1), resolution("r0", 1), turn(2, 1), lesson("l0", 1),
    facts.identified("p0", 1),
    {**facts.identified("p1", 1), "from": {"Analysis": "a0"}}, facts.contradiction("c0", 1), lesson("l2", 2),
    *(facts.pattern(key, 0) for key in ("p0", "p1")), facts.pattern_status("p0", 1, "active"),
)  # fmt: skip

LATER: tuple[Line, ...] = (
    body("As it became.", 6), facts.analysis("a2", 6), facts.finding("f8", 6), facts.finding("f4", 6),
    facts.decision("d4", 6), facts.debate("b2", 6), facts.debate_state("b0", 6), resolution("r1", 6), turn(3, 6),
    lesson("l1", 6),
    facts.pattern_status("p1", 6, "active"), facts.contradiction("c2", 6),
)  # fmt: skip

EARLIER: tuple[Line, ...] = (
    facts.company("T0", -1), facts.analysis("a0", 0), facts.finding("f0", 0), facts.decision("d0", 0),
    facts.debate("b0", 0), resolution("r0", 0), turn(2, 0), lesson("l0", 0), lesson("l2", -1),
    facts.contradiction("c0", 0),
    facts.pattern("p0", -1), facts.identified("p0", 0),
)  # fmt: skip
"""The same records as at first, by somebody who says that they could be known earlier."""


async def answers(journal: Journal, **until: datetime) -> dict[str, list[Any]]:
    """Return what each statement answers as of moments."""
    clocks = {"known_until": FAR, "recorded_until": FAR, **until}
    return {
        name: await journal.database.named(name, {**asked, **clocks}, deadline=NEVER) for name, asked in ASKED.items()
    }


async def said(journal: Journal, lines: Iterable[Line]) -> datetime:
    """State facts; return when that was."""
    receipts = await journal.say(*lines)
    assert not any(receipt.verdict.refused for receipt in receipts), receipts
    (row,) = await journal.rows("SELECT max(recorded_at) AS at FROM event")
    at: datetime = row["at"]
    return at


@pytest.mark.spec("GR-10")
async def test_what_comes_later_changes_the_answer_of_no_statement(paper: Journal) -> None:
    """On either clock; and each of them is changed by it where it counts, so that each was really asked."""
    then = await said(paper, FIRST)
    clocks = ({"known_until": datetime.fromisoformat(day(5))}, {"recorded_until": then})
    before = [await answers(paper, **until) for until in clocks]
    assert all(rows for found in before for rows in found.values())

    await said(paper, LATER)

    for until, found in zip(clocks, before, strict=True):
        assert await answers(paper, **until) == found
    now = await answers(paper)
    assert {name for name, rows in now.items() if rows == before[0][name]} == set()


@pytest.mark.spec("GR-10")
async def test_a_later_statement_that_knew_it_earlier_moves_nothing_that_was_recorded(paper: Journal) -> None:
    """It is what the record's head names from then on; as recorded by an earlier moment, it is not there."""
    then = await said(paper, FIRST)
    before = await answers(paper, recorded_until=then)
    assert all(before.values())
    assert [row["key"] for row in before["lessons_in_journal"]] == ["l2", "l0"]

    receipts = await paper.say(*EARLIER, actor=importer("other"))
    assert not any(receipt.verdict.refused for receipt in receipts), receipts
    moved = await paper.rows(
        "SELECT DISTINCT h.kind FROM record_head AS h JOIN event AS e ON e.position = h.position"
        " WHERE h.grp = 'core' AND e.recorded_at > %s",
        then,
    )
    assert {row["kind"] for row in moved} >= {"Finding", "Lesson", "Analysis", "DataContradiction"}

    assert await answers(paper, recorded_until=then) == before
