"""Companies, markets, agents, people and domains of expertise."""

from typing import Any, Self

from pydantic import Field, model_validator

from imem.kg.kinds.base import Group, Kind, Tag
from imem.kg.kinds.enums import AgentKind, GrowthStage, SizeClass
from imem.kg.kinds.fields import (
    Flag,
    Integer,
    Json,
    Key,
    Moment,
    Name,
    Names,
    PastMoment,
    ShortText,
    SubjectId,
    SubjectKey,
    Text,
    refuse,
)


def _subject_id(prefix: str, key: str) -> Any:
    """Return a factory of the subject id that follows from the field *key*."""
    return lambda data: f"{prefix}:{data.get(key)}"


class Company(Kind, key="ticker", labels=("Subject",), tags=(Tag("subject", "subject_id"),)):
    """A company whose shares are traded."""

    class Profile(Group):
        """The company's name, sector and size."""

        name: ShortText | None = None
        sector: ShortText | None = None
        industry: ShortText | None = None
        size_class: SizeClass | None = None
        growth_stage: GrowthStage | None = None
        market_benchmark: SubjectId | None = Field(
            None, description="The subject that represents its market, such as market:sp500."
        )
        sector_benchmark: SubjectId | None = Field(None, description="The subject that represents its sector.")

    class Counters(Group, derived=True):
        """The number of analyses of the company."""

        analyzed_count: Integer | None = None
        last_analysis: Moment | None = None

    ticker: SubjectKey
    subject_id: SubjectId = Field(
        default_factory=_subject_id("company", "ticker"), description="company:<ticker>; follows from it."
    )
    profile: Profile | None = None
    counters: Counters | None = None

    @model_validator(mode="after")
    def _own_subject(self) -> Self:
        if self.subject_id != f"company:{self.ticker}":
            raise refuse("subject_id", "must be company:<ticker>, with this company's ticker.")
        return self


class Market(
    Kind,
    key="market_id",
    fixed=("series_id",),
    labels=("Subject",),
    tags=(Tag("subject", "subject_id"), Tag("series", "series_id")),
):
    """A question that has an answer at a later time; a series groups questions of one kind."""

    class Resolution(Group, unowned=True):
        """The answer to the question."""

        resolved_at: PastMoment
        resolution: ShortText

    class Counters(Group, derived=True):
        """The number of analyses of the question."""

        analyzed_count: Integer | None = None
        last_analysis: Moment | None = None

    market_id: SubjectKey
    subject_id: SubjectId = Field(
        default_factory=_subject_id("market", "market_id"),
        description="market:<market_id>; follows from the market_id.",
    )
    question: Text
    series_id: Key | None = Field(None, description="The series of questions of one kind that this one belongs to.")
    sector: ShortText | None = None
    opens_at: Moment | None = None
    closes_at: Moment | None = Field(None, description="When no more forecasts count.")
    resolution: Resolution | None = None
    counters: Counters | None = None

    @model_validator(mode="after")
    def _own_subject(self) -> Self:
        if self.subject_id != f"market:{self.market_id}":
            raise refuse("subject_id", "must be market:<market_id>, with this market's id.")
        return self


class Agent(Kind, owner="name", key="name", tags=(Tag("agent", "name"),)):
    """An agent, by a persistent name."""

    class Profile(Group):
        """The agent's kind and specialization."""

        specialization: ShortText
        kind: AgentKind
        domains: Names | None = Field(None, description="The domains in which the agent speaks.")
        team: ShortText | None = None
        licence: ShortText | None = Field(None, description="The terms under which its statements may be used.")

    class Standing(Group, unowned=True):
        """How far people trust the agent."""

        on_probation: Flag = Field(description="Whether a person approves each change of its scores by itself.")

    class Counters(Group, derived=True):
        """Totals of the agent's work."""

        total_decisions: Integer | None = None
        accuracy_scores: Json | None = None

    name: Name
    profile: Profile | None = None
    standing: Standing | None = None
    counters: Counters | None = None


class Human(Kind, owner="id", tags=()):
    """A person who reviews and decides."""

    class Profile(Group):
        """The person's role and name."""

        role: ShortText
        display_name: ShortText | None = None

    id: Key
    profile: Profile | None = None


class Domain(Kind, key="name", tags=()):
    """A field of expertise in which claims are scored."""

    name: Name
    description: Text | None = None
