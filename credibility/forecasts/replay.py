"""Applies another policy to the forecasts that were measured as of a moment; it changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Final

from pydantic import BaseModel, ConfigDict

from imem.credibility.forecasts.measures import POLICY, DeviationClass, DeviationPolicy
from imem.credibility.forecasts.reading import DecisionForecast, forecasts_of
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf

SETTINGS: Final = ("deviation", "noise")
"""A setting of a policy: see :class:`~imem.credibility.forecasts.measures.DeviationPolicy`."""

PAGE: Final = 500
"""Decisions that are read at a time."""

LISTED: Final = 200
"""Checkpoints of one list at most."""


class PolicyReplay(BaseModel):
    """
    The decisions that another policy would have made.

    Attributes:
        as_of: the moment in use.
        settings: what it sets.
        measured: checkpoints with an outcome by then.
        off, cases: checkpoints that are off, and decisions with one, by the policy in force.
        off_then, cases_then: the same by the other.
        gained: checkpoints that are off by the other policy alone; *lost*: by the one in force alone. Each by decision
            and day; at most :data:`LISTED`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    as_of: datetime
    settings: dict[str, float]
    measured: int
    off: int
    cases: int
    off_then: int
    cases_then: int
    gained: tuple[DecisionForecast, ...] = ()
    lost: tuple[DecisionForecast, ...] = ()


def policy_of(settings: Mapping[str, float]) -> DeviationPolicy:
    """
    Return the policy in force with *settings* in place of its own.

    Raises:
        BadInput: there is no such setting, or its value is below zero; names it.
    """
    if not settings:
        raise BadInput("settings", f"name at least one of {', '.join(SETTINGS)}.")
    for name, value in settings.items():
        if name not in SETTINGS:
            raise BadInput("settings", f"{name!r:.60} is none of {', '.join(SETTINGS)}.")
        if not (isfinite(value) and value >= 0):
            raise BadInput(f"settings.{name}", "must be a number from 0 on.")
    return DeviationPolicy(**{name: Decimal(repr(float(value))) for name, value in settings.items()})


async def replay_policy(
    database: Database, settings: Mapping[str, float], at: AsOf, *, deadline: Deadline
) -> PolicyReplay:
    """
    Compare the policy in force with another one, over all that was measured as of *at*.

    Raises:
        BadInput: as :func:`policy_of`.
    """
    other = policy_of(settings)
    counts, cases, cases_then = {"measured": 0, "off": 0, "off_then": 0}, set[str](), set[str]()
    gained, lost = list[DecisionForecast](), list[DecisionForecast]()
    after, full = "", True
    while full:
        asked = {"after": after, "limit": PAGE, **at.limits}
        keys = [row["key"] for row in await database.named("decisions_forecasting", asked, deadline=deadline)]
        now = await forecasts_of(database, keys, at, POLICY, deadline=deadline)
        then = await forecasts_of(database, keys, at, other, deadline=deadline)
        for key in sorted(now):
            for before, one in zip(now[key], then[key], strict=True):
                is_off, would_be = (each.verdict is DeviationClass.OFF for each in (before, one))
                counts["measured"] += one.outcome_id is not None
                counts["off"] += is_off
                counts["off_then"] += would_be
                cases.update([key] if is_off else [])
                cases_then.update([key] if would_be else [])
                if is_off is not would_be:
                    (gained if would_be else lost).append(one)
        full, after = len(keys) == PAGE, keys[-1] if keys else after
    return PolicyReplay(
        as_of=at.at, settings=dict(settings), cases=len(cases), cases_then=len(cases_then),
        gained=tuple(gained[:LISTED]), lost=tuple(lost[:LISTED]), **counts,
    )  # fmt: skip
