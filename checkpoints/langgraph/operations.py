"""
LangGraph's operations as statements and the meaning of their rows; without I/O.

Each operation is a generator: it yields statements, is sent their rows, and returns its result. The sync and async
halves of the saver differ only in who runs the statements. Every writing statement is one call of one function and
commits itself, so that a crash leaves the whole of it or nothing, and repeats are safe.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR
from langgraph.types import Interrupt

from imem.checkpoints.langgraph.checkpoint_refs import LEASE, CheckpointRef, config_of, metadata_of
from imem.checkpoints.langgraph.names import packed, read, searchable, version, written
from imem.checkpoints.langgraph.serializer import Serializer
from imem.journal.errors import BadInput, ConsistencyError, StaleEpoch, UnsupportedType, shown
from imem.journal.postgres.connection import Row

T = TypeVar("T")

INLINE_MOST: Final = 128
"""
Longest text or bytes stored in the checkpoint itself, in characters or bytes.

About what the row of a blob costs beside its content. Every checkpoint repeats inline values.
"""

PAGE: Final = 50
"""Checkpoints that a listing fetches, and holds in memory, at once."""

THREADS: Final = 100
"""Threads pruned in one transaction."""


@dataclass(frozen=True, slots=True)
class StatementCall:
    """
    One statement to run.

    Attributes:
        statement: its name in ``sql/queries``.
        parameters: its values.
        writes: whether it writes: then a missing answer leaves its outcome unknown.
    """

    statement: str
    parameters: Mapping[str, Any] = field(repr=False)
    writes: bool = False


Rows: TypeAlias = list[Row]

Operation: TypeAlias = Generator[StatementCall, Rows, T]


# Putting


def put(
    serde: SerializerProtocol,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: Mapping[str, Any],
) -> Operation[RunnableConfig]:
    """
    Store *checkpoint*; its parent is the one in *config*.

    A checkpoint is never stored without its values: where a blob of an earlier put is missing (threads may come from
    elsewhere), it is put with the others.
    """
    place = CheckpointRef.of(config)
    parameters = {
        **_checkpoint_parameters(serde, place, checkpoint, metadata_of(config, metadata)),
        **place.fence(),
    }
    [row] = yield StatementCall(
        "langgraph_put", {**parameters, **_values(serde, checkpoint, new_versions)}, writes=True
    )
    if row["outcome"] == "missing":
        everything = {**new_versions, **dict.fromkeys(map(read, row["missing"]), 0)}
        [row] = yield StatementCall(
            "langgraph_put", {**parameters, **_values(serde, checkpoint, everything)}, writes=True
        )
    _refuse_unless_stored(row["outcome"], place)
    configurable = config["configurable"]
    return {
        "configurable": {
            "thread_id": configurable["thread_id"],
            "checkpoint_ns": configurable.get("checkpoint_ns") or "",
            "checkpoint_id": checkpoint["id"],
        }
    }


def _checkpoint_parameters(
    serde: SerializerProtocol, place: CheckpointRef, checkpoint: Checkpoint, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    versions = checkpoint["channel_versions"]
    small = {name: value for name, value in checkpoint["channel_values"].items() if _inline(name, value, versions)}
    kind, body = packed(serde, "checkpoint", {**checkpoint, "channel_values": small})
    metadata_kind, exactly = packed(serde, "metadata", metadata)
    run_id = metadata.get("run_id")
    return {
        "thread_id": place.thread_id,
        "checkpoint_ns": place.checkpoint_ns,
        "checkpoint_id": written("checkpoint_id", checkpoint["id"]),
        "parent_id": place.checkpoint_id,
        "kind": kind,
        "body": body,
        "metadata_kind": metadata_kind,
        "metadata": exactly,
        "filter": searchable({key: value for key, value in metadata.items() if key != "writes"}, serde),
        "run_id": written("run_id", run_id) if run_id is not None else None,
        "ancestors": ancestors_of(metadata),
    }


def _inline(channel: str, value: object, versions: Mapping[str, Any]) -> bool:
    """Whether a value is stored in the checkpoint itself: it is small, or has no version for a blob's key."""
    kind = type(value)
    return (
        value is None
        or kind is bool
        or kind is float
        or (kind is int and value.bit_length() <= 64)  # type: ignore[attr-defined] # mypy does not narrow by kind
        or (kind in {str, bytes} and len(value) <= INLINE_MOST)  # type: ignore[arg-type] # as above
        or channel not in versions
    )


def _values(serde: SerializerProtocol, checkpoint: Checkpoint, new: Iterable[str]) -> dict[str, Any]:
    """Return the parameters of blobs: those of *new* channels with their content."""
    versions = checkpoint["channel_versions"]
    fresh = set(new)
    held: list[tuple[str, str]] = []
    blobs: list[tuple[str, str, str, bytes]] = []
    for channel, value in checkpoint["channel_values"].items():
        if _inline(channel, value, versions):
            continue
        name = written("channel", channel), version(versions[channel])
        if channel in fresh:
            blobs.append((*name, *packed(serde, f"channel_values.{shown(channel)}", value)))
        else:
            held.append(name)
    return {
        "held": [one[0] for one in held],
        "held_versions": [one[1] for one in held],
        "channels": [one[0] for one in blobs],
        "versions": [one[1] for one in blobs],
        "kinds": [one[2] for one in blobs],
        "blobs": [one[3] for one in blobs],
    }


def put_writes(
    serde: SerializerProtocol,
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> Operation[None]:
    """Store the writes of a task after the checkpoint in *config*; see ``langgraph.put_writes_v1``."""
    place = CheckpointRef.of(config)
    if place.checkpoint_id is None:
        raise BadInput("configurable.checkpoint_id", "is missing: writes belong to a checkpoint")
    # Two errors of one task have one index, and the last wins; a statement cannot change one row twice.
    rows = {
        WRITES_IDX_MAP.get(channel, n): (
            written("channel", channel),
            *packed(serde, f"writes.{shown(channel)}", _stored(serde, channel, value)),
        )
        for n, (channel, value) in enumerate(map(_pair, writes))
    }
    if not rows:
        return
    [row] = yield StatementCall(
        "langgraph_put_writes",
        {
            "thread_id": place.thread_id,
            "checkpoint_ns": place.checkpoint_ns,
            "checkpoint_id": place.checkpoint_id,
            "task_id": written("task_id", task_id),
            "task_path": written("task_path", task_path),
            "idxs": list(rows),
            "channels": [one[0] for one in rows.values()],
            "kinds": [one[1] for one in rows.values()],
            "blobs": [one[2] for one in rows.values()],
            **place.fence(),
        },
        writes=True,
    )
    _refuse_unless_stored(row["outcome"], place)


def _stored(serde: SerializerProtocol, channel: str, value: object) -> object:
    """Return what is stored of a write: of the error of a task its text, as LangGraph's own serializer does."""
    return (
        repr(value)
        if channel == ERROR and isinstance(value, BaseException) and isinstance(serde, Serializer)
        else value
    )


def _pair(write: object) -> tuple[str, Any]:
    match write:
        case (str() as channel, value):
            return channel, value
        case _:
            raise BadInput("writes", f"must be pairs of a channel and a value, not {type(write).__name__}.")


def _refuse_unless_stored(outcome: str, place: CheckpointRef) -> None:
    if outcome == "stale":
        raise StaleEpoch(
            f"Somebody has taken over this thread since epoch {place.epoch}; nothing was written.",
            mend="Stop this run: whoever holds the lease goes on from the last checkpoint.",
        )
    if outcome == "deleted":
        raise BadInput(
            "configurable.checkpoint_id",
            "is of a state that was deleted with its thread, or follows from one; nothing was written.",
            mend="Stop this run; one that begins anew under the same thread_id names no checkpoint.",
        )
    if outcome == "unknown":
        raise BadInput(f"configurable.{LEASE}", f"no lease of that name has had the epoch {place.epoch}")


# Getting


def get_tuple(serde: SerializerProtocol, config: RunnableConfig) -> Operation[CheckpointTuple | None]:
    """Return the checkpoint in *config*, or its namespace's newest, or None."""
    place = CheckpointRef.of(config)
    key = {"thread_id": place.thread_id, "checkpoint_ns": place.checkpoint_ns}
    if place.checkpoint_id is None:
        rows = yield StatementCall("langgraph_newest", key)
    else:
        rows = yield StatementCall("langgraph_get", {**key, "checkpoint_id": place.checkpoint_id})
    return decoded(serde, rows[0]) if rows else None


def decoded(serde: SerializerProtocol, row: Row) -> CheckpointTuple:
    """
    Return the checkpoint of a row of ``langgraph.whole``.

    Raises:
        ConsistencyError: a value is missing; the rest must not look complete.
    """
    missing = row["held"] - len(row["blob_channels"] or [])
    if missing:
        raise ConsistencyError(
            f"The checkpoint {row['checkpoint_id']} of the thread {row['thread_id']} lacks {missing} of its values.",
            mend="Something else than the saver removed rows of langgraph.blob: restore them from a backup.",
        )
    return CheckpointTuple(
        config=config_of(row["thread_id"], row["checkpoint_ns"], row["checkpoint_id"]),
        checkpoint=checkpoint_of(serde, row),
        metadata=serde.loads_typed((row["metadata_kind"], row["metadata"])),
        parent_config=config_of(row["thread_id"], row["checkpoint_ns"], row["parent_id"]) if row["parent_id"] else None,
        pending_writes=writes_of(serde, row),
    )


def checkpoint_of(serde: SerializerProtocol, row: Row) -> Checkpoint:
    """Return the checkpoint of a row, with the values of its blobs."""
    checkpoint: Checkpoint = serde.loads_typed((row["kind"], row["body"]))
    blobs = zip(row["blob_channels"] or [], row["blob_kinds"] or [], row["blobs"] or [], strict=True)
    for channel, kind, blob in blobs:
        checkpoint["channel_values"][read(channel)] = serde.loads_typed((kind, blob))
    return checkpoint


def writes_of(serde: SerializerProtocol, row: Row) -> list[PendingWrite]:
    """Return the writes of a row: task, channel and value."""
    names = ("write_tasks", "write_channels", "write_kinds", "write_blobs")
    return [
        (read(task), read(channel), serde.loads_typed((kind, blob)))
        for task, channel, kind, blob in zip(*(row[name] or [] for name in names), strict=True)
    ]


Keys: TypeAlias = list[tuple[str, str, str]]


class Listing:
    """
    The checkpoints of a listing, newest first, a page at a time.

    Args:
        config: the thread; None for all.
        wanted: metadata that they must have.
        before: only checkpoints older than this one.
        limit: most checkpoints.
    """

    def __init__(
        self,
        serde: SerializerProtocol,
        config: RunnableConfig | None,
        *,
        wanted: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        self._left = float("inf") if limit is None else limit
        self._statement = "langgraph_keys"
        self._asked: dict[str, Any] = {
            "filter": searchable(wanted, serde) if wanted else None,
            "before": _id_of(before),
        }
        if config is not None:
            self._statement = "langgraph_keys_of_thread"
            place = CheckpointRef.of(config)
            # Without a namespace, a listing has all namespaces.
            named = config["configurable"].get("checkpoint_ns") is not None
            self._asked |= {
                "thread_id": place.thread_id,
                "checkpoint_ns": place.checkpoint_ns if named else None,
                "checkpoint_id": place.checkpoint_id,
            }
        self._after: Row = {}

    def keys(self) -> Operation[Keys]:
        """Return the keys of the next page: thread, namespace and id as stored; empty at the end."""
        if self._left <= 0:
            return []
        limit = int(min(PAGE, self._left))
        after = {
            "after_stamp": self._after.get("stamp"),
            "after_nth": self._after.get("nth"),
            "after_id": self._after.get("checkpoint_id"),
            "after_thread": self._after.get("thread_id"),
            "after_ns": self._after.get("checkpoint_ns"),
        }
        rows = yield StatementCall(self._statement, {**self._asked, **after, "limit": limit})
        self._left = self._left - limit if len(rows) == limit else 0
        if rows:
            self._after = rows[-1]
        return [(row["thread_id"], row["checkpoint_ns"], row["checkpoint_id"]) for row in rows]


def _id_of(config: RunnableConfig | None) -> str | None:
    checkpoint_id = (config.get("configurable") or {}).get("checkpoint_id") if config else None
    return written("checkpoint_id", checkpoint_id) if checkpoint_id else None


def page(serde: SerializerProtocol, found: Keys) -> Operation[list[CheckpointTuple]]:
    """Return the checkpoints of one page, without those that were removed meanwhile."""
    rows = yield StatementCall(
        "langgraph_page",
        {
            "thread_ids": [one[0] for one in found],
            "namespaces": [one[1] for one in found],
            "ids": [one[2] for one in found],
        },
    )
    return [decoded(serde, row) for row in rows]


# Interrupts


@dataclass(frozen=True, slots=True)
class PendingInterrupt:
    """
    An interrupt that a thread waits in.

    Attributes:
        thread_id: of the thread.
        interrupt_id: by which ``Command(resume={interrupt_id: …})`` answers it.
        value: what the node gave to ``interrupt``.
    """

    thread_id: str
    interrupt_id: str
    value: Any


class InterruptListing:
    """
    The interrupts that threads wait in, by thread, a page at a time; :attr:`more` says whether another follows.

    Those with values of types that the serializer does not build are left out.
    """

    def __init__(self, serde: SerializerProtocol) -> None:
        self.more = True
        self._serde = serde
        self._after: Row = {}

    def page(self) -> Operation[list[PendingInterrupt]]:
        """Return the next page."""
        after = {
            "after_thread": self._after.get("thread_id"),
            "after_id": self._after.get("checkpoint_id"),
            "after_task": self._after.get("task_id"),
        }
        rows = yield StatementCall("langgraph_interrupts", {**after, "limit": PAGE})
        self.more = len(rows) == PAGE
        if rows:
            self._after = rows[-1]
        return [one for row in rows for one in self._interrupts(row)]

    def _interrupts(self, row: Row) -> Iterator[PendingInterrupt]:
        with suppress(UnsupportedType):  # Another graph's, whose saver has types of its own.
            found = self._serde.loads_typed((row["kind"], row["blob"]))
            # A caller that uses the saver without a graph may have written another value.
            for one in found if isinstance(found, list | tuple) else ():
                if isinstance(one, Interrupt):
                    yield PendingInterrupt(read(row["thread_id"]), one.id, one.value)


# Removing and copying


def delete_thread(thread_id: str) -> Operation[None]:
    """Remove everything stored of a thread; a write or put that comes too late is refused for 30 days."""
    threads = [written("thread_id", thread_id)]
    yield StatementCall("langgraph_delete_threads", {"thread_ids": threads, "before": None}, writes=True)


def prune(thread_ids: Sequence[str], strategy: str) -> Operation[None]:
    """
    Remove checkpoints of threads: all but each namespace's newest (``keep_latest``), or all (``delete``).

    Raises:
        BadInput: there is no such strategy.
    """
    statements = {"keep_latest": "langgraph_prune", "delete": "langgraph_delete_threads"}
    if strategy not in statements:
        raise BadInput("strategy", f"{strategy!r} is none of {', '.join(statements)}")
    threads = [written("thread_id", one) for one in thread_ids]
    for at in range(0, len(threads), THREADS):
        yield StatementCall(
            statements[strategy], {"thread_ids": threads[at : at + THREADS], "before": None}, writes=True
        )


def prune_older(age: timedelta, *, keep_latest: bool) -> Operation[int]:
    """
    Remove checkpoints that were put longer than *age* ago, of any thread, a page of threads at a time; return how many.

    A crash leaves some threads pruned; run it again.

    Args:
        keep_latest: keep each namespace's newest checkpoint, however old. Otherwise whole threads are removed, those
            without a put since.
    """
    if age < timedelta(0):
        raise BadInput("age", "must not be negative")
    [row] = yield StatementCall("langgraph_cut_off", {"age_s": age.total_seconds()})
    before, removed = row["before"], 0
    after: str | None = None
    statement = "langgraph_prune" if keep_latest else "langgraph_delete_threads"
    while True:
        rows = yield StatementCall("langgraph_old_threads", {"after": after, "before": before, "limit": THREADS})
        if not rows:
            return removed
        threads = [row["thread_id"] for row in rows]
        [row] = yield StatementCall(statement, {"thread_ids": threads, "before": before}, writes=True)
        after = threads[-1]
        removed += int(row["removed"])


def delete_for_runs(run_ids: Sequence[str]) -> Operation[None]:
    """
    Remove the checkpoints of runs.

    Raises:
        BadInput: later checkpoints need them for delta channels; nothing was removed.
    """
    if not run_ids:
        return
    [row] = yield StatementCall(
        "langgraph_delete_runs", {"run_ids": [written("run_id", one) for one in run_ids]}, writes=True
    )
    if row["torn"]:
        raise BadInput(
            "run_ids",
            f"later checkpoints of the thread {read(row['torn'][0])!r} are made of what these runs wrote; "
            "nothing was removed.",
            mend="Delete the later runs as well, or the whole thread.",
        )


def copy_thread(source: str, target: str) -> Operation[None]:
    """
    Copy a thread into another; rows that the target has already stay, so that repeats are safe.

    Raises:
        BadInput: both are the same thread.
    """
    names = written("thread_id", source), written("thread_id", target)
    if names[0] == names[1]:
        raise BadInput("target_thread_id", "is the source's own")
    yield StatementCall("langgraph_copy_thread", {"source": names[0], "target": names[1]}, writes=True)


# Delta channels


def ancestors_of(metadata: Mapping[str, Any]) -> int:
    """Return how many ancestors the delta channels of a checkpoint need, by LangGraph's counters."""
    counters = metadata.get("counters_since_delta_snapshot")
    if not isinstance(counters, Mapping):
        return 0
    counts = [pair[1] for pair in counters.values() if isinstance(pair, Sequence) and len(pair) > 1]
    most = max((count for count in counts if isinstance(count, int)), default=0)
    # One more than LangGraph counts: too many cost a row, too few a channel.
    return most + 1 if most else 0


def delta_history(
    serde: SerializerProtocol, config: RunnableConfig, channels: Sequence[str]
) -> Operation[Mapping[str, DeltaChannelHistory]]:
    """
    Return for each channel the value of the nearest ancestor that holds one, and its writes since, oldest first.

    A checkpoint of a delta channel holds no value: LangGraph replays its history. Its own implementation fetches each
    ancestor whole; this one fetches what the channels need of all ancestors at once.

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
