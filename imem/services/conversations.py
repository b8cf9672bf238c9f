"""
Authorized access to conversations.

A thread belongs to the actor that began it; its row holds the owner. The store below does not check actors. The gateway
decides by the owner read first, and the store executes only if the thread still has that owner: one that was deleted
and begun by another actor in between is not touched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from imem.checkpoints.conversations.messages import Message, StoredMessage
from imem.checkpoints.conversations.store import (
    AddedMessage,
    Conversations,
    ForeignThread,
    SummaryOutcome,
)
from imem.checkpoints.statements import thread_of
from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.services.parts.actor_api import ActorApi
from imem.services.stores import Stores

T = TypeVar("T")

READ_MS: Final = 2_000
"""Default budget of a read or a deletion, in milliseconds."""

SAY_MS: Final = 30_000
"""Default budget of calls that may have a model make a summary, in milliseconds."""

Messages = tuple[StoredMessage, ...]


@checks_arguments
class Conversation(ActorApi):
    """
    A thread of messages with a bounded window; made by :meth:`imem.memory.Memory.conversation`.

    It begins with its first message, and belongs to the actor that adds it. Only that actor adds to it; people may read
    and delete it; other actors have no access.

    **What every method may raise.**

    * :class:`~imem.journal.errors.PermissionDenied`: another actor owns the thread; a denial row was written.
    * :class:`~imem.journal.errors.PostgresUnavailable`, :class:`~imem.journal.errors.BudgetExceeded`: nothing was
      written; retry.
    * :class:`~imem.journal.errors.BadInput`: an argument is wrong; names it.

    Those that write, in addition:

    * :class:`~imem.journal.errors.OutcomeUnknown`: the connection broke while committing; repeating the call is
      harmless.

    Attributes:
        workflow_id, thread_id: its name; threads of two workflows with the same thread id are separate.
    """

    def __init__(
        self, stores: Stores, actor: Actor, conversations: Conversations, workflow_id: str, thread_id: str
    ) -> None:
        thread_of(workflow_id, thread_id)
        super().__init__(stores, actor)
        self._conversations = conversations
        self.workflow_id = workflow_id
        self.thread_id = thread_id
        self._thread = workflow_id, thread_id

    async def add(self, message: Message, *, summarise: bool = True, deadline_ms: int | None = None) -> AddedMessage:
        """
        Append *message*, make a summary if one is due and a model is configured, and return both results.

        Adding a message of the same id and content again changes nothing. The message is durable before a summary is
        begun, and a summary that fails is no error.

        Args:
            summarise: whether to make a summary that is due; otherwise it is left to a later call.
            deadline_ms: budget including the summary, in milliseconds; 30,000 by default.
        """
        due = self._write_due(deadline_ms, SAY_MS)
        add = partial(self._conversations.add, *self._thread, message, deadline=due, summarise=summarise)
        return await self._of_owner(Action.WRITE, lambda owner: add(owner=owner), due)

    async def window(self, *, deadline_ms: int | None = None) -> Messages:
        """
        Return the messages for a model, in order; empty if there are none yet.

        These are the pinned ones and at most 20 others: the summary of the older part, if there is one, and the newest.

        Args:
            deadline_ms: how long it may take, in milliseconds; 2,000 by default.
        """
        due = self._write_due(deadline_ms, READ_MS)
        window = self._conversations.window
        return await self._of_owner(Action.READ, lambda owner: window(*self._thread, owner=owner, deadline=due), due)

    async def history(self, *, after: int = 0, limit: int = 100, deadline_ms: int | None = None) -> Messages:
        """
        Return a page of messages, verbatim; summaries are not included.

        Args:
            after: the seq of the last message already read; 0 for the beginning.
            limit: most messages, 1 to 500.
            deadline_ms: how long it may take, in milliseconds; 2,000 by default.
        """
        due = self._write_due(deadline_ms, READ_MS)
        page = partial(self._conversations.history, *self._thread, after=after, limit=limit, deadline=due)
        return await self._of_owner(Action.READ, lambda owner: page(owner=owner), due)

    async def summarise(self, *, deadline_ms: int | None = None) -> SummaryOutcome:
        """
        Summarise the oldest messages now, if there are more than a window holds; earlier failures are not considered.

        Nothing happens without a model (``IMEM_SUMMARY_URL``).

        Args:
            deadline_ms: how long it may take, in milliseconds; 30,000 by default.
        """
        due = self._write_due(deadline_ms, SAY_MS)
        summarise = self._conversations.summarise
        return await self._of_owner(Action.WRITE, lambda _: summarise(*self._thread, deadline=due), due)

    async def delete(self, *, deadline_ms: int | None = None) -> int:
        """
        Delete the thread with its messages; return how many there were.

        The deletion is audited. The next message begins the thread anew, with its actor as the owner.

        Args:
            deadline_ms: how long it may take, in milliseconds; 2,000 by default.
        """
        due = self._write_due(deadline_ms, READ_MS)
        delete = self._conversations.delete_of
        return await self._of_owner(Action.DELETE, lambda owner: delete(owner, *self._thread, deadline=due), due)

    async def _of_owner(
        self, action: Action, work: Callable[[str | None], Awaitable[T | ForeignThread]], deadline: Deadline
    ) -> T:
        """Execute *work* with the thread's owner, if the actor may; a thread not begun counts as the actor's own."""
        # The longer budget is for models: a server that is away is reported at once.
        looking = deadline.within_ms(READ_MS)
        found = await self._conversations.owner(self.workflow_id, self.thread_id, deadline=looking)
        owner = found.owner if found is not None else self._actor.id
        while True:
            resource = Resource(ResourceType.WORKFLOW, f"{self.workflow_id}/{self.thread_id}", owner)
            done = await self._allowed(resource, action, partial(work, owner), deadline)
            if not isinstance(done, ForeignThread):
                return done
            # Another actor has begun it since: the gateway decides again, for that owner.
            owner = done.owner
