"""
Which test process runs what, and when: long files first, and a graph in two processes only.

More processes than cores run, since tests wait for servers and timers most of the time. A graph needs about 1.2 GB, so
the first two processes alone run the files that use the shared one; the others take what needs none or starts its own.
A file stays together, as its tests share what it sets up, but for tests that ``tests/data/seconds.txt`` names singly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

GRAPHS: Final = 2
"""How many processes may start a graph."""

TAKEN: Final = Path(__file__).parent / "data" / "seconds.txt"
"""Seconds that files, and tests named singly, took, if many. It is made of what a whole run has measured."""

MEASURED: Final = Path(__file__).parents[1] / "build" / "seconds.txt"
"""Where a run writes what it measured."""

LONG_S: Final = 5.0

_GRAPH: Final = "@graph"


def seconds(path: Path = TAKEN) -> dict[str, float]:
    """Return the seconds of each unit that the list names."""
    pairs = (line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines())
    return {unit: float(number) for number, unit in pairs}


@dataclass(frozen=True)
class Named:
    """What the scheduler gets of a test: its name, which says as well whether it uses the shared graph."""

    nodeid: str


@contextmanager
def marked(session: pytest.Session) -> Iterator[None]:
    """Tell the scheduler which tests use the shared graph; they run and are reported under their plain names."""
    plain = session.items
    named: list[Any] = [
        Named(item.nodeid + (_GRAPH if "stack" in getattr(item, "fixturenames", ()) else "")) for item in plain
    ]
    session.items = named
    try:
        yield
    finally:
        session.items = plain


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Gives each process the longest unit that it may run; graph processes prefer what only they may."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self.expected = seconds()
        self.measured: dict[str, float] = {}

    def _split_scope(self, nodeid: str) -> str:
        name = nodeid.removesuffix(_GRAPH)
        return next((unit for unit in (name, name.partition("[")[0]) if unit in self.expected), name.split("::")[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        unit = self._longest(node)
        if unit is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)

    def _longest(self, node: WorkerController) -> str | None:
        graph = node in self.nodes[:GRAPHS]
        candidates = [
            (graph and needs, self.expected.get(unit, 0.0), len(tests), unit)
            for unit, tests in self.workqueue.items()
            if not (needs := any(test.endswith(_GRAPH) for test in tests)) or graph
        ]
        return max(candidates)[-1] if candidates else None

    def _reschedule(self, node: WorkerController) -> None:
        # A process begins a test once it knows the next one: so much and no more is given before its time.
        if node.shutting_down or (self.workqueue and self._pending_of(self.assigned_work[node]) > 1):
            return
        super()._reschedule(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        unit = self._split_scope(self.registered_collections[node][item_index])
        self.measured[unit] = self.measured.get(unit, 0.0) + duration
        super().mark_test_complete(node, item_index, duration)

    def write(self, path: Path = MEASURED) -> None:
        """Write what was measured, for ``tests/data/seconds.txt``."""
        path.parent.mkdir(exist_ok=True)
        longest = sorted(self.measured.items(), key=lambda unit: -unit[1])
        lines = (f"{taken:.0f} {unit}\n" for unit, taken in longest if taken >= LONG_S)
        path.write_text("".join(lines), encoding="utf-8")
