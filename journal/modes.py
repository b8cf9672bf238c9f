"""
The operating mode, derived from which stores answer. Pure.

``normal → degraded_read | degraded_write | read_only → recovering → normal``. Once all stores are back, the mode is
``recovering`` until the applier has caught up.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

BEHIND_S: Final = 5.0
"""Age of the oldest event that waits for the graph from which the mode is ``recovering``, in seconds."""


class Mode(StrEnum):
    """The stores that can be relied on."""

    NORMAL = "normal"
    """Everything."""
    DEGRADED_READ = "degraded_read"
    """Results may be incomplete: a store did not answer in time, or the graph is away. Writes are durable."""
    DEGRADED_WRITE = "degraded_write"
    """Writes are durable and not visible for now; or working memory cannot be written, or is not replicated."""
    READ_ONLY = "read_only"
    """Nothing can be recorded; results come from the stores that still answer."""
    RECOVERING = "recovering"
    """All stores are back; the applier catches up."""


@dataclass(frozen=True, slots=True)
class Health:
    """
    The stores that answered the last check.

    Attributes:
        postgres: whether there is no evidence that it is away (:mod:`imem.journal.postgres.failure_detector`).
        graph, working, durable, cache: whether that store answered. Without the cache results are only slower.
        full: stores that refuse writes, because their memory is used up.
        behind_s: how long the oldest event has waited for the graph, in seconds; None if unknown.
        applier_interval_s: the applier's polling interval in seconds, 0 where it is woken.
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
        """The mode that follows; the most severe that applies."""
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
