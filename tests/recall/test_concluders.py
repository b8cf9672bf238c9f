"""Conclusions are compared with those of the same agent, or of the same team, and each agent is named."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from imem.journal.actors import Actor
from imem.journal.settings import Role
from imem.recall.model import HistoryItem
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import Line, day
from tests.recall.pages import analysis, briefing, finding, part


def by(agent: str | None, days: float, probability: float, *, kind: str = "research") -> HistoryItem:
    item = analysis(days, finding(agent or "x", days), probability=probability, kind=kind)
    return item.model_copy(update={"concluder": agent})


@pytest.mark.parametrize(
    ("items", "lines"),
    [
        (
            [by("bob", 0, 0.2), by("ann", 0, 0.9)],
            [
                '"bob" last concluded 2026-06-01 12:00: probability 0.20; it is the first analysis known.',
                '"ann" last concluded 2026-06-01 12:00: probability 0.90; it is the first analysis known.',
            ],
        ),
        (
            [by("bob", 0, 0.2), by("ann", 0, 0.9), by("ann", 1, 0.7), by("bob", 2, 0.2), by("bob", 3, 0.1)],
            [
                '"bob" last concluded 2026-06-01 12:00: probability 0.20, as on 2026-05-30 12:00.',
                '"ann" last concluded 2026-06-01 12:00: probability 0.90; before, 2026-05-31 12:00: probability 0.70.',
            ],
        ),
        (
            [by(None, 0, 0.2), by(None, 1, 0.9)],
            ["Last concluded 2026-06-01 12:00: probability 0.20; before, 2026-05-31 12:00: probability 0.90."],
        ),
        (
            [by(None, 0, 0.2), by("ann", 0, 0.3), by(None, 1, 0.9)],
            [
                "Last concluded 2026-06-01 12:00: probability 0.20; before, 2026-05-31 12:00: probability 0.90.",
                '"ann" last concluded 2026-06-01 12:00: probability 0.30; it is the first analysis known.',
            ],
        ),
        (
            [by(None, 0, 0.2), by(None, 1, 0.9, kind="note"), by(None, 2, 0.2)],
            [
                '"research" last concluded 2026-06-01 12:00: probability 0.20, as on 2026-05-30 12:00.',
                '"note" last concluded 2026-05-31 12:00: probability 0.90; it is the first analysis known.',
            ],
        ),
    ],
    ids=["two agents on one day", "two agents, twice", "a team", "a team and an agent", "two kinds"],
)
def test_each_is_compared_with_itself(items: list[HistoryItem], lines: list[str]) -> None:
    text = briefing(*items).to_markdown()
    shown = part(text, "What changed").splitlines()

    assert [line.removeprefix("- ") for line in shown if "last concluded" in line.lower()] == lines
    history = [line for line in part(text, "History").splitlines() if line.startswith("- ")]
    assert [f'"{item.concluder}"' in line for item, line in zip(items, history, strict=True)] == [
        item.concluder is not None for item in items
    ]


def test_agents_that_change_their_minds_are_compared_with_themselves() -> None:
    def view(agent: str, days: float, direction: str) -> HistoryItem:
        item = analysis(days, finding(agent, days, direction=direction))
        return item.model_copy(update={"concluder": agent})

    items = [view(agent, days, side) for days, agent, side in (
        (0, "bob", "negative"), (0, "ann", "positive"), (1, "bob", "positive"), (1, "ann", "positive"),
    )]  # fmt: skip

    assert '1 of 2 agents changed: "bob" positive → negative.' in briefing(*items).to_markdown()


def test_many_concluders_are_counted() -> None:
    text = briefing(*(by(f"agent{n}", n, 0.5) for n in range(8))).to_markdown(max_tokens=5000)

    assert part(text, "What changed").count("last concluded") == 5
    assert "3 more concluded earlier; see the history." in text


def spoke(key: str, agent: str) -> Line:
    return facts.finding(key, 1, analysis_id="a0", subject_id="company:T0", agent=agent)


def performed(agent: str) -> Line:
    ends = {"from": {"Agent": agent}, "to": {"Analysis": "a0"}}
    return {"link": "PERFORMED", "known_at": day(1), **ends, "props": {"role": "lead"}}


@pytest.mark.parametrize(
    ("lines", "recorder", "expected"),
    [
        ([performed("ann"), spoke("f0", "bob"), spoke("f1", "eve")], None, "ann"),
        ([performed("ann"), performed("bob"), spoke("f0", "bob")], None, None),
        ([spoke("f0", "bob"), spoke("f1", "bob")], None, "bob"),
        ([spoke("f0", "bob"), spoke("f1", "eve")], None, None),
        ([], None, None),
        ([], Actor("ann", Role.AGENT), "ann"),
        ([spoke("f0", "bob")], Actor("ann", Role.AGENT), "bob"),
        ([], Actor("eve", Role.HUMAN_ADMIN), "eve"),
    ],
)
async def test_who_concluded(
    harness: RecallHarness, lines: list[dict[str, Any]], recorder: Actor | None, expected: str | None
) -> None:
    """By who performed it, else by whose findings it holds, else by who recorded it; of several, a team."""
    written = facts.analysis("a0", 1, date=day(1))
    if recorder is not None:
        del written["known_at"]
        (receipt,) = await harness.journal.say(written, actor=recorder)
        assert not receipt.verdict.refused
    await harness.know([facts.company("T0", 0), *([written] if recorder is None else []), *lines])

    (item,) = (await harness.memory.history("company:T0")).items

    assert item.concluder == expected
    if recorder is None:
        early = datetime.fromisoformat(day(0.5))
        assert (await harness.memory.history("company:T0", as_of=early)).items == []
