"""
The gateway: authorizes, audits and executes every read and write of the journal.

A write's audit row is inserted by the statement that writes it, in the same transaction: if it fails, so does the
write. A denial leaves one audit row and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

import uuid_utils
from opentelemetry.trace import SpanKind

from imem.journal.actors import Action, Actor, Resource, ResourceType, allowed, denial
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, PermissionDenied, PostgresUnavailable
from imem.journal.events.entry import AppendStatus, JournalEntry, Receipt, Tier
from imem.journal.events.group_commit import BATCH_LINES, EntriesRefused, GroupCommit, touched
from imem.journal.notifications.wakeups import applier_interval_s
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.retry import ATTEMPTS, retry
from imem.journal.statements import sql
from imem.journal.telemetry.correlation import correlated, correlation
from imem.journal.telemetry.tracing import TRACER, traceparent

T = TypeVar("T")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.025
"""First and longest pause between two polls of Postgres for visibility, in seconds, without a subscription."""

_POLL_S: Final = 0.25
"""Longest wait for a message of the applier, in seconds; then Postgres is polled, since messages may be lost."""

_AUDITED = frozenset({ResourceType.PATTERNS})
"""Resource types of which every granted access leaves an audit row."""

_AUDITED_ACTIONS = frozenset({Action.DELETE})
"""Actions that leave an audit row on any resource; after a deletion the row is all that is left."""


_RECORDED: Final = frozenset({AppendStatus.NEW.value, AppendStatus.CHANGED.value})
"""Statuses of lines for which an event was written."""


_Statement = tuple[Sequence[JournalEntry], dict[str, Any]]
"""The entries of one statement, and its parameters."""


class _Group(NamedTuple):
    """What calls have in common that share a transaction; see :meth:`Gateway.append`."""

    actor: Actor
    action: Action
    lock_epoch: int | None
    all_or_none: bool


class VisibilitySource(Protocol):
    """
    Notifies waiters when the graph holds their events.

    Attributes:
        subscribed: whether the subscription is live.
    """

    subscribed: bool

    async def wait_applied(self, event_ids: Collection[UUID], timeout_s: float) -> bool:
        """
        Wait until the applier has published all of *event_ids*, at most *timeout_s* seconds.

        False when it has not by then, when the subscription is down, or when the waiter has to poll Postgres.
        """


class Gateway:
    """
    Authorizes, executes and audits, each call for the actor that it names: one gateway serves all actors of a process.

    Args:
        database: where the journal is.
        actor: the process' own, from its settings; that of calls which name none.
        announce: publishes the tiers of committed events, which wakes the applier; a lost message only delays it.
        visibility: publishes which events the graph holds; without it a waiter polls Postgres.
        waits: whether callers may wait for visibility; where ``sync_priority`` is off it can take minutes.

    Attributes:
        applier_interval_s: the applier's polling interval in seconds, 0 where it is woken.
    """

    def __init__(
        self,
        database: Database,
        actor: Actor,
        announce: Callable[[Sequence[Tier]], Awaitable[None]] | None = None,
        *,
        visibility: VisibilitySource | None = None,
        waits: bool = True,
    ) -> None:
        self.database = database
        self.actor = actor
        self._announce = announce
        self._visibility = visibility
        self._waits = waits
        self.applier_interval_s = applier_interval_s(priority=waits)
        self._group_commit = GroupCommit()

    async def authorize_and_execute(
        self,
        resource: Resource,
        action: Action,
        operation: Callable[[], Awaitable[T]],
        *,
        deadline: Deadline,
        actor: Actor | None = None,
    ) -> T:
        """
        Run *operation* if the actor may do *action* to *resource*.

        Granted access to patterns and granted deletions leave an audit row first.

        Raises:
            PermissionDenied: the actor's role does not allow it; one denial row was written, unless that failed.
        """
        with correlated():
            await self.authorize(resource, action, deadline=deadline, actor=actor)
            return await operation()

    async def authorize(
        self, resource: Resource, action: Action, *, deadline: Deadline, actor: Actor | None = None
    ) -> None:
        """Return if the actor may do *action* to *resource*; audits and raises as :meth:`authorize_and_execute`."""
        actor = actor or self.actor
        with correlated():
            await self._refuse(actor, resource, action, deadline)
            if resource.type in _AUDITED or action in _AUDITED_ACTIONS:
                row = _audit_row(actor, resource, action, authorized=True, outcome="granted")
                await self.database.named("audit", row, deadline=deadline)

    async def authorize_patterns(self, resource: Resource, *, deadline: Deadline, actor: Actor | None = None) -> int:
        """
        Authorize a read of patterns, write its audit row, and return the epoch of the patterns' status.

        In one round trip. It stands for :meth:`authorize_and_execute` where the caller goes on with a cached result;
        the caller shows nothing before it has returned.

        Raises:
            PermissionDenied: the actor's role does not allow it; one denial row was written.
            PostgresUnavailable, BudgetExceeded: no audit row was written; retryable.
        """
        actor = actor or self.actor
        with correlated():
            await self._refuse(actor, resource, Action.READ, deadline)
            row = _audit_row(actor, resource, Action.READ, authorized=True, outcome="granted")
            return int((await self.database.named("audit_patterns", row, deadline=deadline))[0]["epoch"])

    async def _refuse(self, actor: Actor, resource: Resource, action: Action, deadline: Deadline) -> None:
        """Raise the denial if the role does not allow *action*; a denial row that cannot be written changes nothing."""
        if allowed(actor, resource, action):
            return
        await self._audit_denial(actor, resource, action, deadline)
        raise denial(actor, resource, action)

    async def audit_denial(
        self, resource: Resource, action: Action, *, deadline: Deadline, actor: Actor | None = None
    ) -> None:
        """Write the denial row of what the actor may do in general, and may not do now."""
        await self._audit_denial(actor or self.actor, resource, action, deadline)

    async def _audit_denial(self, actor: Actor, resource: Resource, action: Action, deadline: Deadline) -> None:
        row = _audit_row(actor, resource, action, authorized=False, outcome="denied")
        with suppress(ImemError):
            await self.database.named("audit", row, deadline=deadline)

    def may(self, resource: Resource, action: Action, *, actor: Actor | None = None) -> bool:
        """Return whether the actor may do *action* to *resource*, without an audit row; filters what a result shows."""
        return allowed(actor or self.actor, resource, action)

    async def append(
        self,
        entries: Sequence[JournalEntry],
        *,
        actor: Actor | None = None,
        action: Action = Action.APPEND,
        owner: str | None = None,
        lock_epoch: int | None = None,
        all_or_none: bool = False,
        deadline: Deadline,
        wait_visible: Deadline | None = None,
    ) -> list[Receipt]:
        """
        Commit *entries* to the journal, in order, and return one receipt for each.

        Entries that carry a ``known_at`` need the import right whatever *action* says.

        Args:
            owner: of the facts; the actor by default, the empty string for facts without an owner.
            lock_epoch: epoch of the lock on the actor's writes, if the caller holds it.
            all_or_none: whether all entries share one transaction, in which one that is refused undoes the others. The
                receipts then say which were refused, and no receipt but an identical one is durable.
            wait_visible: how long to wait for the graph to hold them; receipts then say whether it does.

        Raises:
            PermissionDenied: nothing was written but the denial.
            PostgresUnavailable: nothing of the transaction that failed was written; earlier ones stand. Each has up to
                :data:`BATCH_LINES` entries. Retryable.
            OutcomeUnknown: the connection broke while committing; repeating the same call is harmless.
            LeaseHeld: the actor's writes are locked while a snapshot is taken; retryable.
            StaleEpoch: *lock_epoch* is that of an earlier lock.
        """
        actor = actor or self.actor
        with correlated(), TRACER.start_as_current_span("imem.append", attributes={"imem.entries": len(entries)}):
            resource = await self._authorize_append(entries, actor, action, owner, deadline)
            receipts: list[Receipt] = []
            group = _Group(actor, action, lock_epoch, all_or_none)
            traced = _with_trace(entries)
            size = len(traced) if all_or_none else BATCH_LINES
            for first in range(0, len(traced), max(size, 1)):
                part = traced[first : first + size]
                try:
                    receipts += await self._group_commit.commit(group, part, partial(self._commit, group), deadline)
                except EntriesRefused as refused:
                    return refused.receipts
                except PermissionDenied:
                    # By Postgres: the process is logged in under a role that may not state that.
                    await self._audit_denial(actor, resource, action, deadline)
                    raise
                await self.publish_wakeup(sorted({entry.tier for entry in part}))
            if wait_visible is None:
                return receipts
            visible = await self._await_visible(receipts, wait_visible)
            return [replace(receipt, visible=visible) if receipt.durable else receipt for receipt in receipts]

    async def append_in(
        self,
        conn: Connection,
        entries: Sequence[JournalEntry],
        *,
        actor: Actor,
        action: Action = Action.APPEND,
        deadline: Deadline,
    ) -> list[Receipt]:
        """
        Append *entries* in the transaction of *conn*, so that they are committed with what it writes, or not at all.

        Make it the last of the transaction: the actor's other writes wait until its end. The caller then calls
        :meth:`publish_wakeup`.

        Raises:
            PermissionDenied: the actor's role does not allow it; nothing was written but the denial.
            psycopg.Error: Postgres refused it; the transaction is to be rolled back.
        """
        await self._authorize_append(entries, actor, action, None, deadline)
        return await _append_to(conn, _statements(_with_trace(entries), actor, action))

    async def _authorize_append(
        self, entries: Sequence[JournalEntry], actor: Actor, action: Action, owner: str | None, deadline: Deadline
    ) -> Resource:
        actions = {action} | ({Action.IMPORT} if any(entry.known_at is not None for entry in entries) else set())
        key = entries[0].key if len(entries) == 1 else None
        resource = Resource(ResourceType.JOURNAL, key, actor.id if owner is None else owner)
        for wanted in sorted(actions - {Action.IMPORT}) + sorted(actions & {Action.IMPORT}):
            await self.authorize(resource, wanted, deadline=deadline, actor=actor)
        return resource

    async def publish_wakeup(self, tiers: Sequence[Tier]) -> None:
        """Publish that events of *tiers* are due; a lost message only delays the applier."""
        if self._announce is not None:
            with TRACER.start_as_current_span("imem.announce", kind=SpanKind.PRODUCER):
                await self._announce(tiers)

    async def _commit(self, group: _Group, entries: Sequence[JournalEntry], deadline: Deadline) -> list[Receipt]:
        """Append *entries* in one transaction: a commit for each statement would cost a history much of its time."""
        statements = list(_statements(entries, group.actor, group.action))

        async def append() -> list[Receipt]:
            async with self.database.transaction(deadline) as conn:
                if group.lock_epoch is not None:
                    await conn.execute(sql("set_lock_epoch"), (str(group.lock_epoch),))
                receipts = await _append_to(conn, statements)
                if group.all_or_none and any(receipt.verdict.refused for receipt in receipts):
                    raise EntriesRefused(receipts)
                return receipts

        # Nothing was committed where a pooled connection had gone stale, or Postgres asked for another attempt.
        return await retry(append, deadline=deadline, errors=PostgresUnavailable, attempts=ATTEMPTS)

    async def _await_visible(self, receipts: Sequence[Receipt], deadline: Deadline) -> bool:
        """Wait for events written by this call: for the applier's messages, or else as :meth:`wait_visible` does."""
        waiting = [receipt for receipt in receipts if receipt.position is not None and receipt.event_id is not None]
        fresh = {
            receipt.event_id
            for receipt in waiting
            if receipt.verdict is not AppendStatus.IDENTICAL and receipt.event_id
        }
        if self._visibility is not None and self._waits and len(fresh) == len(waiting):
            while (left_s := deadline.left_s() - _LONGEST_PAUSE_S) > 0:
                if await self._visibility.wait_applied(fresh, min(_POLL_S, left_s)):
                    return True
                if not self._visibility.subscribed or await self._delivery_known(waiting, deadline):
                    break
        return await self.wait_visible([receipt.position for receipt in waiting if receipt.position], deadline)

    async def _delivery_known(self, receipts: Sequence[Receipt], deadline: Deadline) -> bool:
        """Poll whether all of *receipts* are applied or any is dead; true also when Postgres cannot be asked."""
        positions = [receipt.position for receipt in receipts]
        try:
            row = (await self.database.named("count_undelivered", {"positions": positions}, deadline=deadline))[0]
        except ImemError as error:
            if not error.retryable:
                raise
            return True
        return bool(row["waiting"] == 0 or row["dead"])

    async def wait_visible(self, positions: Sequence[int], deadline: Deadline) -> bool:
        """
        Poll until the graph holds the events at *positions*, and return whether it does.

        False also when Postgres could not be asked: the events stay durable.
        """
        pause_s = _FIRST_PAUSE_S
        while positions:
            try:
                row = (
                    await self.database.named("count_undelivered", {"positions": list(positions)}, deadline=deadline)
                )[0]
            except ImemError as error:
                if not error.retryable:
                    raise
                return False
            if row["waiting"] == 0 or row["dead"]:
                return not row["dead"]
            if deadline.left_s() <= pause_s or not self._waits:
                return False
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        return True


def _audit_row(actor: Actor, resource: Resource, action: Action, *, authorized: bool, outcome: str) -> dict[str, Any]:
    """Return the parameters of the statement ``audit``."""
    return {
        "actor": actor.id,
        "role": actor.role.value,
        "resource_type": resource.type.value,
        "resource_id": resource.id,
        "action": action.value,
        "authorized": authorized,
        "reason": None,
        "context": context_of(actor, owner=resource.owner),
        "outcome": outcome,
    }


def _with_trace(entries: Sequence[JournalEntry]) -> Sequence[JournalEntry]:
    """Return *entries* with the current trace context and the correlation id that the caller gave."""
    trace, now = traceparent(), correlation()
    name = now.id if now is not None and now.given else None
    if trace is None and name is None:
        return entries
    return [replace(entry, traceparent=trace, correlation_id=name) for entry in entries]


async def _append_to(conn: Connection, statements: Iterable[_Statement]) -> list[Receipt]:
    receipts: list[Receipt] = []
    for batch, parameters in statements:
        rows = await (await conn.execute(sql("append"), parameters)).fetchall()
        if (context := _context(batch, rows)) is not None:
            await conn.execute(sql("note_context"), context)
        receipts += [
            Receipt(
                (verdict := AppendStatus(row["status"])),
                row["event_id"],
                row["position"],
                row["recorded_at"],
                durable=not verdict.refused,
            )
            for row in rows
        ]
    return receipts


def _context(batch: Sequence[JournalEntry], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the traces and correlation ids of the events written; None where there are none."""
    noted = [
        (row["position"], entry.traceparent, entry.correlation_id)
        for entry, row in zip(batch, rows, strict=True)
        if row["status"] in _RECORDED and (entry.traceparent or entry.correlation_id)
    ]
    if not noted:
        return None
    positions, traceparents, correlation_ids = (list(column) for column in zip(*noted, strict=True))
    return {"positions": positions, "traceparents": traceparents, "correlation_ids": correlation_ids}


def batches(entries: Sequence[JournalEntry]) -> Iterator[Sequence[JournalEntry]]:
    """Cut *entries* into batches of at most :data:`BATCH_LINES`, none with the same group of a record twice."""
    batch: list[JournalEntry] = []
    seen: set[tuple[str, str, str]] = set()
    for entry in entries:
        # A correction reads the core, which a line before it in the same file may record.
        names = touched(entry)
        if batch and (len(batch) >= BATCH_LINES or not seen.isdisjoint(names)):
            yield batch
            batch, seen = [], set()
        batch.append(entry)
        seen |= names
    if batch:
        yield batch


def _statements(entries: Sequence[JournalEntry], actor: Actor, action: Action) -> Iterator[_Statement]:
    """Return each of the :func:`batches` with the parameters of its statement."""
    return ((batch, _columns(batch, actor, action)) for batch in batches(entries))


def _columns(batch: Sequence[JournalEntry], actor: Actor, action: Action) -> dict[str, Any]:
    """Return the batch as the arrays that the statement ``append`` takes."""
    return {
        "actor": actor.id,
        "role": actor.role.value,
        "may_import": actor.may_import,
        "context": context_of(actor, action=action.value),
        "event_id": [str(entry.event_id or uuid_utils.uuid7()) for entry in batch],
        "kind": [entry.kind for entry in batch],
        "head_kind": [entry.head_kind for entry in batch],
        "key": [entry.key for entry in batch],
        "payload": [entry.payload.decode() for entry in batch],
        "body": [entry.body for entry in batch],
        "payload_hash": [entry.payload_hash for entry in batch],
        "occurred_at": [entry.occurred_at for entry in batch],
        "known_at": [entry.known_at for entry in batch],
        "analysis_id": [entry.analysis_id for entry in batch],
        "subject_id": [entry.subject_id for entry in batch],
        "metric": [entry.metric for entry in batch],
        "target_at": [entry.target_at for entry in batch],
        "ref_hash": [entry.ref_hash for entry in batch],
        "importance": [entry.importance for entry in batch],
        "tier": [int(entry.tier) for entry in batch],
        "turns": [entry.turns.decode() if entry.turns is not None else None for entry in batch],
        "group_line": [number for number, entry in enumerate(batch, 1) for _ in entry.groups],
        "group": [group.name for entry in batch for group in entry.groups],
        "group_hash": [group.hash for entry in batch for group in entry.groups],
    }
