"""One event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

T = TypeVar("T")
S = TypeVar("S")


class CoroutineRunner(Protocol):
    """Who runs coroutines for threads that have no loop."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run *coroutine* in the loop and return its result, or raise its error here."""


class Portal:
    """
    Runs coroutines in one loop thread and waits for their results; any number of threads may call at once.

    Used as a context manager; leaving it ends the loop and the thread.
    """

    def __init__(self) -> None:
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._main, name="imem", daemon=True)
        self._stop: asyncio.Event | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stop is not None:
            self._ready.result().call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """
        Run *coroutine* in the loop and return its result, or raise its error here.

        A caller that is interrupted (Ctrl-C) cancels it.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._ready.result())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def run(self, function: Callable[[], T]) -> T:
        """Call *function* in the loop's thread and return what it returns: one thread alone makes what others share."""

        async def ran() -> T:
            return function()

        return self.call(ran())

    @contextmanager
    def hold_context(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[HeldContext[T]]:
        """
        Be inside the context that *make* gives while the block runs.

        A task of the loop enters it and leaves it, so that it may rest on tasks and cancellation. However the block
        ends, the context is left as if it had ended well. What ends the context before its time is raised by
        the next :meth:`HeldContext.call`, and in any case at the end of the block.
        """
        held = HeldContext(self, make)
        try:
            self.call(held.enter())
            yield held
        finally:
            self.call(held.leave())

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._ready.set_result(asyncio.get_running_loop())
        await self._stop.wait()


class HeldContext(Generic[T]):
    """
    A context that a task of the loop is in, for threads that have no loop; made by :meth:`Portal.hold_context`.

    Attributes:
        value: what entering it gave.
    """

    value: T

    def __init__(self, portal: Portal, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._portal = portal
        self._make = make
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._entered = False

    def call(self, coroutine: Coroutine[Any, Any, S]) -> S:
        """
        Run *coroutine* in the loop and return its result, or raise its error here.

        Where the context has ended before its time, *coroutine* is not begun and what ended it is raised.
        """
        return self._portal.call(self._inside(coroutine))

    async def _inside(self, coroutine: Coroutine[Any, Any, S]) -> S:
        task = self._task
        if task is not None and task.done() and not task.cancelled() and (error := task.exception()) is not None:
            coroutine.close()
            raise error
        return await coroutine

    async def enter(self) -> None:
        """Have a task enter the context, and wait until it has; raise what it raises."""
        value: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(value))
        first: set[asyncio.Future[Any]] = {self._task, value}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not value.done():
            self._task.result()
        self.value = value.result()
        self._entered = True

    async def leave(self) -> None:
        """Have the task leave the context, and wait until it has; raise what ended it before."""
        if self._task is None:
            return
        self._over.set()
        if not self._entered:
            # Whoever waited for it was interrupted, or has been told already why it could not be entered.
            self._task.cancel()
        await asyncio.wait({self._task})
        if self._entered:
            self._task.result()

    async def _hold(self, value: asyncio.Future[T]) -> None:
        async with self._make() as entered:
            value.set_result(entered)
            await self._over.wait()
