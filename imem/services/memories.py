"""
Authorized access to memories.

Who reads and writes where is decided by the namespace (:mod:`imem.recall.memories.namespaces`): an agent reads
``global``, ``symbol``, ``user`` and its own subtree of ``agent``, and writes all of these but ``global``. A search
covers what the actor may read, inside the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.kg.asof import AsOfClock, parse_as_of
from imem.recall.memories.model import (
    MemoriesSection,
    MemoryQuery,
    NewMemory,
    RememberedMemory,
    StoredMemory,
    check_reason,
    memory_type_of,
)
from imem.recall.memories.namespaces import (
    own_namespace,
    parse_namespace,
    parse_pattern,
    readable,
    resource_of,
    scopes,
)
from imem.recall.memories.store import unknown_memory
from imem.recall.read_horizon import fetch_read_horizon
from imem.services.arguments import LEAST_BUDGET_MS, MOST_BUDGET_MS, MOST_WRITE_BUDGET_MS, budget_ms, share
from imem.services.parts.actor_api import ActorApi
from imem.services.stores import Stores

REMEMBER_MS: Final = 10_000
"""Default budget of storing a memory, in milliseconds: the first one loads the encoder."""


@checks_arguments
class Memories(ActorApi):
    """
    The memories that the actor may read; see :attr:`imem.memory.Memory.memories`.

    **What every method may raise.**

    * :class:`~imem.journal.errors.PermissionDenied`: the actor may not read or write there; a denial row was written.
    * :class:`~imem.journal.errors.BadInput`: an argument is wrong; names it.
    * :class:`~imem.journal.errors.PostgresUnavailable`, :class:`~imem.journal.errors.BudgetExceeded`: no answer in
      time, or nothing was written; retry.
    """

    def __init__(self, stores: Stores, actor: Actor | None = None) -> None:
        super().__init__(stores, actor)
        self._table = stores.memories

    async def search(
        self,
        query: str,
        *,
        namespace: str | None = None,
        memory_type: str | None = None,
        agent: str | None = None,
        conversation_id: str | None = None,
        limit: int = 10,
        threshold: float = 0.0,
        as_of: datetime | None = None,
        deadline_ms: float | None = None,
    ) -> MemoriesSection:
        """
        Return the memories that answer *query*, by words and by meaning, best first; finding one counts as an access.

        If the encoder is away or not loaded in time, words alone decide; the answer is then ``partial`` and says so.

        Args:
            query: 1 to 10,000 characters of plain text; nothing in it is syntax.
            namespace: one namespace, or with ``/*`` its subtree; by default all that the actor may read.
            memory_type: ``semantic``, ``episodic`` or ``procedural`` ones alone.
            agent: those that this actor stored alone.
            conversation_id: those of one conversation alone.
            limit: most results, 1 to 200.
            threshold: least similarity of meaning, 0 to 1; the default leaves none out.
            as_of: the moment for which the answer holds, aware; now by default. Such a search counts as no access.
            deadline_ms: when the answer is due, 10 to 30,000 ms; ``deadline_ms`` of the settings by default.
        """
        share("threshold", threshold)
        wanted = memory_type_of(memory_type) if memory_type is not None else None
        asked = parse_pattern(namespace) if namespace is not None else None
        due, actor = self._due(deadline_ms), self._actor
        of_all = Resource(ResourceType.MEMORIES, None, actor.id)
        resource = resource_of(asked.segments, actor, Action.READ) if asked is not None else of_all
        found = MemoryQuery(
            query,
            scopes(asked, readable(actor)),
            memory_type=wanted,
            agent_id=agent,
            conversation_id=conversation_id,
            limit=limit,
            threshold=threshold,
            until=parse_as_of(as_of, AsOfClock.KNOWN)[0],
        )
        await self._authorize(resource, Action.READ, due)
        if found.until is not None:
            horizon = await fetch_read_horizon(self._stores.database, AsOfClock.KNOWN, deadline=due)
            found = found.as_of(horizon.resolve(found.until, AsOfClock.KNOWN).at)
        return await self._table.search(found, deadline=due)

    async def history(self, memory_id: UUID | str, *, deadline_ms: float | None = None) -> list[StoredMemory]:
        """
        Return every version of a memory, of what it superseded and of what superseded it, oldest first.

        Args:
            memory_id: of any of them.
            deadline_ms: as of :meth:`search`.
        """
        due, actor, known = self._due(deadline_ms), self._actor, _id_of(memory_id)
        await self._authorize_memory(known, Action.READ, due)
        return await self._table.versions(known, scopes(None, readable(actor)), deadline=due)

    async def supersede(
        self,
        memory_id: UUID | str,
        text: str,
        *,
        reason: str,
        metadata: Mapping[str, Any] | None = None,
        importance: float | None = None,
        deadline_ms: float | None = None,
    ) -> RememberedMemory:
        """
        Put *text* in the place of a memory that it contradicts; the old one stays in its history, with *reason*.

        No memory is superseded automatically: similar texts update, and contradictions are for an actor who may write
        there to decide. Superseding by the same text again is ``identical``.

        Args:
            text: 1 to 10,000 characters.
            reason: why, 1 to 1,000 characters.
            metadata: of the new memory, an object of JSON values.
            importance: 0 to 1; that of the old one by default.
            deadline_ms: until it is durable, in milliseconds; 10,000 by default.
        """
        check_reason(reason)
        memory = NewMemory(text, metadata=metadata or {}, importance=0.5 if importance is None else importance)
        due, known = _write_due(deadline_ms), _id_of(memory_id)
        await self._authorize_memory(known, Action.WRITE, due)
        return await self._table.supersede(
            self._actor, known, memory, reason=reason, importance=importance, deadline=due
        )

    async def store(
        self,
        text: str,
        *,
        namespace: str | None = None,
        memory_type: str = "semantic",
        metadata: Mapping[str, Any] | None = None,
        importance: float = 0.5,
        user_id: str | None = None,
        conversation_id: str | None = None,
        author: str | None = None,
        deadline_ms: float | None = None,
    ) -> RememberedMemory:
        """Store a text; see :meth:`imem.memory.Memory.remember`."""
        actor = self._actor
        segments = parse_namespace(namespace) if namespace is not None else own_namespace(actor)
        memory = NewMemory(
            text,
            memory_type_of(memory_type),
            metadata or {},
            importance,
            user_id=user_id,
            conversation_id=conversation_id,
            author=author,
        )
        due = _write_due(deadline_ms)
        await self._authorize(resource_of(segments, actor, Action.WRITE), Action.WRITE, due)
        return await self._table.store(actor, "/".join(segments), memory, deadline=due)

    async def _authorize_memory(self, memory_id: UUID, action: Action, deadline: Deadline) -> None:
        """Authorize *action* on the namespace of a memory."""
        namespace = await self._table.namespace_of(memory_id, deadline=deadline)
        if namespace is None:
            raise unknown_memory(memory_id)
        resource = resource_of(parse_namespace(namespace), self._actor, action)
        await self._authorize(resource, action, deadline)

    async def _authorize(self, resource: Resource, action: Action, deadline: Deadline) -> None:
        await self._stores.gateway.authorize(resource, action, deadline=deadline, actor=self._actor)

    def _due(self, deadline_ms: float | None) -> Deadline:
        default = self._stores.settings.deadline_ms
        return Deadline.after_ms(budget_ms(deadline_ms, default=default, least=LEAST_BUDGET_MS, most=MOST_BUDGET_MS))


def _write_due(deadline_ms: float | None) -> Deadline:
    return Deadline.after_ms(budget_ms(deadline_ms, default=REMEMBER_MS, least=1, most=MOST_WRITE_BUDGET_MS))


def _id_of(memory_id: UUID | str) -> UUID:
    try:
        return memory_id if isinstance(memory_id, UUID) else UUID(memory_id)
    except ValueError:
        raise BadInput("memory_id", f"{memory_id!r} is not the id of a memory.") from None
