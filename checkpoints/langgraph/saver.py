"""LangGraph's checkpointer: sync and async methods over :mod:`imem.checkpoints.langgraph.operations`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from imem.checkpoints.langgraph import operations
from imem.checkpoints.langgraph.executors import TaskExecutor, ThreadExecutor
from imem.checkpoints.langgraph.names import Name
from imem.checkpoints.langgraph.operations import (
    InterruptListing,
    Operation,
    PendingInterrupt,
    Rows,
    StatementCall,
)
from imem.checkpoints.langgraph.serializer import Serializer
from imem.checkpoints.langgraph.value_types import Allow, types_of
from imem.journal.arguments import CHECKED_INSIDE, checks_arguments
from imem.journal.errors import BadInput

T = TypeVar("T")

Write = Annotated[tuple[str, Any], CHECKED_INSIDE]
"""A channel and a value written to it."""


@checks_arguments
class Saver(BaseCheckpointSaver[str]):
    """
    A checkpointer whose threads survive crashes of any process; a write is committed when its call returns.

    Any number of threads and tasks may call it at once. The methods without ``a`` are for threads, the others for tasks
    of the event loop of its connections; called from another loop, or without a loop's connections, they run in a
    thread.

    A put and a task's writes are stored whole or not at all, and repeats are safe. A write is refused, with
    :class:`~imem.journal.errors.StaleEpoch`, only where the config has an epoch (``imem_epoch``, and ``imem_lease`` to
    name its lease) and a later one exists, also of a thread that was deleted since; or, with BadInput, where its
    checkpoint was deleted with the thread in the last 30 days. A run that begins anew is not refused.

    Raises of every method: :class:`~imem.journal.errors.PostgresUnavailable` (nothing was written),
    :class:`~imem.journal.errors.OutcomeUnknown` (repeat the call), :class:`~imem.journal.errors.BadInput`.

    Args:
        pool: connections of threads, or of one loop; opened and closed by the caller.
        async_pool: connections of one loop, beside those of threads.
        serde: encodes values; by default LangGraph's serializer, restricted to a list of types.
        allow: further types of values, in addition to :data:`~.serializer.ALLOWED`: another type is refused when it is
            stored, and is never built from a row.
    """

    def __init__(
        self,
        pool: ConnectionPool[Any] | AsyncConnectionPool[Any] | ThreadExecutor,
        async_pool: AsyncConnectionPool[Any] | TaskExecutor | None = None,
        *,
        serde: SerializerProtocol | None = None,
        allow: Allow = (),
    ) -> None:
        allowed = types_of(allow)
        if serde is not None and not isinstance(serde, SerializerProtocol):
            raise BadInput("serde", f"must have dumps_typed and loads_typed, which {type(serde).__name__} lacks.")
        if serde is not None and allowed:
            raise BadInput("allow", "is for the saver's own serializer; one of your own knows what it builds.")
        super().__init__(serde=Serializer(allowed) if serde is None else serde)
        self._threads: ThreadExecutor | None = None
        match pool:
            case ThreadExecutor():
                self._threads = pool
            case ConnectionPool():
                self._threads = ThreadExecutor(pool)
            case AsyncConnectionPool() if async_pool is None:
                async_pool = pool
            case AsyncConnectionPool():
                raise BadInput("pool", "must be a ConnectionPool where there is an async_pool as well.")
            case _:
                raise BadInput("pool", f"must be a ConnectionPool or an AsyncConnectionPool, not {_kind_of(pool)}.")
        match async_pool:
            case AsyncConnectionPool():
                self._tasks: TaskExecutor | None = TaskExecutor(async_pool)
            case TaskExecutor() | None:
                self._tasks = async_pool
            case _:
                raise BadInput("async_pool", f"must be an AsyncConnectionPool, not {_kind_of(async_pool)}.")

    # Executors

    def _run(self, call: StatementCall) -> Rows:
        if self._threads is None:
            raise BadInput(
                "pool",
                "is one of an event loop, which threads cannot use",
                mend="Give the saver a ConnectionPool too, or use the methods of tasks (ainvoke, aget_tuple).",
            )
        return self._threads.run(call)

    async def _arun(self, call: StatementCall) -> Rows:
        if self._tasks is not None and self._tasks.here:
            return await self._tasks.run(call)
        return await asyncio.to_thread(self._run, call)

    def _do(self, todo: Operation[T]) -> T:
        try:
            call = next(todo)
            while True:
                call = todo.send(self._run(call))
        except StopIteration as done:
            result: T = done.value
            return result

    async def _ado(self, todo: Operation[T]) -> T:
        try:
            call = next(todo)
            while True:
                call = todo.send(await self._arun(call))
        except StopIteration as done:
            result: T = done.value
            return result

    # For threads

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint in *config*, or the newest of its thread and namespace, or None."""
        return self._do(operations.get_tuple(self.serde, config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: Mapping[Name, Any] | None = None,  # noqa: A002 - the name is LangGraph's
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """
        Yield checkpoints, newest first, fetched page by page.

        Args:
            config: the thread; its namespace and checkpoint too where given. None: every thread.
            filter: metadata that they must have; a mapping or list has to contain it.
            before: only checkpoints older than this one.
            limit: most checkpoints.
        """
        listing = operations.Listing(self.serde, config, wanted=filter, before=before, limit=limit)
        while found := self._do(listing.keys()):
            yield from self._do(operations.page(self.serde, found))

    def interrupts(self) -> Iterator[PendingInterrupt]:
        """Yield the interrupts that threads wait in, by thread, fetched page by page."""
        listing = InterruptListing(self.serde)
        while listing.more:
            yield from self._do(listing.page())

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[Name, Any],
    ) -> RunnableConfig:
        """Store a checkpoint whose parent is in *config*; return the config of the new one."""
        return self._do(operations.put(self.serde, config, checkpoint, metadata, new_versions))

    def put_writes(self, config: RunnableConfig, writes: Sequence[Write], task_id: Name, task_path: Name = "") -> None:
        """
        Store the writes of a task after the checkpoint in *config*.

        A repeat keeps the first value; of errors, interrupts and the like the last wins.
        """
        self._do(operations.put_writes(self.serde, config, writes, task_id, task_path))

    def delete_thread(self, thread_id: Name) -> None:
        """Remove everything stored of a thread; a run that still goes on is refused, see :class:`Saver`."""
        self._do(operations.delete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[Name]) -> None:
        """Remove the checkpoints of these runs; BadInput where later checkpoints need them for delta channels."""
        self._do(operations.delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: Name) -> None:
        """Copy a thread; rows that the target has already stay."""
        self._do(operations.copy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[Name], *, strategy: str = "keep_latest") -> None:
        """
        Remove checkpoints of these threads, with their writes and values that no other checkpoint holds.

        Args:
            strategy: ``keep_latest`` keeps the newest of each namespace (and what its delta channels need), ``delete``
                nothing.
        """
        self._do(operations.prune(thread_ids, strategy))

    def prune_older(self, age: timedelta, *, keep_latest: bool = True) -> int:
        """
        Remove checkpoints that were put longer than *age* ago, of every thread; return how many.

        Args:
            keep_latest: keep the newest checkpoint of each namespace, however old. Otherwise threads without a put
                since are removed whole, and others are unchanged.
        """
        return self._do(operations.prune_older(age, keep_latest=keep_latest))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[Name]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the history of a checkpoint's delta channels, in two statements however long it is."""
        return self._do(operations.delta_history(self.serde, config, channels))

    # For tasks

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint; see :meth:`get_tuple`."""
        return await self._ado(operations.get_tuple(self.serde, config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: Mapping[Name, Any] | None = None,  # noqa: A002 - the name is LangGraph's
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints; see :meth:`list`."""
        listing = operations.Listing(self.serde, config, wanted=filter, before=before, limit=limit)
        while found := await self._ado(listing.keys()):
            for one in await self._ado(operations.page(self.serde, found)):
                yield one

    async def ainterrupts(self) -> AsyncIterator[PendingInterrupt]:
        """Yield the interrupts; see :meth:`interrupts`."""
        listing = InterruptListing(self.serde)
        while listing.more:
            for one in await self._ado(listing.page()):
                yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[Name, Any],
    ) -> RunnableConfig:
        """Store a checkpoint; see :meth:`put`."""
        return await self._ado(operations.put(self.serde, config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[Write], task_id: Name, task_path: Name = ""
    ) -> None:
        """Store the writes of a task; see :meth:`put_writes`."""
        await self._ado(operations.put_writes(self.serde, config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: Name) -> None:
        """Remove everything stored of a thread; a run that still goes on is refused, see :class:`Saver`."""
        await self._ado(operations.delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[Name]) -> None:
        """Remove the checkpoints of these runs; see :meth:`delete_for_runs`."""
        await self._ado(operations.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: Name) -> None:
        """Copy a thread; see :meth:`copy_thread`."""
        await self._ado(operations.copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[Name], *, strategy: str = "keep_latest") -> None:
        """Remove checkpoints of these threads; see :meth:`prune`."""
        await self._ado(operations.prune(thread_ids, strategy))

    async def aprune_older(self, age: timedelta, *, keep_latest: bool = True) -> int:
        """Remove what was put longer than *age* ago; see :meth:`prune_older`."""
        return await self._ado(operations.prune_older(age, keep_latest=keep_latest))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[Name]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the history; see :meth:`get_delta_channel_history`."""
        return await self._ado(operations.delta_history(self.serde, config, channels))

    # For both

    def get_next_version(self, current: Any, channel: Any) -> str:  # noqa: ARG002 - LangGraph's signature
        """
        Return a version that sorts after *current*.

        A number and a random suffix: two branches of one thread must not get equal versions, since blobs are keyed by
        version.
        """
        number = int(str(current).partition(".")[0]) if current is not None else 0
        return f"{number + 1:010}.{secrets.token_hex(6)}"


def _kind_of(value: object) -> str:
    return "None" if value is None else type(value).__name__
