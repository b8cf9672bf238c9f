"""
Queues of notices, one for each agent, on the *durable* server.

A notice says only that an update is pending; the rows in Postgres are authoritative. Notices that a queue refuses,
displaces, or loses with its server are queued again from those rows (:mod:`imem.sync.delivery.routing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from imem.cache import keys
from imem.cache.client import Argument, Client
from imem.cache.scripts import script
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Tier

ADMITTED_BELOW: Final = {Tier.SYSTEM_CRITICAL: 100, Tier.CRITICAL: 90, Tier.HIGH: 70, Tier.NORMAL: 70}
"""Tier → how many pending notices a queue may hold for another one to be admitted without displacing any."""

ALERT_ABOVE: Final = 50
"""An alert is raised for a queue with more notices than that."""

NOTICE_TTL: Final = timedelta(days=14)
"""How long a queue lives after its last notice: as long as a paused agent's memory."""

_DROP: Final = 1000
"""Notices dropped by one call, at most."""


@dataclass(frozen=True, slots=True)
class Notice:
    """
    A pending update of an agent.

    Attributes:
        position: of the event.
        tier: of the notice.
    """

    position: int
    tier: Tier


@dataclass(frozen=True, slots=True)
class OfferResult:
    """
    The result of offering notices.

    Attributes:
        depth: pending notices of the agent.
        queued: positions that are in the queue.
        refused: positions that were not admitted.
        displaced: positions that were removed for more urgent ones; some may be of this offer.
    """

    depth: int
    queued: tuple[int, ...]
    refused: tuple[int, ...]
    displaced: tuple[int, ...]


class Notices:
    """
    The queues on one server.

    Every method ends by its deadline, with one of the errors of :meth:`imem.cache.client.Client.run` if there is no
    answer.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def offer(self, agent_id: str, notices: Sequence[Notice], *, deadline: Deadline) -> OfferResult:
        """Queue *notices* as far as they are admitted; one that is pending already counts as queued. Idempotent."""
        arguments: list[Argument] = [ADMITTED_BELOW[tier] for tier in Tier]
        arguments.append(int(NOTICE_TTL.total_seconds() * 1000))
        for notice in notices:
            arguments += [notice.position, int(notice.tier)]
        depth, outcomes, gone = await self._client.run(
            script("offer"), keys.notices(agent_id), arguments, deadline=deadline
        )
        displaced = tuple(map(int, gone))
        queued = tuple(one.position for one, in_ in zip(notices, outcomes, strict=True) if in_)
        refused = tuple(one.position for one, in_ in zip(notices, outcomes, strict=True) if not in_)
        return OfferResult(depth, tuple(one for one in queued if one not in displaced), refused, displaced)

    async def waiting(self, agent_id: str, *, deadline: Deadline) -> list[Notice]:
        """Return the pending notices of an agent: the most urgent tier first, each oldest first."""
        found = await self._client.run(script("waiting"), keys.notices(agent_id), (), deadline=deadline)
        return [Notice(int(one), tier) for tier, positions in zip(Tier, found, strict=True) for one in positions]

    async def drop(self, agent_id: str, positions: Sequence[int], *, deadline: Deadline) -> int:
        """Remove notices of pulled updates; return how many are pending."""
        depth = 0
        for first in range(0, max(1, len(positions)), _DROP):
            part = positions[first : first + _DROP]
            depth = await self._client.run(script("drop_notices"), keys.notices(agent_id), part, deadline=deadline)
        return int(depth)

    async def lost(self, *, deadline: Deadline) -> bytes | None:
        """Return the server's run id where it has restarted since :meth:`keep` and may have lost notices; else None."""
        run, queued = await self._client.run(script("server_run"), (keys.NOTICES_SERVER_RUN,), (), deadline=deadline)
        return None if run == queued else bytes(run)

    async def keep(self, run: bytes, *, deadline: Deadline) -> None:
        """Store *run* as the server run for which all notices are queued."""
        await self._client.run(script("set_server_run"), (keys.NOTICES_SERVER_RUN,), (run,), deadline=deadline)
