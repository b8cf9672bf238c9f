"""Which patterns a briefing shows, of however many."""

from __future__ import annotations

from datetime import UTC, datetime

from imem.recall.answers import DatedRecord
from imem.recall.model import Quality
from imem.recall.sections.patterns import pattern_text
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import Line, day

MANY = 1_200
"""More than the best of which can be found by looking at the first thousand."""


def pattern(key: str, sector: str | None, success: float | None, *, at: float = 0, status: str = "active") -> Line:
    """Return a pattern of a sector, or of none."""
    line = facts.pattern(key, at)
    line["core"] |= {"sector": sector} if sector else {}
    line["groups"] = {"status": {"status": status, "quarantined": False}}
    if success is not None:
        line["groups"]["performance"] = {"success_rate": success, "occurrence_count": 3}
    return line


def company(sector: str) -> Line:
    """Return the company asked about, in a sector."""
    return facts.company("T0", 0) | {"groups": {"profile": {"name": "T0", "sector": sector}}}


async def said(harness: RecallHarness, at: datetime | None = None) -> tuple[list[str], int]:
    """Return the patterns that are shown, and how many there are."""
    section = await harness.memory.patterns("T0", limit=3, as_of=at)
    assert section.quality is Quality.EXACT, section
    return [one.key for one in section.items], section.total


async def test_the_best_are_found_among_very_many(harness: RecallHarness) -> None:
    """Whatever their names are: of the subject's sector and of none, and not of another."""
    others = [pattern(f"a{nth:04}", "energy", 0.95) for nth in range(MANY)]
    await harness.journal.say(
        company("chips"), *others, pattern("y", "chips", 0.6), pattern("z", None, 0.9), pattern("x", "chips", None),
        pattern("w", "chips", 0.99, status="candidate"),
    )  # fmt: skip
    assert await said(harness) == (["z", "y", "x"], 3)


async def test_they_are_chosen_by_what_was_known_then(harness: RecallHarness) -> None:
    """Status, success and sector change, and are corrected: each day has its own order."""
    await harness.journal.say(
        company("chips"), pattern("p", "chips", 0.5), pattern("q", "energy", 0.7), pattern("r", None, 0.6, at=2),
    )  # fmt: skip
    later = {"performance": {"success_rate": 0.9, "occurrence_count": 9}}
    await harness.journal.say({"record": "Pattern", "known_at": day(3), "key": "p", "groups": later})
    await harness.journal.say(facts.corrected(pattern("q", "energy", None), 4, sector="chips"))
    await harness.journal.say(facts.pattern_status("r", 5, "deprecated"))
    found = {number: await said(harness, datetime.fromisoformat(day(number))) for number in (1, 2.5, 3.5, 4.5, 5.5)}
    assert found == {
        1: (["p"], 1),
        2.5: (["r", "p"], 2),
        3.5: (["p", "r"], 2),
        4.5: (["p", "q", "r"], 3),
        5.5: (["p", "q"], 2),
    }
    assert await said(harness) == (["p", "q"], 2)


def test_a_pattern_says_its_condition_its_interval_and_until_when_it_was_tested() -> None:
    groups = {
        "performance": {"success_rate": 0.95, "occurrence_count": 79},
        "definition": {"says": "Where forecast at least 0.5, up turns out higher than crowd states."},
        "validation": {"validated_date": "2027-06-03T23:46:05.584870Z"},
    }
    at = datetime(2027, 6, 4, tzinfo=UTC)
    made = DatedRecord(
        kind="Pattern", key="pattern:1", core={"name": "Crowds hold back", "category": "financial"}, groups=groups,
        known_at=at, occurred_at=at,
    )  # fmt: skip
    text = pattern_text(made)
    assert "Where forecast at least 0.5, up turns out higher than crowd states." in text
    assert "success rate 0.95 over 79 (95 % interval 0.88 to 0.98), tested until 2027-06-03" in text
