"""A decision is in its subject's briefing, whether or not one of the subject's analyses led to it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from typer.testing import CliRunner

from imem.cli import app
from imem.credibility.verdicts import NoVerdict
from imem.recall.section_registry import SECTIONS_BY_NAME
from imem.recall.sections.lone_decisions import TITLE
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import TARGET_DAY, Line, day
from tests.recall.far import Far, far
from tests.recall.test_existence import environment

__all__ = ["far"]


def decision(key: str, at: float, *, decided: float = 2, subject: str = "company:T0", **core: Any) -> Line:
    values = {
        "id": key, "subject_id": subject, "type": "trade", "agents_involved": ["agent0"], "decided_at": day(decided),
        "stance": "long", "action": f"buy {key}",
    }  # fmt: skip
    return {"record": "Decision", "known_at": day(at), "core": {**values, **core}}


KNOWN = [
    facts.company("T0", 0), facts.company("T1", 0), facts.analysis("a0", 0), facts.analysis("a1", 0),
    facts.analysis("a4", 6), facts.finding("f0", 0), facts.outcome("o0", TARGET_DAY),
    decision("in", 2, analysis_id="a0"),
    decision("late", 2, decided=1.0, analysis_id="a4"),
    decision("other", 2, decided=1.5, analysis_id="a1"),
    decision("nowhere", 2, decided=1.2, analysis_id="none"),
    decision("alone", 2, decided=2.0), decision("later", 5, decided=4.0),
    decision("elsewhere", 2, subject="company:T1"),
    {"link": "CITES", "known_at": day(2), "from": {"Decision": "alone"}, "to": {"Finding": "f0"},
     "props": {"at": day(2), "rank": 1}},
    facts.outcome("o8", TARGET_DAY, subject_id="company:T0", decision_id="alone", metric="return_5s"),
]  # fmt: skip


def at(number: float) -> datetime:
    return datetime.fromisoformat(day(number))


def keys(section: Any) -> list[str]:
    return [one.decision.key for one in section.decisions]


EXPECTED = {
    1.0: [],
    3.0: ["alone", "other", "nowhere", "late"],
    5.5: ["later", "alone", "other", "nowhere", "late"],
    # Its analysis is known by then.
    6.5: ["later", "alone", "other", "nowhere"],
    None: ["later", "alone", "other", "nowhere"],
}
"""As of which day which decisions are in no analysis of the subject, newest first."""


async def test_what_no_analysis_of_the_subject_led_to_is_in_its_history(harness: RecallHarness) -> None:
    """As of each day; each is shown once, by its analysis or by itself, with its outcomes and verdict."""
    await harness.know(KNOWN)
    for number, expected in EXPECTED.items():
        section = await harness.memory.history("T0", as_of=None if number is None else at(number))
        assert keys(section) == expected, number
        assert section.decisions_total == len(expected)
        by_analyses = [one.decision.key for item in section.items for one in item.decisions]
        assert set(by_analyses).isdisjoint(expected)
        if number is None or number > 6:
            assert sorted(by_analyses) == ["in", "late"]
    now = await harness.memory.history("T0")
    [alone] = [one for one in now.decisions if one.decision.key == "alone"]
    assert [one.key for one in alone.outcomes] == ["o8"]
    assert alone.decision.groups["outcome"]["outcome"] in {"success", "failure"}
    reasons = {one.decision.key: one.no_verdict for one in now.decisions}
    assert reasons == {"alone": None, **dict.fromkeys(("later", "other", "nowhere"), NoVerdict.NO_CITATION)}
    few = await harness.memory.history("T0", limit=2)
    assert (keys(few), few.decisions_total) == (["later", "alone"], 4)


async def test_a_briefing_labels_them(harness: RecallHarness) -> None:
    """Under a heading of their own, with who decided, what it expects and its verdict; so does the command."""
    await harness.know(KNOWN)
    briefing = await harness.memory.brief("T0")
    text = briefing.to_markdown(max_tokens=20_000)
    part = text.partition(f"## {TITLE}\n")[2].partition("\n\n")[0].splitlines()
    assert len(part) == 4
    verdict = next(one for one in briefing.history.decisions if one.decision.key == "alone")
    said = verdict.decision.groups["outcome"]["outcome"]
    assert part[1] == f'- {day(2)[:10]} {day(2)[11:16]} "agent0" decided "buy alone", stance long → {said}'
    assert 'names the analysis "a1"' in part[2]
    assert '"buy in"' not in "\n".join(part)
    short = briefing.to_markdown(max_tokens=1_000)
    assert TITLE in short or "decisions without an analysis" in short

    printed = SECTIONS_BY_NAME["history"].text(briefing.history)
    assert f"{TITLE}:" in printed
    env = environment(harness.settings)
    result = await asyncio.to_thread(lambda: CliRunner().invoke(app, ["history", "T0"], env=env))
    assert result.exit_code == 0, result.output
    assert TITLE in result.output


async def test_a_subject_of_which_there_is_one_decision_alone(harness: RecallHarness) -> None:
    """It is known by it, and its briefing shows it."""
    await harness.know([decision("d", 2, subject="company:NEW", agents_involved=["a", "b", "c", "d", "e"])])
    briefing = await harness.memory.brief("NEW")
    assert keys(briefing.history) == ["d"]
    text = briefing.to_markdown()
    assert TITLE in text
    assert '"a", "b", "c" and 2 more decided' in text


async def test_without_the_graph_they_are_shown_too(far: Far) -> None:
    """They are found in Postgres; the section is partial for other reasons."""
    about: dict[str, Any] = {"subject": "company:LONE"}
    await far.harness.know([
        facts.analysis("a90", 0, subject_id="company:LONE"), decision("x", 2, **about),
        decision("y", 2, analysis_id="a90", **about), decision("z", 2, decided=3.0, analysis_id="none", **about),
    ])  # fmt: skip
    far.stall("graph")
    section = await far.memory.history("LONE", deadline_ms=3_000)
    assert keys(section) == ["z", "x"]
    assert [one.decision.key for item in section.items for one in item.decisions] == ["y"]
    assert section.quality.value == "partial"
