"""
How often a lesson is called effective, where its true effect is known: docs/explanation/lessons.md.

Decisions are drawn whose chance to be inside the tolerance is known, and the function that measures applied lessons
judges each of them. ``python -m docs.lesson_simulation`` draws all of them anew, which takes five
minutes of one core, writes counts and picture, and prints the table; ``--runs N`` draws fewer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, permutation_test

from docs.pictures import FOLDER, drawing
from imem.postmortem.lessons.effect import EffectVerdict, MeasuredDecision, effect_of

COUNTS: Final = (10, 20, 40, 80)
"""Decisions in each of the four cells."""

SHARE: Final = 0.6
"""How many decisions are inside the tolerance, without the lesson."""

RUNS: Final = 150
"""Simulations of each cell of the table; of a lesson without an effect twice as many."""

SEED: Final = 6
FEWEST: Final = 10
"""Decisions of the smaller cells where their sizes differ."""

RESULTS: Final = FOLDER / "lessons.json"
PICTURE: Final = FOLDER / "lessons.svg"
APPLIED: Final = datetime(2026, 1, 1, tzinfo=UTC)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """
    The true effects behind the decisions of one simulation.

    Attributes:
        effect: by how much the lesson changes the chance of a decision in its scope.
        drift: by how much the chance of every decision changes at the same time.
        lopsided: whether only :data:`FEWEST` decisions of each scope come after the lesson.
        alike: so many decisions that follow each other turn out alike.
    """

    effect: float = 0.0
    drift: float = 0.0
    lopsided: bool = False
    alike: int = 1


WORLDS: Final[Mapping[str, World]] = {
    "+0.3": World(effect=0.3),
    "+0.1": World(effect=0.1),
    "none": World(),
    "-0.3": World(effect=-0.3),
    f"none, all become better by 0.2, {FEWEST} after it": World(drift=0.2, lopsided=True),
    "none, each 5 turn out alike": World(alike=5),
}
"""Name of the true effect → the world."""

DRAWN: Final = tuple(name for name, world in WORLDS.items() if world == World(effect=world.effect))
"""What the picture shows."""


def decisions(world: World, count: int, chance: np.random.Generator) -> list[MeasuredDecision]:
    """Return decisions of a world, *count* in each cell."""
    found = []
    for in_scope in (True, False):
        for late in (False, True):
            share = SHARE + late * (world.drift + in_scope * world.effect)
            many = FEWEST if world.lopsided and late else count
            # Sorted: their order says nothing, and deals of the same outcomes are remembered.
            drawn = np.sort(np.repeat(chance.random(-(-many // world.alike)) < share, world.alike)[:many])
            found += [
                MeasuredDecision(
                    decision_id=f"{in_scope}-{late}-{number}",
                    decided_at=APPLIED + (1 if late else -1) * timedelta(days=1 + number),
                    accuracy=float(inside),
                    in_scope=in_scope,
                )
                for number, inside in enumerate(drawn)
            ]
    return found


_dealt: dict[tuple[bytes, bytes, int], Any] = {}


def _remembered(data: tuple[Floats, Floats], *given: Any, random_state: np.random.Generator, **more: Any) -> Any:
    """Do the permutation test, once for the same outcomes and the same seed."""
    key = data[0].tobytes(), data[1].tobytes(), random_state.bit_generator.state["state"]["state"]
    if key not in _dealt:
        _dealt[key] = permutation_test(data, *given, random_state=random_state, **more)
    return _dealt[key]


def verdicts(name: str, count: int, runs: int, seed: int = SEED) -> dict[EffectVerdict, int]:
    """Return how often the lesson of a world is called what, in *runs* simulations."""
    world, found = WORLDS[name], Counter[EffectVerdict]()
    with patch("scipy.stats.permutation_test", _remembered):
        for run in range(runs):
            chance = np.random.default_rng((seed, list(WORLDS).index(name), count, run))
            found[effect_of(decisions(world, count, chance), APPLIED).verdict] += 1
    return dict(found)


Found = Mapping[str, Mapping[int, Mapping[str, int]]]
"""Name of the true effect → decisions in each cell → verdict → how often."""


def runs_of(name: str, runs: int = RUNS) -> int:
    """Return how often a world is simulated."""
    return runs if WORLDS[name].effect else 2 * runs


def simulated(runs: int) -> Found:
    """Return all worlds at all counts; on all cores."""
    asked = [(name, count) for name in WORLDS for count in COUNTS]
    with ProcessPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        names, counts = zip(*asked, strict=True)
        answers = list(pool.map(verdicts, names, counts, [runs_of(name, runs) for name in names]))
    found: dict[str, dict[int, dict[str, int]]] = {name: {} for name in WORLDS}
    for (name, count), said in zip(asked, answers, strict=True):
        found[name][count] = {verdict.value: said.get(verdict, 0) for verdict in EffectVerdict}
    return found


def kept() -> Found:
    """Return what the last simulation of all found."""
    found = json.loads(RESULTS.read_text("utf-8"))
    return {name: {int(count): said for count, said in counts.items()} for name, counts in found.items()}


def shares(said: Mapping[str, int], verdict: EffectVerdict) -> tuple[float, float, float]:
    """Return the share of a verdict with its 95 % interval by Clopper and Pearson."""
    total, times = sum(said.values()), said[verdict.value]
    interval = binomtest(times, total).proportion_ci(0.95, method="exact")
    return times / total, float(interval.low), float(interval.high)


def picture(found: Found) -> str:
    """Draw how often lessons of a known effect are called effective, with the intervals as bands."""
    series = {name: [shares(found[name][count], EffectVerdict.EFFECTIVE) for count in COUNTS] for name in DRAWN}
    curves = {
        f"true effect {name}": [(float(x), share) for x, (share, _, _) in zip(COUNTS, points, strict=True)]
        for name, points in series.items()
    }
    bands = [
        tuple([(float(x), point[side]) for x, point in zip(COUNTS, points, strict=True)] for side in (1, 2))
        for points in series.values()
    ]
    return drawing(
        curves,
        across=(0.0, COUNTS[-1], "decisions in each of the four cells"),
        up=(0.0, 1.0, "called effective"),
        bands=[(low, high) for low, high in bands],
    )


def table(found: Found) -> str:
    """Return the shares as a table: effective and harmful in percent, the intervals in brackets."""
    lines = [
        f"| true effect | called | {' | '.join(f'{count}' for count in COUNTS)} |",
        "|" + "---|" * (len(COUNTS) + 2),
    ]
    for name in WORLDS:
        for verdict in (EffectVerdict.EFFECTIVE, EffectVerdict.HARMFUL):
            cells = [
                f"{100 * share:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
                for share, low, high in (shares(found[name][count], verdict) for count in COUNTS)
            ]
            lines.append(f"| {name} | {verdict.value} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, write counts and picture, and print the table."""
    parser = argparse.ArgumentParser(description="How often a lesson of a known effect is called effective.")
    parser.add_argument(
        "--runs", type=int, default=RUNS, help="simulations of each cell of the table; twice as many without an effect"
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for counts and picture")
    given = parser.parse_args(arguments)
    found = simulated(given.runs)
    (given.out / RESULTS.name).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (given.out / PICTURE.name).write_text(picture(found), "utf-8")
    sys.stdout.write(table(found) + "\n")


if __name__ == "__main__":
    main()
