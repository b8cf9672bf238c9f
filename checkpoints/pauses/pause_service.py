"""
Pause service: requests to pause and resume analyses, and their results.

A request is one transaction: it is stored with its audit row and its alert, or nothing has happened. A saga
(:mod:`imem.checkpoints.pauses.saga`) carries it out: the caller's process runs its steps until the deadline; the
manager (:mod:`imem.checkpoints.pauses.manager`) does the rest, also when the caller is killed.

Authorisation is left to the callers (:mod:`imem.services.pauses`); ``by`` is the authorised human, and None is the
system.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from imem.checkpoints.model import checked_uuid
from imem.checkpoints.pauses import timers, transitions
from imem.checkpoints.pauses.lifecycle import FailureClass, Gate, PauseStatus, Trigger
from imem.checkpoints.pauses.plan import Graph, Plan, plan_of
from imem.checkpoints.pauses.rows import (
    Pause,
    archived_pause_of,
    audit,
    checked_id,
    checked_reason,
    lock_analysis,
    open_pause,
    pause_of,
    single_match,
)
from imem.checkpoints.pauses.saga import Saga
from imem.checkpoints.pauses.transitions import PauseCause
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    UNANSWERED,
    BadInput,
    BudgetExceeded,
    StoreUnavailable,
    TransitionRefused,
)
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import as_json, rows

_GATES: Final = {Trigger.GATE_TIMEOUT: Gate.TIMED_OUT, Trigger.GATE_REJECTION: Gate.SOFT_REJECTED}

LISTED: Final = 200
"""Pauses of one listing at most."""


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of a request about a pause."""

    pause: Pause

    @property
    def pause_id(self) -> UUID:
        """The id of the pause."""
        return self.pause.id

    @property
    def status(self) -> PauseStatus:
        """The status of the pause."""
        return self.pause.status


@dataclass(frozen=True, slots=True)
class PauseResult(_Result):
    """
    The result of a request to pause.

    Attributes:
        pause: its current state; ``PAUSED`` when all agents are stopped and verified, ``PAUSING`` while the saga runs.
        new: whether this request began it; False where it joined one that was being paused.
    """

    new: bool


@dataclass(frozen=True, slots=True)
class ResumeResult(_Result):
    """
    The result of a request to resume.

    Attributes:
        pause: its current state; ``RESUMED`` when the analysis runs, ``RESUMING`` while the saga runs.
        plan: the action of each agent.
        trouble: why it is paused again, where it is.
    """

    plan: Plan
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedFailure:
    """
    A recorded failure that causes a pause.

    Attributes:
        agent_type, kind, message: of the failure.
        pattern, signature: for correlation; the signature names the cause when it is resolved.
        external: whether the cause is external.
        failed_at: when it was reported.
    """

    agent_type: str
    kind: str
    message: str
    pattern: str
    signature: str
    external: bool
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class PauseState:
    """
    The pause state of an analysis.

    Attributes:
        analysis_id, stock_id: of the analysis.
        status: of its pause; None while it runs, or after it ended without one.
        outcome: how the analysis ended; None before.
        pause: the open pause, or else the newest one; None if it never was paused.
        failures: of that pause, oldest first.
    """

    analysis_id: str
    stock_id: str
    status: PauseStatus | None
    outcome: str | None
    pause: Pause | None
    failures: tuple[RecordedFailure, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        status = self.status.value if self.status is not None else (self.outcome or "RUNNING")
        pause = self.pause.to_dict() if self.pause is not None else None
        return as_json({"analysis_id": self.analysis_id, "stock_id": self.stock_id, "status": status, "pause": pause,
                        "failures": self.failures})  # fmt: skip


class PauseService:
    """
    Requests to pause and resume. *what* names an analysis, by its id or its stock.

    Args:
        database: the rows.
        graph: agent type → the types that it waits for.
        driver: carries requests out.
    """

    def __init__(self, database: Database, graph: Graph, driver: Saga) -> None:
        self._database = database
        self._graph = graph
        self._driver = driver

    # Pausing

    async def pause_analysis(
        self,
        what: str,
        reason: str,
        checkpoint_id: UUID | str | None = None,
        trigger_source: Trigger | str = Trigger.MANUAL,
        *,
        by: Actor | None = None,
        pause_id: UUID | str | None = None,
        deadline: Deadline,
    ) -> PauseResult:
        """
        Pause an analysis.

        Args:
            reason: why, in words.
            checkpoint_id: the checkpoint to show; by default the newest.
            trigger_source: ``MANUAL`` for a human; the observed cause for the system.
            by: the requesting human.
            pause_id: chosen by the caller; makes the request idempotent.

        Raises:
            BadInput: *what* names no running analysis, or several; or a field is invalid. Nothing was changed.
            TransitionRefused: it is paused already, has ended, or one of its gates waits for a human.
        """
        trigger = _trigger(trigger_source)
        cause = PauseCause(
            trigger=trigger,
            reason=checked_reason(reason),
            by=by,
            # The system's observation of a failure or gate is not checked again; a human's request is manual.
            failure_class=FailureClass.PAUSE if by is None and trigger is Trigger.AUTO_TIER2 else None,
            gate=_GATES.get(trigger) if by is None else None,
            pause_id=checked_uuid("pause_id", pause_id) if pause_id is not None else None,
            checkpoint_id=checked_uuid("checkpoint_id", checkpoint_id) if checkpoint_id is not None else None,
        )
        name = await self.resolve(what, paused=False, deadline=deadline)
        async with self._database.transaction(deadline) as conn:
            pause, new = await transitions.begin(conn, await lock_analysis(conn, name), cause)
        await self._drive(name, deadline)
        return PauseResult(await self._now(pause, deadline), new)

    async def resolve(self, what: str, *, paused: bool, deadline: Deadline) -> str:
        """
        Return the analysis that *what* names, which is its id or its stock.

        Args:
            paused: whether to find the paused analysis of a stock, instead of its running one.

        Raises:
            BadInput: there is none, or there are several.
            TransitionRefused: nothing of that name is paused.
        """
        checked_id("analysis", what)
        found = await self._database.named("analyses_matching", {"name": what}, deadline=deadline)
        if found and found[0]["exact"]:
            return what
        if not paused:
            return single_match(found, what, "running analysis")
        found = await self._database.named("pauses_matching", {"name": what}, deadline=deadline)
        if not found:
            raise _not_paused(what)
        return single_match(found, what, "pause")

    # Resuming

    async def resume_analysis(
        self,
        what: str,
        resume_plan: Plan | Mapping[str, Any] | None = None,
        notify: bool = True,  # noqa: FBT001, FBT002 - the specification's signature
        *,
        by: Actor | None,
        deadline: Deadline,
    ) -> ResumeResult:
        """
        Resume a paused analysis by the default plan, or by a given one that the default one completes.

        Nothing starts before the memory of every agent that restarts is verified.

        Args:
            notify: whether to raise an alert when it runs.

        Raises:
            TransitionRefused: it is not paused, or is being resumed already.
            BadInput: the plan is invalid; names the field. Nothing was changed.
        """
        given = resume_plan if isinstance(resume_plan, Plan) or resume_plan is None else plan_of(resume_plan)
        name = await self.resolve(what, paused=True, deadline=deadline)
        async with self._database.transaction(deadline) as conn:
            analysis = await lock_analysis(conn, name)
            pause = await _open(conn, name)
            pause = await transitions.order_resume(
                conn, analysis, pause, graph=self._graph, given=given, by=by, notify=bool(notify)
            )
        await self._drive(name, deadline)
        now = await self._now(pause, deadline)
        return ResumeResult(now, pause.plan, now.last_trouble if now.status is not PauseStatus.RESUMED else None)

    # Extending, cancelling

    async def extend(self, what: str, until: datetime, reason: str, *, by: Actor | None, deadline: Deadline) -> Pause:
        """
        Extend a pause, once, to at most 30 days after it began; its memories live as long.

        Raises:
            BadInput: naming ``until`` or ``reason``.
            TransitionRefused: it is not paused, or is stale already.
        """
        reason = checked_reason(reason)
        name = await self.resolve(what, paused=True, deadline=deadline)
        async with self._database.transaction(deadline) as conn:
            await lock_analysis(conn, name)
            pause = await _open(conn, name)
            if pause.status is not PauseStatus.PAUSED:
                raise TransitionRefused(
                    f"A pause that is {pause.status.value} cannot be extended.",
                    mend="Only a pause that is PAUSED can be.",
                )
            now = (await rows(conn, "pause_now"))[0]["now"]
            timers.check_extension(pause.paused_at, pause.extended_until, until, now=now)
            values = {"id": pause.id, "until": until.astimezone(UTC), "reason": reason}
            pause = pause_of((await rows(conn, "pause_extend", values))[0])
            await transitions.set_timers(conn, pause, "timers_put_off")
            await audit(conn, by, "extend", name, reason, pause_id=str(pause.id), until=until.isoformat())
        await self._later(self._driver.keep(name, deadline=deadline))
        return pause

    async def cancel(self, what: str, reason: str, *, by: Actor, deadline: Deadline) -> str:
        """
        Cancel a paused analysis: its pause expires now, and the analysis fails. Return its id.

        Raises:
            TransitionRefused: it is not paused.
        """
        reason = checked_reason(reason)
        name = await self.resolve(what, paused=True, deadline=deadline)
        async with self._database.transaction(deadline) as conn:
            await lock_analysis(conn, name)
            pause = await _open(conn, name)
            agents = await fenced(conn, pause)
            now = (await rows(conn, "pause_now"))[0]["now"]
            await transitions.expire(conn, pause, now=now, by=by, reason=reason)
        await self._later(self._driver.forget(agents, deadline=deadline))
        return name

    # Reading

    async def get_pause_state(self, what: str, *, deadline: Deadline) -> PauseState:
        """
        Return whether an analysis is paused, since when and why; of a stock, its paused or running one.

        Raises:
            BadInput: there is none, or there are several.
        """
        checked_id("analysis", what)
        analyses = await self._database.named("task_state", {"analysis_id": what}, deadline=deadline)
        if not analyses:
            found = await self._database.named("pauses_matching", {"name": what}, deadline=deadline)
            found = found or await self._database.named("analyses_matching", {"name": what}, deadline=deadline)
            name = single_match(found, what, "analysis")
            analyses = await self._database.named("task_state", {"analysis_id": name}, deadline=deadline)
        return await self._state(
            analyses[0]["analysis_id"], analyses[0]["subject_id"], analyses[0]["outcome"], deadline
        )

    async def _state(self, analysis_id: str, stock_id: str, outcome: str | None, deadline: Deadline) -> PauseState:
        found = await self._database.named("pause_newest", {"analysis_id": analysis_id}, deadline=deadline)
        past = await self._database.named("pause_past", {"analysis_id": analysis_id}, deadline=deadline)
        newest = pause_of(found[0]) if found else None
        ended = archived_pause_of(past[0]) if past else None
        if newest is not None and (newest.open or ended is None or newest.paused_at > ended.paused_at):
            found = await self._database.named("failures_of_pause", {"pause_id": newest.id}, deadline=deadline)
            failures = tuple(RecordedFailure(**row) for row in found)
            return PauseState(analysis_id, stock_id, newest.status if newest.open else None, outcome, newest, failures)
        if ended is None:
            return PauseState(analysis_id, stock_id, None, outcome, None)
        expired = PauseStatus.EXPIRED if past[0]["outcome"] == PauseStatus.EXPIRED.value else None
        return PauseState(analysis_id, stock_id, expired, outcome, ended)

    async def pauses(self, *, everything: bool = False, limit: int = LISTED, deadline: Deadline) -> list[Pause]:
        """Return the open pauses, or all stored ones, oldest first."""
        values = {"all": everything, "limit": limit}
        return [pause_of(row) for row in await self._database.named("pauses_listed", values, deadline=deadline)]

    # Internal

    async def _drive(self, analysis_id: str, deadline: Deadline) -> None:
        """Carry out a request until the deadline; the request is stored in any case, and the manager continues."""
        await self._later(self._driver.drive(analysis_id, until=deadline))

    @staticmethod
    async def _later(work: Awaitable[None]) -> None:
        try:
            await work
        except UNANSWERED:
            # The request is stored; the manager continues.
            return

    async def _now(self, pause: Pause, deadline: Deadline) -> Pause:
        """Return the current state of the pause, or the given one where no time is left or it cannot be read."""
        if deadline.passed:
            return pause
        try:
            found = await self._database.named("pause_by_id", {"id": pause.id}, deadline=deadline)
        except (StoreUnavailable, BudgetExceeded):
            return pause
        return pause_of(found[0]) if found else pause


def _trigger(found: object) -> Trigger:
    try:
        return Trigger(str(found))
    except ValueError:
        raise BadInput("trigger_source", f"is one of {', '.join(Trigger)}.") from None


def _not_paused(name: str) -> TransitionRefused:
    return TransitionRefused(f"{name!r} is not paused.", mend="`imem pauses` lists the pauses.")


async def _open(conn: Connection, analysis_id: str) -> Pause:
    """
    Return the open pause, with its row locked.

    Raises:
        TransitionRefused: there is none.
    """
    pause = await open_pause(conn, analysis_id)
    if pause is None:
        raise _not_paused(analysis_id)
    return pause


async def fenced(conn: Connection, pause: Pause) -> dict[str, int]:
    """Return the begun agents of a pause, by instance, with their fencing epochs."""
    values = {"pause_id": pause.id, "analysis_id": pause.analysis_id}
    return {row["agent_id"]: row["epoch"] for row in await rows(conn, "pause_agents", values)}
