"""
The pools of a panel, the record of each, and which of them is the answer (docs/explanation/panels.md). Pure.

A panel keeps four pools: equal weights, the median, weights by record, and weights by earlier seasons. Each is scored
on questions that were answered: what it would have said by the weights as of then, beside what equal weights would have
said on the same questions. The loss is the squared error of the pool, of a probability its Brier score. Questions with
one ``target_at`` are one observation.

The answer is by earlier seasons where there are any, else by record. Another pool takes its place where it was better
on the same questions, by more than chance. Weights are shrunk towards the equal ones while evidence is thin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, NamedTuple

import numpy as np

from imem.credibility.panels.pooling import HALFLIFE_YEARS, AgentWeight, Floats, Indices, Weights
from imem.credibility.posterior import INTERVAL, SECONDS_IN_YEAR

PoolName = Literal["equal", "median", "record", "seasons"]

POOLS: Final[tuple[PoolName, ...]] = ("equal", "median", "record", "seasons")

SEASON_PRIOR: Final = 4.0
"""Observations by which weights by earlier seasons, and a pool that takes the place of another, are shrunk."""

LEAST_SCORED: Final = 15
"""Observations from which a pool can take the place of another."""

SCORED_S: Final = 3 * SECONDS_IN_YEAR
"""Age of the oldest question on which pools are scored, in seconds."""

REWEIGHED_S: Final = 28 * 86_400.0
"""Weights of then are computed once in four weeks; a question takes those before its first answer."""

DRAWN: Final = 1_024
MOST_CLAIMS: Final = 500
"""Claims of an agent on which pools are scored, about; of more, the questions are drawn by a hash, of :data:`DRAWN`."""


@dataclass(frozen=True, slots=True)
class Claims:
    """
    Scored claims of agents on probabilities and directions, as columns of one length.

    Attributes:
        agent: indices of agents.
        question: a hash of each one's subject and metric.
        target_at, said_at, since, until: in seconds since 1970; the last two say when the score is valid.
        error: signed errors.
    """

    agent: Indices
    question: Indices
    target_at: Floats
    said_at: Floats
    since: Floats
    until: Floats
    error: Floats


def no_claims() -> Claims:
    """Return columns of no claims."""
    nobody, nothing = np.zeros(0, dtype=np.intp), np.zeros(0)
    return Claims(nobody, nobody, nothing, nothing, nothing, nothing, nothing)


class PoolRecord(NamedTuple):
    """
    How a pool did beside equal weights on the same questions.

    Attributes:
        observations: on which it could be scored; questions with one ``target_at`` are one.
        loss, equal_loss: decayed mean squared error, and that of equal weights; None without observations.
        gain, lower, upper: how much smaller the first is, as a fraction, with its 95 % interval over observations.
    """

    observations: int = 0
    loss: float | None = None
    equal_loss: float | None = None
    gain: float | None = None
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True, slots=True)
class PanelWeights:
    """
    The weights of a panel's answer, and its pools.

    Attributes:
        answer: the weight of each agent in the answer; baselines have none.
        by_pool: the shares of each agent in a pool, in the same order. The median has none, nor has a pool for which
            evidence is missing.
        records: by pool.
        best: the pool that is the answer.
        trust: how much of it is, 0 to 1; the rest is equal weights.
        usual: the weights before another pool took the place of the usual one; None where none did.
    """

    answer: list[AgentWeight]
    by_pool: Mapping[PoolName, Sequence[float]]
    records: Mapping[PoolName, PoolRecord]
    best: PoolName
    trust: float
    usual: PanelWeights | None = None

    def of_values(self) -> PanelWeights:
        """Return the weights for a question on a value, of which pools have no record."""
        return replace(self.usual or self, records={})


Shares = Callable[[float], tuple[Floats, Floats | None]]
"""From a moment, in seconds since 1970: the shares by record and by earlier seasons; None where there are none."""


def weigh(now: Weights, shares: Shares, claims: Claims, at: datetime, *, drawn: int = DRAWN) -> PanelWeights:
    """
    Return the weights of a panel's answer as of *at*, and its pools with their records.

    Args:
        now: the weights as of then.
        shares: those as of earlier moments.
        claims: of the same agents, on which pools are scored.
        drawn: which of the questions are; see :func:`drawn_of`.
    """
    if not now.by_record:
        return PanelWeights([], {}, {}, "equal", 1.0)
    scored = _scored(shares, claims, at, len(now.by_record), drawn)
    equal = np.full(len(now.by_record), 1.0 / len(now.by_record))
    by_pool: dict[PoolName, Floats] = {"equal": equal, "record": np.array([one.weight for one in now.by_record])}
    usual: PoolName = "record"
    if now.by_seasons is not None:
        usual, by_pool["seasons"] = "seasons", now.by_seasons.shares
    best, gained = usual, 0.0
    for name in POOLS:
        if name in by_pool or name == "median":
            beside = scored.compare(name, usual)
            if name != usual and beside.observations >= LEAST_SCORED and (beside.lower or 0.0) > gained:
                best, gained = name, beside.lower or 0.0
    usual_trust = 1.0
    if now.by_seasons is not None:
        usual_trust = now.by_seasons.evidence / (now.by_seasons.evidence + SEASON_PRIOR)
    trust = usual_trust
    if best != usual:
        trust = scored.compare(best, usual).observations / (scored.compare(best, usual).observations + SEASON_PRIOR)

    def weights(pool: PoolName, trust: float) -> PanelWeights:
        shares_of = trust * by_pool.get(pool, equal) + (1.0 - trust) * equal
        sure = pool in ("equal", "median")
        return PanelWeights(
            answer=[
                one._replace(weight=share, spread=0.0 if sure else trust * one.spread)
                for one, share in zip(now.by_record, shares_of.tolist(), strict=True)
            ],
            by_pool={name: own.tolist() for name, own in by_pool.items()},
            records={name: scored.compare(name, "equal") for name in POOLS},
            best=pool,
            trust=trust,
        )

    return replace(weights(best, trust), usual=None if best == usual else weights(usual, usual_trust))


def drawn_of(claims: Floats) -> int:
    """
    Return how many of :data:`DRAWN` parts of the questions pools are scored on, by how many claims each agent has.

    It is the same for all agents of a panel, so that they have questions in common.
    """
    most = float(claims.max(initial=0.0))
    return DRAWN if most <= MOST_CLAIMS else max(math.ceil(DRAWN * MOST_CLAIMS / most), 1)


class Scored(NamedTuple):
    """
    Questions with the squared error of each pool.

    Attributes:
        losses: by pool and question; NaN where the pool had no answer of its own.
        observation: of each question.
        weight: of each observation, by its age.
    """

    losses: Mapping[PoolName, Floats]
    observation: Indices
    weight: Floats

    def compare(self, pool: PoolName, other: PoolName) -> PoolRecord:
        """Return the record of a pool beside another on the questions that both answered."""
        own, against = self.losses[pool], self.losses[other]
        if other == "record":
            # Without evidence weights by record are the equal ones.
            against = np.where(np.isnan(against), self.losses["equal"], against)
        both = ~np.isnan(own) & ~np.isnan(against)
        count = np.bincount(self.observation[both], minlength=len(self.weight))
        there = count > 0
        observations = int(there.sum())
        if not observations:
            return PoolRecord()
        size, weight = count[there], self.weight[there]
        first, second = (
            np.bincount(self.observation[both], one[both], len(self.weight))[there] / size for one in (own, against)
        )
        total = weight.sum()
        loss, other_loss = float(weight @ first / total), float(weight @ second / total)
        scale = max(other_loss, 1e-12)
        gain = (other_loss - loss) / scale
        if observations == 1:
            return PoolRecord(1, loss, other_loss, gain)
        apart = second - first - (other_loss - loss)
        error = math.sqrt(float((weight**2 * apart**2).sum()) * observations / (observations - 1.0)) / total / scale
        from scipy.special import stdtrit  # noqa: PLC0415 - a command that needs no score shall not wait for it

        reach = float(stdtrit(observations - 1.0, INTERVAL[1])) * error
        return PoolRecord(observations, loss, other_loss, gain, gain - reach, gain + reach)


def _scored(shares: Shares, claims: Claims, at: datetime, agents: int, drawn: int) -> Scored:
    """Return the questions that were answered by *at*, with what each pool would have said by the weights of then."""
    moment = at.timestamp()
    counts = (claims.since <= moment) & (moment < claims.until) & (claims.target_at > moment - SCORED_S)
    counts &= (claims.question & (DRAWN - 1)) < drawn
    target_at, said_at = claims.target_at[counts], claims.said_at[counts]
    # Answers of one stage stand beside each other (imem.credibility.history.stage_of); the hash names the question.
    stage = np.log2(np.maximum(target_at - said_at, 1.0)).astype(np.int64)
    asked, place = np.unique(claims.question[counts] * 64 + stage, return_inverse=True)
    errors = np.full((len(asked), agents), np.nan)
    errors[place, claims.agent[counts]] = claims.error[counts]
    first, about = np.full(len(asked), np.inf), np.zeros(len(asked))
    np.minimum.at(first, place, said_at)
    about[place] = target_at
    several = (~np.isnan(errors)).sum(axis=1) > 1
    errors, about = errors[several], about[several]
    then, of_then = np.unique(np.floor(first[several] / REWEIGHED_S) * REWEIGHED_S, return_inverse=True)
    observed, observation = np.unique(about, return_inverse=True)
    by_record, by_seasons = (np.full((len(then), agents), np.nan) for _ in range(2))
    for number, earlier in enumerate(then.tolist()):
        by_record[number], chosen = shares(earlier)
        if chosen is not None:
            by_seasons[number] = chosen
    # Before any evidence the weights by record are equal: that is no record of theirs.
    by_record[np.ptp(by_record, axis=1) < 1e-9] = np.nan
    pools: dict[PoolName, Floats] = {
        "equal": _mean(errors, np.ones_like(errors)),
        "median": _median(errors),
        "record": _mean(errors, by_record[of_then]),
        "seasons": _mean(errors, by_seasons[of_then]),
    }
    weight = 0.5 ** (np.maximum(moment - observed, 0.0) / SECONDS_IN_YEAR / HALFLIFE_YEARS)
    return Scored({name: pool**2 for name, pool in pools.items()}, observation, weight)


def _mean(errors: Floats, shares: Floats) -> Floats:
    """Return the mean of each row by shares; NaN where nobody with a share answered."""
    weight = np.where(np.isnan(errors), 0.0, shares)
    total = weight.sum(axis=1)
    found: Floats = (np.nan_to_num(errors) * weight).sum(axis=1) / np.where(total > 0.0, total, np.nan)
    return found


def _median(errors: Floats) -> Floats:
    """Return the median of each row; each has two numbers at least, and NaN is last in order."""
    ordered, count = np.sort(errors, axis=1), (~np.isnan(errors)).sum(axis=1)
    row = np.arange(len(errors))
    found: Floats = (ordered[row, (count - 1) // 2] + ordered[row, count // 2]) / 2.0
    return found
