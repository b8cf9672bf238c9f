"""
Who runs an agent: one process at a time, told apart by an epoch that only grows.

A lease lasts :data:`LEASE_TTL`, and its holder renews it every :data:`HEARTBEAT_S`. Running out takes nothing away: it
lets others take over, which raises the epoch, and whoever bears a lower one is refused wherever it writes. So a clock
that jumps, a broker that delivers a task twice, or a process that wakes from a long sleep costs work at most, never
state.

A crash leaves the lease to run out. Each method is one transaction, and repeating it is harmless; after an
:class:`~imem.journal.errors.OutcomeUnknown` it should be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from uuid_utils.compat import uuid7

from imem.cache.keys import checked_agent_id, checked_agent_type
from imem.checkpoints.json_text import object_text
from imem.checkpoints.model import LONGEST_ID, AgentInstance, AgentLease, checked_text
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.statements import call, identity_of
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    BadInput,
    BudgetExceeded,
    ImemError,
    LeaseHeld,
    LeaseLost,
    OutcomeUnknown,
    StaleEpoch,
    StoreUnavailable,
    TransitionRefused,
)
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database

LEASE_TTL: Final = timedelta(seconds=30)
"""How long a lease lasts without a sign of life."""

HEARTBEAT_S: Final = 10.0
"""How often a holder shows that it lives, in seconds."""

RENEWAL_BUDGET_MS: Final = 5_000.0
"""How long one sign of life may take, in milliseconds: there is time for another before the lease runs out."""


class Leases:
    """
    The leases of all agents.

    Args:
        definitions: which agents there are; one that is not defined cannot be run.
    """

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def acquire(
        self,
        *,
        analysis_id: str,
        agent_type: str,
        agent_id: str,
        subject_id: str,
        holder: str,
        owner: str,
        agent_config: Mapping[str, Any] | None = None,
        deadline: Deadline,
    ) -> AgentLease:
        """
        Take the lease of an agent, and return it.

        The first time, the agent's start checkpoint (``seq`` 0) is written in the same transaction. One that ran out or
        was given up gets a new epoch; a holder that has it already keeps it, with its epoch, for another while.

        Args:
            holder: a name of the process that no other ever has.
            owner: the actor; the first one stays the owner of the instance.
            agent_config: what the agent runs with; kept in the start checkpoint.

        Raises:
            LeaseHeld: somebody else has it, and it has not run out; retryable.
            BadInput: an id is malformed, the agent is not defined, the analysis is about another subject, or the
                instance is another agent's.
            TransitionRefused: the analysis has ended, or is being paused; nothing was started.
        """
        definition = self._definitions.of_type(checked_agent_type(agent_type))
        config = object_text(agent_config or {}, "agent_config")
        parameters = {
            "analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID),
            "agent_type": agent_type,
            "agent_id": checked_agent_id(agent_id),
            "subject_id": checked_text("subject_id", subject_id, LONGEST_ID),
            "holder": checked_text("holder", holder, LONGEST_ID),
            "owner": checked_text("owner", owner, LONGEST_ID),
            "lasts": LEASE_TTL,
            "checkpoint_id": uuid7(),
            "subtasks": list(definition.names),
            "agent_config": config,
            "agent_version": definition.version,
        }
        row = (await call(self._database, "acquire_lease", parameters, deadline=deadline))[0]
        if row["status"] in {"taken", "kept"}:
            return AgentLease(
                analysis_id=analysis_id,
                agent_type=agent_type,
                agent_id=agent_id,
                subject_id=subject_id,
                holder=holder,
                epoch=row["epoch"],
                expires_at=row["expires_at"],
            )
        raise _refusal(row["status"], parameters, row["detail"])

    async def stop_reason(self, lease: AgentLease, *, deadline: Deadline) -> str | None:
        """Return why the holder shall stop at its next safe point, such as a pause; None where it may go on."""
        asked = {"analysis_id": lease.analysis_id}
        found = await self._database.named("pause_stop_reason", asked, deadline=deadline)
        return found[0]["stop"] if found else None

    async def renew(self, lease: AgentLease, *, deadline: Deadline) -> AgentLease:
        """
        Show that the holder lives; return the lease with the moment at which it now runs out.

        Raises:
            LeaseLost: it was given up, or taken by somebody else; the holder must stop.
        """
        parameters = {**_of_holder(lease), "lasts": LEASE_TTL}
        row = (await call(self._database, "renew_lease", parameters, deadline=deadline))[0]
        if row["expires_at"] is None:
            raise _lost(lease)
        return replace(lease, expires_at=row["expires_at"])

    async def release(self, lease: AgentLease, *, deadline: Deadline) -> bool:
        """Give the lease up, so that nobody has to wait for it; return whether it still was the holder's."""
        row = (await call(self._database, "release_lease", _of_holder(lease), deadline=deadline))[0]
        return bool(row["released"])

    async def current(self, analysis_id: str, agent_type: str, *, deadline: Deadline) -> AgentLease | None:
        """Return the lease of an agent as it stands, whoever has it; None where the agent was never run."""
        rows = await self._database.named("current_lease", identity_of(analysis_id, agent_type), deadline=deadline)
        return _lease_of(rows[0]) if rows else None

    async def check(self, lease: AgentLease, *, deadline: Deadline) -> None:
        """
        Refuse to begin what the next write would refuse.

        Raises:
            StaleEpoch: somebody else has taken over.
        """
        current = await self.current(lease.analysis_id, lease.agent_type, deadline=deadline)
        if current is None or current.epoch != lease.epoch:
            raise _lost(lease)

    async def raise_epoch(
        self, analysis_id: str, *, deadline: Deadline, conn: Connection | None = None
    ) -> list[AgentLease]:
        """
        Fence off every agent of the analysis at once; return its leases, by agent type, with nobody as holder.

        Repeating it changes nothing until somebody has taken a lease again, so that whoever goes on with a pause after
        a crash has the same epochs to save with. With *conn* it is part of the transaction there.
        """
        parameters = {"analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID)}
        rows = await call(self._database, "raise_epoch", parameters, deadline=deadline, conn=conn)
        return [_lease_of(row) for row in rows]

    async def instance(self, agent_id: str, *, deadline: Deadline) -> AgentInstance | None:
        """Return whose the agent instance is, and which agent it is; None where it was never opened."""
        rows = await self._database.named("agent_instance", {"agent_id": checked_agent_id(agent_id)}, deadline=deadline)
        return AgentInstance(**rows[0]) if rows else None

    async def owners(self, agent_ids: Collection[str], *, deadline: Deadline) -> dict[str, str]:
        """Return the actor whose instance each is, by agent id; those that were never opened are left out."""
        rows = await self._database.named("owners_of", {"agent_ids": sorted(agent_ids)}, deadline=deadline)
        return {row["agent_id"]: row["owner"] for row in rows}

    @asynccontextmanager
    async def keep_alive(self, lease: AgentLease, *, every_s: float = HEARTBEAT_S) -> AsyncIterator[None]:
        """
        Renew *lease* every *every_s* seconds while the block runs.

        A Postgres that is away ends nothing: whoever would take over needs it as well.

        Raises:
            LeaseLost: somebody else has taken over; the block was cancelled at its next wait.
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
            # Out here, so that what it was raised from stays with it.
            raise first

    async def _beat(self, lease: AgentLease, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            with suppress(StoreUnavailable, BudgetExceeded, OutcomeUnknown):
                await self.renew(lease, deadline=Deadline.after_ms(RENEWAL_BUDGET_MS))
            heed_cancellation()


def _of_holder(lease: AgentLease) -> dict[str, Any]:
    return {
        "analysis_id": lease.analysis_id,
        "agent_type": lease.agent_type,
        "holder": lease.holder,
        "epoch": lease.epoch,
    }


def _lease_of(row: Mapping[str, Any]) -> AgentLease:
    return AgentLease(**row)


def _lost(lease: AgentLease) -> StaleEpoch:
    return StaleEpoch(
        f"The lease of {lease.agent_type} in {lease.analysis_id} is no longer that of epoch {lease.epoch}.",
        mend="Stop: another process goes on from the latest checkpoint.",
    )


def _refusal(status: str, asked: Mapping[str, Any], detail: str) -> ImemError:
    """Return what to raise where a lease was not given."""
    agent = f"{asked['agent_type']} in {asked['analysis_id']}"
    match status:
        case "held":
            return LeaseHeld(
                f"{agent} is run by {detail}.",
                mend=f"Its lease runs out {LEASE_TTL.seconds} s after its last sign of life.",
            )
        case "ended":
            return TransitionRefused(f"{asked['analysis_id']} has {detail}.", mend="Begin another analysis.")
        case "halted":
            return TransitionRefused(f"{asked['analysis_id']} is {detail}.", mend="Resume it first.")
        case "subject":
            return BadInput("subject_id", f"{asked['analysis_id']} is about {detail}, not {asked['subject_id']}.")
        case "instance":
            return BadInput("agent_id", f"{asked['agent_id']} is {detail} already.")
        case _:
            return BadInput("agent_id", f"{agent} is {detail} already, not {asked['agent_id']}.")
