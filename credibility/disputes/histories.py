"""Data points with their corrections, as the journal has them: what a cell looked like at any moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

import orjson

from imem.credibility.disputes.cells import Pair, Point, pairs_of
from imem.credibility.disputes.sources import SourceOutcome
from imem.journal.postgres.connection import Row
from imem.kg.asof import END_OF_TIME
from imem.kg.kinds.data_points import CELL, DataPoint
from imem.kg.kinds.enums import OutcomeProvenance

BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)


class Cell(NamedTuple):
    """The quantity whose values the points of a cell state."""

    subject_id: str
    metric: str
    period_start: datetime | None
    period_end: datetime
    unit: str
    basis: str | None

    @property
    def text(self) -> str:
        """The metric with its period and unit."""
        begins = "" if self.period_start is None else f"{self.period_start:%Y-%m-%d} to "
        basis = "" if self.basis is None else f", {self.basis}"
        return f"{self.metric} {begins}{self.period_end:%Y-%m-%d}, {self.unit}{basis}"


@dataclass(frozen=True, slots=True)
class PointHistory:
    """
    A data point with its corrections.

    Attributes:
        versions: since when each could be known, and what it said; the first is the point as it was recorded.
        decided_by: the person who states it as an answer; None where a document states it.
    """

    versions: tuple[tuple[datetime, DataPoint], ...]
    decided_by: str | None = None

    @property
    def cell(self) -> Cell:
        """Its cell, which no correction changes."""
        point = self.versions[0][1]
        return Cell(*(getattr(point, name) for name in CELL))

    def at(self, moment: datetime) -> Point | None:
        """Return the point as of *moment*; None before it was known."""
        known = [point for since, point in self.versions if since <= moment]
        if not known:
            return None
        point, since = known[-1], self.versions[0][0]
        return Point(
            point.id, point.value, point.source, point.document, point.filed_at, since, point.unit, point.decimals,
            self.decided_by,
        )  # fmt: skip


def histories_of(rows: Iterable[Row]) -> dict[Cell, list[PointHistory]]:
    """Return the histories in rows of ``data_points`` by their cells."""
    versions: dict[str, list[tuple[datetime, DataPoint]]] = defaultdict(list)
    people: dict[str, str] = {}
    for row in rows:
        key = row["key"]
        if row["corrected"] or not versions[key]:
            point = DataPoint.model_validate(orjson.loads(row["core"]))
            versions[key].append((row["known_at"].astimezone(UTC), point))
        if row["decided_by"] is not None:
            people[key] = row["decided_by"]
    cells: dict[Cell, list[PointHistory]] = defaultdict(list)
    for key, found in versions.items():
        history = PointHistory(tuple(found), people.get(key))
        cells[history.cell].append(history)
    return dict(cells)


def points_at(histories: Iterable[PointHistory], moment: datetime) -> list[Point]:
    """Return the points of a cell as of *moment*."""
    return [point for history in histories if (point := history.at(moment)) is not None]


class Epoch(NamedTuple):
    """A time in which no point of a cell was corrected, and the pairs that the cell had at its end, by id."""

    begins: datetime
    pairs: Mapping[str, Pair]


def epochs_of(histories: Sequence[PointHistory]) -> list[Epoch]:
    """Return the epochs of a cell, the oldest first; within one, later points only add pairs at the end."""
    corrections = {since for history in histories for since, _ in history.versions[1:]}
    bounds = [BEGINNING, *sorted(corrections), END_OF_TIME]
    epochs = []
    for begins, ends in pairwise(bounds):
        until = ends if ends == END_OF_TIME else ends - timedelta(microseconds=1)
        epochs.append(Epoch(begins, {pair.id: pair for pair in pairs_of(points_at(histories, until))}))
    return epochs


def stood_since(epochs: Sequence[Epoch], key: str) -> datetime:
    """Return since when a pair of the last epoch has stood without a break."""
    since = END_OF_TIME
    for epoch in reversed(epochs):
        if key not in epoch.pairs:
            break
        since = max(epoch.begins, epoch.pairs[key].b.known_at)
    return since


def gone_since(epochs: Sequence[Epoch], key: str) -> datetime:
    """Return since when a pair that the last epoch does not have has been gone."""
    since = END_OF_TIME
    for epoch in reversed(epochs):
        if key in epoch.pairs:
            break
        since = epoch.begins
    return since


def outcomes_of(rows: Iterable[Row]) -> list[SourceOutcome]:
    """Return the outcomes in rows of ``source_outcomes``, one for each of the two sources."""
    found = []
    for row in rows:
        since, until = (None if row[name] is None else row[name].astimezone(UTC) for name in ("known_at", "until"))
        provenance = OutcomeProvenance(row["provenance"])
        found += [
            SourceOutcome(row[f"source_{side}"], row["label"] == side, provenance, since or BEGINNING, until)
            for side in "ab"
        ]
    return found
