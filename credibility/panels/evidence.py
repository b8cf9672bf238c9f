"""The evidence for weights, read as of any moment: what agents' observations showed beside the others' by then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from imem.credibility.history import Timeline, fold_statements, latest
from imem.credibility.panels.choice import (
    REWEIGHED_S,
    SCORED_S,
    Claims,
    PanelWeights,
    drawn_of,
    no_claims,
    weigh,
)
from imem.credibility.panels.pooling import (
    HALFLIFE_YEARS,
    AgentWeight,
    Evidence,
    Floats,
    Indices,
    Observations,
    Seasons,
)
from imem.credibility.posterior import DAYS_IN_YEAR
from imem.credibility.scores.context import ClaimContext
from imem.credibility.store import TrackRecordKey, context_named, profiles_of
from imem.credibility.track_record import moments_read
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.kg.asof import AsOf

REMEMBERED = timedelta(days=HALFLIFE_YEARS * DAYS_IN_YEAR * 5)
"""Age of the oldest observation that counts: five half-lives, when it weighs 3 %."""

SCORED = timedelta(seconds=SCORED_S)
"""Age of the oldest question on which pools are scored."""

READ_BACK = SCORED + timedelta(seconds=REWEIGHED_S)
"""How long before a moment weights are computed as of which its pools are scored."""

Panel = Sequence[TrackRecordKey]


async def weights_as_of(
    database: Database,
    panels: Sequence[Panel],
    moments: Sequence[AsOf],
    *,
    contexts: Sequence[ClaimContext | None] = (None,),
    seasons: Seasons = "gap",
    deadline: Deadline,
) -> tuple[list[list[list[PanelWeights]]], datetime | None]:
    """
    Return the weights of each panel as of each moment in each context, and the oldest statement not scored yet.

    On the recorded clock moments are clamped to the scored horizon, as for track records.

    Args:
        panels: of each its agents, each with the domain whose record counts; an agent is in a panel once.
        moments: all on one clock.
        contexts: of the questions; None for any.
        seasons: what ends a season of an agent's record.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be read in time; retryable.
    """
    pairs = sorted({pair for panel in panels for pair in panel})
    if not pairs or not moments:
        nobody = PanelWeights([], {}, {}, "equal", 1.0)
        return [[[nobody for _ in contexts] for _ in moments] for _ in panels], None
    clock = moments[0].clock
    async with database.connection(deadline) as conn:
        waiting = (await rows(conn, "settled_horizon"))[0]["waiting_since"]
        untils = [min(moments_read(as_of, waiting)) for as_of in moments]
        profiles = await profiles_of(conn, {agent for agent, _ in pairs})
        given = {
            "agents": [agent for agent, _ in pairs],
            "domains": [domain for _, domain in pairs],
            "clock": clock.value,
            "until": max(untils),
        }
        [found] = await rows(conn, "observations_until", {**given, "since": _before(_before(min(untils), READ_BACK))})
        observed = _columns(found)
        everyone = Evidence([agent for agent, _ in pairs], observed)
        claimed = [everyone.claims(until) for until in untils]
        claims = await _claims(conn, given, claimed, untils)
    kinds = {agent: fold_statements(statements, clock, latest) for agent, statements in profiles.items()}
    weighers: dict[tuple[TrackRecordKey, ...], _Weigher] = {}
    answers: list[list[list[PanelWeights]]] = []
    for panel in panels:
        answers.append([])
        for until, of_all in zip(untils, claimed, strict=True):
            pooled = tuple(pair for pair in panel if not _is_baseline(kinds, pair.agent, until))
            if pooled not in weighers:
                weighers[pooled] = _Weigher(pooled, pairs, observed, claims, seasons)
            drawn = drawn_of(of_all[[pairs.index(pair) for pair in pooled]])
            found_in = [weighers[pooled].weights(until, context, drawn) for context in contexts]
            answers[-1].append([_with_baselines(panel, one) for one in found_in])
    return answers, waiting


async def baselines_as_of(database: Database, agents: Iterable[str], at: AsOf, *, deadline: Deadline) -> set[str]:
    """
    Return which of *agents* were baselines as of a moment.

    Raises:
        PostgresUnavailable, BudgetExceeded: it could not be read in time; retryable.
    """
    async with database.connection(deadline) as conn:
        profiles = await profiles_of(conn, set(agents))
    kinds = {agent: fold_statements(statements, at.clock, latest) for agent, statements in profiles.items()}
    return {agent for agent in kinds if _is_baseline(kinds, agent, min(at.known_until, at.recorded_until))}


def _is_baseline(kinds: Mapping[str, Timeline[bool]], agent: str, until: datetime) -> bool:
    return agent in kinds and bool(kinds[agent].at(until))


def _with_baselines(panel: Panel, weights: PanelWeights) -> PanelWeights:
    """Return the weights with those of the panel that are not pooled, in the order of the panel."""
    if len(weights.answer) == len(panel):
        return weights
    places = {one.agent: place for place, one in enumerate(weights.answer)}
    order = [places.get(agent) for agent, _ in panel]
    answer = [
        AgentWeight(agent, 0.0, 0, None, None, None, 0.0, 0.0, baseline=True)
        if place is None
        else weights.answer[place]
        for (agent, _), place in zip(panel, order, strict=True)
    ]
    by_pool = {
        name: [0.0 if place is None else shares[place] for place in order] for name, shares in weights.by_pool.items()
    }
    usual = None if weights.usual is None else _with_baselines(panel, weights.usual)
    return replace(weights, answer=answer, by_pool=by_pool, usual=usual)


class _Weigher:
    """A panel without baselines: its evidence, and its weights as of earlier moments, each computed once."""

    def __init__(self, panel: Panel, pairs: Panel, observed: Observations, claims: Claims, seasons: Seasons) -> None:
        places = {pair: number for number, pair in enumerate(panel)}
        agents = np.array([places.get(pair, -1) for pair in pairs], dtype=np.intp)
        self._evidence = Evidence([agent for agent, _ in panel], _observed_by(agents, observed))
        self._claims = _made_by(agents, claims)
        self._seasons = seasons
        self._earlier: dict[float, tuple[Floats, Floats | None]] = {}

    def weights(self, until: datetime, context: ClaimContext | None, drawn: int) -> PanelWeights:
        """Return the weights as of a moment."""
        now = self._evidence.both(until, context, since=_before(until), seasons=self._seasons)
        return weigh(now, self._shares, self._claims, until, drawn=drawn)

    def _shares(self, moment: float) -> tuple[Floats, Floats | None]:
        if moment not in self._earlier:
            at = datetime.fromtimestamp(moment, UTC)
            self._earlier[moment] = self._evidence.shares(at, since=_before(at), seasons=self._seasons)
        return self._earlier[moment]


async def _claims(
    conn: Connection, given: Mapping[str, object], claimed: Sequence[Floats], untils: Sequence[datetime]
) -> Claims:
    """Return the claims on which pools are scored, of each agent as many as any moment asks for."""
    drawn = np.array([[drawn_of(one) for one in of_all[:, None]] for of_all in claimed]).max(axis=0)
    parameters = {
        **given,
        "drawn": drawn.tolist(),
        "earliest": min(untils),
        "since": _before(min(untils), SCORED),
    }
    [found] = await rows(conn, "scored_answers", parameters)
    if found["n"] is None:
        return no_claims()
    agent, question = np.array(found["n"], dtype=np.intp) - 1, np.array(found["question"], dtype=np.int64)
    times = [np.array(found[name], dtype=float) for name in ("target_at", "said_at", "begins", "ends", "error")]
    # In one order, whatever that of the rows is: it decides the last digit of sums, and cached answers are compared.
    order = np.lexsort((times[2], times[1], question, agent))
    return Claims(agent[order], question[order], *(column[order] for column in times))


def _columns(found: Row) -> Observations:
    """Return what was read; instead of agents it has the indices of agents and domains."""
    columns = {name: column or [] for name, column in found.items()}
    kinds = {name: place for place, name in enumerate(dict.fromkeys(columns["context"]))}
    pair = np.array(columns["n"], dtype=np.intp) - 1
    values = np.array([columns[name] for name in ("rows", "loss", "peer_loss", "error", "ahead")], dtype=float).T
    at, target_at = (np.array(columns[name], dtype=float) for name in ("at", "target_at"))
    context = np.array([kinds[name] for name in columns["context"]], dtype=np.intp)
    return Observations(pair, at, target_at, context, [context_named(name) for name in kinds], values)


def _observed_by(agents: Indices, observed: Observations) -> Observations:
    """Return the observations of the agents of one panel: of each pair that was read its place in it, or -1."""
    places = agents[observed.agent]
    mine = places >= 0
    at, target_at, context = observed.at[mine], observed.target_at[mine], observed.context[mine]
    return Observations(places[mine], at, target_at, context, observed.contexts, observed.values[mine])


def _made_by(agents: Indices, claims: Claims) -> Claims:
    """Return the claims of the agents of one panel, as :func:`_observed_by`."""
    places = agents[claims.agent]
    mine = places >= 0
    return Claims(
        places[mine], claims.question[mine], claims.target_at[mine], claims.said_at[mine], claims.since[mine],
        claims.until[mine], claims.error[mine],
    )  # fmt: skip


def _before(moment: datetime, span: timedelta = REMEMBERED) -> datetime:
    """Return the earliest ``target_at`` that counts as of *moment*."""
    return max(moment, datetime.min.replace(tzinfo=moment.tzinfo) + span) - span
