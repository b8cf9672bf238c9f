"""
Definitions of patterns: the forecasts, the condition, and where outcomes lie when it holds. Pure.

A condition has at most three atoms over features that were known when the forecast was made: the six dimensions of its
context, and two numbers: ``forecast``, what was stated, and ``drift``, how far that is from the same agent's earlier
statement about the question.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from imem.credibility.scores.context import DIMENSIONS
from imem.journal.events.ids import id_of
from imem.kg.kinds.fields import refuse
from imem.kg.kinds.metrics import metric_of
from imem.kg.load_format.refusals import refusal
from imem.patterns.evidence.holdout import Direction
from imem.patterns.evidence.watching import Frequency

NUMBERS: Final = ("forecast", "drift")
"""Features that are numbers; the others are names."""

FEATURES: Final = (*DIMENSIONS, *NUMBERS)

MOST_ATOMS: Final = 3

_Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Comparison(StrEnum):
    """How an atom compares a feature with its value."""

    IS = "is"
    AT_LEAST = "at_least"
    BELOW = "below"


_HOLDS: Final[Mapping[Comparison, Callable[[Any, Any], bool]]] = {
    Comparison.IS: operator.eq,
    Comparison.AT_LEAST: operator.ge,
    Comparison.BELOW: operator.lt,
}


class Period(StrEnum):
    """The period in which cases are compared: each subject has one case in each, that of its first forecast."""

    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"

    @property
    def days(self) -> float:
        """Its mean length."""
        return {Period.WEEK: 7.0, Period.MONTH: 30.4375, Period.QUARTER: 91.3125}[self]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Atom(_Value):
    """One comparison of a condition; a feature that a forecast does not have meets none."""

    feature: str
    comparison: Comparison
    value: float | _Name

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.feature not in FEATURES:
            raise refuse("feature", f"is one of {', '.join(FEATURES)}.")
        number = self.feature in NUMBERS
        if number is not isinstance(self.value, float):
            raise refuse("value", f"of {self.feature} is a {'number' if number else 'name'}.")
        if number is (self.comparison is Comparison.IS):
            allowed = "at_least or below" if number else "is"
            raise refuse("comparison", f"of {self.feature} is {allowed}.")
        return self

    def holds(self, features: Mapping[str, Any]) -> bool:
        """Return whether *features*, by name, meet it."""
        found = features.get(self.feature)
        return found is not None and _HOLDS[self.comparison](found, self.value)

    @property
    def shown(self) -> str:
        """The value as text; both zeros are one."""
        return repr(self.value + 0.0) if isinstance(self.value, float) else self.value

    @property
    def words(self) -> str:
        """The comparison as words."""
        return f"{self.feature.replace('_', ' ')} {self.comparison.replace('_', ' ')} {self.shown}"


class PatternDefinition(_Value):
    """
    A pattern as it is proposed.

    Attributes:
        name, category: for people; the category names the domain whose table judges it.
        metric: of the questions: a binary one, or a value.
        reference: the agent whose recorded forecasts are the best that existed, as an ensemble or a crowd.
        condition: all of it has to hold.
        claim: where outcomes then lie against the reference.
        period: what cases are compared within.
        mechanism: why it should be so.
        frequency: how often the condition comes about, for its probation.
    """

    name: _Name
    category: _Name
    metric: _Name
    reference: _Name
    condition: tuple[Atom, ...] = Field(min_length=1, max_length=MOST_ATOMS)
    claim: Direction
    period: Period = Period.MONTH
    mechanism: Annotated[str, StringConstraints(min_length=1, max_length=2_000, strip_whitespace=True)]
    frequency: Frequency = Frequency.UNKNOWN

    @model_validator(mode="after")
    def _questions_have_forecasts(self) -> Self:
        metric = metric_of(self.metric)
        if metric is None or metric.kind not in {"binary", "value"}:
            raise refuse("metric", "is no metric of events or values.")
        return self

    @model_validator(mode="after")
    def _atoms_differ(self) -> Self:
        asked = [(atom.feature, atom.comparison) for atom in self.condition]
        if len(set(asked)) != len(asked):
            raise refuse("condition", "compares one feature in one way twice.")
        return self

    @property
    def key(self) -> str:
        """The pattern's key: a hash of metric, reference, period, condition and claim."""
        atoms = sorted((one.feature, one.comparison.value, one.shown) for one in self.condition)
        of = self.metric, self.reference, self.claim.value, self.period.value
        return f"pattern:{id_of('pattern', *of, *(part for atom in atoms for part in atom))}"

    @property
    def words(self) -> str:
        """The condition and the claim as a sentence."""
        where = " and ".join(one.words for one in self.condition)
        return f"Where {where}, {self.metric} turns out {self.claim.value} than {self.reference} states."

    def holds(self, features: Mapping[str, Any]) -> bool:
        """Return whether the condition holds of *features*."""
        return all(one.holds(features) for one in self.condition)


def definition_of(given: Mapping[str, Any]) -> PatternDefinition:
    """
    Return the definition that *given* states.

    Raises:
        BadInput: names the field.
    """
    try:
        return PatternDefinition.model_validate(given)
    except ValidationError as error:
        raise refusal(error, "", "PatternDefinition", PatternDefinition.model_fields) from None
