"""The evidence for weights, read as of any moment: what agents' observations showed beside the others' by then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np

from imem.credibility.panels.pooling import HALFLIFE_YEARS, AgentWeight, Evidence, Observations
from imem.credibility.posterior import DAYS_IN_YEAR
from imem.credibility.scores.context import ClaimContext
from imem.credibility.store import TrackRecordKey, context_named
from imem.credibility.track_record import moments_read
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.kg.asof import AsOf

REMEMBERED = timedelta(days=HALFLIFE_YEARS * DAYS_IN_YEAR * 5)
"""Age of the oldest observation that counts: five half-lives, when it weighs 3 %."""


async def weights_as_of(
    database: Database,
    panels: Sequence[Sequence[TrackRecordKey]],
    moments: Sequence[AsOf],
    *,
    contexts: Sequence[ClaimContext | None] = (None,),
    deadline: Deadline,
) -> tuple[list[list[list[list[AgentWeight]]]], datetime | None]:
    """
    Return the weights of each panel as of each moment in each context, and the oldest statement not scored yet.

    All is read in one statement. On the recorded clock moments are clamped to the scored horizon, as for track records.

    Args:
        panels: of each its agents, each with the domain whose record counts; an agent is in a panel once.
        moments: all on one clock.
        contexts: of the questions; None for any.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be read in time; retryable.
    """
    pairs = sorted({pair for panel in panels for pair in panel})
    if not pairs or not moments:
        return [[[[] for _ in contexts] for _ in moments] for _ in panels], None
    clock = moments[0].clock
    async with database.connection(deadline) as conn:
        waiting = (await rows(conn, "settled_horizon"))[0]["waiting_since"]
        untils = [min(moments_read(as_of, waiting)) for as_of in moments]
        given = {
            "agents": [agent for agent, _ in pairs],
            "domains": [domain for _, domain in pairs],
            "clock": clock.value,
            "until": max(untils),
            "since": _before(min(untils)),
        }
        [found] = await rows(conn, "observations_until", given)
    observed = _columns(found)
    answers = []
    for panel in panels:
        evidence = Evidence([agent for agent, _ in panel], _of_panel(panel, pairs, observed))
        answers.append(
            [[evidence.weights(until, context, since=_before(until)) for context in contexts] for until in untils]
        )
    return answers, waiting


def _columns(found: Row) -> Observations:
    """Return what was read; instead of agents it has the indices of agents and domains."""
    columns = {name: column or [] for name, column in found.items()}
    kinds = {name: place for place, name in enumerate(dict.fromkeys(columns["context"]))}
    pair = np.array(columns["n"], dtype=np.intp) - 1
    values = np.array([columns[name] for name in ("rows", "loss", "peer_loss", "error", "ahead")], dtype=float).T
    at, target_at = (np.array(columns[name], dtype=float) for name in ("at", "target_at"))
    context = np.array([kinds[name] for name in columns["context"]], dtype=np.intp)
    return Observations(pair, at, target_at, context, [context_named(name) for name in kinds], values)


def _of_panel(panel: Sequence[TrackRecordKey], pairs: Sequence[TrackRecordKey], observed: Observations) -> Observations:
    """Return the observations of the agents of one panel."""
    places = {pair: number for number, pair in enumerate(panel)}
    agents = np.array([places.get(pair, -1) for pair in pairs], dtype=np.intp)[observed.agent]
    mine = agents >= 0
    at, target_at, context = observed.at[mine], observed.target_at[mine], observed.context[mine]
    return Observations(agents[mine], at, target_at, context, observed.contexts, observed.values[mine])


def _before(moment: datetime) -> datetime:
    """Return the earliest ``target_at`` that counts as of *moment*."""
    return max(moment, datetime.min.replace(tzinfo=moment.tzinfo) + REMEMBERED) - REMEMBERED
