"""
How well the institution can work now, in one word. Pure.

``normal → degraded_read | degraded_write | read_only → recovering → normal``: what is away decides; when all is back,
what waits for the graph has to be applied before an answer is whole again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

BEHIND_S: Final = 5.0
"""An event that waits longer for the graph, in seconds, says that it is catching up: one write takes a tenth."""


class Mode(StrEnum):
    """What can be relied on."""

    NORMAL = "normal"
    """Everything."""
    DEGRADED_READ = "degraded_read"
    """An answer lacks something: a store did not answer in time, or the graph is away. Writes are durable."""
    DEGRADED_WRITE = "degraded_write"
    """What is written is durable and not visible for now; or agents cannot write their working memory, or its copies
    are not made."""
    READ_ONLY = "read_only"
    """Nothing can be recorded; answers come from what still answers."""
    RECOVERING = "recovering"
    """All is back; what was written meanwhile is on its way into the graph."""


@dataclass(frozen=True, slots=True)
class Health:
    """
    What answered when it was last asked.

    Attributes:
        postgres: whether there is no evidence that it is away (:mod:`imem.journal.postgres.failure_detector`).
        graph, working, durable, cache: whether that store did. The cache is missed by nobody but the clock.
        full: which of them refuse writes, because their memory is used up.
        behind_s: how long the oldest event waits for the graph, in seconds; None where nobody could say.
        applier_interval_s: how long an event may wait because the applier looks no more often, in seconds.
    """

    postgres: bool = True
    graph: bool = True
    working: bool = True
    durable: bool = True
    cache: bool = True
    full: tuple[str, ...] = ()
    behind_s: float | None = 0.0
    applier_interval_s: float = 0.0

    @property
    def mode(self) -> Mode:
        """The mode that follows; the worst where several do."""
        if not self.postgres:
            return Mode.READ_ONLY
        if not self.graph:
            return Mode.DEGRADED_READ
        if self.full or not (self.working and self.durable):
            return Mode.DEGRADED_WRITE
        if self.behind_s is not None and self.behind_s > self.applier_interval_s + BEHIND_S:
            return Mode.RECOVERING
        return Mode.NORMAL

    @property
    def away(self) -> tuple[str, ...]:
        """The stores that did not answer, by name."""
        return tuple(name for name in ("postgres", "graph", "working", "durable", "cache") if not getattr(self, name))
