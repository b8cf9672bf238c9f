"""The evidence of agents by context, as of any moment: what scores are computed from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from imem.credibility import store
from imem.credibility.scores.cells import CellStep, decayed
from imem.credibility.scores.context import ClaimContext, ContextCell
from imem.credibility.store import TrackRecordKey
from imem.credibility.track_steps import steps_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import rows
from imem.kg.asof import AsOfClock


async def cells_read(
    conn: Connection,
    pairs: Sequence[TrackRecordKey],
    moments: Sequence[tuple[datetime, datetime]],
    clock: AsOfClock,
    *,
    halflife_years: float,
) -> list[list[ContextCell]]:
    """
    Return the cells of each pair at one of the *moments* that :func:`moments_read` returned, decayed to it, in order.

    Cells are read as they are stored. For another half-life than the stored one they are computed from the scores,
    which is slower and gives the same. Who reads more of the same moments gives them all the same: the scored horizon
    moves on between two looks at it.

    Args:
        halflife_years: for agents whose credibility record names none.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be read in time; retryable.
    """
    given = {
        "agents": [pair.agent for pair in pairs],
        "domains": [pair.domain for pair in pairs],
        "clock": clock.value,
        "known_until": [known for known, _ in moments],
        "recorded_until": [recorded for _, recorded in moments],
    }
    found: dict[int, list[Row]] = defaultdict(list)
    for row in await rows(conn, "cells_as_of", given):
        found[row["n"]].append(row)
    computed: dict[tuple[TrackRecordKey, float], list[CellStep]] = {}
    answers = []
    for number, (pair, moment) in enumerate(zip(pairs, moments, strict=True), start=1):
        kept = found[number]
        halflife = (kept[0]["wanted_halflife_years"] if kept else None) or halflife_years
        steps = [store.cell_step_of(row) for row in kept]
        if any(row["halflife_years"] != halflife for row in kept):
            if (pair, halflife) not in computed:
                computed[pair, halflife] = await _computed(conn, pair, clock, halflife)
            steps = _newest(computed[pair, halflife], min(moment))
        answers.append([decayed(step, moment[0], halflife) for step in steps if step.cell.rows])
    return answers


async def _computed(conn: Connection, pair: TrackRecordKey, clock: AsOfClock, halflife_years: float) -> list[CellStep]:
    return steps_of(await store.scores_of(conn, pair), clock, halflife_years).cells


def _newest(steps: Sequence[CellStep], until: datetime) -> list[CellStep]:
    """Return the newest step of each context at or before *until*, by context as they are stored."""
    found: dict[ClaimContext, CellStep] = {step.cell.context: step for step in steps if step.at <= until}
    return [found[context] for context in sorted(found, key=store.name_of_context)]
