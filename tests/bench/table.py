"""What was measured: figures, each beside its floor and its bar, as one table."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

ORDER: Final = (
    "load to visible",
    "load to visible, sustained",
    "load to durable",
    "journal alone",
    "journal alone, the same file again",
    "scoring after the load",
    "comparing after the load",
    "seeding by the offline import",
    "brief p50",
    "brief p95",
    "brief p99",
    "brief p95, growth",
    "briefs with a part missing",
    "brief from C1 p50",
    "brief from C1 p95",
    "brief from C2 p50",
    "brief from C2 p95",
    "sections of kept briefings that were loaded",
    "hits, cold",
    "hits, warmed",
    "brief, graph stopped, p50",
    "brief, graph stopped, p99.9",
    "brief, graph stopped, worst",
    "graph back until all whole",
    "statements in the graph at once, most",
    "kept reads",
    *(
        f"memory of {name}, {what}"
        for name in (
            "a reader",
            "applier",
            "celery",
            "beat",
            "agents",
            "neo4j",
            "postgres",
            "valkey-cache",
            "valkey-durable",
            "valkey-working",
        )
        for what in ("before", "growth")
    ),
    "evidence, R@10",
    "evidence, R@20",
    "memories search p50",
    "memories search p95",
    "memories, recall@10",
    "memories among many p95",
    "memories p95, growth",
    *(f"memories, {name} {what}" for name in ("remember", "search") for what in ("p50", "p95", "p95, growth")),
    "memories, consolidation of a day",
    "memories, decay of a day",
    "memories, peak memory of the upkeep",
    "signals p50",
    "signals p95",
    "receipt durable p50",
    "receipt durable p95",
    "receipt visible p50",
    "receipt visible p95",
    "push to visible p50, 50 at once",
    "push to visible p95, 50 at once",
    "push to visible p99, 50 at once",
    "push to visible p99, beside an import",
    "high to visible, worst, beside 50 critical",
    "engine overhead",
    "lateness of timeouts p50",
    "lateness of timeouts, worst",
    "rebuild",
    "rebuild, with start, compare and take-over",
    "peak memory of a rebuild",
    "peak memory of a rebuild, growth",
    "track records p50",
    "track records p95",
    "one score into a record of 10,000 p50",
    "one score into a record of 10,000 p95",
    "one outcome into the scores p50",
    "one outcome into the scores p95",
    "one outcome into the scores p50, growth",
    "publication of all scores",
    "data points through recording",
    "data points through detection",
    "disputed cells compared",
    "value as of a day p50",
    "value as of a day p95",
    "checkpoints scheduled",
    "checkpoints recorded",
    "checkpoints measured",
    *(f"lessons of a briefing, from the {store}, {what}" for store in ("graph", "journal") for what in ("p50", "p95")),
    "inbox p50",
    "inbox p95",
    "lateness of timers p50",
    "lateness of timers worst",
    "weights p50",
    "weights p95",
    "panel p50",
    "panel p95",
    "panel, difference",
    "panel, better weeks",
    "embedding",
    "comparing, sustained",
    "similar, stored p50",
    "similar, stored p95",
    "similar, by the index p50",
    "similar, by the index p95",
    "similar, recall@10",
    "similar, as of a day p95",
    "similar, from write to found p95",
    "brief p95 while the index is rebuilt",
    "brief p95 while the index is rebuilt, growth",
    "working get p50",
    "working get p95",
    "working set p50",
    "working set p95",
    "working set p99",
    "working get p95, of the floor",
    "working set p95, of the floor",
    "working snapshot p95",
    "working restore p95",
    "working snapshot + restore p95",
    "commit of a checkpoint p50",
    "commit of a checkpoint p95",
    "checkpoint with its snapshot",
    "recovery, l1_existing, p95",
    "recovery, redis_secondary, p95",
    "recovery, postgresql_checkpoint, p95",
    "LangGraph aput p50",
    "LangGraph aput p95",
    "LangGraph aput_writes p50",
    "LangGraph aput_writes p95",
    "LangGraph aget_tuple p50",
    "LangGraph aget_tuple p95",
    "LangGraph threads resumed",
    "LangGraph bytes a checkpoint",
    *(f"archive index {name}, p95" for name in ("by regime", "by industry", "by metrics", "candidates", "one entry")),
    "archives built a second",
    "retention run",
    "explain a file, p95",
    *(f"page of pruning, {kind}, p95" for kind in ("Analysis", "Finding")),
    "pause a batch, worst",
    "resume a batch, worst",
    "pause an analysis p50",
    "peak memory of imem load",
    "peak memory of imem load, growth",
    "peak memory of the stack (RSS)",
    "peak memory of the stack (PSS)",
    "start of the stack",
    "make demo, the first time",
    "make demo, the second time",
)
"""The order of the rows."""

MB: Final = 1_000_000
"""Bytes in what the table calls a MB."""

HEADINGS: Final = ("figure", "data", "measured", "floor", "of the floor", "bar", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """
    One figure.

    Attributes:
        name: what was measured.
        data: on which data.
        value: in *unit*.
        unit: of value, floor and bar.
        floor: what the bare drivers reach with the same work on the same servers; none where there is no such thing.
        bar: what is demanded; none where nothing is.
        better: which side of the bar is the good one.
        note: how it was measured, where that is not plain.
    """

    name: str
    data: str
    value: float
    unit: str
    floor: float | None = None
    bar: float | None = None
    better: Literal["less", "more"] = "less"
    note: str = ""

    @property
    def met(self) -> bool:
        """Whether the bar is met; true where there is none."""
        if self.bar is None:
            return True
        return self.value <= self.bar if self.better == "less" else self.value >= self.bar

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        share = f"{self.value / self.floor:.2f} ×" if self.floor else ""
        demand = "" if self.bar is None else f"{'≤' if self.better == 'less' else '≥'} {number(self.bar)}"
        verdict = "" if self.bar is None else "met" if self.met else "MISSED"
        floor = "" if self.floor is None else number(self.floor)
        return self.name, self.data, f"{number(self.value)} {self.unit}".strip(), floor, share, demand, verdict


def number(value: float) -> str:
    """Return *value* with three significant digits, or whole where it is large."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of *values* that at least *share* of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(len(ordered) * share * 1000) // 1000) - 1)]


@dataclass(slots=True)
class Table:
    """
    All figures of one run.

    Attributes:
        scale: ``full`` or ``tiny``; the bars hold for the full one.
        figures: in the order in which they were measured.
    """

    scale: str
    figures: list[Figure] = field(default_factory=list)

    def add(self, *figures: Figure) -> None:
        """
        Take figures in; at full scale a missed bar fails the test, when all of them are in.

        Raises:
            AssertionError: a bar is missed.
        """
        self.figures += figures
        missed = [" ".join(figure.cells()) for figure in figures if not figure.met]
        assert self.scale != "full" or not missed, missed

    def value(self, name: str, data: str) -> float | None:
        """Return a figure that was measured before, if it was."""
        return next((one.value for one in self.figures if (one.name, one.data) == (name, data)), None)

    def rows(self) -> list[tuple[str, ...]]:
        """Return headings and rows, by figure and then as measured."""
        places = {name: place for place, name in enumerate(ORDER)}
        ordered = sorted(self.figures, key=lambda one: places.get(one.name, len(places)))
        return [HEADINGS, *(figure.cells() for figure in ordered)]

    def text(self) -> str:
        """Return the table as plain text."""
        rows = self.rows()
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([lines[0], "─" * (sum(widths) + 2 * len(widths)), *lines[1:]])

    def markdown(self) -> str:
        """Return the table as Markdown, with the machine below."""
        heading, *rows = self.rows()
        lines = [heading, ("---",) * len(heading), *rows]
        notes = dict.fromkeys(f"- {one.name}: {one.note}" for one in self.figures if one.note)
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"{table}\n\n{machine()}; scale: {self.scale}.\n\n" + "\n".join(notes) + "\n"

    def write(self, folder: Path) -> None:
        """Write ``bench.json`` and ``bench.md`` into *folder*."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {"scale": self.scale, "machine": machine(), "figures": [asdict(one) for one in self.figures]}
        (folder / "bench.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (folder / "bench.md").write_text(self.markdown(), encoding="utf-8")


def machine() -> str:
    """Return what it was measured on."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
