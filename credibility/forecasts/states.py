"""States of a forecast at a checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imem.jobs.state_machine import StateMachine, Transition


class ForecastState(StrEnum):
    """Whether a forecast has met its outcome."""

    SCHEDULED = "scheduled"
    AWAITING_DATA = "awaiting_data"
    """Its checkpoint is over, and no outcome is recorded."""
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastFacts:
    """
    The facts that guards check.

    Attributes:
        late: whether the checkpoint is over.
        outcome: whether an outcome is recorded.
    """

    late: bool
    outcome: bool

    @property
    def state(self) -> ForecastState:
        """Return the state that follows from them."""
        if self.outcome:
            return ForecastState.MEASURED
        return ForecastState.AWAITING_DATA if self.late else ForecastState.SCHEDULED


_S = ForecastState


def _only(after: ForecastState) -> Callable[[ForecastFacts], str | None]:
    """Return the guard of the transitions into *after*."""
    return lambda facts: None if facts.state is after else f"It is {facts.state}, not {after}."


FORECAST_STATES: Final[StateMachine[ForecastState, ForecastFacts]] = StateMachine(
    "forecast",
    *(
        Transition(event, before, after, _only(after), when)
        for event, before, after, when in (
            ("schedule", None, _S.SCHEDULED, "a decision states a forecast"),
            ("wait", _S.SCHEDULED, _S.AWAITING_DATA, "the checkpoint is over, without an outcome"),
            ("measure", _S.SCHEDULED, _S.MEASURED, "an outcome is recorded"),
            ("measure", _S.AWAITING_DATA, _S.MEASURED, "an outcome is recorded"),
            ("measure", _S.MEASURED, _S.MEASURED, "a revision is recorded"),
            ("withdraw", _S.MEASURED, _S.AWAITING_DATA, "its outcome was withdrawn"),
            ("withdraw", _S.MEASURED, _S.SCHEDULED, "its outcome was withdrawn before the checkpoint was over"),
            ("move", _S.AWAITING_DATA, _S.SCHEDULED, "the decision was corrected to a later day"),
        )
    ),
    initial="not stated",
)
