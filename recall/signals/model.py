"""Signals, as they are recorded and as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from pydantic import Field, model_validator

from imem.journal.errors import BadInput
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Row
from imem.kg.kinds.base import StrictModel
from imem.kg.kinds.enums import Direction
from imem.kg.kinds.fields import refuse
from imem.kg.kinds.work import Finding

MOST: Final = 5
"""Most signals of one agent in an answer."""

DEFAULT_TYPE: Final = "signal"
"""Domain of a finding whose signal names no type of agent."""


class SubjectKind(StrEnum):
    """The kind of a subject, as its id begins."""

    MARKET = "market"
    COMPANY = "company"


class SignalDirection(StrEnum):
    """
    The direction of a signal.

    Of a market, whether its question is answered with yes. For a company, YES expects that it goes up (bullish) and NO
    that it goes down (bearish).
    """

    YES = "YES"
    NO = "NO"
    NEUTRAL = "NEUTRAL"


class ErrorKind(StrEnum):
    """Why signals could not be read."""

    CONNECTION = "connection"
    """Postgres cannot be reached, or takes no more connections."""
    QUERY = "query"
    """It refused the statement."""
    VALIDATION = "validation"
    """An argument is wrong, or the actor may not read it."""
    TIMEOUT = "timeout"
    """It did not answer in time."""


_OF_FINDINGS: Final[Mapping[SignalDirection, Direction]] = {
    SignalDirection.YES: Direction.POSITIVE,
    SignalDirection.NO: Direction.NEGATIVE,
    SignalDirection.NEUTRAL: Direction.NEUTRAL,
}


class AboutSubject(StrictModel):
    """
    A value about a subject.

    Attributes:
        market_id: key of the subject; its whole id, such as ``company:MU``, sets *subject_kind* too.
        subject_kind: what it is.
    """

    market_id: str = Field(min_length=1)
    subject_kind: SubjectKind = SubjectKind.MARKET

    @model_validator(mode="before")
    @classmethod
    def _whole_id(cls, given: Any) -> Any:
        """Take a subject's whole id apart."""
        market_id = given.get("market_id") if isinstance(given, Mapping) else None
        kind, _, key = market_id.partition(":") if isinstance(market_id, str) else ("", "", "")
        if key and kind in set(SubjectKind) and "subject_kind" not in given:
            return {**given, "market_id": key, "subject_kind": kind}
        return given

    @property
    def subject_id(self) -> str:
        """The subject's whole id."""
        return f"{self.subject_kind}:{self.market_id}"


class AgentSignal(AboutSubject):
    """
    An agent's conclusion about a subject in an analysis.

    Attributes:
        agent_name: who.
        market_id, subject_kind: about what.
        direction: what it says.
        fair_probability: of YES, 0 to 1; of a company it may be None.
        confidence: 0 to 1.
        key_drivers: what it rests on.
        analysis_id: the analysis that it belongs to: an agent has one signal in each about a subject.
        agent_type: the domain of the finding.
        metadata: the finding's other fields, such as ``statement``, or ``metric`` and ``target_at`` of a claim.
        recommendation_id: of rows that other programs wrote; a recorded one has none.
        id, created_at: set once it is recorded: the event, and since when the signal could be known.

    Raises:
        BadInput: a value is missing, unknown or outside its bounds; names the field.
    """

    agent_name: str = Field(min_length=1)
    direction: SignalDirection
    fair_probability: float | None = Field(None, ge=0.0, le=1.0, allow_inf_nan=False)
    confidence: float = Field(ge=0.0, le=1.0, allow_inf_nan=False)
    key_drivers: tuple[str, ...] = ()
    analysis_id: str | None = None
    agent_type: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    recommendation_id: str | None = None
    id: UUID | None = None
    created_at: datetime | None = None

    @model_validator(mode="after")
    def _probability(self) -> AgentSignal:
        if self.fair_probability is None and self.subject_kind is SubjectKind.MARKET:
            raise refuse("fair_probability", "is needed: a signal about a market states one.")
        return self

    def finding(self, analysis_id: str) -> Finding:
        """
        Return the finding that records it; the same signal in the same analysis is the same finding.

        Raises:
            BadInput: *metadata* has what no finding has, or a value is longer than a finding holds.
        """
        if self.recommendation_id is not None:
            raise BadInput("recommendation_id", "is none of a finding's fields; link the decision to it with CITES.")
        own: dict[str, Any] = {
            "id": f"signal:{id_of('signal', analysis_id, self.agent_name, self.subject_id)}",
            "analysis_id": analysis_id,
            "subject_id": self.subject_id,
            "agent": self.agent_name,
            "domain": self.agent_type or DEFAULT_TYPE,
            "direction": _OF_FINDINGS[self.direction],
            "probability": self.fair_probability,
            "confidence": self.confidence,
            "key_drivers": self.key_drivers or None,
        }
        if taken := sorted(self.metadata.keys() & own.keys()):
            raise BadInput(f"metadata.{taken[0]}", "is a field of the signal itself.")
        said = f"{self.direction} with a confidence of {self.confidence:.2f}."
        return Finding(**{"statement": said, **self.metadata, **own})


class AgentMemory(AboutSubject):
    """
    The newest signals of an agent about a subject.

    Attributes:
        agent_name, market_id, subject_kind: whose, about what.
        signals: newest first.
        skipped: rows among them that are no signals: a value is missing or outside its bounds.
        as_of: the moment for which it holds; None if Postgres was not asked or did not answer.
        reason: why it is empty although there may be signals; None if nothing stood in the way.
        error: the kind of the failure, if it was one.
        attempts: how often Postgres was asked.
    """

    agent_name: str
    signals: tuple[AgentSignal, ...] = ()
    skipped: int = 0
    as_of: datetime | None = None
    reason: str | None = None
    error: ErrorKind | None = None
    attempts: int = 0

    @property
    def has_history(self) -> bool:
        """Whether there is any signal."""
        return bool(self.signals)


def subject_of(subject_id: str) -> tuple[SubjectKind, str]:
    """
    Return kind and key of a subject's whole id.

    Raises:
        BadInput: it is no such id.
    """
    kind, _, key = subject_id.partition(":")
    if kind not in set(SubjectKind) or not key:
        raise BadInput("subject", f"{subject_id!r} is not market:KEY or company:KEY.")
    return SubjectKind(kind), key


def signal_of(row: Row, kind: SubjectKind, market_id: str) -> AgentSignal:
    """Return a row of Postgres as a signal; what its lists and objects hold of another shape is left out."""
    drivers, metadata = row["key_drivers"], row["metadata"]
    probability = row["fair_probability"]
    return AgentSignal(
        agent_name=row["agent"],
        market_id=market_id,
        direction=row["direction"],
        fair_probability=float(probability) if probability is not None else None,
        confidence=float(row["confidence"]),
        key_drivers=tuple(one for one in drivers if isinstance(one, str)) if isinstance(drivers, list) else (),
        subject_kind=kind,
        analysis_id=row["analysis_id"],
        agent_type=row["agent_type"],
        metadata=metadata if isinstance(metadata, dict) else {},
        recommendation_id=row["recommendation_id"],
        id=row["id"],
        created_at=row["created_at"],
    )
