"""
Results of subtasks in the shared cache, which evicts them when it is full.

The component that delivers a result writes it to Postgres as well. A crash leaves the whole new result, or the previous
one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from imem.cache import keys
from imem.cache.client import Client
from imem.cache.scripts import script
from imem.cache.working.state import ms_of
from imem.journal.clock import Clock
from imem.journal.deadline import Deadline

RESULT_TTL: Final = timedelta(days=30)
"""How long a result lives at most."""


class ResultStore:
    """
    Results of subtasks on one cache server.

    Every method ends by its deadline, with one of the errors of :meth:`imem.cache.client.Client.run` if there is no
    answer.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def keep(
        self, analysis_id: str, agent_type: str, subtask: str, *, epoch: int, body: bytes, deadline: Deadline
    ) -> bool:
        """Store a result for 30 days unless one of a later *epoch* is there; return whether it was stored."""
        at = ms_of(self._clock.now() + RESULT_TTL)
        key = keys.result(analysis_id, agent_type, subtask)
        return bool(await self._client.run(script("keep_result"), (key,), (epoch, at, body), deadline=deadline))

    async def get(self, analysis_id: str, agent_type: str, subtask: str, *, deadline: Deadline) -> bytes | None:
        """Return a result, as JSON; None where the cache does not hold it."""
        key = keys.result(analysis_id, agent_type, subtask)
        body = await self._client.run(script("get_result"), (key,), (), deadline=deadline)
        return body if isinstance(body, bytes) else None
