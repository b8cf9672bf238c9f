"""Vectors of memories and queries within a deadline: what is late goes on in the background, and is there next time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded
from imem.kg.similarity.embedders import Embedder, Vectors
from imem.kg.similarity.sentence_models import Purpose
from imem.kg.similarity.vectors import EMBED_BUDGET_MS, as_text, vectors_of

AT_ONCE: Final = 2
"""Calls of the embedder at a time; a local one encodes one text at a time anyway."""

OVERDUE_MS: Final = 100.0
"""How long a caller waits while an earlier call is late: an encoder that is being fetched holds up no other writer."""


class BackgroundEncoder:
    """
    Makes vectors until a deadline.

    Attributes:
        embedder: makes them; loading a local one may take longer than a reader has.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._overdue: set[asyncio.Task[Vectors]] = set()

    async def vectors(self, texts: Sequence[str], purpose: Purpose, *, deadline: Deadline) -> Vectors:
        """
        Return the vectors of *texts*.

        Raises:
            BudgetExceeded: they were not there in time; the call goes on.
            ImemError: as the embedder.
        """
        task: asyncio.Task[Vectors] | None = None
        wait = deadline.within_ms(OVERDUE_MS) if self._overdue else deadline
        try:
            async with asyncio.timeout(wait.left_s()):
                await self._slots.acquire()
                task = asyncio.create_task(self.embedder.embed(texts, deadline=deadline, purpose=purpose))
                task.add_done_callback(self._ended)
                return await asyncio.shield(task)
        except TimeoutError:
            if task is not None and not task.done():
                self._overdue.add(task)
            raise BudgetExceeded("The sentence encoder was not ready in time.") from None

    def _ended(self, task: asyncio.Task[Vectors]) -> None:
        self._overdue.discard(task)
        self._slots.release()
        if not task.cancelled():
            # Marks the error as retrieved: a caller that has timed out no longer awaits the task.
            task.exception()

    async def close(self) -> None:
        """Give up what is late."""
        late = list(self._overdue)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class PartVectors:
    """
    Vectors of the parts of a text, as Postgres reads them.

    Attributes:
        first: of its first part; None until they are made.
        others: of the others, as a JSON list; None for none.
    """

    first: str | None = None
    others: str | None = None

    @classmethod
    def of(cls, vectors: Sequence[str | None]) -> PartVectors:
        """Return those of parts in their order; none if there is no part, or one of them is missing."""
        made = [vector for vector in vectors if vector is not None]
        if not made or len(made) < len(vectors):
            return NO_VECTORS
        return cls(made[0], f"[{','.join(made[1:])}]" if made[1:] else None)


NO_VECTORS: Final = PartVectors()


async def passage_vectors(
    embedder: Embedder, texts: Sequence[str], contexts: Sequence[str | None]
) -> list[tuple[str | None, str | None]]:
    """
    Return the vector of each text and that of it in its context, as Postgres reads them; equal texts are made once.

    None where there is no context, and both for a text that the model refuses while it accepts others.

    Raises:
        ImemError: as the embedder; nothing is accepted now.
    """
    distinct = list(dict.fromkeys([*texts, *(context for context in contexts if context is not None)]))
    due = Deadline.after_ms(EMBED_BUDGET_MS)
    made = await vectors_of(embedder, distinct, deadline=due, purpose=Purpose.PASSAGE)
    vectors = {text: as_text(vector) for text, vector in zip(distinct, made, strict=True) if vector is not None}
    return [
        (vectors.get(text), vectors.get(context) if context is not None and text in vectors else None)
        for text, context in zip(texts, contexts, strict=True)
    ]
