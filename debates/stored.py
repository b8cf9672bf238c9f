"""A debate that runs, as its lifecycle row stores it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from imem.credibility.scores.reading import AgentScore
from imem.debates.cases import SeenScore, SeenSide
from imem.debates.defaults import ConservativeDefault, DefaultReason, StatedPosition, conservative_default
from imem.debates.states import Act, DebateAct, Sides
from imem.jobs.lifecycle import LifecycleRow
from imem.journal.events.ids import id_of
from imem.kg.kinds.enums import DebatePriority, DebateState
from imem.kg.kinds.trust import Debate

KIND: Final = "debate"
"""Kind of the lifecycle rows."""


@dataclass(frozen=True)
class RunningDebate:
    """The row of a debate, read."""

    row: LifecycleRow

    @property
    def state(self) -> DebateState:
        """Return its state."""
        return DebateState(self.row.state)

    @property
    def sides(self) -> Sides:
        """Return who takes part."""
        data = self.row.data
        return Sides(challenger=data["challenger"], challenged=data["challenged"], judge=data.get("judge"))

    @cached_property
    def acts(self) -> list[DebateAct]:
        """Return the acts, in order."""
        return [DebateAct.of(one) for one in self.row.data["acts"]]

    @property
    def until(self) -> datetime | None:
        """Return when the time of the state is over; None for a state without a limit."""
        stored = self.row.data.get("until")
        return None if stored is None else datetime.fromisoformat(stored)

    @property
    def snapshot_id(self) -> str | None:
        """Return the snapshot that the sides argue from; None before it was taken."""
        found: str | None = (self.row.data.get("snapshot") or {}).get("id")
        return found

    @property
    def unreachable(self) -> str | None:
        """Return why there will be no snapshot: a side cannot be synchronised, and a person is to decide."""
        found: str | None = (self.row.data.get("snapshot") or {}).get("unreachable")
        return found

    @property
    def metric(self) -> str | None:
        """Return what the positions are values of."""
        found: str | None = self.row.data.get("metric")
        return found

    def value(self, agent: str) -> float | str | None:
        """Return the last position that a side stated; that of the disputed finding for the challenged side."""
        stated = [one.value for one in self.acts if one.by == agent and one.value is not None]
        if stated:
            return stated[-1]
        found: float | str | None = self.row.data.get("finding_value") if agent == self.sides.challenged else None
        return found

    def evidence(self, agent: str) -> tuple[str, ...]:
        """Return the findings that a side rests on, each once."""
        return tuple(dict.fromkeys(key for one in self.acts if one.by == agent for key in one.evidence))

    def seen(self, agent: str, score: AgentScore | None) -> SeenSide:
        """Return a side as a reviewer sees it."""
        speaks = {Act.CHALLENGE, Act.RESPOND}
        texts = [one.text for one in self.acts if one.by == agent and one.text and one.act in speaks]
        found = None
        if score is not None:
            mean = score.posterior
            found = SeenScore(n=score.scope_n, score=mean.mean, lower=mean.lower, upper=mean.upper)
        return SeenSide(
            agent=agent,
            text=texts[-1] if texts else "",
            value=self.value(agent),
            evidence=self.evidence(agent),
            score=found,
        )

    def default(self) -> ConservativeDefault:
        """Return the cautious position: what counts while nobody has decided."""
        sides = self.sides
        positions: list[StatedPosition] = []
        for agent in (sides.challenger, sides.challenged):
            value = self.value(agent)
            if value is None:
                return ConservativeDefault(None, tuple(positions), None, DefaultReason.NOT_COMPARABLE)
            positions.append(StatedPosition(agent, value))
        return conservative_default(self.metric, positions)


def record_of_debate(
    debate_id: str, analysis_id: str | None, data: Mapping[str, Any], basis: str | None, at: datetime
) -> Debate:
    """Return the record of a debate that opens with *data* in its row."""
    sides = {data["challenger"], data["challenged"]}
    return Debate(
        id=debate_id, subject_id=data["subject_id"], analysis_id=analysis_id, topic=data["topic"],
        challenger_agent=data["challenger"], challenged_agent=data["challenged"], participants=sorted(sides),
        disputed_finding=data["finding_id"], challenge_basis=basis, required_evidence=data["wanted"] or None,
        timestamp=at, priority=DebatePriority(data["priority"]), judge=data["judge"], metric=data["metric"],
    )  # fmt: skip


def task_id_of(debate_id: str) -> str:
    """Return the id of the review task of a debate."""
    return str(id_of("debate task", debate_id))
