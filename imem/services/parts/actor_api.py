"""The common base of the parts of ``Memory``: the stores of a process, and the actor of every call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from imem.journal.actors import Action, Actor, Resource
from imem.journal.deadline import Deadline
from imem.services.arguments import LEAST_BUDGET_MS, MOST_BUDGET_MS, MOST_WRITE_BUDGET_MS, budget_ms
from imem.services.connections import Part
from imem.services.stores import Stores

T = TypeVar("T")


class ActorApi:
    """
    Calls of one actor; any number of them share the stores and the gateway of a process.

    Args:
        stores: the stores of the process.
        actor: who calls; the process' own actor by default.
    """

    def __init__(self, stores: Stores, actor: Actor | None = None) -> None:
        self._stores = stores
        self._actor = actor or stores.gateway.actor

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

    @staticmethod
    def _write_due(deadline_ms: float | None, default: float) -> Deadline:
        """Return the deadline of a write."""
        return Deadline.after_ms(budget_ms(deadline_ms, default=default, least=1, most=MOST_WRITE_BUDGET_MS))
