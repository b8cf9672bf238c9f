"""
Successes: whether a return that went as the decision's stance expected was skill or luck.

A checkpoint whose outcome was compared with its forecast makes it due, and so does each result of a finding that the
decision cites. The recorded events follow from records alone: a step may be repeated, and a batch is one transaction.
Nothing else is changed: no pattern and no score knows of a success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from imem.credibility.history import effective_statement
from imem.credibility.store import stances
from imem.jobs.due import DueRow, DueRule
from imem.jobs.lifecycle import DueBatches, Effects, LifecycleRuntime
from imem.jobs.pipeline import Every, Pipeline, Report
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import rows
from imem.journal.settings import Role
from imem.kg.kinds.enums import SuccessClass
from imem.kg.kinds.forecasts import CHECKPOINTS, TOTAL_RETURN
from imem.kg.kinds.learning import SuccessValidation
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import correction_of, record_of
from imem.postmortem.success import attribute

ACTOR: Final = Actor("successes", Role.LEARNING_ENGINE)
"""The actor that records successes."""

QUEUE: Final = "successes"
"""The queue of its due rows: outcomes that were compared with a forecast, and decisions whose findings got a result."""

WRITER: Final = "postmortem"
"""The subsystem that owns the records."""

EXPECTS: Final[Mapping[str, float]] = {"long": 1.0, "short": -1.0, "avoid": -1.0}
"""Stance → the sign of the return that it expects; others expect none."""

REVISED: Final = "Its outcome was revised, or further findings that it rests on have a result."
"""Why a record is corrected."""


async def validate_successes(runtime: LifecycleRuntime, *, until: Deadline) -> Report:
    """
    Validate the successes of due decisions until none is left or *until* has passed.

    Returns:
        How many successes were *validated*, and *corrected*; how many are *waiting*, since none of the findings that
        the decision cites has a result.

    Raises:
        PostgresUnavailable: committed batches stay; the rest is still due.
    """
    return await VALIDATION.run(runtime, until=until)


async def _validate(
    _runtime: LifecycleRuntime, conn: Connection, due: Sequence[DueRow], _now: datetime
) -> tuple[Effects, dict[str, int]]:
    outcomes = sorted({one.key for one in due if one.kind == "Outcome"})
    named = {row["decision_id"] for row in await rows(conn, "decisions_of_outcomes", {"outcomes": outcomes})}
    decisions = sorted(named | {one.key for one in due if one.kind == "Decision"})
    found, waiting = await _validations(conn, decisions)
    effects, counts = await _changes(conn, found, decisions)
    return effects, {"due": len(due), **counts, "waiting": waiting}


VALIDATION: Final[DueBatches[LifecycleRuntime]] = DueBatches(
    queue=QUEUE, kinds=("Outcome", "Decision"), lock="successes_lock", step=_validate
)


async def _validations(conn: Connection, decisions: Sequence[str]) -> tuple[list[SuccessValidation], int]:
    """Return the successes of decisions, and how many wait for a result of what the decision cites."""
    checkpoints = await rows(conn, "measured_returns", {"decisions": decisions, "metric": TOTAL_RETURN})
    keys = sorted({row["outcome_id"] for row in checkpoints})
    cores = {row["key"]: row["core"] for row in await rows(conn, "cores_of", {"kind": "Outcome", "keys": keys})}
    points: dict[str, list[tuple[float, int]]] = {}
    for row in await rows(conn, "thesis_points", {"decisions": decisions}):
        if row["y"] is not None:
            points.setdefault(row["decision_id"], []).append((row["weight"], row["y"]))
    stated = await stances(conn, decisions)
    found, waiting = [], 0
    for row in checkpoints:
        # As for verdicts: a stance that became known when the checkpoint was over could be taken with hindsight.
        said = [one for one in stated.get(row["decision_id"], []) if one.known_at < row["target_at"]]
        sign = EXPECTS.get(effective_statement(said).value or "", 0.0) if said else 0.0
        core = cores[row["outcome_id"]]
        returns = [core.get(f"{one}_return") for one in ("stock", "market", "sector")]
        if None in returns or sign * returns[0] <= 0.0:
            continue
        thesis = _thesis(points.get(row["decision_id"], []))
        if thesis is None:
            waiting += 1
        else:
            found.append(_validation(row, returns, thesis, falls=sign < 0))
    return found, waiting


def _thesis(points: Sequence[tuple[float, int]]) -> float | None:
    """Return the weight of the points that were right over that of all; None without any weight."""
    total = sum(weight for weight, _ in points)
    return min(sum(weight * y for weight, y in points) / total, 1.0) if total else None


def _id(decision_id: str, days: int) -> str:
    return f"success:{id_of('success', decision_id, days)}"


def _validation(row: Row, returns: Sequence[float], thesis: float, *, falls: bool) -> SuccessValidation:
    stock, market, sector = returns
    one = attribute(stock, market, sector, thesis, falls=falls)
    return SuccessValidation(
        id=_id(row["decision_id"], row["days"]), decision_id=row["decision_id"],
        checkpoint=row["days"], outcome_id=row["outcome_id"], thesis_score=thesis, market_part=one.market,
        sector_part=one.sector, specific_part=one.specific, market_contribution=one.market_share,
        sector_contribution=one.sector_share, stock_specific_contribution=one.specific_share,
        skill_ratio=one.skill_ratio, classification=one.classification,
    )  # fmt: skip


async def _changes(
    conn: Connection, found: Sequence[SuccessValidation], decisions: Sequence[str]
) -> tuple[Effects, dict[str, int]]:
    """Return what records successes that are new or changed, or are none any more, and how many of each."""
    keys = [_id(decision_id, days) for decision_id in decisions for days in CHECKPOINTS]
    asked = {"kind": SuccessValidation.__name__, "keys": keys}
    recorded = {row["key"]: row["core"] for row in await rows(conn, "cores_of", asked)}
    still = {one.id for one in found}
    found = [*found, *(_no_more(core) for key, core in sorted(recorded.items()) if key not in still)]
    facts, counts = [], {"validated": 0, "corrected": 0}
    for one in found:
        line = record_of(one, writer=WRITER)
        before = recorded.get(one.id)
        if before == line.core:
            continue
        counts["validated" if before is None else "corrected"] += 1
        entry = entry_of(line if before is None else correction_of(one, REVISED, writer=WRITER))
        facts.append((ACTOR, Action.APPEND_POSTMORTEM, entry))
    return Effects(facts=facts), counts


def _no_more(core: Mapping[str, Any]) -> SuccessValidation:
    """Return what is left of a success whose outcome was revised into none."""
    none = {"classification": SuccessClass.NOT_ASSESSABLE.value, "skill_ratio": 0.0}
    return SuccessValidation.model_validate({**core, **none})


VALIDATE_SUCCESSES: Final[Pipeline[LifecycleRuntime]] = Pipeline(
    "postmortem.validate_successes",
    lambda runtime, until: validate_successes(runtime, until=until),
    Every(60.0),
    budget_ms=45_000,
    without_broker=True,
    # What the pipeline of forecasts records with an outcome; settlement makes decisions due.
    due=(DueRule(QUEUE, "Outcome", "record.Outcome", "$key ? (exists($.groups.assessment))"),),
)
