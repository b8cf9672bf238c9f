"""The automatic cause of a case, and the records that it quotes; nothing that became known after the review's day."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from imem.kg.kinds.enums import RootCause
from imem.postmortem.cases.analyst import CaseRecord, cause_of, cluster_of
from imem.postmortem.cases.package import PostmortemCase
from tests.credibility.conftest import cites, corrected, decision, finding, opened, outcome, reading, text
from tests.servers import cloned

from .conftest import DAY, DECIDED, EXPECTED, Clinic, decided, happened

SOME = st.dictionaries(st.text("ab", min_size=1), st.text("xyz", min_size=1), max_size=3)
REVIEWED = datetime.fromisoformat(happened(0.0)["known_at"])


@given(
    contradictions=SOME,
    wrong=SOME,
    unheard=SOME,
    met=st.dictionaries(st.sampled_from([30, 90, 180]), st.just("said")),
    changed=st.booleans(),
)
def test_the_first_cause_with_evidence_is_the_cause(
    *,
    contradictions: dict[str, str],
    wrong: dict[str, str],
    unheard: dict[str, str],
    met: dict[int, str],
    changed: bool,
) -> None:
    regimes = ("r1", "BULL"), ("r2", "BEAR" if changed else "BULL")
    record = CaseRecord(contradictions=contradictions, regimes=regimes, met=met, wrong=wrong, unheard=unheard)
    cause, evidence = cause_of(record)
    there = {
        RootCause.DATA_QUALITY: contradictions, RootCause.REGIME_CHANGE: changed, RootCause.TIMING: met,
        RootCause.MODEL_ASSUMPTIONS: wrong, RootCause.MISSING_FACTORS: unheard,
    }  # fmt: skip
    assert cause is next((one for one, found in there.items() if found), RootCause.BLACK_SWAN)
    assert {one.cause for one in evidence} == {one for one, found in there.items() if found}
    assert (cluster_of(cause, evidence) is not None) is (cause in {RootCause.DATA_QUALITY, RootCause.REGIME_CHANGE})


def contradiction(key: str, known_at: datetime) -> dict[str, Any]:
    return {
        "record": "DataContradiction", "known_at": text(known_at),
        "core": {
            "id": key, "subject_id": "company:MU", "data_point": "revenue", "source_a": "10-K", "source_b": "vendor",
            "value_a": 9.0, "value_b": 7.0, "timestamp": text(known_at),
        },
    }  # fmt: skip


def claimed(key: str, agent: str = "ann", known_at: datetime = DECIDED - DAY, **core: Any) -> dict[str, Any]:
    return finding(
        key, known_at, DECIDED + 10 * DAY, subject_id="company:MU", agent=agent, direction="positive",
        metric="up", probability=0.9, statement=f"{key} holds.", **core,
    )  # fmt: skip


# fmt: off
WORLD = [
    reading("r-1", DECIDED - 30 * DAY, "NORMAL"),
    claimed("f-cited"), claimed("f-minor", "bob", importance=0.2), claimed("f-unheard", "bob", importance=0.9),
    claimed("f-too-late", "bob", DECIDED + DAY, importance=0.9),
    decision("before", DECIDED - 10 * DAY, subject_id="company:MU"), decided(), cites("d", "f-cited", DECIDED),
    contradiction("c-1", DECIDED + 5 * DAY), reading("r-2", DECIDED + 8 * DAY, "HIGH_VOLATILITY"),
    outcome("o-up", DECIDED + 11 * DAY, DECIDED + 10 * DAY, 0.0, subject_id="company:MU"),
    happened(-0.40),
]
LATER = [
    contradiction("c-2", REVIEWED + DAY), reading("r-3", REVIEWED + DAY, "BEAR_HIGH_RATES"),
    outcome("o-up-1", REVIEWED + DAY, DECIDED + 10 * DAY, 1.0, subject_id="company:MU", vintage=1),
    cites("d", "f-unheard", REVIEWED + DAY), happened(0.10, days=90),
    corrected(decided(), REVIEWED + DAY, action="sell"),
]
# fmt: on


async def reviewed(clinic: Clinic, *lines: dict[str, Any]) -> PostmortemCase:
    """Return what a reviewer sees of the case of `d`, with all of *lines* recorded before it is opened."""
    await clinic.world.say(*lines)
    await clinic.world.settle()
    await clinic.advance()
    [task] = [one for one in await clinic.tasks() if one.package.decision_id == "d"]
    return task.package


async def test_each_cause_quotes_its_records(clinic: Clinic) -> None:
    case = await reviewed(clinic, *WORLD)
    assert case.cause is RootCause.DATA_QUALITY
    assert [(one.cause.value, one.record, one.says) for one in case.evidence] == [
        ("data_quality", "DataContradiction c-1", "revenue: 9 or 7"),
        ("regime_change", "RegimeReading r-1", "at the decision: NORMAL"),
        ("regime_change", "RegimeReading r-2", "at the review: HIGH_VOLATILITY"),
        ("model_assumptions", "Finding f-cited", "f-cited holds."),
        ("missing_factors", "Finding f-unheard", "f-unheard holds."),
    ]
    assert [(one.id, one.agent, one.right) for one in case.reasoning] == [("f-cited", "ann", False)]
    assert [one.id for one in case.earlier] == ["before"]
    assert (case.domains, case.cluster) == (("flu",), "data_quality DataContradiction c-1")
    [analysis] = await clinic.records("FailureAnalysis")
    assert analysis["root_cause_category"] == "data_quality"
    for one in case.evidence:
        assert one.record in analysis["root_cause_details"]
    assert analysis["missing_factors"] == ["Finding f-unheard: f-unheard holds."]


async def test_a_review_equals_the_one_with_all_later_lines_removed(clinic: Clinic, stack: Any, template: str) -> None:
    with cloned(stack.settings, template) as (url, admin_url):
        async with opened(stack.settings, url, admin_url) as other:
            without = await reviewed(Clinic(other), *WORLD)
    case = await reviewed(clinic, *WORLD, *LATER)
    assert case == without
    assert (case.reviewed_as_of, case.action) == (REVIEWED, None)


async def test_a_met_checkpoint_speaks_for_timing(clinic: Clinic) -> None:
    await clinic.world.say(decided(), happened(EXPECTED.points[0].predicted), happened(-0.50, days=90))
    await clinic.advance()
    [task] = await clinic.tasks()
    case = task.package
    assert case.cause is RootCause.TIMING
    assert [one.record for one in case.evidence] == ["checkpoint 30"]
    assert [one.days for one in case.checkpoints] == [90]


async def test_cases_with_one_cause_may_be_answered_together(clinic: Clinic) -> None:
    await clinic.world.say(reading("r-1", DECIDED - DAY, "NORMAL"), reading("r-2", DECIDED + DAY, "HIGH_VOLATILITY"))
    for key in ("d1", "d2"):
        await clinic.world.say(decided(key, subject=f"company:{key}"), happened(-0.40, key, subject=f"company:{key}"))
    await clinic.advance()
    clusters = {one.package.cluster for one in await clinic.tasks()}
    assert clusters == {"regime_change RegimeReading r-1 RegimeReading r-2"}
