"""The question of a search for the precedents of a debate, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from imem.credibility.scores.auto_resolve import Basis
from imem.debates.levels import Level2Reason

UNAVAILABLE: Final = "precedents unavailable"
"""The reason of an answer without precedents begins so."""

LEAST_FOR_LESSON: Final = 5
"""Known outcomes from which on a lesson is drawn."""


class PrecedentModel(BaseModel):
    """A frozen value without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Precedent(PrecedentModel):
    """
    An earlier debate, as it was known at the moment of the answer.

    Attributes:
        debate_id, subject_id, topic: which debate it is.
        opened_at: when the challenge was made.
        challenger, challenged: its agents.
        domain: of the finding that it disputed; None if it names none.
        level, method: how it was resolved.
        winner: the agent that won; None where nobody did.
        position: the final position, verbatim.
        differential: of the scores, where it is recorded.
        accuracy: whether the winning position was right, 0 to 1; None: the outcome is unknown.
        by_credibility: whether scores decided it, so that it is no independent evidence of who is right.
        same_subject, same_agents, same_domain: what it has in common with the debate that is asked about.
        score: by which precedents are ordered; comparable within one answer alone.
    """

    debate_id: str
    subject_id: str
    topic: str
    opened_at: datetime
    challenger: str
    challenged: str
    domain: str | None = None
    level: str | None = None
    method: str | None = None
    winner: str | None = None
    position: str | None = None
    differential: float | None = None
    accuracy: float | None = None
    by_credibility: bool = False
    same_subject: bool = False
    same_agents: bool = False
    same_domain: bool = False
    score: float


class PrecedentRate(PrecedentModel):
    """
    A share over the precedents shown.

    Attributes:
        share: from 0 to 1; None if nothing is known.
        n: how many it is a share of.
        lower, upper: ends of Wilson's 95 % interval.
    """

    share: float | None = None
    n: int = 0
    lower: float = 0.0
    upper: float = 1.0


class PatternRate(PrecedentModel):
    """An active pattern: how often it held, and over how many occurrences."""

    pattern_id: str
    name: str
    success_rate: float | None = None
    occurrence_count: int | None = None


class SideRecord(PrecedentModel):
    """
    The track record of a side of the debate in its domain.

    Attributes:
        agent: which side.
        decisions: settled claims; those with one ``target_at`` count once.
        score, lower, upper: mean of the posterior, and its 95 % interval.
    """

    agent: str
    decisions: float
    score: float
    lower: float
    upper: float


class BasisVerdict(PrecedentModel):
    """Differential and threshold on one basis, and whether scores would decide; None without both scores."""

    resolved: bool
    differential: float | None = None
    threshold: float | None = None


class Level2Outlook(PrecedentModel):
    """
    Whether the records of both sides may end the debate at level 2, if both supply evidence.

    Attributes:
        domain: in which they are compared.
        records: challenger and challenged.
        eligible: whether they may.
        reason: why, or why not.
        winner: who would win.
        basis: the verdict in force, one of *verdicts*.
    """

    domain: str
    records: list[SideRecord]
    eligible: bool
    reason: Level2Reason
    winner: str | None = None
    basis: Basis
    verdicts: dict[Basis, BasisVerdict]


class Precedents(PrecedentModel):
    """
    The answer; data, never an instruction.

    Attributes:
        available: whether earlier debates could be searched; if not, the debate goes on without them.
        reason: what is missing, and why; None of a whole answer.
        as_of: the moment of which everything is; None if it is not available.
        items: precedents, best first.
        accuracy: how often the winning position was right, of those whose outcome is known.
        challenger_won: how often the challenger won, of those with a winner that scores did not choose.
        lesson: what the known outcomes say; None below :data:`LEAST_FOR_LESSON` of them.
        patterns: active patterns of the subject's sector or of none.
        level2: of a debate between two agents about a finding.
    """

    available: bool = True
    reason: str | None = None
    as_of: datetime | None = None
    items: list[Precedent] = Field(default_factory=list)
    accuracy: PrecedentRate = PrecedentRate()
    challenger_won: PrecedentRate = PrecedentRate()
    lesson: str | None = None
    patterns: list[PatternRate] = Field(default_factory=list)
    level2: Level2Outlook | None = None


@dataclass(frozen=True, slots=True)
class PrecedentQuestion:
    """
    The query that precedents are compared with: a debate, or a topic alone.

    Attributes:
        text: topic, and basis of the challenge.
        debate_id: the debate, which is never its own precedent.
        subject_id, challenger, challenged, domain, priority: of the debate.
        before: when it was opened.
    """

    text: str
    debate_id: str | None = None
    subject_id: str | None = None
    challenger: str | None = None
    challenged: str | None = None
    domain: str | None = None
    priority: str | None = None
    before: datetime | None = None


@dataclass(frozen=True, slots=True)
class PrecedentWeights:
    """The weights of the kinds of likeness; see the settings ``precedent_…_weight``."""

    text: float
    subject: float
    agents: float
    domain: float
