"""
Result delivery: one call for a subtask's result, in every store that the subtask's definition names.

A subtask can be completed when each of those stores has its result, or :data:`NO_RESULT`, delivered under the current
lease. Results that are lost afterwards are found when the agent is resumed: results that a checkpoint still holds are
put back into the cache, other subtasks are run again.

A crash between a deliverable and the checkpoint leaves the deliverable, which the rerun replaces: there is at most one
for each subtask and store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final

import structlog

from imem.cache import keys
from imem.cache.client import Client
from imem.cache.subtask_results import ResultStore
from imem.checkpoints.deliverables import Deliverables, ResultChecks, digest_of, undelivered
from imem.checkpoints.model import AgentLease, Checkpoint, Deliverable, checked_uuid
from imem.checkpoints.orchestration.definitions import Definitions, Location
from imem.journal.clock import Clock
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    UNANSWERED,
    BadInput,
    NotDelivered,
    StatementRejected,
)
from imem.journal.postgres.database import Database
from imem.journal.texts.json_text import exact_text, json_text

log = structlog.get_logger()

CACHE_MS: Final = 1_000
"""Timeout of a read or write of the cache, in milliseconds; the cache is never authoritative."""

_CACHE_ERRORS: Final = (*UNANSWERED, StatementRejected)
"""Errors of the cache that are logged and ignored: the checkpoint holds the same result."""


class NoResult(Enum):
    """Sentinel in place of a result."""

    NO_RESULT = "nothing"
    """The subtask has no result for this store."""


NO_RESULT: Final = NoResult.NO_RESULT


class ResultDelivery:
    """
    Delivers results to their stores, and finds missing ones.

    Args:
        cache: the shared cache; without it, results for the cache are stored by checkpoints alone.
    """

    def __init__(self, database: Database, definitions: Definitions, clock: Clock, cache: Client | None = None) -> None:
        self._database = database
        self._definitions = definitions
        self._cache = ResultStore(cache, clock) if cache is not None else None
        self._checks = ResultChecks(database, cache)
        self._deliverables = Deliverables(database, definitions)

    async def deliver(
        self, lease: AgentLease, subtask: str, results: Mapping[Location, Any], *, deadline: Deadline
    ) -> list[Deliverable]:
        """
        Deliver to each store in *results*, in place of the subtask's earlier results.

        Args:
            results: by store; an ellipsis skips the store.

        Raises: see :meth:`imem.checkpoints.session.Session.deliver`.
        """
        said = {location: result for location, result in results.items() if result is not ...}
        if not said:
            raise BadInput("results", "names no store.", mend="The stores are postgres, graph, cache and message.")
        # All are validated before any is written: a refusal leaves nothing.
        contents = {
            location: await self._content(lease, subtask, location, result, deadline)
            for location, result in said.items()
        }
        delivered = []
        for location, content in contents.items():
            one = await self._deliverables.put(lease, subtask, location, **content, deadline=deadline)
            # The row first: a stale lease is refused there, and the cache is not changed.
            if location is Location.CACHE and not one.nothing:
                await self._keep(one, lease.epoch, json_text(said[location], "cache"), deadline)
            delivered.append(one)
        return delivered

    async def _content(
        self, lease: AgentLease, subtask: str, location: Location, result: Any, deadline: Deadline
    ) -> dict[str, Any]:
        """Return the reference, the digest and the payload of a result; refuse one that does not exist."""
        if result is NO_RESULT:
            return {"reference": NO_RESULT.value, "digest": digest_of(NO_RESULT.value), "nothing": True}
        if location in {Location.POSTGRES, Location.CACHE}:
            if result is None:
                raise BadInput(location.value, "None is no result.", mend="NO_RESULT says that there is none.")
            text = exact_text(result, location.value)
            if location is Location.CACHE:
                return {"reference": _cached_at(lease, subtask), "digest": digest_of(text)}
            return {"reference": subtask, "digest": digest_of(text), "payload": text}
        if location is Location.GRAPH:
            kind, _, key = str(result).partition("/")
            rows = await self._database.named("record_digest", {"kind": kind, "key": key}, deadline=deadline)
        else:
            rows = await self._database.named(
                "event_digest", {"id": checked_uuid("message", result)}, deadline=deadline
            )
        if not rows or rows[0]["digest"] is None:
            raise BadInput(
                location.value,
                f"the journal does not know {str(result)[:200]!r}.",
                mend="Record it first, and deliver its Kind/key, or the id of its event.",
            )
        return {"reference": str(result), "digest": str(rows[0]["digest"])}

    async def require(self, lease: AgentLease, subtask: str, *, deadline: Deadline) -> None:
        """
        Refuse to continue while a store of *subtask*'s definition lacks a delivery under this lease.

        Raises:
            NotDelivered: names the subtask and the stores.
        """
        wanted = self._definitions.of_type(lease.agent_type).subtask(subtask).stores
        if not wanted:
            return
        known = await self._deliverables.under(lease, subtask, deadline=deadline)
        missing = [location.value for location in wanted if location not in known]
        if missing:
            raise NotDelivered(subtask, missing)

    async def lost_results(self, checkpoint: Checkpoint, epoch: int, *, deadline: Deadline) -> tuple[str, ...]:
        """
        Return the completed subtasks of an agent whose results are missing, in order: they have to be run again.

        A result that the cache has evicted and the checkpoint holds is put back. An unreachable cache counts as having
        all of its results: no work is repeated for it, and the clean-up checks again.

        Args:
            epoch: of the lease under which the agent is resumed.
        """
        definition = self._definitions.of_type(checkpoint.agent_type)
        completed = set(checkpoint.completed_subtasks)
        if not any(subtask.stores for subtask in definition.subtasks if subtask.name in completed):
            return ()
        delivered = [
            one
            for one in await self._deliverables.of(checkpoint.analysis_id, deadline=deadline)
            if one.agent_type == checkpoint.agent_type and one.subtask in completed
        ]
        cached = [one for one in delivered if one.location is Location.CACHE and not one.nothing]
        rest = [one for one in delivered if one not in cached]
        gone = {one.subtask for one in await self._checks.lost(rest, deadline=deadline)}
        gone |= await self._evicted(cached, checkpoint, epoch, deadline)
        gone |= {subtask for subtask, _ in undelivered(definition, completed, delivered)}
        return tuple(name for name in definition.names if name in gone)

    async def _evicted(
        self, cached: list[Deliverable], checkpoint: Checkpoint, epoch: int, deadline: Deadline
    ) -> set[str]:
        """Put results of a checkpoint back into the cache; return the subtasks whose results are in neither."""
        gone: set[str] = set()
        for one in cached:
            held = checkpoint.interim_results.get(one.subtask)
            text = json_text(held, "interim_results") if held is not None else ""
            if digest_of(text) == one.digest:
                await self._put_back(one, epoch, text, deadline)
                continue
            if self._cache is None:
                # This process has no cache.
                continue
            with _logged(one):
                if await self._checks.lost([one], deadline=deadline.within_ms(CACHE_MS)):
                    gone.add(one.subtask)
        return gone

    async def _put_back(self, one: Deliverable, epoch: int, text: str, deadline: Deadline) -> None:
        if self._cache is None or one.reference != _cached_at(one, one.subtask):
            return
        whose = {"analysis_id": one.analysis_id, "agent_type": one.agent_type, "subtask": one.subtask}
        with _logged(one):
            if await self._cache.get(**whose, deadline=deadline.within_ms(CACHE_MS)) != text.encode():
                await self._keep(one, epoch, text, deadline)

    async def _keep(self, one: Deliverable, epoch: int, text: str, deadline: Deadline) -> None:
        if self._cache is None:
            return
        whose = {"analysis_id": one.analysis_id, "agent_type": one.agent_type, "subtask": one.subtask}
        due = deadline.within_ms(CACHE_MS)
        with _logged(one):
            await self._cache.keep(**whose, epoch=epoch, body=text.encode(), deadline=due)


def _cached_at(whose: AgentLease | Deliverable, subtask: str) -> str:
    return keys.result(whose.analysis_id, whose.agent_type, subtask).decode()


@contextmanager
def _logged(one: Deliverable) -> Iterator[None]:
    """Log errors of the cache; they end the block and are not raised."""
    try:
        yield
    except _CACHE_ERRORS as error:
        log.warning("deliverable.cache", analysis_id=one.analysis_id, subtask=one.subtask, reason=str(error))
