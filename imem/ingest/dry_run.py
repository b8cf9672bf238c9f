"""
Checks across lines for ``imem load --dry-run``, without a server.

It finds two lines with different cores for one key, and dates in the future. Errors that need the journal (another
core recorded before, a correction of a missing record) is found by a load with ``--strict``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from imem.ingest.line_reader import Batch, RefusedLine
from imem.ingest.recorder import PreparedLine
from imem.journal.clock import Clock, SystemClock
from imem.journal.errors import BadInput, CoreConflict
from imem.journal.events.canonical import content_hash
from imem.journal.events.entry import AppendStatus
from imem.kg.kinds.fields import shown
from imem.kg.load_format.entries import latest_date_of
from imem.kg.load_format.lines import RecordLine
from imem.kg.load_format.verdicts import CLOCK_TOLERANCE, refusal_by

CORES: Final = 200_000
"""Most records whose cores are remembered, about 300 bytes each: 60 MB. Cores of further records are not compared."""


class DryCheck:
    """
    Judges the lines of a load, batch by batch.

    Args:
        clock: gives the present.
        cores: most records whose cores are remembered.

    Attributes:
        is_whole: whether every core was compared; False if there were more records than *cores*.
    """

    def __init__(self, clock: Clock | None = None, *, cores: int = CORES) -> None:
        self.is_whole = True
        self._clock = clock or SystemClock()
        self._most = cores
        self._cores: dict[bytes, tuple[bytes, str, int]] = {}

    def judge(self, file: str, batch: Batch) -> tuple[list[PreparedLine], list[RefusedLine]]:
        """Return the lines of *batch* that would be stored, and every refusal in the order of *file*."""
        now = self._clock.now()
        good: list[PreparedLine] = []
        refused = list(batch.refused)
        for prepared, number in zip(batch.lines, batch.numbers, strict=True):
            error = next(self._refusals(prepared, file, number, now), None)
            if error is None:
                good.append(prepared)
            else:
                refused.append(RefusedLine.by(error, file, number))
        return good, sorted(refused, key=lambda one: one.line)

    def _refusals(self, prepared: PreparedLine, file: str, number: int, now: datetime) -> Iterator[BadInput]:
        line = prepared.line
        if line.known_at is not None and line.known_at > now:
            yield refusal_by(AppendStatus.FUTURE)
            return
        dated = latest_date_of(line)
        if dated is not None and dated[0] > now + CLOCK_TOLERANCE:
            yield refusal_by(AppendStatus.NOT_BEGUN, dated=dated[1])
            return
        if not isinstance(line, RecordLine) or line.core is None:
            return
        ref, core = content_hash([line.kind, line.key])[:16], content_hash(line.core)[:16]
        first = self._cores.get(ref)
        if first is not None and first[0] != core:
            where = f"line {first[2]:,}" if first[1] == file else f"{first[1]}, line {first[2]:,},"
            yield CoreConflict(
                "core",
                f"is not the one that {where} states for {line.kind} {shown(line.key)}; the first counts.",
                mend="Fields that differ from row to row belong into the key, or into a group where the kind has one.",
            )
        elif first is None and len(self._cores) < self._most:
            self._cores[ref] = (core, file, number)
        elif first is None:
            self.is_whole = False
