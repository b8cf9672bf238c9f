"""
How often a pattern survives where there is none: docs/explanation/patterns-proven.md.

Outcomes, with the forecasts of them, are exchanged among the subjects of each week, each subject keeping its
substitute; what was known when forecasts were made stays. So no condition says anything. Miner, hold-out and control of
false discoveries then run as they do on real outcomes, and so they do with one mistake each.
``python -m docs.pattern_simulation`` runs all of it, which takes five minutes of two cores, writes counts and picture,
and prints the tables; ``--runs N`` does less.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, binomtest

from docs.pattern_cases import SOURCES, cases
from docs.pictures import FOLDER, drawing
from imem.patterns.evidence.holdout import (
    LEAST_CASES,
    LEAST_CORRELATION,
    LEAST_PERIODS,
    SEED,
    TOLERANCE,
    Direction,
    Panel,
    designed_failure,
    exceeds,
)
from imem.patterns.evidence.splits import Case, Split, sizes, split
from imem.patterns.evidence.verdicts import q_values
from imem.patterns.mining import Finding, SearchSpace

RUNS: Final = {"market_crowds": 200, "flusight": 60}
SIGNIFICANT: Final = 0.05

RESAMPLES: Final = 1_999
"""Permutations of each test, a fifth of those of the product, which makes p-values coarser and no smaller."""

RESULTS: Final = FOLDER / "patterns.json"
PICTURE: Final = FOLDER / "patterns.svg"

Floats = NDArray[np.float64]
Places = NDArray[np.signedinteger[Any]]


class Way(StrEnum):
    """How a run tests: as the product does, or with one mistake."""

    SOUND = "as the product tests"
    BASE_RATE = "against the base rate of training"
    ROWS = "by rows"
    NO_EMBARGO = "without embargo"
    BY_FORECAST = "without embargo, cut by the day of the forecast"


DRAWN: Final = (3, 60)
"""Cases of a part that the picture shows, from and to."""


class Survivors(NamedTuple):
    """How many conditions a run proposes, tests, and passes by the design's gate, and by both gates."""

    proposed: int
    tested: int
    designed: int
    both: int


class Outcomes(NamedTuple):
    """The values of each case that an exchange moves to another one."""

    outcome: Floats
    reference: Floats
    sd: Floats


class World:
    """
    The cases of a source, their parts and the search space; what does not depend on outcomes is computed once.

    Args:
        source: of :data:`SOURCES`.
        way: decides how cases are parted.
    """

    def __init__(self, source: str, way: Way) -> None:
        self.way = way
        found = cases(source)
        self.cases = [one.case for one in found]
        places = {id(one.case): place for place, one in enumerate(found)}
        parts = parted(self.cases, way)
        self.training, self.validation, self.test = (
            np.array([places[id(case)] for case in part], dtype=np.intp) for part in parts[:3]
        )
        self.space = SearchSpace([found[place].features for place in self.training])
        self.held = [
            np.array([[all(atom.holds(found[place].features) for atom in condition) for place in part]
                      for condition in self.space.conditions], dtype=bool)
            for part in (self.validation, self.test)
        ]  # fmt: skip
        self.enough = self._enough(0, self.validation) & self._enough(1, self.test)
        self.real = Outcomes(*(
            np.array([getattr(case, name) for case in self.cases]) for name in Outcomes._fields
        ))  # fmt: skip

    def _enough(self, part: int, places: Places) -> NDArray[np.bool_]:
        periods = np.array([self.cases[place].period for place in places])
        held = self.held[part]
        many = np.array([len(set(periods[one])) >= LEAST_PERIODS for one in held])
        return np.asarray((held.sum(axis=1) >= LEAST_CASES) & many)

    @cached_property
    def panel(self) -> tuple[Panel, Places]:
        """All cases by subject and period, and the place of the case of each cell; -1 for none."""
        panel = Panel(self.cases)
        return panel, cells(panel, self.cases)

    def permuted(self, seed: int) -> Outcomes:
        """Return the outcomes after an exchange of subjects within each period."""
        panel, place = self.panel
        random = np.random.default_rng((SEED, seed))
        found = panel.substitutes(random.permutation(len(panel.subjects))[None, :])[0]
        source = np.empty(len(self.cases), dtype=np.intp)
        present = place >= 0
        source[place[present]] = place[found, np.arange(len(panel.periods))][present]
        return Outcomes(*(values[source] for values in self.real))

    @cached_property
    def by_subjects(self) -> Places:
        """The test case in the place of each, by permutation; subjects keep their substitutes, as in ``holdout_p``."""
        test = [self.cases[place] for place in self.test]
        panel = Panel(test)
        place = cells(panel, test)
        random = np.random.default_rng(SEED)
        permutations = random.permuted(np.tile(np.arange(len(panel.subjects)), (RESAMPLES, 1)), axis=1)
        columns, present = np.arange(len(panel.periods)), place >= 0
        drawn = np.empty((RESAMPLES, len(test)), dtype=np.int32)
        for begin in range(0, RESAMPLES, 500):
            found = panel.substitutes(permutations[begin : begin + 500])
            drawn[begin : begin + 500, place[present]] = place[found, columns][:, present]
        return drawn

    @cached_property
    def by_rows(self) -> Places:
        """The same for cases exchanged within their period one by one: a mistake."""
        periods = np.array([self.cases[place].period for place in self.test])
        random = np.random.default_rng(SEED)
        drawn = np.empty((RESAMPLES, len(periods)), dtype=np.int32)
        for period in sorted(set(periods)):
            here = np.flatnonzero(periods == period)
            drawn[:, here] = random.permuted(np.tile(here, (RESAMPLES, 1)), axis=1)
        return drawn

    def run(self, outcomes: Outcomes) -> tuple[Survivors, list[tuple[Finding, float]]]:
        """Mine, test and control; return the counts, and the survivors with their q-values."""
        if self.way is Way.BASE_RATE:
            base = np.full(len(self.cases), outcomes.outcome[self.training].mean())
            outcomes = Outcomes(outcomes.outcome, base, np.sqrt(base * (1.0 - base)))
        gains = outcomes.outcome - outcomes.reference
        found = self.space.findings(
            [replace(self.cases[place], outcome=outcomes.outcome[place], reference=outcomes.reference[place],
                     sd=outcomes.sd[place]) for place in self.training]
        )  # fmt: skip
        failures = [self._designed_failure(one, gains) for one in found]
        tested = [place for place, one in enumerate(found) if self.enough[one.place]]
        p = self.p_values([found[place] for place in tested], outcomes)
        q = dict(zip(tested, q_values(p), strict=True))
        passed = [place for place in q if failures[place] is None and exceeds(SIGNIFICANT, q[place])]
        counts = Survivors(len(found), len(tested), sum(one is None for one in failures), len(passed))
        return counts, [(found[place], q[place]) for place in passed]

    def _designed_failure(self, one: Finding, gains: Floats) -> str | None:
        hits = one.claim.sign * gains > 0.0
        held = [self.space.held[one.place], *(part[one.place] for part in self.held)]
        training, validation, test = (
            float(hits[places][mask].mean()) if mask.any() else None
            for mask, places in zip(held, (self.training, self.validation, self.test), strict=True)
        )
        return designed_failure(training, validation, test, int(held[1].sum()))

    def p_values(self, found: Sequence[Finding], outcomes: Outcomes) -> list[float]:
        """Return the p-values of the test part, as ``holdout_p`` does, or with the mistake."""
        if not found:
            return []
        held = np.array([self.held[1][one.place] for one in found])
        signs = np.array([one.claim.sign for one in found])
        if self.way is Way.BASE_RATE:
            base = outcomes.reference[0]
            hits = (held & (signs[:, None] * (outcomes.outcome - base)[self.test] > 0.0)).sum(axis=1)
            chances = [base if one.claim is Direction.HIGHER else 1.0 - base for one in found]
            return [
                float(binomtest(int(hit), int(n), chance, alternative="greater").pvalue)
                for hit, n, chance in zip(hits, held.sum(axis=1), chances, strict=True)
            ]
        residuals = ((outcomes.outcome - outcomes.reference) / outcomes.sd)[self.test]
        _, period = np.unique([self.cases[place].period for place in self.test], return_inverse=True)
        centred = residuals - (np.bincount(period, residuals) / np.bincount(period))[period]
        observed = signs * (held @ centred)
        drawn = centred[self.by_rows if self.way is Way.ROWS else self.by_subjects]
        reached = (
            signs[:, None] * (held.astype(float) @ drawn.T)
            >= (observed - TOLERANCE * np.maximum(1.0, np.abs(observed)))[:, None]
        )
        return [float(p) for p in (1.0 + reached.sum(axis=1)) / (1.0 + RESAMPLES)]


def cells(panel: Panel, found: Sequence[Case]) -> Places:
    """Return the place of the case of each subject and period; -1 for none."""
    rows = {subject: row for row, subject in enumerate(panel.subjects)}
    columns = {period: column for column, period in enumerate(panel.periods)}
    place = np.full((len(rows), len(columns)), -1, dtype=np.intp)
    for number, case in enumerate(found):
        place[rows[case.subject], columns[case.period]] = number
    return place


def parted(found: Sequence[Case], way: Way) -> Split:
    """Return the parts; without embargo, which is a mistake, those of the cases that cross a boundary as well."""
    if way not in {Way.NO_EMBARGO, Way.BY_FORECAST}:
        return split(found)
    first, second = sizes(len(found))
    if way is Way.NO_EMBARGO:
        ordered = sorted(found, key=lambda case: (case.known_at, case.predicted_at, case.subject))
    else:
        ordered = sorted(found, key=lambda case: (case.predicted_at, case.known_at, case.subject))
    return Split(ordered[:first], ordered[first:second], ordered[second:], [])


Counts = dict[str, list[int]]
Kept = Mapping[str, Mapping[str, Counts]]
"""Source → way → :class:`Survivors` on real outcomes (``real``), and by run how many conditions pass the design's gate
(``designed``) and both gates (``both``)."""


def simulate(source: str, way: Way, runs: int) -> Counts:
    """Return what *runs* exchanges of outcomes find, and what real outcomes do."""
    world = World(source, way)
    found = [world.run(world.permuted(number))[0] for number in range(runs)]
    return {
        "real": [world.space.size, *world.run(world.real)[0]],
        "designed": [one.designed for one in found],
        "both": [one.both for one in found],
    }


def simulated(runs: int | None = None) -> Kept:
    """Return all sources in all ways; on two cores."""
    asked = [(source, way, runs or RUNS[source]) for source in SOURCES for way in Way]
    with ProcessPoolExecutor(2) as pool:
        answers = list(pool.map(simulate, *zip(*asked, strict=True)))
    found: dict[str, dict[str, Counts]] = {source: {} for source in SOURCES}
    for (source, way, _), counts in zip(asked, answers, strict=True):
        found[source][way.value] = counts
    return found


def kept() -> dict[str, dict[str, Counts]]:
    """Return what the last simulation of all found."""
    found: dict[str, dict[str, Counts]] = json.loads(RESULTS.read_text("utf-8"))
    return found


def share(counts: Sequence[int]) -> tuple[float, float, float]:
    """Return the share of runs in which any condition passes, with its 95 % interval by Clopper and Pearson."""
    passed = sum(count > 0 for count in counts)
    interval = binomtest(passed, len(counts)).proportion_ci(0.95, method="exact")
    return passed / len(counts), float(interval.low), float(interval.high)


def chance_pass(cases_of_part: int, base: float) -> float:
    """Return how probably the hit rate of so many cases clears the design's bound, if each hits with *base*."""
    most = max(hits for hits in range(cases_of_part + 1) if not exceeds(hits / cases_of_part, LEAST_CORRELATION))
    return float(binom.sf(most, cases_of_part, base))


def picture() -> str:
    """Draw how often a condition without an effect clears 0.65 in validation and test, by cases of each."""
    bases = {"events half of the time": 0.5, "60 %": 0.6, "70 %": 0.7}
    curves = {
        f"{name}": [(float(n), chance_pass(n, base) ** 2) for n in range(DRAWN[0], DRAWN[1] + 1)]
        for name, base in bases.items()
    }
    return drawing(
        curves, across=(0.0, DRAWN[1], "cases in validation and in test each"), up=(0.0, 1.0, "passes both, by chance")
    )


def table(found: Kept) -> str:
    """Return the shares of runs in percent, with their intervals."""
    lines = [
        f"| how it is tested | {' | '.join(f'{source}: as designed | both gates' for source in found)} |",
        "|" + "---|" * (1 + 2 * len(found)),
    ]
    for way in Way:
        cells_of_way = [
            "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * value for value in share(counts[way.value][gate])))
            for counts in found.values() for gate in ("designed", "both")
        ]  # fmt: skip
        lines.append(f"| {way.value} | {' | '.join(cells_of_way)} |")
    return "\n".join(lines)


def table_of_real(found: Kept) -> str:
    """Return what real outcomes let pass."""
    lines = [
        "| source | how it is tested | looked at | proposed | enough cases | as designed | both gates |",
        "|" + "---|" * 7,
    ]
    for source, ways in found.items():
        lines += [f"| {source} | {way.value} | {' | '.join(map(str, ways[way.value]['real']))} |" for way in Way]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, write counts and picture, and print the tables."""
    parser = argparse.ArgumentParser(description="How often a pattern survives where there is none.")
    parser.add_argument("--runs", type=int, help="exchanges of outcomes of each source; 200 and 60 if not given")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for counts and picture")
    given = parser.parse_args(arguments)
    found = simulated(given.runs)
    (given.out / RESULTS.name).write_text(json.dumps(found) + "\n", "utf-8")
    (given.out / PICTURE.name).write_text(picture(), "utf-8")
    sys.stdout.write(f"{table(found)}\n\n{table_of_real(found)}\n")


if __name__ == "__main__":
    main()
