"""A portal to an event loop in a thread of its own, for callers without one."""

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
    """Runs coroutines for threads without an event loop."""

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
        """Call *function* in the loop's thread and return its result, so that shared objects are made in one thread."""

        async def ran() -> T:
            return function()

        return self.call(ran())

    @contextmanager
    def hold_context(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[HeldContext[T]]:
        """
        Enter the context that *make* returns, and leave it at the end of the block.

        One task of the loop enters and leaves it, so that it may use task groups and cancellation. The context does not
        see an exception of the block. If the context ends early with an error, the next :meth:`HeldContext.call`
        raises it, and so does the end of the block.
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
    A context held open by a task of the loop, for threads without one; made by :meth:`Portal.hold_context`.

    Attributes:
        value: the result of entering it.
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

        If the context has ended early, *coroutine* is not started and the context's error is raised.
        """
        return self._portal.call(self._inside(coroutine))

    async def _inside(self, coroutine: Coroutine[Any, Any, S]) -> S:
        task = self._task
        if task is not None and task.done() and not task.cancelled() and (error := task.exception()) is not None:
            coroutine.close()
            raise error
        return await coroutine

    async def enter(self) -> None:
        """Enter the context in a task of its own, and wait for it; raises the context's error."""
        value: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(value))
        first: set[asyncio.Future[Any]] = {self._task, value}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not value.done():
            self._task.result()
        self.value = value.result()
        self._entered = True

    async def leave(self) -> None:
        """Leave the context, and wait for its task; raises the error that ended it early."""
        if self._task is None:
            return
        self._over.set()
        if not self._entered:
            # enter() was interrupted, or has raised the error already.
            self._task.cancel()
        await asyncio.wait({self._task})
        if self._entered:
            self._task.result()

    async def _hold(self, value: asyncio.Future[T]) -> None:
        async with self._make() as entered:
            value.set_result(entered)
            await self._over.wait()
