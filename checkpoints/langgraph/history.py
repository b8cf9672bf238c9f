"""
History of delta channels: the nearest stored value and every write since.

A checkpoint of a delta channel holds no value: LangGraph replays its history. The default implementation fetches each
ancestor whole; this one fetches what the channels need of all ancestors at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite
from langgraph.checkpoint.serde.base import SerializerProtocol

from imem.checkpoints.langgraph.checkpoint_refs import CheckpointRef
from imem.checkpoints.langgraph.names import written
from imem.checkpoints.langgraph.operations import Operation, Rows, StatementCall, checkpoint_of, writes_of


def read(
    serde: SerializerProtocol, config: RunnableConfig, channels: Sequence[str]
) -> Operation[Mapping[str, DeltaChannelHistory]]:
    """
    Return for each channel the value of the nearest ancestor that holds one, and its writes since, oldest first.

    Writes of the checkpoint itself are left out. Those of the ancestor with the value are included: a value is what the
    channel held before the writes that were stored after its checkpoint.
    """
    if not channels:
        return {}
    place = CheckpointRef.of(config)
    rows = yield StatementCall(
        "langgraph_ancestors",
        {
            "thread_id": place.thread_id,
            "checkpoint_ns": place.checkpoint_ns,
            "checkpoint_id": place.checkpoint_id,
            "channels": [written("channel", one) for one in channels],
        },
    )
    return _histories(serde, channels, rows)


def _histories(serde: SerializerProtocol, channels: Sequence[str], rows: Rows) -> dict[str, DeltaChannelHistory]:
    found: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
    past: dict[str, list[list[PendingWrite]]] = {channel: [] for channel in channels}
    open_ = set(channels)
    for row in rows:
        values = checkpoint_of(serde, row)["channel_values"]
        writes = writes_of(serde, row)
        for channel in sorted(open_):
            past[channel].append([write for write in writes if write[1] == channel])
            if channel in values:
                found[channel]["seed"] = values[channel]
                open_.discard(channel)
        if not open_:
            break
    for channel, groups in past.items():
        found[channel]["writes"] = [write for group in reversed(groups) for write in group]
    return found
