"""
Leases: one process at a time runs an agent, under a fencing epoch that only grows.

A lease expires after :data:`LEASE_TTL` without a heartbeat; its holder sends one every :data:`HEARTBEAT_S`. Expiry
alone takes nothing away: it lets another process take over, which raises the epoch. Every store refuses writes with a
lower epoch. So a clock that jumps, a broker that delivers a task twice, or a process that wakes from a long sleep costs
work at most, never state.

A crash leaves the lease to expire. Each method is one transaction and idempotent; after an
:class:`~imem.journal.errors.OutcomeUnknown` it should be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NotRequired, TypedDict, Unpack

from uuid_utils.compat import uuid7

from imem.cache.keys import checked_agent_id, checked_agent_type
from imem.checkpoints.model import LONGEST_ID, AgentLease, checked_text
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.statements import call
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    UNANSWERED,
    BadInput,
    ImemError,
    LeaseHeld,
    LeaseLost,
    StaleEpoch,
    TransitionRefused,
)
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.texts.json_text import exact_object_text

LEASE_TTL: Final = timedelta(seconds=30)
"""Lifetime of a lease without a heartbeat."""

HEARTBEAT_S: Final = 10.0
"""Interval of heartbeats, in seconds."""

RENEWAL_BUDGET_MS: Final = 5_000.0
"""Timeout of one heartbeat, in milliseconds: leaves time for another before the lease expires."""


class LeaseRequest(TypedDict):
    """
    The agent whose lease is asked for.

    Attributes:
        analysis_id, agent_type, agent_id, subject_id: of the agent.
        owner: the actor; the first one stays the owner of the instance.
        agent_config: configuration of the agent; stored in its start checkpoint.
    """

    analysis_id: str
    agent_type: str
    agent_id: str
    subject_id: str
    owner: str
    agent_config: NotRequired[Mapping[str, Any] | None]


class Leases:
    """
    The leases of all agents.

    Args:
        definitions: of the agents; an agent without one cannot be run.
    """

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def acquire(self, *, holder: str, deadline: Deadline, **asked: Unpack[LeaseRequest]) -> AgentLease:
        """
        Acquire the lease of an agent.

        The first call writes the agent's start checkpoint (``seq`` 0) in the same transaction. An expired or released
        lease gets a new epoch; a holder that calls again keeps its epoch, with a later expiry.

        Args:
            holder: a unique name of the process.

        Raises:
            LeaseHeld: another process has it, and it has not expired; retryable.
            BadInput: an id is malformed, the agent is not defined, the analysis is about another subject, or the
                instance is another agent's.
            TransitionRefused: the analysis has ended, or is being paused; nothing was started.
        """
        definition = self._definitions.of_type(checked_agent_type(asked["agent_type"]))
        agent = {
            "analysis_id": checked_text("analysis_id", asked["analysis_id"], LONGEST_ID),
            "agent_type": asked["agent_type"],
            "agent_id": checked_agent_id(asked["agent_id"]),
            "subject_id": checked_text("subject_id", asked["subject_id"], LONGEST_ID),
            "holder": checked_text("holder", holder, LONGEST_ID),
        }
        parameters = {
            **agent,
            "owner": checked_text("owner", asked["owner"], LONGEST_ID),
            "lasts": LEASE_TTL,
            "checkpoint_id": uuid7(),
            "subtasks": list(definition.names),
            "agent_config": exact_object_text(asked.get("agent_config") or {}, "agent_config"),
            "agent_version": definition.version,
        }
        row = (await call(self._database, "acquire_lease", parameters, deadline=deadline))[0]
        if row["status"] in {"taken", "kept"}:
            return AgentLease(**agent, epoch=row["epoch"], expires_at=row["expires_at"])
        raise _refusal(row["status"], parameters, row["detail"])

    async def stop_reason(self, analysis_id: str, *, deadline: Deadline) -> str | None:
        """Return why the agents must stop at their next safe point, such as a pause; None where they may continue."""
        found = await self._database.named("pause_stop_reason", {"analysis_id": analysis_id}, deadline=deadline)
        return found[0]["stop"] if found else None

    async def renew(self, lease: AgentLease, *, deadline: Deadline) -> AgentLease:
        """
        Send a heartbeat; return the lease with its new expiry.

        Raises:
            LeaseLost: it was released, or another process has taken over; the holder must stop.
        """
        parameters = {**_of_holder(lease), "lasts": LEASE_TTL}
        row = (await call(self._database, "renew_lease", parameters, deadline=deadline))[0]
        if row["expires_at"] is None:
            raise _lost(lease)
        return replace(lease, expires_at=row["expires_at"])

    async def release(self, lease: AgentLease, *, deadline: Deadline) -> bool:
        """Release the lease; return whether it was still the holder's."""
        row = (await call(self._database, "release_lease", _of_holder(lease), deadline=deadline))[0]
        return bool(row["released"])

    async def raise_epoch(
        self, analysis_id: str, *, deadline: Deadline, conn: Connection | None = None
    ) -> list[AgentLease]:
        """
        Fence off every agent of the analysis: raise its epoch. Return the leases, by agent type, without holders.

        Repeats keep the epochs until a lease is acquired again, so that a saga that continues after a crash has the
        same epochs to save with. With *conn* it is part of the transaction there.
        """
        parameters = {"analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID)}
        rows = await call(self._database, "raise_epoch", parameters, deadline=deadline, conn=conn)
        return [AgentLease(**row) for row in rows]

    async def owners(self, agent_ids: Collection[str], *, deadline: Deadline) -> dict[str, str]:
        """Return the owners of instances, by agent id; unknown ones are left out."""
        asked = [checked_agent_id(one) for one in sorted(agent_ids)]
        rows = await self._database.named("owners_of", {"agent_ids": asked}, deadline=deadline)
        return {row["agent_id"]: row["owner"] for row in rows}

    @asynccontextmanager
    async def keep_alive(self, lease: AgentLease, *, every_s: float = HEARTBEAT_S) -> AsyncIterator[None]:
        """
        Send a heartbeat every *every_s* seconds while the block runs.

        Errors of Postgres are ignored: another process would need it to take over as well.

        Raises:
            LeaseLost: another process has taken over; the block was cancelled at its next wait.
        """
        first: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                beating = group.create_task(self._beat(lease, every_s))
                try:
                    yield
                finally:
                    beating.cancel()
        except BaseExceptionGroup as errors:
            lost = [error for error in errors.exceptions if isinstance(error, LeaseLost)]
            first = (lost or errors.exceptions)[0]
        if first is not None:
            # Raised here, so that its own cause is kept.
            raise first

    async def _beat(self, lease: AgentLease, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            with suppress(*UNANSWERED):
                await self.renew(lease, deadline=Deadline.after_ms(RENEWAL_BUDGET_MS))
            heed_cancellation()


def _of_holder(lease: AgentLease) -> dict[str, Any]:
    return {
        "analysis_id": lease.analysis_id,
        "agent_type": lease.agent_type,
        "holder": lease.holder,
        "epoch": lease.epoch,
    }


def _lost(lease: AgentLease) -> StaleEpoch:
    return StaleEpoch(
        f"The lease of {lease.agent_type} in {lease.analysis_id} is no longer that of epoch {lease.epoch}.",
        mend="Stop: another process goes on from the latest checkpoint.",
    )


def _refusal(status: str, asked: Mapping[str, Any], detail: str) -> ImemError:
    """Return the error for a lease that was not granted."""
    agent = f"{asked['agent_type']} in {asked['analysis_id']}"
    match status:
        case "held":
            return LeaseHeld(
                f"{agent} is run by {detail}.",
                mend=f"Its lease runs out {LEASE_TTL.seconds} s after its last sign of life.",
            )
        case "ended":
            return TransitionRefused(f"{asked['analysis_id']} has {detail}.", mend="Begin another analysis.")
        case "blocked":
            return TransitionRefused(f"{asked['analysis_id']} is {detail}.", mend="Resume it first.")
        case "subject":
            return BadInput("subject_id", f"{asked['analysis_id']} is about {detail}, not {asked['subject_id']}.")
        case "instance":
            return BadInput("agent_id", f"{asked['agent_id']} is {detail} already.")
        case _:
            return BadInput("agent_id", f"{agent} is {detail} already, not {asked['agent_id']}.")
