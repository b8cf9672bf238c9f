"""What may be approved in bulk, in which order items come, and what an answer must say. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.gates.learning.items import Importance, ItemPriority, WaitingItem
from imem.gates.learning.lessons import LESSON, bulk_of, importance_of
from imem.gates.learning.package import (
    ITEM_KINDS,
    LearningPackage,
    PackageAnswers,
    answers_given,
    compose,
)
from imem.gates.learning.scores import BIAS, CREDIBILITY, ScoreChange, SeenBias
from imem.gates.learning.trigger import Due, Urgency
from imem.journal.errors import BadInput
from imem.kg.kinds.enums import BiasKind, LessonPriority, LessonSource
from imem.postmortem.lessons.gate import LessonItem

AT = datetime(2026, 1, 5, tzinfo=UTC)
DUE = Due(Urgency.NORMAL, 50, timedelta(days=7))


def change(by: float, n: int = 20, **more: Any) -> ScoreChange:
    values = {"agent": "ann", "domain": "flu", "old": 0.5, "new": 0.5 + by, "reason": "new", "stable": True, **more}
    return ScoreChange(n=n, **values)


def item(seen: ScoreChange, key: str = "ann/flu", at: datetime = AT, **importance: Any) -> Any:
    """Return an item as the pipeline finds it."""
    waits = WaitingItem(
        key=key, headline=seen.headline, seen=seen, since=at, importance=Importance(**importance), bulk=seen.bulk
    )
    return CREDIBILITY, waits


def lesson(confirmations: int = 5, confidence: float | None = 0.9, **more: Any) -> LessonItem:
    values = {
        "lesson_id": "l", "source": LessonSource.AI_ANALYSIS, "category": "timing", "insight": "It was early.",
        "recommended_action": "Wait.", "priority": LessonPriority.MEDIUM, "reviewed": True, "since": AT, **more,
    }  # fmt: skip
    return LessonItem(confirmations=confirmations, confidence=confidence, **values)


def lesson_item(seen: LessonItem, key: str) -> Any:
    return LESSON, WaitingItem(
        key=key, headline=seen.insight, seen=seen, since=AT, importance=importance_of(seen), bulk=bulk_of(seen)
    )


@pytest.mark.spec("GT-3")
@pytest.mark.parametrize(
    ("seen", "bulk"),
    [
        (lesson(), True),
        (lesson(confirmations=4), False),
        (lesson(confidence=0.89), False),
        (lesson(confidence=None), False),
        (lesson(contradicting_ids=("x",)), False),
        (lesson(affected_domains=("valuation",)), False),
        (lesson(category="Valuation"), False),
        (lesson(scope_metric="valuation_target"), False),
        (lesson(patterns={"p": "Inventories"}), False),
    ],
)
def test_confirmed_lessons_may_be_approved_in_bulk(seen: LessonItem, *, bulk: bool) -> None:
    assert (bulk_of(seen) is not None) is bulk


@pytest.mark.parametrize(
    ("seen", "priority"),
    [
        (lesson(), ItemPriority.NORMAL),
        (lesson(priority=LessonPriority.HIGH, confirmations=1), ItemPriority.HIGH),
        (lesson(priority=LessonPriority.LOW), ItemPriority.LOW),
        (lesson(confirmations=4), ItemPriority.LOW),
        (lesson(confidence=0.5), ItemPriority.LOW),
        (lesson(confirmations=1, contradicting_ids=("x",)), ItemPriority.HIGH),
        (lesson(affected_domains=("risk_assessment",)), ItemPriority.HIGH),
    ],
)
def test_priorities_of_lessons(seen: LessonItem, priority: ItemPriority) -> None:
    assert importance_of(seen).priority is priority


def bias_item(key: str) -> Any:
    seen = SeenBias(
        agent="ann", domain="flu", metric="close", kind=BiasKind.RELATIVE, bias=0.2, n=20, accuracy_before=0.1,
        accuracy_after=0.9,
    )  # fmt: skip
    return BIAS, WaitingItem(key=key, headline=seen.headline, seen=seen, since=AT, importance=Importance())


@pytest.mark.spec("GT-4")
@pytest.mark.parametrize(
    ("seen", "bulk"),
    [
        (change(-0.06), False),
        (change(-0.04), True),
        (change(0.04), True),
        (change(-0.05), False),
        (change(-0.04, n=19), False),
        (change(-0.04, stable=False), False),
        (change(0.02, n=10, stable=False), True),
        (change(0.02, n=9), False),
        (change(0.03, n=19), False),
        (change(0.001, n=500, domain="valuation"), False),
        (change(0.001, n=500, on_probation=True), False),
    ],
)
def test_small_changes_may_be_approved_in_bulk(seen: ScoreChange, *, bulk: bool) -> None:
    assert (seen.bulk is not None) is bulk


@pytest.mark.parametrize(
    ("importance", "priority"),
    [
        (Importance(impact=0.81), ItemPriority.HIGH),
        (Importance(impact=0.8), ItemPriority.NORMAL),
        (Importance(valuation=True), ItemPriority.HIGH),
        (Importance(risk=True), ItemPriority.HIGH),
        (Importance(disagreement=True, n=1), ItemPriority.HIGH),
        (Importance(confidence=0.59), ItemPriority.LOW),
        (Importance(confidence=0.6), ItemPriority.NORMAL),
        (Importance(supporting=True), ItemPriority.LOW),
        (Importance(n=4), ItemPriority.LOW),
        (Importance(n=5), ItemPriority.NORMAL),
    ],
)
def test_priorities(importance: Importance, priority: ItemPriority) -> None:
    assert importance.priority is priority


def test_a_package_stops_at_240_minutes_and_the_rest_waits() -> None:
    """The important ones first, of equal ones those that wait longest."""
    waiting = [item(change(0.1), f"a{n}/flu", AT + timedelta(days=n)) for n in range(45)]
    waiting += [item(change(0.1), "low/flu", AT - timedelta(days=9), n=1), item(change(0.1), "v/flu", valuation=True)]

    package = compose(3, DUE, waiting)

    assert (package.minutes, len(package.items), package.left) == (240.0, 40, 7)
    assert [one.key for one in package.items] == ["v/flu", *(f"a{n}/flu" for n in range(39))]


def package(*items: Any) -> LearningPackage:
    return compose(1, DUE, items)


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        ({}, "fields.items"),
        ({"items": [{"item": "9", "action": "approve"}]}, "fields.items.0.item"),
        ({"items": [{"item": 1, "action": "approve"}, {"item": "credibility:ann/flu", "action": "approve"}]},
         "fields.items.1.item"),
        ({"items": [{"item": "1", "action": "reject"}]}, "fields.items.0.action"),
        ({"items": [{"item": "1", "action": "override"}]}, "fields.items.0.rationale"),
        ({"items": [{"item": "1", "action": "override", "fields": {"score": 2.0}, "rationale": "So."}]},
         "fields.items.0.fields.score"),
        ({"items": [{"item": "1", "action": "reset_for_regime", "rationale": "So."}]}, "action"),
        ({"bulk": True}, "fields.items"),
        ({"items": [{"item": "2", "action": "add_caveats"}]}, "fields.insight"),
        ({"items": [{"item": "2", "action": "replace", "fields": {"lesson_id": "other"}}]}, "fields.lesson_id"),
        ({"items": [{"item": "2", "action": "reject", "rationale": " "}]}, "fields.items.0.rationale"),
    ],
)  # fmt: skip
def test_wrong_answers_are_refused_by_name(stated: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        answers_given(package(item(change(-0.06)), lesson_item(lesson(4), "l")), PackageAnswers.model_validate(stated))

    assert refused.value.field == field


CHANGES = st.builds(
    change,
    st.floats(-0.5, 0.5),
    n=st.integers(0, 200),
    domain=st.sampled_from(["flu", "valuation", "Valuation models", "equity_valuation", "risk"]),
    stable=st.booleans(),
)

LESSONS = st.builds(
    lesson,
    st.integers(1, 9),
    confidence=st.sampled_from([None, 0.5, 0.9, 0.99]),
    affected_domains=st.sampled_from([(), ("flu",), ("flu", "valuation")]),
    contradicting_ids=st.sampled_from([(), ("x",)]),
    patterns=st.sampled_from([{}, {"p": "Inventories"}]),
)


@pytest.mark.spec("GT-3")
@given(st.lists(CHANGES, max_size=12), st.lists(LESSONS, max_size=4), st.integers(0, 5), st.sets(st.integers(1, 6)))
def test_nothing_is_approved_that_no_person_named(
    changes: list[ScoreChange], lessons: list[LessonItem], biases: int, named: set[int]
) -> None:
    """Whatever waits: items are approved by name, or, with bulk, where a rule lets them; of valuation never."""
    waiting = [item(seen, f"{n}/{seen.domain}") for n, seen in enumerate(changes)]
    waiting += [lesson_item(seen, f"{n}/{','.join(seen.affected_domains)}") for n, seen in enumerate(lessons)]
    waiting += [bias_item(f"b{n}") for n in range(biases)]
    found = package(*waiting)
    numbers = sorted(n for n in named if n <= len(found.items))
    stated = tuple({"item": str(n), "action": "approve"} for n in numbers)
    by_name = {found.items[n - 1].id for n in numbers}
    in_bulk = {one.id for one in found.items if one.bulk is not None}

    for bulk in (False, True):
        expected = by_name | (in_bulk if bulk else set())
        answers = PackageAnswers.model_validate({"items": stated, "bulk": bulk})
        if not expected:
            with pytest.raises(BadInput):
                answers_given(found, answers)
            continue
        given = answers_given(found, answers)
        assert {one.item.id for one in given} == expected
        assert {one.item.id for one in given if one.alone} == by_name

    assert not any("valuation" in one.key.casefold() or one.kind == "bias" for one in found.items if one.bulk)
    assert not any(one.seen.get("patterns") for one in found.items if one.bulk)


def test_every_kind_can_be_approved_and_is_estimated() -> None:
    assert {name: kind.minutes for name, kind in ITEM_KINDS.items()} == {
        "credibility": 6.0, "bias": 6.0, "lesson": 7.0, "retirement": 7.0, "pattern": 12.0,
    }  # fmt: skip
    assert all("approve" in kind.actions for kind in ITEM_KINDS.values())
