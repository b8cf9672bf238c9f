"""Conversations for programs without an event loop; apart from working memory, which needs none of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from imem.blocking.portal import Portal
from imem.blocking.twin import Twin, blocking
from imem.services.conversations import Conversation


class SyncConversation(Twin[Conversation]):
    """A thread of messages; for its methods see :class:`~imem.services.conversations.Conversation`."""

    @classmethod
    def of(cls, portal: Portal, make: Callable[[], Conversation]) -> Self:
        """Return the blocking counterpart of the conversation that *make* returns."""
        return cls(portal, portal.run(make))

    add = blocking(Conversation.add)
    window = blocking(Conversation.window)
    history = blocking(Conversation.history)
    summarise = blocking(Conversation.summarise)
    delete = blocking(Conversation.delete)

    @property
    def workflow_id(self) -> str:
        """The workflow that the thread belongs to."""
        return self._inner.workflow_id

    @property
    def thread_id(self) -> str:
        """The thread's name in the workflow."""
        return self._inner.thread_id
