"""What the parts of ``Memory`` have in common: the stores of a process, and the actor of every call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from imem.journal.actors import Action, Actor, Resource
from imem.journal.deadline import Deadline
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
