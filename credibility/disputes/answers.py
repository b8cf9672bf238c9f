"""
The view of a reviewer of contradictions, and the effect of an answer on each item.

A person chooses a document, confirms what counts provisionally, marks both values as uncertain, or states a value of
their own, which becomes a data point (:func:`own_point`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from imem.credibility.disputes.cells import spread
from imem.credibility.disputes.findings import resolution_of
from imem.credibility.disputes.levels import HUMAN_CONFIDENCE, OWN_VALUE, Verdict, fallback
from imem.credibility.disputes.priorities import TAGS
from imem.credibility.disputes.sources import PERSON
from imem.journal.errors import BadInput
from imem.kg.kinds.data_points import CELL, DataPoint
from imem.kg.kinds.enums import (
    ContradictionPriority,
    ContradictionSide,
    ContradictionStatus,
    DataDifference,
    OutcomeProvenance,
    ResolutionLevelData,
)
from imem.kg.kinds.metrics import metric_of
from imem.kg.kinds.trust import DataContradiction
from imem.review.kinds import Answer, Fields
from imem.review.states import TaskState

HUMAN: Final = "human_arbitration"
CONFIRMED: Final = "human_confirmation"
MARKED_UNCERTAIN: Final = "human_uncertainty"

Resolution = DataContradiction.Resolution

Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class _Seen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SeenDocument(_Seen):
    """A document, as the reviewer sees it; *score* is its source's when the task was opened."""

    source: str
    document: str | None
    filed_at: datetime | None
    score: float


class SeenItem(_Seen):
    """
    A value in which the two documents differ.

    Attributes:
        contradiction_id: of the contradiction.
        point_a, point_b: the data points, where they are recorded.
        data_point: the metric with its period and unit.
        value_a, value_b: as the first and the second document state it.
        differ_by: as a share of the larger one.
        priority: of the contradiction.
        valuation_impact: how far the difference moves the valuation, as a fraction of it, if that is known.
        fallback_value: what counts if nobody answers; None: no value does.
        fallback_side: the document that states it.
        fallback_confidence: how sure that is.
        differential: the difference of the sources' scores.
        difference: how the values differ; None where somebody else reported the contradiction.
    """

    contradiction_id: str
    point_a: str | None
    point_b: str | None
    metric: str
    data_point: str
    value_a: float
    value_b: float
    differ_by: float
    priority: ContradictionPriority
    valuation_impact: float | None = None
    fallback_value: float | None
    fallback_side: ContradictionSide | None
    fallback_confidence: float
    differential: float
    difference: DataDifference | None = None

    def corrected(self, value_a: float, value_b: float) -> SeenItem:
        """Return the item with the values of a correction of the contradiction."""
        values = {ContradictionSide.A: value_a, ContradictionSide.B: value_b, None: None}
        update = {"value_a": value_a, "value_b": value_b, "differ_by": spread(value_a, value_b)}
        return self.model_copy(update={**update, "fallback_value": values[self.fallback_side]})

    def points_without(self, value: float | None) -> set[str]:
        """Return the data points of the two that state another value than *value*."""
        stated = ((self.point_a, self.value_a), (self.point_b, self.value_b))
        return {key for key, other in stated if key is not None and other != value}


class DocumentPair(_Seen):
    """The view of a contradiction's reviewer."""

    subject_id: str
    documents: tuple[SeenDocument, SeenDocument]
    items: tuple[SeenItem, ...]


class ChosenSide(Fields):
    """
    The document whose values count: the first (a) or the second (b).

    Attributes:
        always: whether that source counts for later contradictions of the same metrics, sources and difference as well.
    """

    document: Literal["a", "b"]
    always: bool = False


class OwnValues(Fields):
    """
    The values that a person states.

    Attributes:
        value: of the item, if the task has one.
        items: the number of an item → its value; a field that is named by the number does as well.
        others: the document whose values count of all other items.
    """

    value: Finite | None = None
    others: Literal["a", "b"] | None = None
    items: Mapping[str, Finite] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _numbered(cls, data: Any) -> Any:
        """Take a field that is named by a number as the value of that item."""
        if not isinstance(data, Mapping) or not isinstance(data.get("items", {}), Mapping):
            return data
        numbered = {name: value for name, value in data.items() if str(name).isdecimal()}
        others = {name: value for name, value in data.items() if name not in numbered}
        return {**others, "items": {**data.get("items", {}), **numbered}}

    def by_item(self, items: Sequence[SeenItem]) -> dict[str, float]:
        """
        Return the values by the ids of their contradictions.

        Raises:
            BadInput: an item has no value and no document, or there is no such item; names the field.
        """
        stated = dict(self.items)
        if self.value is not None:
            if len(items) > 1:
                raise BadInput("fields.value", f"the task has {len(items)} items: name each by its number, as 1=….")
            stated["1"] = self.value
        numbered = {str(number): item.contradiction_id for number, item in enumerate(items, 1)}
        for name in stated:
            if name not in numbered:
                raise BadInput(f"fields.{name:.40}", f"is no item; items have the numbers 1 to {len(items)}.")
        if not stated:
            name = "value" if len(items) == 1 else "1"
            raise BadInput(f"fields.{name}", "is needed: a number, or another action.")
        if len(stated) < len(items) and self.others is None:
            raise BadInput("fields.others", "is needed: the document (a or b) whose values count of all other items.")
        return {numbered[name]: value for name, value in stated.items()}


def check_rules(package: DocumentPair, _fields: object) -> None:
    """
    Refuse an answer that is to count always where no rule could be made of it.

    Raises:
        BadInput: both documents are of one source, or another process reported the contradictions.
    """
    one, other = package.documents
    if one.source == other.source:
        raise BadInput("fields.always", f"takes two sources: both documents are of {one.source:.200}.")
    if all(item.difference is None for item in package.items):
        raise BadInput("fields.always", "takes data points: these contradictions were reported without them.")


def groups_of_answer(
    item: SeenItem, items: Sequence[SeenItem], state: TaskState, answer: Answer | None
) -> Iterator[tuple[str, Any]]:
    """Yield the resolution of one of *items*, and its outcome where a person said which of the two values is right."""
    if answer is None:
        yield "resolution", fallback_of(item)
        return
    reviewed = state is not TaskState.ANSWERED
    side = side_of(item, items, answer)
    if side is not None:
        yield "resolution", _decided(item, answer, HUMAN, side, reviewed=reviewed)
        yield "outcome", _confirmed(side)
    elif isinstance(answer.fields, OwnValues):
        own = answer.fields.by_item(items)[item.contradiction_id]
        stated = _decided(item, answer, OWN_VALUE, None, reviewed=reviewed)
        yield "resolution", stated.model_copy(update={"final_value": own})
    elif answer.action == "investigate":
        update = {"status": ContradictionStatus.INVESTIGATING, "reviewed_at_gate3": reviewed, "decided_by": answer.by}
        yield "resolution", fallback_of(item).model_copy(update=update)
    elif answer.action == "uncertain" or item.fallback_side is None:
        yield "resolution", _uncertain(item, answer, reviewed=reviewed)
    else:
        confirmed = _decided(item, answer, CONFIRMED, item.fallback_side, reviewed=reviewed)
        yield "resolution", confirmed.model_copy(update={"resolution_level": ResolutionLevelData.FALLBACK})
        yield "outcome", _confirmed(item.fallback_side)


def side_of(item: SeenItem, items: Sequence[SeenItem], answer: Answer) -> ContradictionSide | None:
    """Return the document that an answer chooses for one of *items*; None where it chooses none."""
    if isinstance(answer.fields, ChosenSide):
        return ContradictionSide(answer.fields.document)
    if isinstance(answer.fields, OwnValues) and item.contradiction_id not in answer.fields.by_item(items):
        return ContradictionSide(answer.fields.others or "a")
    return None


def own_point(core: dict[str, Any], value: float, answer: Answer, task_id: str) -> DataPoint:
    """Return the data point of a value that a person states; *core* is of another point of the cell."""
    stated = {name: core.get(name) for name in CELL}
    return DataPoint.model_validate(
        {
            **stated,
            "value": value,
            "source": f"{PERSON}:{answer.by}",
            "document": f"task {task_id}",
            "filed_at": answer.at,
            "answer": {"decided_by": answer.by, "task_id": task_id},
        }
    )


def fallback_of(item: SeenItem) -> Resolution:
    """Return the resolution of level 4: the fallback counts, provisionally."""
    verdict = fallback(item.fallback_side, item.fallback_confidence, item.differential)
    return resolution_of(item.value_a, item.value_b, verdict, item.priority)


def _decided(
    item: SeenItem, answer: Answer, method: str, side: ContradictionSide | None, *, reviewed: bool
) -> Resolution:
    verdict = Verdict(
        ResolutionLevelData.HUMAN, method, side, HUMAN_CONFIDENCE, item.differential, ContradictionStatus.RESOLVED
    )
    decided = resolution_of(item.value_a, item.value_b, verdict, item.priority)
    return decided.model_copy(update={"reviewed_at_gate3": reviewed, "decided_by": answer.by})


def _uncertain(item: SeenItem, answer: Answer, *, reviewed: bool) -> Resolution:
    """Return the resolution of a person who holds neither value: the more cautious one counts, as uncertain."""
    decided = _decided(item, answer, MARKED_UNCERTAIN, None, reviewed=reviewed)
    uncertain = {"status": ContradictionStatus.UNCERTAIN, "confidence": 0.50, "final_value": cautious_value(item)}
    return decided.model_copy(update=uncertain)


def _confirmed(side: ContradictionSide) -> DataContradiction.Outcome:
    """Return the outcome that a person names: the value of *side* is right."""
    return DataContradiction.Outcome(outcome_label=side, outcome_provenance=OutcomeProvenance.HUMAN_LABEL)


def cautious_value(item: SeenItem) -> float | None:
    """Return the more cautious of two values; None where the metric declares no cautious end."""
    metric = metric_of(TAGS.get(item.metric, item.metric))
    if metric is None or metric.cautious is None:
        return None
    return (min if metric.cautious == "low" else max)(item.value_a, item.value_b)
