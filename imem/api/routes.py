"""
Routes of REST, made from the operations: one each, with its arguments, its result and its errors as they stand.

The types of a route are made when it is first called, and those of all for the OpenAPI document: together they take
seconds of processor time, which a start must not.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any, Final

from fastapi import Body, Depends, Header, Query, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from imem.api.idempotency import answer_once
from imem.api.identity import Caller, admit
from imem.journal.errors import BadInput
from imem.services.operations import Operation
from imem.services.problems import MEDIA_TYPE, STATUSES
from imem.services.registry import operations
from imem.services.remote import path_of
from imem.services.wire import Wire, given_of, wire_of

MOST_DEADLINE_MS: Final = 2_000
"""Longest budget that ``X-Deadline-Ms`` may ask for, in milliseconds."""

MOST_ITEMS: Final = 200
"""Most items of one answer: what is asked for beyond is refused by the operations themselves."""


class Problem(BaseModel):
    """A problem document of RFC 9457; more members say what the error says of itself."""

    type: str = Field(examples=["urn:imem:error:BadInput"])
    title: str
    status: int
    detail: str
    mend: str = ""
    retryable: bool = False
    field: str | None = Field(default=None, description="The argument that is wrong.")


PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}, "description": "Refused."}
    for status in (*STATUSES, 415)
}

DeadlineMs = Annotated[
    float | None,
    Header(alias="X-Deadline-Ms", ge=1, le=MOST_DEADLINE_MS, description="Budget of the call, in milliseconds."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, description="Repeats with it have one effect."),
]


@dataclass(slots=True, eq=False)
class OperationRoute(BaseRoute):
    """
    The route of an operation, whose types are made when it is first called.

    Attributes:
        operation: what it calls.
        path: where.
    """

    operation: Operation
    path: str
    _made: APIRoute | None = None
    _making: threading.Lock = field(default_factory=threading.Lock)

    def made(self) -> APIRoute:
        """Return the route itself; from any thread."""
        with self._making:
            if self._made is None:
                self._made = _make_route(self.operation, self.path)
            return self._made

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for this path; a wrong method is refused by :meth:`handle`."""
        return (Match.FULL if scope["type"] == "http" and scope["path"] == self.path else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        route = self._made
        if route is None:
            route = await asyncio.to_thread(self.made)  # In a thread, so that other calls go on meanwhile.
        _, more = route.matches(scope)
        scope.update(more)
        await route.handle(scope, receive, send)


def make_routes() -> list[OperationRoute]:
    """Return the routes of all operations."""
    return [OperationRoute(operation, path_of(operation)) for operation in operations()]


def _make_route(operation: Operation, path: str) -> APIRoute:
    wire = wire_of(operation)
    return APIRoute(
        path,
        _endpoint(wire),
        methods=["GET" if wire.in_query else "POST"],
        operation_id=operation.name,
        tags=[operation.facet or "memory"],
        summary=_summary(operation),
        description=inspect.getdoc(operation.method) or "",
        responses=PROBLEMS,
        # For the document alone: what an endpoint returns is a response already.
        response_model=wire.result_type,
    )


def _summary(operation: Operation) -> str:
    return (inspect.getdoc(operation.method) or operation.name).splitlines()[0]


def _endpoint(wire: Wire) -> Callable[..., Any]:
    # A dependency comes before the check of arguments: who may not call learns nothing from what is wrong with them.
    async def admitted(request: Request) -> Caller:
        return await admit(request, wire.operation)

    by = Annotated[Caller, Depends(admitted)]

    if wire.in_query:

        async def read(caller: Caller, arguments: BaseModel, x_deadline_ms: DeadlineMs = None) -> Response:
            return await _answered(caller, wire, given_of(arguments), x_deadline_ms)

        return _with_parameters(read, caller=by, arguments=Annotated[wire.query, Query()])

    async def write(
        caller: Caller, arguments: BaseModel, x_deadline_ms: DeadlineMs = None, idempotency_key: IdempotencyKey = None
    ) -> Response:
        given = given_of(arguments)
        if idempotency_key is None or not wire.operation.right.writes:
            return await _answered(caller, wire, given, x_deadline_ms)
        whole = wire.operation.name, arguments.model_dump_json()
        return await answer_once(caller, idempotency_key, whole, lambda: _answered(caller, wire, given, x_deadline_ms))

    return _with_parameters(write, caller=by, arguments=Annotated[wire.arguments, Body()])


def _with_parameters(endpoint: Callable[..., Any], **annotations: Any) -> Callable[..., Any]:
    """Give an endpoint the signature that FastAPI reads: with these *annotations* of its parameters."""
    signature = inspect.signature(endpoint, eval_str=True)
    parameters = [
        one.replace(annotation=annotations.get(name, one.annotation)) for name, one in signature.parameters.items()
    ]
    endpoint.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # read by FastAPI
    return endpoint


async def _answered(caller: Caller, wire: Wire, given: Mapping[str, Any], deadline_ms: float | None) -> Response:
    """Call the operation, and return its result with how long it took."""
    named = dict(given)
    if deadline_ms is not None:
        if "deadline_ms" not in wire.operation.signature.parameters:
            raise BadInput("X-Deadline-Ms", "this operation has no deadline.")
        named["deadline_ms"] = deadline_ms
    begun = time.perf_counter()
    result = await attrgetter(wire.operation.name)(caller.memory)(**named)
    took_ms = (time.perf_counter() - begun) * 1000.0
    return Response(
        wire.result.dump_json(result),
        media_type="application/json",
        headers={"Server-Timing": f"memory;dur={took_ms:.1f}", "Cache-Control": "no-store"},
    )
