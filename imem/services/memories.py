"""
Authorized access to memories.

Who reads and writes where is decided by the namespace (:mod:`imem.recall.memories.namespaces`): an agent reads
``global``, ``symbol``, ``user`` and its own subtree of ``agent``, and writes all of these but ``global``. A search
covers what the actor may read, inside the query. Each actor that stores a text holds it, and ends what it says itself;
what people say is ended by people alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from imem.checkpoints.model import checked_uuid
from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.kg.asof import AsOfClock, parse_as_of
from imem.kg.kinds.work import Decision
from imem.recall.memories.extraction import FactExtractor, checked_messages
from imem.recall.memories.lessons import LEAST_CHARS, decision_memory, outcome_memories, prompt_section
from imem.recall.memories.model import (
    DeletedMemories,
    MemoriesPage,
    MemoriesSection,
    MemoryList,
    MemoryQuery,
    MemoryRights,
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
    user_scopes,
    writable,
)
from imem.recall.memories.store import unknown_memory
from imem.recall.read_horizon import clamped_until
from imem.services.arguments import share
from imem.services.connections import Part
from imem.services.parts.actor_api import ActorApi
from imem.services.stores import Stores

if TYPE_CHECKING:
    from imem.services.memory_store import MemoryItems

OWN_RELEVANT: Final = 5
GLOBAL_RELEVANT: Final = 3
"""Most memories of an agent's own, and most global ones, that are relevant."""

SECTION_CHARS: Final = 3_000
"""Longest section of a prompt by default, in characters."""

REMEMBER_MS: Final = 10_000
"""Default budget of storing a memory, in milliseconds: the first one loads the encoder."""

DELETE_MS: Final = 60_000
"""Default budget of deleting all memories of a namespace or a user, in milliseconds."""

EXTRACT_MS: Final = 30_000
"""Default budget where a model extracts facts, in milliseconds."""


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
            agent: those alone that show what this actor says.
            conversation_id: those of one conversation alone.
            limit: most results, 1 to 200.
            threshold: least similarity of meaning, 0 to 1; the default leaves none out.
            as_of: the moment for which the answer holds, aware; now by default. Such a search counts as no access.
            deadline_ms: when the answer is due, 10 to 30,000 ms; ``deadline_ms`` of the settings by default.
        """
        share("threshold", threshold)
        wanted = memory_type_of(memory_type) if memory_type is not None else None
        asked = parse_pattern(namespace) if namespace is not None else None
        due, actor = await self._due(deadline_ms, Part.ENCODER), self._actor
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
        until = await clamped_until(self._stores.database, found.until, deadline=due)
        return await self._table.search(replace(found, until=until), deadline=due)

    async def relevant(
        self,
        query: str,
        *,
        agent: str | None = None,
        as_of: datetime | None = None,
        deadline_ms: float | None = None,
    ) -> MemoriesSection:
        """
        Return what of an agent's own memories and of global ones is relevant to *query*: at most five, then three.

        Relevant is what is as similar as the settings demand (``memory_own_similarity``, ``memory_global_similarity``);
        nothing may be. If the encoder is away, words alone decide, and the answer is ``partial``.

        Args:
            agent: whose own memories; the actor's by default.
            as_of, deadline_ms: as of :meth:`search`.
        """
        settings = self._stores.settings
        own = "/".join(own_namespace(replace(self._actor, id=agent or self._actor.id)))
        parts = await asyncio.gather(
            *(
                self.search(
                    query, namespace=f"{space}/*", limit=most, threshold=least, as_of=as_of, deadline_ms=deadline_ms
                )
                for space, most, least in (
                    (own, OWN_RELEVANT, settings.memory_own_similarity),
                    ("global", GLOBAL_RELEVANT, settings.memory_global_similarity),
                )
            )
        )
        items = [item for part in parts for item in part.items]
        lacking = next((part for part in parts if part.reason is not None), parts[0])
        return lacking.model_copy(update={"items": items, "total": len(items)})

    async def prompt_section(
        self,
        query: str,
        *,
        agent: str | None = None,
        max_chars: int = SECTION_CHARS,
        as_of: datetime | None = None,
        deadline_ms: float | None = None,
    ) -> str:
        """
        Return what is :meth:`relevant` as a section of a prompt, ``## Relevant Past Knowledge``; empty for nothing.

        Each memory is one line, quoted and bounded: what it says is data, whatever it says.

        Args:
            max_chars: longest section, 500 or more; what does not fit is left out.
        """
        if max_chars < LEAST_CHARS:
            raise BadInput("max_chars", f"must be at least {LEAST_CHARS}.")
        found = await self.relevant(query, agent=agent, as_of=as_of, deadline_ms=deadline_ms)
        return prompt_section(found.items, max_chars, found.reason)

    async def record_decision(
        self, decision: Decision, *, reasoning: str | None = None, deadline_ms: float | None = None
    ) -> RememberedMemory:
        """
        Remember a decision when it is made: an episodic memory of importance 0.6, in ``agent/NAME/decisions``.

        It is no record: :meth:`imem.memory.Memory.record_decision` makes that. The same again is ``identical``.

        Args:
            reasoning: why, at most some 9,000 characters.
            deadline_ms: as of :meth:`supersede`.
        """
        due = self._write_due(deadline_ms, REMEMBER_MS)
        [stored] = await self._store_own([("decisions", decision_memory(decision, reasoning))], due)
        return stored

    async def record_outcome(
        self, decision: Decision, pnl_pct: float, *, lesson: str | None = None, deadline_ms: float | None = None
    ) -> list[RememberedMemory]:
        """
        Remember how a decision ended: an episodic memory of importance 0.7 for a profit, 0.8 for none.

        Of a loss beyond ``memory_lesson_loss_pct`` of the settings a procedural memory of importance 0.9 is stored too,
        in ``agent/NAME/lessons``: both or neither.

        Args:
            pnl_pct: profit or loss, in percent of the position: -7.2 is a loss of 7.2 %.
            lesson: what is to be learned of such a loss; by default that it is one case.
            deadline_ms: as of :meth:`supersede`.
        """
        least = self._stores.settings.memory_lesson_loss_pct
        due, spaces = self._write_due(deadline_ms, REMEMBER_MS), ("decisions", "lessons")
        new = outcome_memories(decision, pnl_pct, lesson, least)
        return await self._store_own(list(zip(spaces, new, strict=False)), due)

    async def _store_own(self, new: Sequence[tuple[str, NewMemory]], due: Deadline) -> list[RememberedMemory]:
        """Store memories in spaces of the actor's own namespace, in one transaction."""
        own = own_namespace(self._actor)
        await self._authorize(resource_of(own, self._actor, Action.WRITE), Action.WRITE, due)
        placed = [("/".join((*own, space)), memory) for space, memory in new]
        return await self._table.store_all(self._actor, placed, deadline=due)

    async def history(self, memory_id: UUID | str, *, deadline_ms: float | None = None) -> list[StoredMemory]:
        """
        Return every version of a memory, of what it superseded and of what superseded it, oldest first.

        Args:
            memory_id: of any of them.
            deadline_ms: as of :meth:`search`.
        """
        due, actor, known = await self._due(deadline_ms), self._actor, checked_uuid("memory_id", memory_id)
        await self._authorize_memory(known, Action.READ, due)
        return await self._table.versions(known, scopes(None, readable(actor)), deadline=due)

    async def get(
        self, memory_id: UUID | str, *, as_of: datetime | None = None, deadline_ms: float | None = None
    ) -> StoredMemory:
        """
        Return a memory by its id; of one that has ended, its last version.

        Args:
            as_of, deadline_ms: as of :meth:`search`.

        Raises:
            BadInput: the actor may read none of that id, or there was none yet.
        """
        due, actor, known = await self._due(deadline_ms), self._actor, checked_uuid("memory_id", memory_id)
        until = await self._until(as_of, due)
        await self._authorize_memory(known, Action.READ, due)
        found = await self._table.get(known, scopes(None, readable(actor)), until, deadline=due)
        if found is None:
            raise unknown_memory(known)
        return found

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
        Correct a memory: say *text* instead of it; the old one stays in its history, with *reason*.

        An agent ends what it says itself: if others say the same, the old memory remains, as theirs (``remains``). A
        person ends what anybody says, the knowledge base what agents say. No memory is superseded automatically.
        Superseding by the same text again is ``identical``.

        Args:
            text: 1 to 10,000 characters.
            reason: why, 1 to 1,000 characters.
            metadata: of the new memory, an object of JSON values.
            importance: 0 to 1; that of the old one by default.
            deadline_ms: until it is durable, in milliseconds; 10,000 by default.
        """
        check_reason(reason)
        memory = NewMemory(text, metadata=metadata or {}, importance=0.5 if importance is None else importance)
        due, known = self._write_due(deadline_ms, REMEMBER_MS), checked_uuid("memory_id", memory_id)
        rights = await self._authorize_memory(known, Action.WRITE, due)
        memory = replace(memory, author=rights.author)
        return await self._table.supersede(
            self._actor, known, memory, reason=reason, importance=importance, deadline=due
        )

    async def retire(self, memory_id: UUID | str, *, reason: str, deadline_ms: float | None = None) -> RememberedMemory:
        """
        Take back a memory that holds no longer; where nobody else says it, it is found as of earlier moments alone.

        It stays in its history, with *reason*. The rule for whose assertion ends is that of :meth:`supersede`. Retiring
        it again is ``identical``.

        Args:
            reason: why, 1 to 1,000 characters.
            deadline_ms: as of :meth:`supersede`.
        """
        check_reason(reason)
        due, known = self._write_due(deadline_ms, REMEMBER_MS), checked_uuid("memory_id", memory_id)
        await self._authorize_memory(known, Action.WRITE, due)
        return await self._table.retire(self._actor, known, reason=reason, deadline=due)

    async def delete(self, memory_id: UUID | str, *, deadline_ms: float | None = None) -> DeletedMemories:
        """
        Delete a memory for good, with its versions, its vectors and every memory whose place it took.

        A person deletes any. An agent deletes what nobody else ever said: from what others say too, it can retire
        alone. A row of the audit remains.

        Args:
            deadline_ms: as of :meth:`supersede`.
        """
        due, known = self._write_due(deadline_ms, REMEMBER_MS), checked_uuid("memory_id", memory_id)
        await self._authorize_memory(known, Action.DELETE, due)
        return DeletedMemories(len(await self._table.delete(self._actor, [known], deadline=due)))

    async def delete_all(
        self, *, namespace: str | None = None, user: str | None = None, deadline_ms: float | None = None
    ) -> DeletedMemories:
        """
        Delete all memories of a namespace or of a user for good, as :meth:`delete` does.

        What the actor may not delete stays. A crash leaves some deleted; the same call goes on.

        Args:
            namespace: one namespace, or with ``/*`` its subtree.
            user: those with this ``user_id``, and those below ``user/`` and this name; with *namespace* in it alone.
            deadline_ms: until all are gone, in milliseconds; 60,000 by default.
        """
        if namespace is None and user is None:
            raise BadInput("namespace", "or a user must be named.")
        due, actor = self._write_due(deadline_ms, DELETE_MS), self._actor
        asked = parse_pattern(namespace) if namespace is not None else None
        of_all = Resource(ResourceType.MEMORIES, f"user {user}", actor.id)
        wanted = _list_of(scopes(asked, writable(actor)), user=user)
        await self._authorize(
            resource_of(asked.segments, actor, Action.DELETE) if asked is not None else of_all, Action.DELETE, due
        )
        return DeletedMemories(await self._table.delete_all(actor, wanted, deadline=due))

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
        occurred_at: datetime | None = None,
        extract: bool = False,
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
            occurred_at=occurred_at,
        )
        due = self._write_due(deadline_ms, EXTRACT_MS if extract else REMEMBER_MS)
        await self._authorize(resource_of(segments, actor, Action.WRITE), Action.WRITE, due)
        if occurred_at is not None:
            await self._authorize(Resource(ResourceType.JOURNAL, owner=actor.id), Action.IMPORT, due)
        where = "/".join(segments)
        if not extract:
            return await self._table.store(
                actor, where, memory, created_at=occurred_at, known_at=occurred_at, deadline=due
            )
        message = {"content": text, "author": author}
        found = await FactExtractor.of(self._stores.settings).facts([message], deadline=due)
        facts = [replace(fact, occurred_at=occurred_at) for fact, _ in found]
        source, *stored = await self._table.store_facts(actor, where, memory, facts, known_at=occurred_at, deadline=due)
        return replace(source, facts=tuple(stored))

    async def extract(
        self, messages: Sequence[Mapping[str, Any]], *, namespace: str | None = None, deadline_ms: float | None = None
    ) -> list[RememberedMemory]:
        """
        Remember the facts that a model finds in *messages*, all of them or none; the messages are not stored.

        Args:
            messages: 1 to 100 objects with ``content``, and perhaps ``role``, ``author`` and ``id``; the id of the
                message that says a fact is its ``source_id`` in the metadata.
            namespace: as of :meth:`store`.
            deadline_ms: until they are durable, in milliseconds, the model's time included; 30,000 by default.

        Raises:
            SettingsError: ``extraction_url`` or ``extraction_model`` is not set.
            StoreUnavailable, BudgetExceeded: the endpoint or Postgres is away or late, or the model's answer is
                unusable; nothing was written.
            StatementRejected: the endpoint refuses.
        """
        read, actor = checked_messages(messages), self._actor
        segments = parse_namespace(namespace) if namespace is not None else own_namespace(actor)
        due = self._write_due(deadline_ms, EXTRACT_MS)
        await self._authorize(resource_of(segments, actor, Action.WRITE), Action.WRITE, due)
        found = await FactExtractor.of(self._stores.settings).facts(read, deadline=due)
        facts = [
            replace(fact, metadata={"source_id": read[nth]["id"]} if read[nth].get("id") else {}) for fact, nth in found
        ]
        return await self._table.store_facts(actor, "/".join(segments), None, facts, deadline=due)

    def _items(
        self, root: str | None = None, fields: Sequence[str] | None = None, deadline_ms: float | None = None
    ) -> MemoryItems:
        """Return the items of LangGraph's store; for the arguments see :class:`imem.langgraph.MemoryStore`."""
        from imem.services.memory_store import MemoryItems  # noqa: PLC0415 - LangGraph need not be installed

        return MemoryItems(self._stores, self._actor, root=root, fields=fields, deadline_ms=deadline_ms)

    async def _until(self, as_of: datetime | None, deadline: Deadline) -> datetime | None:
        """Return the moment for which a read answers; None for now."""
        until = parse_as_of(as_of, AsOfClock.KNOWN)[0]
        return await clamped_until(self._stores.database, until, deadline=deadline)

    async def _authorize_memory(self, memory_id: UUID, action: Action, deadline: Deadline) -> MemoryRights:
        """
        Authorize *action* on a memory, and return by what that was decided.

        In a shared namespace it is of whoever says it, or else of the one who said it first. Where all of it is of
        people, ending it takes the right to overrule them.
        """
        rights = await self._table.rights(self._actor, memory_id, deadline=deadline)
        resource = resource_of(parse_namespace(rights.namespace), self._actor, action)
        if action is not Action.READ and resource.owner == self._actor.id and not rights.namespace.startswith("agent/"):
            may = rights.may_delete if action is Action.DELETE else rights.is_own
            resource = replace(resource, owner=self._actor.id if may else _other(rights, self._actor))
        await self._authorize(resource, action, deadline)
        ends_nothing = rights.of_people and not rights.is_own
        if (action is Action.DELETE and not rights.may_delete) or (action is Action.WRITE and ends_nothing):
            await self._authorize(replace(resource, owner=rights.owner), Action.OVERRULE, deadline)
        return rights

    async def list(
        self,
        *,
        namespace: str | None = None,
        user: str | None = None,
        memory_type: str | None = None,
        agent: str | None = None,
        limit: int = 50,
        offset: int = 0,
        as_of: datetime | None = None,
        deadline_ms: float | None = None,
    ) -> MemoriesPage:
        """
        Return memories without a query, the last recorded first, a page at a time; ``more`` says whether others follow.

        Listing one counts as no access.

        Args:
            namespace: one namespace, or with ``/*`` its subtree; by default all that the actor may read.
            user: those with this ``user_id``, and those below ``user/`` and this name.
            memory_type: ``semantic``, ``episodic`` or ``procedural`` ones alone.
            agent: those that this actor says alone.
            limit: most memories, 1 to 200.
            offset: how many are skipped; with *as_of*, pages neither overlap nor leave a gap.
            as_of, deadline_ms: as of :meth:`search`.
        """
        due, actor = await self._due(deadline_ms), self._actor
        asked = parse_pattern(namespace) if namespace is not None else None
        of_all = Resource(ResourceType.MEMORIES, None, actor.id)
        kind = memory_type_of(memory_type) if memory_type is not None else None
        wanted = _list_of(
            scopes(asked, readable(actor)), user=user, memory_type=kind, agent_id=agent, limit=limit, offset=offset
        )
        await self._authorize(
            resource_of(asked.segments, actor, Action.READ) if asked is not None else of_all, Action.READ, due
        )
        return await self._table.page(replace(wanted, until=await self._until(as_of, due)), deadline=due)


def _list_of(covered: Sequence[str], *, user: str | None = None, **more: Any) -> MemoryList:
    return MemoryList(list(covered), user_id=user, user_scopes=user_scopes(user) if user is not None else [], **more)


def _other(rights: MemoryRights, actor: Actor) -> str | None:
    """Return whose a memory is that is not *actor*'s: who said it first, if that is not an actor of the same name."""
    return rights.owner if rights.owner != actor.id else None
