"""A decision without a verdict says why, in the history, as of each moment; citations without a rank settle it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import Line, day
from tests.recall.pages import part

SUBJECT: dict[str, Any] = {"analysis_id": "a0", "subject_id": "company:T0"}
DUE, OVER = "2026-01-04 12:00", "no verdict yet: outcome overdue since 2026-01-04 12:00"


def claim(key: str, at: float, **core: Any) -> Line:
    return facts.finding(key, at, **SUBJECT, **core)


def remark(key: str, at: float) -> Line:
    line = facts.remark(key, at)
    return {**line, "core": {**line["core"], **SUBJECT}}


def decision(key: str, at: float, stance: str | None = "long") -> Line:
    line = facts.decision(key, at)
    core = {name: value for name, value in {**line["core"], **SUBJECT, "stance": stance}.items() if value is not None}
    return {**line, "core": {**core, "action": key}}


def cites(key: str, finding: str, at: float = 2, **props: Any) -> Line:
    ends = {"from": {"Decision": key}, "to": {"Finding": finding}}
    return {"link": "CITES", "known_at": day(at), **ends, "props": {"at": day(2), **props}}


def turned(at: float, stance: str) -> Line:
    """Return a correction of the stance of d0."""
    return facts.corrected(decision("d0", 2), at, stance=stance)


CASES: dict[str, tuple[list[Line], str, str]] = {
    "no stance": ([decision("d0", 2, None), cites("d0", "f0")],) + ("no verdict: states no stance",) * 2,
    "no citation": ([decision("d0", 2)],) + ("no verdict: cites no finding",) * 2,
    "a remark": ([decision("d0", 2), cites("d0", "f4")],) + ("no verdict: cites no finding with a claim",) * 2,
    "a value": (
        [decision("d0", 2), cites("d0", "f8")],
        "no verdict: the claim cited first is a number, not a direction",
        "no verdict: the claim cited first is a number, not a direction",
    ),
    "no outcome": ([decision("d0", 2), cites("d0", "f12")], "no verdict yet: outcome due 2026-01-10 12:00",
                   "no verdict yet: outcome due 2026-01-10 12:00"),
    "an abstention": ([decision("d0", 2), cites("d0", "f16")], f"no verdict yet: outcome due {DUE}",
                      "no verdict: the claim cited first took no side"),
    "unranked": ([decision("d0", 2), cites("d0", "f0")], f"no verdict yet: outcome due {DUE}", "success"),
    "a remark before a claim": ([decision("d0", 2), cites("d0", "f4"), cites("d0", "f0")],
                                f"no verdict yet: outcome due {DUE}", "success"),
    "the first of two": ([decision("d0", 2), cites("d0", "f0"), cites("d0", "f12")],
                         f"no verdict yet: outcome due {DUE}", "success"),
    "a lower rank": ([decision("d0", 2), cites("d0", "f12", rank=3), cites("d0", "f0", rank=2)],
                     f"no verdict yet: outcome due {DUE}", "success"),
    "a stance taken back late": ([decision("d0", 2), cites("d0", "f20"), turned(5, "none")],
                                 f"no verdict yet: outcome due {DUE}", OVER),
    "a stance turned late": ([decision("d0", 2), cites("d0", "f20"), turned(5, "short")],
                             f"no verdict yet: outcome due {DUE}", OVER),
    "a stance taken late": ([decision("d0", 2, "none"), cites("d0", "f20"), turned(5, "long")],
                            "no verdict: states no stance", "no verdict: states its stance only after the target date"),
    "a stance taken in time": ([decision("d0", 1.5, "none"), cites("d0", "f0"), turned(2, "long")],
                               f"no verdict yet: outcome due {DUE}", "success"),
    "cited late": ([decision("d0", 2), cites("d0", "f0", 4)], "no verdict: cites no finding",
                   "no verdict: cites the finding only after its target date"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_the_history_says_why_a_decision_has_no_verdict(harness: RecallHarness, name: str) -> None:
    """As of the day before the target date, and now."""
    lines, before, now = CASES[name]
    await harness.know(
        [
            facts.company("T0", 0), facts.analysis("a0", 1), claim("f0", 1, probability=0.8), remark("f4", 1),
            claim("f8", 1, metric="price_target", value=10.0), claim("f12", 1, target_at=day(9)),
            claim("f16", 1, metric="return_1s", direction="neutral"),
            claim("f20", 1, metric="return_5s", direction="positive"),
            *lines,
            facts.outcome("o0", 4, subject_id="company:T0", actual=1.0, vintage=0),
            facts.outcome("o2", 4, subject_id="company:T0", actual=0.1, vintage=0, metric="return_1s"),
            facts.outcome("o4", 4, subject_id="company:T0", actual=11.0, vintage=0, metric="price_target"),
        ]
    )  # fmt: skip
    for at, expected in ((2.5, before), (6, now)):
        brief = await harness.memory.brief("company:T0", as_of=datetime.fromisoformat(day(at)))
        for section in ("History", "Newest analysis"):
            assert f" → {expected}" in part(brief.to_markdown(), section), section


async def test_an_outcome_that_is_late_is_said_to_be(harness: RecallHarness) -> None:
    """The same day is not named twice."""
    await harness.know(
        [facts.company("T0", 0), facts.analysis("a0", 1), claim("f0", 1), decision("d0", 2), cites("d0", "f0")]
    )
    shown = part((await harness.memory.brief("company:T0")).to_markdown(), "History")

    assert OVER in shown
    assert shown.count(DUE) == 1
