"""
Authorized access to working memories, sessions and checkpoints.

The owner of a working memory is the actor that first opened the instance; Postgres holds it. The stores below do not
check actors; the services here do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from imem.cache.client import Argument
from imem.cache.keys import checked_agent_id
from imem.cache.working.changes import Change
from imem.cache.working.document import Contents
from imem.cache.working.memory import Items, Names, Updates, WorkingMemory
from imem.cache.working.state import Meta
from imem.cache.working.store import KeyContent, WriteResult
from imem.checkpoints.model import Checkpoint, CheckpointSummary
from imem.checkpoints.session import Session
from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, NotOpen
from imem.services.stores import Stores

T = TypeVar("T")

ASK_MS: Final = 2_000
"""Default budget of a read of checkpoints or memories, in milliseconds; up to eight megabytes are transferred."""


@checks_arguments
class AuthorizedMemory(WorkingMemory):
    """
    A :class:`~imem.cache.working.memory.WorkingMemory` whose every call passes the gateway.

    Only the holder of the agent's lease may write: the session that is open in this process, under its epoch. A memory
    without a session, or one that is paused, takes no writes: the next session would restore the checkpoint and lose
    them.

    Readers without a session are pinned to the epoch of their first read. After another session has taken the lease,
    their reads raise the same error as those of the former holder.
    """

    def __init__(self, work: AgentServices, agent_id: str) -> None:
        self._work = work
        self._agent_id = checked_agent_id(agent_id)
        self._attached: WorkingMemory | None = None
        self._owner: str | None = None

    async def write(self, *batch: Change, deadline: Deadline | None = None) -> WriteResult:
        """
        Apply all changes, or none, if the actor may write.

        Raises:
            NotOpen: no session of this process holds the memory.
        """
        due = deadline or Deadline.after_ms(ASK_MS)

        async def written() -> WriteResult:
            session = self._work.session_of(self._agent_id)
            if session is None:
                raise NotOpen(
                    f"No session of this process works with the memory of {self._agent_id}.",
                    mend="Begin one: its lease is the right to write.",
                )
            return await session.memory.write(*batch, deadline=due)

        return await self._allowed(Action.WRITE, due, written)

    async def look(
        self, key: str, part: str, *arguments: Argument, kind: str = "", deadline: Deadline | None = None
    ) -> KeyContent:
        """Read a part of *key*, if the actor may read."""
        return await self._read(
            deadline, lambda memory, due: memory.look(key, part, *arguments, kind=kind, deadline=due)
        )

    async def items(self, *, raw: bool = False, deadline: Deadline | None = None) -> dict[str, Any]:
        """Return all items as of one moment, if the actor may read."""
        return await self._read(deadline, lambda memory, due: memory.items(raw=raw, deadline=due))

    async def len(self, *, deadline: Deadline | None = None) -> int:
        """Return how many keys there are, if the actor may read."""
        return len(await self.keys(deadline=deadline))

    async def keys(self, *, deadline: Deadline | None = None) -> Names:
        """Return all keys, sorted, if the actor may read."""
        return await self._read(deadline, lambda memory, due: memory.keys(deadline=due))

    async def published(self, *, deadline: Deadline | None = None) -> Items:
        """Return the items that are published and not pushed, if the actor may read."""
        return await self._read(deadline, lambda memory, due: memory.published(deadline=due))

    async def knowledge(self, *, deadline: Deadline | None = None) -> Updates:
        """Return the updates that were pulled, if the actor may read."""
        return await self._read(deadline, lambda memory, due: memory.knowledge(deadline=due))

    async def _read(self, deadline: Deadline | None, ask: Callable[[WorkingMemory, Deadline], Awaitable[T]]) -> T:
        due = deadline or Deadline.after_ms(ASK_MS)

        async def asked() -> T:
            return await ask(await self._memory(due), due)

        return await self._allowed(Action.READ, due, asked)

    async def _memory(self, deadline: Deadline) -> WorkingMemory:
        """Return the memory of this process's session; without one, the memory at the epoch of the first read."""
        session = self._work.session_of(self._agent_id)
        if session is None and self._attached is None:
            meta = await self._work.memories.meta(self._agent_id, deadline=deadline)
            if meta is None:
                raise NotOpen(f"The working memory of {self._agent_id} does not exist.", mend="A session opens it.")
            self._attached = WorkingMemory(self._work.memories, meta)
        memory = session.memory if session is not None else cast("WorkingMemory", self._attached)
        self.identity, self.epoch, self.rev = memory.identity, memory.epoch, memory.rev
        return memory

    async def _allowed(self, action: Action, deadline: Deadline, operation: Callable[[], Awaitable[T]]) -> T:
        if self._owner is None:  # An instance never changes its owner.
            self._owner = await self._work.owner(self._agent_id, deadline=deadline)
        resource = Resource(ResourceType.WORKING_MEMORY, self._agent_id, self._owner)
        work = self._work
        return await work.gateway.authorize_and_execute(
            resource, action, operation, deadline=deadline, actor=work.actor
        )


@checks_arguments
class AgentServices:
    """
    Authorized services of running agents, for one actor.

    Args:
        stores: of the process.
        actor: who calls; the process' own actor by default.
    """

    def __init__(self, stores: Stores, actor: Actor | None = None) -> None:
        self.gateway = stores.gateway
        self.actor = actor or stores.gateway.actor
        self._agents = stores.agents
        self.session_factory = self._agents.session_factory
        self.leases, self.memories, self.checkpoints = (
            self.session_factory.leases,
            self.session_factory.working,
            self.session_factory.checkpoints,
        )

    def session_of(self, agent_id: str) -> Session | None:
        """Return the session that the actor has open in this process, if any."""
        return self._agents.sessions.get((self.actor.id, agent_id))

    @asynccontextmanager
    async def session(
        self,
        *,
        analysis_id: str,
        agent_type: str,
        agent_id: str,
        subject_id: str,
        agent_config: Mapping[str, Any] | None = None,
        wait: Deadline | None = None,
        deadline: Deadline,
    ) -> AsyncIterator[Session]:
        """
        Begin or resume an agent instance, if the actor owns it or is its first.

        Args:
            wait: until when to wait for a lease that another process holds; by default, not at all.

        Raises:
            PermissionDenied: another actor owns the instance, or the role runs no agents; a denial row was written.
        """
        owner = await self.owner(agent_id, deadline=deadline) or self.actor.id
        for kind in (ResourceType.WORKFLOW, ResourceType.WORKING_MEMORY):
            resource = Resource(kind, agent_id, owner)
            await self.gateway.authorize(resource, Action.WRITE, deadline=deadline, actor=self.actor)
        async with self.session_factory.begin(
            analysis_id=analysis_id,
            agent_type=agent_type,
            agent_id=agent_id,
            subject_id=subject_id,
            owner=owner,
            agent_config=agent_config,
            wait=wait,
            deadline=deadline,
        ) as session:
            opened, name = self._agents.sessions, (self.actor.id, agent_id)
            opened[name] = session
            try:
                yield session
            finally:
                # A session that lost its lease may end after the next one in this process has begun.
                if opened.get(name) is session:
                    del opened[name]

    def memory(self, agent_id: str) -> AuthorizedMemory:
        """Return the authorized working memory of an instance; it is attached on first use."""
        return AuthorizedMemory(self, agent_id)

    async def look(self, agent_id: str, *, deadline: Deadline) -> tuple[Meta, Contents, bool] | None:
        """
        Return a working memory's metadata, contents, and whether the actor may see values; None if there is none.

        To an actor that may read the workflow but not the memory, the caller may show names, types and sizes alone.
        """
        owner = await self.owner(agent_id, deadline=deadline)
        memory = Resource(ResourceType.WORKING_MEMORY, agent_id, owner)
        readable = self.gateway.may(memory, Action.READ, actor=self.actor)

        async def work() -> tuple[Meta, Contents, bool] | None:
            meta = await self.memories.meta(agent_id, deadline=deadline)
            if meta is None:
                return None
            meta, contents = await self.memories.read(agent_id, deadline=deadline)
            return meta, contents, readable

        resource = memory if readable else Resource(ResourceType.WORKFLOW, agent_id, owner)
        return await self.gateway.authorize_and_execute(
            resource, Action.READ, work, deadline=deadline, actor=self.actor
        )

    async def history(
        self, analysis_id: str, agent_type: str | None = None, *, deadline: Deadline
    ) -> list[CheckpointSummary]:
        """Return the newest checkpoints of an analysis that the actor may see, oldest first."""
        found = await self.checkpoints.history(analysis_id, agent_type, deadline=deadline)
        owners = await self.leases.owners({one.agent_id for one in found}, deadline=deadline)
        shown: list[tuple[CheckpointSummary, Resource]] = []
        denied: list[tuple[CheckpointSummary, Resource]] = []
        for one in found:
            resource = Resource(ResourceType.WORKFLOW, one.agent_id, owners.get(one.agent_id))
            readable = self.gateway.may(resource, Action.READ, actor=self.actor)
            (shown if readable else denied).append((one, resource))
        if denied and not shown:
            # If the actor may see none, that is a denial with its row, not an empty list.
            await self.gateway.authorize(denied[0][1], Action.READ, deadline=deadline, actor=self.actor)
        return [one for one, _ in shown]

    async def checkpoint(self, checkpoint_id: UUID, *, deadline: Deadline) -> Checkpoint:
        """
        Return one checkpoint with the working memory of that moment.

        Raises:
            BadInput: there is none with that id.
            PermissionDenied: the actor may not read the agent's working memory.
        """
        found = await self.checkpoints.get(checkpoint_id, deadline=deadline)
        if found is None:
            raise BadInput("checkpoint", f"there is none with the id {checkpoint_id}.")
        resource = Resource(
            ResourceType.WORKING_MEMORY, found.agent_id, await self.owner(found.agent_id, deadline=deadline)
        )
        await self.gateway.authorize(resource, Action.READ, deadline=deadline, actor=self.actor)
        return found

    async def owner(self, agent_id: str, *, deadline: Deadline) -> str | None:
        """Return the owner of an instance; None if it was never opened."""
        return (await self.leases.owners({agent_id}, deadline=deadline)).get(agent_id)
