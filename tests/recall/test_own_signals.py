"""What the agent that asks concluded before, in its briefing."""

from __future__ import annotations

from datetime import datetime

from imem.memory import Memory
from imem.recall.model import Briefing, Quality
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import day

TITLE = "## What you concluded before"


def _at(number: float) -> datetime:
    return datetime.fromisoformat(day(number))


async def test_an_agent_reads_its_own_conclusions_and_what_it_changed(harness: RecallHarness) -> None:
    """As of each day those of then, corrections included; without an agent none, and no heading."""
    await harness.know(
        [
            facts.company("T0", 0), facts.agent("agent0", 0), facts.agent("agent1", 0),
            facts.analysis("a0", 1), facts.analysis("a2", 2),
            facts.finding("f0", 1, analysis_id="a0", probability=0.9, confidence=0.6, key_drivers=["Rates", "# Obey"]),
            facts.finding("f6", 2, analysis_id="a2", probability=0.2, confidence=0.6, key_drivers=["Wages"]),
            facts.finding("f4", 2, analysis_id="a2", probability=0.2, confidence=0.9),
        ]
    )  # fmt: skip
    second = facts.finding("f6", 2, analysis_id="a2", probability=0.2, confidence=0.6, key_drivers=["Wages"])
    await harness.know([facts.corrected(second, 4, probability=0.7)])

    async def asked(for_agent: str | None, number: float) -> Briefing:
        return await harness.memory.brief("T0", for_agent=for_agent, as_of=_at(number))

    nobody = await asked(None, 3)
    assert not nobody.own_signals.items
    assert TITLE not in nobody.to_markdown()
    assert "earlier signals" not in nobody.to_markdown()
    early, first, later, corrected = [await asked("agent0", number) for number in (0.5, 1.5, 3, 5)]
    assert not early.own_signals.items
    assert "earlier signals of yours" in early.to_markdown()
    [one] = first.own_signals.items
    assert (one.direction, one.fair_probability, first.own_signals.changes) == ("YES", 0.9, [])
    assert '"Rates", "# Obey"' in first.to_markdown()
    assert [item.direction for item in later.own_signals.items] == ["NO", "YES"]
    assert {change.type for change in later.own_signals.changes} == {
        "direction_change", "probability_shift", "reasoning_evolution"
    }  # fmt: skip
    assert "The direction changed from YES to NO." in later.to_markdown()
    assert [item.fair_probability for item in corrected.own_signals.items] == [0.7, 0.9]
    assert corrected.own_signals.quality is Quality.EXACT
    assert [item.confidence for item in (await asked("agent1", 5)).own_signals.items] == [0.9]


async def test_a_cached_section_is_another_agents_never(telling: RecallHarness) -> None:
    """Nor does it outlive what its agent records."""
    await telling.know([facts.company("T0", 0), facts.finding("f0", 1, probability=0.9, confidence=0.6)])
    memory: Memory = telling.memory
    for _ in range(2):
        assert len((await memory.brief("T0", for_agent="agent0")).own_signals.items) == 1
        assert len((await memory.brief("T0", for_agent="agent1")).own_signals.items) == 0
    await telling.know([facts.finding("f4", 2, probability=0.1, confidence=0.6)])
    assert len((await memory.brief("T0", for_agent="agent1")).own_signals.items) == 1


async def test_it_is_switched_off_with_the_signals(harness: RecallHarness) -> None:
    """For all subjects, or for those that are not reached yet: the section is not there, and the rest is exact."""
    await harness.know([facts.company("T0", 0), facts.finding("f0", 1, probability=0.9, confidence=0.6)])
    for off in ({"signals_enabled": False}, {"signals_rollout_percent": 0}):
        async with Memory.open(harness.settings.model_copy(update=off)) as memory:
            briefing = await memory.brief("T0", for_agent="agent0", deadline_ms=30_000)
        assert (briefing.own_signals.items, briefing.degraded) == ([], False)
        assert briefing.own_signals.reason == "signals are switched off for this subject"
        assert TITLE not in briefing.to_markdown()
        assert "earlier signals" not in briefing.to_markdown()
    assert len((await harness.memory.brief("T0", for_agent="agent0")).own_signals.items) == 1
