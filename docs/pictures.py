"""
The pictures of docs/explanation/scores.md, made from the code: ``python -m docs.pictures`` writes them.

A test compares what stands in the repository with what this makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from scipy import stats

from imem.credibility.posterior import DecayedEvidence, Posterior, decay, posterior, posteriors
from imem.credibility.scores.auto_resolve import Contender, ScoreEstimate, auto_resolve
from imem.credibility.scores.wilson import wilson

FOLDER: Final = Path(__file__).resolve().parent / "explanation" / "pictures"

WIDTH, HEIGHT, MARGIN = 640, 300, 48
COLOURS: Final = ("#0b3d66", "#c44a00", "#4a8a4a", "#8a8a8a", "#7a3f8f", "#b08a00")

Curve = Sequence[tuple[float, float]]


def drawing(
    curves: Mapping[str, Curve],
    *,
    across: tuple[float, float, str],
    up: tuple[float, float, str],
    bands: Iterable[tuple[Curve, Curve]] = (),
) -> str:
    """Return lines, and bands between two of them, as SVG; *across*, *up*: least, most and name of each axis."""

    def place(point: tuple[float, float]) -> str:
        x = MARGIN + (point[0] - across[0]) / (across[1] - across[0]) * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - (point[1] - up[0]) / (up[1] - up[0]) * (HEIGHT - 2 * MARGIN)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-size="11">',
        '<style>text { font-family: sans-serif }</style><rect width="100%" height="100%" fill="white"/>',
    ]
    for share in np.linspace(0.0, 1.0, 5):
        x, y = across[0] + share * (across[1] - across[0]), up[0] + share * (up[1] - up[0])
        left, foot = place((across[0], y)).split(",")[1], place((x, up[0])).split(",")[0]
        parts += [
            f'<line x1="{MARGIN}" y1="{left}" x2="{WIDTH - MARGIN}" y2="{left}" stroke="#e5e5e5"/>',
            f'<text x="{MARGIN - 6}" y="{left}" text-anchor="end" dy="4">{y:g}</text>',
            f'<text x="{foot}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{x:g}</text>',
        ]
    parts += [
        f'<text x="{WIDTH / 2:g}" y="{HEIGHT - 8}" text-anchor="middle">{across[2]}</text>',
        f'<text x="{MARGIN}" y="16">{up[2]}</text>',
    ]
    for number, (lower, upper) in enumerate(bands):
        outline = " ".join(map(place, [*lower, *reversed(upper)]))
        parts.append(f'<polygon points="{outline}" fill="{COLOURS[number]}" opacity="0.15"/>')
    for number, (name, curve) in enumerate(curves.items()):
        colour, top = COLOURS[number], 34 + 15 * number
        parts += [
            f'<polyline points="{" ".join(map(place, curve))}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{WIDTH - MARGIN}" y="{top}" text-anchor="end" fill="{colour}">{name}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _density(body: Posterior) -> Curve:
    return [(float(x), float(stats.beta.pdf(x, body.alpha, body.beta))) for x in np.linspace(0.005, 0.995, 100)]


def of_posterior() -> str:
    """Draw two posteriors of the worked examples, and what is known without outcomes."""
    a, b = (posterior(DecayedEvidence(*sums)) for sums in ((9, 12, 15, 20), (4, 12, 9, 20)))
    curves = {
        f"9 of 12 right in context: {a.lower:.2f} to {a.upper:.2f}": _density(a),
        f"4 of 12: {b.lower:.2f} to {b.upper:.2f}": _density(b),
        "no outcomes": _density(posterior(DecayedEvidence(0, 0))),
    }
    cut = {name: [(x, min(y, 5.0)) for x, y in curve] for name, curve in curves.items()}
    return drawing(cut, across=(0, 1, "share right"), up=(0, 5, "density"))


def of_decay() -> str:
    """Draw what becomes of 32 right of 40 when nothing more is heard: the posterior widens, the product falls."""
    years = np.linspace(0.0, 10.0, 101)
    fades = [decay(float(year), 2.0) for year in years]
    bodies = posteriors([DecayedEvidence(32 * fade, 40 * fade) for fade in fades])
    points = [(float(year), body) for year, body in zip(years, bodies, strict=True)]
    curves = {
        "posterior, with its interval": [(year, body.mean) for year, body in points],
        "as designed: 0.8 times the temporal weight": [(float(y), 0.8 * f) for y, f in zip(years, fades, strict=True)],
    }
    band = [(year, body.lower) for year, body in points], [(year, body.upper) for year, body in points]
    return drawing(curves, across=(0, 10, "years without an outcome"), up=(0, 1, "score"), bands=[band])


def contenders(n: int) -> list[Contender]:
    """Return contenders of *n* observations, of which none, one, … all are right; the product is near a cube."""
    bodies, shares = posteriors([DecayedEvidence(k, n) for k in range(n + 1)]), [k / n for k in range(n + 1)]
    return [
        Contender(
            n=n,
            posterior=ScoreEstimate(body.mean, body.half_width),
            as_designed=ScoreEstimate(share**3, wilson(share, n).half_width),
        )
        for body, share in zip(bodies, shares, strict=True)
    ]


def of_product() -> str:
    """Draw how often two equal agents of 30 observations are decided between, by the posterior and by a cube."""
    n, sides = 30, contenders(30)
    decides = np.array([[[verdict.resolved for verdict in auto_resolve(a, b)[1:]] for b in sides] for a in sides])
    curves: dict[str, list[tuple[float, float]]] = {"by the posterior": [], "by a product of three factors near p": []}
    for truth in np.linspace(0.5, 0.99, 50):
        chance = stats.binom.pmf(range(n + 1), n, truth)
        for place, curve in enumerate(curves.values()):
            curve.append((float(truth), float(chance @ decides[:, :, place] @ chance)))
    return drawing(curves, across=(0.5, 1, "share right of both"), up=(0, 0.4, "decided between, though equal"))


def of_threshold() -> str:
    """Draw the error of a share right of 0.8 that is trusted from 15 observations on, and of the posterior mean."""
    truth, threshold = 0.8, 15
    switched: list[tuple[float, float]] = []
    smooth: list[tuple[float, float]] = []
    for n in range(61):
        chance = stats.binom.pmf(range(n + 1), n, truth)
        means = [body.mean for body in posteriors([DecayedEvidence(k, n) for k in range(n + 1)])]
        plain = [k / n if n >= threshold else 0.5 for k in range(n + 1)]
        for curve, found in ((switched, plain), (smooth, means)):
            curve.append((float(n), float(np.sqrt(chance @ (np.array(found) - truth) ** 2))))
    curves = {"a half below 15 observations, then the share": switched, "posterior mean": smooth}
    return drawing(curves, across=(0, 60, "observations"), up=(0, 0.32, "error (root of the mean square)"))


BETTER: Final = 0.85
GAPS: Final = (0.1, 0.2, 0.3)
COUNTS: Final = (15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 180, 210, 240)
BASES: Final = ("posterior", "product")
SURE: Final = 0.8


@cache
def power(n: int, gap: float) -> dict[str, tuple[float, float]]:
    """
    Return by basis how often :data:`BETTER` wins over an agent that is worse by *gap*, and how often it loses.

    Each has *n* observations. Summed over what they may come to, not drawn; rarer than one in a million is left out.
    """
    sides = contenders(n)
    better, worse = (
        [(k, chance) for k, chance in enumerate(np.asarray(stats.binom.pmf(range(n + 1), n, truth))) if chance > 1e-6]
        for truth in (BETTER, BETTER - gap)
    )
    found = {basis: [0.0, 0.0] for basis in BASES}
    for own, chance in better:
        for other, other_chance in worse:
            for basis, verdict in zip(BASES, auto_resolve(sides[own], sides[other])[1:], strict=True):
                if verdict.winner is not None:
                    found[basis][verdict.winner == "b"] += float(chance * other_chance)
    return {basis: (right, wrong) for basis, (right, wrong) in found.items()}


def of_power() -> str:
    """Draw how often two agents whose true shares right differ are decided between, by observations of each."""
    curves = {
        f"gap of {gap:g}, {basis}": [(float(n), sum(power(n, gap)[basis])) for n in COUNTS]
        for gap in reversed(GAPS)
        for basis in BASES
    }
    return drawing(curves, across=(0, COUNTS[-1], "observations of each"), up=(0, 1, "decided between"))


def table_of_power() -> str:
    """Return the same as a table: percent decided between at some counts, from when surely, and wrongly at worst."""
    shown = (15, 30, 60, 120, 240)
    lines = [
        f"| true gap | basis | {' | '.join(f'{n}' for n in shown)} | {SURE:.0%} from | at worst for the worse |",
        "|" + "---|" * (len(shown) + 4),
    ]
    for gap in GAPS:
        for basis in BASES:
            decided = {n: sum(power(n, gap)[basis]) for n in COUNTS}
            sure = next((f"{n}" for n, share in decided.items() if share >= SURE), "never")
            wrong = max(power(n, gap)[basis][1] for n in COUNTS)
            cells = [f"{gap:g}", basis, *(f"{decided[n]:.0%}" for n in shown), sure, f"{wrong:.1%}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


PICTURES: Final = {
    "posterior.svg": of_posterior,
    "decay.svg": of_decay,
    "product.svg": of_product,
    "threshold.svg": of_threshold,
    "power.svg": of_power,
}
"""File → what makes it."""


def write() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, made in PICTURES.items():
        (FOLDER / name).write_text(made(), "utf-8")


if __name__ == "__main__":
    write()
