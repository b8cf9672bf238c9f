"""
The miner: conditions that held in training cases whose outcomes lay off the best forecast. Pure, and deterministic.

It sees the training part alone, the cuts of numbers included. It returns proposals, not findings: among
thousands of conditions some fit by chance. So a run says how many it looked at, and all its proposals are tested as one
family.

The statistic takes subjects as independent, since the errors of one subject last: its variance is that of their sums.
Source: Liang and Zeger, Longitudinal Data Analysis using Generalized Linear Models (1986).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy import stats

from imem.patterns.cases import FeaturedCase
from imem.patterns.definition import FEATURES, MOST_ATOMS, NUMBERS, Atom, Comparison, PatternDefinition, Period
from imem.patterns.evidence.holdout import TOLERANCE, Direction, Panel
from imem.patterns.evidence.splits import Case, split

LEAST_OCCURRENCES: Final = 5
"""Matching training cases without which a condition is not looked at."""

LEAST_HIT_RATE: Final = 0.7
LEAST_Z: Final = 2.0
"""
Hit rate among the matching training cases, as designed, and standard errors by which their residuals lie off those of
their periods: who reaches one of them is proposed.
"""

QUANTILES: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Where numbers are cut, among the training cases."""

MOST_CONDITIONS: Final = 5_000
"""Combinations of atoms that a run looks at, those of fewer atoms first."""

_AT_ONCE: Final = 100
"""Conditions whose statistics are computed at once, which bounds the memory."""

MOST_PROPOSALS: Final = 200
"""Proposals of a run, those with the largest statistic first."""

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


class Finding(NamedTuple):
    """A condition, by its place in the space, and a claim that training cases bear out, with their statistic."""

    place: int
    claim: Direction
    z: float


class Mined(BaseModel):
    """
    The proposals of a run.

    Attributes:
        proposals: definitions, the largest statistic first.
        search_space: pairs of a condition and a claim that were looked at.
        expected: how many of them reach :data:`LEAST_Z` by chance, by the normal distribution.
        training: cases that were looked at.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    proposals: tuple[PatternDefinition, ...]
    search_space: int
    expected: float
    training: int


class SearchSpace:
    """
    The conditions over the features of training cases, each set of cases once, by the fewest atoms.

    Attributes:
        conditions: in order.
        held: where each holds, as (conditions, cases).
    """

    def __init__(self, features: Sequence[Mapping[str, Any]], *, most: int = MOST_CONDITIONS) -> None:
        atoms = list(_atoms(features))
        masks = [np.array([atom.holds(one) for one in features], dtype=bool) for atom in atoms]
        found: dict[bytes, tuple[tuple[Atom, ...], Bools]] = {}
        sizes = (combinations(range(len(atoms)), size) for size in range(1, MOST_ATOMS + 1))
        for places in islice(chain.from_iterable(sizes), most):
            chosen = tuple(atoms[place] for place in places)
            if len({(one.feature, one.comparison) for one in chosen}) < len(chosen):
                continue
            held = np.logical_and.reduce([masks[place] for place in places])
            if held.sum() >= LEAST_OCCURRENCES:
                found.setdefault(np.packbits(held).tobytes(), (chosen, held))
        self.conditions = [condition for condition, _ in found.values()]
        self.held: Bools = np.array([held for _, held in found.values()], dtype=bool)

    @property
    def size(self) -> int:
        """Pairs of a condition and a claim."""
        return len(self.conditions) * len(Direction)

    def findings(self, training: Sequence[Case]) -> list[Finding]:
        """Return what *training*, the cases of the space in their order, bear out; none if one is not finite."""
        if not self.conditions or not np.isfinite([one.outcome - one.reference for one in training]).all():
            return []
        gains = np.array([one.outcome - one.reference for one in training])
        z, occurrences = self._statistics(training), self.held.sum(axis=1)
        found = []
        for claim in Direction:
            rates = (self.held & (claim.sign * gains > 0.0)).sum(axis=1) / occurrences
            enough = (rates >= LEAST_HIT_RATE - TOLERANCE) | (claim.sign * z >= LEAST_Z)
            found += [Finding(int(place), claim, float(claim.sign * z[place])) for place in np.flatnonzero(enough)]
        return sorted(found, key=lambda one: (-round(one.z, 9), one.place, one.claim))[:MOST_PROPOSALS]

    def _statistics(self, training: Sequence[Case]) -> Floats:
        """Return by condition the sum of the centred residuals in standard errors, subjects being independent."""
        centred = Panel(training).centred_of(training)
        order = sorted(range(len(training)), key=lambda place: training[place].subject)
        subjects = [training[place].subject for place in order]
        starts = [place for place, subject in enumerate(subjects) if place == 0 or subject != subjects[place - 1]]
        z = np.zeros(len(self.held))
        for begin in range(0, len(z), _AT_ONCE):
            held = self.held[begin : begin + _AT_ONCE, order]
            sums = np.add.reduceat(np.where(held, centred[order], 0.0), starts, axis=1)
            errors = np.sqrt((sums**2).sum(axis=1))
            np.divide(sums.sum(axis=1), errors, out=z[begin : begin + _AT_ONCE], where=errors > TOLERANCE)
        return z


def _atoms(features: Sequence[Mapping[str, Any]]) -> Iterator[Atom]:
    """Return the atoms over *features*: names that occur, and numbers at or below a quantile."""
    for name in FEATURES:
        values = [one[name] for one in features if one[name] is not None]
        if not values:
            continue
        if name not in NUMBERS:
            yield from (Atom(feature=name, comparison=Comparison.IS, value=value) for value in sorted(set(values)))
            continue
        cuts = sorted({float(cut) for cut in np.quantile(np.array(values), QUANTILES, method="lower")})
        for comparison in (Comparison.AT_LEAST, Comparison.BELOW):
            yield from (Atom(feature=name, comparison=comparison, value=cut) for cut in cuts)


def mine(
    cases: Sequence[FeaturedCase], *, metric: str, reference: str, category: str, period: Period = Period.MONTH
) -> Mined:
    """
    Return what the training part of *cases* proposes; the later parts are not looked at.

    Args:
        cases: all settled questions of *metric*, as they stood when *reference* first forecast them in each *period*.
        category: of the proposals; names the domain whose table judges them.

    A proposal states no mechanism but that it was mined: a person who approves it has to know one.
    """
    features = {id(one.case): one.features for one in cases}
    training = split([one.case for one in cases]).training
    space = SearchSpace([features[id(case)] for case in training])
    return Mined(
        proposals=tuple(
            PatternDefinition(
                name=f"Mined: {' and '.join(atom.words for atom in space.conditions[found.place])}"[:200],
                category=category, metric=metric, reference=reference, condition=space.conditions[found.place],
                claim=found.claim, period=period,
                mechanism=f"None is known: mined from {len(training)} cases, {space.size} conditions and claims.",
            )
            for found in space.findings(training)
        ),
        search_space=space.size,
        expected=space.size * float(stats.norm.sf(LEAST_Z)),
        training=len(training),
    )  # fmt: skip
