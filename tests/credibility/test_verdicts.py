"""The verdict on a decision: its stance beside what came of the finding that it cites first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.credibility.history import DatedStatement, Timeline, ValidityInterval
from imem.credibility.verdicts import (
    PENDING,
    CitedClaim,
    DecisionVerdict,
    FindingCitation,
    NoVerdict,
    first_claims,
    missing,
    movement,
    no_verdict,
    verdicts,
)
from imem.kg.kinds.metrics import metric_of

Scores = dict[str, list[tuple[ValidityInterval, int | None]]]

START = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def said(known: int, value: Any, number: int = 0) -> DatedStatement[Any]:
    return DatedStatement(day(known), day(known), order_key(day(known), number), corrects=False, value=value)


def order_key(known_at: datetime, number: int) -> str:
    return f"{(known_at - START) // timedelta(microseconds=1):018}|x|{number:03}"


def cited(finding: str, known: int, rank: int | None = 1, at: int = 0) -> list[DatedStatement[FindingCitation]]:
    return [said(known, FindingCitation(finding, day(at), rank))]


def due(*, metric: str = "up", **targets: int) -> dict[str, CitedClaim]:
    """Return claims, known from the first day, by finding and the day on which each is due."""
    return {finding: CitedClaim(day(0), day(target), metric) for finding, target in targets.items()}


LONG = [said(0, "long")]
"""Stated before everything else."""


def changes(steps: Timeline[str]) -> list[tuple[datetime, str | None]]:
    return list(zip(steps.times, steps.values, strict=True))


def test_verdict_is_known_from_the_later_of_citation_and_score() -> None:
    scores: Scores = {"f": [(ValidityInterval(day(5), None), 1)]}

    assert changes(verdicts({"l": cited("f", 2)}, scores, due(f=4), LONG)) == [(day(5), "success")]
    assert changes(verdicts({"l": cited("f", 9)}, scores, due(f=10), LONG)) == [(day(9), "success")]


def test_a_citation_made_when_it_shows_who_was_right_counts_for_nothing() -> None:
    """Whatever time its author gives it: what counts is when it was known, before the moment the claim speaks of."""
    scores: Scores = {"f": [(ValidityInterval(day(5), None), -1)], "right": [(ValidityInterval(day(5), None), 1)]}
    targets = due(f=4, right=4)
    honest = {"l": cited("f", 2, at=2)}

    assert changes(verdicts({"m": cited("right", 6, at=0)}, scores, targets, LONG)) == []
    assert changes(verdicts({**honest, "m": cited("right", 6, at=0)}, scores, targets, LONG)) == [(day(5), "failure")]
    assert changes(verdicts({**honest, "m": cited("right", 3, at=0)}, scores, targets, LONG)) == [(day(5), "failure")]


def test_an_abstention_is_no_verdict_and_the_earlier_citation_of_a_rank_is_first() -> None:
    scores: Scores = {"f": [(ValidityInterval(day(5), None), None)], "g": [(ValidityInterval(day(5), None), -1)]}
    both = {"l": cited("f", 2, at=1), "m": cited("g", 2, at=0)}

    assert changes(verdicts({"l": cited("f", 2), "m": cited("g", 2, rank=2)}, scores, due(f=4, g=4), LONG)) == []
    assert changes(verdicts(both, scores, due(f=4, g=4), LONG)) == [(day(5), "failure")]


@pytest.mark.parametrize(
    ("links", "first"),
    [
        ([("f", None)], "f"),
        ([("f", 7)], "f"),
        ([("f", 0), ("g", 1)], "f"),
        ([("g", 2), ("f", 1)], "f"),
        ([("g", 3), ("f", 2)], "f"),
        ([("f", None), ("g", None)], "f"),
        ([("g", None), ("f", None)], "g"),
        ([("g", None), ("f", 4)], "f"),
        ([("remark", 1), ("f", 2)], "f"),
        ([("remark", None), ("f", None), ("g", None)], "f"),
        ([("remark", 1)], None),
        ([], None),
    ],
)
def test_the_lowest_rank_is_first_else_the_order_in_which_links_were_given(
    links: list[tuple[str, int | None]], first: str | None
) -> None:
    citations = {
        finding: [said(2, FindingCitation(finding, day(2), rank), number)]
        for number, (finding, rank) in enumerate(links)
    }
    claims = due(f=4, g=4)
    scores: Scores = {name: [(ValidityInterval(day(5), None), 1 if name == first else -1)] for name in claims}

    assert first_claims(citations, claims).at(day(3)) == first
    assert changes(verdicts(citations, scores, claims, LONG)) == ([] if first is None else [(day(5), "success")])


@pytest.mark.parametrize("rank", [None, 0, 1, -5])
@pytest.mark.parametrize("then", [None, 1])
def test_no_citation_replaces_the_first_one_after_its_target_date(rank: int | None, then: int | None) -> None:
    """Else a decision that turned out wrong could be moved to another claim; before the target date it may."""
    claims = due(f=4, g=20)
    scores: Scores = {"f": [(ValidityInterval(day(5), None), -1)], "g": [(ValidityInterval(day(21), None), 1)]}

    for known, expected in ((4, "f"), (9, "f"), (3, "g" if rank is not None and (rank < 1 or then is None) else "f")):
        links = {"l": cited("f", 2, rank=then), "m": cited("g", known, rank=rank)}
        assert first_claims(links, claims).at(day(30)) == expected
        assert verdicts(links, scores, claims, LONG).at(day(30)) == ("failure" if expected == "f" else "success")


@pytest.mark.parametrize("rank", [3, None])
def test_a_settled_claim_does_not_come_first_by_the_demotion_of_another(rank: int | None) -> None:
    """Else a decision could be moved to a claim that turned out well; before that one's target date it may."""
    claims = due(g=20, f=4)
    scores: Scores = {"f": [(ValidityInterval(day(5), None), 1)], "g": [(ValidityInterval(day(21), None), -1)]}

    for demoted, first in ((10, "g"), (4, "g"), (3, "f")):
        links = {"m": [*cited("g", 1, rank=1), *cited("g", demoted, rank=rank)], "l": cited("f", 2, rank=2)}
        assert first_claims(links, claims).at(day(30)) == first
        assert verdicts(links, scores, claims, LONG).at(day(12)) == (None if first == "g" else "success")
        assert verdicts(links, scores, claims, LONG).at(day(30)) == ("failure" if first == "g" else "success")


def test_a_claim_is_cited_from_when_it_is_known() -> None:
    claims = {"f": CitedClaim(day(3), day(9), "up"), **due(g=9)}

    firsts = first_claims({"l": cited("f", 1, rank=1), "m": cited("g", 2, rank=2)}, claims)

    assert changes(firsts) == [(day(2), "g"), (day(3), "f")]


@pytest.mark.parametrize(
    ("reason", "changed"),
    [
        (NoVerdict.NO_STANCE, {"stances": [said(2, None)]}),
        (NoVerdict.NO_STANCE, {"stances": [said(2, "none")]}),
        (NoVerdict.NO_STANCE, {"stances": [said(2, "none"), said(5, None)._replace(corrects=True)]}),
        (NoVerdict.NO_STANCE, {"stances": [said(2, "long"), said(3, "none")._replace(corrects=True)]}),
        (NoVerdict.NO_CITATION, {"citations": {}}),
        (NoVerdict.NO_CLAIM, {"claims": {}}),
        (NoVerdict.NO_CLAIM, {"claims": due(other=4)}),
        (NoVerdict.CITED_LATE, {"citations": {"l": cited("f", 4)}}),
        (NoVerdict.STATED_LATE, {"stances": [said(4, "long")]}),
        (NoVerdict.STATED_LATE, {"stances": [said(2, "none"), said(4, "long")._replace(corrects=True)]}),
        (NoVerdict.VALUE_METRIC, {"claims": due(f=4, metric="price_target")}),
        (NoVerdict.UNKNOWN_METRIC, {"claims": due(f=4, metric="gone")}),
        (NoVerdict.ABSTAINED, {"abstained": {"f"}}),
        (NoVerdict.WAITS, {}),
        (NoVerdict.WAITS, {"stances": [said(2, "long"), said(4, "short")._replace(corrects=True)]}),
        (NoVerdict.WAITS, {"stances": [said(2, "long"), said(4, None)._replace(corrects=True)]}),
    ],
)
def test_a_missing_verdict_has_a_reason(reason: NoVerdict, changed: dict[str, Any]) -> None:
    facts: dict[str, Any] = {
        "stances": [said(2, "long")], "citations": {"l": cited("f", 2, rank=None)}, "claims": due(f=4),
        "abstained": set(),
    }  # fmt: skip

    assert no_verdict(**{**facts, **changed}) == (reason, day(4) if reason is NoVerdict.WAITS else None)
    given = {**facts, **changed}
    known = due(f=4) if reason is NoVerdict.VALUE_METRIC else given["claims"]
    moved = None if given["abstained"] or "METRIC" in reason.name else 1
    scores: Scores = {"f": [(ValidityInterval(day(5), None), moved)]}
    verdict = verdicts(given["citations"], scores, known, given["stances"]).at(day(30))
    assert verdict == ("success" if reason is NoVerdict.WAITS else None)


def test_a_new_vintage_changes_the_verdict_from_its_own_day() -> None:
    scores: Scores = {"f": [(ValidityInterval(day(5), day(8)), 1), (ValidityInterval(day(8), None), -1)]}

    found = verdicts({"l": cited("f", 2)}, scores, due(f=4), LONG)
    assert changes(found) == [(day(5), "success"), (day(8), "failure")]


@pytest.mark.parametrize(
    ("stance", "expected"),
    [
        ("long", ["success", "failure", "failure"]),
        ("short", ["failure", "failure", "success"]),
        ("avoid", ["failure", "success", "success"]),
        ("hold", ["success", "success", "failure"]),
        ("none", [None, None, None]),
        (None, [None, None, None]),
    ],
)
def test_the_stance_decides(stance: str | None, expected: list[str | None]) -> None:
    """One finding, cited by decisions of every stance, and what they came to when it rose, stayed and fell."""
    told = [
        verdicts(
            {"l": cited("f", 2)}, {"f": [(ValidityInterval(day(5), None), moved)]}, due(f=4), [said(2, stance)]
        ).at(day(6))
        for moved in (1, 0, -1)
    ]

    assert told == expected


def test_a_stance_that_is_taken_in_hindsight_counts_for_nothing() -> None:
    """Neither one stated when it shows who was right, nor a correction then; a correction in time counts."""
    scores: Scores = {"f": [(ValidityInterval(day(5), None), 1)]}
    links, targets = {"l": cited("f", 2)}, due(f=4)
    corrected = [said(2, "short"), said(6, "long")._replace(corrects=True)]

    assert changes(verdicts(links, scores, targets, [said(6, "long")])) == []
    assert changes(verdicts(links, scores, targets, corrected)) == [(day(5), "failure")]
    corrected[1] = said(3, "long", 1)._replace(corrects=True)
    assert changes(verdicts(links, scores, targets, corrected)) == [(day(5), "success")]


def test_what_goes_up() -> None:
    """The sign of a direction, whether an event happened; a value says nothing, nor does a claim that abstained."""
    direction, binary, value = (metric_of(name) for name in ("return_1s", "up", "price_target"))

    assert [movement(direction, actual, abstained=False) for actual in (0.1, 0.0, -0.1)] == [1, 0, -1]
    assert [movement(binary, actual, abstained=False) for actual in (1.0, 0.0)] == [1, -1]
    assert [movement(value, 100.0, abstained=False), movement(None, 1.0, abstained=False)] == [None, None]
    assert movement(direction, 0.1, abstained=True) is None


def test_what_should_not_stand_becomes_pending() -> None:
    stated = [said(5, "success")]

    assert missing(Timeline[str](), stated) == [DecisionVerdict(day(5), PENDING)]


outcomes = st.sampled_from(["success", "failure", None])
wanted = st.lists(st.tuples(st.integers(0, 9), outcomes), max_size=5, unique_by=lambda one: one[0])


@settings(max_examples=300, deadline=None)
@given(wanted, st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["success", "failure", PENDING])), max_size=6))
def test_after_mending_everything_stands_and_nothing_is_missing(
    changed: list[tuple[int, str | None]], before: list[tuple[int, str]]
) -> None:
    """Whatever was said before, what is missing makes every day right, and then nothing is."""
    steps = Timeline((day(number), value) for number, value in sorted(changed, key=lambda one: one[0]))
    stated = [said(number, value, index) for index, (number, value) in enumerate(before)]
    for index, verdict in enumerate(missing(steps, stated)):
        key = order_key(verdict.known_at, 100 + index)
        assert (verdict.known_at, verdict.outcome) not in {(one.known_at, one.value) for one in stated}
        stated.append(DatedStatement(verdict.known_at, verdict.known_at, key, corrects=False, value=verdict.outcome))

    for number in range(11):
        moment = day(number) + timedelta(seconds=1)
        there = sorted((one for one in stated if one.known_at <= moment), key=lambda one: one.order_key)
        assert (there[-1].value if there else PENDING) == (steps.at(moment) or PENDING)
    assert missing(steps, stated) == []
