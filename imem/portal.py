"""One event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


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

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._ready.set_result(asyncio.get_running_loop())
        await self._stop.wait()
