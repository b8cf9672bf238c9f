"""
Routing: finds the recipients of recorded events, and fills the queues of notices.

Every append leaves a row in ``workflow.notice_due`` for each event that may be news, in its own transaction. A pass
locks such rows, writes recipients with reasons and scores, and deletes the rows, in one transaction: concurrent passes
never take the same rows. A second step queues a notice for every recipient row without one, so that a notice that was
refused, displaced or lost is queued like a new one.

A crash leaves rows for the next pass. One process runs the regular passes, under a lease. A synchronisation runs a pass
of its own, which is safe beside them.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final
from uuid import UUID

import structlog

from imem.alerts.store import NewAlert, Severity, close_alerts, raise_once
from imem.jobs.leadership import run_as_leader
from imem.jobs.lease import LeaderLease
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.events.entry import Tier
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows
from imem.kg.projection.applier import WakeupSource
from imem.sync.delivery import metrics
from imem.sync.delivery.notices import ALERT_ABOVE, Notice, Notices
from imem.sync.delivery.relevance import Candidate, RelevanceScore, RoutableEvent, is_news, score

log = structlog.get_logger()

PAGE: Final = 200
"""Events routed in one transaction, at most."""

EACH: Final = 100
"""Notices offered to one queue at a time: its capacity."""

PASS_MS: Final = 10_000
"""Timeout of one pass, in milliseconds."""

RETIRE_EVERY_S: Final = 3600.0
"""Interval between removals of old rows, in seconds."""

RETIRED: Final = 10_000
"""Rows removed at a time."""

ALERT_KIND: Final = "NOTICES_WAITING"
"""Kind of the alert about a queue that is too long."""


class Router:
    """
    Routes events to agents.

    Args:
        database: the rows.
        notices: the queues; None without their server: agents then find updates when they pull.
    """

    def __init__(self, database: Database, notices: Notices | None = None) -> None:
        self._database = database
        self._notices = notices
        self._lease = LeaderLease(database, "router")
        self._retired_at = 0.0

    # Recipients

    async def route(self, *, limit: int = PAGE, deadline: Deadline) -> int:
        """
        Find the recipients of up to *limit* events, the most urgent first; return how many events.

        Raises:
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: rows that were not written are found again.
        """
        async with self._database.transaction(deadline) as conn:
            due = await rows(conn, "notices_due", {"limit": limit})
            if not due:
                return 0
            messages = [RoutableEvent.from_row(row) for row in due]
            senders = sorted({message.sender for message in messages})
            candidates = [_candidate(row) for row in await rows(conn, "notice_candidates", {"senders": senders})]
            scores = [
                (message, score(message, candidate))
                for message in messages
                for candidate in candidates
                if is_news(message, candidate)
            ]
            await _add(conn, scores)
            critical = [row for row in due if row["tier"] == Tier.SYSTEM_CRITICAL]
            if critical:
                reason = f"{critical[0]['kind'].partition('.')[2]} {critical[0]['record_key']}"
                await execute(conn, "snapshots_overtaken", {"reason": reason})
            await execute(conn, "notices_routed", {"positions": [message.position for message in messages]})
        metrics.ROUTED.inc(len(due))
        return len(due)

    async def route_all(self, *, deadline: Deadline) -> int:
        """Route until nothing is due except rows locked by other passes; return how many events."""
        done = 0
        while count := await self.route(deadline=deadline):
            done += count
        return done

    # Queues

    async def queue_notices(self, *, deadline: Deadline) -> int:
        """
        Queue a notice for each recipient row without one; return how many were queued.

        Raises:
            ValkeyUnavailable, ServerFull: the rest is queued by a later pass.
        """
        if self._notices is None:
            return 0
        lost = await self._notices.lost(deadline=deadline)
        if lost is not None:
            await self._database.execute("notices_lost", deadline=deadline)
            await self._notices.keep(lost, deadline=deadline)
        untold = await self._database.named("notices_unqueued", {"each": EACH}, deadline=deadline)
        queued, depths = 0, {}
        for agent_id, its in groupby(untold, key=lambda row: row["agent_id"]):
            offered = [Notice(row["position"], Tier(row["tier"])) for row in its]
            result = await self._notices.offer(agent_id, offered, deadline=deadline)
            depths[agent_id] = result.depth
            queued += len(result.queued)
            metrics.REFUSED.inc(len(result.refused))
            metrics.DISPLACED.inc(len(result.displaced))
            if result.queued or result.displaced:
                moved = {"queued": list(result.queued), "displaced": list(result.displaced)}
                await self._database.execute("notices_queued", {"agent_id": agent_id, **moved}, deadline=deadline)
        await self._alert(depths, deadline)
        return queued

    async def _alert(self, depths: Mapping[str, int], deadline: Deadline) -> None:
        """Raise an alert about each queue that is too long, and close those about queues that no longer are."""
        assert self._notices is not None  # noqa: S101 - the caller has just offered
        open_ = await self._database.named("inbox_alerts_open", {"kind": ALERT_KIND}, deadline=deadline)
        over = {row["agent_id"]: row["over"] for row in open_}
        for agent_id in sorted(agent_id for agent_id, depth in depths.items() if depth > ALERT_ABOVE):
            if agent_id not in over:
                await self._raise(agent_id, depths[agent_id], deadline)
        for agent_id, ended in over.items():
            # Queues without an offer in this pass may have been emptied by pulls.
            depth = depths.get(agent_id)
            if depth is None:
                depth = len(await self._notices.waiting(agent_id, deadline=deadline))
            if depth <= ALERT_ABOVE or ended:
                async with self._database.transaction(deadline) as conn:
                    await close_alerts(conn, _matter(agent_id))

    async def _raise(self, agent_id: str, depth: int, deadline: Deadline) -> None:
        reason = f"{depth} notices wait for {agent_id}; it does not pull."
        async with self._database.transaction(deadline) as conn:
            member = (await rows(conn, "members", {"agent_ids": [agent_id]}))[0]
            alert = NewAlert(
                alert_id=new_id(),
                kind=ALERT_KIND,
                severity=Severity.HIGH,
                analysis_id=member["analysis_id"],
                about=_matter(agent_id),
                payload={"reason": reason, "agent": agent_id, "depth": depth},
            )
            await raise_once(conn, alert)

    # Regular passes

    async def run(self, wakeups: WakeupSource) -> None:
        """Route and queue notices until cancelled, while this process holds the lease; errors of stores are retried."""
        await run_as_leader(self._lease, lambda: self._rounds(wakeups))

    async def stop(self) -> None:
        """Release the lease; call it after the task of :meth:`run` has ended."""
        await self._lease.drop()

    async def _rounds(self, wakeups: WakeupSource) -> None:
        """Route due events, then wait for a wake-up; ends by an error."""
        while True:
            heed_cancellation()
            if await self.step() == 0:
                await wakeups.wait()

    async def step(self) -> int:
        """Route one page and queue notices; return how many events were routed. Errors of the queues are logged."""
        done = await self.route(deadline=Deadline.after_ms(PASS_MS))
        try:
            await self.queue_notices(deadline=Deadline.after_ms(PASS_MS))
        except ImemError as error:
            log.warning("router.notices_not_queued", reason=str(error))
        await self._retire()
        return done

    async def _retire(self) -> None:
        now = time.monotonic()
        if now - self._retired_at > RETIRE_EVERY_S:
            self._retired_at = now
            await self._database.execute("retire_recipients", {"limit": RETIRED}, deadline=Deadline.after_ms(PASS_MS))


def _matter(agent_id: str) -> UUID:
    """Return what the alert is about: the queue of *agent_id*."""
    return id_of("notices waiting", agent_id)


def _candidate(row: Row) -> Candidate:
    domains = [name for one in row["domains"] or () for name in one or ()]
    return Candidate(
        agent_id=row["agent_id"],
        owner=row["owner"],
        agent_type=row["agent_type"],
        analysis_id=row["analysis_id"],
        subject_id=row["subject_id"],
        domains=frozenset(domains),
        specialization=row["specialization"] or "",
        notified=row["notified"] or {},
        pulled=row["pulled"] or {},
    )


async def _add(conn: Connection, scores: Sequence[tuple[RoutableEvent, RelevanceScore]]) -> None:
    """Write a recipient row for every score, numbered in the order of the events where the agent is notified."""
    counts = Counter(one.agent_id for _, one in scores if one.notified)
    numbers: dict[str, int] = {}
    if counts:
        asked = {"agent_ids": sorted(counts), "counts": [counts[agent_id] for agent_id in sorted(counts)]}
        for row in await rows(conn, "inbox_numbers", asked):
            numbers[row["agent_id"]] = row["notified_seq"] - counts[row["agent_id"]]
    columns: dict[str, list[Any]] = defaultdict(list)
    for message, one in sorted(scores, key=lambda pair: (pair[1].agent_id, pair[0].position)):
        if one.notified:
            numbers[one.agent_id] += 1
        columns["positions"].append(message.position)
        columns["agent_ids"].append(one.agent_id)
        columns["seqs"].append(numbers[one.agent_id] if one.notified else None)
        columns["tiers"].append(int(one.tier))
        columns["scores"].append(one.total)
        columns["parts"].append(_array(one.parts))
        columns["whys"].append(one.why.value)
    if columns:
        await execute(conn, "recipients_add", columns)
    notified = Counter((one.agent_id, message.sender) for message, one in scores if one.notified)
    if notified:
        pairs = sorted(notified)
        await execute(
            conn,
            "usage_notified",
            {
                "agent_ids": [agent_id for agent_id, _ in pairs],
                "senders": [sender for _, sender in pairs],
                "counts": [notified[pair] for pair in pairs],
            },
        )


def _array(parts: Iterable[float]) -> str:
    """Return numbers as the text of an array, since Postgres takes arrays of arrays as tables."""
    return "{" + ",".join(f"{part:.6f}" for part in parts) + "}"
