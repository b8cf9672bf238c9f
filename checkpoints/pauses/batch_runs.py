"""
Batches over rows: requesting many pauses or resumes, and launching them a few at a time.

A batch is its row and one row for each analysis. The launching process holds the lock of the batch's row, counts the
running members, and launches as many as there are free slots. Each launch is a request of its own, in the same
transaction as the member's new state, so that a crash leaves neither without the other. The result of a launched member
is written by the transaction that produces it (:mod:`imem.checkpoints.pauses.transitions`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psutil
import structlog

from imem.checkpoints.incidents.reports import member_of
from imem.checkpoints.model import checked_uuid
from imem.checkpoints.pauses import transitions
from imem.checkpoints.pauses.batches import (
    CONCURRENCY,
    LARGEST,
    BatchMemberState,
    BatchStatus,
    ordered,
    room,
    status_of,
)
from imem.checkpoints.pauses.lifecycle import AUTO_RESUMES, PauseStatus, Trigger
from imem.checkpoints.pauses.pause_service import PauseService
from imem.checkpoints.pauses.plan import Graph
from imem.checkpoints.pauses.rows import (
    Pause,
    audit,
    checked_reason,
    insert_batch,
    lock_analysis,
    open_pause,
    pause_of,
)
from imem.checkpoints.pauses.saga import Saga
from imem.checkpoints.pauses.transitions import PauseCause
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    UNANSWERED,
    BadInput,
    TransitionRefused,
)
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import as_json, execute, rows
from imem.journal.settings import Role

log = structlog.get_logger()

MOST_PARALLEL: Final = 100
"""Highest concurrency limit of a batch."""

LATE_MS: Final = 1_000.0
"""Timeout of reading a batch's state after the caller's deadline was used up, in milliseconds."""

SPARE_CONNECTIONS: Final = 5
"""Connections of the server that a resume leaves free."""

SPARE_MEMORY: Final = 0.05
"""Fraction of the machine's memory that must be free for a resume."""

BUSIEST: Final = 4.0
"""Load average of the last minute per processor beyond which no resume is launched."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """
    The state of a batch.

    Attributes:
        batch_id, name, operation, status: of the batch.
        total, paused, resumed, failed: counts of analyses.
        queued, running: members that are not launched yet, and members that are being paused or resumed.
        concurrency_limit: most members at a time.
        held_back: which resource was short at the last launch; None if none was.
        created_at, completed_at: begin and end.
        members: analysis → its state, and its error.
    """

    batch_id: UUID
    name: str
    operation: str
    status: BatchStatus
    total: int
    paused: int
    resumed: int
    failed: int
    queued: int
    running: int
    concurrency_limit: int
    held_back: str | None
    created_at: datetime
    completed_at: datetime | None
    members: Mapping[str, tuple[BatchMemberState, str | None]]

    @property
    def done(self) -> int:
        """Number of members that are finished, successfully or not."""
        return self.paused + self.resumed + self.failed

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        members = {name: {"state": state, "trouble": trouble} for name, (state, trouble) in self.members.items()}
        found = {name: getattr(self, name) for name in self.__slots__}
        return as_json({**found, "members": members})


class Capacity:
    """Capacity of this machine and its Postgres: quotas, processors, memory, connections."""

    async def short_of(self, conn: Connection) -> str | None:
        """Return what is short: a quota that failures report as used up, processors, memory, or connections."""
        found = (await rows(conn, "capacity"))[0]
        if found["quota_used_up"]:
            return "a quota is used up; say when it is not with `imem resume --cause`"
        if found["connections"] < SPARE_CONNECTIONS:
            return f"Postgres has {found['connections']} connections left"
        if os.getloadavg()[0] > BUSIEST * (os.cpu_count() or 1):
            return "the machine's processors are busy"
        memory = psutil.virtual_memory()
        if memory.available < SPARE_MEMORY * memory.total:
            return "the machine's memory is full"
        return None


class BatchRuns:
    """
    Pauses and resumes many analyses.

    Args:
        database: the rows.
        pauses: resolves names.
        graph: agent type → the types that it waits for.
        driver: carries out launched members.
        capacity: decides whether one more resume may start.
    """

    def __init__(
        self,
        database: Database,
        pauses: PauseService,
        graph: Graph,
        driver: Saga,
        capacity: Capacity | None = None,
    ) -> None:
        self._database = database
        self._pauses = pauses
        self._graph = graph
        self._driver = driver
        self._capacity = capacity or Capacity()

    # Requests

    async def pause_batch(
        self,
        what: Sequence[str],
        reason: str,
        max_concurrency: int = CONCURRENCY,
        *,
        name: str | None = None,
        by: Actor,
        deadline: Deadline,
    ) -> BatchState:
        """
        Pause analyses, each named by its id or its stock.

        Raises:
            BadInput: nothing is named, too much, one twice, or one has no running analysis. Nothing was changed.
        """
        reason = checked_reason(reason)
        limit = _limit("max_concurrency", max_concurrency)
        names = await self._meant(what, paused=False, deadline=deadline)
        async with self._database.transaction(deadline) as conn:
            found = {row["analysis_id"]: row for row in await rows(conn, "analyses_named", {"names": names})}
            members = [(one, found[one]["subject_id"], None) for one in names]
            batch_id = await _written(conn, "pause", name=name, reason=reason, limit=limit, members=members, by=by)
        await self.carry_out(batch_id, deadline)
        return await self._state(batch_id, deadline)

    async def resume_batch(
        self,
        what: Sequence[str],
        concurrency_limit: int = CONCURRENCY,
        *,
        name: str | None = None,
        by: Actor,
        deadline: Deadline,
    ) -> BatchState:
        """
        Resume paused analyses, each named by its id or its stock: gate timeouts first, automatic pauses, then manual.

        Raises:
            BadInput: nothing is named, too much, one twice. Nothing was changed.
            TransitionRefused: one is not paused. Nothing was changed.
        """
        limit = _limit("concurrency_limit", concurrency_limit)
        names = await self._meant(what, paused=True, deadline=deadline)
        async with self._database.transaction(deadline) as conn:
            found = [pause_of(row) for row in await rows(conn, "pauses_named", {"names": names})]
            missing = sorted(set(names) - {pause.analysis_id for pause in found})
            if missing:
                raise TransitionRefused(f"{missing[0]!r} is not paused.", mend="`imem pauses` lists the pauses.")
            batch_id = await _written(
                conn, "resume", name=name, reason="Resumed together.", limit=limit, members=_in_order(found), by=by
            )
        await self.carry_out(batch_id, deadline)
        return await self._state(batch_id, deadline)

    async def resume_resolved(self, *, deadline: Deadline) -> UUID | None:
        """
        Resume every pause whose causes are external and resolved; return the batch, or None where there is none.

        A pause that was resumed automatically three times is left to a human; one alert is raised.
        """
        async with self._database.transaction(deadline) as conn:
            await rows(conn, "resolve_lock")
            found = [pause_of(row) for row in await rows(conn, "pauses_resolved", {"limit": LARGEST})]
            able = [pause for pause in found if pause.auto_resume_attempts < AUTO_RESUMES]
            batch_id = None
            if able:
                batch_id = await _written(
                    conn, "resume", name="causes resolved", reason="A cause outside is over.", limit=CONCURRENCY,
                    members=_in_order(able), by=None,
                )  # fmt: skip
            for pause in found:
                if pause.auto_resume_attempts >= AUTO_RESUMES:
                    await transitions.needs_person(conn, pause)
        return batch_id

    async def _meant(self, what: Sequence[str], *, paused: bool, deadline: Deadline) -> list[str]:
        if isinstance(what, str):
            raise BadInput("analyses", "is a list of analyses or stocks.")
        if not what:
            raise BadInput("analyses", "names nothing.")
        if len(what) > LARGEST:
            raise BadInput("analyses", f"names more than {LARGEST:,}.")
        names: list[str] = []
        for number, one in enumerate(what):
            names.append(await self._pauses.resolve(one, paused=paused, deadline=deadline))
            if names[-1] in names[:-1]:
                raise BadInput(f"analyses.{number}", f"{one!r} stands there twice.")
        return names

    async def _state(self, batch_id: UUID, deadline: Deadline) -> BatchState:
        """Return the state of a requested batch, after the deadline if need be."""
        late = deadline.left_ms() < LATE_MS
        return await self.get_batch_status(batch_id, deadline=Deadline.after_ms(LATE_MS) if late else deadline)

    # Reading

    async def get_batch_status(self, batch_id: UUID | str, *, deadline: Deadline) -> BatchState:
        """
        Return the state of a batch.

        Raises:
            BadInput: there is no such batch.
        """
        values = {"id": checked_uuid("batch_id", batch_id)}
        found = await self._database.named("batch_by_id", values, deadline=deadline)
        if not found:
            raise BadInput("batch_id", f"there is no batch {batch_id}.")
        members = await self._database.named("batch_members", {"batch_id": values["id"]}, deadline=deadline)
        return _state(found[0], members)

    async def batches(self, *, limit: int = 50, deadline: Deadline) -> list[BatchState]:
        """Return the newest batches, without their members."""
        return [
            _state(row, ()) for row in await self._database.named("batches_listed", {"limit": limit}, deadline=deadline)
        ]

    # Launching

    async def launch(self, batch_id: UUID, *, deadline: Deadline) -> list[str]:
        """
        Launch members of a batch while slots are free, update its status, and return the running ones.

        Does nothing while another manager holds the batch's row.
        """
        while True:
            async with self._database.transaction(deadline) as conn:
                found = await rows(conn, "batch_claim", {"id": batch_id})
                if not found:
                    return []
                launched = await self._launch_one(conn, found[0])
                members = await rows(conn, "batch_members", {"batch_id": batch_id})
            # One transaction each: the alert has to be its last step.
            if not launched:
                return [one["analysis_id"] for one in members if one["state"] == BatchMemberState.RUNNING]

    async def _launch_one(self, conn: Connection, batch: Row) -> bool:
        """Launch the next member if a slot is free; update the batch's status; return whether one was launched."""
        batch_id = batch["id"]
        await self._taken_in(conn, batch, await rows(conn, "batch_members", {"batch_id": batch_id}))
        members = await rows(conn, "batch_members", {"batch_id": batch_id})
        waiting = [one for one in members if one["state"] == BatchMemberState.QUEUED and _able(batch, one)]
        free = bool(waiting) and room(_states(members), limit=batch["concurrency_limit"]) > 0
        short = await self._capacity.short_of(conn) if free and batch["operation"] == "resume" else None
        tried = waiting[0] if free and not short else None
        states = [_states([one])[0] if one is not tried else BatchMemberState.RUNNING for one in members]
        # Counted before the launch, as if it succeeded: the request ends with an alert. The next round corrects it.
        await execute(conn, "batch_count", {"id": batch_id, "held_back": short, "status": status_of(states).value})
        return tried is not None and await self._launch(conn, batch, tried)

    async def _taken_in(self, conn: Connection, batch: Row, members: Sequence[Row]) -> None:
        """Update members that changed outside the batch: paused or resumed by another request, or removed."""
        left = [one for one in members if one["state"] in {BatchMemberState.QUEUED, BatchMemberState.RUNNING}]
        found = await rows(conn, "pauses_named", {"names": [one["analysis_id"] for one in left]}) if left else []
        pauses = {pause["analysis_id"]: pause for pause in found}
        for one in left:
            became = _member_change(batch["operation"], one, pauses.get(one["analysis_id"]))
            if became is None:
                continue
            state, trouble, pause_id = became
            if (state.value, pause_id) != (one["state"], one["pause_id"]):
                await _set(conn, one, state, trouble=trouble, pause_id=pause_id)

    async def _launch(self, conn: Connection, batch: Row, one: Row) -> bool:
        """Request the pause or resume of one member; a refusal marks it as failed, and the others go on."""
        order = self._pause if batch["operation"] == "pause" else self._resume
        try:
            async with conn.transaction():
                await _set(conn, one, BatchMemberState.RUNNING, pause_id=await order(conn, batch, one["analysis_id"]))
        except (TransitionRefused, BadInput) as error:
            gated = await rows(conn, "gate_waiting", {"analysis_id": one["analysis_id"]})
            if batch["automatic"] and batch["operation"] == "pause" and gated:
                # It is paused once the gate is answered; every other refusal is final.
                await _set(conn, one, BatchMemberState.QUEUED, trouble=str(error))
                return False
            await _set(conn, one, BatchMemberState.FAILED, trouble=str(error))
        return True

    async def _pause(self, conn: Connection, batch: Row, analysis_id: str) -> UUID:
        correlated = bool(batch["automatic"])
        cause = PauseCause(
            trigger=Trigger.AUTO_BATCH_CORRELATION if correlated else Trigger.MANUAL,
            reason=batch["pause_reason"],
            by=None if correlated else _person(batch),
            batch_id=batch["id"],
        )
        pause, _ = await transitions.begin(conn, await lock_analysis(conn, analysis_id), cause)
        return pause.id

    async def _resume(self, conn: Connection, batch: Row, analysis_id: str) -> UUID:
        analysis = await lock_analysis(conn, analysis_id)
        pause = await open_pause(conn, analysis_id)
        if pause is None:
            raise TransitionRefused(f"{analysis_id!r} is not paused.")
        by = None if batch["automatic"] else _person(batch)
        await transitions.order_resume(conn, analysis, pause, graph=self._graph, by=by, automatic=batch["automatic"])
        return pause.id

    async def carry_out(self, batch_id: UUID, deadline: Deadline) -> None:
        """Launch and carry out members until the deadline; the manager does the rest."""
        try:
            while not deadline.passed:
                running = await self.launch(batch_id, deadline=deadline)
                if not running:
                    return
                before = asyncio.get_running_loop().time()
                await asyncio.gather(*(self._driver.drive(name, until=deadline.within_ms(1_000)) for name in running))
                if asyncio.get_running_loop().time() - before < 0.05:
                    await asyncio.sleep(min(0.05, deadline.left_s()))
        except UNANSWERED as error:
            log.warning("batch_left_to_manager", batch_id=str(batch_id), error=error.message)


def _able(batch: Row, one: Row) -> bool:
    """Return whether a queued member can be launched: not while another request resumes or pauses it."""
    busy = {PauseStatus.RESUMING.value, PauseStatus.PAUSING.value}
    return batch["operation"] == "pause" or one["pause_status"] not in busy


def _person(batch: Row) -> Actor:
    """Return the actor that requested a batch, as far as its row says."""
    return Actor(batch["created_by"], Role.HUMAN_ADMIN)


_MemberChange = tuple[BatchMemberState, str | None, UUID | None]
"""A member's state, error and pause."""


def _member_change(operation: str, one: Row, pause: Row | None) -> _MemberChange | None:
    """Return a member's change outside the batch, given its analysis' open pause; None where there is none."""
    if operation == "pause":
        if pause is not None:
            return member_of(pause["status"]), None, pause["id"]
        if one["state"] == BatchMemberState.RUNNING and one["pause_status"] in {None, PauseStatus.RESUMED.value}:
            # A resume was running when it joined: no other transaction records the result.
            return BatchMemberState.FAILED, "It was resumed meanwhile.", None
        return None
    if one["state"] == BatchMemberState.RUNNING:
        # The result of a launched member was written with it; without its pause, its analysis has failed.
        return (BatchMemberState.FAILED, None, None) if one["pause_id"] is None else None
    resumed = pause is None and one["pause_status"] == PauseStatus.RESUMED.value
    return (BatchMemberState.DONE, None, None) if resumed else None


async def _set(
    conn: Connection, one: Row, state: BatchMemberState, *, trouble: str | None = None, pause_id: UUID | None = None
) -> None:
    values = {"batch_id": one["batch_id"], "analysis_id": one["analysis_id"]}
    await execute(conn, "batch_member_set", {**values, "state": state.value, "trouble": trouble, "pause_id": pause_id})


async def _written(
    conn: Connection,
    operation: str,
    *,
    name: str | None,
    reason: str,
    limit: int,
    members: Collection[tuple[str, str, UUID | None]],
    by: Actor | None,
) -> UUID:
    batch_id = await insert_batch(
        conn, operation, name=name or f"{operation} {len(members)}", reason=reason, limit=limit, by=by,
        members=[(*one, BatchMemberState.QUEUED.value) for one in members],
    )  # fmt: skip
    stocks = [stock_id for _, stock_id, _ in members]
    await audit(conn, by, f"{operation}_batch", str(batch_id), reason, stock_ids=stocks)
    return batch_id


def _in_order(found: Sequence[Pause]) -> list[tuple[str, str, UUID | None]]:
    return [(pause.analysis_id, pause.stock_id, pause.id) for pause in ordered(found)]


def _limit(field: str, limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_PARALLEL:
        raise BadInput(field, f"is a whole number from 1 to {MOST_PARALLEL}.")
    return limit


def _states(members: Sequence[Row]) -> list[BatchMemberState]:
    return [BatchMemberState(one["state"]) for one in members]


def _state(row: Row, members: Sequence[Row]) -> BatchState:
    states = _states(members)
    done = states.count(BatchMemberState.DONE)
    pausing = row["operation"] == "pause"
    return BatchState(
        batch_id=row["id"],
        name=row["batch_name"],
        operation=row["operation"],
        status=BatchStatus(row["status"]),
        total=row["total_count"],
        # The row's own counts are of the last launch.
        paused=row["paused_count"] if not members else done * pausing,
        resumed=row["resumed_count"] if not members else done * (not pausing),
        failed=row["failed_count"] if not members else states.count(BatchMemberState.FAILED),
        queued=states.count(BatchMemberState.QUEUED),
        running=states.count(BatchMemberState.RUNNING),
        concurrency_limit=row["concurrency_limit"],
        held_back=row["held_back"],
        created_at=row["created_at"],
        completed_at=row["completed_at"],
        members={one["analysis_id"]: (BatchMemberState(one["state"]), one["trouble"]) for one in members},
    )
