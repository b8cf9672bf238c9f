"""
Shadow analyses: what would be forecast with a pattern, beside the forecast that was recorded without it.

A :class:`ShadowRunner` makes them, in instances that share nothing with other agents; what it returns is recorded for
the test alone and reaches no decision. An installation names a runner of its own, which asks its agents with the
pattern in their prompt; without one, the recorded forecast is shifted by what the pattern was found to be worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Final, Protocol, runtime_checkable

from imem.journal.deadline import Deadline
from imem.journal.errors import SettingsError
from imem.journal.settings import Settings
from imem.patterns.definition import PatternDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenForecast:
    """
    A recorded forecast whose question is open.

    Attributes:
        subject_id, metric, target_at: the question.
        predicted_at: when the forecast was made.
        stated: the forecast: the probability of an event, or a value.
        event: whether it is of an event.
    """

    subject_id: str
    metric: str
    target_at: datetime
    predicted_at: datetime
    stated: float
    event: bool


@runtime_checkable
class ShadowRunner(Protocol):
    """Makes forecasts with a pattern, in isolation."""

    async def clean(self) -> bool:
        """Return whether its instances share no cache, no memory and no log with agents that work."""

    async def forecast(
        self, pattern: PatternDefinition, effect: float, of: OpenForecast, *, deadline: Deadline
    ) -> float:
        """
        Return the forecast of *of* by an analysis that knows *pattern*, in the unit of what was stated.

        Args:
            effect: what the pattern was worth in training: the mean of outcomes less forecasts; of a value, as a share
                of what was stated.
        """


class ShiftedForecasts:
    """Shifts the recorded forecast by the effect of the pattern; it needs no agent, and shares nothing."""

    async def clean(self) -> bool:
        """Return True: it has no state."""
        return True

    async def forecast(
        self, pattern: PatternDefinition, effect: float, of: OpenForecast, *, deadline: Deadline
    ) -> float:
        """Return the shifted forecast; a probability stays one."""
        del pattern, deadline
        if of.event:
            return min(1.0, max(0.0, of.stated + effect))
        return of.stated + effect * abs(of.stated)


SHIFTED: Final = ShiftedForecasts()


def shadow_runner_of(settings: Settings) -> ShadowRunner | None:
    """
    Return the runner that the settings name; None if blind tests are switched off.

    Raises:
        SettingsError: there is no such runner.
    """
    if not settings.shadow_runs_enabled:
        return None
    if settings.shadow_runner is None:
        return SHIFTED
    module, _, name = settings.shadow_runner.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(f"IMEM_SHADOW_RUNNER names {settings.shadow_runner!r:.200}, which is not there.") from error
    runner = found() if isinstance(found, type) else found
    if not isinstance(runner, ShadowRunner):
        raise SettingsError("IMEM_SHADOW_RUNNER names no shadow runner: it has no clean() and forecast().")
    return runner
