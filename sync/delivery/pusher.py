"""
Pushing: appends published items to the journal, in their owners' names.

A push reads the items from the memory, skips those that the journal has already (by identity), and appends the rest in
the order of publishing. It then stores the push results beside the memory, and the holder removes the items. After a
crash at any point, the next push finds the appended items in the journal and writes nothing for them.

An actor with the right to synchronise may flush another agent's items. They are then recorded with the role of an
agent, which may record its own facts only, whatever role the owner has: roles are never read from a memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from imem.cache.working import changes
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.published import PublishedItem, PushResult
from imem.cache.working.store import WorkingStore
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, LeaseLost, NotOpen, PermissionDenied, StatementRejected
from imem.journal.events.entry import Receipt, Tier
from imem.journal.postgres.database import Database
from imem.kg.load_format.lines import Line, LinkLine
from imem.sync.members import SyncMember

BATCH: Final = 100
"""Items appended together."""


DENIED: Final = "actor"
"""``field`` of an item that its actor had no right to record."""


class PushState(StrEnum):
    """The result of pushing an item."""

    DURABLE = "durable"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class PushedItem:
    """
    An item that was pushed.

    Attributes:
        item: its identity.
        state: whether it is durable.
        kind, key: of its record.
        event_id, position: of the event that holds it; None where it was rejected.
        field, reason: of the rejection.
    """

    item: UUID
    state: PushState
    kind: str
    key: str
    event_id: UUID | None = None
    position: int | None = None
    field: str | None = None
    reason: str | None = None


class RecordAppender(Protocol):
    """Appends lines to the journal; an agent may record its own facts only."""

    async def __call__(
        self,
        items: Sequence[PublishedItem],
        *,
        owner: str,
        by: Actor | None = None,
        lock_epoch: int | None,
        deadline: Deadline,
    ) -> list[Receipt]:
        """
        Append *items* in the name of *owner*, as asked by *by*; return one receipt for each.

        Raises:
            PermissionDenied: the owner may not record one of them; nothing was written.
        """

    def refusal(self, receipt: Receipt, line: Line) -> BadInput | None:
        """Return the error for a *line* that the journal refused, or None."""


class Pusher:
    """
    Pushes published items.

    Args:
        database: the journal.
        memories: the published items.
        record: appends them.
    """

    def __init__(self, database: Database, memories: WorkingStore, record: RecordAppender) -> None:
        self._database = database
        self._memories = memories
        self._record = record

    async def push(
        self,
        member: SyncMember,
        *,
        by: Actor | None = None,
        holder: WorkingMemory | None = None,
        tier: Tier | None = None,
        lock_epoch: int | None = None,
        deadline: Deadline,
    ) -> list[PushedItem]:
        """
        Append every item that *member* has published; return the result of each.

        Args:
            by: who asks; the process' own actor by default.
            holder: the memory of the holder, which removes the items; without it, push results are stored.
            tier: items of a less urgent tier are raised to it.
            lock_epoch: of the lock on the owner's writes, for the holder of that lock.

        Raises:
            LeaseHeld: the owner's writes are locked while a snapshot is taken; nothing more was written. Retryable.
            StaleEpoch: the lock was lost.
            PostgresUnavailable, BudgetExceeded, OutcomeUnknown: repeating the call is safe.
            ValkeyUnavailable: the memory could not be read; or push results could not be stored; the next call
                does that.
        """
        try:
            found = await self._memories.published(member.agent_id, deadline=deadline)
        except NotOpen as error:
            if await self._memories.meta(member.agent_id, deadline=deadline) is None:
                return []  # The memory was cleared, or never opened: there are no items.
            raise NotOpen(error.message, mend=error.mend) from error
        # An item denied to another actor may be allowed to its owner.
        noted = (
            found.push_results
            if holder is None
            else {item: fate for item, fate in found.push_results.items() if fate.field != DENIED}
        )
        waiting = [item for item in found.items if item.id not in noted]
        push_results = {item.id: noted[item.id] for item in found.items if item.id in noted}
        fresh: dict[UUID, PushResult] = {}
        known = await self._known(waiting, deadline)
        record = partial(self._record, owner=member.owner, by=by, lock_epoch=lock_epoch, deadline=deadline)
        for first in range(0, len(waiting), BATCH):
            page = [item for item in waiting[first : first + BATCH] if item.id not in known]
            fresh |= await self._append(page, tier, record, deadline)
        fresh |= {item: PushResult(position) for item, position in known.items()}
        await self._note(
            member.agent_id,
            list(found.push_results),
            final=push_results | fresh,
            fresh=fresh,
            holder=holder,
            deadline=deadline,
        )
        return [_pushed(item, (push_results | fresh)[item.id]) for item in found.items]

    async def count(self, agent_id: str, *, deadline: Deadline) -> int:
        """Return how many items of an agent are not pushed; 0 where it has no memory."""
        if await self._memories.meta(agent_id, deadline=deadline) is None:
            return 0
        found = await self._memories.published(agent_id, deadline=deadline)
        push_results = {item: fate for item, fate in found.push_results.items() if fate.field != DENIED}
        return sum(item.id not in push_results for item in found.items)

    async def _known(self, items: Sequence[PublishedItem], deadline: Deadline) -> dict[UUID, int]:
        """Return the positions of the items that an earlier push appended without storing its results."""
        if not items:
            return {}
        asked = {"event_ids": [str(item.id) for item in items]}
        rows = await self._database.named("events_by_id", asked, deadline=deadline)
        return {row["event_id"]: row["position"] for row in rows}

    async def _append(
        self,
        items: Sequence[PublishedItem],
        tier: Tier | None,
        record: Callable[[Sequence[PublishedItem]], Awaitable[list[Receipt]]],
        deadline: Deadline,
    ) -> dict[UUID, PushResult]:
        if not items:
            return {}
        urgent = [item if tier is None else replace(item, tier=_sooner(item.tier, tier)) for item in items]
        try:
            receipts = await record(urgent)
        except (PermissionDenied, StatementRejected, BadInput) as error:
            if len(items) > 1:
                # One item is refused, or was pushed concurrently: append each by itself.
                push_results: dict[UUID, PushResult] = {}
                for item in items:
                    push_results |= await self._append([item], tier, record, deadline)
                return push_results
            known = await self._known(items, deadline)
            if known:
                return {item: PushResult(position) for item, position in known.items()}
            if isinstance(error, StatementRejected):
                raise
            return {items[0].id: PushResult(None, getattr(error, "field", DENIED), error.message)}
        return {item.id: self._fate(item, receipt) for item, receipt in zip(items, receipts, strict=True)}

    def _fate(self, item: PublishedItem, receipt: Receipt) -> PushResult:
        refused = self._record.refusal(receipt, item.line)
        return PushResult(None, refused.field, refused.reason) if refused is not None else PushResult(receipt.position)

    async def _note(
        self,
        agent_id: str,
        noted: list[UUID],
        *,
        final: dict[UUID, PushResult],
        fresh: dict[UUID, PushResult],
        holder: WorkingMemory | None,
        deadline: Deadline,
    ) -> None:
        """Remove items with a *final* result for the holder; otherwise store the *fresh* results."""
        if holder is not None:
            if final:
                await holder.write(changes.unpublish(final), deadline=deadline)
                await self._memories.forget_pushed(agent_id, noted, deadline=deadline)
        elif fresh:
            try:
                await self._memories.note_pushed(agent_id, fresh, deadline=deadline)
            except (NotOpen, LeaseLost):
                return  # The memory was cleared meanwhile, and the items with it.


def _sooner(one: Tier | None, other: Tier) -> Tier:
    return other if one is None else min(one, other)


def _pushed(item: PublishedItem, fate: PushResult) -> PushedItem:
    line = item.line
    if isinstance(line, LinkLine):
        kind, key = line.type, f"{line.from_label} {line.from_key} → {line.to_label} {line.to_key}"
    else:
        kind, key = line.kind, line.key
    if fate.position is None:
        return PushedItem(item.id, PushState.REJECTED, kind, key, field=fate.field, reason=fate.reason)
    return PushedItem(item.id, PushState.DURABLE, kind, key, event_id=item.id, position=fate.position)
