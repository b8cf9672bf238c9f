"""
Reading of signals: within the caller's deadline, retried where that helps, and audited; no store's error is raised.

If the read fails, the result is an empty memory with the reason; the agent then runs as without any history.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import psycopg
from psycopg_pool import PoolTimeout, TooManyRequests

from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, ImemError, PermissionDenied, StoreUnavailable
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Row
from imem.journal.postgres.pool import ServerRefuses
from imem.journal.settings import Settings
from imem.kg.asof import AsOf
from imem.recall.metrics import SIGNAL_READS, SIGNAL_SECONDS, SIGNALS_SKIPPED
from imem.recall.request.fallbacks import sentence
from imem.recall.signals.audit import SignalAudit
from imem.recall.signals.model import AgentMemory, AgentSignal, ErrorKind, signal_of, subject_of
from imem.recall.signals.watch import SignalWatch

RECONNECT_S: Final = 1.0
"""Pause before the one retry after a lost connection, in seconds."""

BACKOFF_S: Final = 0.1
"""Pause before the first retry of a server that takes no more work, in seconds; it doubles."""

SWITCHED_OFF: Final = "signals are switched off for this subject"

Moment = Callable[[Deadline], Awaitable[AsOf]]
"""Resolves the as-of of a read."""


@dataclass(frozen=True, slots=True)
class SignalRequest:
    """
    A read.

    Attributes:
        subject: its whole id.
        agents: whose signals, each once.
        limit: most signals of each.
        actor: who reads.
        deadline: when the answer is due.
        moment: as of when; it may ask Postgres too, and is part of each attempt. None for now.
        begun_s: when it began, in seconds of :func:`time.monotonic`.
    """

    subject: str
    agents: Sequence[str]
    limit: int
    actor: Actor
    deadline: Deadline
    moment: Moment | None = None
    begun_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class SignalPolicy:
    """
    The switches.

    Attributes:
        enabled, rollout_percent: whether signals are shown, and about which share of the subjects.
        per_agent: most signals of an agent where the caller names no number.
        timeout_ms: default budget of a read, in milliseconds.
        retries: most retries.
        retention: age at which a signal is no longer shown.
    """

    enabled: bool = True
    rollout_percent: int = 100
    per_agent: int = 3
    timeout_ms: int = 500
    retries: int = 3
    retention: timedelta = timedelta(days=180)

    @classmethod
    def of(cls, settings: Settings) -> SignalPolicy:
        """Return the switches that *settings* name."""
        return cls(
            settings.signals_enabled,
            settings.signals_rollout_percent,
            settings.signals_per_agent,
            settings.signals_timeout_ms,
            settings.signals_retries,
            timedelta(days=settings.signals_retention_days),
        )

    def shows(self, market_id: str) -> bool:
        """Return whether signals about a subject are shown; the same in every process, and for ever."""
        share = int.from_bytes(hashlib.sha256(market_id.encode()).digest()[:4]) % 100
        return self.enabled and share < self.rollout_percent

    def pause_s(self, error: ImemError, attempt: int) -> float | None:
        """Return the pause in seconds before the attempt after number *attempt*; None if there is none."""
        if attempt > self.retries or error_kind(error) is not ErrorKind.CONNECTION:
            return None
        if _takes_no_more(error):
            return BACKOFF_S * 2.0 ** (attempt - 1)
        return RECONNECT_S if attempt == 1 else None


class SignalReader:
    """
    Reads the signals of one process and event loop.

    Attributes:
        policy: the switches.
        audit: writes who was shown what.
        watch: raises alerts.
    """

    def __init__(self, gateway: Gateway, policy: SignalPolicy) -> None:
        self.policy = policy
        self.audit = SignalAudit(gateway.database)
        self.watch = SignalWatch(gateway.database)
        self._gateway = gateway

    async def memories(self, request: SignalRequest) -> dict[str, AgentMemory]:
        """
        Return the newest signals of each agent about a subject: one statement for all of them.

        Of a subject of which something is not projected yet another one, of the journal.

        Raises:
            BadInput: the subject is no whole id.
            PermissionDenied: the actor may not read about it.
        """
        _, market_id = subject_of(request.subject)
        if not request.agents or not self.policy.shows(market_id):
            return empty_memories(request.agents, request.subject, reason=SWITCHED_OFF)
        attempt = 1
        resource = Resource(ResourceType.GRAPH, request.subject)
        await self._gateway.authorize(resource, Action.READ, deadline=request.deadline, actor=request.actor)
        error: ImemError | None = None
        while True:
            try:
                found = await self._read(request, attempt)
                error = None
                break
            except ImemError as failure:
                # A retry that ran out of time tells less than why it was made.
                error = failure if error is None or error_kind(failure) is not ErrorKind.TIMEOUT else error
                pause_s = self.policy.pause_s(failure, attempt)
                if pause_s is None or pause_s >= request.deadline.left_s():
                    break
            await asyncio.sleep(pause_s)
            attempt += 1
        if error is not None:
            return self.failed(request, error, attempts=attempt)
        self._account(request, found)
        return found

    def failed(self, request: SignalRequest, error: ImemError, *, attempts: int = 0) -> dict[str, AgentMemory]:
        """Return empty memories of a read that failed, and account for it."""
        reason, kind = sentence(str(error)), error_kind(error)
        found = empty_memories(request.agents, request.subject, reason=reason, error=kind, attempts=attempts)
        self._account(request, found)
        return found

    def _account(self, request: SignalRequest, found: Mapping[str, AgentMemory]) -> None:
        """Count, watch and audit a read."""
        took_ms = (time.monotonic() - request.begun_s) * 1000.0
        record = retrieval_record(found, took_ms)
        SIGNAL_READS.labels(record["error_kind"] or "read").inc()
        SIGNAL_SECONDS.observe(took_ms / 1000.0)
        SIGNALS_SKIPPED.inc(record["skipped"])
        self.watch.observe(took_ms, failed=record["error_kind"] is not None)
        self.audit.write(request.actor, request.subject, record)

    async def _read(self, request: SignalRequest, attempt: int) -> dict[str, AgentMemory]:
        kind, market_id = subject_of(request.subject)
        agents = request.agents
        given: dict[str, Any] = {
            "kind": kind.value,
            "market": market_id,
            "subject_id": request.subject,
            "agents": list(agents),
            "limit": request.limit,
            "retention": self.policy.retention,
        }
        signals: dict[str, list[AgentSignal]] = {one: [] for one in agents}
        skipped, read_at = dict.fromkeys(agents, 0), None
        at = await request.moment(request.deadline) if request.moment is not None else None
        rows: list[Row] = []
        if at is None:
            rows = await self._gateway.database.named("signals", given, deadline=request.deadline)
            skipped = {row["agent"]: row["skipped"] for row in rows}
            if rows[0]["waits"]:
                # The table lacks what a worker has not projected yet; the journal has it.
                at = AsOf(rows[0]["at"])
        if at is not None:
            given |= {"at": at.at, **at.limits}
            rows = await self._gateway.database.named("signals_as_of", given, deadline=request.deadline)
        for row in rows:
            read_at = row["at"]
            if row["id"] is not None:
                signals[row["agent"]].append(signal_of(row, kind, market_id))
        return {
            one: AgentMemory(
                agent_name=one,
                market_id=market_id,
                subject_kind=kind,
                signals=tuple(signals[one]),
                skipped=skipped[one],
                as_of=read_at,
                attempts=attempt,
            )
            for one in agents
        }

    async def close(self) -> None:
        """Write what waits, and stop."""
        await self.watch.alerts.close()
        await self.audit.close()


def error_kind(error: ImemError) -> ErrorKind:
    """Return the kind of a failure."""
    match error:
        case BudgetExceeded():
            return ErrorKind.TIMEOUT
        case StoreUnavailable() if _waited_in_vain(error):
            return ErrorKind.TIMEOUT
        case StoreUnavailable():
            return ErrorKind.CONNECTION
        case BadInput() | PermissionDenied():
            return ErrorKind.VALIDATION
        case _:
            return ErrorKind.QUERY


def retrieval_record(found: Mapping[str, AgentMemory], took_ms: float) -> dict[str, Any]:
    """Return what the audit keeps of a read."""
    one = next(iter(found.values()), None)
    return {
        "event": "signals_read",
        "at": SystemClock().now().isoformat(),
        "agents": list(found),
        "with_history": [name for name, memory in found.items() if memory.has_history],
        "signals": sum(len(memory.signals) for memory in found.values()),
        "skipped": sum(memory.skipped for memory in found.values()),
        "success": one is not None and one.error is None,
        "attempt": one.attempts if one is not None else 0,
        "error_kind": one.error.value if one is not None and one.error is not None else None,
        "took_ms": round(took_ms, 1),
    }


def empty_memories(
    agents: Sequence[str], subject: str, *, reason: str, error: ErrorKind | None = None, attempts: int = 0
) -> dict[str, AgentMemory]:
    """Return an empty memory of each agent; of a subject that is no whole id as of a market."""
    return {
        name: AgentMemory(agent_name=name, market_id=subject, reason=reason, error=error, attempts=attempts)
        for name in dict.fromkeys(agents)
    }


def _waited_in_vain(error: ImemError) -> bool:
    """Return whether no connection was free before the deadline, of a server that did not refuse any."""
    return isinstance(error.__cause__, PoolTimeout) and not isinstance(error.__cause__, ServerRefuses)


def _takes_no_more(error: ImemError) -> bool:
    """Return whether the server, or the pool before it, is there and takes no more work for now."""
    match error.__cause__:
        case TooManyRequests() | ServerRefuses(full=True):
            return True
        case psycopg.Error(sqlstate=str(state)):
            return state.startswith("53")  # Insufficient resources, too many connections among them.
        case _:
            return False
