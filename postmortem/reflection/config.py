"""The notes that a strategy gets, and the times at which its trades are reflected on."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import Field

from imem.kg.kinds.base import StrictModel

AVOID_CHARS: Final = 300
"""Longest rule of a strategy's ``avoid`` list, in characters."""

MOST_AVOID: Final = 50
"""Most rules of it."""


class ReflectionCadence(StrEnum):
    """When closed trades are reflected on."""

    OFF = "off"
    PER_N_TRADES = "per_n_trades"
    """Each time so many more trades have closed."""
    DAILY = "daily"
    """After a certain hour, if a trade has closed since the last note."""


class ReflectionConfig(StrictModel):
    """
    When a deployment's trades are reflected on, and who writes the note.

    Attributes:
        cadence: when.
        every_n_trades: closed trades from one note to the next, if the cadence is ``per_n_trades``.
        daily_hour: the hour in UTC after which the note is written, if the cadence is ``daily``.
        model: the language model to ask at the endpoint of the settings; None: statistics alone.
    """

    cadence: ReflectionCadence = ReflectionCadence.PER_N_TRADES
    every_n_trades: int = Field(10, ge=2, le=100)
    daily_hour: int = Field(0, ge=0, le=23)
    model: str | None = Field(None, min_length=1, max_length=150)


class SkillMemoryConfig(StrictModel):
    """
    The notes that a skill, or one deployment of it, gets. A field that an older payload lacks has its default.

    Attributes:
        enabled: whether anything is; otherwise nothing is reflected on either.
        recent_trades_k: closed trades that its prompt shows, newest first.
        include_open_positions: whether its prompt shows open positions.
        reflection: notes about its trades.
    """

    enabled: bool = True
    recent_trades_k: int = Field(10, ge=0, le=30)
    include_open_positions: bool = True
    reflection: ReflectionConfig = ReflectionConfig()
