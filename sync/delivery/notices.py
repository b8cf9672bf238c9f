"""
The queues of notices, one for each agent, on the *durable* server: that something waits, and nothing else.

A notice is never the only word of anything. What the queue refuses, displaces, or loses with its server stands in
Postgres, and is queued again from there (:mod:`imem.sync.delivery.routing`).
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
"""Tier → how many notices of an agent may wait before one more is refused, or has to displace another."""

ALERT_ABOVE: Final = 50
"""With more notices than that, somebody is told."""

NOTICE_TTL: Final = timedelta(days=14)
"""How long a queue lives after its last notice: as long as a paused agent's memory."""

_DROP: Final = 1000
"""Notices dropped in one call, at most."""


@dataclass(frozen=True, slots=True)
class Notice:
    """
    That an agent has something to pull.

    Attributes:
        position: of the event.
        tier: how urgent it is.
    """

    position: int
    tier: Tier


@dataclass(frozen=True, slots=True)
class OfferResult:
    """
    What became of notices that were offered.

    Attributes:
        depth: how many wait now.
        queued: positions that are in the queue.
        refused: positions that found no room.
        displaced: positions that made room; some may have been offered just now.
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
        """Queue *notices*, as far as they are admitted; one that waits already is queued. Twice is once."""
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
        """Return the notices that wait for an agent: the most urgent tier first, each oldest first."""
        found = await self._client.run(script("waiting"), keys.notices(agent_id), (), deadline=deadline)
        return [Notice(int(one), tier) for tier, positions in zip(Tier, found, strict=True) for one in positions]

    async def drop(self, agent_id: str, positions: Sequence[int], *, deadline: Deadline) -> int:
        """Remove notices of what was pulled; return how many still wait."""
        depth = 0
        for first in range(0, max(1, len(positions)), _DROP):
            part = positions[first : first + _DROP]
            depth = await self._client.run(script("drop_notices"), keys.notices(agent_id), part, deadline=deadline)
        return int(depth)

    async def lost(self, *, deadline: Deadline) -> bytes | None:
        """Return the run of the server where it may have lost notices since :meth:`keep`; None where it has not."""
        run, told = await self._client.run(script("told"), (keys.NOTICES_SERVER_RUN,), (), deadline=deadline)
        return None if run == told else bytes(run)

    async def keep(self, run: bytes, *, deadline: Deadline) -> None:
        """Note that whatever *run* of the server may have lost is queued again."""
        await self._client.run(script("set_server_run"), (keys.NOTICES_SERVER_RUN,), (run,), deadline=deadline)
