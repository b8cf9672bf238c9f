"""The report on learning counts what was decided, cited and measured, and says what cannot be said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from imem.gates.learning.report import Share, learning_report
from tests.credibility.conftest import cites, finding
from tests.postmortem.cases.conftest import DECIDED, ENOUGH, Clinic, cites_pattern, clinic, decided, happened, world

__all__ = ["clinic", "world"]

PATTERN = {
    "record": "Pattern", "known_at": DECIDED.isoformat(),
    "core": {"pattern_id": "p-1", "name": "Inventories", "category": "cycle"},
}  # fmt: skip

OF: dict[str, Any] = {"subject_id": "company:MU", "probability": 0.9}


async def test_an_empty_memory_says_that_nothing_can_be_said(clinic: Clinic) -> None:
    found = await learning_report(clinic.world.database, None, deadline=ENOUGH)
    assert (found.packages, found.due, found.cases, found.lessons, found.calibration) == (0, 0, {}, (), ())
    assert found.citing == Share(n=0, count=0)
    assert [one.split(" cannot")[0] for one in found.warnings] == [
        "Whether decisions cite the memory", "Whether lessons work", "Whether forecasts became better",
    ]  # fmt: skip


async def test_it_counts_citations_cases_and_quarters(clinic: Clinic) -> None:
    """Of twelve decisions one cites a pattern, one a finding of another analysis, one a finding of its own."""
    early = DECIDED - timedelta(days=1)
    own = finding("f-own", early, DECIDED, analysis_id="a-2", **OF)
    await clinic.world.say(PATTERN, own, finding("f-other", early, DECIDED, **OF))
    for number in range(12):
        await clinic.world.say(
            decided(f"d{number}", analysis_id=f"a-{number}"), happened(0.02 if number else -0.40, f"d{number}")
        )
    await clinic.world.say(cites_pattern("d0", "p-1"), cites("d1", "f-other", DECIDED), cites("d2", "f-own", DECIDED))
    await clinic.advance()

    found = await learning_report(clinic.world.database, None, deadline=ENOUGH)
    assert (found.citing.n, found.citing.count) == (12, 2)
    assert found.citing.share is not None
    assert found.citing.low is not None
    assert found.citing.low < found.citing.share == 2 / 12
    assert found.cases == {"in_review": 1}
    [quarter] = found.calibration
    assert quarter.begins == datetime(2026, 1, 1, tzinfo=UTC)
    assert (quarter.inside.n, quarter.inside.count) == (12, 11)
    assert [one.split(" cannot")[0] for one in found.warnings] == [
        "Whether lessons work", "Whether forecasts became better",
    ]  # fmt: skip
    later = await learning_report(clinic.world.database, DECIDED + timedelta(days=60), deadline=ENOUGH)
    assert (later.citing.n, later.calibration) == (0, ())
