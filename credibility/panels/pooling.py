"""
Weights of agents from their records on common questions, and pooled answers (docs/explanation/panels.md). Pure.

The loss of a claim is its squared error (:func:`imem.credibility.settlement.signed_error`), and it counts against the
mean loss of the other agents that answered the same question at about the same time
(:func:`imem.credibility.history.stage_of`): a span of easy questions, or an answer given when nearly all is known,
gives no one an advantage. Claims with one ``target_at`` are one observation; it counts if another agent of the panel
has it too. Within it, the part of the loss that all claims of the agent share, the square of their mean error, is one
draw, whatever their number; the rest tells which questions the agent told apart. Both parts are averaged with age and
shrunk towards zero, the shared part much more. The weight is the exponential of minus what remains, within a range
that grows with the number of observations (:data:`RANGE_PRIOR`): without any it is the equal weight.

Agents whose losses and errors agree in observation after observation share one weight, of which who answers first has
more: a copy adds nothing.

Beside these weights stand those by earlier seasons: equal ones for the half of the agents that did best in seasons
that are over (:func:`earlier_seasons`). Which of them is the panel's answer follows from the record of each
(:mod:`imem.credibility.panels.choice`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from imem.credibility.posterior import INTERVAL, SECONDS_IN_YEAR
from imem.credibility.scores.context import ClaimContext, matches

HALFLIFE_YEARS: Final = 2.0
"""Age of an observation at which it weighs half."""

SHARPNESS: Final = 4.0
"""Logarithm of the weight per loss saved, in units of the typical loss of the panel."""

OWN_PRIOR: Final = 16.0
SHARED_PRIOR: Final = 48.0
"""Observations without an advantage that are added to each part: shrinkage towards the equal weight."""

RANGE_PRIOR: Final = 4.0
"""With W observations, no agent weighs more than 1 + W / 4 times what another does for its losses, however large."""

PRIOR_LOSS: Final = 0.25
"""Typical loss before any evidence: that of a probability of one half."""

IN_CONTEXT: Final = 4
OUT_OF_CONTEXT: Final = 0.5
"""Dimensions that a claim must share with the context asked for to count in full, and what it counts otherwise."""

COPY_DISTANCE: Final = 0.1
"""Share of two agents' own variation by which their records must at least differ to count as two."""

COPY_PRIOR: Final = 4.0
"""Common observations at which half of the similarity found counts, the rest being the panel's usual one."""

MATCH: Final = 0.5
"""Similarity from which agents are named as copies, and share by who answers first."""

SEASON_GAP_S: Final = 60 * 86_400.0
"""Time without an observation of an agent after which a new season begins, in seconds."""

LEAST_EARLIER: Final = 15
"""Observations in earlier seasons from which an agent can be of the better half."""

LEAST_AGENTS: Final = 3
LEAST_PART: Final = 0.25
"""Agents with as many from which there is a better half, and their least part of the panel; so is the half's."""

THIS_SEASON: Final = 0.3
"""The weight of an observation of this season beside those of earlier ones, for an agent that has any."""

Seasons = Literal["gap", "year"]
"""The end of a season: a gap in an agent's record, or the calendar year (UTC)."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Observations:
    """
    Observations of agents in contexts, each valid from a moment on, as columns of one length.

    Attributes:
        agent: indices of agents.
        at: since when each is valid, in seconds since 1970, as is *target_at*.
        context: indices of *contexts*.
        values: by observation its rows, loss, peer loss, error and seconds ahead; see
            :class:`imem.credibility.track_steps.PeerComparison`.
    """

    agent: Indices
    at: Floats
    target_at: Floats
    context: Indices
    contexts: Sequence[ClaimContext]
    values: Floats


class AgentWeight(NamedTuple):
    """
    The weight of one agent in a panel.

    Attributes:
        agent: its name.
        weight: its share; those of a panel sum to 1.
        observations: those with questions that others of the panel answered too.
        loss, peer_loss: decayed mean loss, and that of the others on the same questions; None without observations.
        bias: decayed mean signed error; None without observations.
        advantage: what it saves of the typical loss after shrinkage, as a fraction; above zero is better.
        spread: standard error of the logarithm of the weight.
        shared_with: agents that it matches so closely that they share one weight.
        resemblance: the part of its weight that it lost since others of the panel err as it does; below zero it gained.
        earlier: observations in earlier seasons.
        better_half: whether it is of the half that did best in them; None where there is no such half.
        baseline: whether it is a baseline, which is shown and never pooled.
    """

    agent: str
    weight: float
    observations: int
    loss: float | None
    peer_loss: float | None
    bias: float | None
    advantage: float
    spread: float
    shared_with: tuple[str, ...] = ()
    resemblance: float = 0.0
    earlier: int = 0
    better_half: bool | None = None
    baseline: bool = False


class EarlierSeasons(NamedTuple):
    """
    The weights by earlier seasons.

    Attributes:
        shares: by agent; those of a panel sum to 1.
        evidence: decayed number of observations on which they rest.
    """

    shares: Floats
    evidence: float


class Weights(NamedTuple):
    """The weights of a panel as of a moment: by record, and by earlier seasons; None where there is none."""

    by_record: list[AgentWeight]
    by_seasons: EarlierSeasons | None


class Pool(NamedTuple):
    """A pooled answer with its 95 % interval; None for a single answer, which has no spread."""

    value: float
    lower: float | None
    upper: float | None


class Evidence:
    """Observations of several agents, from which weights as of any moment are computed."""

    def __init__(self, agents: Sequence[str], observed: Observations) -> None:
        self.agents = tuple(agents)
        # By when they became valid: of several versions of an observation the last one counts.
        order = np.argsort(observed.at, kind="stable")
        self._at, self._values = observed.at[order], observed.values[order]
        self._targets, targets = np.unique(observed.target_at[order], return_inverse=True)
        self._contexts, self._context = observed.contexts, observed.context[order]
        self._place = observed.agent[order] * len(self._targets) + targets
        self._cell = self._place * len(self._contexts) + self._context

    def weights(
        self, at: datetime, context: ClaimContext | None = None, *, since: datetime | None = None
    ) -> list[AgentWeight]:
        """Return the weight of each agent by its record as of *at*, in the agents' order; see :meth:`both`."""
        return self.both(at, context, since=since).by_record

    def claims(self, at: datetime) -> Floats:
        """Return how many claims each agent has in observations as of *at*."""
        newest = self._newest(at)
        return np.bincount(
            self._place[newest] // max(len(self._targets), 1), self._values[newest, 0], len(self.agents)
        ).astype(np.float64, copy=False)

    def _newest(self, at: datetime) -> Indices:
        """Return the places of the newest version of each observation as of *at*."""
        last = int(np.searchsorted(self._at, at.timestamp(), side="right"))
        found: Indices = last - 1 - np.unique(self._cell[:last][::-1], return_index=True)[1]
        return found

    def both(
        self,
        at: datetime,
        context: ClaimContext | None = None,
        *,
        since: datetime | None = None,
        seasons: Seasons = "gap",
    ) -> Weights:
        """
        Return the weights as of *at*, in the agents' order.

        Args:
            context: of the questions; claims of other contexts count less. None: of any.
            since: the earliest ``target_at`` that counts; None for all.
            seasons: what ends a season.
        """
        return _listed(self.agents, self._weighed(at, context, since, seasons)) if self.agents else Weights([], None)

    def shares(
        self, at: datetime, *, since: datetime | None = None, seasons: Seasons = "gap"
    ) -> tuple[Floats, Floats | None]:
        """Return the shares by record and by earlier seasons, as columns; the arguments are those of :meth:`both`."""
        if not self.agents:
            return np.zeros(0), None
        found = self._weighed(at, None, since, seasons)
        return found.shares, None if found.seasons is None else found.seasons.shares

    def _weighed(
        self, at: datetime, context: ClaimContext | None, since: datetime | None, seasons: Seasons
    ) -> _Weighing:
        moment = at.timestamp()
        newest = self._newest(at)
        place, values = self._place[newest], self._values[newest]
        share = np.ones(len(self._contexts))
        if context is not None:
            share = np.array([1.0 if matches(one, context) >= IN_CONTEXT else OUT_OF_CONTEXT for one in self._contexts])
        counted = values[:, 0] * share[self._context[newest]]
        shape = len(self.agents), len(self._targets)

        def summed(column: Floats) -> Floats:
            # Of nothing at all it would be whole numbers.
            return np.bincount(place, column, shape[0] * shape[1]).reshape(shape).astype(np.float64, copy=False)

        total, part = summed(values[:, 0]), summed(counted)
        # Of many moments most are before most observations.
        counts = total.any(axis=0)
        if since is not None:
            counts &= self._targets > since.timestamp()
        total, part, targets = total[:, counts], part[:, counts], self._targets[counts]
        means = np.stack([summed(counted * column)[:, counts] for column in values[:, 1:].T])
        means /= np.maximum(part, 1e-12)
        age = np.maximum(moment - targets, 0.0) / SECONDS_IN_YEAR
        weight = 0.5 ** (age / HALFLIFE_YEARS) * part / np.maximum(total, 1.0)
        return _weighing(weight, total, means, _earlier(targets, total > 0, at, seasons))


def _earlier(targets: Floats, there: Flags, at: datetime, seasons: Seasons) -> Flags:
    """
    Return by agent and observation whether it is of an earlier season as of *at*.

    Args:
        targets: ``target_at`` of each observation, in order.
        there: which of them each agent has.
    """
    if seasons == "year":
        began = datetime(at.astimezone(UTC).year, 1, 1, tzinfo=UTC).timestamp()
        return np.broadcast_to(targets < began, there.shape)
    # The time from each observation to the agent's next one, the last one's to the moment.
    following = np.where(there, targets, np.inf)
    following = np.minimum.accumulate(following[:, ::-1], axis=1)[:, ::-1]
    following = np.append(following[:, 1:], np.full((len(there), 1), np.inf), axis=1)[:, : there.shape[1]]
    ends = there & (np.minimum(following, at.timestamp()) - targets > SEASON_GAP_S)
    return np.logical_or.accumulate(ends[:, ::-1], axis=1)[:, ::-1]


class _Weighing(NamedTuple):
    """What weights follow from and are, by agent; see :class:`AgentWeight`."""

    weight: Floats
    there: Flags
    before: Flags
    means: Floats
    shares: Floats
    advantage: Floats
    spread: Floats
    alike: Floats
    resemblance: Floats
    best: Flags
    seasons: EarlierSeasons | None


def _weighing(weight: Floats, rows: Floats, means: Floats, earlier: Flags) -> _Weighing:
    """
    Return the weights, as columns.

    Args:
        weight: by agent and observation; zero where it has none, as in *rows* and *means*.
        means: loss, peer loss, error and seconds ahead, each by agent and observation.
        earlier: whether the observation is of an earlier season of the agent.
    """
    there, agents = rows > 0, len(rows)
    if agents > 1:
        # What no other of the panel has is beside agents outside of it, whose skill is no merit of one in it.
        there &= there.sum(axis=0) > 1
        weight = np.where(there, weight, 0.0)
    loss, peer_loss, error, ahead = means
    # What one claim alone shares is no more than its own error: it is taken out as far as there are several.
    shared = np.where(there, (1.0 - 1.0 / np.maximum(rows, 1.0)) * error * error, 0.0)
    # The others' shared part on the same questions: of their loss, as large a share as in the panel's.
    share = np.minimum(1.0, shared.sum(axis=0) / np.maximum(np.where(there, loss, 0.0).sum(axis=0), 1e-12))
    of_all = np.where(there, shared - peer_loss * share, 0.0)
    own = np.where(there, loss - peer_loss, 0.0) - of_all
    weights = weight.sum(axis=1)
    typical = ((weight * peer_loss).sum() + OWN_PRIOR * PRIOR_LOSS * agents) / (weights.sum() + OWN_PRIOR * agents)
    saved = np.zeros(agents)
    variance = np.zeros(agents)
    for part, prior in ((own, OWN_PRIOR), (of_all, SHARED_PRIOR)):
        mean = (weight * part).sum(axis=1) / (weights + prior)
        saved -= mean
        variance += (weight**2 * np.where(there, part - mean[:, None], 0.0) ** 2).sum(axis=1) / (weights + prior) ** 2
    advantage = saved / typical
    alike = _similarity(weight, np.stack([loss, error]), there)
    wanted = SHARPNESS * advantage
    wanted -= np.logaddexp.reduce(wanted) - math.log(agents)
    # Half of the range lies above the equal weight, half below; the curve has slope 1 there and no corner.
    reach = np.log1p(weights / RANGE_PRIOR) / 2.0
    bounded = np.tanh(wanted / np.maximum(reach, 1e-12))
    alone = np.exp(reach * bounded)
    voices = _voices(alike, weight, ahead, there)
    raw = alone / voices
    shares = raw / raw.sum()
    before = there & earlier
    best, evidence = _better_half(weight, own + of_all, before)
    lost = 1.0 - shares / (alone / alone.sum())
    spread = SHARPNESS * np.sqrt(variance) / typical * (1.0 - bounded**2)
    part = best / voices
    seasons = EarlierSeasons(part / part.sum(), evidence) if best.any() else None
    return _Weighing(weight, there, before, means, shares, advantage, spread, alike, lost, best, seasons)


def _listed(agents: Sequence[str], of: _Weighing) -> Weights:
    """Return the weights agent by agent."""
    found = []
    for place, agent in enumerate(agents):
        weight, alike = of.weight[place], of.alike[place]
        total = weight.sum()
        means = (of.means[:, place] @ weight / total).tolist() if total > 0 else (None, None, None)
        found.append(
            AgentWeight(
                agent,
                float(of.shares[place]),
                int(of.there[place].sum()),
                means[0],
                means[1],
                means[2],
                advantage=float(of.advantage[place]),
                spread=float(of.spread[place]),
                shared_with=tuple(agents[int(one)] for one in np.flatnonzero(alike >= MATCH) if one != place),
                resemblance=float(of.resemblance[place]),
                earlier=int(of.before[place].sum()),
                better_half=bool(of.best[place]) if of.seasons is not None else None,
            )
        )
    return Weights(found, of.seasons)


def _better_half(weight: Floats, relative: Floats, before: Flags) -> tuple[Flags, float]:
    """
    Return which agents are of the half that did best, and on how many decayed observations that rests; else none.

    Args:
        weight: by agent and observation; zero where it does not count.
        relative: loss less that of the others on the same questions.
        before: which observations are of an earlier season.
    """
    known = before.sum(axis=1) >= LEAST_EARLIER
    least = math.ceil(LEAST_PART * len(weight))
    if known.sum() < max(LEAST_AGENTS, least):
        return np.zeros(len(weight), dtype=bool), 0.0
    counted = weight * np.where(before, 1.0, THIS_SEASON)
    mean = (counted * relative).sum(axis=1) / (counted.sum(axis=1) + OWN_PRIOR)
    # Who did as well as the last of them is of it as well, so that their order is nothing.
    last = np.sort(mean[known])[max((int(known.sum()) + 1) // 2, least) - 1]
    best = known & (mean <= last + 1e-12)
    return best, float((weight * before)[best].sum(axis=1).mean())


def _similarity(weight: Floats, points: Floats, there: NDArray[np.bool_]) -> Floats:
    """
    Return how closely each two agents match, 0 to 1: by the distance of their losses and errors in common observations.

    The distance is compared with how far both lie from the panel's mean, so that to agree with all is no match.
    """
    points = points * there
    apart = (points - points.sum(axis=1, keepdims=True) / np.maximum(there.sum(axis=0), 1)) * there
    ours, theirs, size = weight * there, there.T.astype(float), (apart**2).sum(axis=0)
    # Sums over common observations, of squares of differences multiplied out, so that they are products of matrices.
    squares = (points**2).sum(axis=0)
    distance = (ours * squares) @ theirs + ours @ squares.T
    distance -= 2.0 * sum((ours * one) @ one.T for one in points)
    spread = (ours * size) @ theirs + ours @ size.T
    common = ours @ theirs
    nearness = np.maximum(0.0, 1.0 - np.maximum(distance, 0.0) / (COPY_DISTANCE * np.maximum(spread, 1e-12))) ** 2
    known = common**2 / (common**2 + COPY_PRIOR**2)
    np.fill_diagonal(known, 0.0)
    usual = float((known * nearness).sum() / max(known.sum(), 1e-12))
    alike: Floats = known * nearness + (1.0 - known) * usual
    np.fill_diagonal(alike, 1.0)
    return alike


def _voices(alike: Floats, weight: Floats, ahead: Floats, there: NDArray[np.bool_]) -> Floats:
    """
    Return by how many the weight of each agent is divided: itself, and those that it matches.

    Two copies divide one weight by how often each was first, smoothed by :data:`COPY_PRIOR`. Agents that are less alike
    than :data:`MATCH` do not: to answer later than others is no fault.
    """
    parts = alike.copy()
    for one in np.flatnonzero((alike >= MATCH).sum(axis=1) > 1):
        others = np.flatnonzero(alike[one] >= MATCH)
        common = np.where(there[one] & there[others], weight[one] * weight[others], 0.0) ** 0.5
        earlier = (common * (ahead[one] > ahead[others])).sum(axis=1)
        later = (common * (ahead[one] < ahead[others])).sum(axis=1)
        certain = (alike[one, others] - MATCH) / (1.0 - MATCH)
        parts[one, others] *= ((later + COPY_PRIOR) / (earlier + COPY_PRIOR)) ** certain
    found: Floats = parts.sum(axis=1)
    return found


# Pools


def pooled(
    answers: Mapping[str, float], weights: Mapping[str, AgentWeight] | None = None, *, most: float = 1.0
) -> Pool:
    """
    Return the weighted mean of probabilities, 0 to *most*; with equal weights for None.

    The interval says how far the disagreement of the agents and the uncertainty of their weights leave it open: it is
    that of a ratio over agents (Cochran, *Sampling Techniques*, 3rd ed., section 6.4), with Student's t.
    """
    names, values, shares, spread = _arranged(answers, weights)
    value = float(shares @ values)
    lower, upper = _interval(value, values, shares, spread)
    if lower is None or upper is None or not names:
        return Pool(value, None, None)
    return Pool(value, max(0.0, lower), min(most, upper))


def pooled_value(answers: Mapping[str, float], weights: Mapping[str, AgentWeight] | None = None) -> Pool:
    """Return the weighted median of point forecasts, with an interval as in :func:`pooled`."""
    _, values, shares, spread = _arranged(answers, weights)
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(shares[order])
    place = int(np.searchsorted(cumulated, 0.5 - 1e-12))
    value = float(values[order][place])
    if abs(cumulated[place] - 0.5) <= 1e-12 and place + 1 < len(values):
        value = value / 2.0 + float(values[order][place + 1]) / 2.0
    return Pool(value, *_interval(value, values, shares, spread))


def _arranged(
    answers: Mapping[str, float], weights: Mapping[str, AgentWeight] | None
) -> tuple[list[str], Floats, Floats, Floats]:
    """Return names, answers, shares that sum to 1, and the spreads of the weights, by name."""
    names = sorted(answers)
    values = np.array([answers[name] for name in names], dtype=float)
    if weights is None:
        return names, values, np.full(len(names), 1.0 / len(names)), np.zeros(len(names))
    shares = np.array([weights[name].weight for name in names])
    return names, values, shares / shares.sum(), np.array([weights[name].spread for name in names])


def _interval(value: float, values: Floats, shares: Floats, spread: Floats) -> tuple[float | None, float | None]:
    count = len(values)
    effective = 1.0 / float((shares**2).sum())
    if count < 2 or effective <= 1.0 + 1e-9:
        return None, None
    from scipy.special import stdtrit  # noqa: PLC0415 - a command that needs no score shall not wait for it

    # In units of the largest: the square of a value that one agent made up may be no number any more.
    unit = max(float(np.abs(values).max()), sys.float_info.min)
    apart = values / unit - value / unit
    variance = float((shares**2 * apart**2 * (count / (count - 1.0) + spread**2)).sum())
    reach = float(stdtrit(max(effective - 1.0, 1.0), INTERVAL[1])) * math.sqrt(variance) * unit
    return finite(value - reach), finite(value + reach)


def finite(value: float) -> float:
    """Return *value*, or what is nearest to it of the numbers that can be stored, where it is beyond them."""
    return min(max(value, -sys.float_info.max), sys.float_info.max)
