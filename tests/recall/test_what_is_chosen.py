"""What is left out where there is more than fits: never what matters most, on either path and as of any day."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from imem.memory import Memory
from imem.recall.retrievers import Limits
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import Line, day
from tests.recall.test_budget import FAILS, troubled

MANY = 25
"""More contradictions than a briefing takes by default."""

LIMITS = Limits()


def at(number: float) -> datetime:
    return datetime.fromisoformat(day(number))


def contradiction(key: str, on: float, priority: str, known: float | None = None) -> Line:
    line = facts.contradiction(key, on if known is None else known)
    core = {**line["core"], "subject_id": "company:T0", "timestamp": day(on)}
    return {**line, "core": core, "groups": _resolution(priority, "uncertain")}


def _resolution(priority: str, status: str) -> dict[str, Any]:
    taken = {"resolution_level": "2_credibility", "final_value": 1.0} if status == "resolved" else {}
    flags = {"provisional": status != "resolved", "reviewed_at_gate3": False}
    return {"resolution": {"priority": priority, "status": status, **taken, **flags}}


def resolved(key: str, known: float, priority: str = "HIGH", status: str = "resolved") -> Line:
    groups = _resolution(priority, status)
    return {"record": "DataContradiction", "known_at": day(known), "key": key, "groups": groups}


@asynccontextmanager
async def paths(harness: RecallHarness, query: str) -> AsyncIterator[tuple[Memory, Memory]]:
    """Lend two memories: one asks the graph, of the other one the query fails, so that the journal stands in."""
    async with troubled(harness, query, FAILS, deadline_ms=30_000) as without:
        yield harness.memory, without


async def _disputed(harness: RecallHarness) -> None:
    low = [contradiction(f"c{nth}", 2 + nth / 10, "LOW") for nth in range(MANY)]
    await harness.know(
        [
            facts.company("T0", 0), contradiction("critical", 1, "CRITICAL"), *low, contradiction("settled", 5, "HIGH"),
            resolved("settled", 5), contradiction("raised", 1.5, "LOW"),
            resolved("raised", 7, "HIGH", "uncertain"), contradiction("late", 1.2, "HIGH"), resolved("late", 8),
            contradiction("gone", 1.1, "CRITICAL"), resolved("gone", 1.1, "CRITICAL", "withdrawn"),
        ]
    )  # fmt: skip


async def test_an_open_critical_contradiction_is_never_pushed_out_by_newer_ones(harness: RecallHarness) -> None:
    """Open before resolved, by priority, then the newest; the number of all is told."""
    await _disputed(harness)
    async with paths(harness, "contradictions_of_subject") as memories:
        for memory in memories:
            section = await memory.contradictions("T0")
            shown = [one.key for one in section.items]
            assert shown == ["critical", "raised", *(f"c{MANY - nth}" for nth in range(1, LIMITS.contradictions - 1))]
            assert section.total == MANY + 4
            assert [one.key for one in (await memory.contradictions("T0", limit=1)).items] == ["critical"]
            assert "CRITICAL 2026-01-02 12:00" in (await memory.brief("T0")).to_markdown()
    rows = await harness.memory.query("contradictions_of_subject", {"subject_id": "company:T0", "limit": 2})
    assert [row["contradiction"] for row in rows] == ["critical", "raised"]


@pytest.mark.spec("GR-10")
async def test_what_was_corrected_or_resolved_later_is_judged_by_the_moment(harness: RecallHarness) -> None:
    """Before it was raised it was LOW, before the resolution it was open."""
    await _disputed(harness)
    async with paths(harness, "contradictions_of_subject") as memories:
        for memory in memories:
            first = [one.key for one in (await memory.contradictions("T0", as_of=at(6), limit=3)).items]
            assert first == ["critical", "late", f"c{MANY - 1}"]
            whole = [one.key for one in (await memory.contradictions("T0", as_of=at(6), limit=50)).items]
            assert whole[-2:] == ["raised", "settled"]
            after = [one.key for one in (await memory.contradictions("T0", as_of=at(7), limit=3)).items]
            assert after == ["critical", "raised", "late"]


FINDINGS = 45
BASELINES = tuple(f"baseline{nth}" for nth in range(3))


def _finding(key: str, agent: str, **core: Any) -> Line:
    line = facts.remark(key, 1)
    told = {name: value for name, value in line["core"].items() if name != "importance"}
    named = {"id": key, "analysis_id": "a0", "subject_id": "company:T0", "agent": agent}
    return {**line, "core": {**told, **named, **core}}


async def _spoken(harness: RecallHarness) -> None:
    """Forty-five findings without importance: baselines are first by id, who decides and who ran it last."""
    decided = facts.decision("d0", 2)
    await harness.know(
        [
            facts.company("T0", 0), facts.analysis("a0", 1),
            *(facts.agent(agent, 1, "baseline") for agent in BASELINES),
            *(_finding(f"a-{agent}", agent) for agent in BASELINES),
            *(_finding(f"f{nth:02}", f"agent{nth:02}") for nth in range(FINDINGS - 5)),
            _finding("y", "runs"), _finding("z", "decides"), facts.agent("agent07", 6, "baseline"),
            {**decided, "core": {**decided["core"], "agents_involved": ["decides"]}},
            {"link": "PERFORMED", "known_at": day(1), "from": {"Agent": "runs"}, "to": {"Analysis": "a0"}},
        ]
    )  # fmt: skip


async def test_of_too_many_findings_the_decision_makers_stay_and_baselines_go(harness: RecallHarness) -> None:
    await _spoken(harness)
    others = [f"f{nth:02}" for nth in range(FINDINGS - 5)]
    described = [key for key in others if key != "f07"]
    async with paths(harness, "company_history") as (exact, journal):
        for as_of, among in ((None, described), (at(7), described), (at(5), others)):
            (item,) = (await exact.history("T0", as_of=as_of)).items
            shown = {one.finding.key for one in item.findings}
            assert shown == {"y", "z", *among[: LIMITS.findings - 2]}
            assert item.findings_total == FINDINGS
            (item,) = (await journal.history("T0", as_of=as_of)).items
            shown = {one.finding.key for one in item.findings}
            assert shown == ({"z", *[*among, "y"][: LIMITS.findings - 1]})
        few = (await exact.brief("T0", limits=Limits(findings=2))).history.items[0]
        assert {one.finding.key for one in few.findings} == {"y", "z"}
        told = (await exact.brief("T0")).to_markdown()
    assert "decides" in told
    assert "baseline" not in told.partition("## Track records")[0].replace("baselines", "")


async def test_of_a_query_the_findings_are_chosen_alike(harness: RecallHarness) -> None:
    """What the query names by itself, as of a day before an agent was described as a baseline and after it."""
    await _spoken(harness)
    given = {"subject_id": "company:T0", "limit": 5, "findings_limit": 10, "detailed": 1}
    for as_of, eighth in ((None, "f08"), (at(5), "f07")):
        (row,) = await harness.memory.query("company_history", given, as_of=as_of)
        assert row["findings"] == ["y", "z", *(f"f{nth:02}" for nth in range(7)), eighth]
        assert sorted(row["makers"]) == ["decides", "runs"]


async def test_a_history_that_is_longer_than_its_limit_says_how_many_more_and_gets_them(harness: RecallHarness) -> None:
    """However much room there is: the briefing holds thirty, and the call that it names gets all."""
    keys = [f"a{2 * nth}" for nth in range(35)]
    await harness.know([facts.company("T0", 0), *(facts.analysis(key, 1, date=day(1)) for key in keys)])
    briefing = await harness.memory.brief("T0", deadline_ms=30_000)
    assert (len(briefing.history.items), briefing.history.total) == (LIMITS.analyses, 35)
    told = briefing.to_markdown(max_tokens=100_000)
    assert (
        '- 5 analyses: `await memory.history("company:T0", limit=35)` or `imem history company:T0 --limit 35`'
        in told.replace('imem history "company:T0"', "imem history company:T0")
    )
    assert {
        item.analysis.key for item in (await harness.memory.history("T0", limit=35, deadline_ms=30_000)).items
    } == set(keys)
