"""Institutional memory for teams of analysis agents."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imem.journal.telemetry.correlation import correlated
    from imem.memory import Memory

__all__ = ["Memory", "correlated"]


def __getattr__(name: str) -> Any:
    """Import the memory when it is asked for: a command such as ``imem --version`` shall not wait for the drivers."""
    if name == "Memory":
        from imem.memory import Memory  # noqa: PLC0415 - see above

        return Memory
    if name == "correlated":
        from imem.journal.telemetry.correlation import correlated  # noqa: PLC0415 - see above

        return correlated
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
