"""Contexts that a task of the loop is in, for threads that have none."""

from __future__ import annotations

import asyncio
import pydoc
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from imem.blocking.memory import SyncMemory
from imem.blocking.portal import Portal
from imem.blocking.working import SyncWorkingMemory


@pytest.fixture
def portal() -> Iterator[Portal]:
    with Portal() as opened:
        yield opened


class Room:
    """A context that notes the tasks which enter and leave it, and that somebody else may end."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[object] | None] = []
        self.fail = asyncio.Event()
        self.failed = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        self.tasks.append(asyncio.current_task())
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch())
                yield "inside"
                watching.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self.tasks.append(asyncio.current_task())
            self.failed.set()

    async def _watch(self) -> None:
        await self.fail.wait()
        raise RuntimeError("taken over")


async def _waited(event: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await event.wait()


async def _said(word: str) -> str:
    return word


def test_one_task_enters_and_leaves(portal: Portal) -> None:
    """So that task groups, which are a task's own, may be in the context; calls are made by others meanwhile."""
    room = portal.run(Room)

    with portal.hold_context(room.open) as held:
        assert held.value == "inside"
        assert held.call(_said("hello")) == "hello"
        assert len(room.tasks) == 1

    entered, left = room.tasks
    assert entered is left


def test_the_block_s_own_error_passes(portal: Portal) -> None:
    """And the context is left."""
    room = portal.run(Room)

    with pytest.raises(KeyError, match="mine"), portal.hold_context(room.open):
        raise KeyError("mine")

    assert len(room.tasks) == 2


def test_what_ends_the_context_is_told_at_the_next_call_and_at_the_end(portal: Portal) -> None:
    """The call itself is not begun: nothing is done in a context that is over."""
    room, done = portal.run(Room), []

    async def work() -> None:
        done.append("work")

    def block() -> None:
        with portal.hold_context(room.open) as held:
            portal.run(room.fail.set)
            portal.call(_waited(room.failed))
            with pytest.raises(RuntimeError, match="taken over"):
                held.call(work())

    with pytest.raises(RuntimeError, match="taken over"):
        block()

    assert done == []


def test_what_ended_the_context_counts_more_than_what_came_of_it(portal: Portal) -> None:
    """As in a task: the error of the block stays visible as its context."""
    room = portal.run(Room)

    def block() -> None:
        with portal.hold_context(room.open):
            portal.run(room.fail.set)
            portal.call(_waited(room.failed))
            raise KeyError("mine")

    with pytest.raises(RuntimeError, match="taken over") as raised:
        block()

    assert isinstance(raised.value.__context__, KeyError)


def test_what_cannot_be_entered_says_why(portal: Portal) -> None:
    """And nothing is left behind in the loop."""

    class Closed(AbstractAsyncContextManager[None]):
        async def __aenter__(self) -> None:
            raise RuntimeError("closed")

        async def __aexit__(self, *_: object) -> None:
            pytest.fail("it was left")

    with pytest.raises(RuntimeError, match="closed"), portal.hold_context(Closed):
        pytest.fail("it was entered")

    assert portal.run(lambda: len(asyncio.all_tasks())) == 2, "that which serves, and that which counts"


def test_whoever_is_interrupted_while_entering_leaves_nothing(portal: Portal) -> None:
    """The wait for something that never opens is given up, and the task with it."""
    ended = portal.run(asyncio.Event)
    waits = threading.Event()

    @asynccontextmanager
    async def never() -> AsyncIterator[None]:
        try:
            waits.set()
            await asyncio.Event().wait()
            yield
        finally:
            ended.set()

    class Interrupted(Portal):
        """Is interrupted in its first call, as by Ctrl-C."""

        calls = 0

        def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
            future = asyncio.run_coroutine_threadsafe(coroutine, portal._ready.result())
            self.calls += 1
            if self.calls == 1:
                assert waits.wait(10)
                future.cancel()
                raise KeyboardInterrupt
            return future.result(10)

    with pytest.raises(KeyboardInterrupt), Interrupted().hold_context(never):
        pytest.fail("it was entered")

    assert ended.is_set()


def test_a_twin_is_documented_as_its_original() -> None:
    """``help()`` shows signature and docstring; neither waits."""
    shown = pydoc.plain(pydoc.render_doc(SyncMemory))

    assert "record_finding(self, finding: 'Finding', *, body: 'LongText | None' = None," in shown
    assert "Record one agent's statement inside an analysis." in shown
    assert "pull(self, agent_id: 'str', since: 'int | None' = None," in shown
    shown += pydoc.plain(pydoc.render_doc(SyncWorkingMemory))
    assert "session.memory.publish(Finding(" in shown
    assert "await " not in shown
