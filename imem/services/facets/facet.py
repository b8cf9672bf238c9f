"""The common base of ``Memory`` and its facets: the stores of a process, and the actor of every call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import cached_property
from typing import Final, TypedDict, TypeVar

from imem.journal.actors import Action, Actor, Resource
from imem.journal.deadline import Deadline
from imem.recall.brief import Recall
from imem.services.arguments import LEAST_BUDGET_MS, MOST_BUDGET_MS, MOST_WRITE_BUDGET_MS, budget_ms
from imem.services.connections import Part
from imem.services.operations import Caller
from imem.services.recall import recall_over
from imem.services.stores import Stores

T = TypeVar("T")
K = TypeVar("K", bound="Facet")

OF_THE_GRAPH: Final = (Part.GRAPH, Part.CACHE, Part.SCORES)
"""The parts that a read of the graph needs beside Postgres."""


class ReadOptions(TypedDict, total=False):
    """Options of every read; :class:`imem.memory.Memory` says what they mean."""

    as_of: datetime | None
    clock: str
    deadline_ms: float | None


class ReadMoment(TypedDict):
    """The options of a read, with the deadline that they give."""

    as_of: datetime | None
    clock: str
    deadline: Deadline


class Facet:
    """
    Calls of one actor; any number of them share the stores and the gateway of a process.

    Args:
        stores: the stores of the process.
        actor: who calls; the process' own actor by default.
        recall: the reader; one over *stores* by default.
        remote: calls a memory in another process in place of these stores.
    """

    _remote: Caller | None = None

    def __init__(
        self, stores: Stores, actor: Actor | None = None, recall: Recall | None = None, remote: Caller | None = None
    ) -> None:
        self._stores = stores
        self._given_actor = actor
        self._given_recall = recall
        self._remote = remote

    def _facet(self, kind: type[K]) -> K:
        """Return another facet, for the same actor over the same stores."""
        return kind(self._stores, self._given_actor, None if self._remote else self._recall, self._remote)

    @property
    def _actor(self) -> Actor:
        return self._given_actor or self._stores.gateway.actor

    @cached_property
    def _recall(self) -> Recall:
        return self._given_recall or recall_over(self._stores, self._given_actor)

    async def _allowed(
        self, resource: Resource, action: Action, operation: Callable[[], Awaitable[T]], deadline: Deadline
    ) -> T:
        """Run *operation* if the actor may do *action* to *resource*; else PermissionDenied, and one denial row."""
        return await self._stores.gateway.authorize_and_execute(
            resource, action, operation, deadline=deadline, actor=self._actor
        )

    async def _authorize(self, resource: Resource, action: Action, deadline: Deadline) -> None:
        """Return if the actor may do *action* to *resource*; else PermissionDenied, and one denial row."""
        await self._stores.gateway.authorize(resource, action, deadline=deadline, actor=self._actor)

    async def _due(self, deadline_ms: float | None, *needs: Part) -> Deadline:
        """
        Return the deadline of a read, which begins once the process is connected to Postgres and to what it *needs*.

        The settings have the default budget.
        """
        default = self._stores.settings.deadline_ms
        allowed_ms = budget_ms(deadline_ms, default=default, least=LEAST_BUDGET_MS, most=MOST_BUDGET_MS)
        await self._stores.connections.wait(Part.POSTGRES, *needs)
        return Deadline.after_ms(allowed_ms)

    async def _at(
        self, *, as_of: datetime | None = None, clock: str = "known", deadline_ms: float | None = None
    ) -> ReadMoment:
        """Return the options of a read of the graph, with its deadline."""
        return {"as_of": as_of, "clock": clock, "deadline": await self._due(deadline_ms, *OF_THE_GRAPH)}

    @staticmethod
    def _write_due(deadline_ms: float | None, default: float) -> Deadline:
        """Return the deadline of a write."""
        return Deadline.after_ms(budget_ms(deadline_ms, default=default, least=1, most=MOST_WRITE_BUDGET_MS))
