"""A LangGraph config: its thread, its checkpoint, and the lease to fence with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS

from imem.checkpoints.langgraph.names import read, written
from imem.checkpoints.langgraph.objects import content_of, content_type
from imem.journal.errors import BadInput

EPOCH: Final = "imem_epoch"
"""Key in ``configurable``: the epoch that the caller writes under; without it, writes are not fenced."""

LEASE: Final = "imem_lease"
"""Key in ``configurable``: ``(analysis_id, agent_type)`` of the lease that gave the epoch."""

_LARGEST_EPOCH: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """
    The checkpoint that a config refers to.

    Attributes:
        thread_id, checkpoint_ns: as stored.
        checkpoint_id: as stored; None means the newest one, or, of a checkpoint being put, that it has no parent.
        epoch: to fence with, if any.
        lease: of the epoch; without one, the thread's own highest epoch counts.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None
    epoch: int | None = None
    lease: tuple[str, str] | None = None

    @classmethod
    def of(cls, config: RunnableConfig) -> CheckpointRef:
        """
        Return the reference in *config*.

        Raises:
            BadInput: it names no thread, or its epoch or lease is invalid.
            TooLarge: a name is too long.
        """
        configurable = config.get("configurable") or {}
        if not isinstance(configurable, Mapping):
            raise BadInput("configurable", f"must be a mapping, not {type(configurable).__name__}.")
        if configurable.get("thread_id") is None:
            raise BadInput("configurable.thread_id", "is missing", mend="Give each conversation or run a thread_id.")
        checkpoint_id = configurable.get("checkpoint_id")
        return cls(
            thread_id=written("thread_id", configurable["thread_id"]),
            checkpoint_ns=written("checkpoint_ns", configurable.get("checkpoint_ns") or ""),
            checkpoint_id=written("checkpoint_id", checkpoint_id) if checkpoint_id else None,
            epoch=_epoch(configurable),
            lease=_lease(configurable),
        )

    def fence(self) -> dict[str, Any]:
        """Return the parameters of a fenced statement."""
        analysis_id, agent_type = self.lease or (None, None)
        return {"epoch": self.epoch, "analysis_id": analysis_id, "agent_type": agent_type}


def config_of(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> RunnableConfig:
    """Return the config of a stored checkpoint, from names as stored."""
    return {
        "configurable": {
            "thread_id": read(thread_id),
            "checkpoint_ns": read(checkpoint_ns),
            "checkpoint_id": read(checkpoint_id),
        }
    }


def metadata_of(config: RunnableConfig, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return *metadata* with what the run's config adds, by LangGraph's rule, but with every text unchanged.

    LangGraph's function for this removes NUL, for the sake of databases that cannot hold it. A text or number of a
    class of its own is added as a plain one: it is there to be searched for.
    """
    found = dict(metadata)
    for source in (config.get("metadata"), config.get("configurable")):
        for key, value in (source or {}).items():
            if (
                key not in found
                and key not in EXCLUDED_METADATA_KEYS
                and key not in {EPOCH, LEASE}
                and not key.startswith("__")
                and isinstance(value, str | int | bool | float)
            ):
                found[key] = _plain(value)
    return found


def _plain(value: str | float) -> str | float:
    """Return a text or number of a class of its own, such as an enumeration's, as the text or number that it is."""
    kind = content_type(type(value))
    return value if type(value) is bool or kind is None else content_of(value, kind)


def _epoch(configurable: Mapping[str, Any]) -> int | None:
    epoch = configurable.get(EPOCH)
    if epoch is None:
        if configurable.get(LEASE) is not None:
            raise BadInput(f"configurable.{EPOCH}", f"is missing beside {LEASE}", mend="Give the lease's epoch.")
        return None
    if type(epoch) is not int or not 0 <= epoch <= _LARGEST_EPOCH:
        raise BadInput(f"configurable.{EPOCH}", "must be a whole number, not below 0")
    return epoch


def _lease(configurable: Mapping[str, Any]) -> tuple[str, str] | None:
    match configurable.get(LEASE):
        case None:
            return None
        case str() | bytes():
            pass
        case Sequence() as found if len(found) == 2 and all(
            isinstance(one, str) and "\x00" not in one for one in found
        ):
            return found[0], found[1]
        case _:
            pass
    raise BadInput(f"configurable.{LEASE}", "must be the pair (analysis_id, agent_type)")
