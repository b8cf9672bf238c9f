"""
Group commit: concurrent writes of one actor share a transaction.

Postgres would serialise them anyway, since each locks the actor's cursor until its commit. Each caller gets its own
receipts, or its own error. A write that comes alone is committed as it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, StatementRejected
from imem.journal.events.entry import AppendStatus, JournalEntry, Receipt

BATCH_LINES: Final = 500
"""Most lines in one transaction, and so in one statement."""

Commit = Callable[[Sequence[JournalEntry], Deadline], Awaitable[list[Receipt]]]


class EntriesRefused(Exception):
    """
    The journal refused an entry of a call that records all or none; the transaction is rolled back.

    Attributes:
        receipts: of every entry of the transaction; no entry of it was written.
    """

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        super().__init__("an entry was refused")
        self.receipts = [
            receipt
            if receipt.verdict is AppendStatus.IDENTICAL
            else replace(receipt, event_id=None, position=None, recorded_at=None, durable=False)
            for receipt in receipts
        ]


def touched(entry: JournalEntry) -> set[tuple[str, str, str]]:
    """Return the heads that *entry* writes, and the core that a correction reads."""
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
    """Groups the concurrent writes of one gateway, in one process and one event loop."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, _Queue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def commit(
        self, whose: Hashable, entries: Sequence[JournalEntry], commit: Commit, deadline: Deadline
    ) -> list[Receipt]:
        """
        Commit *entries*, grouped with concurrent calls of the same *whose*, and return their receipts.

        Raises:
            BudgetExceeded: *deadline* passed while it was queued; nothing was written.
            ImemError: raised by *commit*.
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
            # A commit that has begun ends by its own deadline.
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
    """Dequeue as many calls as one statement can hold, none with the same group of a record twice."""
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
    """Commit *calls* together; if that fails because of one of them, commit each by itself."""
    entries = [entry for call in calls for entry in call.entries]
    due = Deadline(min(call.deadline.at_s for call in calls))
    # Every error goes to the callers' futures; no one awaits this task.
    [outcome] = await asyncio.gather(commit(entries, due), return_exceptions=True)
    if isinstance(outcome, StatementRejected | BudgetExceeded | EntriesRefused) and len(calls) > 1:
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
