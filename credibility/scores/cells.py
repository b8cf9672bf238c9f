"""
The cells of a track record: its sums by context, swept with its steps. Pure.

The rows of an observation may be of several contexts; each counts 1/rows of it. So a claim that joins an observation,
or leaves it, changes every cell in which the observation has rows. A cell that nothing changes has no step: its sums
only decay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from imem.credibility.posterior import decay, years_between
from imem.credibility.scores.context import ClaimContext, ContextCell


class CellStep(NamedTuple):
    """A cell from a moment on, decayed to it."""

    at: datetime
    cell: ContextCell


class CellShare(NamedTuple):
    """
    The part of an observation in a cell.

    Attributes:
        rows, right: its rows there, and those of them that were right.
        of: its rows in all cells.
    """

    rows: int
    right: int
    of: int


NO_CLAIMS = CellShare(0, 0, 1)


def decayed(step: CellStep, to: datetime, halflife_years: float) -> ContextCell:
    """Return the cell of *step* as of a later moment."""
    fade = decay(years_between(step.at, to), halflife_years)
    cell = step.cell
    return cell._replace(weight=cell.weight * fade, successes=cell.successes * fade, squares=cell.squares * fade * fade)


@dataclass(slots=True)
class _Cell:
    """Mutable sums of a cell; see :class:`~imem.credibility.scores.context.ContextCell`."""

    at: datetime
    weight: float = 0.0
    successes: float = 0.0
    squares: float = 0.0
    observations: float = 0.0
    right: float = 0.0
    rows: int = 0
    newest: datetime | None = None

    def age(self, to: datetime, halflife_years: float) -> None:
        fade = decay(years_between(self.at, to), halflife_years)
        self.at = to
        self.weight *= fade
        self.successes *= fade
        self.squares *= fade * fade

    def change(self, weight: float, before: CellShare, now: CellShare) -> None:
        held, holds = before.rows / before.of, now.rows / now.of
        gained = now.right / now.of - before.right / before.of
        self.weight += weight * (holds - held)
        self.successes += weight * gained
        self.squares += weight * weight * (holds * holds - held * held)
        self.observations += holds - held
        self.right += gained
        self.rows += now.rows - before.rows

    def step(self, context: ClaimContext) -> CellStep:
        if self.rows == 0:  # Exactly zero, so that rounding errors do not accumulate.
            return CellStep(self.at, ContextCell(context, 0.0, 0.0, 0.0, 0.0, 0.0, 0, None))
        sums = self.weight, self.successes, self.squares, self.observations, self.right
        return CellStep(self.at, ContextCell(context, *sums, self.rows, self.newest))


class RunningCells:
    """The cells of a sweep."""

    def __init__(self, halflife_years: float, start: Mapping[ClaimContext, CellStep]) -> None:
        """Begin with the last steps of all cells that will change; those without a step are empty."""
        self._halflife_years = halflife_years
        self._cells = {context: _Cell(step.at, *step.cell[1:]) for context, step in start.items()}
        self._changed: dict[ClaimContext, _Cell] = {}

    def resolved(self, at: datetime, context: ClaimContext, first_known_at: datetime) -> None:
        """Note the outcome of a claim that is counted from *at* on. One that is taken back later stays the newest."""
        cell = self._cells.get(context)
        if cell is None or cell.newest is None or cell.newest < first_known_at:
            self._at(at, context).newest = first_known_at

    def observe(
        self,
        at: datetime,
        weight: float,
        before: Mapping[ClaimContext, CellShare],
        now: Mapping[ClaimContext, CellShare],
    ) -> None:
        """Replace the shares of an observation, whose weight at *at* is given."""
        for context in before.keys() | now.keys():
            had, has = before.get(context, NO_CLAIMS), now.get(context, NO_CLAIMS)
            if had != has:
                self._at(at, context).change(weight, had, has)

    def steps(self) -> list[CellStep]:
        """Return the steps of the cells that changed since the last call, by context."""
        found = [cell.step(context) for context, cell in self._changed.items()]
        if len(found) > 1:
            found.sort(key=lambda step: repr(step.cell.context))
        for step in found:
            if step.cell.rows == 0:
                del self._cells[step.cell.context]
        self._changed = {}
        return found

    def _at(self, at: datetime, context: ClaimContext) -> _Cell:
        """Return a cell to change at *at*, decayed to it."""
        cell = self._changed.get(context)
        if cell is None:
            cell = self._cells.get(context)
            if cell is None:
                cell = self._cells[context] = _Cell(at)
            else:
                cell.age(at, self._halflife_years)
            self._changed[context] = cell
        return cell
