"""
Operations: the methods of ``Memory`` and of its facets, each declared once, beside the method.

An entry says what right the method takes, and whether it writes. The name of the facet and of the method are the noun
and the verb. The blocking twin, the REST route, the call of a remote memory and the reference follow from it::

    @declares_operations("tasks")
    class TasksFacet(Facet):
        @reads(ResourceType.REVIEWS)
        async def read(self, task_id: str, *, deadline_ms: float | None = None) -> Task[Any]: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final, Protocol, TypeVar, cast

from imem.journal.actors import Action, ResourceType
from imem.journal.arguments import Checks, checking, signature_of

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_RIGHT: Final = "__operation_right__"

_OPERATION: Final = "__operation__"


@dataclass(frozen=True, slots=True)
class Right:
    """
    The right that a method takes.

    Attributes:
        resource, action: the cell of the table of authorization.
        writes: whether it changes anything.
    """

    resource: ResourceType
    action: Action
    writes: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """
    A method that programs call in this process, over REST, or by a blocking twin.

    Attributes:
        facet: the noun: the facet of ``Memory`` that has the method; empty for a method of ``Memory`` itself.
        kind: the class that declares the method.
        method: the name is the verb.
        right: that it takes.
    """

    facet: str
    kind: type
    method: FunctionType
    right: Right

    @property
    def name(self) -> str:
        """The name of the method, after its facet's and a dot."""
        return f"{self.facet}.{self.method.__name__}" if self.facet else self.method.__name__

    @property
    def signature(self) -> inspect.Signature:
        """The signature without ``self``; options are parameters of their own."""
        signature = signature_of(self.method)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class Caller(Protocol):
    """Calls operations of a memory in another process."""

    async def call(self, operation: Operation, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Call *operation* there, and return its result or raise its error."""


def reads(resource: ResourceType, action: Action = Action.READ) -> Callable[[F], F]:
    """Declare a method that changes nothing, and the right that it takes."""
    return _declaring(Right(resource, action, writes=False))


def writes(resource: ResourceType, action: Action) -> Callable[[F], F]:
    """Declare a method that changes something, and the right that it takes."""
    return _declaring(Right(resource, action, writes=True))


def _declaring(right: Right) -> Callable[[F], F]:
    def declare(method: F) -> F:
        setattr(method, _RIGHT, right)
        return method

    return declare


def declares_operations(facet: str = "") -> Callable[[C], C]:
    """
    Make each public method that a class defines check its arguments, and each coroutine among them an operation.

    Raises:
        TypeError: a public coroutine method has no entry; raised when the class is made.
    """

    def declare(kind: C) -> C:
        for name, member in list(vars(kind).items()):
            if isinstance(member, classmethod) and not name.startswith("_"):
                setattr(kind, name, classmethod(checking(cast("FunctionType", member.__func__))))
            if name.startswith("_") or not isinstance(member, FunctionType):
                continue
            if not inspect.iscoroutinefunction(member):
                setattr(kind, name, checking(member))
                continue
            right = getattr(member, _RIGHT, None)
            if right is None:
                raise TypeError(f"{kind.__qualname__}.{name} has no entry: @reads or @writes, with the right it takes.")
            setattr(kind, name, _called(Operation(facet, kind, member, right)))
        return kind

    return declare


def operation_of(member: object) -> Operation | None:
    """Return the operation that a member of a class is; None for anything else."""
    found = getattr(member, _OPERATION, None)
    return found if isinstance(found, Operation) else None


def _called(operation: Operation) -> Callable[..., Any]:
    """Return the method, preceded by the check of its arguments; of a remote memory it is called there."""
    method = operation.method
    checks = functools.cache(lambda: Checks.of(method))

    @functools.wraps(method)
    async def called(self: Any, /, *given: Any, **named: Any) -> Any:
        checks()(given, named)
        remote: Caller | None = self._remote
        if remote is not None:
            return await remote.call(operation, given, named)
        return await method(self, *given, **named)

    if inspect.unwrap(method).__code__.co_flags & inspect.CO_VARKEYWORDS:
        called.__signature__ = signature_of(method)  # type: ignore[attr-defined] # what inspect looks for
    setattr(called, _OPERATION, operation)
    return called
