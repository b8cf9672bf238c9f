"""Memory use of a Valkey server, from its ``INFO memory``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

HIGH: Final = 0.80
"""Share of its limit from which an alert is raised, early enough to act."""

FULL: Final = 0.99
"""Share of its limit from which it is expected to refuse writes: an agent's memory may need 8 MiB."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """
    A server's used memory and its limit.

    Attributes:
        used_bytes: what counts against its limit.
        limit_bytes: its ``maxmemory``; 0 where it has none.
        evicts: whether it evicts keys when it is full, instead of refusing writes.
    """

    used_bytes: int
    limit_bytes: int
    evicts: bool = False

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self:
        """Parse the section ``memory`` of INFO."""
        # Buffers of replication and of the append-only file do not count against the limit.
        used = int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0))
        return cls(used, int(info.get("maxmemory", 0)), str(info.get("maxmemory_policy", "noeviction")) != "noeviction")

    @property
    def share(self) -> float:
        """Used ÷ limit; 0 where there is no limit."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0

    @property
    def high(self) -> bool:
        """Whether memory should be freed, or the limit raised."""
        return not self.evicts and self.share >= HIGH

    @property
    def full(self) -> bool:
        """Whether writes are refused, or are about to be."""
        return not self.evicts and self.share >= FULL

    def __str__(self) -> str:
        """Return it in megabytes and per cent."""
        return f"{self.used_bytes / 1e6:,.0f} of {self.limit_bytes / 1e6:,.0f} MB ({self.share:.0%})"
