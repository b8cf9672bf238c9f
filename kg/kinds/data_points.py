"""Data points: what a document of a source states as the value of a metric of a subject over a period."""

from datetime import datetime
from typing import Any, Final, Self

from pydantic import Field, model_validator

from imem.journal.events.canonical import canonical_json
from imem.journal.events.ids import id_of
from imem.kg.kinds.base import Group, Kind, Tag
from imem.kg.kinds.fields import (
    Key,
    Moment,
    Number,
    PastMoment,
    Places,
    SubjectId,
    moment_text,
    refuse,
)

CELL: Final = ("subject_id", "metric", "period_start", "period_end", "unit", "basis")
"""Fields that say what is stated; points that agree in all of them are of one cell and can be compared."""

IDENTITY: Final = (*CELL, "source", "document")
"""A document of a source states one value of a cell, so these fields name the point."""


def data_point_id(data: dict[str, Any]) -> str:
    """Return the id of a data point, a UUID that follows from the fields of :data:`IDENTITY`."""
    values = [data.get(name) for name in IDENTITY]
    texts = [moment_text(value) if isinstance(value, datetime) else value for value in values]
    return str(id_of("data point", canonical_json(texts).decode()))


class DataPoint(Kind, occurred="filed_at", fixed=IDENTITY, tags=(Tag("subject", "subject_id"),)):
    """
    The value of a metric as a document of a source states it.

    Points with the same subject, metric, period, unit and basis can be compared; others never contradict each other.
    """

    class Answer(Group, governed="credibility"):
        """The answer to a review task by which a person states the value."""

        decided_by: Key = Field(description="The person.")
        task_id: Key = Field(description="The review task.")

    subject_id: SubjectId
    metric: Key = Field(description="The quantity that is measured, such as revenue.")
    period_start: Moment | None = Field(None, description="When the period begins; absent for a value at an instant.")
    period_end: Moment = Field(description="When the period ends, or the instant.")
    unit: Key = Field(description="Such as USD, shares, USD/shares or pure.")
    basis: Key | None = Field(None, description="The accounting basis, such as GAAP, where it matters.")
    value: Number
    decimals: Places | None = Field(
        None, description="Decimal places to which the value is rounded; -6 means millions. Absent if unknown."
    )
    source: Key = Field(description="The name of the source, such as SEC_EDGAR.")
    document: Key = Field(description="The document of the source, such as an accession number.")
    filed_at: PastMoment = Field(description="When the document was filed or published.")
    id: Key = Field(
        default_factory=data_point_id, description="Follows from the other fields but the value; leave out."
    )
    answer: Answer | None = None

    @model_validator(mode="after")
    def _own_id(self) -> Self:
        if self.period_start is not None and self.period_end < self.period_start:
            raise refuse("period_end", "is before period_start.")
        if self.id != data_point_id(self.__dict__):
            raise refuse(
                "id", "must follow from subject, metric, period, unit, basis, source and document; leave it out."
            )
        return self
