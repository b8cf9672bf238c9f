"""
Measures forecasts of returns by prices, and records the results as outcomes of checkpoints.

Prices are read outside of any transaction: once an hour while there are forecasts of returns, and when a checkpoint is
over. A batch of outcomes is one transaction under a lock, and their ids follow from decision, checkpoint and vintage: a
crash leaves whole batches, and the next run records the rest. A revision by the source is a new vintage. An outcome
that a person recorded stands. Where a price is missing, or a row of the subject cannot be read, nothing is recorded,
and the checkpoint waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from imem.credibility.prices.providers import PriceProvider
from imem.credibility.prices.returns import MeasuredReturn, PriceSeries, measured, series_of
from imem.jobs.lifecycle import Effects, LifecycleRuntime, finish
from imem.jobs.pipeline import Report
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, StoreUnavailable
from imem.journal.events.entry import Tier
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import rows
from imem.journal.settings import Role
from imem.kg.kinds.forecasts import TOTAL_RETURN
from imem.kg.kinds.work import Decision, Outcome
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of

log = structlog.get_logger()

NAME: Final = "credibility.measure_returns"
"""The name of the pipeline."""

ACTOR: Final = Actor("import:prices", Role.LEARNING_ENGINE, may_import=True)
"""The actor that records outcomes from prices."""

READ_EVERY: Final = timedelta(hours=1)
"""How often prices are read at most, while no further checkpoint is over."""

REVISED_WITHIN: Final = timedelta(days=400)
"""How long after a checkpoint a revision of its prices is looked for."""

READ_MS: Final = 60_000
"""How long a provider may take, in milliseconds."""

BATCH: Final = 500
"""Checkpoints of one transaction."""

BATCH_MS: Final = 60_000
"""How long one transaction may take, in milliseconds."""

SAME: Final = 1e-9
"""Returns that differ by less are the same."""


async def measure_returns(runtime: LifecycleRuntime, provider: PriceProvider | None, *, until: Deadline) -> Report:
    """
    Record what became of forecasts of returns whose time is over, and what their prices were revised to.

    Returns:
        Empty if nothing was to be read. Else *read*, whether prices could be read, and if not why; outcomes *recorded*,
        *revised* ones among them; checkpoints that are *missing* a price; subjects that are *refused* for a row, and
        the *reason* of the first; and *more* if time did not suffice.

    Raises:
        PostgresUnavailable: committed batches stay; the next run records the rest.
    """
    if provider is None:
        return {}
    asked = {"pipeline": NAME, "metric": TOTAL_RETURN, "every": READ_EVERY}
    [wanted] = await runtime.database.named("returns_wanted", asked, deadline=Deadline.after_ms(BATCH_MS))
    if not wanted["read"]:
        return {}
    now, source = wanted["now"], provider.name
    try:
        async with asyncio.timeout(READ_MS / 1_000):
            found = await provider.rows(deadline=Deadline.after_ms(READ_MS))
        prices, refused = await asyncio.to_thread(series_of, found, now)
    except (StoreUnavailable, BudgetExceeded, BadInput, TimeoutError) as error:
        return {"read": False, "reason": str(error) or "It did not answer in time.", "missing": wanted["waiting"]}
    if None in refused:
        # It could be a split of any subject.
        return {"read": False, "reason": refused[None], "missing": wanted["waiting"]}
    total = {"recorded": 0, "revised": 0, "missing": 0}
    left_out: dict[str, Any] = {}
    if refused:
        subject, reason = next(iter(refused.items()))
        left_out = {"refused": len(refused), "reason": f"{subject} is left out: {reason}"}
        log.warning("prices.refused", source=source, subjects=len(refused), reason=left_out["reason"])
    for over in (False, True):
        key: str | None = ""
        while key is not None:
            if until.passed:
                # Measured checkpoints are compared again within the hour; the others are measured at once.
                return {"read": True, **total, **left_out, "more": not over}
            key = await _batch(runtime, _Prices(prices, source, refused), key, total, measured_ones=over)
    return {"read": True, **total, **left_out}


@dataclass(frozen=True, slots=True)
class _Prices:
    """Prices by subject, their source, and the subjects with a row that cannot be read."""

    by_subject: Mapping[str, PriceSeries]
    source: str
    refused: Collection[str | None] = ()

    def delisted(self) -> list[str]:
        return sorted(subject for subject, series in self.by_subject.items() if series.delisted is not None)


async def _batch(
    runtime: LifecycleRuntime, prices: _Prices, after: str, total: dict[str, int], *, measured_ones: bool
) -> str | None:
    """Measure the checkpoints of the next keys; return the last key, None if none are left."""
    asked = {
        "metric": TOTAL_RETURN, "after": after, "measured": measured_ones, "delisted": prices.delisted(),
        "within": REVISED_WITHIN, "limit": BATCH,
    }  # fmt: skip
    async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        await rows(conn, "prices_lock")
        found = await rows(conn, "returns_to_measure", asked)
        effects = Effects(facts=_facts(found, await _said_of(conn, found), prices, total))
        await finish(conn, effects, runtime.gateway, Deadline.after_ms(BATCH_MS))
    if effects.facts:
        await runtime.gateway.publish_wakeup(tuple(Tier))
    return found[-1]["key"] if len(found) == BATCH else None


@dataclass(frozen=True, slots=True)
class _Said:
    """
    The recorded outcomes of checkpoints.

    Attributes:
        decided_at: by decision.
        newest: (decision, days) → the newest outcome, also one that was withdrawn.
        benchmarks: subject → what stands for its market and its sector.
    """

    decided_at: Mapping[str, datetime]
    newest: Mapping[tuple[str, int], Row]
    benchmarks: Mapping[str, tuple[str | None, str | None]]


async def _said_of(conn: Connection, found: Sequence[Row]) -> _Said:
    decisions = sorted({row["decision_id"] for row in found})
    stated = await rows(conn, "decisions_with_forecasts", {"decisions": decisions})
    newest = await rows(conn, "returns_recorded", {"decisions": decisions, "metric": TOTAL_RETURN, "actor": ACTOR.id})
    tickers = sorted({row["subject_id"].removeprefix(_COMPANY) for row in found if _COMPANY in row["subject_id"]})
    named = await rows(conn, "benchmarks_of_companies", {"tickers": tickers})
    return _Said(
        {row["decision_id"]: Decision.model_validate(row["core"]).decided_at for row in stated},
        {(row["decision_id"], row["checkpoint"]): row for row in newest},
        {f"{_COMPANY}{row['ticker']}": (row["market"], row["sector"]) for row in named},
    )


_COMPANY: Final = "company:"


def _facts(found: Sequence[Row], said: _Said, prices: _Prices, total: dict[str, int]) -> list[Any]:
    """Return what is to be recorded of checkpoints, and count it."""
    facts = []
    for row in found:
        benchmarks = said.benchmarks.get(row["subject_id"], (None, None))
        decided_at, target_at = said.decided_at[row["decision_id"]], row["target_at"]
        one = None
        if not any(benchmark in prices.refused for benchmark in benchmarks if benchmark is not None):
            one = measured(prices.by_subject, row["subject_id"], benchmarks, decided_at, target_at)
        newest = said.newest.get((row["decision_id"], row["days"]))
        if one is None:
            total["missing"] += newest is None
        elif newest is None or (_ours(newest) and _revised(newest, one)):
            total["recorded"] += 1
            total["revised"] += newest is not None
            line = record_of(_outcome(row, one, newest, prices.source), known_at=_known_at(one, newest))
            facts.append((ACTOR, Action.APPEND, entry_of(line)))
    return facts


def _id(decision_id: str, days: int, vintage: int) -> str:
    return f"prices:{id_of('return', decision_id, days, TOTAL_RETURN, vintage)}"


def _ours(newest: Row) -> bool:
    own_id = _id(newest["decision_id"], newest["checkpoint"], newest["vintage"])
    return bool(newest["ours"] and newest["outcome_id"] == own_id)


def _revised(newest: Row, one: MeasuredReturn) -> bool:
    """Whether prices now say something else than the newest outcome; what they say no more, stands."""
    pairs = (
        (newest["actual"], one.stock),
        (newest["market_return"], one.market),
        (newest["sector_return"], one.sector),
    )
    return any(now is not None and (before is None or abs(now - before) > SAME) for before, now in pairs)


def _known_at(one: MeasuredReturn, newest: Row | None) -> datetime | None:
    """Return from when an outcome is known: a revision, if its source states no later moment, from now on."""
    return one.known_at if newest is None or one.known_at > newest["known_at"] else None


def _outcome(row: Row, one: MeasuredReturn, newest: Row | None, source: str) -> Outcome:
    vintage = 0 if newest is None else newest["vintage"] + 1
    return Outcome(
        id=_id(row["decision_id"], row["days"], vintage), subject_id=row["subject_id"], decision_id=row["decision_id"],
        checkpoint=row["days"], metric=TOTAL_RETURN, period_start=one.begun_at, target_at=one.target_at,
        predicted=row["predicted"], actual=one.stock, unit="fraction", observed_at=row["now"], vintage=vintage,
        source=source, stock_return=one.stock, market_return=one.market, sector_return=one.sector,
        volatility=one.volatility, delisted=one.delisted or None,
    )  # fmt: skip
