"""How full a Valkey is, from its own ``INFO memory``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

HIGH: Final = 0.80
"""Share of its limit from which people are told, while there is still time."""

FULL: Final = 0.99
"""Share of its limit from which it has to be expected to refuse writes: a memory of an agent may need 8 MiB."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """
    What a server uses of the memory that it may use.

    Attributes:
        used_bytes: what counts against its limit.
        limit_bytes: its ``maxmemory``; 0 where it has none.
        evicts: whether it makes room by forgetting, so that being full is how it works.
    """

    used_bytes: int
    limit_bytes: int
    evicts: bool = False

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self:
        """Return it from the section ``memory`` of INFO."""
        # What it keeps to send to replicas and to its file does not count against the limit.
        used = int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0))
        return cls(used, int(info.get("maxmemory", 0)), str(info.get("maxmemory_policy", "noeviction")) != "noeviction")

    @property
    def share(self) -> float:
        """Used ÷ limit; 0 where there is no limit."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0

    @property
    def high(self) -> bool:
        """Whether people should make room, or allow more."""
        return not self.evicts and self.share >= HIGH

    @property
    def full(self) -> bool:
        """Whether writes are refused, or will be at once."""
        return not self.evicts and self.share >= FULL

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"{self.used_bytes / 1e6:,.0f} of {self.limit_bytes / 1e6:,.0f} MB ({self.share:.0%})"
