"""
Snapshots of debates: one fixed set of records for all participants, whatever they write later.

The writes of all participants are locked; their published items are flushed under the lock; the snapshot is read in one
repeatable-read transaction and stored; the locks are released. The journal is authoritative: without the graph, only
the degraded flag changes. A crash leaves locks that expire in seconds, and either the whole snapshot or none; the
debate's lifecycle row says which, and the next call continues from there. A pipeline takes the snapshots of debates
that have none (:meth:`Snapshots.take_due`).

The sides of a debate are actors: what their agent instances in its analysis have published is flushed; a side without
an instance has nothing to flush.

The snapshot is permanent: it cannot be updated or deleted. A copy in Valkey makes reading fast. Both are compared with
their hash on every read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import orjson
import structlog

from imem.cache import keys
from imem.cache.client import Client
from imem.cache.scripts import script
from imem.checkpoints.model import LONGEST_ID, checked_text, checked_uuid
from imem.journal.actors import Actor
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    BadInput,
    BudgetExceeded,
    ConsistencyError,
    ImemError,
    LeaseLost,
    PostgresUnavailable,
    TooLarge,
    TransitionRefused,
)
from imem.journal.events.ids import new_id
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, json, rows
from imem.journal.retry import ATTEMPTS, retry
from imem.kg.kinds.enums import ENDED_DEBATES, DebateState
from imem.sync.locks import LOCK_TTL, HeldLocks, WriteLocks, check
from imem.sync.members import SyncMember, members, members_of_owners, owners_of
from imem.sync.snapshot_contents import KINDS, ExcludedParticipant, FrozenSnapshot, freeze
from imem.sync.synchronizer import FORCE_MS, Synchronizer, SyncResult, SyncState

log = structlog.get_logger()

DEFER_BY: Final = timedelta(minutes=5)
"""How long a debate is deferred whose challenger or challenged cannot be synchronised."""

MOST_DEFERRALS: Final = 3
"""After so many deferrals a debate goes to level 3, to people."""

AT_A_TIME: Final = 50
"""Debates of which one round takes the snapshot, at most."""

COPY_TTL: Final = timedelta(hours=1)
"""Lifetime of the copy in Valkey after its last read."""

FREEZE_MS: Final = 1_000
"""Timeout of reading and storing a snapshot, in milliseconds."""

CONFIRM_MS: Final = 500.0
"""Timeout of Postgres while a copy is confirmed, in milliseconds."""

VISIBLE_MS: Final = 500.0
"""Timeout of waiting for the graph under the locks, in milliseconds: it decides only the degraded flag."""

LONGEST_REASON: Final = 500
"""Stored characters of why a side cannot be reached."""

RETRY_MS: Final = 1_000.0
"""Timeout of the second attempt to flush a side, in milliseconds."""

MOST_ROWS: Final = 20_000
"""Values of records in one snapshot, at most."""

_ARGUED: Final = frozenset({DebateState.INITIATED, DebateState.LEVEL1, DebateState.LEVEL2})
"""States in which agents argue and may restart from a new snapshot; later, people are shown what has changed."""

MOST_RESTARTS: Final = 1
"""How often a debate may restart with a new snapshot after its first became stale."""

_MS: Final = timedelta(milliseconds=1)
assert FORCE_MS + RETRY_MS + VISIBLE_MS + FREEZE_MS <= LOCK_TTL / _MS  # noqa: S101 - what is done under the locks fits into them


class SnapshotOutcome(StrEnum):
    """The outcome of taking a snapshot."""

    TAKEN = "taken"
    DEFERRED = "deferred"
    """Challenger or challenged could not be synchronised: try again later."""
    LEVEL3 = "level3"
    """The same for the fourth time: humans decide."""


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """
    The result of taking a snapshot, with its reasons.

    Attributes:
        debate_id: of the debate.
        outcome: the outcome.
        snapshot_id, sha256: the snapshot, where there is one.
        degraded: whether some of its events were not in the graph.
        excluded: participants that are left out.
        deferrals, deferred_until: number of deferrals, and until when.
        reason: why it was not taken.
    """

    debate_id: str
    outcome: SnapshotOutcome
    snapshot_id: UUID | None = None
    sha256: str | None = None
    degraded: bool = False
    excluded: tuple[ExcludedParticipant, ...] = ()
    deferrals: int = 0
    deferred_until: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """
    A verified snapshot.

    Attributes:
        snapshot_id, debate_id, analysis_id, topic: its identity and topic.
        participants, excluded: who argues from it, and who is left out.
        seqs: agent → its owner's last event, and the last one in the graph.
        body: its contents.
        sha256: of the stored body.
        degraded: whether some of its events were not in the graph.
        created_at, expires_at: when it was taken, and until when it is stored.
        stale_reason: why it is stale; None where it is not.
        confirmed: whether Postgres confirmed that just now; otherwise the copy was read alone: its hash is right, but
            it may be stale.
    """

    snapshot_id: UUID
    debate_id: str
    analysis_id: str
    topic: str
    participants: tuple[str, ...]
    excluded: tuple[ExcludedParticipant, ...]
    seqs: Mapping[str, Mapping[str, Any]]
    body: Mapping[str, Any]
    sha256: str
    degraded: bool
    created_at: datetime
    expires_at: datetime | None
    stale_reason: str | None
    confirmed: bool = True


class Snapshots:
    """
    Takes and reads snapshots.

    Args:
        database: where they are stored.
        synchronizer: flushes participants.
        durable: where copies are stored; None where there is no such server.
        locks: on participants' writes.
    """

    def __init__(
        self,
        database: Database,
        synchronizer: Synchronizer,
        durable: Client | None = None,
        locks: WriteLocks | None = None,
    ) -> None:
        self._database = database
        self._sync = synchronizer
        self._durable = durable
        self._locks = locks or WriteLocks(database)

    # Taking

    async def take(
        self,
        debate_id: str,
        participants: Collection[str] = (),
        topic: str | None = None,
        *,
        by: Actor | None = None,
        deadline_ms: float = FORCE_MS,
    ) -> SnapshotResult:
        """
        Take the snapshot of a debate: everything that its analysis has published, at one moment.

        A debate has one snapshot, which later calls return. If it becomes stale while agents argue, one new snapshot is
        taken. That second one, and one that humans decide from or a gate reviews, stays and has a stale reason.

        Args:
            participants: agent instances in addition to challenger and challenged.
            topic: of the debate; by default that of its row.
            by: who asks; the process' own actor by default.
            deadline_ms: timeout of waiting for locks, and of flushing, each.

        Raises:
            BadInput: there is no such debate, or a participant is unknown.
            TransitionRefused: the debate is closed.
            LeaseHeld: another snapshot held a participant's lock until the deadline; retryable.
            LeaseLost: the locks expired first; nothing was stored. Repeating the call is safe.
            PostgresUnavailable, BudgetExceeded, OutcomeUnknown: repeating the call is safe.
        """
        by = by if by is not None else self._sync.actor
        debate = await self._debate(debate_id, Deadline.after_ms(deadline_ms))
        standing = _existing_result(debate)
        if standing is not None:
            return standing
        debate = {**debate, "topic": topic if topic is not None else debate["topic"]}
        found, sides, taking_part = await self._members(debate, participants, Deadline.after_ms(deadline_ms))
        async with self._locks.held(owners_of(taking_part), deadline=Deadline.after_ms(deadline_ms)) as locked:
            flushed = await self._flush(found, sides, by, locked, deadline_ms)
            failed = {one: result for one, result in flushed.items() if result.state is SyncState.FAILED}
            if not sides.isdisjoint(failed):
                reason = "; ".join(f"{one}: {failed[one].reason}" for one in sorted(sides & failed.keys()))
                return await self._put_off(debate, reason, by)
            excluded = [ExcludedParticipant(one, result.reason or "") for one, result in sorted(failed.items())]
            await self._sync.visible(taking_part, deadline=Deadline.after_ms(VISIBLE_MS))
            snapshot_id, frozen = await self._freeze(debate, taking_part, excluded, locked, by)
        await self._copy(snapshot_id, frozen.sha256, frozen.body)
        return SnapshotResult(
            debate_id,
            SnapshotOutcome.TAKEN,
            snapshot_id,
            frozen.sha256,
            frozen.degraded,
            tuple(excluded),
            _deferrals(debate),
        )

    async def take_due(self, *, deadline: Deadline) -> int:
        """
        Take the snapshots of open debates that have none, or whose snapshot became stale while agents argue.

        Return how many were taken. One that cannot be taken now is tried again in the next round.

        Raises:
            PostgresUnavailable, BudgetExceeded: the debates could not be read.
        """
        asked = {"limit": AT_A_TIME, "argued": sorted(_ARGUED), "restarts": MOST_RESTARTS}
        taken = 0
        for row in await self._database.named("debates_without_snapshot", asked, deadline=deadline):
            if deadline.passed:
                break
            try:
                result = await self.take(row["debate_id"])
            except ImemError as error:
                log.warning("snapshot.not_taken", debate_id=row["debate_id"], reason=str(error))
                if not error.retryable and not isinstance(error, TransitionRefused):
                    # It would fail alike in each round, as where there are too many records.
                    debate = await self._debate(row["debate_id"], Deadline.after_ms(FREEZE_MS))
                    await self._put_off(debate, error.message, self._sync.actor)
            else:
                taken += result.outcome is SnapshotOutcome.TAKEN
        return taken

    async def _debate(self, debate_id: str, deadline: Deadline) -> Row:
        checked_text("debate_id", debate_id, LONGEST_ID)
        found = await self._database.named("debate_snapshot_row", {"debate_id": debate_id}, deadline=deadline)
        if not found:
            raise BadInput("debate_id", f"there is no debate {debate_id!r:.200}.")
        return found[0]

    async def _members(
        self, debate: Row, participants: Collection[str], deadline: Deadline
    ) -> tuple[list[SyncMember], set[str], list[SyncMember]]:
        """Return who is flushed, which of these are of the two sides, and who takes part, by id."""
        owners = {debate["challenger"], debate["challenged"]}
        its = await members_of_owners(self._database, debate["analysis_id"], owners, deadline=deadline)
        more: list[SyncMember] = []
        if participants:
            more = await members(self._database, participants, field="participants", deadline=deadline)
        found = list({one.agent_id: one for one in (*its, *more)}.values())
        absent = [SyncMember(owner, owner, debate["analysis_id"], "") for owner in owners - set(owners_of(its))]
        taking_part = sorted([*found, *absent], key=lambda one: one.agent_id)
        return found, {one.agent_id for one in its}, taking_part

    async def _flush(
        self,
        found: Sequence[SyncMember],
        sides: Collection[str],
        by: Actor | None,
        locked: HeldLocks,
        budget_ms: float,
    ) -> dict[str, SyncResult]:
        """Flush all participants, and once more a side that failed."""
        due = Deadline.after_ms(budget_ms)
        flushed = await self._sync.flush(found, by=by, epochs=locked.epochs, deadline=due)
        again = [one for one in found if one.agent_id in sides and flushed[one.agent_id].state is SyncState.FAILED]
        if again:
            due = Deadline.after_ms(min(budget_ms, RETRY_MS))
            flushed |= await self._sync.flush(again, by=by, epochs=locked.epochs, deadline=due)
        return flushed

    async def _put_off(self, debate: Row, reason: str, by: Actor) -> SnapshotResult:
        """Defer the debate, or give it to people."""
        debate_id, deferrals = debate["debate_id"], _deferrals(debate)
        before = debate["stored"]
        last = deferrals >= MOST_DEFERRALS
        until = debate["now"] + DEFER_BY
        after = (
            {"unreachable": reason[:LONGEST_REASON]} if last else {"deferrals": deferrals + 1, "deferred_until": until}
        )
        due = Deadline.after_ms(FREEZE_MS)
        given = _change(debate_id, before, {**(before or {}), **after}, by, reason[:LONGEST_REASON])
        if not await self._database.commit("debate_snapshot_set", given, deadline=due):
            # A concurrent call was faster.
            now = await self._debate(debate_id, due)
            return _existing_result(now) or _deferred(now)
        if last:
            log.warning("debate.escalated", debate_id=debate_id, reason=reason)
            return SnapshotResult(debate_id, SnapshotOutcome.LEVEL3, deferrals=deferrals, reason=reason)
        log.warning("debate.deferred", debate_id=debate_id, times=deferrals + 1, reason=reason)
        return SnapshotResult(
            debate_id, SnapshotOutcome.DEFERRED, deferrals=deferrals + 1, deferred_until=until, reason=reason
        )

    async def _freeze(
        self,
        debate: Row,
        found: Sequence[SyncMember],
        excluded: Sequence[ExcludedParticipant],
        locked: HeldLocks,
        by: Actor,
    ) -> tuple[UUID, FrozenSnapshot]:
        due = Deadline.after_ms(FREEZE_MS)
        return await retry(
            lambda: self._frozen(debate, found, excluded, locked, by=by, due=due),
            deadline=due,
            # Includes serialization failures. Nothing was stored.
            errors=PostgresUnavailable,
            attempts=ATTEMPTS,
        )

    async def _frozen(
        self,
        debate: Row,
        found: Sequence[SyncMember],
        excluded: Sequence[ExcludedParticipant],
        locked: HeldLocks,
        *,
        by: Actor,
        due: Deadline,
    ) -> tuple[UUID, FrozenSnapshot]:
        snapshot_id, debate_id = new_id(), debate["debate_id"]
        left_out = {one.agent_id for one in excluded}
        async with self._database.transaction(due) as conn:
            await execute(conn, "repeatable_read")
            await check(conn, locked)
            moment = (await rows(conn, "snapshot_moment"))[0]
            asked = {"analysis_id": debate["analysis_id"], "debate_id": debate_id, "kinds": list(KINDS)}
            values = await rows(conn, "snapshot_records", {**asked, "limit": MOST_ROWS + 1})
            if len(values) > MOST_ROWS:
                raise TooLarge("debate_id", f"its analysis has published more than {MOST_ROWS:,} values.")
            cited = await rows(conn, "snapshot_citations", {"keys": sorted({row["key"] for row in values})})
            lags = await rows(conn, "writers_lag", {"actors": owners_of(found)})
            frozen = freeze(
                snapshot_id,
                debate,
                found,
                excluded,
                at=moment["at"],
                upto=moment["upto"],
                rows=values,
                citations=cited,
                lags=lags,
            )
            await execute(
                conn,
                "snapshot_insert",
                {
                    "snapshot_id": snapshot_id,
                    "debate_id": debate_id,
                    "participants": [one.agent_id for one in found if one.agent_id not in left_out],
                    "excluded": json(excluded),
                    "seqs": json(frozen.seqs),
                    "manifest": json(frozen.manifest),
                    "body": frozen.body.decode(),
                    "sha256": frozen.sha256,
                    "degraded": frozen.degraded,
                    "at": moment["at"],
                },
            )
            after = {"id": str(snapshot_id), "deferrals": _deferrals(debate)}
            given = _change(debate_id, debate["stored"], after, by, f"It has the hash {frozen.sha256}.")
            if not await rows(conn, "debate_snapshot_set", given):
                raise LeaseLost("Another process took this debate's snapshot meanwhile, or the debate was closed.")
        return snapshot_id, frozen

    # Reading

    async def read(self, snapshot_id: UUID | str, *, deadline: Deadline) -> MemorySnapshot:
        """
        Return a snapshot, compared with its hash.

        Reads the copy where there is one and confirms it by the row in Postgres; without Postgres the copy alone is
        used.

        Raises:
            BadInput: there is no such snapshot.
            ConsistencyError: the stored body does not have its hash: it must not be used.
            PostgresUnavailable, BudgetExceeded: Postgres cannot be read, and there is no copy; retryable.
        """
        which = checked_uuid("snapshot_id", snapshot_id)
        sha256, body = await self._copied(which, deadline)
        # With a copy, Postgres gets only a part of the time.
        by = deadline if body is None else deadline.within_ms(min(CONFIRM_MS, deadline.left_ms() / 2))
        try:
            found = await self._database.named("snapshot_head", {"snapshot_id": which}, deadline=by)
        except (PostgresUnavailable, BudgetExceeded):
            if sha256 is None or body is None:
                raise
            return _unconfirmed(which, sha256, body)
        if not found:
            raise BadInput("snapshot_id", f"there is no snapshot {which}.")
        head = found[0]
        if body is None or sha256 != head["sha256"]:
            stored = await self._database.named("snapshot_body", {"snapshot_id": which}, deadline=deadline)
            body = stored[0]["body"].encode()
            if hashlib.sha256(body).hexdigest() != head["sha256"]:
                raise ConsistencyError(
                    f"The snapshot {which} is not what its hash says.", mend="Do not use it; take another one."
                )
            if not head["closed"]:
                await self._copy(which, head["sha256"], body)
        return _snapshot(head, body)

    async def _copy(self, snapshot_id: UUID, sha256: str, body: bytes) -> None:
        """Store a copy; errors are logged: reading is only slower without it."""
        if self._durable is None:
            return
        arguments = (int(COPY_TTL / _MS), sha256, body)
        try:
            await self._durable.run(
                script("put_memory_snapshot"),
                (keys.memory_snapshot(snapshot_id),),
                arguments,
                deadline=Deadline.after_ms(FREEZE_MS),
            )
        except ImemError as error:
            log.warning("snapshot.not_copied", snapshot_id=str(snapshot_id), reason=str(error))

    async def _copied(self, snapshot_id: UUID, deadline: Deadline) -> tuple[str | None, bytes | None]:
        """Return the copy with its hash; None where there is none or its hash differs."""
        if self._durable is None:
            return None, None
        try:
            sha256, body = await self._durable.run(
                script("get_memory_snapshot"),
                (keys.memory_snapshot(snapshot_id),),
                (int(COPY_TTL / _MS),),
                deadline=deadline.within_ms(min(FREEZE_MS, deadline.left_ms() / 2)),
            )
        except ImemError as error:
            log.warning("snapshot.no_copy", snapshot_id=str(snapshot_id), reason=str(error))
            return None, None
        if sha256 is None or body is None:
            return None, None
        if hashlib.sha256(body).hexdigest().encode("ascii") != sha256:
            log.error("snapshot.damaged_copy", snapshot_id=str(snapshot_id))
            return None, None
        return sha256.decode("ascii"), bytes(body)


def _deferrals(debate: Row) -> int:
    return int((debate["stored"] or {}).get("deferrals", 0))


def _change(debate_id: str, before: Any, after: Mapping[str, Any], by: Actor, reason: str) -> dict[str, Any]:
    return {
        "debate_id": debate_id, "before": None if before is None else json(before), "snapshot": json(after),
        "actor": by.id, "role": by.role.value, "reason": reason, "context": context_of(by),
    }  # fmt: skip


def _existing_result(debate: Row) -> SnapshotResult | None:
    """Return the result of a debate for which no snapshot is to be taken, or None."""
    if debate["state"] in ENDED_DEBATES:
        raise TransitionRefused(f"The debate {debate['debate_id']} has ended.", mend="Open another one.")
    anew = debate["stale"] is not None and debate["state"] in _ARGUED and debate["snapshots"] <= MOST_RESTARTS
    if debate["snapshot_id"] is not None and not anew:
        return SnapshotResult(
            debate["debate_id"],
            SnapshotOutcome.TAKEN,
            debate["snapshot_id"],
            debate["sha256"],
            debate["degraded"],
            tuple(ExcludedParticipant(**one) for one in debate["excluded"]),
            _deferrals(debate),
        )
    unreachable = (debate["stored"] or {}).get("unreachable")
    if unreachable is not None:
        return SnapshotResult(
            debate["debate_id"], SnapshotOutcome.LEVEL3, deferrals=_deferrals(debate), reason=unreachable
        )
    return _deferred(debate) if debate["deferred"] else None


def _deferred(debate: Row) -> SnapshotResult:
    until = (debate["stored"] or {}).get("deferred_until")
    return SnapshotResult(
        debate["debate_id"],
        SnapshotOutcome.DEFERRED,
        deferrals=_deferrals(debate),
        deferred_until=None if until is None else datetime.fromisoformat(until),
        reason="It is put off.",
    )


def _snapshot(head: Row, body: bytes) -> MemorySnapshot:
    names = ("snapshot_id", "debate_id", "analysis_id", "seqs", "sha256", "degraded", "created_at", "expires_at")
    content = orjson.loads(body)
    return MemorySnapshot(
        **{name: head[name] for name in names},
        topic=content["topic"],
        participants=tuple(head["participants"]),
        excluded=tuple(ExcludedParticipant(**one) for one in head["excluded"]),
        body=content,
        stale_reason=head["stale_reason"],
    )


def _unconfirmed(snapshot_id: UUID, sha256: str, body: bytes) -> MemorySnapshot:
    content = orjson.loads(body)
    return MemorySnapshot(
        snapshot_id,
        content["debate_id"],
        content["analysis_id"],
        content["topic"],
        tuple(content["participants"]),
        tuple(ExcludedParticipant(**one) for one in content["excluded"]),
        content["seqs"],
        content,
        sha256,
        degraded=bool(content["not_in_graph"]),
        created_at=datetime.fromisoformat(content["as_of"]),
        expires_at=None,
        stale_reason=None,
        confirmed=False,
    )
