"""Sums over context cells: of a domain, of a regime, of the tiers of matches, and of the posterior's scope. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from imem.credibility.posterior import DecayedEvidence
from imem.credibility.scores.context import DIMENSIONS, ClaimContext, ContextCell, matches

SCOPE_MATCHES: Final = 4
"""Least matches of six for an observation to lie inside the posterior's scope."""


@dataclass(frozen=True, slots=True)
class Share:
    """Observations and how many of them were right, undecayed."""

    observations: float
    right: float

    @property
    def accuracy(self) -> float | None:
        """The plain mean; None without observations."""
        return self.right / self.observations if self.observations > 0.0 else None


NO_SHARE: Final = Share(0.0, 0.0)


def share(cells: Sequence[ContextCell], included: Callable[[ContextCell], bool] = lambda _: True) -> Share:
    """Return the undecayed sums of the cells that are *included*."""
    chosen = [cell for cell in cells if included(cell)]
    return Share(sum(cell.observations for cell in chosen), sum(cell.right for cell in chosen))


def matching(cells: Sequence[ContextCell], context: ClaimContext, least: int) -> Share:
    """Return the undecayed sums of the cells with at least *least* matches with *context*."""
    return share(cells, lambda cell: matches(cell.context, context) >= least)


def of_regime(cells: Sequence[ContextCell], regime: str | None) -> Share:
    """Return the undecayed sums of the cells of a regime; empty for None."""
    return share(cells, lambda cell: regime is not None and cell.context.regime == regime)


def by_dimension(cells: Sequence[ContextCell]) -> dict[str, dict[str, Share]]:
    """Return the undecayed sums by dimension and value; a cell without a value in a dimension is left out there."""
    found: dict[str, dict[str, list[ContextCell]]] = {}
    for cell in cells:
        for dimension, value in zip(DIMENSIONS, cell.context, strict=True):
            if value is not None:
                found.setdefault(dimension, {}).setdefault(value, []).append(cell)
    return {name: {value: share(of) for value, of in sorted(values.items())} for name, values in sorted(found.items())}


def scope_evidence(cells: Sequence[ContextCell], context: ClaimContext | None) -> DecayedEvidence:
    """Return the evidence inside and outside the scope of *context*; None: the whole domain is inside."""

    def inside(cell: ContextCell) -> bool:
        return context is None or matches(cell.context, context) >= SCOPE_MATCHES

    sums = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for cell in cells:
        part = sums[inside(cell)]
        part[0] += cell.successes
        part[1] += cell.weight
    return DecayedEvidence(*sums[True], *sums[False])


def newest_resolved(cells: Sequence[ContextCell]) -> datetime | None:
    """Return when the newest outcome of any cell was resolved."""
    return max((cell.newest_resolved_at for cell in cells if cell.newest_resolved_at is not None), default=None)
