"""
Conversations, as the gateway lets an actor at them.

A thread belongs to the actor that began it, which the row of the thread says. The store below knows no actors; the way
to it that takes one is here. What an actor may do is decided by whose the thread is when it is asked for, and the store
does it only while the thread is still that actor's: one that was deleted and begun anew by somebody else in between
stays closed.
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
    checked_thread,
)
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.services.arguments import MOST_WRITE_BUDGET_MS, budget_ms

T = TypeVar("T")

READ_MS: Final = 2_000
"""How long a look, or a deletion, may take where the call does not say, in milliseconds."""

SAY_MS: Final = 30_000
"""The same for what may have a summary made, by a model that takes its time."""

Messages = tuple[StoredMessage, ...]


@checks_arguments
class Conversation:
    """
    A thread of messages that stays short without being forgotten; made by :meth:`imem.memory.Memory.conversation`.

    It begins with its first message, and belongs to the actor that adds it: nobody else adds to it, people may read and
    delete it, and for everybody else it is closed.

    **What every method may raise.**

    * :class:`~imem.journal.errors.PermissionDenied`: the thread is somebody else's; a denial row was written.
    * :class:`~imem.journal.errors.PostgresUnavailable`, :class:`~imem.journal.errors.BudgetExceeded`: nothing was
      written; retry.
    * :class:`~imem.journal.errors.BadInput`: something is wrong with an argument; names it.

    Those that write, in addition:

    * :class:`~imem.journal.errors.OutcomeUnknown`: the connection broke while committing; repeating the call is
      harmless.

    Attributes:
        workflow_id, thread_id: its name; two workflows may use one thread id and see nothing of one another.
    """

    def __init__(self, gateway: Gateway, conversations: Conversations, workflow_id: str, thread_id: str) -> None:
        checked_thread(workflow_id, thread_id)
        self._gateway = gateway
        self._conversations = conversations
        self.workflow_id = workflow_id
        self.thread_id = thread_id

    async def add(self, message: Message, *, summarise: bool = True, deadline_ms: int | None = None) -> AddedMessage:
        """
        Store *message* at the end, and see to a summary where one is due; return what became of it.

        Adding a message of the same id and content again changes nothing. It is durable before a summary is begun, and
        a summary that fails is no error.

        Args:
            summarise: whether to wait for a summary that is due; otherwise it is left to a later call.
            deadline_ms: how long it may take with the summary, in milliseconds; 30,000 by default.
        """

        async def work(owner: str | None) -> AddedMessage | ForeignThread:
            return await self._conversations.add_of(
                owner, self.workflow_id, self.thread_id, message, deadline=due, summarise=summarise
            )

        due = _due(deadline_ms, SAY_MS)
        return await self._allowed(Action.WRITE, work, due)

    async def window(self, *, deadline_ms: int | None = None) -> Messages:
        """
        Return what a model has to see, in order; nothing where nothing was said yet.

        That is what is pinned and at most 20 others: the summary of the older part, if there is one, and the newest.

        Args:
            deadline_ms: how long it may take, in milliseconds; 2,000 by default.
        """

        async def work(owner: str | None) -> Messages:
            return await self._conversations.window(self.workflow_id, self.thread_id, owner=owner, deadline=due)

        due = _due(deadline_ms, READ_MS)
        return await self._allowed(Action.READ, work, due)

    async def history(self, *, after: int = 0, limit: int = 100, deadline_ms: int | None = None) -> Messages:
        """
        Return what was said, verbatim, a page after the *seq* that was read last; summaries are not shown.

        Args:
            after: the seq of the last message that is known already; 0 for the beginning.
            limit: most messages, 1 to 500.
            deadline_ms: how long it may take, in milliseconds; 2,000 by default.
        """

        async def work(owner: str | None) -> Messages:
            return await self._conversations.history(
                self.workflow_id, self.thread_id, owner=owner, after=after, limit=limit, deadline=due
            )

        due = _due(deadline_ms, READ_MS)
        return await self._allowed(Action.READ, work, due)

    async def summarise(self, *, deadline_ms: int | None = None) -> SummaryOutcome:
        """
        Summarise the oldest messages now, if more stand there than a window holds; earlier failures do not count.

        Args:
            deadline_ms: how long it may take, in milliseconds; 30,000 by default.
        """

        async def work(_: str | None) -> SummaryOutcome:
            return await self._conversations.summarise(self.workflow_id, self.thread_id, deadline=due)

        due = _due(deadline_ms, SAY_MS)
        return await self._allowed(Action.WRITE, work, due)

    async def delete(self, *, deadline_ms: int | None = None) -> int:
        """
        Delete the thread with everything that was said in it; return how many messages that were.

        The audit keeps who did it. Whoever adds to it afterwards begins it anew.

        Args:
            deadline_ms: how long it may take, in milliseconds; 2,000 by default.
        """

        async def work(owner: str | None) -> int | ForeignThread:
            return await self._conversations.delete_of(owner, self.workflow_id, self.thread_id, deadline=due)

        due = _due(deadline_ms, READ_MS)
        return await self._allowed(Action.DELETE, work, due)

    async def _allowed(
        self, action: Action, work: Callable[[str | None], Awaitable[T | ForeignThread]], deadline: Deadline
    ) -> T:
        """Do *work* on behalf of whose the thread is, if the actor may; what nobody has begun is as good as its own."""
        # Patience is for models: a server that is away is told at once.
        looking = deadline.within_ms(READ_MS)
        found = await self._conversations.owner(self.workflow_id, self.thread_id, deadline=looking)
        owner = found.owner if found is not None else self._gateway.actor.id
        while True:
            resource = Resource(ResourceType.WORKFLOW, f"{self.workflow_id}/{self.thread_id}", owner)
            done = await self._gateway.authorize_and_execute(resource, action, partial(work, owner), deadline=deadline)
            if not isinstance(done, ForeignThread):
                return done
            # Somebody else began it since, or began it anew: the gateway decides of that one.
            owner = done.owner


def _due(deadline_ms: int | None, default: int) -> Deadline:
    return Deadline.after_ms(budget_ms(deadline_ms, default=default, least=1, most=MOST_WRITE_BUDGET_MS))
