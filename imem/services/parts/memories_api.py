"""Memories, stored and searched: a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from imem.journal.arguments import checks_arguments
from imem.recall.memories.model import RememberedMemory
from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.services.memories import Memories


@checks_arguments
class MemoriesApi(ActorApi):
    """Remembers texts and finds them again; see :class:`imem.memory.Memory`."""

    @property
    def memories(self) -> Memories:
        """
        The memories that the actor may read, as in ``await memory.memories.search("…")``.

        Raises:
            SettingsError: the settings name an endpoint for vectors, and no model.
        """
        from imem.services.memories import Memories  # noqa: PLC0415 - what makes vectors takes long to import

        return Memories(self._stores, self._actor)

    async def remember(
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
        """
        Store *text* as a memory, to be found again by its words and its meaning with :attr:`memories`.

        ::

            await memory.remember("HBM is sold out until 2027.", namespace="symbol/MU")
            found = await memory.memories.search("Is there enough memory for AI?")

        If the actor said it there in nearly the same words, with the same figures, names and directions ("will rise" is
        not "will fall"), of the same user and type, that memory has a new version: with this text, the higher
        importance, and the metadata of both. Its earlier versions stay. The same text again is ``identical``. If
        another actor said it, both hold the memory, each with its own words, metadata and importance. If the encoder is
        away, it is found by its words until a worker has made its vector.

        Args:
            text: 1 to 10,000 characters.
            namespace: ``global``, ``agent/NAME``, ``symbol/TICKER``, ``user/NAME`` or a path below; ``agent/`` and the
                actor's name by default. Agents write below their own name, ``symbol`` and ``user``.
            memory_type: ``semantic`` (what holds), ``episodic`` (what happened) or ``procedural`` (how to).
            metadata: an object of JSON values, at most 64 KiB.
            importance: 0 to 1.
            user_id: whom it is about.
            conversation_id: the conversation that it is the next message of; with it, what stands beside a message
                helps to find it.
            author: who said it: the name is searched like the text, and a question that names them prefers it.
            occurred_at: when it was said, aware and not in the future; by default when it is stored. It takes the
                import right. Answers as of a moment from then on find the memory, and a question that names a date, a
                month or a year prefers what was said then. A repeat of the text leaves the time of the first.
            extract: whether a model is to find the facts in it, which become memories too, with the ``source_id`` of
                this one in their metadata; the settings name the endpoint (``extraction_url``).
            deadline_ms: until it is durable, in milliseconds, encoding included; 10,000 by default, 30,000 to extract.

        Raises:
            BadInput: an argument is wrong; names it.
            TooLarge: the namespace holds as many memories as the settings allow (``memory_namespace_limit``).
            PermissionDenied: the actor may not write there, or may not state *occurred_at*; a denial row was written.
            PostgresUnavailable, BudgetExceeded: nothing was written; retry.
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
            SettingsError, StoreUnavailable, StatementRejected: there is no endpoint to extract with, it is away,
                refuses, or its answer is unusable; nothing was written.
        """
        return await self.memories.store(
            text,
            namespace=namespace,
            memory_type=memory_type,
            metadata=metadata,
            importance=importance,
            user_id=user_id,
            conversation_id=conversation_id,
            author=author,
            occurred_at=occurred_at,
            extract=extract,
            deadline_ms=deadline_ms,
        )
