"""
Writes of one actor that come while another of its writes is under way go to Postgres together.

They would wait for one another there all the same: the actor's cursor is locked until each commit. Together they cost
one transaction instead of many. Each caller gets its own receipts, or its own error; a write that comes alone is not
touched.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, StatementRejected
from imem.journal.events.entry import JournalEntry, Receipt

BATCH_LINES: Final = 500
"""Lines that go to Postgres in one statement."""

Commit = Callable[[Sequence[JournalEntry], Deadline], Awaitable[list[Receipt]]]


def touched(entry: JournalEntry) -> set[tuple[str, str, str]]:
    """Return the heads that *entry* states, and the core that a correction looks at."""
    names = {(entry.head_kind, entry.key, group.name) for group in entry.groups}
    return names | {(entry.head_kind, entry.key, "core")} if entry.kind.startswith("correct.") else names


@dataclass(slots=True, eq=False)
class _Call:
    entries: Sequence[JournalEntry]
    deadline: Deadline
    answer: asyncio.Future[list[Receipt]]


@dataclass(slots=True)
class _Queue:
    busy: bool = False
    waiting: deque[_Call] = field(default_factory=deque)


class GroupCommit:
    """Brings concurrent writes together; one for each way in, of one process and one event loop."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, _Queue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def commit(
        self, whose: Hashable, entries: Sequence[JournalEntry], commit: Commit, deadline: Deadline
    ) -> list[Receipt]:
        """
        Have *entries* committed, with what else comes from *whose* meanwhile, and return their receipts.

        Raises:
            BudgetExceeded: *deadline* passed before its turn came; nothing was written.
            ImemError: what *commit* raised.
        """
        queue = self._queues.setdefault(whose, _Queue())
        if queue.busy:
            return await self._wait(queue, _Call(entries, deadline, asyncio.get_running_loop().create_future()))
        queue.busy = True
        try:
            return await commit(entries, deadline)
        finally:
            if queue.waiting:
                task = asyncio.get_running_loop().create_task(self._serve(whose, queue, commit))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                del self._queues[whose]

    async def _wait(self, queue: _Queue, call: _Call) -> list[Receipt]:
        queue.waiting.append(call)
        try:
            left_s = call.deadline.left_s()
            await asyncio.wait({call.answer}, timeout=None if left_s == float("inf") else left_s)
            if not call.answer.done() and call in queue.waiting:
                raise BudgetExceeded("Earlier writes of the same actor took all the time; nothing was written.")
            # What is under way ends by its own deadline.
            return await call.answer
        finally:
            call.answer.cancel()
            if call in queue.waiting:
                queue.waiting.remove(call)

    async def _serve(self, whose: Hashable, queue: _Queue, commit: Commit) -> None:
        try:
            while queue.waiting:
                await _answer(_next_batch(queue), commit)
        finally:
            del self._queues[whose]


def _next_batch(queue: _Queue) -> list[_Call]:
    """Take from the front as many calls as one statement can hold: no group of a record stands twice in it."""
    taken: list[_Call] = []
    lines, seen = 0, set[tuple[str, str, str]]()
    while queue.waiting:
        call = queue.waiting[0]
        names = set().union(*map(touched, call.entries))
        if taken and (lines + len(call.entries) > BATCH_LINES or not seen.isdisjoint(names)):
            break
        taken.append(queue.waiting.popleft())
        lines, seen = lines + len(call.entries), seen | names
    return taken


async def _answer(calls: Sequence[_Call], commit: Commit) -> None:
    """Commit *calls* together and answer each; one by one where one of them could be to blame for the failure."""
    entries = [entry for call in calls for entry in call.entries]
    due = Deadline(min(call.deadline.at_s for call in calls))
    # Whatever goes wrong is the callers' to hear of: nobody else waits for this.
    [outcome] = await asyncio.gather(commit(entries, due), return_exceptions=True)
    if isinstance(outcome, StatementRejected | BudgetExceeded) and len(calls) > 1:
        for call in calls:
            await _answer([call], commit)
        return
    for call in calls:
        if isinstance(outcome, BaseException):
            _fail(call, outcome)
            continue
        own, outcome = outcome[: len(call.entries)], outcome[len(call.entries) :]
        if not call.answer.done():
            call.answer.set_result(own)


def _fail(call: _Call, error: BaseException) -> None:
    if not call.answer.done():
        call.answer.set_exception(error)
